"""Whether a recipe's steps can follow one another: what each takes, makes, reads and sets.

A recipe is walked once without any rows. For each kind of row that may be there, it is known which
columns all rows of this kind have by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from curate.formats.format import Format
from curate.rows import COLUMNS, COMMON
from curate.step import SourceStep, Step

Place = tuple[str, int]
"""``steps``, ``formats`` and the position there, from 0."""

Have = dict[str, frozenset[str]]
"""The columns that are set, by kind of row."""


def misplaced(
    sources: Sequence[SourceStep],
    steps: Sequence[Step],
    formats: Sequence[Format],
    known: Iterable[type[Step]],
) -> Iterator[tuple[Place, str]]:
    """Yield every step and format that gets no rows or lacks a column, and what to do about it.

    Args:
        sources: of the recipe.
        steps: of the recipe, in their order.
        formats: of the recipe.
        known: all steps that there are, to name the one that is missing.
    """
    have: Have = {}
    for source in sources:
        _add(have, dict.fromkeys(source.makes, source.sets))
    spoiled: dict[str, str] = {}  # by column: the step after which it must be set again
    for i, step in enumerate(steps):
        taken = step.takes & have.keys()
        if not taken:
            makers = _put(one for one in known if step.takes & (one.makes | one.adds))
            kinds = " or ".join(sorted(step.takes))
            yield ("steps", i), f"`{step.name}` takes {kinds} rows, and none come to it: {makers}"
            continue
        for said in _lacking(step.name, step.needs(), have, taken, spoiled, known):
            yield ("steps", i), said
        for column in sorted(step.uses):
            later = [other for other in steps[i + 1 :] if column in other.sets]
            if later and not any(column in other.sets for other in steps[:i]):
                setter = _put([type(later[0])])
                yield ("steps", i), f"`{step.name}` reads the column `{column}`: {setter} before it"
        spoiled = {column: by for column, by in spoiled.items() if column not in step.sets}
        spoiled |= dict.fromkeys(step.spoils, step.name)
        _apply(have, step, taken)
    for i, view in enumerate(formats):
        shown = view.kinds & have.keys()
        for said in _lacking(view.format, view.reads, have, shown, spoiled, known):
            yield ("formats", i), said


def _apply(have: Have, step: Step, taken: frozenset[str]) -> None:
    """Change what rows there are, and what they have, as a step does."""
    before = {kind: have[kind] for kind in taken}
    became: Have = {}
    for kind, columns in before.items():
        if step.makes:
            del have[kind]
        for new in step.makes or {kind}:
            _add(became, {new: (columns | step.sets) - step.spoils})
        for new in step.adds:
            _add(became, {new: columns | step.sets})
    if step.makes:
        _add(have, became)
    else:
        have.update(became)


def _add(have: Have, new: Have) -> None:
    """Add kinds of row; where there are such rows already, all have what both have."""
    for kind, columns in new.items():
        possible = columns & {*COMMON, *COLUMNS[kind]}
        have[kind] = have[kind] & possible if kind in have else possible


def _lacking(
    name: str,
    columns: frozenset[str],
    have: Have,
    kinds: Iterable[str],
    spoiled: dict[str, str],
    known: Iterable[type[Step]],
) -> Iterator[str]:
    """Yield a line for each column that is needed and that no row of these kinds has."""
    there = frozenset[str]().union(*(have[kind] for kind in kinds))
    for column in sorted(columns - there):
        steps = (one for one in known if not issubclass(one, SourceStep))
        setters = _put(one for one in steps if column in one.sets)
        said = f"`{name}` reads the column `{column}`, which "
        if column in spoiled:
            by = spoiled[column]
            yield f"{said}no longer holds when `{by}` has run: {setters} after it"
        else:
            yield f"{said}no step before it sets: {setters} before it"


def _put(steps: Iterable[type[Step]]) -> str:
    words = sorted({f"`- {': '.join(step.word())}`" for step in steps})
    return f"put {' or '.join(words)}" if words else "no step makes it"
