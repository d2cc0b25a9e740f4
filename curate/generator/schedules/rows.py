"""Reductions along rows: what is reduced lies together, and many rows are kept."""

from __future__ import annotations

from curate.generator.body import Body, Dim
from curate.generator.kernel import Kernel
from curate.generator.loops import Loops, product
from curate.generator.program import Program
from curate.generator.reductions import Reducer
from curate.generator.schedules import split
from curate.generator.schedules.passes import levels, passes, reductions, shifts, spreads

FEW = 256
"""Rows in the file from which on there are always enough for all programs."""

MOST_IN_TILE = 4096
"""Elements of a row up to which one program holds it in registers."""


def rows(loops: Loops, program: Program) -> None:
    """Print a row reduction: in one tile where rows fit, in a loop where they do not.

    A reduction that needs its row once is a loop for rows of any length. Where there may be few
    rows, and what is reduced is more than one dimension, the elements of each are shared out.
    """
    length = product(loops.axes[a] for a in loops.reduced)
    if length.is_number and int(length) <= MOST_IN_TILE:
        _tile(loops, program)
        return
    plain = Body(loops, program, [])
    needs_again = any(spreads(plain, store, loops.reduced) for store in plain.stores())
    once = levels(reductions(loops, program)) <= 1 and not needs_again
    few = split.is_few(program, product(loops.axes[a] for a in loops.kept), FEW)
    if once and not few:
        _looped_tile(loops, program)
        return
    program.touch(loops)
    n_cols = program.size("n_cols", length)
    n_rows = program.size("n_rows", product(loops.axes[a] for a in loops.kept))
    if not few or (program.known(length).is_Symbol and not once):
        with program.branch(f"if {n_cols} <= {MOST_IN_TILE}:"):
            _tile(loops, program)
        with program.branch("else:"):
            _long(loops, program)
        return
    share = f"min(triton.cdiv({n_cols}, 8192), triton.cdiv({split.MOST_PROGRAMS}, {n_rows}))"
    n_splits = split.number(program, share)
    with program.branch(f"if {n_splits} < {split.FEWEST_SPLITS}:"):
        if once:
            _looped_tile(loops, program)
        else:
            _long(loops, program)
    with program.branch("else:"):
        dim = Dim("cols", loops.reduced, "mask", 0)
        kept = (Dim("row", loops.kept),)
        way = split.Way(kept, dim, "BLOCK_COLS", "2048", kept_blocks=n_rows)
        split.shared(loops, program, way, n_splits)


def _rows_body(loops: Loops, program: Program) -> tuple[Body, Dim, str, str]:
    kept = Dim("rows", loops.kept, "row_mask", 0)
    cols = Dim("cols", loops.reduced, "col_mask", 1)
    body = Body(loops, program, [kept, cols], ("start",))
    n_rows = body.size("n_rows", product(loops.axes[a] for a in loops.kept))
    n_cols = body.size("n_cols", product(loops.axes[a] for a in loops.reduced))
    wide = ".to(tl.int64)" if body.is_wide(kept) else ""
    body.say(f"rows = tl.program_id(0){wide} * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]")
    body.say(f"row_mask = rows < {n_rows}")
    body.spread(kept)
    return body, cols, n_rows, n_cols


def _tile(loops: Loops, program: Program) -> None:
    body, cols, _, n_cols = _rows_body(loops, program)
    wide = ".to(tl.int64)" if body.is_wide(cols) and len(cols.axes) == 1 else ""
    body.say(f"cols = tl.arange(0, BLOCK_COLS)[None, :]{wide}")
    body.say(f"col_mask = cols < {n_cols}")
    body.spread(cols)
    found = reductions(loops, program)
    reducer = Reducer(body, cols, shifts(loops))
    for level in range(1, levels(found) + 1):
        for reduce in found:
            if reduce.level == level:
                reducer.tile(reduce)
    for store in body.stores():
        body.store(store)
    host_cols = program.size("n_cols", product(loops.axes[a] for a in loops.reduced))
    host_rows = program.size("n_rows", product(loops.axes[a] for a in loops.kept))
    program.launch(
        Kernel(
            body,
            "Each program holds BLOCK_ROWS rows in one tile.",
            (f"triton.cdiv({host_rows}, BLOCK_ROWS)",),
            {"BLOCK_ROWS": "BLOCK_ROWS", "BLOCK_COLS": "BLOCK_COLS"},
            (
                f"BLOCK_COLS = triton.next_power_of_2({host_cols})",
                "BLOCK_ROWS = max(1, 2048 // BLOCK_COLS)",
            ),
            "min(max(BLOCK_ROWS * BLOCK_COLS // 256, 1), 16)",
        )
    )


def _looped_tile(loops: Loops, program: Program) -> None:
    body, cols, _, n_cols = _rows_body(loops, program)
    passes(body, cols, "[BLOCK_ROWS, BLOCK_COLS]", f"range(0, {n_cols}, BLOCK_COLS)", n_cols)
    host_cols = program.size("n_cols", product(loops.axes[a] for a in loops.reduced))
    host_rows = program.size("n_rows", product(loops.axes[a] for a in loops.kept))
    program.launch(
        Kernel(
            body,
            "Each program takes BLOCK_ROWS rows, BLOCK_COLS elements of them at a time.",
            (f"triton.cdiv({host_rows}, BLOCK_ROWS)",),
            {"BLOCK_ROWS": "BLOCK_ROWS", "BLOCK_COLS": "BLOCK_COLS"},
            (
                f"BLOCK_COLS = min(triton.next_power_of_2({host_cols}), 2048)",
                "BLOCK_ROWS = max(1, 2048 // BLOCK_COLS)",
            ),
            "8",
        )
    )


def _long(loops: Loops, program: Program) -> None:
    kept = Dim("row", loops.kept)
    cols = Dim("cols", loops.reduced, "mask", 0)
    body = Body(loops, program, [kept, cols], ("start",))
    n_cols = body.size("n_cols", product(loops.axes[a] for a in loops.reduced))
    body.say("row = tl.program_id(0).to(tl.int64)")
    body.spread(kept)
    passes(body, cols, "[BLOCK_COLS]", f"range(0, {n_cols}, BLOCK_COLS)", n_cols)
    host_cols = program.size("n_cols", product(loops.axes[a] for a in loops.reduced))
    host_rows = program.size("n_rows", product(loops.axes[a] for a in loops.kept))
    program.launch(
        Kernel(
            body,
            "Each program goes along one row, BLOCK_COLS elements at a time.",
            (host_rows,),
            {"BLOCK_COLS": "BLOCK_COLS"},
            (f"BLOCK_COLS = min(triton.next_power_of_2({host_cols}), 4096)",),
            "min(max(BLOCK_COLS // 256, 1), 16)",
            part="long",
        )
    )


def one_tile(loops: Loops, program: Program) -> None:
    """Print the reduction of a few elements, whose number the module fixes, to one result."""
    cols = Dim("cols", loops.reduced, "mask", 0)
    body = Body(loops, program, [cols])
    length = product(loops.axes[a] for a in loops.reduced)
    body.say("cols = tl.arange(0, BLOCK_SIZE)")
    body.say(f"mask = cols < {length}")
    body.spread(cols)
    found = reductions(loops, program)
    reducer = Reducer(body, cols, shifts(loops))
    for level in range(1, levels(found) + 1):
        for reduce in found:
            if reduce.level == level:
                reducer.tile(reduce)
    for store in body.stores():
        body.store(store)
    block = 1 << (int(length) - 1).bit_length()
    doc = "One program does all."
    program.launch(Kernel(body, doc, ("1",), {"BLOCK_SIZE": str(block)}))
