"""Products of matrices, with what follows element by element inside: a tile per program.

A product has no loops of Inductor's. Its kernel's loops are made here from what the library would
be given; the bodies of the groups behind it are recorded over the same axes, in which the product
itself is one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import sympy
import torch

from curate.generator import torch_private as private
from curate.generator.body import Body, Dim, Kernel
from curate.generator.loops import ONE, ZERO, Loops, axes_of_sizes, common_sizes, equal, product
from curate.generator.program import Program
from curate.generator.schedules import producers, quantised
from curate.generator.schedules.passes import power_of_2
from curate.generator.text.operations import TYPES, literal
from curate.generator.torch_private import CallOperand, FloorDiv, LibraryCall, ModularIndexing
from curate.generator.unprintable import Unprintable
from curate.generator.values import HALF, Value

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
"""The compile-time constants that the tuner chooses."""

FIXED = {"BLOCK_M": "64", "BLOCK_N": "64", "BLOCK_K": "32"}
"""A tile that suits most sizes."""

SMALLEST = 16
"""Rows, columns or products that a tile has at least."""

FEW_PRODUCTS = 2**16
"""Products, in the file, up to which small factors are not worth a tile."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16)

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)

KINDS = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), FLOATS),
    "_int_mm": (torch.int8,),
    "_scaled_mm": FLOAT8,
}
"""The operators that are products of matrices, and the types of their factors."""


Span = tuple[list[sympy.Expr], Callable[[list[sympy.Expr]], list[sympy.Expr]]]


class Product(Loops):
    """A product's result, and the element-wise loops that follow it.

    Attributes:
        call: what the library would be asked for.
        followers: the groups that it has taken in.
        places: for each dimension of the result, the index along it.
        product: the value that stands for the product itself.
    """

    def __init__(
        self,
        program: Program,
        call: LibraryCall,
        nodes: list[Any],
        groups: Sequence[Any],
        makers: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Record the loops of a call, whose nodes are given, and of the groups that follow.

        ``makers`` are nodes that make factors where these are read, by buffer.
        """
        later = [node for group in groups for node in group.get_nodes()]
        self._begin(program, [*nodes, *makers.values(), *later])
        self.makers = makers
        if makers:
            self.recorder = producers.InlineRecorder(self, makers)
        self.call = call
        self.followers = list(groups)
        result = call.result
        spans = self._spans(later)
        self.axes = axes_of_sizes(common_sizes([result.sizes, *(sizes for sizes, _ in spans)]))
        self.places = self._positions(result.sizes)
        self.of_dim = {
            axis: dim for dim, place in enumerate(self.places) for axis in place.free_symbols
        }
        positions = [self._positions(sizes) for sizes, _ in spans]
        self.product = self.multiply()
        self.recorder.store(result.buffer, self.at(result, self.places), self.whole())
        for node, (_, variables), found in zip(later, spans, positions, strict=True):
            private.run_body(node, variables(found), [], self.recorder)

    def place(self, name: str, index: Any) -> tuple[str, sympy.Expr]:
        return super().place(name, private.without_guards(sympy.sympify(index)))

    def multiply(self) -> Value:
        """Return the value of the product alone."""
        return self.recorder.make("product", (), torch.float32, frozenset(self.axes))

    def whole(self) -> Value:
        """Return what the library's call gives, from the product."""
        return self.product

    def at(self, operand: CallOperand, places: Sequence[sympy.Expr]) -> sympy.Expr:
        """Return the address of one of an operand's elements."""
        return operand.offset + sum(
            (p * s for p, s in zip(places, operand.strides, strict=True)), ZERO
        )

    def scaled(self, value: Value, factor: Any) -> Value:
        if not isinstance(factor, sympy.Expr) and factor == 1:
            return value
        number = self.recorder.constant(factor, torch.float32)
        return self.recorder.make("mul", (value, number), torch.float32)

    def with_bias(
        self,
        value: Value,
        bias: CallOperand | None,
        places: Sequence[sympy.Expr],
        alpha: Any = 1,
        beta: Any = 1,
    ) -> Value:
        """Return alpha times a value plus beta times a bias, if any, broadcast to ``places``."""
        if bias is None:
            return value
        terms = self.scaled(value, alpha), self.scaled(self.spread(bias, places), beta)
        return self.recorder.make("add", terms, torch.float32)

    def spread(self, operand: CallOperand, places: Sequence[sympy.Expr]) -> Value:
        """Return the elements of an operand that is broadcast to ``places``."""
        own = [
            ZERO if size == 1 else place
            for size, place in zip(
                operand.sizes, places[len(places) - len(operand.sizes) :], strict=True
            )
        ]
        return self.recorder.load(operand.buffer, self.at(operand, own))

    def dim(self, name: str, dims: Sequence[int], tile: int | None = None) -> Dim:
        """Return the way along some of the result's dimensions."""
        axes = [axis for axis in self.axes if self.of_dim.get(axis) in dims]
        if tile is None:
            return Dim(name, axes)
        return Dim(name, axes, ("row_mask", "col_mask")[tile], tile, TILE[tile])

    def role(self, dim: int) -> int:
        """Return with which other dimensions of the result one may be walked together."""
        return dim

    def _fits(self, outer: sympy.Symbol, inner: sympy.Symbol) -> bool:
        return self.role(self.of_dim[outer]) == self.role(self.of_dim[inner])

    def _join(self, outer: sympy.Symbol, inner: sympy.Symbol) -> None:
        super()._join(outer, inner)
        self.places = [place.subs(self._merged) for place in self.places]

    # -- what follows -----------------------------------------------------------------------------

    def _spans(self, nodes: Iterable[Any]) -> list[Span]:
        """Return what `_span` does of nodes that follow."""
        made = {self.place(self.call.result.buffer, ZERO)[0]}
        spans = []
        for node in nodes:
            spans.append(self._span(node, made))
            made |= self.program.writes([node]).keys()
        return spans

    def _span(self, node: Any, made: set[str]) -> Span:
        """Return the sizes of a node's loops in the product's order, and its variables from them.

        It shows in what the node reads of the product: the smallest step is along the last
        dimension.

        Raises:
            Unprintable: it does not read it element by element.
        """
        outer, inner = node.get_ranges()
        if not equal(product(inner), 1) or not equal(
            product(outer), product(self.call.result.sizes)
        ):
            raise Unprintable("loops of different sizes in one kernel")
        variables = private.body_variables(node)
        sizes = dict(zip(variables, map(sympy.sympify, outer), strict=True))
        index = None
        for name, at in private.body_loads(node):
            name, at = self.place(name, at)
            index = at if name in made else index
        if index is None:
            raise Unprintable("a node that does not read the product")
        parts: dict[sympy.Symbol, sympy.Expr] = {v: v for v in variables}
        for variable in variables:
            inside = _inner_size(index, variable)
            if inside is not None:
                high, low = sympy.symbols(f"{variable}_high {variable}_low", integer=True)
                parts[variable] = high * inside + low
                digits = FloorDiv(variable, inside), ModularIndexing(variable, 1, inside)
                index = index.subs(dict(zip(digits, (high, low), strict=True)))
                sizes |= {high: FloorDiv(sizes.pop(variable), inside), low: inside}
        sizes = {v: private.simplify(size, {}) for v, size in sizes.items()}
        index = sympy.expand(private.simplify(index.subs(parts), sizes))
        order: list[sympy.Symbol] = []
        step = ONE
        left = {v for v, size in sizes.items() if size != 1}
        while left:
            found = [v for v in sorted(left, key=str) if equal(index.coeff(v), step)]
            if not found:
                raise Unprintable("what follows reads the product in another order")
            order.insert(0, found[0])
            step *= sizes[found[0]]
            left.remove(found[0])

        def from_places(places: list[sympy.Expr]) -> list[sympy.Expr]:
            known = dict(zip(order, places, strict=True))
            known |= {v: ZERO for v in sizes if v not in known}
            return [parts[v].subs(known) for v in variables]

        return [sizes[v] for v in order], from_places


def _inner_size(index: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr | None:
    """Return by what an index divides one of its variables."""
    found = {e.args[1] for e in index.atoms(FloorDiv) if e.args[0] == variable}
    found |= {e.args[2] for e in index.atoms(ModularIndexing) if e.args[:2] == (variable, 1)}
    return found.pop() if len(found) == 1 else None


def with_followers(
    program: Program, groups: list[Any], make: Callable[[Sequence[Any]], Product]
) -> Product:
    """Return a product with the groups that it can take in; these are taken from ``groups``.

    They may read only what is there before the product's kernel runs.
    """
    loops = make(())
    made = {program.real(loops.call.result.buffer)}
    later: set[str] = set()
    for group in list(groups):
        nodes = group.get_nodes()
        reads, writes = program.reads(nodes), program.writes(nodes).keys()
        fits = isinstance(group, private.LOOPS)
        if fits and reads & made and not (reads | writes) & later:
            try:
                loops = make([*loops.followers, group])
            except Unprintable:
                fits = False
            else:
                groups.remove(group)
                made |= writes
                continue
        later |= writes
    return loops


# --- products of matrices -------------------------------------------------------------------------


def factors(call: LibraryCall) -> list[Any]:
    """Return the factors of a product, or all operands of another call."""
    if call.operator not in KINDS:
        return call.args
    return call.args[:2] if call.operator == "_scaled_mm" else call.args[-2:]


BATCH = sympy.Symbol("batch_of_view", integer=True, nonnegative=True)
"""Which product of a batch, in the offset of a factor that is read in the order of a copy."""


class Matrices(Product):
    """A product of matrices: one of `KINDS`.

    Attributes:
        views: its factors where they are read; see `_view`.
    """

    views: Sequence[CallOperand] = ()

    def multiply(self) -> Value:
        self.views = [self._view(operand) for operand in self.factors]
        axes, dtype = frozenset(self.axes), torch.int32 if self.is_whole else torch.float32
        self.made_factors = [self._made(side) for side in (0, 1)]
        args = tuple(factor.value for factor in self.made_factors if factor)
        made = self.recorder.make("product", args, dtype)
        made.axes = axes
        return made

    def _made(self, side: int) -> quantised.Factor | None:
        """Return a factor that is made in the tile that reads it."""
        operand, batch = self.factors[side], self.places[: self.batched]
        if self.program.real(operand.buffer) not in self.makers:
            return None
        own = self.places[self.batched :][side]

        def at(outer: sympy.Expr | None, inner: sympy.Expr) -> sympy.Expr:
            place = [own if outer is None else outer, inner]
            return self.at(operand, [*batch, *(place if side == 0 else place[::-1])])

        found = quantised.factor(self, operand, at, side)
        self.of_dim |= {found.outer: f"{side} outer", found.inner: f"{side} inner"}
        return found

    def _view(self, operand: CallOperand) -> CallOperand:
        """Return a factor, and where it is made by a copy, what that copies, in its order."""
        if self.program.real(operand.buffer) not in self.makers:
            return operand
        row, col = sympy.symbols("row col", integer=True, nonnegative=True)
        places = [*[BATCH] * self.batched, row, col]
        before = self.axes, self.expressions
        self.axes, self.expressions = dict(zip(places, operand.sizes, strict=True)), []
        recorder = producers.InlineRecorder(self, self.makers)
        value = recorder.load(operand.buffer, Product.at(self, operand, places))
        self.axes, self.expressions = before
        if value.op != "load" or value.masks:
            return operand
        index = sympy.expand(value.index)
        steps = index.coeff(row), index.coeff(col)
        offset = sympy.expand(index - row * steps[0] - col * steps[1])
        if offset.free_symbols & {row, col} or any(e.free_symbols & {*places} for e in steps):
            return operand
        strides = [*[ZERO] * self.batched, *steps]
        return replace(operand, buffer=value.name, strides=strides, offset=offset)

    def at(self, operand: CallOperand, places: Sequence[sympy.Expr]) -> sympy.Expr:
        found = super().at(operand, places)
        return self.simplified(found.subs(BATCH, self.places[0])) if found.has(BATCH) else found

    def lanes(self, masks: tuple[str, str], inner: tuple[str, str]) -> list[Dim]:
        """Return the ways along the factors that are made in tiles, named by a schedule."""
        ways = zip(self.made_factors, OUTER, masks, inner, strict=True)
        return [dim for made, *names in ways if made for dim in made.dims(*names)]

    @property
    def tiles(self) -> str:
        """The tiles that a tuner chooses from."""
        return "BYTE_TILES" if self.has_bytes else "TILES"

    @property
    def has_bytes(self) -> bool:
        """Whether its factors are of 8 bits: GPUs then refuse to multiply few."""
        return bool(self.factors[0].dtype.itemsize == 1)

    @property
    def is_exact(self) -> bool:
        """Whether its factors are float32: of few rows, tensor cores multiply these no faster."""
        return bool(self.factors[0].dtype == torch.float32)

    @property
    def is_whole(self) -> bool:
        """Whether it multiplies whole numbers of 8 bits, and adds up in 32."""
        return bool(self.call.result.dtype == torch.int32)

    def whole(self) -> Value:
        value = self.product
        for scale in [scale for made in self.made_factors if made for scale in made.scales]:
            value = self.recorder.make("mul", (value, scale), torch.float32)
        given = [self.program.tensors.get(self.program.real(one.buffer)) for one in self.factors]
        if self.call.result.dtype in HALF and not any(given):
            # Factors that the reference has cast to 16 bits have a product of 16 bits.
            short = self.recorder.make("to_dtype", (value,), self.call.result.dtype)
            value = self.recorder.make("to_dtype", (short,), torch.float32)
        if self.call.operator in ("mm", "bmm", "_int_mm"):
            return value
        if self.call.operator == "_scaled_mm":
            return self._with_scales(self.call.args[2:])
        alpha, beta = (self.call.kwargs.get(name, 1) for name in ("alpha", "beta"))
        if not isinstance(beta, sympy.Expr) and beta == 0:
            return self.scaled(value, alpha)
        return self.with_bias(value, self.call.args[0], self.places, alpha, beta)

    def _with_scales(self, operands: list[CallOperand]) -> Value:
        """Return the product times a scale for each factor, and plus a bias if there is one."""
        value = self.product
        for scale in operands[:2]:
            pairs = zip(scale.sizes, self.call.result.sizes[-len(scale.sizes) :], strict=True)
            if scale.sizes and not all(own == 1 or equal(own, size) for own, size in pairs):
                raise Unprintable("scales of blocks")
            factor = self.spread(scale, self.places)
            value = self.recorder.make("mul", (value, factor), torch.float32)
        for bias in operands[2:]:
            value = self.with_bias(value, bias, self.places)
        return value

    @property
    def factors(self) -> list[CallOperand]:
        return list(self.views) or factors(self.call)

    @property
    def batched(self) -> int:
        """Return how many dimensions stand before rows and columns."""
        return len(self.factors[0].sizes) - 2

    @property
    def sizes(self) -> list[sympy.Expr]:
        """Return the numbers of rows, columns and products for each element."""
        a, b = self.factors
        return [a.sizes[-2], b.sizes[-1], a.sizes[-1]]

    def is_small(self, program: Program) -> bool:
        """Whether a tile would be nearly empty, as far as the module's own sizes say."""
        if self.has_bytes:
            return False
        own = []
        for factor in self.factors:
            given = program.tensors.get(program.real(factor.buffer))
            own += factor.sizes[-2:] if given and not given.is_input else []
        few = program.hint(product(self.sizes)) <= FEW_PRODUCTS
        short = few and any(program.hint(size) < SMALLEST for size in own)
        return short or 1 in [program.known(size) for size in self.sizes[:2]]


class Sums(Matrices):
    """A product of which each element is a sum of its own: an ordinary reduction."""

    def multiply(self) -> Value:
        self.made_factors = [None, None]
        axis = sympy.Symbol(f"a{len(self.axes)}", integer=True, nonnegative=True)
        a, b = self.factors
        batch = self.places[: self.batched]
        row, *cols = self.places[self.batched :]
        col = ZERO
        for place, size in zip(cols, self.call.result.sizes[self.batched + 1 :], strict=True):
            col = col * size + place
        self.axes[axis] = self.sizes[2]
        self.reduced = [axis]
        x = self.recorder.load(a.buffer, self.at(a, [*batch, row, axis]))
        y = self.recorder.load(b.buffer, self.at(b, [*batch, axis, col]))
        both = self.recorder.make("mul", (x, y), torch.float32)
        found: Value = self.recorder.reduction(torch.float32, torch.float32, "sum", both)
        return found

    def _fits(self, outer: sympy.Symbol, inner: sympy.Symbol) -> bool:
        return Loops._fits(self, outer, inner)


FEW_ROWS = 16
"""Rows up to which tensor cores would multiply mostly what is not there."""

LONG = 4096
"""Products for each element from which on programs may share them."""

ENOUGH_TILES, PROGRAMS = 64, 512
"""Tiles of 64 x 64 from which on a GPU is busy, since the tuner may take smaller ones; and programs
that keep it so."""


def matrices(loops: Matrices, program: Program) -> None:
    """Print a product of matrices: in tiles, and in other ways for sizes that ask for them.

    Of several products in a program each has its tiles alone, unless the file's own K is long.
    """
    m, n, k = map(program.known, loops.sizes)
    own = [program.tensors.get(program.real(factor.buffer)) for factor in loops.factors]
    given = all(tensor and tensor.is_input for tensor in own)
    may_be_long = not k.is_number and given and program.has_one_product
    may_be_long |= program.hint(loops.sizes[2]) >= LONG
    given_rows = m.is_Symbol and (own[0] is None or own[0].is_input)
    few = given_rows and program.has_one_product and loops.is_exact
    is_few = bool(m.is_number and m <= FEW_ROWS) and loops.is_exact
    if loops.batched or not (may_be_long or few or is_few):
        tiles(loops, program)
    elif is_few:
        few_rows(loops, program)
    else:
        program.touch(loops)
        rows, cols, length = (
            program.size(name, size) for name, size in zip("MNK", (m, n, k), strict=True)
        )
        word = "if"
        if may_be_long:
            count = f"triton.cdiv({rows}, 64) * triton.cdiv({cols}, 64)"
            n_tiles = program.let("n_tiles", count)
            with program.branch(f"if {length} >= {LONG} and {n_tiles} < {ENOUGH_TILES}:"):
                split(loops, program, f"min({length} // 1024, {PROGRAMS} // {n_tiles})")
            word = "elif"
        if few:
            with program.branch(f"{word} {rows} <= {FEW_ROWS}:"):
                few_rows(loops, program)
        with program.branch("else:"):
            tiles(loops, program)


def tiles(loops: Matrices, program: Program, tuned: bool = True) -> None:
    """Print a kernel whose programs each compute a tile, whose size is tuned or is `FIXED`."""
    body, _ = _summed(loops, program, "", tuned)
    body.store_all()
    batches = loops.call.result.sizes[0] if loops.batched else ONE
    doc = "Each program computes a tile of BLOCK_M x BLOCK_N"
    doc += "; GROUP_M rows of tiles share columns." if tuned else "."
    launch(program, body, doc, batches, loops.sizes, tuned=tuned, tiles=loops.tiles)


def split(loops: Matrices, program: Program, n_splits: str) -> None:
    """Print two kernels: programs share the products of each tile, then their sums are added."""
    program.say(repr("# Few tiles and a long K: programs share K, and a second kernel adds up."))
    word = program.let("n_splits", n_splits)
    m, n = (program.size(name, size) for name, size in zip("MN", loops.sizes, strict=False))
    partial = program.temporary("partial", [word, m, n], loops.product.dtype)
    body, (m, n) = _summed(loops, program, "split")
    body.pointers[partial] = body.fresh("partial_ptr")
    at = f"({body.pointers[partial]} + (split * {m} + rows) * {n} + cols)"
    body.say(f"tl.store({at}, {body.text(loops.product)}, mask=row_mask & col_mask)")
    doc = "Each program sums every n-th BLOCK_K of K for a tile of BLOCK_M x BLOCK_N."
    launch(program, body, doc, ONE, loops.sizes, (word,), "partial", tiles=loops.tiles)
    dim = Dim("offsets", loops.kept, "mask", 0)
    body = Body(loops, program, [dim], ("acc", "split", "n_splits"))
    body.arguments["n_splits"] = word
    body.pointers[partial] = body.fresh("partial_ptr")
    body.index(dim, "tl.program_id(0) * BLOCK_SIZE")
    body.say(f"acc = tl.zeros((BLOCK_SIZE,), {TYPES[loops.product.dtype]})")
    at = f"{body.pointers[partial]} + split * {dim.count(body, loops)} + {dim.name}"
    with body.block("for split in range(n_splits):"):
        body.say(f"acc += tl.load({at}, mask=mask)")
    body.leaf(loops.product, "acc")
    body.store_all()
    count = dim.count(program, loops)
    program.say_short(count)
    grid = (f"triton.cdiv({count}, 256)",)
    doc = "Each program adds the partial sums of BLOCK_SIZE elements."
    program.launch(Kernel(body, doc, grid, {"BLOCK_SIZE": "256"}, part="combine"))


def few_rows(loops: Matrices, program: Program) -> None:
    """Print a kernel for few rows: it multiplies and sums in float32, without tensor cores."""
    a, b = loops.factors
    dims = [loops.dim("rows", [0], 0), loops.dim("cols", range(1, len(loops.places)), 1)]
    masks = ("row_mask[:, :, None]", "col_mask[:, :, None]")
    lanes = loops.lanes(masks, ("inner", "inner"))
    body = Body(loops, program, [*dims, *lanes], ("inner", "start", "acc", "a", "b"))
    _, _, k = (body.named(name, size) for name, size in zip("MNK", loops.sizes, strict=True))
    body.index(dims[0], "")
    body.index(dims[1], "tl.program_id(0) * BLOCK_N")
    places = [f"{body.widened(dim, dim.name)}[:, :, None]" for dim in dims]
    row, col = map(body.variable, places)
    for name, outer, made in zip(OUTER, places, loops.made_factors, strict=True):
        if made:
            body.say(f"{name} = {outer}")
            made.begin(body)
    body.say("acc = tl.zeros((BLOCK_M, BLOCK_N, BLOCK_K), tl.float32)")
    with body.block(f"for start in range(0, {k}, BLOCK_K):"):
        body.say("inner = start + tl.arange(0, BLOCK_K)")
        inner = body.variable("inner")
        if lanes:
            body.say(f"inner_mask = inner < {k}")
        factors = (("a", a, (row, inner), "row_mask"), ("b", b, (inner, col), "col_mask"))
        for (word, operand, place, mask), made in zip(factors, loops.made_factors, strict=True):
            if made:
                body.say(f"{word} = {made.text(body, torch.float32)}")
                continue
            within = "inner_mask" if lanes else f"(inner < {k})"
            mask = f"{mask}[:, :, None] & {within}"
            body.say(f"{word} = {body.factor(operand, loops.at(operand, place), mask)}")
        body.say("acc += a * b")
    body.say("acc = tl.sum(acc, axis=2)")
    body.leaf(loops.product, "acc")
    body.store_all()
    m, n = (program.size(name, size) for name, size in zip("MN", loops.sizes, strict=False))
    wide, area = (8, 1024) if equal(b.strides[0], 1) else (32, 256)
    blocks = {"BLOCK_M": "BLOCK_M", "BLOCK_N": str(wide), "BLOCK_K": f"{area} // BLOCK_M"}
    grid, setup = (f"triton.cdiv({n}, {wide})",), (f"BLOCK_M = {power_of_2(m)}",)
    doc = "Each program computes BLOCK_N columns of all rows, which are few, without tensor cores."
    program.launch(Kernel(body, doc, grid, blocks, setup, part="few_rows"))


def _summed(
    loops: Matrices, program: Program, split: str, grouped: bool = True
) -> tuple[Body, tuple[str, str]]:
    """Return a kernel that has summed a tile's products, or every n-th ``split`` of them."""
    a, b = loops.factors
    batched = loops.batched
    dims = [
        loops.dim("rows", [batched], 0),
        loops.dim("cols", range(batched + 1, len(loops.places)), 1),
    ]
    if batched:
        dims.append(loops.dim("batch", [0]))
    reserved = ("pid", "tiles_m", "tiles_n", "tile_m", "tile_n", "start", "split", "step")
    lanes = loops.lanes(("", ""), ("a_k", "b_k"))
    body = Body(loops, program, [*dims, *lanes], reserved)
    m, n, k = (body.named(name, size) for name, size in zip("MNK", loops.sizes, strict=True))
    tile(body, m, n, grouped)
    late = body.postpone(dims[:2])
    for dim, start in zip(dims, (*STARTS, "tl.program_id(1)"), strict=False):
        body.index(dim, start)
    inner = body.fresh("inner")
    row, col = (
        name if made else body.fresh(name)
        for name, made in zip(OUTER, loops.made_factors, strict=True)
    )
    for name, dim, size in ((row, dims[0], m), (col, dims[1], n)):
        body.say(f"{name} = ({dim.name} % {size}).to(tl.int64)")
    step = "step" if split else "BLOCK_K"
    if split:
        body.say(f"{split} = tl.program_id(1)")
        body.say("step = tl.num_programs(1) * BLOCK_K")
    body.say(f"{inner} = {split and f'{split} * BLOCK_K + '}tl.arange(0, BLOCK_K)")
    batch = [body.variable("batch")] if batched else []
    a_place = [*batch, body.variable(row), body.variable(f"{inner}[None, :]")]
    b_place = [*batch, body.variable(f"{inner}[:, None]"), body.variable(col)]
    pointers, loads, steps = [], [], (a.strides[-1], b.strides[-2])
    for i, (word, operand, place) in enumerate((("a", a, a_place), ("b", b, b_place))):
        if made := loops.made_factors[i]:
            made.begin(body)
            loads.append("")
            continue
        buffer, at = loops.place(operand.buffer, loops.at(operand, place))
        pointer = body.let(f"{word}_ptrs", body.pointer(buffer, body.address(at)))
        mask = f"{inner}{LANES[i]} < {k} - start"
        zero = literal(0, operand.dtype)
        # Pointers that a loop leaves alone take a third fewer instructions.
        if steps[i] == 1:
            pointer += " + start"
        else:
            pointers.append((pointer, steps[i]))
        loads.append(f"tl.load({pointer}, mask={mask}, other={zero})")
    loads = same_types(program, loads, [a, b])
    kind, words = TYPES[loops.product.dtype], {"a": "a", "b": "b"}
    acc = body.let("acc", f"tl.zeros((BLOCK_M, BLOCK_N), {kind})")
    with body.block(f"for start in range(0, {k}, {step}):"):
        for word, load, made, lane in zip("ab", loads, loops.made_factors, LANES, strict=True):
            if made:
                body.say(f"{word}_k = start + {inner}{lane}")
                body.say(f"{word}_k_mask = {word}_k < {k}")
                load = made.text(body, made.operand.dtype)
            if load.isidentifier():
                words[word] = load
            else:
                body.say(f"{word} = {load}")
        left, right = words.values()
        if loops.is_whole:
            body.say(f"{acc} = tl.dot({left}, {right}, {acc}, out_dtype={kind})")
        elif loops.has_bytes:
            body.say(repr("# Tensor cores add up float8 in fewer bits than float32 has."))
            body.say(f"{acc} += tl.dot({left}, {right})")
        else:
            factors = zip(loops.made_factors, (a, b), strict=True)
            types = [f.operand.dtype if f else program.dtype(o.buffer) for f, o in factors]
            is_convolution = loops.call.operator == "convolution"
            body.say(f"{acc} = {dot(body, left, right, acc, types, is_convolution)}")
        for pointer, stride in pointers:
            body.say(f"{pointer} += {body.address(stride * body.variable(step))}")
    body.widen(late)
    body.leaf(loops.product, acc)
    return body, (m, n)


OUTER, LANES = ("a_rows", "b_cols"), ("[None, :]", "[:, None]")
"""Rows and columns of a result as its factors' tiles have them, and how what is summed lies."""


def tile(body: Body, m: str, n: str, grouped: bool) -> None:
    """Say which tile a program computes.

    Those that are ``grouped`` go down several tiles before they go on to the next columns.
    """
    if grouped:
        body.say(f"tiles_m = tl.cdiv({m}, BLOCK_M)")
    body.say(f"tiles_n = tl.cdiv({n}, BLOCK_N)")
    if grouped:
        tiles = "tiles_m, tiles_n, GROUP_M"
        body.say(f"tile_m, tile_n = tl.swizzle2d(0, tl.program_id(0), {tiles})")
    else:
        body.say("pid = tl.program_id(0)")
        body.say("tile_m = pid // tiles_n")
        body.say("tile_n = pid % tiles_n")


PRECISIONS = {"PRECISION", "TF32"}
"""Helpers that say how exact a product of float32 is."""

STARTS = ("tile_m * BLOCK_M", "tile_n * BLOCK_N")
"""The first row and column of a tile."""


def dot(
    body: Body,
    a: str,
    b: str,
    acc: str = "",
    types: Iterable[torch.dtype] = (torch.float32,),
    is_convolution: bool = False,
) -> str:
    """Return the product of two tiles, added to ``acc``, as exact as the reference's file asks.

    Where the ``types`` of both have 16 bits, tensor cores take them as they are.
    """
    if all(kind in HALF for kind in types):
        return f"tl.dot({a}, {b}{acc and f', {acc}'})"
    precision = "TF32" if private.allows_tf32(is_convolution) else "PRECISION"
    body.helpers.add(precision)
    return f"tl.dot({a}, {b}{acc and f', {acc}'}, input_precision={precision})"


def same_types(program: Program, loads: list[str], operands: list[CallOperand]) -> list[str]:
    """Return loads of factors that give one type: some buffers may be shorter than others."""
    short = [program.is_float_input(program.real(operand.buffer)) for operand in operands]
    if len(set(short)) == 1:
        return loads
    return [
        f"{load}.to(tl.float32)" if half else load for load, half in zip(loads, short, strict=True)
    ]


def launch(
    program: Program,
    body: Body,
    doc: str,
    batches: sympy.Expr,
    sizes: list[sympy.Expr],
    more: tuple[str, ...] = (),
    part: str = "",
    tuned: bool = True,
    tiles: str = "TILES",
) -> None:
    """Launch a kernel for sizes M, N and K, whose tile the tuner chooses by N and K.

    There are as many such products as ``batches``, and ``more`` dimensions of the grid. A tile that
    is not ``tuned`` is `FIXED`.
    """
    m, n = (program.size(name, size) for name, size in zip("MN", sizes, strict=False))
    blocks = dict.fromkeys(TILE, "") if tuned else FIXED
    rows, cols = (blocks[side] or f'meta["{side}"]' for side in TILE[:2])
    grid = [f"triton.cdiv({m}, {rows}) * triton.cdiv({n}, {cols})"]
    if batches != 1:
        grid.append(program.size("batches", batches))
    kernel = Kernel(body, doc, (*grid, *more), blocks, part=part)
    if tuned:
        key = tuple(name for name in "NK" if name in body.arguments)
        # Of 16 bits all are small enough.
        pruned = "fitting" if tiles == "TILES" and body.helpers & PRECISIONS else ""
        kernel = replace(kernel, tuned_by=key, tiles=tiles, pruned_by=pruned)
    program.launch(kernel)
