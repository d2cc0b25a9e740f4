"""Convolutions: tiles of output channels times pixels, with what follows element by element inside.

A convolution of one tap is a product of matrices. Where groups have few channels, every output is a
sum of its own.
"""

from __future__ import annotations

from typing import Any

import sympy

from curate.generator.body import Body, Dim
from curate.generator.kernel import Kernel
from curate.generator.loops import equal, product
from curate.generator.program import Program, is_contiguous
from curate.generator.schedules import products
from curate.generator.schedules.products import Matrices, Product, Sums
from curate.generator.torch_private import CallOperand, FloorDiv, LibraryCall
from curate.generator.unprintable import Unprintable
from curate.generator.values import Value

AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}

FEW_CHANNELS = 16
"""Channels of a group below which a tile of a product would be nearly empty."""


def _listed(given: Any, dims: int) -> list[sympy.Expr]:
    numbers = [sympy.sympify(n) for n in given]
    return numbers * dims if len(numbers) < dims else numbers


def is_pointwise(call: LibraryCall) -> bool:
    """Whether a convolution is a product of matrices: every pixel by itself."""
    x, weight, _, stride, padding, _, transposed, _, groups = call.args
    plain = not transposed and groups == 1
    numbers = [(weight.sizes[2:], 1), (stride, 1), (padding, 0)]
    rows = [product(x.sizes[dim + 1 :]) for dim in range(2, len(x.sizes))]
    dense = all(equal(a, b * x.strides[-1]) for a, b in zip(x.strides[2:], rows, strict=True))
    return plain and dense and all(n == wanted for given, wanted in numbers for n in given)


class Pointwise(Matrices):
    """A convolution of one tap: weight times pixels; or images of one pixel times weight."""

    def whole(self) -> Value:
        bias = self.call.args[2]
        return self.product if bias is None else self.with_bias(bias, [self.places[1]])

    @property
    def factors(self) -> list[CallOperand]:
        x, weight = self.call.args[:2]
        pixels = product(x.sizes[2:])
        if pixels == 1:
            turned = weight.sizes[1::-1], weight.strides[1::-1]
            return [_seen(x, x.sizes[:2], x.strides[:2]), _seen(weight, *turned)]
        same = [x.sizes[0], *weight.sizes[:2]], [sympy.S.Zero, *weight.strides[:2]]
        own = [*x.sizes[:2], pixels], [*x.strides[:2], x.strides[-1]]
        return [_seen(weight, *same), _seen(x, *own)]

    def role(self, dim: int) -> int:
        return min(dim, 2)


class PointwiseSums(Pointwise, Sums):
    """A convolution of one tap with few channels."""


def _seen(operand: CallOperand, sizes: list[sympy.Expr], strides: list[sympy.Expr]) -> CallOperand:
    return CallOperand(operand.buffer, sizes, strides, operand.offset, operand.dtype)


class Convolution(Product):
    """A convolution, and the element-wise loops that follow it.

    Attributes:
        names: of the image's axes.
        groups: into how many its channels are split.
        inputs, filters: how many channels each group takes and gives.
    """

    def whole(self) -> Value:
        _, weight, bias, *_, self.transposed, _, groups = self.call.args
        self.names = AXES[len(self.places) - 2]
        self.groups = sympy.sympify(groups)
        first, second = weight.sizes[:2]
        share = sympy.cancel(first / self.groups)
        share = share if sympy.fraction(share)[1] == 1 else FloorDiv(first, self.groups)
        self.inputs, self.filters = (share, second) if self.transposed else (second, share)
        self.taps = weight.sizes[2:]
        self.expressions += self.places
        self.expressions.append(self.places[0] * self.call.args[0].strides[0])
        return self.product if bias is None else self.with_bias(bias, [self.places[1]])

    def numbers(self, dim: int) -> list[sympy.Expr]:
        """Return an axis' stride, padding and dilation."""
        given = self.call.args[3:6]
        return [sympy.sympify(n[dim] if len(n) > dim else n[0]) for n in given]

    def is_few(self, program: Program) -> bool:
        """Whether a group gives few channels."""
        few = self.groups != 1 and program.hint(self.filters) < FEW_CHANNELS
        return few or bool(program.known(self.filters) == 1)


class _Window:
    """The text that finds what an output sees: in one kernel of a convolution."""

    def __init__(self, loops: Convolution, body: Body) -> None:
        self.loops = loops
        self.body = body
        x, weight = loops.call.args[:2]
        self.x, self.weight = x, weight
        named = zip(loops.names, x.sizes[2:], loops.call.result.sizes[2:], loops.taps, strict=True)
        self.ends: list[str] = []
        self.taps: list[str] = []
        for name, size, out, taps in named:
            self.ends.append(body.named(name, size))
            body.named(f"out_{name}", out)
            self.taps.append(body.named(f"kernel_{name}", taps))

    def name_axes(self) -> None:
        """Call the output's axes by their names."""
        names = ["image", "channel", *(f"out_{name[0]}" for name in self.loops.names)]
        for place, name in zip(self.loops.places, names, strict=True):
            if place.is_Symbol and len(self.body.dim_of[place].axes) > 1:
                self.body.call(place, name)

    def first(self, narrow: bool) -> None:
        """Say what an output sees first along each axis."""
        body, loops = self.body, self.loops
        for dim, name in enumerate(loops.names):
            stride, padding, _ = loops.numbers(dim)
            place = loops.places[2 + dim]
            at = place + padding if loops.transposed else place * stride - padding
            text = body.address(at)
            text = f"({text}).to(tl.int32)" if narrow else text
            body.say(f"first_{name[0]} = {text}")

    def see(self, tap: str, inside: list[str]) -> tuple[list[sympy.Expr], str]:
        """Say which pixel a tap is on; return its place and the condition that there is one.

        Args:
            tap: the text for a tap's index, with ``{}`` for the axis' letter.
            inside: further conditions.
        """
        body, loops = self.body, self.loops
        places = []
        for dim, name in enumerate(loops.names):
            letter = name[0]
            stride, padding, dilation = loops.numbers(dim)
            pixel: sympy.Expr = body.variable(f"first_{letter}")
            if loops.taps[dim] != 1:
                step = dilation * body.variable(tap.format(letter))
                text = body.address(pixel - step if loops.transposed else pixel + step)
                body.say(f"{letter} = {text}")
                pixel = body.variable(letter)
            text = body.address(pixel)
            if loops.transposed and stride != 1:
                by = body.address(stride)
                inside.append(f"({text} >= 0) & ({text} % {by} == 0)")
                inside.append(f"({text} // {by} < {self.ends[dim]})")
                pixel = FloorDiv(pixel, stride)
            elif padding != 0 or loops.transposed:
                inside.append(f"({text} >= 0) & ({text} < {self.ends[dim]})")
            places.append(pixel)
        return places, " & ".join(inside)


def tiled(loops: Convolution, program: Program) -> None:
    """Print a convolution in tiles: the products of a tap and a channel are summed by tl.dot."""
    result = loops.call.result
    grouped = loops.groups != 1
    rows = loops.dim("channels" if grouped else "rows", [1], 0)
    pixels = [0, *range(2, len(loops.places))]
    cols = loops.dim("cols", pixels, 1)
    words = [f"{of}{name[0]}" for of in ("", "first_", "tap_") for name in loops.names]
    reserved = ["pid", "tiles_m", "tiles_n", "tile_m", "tile_n", "start", "rows", "k"]
    reserved += ["channel", "group", "a", "b", "acc"]
    body = Body(loops, program, [rows, cols], [*reserved, *words])
    window = _Window(loops, body)
    sizes = [
        loops.filters,
        product(result.sizes[dim] for dim in pixels),
        loops.inputs * product(loops.taps),
    ]
    m, n, k = (body.named(name, size) for name, size in zip("MNK", sizes, strict=True))
    group = "group" if grouped else ""
    products.tile(body, m, n, group)
    window.name_axes()
    if grouped:
        body.say("rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
        body.say(f"row_mask = rows < {m}")
        body.say(f"channels = group * {m} + rows")
    else:
        body.index(rows, products.STARTS[0])
    body.index(cols, products.STARTS[1])
    window.first(narrow=True)
    x, weight = window.x, window.weight
    channel = body.variable("channel[:, None]")
    image = loops.places[0] * x.strides[0]
    if grouped:
        image += body.variable("group") * loops.inputs * x.strides[1]
    buffer, at = loops.place(x.buffer, image + x.offset)
    body.say(f"x_ptrs = {body.pointer(buffer, body.address(at))}")
    taps = [body.variable(f"tap_{name[0]}[None, :]") for name in loops.names]
    if loops.transposed:
        of_k = body.variable("channel[None, :]") * weight.strides[0] + sum(
            (t * s for t, s, n in zip(taps, weight.strides[2:], loops.taps, strict=True) if n != 1),
            sympy.S.Zero,
        )
        first = body.variable(body.widened(rows, "rows")) * weight.strides[1]
        if grouped:
            first += body.variable("group") * loops.inputs * weight.strides[0]
    else:
        of_k = body.variable("k[None, :]")
        first = body.variable(body.widened(rows, rows.name)) * weight.strides[0]
        if not is_contiguous(weight.sizes, weight.strides):
            raise Unprintable("a weight that is not contiguous")
    buffer, at = loops.place(weight.buffer, first + weight.offset)
    body.say(f"weight_ptrs = {body.pointer(buffer, body.address(at))}")
    acc = "acc"
    body.say(f"{acc} = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
    with body.block(f"for start in range(0, {k}, BLOCK_K):"):
        body.say("k = start + tl.arange(0, BLOCK_K)")
        left = "k"
        for name, size in reversed(list(zip(loops.names, window.taps, strict=True))):
            if size != "1":
                body.say(f"tap_{name[0]} = {left} % {size}")
                left = f"{left} // {size}"
        body.say(f"channel = {left}")
        places, inside = window.see("tap_{}[:, None]", ["col_mask", f"(k < {k})[:, None]"])
        pixel = channel * x.strides[1] + sum(
            (p * s for p, s in zip(places, x.strides[2:], strict=True)), sympy.S.Zero
        )
        loads = [
            f"tl.load(weight_ptrs + {body.address(of_k)}, mask=row_mask & (k < {k})[None, :], "
            "other=0.0)",
            f"tl.load(x_ptrs + {body.address(pixel)}, mask={inside}, other=0.0)",
        ]
        loads = products.same_types(program, loads, [weight, x])
        body.say(f"a = {loads[0]}")
        body.say(f"b = {loads[1]}")
        products.dot(body, acc, "a", "b")
    body.leaf(loops.product, acc)
    for store in body.stores():
        body.store(store)
    doc = "Each program computes BLOCK_M channels of BLOCK_N pixels."
    products.launch(program, body, doc, loops.groups, sizes, "MK")


def summed(loops: Convolution, program: Program) -> None:
    """Print a convolution whose groups have few channels: each output is a sum of its own."""
    dim = Dim("offsets", list(loops.axes), "mask", 0)
    words = [f"{of}{name[0]}" for of in ("", "first_", "tap_") for name in loops.names]
    body = Body(loops, program, [dim], ["acc", "i", "pixel", *words])
    window = _Window(loops, body)
    program.touch(loops)
    window.name_axes()
    body.index(dim, "tl.program_id(0) * BLOCK_SIZE")
    window.first(narrow=False)
    x, weight = window.x, window.weight
    channel = loops.places[1]
    one = body.variable("i") if loops.inputs != 1 else sympy.S.Zero
    group = FloorDiv(channel, loops.filters) if loops.filters != 1 else channel
    taps = [body.variable(f"tap_{name[0]}") for name in loops.names]
    taps = [t if n != 1 else sympy.S.Zero for t, n in zip(taps, loops.taps, strict=True)]
    if loops.transposed:
        own = channel - group * loops.filters if loops.filters != 1 else sympy.S.Zero
        filters = [group * loops.inputs + one, own, *taps]
    else:
        filters = [channel, one, *taps]
    body.say("acc = tl.zeros([BLOCK_SIZE], tl.float32)")
    depth = body.depth
    loops_of = [("i", body.named("group_channels", loops.inputs))]
    loops_of += [(f"tap_{n[0]}", size) for n, size in zip(loops.names, window.taps, strict=True)]
    for name, size in loops_of:
        if size != "1":
            body.say(f"for {name} in range({size}):")
            body.depth += 1
    places, inside = window.see("tap_{}", ["mask"])
    at = loops.at(x, [loops.places[0], group * loops.inputs + one, *places])
    for word, operand, index, mask in (
        ("pixel", x, at, inside),
        ("weight", weight, loops.at(weight, filters), "mask"),
    ):
        buffer, index = loops.place(operand.buffer, index)
        short = ".to(tl.float32)" if program.is_float_input(buffer) else ""
        pointer = body.pointer(buffer, body.address(index))
        body.say(f"{word} = tl.load({pointer}, mask={mask}, other=0.0){short}")
    body.say("acc += pixel * weight")
    body.depth = depth
    body.leaf(loops.product, "acc")
    for store in body.stores():
        body.store(store)
    doc = "Each program takes BLOCK_SIZE outputs; each sums what lies under its window."
    grid = (f"triton.cdiv({dim.count(program, loops)}, BLOCK_SIZE)",)
    program.launch(Kernel(body, doc, grid, {"BLOCK_SIZE": "BLOCK_SIZE"}, ("BLOCK_SIZE = 256",)))
