"""Programs whose sizes decide how many programs share the work, of which small sizes need one."""

from __future__ import annotations

import pytest
from verify_programs import HEAD, Judge

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.sum() * 2

batch_size = 5

def get_inputs():
    return [torch.randn(batch_size, 6)]

def get_init_inputs():
    return []
"""

PROGRAM = f"""{HEAD}
@triton.jit
def partial_kernel(x_ptr, partial_ptr, n_elements, BLOCK: tl.constexpr):
    split = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(split * BLOCK, n_elements, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, mask=at < n_elements, other=0.0)
    tl.store(partial_ptr + split, tl.sum(total, axis=0))

@triton.jit
def combine_kernel(partial_ptr, y_ptr, n_splits, BLOCK_SPLITS: tl.constexpr):
    at = tl.arange(0, BLOCK_SPLITS)
    total = tl.load(partial_ptr + at, mask=at < n_splits, other=0.0)
    tl.store(y_ptr, tl.sum(total, axis=0) * 2)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty((), device=x.device, dtype=x.dtype)
        n_splits = min(triton.cdiv(x.numel(), 8192), 64)
        partial = torch.empty(n_splits, device=x.device)
        partial_kernel[(n_splits,)](x, partial, x.numel(), BLOCK=1024)
        blocks = triton.next_power_of_2(n_splits)
        combine_kernel[(1,)](partial, out, n_splits, BLOCK_SPLITS=blocks)
        return out
"""

CHANGES = {
    "honest": ("", ""),
    "combines one part": ("at < n_splits, other", "at < 1, other"),
    "skips a part": ("split * BLOCK, n_elements", "0 * split, n_elements"),
    "writes beyond": ("partial_ptr + split,", "partial_ptr + split * n_elements,"),
    "refuses": ("        partial =", "        assert n_splits == 1, 'too long'\n        partial ="),
    "cannot grow": ("min(triton.cdiv(x.numel(), 8192), 64)", "max(1, x.dim() - 9)"),
    "one program": ("min(triton.cdiv(x.numel(), 8192), 64)", "1"),
}  # fmt: skip


def pair(change: str) -> tuple[str, str]:
    old, new = CHANGES[change]
    assert old in PROGRAM
    return REFERENCE, PROGRAM.replace(old, new) if old else PROGRAM


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> dict[str, dict]:
    return dict(zip(CHANGES, judge([pair(change) for change in CHANGES]), strict=True))


def test_several_programs_are_tried(verdicts: dict[str, dict]) -> None:
    honest = verdicts["honest"]
    assert (honest["status"], honest["caveats"]) == ("correct", []), honest


@pytest.mark.parametrize("change", ["combines one part", "skips a part"])
def test_what_is_wrong_with_several_programs_is_incorrect(
    verdicts: dict[str, dict], change: str
) -> None:
    wrong = verdicts[change]
    assert wrong["status"] == "incorrect", wrong
    assert wrong["evidence"]["trial"]["changes"]


def test_what_several_programs_write_elsewhere_is_out_of_bounds(verdicts: dict[str, dict]) -> None:
    beyond = verdicts["writes beyond"]
    assert (beyond["status"], beyond["reason"]) == ("incorrect", "out_of_bounds"), beyond


@pytest.mark.parametrize("change", ["cannot grow", "refuses"])
def test_what_never_has_two_programs_is_a_caveat(verdicts: dict[str, dict], change: str) -> None:
    narrow = verdicts[change]
    assert narrow["status"] == "correct" and "untried_grids" in narrow["caveats"], narrow
    assert narrow["evidence"]["untried_grids"] == {"axes": [["partial_kernel", 0]]}


def test_a_grid_of_a_number_needs_no_long_sizes(verdicts: dict[str, dict]) -> None:
    one = verdicts["one program"]
    assert (one["status"], one["caveats"]) == ("correct", []), one


COLUMNS = f"""{HEAD}
@triton.jit
def short_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    col = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + col, mask=row < n_rows, other=0.0)
    tl.store(y_ptr + col, tl.sum(x.to(tl.float32), axis=0))

@triton.jit
def long_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    col = tl.program_id(0) * 64 + tl.arange(0, 64)
    total = tl.zeros([64], tl.float32)
    for start in range(0, n_rows, BLOCK):
        row = start + tl.arange(0, BLOCK)[:, None]
        mask = (row < n_rows) & (col < n_cols)
        x = tl.load(x_ptr + row * n_cols + col, mask=mask, other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
    tl.store(y_ptr + col, total, mask=col < n_cols)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n_rows, n_cols = x.shape
        out = torch.empty(n_cols, device=x.device, dtype=x.dtype)
        if n_rows <= 1024:
            short_kernel[(n_cols,)](x, out, n_rows, n_cols, BLOCK=1024)
        else:
            long_kernel[(triton.cdiv(n_cols, 64),)](x, out, n_rows, n_cols, BLOCK=512)
        return out
"""


def test_a_kernel_for_long_sizes_has_several_programs_too(judge: Judge) -> None:
    """With 3 columns one program does all of a long input, and with the file's 100 two do."""
    reference = REFERENCE.replace("x.sum() * 2", "x.sum(0)").replace("batch_size, 6", "40, 100")
    wrong = COLUMNS.replace("tl.program_id(0) * 64", "tl.program_id(0) * 0")
    honest, other = judge([(reference, COLUMNS), (reference, wrong)])
    caveats = ["own_ranks_only", "own_types_only"]  # it adds up in float32
    assert (honest["status"], honest["caveats"]) == ("correct", caveats), honest
    assert other["status"] == "incorrect" and other["evidence"]["trial"]["changes"], other
