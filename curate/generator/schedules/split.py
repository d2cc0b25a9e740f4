"""Reductions to few results, and scans of few rows: many programs share the elements of each.

For each level of reductions, programs leave partial states, and a second kernel combines them; what
needs the results for each element is a last kernel. How many programs share a result follows from
the sizes; it may be one. A scan's states are the totals of parts, which are scanned in turn, and
the last kernel scans each part from what came before it.
"""

from __future__ import annotations

import torch

from curate.generator.body import Body, Dim, Kernel
from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.schedules.passes import (
    Plane,
    levels,
    power_of_2,
    reductions,
    shifts,
    spreads,
)
from curate.generator.schedules.reductions import Reducer, fields
from curate.generator.schedules.scans import KINDS, Scanner, scanned, start_of, type_of
from curate.generator.values import Value, made_of

MOST_PROGRAMS = 4096
"""Programs that fill a device several times, so that the last ones keep it waiting for little."""


def shared(loops: Loops, program: Program, plane: Plane) -> None:
    """Print a reduction whose elements are shared out."""
    program.touch(loops)
    found = reductions(loops, program)
    stages = _Stages(loops, program, plane)
    for level in range(1, levels(found) + 1):
        now = [one for one in found if one.level == level]
        stages.combine(now, stages.partial(now), level)
    stages.elements()


def shared_scans(loops: Loops, program: Program, plane: Plane) -> None:
    """Print scans whose rows are shared out."""
    program.touch(loops)
    left = scanned(store.value for store in loops.stores)
    stages = _Scans(loops, program, plane)
    while left:
        now = [one for one in left if not any(other in left for other in scanned(one.args))]
        stages.prefixes(now, stages.totals(now))
        left = [one for one in left if one not in now]
    stages.elements()


class _Stages:
    """The kernels of one split reduction."""

    doc = "Each program takes every n-th block of the elements."
    blocks_each = "4 * "
    combined = "2048 // BLOCK_SPLITS"
    reserved: tuple[str, ...] = ()

    def __init__(self, loops: Loops, program: Program, plane: Plane) -> None:
        self.loops = loops
        self.program = program
        self.plane = plane
        self.done: list[tuple[Value, str]] = []
        plain = Body(loops, program, [])
        self.single = [s for s in plain.stores() if not spreads(plain, s, loops.reduced)]
        self.spread = [s for s in plain.stores() if s not in self.single]
        count = plane.reduced.count(program, loops)
        self.blocks = {plane.reduced.block: "2048"}
        parts, most = f"triton.cdiv({count}, 2048)", str(MOST_PROGRAMS)
        if plane.kept is not None:
            columns = plane.dims[1].count(program, loops)
            widest = "2048" if plane.by_rows else "64"
            program.say(f"BLOCK_COLS = {power_of_2(columns, widest)}")
            program.say("BLOCK_ROWS = 2048 // BLOCK_COLS")
            self.blocks = plane.blocks
            self.grid = plane.grid(loops, program)
            self.n_kept = plane.kept.count(program, loops)
            parts = f"triton.cdiv({count}, {self.blocks_each}{plane.reduced.block})"
            most = f"triton.cdiv({MOST_PROGRAMS // 2}, {self.grid[0]})"
        program.say(repr("# As many parts as fill a GPU, or as there is work for."))
        self.n_splits = program.let("n_splits", f"min({parts}, {most})")

    def _open(self, dim: Dim, needed: list[Value]) -> Body:
        """Begin a kernel: the place among the results, and the results that are known by now."""
        dims = self.plane.dims
        dims[dims.index(self.plane.reduced)] = dim
        body = Body(self.loops, self.program, dims, ("start", "split", *self.reserved))
        self.plane.begin(body)
        for value, tensor in self.done:
            if value in made_of(needed):
                name = body.let(tensor, f"tl.load({self._pointer(body, tensor)})")
                body.leaf(value, f"({name} != 0)" if value.dtype == torch.bool else name)
        return body

    def _pointer(self, body: Body, tensor: str, part: str = "", *masks: str) -> str:
        """Return what a load or store of a temporary tensor begins with."""
        kept = self.plane.kept
        if tensor not in body.pointers:
            body.pointers[tensor] = body.fresh(f"{tensor}_ptr")
        places = [f"{part} * {kept.count(body, self.loops)}" if part and kept else part]
        places += [kept.name] if kept else []
        at = " + ".join([body.pointers[tensor], *filter(None, places)])
        masks = (*masks, *([kept.mask] if kept else []))
        return f"{at}, mask={' & '.join(masks)}" if masks else at

    def _save(self, body: Body, tensor: str, text: str, part: str = "", *masks: str) -> None:
        """Print a store to a temporary tensor."""
        where, comma, mask = self._pointer(body, tensor, part, *masks).partition(", ")
        body.say(f"tl.store({where}, {text}{comma}{mask})")

    def _walk(self, body: Body) -> str:
        """Return the head of the loop over a program's share."""
        axis = 0 if self.plane.kept is None else 1
        dim = self.plane.reduced
        body.say(f"split = tl.program_id({axis})")
        step = f"tl.num_programs({axis}) * {dim.block}"
        return f"for start in range(split * {dim.block}, {dim.count(body, self.loops)}, {step}):"

    def partial(self, now: list[Value]) -> dict[int, list[str]]:
        """Print the first kernel of a level and return the tensors that hold its states."""
        dim = self.plane.reduced
        due = [store for store in self.spread if store.level < now[0].level]
        self.spread = [store for store in self.spread if store not in due]
        walked = [one.args[0] for one in now] + [store.value for store in due]
        body = self._open(dim, walked)
        reducer = Reducer(body, dim, shifts(self.loops))
        head = self._walk(body)
        body.hoist(walked, dim.axes)
        states = [(one, reducer.begin(one, self.plane.shape)) for one in now]
        with body.block(head):
            body.index(dim, "start")
            for one, state in states:
                reducer.step(one, state)
            for store in due:
                body.store(store)
        shape = [self.n_splits, *([self.n_kept] if self.plane.kept else [])]
        found: dict[int, list[str]] = {}
        for one, state in states:
            closed = reducer.close(one, state)
            found[id(one)] = []
            parts = zip(reducer.words(one), fields(one), closed, strict=True)
            for word, field, text in parts:
                tensor = self.program.temporary(f"partial_{word}", shape, field.dtype)
                self._save(body, tensor, text, "split")
                found[id(one)].append(tensor)
        doc = "Each program reduces every n-th block and leaves a partial result."
        self._launch(body, doc, "partial", now)
        return found

    def combine(self, now: list[Value], partial: dict[int, list[str]], level: int) -> None:
        """Print the second kernel: it combines what the programs of the first left."""
        kept = self.plane.kept
        due = [store for store in self.single if store.level == level]
        body, part = self._open_parts([store.value for store in due])
        reducer = Reducer(body, part, shifts(self.loops))
        for one in now:
            state = []
            for field, tensor in zip(fields(one), partial[id(one)], strict=True):
                pointer = self._pointer(body, tensor, "part", "part_mask")
                state.append(body.let(tensor, f"tl.load({pointer}, other={field.start})"))
            reducer.known(one, reducer.close(one, state))
        for value in self._results(now):
            if not self._is_needed(value, level):
                continue
            source, at = (value.args[0], value.number) if value.op == "part" else (value, 0)
            word = fields(source)[at].word
            tensor = self.program.temporary(word, [self.n_kept] if kept else [], value.dtype)
            self._save(body, tensor, body.text(value))
            self.done.append((value, tensor))
        for store in due:
            body.store(store)
        self._launch_parts(body, "Each program combines the partial results.", now)

    def _open_parts(self, needed: list[Value]) -> tuple[Body, Dim]:
        """Begin a kernel whose programs hold what is known of all parts of some results."""
        part = Dim("part", [], "part_mask", self.plane.reduced.tile)
        body = self._open(part, needed)
        lanes = ("[:, None]", "[None, :]")[part.tile or 0] if self.plane.kept else ""
        body.arguments["n_splits"] = self.n_splits
        body.say(f"part = tl.arange(0, BLOCK_SPLITS){lanes}")
        body.say("part_mask = part < n_splits")
        return body, part

    def _launch_parts(self, body: Body, doc: str, now: list[Value]) -> None:
        kept = self.plane.kept
        blocks = {"BLOCK_SPLITS": f"triton.next_power_of_2({self.n_splits})"}
        grid, setup = "1", []
        if kept:
            setup = [f"BLOCK_SPLITS = {blocks['BLOCK_SPLITS']}"]
            blocks = {"BLOCK_SPLITS": "BLOCK_SPLITS", kept.block: self.combined}
            grid = f"triton.cdiv({self.n_kept}, {self.combined})"
        kernel = Kernel(body, doc, (grid,), blocks, tuple(setup), "8", "combine", now)
        self.program.launch(kernel)

    def _results(self, now: list[Value]) -> list[Value]:
        """Return the values that some reductions give."""
        return [v for one in now for v in self.loops.recorder.parts_of(one) or [one]]

    def _is_needed(self, value: Value, level: int) -> bool:
        """Whether a later kernel needs a result."""
        later = [r.args[0] for r in reductions(self.loops, self.program) if r.level > level]
        later += [store.value for store in self.single if store.level > level]
        later += [store.value for store in self.spread]
        return value in made_of(later)

    def elements(self) -> None:
        """Print the kernel that needs the results for each element."""
        early = [store for store in self.single if store.level == 0]
        if not self.spread and not early:
            return
        body = self._open(self.plane.reduced, [store.value for store in self.spread])
        for store in early:
            body.store(store)
        if self.spread:
            head = self._walk(body)
            body.hoist([store.value for store in self.spread], self.plane.reduced.axes)
            self._scanner(body, [store.value for store in self.spread])
            with body.block(head):
                body.index(self.plane.reduced, "start")
                for store in self.spread:
                    body.store(store)
        self._launch(body, self.doc, "", [])

    def _scanner(self, body: Body, walked: list[Value]) -> Scanner | None:
        """Begin the scans in a loop, if it has any."""

    def _launch(self, body: Body, doc: str, part: str, now: list[Value]) -> None:
        grid = (*(self.grid if self.plane.kept else []), self.n_splits)
        self.program.launch(Kernel(body, doc, grid, self.blocks, (), "8", part, now))


class _Scans(_Stages):
    """The kernels of split scans: programs take parts, one after the other, not every n-th block.

    The last part's total is of no use, so that the lanes behind the end may hold anything.
    """

    doc = "Each program scans its part, from what came before it."
    reserved = ("first", "end")

    def __init__(self, loops: Loops, program: Program, plane: Plane) -> None:
        if plane.by_rows:
            self.blocks_each, self.combined = "", "BLOCK_ROWS"
        super().__init__(loops, program, plane)
        self.before: dict[int, list[str]] = {}
        block = self.blocks[plane.reduced.block]
        count = plane.reduced.count(program, loops)
        length = f"triton.cdiv({count}, {self.n_splits} * {block}) * {block}"
        self.part_length = program.let("part_length", length)

    def _walk(self, body: Body) -> str:
        dim = self.plane.reduced
        body.arguments["part_length"] = self.part_length
        body.say(f"split = tl.program_id({0 if self.plane.kept is None else 1}).to(tl.int64)")
        body.say("first = split * part_length")
        body.say(f"end = tl.minimum(first + part_length, {dim.count(body, self.loops)})")
        return f"for start in range(first, end, {dim.block}):"

    def _scanner(self, body: Body, walked: list[Value]) -> Scanner:
        """Begin the scans in a loop, of which those are known that came before it."""
        before = {
            id(one): [f"tl.load({self._pointer(body, t, 'split')})" for t in self.before[id(one)]]
            for one in scanned(walked)
        }
        return Scanner(body, self.plane.reduced, self.plane.shape, walked, before)

    def totals(self, now: list[Value]) -> dict[int, list[str]]:
        """Print the first kernel of a level and return the tensors that hold its parts' totals."""
        dim = self.plane.reduced
        args = [arg for one in now for arg in one.args]
        body = self._open(dim, [])
        head = self._walk(body)
        body.hoist(args, dim.axes)
        scanner = self._scanner(body, args)
        states = [(one, scanner.begin(one)) for one in now]
        with body.block(head):
            body.index(dim, "start")
            for one, state in states:
                scanner.step(one, state)
        found: dict[int, list[str]] = {}
        for one, state in states:
            found[id(one)] = self._tensors("partial_{}", one)
            for tensor, text in zip(found[id(one)], scanner.close(one, state), strict=True):
                self._save(body, tensor, text, "split")
        self._launch(body, "Each program leaves the total of its part.", "partial", now)
        return found

    def prefixes(self, now: list[Value], totals: dict[int, list[str]]) -> None:
        """Print the second kernel: what comes before each part."""
        body, part = self._open_parts([])
        at = "(part - 1)" if self.plane.kept else "part - 1"
        for one in now:
            kind, names = KINDS[one.name], []
            body.helpers |= {kind.helper} - {""}
            for arg, tensor in zip(one.args, totals[id(one)], strict=True):
                pointer = self._pointer(body, tensor, at, "part_mask", "(part > 0)")
                start = start_of(one, type_of(one, arg))
                names.append(body.let(tensor, f"tl.load({pointer}, other={start})"))
            text = kind.scan.format(x=", ".join(names), axis=part.tile or 0)
            if kind.helper:
                body.say(f"{', '.join(names)} = {text}")
            self.before[id(one)] = self._tensors("{}_before", one)
            texts = names if kind.helper else [text]
            for tensor, text in zip(self.before[id(one)], texts, strict=True):
                self._save(body, tensor, text, "part", "part_mask")
        self._launch_parts(body, "Each program scans the totals of the parts.", now)

    def _tensors(self, form: str, scan: Value) -> list[str]:
        """Make tensors that hold a number of each part for each result of a scan."""
        shape = [self.n_splits, *([self.n_kept] if self.plane.kept else [])]
        pairs = zip(KINDS[scan.name].words, scan.args, strict=True)
        return [
            self.program.temporary(form.format(w), shape, type_of(scan, arg)) for w, arg in pairs
        ]
