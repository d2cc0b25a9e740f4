"""The ``negatives`` format: wrong programs that nobody put right, and what is wrong with them."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa

from curate.formats.format import PROOF, Format, View, proof
from curate.rows import TURN, SampleRow
from curate.step import Drop, Keep


class Negatives(Format):
    """A task, an answer that failed, and the judge's evidence as JSON; `select` chooses them."""

    kinds: ClassVar[frozenset[str]] = frozenset({"sample"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "turns", "sample"})

    format: Literal["negatives"]

    def columns(self) -> pa.Schema:
        texts = ("reference", "triton", "evidence")
        return pa.schema(
            [
                ("messages", pa.list_(TURN)),
                *((name, pa.string()) for name in texts),
                ("attempt", pa.int32()),
                *PROOF,
            ]
        )

    def render(self, row: SampleRow) -> View:
        if row["sample"]["selection"] != "failed":
            return Drop("not_failed")
        view = {
            "messages": row["turns"],
            "reference": row["reference"],
            "triton": row["triton"],
            "evidence": row["verdict"] and row["verdict"]["evidence"],
            "attempt": row["sample"]["attempt"],
        }
        return Keep(({**view, **proof(row)},))
