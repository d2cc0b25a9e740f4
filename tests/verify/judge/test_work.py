"""Whether what operators, uploads and the host gave is the output, in pieces or by other ways."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from curate.verify.judge.work import (
    by_host,
    held_in_order,
    holds_for_most,
    holds_result,
    moves_only,
    who_worked,
)
from curate.verify.protocol.messages import CallAccount

Named = list[tuple[str, torch.Tensor]]
INPUT = torch.randn(64, 96, generator=torch.Generator().manual_seed(1))
OUTPUT = torch.softmax(INPUT, 1)


def account(read: int, sent: int, floats: int = 0) -> CallAccount:
    nothing = {field.name: None for field in dataclasses.fields(CallAccount)}
    return CallAccount(**{**nothing, "read_bytes": read, "sent_bytes": sent, "float_bytes": floats})


def named(*tensors: torch.Tensor, name: str = "aten::softmax.int") -> Named:
    return [(name, tensor) for tensor in tensors]


@pytest.mark.parametrize(
    ("work", "held"),
    [
        (named(OUTPUT[torch.randperm(64)].clone()), True),
        (named(OUTPUT.double().reshape(8, -1).t().contiguous()), True),
        (named(torch.nn.functional.pad(OUTPUT, (3, 9))), True),
        (named(INPUT.exp(), INPUT), False),
        (named(torch.linspace(0, 1, 2_000_000)), False),  # by chance
        ([], False),
    ],
    ids=["shuffled", "folded", "padded", "stages", "chance", "none"],
)
def test_numbers_are_found_in_any_order(work: Named, held: bool) -> None:
    assert holds_result([t for _, t in work], [OUTPUT]) is held
    assert not holds_result([t for _, t in work], [OUTPUT.bfloat16()])  # which all tensors hold


def test_an_operator_before_a_stage_that_keeps_most_values_is_honest() -> None:
    product = torch.randn(64, 96, generator=torch.Generator().manual_seed(2))
    for stage in (torch.relu, torch.nn.functional.relu6):
        work = named(product, name="mm")
        assert not holds_result([product], [stage(product)])
        assert not held_in_order(work, [stage(product)])


def test_zeros_of_gaps_are_nobodys_work() -> None:
    product = torch.randn(64, 96, generator=torch.Generator().manual_seed(2))
    gaps = torch.zeros(64, 4, 96)
    gaps[:, 0] = product  # as a transposed convolution with a stride leaves them
    assert not holds_result([torch.tensor([0.0, 7.0, 9.0])], [gaps])
    assert holds_result([torch.cat([product.reshape(-1), torch.zeros(9)])], [gaps])


def test_every_type_is_looked_for_in_order() -> None:
    short = OUTPUT.bfloat16()
    assert held_in_order(named(OUTPUT), [short])
    assert held_in_order(named(OUTPUT.t().contiguous()), [short])
    assert held_in_order(named(OUTPUT[20:]), [short])
    assert held_in_order(named(OUTPUT[7:-9]), [short])
    assert held_in_order(named((INPUT > 0)[7:-9]), [INPUT > 0])
    assert not held_in_order(named((INPUT > 0.1)[7:-9]), [INPUT > 0])
    assert held_in_order(named(torch.cat([OUTPUT[:3], OUTPUT])), [short])
    assert not held_in_order(named(OUTPUT[40:]), [short])
    assert not held_in_order(named(OUTPUT.flip(0)), [short])
    order = INPUT.argsort(1)
    assert held_in_order(named(order.int()), [order])
    assert not held_in_order(named(order.flip(1)), [order])
    for whole in (OUTPUT, OUTPUT.sum(), INPUT > 0):
        assert held_in_order(named(whole.clone()), [whole])
        assert not held_in_order(named(whole + 1e-3), [whole])
    assert not held_in_order(named(OUTPUT), [OUTPUT, order])  # each of them


def test_who_moves_values_is_known_by_name() -> None:
    assert moves_only("aten::cat") and moves_only("aten::index.Tensor")
    assert not moves_only("aten::softmax.int") and not moves_only("aten::index_add")


@pytest.mark.parametrize(
    ("read", "sent", "did"),
    [(1.0, 1.0, True), (0.5, 0.6, True), (1.0, 0.1, False), (0.01, 1.0, False), (0.0, 0.0, False)],
)
def test_the_host_must_have_read_and_sent_enough(read: float, sent: float, did: bool) -> None:
    size = INPUT.numel() * 4
    assert by_host(account(int(read * size), int(sent * size)), [INPUT], [OUTPUT], False) is did


def test_most_of_the_results_must_be_by_operators_alone() -> None:
    values, positions = INPUT.sort(1)
    assert holds_for_most([True, True], [values, positions])
    assert not holds_for_most([False, True], [values, positions])
    assert holds_for_most([False, True], [INPUT.sum(), INPUT])
    assert not holds_for_most([], [])


def test_integers_are_read_and_sent_as_well() -> None:
    ids = torch.arange(200)
    assert by_host(account(1600, 256), [ids], [ids[:32].clone()], False)


def test_a_plan_made_of_integers_is_honest() -> None:
    lengths = torch.arange(64)
    assert not by_host(account(64 * 8, 64 * 8 + 400), [INPUT, lengths], [INPUT.sum(1)], False)


def test_one_small_input_may_be_all_that_an_output_takes() -> None:
    logits = torch.randn(8, 16)
    assert by_host(account(512, 544, floats=512), [logits, INPUT], [logits.softmax(-1)], False)
    assert not by_host(account(512, 544), [logits, INPUT], [logits.softmax(-1)], False)
    assert by_host(account(400, 12), [logits], [logits.sort().values], True)
    assert not by_host(
        account(8, 40, floats=8), [logits, INPUT], [INPUT.sum()], False
    )  # one number


def test_zeros_that_a_program_counts_into_are_no_result() -> None:
    """Few of twelve bins are hit: their means are mostly zeros, as the inputs may be."""
    means = torch.tensor([0.4, 0.6] + [0.0] * 10)
    zeros = [("aten::zeros", torch.zeros(12, dtype=torch.int64))] * 2
    assert not who_worked(zeros, [torch.tensor([0.0, 1.0] * 128)], [means]).ready
