"""Factors of a product that memory holds in few bits, made into numbers in the tile.

What makes them is recorded at the tile's own axes. What scales whole rows or columns of a factor
scales the result instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
import torch

from curate.generator import torch_private as private
from curate.generator.body import Body, Dim
from curate.generator.loops import Loops
from curate.generator.text.operations import TYPES
from curate.generator.torch_private import CallOperand
from curate.generator.unprintable import Unprintable
from curate.generator.values import Value, made_of

PACKED = {torch.int8, torch.uint8, torch.int16, torch.int32}
PACKED |= {torch.float8_e4m3fn, torch.float8_e5m2}
"""Types that hold numbers in few bits, or codes of several."""

_CHEAP = {"load", "constant", "index", "masked", "where", "to_dtype", "add", "sub", "mul"}
_CHEAP |= {"truediv", "mod", "remainder", "floordiv", "lt", "le", "gt", "ge", "eq", "ne"}
_CHEAP |= {f"bitwise_{name}" for name in ("and", "or", "xor", "left_shift", "right_shift")}
"""What is done by each program that reads a factor."""


@dataclass
class Factor:
    """A factor in a tile.

    Attributes:
        value: an element, from what memory holds.
        outer, inner: its axes: a row or column of the result, and what is summed over.
        scales: what its rows or columns are multiplied by, at the result's axes.
    """

    value: Value
    operand: CallOperand
    outer: sympy.Symbol
    inner: sympy.Symbol
    scales: list[Value]

    def dims(self, outer: str, mask: str, inner: str) -> list[Dim]:
        """Return the ways along its axes, which a schedule gives these names."""
        return [Dim(outer, [self.outer], mask), Dim(inner, [self.inner], f"{inner}_mask")]

    def begin(self, body: Body) -> None:
        """Compute what is the same all along the loop over a tile's products."""
        body.hoist([self.value], [self.inner])
        for one in made_of([self.value]):
            if one.op == "load" and self.inner in one.axes and not one.masks:
                body.fill(one, 0)

    def text(self, body: Body, dtype: torch.dtype) -> str:
        """Return a tile's text, of a type that the tensor cores take."""
        value = self.value
        if value.op == "to_dtype" and value.dtype.is_floating_point:
            value = value.args[0]
        text = body.text(value)
        return text if value.dtype == dtype else f"({text}).to({TYPES[dtype]})"


def factor(loops: Loops, operand: CallOperand, at: Any, side: int) -> Factor:
    """Return a product's factor that is made where it is read.

    Args:
        loops: the product's.
        operand: the factor.
        at: gives the factor's address at two axes, or at the result's place and one axis.
        side: 0 for the left one.

    Raises:
        Unprintable: it is not what memory holds in few bits, or takes long to make.
    """
    names = (f"{'ab'[side]}_{name}" for name in ("outer", "inner"))
    outer, inner = (sympy.Symbol(name, integer=True, nonnegative=True) for name in names)
    sizes = operand.sizes[-2:] if side == 0 else operand.sizes[:-3:-1]
    loops.axes |= dict(zip((outer, inner), sizes, strict=True))
    loops.reduced += [outer, inner]
    value, _ = _apart(loops.recorder.load(operand.buffer, at(outer, inner)), inner)
    known = len(loops.expressions)
    _, scales = _apart(loops.recorder.load(operand.buffer, at(None, inner)), inner)
    del loops.expressions[known:]
    parts = [part for scale in scales for part in made_of([scale])]
    loops.expressions += [part.index for part in parts if part.index is not None]
    parts = list(made_of([value]))
    loads = [part for part in parts if part.op == "load" and {outer, inner} <= part.axes]
    packed = any(private.buffer_dtype(load.name) in PACKED for load in loads)
    if not packed or any(part.op not in _CHEAP for part in parts):
        raise Unprintable("a factor that is not quantised")
    return Factor(value, operand, outer, inner, scales)


def _apart(value: Value, inner: sympy.Symbol) -> tuple[Value, list[Value]]:
    """Return a value without the factors that are the same along an axis, and these."""
    scales: list[Value] = []
    while value.op == "mul":
        free = [one for one in value.args if inner not in one.axes]
        if len(free) != 1:
            break
        scales.insert(0, free[0])
        value = value.args[0] if free[0] is value.args[1] else value.args[1]
    return value, scales
