"""What a kernel computes: a graph of values, recorded while the bodies of fused loops run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch

from curate.generator import torch_private as private
from curate.generator.text.operations import CONJUNCTIONS
from curate.generator.unprintable import Unprintable

if TYPE_CHECKING:
    from curate.generator.loops import Loops

HALF = (torch.float16, torch.bfloat16)


@dataclass(eq=False)
class Value:
    """One operation of a kernel, for all elements.

    Attributes:
        op: an operation of Inductor's, or ``load``, ``constant``, ``index``, ``masked``;
            ``reduce``, ``scan`` or ``sort``, which is all results of it, and ``part``, one of them;
            and ``operand``, what a scan's function is given.
        args: values and plain numbers.
        axes: the loops' axes that it depends on.
        level: how many reductions, one after the other, must be over before it can be computed.
        name: a load's buffer; a reduction's or scan's kind.
        index: a load's address, or an ``index``'s value.
        masks: a load's own conditions, besides those of the tile.
        word: what the reference calls it, or "".
        number: of a ``constant``, of a ``masked`` where its mask does not hold, of a ``part``, of
            an ``operand``.
    """

    op: str
    args: tuple[Any, ...]
    dtype: torch.dtype
    axes: frozenset[sympy.Symbol] = frozenset()
    level: int = 0
    name: str = ""
    index: sympy.Expr | None = None
    masks: tuple[Value, ...] = ()
    number: Any = None
    word: str = ""

    def inputs(self) -> Iterator[Value]:
        """Yield the values that it is computed from."""
        yield from (arg for arg in self.args if isinstance(arg, Value))
        yield from self.masks


def made_of(roots: Iterable[Value]) -> Iterator[Value]:
    """Yield some values and all that they are computed from, each once, behind its own inputs."""
    seen: set[int] = set()
    queue = [(value, False) for value in reversed(list(roots))]
    while queue:
        value, is_due = queue.pop()
        if is_due:
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            queue += [(value, True), *((one, False) for one in reversed(list(value.inputs())))]


def unconverted(value: Value) -> Value:
    """Return what a value was before it was converted."""
    return unconverted(value.args[0]) if value.op == "to_dtype" else value


NEGATED = {"le": "gt", "gt": "le", "lt": "ge", "ge": "lt", "eq": "ne", "ne": "eq"}
"""By a comparison of whole numbers the one that holds where it does not."""


def is_opposite(a: Value, b: Value) -> bool:
    """Whether an inequality holds just where another does not."""
    if a.op in ("eq", "ne") or NEGATED.get(a.op) != b.op:
        return False
    return a.args == b.args and not a.args[0].dtype.is_floating_point


@dataclass(frozen=True)
class StoredValue:
    """A result that goes to memory."""

    buffer: str
    index: sympy.Expr
    value: Value
    mode: str | None
    level: int


_UNPRINTABLE = {
    "bucketize": "a binary search",
    "dot": "a product",
    "inline_asm_elementwise": "inline assembly",
    "frexp": "frexp",
    "partial_accumulate": "a partial sum",
}
_UNPRINTABLE |= dict.fromkeys(("load_seed", "rand", "randn", "randint64"), "random numbers")

PARTS = {
    "welford_reduce": 3,
    "online_softmax_reduce": 2,
    "argmax_with_value": 2,
    "argmin_with_value": 2,
}
"""Reductions with more than one result: mean, squares and count; maximum and sum of exponentials;
the best number and its index."""

KINDS = ("sum", "prod", "max", "min", "any", "argmax", "argmin", *PARTS)


_MAY_DO_NOTHING = ("add", "mul", "truncdiv", "maximum")


def _unchanged(op: str, a: Value, b: Value) -> Value | None:
    """Return an operand that the other does not change: alpha and beta often are one."""
    if op == "maximum":  # a size less one, as a variance has it, is not negative
        return b if _is_zero(a) and _is_count(b) else a if _is_zero(b) and _is_count(a) else None
    neutral = 0 if op == "add" else 1
    if op == "add" and a.dtype.is_floating_point:
        return None
    for one, other in ((a, b), (b, a)) if op != "truncdiv" else ((a, b),):
        if other.op == "constant" and other.number == neutral and one.dtype == other.dtype:
            return one
    return None


def _without_zero(value: Any) -> Any:
    """Return what zero is added to: only a zero's sign, which no sum or product shows, differs."""
    if isinstance(value, Value) and value.op == "add" and value.dtype.is_floating_point:
        for one, other in (value.args, value.args[::-1]):
            if _is_zero(other):
                return one
    return value


def _is_zero(value: Value) -> bool:
    return value.op == "constant" and bool(value.number == 0)


def _is_count(value: Value) -> bool:
    """Whether a value is a size, or a size less one."""
    if value.op == "sub" and value.args[1].op == "constant" and value.args[1].number == 1:
        return _is_count(value.args[0])
    size = unconverted(value)
    least = size.index if size.op == "index" else None
    return least is not None and not size.axes and (least - 1).is_nonnegative is True


def _always(op: str, low: sympy.Expr, high: sympy.Expr) -> bool | None:
    """Return what a comparison gives by the least and largest difference of what it compares."""
    if op in ("ge", "gt", "ne"):
        found = _always(NEGATED[op], low, high)
        return None if found is None else not found
    yes, no = {
        "lt": (high.is_negative, low.is_nonnegative),
        "le": (high.is_nonpositive, low.is_positive),
        "eq": (low == high == 0, low.is_positive or high.is_negative),
    }[op]
    return True if yes else False if no else None


def indices(a: Value, b: Value) -> tuple[sympy.Expr, sympy.Expr] | None:
    """Return what is compared, if it is indices and whole numbers."""
    ends = []
    for one in (a, b):
        if one.dtype.is_floating_point or one.op not in ("constant", "index"):
            return None
        ends.append(sympy.Integer(one.number) if one.op == "constant" else one.index)
    return ends[0], ends[1]


def _other_of_true(a: Value, b: Value) -> Value | None:
    """Return what a conjunction is, if one of its parts is a constant."""
    for one, other in ((a, b), (b, a)):
        if one.op == "constant" and one.dtype == other.dtype == torch.bool:
            return other if one.number else one
    return None


_LOG_ADD_EXP = {"operand", "minimum", "maximum", "ne", "isinf", "bitwise_not", "bitwise_or", "sub"}
_LOG_ADD_EXP |= {"exp", "log1p", "add", "where"}
_LATER_EXTREME = {"operand", "where", "gt", "lt", "eq", "ne", "logical_or", "logical_and"}
"""What the functions of `logcumsumexp`, and of `cummax` and `cummin`, do."""


def _operations(value: Any) -> set[str]:
    """Return the operations of which a value is made."""
    return set().union({value.op}, *map(_operations, value.inputs()))


_WHOLE = {name: getattr(operator, name) for name in ("add", "sub", "mul")}
"""What is computed here where both operands are whole numbers."""


def _is_whole(value: Any) -> bool:
    return isinstance(value, Value) and value.op == "constant" and type(value.number) is int


_KEEP_SIGN = ("to_dtype", "trunc_to_int", "floor_to_int", "ceil_to_int", "round_to_int", "masked")


def _is_nonnegative(value: Any) -> bool:
    """Whether a number is known not to be negative, as an index from `interpolate` is."""
    if not isinstance(value, Value):
        return bool(value >= 0)
    if value.op == "constant":
        return bool(value.number >= 0)
    if value.op == "maximum":
        return any(map(_is_nonnegative, value.args))
    if value.op in ("minimum", "add", "mul", *_KEEP_SIGN):
        return all(map(_is_nonnegative, (*value.args, value.number or 0)))
    return value.op == "index"


class Recorder(private.DefaultHandler):  # type: ignore[misc]
    """Does a body's operations by making values; equal ones are made once."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.masks: list[Value] = []
        self.made: dict[Any, Value] = {}

    def make(
        self,
        op: str,
        args: tuple[Any, ...],
        dtype: torch.dtype,
        axes: frozenset[sympy.Symbol] = frozenset(),
        **more: Any,
    ) -> Value:
        known = tuple((k, str(v) if k == "number" else v) for k, v in more.items())
        identities = tuple(id(a) if isinstance(a, Value) else repr(a) for a in args)
        key = (op, identities, dtype, known)
        if key not in self.made:
            value = Value(op, args, dtype, **more)
            inputs = list(value.inputs())
            value.axes = axes.union(*(i.axes for i in inputs))
            value.level = max((i.level for i in inputs), default=0)
            self.made[key] = value
        value = self.made[key]
        value.word = value.word or private.current_word()
        return value

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in _UNPRINTABLE:
            raise Unprintable(_UNPRINTABLE[name])
        args = (*args, *kwargs.values())
        if name in ("add", "sub", "mul"):
            args = tuple(map(_without_zero, args))
        if name in _MAY_DO_NOTHING and (one := _unchanged(name, *args)) is not None:
            return one
        if name in _WHOLE and all(_is_whole(arg) for arg in args):
            found = _WHOLE[name](*(arg.number for arg in args))
            return self.constant(found, getattr(private.DTYPES, name)(*args))
        if name in NEGATED and (ends := indices(*args)):
            return self._compared(name, args, *ends)
        if name in CONJUNCTIONS and (one := _other_of_true(*args)) is not None:
            return one
        dtype = getattr(private.DTYPES, name)(*args)
        if name == "where" and args[0].op == "constant":
            chosen = args[1 if args[0].number else 2]
            if chosen.dtype == dtype:
                return chosen
        return self.make(name, args, dtype)

    def _compared(
        self, name: str, args: tuple[Value, ...], left: sympy.Expr, right: sympy.Expr
    ) -> Value:
        """Compare two indices, by what is always so, or with a number on one side only."""
        bounds = self._bounds(left - right)
        truth = _always(name, *bounds) if bounds else None
        if truth is not None:
            return self.constant(truth, torch.bool)
        if right.is_Integer:  # not x - 1 >= 0, but x >= 1
            more = left.as_coeff_Add()[0]
            moved = (left - more, args[0].dtype), (right - more, args[1].dtype)
            args = tuple(self.index_expr(*one) for one in moved)
        return self.make(name, args, torch.bool)

    def _bounds(self, index: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr] | None:
        """Return the least and the largest value of a sum of axes."""
        low = high = index = sympy.expand(index)
        for axis, length in self.loops.axes.items():
            stride = index.coeff(axis)
            if not stride.is_Integer or (index - stride * axis).has(axis):
                return None
            low = low.subs(axis, 0 if stride > 0 else length - 1)
            high = high.subs(axis, length - 1 if stride > 0 else 0)
        return sympy.expand(low), sympy.expand(high)

    def constant(self, value: Any, dtype: torch.dtype) -> Value:
        if isinstance(value, sympy.Expr):
            return self.index_expr(value, dtype)
        return self.make("constant", (), torch.float32 if dtype in HALF else dtype, number=value)

    def index_expr(self, expression: Any, dtype: torch.dtype) -> Value:
        found = self.loops.simplified(expression)
        if found.is_number and found.is_integer:
            return self.constant(int(found), dtype)
        self.loops.expressions.append(found)
        axes, inputs = self.loops.axes_of(found)
        return self.make("index", tuple(inputs), dtype, axes, index=found)

    value_expr = index_expr

    def to_dtype(
        self,
        x: Value,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> Value:
        if dtype in HALF and use_compute_types:
            dtype = torch.float32
        if x.dtype != dtype:
            return self.make("to_dtype", (x,), dtype)
        if x.op not in ("load", "rsqrt"):  # a buffer's name says more, or that of a part of a norm
            x.word = x.word or private.current_word()
        return x

    def load(self, name: str, index: Any) -> Value:
        if private.is_unset(name):
            return self.constant(0, private.buffer_dtype(name))
        name, index = self.loops.place(name, index)
        index = self.loops.simplified(index)
        if name in self.loops.stored:
            at, value = self.loops.stored[name]
            if sympy.expand(self.loops.index(at) - index) == 0:
                return value
            raise Unprintable("a kernel reads what it wrote at another place")
        self.loops.expressions.append(index)
        axes, inputs = self.loops.axes_of(index)
        dtype = private.buffer_dtype(name)
        dtype = torch.float32 if dtype in HALF else dtype
        masks = tuple(self.masks)
        return self.make("load", tuple(inputs), dtype, axes, name=name, index=index, masks=masks)

    def store(self, name: str, index: Any, value: Value, mode: str | None = None) -> None:
        name, index = self.loops.place(name, index)
        index = self.loops.simplified(index)
        self.loops.expressions.append(index)
        _, inputs = self.loops.axes_of(index)
        level = max(value.level, *(i.level for i in inputs), 0)
        value = _without_zero(value)
        value.word = value.word or private.buffer_word(name)
        self.loops.stores.append(StoredValue(name, index, value, mode, level))
        if mode is None:
            self.loops.stored[name] = index, value

    def store_reduction(self, name: str, index: Any, value: Value) -> None:
        self.store(name, index, value)

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any
    ) -> Any:
        if reduction_type in ("argmax_value", "argmin_value"):
            reduction_type = reduction_type[3:6]
        if reduction_type not in KINDS:
            raise Unprintable(f"a reduction of kind {reduction_type}")
        values = value if isinstance(value, tuple) else (value,)
        if len(values) > 1:  # from torch 2.15 on, argmax has the place as a value
            if reduction_type not in ("argmax", "argmin") or not self._is_place(values[1]):
                raise Unprintable("a reduction of several values")
            values = values[:1]
        if dtype in HALF:  # what is stored is rounded once, at the end
            dtype = torch.float32
        if reduction_type.endswith("with_value"):  # one for both results
            dtype = values[0].dtype
        made = self.make("reduce", values, dtype, name=reduction_type)
        made.level = values[0].level + 1
        made.axes = frozenset(self.loops.kept)
        parts = PARTS.get(reduction_type)
        if parts is None:
            return made
        types = [dtype] * parts
        if reduction_type.endswith("with_value"):
            types = [values[0].dtype, torch.int64]
        return self._parts(made, types)

    def parts_of(self, value: Value) -> list[Value]:
        """Return the single results of a value that is several."""
        return [v for v in self.made.values() if v.op == "part" and v.args[0] is value]

    def _parts(self, made: Value, dtypes: Iterable[torch.dtype]) -> tuple[Value, ...]:
        return tuple(self.make("part", (made,), t, number=i) for i, t in enumerate(dtypes))

    def _is_place(self, value: Value) -> bool:
        """Whether a value is the number of the element along the reduced axes."""
        place, step = sympy.S.Zero, sympy.S.One
        for axis in reversed(self.loops.reduced):
            place, step = place + axis * step, step * self.loops.axes[axis]
        return value.op == "index" and sympy.expand(value.index - place) == 0

    def scan(self, dtypes: Any, combine: Callable[..., Any], values: Any) -> tuple[Value, ...]:
        kind = self._scan_kind(dtypes, combine)
        dtypes = [torch.float32 if one in HALF else one for one in dtypes]
        made = self.make("scan", tuple(values), dtypes[0], frozenset(self.loops.reduced), name=kind)
        if len(values) == 1:
            return (made,)
        return self._parts(made, dtypes)

    def sort(self, dtypes: Any, values: Any, stable: bool, descending: bool) -> tuple[Value, ...]:
        axes, kind = frozenset(self.loops.reduced), "descending" if descending else "ascending"
        made = self.make("sort", tuple(values), dtypes[0], axes, name=kind)
        return self._parts(made, dtypes)

    def _scan_kind(self, dtypes: Any, combine: Callable[..., Any]) -> str:
        """Return the name of a scan's function, told by what it does with two operands."""
        a, b = (
            tuple(self.make("operand", (), t, number=(x, i)) for i, t in enumerate(dtypes))
            for x in "ab"
        )
        results = [getattr(found, "value", found) for found in combine(a, b)]
        first, used = results[0], set().union(*map(_operations, results))
        if len(results) == 1 and first.op in ("add", "mul") and first.args == (*a, *b):
            return {"add": "sum", "mul": "prod"}[first.op]
        if len(results) == 1 and used == _LOG_ADD_EXP:
            return "logsumexp"
        if len(results) == 2 and {"where", "gt", "eq"} <= used <= _LATER_EXTREME:
            return "min" if "lt" in used else "max"
        raise Unprintable("a scan with a function of its own")

    def masked(self, mask: Value, body: Callable[[], Value], other: Any) -> Value:
        if mask.op == "constant" and mask.number:
            return body()
        self.masks.append(mask)
        inner = body()
        self.masks.pop()
        if inner.dtype.is_floating_point:
            other = float(other)
        if mask.op == "constant" and inner.dtype not in HALF:
            return self.constant(other, inner.dtype)
        return self.make("masked", (mask, inner), inner.dtype, number=other)

    def indirect_indexing(
        self, x: Value, size: Any, check: bool = True, wrap_neg: bool = True
    ) -> sympy.Symbol:
        if not isinstance(x, Value):
            return x
        if wrap_neg and x.dtype.is_signed and not _is_nonnegative(x):
            end = self.index_expr(size, torch.int64)
            below = self.make("lt", (x, self.constant(0, torch.int64)), torch.bool)
            wrapped = self.make("add", (x, end), torch.int64)
            x = self.make("where", (below, wrapped, x), torch.int64)
        return self.loops.indirect(x)

    def check_bounds(self, *args: Any) -> None:
        return None

    def output(self, *args: Any) -> None:
        return None
