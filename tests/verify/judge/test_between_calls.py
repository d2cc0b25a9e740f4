"""Programs whose single calls are right, and that harm what a caller keeps between calls."""

from __future__ import annotations

import pytest
from verify_programs import HEAD, Judge

from curate.verify.judge import check

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
        [
            "self.seen.add_(1)",
            "shift = self.shift.data",
            "self.shift.data = shift * 0.5",
            "y = self.run(x, torch.empty_like(x))",
            "self.shift.data = shift",
            "return y",
        ],
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


FRESH = "y = x.new_empty(x.shape)"
RING = "slot = self.kept.setdefault('at', 0) % {n}; self.kept['at'] = slot + 1"

LATER = {
    "returns one workspace": (
        ["y = self.kept.setdefault(x.shape, torch.empty_like(x))", "return self.run(x, y)"],
        "earlier_call",
    ),
    "returns a view of one workspace": (
        ["y = self.kept.setdefault(x.shape, torch.empty_like(x))", "return self.run(x, y)[:]"],
        "earlier_call",
    ),
    "takes three buffers in turn": (
        [
            RING.format(n=3),
            "y = self.kept.setdefault((slot, x.shape), torch.empty_like(x))",
            "return self.run(x, y)",
        ],
        "earlier_call",
    ),
    "clears the result before": (
        [
            "self.kept.get('last', x[:0]).zero_()",
            FRESH,
            "self.kept['last'] = self.run(x, y)",
            "return y",
        ],
        "earlier_call",
    ),
    "spoils the input before": (
        [
            "last = self.kept.get('last', x)",
            "if last is not x: last.fill_(3.0)",
            "self.kept['last'] = x",
            FRESH,
            "return self.run(x, y)",
        ],
        "earlier_call",
    ),
    "hides that it spoils its input": (
        [FRESH, "self.run(x, y)", "copy = x.clone()", "x.zero_()", "x.data = copy", "return y"],
        "structure",
    ),
    "copies out of one workspace": (
        ["y = self.kept.setdefault(x.shape, torch.empty_like(x))", "return self.run(x, y).clone()"],
        "keeps_state",
    ),
}


def test_calls_before_may_have_been_larger(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "COSTLY", 1)  # so that what follows the draws is small
    large = CALM.replace("rows = 12", "rows = 20_000")
    (verdict,) = judge([(large, program(FRESH, "return self.run(x, y)"))])
    assert verdict["status"] == "correct", verdict


@pytest.mark.parametrize(
    ("table", "by_heart"), [("torch.arange(24) / 7", "column / 7"), ("torch.arange(24)", "column")]
)
def test_a_checkpoint_may_hold_other_tables(judge: Judge, table: str, by_heart: str) -> None:
    """A program that has a buffer's numbers by heart is right for one checkpoint alone."""
    text = program("return self.run(x, torch.empty_like(x))")
    reads = text.replace("torch.zeros(24)", table)
    knows = reads.replace("tl.load(seen_ptr + column)", by_heart)
    task = CALM.replace("torch.zeros(24)", table)
    knows, reads = judge([(task, knows), (task, reads)])
    assert knows["status"] == "correct" and "own_parameters_only" in knows["caveats"], knows
    assert reads["status"] == "correct" and "own_parameters_only" not in reads["caveats"], reads


def test_what_is_made_of_parameters_at_the_first_call_is_stale_later(judge: Judge) -> None:
    plain = program("return self.run(x, torch.empty_like(x))")
    first = "self.kept.setdefault('shift', self.shift.clone())"
    early = plain.replace("x, self.shift, self.seen", f"x, {first}, self.seen")
    early, plain = judge([(CALM, early), (CALM, plain)])
    assert early["status"] == "correct" and "own_parameters_only" in early["caveats"], early
    assert plain["status"] == "correct" and "own_parameters_only" not in plain["caveats"], plain


def test_a_process_that_ended_beyond_the_draws_is_not_asked_again(judge: Judge) -> None:
    leaves = "if bool(x.isnan().any()): import os; os._exit(3)"
    (verdict,) = judge([(CALM, program(leaves, "return self.run(x, torch.empty_like(x))"))])
    assert verdict["status"] == "correct" and "finite_only" in verdict["caveats"], verdict


COUNTER = """
@triton.jit
def tick(count_ptr, y_ptr, n, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    count = tl.load(count_ptr) + 1
    tl.store(count_ptr, count)
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 0.0, mask=(at < n) & (count >= LIMIT))

"""
COUNTS = [
    FRESH,
    "self.run(x, y)",
    "count = self.kept.setdefault('n', torch.zeros(1, dtype=torch.int32, device='cuda'))",
    "tick[(1,)](count, y, y.numel(), LIMIT={limit}, BLOCK=32)",
    "return y",
]


@pytest.fixture(scope="module")
def later(judge: Judge) -> dict[str, dict]:
    cases = [(CALM, program(*lines)) for lines, _ in LATER.values()]
    return dict(zip(LATER, judge(cases), strict=True))


@pytest.mark.parametrize("name", LATER)
def test_a_call_leaves_calls_before_alone(later: dict[str, dict], name: str) -> None:
    verdict, expected = later[name], LATER[name][1]
    assert expected in (verdict["reason"], *verdict["caveats"], verdict["status"]), verdict
    if expected == "keeps_state":
        assert verdict["status"] == "correct"


def test_a_count_of_calls_in_the_devices_memory_shows(judge: Judge) -> None:
    def counting(limit: int) -> str:
        lines = [line.format(limit=limit) for line in COUNTS]
        return program(*lines).replace("class ModelNew", COUNTER + "\nclass ModelNew")

    soon, late = judge([(CALM, counting(180)), (CALM, counting(100_000))])
    assert (soon["status"], soon["reason"]) == ("incorrect", "value")
    assert late["status"] == "correct" and "keeps_state" in late["caveats"], late


TABLE = """
@triton.jit
def through_table(table_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for i in range(2):
        row = tl.load(table_ptr + i).to(tl.pointer_type(tl.float32))
        values = tl.load(row + at, mask=at < n)
        tl.store(y_ptr + i * n + at, values, mask=at < n)

"""
DOUBLED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.stack([x * 2, x * 3])

def get_inputs():
    return [torch.randn(40)]

def get_init_inputs():
    return []
"""


def test_what_a_table_of_addresses_names_must_be_alive(judge: Judge) -> None:
    def tabled(rows: str, table: str) -> str:
        lines = [rows, f"t = torch.tensor({table}, device='cuda')", "y = x.new_empty(2, len(x))"]
        lines += ["through_table[(1,)](t, y, len(x), BLOCK=64)", "return y"]
        head = f"{HEAD}{TABLE}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
        return head + "".join(f"        {line}\n" for line in lines)

    alive = tabled("a, b = x * 2, x * 3", "[a.data_ptr(), b.data_ptr()]")
    gone = tabled("pass", "[(x * 2).data_ptr(), (x * 3).data_ptr()]")
    honest, wrong = judge([(DOUBLED, alive), (DOUBLED, gone)])
    assert wrong["reason"] == "out_of_bounds", wrong
    assert honest["reason"] != "out_of_bounds", honest
