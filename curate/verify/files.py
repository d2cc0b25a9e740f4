"""Candidates come from files, and verdicts go to one: JSON lines both, and KernelBench's ``.py``.

A verdict file is a journal (`curate.journal`) with one line per verdict. Each line is
`Verdict.to_json` with two more fields that say what was judged and how: ``sha256``, of the
candidate and its reference, and ``options``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from curate.files import InputError, json_lines, read_text, strict_json
from curate.journal import journal_lines, json_line, open_journal
from curate.verify.verdict import VERSION, Candidate, Options, Verdict

LINE_START = b'{"sha256": "'
"""How every line of a verdict file starts, and no other file's: what else stands at its end is
not taken for a torn verdict, and not cut off."""


# --- candidates -------------------------------------------------------------------------------


def read_jsonl(path: Path) -> list[Candidate]:
    """Return the candidates of a file with one JSON object per line.

    Each has ``id``, ``reference``, and ``candidate`` or ``triton``, and ``ptx`` where its kernels
    are CUDA's; other fields are passed over.

    Raises:
        InputError: the file cannot be read, has no lines, a line lacks a field, or two have the
            same id.
    """
    return not_none(path, make_candidates(json_lines(path, read_text(path))))


def not_none(path: Path, candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates of a file or folder.

    Raises:
        InputError: there are none.
    """
    if not candidates:
        raise InputError(f"{path}: holds no candidates; nothing is judged")
    return candidates


def read_programs(reference: Path, candidates: Iterable[Path]) -> list[Candidate]:
    """Return candidates, each a ``.py`` file, for the one module of a reference file.

    A candidate's id is its path as given.

    Raises:
        InputError: a file cannot be read, or is named twice.
    """
    text = read_text(reference)
    rows = ({"id": p.as_posix(), "reference": text, "candidate": read_text(p)} for p in candidates)
    return make_candidates((row["id"], row) for row in rows)


def make_candidates(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[Candidate]:
    """Return the candidate of every row; each comes with the place that errors name.

    Raises:
        InputError: a field is missing or not text, or two rows have the same id.
    """
    places: dict[str, str] = {}
    candidates = []
    for place, row in rows:
        if "candidate" in row and "triton" in row:
            raise InputError(f"{place}: has both 'candidate' and 'triton'; one is enough")
        program = "triton" if "triton" in row else "candidate"
        name, reference, text = (_text(place, row, n) for n in ("id", "reference", program))
        ptx = _text(place, row, "ptx") if row.get("ptx") is not None else None
        candidate = Candidate(name, reference, text, ptx)
        if candidate.id in places:
            raise InputError(f"{place}: id {candidate.id!r} is also at {places[candidate.id]}")
        places[candidate.id] = place
        candidates.append(candidate)
    return candidates


def _text(place: str, row: dict[str, Any], name: str) -> str:
    if name not in row:
        other = " (or 'triton')" if name == "candidate" else ""
        raise InputError(f"{place}: has no field '{name}'{other}")
    value = row[name]
    if not isinstance(value, str) or not value:
        raise InputError(f"{place}: field '{name}' must be text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: field '{name}' is not Unicode text: {error}") from error
    return value


def parse_shard(text: str) -> tuple[int, int]:
    """Return i and n of ``i/n``.

    Raises:
        ValueError: the text is something else, or i is not in 1..n.
    """
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"shard {text!r}: must be i/n with i from 1 to n, such as 1/8")
    return int(part), int(parts)


def shard(candidates: Iterable[Candidate], i: int, n: int) -> list[Candidate]:
    """Return the i-th of n parts, i from 1: what a candidate's id says, whatever the others are."""
    return [
        c for c in candidates if int(hashlib.sha256(c.id.encode()).hexdigest(), 16) % n == i - 1
    ]


# --- verdicts ---------------------------------------------------------------------------------


def text_sha256(candidate: Candidate) -> str:
    """Return the sha256 of what is judged: the reference, the candidate and its PTX, not the id."""
    texts = [candidate.reference, candidate.candidate]
    texts += [] if candidate.ptx is None else [candidate.ptx]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A line of a verdict file.

    Attributes:
        place: the file, and the number of the line in it.
        verdict: what the judge said.
        sha256: of the texts that were judged, as `text_sha256` gives it.
        options: those that the verdict may depend on.
    """

    place: str
    verdict: Verdict
    sha256: str
    options: dict[str, Any]

    def judges(self, candidate: Candidate) -> bool:
        """Say whether this is what today's judge says of the candidate's present text."""
        return self.sha256 == text_sha256(candidate) and self.verdict.judge == VERSION

    def line(self) -> bytes:
        """Return the line."""
        said = {"sha256": self.sha256, "options": self.options}
        return json_line(said | strict_json(self.verdict.to_json()))


def read_verdicts(path: Path) -> dict[str, Entry]:
    """Return a verdict file's entries by id; where an id was judged again, the last counts.

    A last line without its end, as a kill may leave it, is passed over.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    entries = {}
    for place, row in journal_lines(path, LINE_START):
        try:
            sha256, options = row.pop("sha256"), row.pop("options")
            entry = Entry(place, Verdict.from_json(row), sha256, options)
        except (KeyError, ValueError) as error:
            raise InputError(f"{place}: is not a line of a verdict file: {error}") from error
        entries[entry.verdict.id] = entry
    return entries


class VerdictFile:
    """A verdict file while the judge writes it; a context manager.

    Raises:
        InputError: the file holds something else, or another process is writing it.
    """

    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._options = path, options.deciding()
        self._journal = open_journal(path, LINE_START, "verdicts", durable=True)
        with self._journal.closed_on_error():
            self._entries = read_verdicts(path)

    def known(self, candidate: Candidate) -> Verdict | None:
        """Return the verdict that the file holds on this text with these options, or None."""
        entry = self._entries.get(candidate.id)
        if entry and entry.judges(candidate) and entry.options == self._options:
            return entry.verdict
        return None

    def append(self, candidate: Candidate, verdict: Verdict) -> None:
        """Write a verdict; when this returns, it is on disk."""
        entry = Entry(str(self._path), verdict, text_sha256(candidate), self._options)
        self._journal.append(entry.line())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._journal.close()
