from __future__ import annotations

import pytest
import torch

from curate.problem.operator_calls import OperatorCalls, TooMuchWork, is_compute

torch.set_num_threads(1)

COMPUTES = {
    "add": lambda x: x + 1,
    "in place": lambda x: x.mul_(2),
    "matmul": lambda x: x @ x,
    "softmax": lambda x: x.softmax(0),
    "comparison": lambda x: x > 0,
    "sum": lambda x: x.sum(),
    "gather": lambda x: x.take(torch.zeros(1, dtype=torch.long)),
    "concatenation": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x > 0, x, -x),
    "random": lambda x: torch.rand_like(x),
    "linear": lambda x: torch.nn.functional.linear(x, x),
}
MOVES = {
    "allocation": lambda x: torch.empty_like(x),
    "zeros": lambda x: torch.zeros(3, 3),
    "constant": lambda x: torch.full((3,), 2.0),
    "view": lambda x: x.view(-1)[2:].unsqueeze(0),
    "transpose": lambda x: x.t(),
    "copy": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(),
    "copy into": lambda x: torch.empty(4, 4).copy_(x),
    "conversion": lambda x: x.half().float(),
    "expansion": lambda x: x[:1].expand(4, 4),
    "number": lambda x: x[0, 0].item(),
    "range": lambda x: torch.arange(5),
    "fill": lambda x: x.fill_(3),
}


@pytest.mark.parametrize("name", COMPUTES)
def test_operators_that_compute_are_counted(name: str) -> None:
    with OperatorCalls() as called:
        COMPUTES[name](torch.ones(4, 4))
    assert called.calls and called.call_bytes


@pytest.mark.parametrize("name", MOVES)
def test_operators_that_move_are_not(name: str) -> None:
    with OperatorCalls() as called:
        MOVES[name](torch.ones(4, 4))
    assert (called.calls, called.call_bytes) == ({}, 0)


def test_an_operator_of_another_library_computes() -> None:
    library = torch.library.Library("curate_test", "DEF")
    library.define("alias_of(Tensor(a) x) -> Tensor(a)")
    assert is_compute(torch.ops.curate_test.alias_of.default)


def test_bytes_are_those_of_arguments_and_results() -> None:
    with OperatorCalls() as called:
        torch.add(torch.ones(10), torch.ones(10))
        torch.add(torch.ones(10), torch.ones(10), alpha=2)
        torch.cat([torch.ones(5), torch.ones(5)])
    assert called.calls == {"add": 2, "cat": 1}
    assert called.call_bytes == 4 * (30 + 30 + 20)


def test_bytes_at_one_time_are_those_of_results_that_still_live() -> None:
    x = torch.ones(10)
    with OperatorCalls() as called:
        for _ in range(5):
            kept = (x + 1).view(2, 5).neg()
    assert called.most_bytes == 8 * 30  # in float64: the last round's, a sum and its negative
    assert kept.numel() == 10


def test_too_many_calls_end_a_forward():
    with pytest.raises(TooMuchWork), OperatorCalls(most=10) as called:
        for _ in range(20):
            torch.ones(3) * 2
    assert called.calls.total() == 11


def test_too_many_bytes_end_a_forward():
    with pytest.raises(TooMuchWork), OperatorCalls(most_bytes=100) as called:
        for _ in range(20):
            torch.ones(3) * 2
    assert called.calls.total() == 5  # 24 bytes each


def test_what_is_held_is_what_lives():
    with OperatorCalls() as called:
        for _ in range(5):
            x = torch.ones(100) * 2
        kept = [x * 2 for _ in range(3)]
    del kept
    assert 4 * 8 * 100 <= called.most_bytes <= 6 * 8 * 100
