"""Programs in which sizes decide between schedules, of which the file's own sizes reach one."""

from __future__ import annotations

import pytest
from verify_programs import HEAD, Judge

from curate.verify.judge import examinations

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {forward}

{constants}

def get_inputs():
    return [torch.randn({sizes})]

def get_init_inputs():
    return []
"""

PROGRAM = f"""{HEAD}
@triton.jit
def sum_kernel(x_ptr, y_ptr, n_reduced, result_stride, stride, n_results, BLOCK: tl.constexpr):
    split = tl.program_id(1)
    result = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(split * BLOCK, n_reduced, tl.num_programs(1) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = x_ptr + result * result_stride + at * stride
        total += tl.load(x, mask=at < n_reduced, other=0.0)
    tl.store(y_ptr + split * n_results + result, tl.sum(total, axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n_reduced, n_results, result_stride, stride = {{sizes}}
        out = torch.empty({{shape}}, device=x.device, dtype=x.dtype)
        if n_reduced <= {{limit}}:
            grid = (n_results, 1)
            sum_kernel[grid](x, out, n_reduced, result_stride, stride, n_results, BLOCK=128)
        else:
            splits = torch.empty(8, n_results, device=x.device)
            grid = (n_results, 8)
            sum_kernel[grid](x, splits, n_reduced, result_stride, stride, n_results, BLOCK=128)
            grid = (n_results, 1)
            sum_kernel[grid](splits, out, 8, 1, n_results, n_results, BLOCK=16)
        return out
"""

SCHEDULES = {
    "rows": (
        ("x.sum(1)", "6, 40", ""),
        ("x.shape[1], x.shape[0], x.shape[1], 1", "x.shape[:1]", 24_576),
    ),
    "columns": (
        ("x.sum(0)", "rows, columns", "rows = 40\ncolumns = 6"),
        ("x.shape[0], x.shape[1], 1, x.shape[1]", "x.shape[1:]", 768),
    ),
    "whole tensor": (
        ("x.sum()", "batch_size, 6", "batch_size = 5"),
        ("x.numel(), 1, 0, 1", "()", 65_536),
    ),
}
CHANGES = {
    "honest": ("", ""),
    "wrong": ("out, 8, 1, n_results", "out, 1, 1, n_results"),
    "raises": ("        else:\n", "        else:\n            assert False, 'too long'\n"),
    "refuses": ("        return out", "        if x.dim() > 9:\n            raise ValueError\n"
                "        return out"),
    "falls back": ("sum_kernel[grid](splits, out, 8, 1, n_results, n_results, BLOCK=16)",
                   "out = splits.sum(0).reshape(out.shape)"),
    "never": ("        return out", "        if x.shape[0] > 2**40:\n            x = x + 1\n"
              "        return out"),
}  # fmt: skip


def pair(schedule: str, change: str) -> tuple[str, str]:
    (forward, inputs, constants), (sizes, shape, limit) = SCHEDULES[schedule]
    old, new = CHANGES[change]
    assert old in PROGRAM
    program = PROGRAM.replace(old, new) if old else PROGRAM
    return (
        REFERENCE.format(forward=forward, sizes=inputs, constants=constants),
        program.format(sizes=sizes, shape=shape, limit=limit),
    )


CASES = [
    *((schedule, change) for schedule in SCHEDULES for change in ("honest", "wrong")),
    *(("rows", change) for change in ("raises", "refuses", "falls back", "never")),
]


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> dict[tuple[str, str], dict]:
    return dict(zip(CASES, judge([pair(*case) for case in CASES]), strict=True))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_schedule_is_tried(verdicts: dict[tuple[str, str], dict], schedule: str) -> None:
    honest, wrong = verdicts[schedule, "honest"], verdicts[schedule, "wrong"]
    caveats = [] if schedule == "whole tensor" else ["own_ranks_only"]
    assert (honest["status"], honest["caveats"]) == ("correct", caveats), honest
    assert (wrong["status"], wrong["reason"]) == ("incorrect", "value"), wrong
    assert wrong["evidence"]["trial"]["changes"]


def test_what_no_size_reaches_is_a_caveat(verdicts: dict[tuple[str, str], dict]) -> None:
    never = verdicts["rows", "never"]
    assert (never["status"], never["caveats"]) == (
        "correct",
        ["own_ranks_only", "untried_branches"],
    )
    (line,) = never["evidence"]["untried_branches"]["lines"]
    assert pair("rows", "never")[1].splitlines()[line - 1].strip() == "x = x + 1"


def test_a_branch_that_only_raises_is_none(verdicts: dict[tuple[str, str], dict]) -> None:
    assert verdicts["rows", "refuses"]["caveats"] == ["own_ranks_only"]


def test_a_program_may_refuse_long_sizes(verdicts: dict[tuple[str, str], dict]) -> None:
    raises = verdicts["rows", "raises"]
    assert raises["status"] == "correct"
    assert raises["caveats"] == ["own_ranks_only", "some_sizes_only", "untried_branches"]
    assert "too long" in raises["evidence"]["some_sizes_only"]["message"]


def test_a_branch_without_kernels_is_a_caveat(verdicts: dict[tuple[str, str], dict]) -> None:
    falls_back = verdicts["rows", "falls back"]
    assert falls_back["caveats"] == ["own_ranks_only", "has_fallback"]
    assert falls_back["evidence"]["has_fallback"]["aten_calls"] == {"sum": 1}


def test_other_sizes_are_left_out_on_request(judge: Judge) -> None:
    (verdict,) = judge([pair("rows", "wrong")], vary_sizes=False)
    assert verdict["status"] == "correct" and "untried_branches" in verdict["caveats"]


def test_a_length_that_is_too_much_work_is_left_out(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [pair("rows", "honest"), pair("rows", "wrong")]
    # The last kernel's text comes with a launch that is not done when the longest is given up.
    monkeypatch.setattr(examinations, "LONG_WORK", 300_000)
    shorter, caught = judge(pairs)
    assert (shorter["status"], shorter["caveats"]) == ("correct", ["own_ranks_only"]), shorter
    assert (caught["status"], caught["reason"]) == ("incorrect", "value"), caught
    monkeypatch.setattr(examinations, "LONG_WORK", 20_000)
    for verdict in judge(pairs):
        assert verdict["status"] == "correct", verdict
        assert "untried_branches" in verdict["caveats"]
