"""Programs that are right on what a file draws, each beside one that is right in general."""

from __future__ import annotations

import pytest
from verify_programs import HEAD, Judge

REFERENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, how={how}):
        super().__init__()
        self.how = how

    def forward(self, {names}):
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{how}]
"""


def reference(forward: str, inputs: str, names: str = "x", how: str = "0") -> str:
    return REFERENCE.format(forward=forward, inputs=inputs, names=names, how=how)


TUNED = (
    HEAD
    + """
@triton.autotune([triton.Config({{"BLOCK": n}}) for n in (64, 128)], key=["n"]{reset})
@triton.jit
def add_up(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, x):
        y = torch.zeros(1, device=x.device)
        add_up[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x.contiguous(), y, x.numel())
        return y
"""
)


def test_a_tuner_runs_a_kernel_before_its_first_call(judge: Judge) -> None:
    task = reference("x.sum().reshape(1)", "torch.rand(1000)")
    careless, honest = judge(
        [(task, TUNED.format(reset=reset)) for reset in ("", ', reset_to_zero=["y_ptr"]')]
    )
    assert (careless["status"], careless["reason"]) == ("incorrect", "value"), careless
    assert honest["status"] == "correct", honest


PRODUCT = (
    HEAD
    + """
@triton.jit
def rows_by_columns(p_ptr, a_ptr, b_ptr, y_ptr, n, first, last, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(p_ptr + row * n + at, mask=inside, other=0.0)
    for k in range(first, last):
        b = tl.load(b_ptr + k * n + at, mask=inside, other=0.0)
        total += tl.load(a_ptr + row * last + k) * b
    tl.store(y_ptr + row * n + at, total, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = a.new_empty(a.shape[0], b.shape[1])
        block, last = triton.next_power_of_2(b.shape[1]), a.shape[1]
        first = {first}
        begun = {begun}
        rows_by_columns[(a.shape[0],)](begun, a, b, y, b.shape[1], first, last, BLOCK=block)
        return y
"""
)


def test_who_does_all_but_the_last_of_a_sum_does_the_work(judge: Judge) -> None:
    task = reference("a @ b", "torch.randn(24, 48), torch.randn(48, 20)", "a, b")
    by_torch = PRODUCT.format(first="last - 1", begun="a[:, :-1] @ b[:-1]")
    own = PRODUCT.format(first="0", begun="torch.zeros_like(y)")
    cheat, honest = judge([(task, by_torch), (task, own)])
    assert (cheat["status"], cheat["reason"]) == ("cheat", "torch_does_the_work"), cheat
    assert honest["status"] == "correct", honest


ROWS = (
    HEAD
    + """
@triton.jit
def by_rows(x_ptr, y_ptr, width, apart, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * apart + at, mask=at < width, other={other})
    {body}


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()
        self.how = how

    def forward(self, x):
        x = {first}
        y = x.new_empty({made})
        block = triton.next_power_of_2(x.shape[-1])
        by_rows[(x.numel() // x.shape[-1],)](x, y, {width}, x.shape[-1], BLOCK=block)
        return {given}
"""
)


def rows(body: str, **named: str) -> str:
    usual = {"other": "0.0", "first": "x.contiguous()", "made": "x.shape", "given": "y"}
    return ROWS.format(body=body, **{**usual, "width": "x.shape[-1]", **named})


STORE = "tl.store(y_ptr + row * apart + at, {}, mask=at < width)"


def test_what_pads_does_not_compute(judge: Judge) -> None:
    task = reference("x * 3", "torch.randn(20, 45)")
    first = "nn.functional.pad(x, (0, -x.shape[-1] % 4))"
    padded = rows(STORE.format("x * 3"), first=first, given="y[:, :width]", width="width")
    padded = padded.replace("        x = nn.", "        width = x.shape[-1]\n        x = nn.")
    (verdict,) = judge([(task, padded)])
    assert verdict["status"] == "correct", verdict


SUM = "tl.store(y_ptr + row, tl.sum(x, 0){})"

CASES = {
    "a block that is full": (
        reference("x * 2", "torch.randn(20, 45)"),
        rows(STORE.format("tl.where(at < width - (width % 32 == 0), x * 2, 0.0)")),
        rows(STORE.format("x * 2")),
        "some_sizes_only",
    ),
    "a size of one": (
        reference("x.sum(-1) + x.shape[-1] // 2 * 0", "torch.randn(20, 45)"),
        rows(SUM.format(" + (width == 1)"), made="x.shape[:-1]"),
        rows(SUM.format(""), made="x.shape[:-1]"),
        "some_sizes_only",
    ),
    "a word": (
        reference("getattr(x, self.how)(-1)", "torch.randn(20, 45)", how="'sum'"),
        rows(SUM.format(""), made="x.shape[:-1]"),
        rows(
            SUM.format(" / (width if MEAN else 1)"),
            made="x.shape[:-1]",
            first="x.contiguous(); assert self.how in ('sum', 'mean')",
        )
        .replace("BLOCK: tl.constexpr", "MEAN: tl.constexpr, BLOCK: tl.constexpr")
        .replace("x.shape[-1], BLOCK", "x.shape[-1], self.how == 'mean', BLOCK"),
        "own_arguments_only",
    ),
    "the last of a pair": (
        reference("x * self.how[0] + self.how[1]", "torch.randn(20, 45)", how="(3, 3)"),
        rows(STORE.format("x * how + how"))
        .replace("BLOCK: tl.constexpr", "how, BLOCK: tl.constexpr")
        .replace("x.shape[-1], BLOCK", "x.shape[-1], self.how[0], BLOCK"),
        rows(STORE.format("x * how + more"))
        .replace("BLOCK: tl.constexpr", "how, more, BLOCK: tl.constexpr")
        .replace("x.shape[-1], BLOCK", "x.shape[-1], *self.how, BLOCK"),
        "own_arguments_only",
    ),
    "larger integers": (
        reference("x * x", "torch.randint(0, 9, (20, 45))"),
        rows(STORE.format("tl.where(x < 9, x * x, 0)"), other="0"),
        rows(STORE.format("x * x"), other="0"),
        "own_integers_only",
    ),
}


@pytest.fixture(scope="module")
def narrow(judge: Judge) -> dict[str, tuple[dict, dict]]:
    pairs = [(task, code) for task, *codes, _ in CASES.values() for code in codes]
    found = iter(judge(pairs))
    return {name: (next(found), next(found)) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_caveat_says_what_is_narrow(narrow: dict[str, tuple[dict, dict]], name: str) -> None:
    careless, honest = narrow[name]
    caveat = CASES[name][-1]
    assert careless["status"] == "correct" and caveat in careless["caveats"], careless
    assert honest["status"] == "correct" and caveat not in honest["caveats"], honest


def test_tensors_in_a_dict_are_drawn_from_all_families(judge: Judge) -> None:
    task = reference("torch.softmax(x['scores'], -1)", "{'scores': torch.randn(20, 45)}")
    first = "x['scores'].contiguous()"
    stable, other = "tl.exp(x - tl.max(x, 0))", "-float('inf')"
    body = "e = {}\n    " + STORE.format("e / tl.sum(e, 0)")
    careless, honest = judge(
        [(task, rows(body.format(e), first=first, other=other)) for e in ("tl.exp(x)", stable)]
    )
    assert careless["status"] == "incorrect", careless
    assert honest["status"] == "correct", honest
