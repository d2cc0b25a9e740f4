"""The ``messages`` format: one conversation a row, as TRL's conversational form wants it.

Messages are plain structs (role, content): every `datasets` from 4.0 on loads them, and no chat
template meets a key that it does not know.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curate.formats.format import PROOF, Format, View, proof
from curate.formats.question import INSTRUCTION, SYSTEM, question
from curate.rows import TURN, PairRow, SampleRow
from curate.step import Drop, Keep
from curate.teacher.template import fence


class Messages(Format):
    """System, user and assistant turns: the PyTorch module in, the Triton program out.

    Of a teacher's answers, the best to each question is shown in its own words, and those that are
    text, which nothing judges.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"pair", "sample"})

    format: Literal["messages"]
    system: Annotated[str, Field(description="The system message; empty leaves it out.")] = SYSTEM
    instruction: Annotated[
        str, Field(description="What stands above the PyTorch code in the user's message.")
    ] = INSTRUCTION

    def columns(self) -> pa.Schema:
        return pa.schema([("messages", pa.list_(TURN)), *PROOF])

    def render(self, row: PairRow | SampleRow) -> View:
        if row["sample"] and row["turns"]:
            if row["triton"] is not None and row["sample"]["selection"] != "best":
                return Drop("not_best")
            turns = row["turns"]
        else:
            turns = [
                {"role": "user", "content": question(row["reference"] or "", self.instruction)},
                {"role": "assistant", "content": fence(row["triton"] or "")},
            ]
        system = [{"role": "system", "content": self.system}] if self.system else []
        return Keep(({"messages": [*system, *turns], **proof(row)},))
