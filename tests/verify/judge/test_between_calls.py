"""Programs whose single calls are right, and that harm what a caller keeps between calls."""

from __future__ import annotations

import pytest
from verify_programs import HEAD, Judge

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(24))
        self.register_buffer("seen", torch.zeros(24))

    def forward(self, x):
        {before}
        return torch.sigmoid(x) + self.shift + self.seen

rows = 12

def get_inputs():
    return [torch.randn(rows, 24)]

def get_init_inputs():
    return []
"""

PROGRAM = f"""{HEAD}
@triton.jit
def shifted_sigmoid(x_ptr, shift_ptr, seen_ptr, y_ptr, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    column = at % WIDTH
    shift = tl.load(shift_ptr + column) + tl.load(seen_ptr + column)
    tl.store(y_ptr + at, 1 / (1 + tl.exp(-x)) + shift, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(24))
        self.register_buffer("seen", torch.zeros(24))
        self.kept = {{}}

    def run(self, x, y):
        x = x.contiguous()
        grid = (triton.cdiv(x.numel(), 128),)
        shifted_sigmoid[grid](x, self.shift, self.seen, y, x.numel(), WIDTH=24, BLOCK=128)
        return y

    def forward(self, x):
"""


def program(*lines: str) -> str:
    return PROGRAM + "".join(f"        {line}\n" for line in lines)


CALM = REFERENCE.format(before="pass")
MOVES = REFERENCE.format(before="self.shift.mul_(0.5); self.seen.add_(1)")

STATE = {
    "leaves it": (CALM, ["return self.run(x, torch.empty_like(x))"], "correct"),
    "decays a parameter": (
        CALM,
        ["y = self.run(x, torch.empty_like(x))", "self.shift.mul_(0.99)", "return y"],
        "state_dict",
    ),
    "fills a buffer": (
        CALM,
        ["y = self.run(x, torch.empty_like(x))", "self.seen.copy_(x[0])", "return y"],
        "state_dict",
    ),
    "puts another tensor there": (
        CALM,
        ["y = self.run(x, torch.empty_like(x))", "self.shift.data = self.shift + 1", "return y"],
        "state_dict",
    ),
    "moves as the reference does": (
        MOVES,
        ["self.shift.mul_(0.5)", "self.seen.add_(1)", "return self.run(x, torch.empty_like(x))"],
        "correct",
    ),
    "moves half of it": (
        MOVES,
        ["self.seen.add_(1)", "shift = self.shift.data", "self.shift.data = shift * 0.5"]
        + ["y = self.run(x, torch.empty_like(x))", "self.shift.data = shift", "return y"],
        "value",
    ),
}


@pytest.fixture(scope="module")
def state(judge: Judge) -> dict[str, dict]:
    cases = [(reference, program(*lines)) for reference, lines, _ in STATE.values()]
    return dict(zip(STATE, judge(cases), strict=True))


@pytest.mark.parametrize("name", STATE)
def test_a_call_leaves_the_state_as_the_reference_does(state: dict[str, dict], name: str) -> None:
    assert STATE[name][2] in (state[name]["reason"], state[name]["status"]), state[name]
