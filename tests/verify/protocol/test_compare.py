from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.verify.protocol import compare as compare_module
from curate.verify.protocol.compare import Agreement, Mismatch, allowed_error, compare

torch.set_num_threads(1)


def matmul(seed: int, inner: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a float32 product, the float64 one, and one whose sum is taken in another order."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(32, inner, generator=generator) for _ in range(2))
    order = torch.randperm(inner, generator=generator)
    blocks = zip(a[:, order].split(16, 1), b[:, order].split(16, 1), strict=True)
    return a @ b.T, a.double() @ b.double().T, sum(x @ y.T for x, y in blocks)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([16, 256, 4096]))
def test_another_order_of_summing_passes(seed: int, inner: int) -> None:
    own, exact, reordered = matmul(seed, inner)
    assert compare(reordered, own, exact).error_ratio <= 1


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_lower_precision_fails_at_any_scale(scale: float, precision: torch.dtype) -> None:
    own, exact, _ = matmul(0, 256)
    lower = (own / own.abs().max()).to(precision).float() * own.abs().max() * scale
    with pytest.raises(Mismatch, match="value"):
        compare(lower, own * scale, exact * scale)


def test_one_wrong_element_among_many() -> None:
    own, exact, _ = matmul(1, 64)
    got = own.clone()
    got[3, 5] += 1e-3
    with pytest.raises(Mismatch) as caught:
        compare(got, own, exact)
    assert caught.value.evidence["index"] == [3, 5]
    assert caught.value.evidence["error"] > caught.value.evidence["allowed"]


def test_small_elements_are_not_hidden_by_large_ones() -> None:
    exact = torch.logspace(-3, 3, 1000, dtype=torch.float64)
    own = exact.float()
    got = own.clone()
    got[:10] *= 1.5
    with pytest.raises(Mismatch):
        compare(got, own, exact)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nonfinite_positions_must_agree(bad: float) -> None:
    own = torch.arange(4.0)
    with_bad = own.clone()
    with_bad[2] = bad
    assert compare(with_bad, with_bad, with_bad.double()).max_abs_error == 0
    for got, expected in ((with_bad, own), (own, with_bad), (-with_bad, with_bad)):
        if torch.equal(got.nan_to_num(9), expected.nan_to_num(9)):
            continue
        with pytest.raises(Mismatch):
            compare(got, expected, expected.double())


@pytest.mark.parametrize(
    ("got", "reason"),
    [
        (torch.zeros(2, 3), "shape"),
        (torch.zeros(3, 2).double(), "dtype"),
        ([torch.zeros(3, 2)], "structure"),
        (None, "structure"),
    ],
)
def test_form_must_agree(got: object, reason: str) -> None:
    with pytest.raises(Mismatch) as caught:
        compare(got, torch.zeros(3, 2), torch.zeros(3, 2).double())
    assert caught.value.reason == reason


def test_strides_do_not_matter_and_lists_are_tuples() -> None:
    own = torch.arange(6.0).reshape(2, 3)
    got = own.t().contiguous().t()
    assert got.stride() != own.stride()
    assert compare([got, 3], (own, 3), (own.double(), 3)).error_ratio == 0


def test_integers_are_exact_except_where_rounding_decides() -> None:
    own, exact = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    compare(torch.tensor([1, 2, 4]), own, exact)
    with pytest.raises(Mismatch):
        compare(torch.tensor([1, 3, 3]), own, exact)


def test_empty_tensors_agree() -> None:
    assert (
        compare(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, 3).double()).error_ratio == 0
    )


def test_tolerance_follows_the_type() -> None:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64)
    single = allowed_error(exact.float(), exact).max()
    half = allowed_error(exact.half(), exact).max()
    assert single < 1e-5 < 1e-3 < half < 0.1


def test_signs_of_infinities_may_differ_on_thresholds_only() -> None:
    own, got = torch.tensor([1.0, -torch.inf]), torch.tensor([1.0, torch.inf])
    compare(got, own, own.double(), ties=True)
    with pytest.raises(Mismatch, match="nonfinite"):
        compare(got, own, own.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_large_tensors_are_compared_in_pieces(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds for the whole and for each piece, as all are alike, is told alike."""
    generator = torch.Generator().manual_seed(3)
    exact_type = torch.complex128 if dtype.is_complex else torch.float64
    one = torch.randn(10, 20, dtype=exact_type, generator=generator)
    exact = one.repeat(5, 1)
    own = exact.to(dtype)
    noise = exact.abs() * 1e-6
    got = (exact * (1 + 3e-7)).to(dtype)
    wrong = got.clone()
    wrong[33, 7] += 0.25

    def told() -> tuple[Agreement, list[dict[str, Any]]]:
        evidence = []
        for bad in (wrong, wrong.nan_to_num().index_fill(1, torch.tensor([4]), torch.nan)):
            with pytest.raises(Mismatch) as caught:
                compare(bad, own, exact, noise)
            evidence.append(caught.value.evidence)
        return compare(got, own, exact, noise), evidence

    (agreement, (far, nan)) = told()
    monkeypatch.setattr(compare_module, "PIECE", 2 * one.numel())  # three pieces, of 67 rows or so
    (in_pieces, (far_in_pieces, nan_in_pieces)) = told()
    assert in_pieces.max_abs_error == agreement.max_abs_error
    assert in_pieces.error_ratio == pytest.approx(agreement.error_ratio, rel=0.3)
    assert far_in_pieces["index"][:2] == far["index"][:2] == [33, 7]
    assert far_in_pieces["error"] == far["error"]
    assert far_in_pieces["got"] == far["got"]
    assert nan_in_pieces == nan and nan["index"][:2] == [0, 4]


def test_no_piece_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_module, "PIECE", 1000)
    sizes: list[int] = []
    piece = compare_module._compare_piece

    def seen(path: str, got: torch.Tensor, *known: Any) -> Agreement:
        sizes.append(got.numel())
        return piece(path, got, *known)

    monkeypatch.setattr(compare_module, "_compare_piece", seen)
    own = torch.randn(1001)
    compare(own, own, own.double(), torch.tensor(0.0))
    assert sizes == [501, 500]
