"""Whether a problem's indices are those of one of several equal numbers."""

from __future__ import annotations

from typing import Any

import torch

from curate.problem.operator_calls import Mode

PICK = ("topk", "sort", "kthvalue", "median", "mode")
"""Operators that give numbers out of a dimension, and where they are, but for equal ones: there
PyTorch's documentation leaves open which."""


class EqualPicks(Mode):
    """Notes whether an operator of `PICK` had to choose among equal numbers.

    Attributes:
        found: whether one had to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Look at what an operator picks, and at what there is."""
        result = func(*args, **kwargs)
        if func._schema.name.removeprefix("aten::") in PICK and isinstance(result, tuple):
            given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
            if not given.get("stable") and given["self"].dim():
                self.found |= _has_equal(given["self"], result[0], given.get("dim", -1))
        return result


def _has_equal(given: torch.Tensor, picked: torch.Tensor, dim: int) -> bool:
    """Say whether two equal numbers lie between the smallest and the largest that were picked."""
    if picked.dim() < given.dim():
        picked = picked.unsqueeze(dim)
    ordered = given.sort(dim).values
    pairs = ordered.narrow(dim, 1, max(0, ordered.shape[dim] - 1))
    equal = pairs == ordered.narrow(dim, 0, pairs.shape[dim])
    within = (pairs >= picked.amin(dim, keepdim=True)) & (pairs <= picked.amax(dim, keepdim=True))
    return bool((equal & within).any())
