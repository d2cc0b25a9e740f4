"""Scans, scatters and what is decomposed here: printed, read, and judged on the CPU."""

import pytest
from test_generator import LOWERS_ORDER, PLANES, ROWS, needs_order, printed, reference

from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

PLACES = "torch.randint(width, (batch, 9))"

CASES = {
    "row longer than a block": ("return x.cumsum(-1), x.cummax(-1)", "torch.randn(3, 5000)"),
    "column longer than a block": (
        "return x.cumprod(0), x.logcumsumexp(0)",
        "torch.randn(300, 70)",
    ),
    "one row of integers": ("return x.cumsum(0), x.cummin(0)", "torch.randint(-9, 9, (5000,))"),
    "middle dimension": ("return x.logcumsumexp(1).cos() + x", PLANES),
    "scan between reductions": (
        "y = torch.softmax(x, -1).cumsum(-1)\n        return y / y.sum()",
        ROWS,
    ),
    "scatter with collisions": (
        "return y.scatter_add(1, x % 3, y.exp()), y.index_add(0, x[:, 0] % 2, y)",
        f"{PLACES}, {ROWS}",
        "x, y",
    ),
    "integer scatter": ("return torch.zeros_like(x).scatter_add(1, x % 3, x)", PLACES),
    "extremes and means at places": (
        "return (\n"
        "            y.scatter_reduce(1, x % 5, y, 'amax', include_self=False),\n"
        "            y.scatter_reduce(1, x % 5, y, 'amin'),\n"
        "            y.scatter_reduce(1, x % 5, y, 'mean', include_self=False),\n"
        "            y.index_reduce(1, x[0] % 4, y[:, :9], 'prod'),\n"
        "        )",
        f"{PLACES}, {ROWS}",
        "x, y",
    ),
    "no places": ("return y.index_add(0, x, y[:0])", f"torch.zeros(0).long(), {ROWS}", "x, y"),
    "histogram": ("return torch.histc(x, bins=10, min=-2, max=2)", ROWS),
    "windows": (
        "return F.adaptive_avg_pool2d(x, 2), F.adaptive_max_pool2d(x, (3, 4), True)",
        PLANES,
    ),
    "distances": ("return torch.cdist(x, x + 1, p=1.0), torch.cdist(x, x, p=3.0)", ROWS),
    "top-k and order": (
        "return x.topk(5), x.sort(0, descending=True), x.median(-1)",
        ROWS,
    ),
    "integers in order": ("return x.argsort(-1), x.sort(-1).values.cumsum(-1)", f"{PLACES}.int()"),
    "special functions": (
        "return x.digamma(), torch.special.i0e(x * 20), torch.special.i1e(x * 20),"
        " torch.special.modified_bessel_k0(x.abs()), torch.special.modified_bessel_k1(x.abs())",
        ROWS,
    ),
}


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.weekly)])
def test_programs_are_right(warm_judge, part):
    candidates = [
        Candidate(name, reference(*case), printed(*case).text)
        for name, case in CASES.items()
        if LOWERS_ORDER or "order" not in name
    ]
    wrong = {
        verdict.id: (verdict.status, verdict.reason, verdict.evidence.get("message"))
        for verdict in warm_judge.run(candidates[part::2])
        if verdict.status != "correct"
    }
    assert not wrong


def test_a_scan_walks_with_a_carry():
    text = printed("return x.reshape(-1, 24).cumsum(-1) * 2").text  # rows are short
    assert text.count("@triton.jit") == 1
    assert "running_sum = sum_before + tl.cumsum(x, 1)" in text
    assert "sum_before += tl.sum(x, 1, keep_dims=True)" in text


def test_what_follows_a_scan_of_columns_is_in_its_kernel():
    text = printed("return x.cumsum(0).sin()").text
    assert text.count("[grid](") == 1 + 3  # whole columns, or parts of them
    assert text.count("tl.sin(running_sum)") == 2
    text = printed("return x.cumsum(0).flip(0) + x").text  # reads it at another place
    assert text.count("[grid](") == 1 + 3 + 1


def test_sums_at_places_begin_with_zeros_and_are_kept_in_full_precision():
    case = ("return torch.zeros_like(y).scatter_add(1, x, y)", f"{PLACES}, {ROWS}", "x, y")
    text = printed(*case).text
    assert "out = torch.zeros(y.shape, device=x.device, dtype=torch.float32)" in text
    assert "return out.to(y.dtype)" in text
    assert text.count("@triton.jit") == 1
    assert 'sem="relaxed"' in text


@needs_order
def test_a_top_k_is_one_kernel_and_a_view():
    text = printed("return x.topk(5)").text
    assert text.count("[grid](") == 1
    assert "return out0[:, :5], out1[:, :5]" in text
    assert "assert width <= 8192" in text


@needs_order
@pytest.mark.parametrize("body", ["max", "min"])
def test_a_maximum_with_its_index_is_one_reduction(body):
    text = printed(f"return x.{body}(1)").text
    assert text.count("nan_maximum, keep") + text.count("nan_minimum, keep") == 1


def test_values_of_a_maximum_need_no_index():
    assert "index" not in printed("return x.max(1).values").text
