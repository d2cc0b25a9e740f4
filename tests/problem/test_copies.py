"""Copies of models that keep functions over their layers."""

import copy

import torch
from torch import nn

from curate.problem.copies import copied


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 2)})
        layers, power = self.layers, 2
        self.mlp = lambda x, scale=1.0, *, sign=1: (
            layers.second(layers.first(x).relu()) ** power * scale * sign
        )

    def forward(self, x):
        return self.mlp(x, sign=-1)


def test_a_copys_functions_read_its_own_layers():
    torch.manual_seed(0)
    model, x = Block(), torch.randn(4, 3)
    was = model(x)
    twin, plain = copied(model), copy.deepcopy(model)
    assert torch.equal(twin(x), was)
    for one in (twin, plain):
        nn.init.zeros_(one.layers.second.weight)
        nn.init.constant_(one.layers.second.bias, 3.0)
    assert torch.equal(twin(x), torch.full((4, 2), -9.0))
    assert torch.equal(plain(x), was)  # what `copied` is for
    assert torch.equal(model(x), was)


def test_a_copy_in_float64_computes_in_float64():
    assert copied(Block()).double()(torch.randn(4, 3).double()).dtype == torch.float64
