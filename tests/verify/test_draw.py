from __future__ import annotations

import torch
from torch import nn
from verify_programs import LINEAR, SOFTMAX

from curate.verify.draw import Draw, draw_inputs, free_sizes, plan, redraw_parameters
from curate.verify.problem import EXAMPLE, Problem


def test_defaults_are_redrawn_and_keep_their_signs() -> None:
    model = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    redraw_parameters(model, seed=0)
    after = model.state_dict()
    assert after["0.weight"].min() >= 0.5 and after["0.weight"].std() > 0.1
    assert after["0.bias"].abs().max() <= 0.5 and after["0.bias"].std() > 0.1
    assert after["0.running_var"].min() >= 0.5
    assert after["0.running_mean"].std() > 0.1
    assert torch.equal(after["0.num_batches_tracked"], before["0.num_batches_tracked"])
    assert not torch.equal(after["1.weight"], before["1.weight"])


def test_masks_and_tables_in_buffers_stay() -> None:
    model = nn.Module()
    model.register_buffer("mask", torch.tril(torch.ones(4, 4)))
    model.register_buffer("minus", torch.full((3,), -float("inf")))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    redraw_parameters(model, seed=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_free_sizes_are_those_that_the_model_does_not_see() -> None:
    reference = """
import torch
import torch.nn as nn
batch, width, classes = 4, 8, 3
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, classes)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.rand(batch, width)]
def get_init_inputs():
    return [width]
"""
    problem = Problem(reference, EXAMPLE[1])
    assert free_sizes(problem) == ["batch"]
    (x,) = draw_inputs(problem, Draw(seed=0, size=3))
    assert x.shape == (3, 8)
    (x,) = draw_inputs(problem, Draw(seed=0))
    assert x.shape == (4, 8)


def test_plan_starts_with_the_files_own_draw() -> None:
    free, fixed = Problem(SOFTMAX.reference, EXAMPLE[1]), Problem(LINEAR.reference, EXAMPLE[1])
    assert plan(free, 3, True) == [Draw(0), Draw(1, signed=True, size=3), Draw(2, size=5)]
    assert plan(free, 3, False) == [Draw(0), Draw(1, signed=True), Draw(2)]
    assert plan(fixed, 2, True) == [Draw(0), Draw(1, signed=True)]


def test_signed_inputs_keep_their_spread_and_strides() -> None:
    problem = Problem(EXAMPLE[0].replace("torch.rand(100)", "torch.rand(90, 100).t()"), EXAMPLE[1])
    (plain,), (signed,) = (draw_inputs(problem, Draw(3, signed=s)) for s in (False, True))
    assert signed.stride() == plain.stride()
    assert signed.min() < 0 < plain.min()
    assert 0.25 < signed.std() < 0.32
