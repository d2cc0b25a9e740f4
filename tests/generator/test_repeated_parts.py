"""Modules that a network repeats become functions of the program."""

import re

import pytest
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.generator.unprintable import Unprintable
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

BLOCKS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, wide, narrow, share):
        super().__init__()
        self.share = share
        self.enter = nn.Linear(wide, narrow)
        self.leave = nn.Linear(narrow, wide)

    def forward(self, x):
        return x + self.share * self.leave(torch.relu(self.enter(x)))

class Model(nn.Module):
    def __init__(self, shares):
        super().__init__()
        widths = (24, 16, 16, 20, 12)
        self.blocks = nn.ModuleList(Block(32, n, s) for n, s in zip(widths, shares))
        self.last = nn.Linear(32, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)

def get_inputs():
    return [torch.randn(16, 32)]

def get_init_inputs():
    return [SHARES]
"""
SAME = BLOCKS.replace("SHARES", "[0.5] * 5")
MIXED = BLOCKS.replace("SHARES", "[0.5, 0.25, 0.5, 0.25, 0.5]")
DIFFERENT = BLOCKS.replace("SHARES", "[0.5, 0.25, 0.125, 1.5, 2.5]")

DENSE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        widths = range(width, width + 6 * growth, growth)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(n, growth), nn.ReLU(), nn.LayerNorm(growth)) for n in widths
        )

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(x))
            x = torch.cat(features, 1)
        return x

def get_inputs():
    return [torch.randn(16, 24)]

def get_init_inputs():
    return [24, 8]
"""

LOOP = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 8)

    def forward(self, x):
        for _ in range(STEPS):
            x = torch.tanh(self.cell(x))
        return x

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def texts():
    sources = {"same": SAME, "mixed": MIXED, "different": DIFFERENT, "dense": DENSE}
    return {name: generate(source).text for name, source in sources.items()}


def functions(text):
    return re.findall(r"(?m)^def (block(?:_\d+)?)\(block, x\)", text)


def test_a_repeated_module_is_a_function_that_is_called_for_each(texts):
    assert functions(texts["same"]) == ["block"]
    calls = re.findall(r"= block\(self\.blocks\[(\d)\], ", texts["same"])
    assert calls == ["0", "1", "2", "3", "4"]


def test_modules_with_other_numbers_are_other_functions_with_shared_kernels(texts):
    assert functions(texts["mixed"]) == ["block", "block_1"]
    called = re.findall(r"= (block\w*)\(self\.blocks", texts["mixed"])
    assert called == ["block", "block_1", "block", "block_1", "block"]
    kernels = [len(re.findall(r"@triton\.jit", texts[name])) for name in ("same", "mixed")]
    assert kernels[1] == kernels[0] + 1


def test_modules_of_no_common_form_are_no_functions(texts):
    assert functions(texts["different"]) == []


def test_what_has_grown_is_joined_by_one_function(texts):
    calls = re.findall(r"(\w+) = join\((\w+), \w+\)", texts["dense"])
    assert len(calls) == 6
    assert [given for _, given in calls[1:]] == [made for made, _ in calls[:-1]]
    assert texts["dense"].count("def cat_kernel") == 1


def test_programs_with_functions_are_right(texts, thorough_judge):
    sources = {"same": SAME, "mixed": MIXED, "dense": DENSE}
    candidates = [Candidate(name, source, texts[name]) for name, source in sources.items()]
    assert not not_correct(thorough_judge.run(candidates))


def test_a_long_loop_of_products_is_refused():
    assert "for " not in generate(LOOP.replace("STEPS", "3")).text
    with pytest.raises(Unprintable, match="a loop of more than"):
        generate(LOOP.replace("STEPS", "500"))
