"""Draws whose indices could be others are left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from curate.problem.draw import Draw
from curate.verify.reference.equals import EqualPicks
from curate.verify.reference.serve import Reference, Refusal

ROUTER = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.topk(torch.softmax(x, -1), 4)

def get_inputs():
    return [torch.randn(100, 60)]

def get_init_inputs():
    return []
"""

ROW = torch.tensor([[3.0, 1.0, 1.0, 2.0, 0.0]])


@pytest.mark.parametrize(
    ("pick", "found"),
    [
        (lambda x: x.topk(2), False),
        (lambda x: x.topk(3), True),
        (lambda x: x.topk(1, largest=False), False),
        (lambda x: x.topk(2, largest=False), True),
        (lambda x: x.sort(), True),
        (lambda x: x.sort(stable=True), False),
        (lambda x: x.t().sort(0), True),
        (lambda x: x.sort(0), False),
        (lambda x: x.kthvalue(2), True),
        (lambda x: x.kthvalue(4), False),
        (lambda x: x.median(1), True),
        (lambda x: x.max(1), False),
    ],
)
def test_equal_numbers_are_found_where_one_is_picked(
    pick: Callable[[torch.Tensor], object], found: bool
) -> None:
    with EqualPicks() as picks:
        pick(ROW)
    assert picks.found == found


def test_weights_that_are_all_zero_have_no_order() -> None:
    reference = Reference()
    reference.load(ROUTER, "cpu", "none")
    assert len(reference.draw(Draw(0)).own["output"]) == 2
    with pytest.raises(Refusal, match="no one index"):
        reference.draw(Draw(0, family="large"))
