"""Rounding of operands, on every kind of number: as the bits say, and no NaN is left behind."""

from fractions import Fraction

import numpy as np
import pytest

from curate.verify.executor.numbers import encode, multiply, rounder

BITS = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32)
WILD = BITS.view(np.float32)
"""Numbers of all sizes, with infinities and NaN of both signs."""


def by_bits(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    found = rounded.astype(np.uint32).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), found)


@pytest.mark.parametrize("values", [WILD, WILD[np.abs(WILD) < 1e30]])
def test_bf16_is_rounded_to_even_and_all_nan_are_one(values: np.ndarray) -> None:
    round_bf16 = rounder("bf16")
    assert round_bf16
    expected = by_bits(values)
    with np.errstate(all="ignore"):  # as it is where kernels run
        assert (round_bf16(values).view(np.uint32) == expected.view(np.uint32)).all()
        assert (encode(values, "bf16") == (expected.view(np.uint32) >> 16)).all()


@pytest.mark.parametrize("precision", ["tf32x3", "bf16x3", "bf16x6"])
def test_an_infinity_in_a_split_operand_is_no_nan(precision: str) -> None:
    a = np.full((1, 2, 2), 0.1, np.float32)
    a[0, 1, 1] = np.inf
    with np.errstate(all="ignore"):
        found = multiply(a, np.full((1, 2, 1), 3.0, np.float32), "f32", precision)
    assert found[0, 1, 0] == np.inf
    exact = float(Fraction(float(np.float32(0.1))) * 6)
    assert abs(float(found[0, 0, 0]) - exact) < {"bf16x3": 1e-5}.get(precision, 1e-6)
