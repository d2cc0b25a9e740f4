"""Write einops calls as torch calls, so that a module needs no other library.

An einops pattern names the axes of a tensor before and after (Rogozhnikov, ICLR 2022), so it is a
fixed chain of ``unflatten``, ``squeeze``, ``permute``, ``expand``, reduction, ``unsqueeze`` and
``flatten``. Axes after an ellipsis are counted from the end, and then ``movedim`` permutes.
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
EINSUM = "einops.einsum"
LAYERS = frozenset({"einops.layers.torch.Rearrange", "einops.layers.torch.Reduce"})

_REDUCTIONS = {"mean": "mean", "sum": "sum", "max": "amax", "min": "amin"}
_GROUP = re.compile(r"\(([^()]*)\)|(\w+|\.\.\.)")
_DOTS = "..."
_AXIS = re.compile(r"\.\.\.|[A-Za-z_]\w*")


def chain(pattern: str, sizes: Mapping[str, str], reduction: str | None = None) -> str | None:
    """Return the method calls that do what a pattern says, such as ``.permute(0, 2, 1)``.

    Args:
        pattern: ``left -> right``.
        sizes: axis -> the expression of its length.
        reduction: how axes that vanish are reduced.

    Returns:
        None where the pattern needs what this does not know.
    """
    left_text, arrow, right_text = pattern.partition("->")
    if not arrow or (reduction and reduction not in _REDUCTIONS):
        return None
    left, right = _groups(left_text), _groups(right_text)
    axes = [axis for group in left for axis in group]
    wanted = [axis for group in right for axis in group]
    sizes = {axis: axis for axis in axes + wanted if axis.isdigit()} | dict(sizes)
    new = [axis for axis in wanted if axis not in axes]
    gone = [axis for axis in axes if axis not in wanted]
    if len(set(axes)) < len(axes) or len(set(wanted)) < len(wanted):
        return None
    if bool(gone) != bool(reduction) or _DOTS in gone or any(axis not in sizes for axis in new):
        return None
    split = _split(left, sizes)
    if split is None or (_DOTS in axes and [_DOTS] not in left):
        return None
    reduced = f".{_REDUCTIONS[reduction]}({_indices(axes, gone)})" if reduction else ""
    kept = [axis for axis in axes if axis not in gone]
    order = [axis for axis in wanted if axis not in new]
    moved = _permute(kept, order)
    joins_dots = any(_DOTS in inner for inner, _ in _GROUP.findall(right_text))
    return split + reduced + moved + _expand(wanted, new, sizes) + _join(right, joins_dots)


def einsum_equation(pattern: str) -> str | None:
    """Return ``torch.einsum``'s equation for a pattern; None for what it cannot say."""
    sides = pattern.split("->")
    terms = [[term.split() for term in side.split(",")] for side in sides]
    axes = [axis for side in terms for term in side for axis in term]
    if len(sides) != 2 or not all(map(_AXIS.fullmatch, axes)):
        return None
    letters = {_DOTS: _DOTS}
    for axis in axes:
        spare = (one for one in axis + "abcdefghijklmnopqrstuvwxyz" if one.isalpha())
        if axis not in letters:
            letters[axis] = next(one for one in spare if one not in letters.values())
    left, right = (
        ",".join("".join(letters[axis] for axis in term) for term in side) for side in terms
    )
    return f"{left}->{right}"


def _groups(side: str) -> Groups:
    """Return the axes of each dimension; none for a dimension of length 1."""
    groups = [(inner or single).split() for inner, single in _GROUP.findall(side)]
    return [[axis for axis in group if axis != "1"] for group in groups]


def _places(axes: list[str]) -> dict[str, int]:
    """Return where each axis is; those after an ellipsis are counted from the end."""
    dots = axes.index(_DOTS) if _DOTS in axes else len(axes)
    return {axis: i if i < dots else i - len(axes) for i, axis in enumerate(axes)}


def _split(left: Groups, sizes: Mapping[str, str]) -> str | None:
    dots = left.index([_DOTS]) if [_DOTS] in left else len(left)
    before = list(enumerate(left))[:dots][::-1]
    after = [(index - len(left), group) for index, group in enumerate(left)][dots + 1 :]
    calls = []
    for index, group in before + after:
        if not group:
            calls.append(f".squeeze({index})")
        elif len(group) > 1:
            lengths = [sizes.get(axis, "-1") for axis in group]
            if lengths.count("-1") > 1:
                return None
            calls.append(f".unflatten({index}, ({', '.join(lengths)}))")
    return "".join(calls)


def _permute(axes: list[str], order: list[str]) -> str:
    if axes == order:
        return ""
    if _DOTS not in axes:
        return f".permute({', '.join(str(axes.index(axis)) for axis in order)})"
    source, target = _places(axes), _places(order)
    fixed = [axis for axis in order if axis != _DOTS]
    moved = [axis for axis in fixed if source[axis] != target[axis]]
    if len(moved) == 2 and {source[a] for a in moved} == {target[a] for a in moved}:
        return f".transpose({source[moved[1]]}, {source[moved[0]]})"
    return f".movedim({_indices(axes, fixed)}, {_indices(order, fixed)})"


def _expand(wanted: list[str], new: list[str], sizes: Mapping[str, str]) -> str:
    if not new:
        return ""
    if _DOTS in wanted:  # how many lengths `expand` takes is not known
        places = {axis: place for axis, place in _places(wanted).items() if axis in new}
        before = sorted((place, axis) for axis, place in places.items() if place >= 0)
        after = sorted(((place, axis) for axis, place in places.items() if place < 0), reverse=True)
        return "".join(
            f".unsqueeze({place}).repeat_interleave({sizes[axis]}, {place})"
            for place, axis in before + after
        )
    unsqueezed = "".join(f".unsqueeze({wanted.index(axis)})" for axis in new)
    lengths = [sizes[axis] if axis in new else "-1" for axis in wanted]
    return f"{unsqueezed}.expand({', '.join(lengths)})"


def _join(right: Groups, joins_dots: bool) -> str:
    dots = next((i for i, group in enumerate(right) if _DOTS in group), len(right))
    calls = []
    for index, group in enumerate(right[:dots]):
        if not group:
            calls.append(f".unsqueeze({index})")
        elif len(group) > 1:
            calls.append(f".flatten({index}, {index + len(group) - 1})")
    for index, group in list(enumerate(right[dots + 1 :], dots + 1 - len(right)))[::-1]:
        if not group:
            calls.append(f".unsqueeze({index})")
        elif len(group) > 1:
            calls.append(f".flatten({index - len(group) + 1}, {index})")
    if joins_dots:
        calls.append(f".flatten({dots}, {dots - len(right)})")
    return "".join(calls)


def _indices(axes: list[str], chosen: list[str]) -> str:
    places = _places(axes)
    indices = [str(places[axis]) for axis in chosen]
    return indices[0] if len(indices) == 1 else f"({', '.join(indices)})"
