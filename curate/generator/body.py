"""A kernel: the values of its loops as Triton text, where they are due, and how it is launched."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sympy
import torch

from curate.generator import torch_private as private
from curate.generator.loops import Loops, equal, in_terms_of
from curate.generator.text.expressions import KERNEL_TO_INTEGER, Printer, unused
from curate.generator.text.operations import (
    BINARY,
    CONJUNCTIONS,
    FUNCTIONS,
    HELPERS,
    NOUNS,
    TO_INTEGER,
    TYPES,
    UNARY,
    literal,
)
from curate.generator.unprintable import Unprintable
from curate.generator.values import StoredValue, Value, indices, is_opposite
from curate.syntax import words

if TYPE_CHECKING:
    from curate.generator.program import Program

LONGEST = 70
"""Characters of an expression that is written where it is used, not as a variable of its own; a
name counts for eight, so that two kernels that differ in names alone have the same form."""

_TAKEN = {*dir(builtins), "tl", "triton", "torch", "libdevice", "math"}
_INSTEAD = {"sum": "total", "max": "peak", "min": "lowest", "abs": "magnitude", "pow": "power"}


def identifier(word: str) -> str:
    """Return a word as a name that Python takes and that hides nothing."""
    name = re.sub(r"\W+", "_", word).strip("_") or "value"
    if name[0].isdigit():
        name = f"p{name}"
    taken = keyword.iskeyword(name) or name in _TAKEN
    return _INSTEAD.get(name, f"{name}_value") if taken else name


def _length(code: str) -> int:
    """Return an expression's characters, as if each variable had eight."""
    return len(_VARIABLE.sub("variable", code))


_VARIABLE = re.compile(r"(?<![\w.])(?!tl\b|libdevice\b)[A-Za-z_]\w*")


def _guarded_load(value: Value) -> Value | None:
    """Return the load that a value is, with another number where its own mask does not hold."""
    inner = value.args[1] if value.op == "masked" else None
    return inner if inner and inner.op == "load" and inner.masks[-1:] == value.args[:1] else None


_COUNTS = {"batch": "batches", "rows": "n_rows", "cols": "n_cols", "outer": "n_outer"}
_COUNTS |= dict.fromkeys(("keys", "key_rows"), "n_keys")
_COUNTS |= dict.fromkeys(("dims", "dim_rows"), "head_dim")
"""What the number of elements along a dim is called."""


@dataclass
class Dim:
    """One way through the elements: all of its axes as one index.

    Attributes:
        name: the variable that holds the index.
        axes: outermost first.
        mask: the variable that says which lanes have an element, or "".
        tile: its dimension of the tile, or None if it is a single number.
        constant: the compile-time constant that says how many elements a program takes, if it is
            not called as usual.
    """

    name: str
    axes: list[sympy.Symbol]
    mask: str = ""
    tile: int | None = None
    constant: str = ""

    @property
    def block(self) -> str:
        """The compile-time constant that says how many elements a program takes."""
        return self.constant or {"rows": "BLOCK_ROWS", "cols": "BLOCK_COLS"}.get(
            self.name, "BLOCK_SIZE"
        )

    def count(self, sizes: Program | Body, loops: Loops) -> str:
        """Return the host's or a kernel's text for how many elements there are."""
        name = _COUNTS.get(self.name, "n_elements")
        return sizes.size(name, loops.extent(self.axes))


def _whole(dim: Dim) -> sympy.Symbol:
    """Return the symbol for a dim's index as one number, if it has several axes."""
    return sympy.Symbol(f"at_{dim.name}", integer=True, nonnegative=True)


class Body:
    """Writes one kernel.

    Attributes:
        dims: the ways through its elements.
        pointers: names of arguments, by buffer.
        arguments: the host's text for every other argument, by name.
        helpers: functions that the text calls.
        scan: prints a scan or a sort and returns the names of its results.
    """

    scan: Callable[[Value], list[str]]

    def __init__(self, loops: Loops, host: Program, dims: list[Dim], reserved: Iterable[str] = ()):
        self.loops = loops
        self.host = host
        self.dims = dims
        self.lines: list[str] = []
        self.depth = 1
        self.pointers: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.helpers: set[str] = set()
        self.rounds_products = False
        self.rank = sum(dim.tile is not None for dim in dims)
        self._texts: dict[int, str] = {}
        self._leaves: dict[int, str] = {}
        self._other: dict[int, Any] = {}
        self._uses: dict[int, int] = {}
        self._sizes: dict[sympy.Expr, sympy.Symbol] = {}
        self._names: dict[sympy.Symbol, str] = {}
        self._used = {d.name for d in dims} | {d.mask for d in dims} | set(reserved)
        self._at: dict[sympy.Symbol, sympy.Symbol] = {}
        self.dim_of = {axis: dim for dim in dims for axis in dim.axes}
        for dim in dims:
            for axis in dim.axes:
                name = dim.name if len(dim.axes) == 1 else self.fresh(self._axis_name(axis))
                self._at[axis] = sympy.Symbol(f"at_{axis}", integer=True, nonnegative=True)
                self._names[self._at[axis]] = name
        for store in self.stores():
            self.use(store.value)
        self._wide = self._scaled()
        self._narrow: set[sympy.Symbol] = set()

    # -- text -------------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is said inside; its variables are forgotten afterwards."""
        self.say(head)
        known, others, used = dict(self._texts), dict(self._other), set(self._used)
        self.depth += 1
        yield
        self.depth -= 1
        self._texts, self._other = known, others
        self._used = used.union(self.pointers.values(), self.arguments)

    def fresh(self, word: str) -> str:
        return unused(identifier(word), self._used)

    def let(self, word: str, text: str) -> str:
        """Give what a text stands for a variable, and return its name."""
        name = self.fresh(word)
        self.say(f"{name} = {text}")
        return name

    def stores(self) -> list[StoredValue]:
        """Return what has to be written: not what only this kernel reads."""
        return [store for store in self.loops.stores if not self.host.is_inner(store.buffer)]

    def _axis_name(self, axis: sympy.Symbol) -> str:
        size = self.host.known(self.loops.axes[axis])
        symbols = sorted(size.free_symbols, key=str)
        words = {self.host.name_of(symbol) for symbol in symbols}
        if not size.is_Symbol:
            return "pixel" if {"height", "width"} <= words else "position"
        word = re.sub(r"^self[._]|_(size|len|length|dim)$", "", words.pop())
        plural = word.endswith("s") and len(word) > 3
        return re.sub("s$", "", re.sub("ies$", "y", word)) if plural else f"{word}_index"

    # -- sizes and indices ------------------------------------------------------------------------

    def size(self, name: str, expression: sympy.Expr, own: bool = False) -> str:
        """Return the text for a size: a number, or an argument.

        One that is a symbol keeps the host's name for it, unless it is to have its ``own``.
        """
        e = self.host.known(expression)
        if e.is_number:
            return str(e)
        plain = e.is_Symbol and (own or not (name == "n_elements" and self.host.counts(e)))
        if plain and not own:
            return self._symbol(e)
        for known, symbol in [*self._sizes.items(), *([(e, e)] if own else [])]:
            if symbol in self._names and equal(known, e):
                return self._names[symbol]
        name_here = self.fresh(name)
        symbol = e if plain else sympy.Symbol(f"size_{name_here}", integer=True, positive=True)
        if not plain:
            self._sizes[e] = symbol
        self._names[symbol] = name_here
        self.arguments[name_here] = self.host.size(name, e)
        return name_here

    def named(self, name: str, expression: sympy.Expr) -> str:
        """Return the text for a size: a number, or an argument with a name of its own."""
        return self.size(name, expression, own=True)

    def call(self, axis: sympy.Symbol, word: str) -> None:
        """Give the index along an axis a name, by which a schedule reads it."""
        self._names[self._at[axis]] = self.fresh(word)
        self._needed.add(self._at[axis])

    def define(self, axis: sympy.Symbol, text: str) -> None:
        """Say which element along an axis a program, or each of its lanes, has come to."""
        wide = self._is_long(axis)
        self.say(f"{self._names[self._at[axis]]} = {f'({text}).to(tl.int64)' if wide else text}")

    def narrow(self, dims: Iterable[Dim]) -> None:
        """Leave indices along some dims at 32 bits: the host asserts that these hold offsets."""
        self._narrow |= {self._at[axis] for dim in dims for axis in dim.axes}

    def postpone(self, dims: Iterable[Dim]) -> list[Dim]:
        """Leave the indices of some dims at 32 bits until `widen`; return which have more then."""
        late = [dim for dim in dims if len(dim.axes) == 1 and self._is_long(dim.axes[0])]
        self.narrow(late)
        return late

    def widen(self, dims: Iterable[Dim]) -> None:
        """Give the indices of dims that were postponed 64 bits."""
        for dim in dims:
            self._narrow.discard(self._at[dim.axes[0]])
            self.say(f"{dim.name} = {dim.name}.to(tl.int64)")

    def _is_long(self, axis: sympy.Symbol) -> bool:
        """Whether the variable for an index along an axis has 64 bits."""
        return self._at[axis] in self._wide - self._narrow

    def variable(self, text: str) -> sympy.Symbol:
        """Return a symbol for an index that the kernel has as ``text``, with enough bits."""
        symbol = sympy.Symbol(f"at_{text}", integer=True, nonnegative=True)
        self._names[symbol] = text
        self._wide.add(symbol)
        return symbol

    def _symbol(self, symbol: sympy.Symbol) -> str:
        if symbol not in self._names:
            text = self.host.name_of(symbol)
            for known, given in self.arguments.items():
                if given == text:
                    self._names[symbol] = known
                    return known
            name = text if text.isidentifier() and text not in self._used else None
            self._names[symbol] = name or self.fresh(text.rpartition(".")[2])
            self._used.add(self._names[symbol])
            self.arguments[self._names[symbol]] = text
        return self._names[symbol]

    def _argument(self, number: sympy.Expr, word: str = "") -> str:
        """Return the argument by which the host gives a number."""
        name, text = self.host.scalar(number)
        for known, given in self.arguments.items():
            if given == text:
                return known
        own = self.fresh(word or name)
        self.arguments[own] = text
        return own

    def _scaled(self) -> set[sympy.Symbol]:
        """Return the indices that have 64 bits, since an address has them times a size.

        What is divided stays at 32 bits, in which that is many times as fast; its quotient is
        widened where it is multiplied.
        """
        scaled: set[sympy.Symbol] = set()
        divided: set[sympy.Symbol] = set()
        self._needed: set[sympy.Symbol] = set()
        for e in self.loops.expressions:
            terms = sympy.Add.make_args(self._joined(self.host.known(e.xreplace(self._at))))
            lanes = {s for term in terms for s in term.free_symbols if s.name.startswith("at_")}
            self._needed |= lanes
            strides = {s: sum(term.coeff(s) for term in terms) for s in lanes}
            largest = not any(stride.free_symbols for stride in strides.values())
            for s, stride in strides.items():
                if stride.free_symbols or (largest and stride not in (0, 1)):
                    scaled.add(s)
            for part in e.xreplace(self._at).atoms(*private.DIVISIONS):
                divided |= part.free_symbols
        return scaled - divided

    def index(self, dim: Dim, start: str) -> None:
        """Say which elements of a dim a program, or a loop, is at: those from ``start`` on."""
        text = start
        if dim.tile is not None:
            lanes = "" if self.rank == 1 else ("[:, None]", "[None, :]")[dim.tile]
            text = f"{start and f'{start} + '}tl.arange(0, {dim.block}){lanes}"
        if ".to(tl.int64)" in start:
            self._wide.update(self._at[axis] for axis in dim.axes)
        elif len(dim.axes) == 1 and self._is_long(dim.axes[0]):
            whole, text = text, re.sub(r"^tl\.program_id\(\d\)", r"\g<0>.to(tl.int64)", text)
            text = f"({text}).to(tl.int64)" if text == whole else text
        self.say(f"{dim.name} = {text}")
        if dim.mask:
            self.say(f"{dim.mask} = {dim.name} < {dim.count(self, self.loops)}")
        self._spread(dim)

    def apart(self, dim: Dim) -> list[Dim]:
        """Return a way along each axis of a dim, if lanes had to divide to know where they are."""
        ats = [self._at[axis] for axis in dim.axes]
        if len(ats) < 2 or self._needed.isdisjoint(ats):
            return []
        return [Dim(self._names[at], [axis]) for at, axis in zip(ats, dim.axes, strict=True)]

    def widened(self, dim: Dim, text: str) -> str:
        """Return the text for a number that is computed from a dim's index, with 64 bits."""
        wide = all(self._at[axis] in self._wide for axis in dim.axes)
        return text if wide else f"({text}).to(tl.int64)"

    def spread(self, dim: Dim, text: str) -> None:
        """Say which elements of a dim the lanes have come to; ``text`` has 32 bits."""
        wide = len(dim.axes) == 1 and self._is_long(dim.axes[0])
        self.say(f"{dim.name} = {f'({text}).to(tl.int64)' if wide else text}")
        self._spread(dim)

    def _spread(self, dim: Dim) -> None:
        """Say which element of each axis that is needed a dim's index is, if it has several."""
        if len(dim.axes) < 2:
            return
        left = dim.name
        needed = [axis for axis in dim.axes if self._at[axis] in self._needed]
        for axis in reversed(dim.axes):
            if not needed:
                break
            at = self._at[axis]
            outermost = axis is dim.axes[0]
            plural = re.sub(r"(_\d+)?$", r"s\1", self._names[at], count=1)
            length = "" if outermost else self.size(f"n_{plural}", self.loops.axes[axis])
            if axis in needed:
                wide = ".to(tl.int64)" if self._is_long(axis) else ""
                self.say(f"{self._names[at]} = ({left}{length and f' % {length}'}){wide}")
                needed.remove(axis)
            left = f"({left} // {length})"
        if _whole(dim) in self._wide:
            self.say(f"{dim.name} = {dim.name}.to(tl.int64)")

    def address(self, index: sympy.Expr) -> str:
        """Return an index's text, for the elements at hand."""
        e = self.loops.index(index)
        replaced: dict[sympy.Symbol, sympy.Symbol] = {}
        for symbol in sorted(e.free_symbols, key=str):
            value = self.loops.indirect_value(symbol)
            if symbol in self._at:
                replaced[symbol] = self._at[symbol]
            elif value is not None:
                replaced[symbol] = symbol
                self._names[symbol] = self.name(value)
        lanes = frozenset(replaced.values())
        e = self._joined(self.host.known(e.xreplace(replaced)))
        if sums := {size: s for size, s in self._sizes.items() if size.is_Add}:
            at = [s for s in e.free_symbols if s.name.startswith("at_")]
            strides = {s: sympy.expand(e).coeff(s) for s in at}
            rest = sympy.expand(e - sum(s * stride for s, stride in strides.items()))
            e = rest + sum(s * in_terms_of(stride, sums) for s, stride in strides.items())
        for size, symbol in self._sizes.items():
            found = e.subs(size, symbol)
            if not any(
                power.exp.is_Rational and not power.exp.is_Integer
                for power in found.atoms(sympy.Pow)
            ):
                e = found
        lanes |= {s for s in e.free_symbols if s.name.startswith("at_")}
        e = self._rounded_down(e, lanes)
        for symbol in sorted(e.free_symbols - lanes, key=str):
            if symbol not in self._sizes.values():
                self._symbol(symbol)
        wide = self._wide | {s for s in lanes if self.loops.indirect_value(s) is not None}
        return Printer(self._names, lanes, frozenset(wide)).text(e)

    def _rounded_down(self, e: sympy.Expr, lanes: frozenset[sympy.Symbol]) -> sympy.Expr:
        """Have the host divide what may be negative: it rounds down, and a kernel to zero.

        It also rounds numbers to integers, for which a kernel has too few bits.
        """
        divided = [p for p in e.atoms(*private.DIVISIONS) if not p.args[0].is_nonnegative]
        rounded = [p for p in e.atoms(sympy.Function) if type(p).__name__ in KERNEL_TO_INTEGER]
        order = [*sorted(divided, key=str), *sorted(rounded, key=lambda p: (-len(str(p)), str(p)))]
        for part in order:
            if part.free_symbols.isdisjoint(lanes) and e.has(part):
                own = self._argument(part.subs({s: size for size, s in self._sizes.items()}))
                symbol = sympy.Symbol(f"size_{own}", integer=True)
                self._names[symbol] = own
                e = e.subs(part, symbol)
        return e

    def _joined(self, e: sympy.Expr) -> sympy.Expr:
        """Put a dim's own index in place of axes that an address runs through in order."""
        for dim in self.dims:
            if len(dim.axes) < 2:
                continue
            whole = _whole(dim)
            stride = e.coeff(self._at[dim.axes[-1]])
            flat: sympy.Expr = sympy.S.Zero
            length: sympy.Expr = sympy.S.One
            for axis in reversed(dim.axes):
                flat += self._at[axis] * length
                length *= self.host.known(self.loops.axes[axis])
            rest = sympy.expand(e - stride * flat)
            if stride != 0 and not rest.free_symbols & {self._at[a] for a in dim.axes}:
                self._names[whole] = dim.name
                e = rest + stride * whole
        return e

    def is_spread(self, index: sympy.Expr) -> bool:
        """Whether an index has a value for each element."""
        e = self.loops.index(index)
        return any(
            s in self._at or self.loops.indirect_value(s) is not None for s in e.free_symbols
        )

    # -- masks ------------------------------------------------------------------------------------

    def dims_along(self, axes: Iterable[sympy.Symbol]) -> list[Dim]:
        """Return the dims that some axes are in."""
        return [self.dim_of[axis] for axis in self.loops.live(axes) if axis in self.dim_of]

    def masks(self, axes: Iterable[sympy.Symbol]) -> list[str]:
        """Return the masks of the dims that some axes are in."""
        dims = self.dims_along(axes)
        return list(dict.fromkeys(dim.mask for dim in self.dims if dim.mask and dim in dims))

    def _index_axes(self, index: sympy.Expr) -> frozenset[sympy.Symbol]:
        axes, values = self.loops.axes_of(self.loops.index(index))
        return axes.union(*(v.axes for v in values))

    def store_all(self) -> None:
        for store in self.stores():
            self.store(store)

    def store(self, store: StoredValue) -> None:
        value, at = self.text(store.value), self.address(store.index)
        axes = self._index_axes(store.index)
        order = ""
        if store.mode is not None:
            value = self._summed(store, value, axes)
            order = ', sem="relaxed"'
        mask = self._mask(self.masks(axes))
        function = f"tl.{store.mode or 'store'}"
        self.say(f"{function}({self.pointer(store.buffer, at)}, {value}{mask}{order})")

    def _summed(self, store: StoredValue, value: str, axes: frozenset[sympy.Symbol]) -> str:
        """Return what a tile adds at each place: sums over lanes that have one place together.

        ``axes`` are those of the place.
        """
        own, lanes = self.dims_along(axes), self.dims_along(store.value.axes)
        gone = [d for d in self.dims if d.tile is not None and d in lanes and d not in own]
        if not gone:
            return value
        if store.mode != "atomic_add":
            raise Unprintable(f"{store.mode} of what lies along another axis")
        if masks := [dim.mask for dim in gone if dim.mask]:
            value = f"tl.where({' & '.join(masks)}, {value}, 0)"
        kept = ", keep_dims=True" if len(gone) < self.rank else ""
        for dim in sorted(gone, key=lambda dim: -(dim.tile or 0)):
            value = f"tl.sum({value}, axis={dim.tile}{kept})"
        return value

    def pointer(self, buffer: str, at: str) -> str:
        if buffer not in self.pointers:
            self.pointers[buffer] = self.fresh(f"{self.host.word(buffer)}_ptr")
        return self.pointers[buffer] if at == "0" else f"{self.pointers[buffer]} + {at}"

    def _mask(self, masks: list[str]) -> str:
        return f", mask={' & '.join(masks)}" if masks else ""

    # -- values -----------------------------------------------------------------------------------

    def use(self, value: Value) -> None:
        """Count that a value is written: what is written twice gets a variable."""
        self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        if self._uses[id(value)] == 1:
            guarded = _guarded_load(value)
            for one in value.inputs():
                if guarded is None or one is guarded:  # its mask is the load's
                    self.use(one)

    def leaf(self, value: Value, text: str) -> None:
        """Say that a value is known by now, as ``text``."""
        self._leaves[id(value)] = text

    def remember(self, value: Value, name: str) -> None:
        """Say that a variable holds a value until the block ends."""
        self._texts[id(value)] = name

    def fill(self, load: Value, number: Any) -> None:
        """Say what a load gives in masked lanes."""
        self._other[id(load)] = number

    def hoist(self, roots: Iterable[Value], loop: Iterable[sympy.Symbol]) -> None:
        """Compute what does not change in a loop before it begins."""
        seen: set[int] = set()

        def walk(value: Value) -> None:
            if id(value) in seen or id(value) in self._leaves or value.op == "constant":
                return
            seen.add(id(value))
            if self.loops.live(value.axes).isdisjoint(loop) and not value.masks:
                if value.op != "index" and value.op != "reduce":
                    self.name(value)
                return
            for one in value.inputs():
                walk(one)

        for root in roots:
            walk(root)

    def name(self, value: Value) -> str:
        """Return a variable that holds a value."""
        text = self.text(value)
        if text.isidentifier():
            return text
        return self._variable(value, text)

    def _variable(self, value: Value, text: str) -> str:
        """Give a value a variable: the reference's word, or a load its buffer's name."""
        guarded = _guarded_load(value) if text.startswith("tl.load(") else None
        load = value if value.op == "load" else guarded
        word = "" if guarded and value.word == "pad" else value.word  # which says less than x
        own = word or (self.host.word(load.name) if load else "")
        noun = "clamped" if text.startswith("tl.clamp") else NOUNS.get(value.op, value.op)
        if value.op == "maximum" and any(x.op == "sqrt" for x in value.inputs()):
            noun = "norm"  # kept away from zero
        name = self._texts[id(value)] = self.let(own or noun, text)
        return name

    def _known(self, value: Value) -> str | None:
        """Return the text that a value has by now, if it has one."""
        return self._leaves.get(id(value)) or self._texts.get(id(value))

    def _is_single(self, value: Value) -> bool:
        """Whether a value is written once."""
        return self._uses.get(id(value), 1) <= 1

    def text(self, value: Any) -> str:
        """Return an expression for a value; it is a variable where it is long or used again."""
        if not isinstance(value, Value):
            return repr(value)
        known = self._known(value)
        if known is not None:
            return known
        code = self._code(value)
        short = _length(code) <= LONGEST and self._is_single(value) and value.op != "load"
        if value.op == "constant" or short or code.isidentifier():
            return code
        return self._variable(value, code)

    def _code(self, value: Value) -> str:
        op, args, dtype = value.op, value.args, value.dtype
        if op == "constant":
            return literal(value.number, dtype)
        if op == "index":
            return self._index_value(value)
        if op == "load":
            return self._load(value, [])
        if op == "masked":
            return self._masked(value)
        if op == "to_dtype":
            return self._converted(value)
        source = args[0] if op == "part" else value
        if source.op in ("scan", "sort"):
            return self.scan(source)[value.number or 0]
        if op in ("reduce", "part"):
            raise Unprintable("a reduction's result before the reduction")
        if op in ("square", "isnan", "sign"):
            x = self.name(args[0]) if not self._is_plain(args[0]) else self.text(args[0])
            if op == "square":
                return f"({x} * {x})"
            if op == "isnan":
                return f"({x} != {x})"
            one = literal(1, dtype)
            zero = literal(0, dtype)
            return f"tl.where({x} > 0, {one}, tl.where({x} < 0, -{one}, {zero}))"
        if op == "minimum" and dtype.is_floating_point and (inner := self._clamped(args)):
            texts = [self.text(arg) for arg in (*inner, args[1])]
            return f"tl.clamp({', '.join(texts)}, propagate_nan=tl.PropagateNan.ALL)"
        if op == "where":
            mask, chosen, other = args
            args = mask, self._chosen(chosen, mask), self._chosen(other, mask, otherwise=True)
        texts = [self.text(arg) for arg in args]
        return self._operation(op, texts, value)

    def _clamped(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return a value and its lower bound, if its minimum with a number is a clamp."""
        low = args[0]
        if not isinstance(low, Value) or low.op != "maximum" or self._known(low):
            return None
        plain = self._is_plain(args[1]) and self._is_plain(low.args[1])
        return low.args if plain and self._is_single(low) else None

    def _chosen(self, value: Any, mask: Any, otherwise: bool = False) -> Any:
        """Return what a value is where a mask holds, or does not: not what it is elsewhere."""
        if not isinstance(value, Value) or value.op != "masked" or id(value) in self._texts:
            return value
        own, inner = value.args
        holds = is_opposite(own, mask) if otherwise else own is mask
        return inner if holds else value

    def _is_plain(self, value: Any) -> bool:
        return isinstance(value, Value) and value.op == "constant"

    def _operation(self, op: str, texts: list[str], value: Value) -> str:
        dtype = value.dtype
        floating = dtype.is_floating_point
        first = texts[0] if texts else ""
        if op == "exp" and value.args[0].op == "sub":
            scores, peak = value.args[0].args
            if set(peak.axes) < set(scores.axes):
                self.exponential(scores)
        if op in ("mul", "lshift") and dtype == torch.int64:
            texts = [
                f"({text}).to(tl.int64)"
                if isinstance(a, Value) and a.op == "index" and self.is_spread(a.index)
                else text
                for text, a in zip(texts, value.args, strict=True)
            ]
        op = {("mod", True): "fmod", ("fmod", False): "mod"}.get((op, floating), op)
        if op == "bitwise_not" and dtype == torch.bool:
            op = "logical_not"
        if op in BINARY:
            return f"({texts[0]} {BINARY[op]} {texts[1]})"
        if op in UNARY:
            return UNARY[op].format(first)
        nan = ", propagate_nan=tl.PropagateNan.ALL" if floating else ""
        if op in ("maximum", "minimum"):
            return f"tl.{op}({texts[0]}, {texts[1]}{nan})"
        if op == "relu":
            return f"tl.maximum({first}, {literal(0, dtype)}{nan})"
        if op == "signbit":
            has_sign = value.args[0].dtype.is_floating_point
            return f"(libdevice.signbit({first}) != 0)" if has_sign else f"({first} < 0)"
        if op == "floordiv" and floating:
            return f"tl.floor({texts[0]} / {texts[1]})"
        if op in ("floordiv", "remainder"):
            helper = "floor_divide" if op == "floordiv" else "floor_modulo"
            helper = "float_modulo" if floating else helper
            self.helpers.add(helper)
            return f"{helper}({texts[0]}, {texts[1]})"
        if op in TO_INTEGER:
            return f"({TO_INTEGER[op].format(first)}).to({TYPES[dtype]})"
        if op in HELPERS:
            self.helpers.add(op)
            return f"{op}({first})"
        if op == "sqrt" and dtype == torch.float64:
            return f"tl.sqrt({first})"
        if op in FUNCTIONS:
            if op in ("floor", "ceil", "trunc", "round") and not floating:
                return first
            return f"{FUNCTIONS[op]}({', '.join(texts)})"
        raise Unprintable(f"the operation {op}")

    def _index_value(self, value: Value) -> str:
        assert value.index is not None
        if not self.is_spread(value.index):
            return self._argument(self.loops.index(value.index), value.word)
        index = value.index
        if index.is_Add and index.has(sympy.Min, sympy.Max, private.Min, private.Max):
            index = min(index, sympy.factor(index), key=sympy.count_ops)
        text = self.address(index)
        if value.dtype.is_floating_point:
            return f"({text}).to({TYPES[value.dtype]})"
        return text

    def _load(self, value: Value, extra: list[str], other: Any = None) -> str:
        code = self.raw_load(value, extra, other)
        half = value.dtype == torch.float32 and self.host.is_float_input(value.name)
        return f"{code}.to(tl.float32)" if half else code

    def raw_load(self, value: Value, extra: list[str], other: Any = None) -> str:
        """Return a load's text, of the type that memory has."""
        assert value.index is not None
        conditions = [part for mask in value.masks for part in self._conditions(mask)]
        masks = self.masks(self._index_axes(value.index) | value.axes) if conditions else []
        masks = masks or self.masks(value.axes)
        implied = {dim.mask for part in conditions for dim in self.dims if self._implies(part, dim)}
        masks = [mask for mask in masks if mask not in implied]
        masks = [*masks, *map(self.text, conditions), *extra]
        other = self._other.get(id(value), other)
        given = "" if other is None or not masks else f", other={literal(other, value.dtype)}"
        pointer = self.pointer(value.name, self.address(value.index))
        return f"tl.load({pointer}{self._mask(masks)}{given})"

    def factor(self, operand: private.CallOperand, index: sympy.Expr, mask: str) -> str:
        """Return the load of an element of a library's operand, as float32; zero behind a mask.

        Without a mask it is one number, for all lanes.
        """
        buffer, index = self.loops.place(operand.buffer, index)
        pointer = self.pointer(buffer, self.address(index))
        short = ".to(tl.float32)" if self.host.is_float_input(buffer) else ""
        guard = f", mask={mask}, other=0.0" if mask else ""
        return f"tl.load({pointer}{guard}){short}"

    def _conditions(self, mask: Value) -> list[Value]:
        """Return the conditions of which a mask is the conjunction."""
        own = id(mask) not in self._texts and self._is_single(mask)
        if own and mask.op in CONJUNCTIONS and mask.dtype == torch.bool:
            return [one for part in mask.args for one in self._conditions(part)]
        return [mask]

    def _implies(self, condition: Value, dim: Dim) -> bool:
        """Whether a condition holds only for lanes that have an element along a dim."""
        if condition.op in CONJUNCTIONS:
            return any(self._implies(one, dim) for one in condition.args)
        ends = indices(*condition.args) if condition.op == "lt" else None
        if ends is None or len(dim.axes) != 1:
            return False
        low, high = map(self.loops.index, ends)
        more, left = low - dim.axes[0], self.loops.axes[dim.axes[0]] - high
        return all(sympy.expand(self.host.known(e)).is_nonnegative for e in (more, left))

    def _masked(self, value: Value) -> str:
        mask, inner = value.args
        if _guarded_load(value) and not self._known(inner):
            return self._load(inner, [], value.number)
        return (
            f"tl.where({self.text(mask)}, {self.text(inner)}, {literal(value.number, value.dtype)})"
        )

    def _converted(self, value: Value) -> str:
        source = value.args[0]
        text = self.text(source)
        if value.dtype == torch.bool:
            return f"({text} != 0)"
        if source.op == "index" and not self.is_spread(source.index):
            return text
        if source.op == "constant":
            return literal(source.number, value.dtype)
        return f"({text}).to({TYPES[value.dtype]})"

    # -- what masked lanes hold -------------------------------------------------------------------

    def exponential(self, scores: Value) -> None:
        """Note of what a softmax is.

        A product must be the same number in the peak and where the peak is taken off: an FMA has
        digits of it that were rounded off in the peak, and their exponential may be infinite.
        """
        while scores.op in ("where", "to_dtype"):
            scores = scores.args[1 if scores.op == "where" else 0]
        self.rounds_products |= scores.op in ("mul", "square")

    def filled(self, value: Value, want: Any, dim: Dim) -> str:
        """Return a value's text whose lanes without an element along ``dim`` hold ``want``.

        Its loads get an ``other`` from which that follows, if there is one; otherwise the value is
        chosen by the mask.
        """
        if not dim.mask:
            return self.text(value)
        others = self._others(value, want, dim)
        if others is not None:
            self._other.update(others)
            return self.text(value)
        both = self._where_else(value, want)
        if both:
            return f"tl.where({dim.mask} & {both[0]}, {both[1]}, {literal(want, value.dtype)})"
        text = self.text(value)
        if _is_far(value, want):
            text = f"({text}).to(tl.int64)"
        return f"tl.where({dim.mask}, {text}, {literal(want, value.dtype)})"

    def _where_else(self, value: Value, want: Any) -> tuple[str, str] | None:
        """Return the texts of a condition and of what it chooses, where all else is ``want``."""
        if value.op != "where" or self._known(value) or not self._is_single(value):
            return None
        condition, chosen, other = value.args
        if not self._is_plain(other) or self._is_plain(chosen) or _is_far(value, want):
            return None
        if other.number != want or math.isnan(want):
            return None
        return self.text(condition), self.text(self._chosen(chosen, condition))

    def _others(self, value: Value, want: Any, dim: Dim) -> dict[int, Any] | None:
        """Return what loads have to give in masked lanes for a value to be ``want`` there."""
        if value.op == "load":
            known = self._other.get(id(value))
            if id(value) in self._texts:
                return {} if known is not None and known == want else None
            if value.masks or dim not in self.dims_along(value.axes):
                return None
            return {id(value): want} if known is None or known == want else None
        if value.op == "masked" and value.args[1].op == "load":
            inside = dim in self.dims_along(value.args[1].axes)
            return {} if inside and value.number == want and not math.isnan(value.number) else None
        if id(value) in self._texts:
            return None
        asked = self._asked(value, want, dim)
        if asked is None:
            return None
        found: dict[int, Any] = {}
        for arg, wanted in asked:
            others = self._others(arg, wanted, dim)
            if others is None or any(found.get(k, v) != v for k, v in others.items()):
                return None
            found |= others
        return found

    def _asked(self, value: Value, want: Any, dim: Dim) -> list[tuple[Value, Any]] | None:
        """Return what arguments have to be in masked lanes for a value to be a number there."""
        op, args, floating = value.op, value.args, value.dtype.is_floating_point
        if op == "to_dtype":
            fits = want == 0 or (floating and args[0].dtype.is_floating_point)
            return [(args[0], want)] if fits and args[0].dtype != torch.bool else None
        if op == "sub" and abs(want) == math.inf and isinstance(args[1], Value) and floating:
            return [(args[0], want)] if dim not in self.dims_along(args[1].axes) else None
        if want != 0 or op not in _ZERO_OF_ZERO:
            return None
        if op == "exp":
            return [(args[0], -math.inf)]
        for one, other in (args, args[::-1]) if op == "mul" else ():
            if isinstance(other, Value) and other.op == "constant" and math.isfinite(other.number):
                return [(one, 0)]
        return [(arg, 0) for arg in dict.fromkeys(args) if isinstance(arg, Value)]


_ZERO_OF_ZERO = words("abs neg relu sqrt square tanh sin add sub mul maximum minimum exp")
"""Operations that give zero for zeros, and one that does for -inf."""


@dataclass(frozen=True)
class Kernel:
    """One kernel and how it is launched.

    Attributes:
        body: its statements.
        doc: how the work is shared out; a sentence.
        grid: the host's text for each dimension of the grid.
        blocks: compile-time constants, with the host's text for each.
        setup: statements of the host before the launch.
        warps: the host's text for ``num_warps``, or "" for Triton's own.
        part: what is added to the kernel's name, such as ``partial``.
        stage: the reductions and scans of one stage of several, none of the last; None if it does
            all that its loops do.
        tuned_by: arguments whose values an autotuner chooses ``blocks`` for, which then have no
            text; None if it is not tuned.
        loop: the head of the host's loop around the launch, or ""; ``after`` is its last statement.
        tiles: the configurations that it chooses from; those are left out first that the function
            ``pruned_by`` does not return.
    """

    body: Body
    doc: str
    grid: tuple[str, ...]
    blocks: dict[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    warps: str = ""
    part: str = ""
    stage: Sequence[Value] | None = None
    tuned_by: tuple[str, ...] | None = None
    tiles: str = "TILES"
    pruned_by: str = ""
    loop: str = ""
    after: str = ""


def _is_far(value: Value, want: Any) -> bool:
    """Whether a number needs 64 bits, where an index may have fewer so far."""
    return value.dtype == torch.int64 and bool(abs(want) >= 2**31)
