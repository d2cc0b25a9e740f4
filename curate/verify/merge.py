"""Put the verdict files of shards together: every candidate has one verdict, or it is an error.

``python -m curate.verify.merge IN.jsonl OUT.jsonl VERDICTS.jsonl ...``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from curate.files import InputError, write_atomically
from curate.terminal.shown import say, show_uncaught
from curate.verify.files import Entry, read_jsonl, read_verdicts
from curate.verify.verdict import Candidate, Verdict

NAMED = 10
"""Missing candidates that a message names."""


def merge_files(candidates: list[Candidate], verdicts: Iterable[Path]) -> list[Entry]:
    """Return one entry per candidate, in the candidates' order.

    Raises:
        InputError: a candidate has no verdict on its present text, or verdicts that differ in
            status or reason; a verdict is of no candidate; or options differ.
    """
    present = {c.id: c for c in candidates}
    entries: dict[str, Entry] = {}
    for path in verdicts:
        for name, entry in read_verdicts(path).items():
            if name not in present:
                raise InputError(f"{entry.place}: no candidate has the id {name!r}")
            if not entry.judges(present[name]):
                continue
            _same_options(next(iter(entries.values()), entry), entry)
            _same_verdict(entries.setdefault(name, entry), entry)
    missing = [c.id for c in candidates if c.id not in entries]
    if missing:
        more = ", …" if len(missing) > NAMED else ""
        raise InputError(
            f"{len(missing)} of {len(candidates)} candidates have no verdict of this judge on "
            f"their present text: {', '.join(missing[:NAMED])}{more}"
        )
    return [entries[c.id] for c in candidates]


def _same_options(one: Entry, other: Entry) -> None:
    differing = [
        f"{name} {one.options.get(name)} and {value}"
        for name, value in other.options.items()
        if one.options.get(name) != value
    ]
    if differing:
        raise InputError(f"{one.place} and {other.place} have other options: {differing[0]}")


def _same_verdict(one: Entry, other: Entry) -> None:
    said, says = ((e.verdict.status, e.verdict.reason) for e in (one, other))
    if said != says:
        raise InputError(
            f"{one.place} and {other.place} disagree on {one.verdict.id!r}: {_words(one.verdict)}, "
            f"{_words(other.verdict)}"
        )


def _words(verdict: Verdict) -> str:
    return f"{verdict.status} ({verdict.reason})" if verdict.reason else verdict.status


def write_entries(path: Path, entries: list[Entry]) -> None:
    """Write a verdict file, whole or not at all."""
    write_atomically(path, b"".join(entry.line() for entry in entries))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m curate.verify.merge",
        description="Put the verdict files of shards together.",
    )
    parser.add_argument("input", type=Path, metavar="IN.jsonl", help="All the candidates.")
    parser.add_argument("output", type=Path, metavar="OUT.jsonl", help="One verdict on each.")
    parser.add_argument(
        "verdicts", type=Path, nargs="+", metavar="VERDICTS.jsonl", help="What the shards wrote."
    )
    return parser


def main() -> int:
    """Merge the files that the command line names; return the exit code."""
    given = make_parser().parse_args()
    try:
        entries = merge_files(read_jsonl(given.input), given.verdicts)
    except InputError as error:
        say(f"curate.verify: {error}", err=True)
        return 2
    write_entries(given.output, entries)
    say(f"{len(entries)} verdicts in {given.output}")
    return 0


if __name__ == "__main__":
    sys.excepthook = show_uncaught
    sys.exit(main())
