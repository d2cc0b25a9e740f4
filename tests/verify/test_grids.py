"""Axes of grids that a program's text computes."""

from __future__ import annotations

import pytest

from curate.verify.grids import Grids

PROGRAM = """\
import triton

FIXED = 1

@triton.autotune(configs=[], key=[])
@triton.jit
def one(x):
    pass

@triton.jit
def other(x):
    pass

class ModelNew:
    def forward(self, x, n):
        {launches}
"""


def computed(launches: str) -> list[int]:
    text = PROGRAM.format(launches=launches.replace("\n", "\n        "))
    return sorted(Grids(text).computed("one"))


@pytest.mark.parametrize(
    ("launches", "axes"),
    [
        ("one[(1,)](x)", []),
        ("one[(1, n)](x)", [1]),
        ("one[FIXED, triton.cdiv(n, 8)](x)", [1]),
        ("one[x.shape[0], n, 1](x)", [0, 1]),
        ("grid = (n,)\nother[grid](x)\ngrid = (1, n)\none[grid](x)", [1]),
        ("if n:\n    grid = (n, 1)\nelse:\n    grid = (1, 1, n)\none[grid](x)", [0, 2]),
        ("grid = (n,)\nif n:\n    grid = (1,)\none[grid](x)", [0]),
        ("grid = lambda meta: (1, triton.cdiv(n, meta['B']))\none[grid](x)", [1]),
        ("def grid(meta):\n    return (triton.cdiv(n, meta['B']), 1)\none[grid](x)", [0]),
        ("one[(n, 1) if n else (1, 1, 2)](x)", [0]),
        ("rows, cols = 1, n\none[rows, cols](x)", [1]),
        ("rows, *cols = 1, n\none[rows, cols](x)", [1]),
        ("for i in range(3):\n    one[(1, i)](x)", [1]),
        # how many axes there are is not known: the first one counts
        ("one[self.grid](x)", [0]),
        # a kernel under another name
        ("f = one\nf[(1, n)](x)", [1]),
        ("x.parts[n](x)\none[(1,)](x)", []),
        ("other[(n,)](x)", []),
    ],
)
def test_axes_that_are_computed(launches: str, axes: list[int]) -> None:
    assert computed(launches) == axes
