"""The ``compile`` step: kernels compiled for many targets, on a machine without a GPU."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from curate.devices import DEVICES, known_device
from curate.rows import KernelRow, PairRow
from curate.step import Context, Drop, Keep, Outcome, RowStep

if TYPE_CHECKING:
    from curate.verify.compile.aot import CompiledTarget

TargetName = Annotated[str, AfterValidator(known_device)]


class Compile(RowStep):
    """Compile kernels for every target, on a machine without a GPU.

    The row is kept with registers, spills and shared memory of each target in ``compile``. Of a
    pair, every kernel that the program launches is compiled, and one that does not compile for one
    target drops the row. Configurations of a tuned kernel may take more than a target has, as a
    tuner passes over them, but one must fit. A kernel on its own is compiled with the signature
    that `signature` found; it is kept with the error of each target that it does not compile for,
    and dropped if there is no other.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"pair", "kernel"})
    sets: ClassVar[frozenset[str]] = frozenset({"compile"})
    sandboxed: ClassVar[bool] = True
    tools: ClassVar[tuple[str, ...]] = ("torch", "triton")

    step: Literal["compile"]
    targets: Annotated[
        tuple[TargetName, ...],
        Field(
            min_length=1,
            description="Devices that each kernel must compile for: cuda: and the compute "
            "capability without its point, or hip: and the architecture. There are "
            + ", ".join(DEVICES)
            + ".",
        ),
    ] = ("cuda:80", "cuda:90", "hip:gfx942")
    tuned: Annotated[
        Literal["first", "all"],
        Field(
            description="Which configurations of a tuned kernel are compiled: the first, or all "
            "that it does not prune, which takes over ten times as long."
        ),
    ] = "first"

    def setup(self, context: Context) -> None:
        os.environ["TRITON_CACHE_DIR"] = f"{tempfile.gettempdir()}/triton"
        import torch

        from curate.problem.problem import EXAMPLE
        from curate.verify.compile.aot import compile_program

        torch.set_num_threads(1)
        compile_program(*EXAMPLE, list(self.targets))

    def apply(self, row: PairRow | KernelRow, context: Context) -> Outcome:
        return self._kernel(row) if row["kind"] == "kernel" else self._program(row)

    def _kernel(self, row: KernelRow) -> Outcome:
        from curate.problem.problem import ProgramError
        from curate.verify.compile.kernel import compile_kernel, read_signature

        signature = read_signature(row["kernel"]["signature"] or "")
        try:
            results = compile_kernel(
                row["triton"], row["entry_point"], signature, list(self.targets)
            )
        except ProgramError as error:
            return Drop("import_error", {"message": str(error)})
        if not any(result.ok for result in results):
            return Drop("compile_error", _shown(results[0], row["entry_point"]))
        return Keep(({**row, "compile": [result.to_row() for result in results]},))

    def _program(self, row: PairRow) -> Outcome:
        from curate.problem.problem import ProgramError
        from curate.verify.compile.aot import LaunchError, compile_program

        try:
            results = compile_program(
                row["reference"], row["triton"], list(self.targets), self.tuned
            )
        except (LaunchError, ProgramError) as error:
            return Drop("launch_error", {"message": str(error)})
        if not any(result.kernels for result in results):
            return Drop("no_kernel", {"message": "forward launches no Triton kernel"})
        for result in results:
            if not result.ok:
                return Drop("compile_error", _shown(result, result.kernel))
        return Keep(({**row, "compile": [result.to_row() for result in results]},))


def _shown(failed: CompiledTarget, kernel: str | None) -> dict[str, object]:
    said = {"error": failed.error, "message": failed.message}
    return {"kernel": kernel, "target": failed.target, **said}
