"""Reductions to few results: many programs share the elements of each, in two stages.

For each level of reductions, programs leave partial states, and a second kernel combines them; what
needs the results for each element is a last kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy  # type: ignore[import-untyped]
import torch

from curate.generator.body import Body, Dim
from curate.generator.kernel import Kernel
from curate.generator.loops import Loops, product
from curate.generator.program import Program
from curate.generator.reductions import Reducer, fields
from curate.generator.schedules.passes import levels, reductions, shifts, spreads, walk
from curate.generator.values import Value

MOST_PROGRAMS = 1024
"""Programs that fill a device several times."""

FEWEST_SPLITS = 4
"""Parts of a reduction below which a second stage does not pay."""


@dataclass(frozen=True)
class Way:
    """How results and elements are laid out.

    Attributes:
        kept: the dims of the results; none if there is only one.
        reduced: the dim that goes.
        block: the compile-time constant for ``reduced``, and ``size`` its value.
        blocks: the others, with the host's text for each.
        setup: the host's statements for them.
        kept_blocks: the host's text for how many programs the results take.
    """

    kept: tuple[Dim, ...]
    reduced: Dim
    block: str
    size: str
    blocks: dict[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    kept_blocks: str = ""

    @property
    def shape(self) -> str:
        return f"[{', '.join([self.block, *self.blocks])}]"

    def grid(self, parts: str) -> tuple[str, ...]:
        """Return the grid: results are few, so that its second axis can hold them."""
        return (parts, self.kept_blocks) if self.kept else (parts,)


def whole(loops: Loops, program: Program) -> None:
    """Print a reduction of everything to one result."""
    program.touch(loops)
    length = program.size("n_elements", product(loops.axes[a] for a in loops.reduced))
    n_splits = number(program, f"min(triton.cdiv({length}, 2048), {MOST_PROGRAMS})")
    way = Way((), Dim("offsets", loops.reduced, "mask", 0), "BLOCK_COLS", "2048")
    shared(loops, program, way, n_splits)


def shared(loops: Loops, program: Program, way: Way, n_splits: str) -> None:
    """Print a reduction whose elements are shared out; ``n_splits`` is the host's variable."""
    found = reductions(loops, program)
    state = _Stages(loops, program, way, n_splits)
    for level in range(1, levels(found) + 1):
        state.stage([reduce for reduce in found if reduce.level == level], level)
    state.elements()


def number(program: Program, text: str) -> str:
    """Have the host work out into how many parts a reduction is split."""
    name = program.sizes.fresh("n_splits")
    program.say(f"{name} = {text}")
    return name


class _Stages:
    """The kernels of one split reduction."""

    def __init__(self, loops: Loops, program: Program, way: Way, n_splits: str) -> None:
        self.loops = loops
        self.program = program
        self.way = way
        self.n_splits = n_splits
        self.done: list[tuple[Value, str]] = []
        self.flat = ""
        plain = Body(loops, program, [])
        self.single = [s for s in plain.stores() if not spreads(plain, s, loops.reduced)]
        self.spread = [s for s in plain.stores() if s not in self.single]
        self.length = product(loops.axes[a] for a in loops.reduced)
        self.n_kept = product(loops.axes[a] for a in loops.kept)

    def _open(self, dim: Dim, needed: list[Value]) -> Body:
        """Begin a kernel: the place among the results, and the results that are known by now."""
        way = self.way
        body = Body(self.loops, self.program, [dim, *way.kept], ("start", "split", "pid", "mask"))
        self.flat = ""
        for kept in way.kept:
            wide = ".to(tl.int64)"
            if kept.tile is None and len(way.kept) == 1:
                body.say(f"{kept.name} = tl.program_id(1){wide}")
                body.spread(kept)
                self.flat = kept.name
            elif kept.tile is not None:
                n_cols = body.size("n_cols", self.loops.axes[kept.axes[0]])
                block = "tl.program_id(1)"
                self.flat = kept.name
                if len(way.kept) > 1:
                    body.say(f"col_blocks = tl.cdiv({n_cols}, BLOCK_COLS)")
                    body.say(f"outer = (tl.program_id(1) // col_blocks){wide}")
                    body.spread(way.kept[1])
                    block = "(tl.program_id(1) % col_blocks)"
                    self.flat = f"(outer * {n_cols} + {kept.name})"
                body.say(f"{kept.name} = {block} * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]")
                body.say(f"{kept.mask} = {kept.name} < {n_cols}")
        for value, tensor in self.done:
            if any(depends(one, value) for one in needed):
                name = body.fresh(tensor)
                body.say(f"{name} = tl.load({self._pointer(body, tensor, self.flat)})")
                body.leaf(value, f"({name} != 0)" if value.dtype == torch.bool else name)
        return body

    def _mask(self, *more: str) -> str:
        masks = [*more, *(d.mask for d in self.way.kept if d.mask)]
        return f", mask={' & '.join(masks)}" if masks else ""

    def _pointer(self, body: Body, tensor: str, at: str) -> str:
        """Return what a load or store of a temporary tensor begins with."""
        if tensor not in body.pointers:
            body.pointers[tensor] = body.fresh(f"{tensor}_ptr")
        pointer = body.pointers[tensor]
        return f"{pointer} + {at}{self._mask()}" if at else f"{pointer}{self._mask()}"

    def _temporary(self, word: str, shape: str, value_type: torch.dtype) -> str:
        tensor = self.program.temporary(word, shape, value_type)
        self.program.scratch[tensor] = tensor
        return tensor

    # -- one level --------------------------------------------------------------------------------

    def stage(self, now: list[Value], level: int) -> None:
        partial = self._partial(now)
        self._combine(now, partial, level)

    def _partial(self, now: list[Value]) -> dict[int, list[str]]:
        """Print the first kernel and return the tensors that hold its states."""
        way, program = self.way, self.program
        body = self._open(way.reduced, [reduce.args[0] for reduce in now])
        length = body.size("n_elements", self.length)
        reducer = Reducer(body, way.reduced, shifts(self.loops))
        body.say("split = tl.program_id(0)")
        body.hoist([reduce.args[0] for reduce in now], way.reduced.axes)
        states = [(reduce, reducer.begin(reduce, way.shape)) for reduce in now]
        step = f"tl.num_programs(0) * {way.block}"
        with body.block(f"for start in range(split * {way.block}, {length}, {step}):"):
            walk(body, way.reduced, length)
            for reduce, state in states:
                reducer.step(reduce, state)
        shape = f"({self.n_splits},)"
        place = "split"
        if way.kept:
            shape = f"({self.n_splits}, {program.size('n_results', self.n_kept)})"
            place = f"split * {body.size('n_results', self.n_kept)} + {self.flat}"
        partial: dict[int, list[str]] = {}
        for reduce, state in states:
            closed = reducer.close(reduce, state)
            partial[id(reduce)] = []
            for one, text in zip(fields(reduce), closed, strict=True):
                tensor = self._temporary(f"partial_{one.word}", shape, one.dtype)
                pointer = self._pointer(body, tensor, place).removesuffix(self._mask())
                body.say(f"tl.store({pointer}, {text}{self._mask()})")
                partial[id(reduce)].append(tensor)
        doc = "Each program reduces every n-th block and leaves a partial result."
        self._launch(body, doc, self.n_splits, {way.block: way.size}, "partial", "8")
        return partial

    def _combine(self, now: list[Value], partial: dict[int, list[str]], level: int) -> None:
        """Print the second kernel: it combines what the programs of the first left."""
        way, program = self.way, self.program
        due = [store for store in self.single if store.level == level]
        part = Dim("part", [], "part_mask", 0)
        body = self._open(part, [store.value for store in due])
        lanes = "[:, None]" if body.rank > 1 else ""
        body.arguments["n_splits"] = self.n_splits
        body.say(f"part = tl.arange(0, BLOCK_SPLITS){lanes}")
        body.say("part_mask = part < n_splits")
        place = "part"
        if way.kept:
            place = f"part * {body.size('n_results', self.n_kept)} + {self.flat}"
        reducer = Reducer(body, part, shifts(self.loops))
        for reduce in now:
            state = []
            for one, tensor in zip(fields(reduce), partial[id(reduce)], strict=True):
                name = body.fresh(tensor)
                pointer = self._pointer(body, tensor, place).removesuffix(self._mask())
                mask = self._mask("part_mask")
                body.say(f"{name} = tl.load({pointer}{mask}, other={one.start})")
                state.append(name)
            reducer.known(reduce, reducer.close(reduce, state))
        for value in self._results(now):
            if not self._is_needed(value, level):
                continue
            source, at = (value.args[0], value.number) if value.op == "part" else (value, 0)
            word = fields(source)[at].word
            shape = f"({program.size('n_results', self.n_kept)},)" if way.kept else "()"
            tensor = self._temporary(word, shape, value.dtype)
            pointer = self._pointer(body, tensor, self.flat).removesuffix(self._mask())
            body.say(f"tl.store({pointer}, {body.text(value)}{self._mask()})")
            self.done.append((value, tensor))
        for store in due:
            body.store(store)
        block = f"triton.next_power_of_2({self.n_splits})"
        doc = "Each program combines the partial results."
        self._launch(body, doc, "", {"BLOCK_SPLITS": block}, "combine", "")

    def _results(self, now: list[Value]) -> list[Value]:
        """Return the values that some reductions give."""
        made = self.loops.recorder.made.values()
        found: list[Value] = []
        for reduce in now:
            found += [v for v in made if v.op == "part" and v.args[0] is reduce] or [reduce]
        return found

    def _is_needed(self, value: Value, level: int) -> bool:
        """Whether a later kernel needs a result."""
        later = [r.args[0] for r in reductions(self.loops, self.program) if r.level > level]
        later += [store.value for store in self.single if store.level > level]
        later += [store.value for store in self.spread]
        return any(depends(one, value) for one in later)

    # -- all elements -----------------------------------------------------------------------------

    def elements(self) -> None:
        """Print the kernel that needs the results for each element."""
        early = [store for store in self.single if store.level == 0]
        if not self.spread and not early:
            return
        way = self.way
        body = self._open(way.reduced, [store.value for store in self.spread])
        for store in early:
            body.store(store)
        if self.spread:
            length = body.size("n_elements", self.length)
            body.say(f"start = tl.program_id(0).to(tl.int64) * {way.block}")
            walk(body, way.reduced, length)
            for store in self.spread:
                body.store(store)
        parts = f"triton.cdiv({self.program.size('n_elements', self.length)}, {way.size})"
        doc = "Each program takes a block of the elements."
        self._launch(body, doc, parts, {way.block: way.size}, "", "8")

    def _launch(
        self, body: Body, doc: str, parts: str, blocks: dict[str, str], part: str, warps: str
    ) -> None:
        way = self.way
        grid = way.grid(parts or "1")
        self.program.launch(
            Kernel(body, doc, grid, {**blocks, **way.blocks}, way.setup, warps, part)
        )


def depends(value: Value, wanted: Value) -> bool:
    """Whether a value is computed from another."""
    seen: set[int] = set()
    queue = [value]
    while queue:
        one = queue.pop()
        if one is wanted:
            return True
        if id(one) not in seen:
            seen.add(id(one))
            queue += one.inputs()
    return False


def is_few(program: Program, kept: sympy.Expr, most: int) -> bool:
    """Whether results may be few: a file's sizes are smaller than those that programs meet."""
    return bool(program.hint(kept) < most)
