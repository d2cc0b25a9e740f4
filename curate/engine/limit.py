"""``--limit N``: at most N problems or kernels of each source, spread over its units.

A source of problems stops reading there. Files and records are read further, since most hold
nothing: of these, it is the step that makes problems or kernels of them which stops.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from curate.engine.executor import Lost, Result
from curate.rows import RAW, Loose
from curate.step import RowStep, SourceStep, Step

READ = 32
"""Files or records that are read for each problem or kernel that is wanted."""

BEHIND = "limit"
"""Reason for what is dropped once there are as many rows as a trial wants."""


def spread(number: int, places: int) -> list[int]:
    """Return how many of a number fall to each of some places, evenly."""
    ends = [number * place // max(places, 1) for place in range(places + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]


def ends_raw(step: Step) -> bool:
    """Whether a step makes problems or kernels out of raw rows."""
    return isinstance(step, RowStep) and step.takes <= RAW and not step.makes <= RAW


def rows_to_read(source: SourceStep, steps: Sequence[Step], share: int | None) -> int | None:
    """Return how many rows a unit is to give, for its share of the limit."""
    is_raw = source.makes <= RAW and any(map(ends_raw, steps))
    return share * READ if share is not None and is_raw else share


def cut(rows: Sequence[Loose], results: list[Result | None], most: int) -> bool:
    """Drop what follows the first ``most`` rows that were kept; return whether there are so many.

    Args:
        rows: what a step looks at.
        results: what became of each so far, in their order; those behind the limit are replaced.
        most: rows to keep.
    """
    left = most
    for place, result in enumerate(results):
        if left and result is None:
            return False
        if result and left:
            result.kept = result.kept[:left]
            left -= len(result.kept)
        else:
            results[place] = Result(lost=[Lost(rows[place], "dropped", BEHIND, {})])
    return not left
