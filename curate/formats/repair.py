"""The ``repair`` format: how a wrong program became a right one, as a conversation."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa

from curate.formats.format import PROOF, Format, View, proof
from curate.rows import TURN, SampleRow, status_of
from curate.step import Drop, Keep
from curate.teacher.program import program_of


class Repair(Format):
    """A task, the answer that failed, what the judge found, and the answer that was right.

    ``messages`` is the whole conversation. ``failed`` is the last wrong program, ``error`` what the
    judge found, and ``fixed`` the program that was judged correct.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"sample"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "turns", "sample"})

    format: Literal["repair"]

    def columns(self) -> pa.Schema:
        texts = ("reference", "failed", "error", "fixed")
        return pa.schema(
            [
                ("messages", pa.list_(TURN)),
                *((name, pa.string()) for name in texts),
                ("attempt", pa.int32()),
                *PROOF,
            ]
        )

    def render(self, row: SampleRow) -> View:
        attempt = row["sample"]["attempt"]
        if attempt == 1:
            return Drop("first_answer")
        if status_of(row) != "correct":
            return Drop("not_repaired")
        *_, failed, error, _ = row["turns"]
        view = {
            "messages": row["turns"],
            "reference": row["reference"],
            "failed": program_of(failed["content"]),
            "error": error["content"],
            "fixed": row["triton"],
            "attempt": attempt,
        }
        return Keep(({**view, **proof(row)},))
