"""What each operation of a loop's body is called in Triton."""

from __future__ import annotations

import math
from typing import Any

import torch

TYPES = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}

BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "mul_rn": "*",
    "truediv": "/",
    "div_rn": "/",
    "int_truediv": "/",
    "truncdiv": "//",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "bitwise_left_shift": "<<",
    "bitwise_right_shift": ">>",
}

_LIBDEVICE = """
tanh log1p expm1 tan asin acos atan sinh cosh asinh acosh atanh erfc erfinv erfcx lgamma atan2 hypot
log10 copysign pow nextafter trunc fmod
"""

FUNCTIONS = {name: f"libdevice.{name}" for name in _LIBDEVICE.split()}
FUNCTIONS |= {
    "exp": "tl.exp",
    "exp2": "tl.exp2",
    "log": "tl.log",
    "log2": "tl.log2",
    "rsqrt": "tl.rsqrt",
    "sqrt": "tl.sqrt_rn",
    "abs": "tl.abs",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "sigmoid": "tl.sigmoid",
    "erf": "tl.erf",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
    "fma": "tl.fma",
    "where": "tl.where",
    "round": "libdevice.nearbyint",
    "ndtr": "libdevice.normcdf",
    "ndtri": "libdevice.normcdfinv",
    "bessel_j0": "libdevice.j0",
    "bessel_j1": "libdevice.j1",
    "bessel_y0": "libdevice.y0",
    "bessel_y1": "libdevice.y1",
    "modified_bessel_i0": "libdevice.cyl_bessel_i0",
    "modified_bessel_i1": "libdevice.cyl_bessel_i1",
    "i0": "libdevice.cyl_bessel_i0",
    "i1": "libdevice.cyl_bessel_i1",
}

TO_INTEGER = {
    "trunc_to_int": "{}",
    "floor_to_int": "tl.floor({})",
    "ceil_to_int": "tl.ceil({})",
    "round_to_int": "libdevice.nearbyint({})",
}

NOUNS = {
    "truediv": "quotient",
    "sub": "difference",
    "add": "total",
    "mul": "scaled",
    "where": "chosen",
    "maximum": "larger",
    "minimum": "smaller",
    "sqrt": "root",
    "rsqrt": "inverse_root",
    "square": "squared",
    "neg": "negated",
    "exp": "exponential",
    "masked": "padded",
    "to_dtype": "converted",
    "index": "position",
    "lt": "below",
    "le": "at_most",
    "gt": "above",
    "ge": "at_least",
    "eq": "same",
    "ne": "differs",
    "reciprocal": "inverse",
    "abs": "magnitude",
}
"""What a variable with an operation's result is called, if not as the operation."""

HELPERS = {
    "PRECISION": """
# Factors in float32 are cut into three parts of bfloat16: as exact as float32, on tensor cores.
PRECISION = tl.constexpr("bf16x6")
""",
    "TILES": """
TILES = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32, "GROUP_M": 8}, num_warps=warps, num_stages=3
    )
    for m, n, warps in ((32, 32, 2), (64, 64, 4), (128, 64, 8), (128, 128, 8))
]
""",
    "multiply": """
@triton.jit
def multiply(a, b):
    return a * b
""",
    "nan_maximum": '''
@triton.jit
def nan_maximum(a, b):
    """Return the larger number; NaN if there is one, as in PyTorch."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "nan_minimum": '''
@triton.jit
def nan_minimum(a, b):
    """Return the smaller number; NaN if there is one, as in PyTorch."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "floor_divide": '''
@triton.jit
def floor_divide(a, b):
    """Divide integers towards minus infinity; `//` goes towards zero."""
    return a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to(tl.int32)
''',
    "floor_modulo": '''
@triton.jit
def floor_modulo(a, b):
    """Return the remainder with the divisor's sign; `%` has the dividend's."""
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
''',
    "float_modulo": '''
@triton.jit
def float_modulo(a, b):
    """Return the remainder with the divisor's sign."""
    remainder = libdevice.fmod(a, b)
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
''',
}
"""Functions that kernels call, by name."""


def literal(value: Any, dtype: torch.dtype) -> str:
    """Return a number's text."""
    if dtype == torch.bool:
        return "True" if value else "False"
    if dtype.is_floating_point:
        number = float(value)
        return repr(number) if math.isfinite(number) else f'float("{number}")'
    return repr(int(value))


def least(dtype: torch.dtype) -> Any:
    """Return what every number of a type is at least."""
    if dtype == torch.bool:
        return 0
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def largest(dtype: torch.dtype) -> Any:
    """Return what every number of a type is at most."""
    if dtype == torch.bool:
        return 1
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max
