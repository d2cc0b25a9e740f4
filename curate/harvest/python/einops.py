"""Write einops calls as torch calls, so that a module needs no other library.

An einops pattern names the axes of a tensor before and after (Rogozhnikov, ICLR 2022). Without an
ellipsis it says the rank, so it is a fixed chain of ``unflatten``, ``squeeze``, ``permute``,
``expand``, reduction, ``unsqueeze`` and ``flatten``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Groups = list[list[str]]

LAYER_NAME = "_EinopsLayer"
LAYER = '''class _EinopsLayer(torch.nn.Module):
    """A function of one tensor, as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)'''
"""Stands for `einops.layers.torch.Rearrange` and `Reduce`."""

FUNCTIONS = frozenset({"einops.rearrange", "einops.repeat", "einops.reduce"})
LAYERS = frozenset({"einops.layers.torch.Rearrange", "einops.layers.torch.Reduce"})

_REDUCTIONS = {"mean": "mean", "sum": "sum", "max": "amax", "min": "amin"}
_GROUP = re.compile(r"\(([^()]*)\)|(\w+)")


def chain(pattern: str, sizes: Mapping[str, str], reduction: str | None = None) -> str | None:
    """Return the method calls that do what a pattern says, such as ``.permute(0, 2, 1)``.

    Args:
        pattern: ``left -> right``.
        sizes: axis -> the expression of its length.
        reduction: how axes that vanish are reduced.

    Returns:
        None where the pattern has an ellipsis, or needs what this does not know.
    """
    left_text, arrow, right_text = pattern.partition("->")
    if not arrow or "." in pattern or (reduction and reduction not in _REDUCTIONS):
        return None
    left, right = _groups(left_text), _groups(right_text)
    axes = [axis for group in left for axis in group]
    wanted = [axis for group in right for axis in group]
    new = [axis for axis in wanted if axis not in axes]
    gone = [axis for axis in axes if axis not in wanted]
    if len(set(axes)) < len(axes) or len(set(wanted)) < len(wanted):
        return None
    if bool(gone) != bool(reduction) or any(axis not in sizes for axis in new):
        return None
    split = _split(left, sizes)
    if split is None:
        return None
    reduced = f".{_REDUCTIONS[reduction]}({_indices(axes, gone)})" if reduction else ""
    kept = [axis for axis in axes if axis not in gone]
    order = [kept.index(axis) for axis in wanted if axis not in new]
    permuted = f".permute({', '.join(map(str, order))})" if order != sorted(order) else ""
    return split + reduced + permuted + _expand(wanted, new, sizes) + _join(right)


def _groups(side: str) -> Groups:
    """Return the axes of each dimension; none for a dimension of length 1."""
    groups = [(inner or single).split() for inner, single in _GROUP.findall(side)]
    return [[axis for axis in group if axis != "1"] for group in groups]


def _split(left: Groups, sizes: Mapping[str, str]) -> str | None:
    calls = []
    for index, group in reversed(list(enumerate(left))):
        if not group:
            calls.append(f".squeeze({index})")
        elif len(group) > 1:
            lengths = [sizes.get(axis, "-1") for axis in group]
            if lengths.count("-1") > 1:
                return None
            calls.append(f".unflatten({index}, ({', '.join(lengths)}))")
    return "".join(calls)


def _expand(wanted: list[str], new: list[str], sizes: Mapping[str, str]) -> str:
    if not new:
        return ""
    unsqueezed = "".join(f".unsqueeze({wanted.index(axis)})" for axis in new)
    lengths = [sizes[axis] if axis in new else "-1" for axis in wanted]
    return f"{unsqueezed}.expand({', '.join(lengths)})"


def _join(right: Groups) -> str:
    calls = []
    for index, group in enumerate(right):
        if not group:
            calls.append(f".unsqueeze({index})")
        elif len(group) > 1:
            calls.append(f".flatten({index}, {index + len(group) - 1})")
    return "".join(calls)


def _indices(axes: list[str], chosen: list[str]) -> str:
    indices = [str(axes.index(axis)) for axis in chosen]
    return indices[0] if len(indices) == 1 else f"({', '.join(indices)})"
