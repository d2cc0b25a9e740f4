"""What the code that `curate.verify.executor.code` writes calls: blocks of all programs at once.

A value is an array whose first axis counts programs; the other axes are those of Triton's block. An
axis of length one stands for any length: what is equal for all programs, or along an axis, is held
once. ``live`` says which programs are there; None means all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from curate.verify.executor import libdevice
from curate.verify.executor.memory import Access, Memory, OutOfBounds, Races
from curate.verify.executor.numbers import COMPUTED, STORED, decode, encode, rounder

Array = np.ndarray[Any, Any]
Values = tuple[Array, ...]
Code = Callable[..., Values]


class UnsupportedOperation(Exception):
    """The executor cannot do what a kernel asks for.

    Attributes:
        reason: a short code, such as ``inline_asm``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WorkExceeded(Exception):
    """A launch takes more work or time than it may."""


class DeviceAssert(Exception):
    """A ``tl.device_assert`` or ``tt.assert`` did not hold."""


class Work:
    """Bounds what one request may cost; the count is the executor's own.

    Args:
        elements: that may be loaded, stored, reduced or multiplied.
        seconds: of wall time.

    Attributes:
        kernel: that runs.
        broken: what kernels promised the compiler, and what did not hold.
        reached: the largest offset of 32 bits, in bytes, by kernel and base of an allocation.
    """

    def __init__(self, elements: float, seconds: float) -> None:
        self.left = elements
        self.kernel = ""
        self.broken: dict[str, None] = {}
        self.reached: dict[tuple[str, int], int] = {}
        self.deadline = time.monotonic() + seconds

    def spend(self, elements: int) -> None:
        """Count work."""
        self.left -= elements
        if self.left < 0:
            raise WorkExceeded("more elements than one request may touch")
        if time.monotonic() > self.deadline:
            raise WorkExceeded("more seconds than one request may take")


class Chunk:
    """Some programs of a launch, which run at the same time.

    Attributes:
        index: of each program along x, y, z: three arrays.
        programs: number of each, from 1.
        grid: how many programs the launch has along x, y, z.
    """

    def __init__(
        self,
        memory: Memory,
        races: Races,
        work: Work,
        order: np.random.Generator,
        index: tuple[Array, Array, Array],
        programs: Array,
        grid: tuple[int, int, int],
    ) -> None:
        self.memory, self.races, self.work, self.order = memory, races, work, order
        self.index, self.programs, self.grid = index, programs, grid

    # control flow

    def branch(self, live: Array | None, condition: Array, then: Code, other: Code) -> Values:
        """Run one region, or both where programs differ."""
        yes = condition if live is None else condition & live
        no = ~condition if live is None else ~condition & live
        if not no.any():
            return then(live)
        if not yes.any():
            return other(live)
        one, two = then(self.all(yes)), other(self.all(no))
        return tuple(choose(condition, a, b) for a, b in zip(one, two, strict=True))

    def all(self, live: Array) -> Array | None:
        """Return a mask of programs with one element each, or None where all are there."""
        if live.all():
            return None
        return np.broadcast_to(live, self.programs.shape) if live.ndim == 1 else live

    def loop(
        self, live: Array | None, low: Array, high: Array, step: Array, body: Code, *carried: Array
    ) -> Values:
        """Run a ``scf.for``, with masks where programs run it different numbers of times."""
        kind = low.dtype
        if live is not None:
            high = np.where(live, high, low)
        if low.size == high.size == step.size == 1:
            values: Values = carried
            for i in range(int(low[0]), int(high[0]), self._step(int(step[0]))):
                self.work.spend(len(self.programs))
                values = body(live, np.array([i], kind), *values)
            return values
        low64, high64, step64 = (x.astype(np.int64) for x in (low, high, step))
        self._step(int(step64.min()))
        counts = np.maximum(0, -((low64 - high64) // step64))
        values = carried
        for turn in range(int(counts.max(initial=0))):
            self.work.spend(len(self.programs))
            active = turn < counts
            index = (low64 + turn * step64).astype(kind)
            if active.all():
                values = body(live, index, *values)
                continue
            inside = active if live is None else active & live
            new = body(np.broadcast_to(inside, self.programs.shape), index, *values)
            values = tuple(choose(active, a, b) for a, b in zip(new, values, strict=True))
        return values

    @staticmethod
    def _step(step: int) -> int:
        if step <= 0:
            raise UnsupportedOperation("loop_step", f"a loop in steps of {step}")
        return step

    def repeat(self, live: Array | None, before: Code, body: Code, *carried: Array) -> Values:
        """Run a ``scf.while``; ``before`` returns the condition and what is passed on."""
        inside = np.ones(self.programs.shape, bool) if live is None else live
        values, results = carried, None
        while True:
            self.work.spend(len(self.programs))
            condition, *passed = before(self.all(inside), *values)
            results = (
                tuple(passed)
                if results is None
                else tuple(choose(inside, a, b) for a, b in zip(passed, results, strict=True))
            )
            inside = inside & condition
            if not inside.any():
                return results
            values = body(self.all(inside), *passed)

    # memory

    def _mask(self, live: Array | None, mask: Array | None, rank: int) -> Array | None:
        if live is None:
            return mask
        there = live.reshape(live.shape + (1,) * (rank - live.ndim))
        return there if mask is None else mask & there

    def load(
        self,
        live: Array | None,
        pointers: Array,
        mask: Array | None,
        other: Array | None,
        element: str,
    ) -> Array:
        """Return what memory holds; where the mask is false ``other``, or `undefined` numbers."""
        mask = self._mask(live, mask, pointers.ndim)
        if mask is not None:
            pointers, mask = np.broadcast_arrays(pointers, mask)
            if mask.all():
                mask = None
            elif not mask.any():
                if other is not None:
                    return other
                return undefined(pointers.shape, np.dtype(COMPUTED[element]), self.memory.blank)
            else:
                pointers = np.where(mask, pointers, pointers.flat[int(mask.argmax())])
        size = np.dtype(STORED[element]).itemsize
        self.work.spend(pointers.size)
        placed = self.memory.places(pointers, size, "load") if pointers.size else None
        if placed is not None:
            allocation, index = placed
            raw = allocation.view(STORED[element]).take(index)
            if self.races.watches(allocation):
                self._note_load(allocation, size, index, mask)
        else:
            raw = self._gather(pointers, size, element)
            self._note_scattered(pointers, size, mask)
        values = decode(raw, element)
        if mask is None:
            return values
        if other is None:
            other = undefined(values.shape, values.dtype, self.memory.blank)
        return np.where(mask, values, other)

    def _note_load(self, allocation: Any, size: int, index: Array, mask: Array | None) -> None:
        lanes = (len(self.programs), *index.shape[1:])
        index, who = np.broadcast_to(index, lanes), self._who(lanes)
        if mask is None:
            self.races.loaded(Access(allocation, size, index.ravel(), who.ravel()))
        else:
            mask = np.broadcast_to(mask, lanes)
            self.races.loaded(Access(allocation, size, index[mask], who[mask]))

    def _note_scattered(self, pointers: Array, size: int, mask: Array | None) -> None:
        """Note loads from several allocations."""
        if not self.races.on:
            return
        lanes = (len(self.programs), *pointers.shape[1:])
        there = slice(None) if mask is None else np.broadcast_to(mask, lanes).reshape(-1)
        addresses = np.broadcast_to(pointers, lanes).reshape(-1)[there]
        who = self._who(lanes).reshape(-1)[there]
        for allocation, index, chosen in self.memory.parts(addresses, size, "load"):
            if self.races.watches(allocation):
                self.races.loaded(Access(allocation, size, index, who[chosen]))

    def _who(self, shape: tuple[int, ...]) -> Array:
        programs = self.programs.reshape((-1,) + (1,) * (len(shape) - 1))
        return np.broadcast_to(programs, shape)

    def _gather(self, pointers: Array, size: int, element: str) -> Array:
        flat = np.ascontiguousarray(pointers).reshape(-1)
        raw = np.empty(flat.shape, STORED[element])
        for allocation, index, chosen in self.memory.parts(flat, size, "load"):
            raw[chosen] = allocation.view(STORED[element])[index]
        return raw.reshape(pointers.shape)

    def store(
        self, live: Array | None, pointers: Array, values: Array, mask: Array | None, element: str
    ) -> None:
        """Write a block to memory where the mask is true."""
        chosen = self._lanes(live, mask, pointers, values)
        if chosen is None:
            return
        addresses, given, who = chosen
        size = np.dtype(STORED[element]).itemsize
        self.work.spend(addresses.size)
        raw = encode(given, element)
        for allocation, index, which in self.memory.parts(addresses, size, "store"):
            view = allocation.view(STORED[element])
            if not self.races.on:
                view[index] = raw[which]
                continue
            bits, mine = allocation.view(f"u{size}"), raw[which].view(f"u{size}")
            access = Access(allocation, size, index, who[which])
            differs = bits[access.at] != mine
            view[access.at] = raw[which]
            self.races.stored(access, differs, bits[access.at] != mine)

    def _lanes(
        self, live: Array | None, mask: Array | None, pointers: Array, values: Array
    ) -> tuple[Array, Array, Array] | None:
        """Return addresses, values and programs of the lanes that store, in one dimension each."""
        mask = self._mask(live, mask, pointers.ndim)
        shapes = [pointers.shape, values.shape] + ([] if mask is None else [mask.shape])
        shape = np.broadcast_shapes((len(self.programs),) + (1,) * (pointers.ndim - 1), *shapes)
        addresses, given = (np.broadcast_to(x, shape) for x in (pointers, values))
        who = self._who(shape)
        if mask is None or mask.all():
            if not addresses.size:
                return None
            return addresses.reshape(-1), given.reshape(-1), who.reshape(-1)
        mask = np.broadcast_to(mask, shape)
        if not mask.any():
            return None
        return addresses[mask], given[mask], who[mask]

    def reach(self, live: Array | None, pointers: Array, offsets: Array, size: int) -> None:
        """Note how far offsets of 32 bits go, in elements of a size, that depend on more than
        constants; not where only some programs have them."""
        if live is None and offsets.size:
            at = self.work.kernel, self.memory.base(int(pointers.reshape(-1)[0]))
            far = int(offsets.max()) * size
            if far > self.work.reached.get(at, 0):
                self.work.reached[at] = far

    # promises to the compiler

    def assume(self, live: Array | None, condition: Array) -> None:
        """Note a ``tl.assume`` that does not hold."""
        if not (condition if live is None else condition | ~live).all():
            self.work.broken[f"{self.work.kernel}: tl.assume"] = None

    def promise(
        self, live: Array | None, value: Array, numbers: tuple[int, ...], step: int
    ) -> None:
        """Note a ``tl.multiple_of`` that does not hold: along each dimension the first of each run
        of numbers, one ``step`` apart, is a multiple."""
        if live is not None:
            there = np.broadcast_to(live.reshape(-1), self.programs.shape)
            value = np.broadcast_to(value, (len(there), *value.shape[1:]))[there]
        for axis, number in enumerate(numbers, 1):
            if number < 2:
                continue
            rows = np.moveaxis(value, axis, -1) if axis < value.ndim else value[..., None]
            begins = np.ones(rows.shape, bool)
            begins[..., 1:] = np.diff(rows, axis=-1) != step
            if (rows[begins] % number).any():
                self.work.broken[f"{self.work.kernel}: tl.multiple_of {number}"] = None

    # atomic operations

    def update(
        self,
        live: Array | None,
        pointers: Array,
        values: Array,
        mask: Array | None,
        how: str,
        element: str,
        used: bool,
        hands: int,
    ) -> Array:
        """Do an atomic operation, in a random order; return what memory held before each."""
        lanes = (len(self.programs), *np.broadcast_shapes(pointers.shape, values.shape)[1:])
        result = np.zeros(lanes, COMPUTED[element])
        chosen = self._shuffled(live, mask, lanes)
        if not chosen.size:
            return result
        addresses, given, who = (
            np.broadcast_to(x, lanes).reshape(-1)[chosen]
            for x in (pointers, values, self._who(lanes))
        )
        size = np.dtype(STORED[element]).itemsize
        fast = _AT.get(how) if not used and element in ("f32", "f64", "i32", "i64") else None
        for allocation, index, which in self.memory.parts(addresses, size, "atomic operation"):
            view = allocation.view(STORED[element])
            if fast is not None:
                fast.at(view, index, given[which])
            else:
                before = _one_after_other(view, index, given[which], how, element)
                result.reshape(-1)[chosen[which]] = before
            self.races.updated(Access(allocation, size, index, who[which]), hands)
        return result

    def _shuffled(self, live: Array | None, mask: Array | None, lanes: tuple[int, ...]) -> Array:
        """Return the numbers of the lanes that are there, in a random order."""
        mask = self._mask(live, mask, len(lanes))
        there = np.broadcast_to(True if mask is None else mask, lanes).reshape(-1)
        ascending = np.nonzero(there)[0]
        chosen = self.order.permutation(ascending)
        if (chosen == ascending).all():  # which would be right for who takes it for granted
            chosen = ascending[::-1]
        self.work.spend(4 * chosen.size)
        return chosen

    def compare_and_swap(
        self,
        live: Array | None,
        pointers: Array,
        expected: Array,
        values: Array,
        element: str,
        hands: int,
    ) -> Array:
        """Do ``tl.atomic_cas``, in a random order; return what memory held before each."""
        lanes = (
            len(self.programs),
            *np.broadcast_shapes(pointers.shape, values.shape, expected.shape)[1:],
        )
        result = np.zeros(lanes, COMPUTED[element])
        flat = [np.broadcast_to(x, lanes).reshape(-1) for x in (pointers, expected, values)]
        size = np.dtype(STORED[element]).itemsize
        who = self._who(lanes).reshape(-1)
        for lane in self._shuffled(live, None, lanes).tolist():
            address = int(flat[0][lane])
            allocation = self.memory.find(address, size, "atomic operation")
            view, at = allocation.view(STORED[element]), (address - allocation.base) // size
            held = decode(view[at : at + 1], element)
            result.reshape(-1)[lane] = held[0]
            if held[0] == flat[1][lane]:
                view[at : at + 1] = encode(flat[2][lane : lane + 1], element)
            access = Access(allocation, size, np.array([at]), who[lane : lane + 1])
            self.races.updated(access, hands)
        return result

    def require(self, live: Array | None, condition: Array, message: str) -> None:
        """Check an assertion of the kernel's."""
        mask = self._mask(live, None, condition.ndim)
        held = condition if mask is None else condition | ~mask
        if not held.all():
            raise DeviceAssert(message)


_AT: dict[str, np.ufunc] = {
    "fadd": np.add,
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _one_after_other(view: Array, index: Array, given: Array, how: str, element: str) -> Array:
    """Update elements so that each lane sees what those before it left."""
    before = np.zeros(len(index), COMPUTED[element])
    apply = _ATOMIC[how]
    left = np.arange(len(index))
    while left.size:  # in each turn, the first lane that is left of every element
        _, first = np.unique(index[left], return_index=True)
        now = left[np.sort(first)]
        held = decode(view[index[now]], element)
        before[now] = held
        view[index[now]] = encode(apply(held, given[now]), element)
        rest = np.ones(len(left), bool)
        rest[first] = False
        left = left[rest]
    return before


def _unsigned(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        kind = f"u{a.dtype.itemsize}"
        return function(a.view(kind), b.view(kind)).view(a.dtype)

    return apply


_ATOMIC: dict[str, Callable[[Array, Array], Array]] = {
    "fadd": lambda a, b: a + b,
    "add": lambda a, b: a + b,
    "max": np.maximum,
    "min": np.minimum,
    "umax": _unsigned(np.maximum),
    "umin": _unsigned(np.minimum),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "exch": lambda a, b: b,
}


# --- values -----------------------------------------------------------------------------------


def choose(condition: Array, one: Array, other: Array) -> Array:
    """Return, program by program, one value or the other."""
    if one is other:
        return one
    rank = max(one.ndim, other.ndim)
    if condition.ndim < rank:
        condition = condition.reshape(condition.shape + (1,) * (rank - condition.ndim))
    return np.where(condition, one, other)


def full(x: Array, shape: tuple[int, ...]) -> Array:
    """Return a block with its axes in their true lengths; no copy is made."""
    return np.broadcast_to(x, (x.shape[0], *shape))


def splat(x: Array, rank: int) -> Array:
    """Return a scalar as a block."""
    return x.reshape(x.shape[:1] + (1,) * rank)


def view_unsigned(x: Array) -> Array:
    """Return the bits of integers as unsigned numbers."""
    return x.view(f"u{x.dtype.itemsize}")


def as_unsigned(function: Callable[..., Any], *arrays: Array) -> Array:
    """Return what a function gives of unsigned numbers, as signed ones."""
    found: Array = function(*map(view_unsigned, arrays))
    signed: Array = found if found.dtype == bool else found.view(f"i{found.dtype.itemsize}")
    return signed


def divide(a: Array, b: Array) -> Array:
    """Return the quotient of integers, cut towards zero; by zero it is zero."""
    if a.size and b.size and int(a.min()) >= 0 and int(b.min()) > 0:
        return a // b
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    quotient += (quotient * safe != a) & ((a < 0) != (safe < 0))
    return np.where(b == 0, b.dtype.type(0), quotient)


def remainder(a: Array, b: Array) -> Array:
    """Return what `divide` leaves over, with the sign of ``a``."""
    if a.size and b.size and int(a.min()) >= 0 and int(b.min()) > 0:
        return a % b
    return np.where(b == 0, a.dtype.type(0), np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


def to_integer(x: Array, kind: str, unsigned: bool) -> Array:
    """Return floating numbers as integers, cut towards zero and to the type's range; NaN is 0."""
    bits = 8 * int(kind[1:])
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    clean = np.nan_to_num(
        np.trunc(x.astype(np.float64)), nan=0.0, posinf=float(high), neginf=float(low)
    )
    if bits < 64:
        whole = np.clip(clean, low, high).astype(np.int64)
        short: Array = whole.astype(f"u{bits // 8}").view(kind) if unsigned else whole.astype(kind)
        return short
    edge = float(high)
    inside = np.where(clean >= edge, 0.0, np.maximum(clean, low))
    whole = inside.astype(np.uint64).view(np.int64) if unsigned else inside.astype(np.int64)
    top = np.uint64(high).view(np.int64) if unsigned else np.int64(high)
    return np.where(clean >= edge, top, whole)


def multiply_high(a: Array, b: Array) -> Array:
    """Return the upper half of the product of unsigned integers."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = view_unsigned(a).astype(np.uint64) * view_unsigned(b).astype(np.uint64)
        upper: Array = (wide >> np.uint64(bits)).astype(f"u{bits // 8}").view(a.dtype)
        return upper
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x, y = view_unsigned(a), view_unsigned(b)
    x1, x0, y1, y0 = x >> half, x & low, y >> half, y & low
    middle = x1 * y0 + ((x0 * y0) >> half)
    high: Array = x1 * y1 + (middle >> half) + (((middle & low) + x0 * y1) >> half)
    return high.view(np.int64)


def library(symbol: str, kind: str, *arrays: Array) -> Array:
    """Return a libdevice function of arrays, in NumPy's type ``kind``."""
    function = libdevice.find(symbol)
    if function is None:
        raise UnsupportedOperation("library_function", f"{symbol} is not known here")
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    given = [np.ascontiguousarray(np.broadcast_to(x, shape)) for x in arrays]
    return np.asarray(function(*given)).astype(kind)


def gather(source: Array, index: Array, axis: int) -> Array:
    """Return elements of a block along an axis."""
    if index.size and (int(index.min()) < 0 or int(index.max()) >= source.shape[axis]):
        raise OutOfBounds("gather outside its block")
    lead = max(source.shape[0], index.shape[0])
    source = np.broadcast_to(source, (lead, *source.shape[1:]))
    index = np.broadcast_to(index, (lead, *index.shape[1:]))
    return np.take_along_axis(source, index, axis)


def histogram(x: Array, mask: Array | None, bins: int) -> Array:
    """Return how many elements of each program's block have each value."""
    lead = x.shape[0] if mask is None else max(x.shape[0], mask.shape[0])
    x = np.broadcast_to(x, (lead, *x.shape[1:]))
    there = np.broadcast_to(True if mask is None else mask, x.shape)
    values = np.where(there, x, 0)
    if values.size and (int(values.min()) < 0 or int(values.max()) >= bins):
        raise UnsupportedOperation(
            "histogram_range", "values outside the bins have no defined count"
        )
    place = values.astype(np.int64) + bins * np.arange(lead).reshape(-1, 1)
    counts = np.bincount(place[there], minlength=lead * bins)
    return counts.reshape(lead, bins).astype(np.int32)


FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""The numbers of the type e2m1 without sign, by their bits (OCP Microscaling Formats, 5.3.3)."""


def unscaled(
    x: Array, scale: Array | None, kind: str, computed: str, left: bool, packed_along: bool
) -> Array:
    """Return an operand of ``tl.dot_scaled`` as the numbers that it stands for.

    Args:
        x: two numbers per byte, the first in the lower bits, where ``kind`` is ``e2m1``.
        scale: exponents with a bias of 127, each for some elements in a row; 255 is NaN.
        kind: the operand's type.
        computed: the type in which Triton's compiler multiplies with the scale.
        left: whether sums go along its last axis, or the one before.
        packed_along: whether two numbers of a byte are neighbours along the sums.
    """
    if kind == "e2m1":
        bits = view_unsigned(x)
        values = np.concatenate([FLOAT4, -FLOAT4])
        axis = -1 if left == packed_along else -2
        parts = np.stack([values[bits & 15], values[bits >> 4]], x.ndim + 1 + axis)
        shape = list(x.shape)
        shape[axis] *= 2
        x = parts.reshape(shape)
    if scale is None:
        return x
    axis = -1 if left else -2
    exponents = view_unsigned(scale if left else scale.swapaxes(-1, -2))
    factors = np.where(exponents == 255, np.nan, np.ldexp(np.float32(1), exponents - np.int32(127)))
    factors = np.repeat(factors, x.shape[axis] // factors.shape[axis], axis)
    rounded = rounder(computed)
    assert rounded
    return rounded(x * factors.astype(np.float32))


# --- reductions -------------------------------------------------------------------------------

FOLDS: dict[str, np.ufunc] = {
    "arith.addf": np.add,
    "arith.addi": np.add,
    "arith.mulf": np.multiply,
    "arith.muli": np.multiply,
    "arith.maximumf": np.maximum,
    "arith.maxnumf": np.fmax,
    "arith.minimumf": np.minimum,
    "arith.minnumf": np.fmin,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}
"""Combining operations that NumPy folds by itself."""


def fold(work: Work, name: str, x: Array, axis: int) -> Array:
    """Reduce a block along an axis with one operation."""
    work.spend(x.size)
    found: Array = FOLDS[name].reduce(x, axis=axis, dtype=x.dtype)
    return found


def reduce(work: Work, combine: Code, axis: int, *blocks: Array) -> Values:
    """Reduce blocks along an axis, neighbours first, so that their order is kept."""
    parts = [np.moveaxis(block, axis, -1) for block in np.broadcast_arrays(*blocks)]
    length = parts[0].shape[-1]
    while length > 1:
        work.spend(parts[0].size)
        even = length - length % 2
        left = [part[..., 0:even:2] for part in parts]
        right = [part[..., 1:even:2] for part in parts]
        shape = left[0].shape
        made = [np.broadcast_to(m, shape) for m in combine(None, *left, *right)]
        if even < length:
            made = [np.concatenate([m, p[..., -1:]], -1) for m, p in zip(made, parts, strict=True)]
        parts, length = made, (length + 1) // 2
    return tuple(part[..., 0] for part in parts)


RUNNING: dict[str, np.ufunc] = {
    f"arith.{name}": FOLDS[f"arith.{name}"]
    for name in ("addf", "addi", "mulf", "muli", "maxsi", "minsi", "maximumf", "minimumf")
}


def running(work: Work, name: str, x: Array, axis: int, reverse: bool) -> Array:
    """Scan a block along an axis with one operation."""
    work.spend(x.size)
    x = np.flip(x, axis) if reverse else x
    found: Array = RUNNING[name].accumulate(x, axis=axis, dtype=x.dtype)
    return np.flip(found, axis) if reverse else found


def scan(work: Work, combine: Code, axis: int, reverse: bool, *blocks: Array) -> Values:
    """Scan blocks along an axis with any associative operation (Hillis and Steele, 1986)."""
    blocks = tuple(np.broadcast_arrays(*blocks))
    parts = [np.moveaxis(np.flip(b, axis) if reverse else b, axis, -1) for b in blocks]
    length, distance = parts[0].shape[-1], 1
    while distance < length:
        work.spend(parts[0].size)
        made = combine(
            None, *(p[..., :-distance] for p in parts), *(p[..., distance:] for p in parts)
        )
        parts = [
            np.concatenate([p[..., :distance], np.broadcast_to(m, p[..., distance:].shape)], -1)
            for p, m in zip(parts, made, strict=True)
        ]
        distance *= 2
    back = [np.moveaxis(part, -1, axis) for part in parts]
    return tuple(np.flip(b, axis) if reverse else b for b in back)


# --- the rest -----------------------------------------------------------------------------------


def nothing(live: Array | None) -> Values:
    """Do nothing: the branch that a ``scf.if`` lacks."""
    return ()


def fused(x: Array, y: Array, z: Array) -> Array:
    """Return ``x * y + z``, rounded once."""
    if x.dtype == np.float32:
        return (x.astype(np.float64) * y + z).astype(np.float32)
    return x * y + z


def joined(how: Callable[..., Array], *parts: Array, axis: int) -> Array:
    """Concatenate or stack blocks, some of which may be equal for all programs."""
    lead = max(part.shape[0] for part in parts)
    return how([np.broadcast_to(p, (lead, *p.shape[1:])) for p in parts], axis=axis)


def bitcast(x: Array, source: str, target: str) -> Array:
    """Return the bits of elements as another type's."""
    raw = np.ascontiguousarray(encode(x, source))
    return decode(raw.view(STORED[target]), target)


def returned(ends: list[tuple[Array, Values]]) -> Values:
    """Return, program by program, what the block gave in which it ended."""
    values = ends[0][1]
    for live, other in ends[1:]:
        values = tuple(choose(live, new, old) for new, old in zip(other, values, strict=True))
    return values


def undefined(shape: tuple[int, ...], dtype: np.dtype[Any], blank: bool = False) -> Array:
    """Return what lanes hold that a load leaves out: Triton says nothing of them.

    On a GPU it often is zero, which hides that a sum or a maximum takes it in. In some launches it
    is here, too (``blank``); in others every other lane is an ordinary number: no program can tell
    by one kind that it is judged.
    """
    if blank:
        return np.zeros(shape, dtype)
    if dtype.kind == "f":
        kinds: tuple[Any, ...] = np.nan, 0.71
    elif dtype.kind == "b":
        kinds = True, False
    else:
        kinds = int.from_bytes(b"\x5a" * dtype.itemsize, "big"), 3
    lanes = np.empty(math.prod(shape), dtype)
    lanes[::2], lanes[1::2] = kinds
    return lanes.reshape(shape)
