from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from curate.clean.similar.contained import gather_sets, link_contained


def linked(sets: list[list[int]], threshold: float) -> set[frozenset[int]]:
    """The sets that are joined, directly or not, each with the first of its group."""
    parents = list(range(len(sets)))

    def root(number: int) -> int:
        while parents[number] != number:
            number = parents[number]
        return number

    def join(one: int, other: int) -> None:
        low, high = sorted((root(one), root(other)))
        parents[high] = low

    column = pl.Series(sets, dtype=pl.List(pl.UInt32))
    chunks = pl.concat([column[:3], column[3:]], rechunk=False)
    link_contained(gather_sets(chunks), threshold, join)
    return {frozenset((root(number), number)) for number in range(len(sets))}


def one_by_one(sets: list[list[int]], threshold: float) -> set[frozenset[int]]:
    parents = list(range(len(sets)))
    for i, one in enumerate(sets):
        for j, other in enumerate(sets[:i]):
            small, large = sorted((set(one), set(other)), key=len)
            if small and small <= large and len(small) >= threshold * len(large):
                low, high = sorted((parents[i], parents[j]))
                parents = [low if parent == high else parent for parent in parents]
    return {frozenset((parent, number)) for number, parent in enumerate(parents)}


@pytest.mark.parametrize("threshold", [0.3, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_all_sets_that_hold_another_are_found_and_no_others(seed: int, threshold: float) -> None:
    rng = random.Random(seed)
    values = rng.sample(range(2**32), 14)
    sets = [sorted(rng.sample(values, rng.randrange(9))) for _ in range(40)]
    sets += [sorted({*rng.choice(sets), rng.choice(values)}) for _ in range(40)]
    assert linked(sets, threshold) == one_by_one(sets, threshold)


def test_nothing_is_in_no_set() -> None:
    assert linked([[], [], [1], []], 0.1) == {frozenset((i,)) for i in range(4)}
    assert len(gather_sets(pl.Series([None, [3]], dtype=pl.List(pl.UInt32))).of(0)) == 0
    assert gather_sets(pl.Series([], dtype=pl.List(pl.UInt32))).sizes.dtype == np.int64
