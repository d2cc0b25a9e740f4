"""The ``conversion`` format: a prompt that holds a PyTorch module, a completion that holds Triton.

Columns ``prompt`` and ``completion`` are what TRL's `SFTTrainer` calls the prompt-completion form:
the loss is taken on the completion only.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curate.formats.format import PROOF, Format, View, proof
from curate.formats.question import INSTRUCTION, question
from curate.rows import PairRow
from curate.step import Keep
from curate.teacher.template import fence


class Conversion(Format):
    """PyTorch in, Triton out, as prompt and completion."""

    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "reference", "triton"})

    format: Literal["conversion"]
    instruction: Annotated[
        str, Field(description="What stands above the PyTorch code in the prompt.")
    ] = INSTRUCTION

    def columns(self) -> pa.Schema:
        return pa.schema([("prompt", pa.string()), ("completion", pa.string()), *PROOF])

    def render(self, row: PairRow) -> View:
        prompt = question(row["reference"], self.instruction)
        view = {"prompt": prompt, "completion": fence(row["triton"]), **proof(row)}
        return Keep((view,))
