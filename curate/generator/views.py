"""The text of a view of a buffer as people write it: an index, `view`, `permute`, `expand`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import sympy

from curate.generator.loops import equal, product, quotient

SizeText = Callable[[Any], str]

VALUES = (*map(sympy.Integer, (97, 128, 1001, 4096, 65_537)),)
"""What sizes may be, to tell whether one may be more than another: guards ask for small ones."""


@dataclass(frozen=True)
class Elements:
    """Some of a buffer's elements.

    Attributes:
        size: of the view.
        stride: of the view, in elements.
        offset: of its first element.
    """

    size: list[sympy.Expr]
    stride: list[sympy.Expr]
    offset: sympy.Expr


def contiguous_strides(sizes: list[Any]) -> list[sympy.Expr]:
    """Return the strides of elements that lie one after the other."""
    return [product(sizes[dim + 1 :]) for dim in range(len(sizes))]


def is_contiguous(sizes: list[Any], strides: list[Any]) -> bool:
    """Whether elements lie one after the other."""
    expected = contiguous_strides(sizes)
    return all(s == 1 or equal(a, b) for s, a, b in zip(sizes, strides, expected, strict=True))


def view_text(
    base: str, seen: Elements, own: list[sympy.Expr], strides: list[sympy.Expr], text: SizeText
) -> str | None:
    """Return the text for some elements of a buffer, or None where no few operations give them.

    Args:
        base: the buffer's name.
        seen: its elements.
        own: its shape.
        strides: its strides.
        text: returns a size's text.
    """
    found = _picked(seen, own, strides, text)
    if found is not None:
        return base + found
    shape = _cut(seen, own) if is_contiguous(own, strides) else None
    if shape is None:
        return None
    found = _picked(seen, shape, contiguous_strides(shape), text)
    whole = ", ".join(map(text, shape))
    return None if found is None else f"{base}.view({whole}){found}"


def _cut(seen: Elements, own: list[sympy.Expr]) -> list[sympy.Expr] | None:
    """Return the shape that a dense buffer has along a view's strides, from the outermost one in;
    None if one is no multiple of the next."""
    left = [s for n, s in zip(seen.size, seen.stride, strict=True) if n != 1 and s != 0]
    shape: list[sympy.Expr] = []
    outer = product(own)
    while left:
        rest = [(quotient(outer, s), s) for s in left]
        # The outermost of them is a multiple of all others.
        first = [
            (length, s)
            for length, s in rest
            if length is not None and all(quotient(s, other) is not None for other in left)
        ]
        if len(first) != 1:
            return None
        (length, outer), *_ = first
        shape.append(length)
        left.remove(outer)
    return shape if outer == 1 else [*shape, outer]


def _picked(
    seen: Elements, shape: list[sympy.Expr], strides: list[sympy.Expr], text: SizeText
) -> str | None:
    """Return what follows a tensor's name to give a view of it, or None."""
    places = _places(seen, strides)
    starts = _starts(seen, places, shape, strides) if places is not None else None
    if places is None or starts is None:
        return None
    index = []
    sizes = {place: seen.size[d] for d, place in places.items()}
    for dim, (length, start) in enumerate(zip(shape, starts, strict=True)):
        if dim in sizes:
            index.append(_slice(start, sizes[dim], length, text))
        else:
            is_last = not start.is_Integer and equal(start, length - 1)
            index.append("-1" if is_last else text(start))
    order = sorted(places.values())
    moved = [order.index(place) for place in places.values()]
    ones = [d for d in range(len(seen.size)) if d not in places]
    if moved != sorted(moved):
        if ones:
            return None
        return f"{_indexed(index)}.permute({', '.join(map(str, moved))})"
    found = _indexed(_with_ones(index, places, len(seen.size)))
    wide = [d for d in ones if seen.size[d] != 1]
    if wide:
        wanted = (text(n) if d in wide else "-1" for d, n in enumerate(seen.size))
        found += f".expand({', '.join(wanted)})"
    return found


def _places(seen: Elements, strides: list[sympy.Expr]) -> dict[int, int] | None:
    """Return which of a tensor's dimensions each of a view's is; those of one element, or that
    are repeated, are none."""
    places: dict[int, int] = {}
    for d, (size, stride) in enumerate(zip(seen.size, seen.stride, strict=True)):
        if size == 1 or stride == 0:
            continue
        found = [p for p, s in enumerate(strides) if p not in places.values() and equal(s, stride)]
        if not found:
            return None
        places[d] = found[-1]  # one in front of it may have one element
    return places


def _starts(
    seen: Elements, places: dict[int, int], shape: list[sympy.Expr], strides: list[sympy.Expr]
) -> list[sympy.Expr] | None:
    """Return the place of a view's first element in a tensor, if it is 0 in all dimensions but
    one."""
    sizes = dict.fromkeys(range(len(shape)), sympy.S.One)
    sizes |= {place: seen.size[d] for d, place in places.items()}
    if not all(_fits(sizes[d], length) for d, length in enumerate(shape)):
        return None
    starts = [sympy.S.Zero] * len(shape)
    if seen.offset == 0:
        return starts
    for dim, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        start = quotient(seen.offset, stride)
        if start is not None and _fits(start + sizes[dim], length):
            starts[dim] = start
            return starts
    return None


def _fits(size: sympy.Expr, length: sympy.Expr) -> bool:
    """Whether a size is no more than another, for all of some values of their symbols."""
    rest = length - size
    symbols = sorted(rest.free_symbols, key=str)
    for turn in range(len(VALUES)):
        values = {s: VALUES[(turn + 3 * i) % len(VALUES)] for i, s in enumerate(symbols)}
        found = rest.xreplace(values) if symbols else rest
        if not (found.is_Integer and found >= 0):
            return False
    return True


def _slice(start: sympy.Expr, size: sympy.Expr, length: sympy.Expr, text: SizeText) -> str:
    first = "" if start == 0 else text(start)
    last = "" if equal(start + size, length) else text(start + size)
    return f"{first}:{last}"


def _with_ones(index: list[str], places: dict[int, int], rank: int) -> list[str]:
    """Return an index that gives dimensions of one element where a view has them."""
    found: list[str] = []
    used = -1
    gap: list[int] = []

    def close(until: int) -> None:
        chosen = index[used + 1 : until]
        for at in chosen:  # a dimension of one element may stay where one is wanted
            if gap:
                gap.pop()
                found.append(f"{at}:" if at == "-1" else f"{at}:{_next(at)}")
            else:
                found.append(at)
        found.extend("None" for _ in gap)
        gap.clear()

    for d in range(rank):
        if d in places:
            close(places[d])
            found.append(index[places[d]])
            used = places[d]
        else:
            gap.append(d)
    close(len(index))
    return found


def _next(at: str) -> str:
    return str(int(at) + 1) if at.isdigit() else f"{at} + 1"


def _indexed(index: Iterable[str]) -> str:
    """Return an index in brackets, without what it takes whole at its end; "" if that is all."""
    left = list(index)
    while left and left[-1] == ":":
        left.pop()
    return f"[{', '.join(left)}]" if left else ""
