"""Sets of which one has all members of another: found without comparing all with all, none missed.

A set that has all members of another has its rarest one too. So each set is compared with those
that have its rarest member, which are few unless all its members are common. Equal sets are one
set. The work takes some 40 bytes per member of all sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from curate.clean.similar.minhash import PAIRS, U32, Indices, Sketches, runs, slices, spans, stored

if TYPE_CHECKING:
    import polars as pl

_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)  # two numbers of 32 bits are sorted as one


def gather_sets(sets: pl.Series) -> Sketches:
    """Return sets of numbers of 32 bits, each distinct and rising, as sketches without bands."""
    sizes = sets.list.len().fill_null(0).to_numpy().astype(np.int64)
    parts = [chunk.to_arrow().flatten().to_numpy() for chunk in sets.get_chunks()]
    members: U32 = np.concatenate([np.zeros(0, np.uint32), *parts]).astype(np.uint32, copy=False)
    return stored(np.zeros((0, len(sizes)), np.uint32), members, sizes)


def link_contained(sets: Sketches, threshold: float, join: Callable[[int, int], None]) -> None:
    """Join all sets of which one has all members of the other, and not many more.

    Args:
        sets: empty ones are joined to none.
        threshold: the least share of the larger set's members that the smaller has.
        join: makes one group of those that two sets are in.
    """
    first: dict[bytes, int] = {}
    for number in np.flatnonzero(sets.sizes).tolist():
        if (same := first.setdefault(sets.of(number).tobytes(), number)) != number:
            join(same, number)
    texts = np.array([*first.values()], np.int64)
    begins, counts, holders = _rarest(sets, texts)
    for part in slices(counts, PAIRS):
        ones = np.repeat(texts[part], counts[part])
        others = texts[holders[spans(begins[part], counts[part])]]
        small, large = sets.sizes[ones], sets.sizes[others]
        possible = (small < large) & (small >= threshold * large * (1 - 1e-9))
        ones, others, least = ones[possible], others[possible], (small / large)[possible]
        held = sets.similarities(ones, others) >= least
        for one, other in zip(ones[held].tolist(), others[held].tolist(), strict=True):
            join(one, other)


def _rarest(sets: Sketches, texts: Indices) -> tuple[Indices, Indices, Indices]:
    """Return where the holders of each set's rarest member begin, their number, and all holders.

    A holder is given by its place among the texts.
    """
    sizes = sets.sizes[texts]
    keyed = sets.shingles[spans(sets.begins[texts], sizes)].astype(np.uint64) << _HALF
    keyed |= np.repeat(np.arange(len(texts), dtype=np.uint64), sizes)
    keyed.sort()
    holders = (keyed & _LOW).astype(np.int64)
    counts = runs(keyed >> _HALF)
    ranked = np.repeat(
        (counts.astype(np.uint64) << _HALF) | np.arange(len(counts), dtype=np.uint64), counts
    )
    least = np.full(len(texts), 2**64 - 1, np.uint64)
    np.minimum.at(least, holders, ranked)
    member = (least & _LOW).astype(np.int64)
    return (np.cumsum(counts) - counts)[member], counts[member], holders
