"""How elements of each type lie in memory, are rounded (TF32 too) and are computed with.

Arrays hold float16, bfloat16 and float8 numbers as float32, and every operation on them rounds its
result to their type, as their hardware does. Integers wrap around.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from curate.verify.executor.ttir import Type

Array = np.ndarray[Any, Any]

STORED = {
    "i1": "u1",
    "i8": "i1",
    "i16": "i2",
    "i32": "i4",
    "i64": "i8",
    "index": "i8",
    "ptr": "i8",
    "f16": "f2",
    "bf16": "u2",
    "f32": "f4",
    "f64": "f8",
    "f8E4M3FN": "u1",
    "f8E5M2": "u1",
    "f8E4M3FNUZ": "u1",
    "f8E5M2FNUZ": "u1",
}
"""NumPy's type of an element in memory."""

COMPUTED = {
    kind: {"i1": "?", "f16": "f4", "bf16": "f4"}.get(kind, "f4" if kind[:2] == "f8" else stored)
    for kind, stored in STORED.items()
}
"""NumPy's type of an element in a block."""

FLOAT8 = {
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
}
SATURATING = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0}
"""The largest numbers of types to which NVIDIA converts with ``satfinite`` (PTX ISA, ``cvt``)."""


class UnsupportedType(Exception):
    """A type that has no counterpart here."""


def element_size(kind: Type) -> int:
    """Return the bytes of an element in memory."""
    if kind.element not in STORED:
        raise UnsupportedType(f"elements of type {kind.element}")
    return np.dtype(STORED[kind.element]).itemsize


@cache
def _float8_values(element: str) -> Array:
    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    values: Array = codes.view(FLOAT8[element]).float().numpy()
    return values


def decode(raw: Array, element: str) -> Array:
    """Return elements as a block holds them, from what memory holds."""
    if element == "f16":
        return _from_half(torch.from_numpy(np.ascontiguousarray(raw)))
    if element == "bf16":
        wide: Array = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return wide
    if element == "i1":
        truth: Array = raw != 0
        return truth
    if element in FLOAT8:
        values: Array = _float8_values(element)[raw]
        return values
    return raw


def encode(values: Array, element: str) -> Array:
    """Return what memory holds of a block's elements, rounded to nearest even."""
    if element == "f16":
        halves: Array = _to_half(values).numpy()
        return halves
    if element == "bf16":
        rounded = _round_bf16(np.ascontiguousarray(values, np.float32))
        return (rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if element == "i1":
        return values.astype(np.uint8)
    if element in FLOAT8:
        return _to_float8(values, element)
    return values


def _to_half(values: Array) -> torch.Tensor:
    """Return numbers in float16, by the processor's instruction, which NumPy does not use."""
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).half()


def _from_half(halves: torch.Tensor) -> Array:
    found: Array = halves.float().numpy()
    return found


def _to_float8(values: Array, element: str) -> Array:
    numbers = np.ascontiguousarray(values, np.float32)
    if limit := SATURATING.get(element):
        numbers = np.clip(numbers, -limit, limit)  # NaN stays NaN
    found: Array = torch.from_numpy(numbers).to(FLOAT8[element]).view(torch.uint8).numpy()
    return found


def _round_bf16(values: Array) -> Array:
    rounded: Array = torch.from_numpy(values).bfloat16().float().numpy()
    if _is_finite(rounded):
        return rounded
    return np.where(np.isnan(rounded), np.float32(np.nan), rounded)  # all NaN are one


def _is_finite(x: Array) -> bool:
    """Whether all is finite, as far as a sum can tell, which is fast: False if that overflows."""
    return bool(np.isfinite(x.sum()))


def rounder(element: str) -> Callable[[Array], Array] | None:
    """Return what rounds float32 numbers to a shorter type; None where nothing is to be done."""
    if element == "f16":
        return lambda x: _from_half(_to_half(x))
    if element == "bf16":
        return lambda x: _round_bf16(np.ascontiguousarray(x, np.float32))
    if element in FLOAT8:
        return lambda x: decode(_to_float8(x, element), element)
    return None


def convert_float(x: Array, source: str, target: str, toward_zero: bool = False) -> Array:
    """Return floating numbers of one type as another's, rounded to nearest even or towards zero."""
    wide = x.astype(COMPUTED[target]) if COMPUTED[target] != COMPUTED[source] else x
    if target not in ("f32", "f64"):
        if source == "f64":
            wide = x.astype(np.float16).astype(np.float32) if target == "f16" else wide
        result = rounder(target)(wide)  # type: ignore[misc]
    else:
        result = wide
    if not toward_zero:
        return result
    further = np.abs(result.astype(np.float64)) > np.abs(x.astype(np.float64))
    if target == "f32":
        return np.where(further, np.nextafter(result, np.float32(0)), result)
    raw = encode(result, target)
    return decode(
        raw - further.astype(raw.dtype)
        if raw.dtype.kind == "u"
        else (raw.view(np.uint16) - further).astype(np.uint16).view(np.float16),
        target,
    )


# --- matrix products --------------------------------------------------------------------------


def _cut_to_tf32(x: Array) -> Array:
    """Return float32 numbers as a tensor core reads them: the last 13 bits do not count."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _round_to_tf32(x: Array) -> Array:
    """Return float32 numbers rounded as ``cvt.rna.tf32`` does."""
    return _cut_to_tf32((x.view(np.uint32) + np.uint32(0x1000)).view(np.float32))


SPLITS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "tf32": (1, _cut_to_tf32),
    "tf32x3": (2, _round_to_tf32),
    "bf16x3": (2, _round_bf16),
    "bf16x6": (3, _round_bf16),
}
"""By precision: in how many parts, and how rounded, a float32 operand goes into a product."""

LARGEST_BF16 = float(torch.finfo(torch.bfloat16).max)

WHOLE = "bf16x6"
"""The precision whose parts hold all 24 bits of a float32: its product is that of float32."""

ACCUMULATED = 16
"""Products that a tensor core adds before it rounds to a float16 accumulator (PTX ISA, mma)."""


def _fits_bf16(x: Array) -> bool:
    """Whether no part of a float32 operand is infinite or NaN."""
    return not x.size or bool(np.abs(x).max() <= LARGEST_BF16)  # False with a NaN


def _split(x: Array, parts: int, rounded: Callable[[Array], Array]) -> list[Array]:
    rest = np.ascontiguousarray(x)
    result = [rounded(rest)]
    while len(result) < parts:
        rest = _without_nan(rest - result[-1])  # of infinity, nothing is left
        result.append(rounded(rest))
    return result


def _without_nan(x: Array, infinity: float | None = None) -> Array:
    """Return ``nan_to_num`` of an array; where all is finite, the array itself."""
    if _is_finite(x):
        return x
    found: Array = np.nan_to_num(
        x, nan=0.0, posinf=infinity, neginf=None if infinity is None else -infinity
    )
    return found


def multiply(a: Array, b: Array, element: str, precision: str) -> Array:
    """Return products of matrices (the last two axes), added up in float32 or wider.

    Where float32 operands are split, the products of the smallest parts are left out, and those of
    all but the largest count as nothing where they are NaN, as infinity times a part of zero is: so
    does Triton (``F32DotTC.cpp``). Integers are multiplied exactly.
    """
    if a.dtype.kind in "iub":
        exact: Array = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return exact.astype(np.int64)
    whole = element != "f32" or precision not in SPLITS
    if whole or (precision == WHOLE and _fits_bf16(a) and _fits_bf16(b)):
        product: Array = np.matmul(a, b)
        return product
    parts, rounded = SPLITS[precision]
    lefts, rights = _split(a, parts, rounded), _split(b, parts, rounded)
    pairs = [(i, j) for i in range(parts) for j in range(parts - i)]
    total: Array = np.matmul(lefts[0], rights[0])
    if len(pairs) > 1:
        small = sum(np.matmul(lefts[i], rights[j]) for i, j in reversed(pairs[1:]))
        total = total + _without_nan(small, np.inf)
    return total


def dot(a: Array, b: Array, c: Array, operand: str, result: str, precision: str) -> Array:
    """Return ``c + a @ b`` in the type of ``c``; the arrays have an axis for programs in front."""
    if result != "f16":
        total = c + multiply(a, b, operand, precision)
        if result == "bf16":
            return _round_bf16(total)
        return total.astype(COMPUTED[result], copy=False)
    total = c
    for k in range(0, a.shape[-1], ACCUMULATED):
        part = multiply(
            a[..., k : k + ACCUMULATED], b[..., k : k + ACCUMULATED, :], operand, precision
        )
        total = _from_half(_to_half(total + part))
    return total
