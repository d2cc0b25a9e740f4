"""How much work a problem is, told without doing it."""

from __future__ import annotations

import pytest
import torch
from verify_programs import PAIRS

from curate.problem.draw import Draw
from curate.verify.protocol.messages import Estimate
from curate.verify.protocol.role import Refusal
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
    reference.load(source, "cpu", "none")
    return reference


SOURCES = {"convolution": CONVOLVED} | {name: pair.reference for name, pair in PAIRS.items()}


@pytest.mark.parametrize("name", SOURCES)
def test_an_estimate_is_what_is_counted_in_a_run(name: str) -> None:
    reference = load(SOURCES[name])
    with torch.no_grad():
        estimate = reference.estimate()
        facts = reference.facts(Draw(0))
    assert estimate.calls == facts.calls
    assert estimate.call_bytes == facts.call_bytes


def test_what_no_machine_holds_is_estimated_too() -> None:
    estimate = load(PRODUCT).estimate()
    moved = 3 * 4 * 2**34
    assert estimate == Estimate({"mm": 1}, moved, 2 * moved)


CHANGED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, n):
        x.mul_(1 / 3)
        n.add_(1)
        return x + n

def get_inputs():
    return [torch.rand(8), torch.zeros(8, dtype=torch.int64)]

def get_init_inputs():
    return []
"""


def test_the_exact_call_changes_inputs_of_its_own() -> None:
    reference = load(CHANGED)
    with torch.no_grad():
        (x, n), (own, exact) = reference._right(Draw(1))
    assert not n.any()
    assert list(own["changed"]) == list(exact["changed"]) == ["input[0]", "input[1]"]
    torch.testing.assert_close(exact["changed"]["input[0]"], x.double() / 3, rtol=1e-15, atol=0)
    assert exact["output"].dtype == torch.float64


def test_too_little_memory_for_float64_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else a program would be held to the rounding of one order of operations."""

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    reference = load(CONVOLVED)
    monkeypatch.setattr(reference, "_exactly", full)
    with torch.no_grad(), pytest.raises(Refusal) as refused:
        reference._right(Draw(1))
    assert refused.value.status == "oom"
