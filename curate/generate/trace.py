"""What a model answered and what the judge said about it, kept line by line.

A trace file is a journal (`curate.journal`) with a line per answer, written when the answer is
judged. `curate.train.traces` makes rows to train on from it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from curate.files import InputError, strict_json
from curate.generate.sampling import Message
from curate.journal import journal_lines, json_line, open_journal
from curate.verify import Verdict

_START = b'{"reference": "'  # of every line of a trace


@dataclass(frozen=True)
class Attempt:
    """One answer of a model.

    Attributes:
        reference: the PyTorch module that was to be replaced.
        model: who answered.
        round: from 1; each asks about the answers of the one before.
        number: of the conversation, from 0.
        template: what was asked last: ``question``, ``repair@1`` or ``faster@1``.
        messages: the whole conversation; the answer is the last.
        finish: why the model stopped, as `curate.generate.sampling.Sample` says it.
        program: what the answer gives, or None.
        verdict: what the judge says of the program; None where there is none.
    """

    reference: str
    model: str
    round: int
    number: int
    template: str
    messages: list[Message]
    finish: str
    program: str | None
    verdict: Verdict | None

    @property
    def status(self) -> str:
        """The verdict's status, or ``no_code``."""
        return self.verdict.status if self.verdict else "no_code"

    @property
    def is_right(self) -> bool:
        """Whether the judge called the program correct."""
        return self.status == "correct"

    def line(self) -> bytes:
        """Return the attempt as a line of a trace file."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["verdict"] = self.verdict and strict_json(self.verdict.to_json())
        return json_line(values)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Attempt:
        """Return the attempt of a line's values.

        Raises:
            ValueError: a field is missing or unknown.
        """
        try:
            verdict = values.pop("verdict")
            return cls(**values, verdict=verdict and Verdict.from_json(verdict))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an attempt: {error}") from error


def read_trace(path: Path) -> list[Attempt]:
    """Return the attempts that a trace file holds, in order; a torn last line is passed over.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    attempts = []
    for place, values in journal_lines(path, _START):
        try:
            attempts.append(Attempt.from_json(values))
        except ValueError as error:
            raise InputError(f"{place}: is not a line of a trace: {error}") from error
    return attempts


class TraceFile:
    """A trace file while attempts are added to it; a context manager.

    Raises:
        InputError: the file holds something else, cannot be written, or another process is
            writing it.
    """

    def __init__(self, path: Path) -> None:
        self._journal = open_journal(path, _START, "a trace")
        with self._journal.closed_on_error():
            read_trace(path)

    def add(self, attempt: Attempt) -> None:
        """Write an attempt."""
        self._journal.append(attempt.line())

    def close(self) -> None:
        """Close the file."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
