"""The step that has PyTorch's compiler write Triton code, for a GPU that need not be there."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from curate.rows import Generated, Static, TaskRow
from curate.step import Context, Drop, Keep, Outcome, RowStep

if TYPE_CHECKING:
    from curate.generator.generate import Printed

Target = Literal[
    "cuda:75",
    "cuda:80",
    "cuda:86",
    "cuda:89",
    "cuda:90",
    "cuda:100",
    "cuda:120",
    "hip:gfx90a",
    "hip:gfx942",
    "hip:gfx950",
]


class Inductor(RowStep):
    """Ask PyTorch's compiler for the Triton code of each task.

    The task's module is exported in eval mode with fake tensors, and Inductor writes the code that
    it would run on the target. No GPU is needed. The row keeps its kind; its ``generated`` column
    holds the compiler's own output, which `standalone` turns into a plain program.

    With ``dynamic`` the program is printed from Inductor's loops (`curate.generator`), in which
    sizes and numbers are symbols, wherever that can be done. Otherwise the module is also compiled
    with other constructor arguments, other sizes and in bfloat16. What differs between the programs
    becomes a name for what it follows from; what cannot be varied so, such as the size of a pooling
    window, the program checks.
    """

    tools: ClassVar[tuple[str, ...]] = ("torch", "triton")
    takes: ClassVar[frozenset[str]] = frozenset({"task"})
    reads: ClassVar[frozenset[str]] = frozenset({"reference"})
    sets: ClassVar[frozenset[str]] = frozenset({"generated", "static"})
    sandboxed: ClassVar[bool] = True

    step: Literal["inductor"]
    version: ClassVar[int] = 6
    target: Annotated[
        Target,
        Field(
            description="GPU to write for: cuda:<compute capability> or hip:<architecture>. It "
            "decides block sizes, warps and which instructions may be used."
        ),
    ] = "cuda:90"
    own_products: Annotated[
        bool,
        Field(
            description="Write matrix products and convolutions as Triton kernels with tl.dot "
            "and an autotuner, and what follows them in the same kernel, instead of calls to "
            "cuBLAS, cuDNN and the like."
        ),
    ] = False
    dynamic: Annotated[
        bool,
        Field(
            description="Leave input sizes, the constructor's numbers and the floating type open "
            "where the module allows it; otherwise all of them are constants."
        ),
    ] = True

    def setup(self, context: Context) -> None:
        from curate.generator.generate import warm
        from curate.inductor import offline

        offline.warm(self.target, self.own_products)
        if self.dynamic:
            warm(self.target)

    def apply(self, row: TaskRow, context: Context) -> Outcome:
        from curate.inductor import configurations, offline

        printed = self._print(row) if self.dynamic else "not dynamic"
        if not isinstance(printed, str):
            return Keep((self._printed(row, printed),))
        try:
            made = configurations.compile_reference(
                row["reference"], self.target, self.own_products, self.dynamic
            )
        except offline.ExportFailed as failure:
            return Drop("export_failed", {"error": str(failure)})
        except offline.UnsupportedModule as failure:
            return Drop("unsupported", {"what": str(failure)})
        kernels = made.spec["kernels"]
        if not kernels:
            return Drop("no_kernels", {"extern_calls": list(made.extern_calls)})
        generated: Generated = {
            "target": self.target,
            "code": made.code,
            "spec": json.dumps({**made.spec, "not_printed": printed}),
        }
        static: Static = {
            "kernels": len(kernels),
            "lines": None,
            "ops": made.spec["ops"],
            "pure_triton": None,
            "extern_calls": list(made.extern_calls),
            "dynamic_dims": len(made.spec["sizes"]),
            "specialised": None,
            "any_float": bool(made.spec.get("any_float")),
        }
        return Keep(({**row, "generated": generated, "static": static},))

    def _print(self, row: TaskRow) -> Printed | str:
        """Return the generator's program for a row, or why there is none."""
        from curate.generator.generate import generate
        from curate.generator.unprintable import Unprintable

        try:
            return generate(row["reference"], self.target, row.get("entry_point") or "Model")
        except Unprintable as reason:
            return str(reason)

    def _printed(self, row: TaskRow, printed: Printed) -> TaskRow:
        generated: Generated = {
            "target": self.target,
            "code": printed.text,
            "spec": json.dumps({"printed": dataclasses.asdict(printed)}),
        }
        static: Static = {
            "kernels": printed.kernels,
            "lines": None,
            "ops": printed.operators,
            "pure_triton": True,
            "extern_calls": [],
            "dynamic_dims": printed.dynamic_dims,
            "specialised": printed.specialised,
            "any_float": printed.any_float,
        }
        return {**row, "generated": generated, "static": static}
