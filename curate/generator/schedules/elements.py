"""Element-wise loops: flat over all elements, or in tiles where something is broadcast."""

from __future__ import annotations

import sympy

from curate.generator.body import Body, Dim, Kernel
from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.schedules.passes import apart, inner, power_of_2

BLOCK = 1024

WIDEST = 64
"""Columns of a tile: whole lines of memory, few lanes without an element at any width, and no more
than Triton keeps once for all warps, so that a row that is broadcast needs no barrier."""

WIDEST_ROUGH = 1024
"""Columns of a tile that is read in steps, wrapped around or through indices: what one program
leaves of a line of memory, no other has to fetch again. On an H100 `index_select` of 1,000 columns
took 0.55 ms with tiles of 32 x 64, and 0.20 ms with one row of 1,024."""

STEPPED = 256
"""Elements of a tile whose neighbouring columns read a few elements apart, as those of a pooling of
stride 2 do: of many, a thread has four in a row to store at once, and its loads are then eight
apart. On an H200 the last kernel of a 3-D pooling took 0.87 ms with 1,024, and 0.24 ms."""

FEW_APART = 16
"""Elements that such columns are apart at most."""

SHORT = 16
"""Fixed lengths up to which an axis is part of a lane's neighbourhood: no side of a tile."""


def flat(loops: Loops, program: Program) -> None:
    """Print a kernel whose programs take the elements in order, whatever their shape."""
    if not loops.kept:
        body = Body(loops, program, [])
        body.store_all()
        program.launch(Kernel(body, "One program does all.", ("1",)))
        return
    dim = Dim("offsets", loops.kept, "mask", 0)
    body = Body(loops, program, [dim])
    program.touch(loops)
    body.index(dim, "tl.program_id(0).to(tl.int64) * BLOCK_SIZE")
    body.store_all()
    grid = (f"triton.cdiv({dim.count(program, loops)}, {BLOCK})",)
    doc = "Each program takes BLOCK_SIZE elements."
    program.launch(Kernel(body, doc, grid, {"BLOCK_SIZE": str(BLOCK)}))


def tiles(loops: Loops, program: Program) -> None:
    """Print a kernel whose programs take a tile: what is broadcast along an axis is read once.

    Columns are the axis along which results lie together, and rows all others, so that tiles are
    full whatever the shape. Where something else is read along another axis, as in a transpose,
    that one alone makes the rows.
    """
    columns = _together(loops, [s.index for s in loops.stores]) or loops.kept[-1]
    read = [v for v in loops.recorder.made.values() if v.op == "load"]
    rough = [v for v in read if columns not in _unit_axes(loops, v.index)]
    crossing = [v.index for v in rough if columns in loops.axes_of(loops.index(v.index))[0]]
    across = _together(loops, crossing)
    rows = [axis for axis in loops.kept if axis != columns]
    outer: list[sympy.Symbol] = []
    if across in rows and not any(_is_short(loops, axis) for axis in (across, columns)):
        outer = [axis for axis in rows if axis != across]
        rows = [across]
    dims = [Dim("rows", rows, "row_mask", 0), Dim("cols", [columns], "col_mask", 1)]
    if across in rows and len(rows) == 1:
        _crossed(loops, program, dims, outer)
        return
    # Whether neighbouring columns read what does not lie side by side.
    is_rough = any(columns in loops.live(v.axes) for v in rough)
    many = sum(columns in loops.live(v.axes) for v in read) > 4
    elements = 1024 if many or is_rough else 2048  # a window's loads take registers all at once
    widest = WIDEST_ROUGH if is_rough else WIDEST
    steps = [sympy.expand(loops.index(v.index)).coeff(columns) for v in rough]
    steps = [step for step in steps if loops.axes.keys().isdisjoint(step.free_symbols)]
    if sum(1 < program.hint(step) <= FEW_APART for step in steps) > 1:  # a window
        elements = widest = STEPPED
    _side_by_side(loops, program, dims, elements, widest)


def _side_by_side(
    loops: Loops, program: Program, dims: list[Dim], elements: int, widest: int
) -> None:
    """Print a kernel whose tiles of some elements have rows and columns as axes of the grid.

    Columns of one block, in the file, are no axis of it: hardly a call would have two programs.
    """
    (columns,) = dims[1].axes
    short = _is_short(loops, columns, widest)
    narrow = not short and program.hint(loops.axes[columns]) <= widest
    outer = [] if narrow else apart(loops, program, dims, dims[0], 2 if short else 1)
    dims = [inner(dims[0], outer), dims[1]]
    body = Body(loops, program, [*dims, *outer], ("pid", "col_blocks"))
    n_rows, n_cols = (dim.count(program, loops) for dim in dims)
    blocks = [f"triton.cdiv({n_rows}, BLOCK_ROWS)", f"triton.cdiv({n_cols}, BLOCK_COLS)"]
    starts = [f"tl.program_id({i}) * {dim.block}" for i, dim in enumerate(dims, len(outer))]
    if narrow:
        body.say("pid = tl.program_id(0)")
        body.say(f"col_blocks = tl.cdiv({dims[1].count(body, loops)}, BLOCK_COLS)")
        starts = ["pid // col_blocks * BLOCK_ROWS", "pid % col_blocks * BLOCK_COLS"]
        blocks = [" * ".join(blocks)]
    elif short:
        starts[1], blocks = "", blocks[:1]
    for number, dim in enumerate(outer):
        body.index(dim, f"tl.program_id({number})")
    for dim, start in zip(dims, starts, strict=True):
        body.index(dim, start)
    block_cols, block_rows = power_of_2(n_cols, str(widest)), f"{elements} // BLOCK_COLS"
    setup = []
    if not (n_cols.isdigit() or narrow or program.is_own(loops.axes[columns])):
        setup.append(repr("# Wider blocks for very long rows: a grid has 65,535 of them at most."))
        block_cols = f"max({block_cols}, triton.next_power_of_2({n_cols} // 32768))"
        block_rows = f"max(1, {block_rows})"
    setup.append(f"BLOCK_COLS = {block_cols}")
    setup.append(f"BLOCK_ROWS = {power_of_2(n_rows, block_rows) if outer else block_rows}")
    grid = (*(dim.count(program, loops) for dim in outer), *blocks)
    _launch(body, program, grid, tuple(setup))


MANY = 1024
"""Matrices, in the file, from which on these are axis 0 of the grid: it alone has room for all."""


def _crossed(loops: Loops, program: Program, dims: list[Dim], axes: list[sympy.Symbol]) -> None:
    """Print a kernel whose tiles are read along rows and written along columns."""
    whole, many = Dim("outer", axes), program.hint(loops.extent(axes)) >= MANY
    outer = Body(loops, program, [*dims, whole]).apart(whole)
    if many or not 0 < len(outer) <= 2:
        outer = [whole] if axes else []
    body = Body(loops, program, [*dims, *outer], ("pid",))
    for number, dim in enumerate(outer, int(not many)):
        body.index(dim, f"tl.program_id({number})")
    body.say(f"pid = tl.program_id({int(many)})")
    body.say(f"col_blocks = tl.cdiv({dims[1].count(body, loops)}, BLOCK_COLS)")
    body.index(dims[0], "pid // col_blocks * BLOCK_ROWS")
    body.index(dims[1], "pid % col_blocks * BLOCK_COLS")
    host_rows, host_cols = (dim.count(program, loops) for dim in dims)
    blocks = f"triton.cdiv({host_rows}, BLOCK_ROWS) * triton.cdiv({host_cols}, BLOCK_COLS)"
    grid = [dim.count(program, loops) for dim in outer]
    grid.insert(int(many), blocks)
    setup = (
        f"BLOCK_ROWS = {power_of_2(host_rows, '64')}",
        f"BLOCK_COLS = {power_of_2(host_cols, '2048 // BLOCK_ROWS')}",
    )
    _launch(body, program, tuple(grid), setup)


def _launch(body: Body, program: Program, grid: tuple[str, ...], setup: tuple[str, ...]) -> None:
    body.store_all()
    doc = "Each program takes a tile of BLOCK_ROWS x BLOCK_COLS elements."
    blocks = {"BLOCK_ROWS": "BLOCK_ROWS", "BLOCK_COLS": "BLOCK_COLS"}
    program.launch(Kernel(body, doc, grid, blocks, setup))


def _is_short(loops: Loops, axis: sympy.Symbol, most: int = SHORT) -> bool:
    size = loops.axes[axis]
    return bool(size.is_number and int(size) <= most)


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
