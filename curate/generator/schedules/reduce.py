"""Reductions in one kernel: of a tile that holds all elements of its results, or in a loop."""

from __future__ import annotations

from curate.generator.body import Body, Kernel
from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.schedules.passes import (
    Plane,
    levels,
    passes,
    power_of_2,
    reductions,
    shifts,
)
from curate.generator.schedules.reductions import Reducer
from curate.generator.schedules.scans import Scanner, scanned

WARPS = "max(1, BLOCK_COLS // 256)"
"""The host's text for the warps of rows: one where it can hold a row, so that none waits."""


def tile(
    loops: Loops, program: Program, plane: Plane, rows: str = "max(1, 512 // BLOCK_COLS)"
) -> None:
    """Print a kernel whose programs hold rows in registers: as many as ``rows``, a host's text."""
    plane = plane.on_grid(loops, program)
    body = Body(loops, program, [*plane.dims, *plane.outer])
    plane.begin(body)
    body.index(plane.reduced, "")
    found = reductions(loops, program)
    reducer = Reducer(body, plane.reduced, shifts(loops))
    Scanner(body, plane.reduced, plane.shape)
    for level in range(1, levels(found) + 1):
        for reduce in found:
            if reduce.level == level:
                reducer.tile(reduce)
    body.store_all()
    count = plane.reduced.count(program, loops)
    if plane.kept is None:
        blocks = {plane.reduced.block: power_of_2(count)}
        program.launch(Kernel(body, "One program does all.", ("1",), blocks))
        return
    program.launch(
        Kernel(
            body,
            "Each program holds BLOCK_ROWS rows in one tile.",
            tuple(plane.grid(loops, program)),
            plane.blocks,
            (f"BLOCK_COLS = {power_of_2(count)}", _block_rows(loops, program, plane, rows)),
            WARPS,
        )
    )


def _block_rows(loops: Loops, program: Program, plane: Plane, rows: str) -> str:
    """Return the host's statement for how many rows a program holds: those of one axis at most."""
    assert plane.kept is not None
    if plane.outer and rows != "1":
        rows = power_of_2(plane.kept.count(program, loops), rows)
    return f"BLOCK_ROWS = {rows}"


def blocks(loops: Loops, program: Program, plane: Plane) -> tuple[str, ...]:
    """Return the host's statements for the blocks of a tile that is walked.

    Columns are many to a program, so that each thread has some to itself, unless that leaves too
    few programs.
    """
    if plane.kept is None:
        return ()
    count = plane.reduced.count(program, loops)
    if plane.by_rows:
        setup = f"BLOCK_COLS = {power_of_2(count, '2048')}"
        return setup, _block_rows(loops, program, plane, "max(1, 512 // BLOCK_COLS)")
    columns = plane.kept.count(program, loops)
    every = program.size("n_cols", loops.extent(loops.kept))
    limits = [f"max(triton.next_power_of_2({every} // 1024), 32)", "512"]
    if plane.outer:
        limits = [f"triton.next_power_of_2({columns})", *limits]
    block = f"min({', '.join(limits)})"
    return (
        repr("# Many columns, so that each thread has its own, unless that leaves few programs."),
        f"BLOCK_COLS = {power_of_2(columns, '32') if columns.isdigit() else block}",
        f"BLOCK_ROWS = {power_of_2(count, '2048 // BLOCK_COLS')}",
    )


def looped(loops: Loops, program: Program, plane: Plane, is_long: bool = False) -> None:
    """Print a kernel whose programs walk along rows, or down columns, or along all there is.

    Each takes one row where they are known to be long.
    """
    plane = plane.on_grid(loops, program)
    body = Body(loops, program, [*plane.dims, *plane.outer], ("start",))
    scans = bool(scanned(store.value for store in loops.stores))
    part = "whole" if scans else "long" if plane.by_rows else ""
    plane.begin(body)
    passes(body, plane)
    doc = "Each program walks down BLOCK_COLS columns, BLOCK_ROWS rows at a time."
    setup, grid = blocks(loops, program, plane), tuple(plane.grid(loops, program))
    values, warps = plane.blocks, WARPS if plane.by_rows else "4"
    if is_long and plane.kept is not None:
        values, warps, setup = {"BLOCK_ROWS": "1", "BLOCK_COLS": "2048"}, "8", ()
        count = plane.kept.count(program, loops)
        grid = tuple(count if text.startswith("triton.cdiv(") else text for text in grid)
    if plane.kept is None:
        doc, grid = "One program goes along all elements, BLOCK_SIZE at a time.", ("1",)
        block = power_of_2(plane.reduced.count(program, loops), "4096")
        setup = (f"BLOCK_SIZE = {block}",)
    if plane.by_rows:
        doc = "Each program takes BLOCK_ROWS rows, BLOCK_COLS elements of them at a time."
    program.launch(
        Kernel(
            body,
            doc,
            grid,
            values,
            setup,
            warps,
            part=part if program.depth else "",
        )
    )
