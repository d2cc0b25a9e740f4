"""Convolutions: tiles of output channels times pixels, with what follows element by element inside.

A convolution of one tap is a product of matrices. Where groups have few channels, every output is a
sum of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from curate.generator import torch_private as private
from curate.generator.body import Body, Dim, Kernel
from curate.generator.loops import equal, product
from curate.generator.program import Program
from curate.generator.schedules import products
from curate.generator.schedules.products import Matrices, Product, Sums
from curate.generator.torch_private import CallOperand, FloorDiv, LibraryCall
from curate.generator.values import Value

FEW_CHANNELS, FEW_INPUTS = 8, 4
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

    def margins(self, dim: int) -> tuple[sympy.Expr, sympy.Expr]:
        """Return by how much an axis of the image is padded, so that every tap is inside."""
        stride, padding, dilation = self.numbers(dim)
        if not self.transposed:
            return padding, padding
        more = self.call.args[7]
        beyond = dilation * (self.taps[dim] - 1) - padding
        last = beyond + sympy.sympify(more[dim] if len(more) > dim else more[0])
        return FloorDiv(beyond + stride - 1, stride), FloorDiv(last, stride)

    def is_few(self, program: Program) -> bool:
        """Whether a group gives or takes few channels."""
        gives, takes = program.hint(self.filters), program.hint(self.inputs)
        few = self.groups != 1 and (gives < FEW_CHANNELS or takes < FEW_INPUTS)
        return few or bool(program.known(self.filters) == 1)


class _Window:
    """The text that finds what an output sees: in one kernel of a convolution.

    Attributes:
        ends, taps: for each axis of the image, the text for its size and for the kernel's.
        margins: what the host pads each axis with, before and after.
        firsts: what an output sees first along each axis.
    """

    def __init__(self, loops: Convolution, body: Body, padded: bool = False) -> None:
        self.loops = loops
        self.body = body
        x, weight = loops.call.args[:2]
        self.x, self.weight = x, weight
        none = (sympy.S.Zero, sympy.S.Zero)
        dims = range(len(loops.names))
        self.margins = [loops.margins(dim) if padded else none for dim in dims]
        named = zip(loops.names, x.sizes[2:], loops.call.result.sizes[2:], loops.taps, strict=True)
        self.ends: list[str] = []
        self.taps: list[str] = []
        for (name, size, out, taps), margins in zip(named, self.margins, strict=True):
            word = f"padded_{name}" if any(margins) else name
            self.ends.append(body.named(word, size + sum(margins)))
            body.named(f"out_{name}", out)
            self.taps.append(body.named(f"kernel_{name}", taps))

    def name_axes(self) -> None:
        """Call the output's axes by their names."""
        for place, name in zip(self.loops.places, self.loops.words, strict=True):
            if place.is_Symbol and len(self.body.dim_of[place].axes) > 1:
                self.body.call(place, name)

    def first(self, apart: Sequence[bool] = ()) -> None:
        """Say what an output sees first along each axis.

        Args:
            apart: for each axis, whether a program takes only every n-th output of a transposed
                convolution whose stride is n.
        """
        body, loops = self.body, self.loops
        self.firsts = []
        for dim, name in enumerate(loops.names):
            stride, padding, _ = loops.numbers(dim)
            place, before = loops.places[2 + dim], self.margins[dim][0]
            if place.free_symbols:  # 32 bits hold a place along an axis, times a stride
                place = body.variable(body.address(place))
            if not loops.transposed:
                at = place * stride - padding + before
            elif apart and apart[dim]:
                phase, step = (body.variable(f"{of}_{name[0]}") for of in ("phase", "step"))
                at = step + FloorDiv(phase + padding, stride) + before
            else:
                at = place + padding + before * stride
            self.firsts.append(body.address(at))
            if not self.firsts[-1].isidentifier():
                body.say(f"first_{name[0]} = {self.firsts[-1]}")
                self.firsts[-1] = f"first_{name[0]}"

    def see(self, dim: int) -> tuple[sympy.Expr, list[str]]:
        """Say on which place along an axis a tap is; return it, and when there is one."""
        body, loops = self.body, self.loops
        stride, padding, dilation = loops.numbers(dim)
        letter, end = loops.names[dim][0], self.ends[dim]
        pixel: sympy.Expr = body.variable(self.firsts[dim])
        if loops.taps[dim] != 1:
            step = dilation * body.variable(f"tap_{letter}")
            at = "at" if letter == "l" else letter
            body.say(f"{at} = {body.address(pixel - step if loops.transposed else pixel + step)}")
            pixel = body.variable(at)
        text = body.address(pixel)
        within = [] if any(self.margins[dim]) else [f"({text} >= 0)", f"({text} < {end})"]
        if loops.transposed and stride != 1:
            by = body.address(stride)
            hits = [f"({text} % {by} == 0)"]
            if within:
                hits = [f"({text} >= 0)", *hits, f"({text} // {by} < {end})"]
            return FloorDiv(pixel, stride), hits
        return pixel, within if padding != 0 or loops.transposed else []


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
        strided: whether a tap of a transposed convolution is on some pixels only.
        joins: whether the taps along the last axis lie together.
        flat: whether all taps are summed as one: of few channels, those of a line fill no tile.
        counts: the texts for how many taps of each axis the loop goes over, if it does.
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
        self.strided = bool(loops.transposed) and not apart and any(bool(s != 1) for s in strides)
        self.counts: list[str] = []
        self.joins = not (self.grouped or loops.transposed or loops.taps[-1] == 1)
        self.joins &= bool(numbers[-1][2] == 1)
        is_few = program.hint(loops.inputs) < FEW_CHANNELS
        self.flat = self.joins and is_few and any(taps != 1 for taps in loops.taps[:-1])
        words = [loops.words[dim] for dim in pixels]
        if not any(self.apart):
            own_axes = [own_axes[0], [axis for axes in own_axes[1:] for axis in axes]]
            words = ["image", "pixel"]
        rows = [Dim(w, a, "row_mask", 0) for w, a in zip(words, own_axes, strict=True) if a]
        self.cols = loops.dim("filters" if self.grouped else "cols", [1], 1)
        prefixes = ("", "first_", "tap_", "phase_", "step_")
        letters = [f"{of}{n[0]}" for of in prefixes for n in loops.names]
        reserved = ["pid", "tiles_m", "tiles_n", "tile_m", "tile_n", "start", "rows", "cols", "k"]
        reserved += ["group", "a", "b", "at", "tap", "acc", "inner", "inside", "x_first", "phase"]
        self.body = Body(loops, program, [*rows, self.cols], [*reserved, *letters, "done"])
        self.body.rank = 2
        self.window = _Window(loops, self.body, padded=True)

    def write(self, tuned: bool) -> None:
        """Print the kernel and launch it."""
        loops, body, program = self.loops, self.body, self.program
        order = [0, *range(2, len(loops.places)), 1]
        x = self._image(order)
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
        self.window.first(self.apart)
        self._sum(x, weight)
        body.leaf(loops.product, "acc")
        body.store_all()
        doc = "Each program computes BLOCK_N channels of BLOCK_M pixels"
        doc += " that the same taps reach." if any(self.apart) else "."
        strides = [stride for stride, apart in zip(self.strides, self.apart, strict=True) if apart]
        more = (program.size("n_phases", product(strides)),) if strides else ()
        products.launch(program, body, doc, loops.groups, self.sizes, more, tuned=tuned)

    def _channels_last(self, operand: CallOperand, order: list[int], letters: str) -> str:
        """Copy a factor so that channels are its last dimension; return the kernel's pointer."""
        program, axes = self.program, "".join(name[0] for name in self.loops.names)
        name, offset = program.place(operand.buffer, operand.offset)
        source = program.view(name, operand.sizes, operand.strides, offset)
        if source != program.word(name):  # a view takes its base to be dense
            program.pointed.add(name)
        text = f"{source}.permute({', '.join(map(str, order))}).contiguous()"
        copy = program.copied(f"{program.word(name)}_{letters.format(axes)}", text)
        self.body.pointers[copy] = self.body.fresh(f"{copy}_ptr")
        return self.body.pointers[copy]

    def _image(self, order: list[int]) -> str:
        """Have a kernel copy the image, channels last, and padded; return this kernel's pointer."""
        program, x, margins = self.program, self.window.x, self.window.margins
        if not any(map(any, margins)) and (x.sizes[1] == 1 or equal(x.strides[1], 1)):
            return self._channels_last(x, order, "n{}c")  # as it is
        name, offset = program.place(x.buffer, x.offset)
        axes = "".join(word[0] for word in self.loops.names)
        key = f"{name} {offset} {x.sizes} {x.strides} {margins}"
        if key not in program.copies:
            ends = map(self._end, range(len(axes)))
            shape = program.shape([x.sizes[0], *ends, x.sizes[1]])
            like = f"device={program.device()}, dtype={program.word(name)}.dtype"
            copy = program.let(f"{program.word(name)}_n{axes}c", f"torch.empty({shape}, {like})")
            program.copies[key] = program.scratch[copy] = copy
            self._copy_image(copy)
        copy = program.copies[key]
        self.body.pointers[copy] = self.body.fresh(f"{copy}_ptr")
        return self.body.pointers[copy]

    def _copy_image(self, copy: str) -> None:
        """Print the kernel that copies an image: tiles of channels and of pixels of a line."""
        loops, program, x = self.loops, self.program, self.window.x
        letters = [name[0] for name in loops.names]
        reserved = ["pid", "tiles", "tiles_c", "line", "image", "at", "cols", "mask", "inside"]
        body = Body(loops, program, [], [*reserved, *letters, "done"])
        ends = []
        for dim, (name, margins) in enumerate(zip(loops.names, self.window.margins, strict=True)):
            ends.append(body.named(f"padded_{name}" if any(margins) else name, self._end(dim)))
        channels = body.named("channels", x.sizes[1])
        body.say(f"tiles_c = tl.cdiv({channels}, BLOCK_CHANNELS)")
        body.say(f"tiles = tl.cdiv({ends[-1]}, BLOCK_PIXELS) * tiles_c")
        body.say("pid = tl.program_id(0)")
        body.say("line = pid // tiles")
        at = letters[-1] if self.window.margins[-1][0] == 0 else "at"
        lanes = "tl.arange(0, BLOCK_PIXELS)[:, None]"
        body.say(f"{at} = pid % tiles // tiles_c * BLOCK_PIXELS + {lanes}")
        cols = "pid % tiles_c * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)[None, :]"
        body.say(f"cols = ({cols}).to(tl.int64)")
        body.say(f"mask = ({at} < {ends[-1]}) & (cols < {channels})")
        inside = self._places_in_image(body, ends)
        places = [body.variable(word) for word in ("image", "cols", *letters)]
        buffer, index = loops.place(x.buffer, loops.at(x, places))
        pointer = body.pointer(buffer, body.address(index))
        masked = "mask & inside, other=0.0" if inside else "mask"
        body.say(f"pixels = tl.load({pointer}, mask={masked})")
        body.pointers[copy] = body.fresh(f"{copy}_ptr")
        to = f"{body.pointers[copy]} + (line.to(tl.int64) * {ends[-1]} + {at}) * {channels}"
        body.say(f"tl.store({to} + cols, pixels, mask=mask)")
        self._launch_copy(body, "padded_image" if inside else "image")

    def _places_in_image(self, body: Body, ends: list[str]) -> bool:
        """Say where in the image a tile of its copy lies; return whether some is outside."""
        names, left, inside = self.loops.names, "line", list[str]()
        places = ["at"] * len(names)
        for dim in reversed(range(len(names))):
            if dim < len(names) - 1:
                places[dim] = f"{left} % {ends[dim]}"
                left = f"{left} // {ends[dim]}"
            if (before := self.window.margins[dim][0]) != 0:
                places[dim] += f" - {body.address(before)}"
            if any(self.window.margins[dim]):
                letter, end = names[dim][0], body.named(names[dim], self.window.x.sizes[2 + dim])
                inside += [f"({letter} >= 0)", f"({letter} < {end})"]
        for name, place in zip(names, places, strict=True):
            body.say(f"{name[0]} = {place}") if place != "at" else None
        body.say(f"image = ({left}).to(tl.int64)")
        if inside:
            body.say(f"inside = {' & '.join(inside)}")
        return bool(inside)

    def _launch_copy(self, body: Body, part: str) -> None:
        program, x = self.program, self.window.x
        channels = program.size("channels", x.sizes[1])
        width = program.size("padded_width", self._end(-1))
        setup = (
            f"BLOCK_CHANNELS = min(triton.next_power_of_2({channels}), 64)",
            f"BLOCK_PIXELS = min(triton.next_power_of_2({width}), 4096 // BLOCK_CHANNELS)",
        )
        outer = map(self._end, range(len(self.loops.names) - 1))
        lines = program.size("n_lines", product([x.sizes[0], *outer]))
        tiles = f"triton.cdiv({width}, BLOCK_PIXELS) * triton.cdiv({channels}, BLOCK_CHANNELS)"
        blocks = {block: block for block in ("BLOCK_CHANNELS", "BLOCK_PIXELS")}
        doc = "Each program copies BLOCK_CHANNELS channels of BLOCK_PIXELS pixels of a line."
        program.launch(Kernel(body, doc, (f"{lines} * {tiles}",), blocks, setup, part=part))

    def _end(self, dim: int) -> sympy.Expr:
        return self.window.x.sizes[2:][dim] + sum(self.window.margins[dim])

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
                body.say(f"step_{name[0]} = {at}")
                phase, at = f"{phase} // {stride}", f"step_{name[0]} * {stride} + {own}"
                if not equal(outs[dim] * self.strides[dim], size):
                    masks.append(f"({loops.words[2 + dim]} < {body.named(f'out_{name}', size)})")
            body.define(place, at) if place != 0 else None
            left = f"{left} // {count}"
        body.define(loops.places[0], left) if loops.places[0] != 0 else None
        body.say(f"row_mask = {' & '.join(masks)}")

    def _sum(self, x: str, weight: str) -> None:
        """Print the loop over taps and channels: one, so that loads run ahead of all products."""
        loops, body, window = self.loops, self.body, self.window
        channels = body.named("channels", loops.inputs)
        every = body.named("in_channels", window.x.sizes[1]) if self.grouped else channels
        group = f"group * {channels} + " if self.grouped else ""
        row, length, at = self.cols.name, body.named("K", self.sizes[2]), ""
        if loops.transposed and self.grouped:  # a row of the weight has the channels of all groups
            row, at = "cols", group
            length = body.named("row", product([window.weight.sizes[0], *loops.taps]))
        own = every if loops.transposed else channels
        firsts = [self._count(dim) for dim in range(len(loops.names))]
        if first := _nested(firsts, window.taps):
            at = f"{first} * {own} + {at}"
        row = body.widened(self.cols, row)
        body.say("inner = tl.arange(0, BLOCK_K)")
        body.say(f"weights = {weight} + {row} * {length} + {at}inner[:, None]")
        first = f"{{}} * {every}" + ("" if self.flat else f" + {group}inner[None, :]")
        if not self.strided:
            body.say(f"x_first = {x} + {first.format(self._place(window.firsts))}")
        line = f"{window.taps[-1]} * {channels}" if self.joins else channels
        run = length if self.flat else line
        body.say("acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
        with body.block(self._begin(run)):
            body.say("k = start + inner")
            pixels, inside = "x_first", "row_mask"
            x_at = self._of_all_taps(line) if self.flat else self._beyond(every)
            if self.strided:
                place, inside = self._hits()
                pixels = body.let("x_ptrs", f"{x} + {first.format(place)}")
            if x_at != "start":
                x_at = body.let("x_at", x_at) + ("[None, :]" if self.flat else "")
            weight_at = "start"
            if tap := self._tap():
                weight_at = body.let("weight_at", f"{tap} * {own} + start")
            masks = [f"(k < {run}){lane}" for lane in products.LANES]
            loads = [
                f"tl.load({pixels} + {x_at}, mask={inside} & {masks[0]}, other=0.0)",
                f"tl.load(weights + {weight_at}, mask=col_mask & {masks[1]}, other=0.0)",
            ]
            loads = products.same_types(self.program, loads, [window.x, window.weight])
            body.say(f"a = {loads[0]}")
            body.say(f"b = {loads[1]}")
            types = [self.program.dtype(one.buffer) for one in (window.x, window.weight)]
            body.say(f"acc = {products.dot(body, 'a', 'b', 'acc', types, True)}")
            self._go_on(run)

    def _count(self, dim: int) -> str:
        """Say how many taps of an axis a program sees; return the text for the first, if not 0."""
        taps, (stride, padding, _) = self.window.taps[dim], self.loops.numbers(dim)
        body, letter = self.body, self.loops.names[dim][0]
        if not self.apart[dim]:
            joined = self.flat or (self.joins and dim == len(self.apart) - 1)
            self.counts.append("" if joined or taps == "1" else taps)
            return ""
        first, by = f"phase_{letter}", body.address(stride)
        if padding != 0:
            first = body.let(f"phase_tap_{letter}", f"({first} + {body.address(padding)}) % {by}")
        self.counts.append(body.let(f"taps_{letter}", f"tl.cdiv({taps} - {first}, {by})"))
        return first

    def _begin(self, run: str) -> str:
        """Say where the loop begins, and return its head."""
        counts = [count for count in self.counts if count]
        if not counts:
            return f"for start in range(0, {run}, BLOCK_K):"
        for name in ["start", *(f"tap_{letter}" for letter, _ in self._walked())]:
            self.body.say(f"{name} = 0")
        return f"for _ in range({' * '.join([*counts, f'tl.cdiv({run}, BLOCK_K)'])}):"

    def _walked(self) -> list[tuple[str, str]]:
        """Return the letters of the axes along which there are several taps, and how many."""
        pairs = zip(self.loops.names, self.counts, strict=True)
        return [(name[0], count) for name, count in pairs if count]

    def _go_on(self, run: str) -> None:
        """Go on to the next channels, and behind the last of them to the next tap.

        Divisions of a step's number would take more instructions than all else in the loop.
        """
        body, end, place = self.body, f"start >= {run}", "start"
        if walked := self._walked():
            body.say(repr("# The next channels; after the last, the next tap."))
            body.say("start += BLOCK_K")
        for letter, count in reversed(walked):
            body.say(f"done = {end}")
            body.say(f"{place} = tl.where(done, 0, {place})")
            place = f"tap_{letter}"
            body.say(f"{place} += done.to(tl.int32)")
            end = f"{place} == {count}"

    def _beyond(self, every: str) -> str:
        """Return the text for how far what is read is from what an output sees first."""
        pairs = zip(self.loops.names, self.counts, strict=True)
        pixel = self._away([count and f"tap_{name[0]}" for name, count in pairs])
        if not pixel or self.strided:
            return "start"
        whole = f"{pixel} * {every}"
        return f"start - {whole}" if self.loops.transposed else f"{whole} + start"

    def _of_all_taps(self, line: str) -> str:
        """Return the text for how far each of a tile's numbers is from what an output sees first.

        Args:
            line: the text for how many lie together: channels of the taps along the last axis.
        """
        body, taps = self.body, self.window.taps
        body.say(f"tap = k // ({line})")
        left, places = "tap", [""]  # those along the last axis are part of a line
        for dim in reversed(range(1, len(taps) - 1)):
            many = taps[dim] != "1"
            places.insert(0, f"{left} % {taps[dim]}" if many else "")
            left = f"{left} // {taps[dim]}" if many else left
        pixel = self._away([left, *places])
        return f"{pixel} * {body.named('channels', self.loops.inputs)} + k % ({line})"

    def _away(self, taps: list[str]) -> str:
        """Return the text for how many pixels a tap, one along each axis, is from the first."""
        parts = []
        for dim, tap in enumerate(taps):
            wide = f"({tap}).to(tl.int64)" if dim < len(taps) - 2 else tap
            dilation = self.loops.numbers(dim)[2]
            times = "" if dilation == 1 else f" * {self.body.address(dilation)}"
            parts.append(tap and wide + times)
        return _nested(parts, self.window.ends)

    def _tap(self) -> str:
        """Return the text for a tap among all taps, from the first on."""
        parts = []
        for dim, (name, count) in enumerate(zip(self.loops.names, self.counts, strict=True)):
            times = f" * {self.body.address(self.strides[dim])}" if self.apart[dim] else ""
            parts.append(count and f"tap_{name[0]}{times}")
        return _nested(parts, self.window.taps)

    def _hits(self) -> tuple[str, str]:
        """Say which pixels a tap is on; return the text for a pixel, and where it is one."""
        places, inside = [], ["row_mask"]
        for dim in range(len(self.loops.names)):
            found, conditions = self.window.see(dim)
            places.append(self.body.address(found))
            inside += conditions
        self.body.say(f"inside = {' & '.join(inside)}")
        return self._place(places), "inside"

    def _place(self, places: list[str]) -> str:
        """Return the text for a pixel's place among all pixels."""
        image = self.body.address(self.loops.places[0])
        pixel = _nested(places, self.window.ends, "" if image == "0" else image)
        return pixel if image != "0" else f"({pixel}).to(tl.int64)"


def _nested(places: list[str], ends: list[str], text: str = "") -> str:
    """Return the text for a place along several axes, as the elements lie; where all are empty,
    nothing."""
    for place, end in zip(places, ends, strict=True):
        if not text:
            text = place
        elif place or end != "1":
            text = f"({text} * {end}{place and f' + {place}'})"
    return text


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
    image, channel = loops.places[:2]
    one = body.variable("i") if loops.inputs != 1 else sympy.S.Zero
    group = FloorDiv(channel, loops.filters) if loops.filters != 1 else channel
    taps = [body.variable(f"tap_{name[0]}") for name in loops.names]
    taps = [t if n != 1 else sympy.S.Zero for t, n in zip(taps, loops.taps, strict=True)]
    if loops.transposed:
        own = channel - group * loops.filters if loops.filters != 1 else sympy.S.Zero
        first, tap = [group * loops.inputs, own], [one, sympy.S.Zero, *taps]
    else:
        first, tap = [channel, sympy.S.Zero], [sympy.S.Zero, one, *taps]
    # What no tap changes is outside the loops, with 64 bits; inside, 32 suffice.
    nowhere = [sympy.S.Zero] * len(loops.names)
    planes, pixel_type = _pointer(loops, body, "planes", x, [image, group * loops.inputs, *nowhere])
    weights, weight_type = _pointer(loops, body, "weights", weight, [*first, *nowhere])
    is_spread = body.is_spread(loops.at(weight, [*first, *tap[2:]]))
    program.say_short(program.size("n_pixels", loops.inputs * product(x.sizes[2:])))
    body.say("acc = tl.zeros([BLOCK_SIZE], tl.float32)")
    depth = body.depth
    loops_of = [("i", body.named("group_channels", loops.inputs))]
    loops_of += [(f"tap_{n[0]}", size) for n, size in zip(loops.names, window.taps, strict=True)]
    for name, size in loops_of:
        if size != "1":
            body.say(f"for {name} in range({size}):")
            body.depth += 1
    seen = [window.see(dim) for dim in range(len(loops.names))]
    inside = " & ".join(["mask", *(one for _, conditions in seen for one in conditions)])
    at = _along(loops, body, x, [sympy.S.Zero, one, *(place for place, _ in seen)])
    body.say(f"pixel = tl.load({planes}{at}, mask={inside}, other=0.0){pixel_type}")
    at, masked = _along(loops, body, weight, tap), ", mask=mask, other=0.0" if is_spread else ""
    body.say(f"weight = tl.load({weights}{at}{masked}){weight_type}")
    body.say("acc += pixel * weight")
    body.depth = depth
    body.leaf(loops.product, "acc")
    body.store_all()
    doc = "Each program takes BLOCK_SIZE outputs; each sums what lies under its window."
    count = dim.count(program, loops)
    program.say_short(count)
    grid = (f"triton.cdiv({count}, BLOCK_SIZE)",)
    program.launch(Kernel(body, doc, grid, {"BLOCK_SIZE": "BLOCK_SIZE"}, ("BLOCK_SIZE = 256",)))


def _pointer(
    loops: Product, body: Body, word: str, operand: CallOperand, places: Sequence[sympy.Expr]
) -> tuple[str, str]:
    """Say where some planes of an operand begin; return the variable, and a load's conversion."""
    buffer, index = loops.place(operand.buffer, loops.at(operand, places))
    short = ".to(tl.float32)" if body.host.is_float_input(buffer) else ""
    return body.let(word, body.pointer(buffer, body.address(index))), short


def _along(loops: Product, body: Body, operand: CallOperand, places: Sequence[sympy.Expr]) -> str:
    """Return the text that is added to a pointer to a plane's beginning, for places in it."""
    index = loops.at(operand, places) - operand.offset
    return f" + {body.address(index)}" if index != 0 else ""
