from __future__ import annotations

import contextlib
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


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_what_masks_a_number_does_not_hide_it(kind: torch.dtype) -> None:
    exact = torch.randn(64, 64, generator=torch.Generator().manual_seed(2)).double()
    hidden = exact < 0.5
    own = exact.masked_fill_(hidden, -1e9).to(kind)
    assert compare(own.clone(), own, exact).error_ratio <= 1
    with pytest.raises(Mismatch, match="value"):
        compare(torch.where(hidden, own, own * 1.05), own, exact)


def test_a_column_is_held_to_its_own_size() -> None:
    angles = torch.rand(700, 1, generator=torch.Generator().manual_seed(3)).double() * 6 - 3
    exact = torch.cat([6378 + angles, angles.sin(), angles.cos()], 1)
    own, got = exact.float(), exact.float()
    got[:, 1] += 1e-4
    assert compare(own.clone(), own, exact).error_ratio <= 1
    with pytest.raises(Mismatch, match="value"):
        compare(got, own, exact)
    # Of inputs far from one another, the largest result says how exact the others are.
    assert compare(got, own, exact, strict="none").error_ratio <= 1


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
    piece = compare_module._Leaf._compare_piece

    def seen(leaf: Any) -> Agreement:
        sizes.append(leaf.got.numel())
        return piece(leaf)

    monkeypatch.setattr(compare_module._Leaf, "_compare_piece", seen)
    own = torch.randn(1001)
    compare(own, own, own.double(), torch.tensor(0.0))
    assert sizes == [501, 500]


# --- short types ----------------------------------------------------------------------------


def test_rows_of_a_short_type_are_held_to_errors_of_their_own_size() -> None:
    generator = torch.Generator().manual_seed(4)
    size = torch.logspace(0, 4, 64, dtype=torch.float64)[:, None]
    exact = size * torch.randn(64, 100, dtype=torch.float64, generator=generator)
    rough = size * 0.02 * torch.randn(64, 100, dtype=torch.float64, generator=generator)
    own = (exact + rough).bfloat16()
    compare((exact - rough).bfloat16(), own, exact)
    got = exact.bfloat16()
    got[3] += 2 * size[3]  # little next to the last rows
    with pytest.raises(Mismatch, match="value"):
        compare(got, own, exact)


@pytest.mark.parametrize(
    ("off", "elements", "is_right"), [(0.06, 4, True), (0.12, 4, False), (0.06, 40, False)]
)
def test_a_few_results_may_be_beyond_the_most_runs_with_noise(
    off: float, elements: int, is_right: bool
) -> None:
    generator = torch.Generator().manual_seed(6)
    exact = torch.randn(64, 64, dtype=torch.float64, generator=generator).sign()
    known = exact.bfloat16(), exact, torch.full_like(exact, 0.01)
    got = exact.clone()
    got.view(-1)[:elements] *= 1 - off
    with pytest.raises(Mismatch, match="value"):
        compare(got.bfloat16(), *known)
    if is_right:
        assert compare(got.bfloat16(), *known, tail=True).error_ratio == 1
    else:
        with pytest.raises(Mismatch, match="value"):
            compare(got.bfloat16(), *known, tail=True)


@pytest.mark.parametrize(("wrong", "is_right"), [(4, True), (40, False)])
def test_where_rounding_picks_results_a_few_more_may_be_others(wrong: int, is_right: bool) -> None:
    generator = torch.Generator().manual_seed(7)
    exact = torch.randn(64, 64, dtype=torch.float64, generator=generator).sign()
    noise = torch.full_like(exact, 0.01)
    noise.view(-1)[1000:1100] = 2
    got = exact.clone()
    got.view(-1)[:wrong] *= -1
    known = exact.bfloat16(), exact, noise
    if is_right:
        assert compare(got.bfloat16(), *known, tail=True).error_ratio == 1
    else:
        with pytest.raises(Mismatch, match="value"):
            compare(got.bfloat16(), *known, tail=True)


def test_one_result_that_cancels_does_not_decide_how_results_lean() -> None:
    generator = torch.Generator().manual_seed(5)
    exact = torch.randn(64, 64, dtype=torch.float64, generator=generator)
    exact[0, 0] = 1e-9
    off = exact.clone()
    off[0, 0] += 0.004  # what a rounding on the way may do: a million times the value
    known = exact.bfloat16(), exact, torch.full_like(exact, 0.004)
    compare(off.bfloat16(), *known)
    with pytest.raises(Mismatch, match="bias"):
        compare((exact * 1.006).bfloat16(), *known)
    compare((exact * 1.006).bfloat16(), *known, leans={"output": 0.3})


def test_results_that_are_nearly_the_same_lean_together() -> None:
    generator = torch.Generator().manual_seed(5)
    exact = 11.7835 + 1e-6 * torch.randn(64, 64, dtype=torch.float64, generator=generator)
    own = torch.where(torch.rand(64, 64, generator=generator) < 0.5, 11.75, 11.8125).bfloat16()
    compare(exact.bfloat16(), own, exact)  # each is rounded up, by 0.46 of its last place
    apart = exact + torch.randn(64, 64, dtype=torch.float64, generator=generator)
    with pytest.raises(Mismatch, match="bias"):
        compare((apart * 1.003).bfloat16(), apart.bfloat16(), apart)


def test_what_rounding_leaves_of_a_row_of_zeros_does_not_lean() -> None:
    generator = torch.Generator().manual_seed(5)
    exact = torch.randn(64, 64, dtype=torch.float64, generator=generator)
    exact[::2] = 1e-14  # as normalising leaves of an image of one value
    own = exact + torch.where(exact == 1e-14, 1e-5 * torch.randn(64, 1, generator=generator), 0.0)
    found = torch.where(exact == 1e-14, 0.0, exact)  # nearer to it than the reference
    for kind in (torch.bfloat16, torch.float32):
        compare(found.to(kind), own.to(kind), exact, torch.full_like(exact, 1e-5))
    with pytest.raises(Mismatch, match="bias"):
        compare((exact * 1.006).bfloat16(), own.bfloat16(), exact, torch.full_like(exact, 0.01))


def test_no_element_of_a_row_without_digits_is_held_to_its_own_luck() -> None:
    generator = torch.Generator().manual_seed(5)
    exact = torch.randn(64, 64, dtype=torch.float64, generator=generator)
    exact[::8] = 1e-14
    noise = 1e-5 * torch.rand(64, 64, dtype=torch.float64, generator=generator)
    noise[exact != 1e-14] = 1e-8
    own = exact + 0.1 * noise
    known = own.float(), exact, noise
    compare((exact + 8e-6 * (exact == 1e-14)).float(), *known, ties=True)
    with pytest.raises(Mismatch, match="value"):
        compare((exact + 1e-4 * (exact == 1e-14)).float(), *known, ties=True)


def test_small_numbers_of_float16_have_its_digits() -> None:
    exact = torch.full((8, 8), 2e-4, dtype=torch.float64)
    with pytest.raises(Mismatch, match="value"):
        compare((exact * 1.1).half(), exact.half(), exact)


def test_overflow_in_16_bits_may_be_avoided_and_not_made() -> None:
    exact = torch.tensor([65510.0, 12.0, 3.0], dtype=torch.float64)
    own = torch.tensor([65504.0, torch.inf, 3.0], dtype=torch.float16)
    compare(torch.tensor([torch.inf, 12.0, 3.0], dtype=torch.float16), own, exact)
    for wrong in ([65504.0, 13.0, 3.0], [65504.0, 12.0, torch.inf], [-torch.inf, 12.0, 3.0]):
        with pytest.raises(Mismatch):
            compare(torch.tensor(wrong, dtype=torch.float16), own, exact)


def test_an_index_that_rounding_decides_may_be_another_if_few_are() -> None:
    own = torch.arange(100)
    noise = (own < 50).float()
    for wrong, is_right in (([7], True), ([70], False), ([7, 8, 9], False)):
        got = own.index_add(0, torch.tensor(wrong), torch.ones(len(wrong), dtype=torch.int64))
        if is_right:
            compare(got, own, own, noise)
        else:
            with pytest.raises(Mismatch) as caught:
                compare(got, own, own, noise)
            assert caught.value.is_error


def test_an_integer_that_rounding_did_not_meet_is_right_beside_many_that_it_did() -> None:
    """Ties of a quantisation, of which a few runs with noise do not turn all over."""
    own = torch.zeros(1000, dtype=torch.int8)
    noise = (torch.arange(1000) < 40).double()
    for missed, is_right in ((4, True), (5, False)):
        got = own.clone()
        got[36 : 40 + missed] = 1
        with pytest.raises(Mismatch, match="value") as caught:
            compare(got, own, own.double(), noise)
        assert caught.value.is_rare == is_right  # more runs are worth their time
        with contextlib.nullcontext() if is_right else pytest.raises(Mismatch, match="value"):
            compare(got, own, own.double(), noise, tail=True)


def test_numbers_near_the_largest_may_be_infinite_where_inputs_are_huge() -> None:
    own = torch.tensor([1.0, 5e33, 1e20])
    for at, is_right in ((1, True), (2, False), (0, False)):
        got = own.clone()
        got[at] = torch.inf
        with contextlib.nullcontext() if is_right else pytest.raises(Mismatch, match="nonfinite"):
            compare(got, own, own.double(), strict="none")
        with pytest.raises(Mismatch, match="nonfinite"):
            compare(got, own, own.double())


def test_in_16_bits_what_rounding_turned_over_in_both_is_right() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(64, 32, dtype=torch.float64, generator=generator)

    def turned(kind: torch.dtype, by: float) -> torch.Tensor:
        result = exact.to(kind)
        result[3, 5] += by  # a ReLU went the other way
        return result

    own = turned(torch.bfloat16, 1.0)
    assert compare(turned(torch.bfloat16, 1 + 1 / 64), own, exact).error_ratio <= 1
    with pytest.raises(Mismatch, match="value"):
        compare(turned(torch.bfloat16, 1.25), own, exact)
    with pytest.raises(Mismatch, match="value"):
        compare(turned(torch.float32, 1 + 1 / 64), turned(torch.float32, 1.0), exact)
