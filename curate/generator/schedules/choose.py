"""Choose the schedule of a kernel by what its loops do; sizes decide only where they are fixed."""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]

from curate.generator.loops import Loops, product
from curate.generator.program import Program
from curate.generator.schedules import columns, elements, rows, split
from curate.generator.schedules.passes import reductions
from curate.generator.unprintable import Unprintable

FEW = 1024
"""Elements up to which one program reduces all, where their number is fixed."""


def schedule(loops: Loops, program: Program) -> None:
    """Print a kernel, or several that do its work together.

    Raises:
        Unprintable: no schedule does what its loops do.
    """
    if all(program.is_inner(store.buffer) for store in loops.stores):
        return
    if any(store.mode is not None for store in loops.stores):
        raise Unprintable("a scatter")
    if not reductions(loops, program):
        if loops.reduced:
            loops.reduced = []
        if len(loops.kept) <= 1:
            elements.flat(loops, program)
        else:
            elements.tiles(loops, program)
        return
    length = product(loops.axes[a] for a in loops.reduced)
    if not loops.kept:
        if length.is_number and int(length) <= FEW:
            rows.one_tile(loops, program)
        else:
            split.whole(loops, program)
        return
    together = _kept_together(loops)
    if together is not None:
        columns.columns(loops, program, together)
    else:
        rows.rows(loops, program)


def _kept_together(loops: Loops) -> sympy.Symbol | None:
    """Return the kept axis along which loads run through memory, if more do than along rows."""
    kept = dict.fromkeys(loops.kept, 0)
    along_rows = 0
    for value in loops.recorder.made.values():
        if value.op != "load" or value.index is None:
            continue
        e = sympy.expand(loops.index(value.index))
        if not e.free_symbols & set(loops.reduced):
            continue
        along_rows += any(e.coeff(axis) == 1 for axis in loops.reduced)
        for axis in kept:
            kept[axis] += bool(e.coeff(axis) == 1)
    best = max(kept, key=lambda axis: kept[axis])
    return best if kept[best] > along_rows else None
