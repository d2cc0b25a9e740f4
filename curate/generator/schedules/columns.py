"""Reductions along columns: what is kept lies together, so that a tile's lanes read it in order."""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]

from curate.generator.body import Body, Dim
from curate.generator.kernel import Kernel
from curate.generator.loops import Loops, product
from curate.generator.program import Program
from curate.generator.schedules import split
from curate.generator.schedules.passes import passes

FEW = 4096
"""Columns in the file from which on there are always enough for all programs."""


def columns(loops: Loops, program: Program, together: sympy.Symbol) -> None:
    """Print a reduction over an outer dimension, as a tile that walks down some columns.

    ``together`` is the kept axis along which memory runs. Where there may be few columns, the rows
    of each are shared out.
    """
    outer = [axis for axis in loops.kept if axis != together]
    if not split.is_few(program, product(loops.axes[a] for a in loops.kept), FEW):
        _walked(loops, program, together)
        return
    program.touch(loops)
    n_cols = program.size("n_cols", loops.axes[together])
    n_rows = program.size("n_rows", product(loops.axes[a] for a in loops.reduced))
    blocks = f"triton.cdiv({n_cols}, 64)"
    if outer:
        blocks = f"{program.size('n_outer', product(loops.axes[a] for a in outer))} * {blocks}"
    name = program.sizes.fresh("col_blocks")
    program.say(f"{name} = {blocks}")
    n_splits = split.number(
        program,
        f"min(triton.cdiv({n_rows}, 256), triton.cdiv({split.MOST_PROGRAMS}, {name}))",
    )
    with program.branch(f"if {n_splits} < {split.FEWEST_SPLITS}:"):
        _walked(loops, program, together)
    with program.branch("else:"):
        kept = [Dim("cols", [together], "col_mask", 1), *([Dim("outer", outer)] if outer else [])]
        way = split.Way(
            tuple(kept),
            Dim("rows", loops.reduced, "row_mask", 0),
            "BLOCK_ROWS",
            "32",
            {"BLOCK_COLS": "64"},
            (),
            name,
        )
        split.shared(loops, program, way, n_splits)


def _walked(loops: Loops, program: Program, together: sympy.Symbol) -> None:
    outer = [axis for axis in loops.kept if axis != together]
    rows = Dim("rows", loops.reduced, "row_mask", 0)
    cols = Dim("cols", [together], "col_mask", 1)
    dims = [rows, cols, *([Dim("outer", outer)] if outer else [])]
    body = Body(loops, program, dims, ("start", "pid", "col_blocks"))
    n_cols = body.size("n_cols", loops.axes[together])
    n_rows = body.size("n_rows", product(loops.axes[a] for a in loops.reduced))
    block = "tl.program_id(0)"
    if outer:
        body.say("pid = tl.program_id(0)")
        body.say(f"col_blocks = tl.cdiv({n_cols}, BLOCK_COLS)")
        body.say("outer = (pid // col_blocks).to(tl.int64)")
        body.spread(dims[2])
        block = "(pid % col_blocks)"
    wide = ".to(tl.int64)" if body.is_wide(cols) else ""
    body.say(f"cols = {block}{wide} * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]")
    body.say(f"col_mask = cols < {n_cols}")
    passes(body, rows, "[BLOCK_ROWS, BLOCK_COLS]", f"range(0, {n_rows}, BLOCK_ROWS)", n_rows)
    host_cols = program.size("n_cols", loops.axes[together])
    host_rows = program.size("n_rows", product(loops.axes[a] for a in loops.reduced))
    blocks = f"triton.cdiv({host_cols}, BLOCK_COLS)"
    if outer:
        blocks = f"{program.size('n_outer', product(loops.axes[a] for a in outer))} * {blocks}"
    program.launch(
        Kernel(
            body,
            "Each program walks down BLOCK_COLS columns, BLOCK_ROWS rows at a time.",
            (blocks,),
            {"BLOCK_ROWS": "BLOCK_ROWS", "BLOCK_COLS": "BLOCK_COLS"},
            (
                f"BLOCK_COLS = min(triton.next_power_of_2({host_cols}), 64)",
                f"BLOCK_ROWS = min(triton.next_power_of_2({host_rows}), 4096 // BLOCK_COLS)",
            ),
            "8",
        )
    )
