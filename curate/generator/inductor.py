"""The step `inductor`: a Triton program for each task, printed from Inductor's loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from curate.rows import Generator, Row, Static, TaskRow, make_row
from curate.step import Context, Drop, Keep, Outcome, RowStep

if TYPE_CHECKING:
    from curate.generator.generate import Printed

FIRST, SECOND = "generator", "generator, second schedule"
"""What writes a task's programs: `origin.generator.name` of its pairs."""


class Inductor(RowStep):
    """Print a Triton program for each task, from the loops of PyTorch's compiler.

    The task's module is traced once in eval mode, on fake tensors: the constructor's numbers and
    the inputs' sizes are symbols. Inductor decomposes, lowers and fuses the graph; its loops are
    then printed in a schedule that fits them (`curate.generator.schedules`). The pair's program is
    a file that needs torch and triton alone, with `ModelNew` in place of ``Model``. What the module
    fixes, such as the size of a pooling window, the program checks. No GPU is needed, and the text
    is the same on every machine.

    A task's second program has the same loops in another schedule, so that the two can be compared
    by their times. Its ``origin.generator.name`` is `SECOND`.
    """

    tools: ClassVar[tuple[str, ...]] = ("torch", "triton")
    takes: ClassVar[frozenset[str]] = frozenset({"task"})
    reads: ClassVar[frozenset[str]] = frozenset({"reference"})
    makes: ClassVar[frozenset[str]] = frozenset({"pair"})
    sets: ClassVar[frozenset[str]] = frozenset({"triton", "static"})
    sandboxed: ClassVar[bool] = True

    step: Literal["inductor"]
    version: ClassVar[int] = 52

    variants: Annotated[
        int,
        Field(
            ge=1,
            le=2,
            description="Programs per task. With 2, a task whose loops have another schedule that "
            "a person might choose gives a second pair with the same reference. A later `dedupe` "
            "by reference or wiring would keep one of the two.",
        ),
    ] = 1

    def setup(self, context: Context) -> None:
        from curate.generator.generate import warm

        warm()

    def apply(self, row: TaskRow, context: Context) -> Outcome:
        from curate.generator.generate import generate
        from curate.generator.unprintable import Unprintable

        pairs: list[Row] = []
        for variant, name in enumerate((FIRST, SECOND)[: self.variants]):
            try:
                printed = generate(row["reference"], row["entry_point"] or "Model", variant)
            except Unprintable as reason:
                if not pairs:
                    return Drop("not_printed", {"what": str(reason)})
            else:
                pairs.append(_pair(row, printed, name))
        return Keep(tuple(pairs))

    def recall(self, row: TaskRow, made: list[Row]) -> list[Row] | None:
        if self.variants > 1 or len(made) != 1:
            return None  # of two programs one may have been dropped
        (known,) = made
        generator = known["origin"]["generator"]
        if not known["triton"] or not known["static"] or not generator:
            return None
        pair = _with_program(row, known["triton"], known["static"], generator)
        alike = all(pair[name] == known[name] for name in ("id", "reference", "entry_point"))
        return [pair] if alike else None


def _pair(row: TaskRow, printed: Printed, name: str) -> Row:
    """Return the pair: the task, and the program that was printed for it."""
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
    return _with_program(row, printed.text, static, {"name": name, "tools": printed.tools})


def _with_program(row: TaskRow, text: str, static: Static, generator: Generator) -> Row:
    """Return the pair of a task and a program."""
    return make_row(
        "pair",
        row["reference"] + "\n" + text,
        {**row["origin"], "generator": generator},
        parent_ids=[row["id"]],
        reference=row["reference"],
        triton=text,
        entry_point=row["entry_point"],
        license=row["license"],
        static=static,
        wiring=row["wiring"],
    )
