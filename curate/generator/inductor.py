"""The step `inductor`: a Triton program for each task, printed from Inductor's loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from curate.rows import Generator, Row, Static, TaskRow, make_row
from curate.step import Context, Drop, Keep, Outcome, RowStep

if TYPE_CHECKING:
    from curate.generator.generate import Printed


class Inductor(RowStep):
    """Print a Triton program for each task, from the loops of PyTorch's compiler.

    The task's module is traced once in eval mode, on fake tensors: the constructor's numbers and
    the inputs' sizes are symbols. Inductor decomposes, lowers and fuses the graph; its loops are
    then printed in a schedule that fits them (`curate.generator.schedules`). The pair's program is
    a file that needs torch and triton alone, with `ModelNew` in place of ``Model``. What the module
    fixes, such as the size of a pooling window, the program checks. No GPU is needed, and the text
    is the same on every machine.
    """

    tools: ClassVar[tuple[str, ...]] = ("torch", "triton")
    takes: ClassVar[frozenset[str]] = frozenset({"task"})
    reads: ClassVar[frozenset[str]] = frozenset({"reference"})
    makes: ClassVar[frozenset[str]] = frozenset({"pair"})
    sets: ClassVar[frozenset[str]] = frozenset({"triton", "static"})
    sandboxed: ClassVar[bool] = True

    step: Literal["inductor"]
    version: ClassVar[int] = 10

    def setup(self, context: Context) -> None:
        from curate.generator.generate import warm

        warm()

    def apply(self, row: TaskRow, context: Context) -> Outcome:
        from curate.generator.generate import generate
        from curate.generator.unprintable import Unprintable

        try:
            printed = generate(row["reference"], row["entry_point"] or "Model")
        except Unprintable as reason:
            return Drop("not_printed", {"what": str(reason)})
        return Keep((_pair(row, printed),))


def _pair(row: TaskRow, printed: Printed) -> Row:
    """Return the pair: the task, and the program that was printed for it."""
    generator: Generator = {"name": "generator", "tools": printed.tools}
    static: Static = {
        "kernels": printed.kernels,
        "lines": printed.text.count("\n"),
        "ops": printed.operators,
        "pure_triton": True,
        "extern_calls": [],
        "dynamic_dims": printed.dynamic_dims,
        "specialised": printed.specialised,
        "any_float": printed.any_float,
    }
    return make_row(
        "pair",
        row["reference"] + "\n" + printed.text,
        {**row["origin"], "generator": generator},
        parent_ids=[row["id"]],
        reference=row["reference"],
        triton=printed.text,
        entry_point=row["entry_point"],
        license=row["license"],
        static=static,
        wiring=row["wiring"],
    )
