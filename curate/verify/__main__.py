"""The judge on a machine that has Python, torch and triton, and nothing else of `curate`'s.

``python -m curate.verify IN.jsonl OUT.jsonl``
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from curate.verify.files import InputError, parse_shard, read_jsonl, shard
from curate.verify.flags import SHARD_HELP, flags, make_options
from curate.verify.label import CannotJudge, Tally, label

QUIET_S = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def main() -> int:
    """Judge the candidates that the command line names; return the exit code."""
    parser = make_parser()
    given = parser.parse_args()
    try:
        options = make_options(vars(given))
        part = parse_shard(given.shard)
    except ValueError as error:
        parser.error(str(error))
    progress = Progress()
    try:
        candidates = shard(read_jsonl(given.input), *part)
        label(candidates, options, given.output, progress)
    except InputError as error:
        print(f"curate.verify: {error}", file=sys.stderr)
        return 2
    except CannotJudge as error:
        print(f"curate.verify: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncurate.verify: interrupted; the same command goes on", file=sys.stderr)
        return 130
    for status, count in progress.tally.counts():
        print(f"{status:<14} {count:>8}")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m curate.verify",
        description="Judge candidates against their references; verdicts are appended to a file "
        "as they come, and those that it holds already are kept.",
    )
    parser.add_argument(
        "input", type=Path, metavar="IN.jsonl", help="Lines with id, reference, candidate."
    )
    parser.add_argument("output", type=Path, metavar="OUT.jsonl", help="A line a verdict.")
    parser.add_argument("--shard", metavar="i/n", default="1/1", help=SHARD_HELP)
    for flag in flags():
        form: dict[str, Any] = {"type": flag.kind, "metavar": flag.metavar}
        if isinstance(flag.default, bool):
            form = {"action": argparse.BooleanOptionalAction}
        elif flag.choices:
            form = {"choices": flag.choices}
        text = f"{flag.help} Default: {flag.default}." if flag.default else flag.help
        parser.add_argument(flag.spelling, dest=flag.name, default=flag.default, help=text, **form)
    return parser


class Progress:
    """Shows a tally on stderr: one line that is written over, or on a file a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self.tally = Tally(0)

    def __call__(self, tally: Tally) -> None:
        self.tally = tally
        ended = tally.done == tally.total
        if self._terminal:
            print(f"\r\x1b[K{tally.line()}", end="\n" if ended else "", file=sys.stderr, flush=True)
        elif ended or time.monotonic() - self._last > QUIET_S:
            self._last = time.monotonic()
            print(tally.line(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
