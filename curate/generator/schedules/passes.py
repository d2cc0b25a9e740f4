"""Passes over what is reduced: one for each reduction that waits for another."""

from __future__ import annotations

from collections.abc import Iterable

import sympy  # type: ignore[import-untyped]

from curate.generator.body import Body, Dim
from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.reductions import Reducer
from curate.generator.values import StoredValue, Value


def reductions(loops: Loops, program: Program) -> list[Value]:
    """Return a kernel's reductions that a result needs, those first that others wait for."""
    found: dict[int, Value] = {}
    seen: set[int] = set()

    def walk(value: Value) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        for one in value.inputs():
            walk(one)
        if value.op == "reduce":
            found[id(value)] = value

    for store in loops.stores:
        if not program.is_inner(store.buffer):
            walk(store.value)
            for value in loops.axes_of(loops.index(store.index))[1]:
                walk(value)
    return sorted(found.values(), key=lambda value: value.level)


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


def passes(
    body: Body, dim: Dim, shape: str, steps: str, length: str, keep_states: bool = False
) -> None:
    """Print a kernel's reductions along one dim, and its stores, in as few loops as there can be.

    Args:
        body: the kernel; its other indices are there.
        dim: the way that is walked, BLOCK elements at a time.
        shape: the tile's.
        steps: the range of the loop's ``start``.
        length: how many elements there are.
    """
    loops = body.loops
    found = reductions(loops, body.host)  # type: ignore[arg-type]
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
            states = [(reduce, reducer.begin(reduce, shape)) for reduce in now]
            with body.block(f"for start in {steps}:"):
                walk(body, dim, length)
                for reduce, state in states:
                    reducer.step(reduce, state)
                for store in due:
                    body.store(store)
            for reduce, state in states:
                reducer.known(reduce, reducer.close(reduce, state))
        for store in single:
            if store.level == level:
                body.store(store)


def walk(body: Body, dim: Dim, length: str) -> None:
    """Say which elements a loop has come to."""
    block = "BLOCK_ROWS" if dim.tile == 0 and body.rank == 2 else "BLOCK_COLS"
    lanes = {(0, 1): "", (0, 2): "[:, None]", (1, 2): "[None, :]"}[dim.tile or 0, body.rank]
    wide = ".to(tl.int64)" if body.is_wide(dim) and len(dim.axes) == 1 else ""
    index = f"start + tl.arange(0, {block}){lanes}"
    body.say(f"{dim.name} = ({index}){wide}")
    body.say(f"{dim.mask} = {dim.name} < {length}")
    body.spread(dim)
