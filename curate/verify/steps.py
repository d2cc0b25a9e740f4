"""The recipe's two steps of proof: `Compile` for many targets, and `Check` against the reference.

Only what a recipe needs to name them is imported here; the judge itself is loaded in the worker.
"""

from __future__ import annotations

import os
import tempfile
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from curate.rows import Row
from curate.step import Context, Drop, Keep, Outcome, RowStep
from curate.verify.targets import SHARED_MEMORY, parse_target


def _known_target(name: str) -> str:
    parse_target(name)
    return name


TargetName = Annotated[str, AfterValidator(_known_target)]


class Compile(RowStep):
    """Compile every kernel that a program launches, for every target, on a machine without a GPU.

    The row is kept with registers, spills and shared memory of each target in ``compile``; a
    program that does not compile for one of them is dropped.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})
    sandboxed: ClassVar[bool] = True
    tools: ClassVar[tuple[str, ...]] = ("torch", "triton")

    step: Literal["compile"]
    targets: Annotated[
        tuple[TargetName, ...],
        Field(
            min_length=1,
            description="Devices that each kernel must compile for: cuda: and the compute "
            "capability without its point, or hip: and the architecture. There are "
            + ", ".join(SHARED_MEMORY)
            + ".",
        ),
    ] = ("cuda:80", "cuda:90", "hip:gfx942")

    def setup(self, context: Context) -> None:
        os.environ["TRITON_CACHE_DIR"] = f"{tempfile.gettempdir()}/triton"
        import torch

        from curate.verify.aot import compile_program
        from curate.verify.problem import EXAMPLE

        torch.set_num_threads(1)
        compile_program(*EXAMPLE, list(self.targets))

    def apply(self, row: Row, context: Context) -> Outcome:
        from curate.verify.aot import LaunchError, compile_program
        from curate.verify.problem import ProgramError

        try:
            results = compile_program(row["reference"], row["triton"], list(self.targets))
        except (LaunchError, ProgramError) as error:
            return Drop("launch_error", {"message": str(error)})
        if not any(result["kernels"] for result in results):
            return Drop("no_kernel", {"message": "forward launches no Triton kernel"})
        kernels = [result.pop("kernel") for result in results]
        for kernel, result in zip(kernels, results, strict=True):
            if not result["ok"]:
                shown = {name: result[name] for name in ("target", "error", "message")}
                return Drop("compile_error", {"kernel": kernel, **shown})
        return Keep(({**row, "compile": results},))


class Check(RowStep):
    """Run a program in Triton's interpreter on CPU and compare it with its reference.

    The row is kept with a ``verdict``: ``correct``, or ``unsupported`` with the reason why it
    could not be run. A program that computes something else, or raises, is dropped.
    """

    version: ClassVar[int] = 3
    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})
    sandboxed: ClassVar[bool] = True
    tools: ClassVar[tuple[str, ...]] = ("torch", "triton", "numpy")

    step: Literal["check"]
    trials: Annotated[
        int,
        Field(
            ge=1,
            le=100,
            description="Sets of inputs and parameters, each drawn anew, on which a program must "
            "agree with its reference.",
        ),
    ] = 3
    operations: Annotated[
        int,
        Field(
            gt=0,
            description="Operations on blocks that the interpreter may take for one program: "
            "about 40,000 are done in a second. A program that needs more is tried on smaller "
            "sizes alone, where it takes its sizes from its inputs (reason smaller_sizes_only), "
            "and is otherwise kept as unsupported (reason interpreter_budget).",
        ),
    ] = 500_000
    timeout_s: Annotated[float, Field(gt=0, description="Seconds that one row may take.")] = 180.0

    def setup(self, context: Context) -> None:
        os.environ["TRITON_INTERPRET"] = "1"  # read by triton when kernels are defined
        import torch

        from curate.verify.check import check_program
        from curate.verify.interpreter import install
        from curate.verify.problem import EXAMPLE

        torch.set_num_threads(1)
        install()
        check_program(*EXAMPLE, trials=1, operations=10_000, vary_sizes=False)

    def apply(self, row: Row, context: Context) -> Outcome:
        from curate.verify.check import check_program

        dynamic = bool((row["static"] or {}).get("dynamic_dims"))
        verdict, evidence = check_program(
            row["reference"],
            row["triton"],
            trials=self.trials,
            operations=self.operations,
            vary_sizes=dynamic,
        )
        if verdict["status"] not in ("correct", "unsupported"):
            return Drop(verdict["status"], {"reason": verdict["reason"], **evidence})
        return Keep(({**row, "verdict": verdict},))
