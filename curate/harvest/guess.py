"""Guess arguments from names and annotations, and improve a guess step by step."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Guess = TypeVar("Guess")
Result = TypeVar("Result")
Value = TypeVar("Value")


def look_up(table: Iterable[tuple[str, Value]], name: str, default: Value) -> Value:
    """Return the value of the first pattern in a table that matches the whole name."""
    return next((value for pattern, value in table if re.fullmatch(pattern, name)), default)


def annotation_text(annotation: Any) -> str:
    """Return a parameter's annotation as lower-case text such as ``tuple[int, int]``.

    ``Optional[X]`` and ``X | None`` become ``x``; a missing annotation becomes ''.
    """
    if annotation is inspect.Parameter.empty:
        return ""
    plain = isinstance(annotation, type) and not typing.get_args(annotation)
    text = str(annotation.__name__ if plain else annotation).lower()
    text = text.replace("typing.", "").replace("collections.abc.", "")
    optional = re.fullmatch(r"optional\[(.*)\]", text)
    return optional.group(1) if optional else text.removesuffix(" | none")


def hill_climb(
    first: Result,
    neighbours: Callable[[Result], Iterator[Guess]],
    attempt: Callable[[Guess], Result | None],
    is_better: Callable[[Result, Result], bool],
    is_over: Callable[[Result | None], bool],
) -> Result:
    """Return the best result found by changing a guess step by step.

    A neighbour with a better result is taken at once, and the search goes on from there.

    Args:
        first: the result to start from.
        neighbours: the guesses to try next after a result, the likeliest first.
        attempt: the result of a guess; None if it was tried before.
        is_better: whether the first result is better than the second.
        is_over: whether to stop after an attempt with this result.
    """
    best = first
    last: Result | None = first
    guesses = neighbours(best)
    while not is_over(last) and (guess := next(guesses, None)) is not None:
        last = attempt(guess)
        if last is not None and is_better(last, best):
            best, guesses = last, neighbours(last)
    return best
