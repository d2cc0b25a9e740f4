"""The ``nvcc`` step: whether NVIDIA's compiler takes the CUDA side of a pair.

Compiled means PTX: no GPU is needed, nothing is assembled, linked or run. A kernel that is a
template gives code only where the launch code in the row instantiates it; ``compile.kernels`` says
how many entries came out. Headers are those of the toolkit and of the installed PyTorch.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, cast

from pydantic import Field

from curate.rows import COMPILE, Compiled, CudaRow, Loose
from curate.step import Context, Keep, Outcome, RowSeconds, RowStep
from curate.verify.compile.ptx import NvccError, compile_ptx, entries


class Nvcc(RowStep):
    """Compile the CUDA side of pairs to PTX, and keep every row with what came of it.

    ``compile`` gets an entry ``nvcc:90``: ok and how many kernels came out, or the error:
    ``missing_header`` (a library that is not here), ``compile_error``, ``timeout``, or
    ``unsupported`` where there is no nvcc.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"cuda"})
    reads: ClassVar[frozenset[str]] = frozenset({"cuda"})
    sets: ClassVar[frozenset[str]] = frozenset({"compile"})
    sandboxed: ClassVar[bool] = True
    tools: ClassVar[tuple[str, ...]] = ("nvidia-cuda-nvcc", "torch")

    step: Literal["nvcc"]
    arch: Annotated[
        int, Field(ge=75, description="Compute capability without its point, 90 for Hopper.")
    ] = 90
    timeout_s: RowSeconds = 300.0

    def apply(self, row: CudaRow, context: Context) -> Outcome:
        result = compile_cuda(row["cuda"], self.arch, self.timeout_s * 0.9)
        return Keep(({**row, "compile": [*(row["compile"] or []), result]},))


def compile_cuda(source: str, arch: int, timeout_s: float) -> Compiled:
    """Return the entry of column ``compile`` for a CUDA file, compiled for one architecture."""
    result: Loose = {**dict.fromkeys(field.name for field in COMPILE), "target": f"nvcc:{arch}"}
    try:
        kernels = entries(compile_ptx(source, arch, timeout_s))
    except NvccError as failed:
        result |= {"ok": False, "error": failed.error, "message": failed.message}
    else:
        result |= {"ok": True, "kernels": len(kernels)}
    return cast(Compiled, result)
