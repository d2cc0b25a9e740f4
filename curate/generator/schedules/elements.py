"""Element-wise loops: flat over all elements, or in tiles where something is broadcast."""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]

from curate.generator.body import Body, Dim
from curate.generator.kernel import Kernel
from curate.generator.loops import Loops, product
from curate.generator.program import Program

BLOCK = 1024


def flat(loops: Loops, program: Program) -> None:
    """Print a kernel whose programs take the elements in order, whatever their shape."""
    axes = loops.kept
    if not axes:
        body = Body(loops, program, [])
        for store in body.stores():
            body.store(store)
        program.launch(Kernel(body, "One program does all.", ("1",)))
        return
    dim = Dim("offsets", axes, "mask", 0)
    body = Body(loops, program, [dim])
    program.touch(loops)
    size = body.size("n_elements", loops.axes[axes[0]])
    start = "tl.program_id(0).to(tl.int64) * BLOCK_SIZE"
    body.say(f"offsets = {start} + tl.arange(0, BLOCK_SIZE)")
    body.say(f"mask = offsets < {size}")
    for store in body.stores():
        body.store(store)
    length = program.size("n_elements", loops.axes[axes[0]])
    program.launch(
        Kernel(
            body,
            "Each program takes BLOCK_SIZE elements.",
            (f"triton.cdiv({length}, {BLOCK})",),
            {"BLOCK_SIZE": str(BLOCK)},
        )
    )


def tiles(loops: Loops, program: Program) -> None:
    """Print a kernel whose programs take a tile: what is broadcast along an axis is read once.

    Columns are the axis along which results lie together. Where something else is read along
    another axis, as in a transpose, that one makes the rows, and the tile is a square.
    """
    columns = _together(loops, [s.index for s in loops.stores]) or loops.kept[-1]
    loads = [
        v.index for v in loops.recorder.made.values() if v.op == "load" and v.index is not None
    ]
    crossing = [
        index
        for index in loads
        if columns in loops.axes_of(loops.index(index))[0]
        and columns not in _unit_axes(loops, index)
    ]
    across = _together(loops, crossing)
    transposes = across is not None and across != columns
    left = [axis for axis in loops.kept if axis != columns]
    rows = across if transposes and across in left else left[-1]
    outer = [axis for axis in left if axis != rows]
    # A second axis of the grid holds 65,535 blocks: as many as rows of 1,024 columns ever need.
    flat_grid = bool(outer) or (transposes and across in left)
    dims = [Dim("rows", [rows], "row_mask", 0), Dim("cols", [columns], "col_mask", 1)]
    if outer:
        dims.append(Dim("outer", outer))
    body = Body(loops, program, dims, ("pid", "row_blocks", "col_blocks"))
    n_rows = body.size("n_rows", loops.axes[rows])
    n_cols = body.size("n_cols", loops.axes[columns])
    row_block, col_block = "tl.program_id(0)", "tl.program_id(1)"
    if flat_grid:
        body.say("pid = tl.program_id(0)")
        body.say(f"col_blocks = tl.cdiv({n_cols}, BLOCK_COLS)")
        row_block, col_block = "(pid // col_blocks)", "(pid % col_blocks)"
    if outer:
        body.say(f"row_blocks = tl.cdiv({n_rows}, BLOCK_ROWS)")
        body.say("outer = (pid // col_blocks // row_blocks).to(tl.int64)")
        body.spread(dims[2])
        row_block = "(pid // col_blocks % row_blocks)"
    row_block += ".to(tl.int64)" if body.is_wide(dims[0]) else ""
    col_block += ".to(tl.int64)" if body.is_wide(dims[1]) else ""
    body.say(f"rows = {row_block} * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]")
    body.say(f"cols = {col_block} * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]")
    body.say(f"row_mask = rows < {n_rows}")
    body.say(f"col_mask = cols < {n_cols}")
    for store in body.stores():
        body.store(store)
    host_rows = program.size("n_rows", loops.axes[rows])
    host_cols = program.size("n_cols", loops.axes[columns])
    if transposes:
        setup = ["BLOCK_ROWS = 32", "BLOCK_COLS = 32"]
    else:
        setup = [
            f"BLOCK_COLS = min(triton.next_power_of_2({host_cols}), 1024)",
            "BLOCK_ROWS = max(1, 2048 // BLOCK_COLS)",
        ]
    grid: tuple[str, ...] = (
        f"triton.cdiv({host_rows}, BLOCK_ROWS)",
        f"triton.cdiv({host_cols}, BLOCK_COLS)",
    )
    if outer:
        grid = (program.size("n_outer", product(loops.axes[a] for a in outer)), *grid)
    if flat_grid:
        grid = (" * ".join(grid),)
    program.launch(
        Kernel(
            body,
            "Each program takes a tile of BLOCK_ROWS x BLOCK_COLS elements.",
            grid,
            {"BLOCK_ROWS": "BLOCK_ROWS", "BLOCK_COLS": "BLOCK_COLS"},
            tuple(setup),
        )
    )


def _unit_axes(loops: Loops, index: sympy.Expr) -> set[sympy.Symbol]:
    """Return the axes along which an index goes from one element to the next."""
    e = sympy.expand(loops.index(index))
    return {axis for axis in loops.axes if e.coeff(axis) == 1}


def _together(loops: Loops, indices: list[sympy.Expr]) -> sympy.Symbol | None:
    """Return the innermost axis along which most of some indices run through memory."""
    counts = dict.fromkeys(loops.kept, 0)
    for index in indices:
        for axis in _unit_axes(loops, index):
            if axis in counts and loops.axes[axis] != 1:
                counts[axis] += 1
    best = max(counts.values(), default=0)
    found = [axis for axis, count in counts.items() if count == best]
    return found[-1] if best else None
