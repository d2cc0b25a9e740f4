"""The ``messages`` format: one conversation a row, as TRL's conversational form wants it.

Messages are plain structs (role, content): every `datasets` from 4.0 on loads them, and no chat
template meets a key that it does not know.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curate.formats.conversion import INSTRUCTION, fence
from curate.formats.format import PROOF, Format, proof
from curate.rows import Row
from curate.step import Keep

SYSTEM = "You write Triton GPU kernels that replace PyTorch modules."

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])


class Messages(Format):
    """System, user and assistant turns: the PyTorch module in, the Triton program out."""

    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})

    format: Literal["messages"]
    system: Annotated[str, Field(description="The system message; empty leaves it out.")] = SYSTEM
    instruction: Annotated[
        str, Field(description="What stands above the PyTorch code in the user's message.")
    ] = INSTRUCTION

    def columns(self) -> pa.Schema:
        return pa.schema([("messages", pa.list_(MESSAGE)), *PROOF])

    def render(self, row: Row) -> Keep:
        turns = [
            ("system", self.system),
            ("user", f"{self.instruction}\n{fence(row['reference'])}"),
            ("assistant", fence(row["triton"])),
        ]
        messages = [{"role": role, "content": text} for role, text in turns if text]
        return Keep(({"messages": messages, **proof(row)},))
