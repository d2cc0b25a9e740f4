"""What each operation of a loop's body is called in Triton."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch


def pairs(text: str) -> dict[str, str]:
    """Return what a text says in which names and what they stand for come by turns."""
    told = text.split()
    return dict(zip(told[::2], told[1::2], strict=True))


_SAME = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8"
TYPES = {getattr(torch, name): f"tl.{name}" for name in _SAME.split()}
TYPES |= {torch.bool: "tl.int1"}
TYPES |= {torch.float8_e4m3fn: "tl.float8e4nv", torch.float8_e5m2: "tl.float8e5"}

BINARY = pairs("""
add + sub - mul * mul_rn * truediv / div_rn / int_truediv / truncdiv // mod %
lt < le <= gt > ge >= eq == ne != and_ & or_ | xor ^
logical_and & logical_or | logical_xor ^ bitwise_and & bitwise_or | bitwise_xor ^
lshift << rshift >> bitwise_left_shift << bitwise_right_shift >>
""")

UNARY = {
    "neg": "(-{})",
    "reciprocal": "(1.0 / {})",
    "logical_not": "({} == 0)",
    "bitwise_not": "(~{})",
    "identity": "{}",
    "isinf": '(tl.abs({}) == float("inf"))',
}

_TRITON = "exp exp2 log log2 rsqrt abs sin cos sigmoid erf floor ceil fma where"
_LIBDEVICE = """
tanh log1p expm1 tan asin acos atan sinh cosh asinh acosh atanh erfc erfinv erfcx lgamma atan2 hypot
log10 copysign pow nextafter trunc fmod
"""
FUNCTIONS = {name: f"tl.{name}" for name in _TRITON.split()} | {"sqrt": "tl.sqrt_rn"}
FUNCTIONS |= {name: f"libdevice.{name}" for name in _LIBDEVICE.split()}
FUNCTIONS |= {
    name: f"libdevice.{theirs}"
    for name, theirs in pairs("""
    round nearbyint ndtr normcdf bessel_j0 j0 bessel_j1 j1 bessel_y0 y0 bessel_y1 y1
    i0 cyl_bessel_i0 modified_bessel_i0 cyl_bessel_i0
    i1 cyl_bessel_i1 modified_bessel_i1 cyl_bessel_i1
    """).items()
}

TO_INTEGER = {
    "trunc_to_int": "{}",
    "floor_to_int": "tl.floor({})",
    "ceil_to_int": "tl.ceil({})",
    "round_to_int": "libdevice.nearbyint({})",
}

CONJUNCTIONS = ("and_", "logical_and", "bitwise_and")
DISJUNCTIONS = ("or_", "logical_or", "bitwise_or")

NOUNS = pairs("""
truediv quotient truncdiv quotient sub difference add added mul scaled where chosen maximum larger
minimum smaller sqrt root rsqrt inverse_root square squared neg negated exp exponential
masked padded to_dtype converted index position lt below le at_most gt above ge at_least eq same
ne differs reciprocal inverse abs magnitude
""")
NOUNS |= dict.fromkeys(CONJUNCTIONS, "both") | dict.fromkeys(DISJUNCTIONS, "either")
"""What a variable with an operation's result is called, if not as the operation."""

HELPERS = {
    "PRECISION": """
# Factors that are float32 are cut into three parts of bfloat16: as exact, on tensor cores.
PRECISION = tl.constexpr("bf16x6")
""",
    "TF32": """
# The reference allows it: tensor cores read ten bits of each factor in float32.
TF32 = tl.constexpr("tf32")
""",
    "TILES": """
TILES = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_warps=warps, num_stages=stages
    )
    for m, n, k, warps, stages in (
        (32, 32, 32, 2, 3),
        (16, 64, 128, 4, 4),
        (64, 64, 32, 4, 3),
        (128, 64, 32, 8, 3),
        (128, 128, 16, 8, 3),
        (64, 64, 64, 4, 4),
        (64, 128, 64, 4, 3),
        (64, 128, 128, 4, 3),
        (128, 128, 64, 8, 3),
        (128, 128, 64, 4, 3),
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
    )
]
""",
    "BYTE_TILES": """
BYTE_TILES = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_warps=warps, num_stages=3
    )
    for m, n, k, warps in (
        (32, 32, 128, 2),
        (64, 64, 64, 4),
        (64, 128, 128, 4),
        (128, 64, 128, 4),
        (128, 128, 64, 8),
        (128, 128, 128, 8),
        (128, 256, 64, 8),
    )
]
""",
    "fitting": '''
def fitting(configs, named_args, **kwargs):
    """Return the tiles whose loads in flight fit into 128 KiB, or 64 KiB in float32.

    Factors in float32 are cut into three parts, which need room as well. A tuner skips tiles that a
    device cannot hold.
    """
    *sizes, _ = (x.element_size() for x in named_args.values() if isinstance(x, torch.Tensor))

    def waiting(tile):
        return (tile["BLOCK_M"] + tile["BLOCK_N"]) * tile["BLOCK_K"] * max(sizes)

    return [c for c in configs if (c.num_stages - 1) * waiting(c.kwargs) <= 2**18 // max(sizes)]
''',
    "ATTENTION_TILES": """
ATTENTION_TILES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=warps, num_stages=stages)
    for m, n, warps, stages in (
        (16, 16, 2, 2),
        (32, 32, 4, 2),
        (64, 32, 4, 2),
        (64, 64, 4, 3),
        (128, 64, 8, 3),
    )
]
""",
    "fitting_tiles": '''
def fitting_tiles(configs, named_args, **blocks):
    """Return the tiles that registers hold: factors in float32 are cut into three parts.

    With a number of 17 to 31, such as a head's size, and in float32 with 32, Triton 3.6 may
    compile larger ones wrongly.
    """
    given = named_args.values()
    size = max(x.element_size() for x in given if isinstance(x, torch.Tensor))
    heads = {blocks["BLOCK_D"], blocks.get("BLOCK_V", 0)}
    padded = any(isinstance(n, int) and 16 < n < 32 for n in given)
    fragile = 32 in heads and (size == 4 or padded)
    largest = 2**11 if fragile else 2**22 // size**2 // max(heads)
    return [c for c in configs if c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] <= largest]
''',
    "digamma": '''
@triton.jit
def digamma(x):
    """Return psi(x): the asymptotic series from 10 on, below by psi(x) = psi(x + 1) - 1 / x."""
    fraction = x - tl.where(x < 0, tl.ceil(x), tl.floor(x))
    reflected = 3.141592653589793 / libdevice.tan(3.141592653589793 * fraction)
    y = tl.where(x < 0, 1 - x, x)
    steps = tl.zeros_like(x)
    for _ in range(10):
        steps += tl.where(y < 10, 1 / y, 0.0)
        y = tl.where(y < 10, y + 1, y)
    z = 1 / (y * y)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))
    found = tl.log(y) - 0.5 / y - series - steps
    found = tl.where(x < 0, found - reflected, found)
    return tl.where((x < 0) & (fraction == 0), float("nan"), found)
''',
    "i0e": '''
@triton.jit
def i0e(x):
    """Return exp(-|x|) I0(x), of the modified Bessel function; from 30 on its asymptotic series."""
    x = tl.abs(x)
    z = 1 / (8 * tl.maximum(x, 30.0, propagate_nan=tl.PropagateNan.ALL))
    series = 1 + z * (1 + z * (9 / 2 + z * (75 / 2 + z * (3675 / 8))))
    far = series * tl.rsqrt(6.283185307179586 * x)
    return tl.where(x < 30, libdevice.cyl_bessel_i0(x) * tl.exp(-x), far)
''',
    "i1e": '''
@triton.jit
def i1e(x):
    """Return exp(-|x|) I1(x), of the modified Bessel function; from 30 on its asymptotic series."""
    y = tl.abs(x)
    z = 1 / (8 * tl.maximum(y, 30.0, propagate_nan=tl.PropagateNan.ALL))
    series = 1 - z * (3 + z * (15 / 2 + z * (105 / 2 + z * (4725 / 8))))
    far = series * tl.rsqrt(6.283185307179586 * y)
    found = tl.where(y < 30, libdevice.cyl_bessel_i1(y) * tl.exp(-y), far)
    return tl.where(x < 0, -found, found)
''',
    "modified_bessel_k0": '''
@triton.jit
def modified_bessel_k0(x):
    """Return the modified Bessel function K0(x); Abramowitz and Stegun, 9.8.5 and 9.8.6."""
    t = x * x / 4
    near = 0.23069756 + t * (0.0348859 + t * (0.00262698 + t * (0.0001075 + t * 0.0000074)))
    near = -0.57721566 + t * (0.4227842 + t * near)
    near -= tl.log(x / 2) * libdevice.cyl_bessel_i0(x)
    t = 2 / x
    far = 0.00587872 + t * (-0.0025154 + t * 0.00053208)
    far = 1.25331414 + t * (-0.07832358 + t * (0.02189568 + t * (-0.01062446 + t * far)))
    return tl.where(x <= 2, near, far * tl.exp(-x) * tl.rsqrt(x))
''',
    "modified_bessel_k1": '''
@triton.jit
def modified_bessel_k1(x):
    """Return the modified Bessel function K1(x); Abramowitz and Stegun, 9.8.7 and 9.8.8."""
    t = x * x / 4
    near = -0.18156897 + t * (-0.01919402 + t * (-0.00110404 - t * 0.00004686))
    near = 1 + t * (0.15443144 + t * (-0.67278579 + t * near))
    near = near / tl.abs(x) + tl.where(x == 0, 0.0, tl.log(x / 2) * libdevice.cyl_bessel_i1(x))
    t = 2 / x
    far = -0.00780353 + t * (0.00325614 - t * 0.00068245)
    far = 1.25331414 + t * (0.23498619 + t * (-0.0365562 + t * (0.01504268 + t * far)))
    return tl.where(x <= 2, near, far * tl.exp(-x) * tl.rsqrt(x))
''',
    "ndtri": '''
@triton.jit
def ndtri(p):
    """Return the inverse of the normal distribution: erfinv, Newton's method on erfc far out."""
    tail = tl.minimum(p, 1 - p)
    log_tail = tl.log(tail)
    t = tl.sqrt_rn(-log_tail)
    for _ in range(4):
        scaled = libdevice.erfcx(t)  # erfc(t) = exp(-t * t) * erfcx(t) = 2 * tail
        t += (tl.log(scaled / 2) - t * t - log_tail) * scaled * 0.886226925452758
    t = tl.where(tail == 0, float("inf"), t)
    t = tl.where(p < 0.5, -t, t)
    return 1.4142135623730951 * tl.where(tail < 0.1, t, libdevice.erfinv(2 * p - 1))
''',
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
    "log_add_exp": '''
@triton.jit
def log_add_exp(a, b):
    """Return log(exp(a) + exp(b)), without an overflow and without inf - inf."""
    larger = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    gap = tl.where(a == b, 0.0, tl.minimum(a, b) - larger)
    return larger + libdevice.log1p(tl.exp(gap))
''',
    "later_maximum": '''
@triton.jit
def later_maximum(a, a_index, b, b_index):
    """Return the larger number and its index; the later one if they are equal, NaN if one is."""
    later = (b >= a) | (b != b)
    return tl.where(later, b, a), tl.where(later, b_index, a_index)
''',
    "sort_key": '''
@triton.jit
def sort_key(x):
    """Return integers that are in the order of some numbers, with NaN behind all."""
    bits = tl.where(x == x, (x + 0.0).to(tl.int32, bitcast=True), 0x7FFFFFFF)  # -0.0 is 0.0
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
''',
    "from_sort_key": '''
@triton.jit
def from_sort_key(key):
    """Return the numbers of which `sort_key` has made integers."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
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

for _name in ("nan", "later"):
    _text = HELPERS[f"{_name}_maximum"].replace("maximum", "minimum").replace("larger", "smaller")
    HELPERS[f"{_name}_minimum"] = _text.replace("b >= a", "b <= a")


def literal(value: Any, dtype: torch.dtype) -> str:
    """Return a number's text."""
    if dtype == torch.bool:
        return "True" if value else "False"
    if dtype.is_floating_point:
        number = float(value)
        short = float(str(np.float32(number)))  # 1e-06, not 9.999999974752427e-07
        if dtype == torch.float32 and float(np.float32(number)) == number:
            number = short
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
