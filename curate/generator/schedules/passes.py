"""The tile of a reduction, and passes over what is reduced: one for each that waits for another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import sympy

from curate.generator.body import Body, Dim
from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.schedules.reductions import Reducer
from curate.generator.schedules.scans import Scanner
from curate.generator.values import StoredValue, Value, made_of


@dataclass(frozen=True)
class Plane:
    """What a reduction's tile spans.

    Attributes:
        kept: the results' elements, or None if there is only one result.
        reduced: the elements of each.
        outer: further axes of the results, of which a program has one element.
        is_long: whether there are more blocks than elements along any of these, in the file: axis 0
            of a grid alone may have more than 65,535 programs.
    """

    kept: Dim | None
    reduced: Dim
    outer: tuple[Dim, ...] = ()
    is_long: bool = False

    @property
    def by_rows(self) -> bool:
        """Whether results are rows: what is reduced lies together."""
        return self.reduced.tile == 1

    @property
    def dims(self) -> list[Dim]:
        found = [self.reduced, *([self.kept] if self.kept else [])]
        return sorted(found, key=lambda dim: dim.tile or 0)

    @property
    def shape(self) -> str:
        return f"[{', '.join(dim.block for dim in self.dims)}]"

    @property
    def blocks(self) -> dict[str, str]:
        return {dim.block: dim.block for dim in self.dims}

    def grid(self, loops: Loops, program: Program) -> list[str]:
        """Return the host's text for how many programs the results take."""
        if self.kept is None:
            return []
        blocks = f"triton.cdiv({self.kept.count(program, loops)}, {self.kept.block})"
        counts = [dim.count(program, loops) for dim in self.outer]
        return [blocks, *counts] if self.is_long else [*counts, blocks]

    def begin(self, body: Body) -> None:
        """Say which results a program makes."""
        for axis, dim in enumerate(self.outer, int(self.is_long)):
            body.index(dim, f"tl.program_id({axis})")
        if self.kept is not None:
            own = 0 if self.is_long else len(self.outer)
            body.index(self.kept, f"tl.program_id({own}) * {self.kept.block}")

    def on_grid(self, loops: Loops, program: Program) -> Plane:
        """Return the tile with an axis of the grid for each that lanes would have to divide for."""
        if self.kept is None:
            return self
        length = program.hint(loops.extent(self.reduced.axes))
        long = self.by_rows and length > FEWEST  # of such rows a program takes few
        fewest = max(2, 1024 // length) if long else FEWEST
        outer = apart(loops, program, self.dims, self.kept, 2, fewest)
        kept = inner(self.kept, outer)
        sizes = [program.hint(loops.extent(dim.axes)) for dim in (*outer, kept)]
        return Plane(kept, self.reduced, tuple(outer), self.by_rows and max(sizes) == sizes[-1])


FEWEST = 33
"""Elements along an axis, in the file, from which on it takes several tiles, all along it alone."""


def apart(
    loops: Loops, program: Program, dims: list[Dim], dim: Dim, room: int, fewest: int = FEWEST
) -> list[Dim]:
    """Return the ways along a dim's outer axes if these are to be axes of the grid; see `inner`.

    Its lanes would divide otherwise. The grid has ``room`` for so many; along the last axis there
    are ``fewest`` elements or more, so that tiles are full.
    """
    *outer, last = Body(loops, program, dims).apart(dim) or [dim]
    many = program.hint(loops.extent(last.axes)) >= fewest
    return outer if many and len(outer) <= room else []


def inner(dim: Dim, outer: Iterable[Dim]) -> Dim:
    """Return the rest of a dim some of whose axes are the grid's."""
    gone = {axis for one in outer for axis in one.axes}
    return replace(dim, axes=[axis for axis in dim.axes if axis not in gone])


def power_of_2(count: str, most: str = "") -> str:
    """Return the host's text for a block that holds ``count`` elements, but not over ``most``."""
    known = count.isdigit()
    text = str(1 << (int(count) - 1).bit_length()) if known else f"triton.next_power_of_2({count})"
    if known and most.isdigit():
        return str(min(int(text), int(most)))
    return f"min({text}, {most})" if most else text


def reductions(loops: Loops, program: Program) -> list[Value]:
    """Return a kernel's reductions that a result needs, those first that others wait for."""
    roots: list[Value] = []
    for store in loops.stores:
        if not program.is_inner(store.buffer):
            roots += [store.value, *loops.axes_of(loops.index(store.index))[1]]
    found = [value for value in made_of(roots) if value.op == "reduce"]
    return sorted(found, key=lambda value: value.level)


def levels(found: list[Value]) -> int:
    """Return how many of some reductions wait for each other."""
    return max((reduce.level for reduce in found), default=0)


def shifts(loops: Loops) -> set[int]:
    """Return the maxima that are only taken off before exponentials, as in a softmax."""
    users: dict[int, list[Value]] = {}
    for value in loops.recorder.made.values():
        for one in value.inputs():
            users.setdefault(id(one), []).append(value)
    found = set()
    for value in loops.recorder.made.values():
        if value.op == "reduce" and value.name == "max":
            taken = users.get(id(value), [])
            after = [user for sub in taken for user in users.get(id(sub), [])]
            stored = any(store.value is value for store in loops.stores)
            shift = taken and all(u.op == "sub" and u.args[1] is value for u in taken)
            if shift and after and all(u.op == "exp" for u in after) and not stored:
                found.add(id(value))
    return found


def spreads(body: Body, store: StoredValue, axes: Iterable[sympy.Symbol]) -> bool:
    """Whether a store writes something for each element along some axes."""
    loops = body.loops
    own, values = loops.axes_of(loops.index(store.index))
    touched = loops.live(store.value.axes).union(own, *(loops.live(v.axes) for v in values))
    return not touched.isdisjoint(axes)


def passes(body: Body, plane: Plane) -> None:
    """Print a kernel's reductions, and its stores, in as few loops as there can be."""
    loops, dim = body.loops, plane.reduced
    found = reductions(loops, body.host)
    reducer = Reducer(body, dim, shifts(loops))
    spread = [store for store in body.stores() if spreads(body, store, dim.axes)]
    single = [store for store in body.stores() if store not in spread]
    for store in single:
        if store.level == 0:
            body.store(store)
    for level in range(1, levels(found) + 2):
        now = [reduce for reduce in found if reduce.level == level]
        due = [store for store in spread if store.level == level - 1]
        if now or due:
            body.hoist([r.args[0] for r in now] + [s.value for s in due], dim.axes)
            states = [(reduce, reducer.begin(reduce, plane.shape)) for reduce in now]
            Scanner(body, dim, plane.shape, [r.args[0] for r in now] + [s.value for s in due])
            with body.block(f"for start in range(0, {dim.count(body, loops)}, {dim.block}):"):
                body.index(dim, "start")
                for reduce, state in states:
                    reducer.step(reduce, state)
                for store in due:
                    body.store(store)
            for reduce, state in states:
                reducer.known(reduce, reducer.close(reduce, state))
        for store in single:
            if store.level == level:
                body.store(store)
