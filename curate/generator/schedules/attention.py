"""Attention in one kernel: online softmax, without scores in memory.

What stands between the two products, element by element, becomes statements on a tile of scores.
"""

from __future__ import annotations

import math
from dataclasses import replace

import sympy

from curate.generator import torch_private as private
from curate.generator.body import Body, Dim, Kernel
from curate.generator.loops import equal
from curate.generator.program import Program
from curate.generator.schedules import products
from curate.generator.schedules.attention_loops import Attention
from curate.generator.schedules.passes import power_of_2
from curate.generator.text.operations import TYPES
from curate.generator.torch_private import CallOperand
from curate.generator.values import HALF, Value, made_of

FIXED = {"BLOCK_M": "32", "BLOCK_N": "16"}
"""A tile that fits into shared memory with any head."""

MANY = 2**12
"""Heads, in the file, from which on they are the grid's first axis: others have 65,535 programs at
most."""


def tiled(loops: Attention, program: Program, tuned: bool = True) -> None:
    """Print attention in tiles, whose size is tuned or is `FIXED`; of one query, without."""
    is_single = loops.sizes["row"] == 1
    tile = _Query(loops, program) if is_single else _Tile(loops, program)
    body = tile.body
    tile.place()
    for role in ("dim", "dims", "col"):
        body.index(tile.dims[role], "")
    tile.begin()
    first = tile.whole()
    with body.block(tile.head(first)):
        tile.step()
    tile.end()
    body.store_all()
    tile.launch(tuned)


_DIMS = {
    "row": ("rows", 0, "BLOCK_M"),
    "key": ("keys", 1, "BLOCK_N"),
    "keys": ("key_rows", 0, "BLOCK_N"),
    "dim": ("dims", 1, "BLOCK_D"),
    "dims": ("dim_rows", 0, "BLOCK_D"),
    "col": ("cols", 1, "BLOCK_V"),
}
"""For each role its index, its dimension of a tile, and the constant that says how many it has."""

_RESERVED: tuple[str, ...] = ("tile", "start", "first", "whole", "end")
_RESERVED += ("q", "k", "v", "scores", "weights", "acc", "added")


class _Tile:
    """Prints one kernel of attention."""

    rows = "BLOCK_M"

    def __init__(self, loops: Attention, program: Program) -> None:
        self.loops = loops
        self.program = program
        self.dims = {}
        for role, (name, tile, block) in _DIMS.items():
            mask = f"{name.removesuffix('s')}_mask"
            self.dims[role] = Dim(name, self._axes(role), mask, tile, block)
        if equal(loops.sizes["dim"], loops.sizes["col"]):
            self.dims["col"].constant = self.dims["dim"].constant
        self.blocks = dict.fromkeys(("BLOCK_M", "BLOCK_N"), "")
        for role in ("dim", "col"):
            count = self.program.size(_COUNTS[role], loops.sizes[role])
            block = self.blocks[self.dims[role].block] = _block(count)
            if count == block:  # no element of the tile is missing
                for dim in ("dim", "dims") if role == "dim" else ("col",):
                    self.dims[dim].mask = ""
        batch = Dim("batch", self._axes("batch"))
        apart = self._body([batch]).apart(batch)
        self.batch = apart if 1 < len(apart) <= 2 else [batch] if batch.axes else []
        self.body = self._body(self.batch)
        self._narrow()
        # Programs of one head follow each other, unless there are too many heads for such an axis.
        self.grid = [self.dims["row"], *reversed(self.batch)]
        self.grid.sort(key=lambda dim: dim not in self.batch or self._hint(dim) <= MANY)

    def _body(self, batch: list[Dim]) -> Body:
        body = Body(self.loops, self.program, [*batch, *self.dims.values()], _RESERVED)
        body.use(self.loops.scores.scores)
        return body

    def _hint(self, dim: Dim) -> int:
        return self.program.hint(self.loops.extent(dim.axes))

    def _narrow(self) -> None:
        """Have 32 bits for offsets within a head, and the host assert that these hold them."""
        loops, program = self.loops, self.program
        roots = [store.value for store in self.body.stores()]
        roots += [loops.q, loops.k, loops.v, loops.scores.scores]
        reads = [v.index for root in roots for v in made_of([root]) if v.op == "load"]
        spans: dict[sympy.Expr, None] = {}  # in order: sizes get their names by it
        for e in map(loops.index, [*reads, *(store.index for store in self.body.stores())]):
            inside = [axis for axis in loops.axes if loops.of_dim[axis] != "batch"]
            steps = {axis: sympy.expand(e).coeff(axis) * loops.axes[axis] for axis in inside}
            if (e.free_symbols & steps.keys()) != {a for a, step in steps.items() if step != 0}:
                return
            spans[max(map(program.known, steps.values()), key=program.hint)] = None
        most = max((int(span) for span in spans if span.is_number), default=0)
        if most >= 2**31 or any(program.hint(span) >= 2**31 for span in spans):
            return
        self.body.narrow(self.dims.values())
        texts = sorted(program.sizes.text(span) for span in spans if not span.is_number)
        if texts:
            most_of = f"max({', '.join(texts)})" if len(texts) > 1 else texts[0]
            program.say(f'assert {most_of} < 2**31, "offsets in a head have 32 bits"')

    def _axes(self, role: str) -> list[sympy.Symbol]:
        return [axis for axis in self.loops.axes if self.loops.of_dim[axis] == role]

    @property
    def may_be_hidden(self) -> bool:
        """Whether a row may see no key of the first tile: its peak is -inf then."""
        scores, behind = self.loops.scores, self._bounds(1)
        sees_itself = all(rest.is_number and rest <= 0 for rest in behind)
        return not (scores.is_known and len(behind) == len(scores.bounds) and sees_itself)

    def _bounds(self, sign: int) -> list[sympy.Expr]:
        """Return by how much keys that count are at most behind a query, or with -1 before it."""
        rows, keys = self.dims["row"].axes, self.dims["key"].axes
        if len(rows) != 1 or len(keys) != 1:
            return []
        bounds = map(self.loops.index, self.loops.scores.bounds)
        rests = [sympy.expand(bound - sign * (keys[0] - rows[0])) for bound in bounds]
        return [rest for rest in rests if not rest.free_symbols & self.loops.axes.keys()]

    # -- statements -------------------------------------------------------------------------------

    def place(self) -> None:
        """Say which queries a program takes."""
        for axis, dim in enumerate(self.grid):
            start = f"tl.program_id({axis})"
            if dim is self.dims["row"]:
                self.body.say(f"tile = {start}")
                start = "tile * BLOCK_M"
            self.body.index(dim, start)

    def query(self) -> str:
        """Return the text for queries."""
        factors = (self.loops.q, self.loops.q_operand), (self.loops.k, self.loops.k_operand)
        q_type, self.k_type = self._conversions(*factors)
        return f"{self._factor(self.loops.q, 'dim')}{q_type}"

    def begin(self) -> None:
        """Load queries and begin the state."""
        body, loops = self.body, self.loops
        body.say(f"q = {self.query()}")
        body.leaf(loops.dot, "scores")
        body.leaf(loops.softmax.share, "weights")
        if loops.scores.factor is not None:
            body.name(loops.scores.factor)
        scores = loops.scores.scores, loops.scores.within
        parts = [*scores, loops.softmax.weights, *loops.k.inputs(), *loops.v.inputs()]
        body.hoist(parts, [*loops.reduced, *self.dims["keys"].axes])
        body.say(repr("# Online softmax: a new peak scales down the exponentials so far."))
        self.peak = body.let("peak", f'tl.full(({self.rows}, 1), float("-inf"), tl.float32)')
        self.total = body.let("exp_sum", f"tl.zeros(({self.rows}, 1), tl.float32)")
        body.say(f"acc = tl.zeros(({self.rows}, {self.dims['col'].block}), tl.float32)")

    def whole(self) -> str:
        """Take in keys that every query of the tile sees, unmasked; return where others begin."""
        body, key = self.body, self.dims["key"]
        if self.may_be_hidden:
            return "0"
        count = key.count(body, self.loops)
        if self._bounds(1):
            count = f"tl.minimum({count}, tile * BLOCK_M)"
        body.say(repr("# Every query of the tile sees these keys: no mask is needed."))
        body.say(f"whole = {count} // BLOCK_N * BLOCK_N")
        masks = key.mask, self.dims["keys"].mask
        key.mask = self.dims["keys"].mask = ""
        with body.block("for start in range(0, whole, BLOCK_N):"):
            self.step(self.loops.scores.within)
        key.mask, self.dims["keys"].mask = masks
        return "whole"

    def head(self, first: str) -> str:
        """Return the head of the loop over keys: only those that some query of the tile sees."""
        body = self.body
        end = self.dims["key"].count(body, self.loops)
        for rest in self._bounds(1):
            end = f"tl.minimum({end}, (tile + 1) * BLOCK_M{self._plus(-rest)})"
        for rest in self._bounds(-1):
            first = f"tl.maximum({first}, tile * BLOCK_M{self._plus(rest)})"
        if first.startswith("tl."):
            body.say(f"first = {first} // BLOCK_N * BLOCK_N")
            first = "first"
        if self._bounds(1):
            body.say(f"end = {end}")
            end = "end"
        return f"for start in range({first}, {end}, BLOCK_N):"

    def _plus(self, size: sympy.Expr) -> str:
        if size == 0:
            return ""
        return f" - {-size}" if size.is_number and size < 0 else f" + {self.body.address(size)}"

    def step(self, scores: Value | None = None) -> None:
        """Take in a tile of keys, whose scores are those of the loops if none are given."""
        body, loops, keys = self.body, self.loops, self.dims["key"]
        body.index(keys, "start")
        body.index(self.dims["keys"], "start")
        body.say(f"k = {self._factor(loops.k, 'dims')}{self.k_type}")
        body.say(f"scores = {self.product()}")
        if loops.scores.factor is None:
            body.exponential(scores or loops.scores.scores)
        filled = body.filled(scores or loops.scores.scores, -math.inf, keys)
        if filled != "scores":
            body.say(f"scores = {filled}")
        peak = f"tl.maximum({self.peak}, tl.max(scores, axis=1, keep_dims=True))"
        shift = new = body.let(f"new_{self.peak}", peak)
        if self.may_be_hidden:
            shift = body.let("shift", f'tl.where({new} == float("-inf"), 0.0, {new})')
        body.say(f"weights = {self.exponential(f'scores - {shift}')}")
        rescale = body.let("rescale", self.exponential(f"{self.peak} - {shift}"))
        body.say(
            f"{self.total} = {self.total} * {rescale} + tl.sum(weights, axis=1, keep_dims=True)"
        )
        weights = body.text(loops.softmax.weights)
        self.add(weights, rescale)
        body.say(f"{self.peak} = {new}")

    def exponential(self, difference: str) -> str:
        """Return the text for what a difference of scores is e to the power of."""
        factor = self.loops.scores.factor
        if factor is None:
            return f"tl.exp({difference})"
        return f"tl.exp2(({difference}) * {self.body.text(factor)})"

    def product(self) -> str:
        """Return the text for queries times keys."""
        types = [one.dtype for one in (self.loops.q_operand, self.loops.k_operand)]
        return products.dot(self.body, "q", "k", types=types)

    def add(self, weights: str, rescale: str) -> None:
        """Add values times weights."""
        body, loops = self.body, self.loops
        (v_type,) = self._conversions((loops.v, loops.v_operand))
        body.say(f"v = {self._factor(loops.v, 'keys')}{v_type}")
        body.say(f"acc *= {rescale}")
        parts = [f"({weights}).to(v.dtype)"]
        if self._is_exact():
            weights = body.name(loops.softmax.weights)
            body.say(repr("# In two parts: weights of 16 bits may be too far off."))
            high = body.let("high", parts[0])
            parts = [high, body.let("low", f"({weights} - {high}).to(v.dtype)")]
        for part in parts:
            body.say(f"acc = {products.dot(body, part, 'v', 'acc', [loops.v_operand.dtype])}")

    def _is_exact(self) -> bool:
        """Whether weights are not rounded to 16 bits, as they are in PyTorch without a mask."""
        loops, v = self.loops, self.loops.v
        products = (loops.dot, loops.product)
        masks = any(
            one.op == "load" and not any(one in made_of([p]) for p in products)
            for one in made_of([loops.scores.scores])
        )
        short = v.op == "load" and private.buffer_dtype(v.name) in HALF
        return short and (masks or not loops.softmax.is_safe)

    def end(self) -> None:
        """Divide by the sums."""
        body, total = self.body, self.total
        if self.loops.softmax.is_safe and self.may_be_hidden:
            body.say(repr("# A query that sees no key gets zeros."))
            body.say(f"{total} = tl.where({total} == 0.0, 1.0, {total})")
        body.say(f"acc = acc / {total}")
        body.leaf(self.loops.product, "acc")

    def _conversions(self, *factors: tuple[Value, CallOperand]) -> list[str]:
        """Return what is written behind factors of a product, so that they are of one type."""
        found = []
        for value, operand in factors:
            own = private.buffer_dtype(value.name) if _is_plain(value) else None
            if operand.dtype in HALF:
                found.append("" if own == operand.dtype else f".to({TYPES[operand.dtype]})")
            else:
                short = own is not None and self.program.is_float_input(value.name)
                found.append("" if short else ".to(tl.float32)")
        same = len(set(found)) == 1
        return [text.replace(".to(tl.float32)", "") if same else text for text in found]

    def _factor(self, value: Value, role: str) -> str:
        """Return a factor's text, with zeros where it has no element along the inner dimension."""
        if _is_plain(value):
            return self.body.raw_load(value, [], 0)
        return f"({self.body.filled(value, 0, self.dims[role])})"

    def counts(self, tiles: str) -> tuple[str, ...]:
        """Return the host's text for the grid."""
        return tuple(
            dim.count(self.program, self.loops) if dim in self.batch else tiles for dim in self.grid
        )

    def launch(self, tuned: bool) -> None:
        body, loops, program = self.body, self.loops, self.program
        doc = "Each program takes BLOCK_M queries and goes along the keys, BLOCK_N at a time"
        doc += ",\n    up to the diagonal." if self._bounds(1) else "."
        count = program.size("n_queries", loops.sizes["row"])
        side = 'meta["BLOCK_M"]' if tuned else FIXED["BLOCK_M"]
        grid = self.counts(f"triton.cdiv({count}, {side})")
        if not tuned:
            program.launch(Kernel(body, doc, grid, self.blocks | FIXED))
            return
        head = body.named("head_dim", loops.sizes["dim"])
        key = (head,) if head in body.arguments else ()
        kernel = Kernel(body, doc, grid, self.blocks, tuned_by=key)
        program.launch(replace(kernel, tiles="ATTENTION_TILES", pruned_by="fitting_tiles"))


class _Query(_Tile):
    """Prints attention of one query, as in decoding: there is too little for tensor cores."""

    rows = "1"

    def __init__(self, loops: Attention, program: Program) -> None:
        super().__init__(loops, program)
        self.grid.remove(self.dims["row"])

    def query(self) -> str:
        self.k_type = ".to(tl.float32)"
        return f"tl.trans({self._factor(self.loops.q, 'dim')}).to(tl.float32)"

    def product(self) -> str:
        return "tl.sum(q * k, axis=0, keep_dims=True)"

    def add(self, weights: str, rescale: str) -> None:
        body = self.body
        body.say(f"v = {self._factor(self.loops.v, 'keys')}.to(tl.float32)")
        body.say(f"added = tl.sum(tl.trans({weights}) * v, axis=0, keep_dims=True)")
        body.say(f"acc = acc * {rescale} + added")

    def launch(self, tuned: bool) -> None:
        doc = "Each program takes a query and goes along the keys, BLOCK_N at a time."
        blocks = {"BLOCK_N": "64"} | {name: text for name, text in self.blocks.items() if text}
        self.program.launch(Kernel(self.body, doc, self.counts("") or ("1",), blocks))


def _is_plain(value: Value) -> bool:
    """Whether a value is loaded as it is."""
    return value.op == "load" and not value.masks


_COUNTS = {"dim": "head_dim", "col": "value_dim"}


def _block(count: str) -> str:
    """Return the host's text for a block that holds a head: a product has 16 elements at least."""
    text = power_of_2(count)
    return str(max(16, int(text))) if text.isdigit() else f"max(16, {text})"
