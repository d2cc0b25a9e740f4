"""The judge as a command that needs Python, torch, triton and NumPy only.

``python -m curate.verify IN.jsonl OUT.jsonl``
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from curate.files import InputError
from curate.flags import flags, parse
from curate.terminal.progress import ProgressLine
from curate.terminal.shown import say, show_uncaught
from curate.verify.files import parse_shard, read_jsonl, shard
from curate.verify.labelling import CannotJudge, exit_status, label
from curate.verify.verdict import EXIT_HELP, SHARD_HELP, STATUSES, Options


def main() -> int:
    """Judge the candidates that the command line names; return the exit code."""
    parser = make_parser()
    given = parser.parse_args()
    try:
        options = Options(**parse(Options, vars(given)))
        part = parse_shard(given.shard)
    except ValueError as error:
        parser.error(str(error))
    try:
        candidates = shard(read_jsonl(given.input), *part)
        with ProgressLine() as progress:
            verdicts = label(candidates, options, given.output, progress.show_tally)
    except (InputError, CannotJudge) as error:
        say(f"curate.verify: {error}", err=True)
        return 2
    except KeyboardInterrupt:
        say("curate.verify: interrupted; the same command goes on", err=True)
        return 130
    counts = Counter(verdict.status for verdict in verdicts)
    for status in filter(counts.__getitem__, STATUSES):
        say(f"{status:<14} {counts[status]:>8}")
    return exit_status(verdicts)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m curate.verify",
        description="Judge candidates against their references. Verdicts are appended to OUT.jsonl "
        "as they come; those that it already holds are kept.",
        epilog=EXIT_HELP,
    )
    parser.add_argument(
        "input", type=Path, metavar="IN.jsonl", help="Lines with id, reference and candidate."
    )
    parser.add_argument("output", type=Path, metavar="OUT.jsonl", help="One line per verdict.")
    parser.add_argument("--shard", metavar="i/n", default="1/1", help=SHARD_HELP)
    for flag in flags(Options):
        form: dict[str, Any] = {"type": flag.type, "metavar": flag.metavar}
        if flag.type is bool:
            form = {"action": argparse.BooleanOptionalAction}
        elif flag.choices:
            form = {"choices": flag.choices}
        text = f"{flag.help} Default: {flag.note}." if flag.note else flag.help
        parser.add_argument(flag.spelling, dest=flag.name, default=flag.default, help=text, **form)
    return parser


if __name__ == "__main__":
    sys.excepthook = show_uncaught
    sys.exit(main())
