"""Functions of NVIDIA's libdevice and AMD's OCML, by symbol, computed with NumPy and PyTorch.

Kernels call them by name, and TTIR holds no text of theirs. Values are computed in float64 and
rounded once, which is at least as exact as the libraries (CUDA Math API, "Mathematical Functions":
0 to a few ulp). The variants that round towards zero or an infinity are left out: NumPy has no such
mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def _torch(name: str) -> Function:
    """Return the function ``torch.special.<name>`` on arrays."""
    special = getattr(torch.special, name)

    def apply(*arrays: Array) -> Array:
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        result: Array = special(*tensors).numpy()
        return result

    return apply


_gammaln = _torch("gammaln")


def _round_half_away(x: Array) -> Any:
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def _tgamma(x: Array) -> Any:
    sign = np.where((x < 0) & (np.floor(x) % 2 != 0), -1.0, 1.0)
    value = sign * np.exp(_gammaln(x))
    pole = (x < 0) & (x == np.floor(x))
    return np.where(pole, np.nan, np.where(x == 0, np.copysign(np.inf, x), value))


def _remainder(x: Array, y: Array) -> Any:
    """Return the IEEE 754 remainder, whose quotient is rounded to nearest even."""
    below = np.fmod(x, 2 * y)
    return np.where(np.isinf(y) & np.isfinite(x), x, below - y * np.rint(below / y))


def _fdim(x: Array, y: Array) -> Any:
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x - y, 0.0))


def _norm(*parts: Array) -> Any:
    return np.sqrt(sum(part * part for part in parts))


def _power_of_two(x: Array, exponent: Array) -> Any:
    return np.ldexp(x, exponent.astype(np.int32))


def _exponent(x: Array) -> Any:
    return np.where(x == 0, -np.inf, np.where(np.isinf(x), np.inf, np.frexp(x)[1] - 1.0))


UNARY: dict[str, Function] = {
    **{
        name: getattr(np, name)
        for name in (
            *("cbrt", "ceil", "floor", "rint", "trunc", "sqrt", "fabs", "cos", "cosh", "sin"),
            *("sinh", "tan", "tanh", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2"),
        )
    },
    **{
        f"a{name}": getattr(np, f"arc{name}")
        for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")
    },
    **{name: _torch(name) for name in ("erf", "erfc", "erfcx", "erfinv")},
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "cyl_bessel_i0": _torch("i0"),
    "cyl_bessel_i1": _torch("i1"),
    "erfcinv": lambda x: _torch("erfinv")(1.0 - x),
    "exp10": lambda x: np.power(10.0, x),
    "j0": _torch("bessel_j0"),
    "j1": _torch("bessel_j1"),
    "lgamma": _gammaln,
    "logb": _exponent,
    "nearbyint": np.rint,
    "normcdf": _torch("ndtr"),
    "normcdfinv": _torch("ndtri"),
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "round": _round_half_away,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
    "tgamma": _tgamma,
    "y0": _torch("bessel_y0"),
    "y1": _torch("bessel_y1"),
}

OTHER_FLOAT: dict[str, Function] = {
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "fdim": _fdim,
    "fma": lambda x, y, z: x * y + z,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "ldexp": _power_of_two,
    "norm3d": _norm,
    "norm4d": _norm,
    "pow": np.power,
    "powi": lambda x, exponent: np.power(x, exponent.astype(np.float64)),
    "remainder": _remainder,
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "rnorm3d": lambda *parts: 1.0 / _norm(*parts),
    "rnorm4d": lambda *parts: 1.0 / _norm(*parts),
    "scalbn": _power_of_two,
}

ROUNDINGS: dict[str, Function] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rd": np.floor,
    "ru": np.ceil,
}

ROUNDED: dict[str, Function] = {
    "add": np.add,
    "div": np.divide,
    "mul": np.multiply,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "sub": np.subtract,
}
"""Arithmetic with the rounding in its name; only to nearest even (``rn``) is offered."""

TO_INTEGER: dict[str, Function] = {
    "ilogb": _exponent,
    "llrint": np.rint,
    "llround": _round_half_away,
}

PREDICATES: dict[str, Function] = {
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "signbit": np.signbit,
}

OCML_NAMES = {
    "i0": "cyl_bessel_i0",
    "i1": "cyl_bessel_i1",
    "pown": "powi",
}
"""Names of OCML that differ from those of libdevice."""


def _float_table() -> dict[str, Function]:
    table: dict[str, Function] = {}
    for name, function in (UNARY | OTHER_FLOAT | TO_INTEGER).items():
        table[f"__nv_{name}"] = table[f"__nv_{name}f"] = function
        table[f"__ocml_{name}_f32"] = table[f"__ocml_{name}_f64"] = function
    for name, function in PREDICATES.items():
        table[f"__nv_{name}f"] = table[f"__nv_{name}d"] = function
        table[f"__nv_{name}ed"] = function  # isfinited, as well as finitef
        table[f"__ocml_{name}_f32"] = table[f"__ocml_{name}_f64"] = function
    for name, nv_name in OCML_NAMES.items():
        for size in ("f32", "f64"):
            table[f"__ocml_{name}_{size}"] = table[f"__nv_{nv_name}"]
    for name, function in ROUNDED.items():
        table[f"__nv_f{name}_rn"] = table[f"__nv_d{name}_rn"] = function
    for name, function in ROUNDINGS.items():
        for kind in ("int", "uint", "ll", "ull"):
            table[f"__nv_float2{kind}_{name}"] = table[f"__nv_double2{kind}_{name}"] = function
    for kind in ("int", "uint", "ll", "ull"):
        table[f"__nv_{kind}2float_rn"] = table[f"__nv_{kind}2double_rn"] = np.asarray
    for name in ("cos", "exp", "exp10", "log", "log10", "log2", "sin", "tan"):
        table[f"__nv_fast_{name}f"] = UNARY[name]
    table |= {
        "__nv_fast_powf": np.power,
        "__nv_fast_fdividef": np.divide,
        "__nv_frsqrt_rn": UNARY["rsqrt"],
        "__nv_fma_rn": OTHER_FLOAT["fma"],
        "__nv_fmaf_rn": OTHER_FLOAT["fma"],
        "__nv_saturatef": UNARY["saturate"],
        "__triton_hip_fabs": np.abs,
        "__triton_hip_fast_expf": np.exp,
        "__triton_hip_fast_fdividef": np.divide,
        "__triton_hip_fast_tanhf": np.tanh,
        "__triton_hip_llrint": np.rint,
        "__triton_hip_rint": np.rint,
    }
    return table


def _count_leading_zeros(x: Array) -> Any:
    bits = 8 * x.itemsize
    wide = x.view(f"u{x.itemsize}")
    length = sum(
        (wide >> np.array(shift, wide.dtype) != 0).astype(np.int32) for shift in range(bits)
    )
    return bits - length


def _find_first_set(x: Array) -> Any:
    lowest = x & -x
    return np.where(x == 0, 0, 8 * x.itemsize - _count_leading_zeros(lowest))


def _count_bits(x: Array) -> Any:
    return np.bitwise_count(x.view(f"u{x.itemsize}"))  # of a signed number it would count |x|'s


def _reverse_bits(x: Array) -> Any:
    bits = np.unpackbits(np.ascontiguousarray(x).reshape(-1, 1).view(np.uint8), axis=1)
    return np.packbits(bits[:, ::-1], axis=1).view(x.dtype).reshape(x.shape)


def _multiply_high(x: Array, y: Array) -> Any:
    bits = 8 * x.itemsize
    return ((x.astype(object) * y.astype(object)) >> bits).astype(x.dtype)


def _multiply_24(x: Array, y: Array) -> Any:
    shift = np.array(8, x.dtype)
    return ((x << shift) >> shift) * ((y << shift) >> shift)


def _average(x: Array, y: Array, rounded: int) -> Any:
    return ((x.astype(np.int64) + y.astype(np.int64) + rounded) >> 1).astype(x.dtype)


_INTEGER: dict[str, Function] = {
    "__nv_abs": np.abs,
    "__nv_llabs": np.abs,
    "__triton_hip_iabs": np.abs,
    **dict.fromkeys(("__nv_brev", "__nv_brevll"), _reverse_bits),
    **dict.fromkeys(("__nv_clz", "__nv_clzll"), _count_leading_zeros),
    **dict.fromkeys(("__nv_ffs", "__nv_ffsll"), _find_first_set),
    **dict.fromkeys(("__nv_popc", "__nv_popcll"), _count_bits),
    "__nv_hadd": lambda x, y: _average(x, y, 0),
    "__nv_uhadd": lambda x, y: _average(x, y, 0),
    "__nv_rhadd": lambda x, y: _average(x, y, 1),
    "__nv_urhadd": lambda x, y: _average(x, y, 1),
    "__nv_mul24": _multiply_24,
    "__nv_umul24": _multiply_24,
    **dict.fromkeys(("__nv_mulhi", "__nv_umulhi", "__nv_mul64hi", "__nv_umul64hi"), _multiply_high),
    "__nv_float_as_int": lambda x: x.view(np.int32),
    "__nv_float_as_uint": lambda x: x.view(np.uint32),
    "__nv_int_as_float": lambda x: x.view(np.float32),
    "__nv_uint_as_float": lambda x: x.view(np.float32),
    "__nv_double_as_longlong": lambda x: x.view(np.int64),
    "__nv_longlong_as_double": lambda x: x.view(np.float64),
    # The step between two floats depends on their type, so float64 would not do.
    **dict.fromkeys(("__nv_nextafter", "__nv_nextafterf"), np.nextafter),
    **dict.fromkeys(("__ocml_nextafter_f32", "__ocml_nextafter_f64"), np.nextafter),
}
"""Functions that see their arguments as they are, not widened to float64."""

_FLOAT = _float_table()


def find(symbol: str) -> Function | None:
    """Return the function behind a library symbol, or None when there is none here.

    It takes arrays of one shape and returns one of that shape, in a type wide enough to be cast
    to the symbol's own.
    """
    if symbol in _INTEGER:
        return _INTEGER[symbol]
    function = _FLOAT.get(symbol)
    if function is None:
        return None

    def widened(*arrays: Array) -> Any:
        return function(*(x.astype(np.float64) if x.dtype.kind == "f" else x for x in arrays))

    return widened
