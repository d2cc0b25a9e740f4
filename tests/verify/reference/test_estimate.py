"""How much work a problem is, told without doing it."""

from __future__ import annotations

import pytest
import torch
from verify_programs import PAIRS

from curate.verify.reference.draw import Draw
from curate.verify.reference.serve import Reference

CONVOLVED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convolution = nn.Conv2d(3, channels, 3)
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x):
        return self.norm(self.convolution(x)).relu()

def get_inputs():
    return [torch.rand(2, 3, 8, 8)]

def get_init_inputs():
    return [4]
"""

PRODUCT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        return x @ y

def get_inputs():
    return [torch.rand(2**17, 2**17), torch.rand(2**17, 2**17)]

def get_init_inputs():
    return []
"""


def load(source: str) -> Reference:
    torch.set_num_threads(1)
    reference = Reference()
    reference.load({"source": source, "device": "cpu"}, [])
    return reference


SOURCES = {"convolution": CONVOLVED} | {name: pair.reference for name, pair in PAIRS.items()}


@pytest.mark.parametrize("name", SOURCES)
def test_an_estimate_is_what_is_counted_in_a_run(name: str) -> None:
    reference = load(SOURCES[name])
    with torch.no_grad():
        estimate, _ = reference.estimate({}, [])
        facts, _ = reference.facts({"draw": Draw(0).to_json()}, [])
    assert estimate == {"calls": facts["calls"], "call_bytes": facts["call_bytes"]}


def test_what_no_machine_holds_is_estimated_too() -> None:
    estimate, _ = load(PRODUCT).estimate({}, [])
    assert estimate == {"calls": {"mm": 1}, "call_bytes": 3 * 4 * 2**34}
