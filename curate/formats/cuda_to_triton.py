"""The ``cuda_to_triton`` format: a prompt that holds a CUDA kernel, a completion that holds Triton.

The kernel stands with the device functions it needs and its launch code; the completion is the
Triton kernel, and with it the function that launches it, where one could be cut out. Where the
grade is ``verified`` both were found right against ``reference``, the Triton side with the verdict
of ``verdict``; elsewhere ``cuda_verdict_reason`` says why they were not run. Filter by ``grade``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from curate.formats.format import PROOF, Format, Shown, View, proof
from curate.rows import PAIRING, CudaRow
from curate.step import Keep
from curate.teacher.template import fence

INSTRUCTION = """\
Rewrite this CUDA kernel and the code that launches it in Triton.
"""


class CudaToTriton(Format):
    """CUDA in, Triton out, as prompt and completion, with the grade of the pair."""

    version: ClassVar[int] = 3
    kinds: ClassVar[frozenset[str]] = frozenset({"cuda"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "cuda", "triton"})

    format: Literal["cuda_to_triton"]
    instruction: Annotated[
        str, Field(description="What stands above the CUDA code in the prompt.")
    ] = INSTRUCTION

    def columns(self) -> pa.Schema:
        return pa.schema(
            [
                ("prompt", pa.string()),
                ("completion", pa.string()),
                ("grade", pa.string()),
                ("evidence", PAIRING.field("evidence").type),
                ("triton_path", pa.string()),
                ("triton_symbol", pa.string()),
                ("reference", pa.string()),
                ("cuda_verdict", pa.string()),
                ("cuda_verdict_reason", pa.string()),
                *PROOF,
            ]
        )

    def render(self, row: CudaRow) -> View:
        pairing = row["pairing"]
        verdict = pairing["verdict"]
        view = {
            "prompt": f"{self.instruction}\n{fence(row['cuda'], 'cuda')}",
            "completion": fence(row["host_function"] or row["triton"]),
            "grade": pairing["grade"],
            "evidence": pairing["evidence"],
            "triton_path": pairing["path"],
            "triton_symbol": pairing["symbol"],
            "reference": row["reference"],
            "cuda_verdict": verdict and verdict["status"],
            "cuda_verdict_reason": verdict and verdict["reason"],
        }
        return Keep(({**view, **proof(row)},))

    def prompt_and_completion(self, row: CudaRow, shown: Shown) -> tuple[str, str]:
        return row["cuda"], row["host_function"] or row["triton"]
