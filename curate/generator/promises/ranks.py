"""Inputs of any rank: the dimensions in front that a program's kernels see as one.

Whether they do shows when the module is traced with one more of them, and the same text comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
import torch

from curate.generator.trace import Traced
from curate.generator.unprintable import Unprintable

LEAD = sympy.Symbol("lead", integer=True, positive=True)
"""How many elements the dimensions in front have together."""


@dataclass(frozen=True)
class Lead:
    """The dimensions in front in one trace.

    Attributes:
        leaves: the inputs that begin with them.
        parts: their sizes; the first is the one that nothing else depends on.
        length: how many elements they have in the file.
    """

    leaves: frozenset[int]
    parts: tuple[sympy.Symbol, ...]
    length: int

    def known(self, e: sympy.Expr) -> sympy.Expr:
        """Return a number in which the parts are one."""
        first, *more = self.parts
        return e.subs(first, LEAD / sympy.Mul(*more)) if first in e.free_symbols else e

    def joined(self, sizes: list[sympy.Expr]) -> list[sympy.Expr]:
        """Return a shape with one dimension in front, from known sizes.

        Raises:
            Unprintable: it has some of the parts elsewhere.
        """
        parts = list(map(self.known, self.parts))
        found: list[sympy.Expr] = []
        for size in sizes:
            found.append(size)
            if found[-len(parts) :] == parts:
                found[-len(parts) :] = [LEAD]
        if any(self.hides(size) for size in found):
            raise Unprintable("a rank")
        return found

    def hides(self, e: Any) -> bool:
        """Whether an expression depends on a single one of the parts."""
        return not e.free_symbols.isdisjoint(self.parts)


def find(traced: Traced) -> Lead | None:
    """Return the dimension in front of a module's inputs of the highest rank, if it is open."""
    tensors = {i: x for i, x in enumerate(traced.leaves) if isinstance(x, torch.Tensor)}
    longest = max(tensors.values(), key=lambda x: x.dim(), default=None)
    if longest is None or not longest.dim():
        return None
    size = traced.expression(longest.shape[0])
    leaves = [i for i, x in tensors.items() if x.dim() and traced.expression(x.shape[0]) == size]
    own = int(traced.env.backed_var_to_val[size]) if size.is_Symbol else 0
    return Lead(frozenset(leaves), (size,), own) if own else None


def longer(traced: Traced, lead: Lead) -> Lead | None:
    """Return the dimensions in front in a trace with one more of them, if both are open."""
    first, second = (
        {traced.expression(traced.leaves[i].shape[dim]) for i in lead.leaves} for dim in (0, 1)
    )
    parts = (*first, *second)
    if len(set(parts)) != 2 or not all(part.is_Symbol for part in parts):
        return None
    return Lead(lead.leaves, parts, lead.length)
