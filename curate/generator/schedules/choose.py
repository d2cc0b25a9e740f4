"""Choose the schedules of a kernel by what its loops do and what its axes are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import sympy

from curate.generator.body import Body, Dim
from curate.generator.loops import Loops, equal, product, quotient
from curate.generator.program import Program
from curate.generator.schedules import elements, reduce, split
from curate.generator.schedules.passes import Plane, levels, reductions, spreads
from curate.generator.schedules.reductions import share_means
from curate.generator.schedules.scans import scanned
from curate.generator.values import StoredValue

FEW = 1024
"""Elements up to which one program reduces all, where their number is fixed."""

MOST_IN_TILE = 4096
"""Elements up to which one program holds all of a row in registers."""

SHORT_ROW = 256
"""Elements of a row up to which one program has threads for several."""

MOST_SORTED = 8192
"""Elements of a row up to which one program sorts it."""


ENOUGH = 256
"""Rows from which on a program takes each whole."""

ENOUGH_COLUMNS = 32 * ENOUGH
"""Columns, in the file, from which on programs reduce or scan them whole."""

SHORT_COLUMN = 1024
"""Elements of a column up to which one program scans it whole."""


LONG_ROW = 2**16
"""Fixed elements of a row up to which a batch has enough rows for all programs."""


Schedule = Callable[[Loops, Program], None]
"""Prints a kernel, or several that do its work together."""


def schedules(loops: Loops, program: Program) -> list[Schedule]:
    """Return the schedules that a person might choose for some loops, the best first."""
    if all(program.is_inner(store.buffer) for store in loops.stores):
        return []
    if all(_is_zero(loops, program, store) for store in loops.stores):
        return [_zeros]
    share_means(loops)
    ordered = {one.op for one in scanned(store.value for store in loops.stores)}
    if "sort" in ordered:
        return [_sorted]
    if not ordered and not reductions(loops, program):
        loops.reduced = []
        return [elements.flat] if len(loops.kept) <= 1 else [elements.tiles, elements.flat]
    plane = plane_of(loops)
    looped, shared = partial(reduce.looped, plane=plane), partial(split.shared, plane=plane)
    tile, by_length = partial(reduce.tile, plane=plane), partial(_by_length, plane=plane)
    length = loops.extent(loops.reduced)
    fixed = int(length) if length.is_number else None
    if ordered:
        scan = partial(_scan, plane=plane) if _may_split(loops, program, plane) else looped
        second = by_length if plane.by_rows and fixed is None else looped
        return [scan, second] if scan is not second else [scan]
    if plane.kept is None:
        return [tile] if fixed is not None and fixed <= FEW else [shared, looped]
    if plane.by_rows and fixed is not None and fixed <= MOST_IN_TILE:
        one = partial(reduce.tile, plane=plane, rows="1")
        return [tile, one if fixed <= SHORT_ROW else looped]
    if plane.by_rows and _is_of_parameters(loops, program):
        return [by_length, looped]
    batch, many = _are_many(loops, program)
    many |= not plane.by_rows and program.hint(loops.extent(loops.kept)) >= ENOUGH_COLUMNS
    if not plane.by_rows or not batch or not _reads_again(loops, program):
        second = by_length if plane.by_rows else shared
        return [looped, second] if many else [shared, looped]
    # What is read again lies in registers or in a cache, if programs are enough for it.
    return [by_length if many else partial(_by_rows, plane=plane), looped]


def _zeros(loops: Loops, program: Program) -> None:
    """Have the buffers that some loops only prepare made of zeros."""
    program.zeroed |= {store.buffer for store in loops.stores}


def _sorted(loops: Loops, program: Program) -> None:
    """Print a kernel whose programs sort rows."""
    plane = by_rows(loops)
    program.touch(loops)
    program.say(f"assert {plane.reduced.count(program, loops)} <= {MOST_SORTED}")
    reduce.tile(loops, program, plane)


def _either(
    loops: Loops,
    program: Program,
    plane: Plane,
    test: str,
    schedules: tuple[Callable[[Loops, Program, Plane], None], ...],
) -> None:
    """Print a kernel for sizes that pass a test of the host's, and those for all others."""
    for head, schedule in zip((f"if {test}:", "else:"), schedules, strict=True):
        with program.branch(head):
            schedule(loops, program, plane)


def _by_length(loops: Loops, program: Program, plane: Plane) -> None:
    """Print a kernel for rows that fit into registers, and one for longer ones."""
    program.touch(loops)
    test = f"{plane.reduced.count(program, loops)} <= {MOST_IN_TILE}"
    _either(loops, program, plane, test, (reduce.tile, partial(reduce.looped, is_long=True)))


def _by_rows(loops: Loops, program: Program, plane: Plane) -> None:
    """Print a kernel for many rows, and those for few."""
    assert plane.kept is not None
    program.touch(loops)
    test = f"{plane.kept.count(program, loops)} >= {ENOUGH}"
    _either(loops, program, plane, test, (reduce.looped, split.shared))


def _reads_again(loops: Loops, program: Program) -> bool:
    """Whether elements are needed again once something is known of all of them."""
    plain = Body(loops, program, [])
    spread = any(spreads(plain, store, loops.reduced) for store in plain.stores())
    return spread or levels(reductions(loops, program)) > 1


def _scan(loops: Loops, program: Program, plane: Plane) -> None:
    """Print a scan: as a loop where rows are many or short, otherwise in parts of rows."""
    tests: list[str] = []
    if plane.kept is not None:
        program.touch(loops)
        many, short = _limits(plane)
        counts = [dim.count(program, loops) for dim in (plane.kept, plane.reduced)]
        limits = zip(counts, (f">= {many}", f"<= {short}"), strict=True)
        tests = [f"{count} {limit}" for count, limit in limits if not count.isdigit()]
    if tests:
        _either(loops, program, plane, " or ".join(tests), (reduce.looped, split.shared_scans))
    else:
        split.shared_scans(loops, program, plane)


def _limits(plane: Plane) -> tuple[int, int]:
    """Return from how many rows on, and up to which length, programs scan rows whole."""
    return (ENOUGH, MOST_IN_TILE) if plane.by_rows else (ENOUGH_COLUMNS, SHORT_COLUMN)


def _may_split(loops: Loops, program: Program, plane: Plane) -> bool:
    """Whether a scan may be of few long rows, and is all that elements wait for."""
    plain = Body(loops, program, [])
    spread = all(spreads(plain, store, loops.reduced) for store in plain.stores())
    if not spread or reductions(loops, program):
        return False
    if plane.kept is None:
        return True
    rows, length = (program.known(loops.extent(axes)) for axes in (loops.kept, loops.reduced))
    many, short = _limits(plane)
    if (rows.is_number and rows >= many) or (length.is_number and length <= short):
        return False
    return many > short or quotient(rows, length) is None  # long rows of a square are many


def plane_of(loops: Loops) -> Plane:
    """Return the tile of a reduction: its columns are the way along which memory runs."""
    together = _kept_together(loops) if loops.kept else None
    if together is None:
        return by_rows(loops)
    outer = [axis for axis in loops.kept if axis != together]
    cols = Dim("cols", [*outer, together], "col_mask", 1)
    return Plane(cols, Dim("rows", loops.reduced, "row_mask", 0))


def by_rows(loops: Loops) -> Plane:
    """Return the tile of a reduction whose rows are the results."""
    if not loops.kept:
        return Plane(None, Dim("offsets", loops.reduced, "mask", 0))
    rows = Dim("rows", loops.kept, "row_mask", 0)
    return Plane(rows, Dim("cols", loops.reduced, "col_mask", 1))


def _are_many(loops: Loops, program: Program) -> tuple[bool, bool]:
    """Whether results are those of a batch, and whether they are enough for all programs.

    A batch grows with the inputs; channels do not, nor do the features that a running mean has.
    Samples of which each is reduced over several dimensions, such as images, are few and large.
    """
    shapes = [tensor.sizes for tensor in program.tensors.values() if tensor.is_input]
    dims = {s for sizes in shapes for s in sizes if s.is_Symbol}
    kept = program.known(loops.extent(loops.kept)).free_symbols & dims
    length = program.known(loops.extent(loops.reduced))
    rank = max(map(len, shapes), default=0)
    batch = not kept.isdisjoint(s for sizes in shapes if len(sizes) == rank for s in sizes[:1])
    short = length.is_number and length <= LONG_ROW
    return batch, batch and bool(short or length.is_Symbol or len(kept) > 1)


def _is_of_parameters(loops: Loops, program: Program) -> bool:
    """Whether all that is read is the module's own: rows of a weight are enough and short."""
    loads = [value for value in loops.recorder.made.values() if value.op == "load"]
    tensors = [program.tensors.get(program.real(load.name)) for load in loads]
    return bool(tensors) and not any(tensor is None or tensor.is_input for tensor in tensors)


def _is_zero(loops: Loops, program: Program, store: StoredValue) -> bool:
    """Whether a store only prepares a buffer for atomic operations, with zeros."""
    zero = store.value.op == "constant" and store.value.number == 0 and store.mode is None
    if not zero or store.buffer not in program.accumulated | program.starts:
        return False
    return equal(loops.total, product(program.graph.try_get_buffer(store.buffer).get_size()))


def _kept_together(loops: Loops) -> sympy.Symbol | None:
    """Return the kept axis along which loads run through memory, if more do than along rows."""
    kept = dict.fromkeys(loops.kept, 0)
    along_rows = 0
    for value in loops.recorder.made.values():
        if value.op != "load" or value.index is None:
            continue
        e = sympy.expand(loops.index(value.index))
        walked = loops.live(value.axes)
        if walked.isdisjoint(loops.reduced) or walked.isdisjoint(loops.kept):
            continue
        along_rows += any(e.coeff(axis) in (1, -1) for axis in loops.reduced)
        for axis in kept:
            kept[axis] += bool(e.coeff(axis) == 1)
    best = max(reversed(kept), key=lambda axis: kept[axis])
    return best if kept[best] > along_rows or not along_rows else None
