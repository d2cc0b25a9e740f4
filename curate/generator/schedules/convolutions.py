"""Convolutions: tiles of output channels times pixels, with what follows element by element inside.

A convolution of one tap is a product of matrices. Where groups have few channels, every output is a
sum of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from curate.generator import torch_private as private
from curate.generator.body import Body, Dim, Kernel
from curate.generator.loops import equal, product
from curate.generator.program import Program
from curate.generator.schedules import products
from curate.generator.schedules.products import Matrices, Product, Sums
from curate.generator.torch_private import CallOperand, FloorDiv, LibraryCall
from curate.generator.values import Value

FEW_CHANNELS, FEW_INPUTS = 16, 4
"""Channels that a group gives, and takes, below which a tile of a product would be nearly empty."""


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
        return self.with_bias(self.product, self.call.args[2], [self.places[1]])

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
        words: what an index along each of the result's dimensions is called.
        groups: into how many its channels are split.
        inputs, filters: how many channels each group takes and gives.
    """

    def whole(self) -> Value:
        _, weight, bias, *_, self.transposed, _, groups = self.call.args
        self.names = private.AXES[len(self.places) - 2]
        self.words = ["image", "channel", *(f"out_{name[0]}" for name in self.names)]
        self.groups = sympy.sympify(groups)
        first, second = weight.sizes[:2]
        share = sympy.cancel(first / self.groups)
        share = share if sympy.fraction(share)[1] == 1 else FloorDiv(first, self.groups)
        self.inputs, self.filters = (share, second) if self.transposed else (second, share)
        self.taps = weight.sizes[2:]
        self.expressions += self.places
        self.expressions.append(self.places[0] * self.call.args[0].strides[0])
        return self.with_bias(self.product, bias, [self.places[1]])

    def numbers(self, dim: int) -> list[sympy.Expr]:
        """Return an axis' stride, padding and dilation."""
        given = self.call.args[3:6]
        return [sympy.sympify(n[dim] if len(n) > dim else n[0]) for n in given]

    def is_few(self, program: Program) -> bool:
        """Whether a group gives or takes few channels."""
        gives, takes = program.hint(self.filters), program.hint(self.inputs)
        few = self.groups != 1 and (gives < FEW_CHANNELS or takes < FEW_INPUTS)
        return few or bool(program.known(self.filters) == 1)


class _Window:
    """The text that finds what an output sees: in one kernel of a convolution.

    Attributes:
        ends, taps: for each axis of the image, the text for its size and for the kernel's.
        margins: what the host pads each axis with at both ends.
        firsts: what an output sees first along each axis.
    """

    def __init__(self, loops: Convolution, body: Body, padded: bool = False) -> None:
        self.loops = loops
        self.body = body
        x, weight = loops.call.args[:2]
        self.x, self.weight = x, weight
        self.margins = [
            loops.numbers(dim)[1] if padded else sympy.S.Zero for dim in range(len(loops.names))
        ]
        named = zip(loops.names, x.sizes[2:], loops.call.result.sizes[2:], loops.taps, strict=True)
        self.ends: list[str] = []
        self.taps: list[str] = []
        for (name, size, out, taps), margin in zip(named, self.margins, strict=True):
            word = name if margin == 0 else f"padded_{name}"
            self.ends.append(body.named(word, size + 2 * margin))
            body.named(f"out_{name}", out)
            self.taps.append(body.named(f"kernel_{name}", taps))

    def name_axes(self) -> None:
        """Call the output's axes by their names."""
        for place, name in zip(self.loops.places, self.loops.words, strict=True):
            if place.is_Symbol and len(self.body.dim_of[place].axes) > 1:
                self.body.call(place, name)

    def first(self) -> None:
        """Say what an output sees first along each axis."""
        body, loops = self.body, self.loops
        self.firsts = []
        for dim, name in enumerate(loops.names):
            stride, padding, _ = loops.numbers(dim)
            place, padding = loops.places[2 + dim], padding - self.margins[dim]
            at = place + padding if loops.transposed else place * stride - padding
            self.firsts.append(body.address(at))
            if not self.firsts[-1].isidentifier():
                body.say(f"first_{name[0]} = {self.firsts[-1]}")
                self.firsts[-1] = f"first_{name[0]}"

    def see(self, dim: int, exact: bool = False) -> tuple[sympy.Expr, list[str]]:
        """Say on which place along an axis a tap is; return it, and when there is one.

        Args:
            dim: the axis.
            exact: whether only such taps of a transposed convolution are tried that are on one.
        """
        body, loops = self.body, self.loops
        stride, padding, dilation = loops.numbers(dim)
        letter, end = loops.names[dim][0], self.ends[dim]
        pixel: sympy.Expr = body.variable(self.firsts[dim])
        if loops.taps[dim] != 1 or exact:
            step = dilation * body.variable(f"tap_{letter}")
            text = body.address(pixel - step if loops.transposed else pixel + step)
            at = "at" if letter == "l" else letter
            body.say(f"{at} = {f'({text}) // {body.address(stride)}' if exact else text}")
            pixel = body.variable(at)
        text = body.address(pixel)
        if loops.transposed and stride != 1 and not exact:
            by = body.address(stride)
            hits = [f"({text} >= 0)", f"({text} % {by} == 0)", f"({text} // {by} < {end})"]
            return FloorDiv(pixel, stride), hits
        if padding != 0 or loops.transposed:
            return pixel, [f"({text} >= 0)", f"({text} < {end})"]
        return pixel, []


def tiled(loops: Convolution, program: Program, tuned: bool = True) -> None:
    """Print a convolution in tiles: pixels times channels, summed tap by tap with tl.dot."""
    _Tiled(loops, program).write(tuned)


class _Tiled:
    """One kernel of a convolution whose rows are pixels and whose columns are channels.

    Image and weight are copied so that channels lie together: what a tap adds is a product of
    matrices. Taps that lie together along the last axis are summed as one. The copy of the image is
    padded: every tap is inside, and all that a thread keeps of a pixel is its first address.

    Attributes:
        apart: for each axis, whether a program takes only pixels that the same taps reach: every
            n-th, if the convolution is transposed and has a stride of n.
        joins: whether the taps along the last axis lie together.
    """

    def __init__(self, loops: Convolution, program: Program) -> None:
        self.loops, self.program = loops, program
        self.grouped = loops.groups != 1
        numbers = [loops.numbers(dim) for dim in range(len(loops.names))]
        strides = [stride for stride, _, _ in numbers]
        pixels = [0, *range(2, len(loops.places))]
        plain = all(dilation == 1 for _, _, dilation in numbers)
        own_axes = [[a for a in loops.axes if loops.of_dim.get(a) == dim] for dim in pixels]
        single = sum(map(len, own_axes)) > 1 and all(len(axes) < 2 for axes in own_axes)
        apart = bool(loops.transposed and plain and single)
        self.strides = strides
        self.apart = [apart and bool(stride != 1) for stride in strides]
        self.joins = not (self.grouped or loops.transposed or loops.taps[-1] == 1)
        self.joins &= bool(numbers[-1][2] == 1)
        words = [loops.words[dim] for dim in pixels]
        if not any(self.apart):
            own_axes = [own_axes[0], [axis for axes in own_axes[1:] for axis in axes]]
            words = ["image", "pixel"]
        rows = [Dim(w, a, "row_mask", 0) for w, a in zip(words, own_axes, strict=True) if a]
        self.cols = loops.dim("filters" if self.grouped else "cols", [1], 1)
        letters = [f"{of}{n[0]}" for of in ("", "first_", "tap_", "phase_") for n in loops.names]
        reserved = ["pid", "tiles_m", "tiles_n", "tile_m", "tile_n", "start", "rows", "cols", "k"]
        reserved += ["group", "a", "b", "at", "acc", "inner", "inside", "x_first", "phase"]
        self.body = Body(loops, program, [*rows, self.cols], [*reserved, *letters])
        self.body.rank = 2
        self.window = _Window(loops, self.body, padded=not loops.transposed)

    def write(self, tuned: bool) -> None:
        """Print the kernel and launch it."""
        loops, body, program = self.loops, self.body, self.program
        order = [0, *range(2, len(loops.places)), 1]
        x = self._channels_last(self.window.x, order, "n{}c", self.window.margins)
        outer, channel = (1, 0) if loops.transposed else (0, 1)
        order = [outer, *range(2, len(loops.places)), channel]
        weight = self._channels_last(self.window.weight, order, "o{}i")
        results = loops.call.result.sizes
        outs = [
            FloorDiv(out + stride - 1, stride) if apart else out
            for out, stride, apart in zip(results[2:], self.strides, self.apart, strict=True)
        ]
        for name, out, apart in zip(loops.names, outs, self.apart, strict=True):
            body.named(f"phase_{name}", out) if apart else None
        self.sizes = [
            product([results[0], *outs]),
            loops.filters,
            loops.inputs * product(loops.taps),
        ]
        m, n, _ = (body.named(name, size) for name, size in zip("MNK", self.sizes, strict=True))
        products.tile(body, m, n, tuned)
        if self.grouped:
            body.say("group = tl.program_id(1).to(tl.int64)")
        self._rows(m, outs)
        if self.grouped:
            body.say("cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
            body.say(f"col_mask = cols < {n}")
            body.say(f"filters = group * {n} + cols")
        else:
            body.index(self.cols, products.STARTS[1])
        self.window.first()
        self._sum(x, weight)
        body.leaf(loops.product, "acc")
        body.store_all()
        doc = "Each program computes BLOCK_N channels of BLOCK_M pixels"
        doc += " that the same taps reach." if any(self.apart) else "."
        strides = [stride for stride, apart in zip(self.strides, self.apart, strict=True) if apart]
        more = (program.size("n_phases", product(strides)),) if strides else ()
        products.launch(program, body, doc, loops.groups, self.sizes, more, tuned=tuned)

    def _channels_last(
        self, operand: CallOperand, order: list[int], letters: str, margins: Sequence[Any] = ()
    ) -> str:
        """Copy a factor so that channels are its last dimension; return the kernel's pointer.

        Args:
            margins: what each axis of an image is padded with.
        """
        program, axes = self.program, "".join(name[0] for name in self.loops.names)
        name, offset = program.place(operand.buffer, operand.offset)
        source = program.view(name, operand.sizes, operand.strides, offset)
        if source != program.word(name):  # a view takes its base to be dense
            program.pointed.add(name)
        text = f"{source}.permute({', '.join(map(str, order))})"
        if any(margins):
            ends = [program.size("padding", margin) for margin in reversed(margins)]
            pads = ", ".join(f"{end}, {end}" for end in ["0", *ends])
            text = f"torch.nn.functional.pad({text}, ({pads}))"
        text += ".contiguous()"
        copy = program.copied(f"{program.word(name)}_{letters.format(axes)}", text)
        self.body.pointers[copy] = self.body.fresh(f"{copy}_ptr")
        return self.body.pointers[copy]

    def _rows(self, m: str, outs: list[sympy.Expr]) -> None:
        """Say which pixels a program computes."""
        body = self.body
        body.say("rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
        if any(self.apart):
            self._rows_apart(m, outs)
            return
        body.say(f"row_mask = rows < {m}")
        self.window.name_axes()
        count = body.named("n_pixels", product(outs))
        *rows, _ = body.dims
        for row, sign in zip(rows, ("//", "%"), strict=False):
            body.spread(row, "rows" if len(rows) == 1 else f"rows {sign} {count}")

    def _rows_apart(self, m: str, outs: list[sympy.Expr]) -> None:
        """Say which pixels a program computes, if they are every n-th along some axes."""
        loops, body = self.loops, self.body
        masks = [f"(rows < {m})"]
        left, phase = "rows", f"tl.program_id({1 + self.grouped})"
        for dim in reversed(range(len(outs))):
            name, place = loops.names[dim], loops.places[2 + dim]
            size, count = loops.call.result.sizes[2 + dim], body.named(f"out_{name}", outs[dim])
            at = f"{left} % {count}"
            if self.apart[dim]:
                stride, own = body.address(self.strides[dim]), f"phase_{name[0]}"
                rest = f" % {stride}" if any(self.apart[:dim]) else ""
                body.say(f"{own} = {phase}{rest}")
                phase, at = f"{phase} // {stride}", f"{at} * {stride} + {own}"
                if not equal(outs[dim] * self.strides[dim], size):
                    masks.append(f"({loops.words[2 + dim]} < {body.named(f'out_{name}', size)})")
            body.define(place, at) if place != 0 else None
            left = f"{left} // {count}"
        body.define(loops.places[0], left) if loops.places[0] != 0 else None
        body.say(f"row_mask = {' & '.join(masks)}")

    def _sum(self, x: str, weight: str) -> None:
        """Print the loops over taps and channels."""
        loops, body, window = self.loops, self.body, self.window
        channels = body.named("channels", loops.inputs)
        every = body.named("in_channels", window.x.sizes[1]) if self.grouped else channels
        group = f"group * {channels} + " if self.grouped else ""
        row, length, at = self.cols.name, body.named("K", self.sizes[2]), ""
        if loops.transposed and self.grouped:  # a row of the weight has the channels of all groups
            row, at = "cols", group
            length = body.named("row", product([window.weight.sizes[0], *loops.taps]))
        row = body.widened(self.cols, row)
        body.say("inner = tl.arange(0, BLOCK_K)")
        single = all(taps == 1 for taps in loops.taps[: -1 if self.joins else None])
        weights = "weight_ptrs" if single and not any(self.apart) else "weights"
        body.say(f"{weights} = {weight} + {row} * {length} + {at}inner[:, None]")
        run = f"{window.taps[-1]} * {channels}" if self.joins else channels
        if not loops.transposed:
            first = self._place(window.firsts)
            body.say(f"x_first = {x} + {first} * {every} + {group}inner[None, :]")
        body.say("acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
        depth = body.depth
        if loops.transposed:
            pixel, tap, inside = self._taps_inside()
            body.say(f"x_ptrs = {x} + {pixel} * {every} + {group}inner[None, :]")
        else:
            pixel, tap, inside = *self._taps(), "row_mask"
            body.say(f"x_ptrs = x_first + {pixel} * {every}") if pixel else None
        image = "x_ptrs" if pixel else "x_first"
        own = every if loops.transposed else channels
        if tap:
            body.say(f"weight_ptrs = weights + {tap} * {own}")
        with body.block(f"for start in range(0, {run}, BLOCK_K):"):
            body.say("k = start + inner")
            loads = [
                f"tl.load({image} + start, mask={inside} & (k < {run})[None, :], other=0.0)",
                f"tl.load(weight_ptrs + start, mask=col_mask & (k < {run})[:, None], other=0.0)",
            ]
            loads = products.same_types(self.program, loads, [window.x, window.weight])
            body.say(f"a = {loads[0]}")
            body.say(f"b = {loads[1]}")
            types = [self.program.dtype(one.buffer) for one in (window.x, window.weight)]
            body.say(f"acc = {products.dot(body, 'a', 'b', 'acc', types, True)}")
        body.depth = depth

    def _place(self, places: list[str]) -> str:
        """Return the text for a pixel's place among all pixels."""
        image = self.body.address(self.loops.places[0])
        pixel = "" if image == "0" else image
        for place, end in zip(places, self.window.ends, strict=True):
            pixel = f"({pixel} * {end} + {place})" if pixel else place
        return pixel if image != "0" else f"({pixel}).to(tl.int64)"

    def _loop(self, dim: int, tap: str) -> str:
        """Begin a loop over an axis' taps, if it has several; return the text for a tap of all."""
        body, taps, letter = self.body, self.window.taps[dim], self.loops.names[dim][0]
        if taps != "1" or self.apart[dim]:
            body.say(f"for tap_{letter} in range({self._steps(dim)}):")
            body.depth += 1
            tap = f"({tap} * {taps} + tap_{letter})" if tap else f"tap_{letter}"
        return tap

    def _taps(self) -> tuple[str, str]:
        """Print the loops over taps; return the texts for a tap's distance from the first pixel, in
        pixels, and for a tap; nothing if there is one."""
        loops, window, pixel, tap = self.loops, self.window, "", ""
        for dim, name in enumerate(loops.names):
            one = ""
            if self.joins and dim == len(loops.names) - 1:
                tap = tap and f"{tap} * {window.taps[dim]}"
            elif window.taps[dim] != "1":
                tap, dilation = self._loop(dim, tap), loops.numbers(dim)[2]
                one = f"tap_{name[0]}" + (".to(tl.int64)" if dim < len(loops.names) - 2 else "")
                one += "" if dilation == 1 else f" * {self.body.address(dilation)}"
            if pixel:
                one = f"({pixel} * {window.ends[dim]}{one and f' + {one}'})"
            pixel = one
        return pixel, tap

    def _taps_inside(self) -> tuple[str, str, str]:
        """Print the loops over a transposed convolution's taps; return the texts for a pixel, a tap
        and whether it is seen."""
        loops, body, window = self.loops, self.body, self.window
        places, tap, inside = [], "", ["row_mask"]
        for dim in range(len(loops.names)):
            tap = self._loop(dim, tap)
            found, conditions = window.see(dim, self.apart[dim])
            places.append(body.address(found))
            inside += conditions
        text = " & ".join(inside)
        if body.depth > 1 and len(inside) > 1:
            body.say(f"inside = {text}")
            text = "inside"
        return self._place(places), tap, text

    def _steps(self, dim: int) -> str:
        """Return which taps are tried along an axis, as arguments of ``range``."""
        taps, (stride, padding, _) = self.window.taps[dim], self.loops.numbers(dim)
        if not self.apart[dim]:
            return taps
        by = self.body.address(stride)
        first = f"phase_{self.loops.names[dim][0]}"
        if padding != 0:
            first = f"({first} + {self.body.address(padding)}) % {by}"
        return f"{first}, {taps}, {by}"


def summed(loops: Convolution, program: Program) -> None:
    """Print a convolution whose groups have few channels: each output is a sum of its own."""
    dim = Dim("offsets", list(loops.axes), "mask", 0)
    words = [f"{of}{name[0]}" for of in ("", "first_", "tap_") for name in loops.names]
    body = Body(loops, program, [dim], ["acc", "i", "at", "pixel", *words])
    window = _Window(loops, body)
    program.touch(loops)
    window.name_axes()
    body.index(dim, "tl.program_id(0) * BLOCK_SIZE")
    window.first()
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
    seen = [window.see(dim) for dim in range(len(loops.names))]
    places = [place for place, _ in seen]
    inside = " & ".join(["mask", *(one for _, conditions in seen for one in conditions)])
    at = loops.at(x, [loops.places[0], group * loops.inputs + one, *places])
    tap = loops.at(weight, filters)
    for word, operand, index, mask in (
        ("pixel", x, at, inside),
        ("weight", weight, tap, "mask" if body.is_spread(tap) else ""),
    ):
        body.say(f"{word} = {body.factor(operand, index, mask)}")
    body.say("acc += pixel * weight")
    body.depth = depth
    body.leaf(loops.product, "acc")
    body.store_all()
    doc = "Each program takes BLOCK_SIZE outputs; each sums what lies under its window."
    count = dim.count(program, loops)
    program.say_short(count)
    grid = (f"triton.cdiv({count}, BLOCK_SIZE)",)
    program.launch(Kernel(body, doc, grid, {"BLOCK_SIZE": "BLOCK_SIZE"}, ("BLOCK_SIZE = 256",)))
