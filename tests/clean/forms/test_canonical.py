from __future__ import annotations

import ast

import pytest

from curate.clean.forms.canonical import canonical_tokens

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
    assert canonical_tokens(other) == canonical_tokens(MODULE)


@pytest.mark.parametrize("change", DIFFERENT)
def test_another_program(change: str) -> None:
    old, new = DIFFERENT[change]
    assert old in MODULE
    assert canonical_tokens(MODULE.replace(old, new)) != canonical_tokens(MODULE)


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
    assert canonical_tokens(one) != canonical_tokens(other)


PROGRAM = """
import functools
import torch
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64})], key=["count"])
@triton.jit
def kernel(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    values = tl.load(source + places, mask=mask, other=0.0)
    tl.store(target + places, values * 2, mask=mask)

def twice(x, count=None):
    out = torch.empty_like(x)
    dim = 0
    count = count or x.sum(dim=dim)
    grid = lambda meta: (triton.cdiv(count, meta["BLOCK"]),)
    kernel[grid](x, out, count=count)
    return out

class Model(torch.nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.norm = Norm(width, eps=eps)

    def forward(self, x, scale=1.0):
        return self.shift(self.norm(x, scale=scale), offset=1)

    def shift(self, x, offset):
        return twice(x, count=offset)

class Norm(torch.nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, scale):
        return x * scale + self.eps
"""

RENAMED = {
    "a local that is a library's keyword": (("mask = places", "m = places"), ("=mask", "=m")),
    "a local that is a method's keyword": (("dim = 0", "d = 0"), ("dim=dim", "dim=d")),
    "a kernel's argument, in its decorators, grid and launch": (
        *(("BLOCK", "TILE"), ("source", "src"), ('key=["count"]', 'key=["n"]')),
        *(("target, count,", "target, n,"), ("places < count", "places < n")),
        ("out, count=count", "out, n=count"),
    ),
    "an argument of a function, and its keyword": (
        *(("x, count=None", "x, n=None"), ("count = count or", "n = n or")),
        *(("cdiv(count,", "cdiv(n,"), ("=count)", "=n)"), ("twice(x, count=", "twice(x, n=")),
    ),
    "an argument of a class, and its keyword": (
        *(("width, eps):", "width, e):"), ("self.eps = eps", "self.eps = e")),
        ("eps=eps)", "e=eps)"),
    ),
    "an argument of a module's forward": (
        *(("x, scale):", "x, s):"), ("x * scale", "x * s"), ("scale=scale", "s=scale")),
    ),
    "an argument of a method": (
        *(("x, offset)", "x, by)"), ("offset=1", "by=1"), ("=offset)", "=by)")),
    ),
}


@pytest.mark.parametrize("edit", RENAMED)
def test_keywords_of_own_functions_are_renamed_with_their_arguments(edit: str) -> None:
    other = PROGRAM
    for old, new in RENAMED[edit]:
        assert old in other
        other = other.replace(old, new)
    ast.parse(other)
    assert canonical_tokens(other) == canonical_tokens(PROGRAM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("other=0.0", "other=1.0"),
        ("mask=mask, other=0.0", "mask=mask, cache_modifier=0.0"),
        ("x.sum(dim=dim)", "x.sum(axis=dim)"),
        ('{"BLOCK": 64}', '{"count": 64}'),
        ('meta["BLOCK"]', 'meta["count"]'),
        ("scale=scale", "x=scale"),
    ],
)
def test_keywords_that_mean_something_are_kept(old: str, new: str) -> None:
    assert old in PROGRAM
    assert canonical_tokens(PROGRAM.replace(old, new)) != canonical_tokens(PROGRAM)


@pytest.mark.parametrize(
    "use",
    [
        "h = [f][0]\nh(a=1, b=2)",
        "import functools\nfunctools.partial(f, a=1, b=2)()",
        "f(**{'a': 1, 'b': 2})",
        "f(**dict(a=1, b=2))",
        "def g(h):\n    return h(a=1, b=2)\ng(f)",
        "class M:\n    def m(self):\n        return self.h(a=1, b=2)\nM.h = staticmethod(f)",
    ],
)
def test_arguments_that_may_be_called_by_keyword_keep_their_names(use: str) -> None:
    one, other = (f"def f({names}):\n    return a - b\n{use}\n" for names in ("a, b", "b, a"))
    swapped = "def f(b, a):\n    return b - a\n" + use
    assert canonical_tokens(one) != canonical_tokens(other)
    assert canonical_tokens(one) != canonical_tokens(swapped)


HINTS = {
    "of arguments": (
        "def forward(self, x, scale=1.0)",
        "def forward(self, x: 'T', scale: float=1.0)",
    ),
    "of what is returned": ("def shift(self, x, offset)", "def shift(self, x, offset) -> 'T'"),
    "of a local": ("    dim = 0", "    dim: int = 0"),
    "alone": ("    dim = 0", "    dim: int\n    dim = 0"),
    "of an attribute": ("self.eps = eps", "self.eps: float = eps"),
    "of a kernel's argument": ("(source, target", "(source: torch.Tensor, target"),
    "that looks like an attribute": ("width, eps):", "width: 'eps', eps):"),
}


@pytest.mark.parametrize("hint", HINTS)
def test_hints_of_types_do_not_count(hint: str) -> None:
    old, new = HINTS[hint]
    assert old in PROGRAM
    assert canonical_tokens(PROGRAM.replace(old, new)) == canonical_tokens(PROGRAM)


def test_fields_of_a_dataclass_are_no_hints() -> None:
    field = "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\n"
    assert canonical_tokens(field) == canonical_tokens(field.replace("int", "float"))
    assert canonical_tokens(field) != canonical_tokens(field.replace(": int", ""))
    assert canonical_tokens(field) != canonical_tokens(field + "    y: int\n")


def test_names_of_scopes_do_not_mix() -> None:
    one = "def f(x):\n    return x\ndef g(x):\n    return x\n"
    other = "def f(a):\n    return a\ndef g(b):\n    return b\n"
    assert canonical_tokens(one) == canonical_tokens(other)


def test_not_python() -> None:
    with pytest.raises(SyntaxError):
        canonical_tokens("def f(:")
