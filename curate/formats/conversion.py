"""The ``conversion`` format: a prompt that holds a PyTorch module, a completion that holds Triton.

Columns ``prompt`` and ``completion`` are what TRL's `SFTTrainer` calls the prompt-completion form:
the loss is taken on the completion only.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curate.formats.format import PROOF, FormatWithExamples, View, proof
from curate.formats.prompts.question import asked, question
from curate.rows import PairRow
from curate.step import Keep
from curate.teacher.template import fence


class Conversion(FormatWithExamples):
    """PyTorch in, Triton out, as prompt and completion."""

    version: ClassVar[int] = 5
    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "reference", "triton", "static"})

    format: Literal["conversion"]
    instruction: Annotated[
        str | None,
        Field(
            description="What stands above the PyTorch code in the prompt; by default one of a "
            "dozen wordings or KernelBench's order, drawn by the row's id, with what its program "
            "keeps to, and in half of the rows a program of another operator."
        ),
    ] = None

    def columns(self) -> pa.Schema:
        return pa.schema([("prompt", pa.string()), ("completion", pa.string()), *PROOF])

    def render(self, row: PairRow) -> View:
        example = None if self.instruction else self._examples.for_row(row)
        if self.instruction:
            prompt = question(row["reference"], self.instruction)
        else:
            prompt = asked(row, example)
        view = {"prompt": prompt, "completion": fence(row["triton"]), **proof(row, example)}
        return Keep((view,))
