from __future__ import annotations

import ast

import pytest

from curate.clean.canonical import canonical_sha256

MODULE = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    """Says something."""

    def __init__(self, width, slope):
        super().__init__()
        self.proj = nn.Linear(width, width)  # a comment
        self.slope = slope

    def forward(self, x):
        hidden = F.leaky_relu(self.proj(x), self.slope)
        parts = [part * 2 for part in hidden.split(4)]
        return torch.cat(parts) + x

def get_inputs():
    return [torch.rand(8, 16)]
'''

SAME = {
    "local variables": ("hidden", "h"),
    "arguments": ("slope", "negative"),
    "class": ("Block", "Layer"),
    "attribute": ("self.proj", "self.linear_1"),
    "comprehension variable": ("part ", "piece "),
    "docstring": ("Says something.", "Says nothing."),
    "comment": ("  # a comment", ""),
    "imported names": ("import torch.nn.functional as F", "from torch.nn import functional as F"),
    "function": ("get_inputs", "make_inputs"),
    "layout": (
        "F.leaky_relu(self.proj(x), self.slope)",
        "F.leaky_relu(\n            self.proj(x),\n            self.slope,\n        )",
    ),
}

DIFFERENT = {
    "operator": ("* 2", "+ 2"),
    "constant": ("* 2", "* 3"),
    "type of constant": ("* 2", "* 2.0"),
    "function of torch": ("F.leaky_relu", "F.celu"),
    "method of a tensor": ("hidden.split", "hidden.chunk"),
    "module": ("nn.Linear", "nn.Bilinear"),
    "base": ("(nn.Module)", "(nn.Identity)"),
    "which variable": ("+ x", "+ hidden"),
    "which attribute": ("self.proj(x), self.slope", "self.slope(x), self.proj"),
    "order of arguments": ("def __init__(self, width, slope)", "def __init__(self, slope, width)"),
    "method": ("forward", "backward"),
    "another import behind the same name": ("import torch.nn.functional as F", "import mine as F"),
    "axis": ("torch.cat(parts)", "torch.cat(parts, dim=1)"),
}


@pytest.mark.parametrize("change", SAME)
def test_same_program(change: str) -> None:
    old, new = SAME[change]
    assert old in MODULE
    other = MODULE.replace(old, new).replace(
        "part in", "piece in" if new == "piece " else "part in"
    )
    ast.parse(other)
    assert canonical_sha256(other) == canonical_sha256(MODULE)


@pytest.mark.parametrize("change", DIFFERENT)
def test_another_program(change: str) -> None:
    old, new = DIFFERENT[change]
    assert old in MODULE
    assert canonical_sha256(MODULE.replace(old, new)) != canonical_sha256(MODULE)


PARENT = """
class Parent:
    def __init__(self):
        self.a = 1
        self.b = 2
"""
SWAPPED = PARENT.replace("self.a", "self.c").replace("self.b", "self.a").replace("self.c", "self.b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Keywords bind by name, so a renamed argument is another program.
        (
            "def f(a, b):\n    return a - b\nf(a=1, b=2)",
            "def f(b, a):\n    return b - a\nf(a=1, b=2)",
        ),
        ("from m import f\ng(f=1)\nf()", "from n import f\ng(f=1)\nf()"),
        # Others than the class itself may name its attributes.
        *(
            (PARENT + use, SWAPPED + use)
            for use in (
                "class Child(Parent):\n    def f(self):\n        return self.a",
                "    def f(self):\n        return getattr(self, 'a')",
                "Parent().a",
            )
        ),
        ("x = 1\ndef f():\n    return x", "x = 1\ndef f():\n    return y"),
        ("x = 1\ndef f():\n    global x\n    x = 2", "x = 1\ndef f():\n    x = 2"),
    ],
)
def test_renaming_is_not_taken_too_far(one: str, other: str) -> None:
    assert canonical_sha256(one) != canonical_sha256(other)


def test_names_of_scopes_do_not_mix() -> None:
    one = "def f(x):\n    return x\ndef g(x):\n    return x\n"
    other = "def f(a):\n    return a\ndef g(b):\n    return b\n"
    assert canonical_sha256(one) == canonical_sha256(other)


def test_not_python() -> None:
    with pytest.raises(SyntaxError):
        canonical_sha256("def f(:")
