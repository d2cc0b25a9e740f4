"""Whether a problem computes what an item of a benchmark computes, in other words.

Three rules, by what is known of the item (`curate.clean.fingerprint`):

- An item whose *values* on small inputs are known, since it has no parameters, is computed by a
  problem that gives the same values. These are single operators and formulas.
- Another item with fewer than `MIN_OPS` operators, such as one layer, is computed by a problem
  with the same graph.
- An item with more is a problem of its own. Who has the same graph, or most of the item's
  neighbourhoods, rare ones weighing more, has copied it, whatever is around it.

The first two are building blocks, which larger problems may hold; so only the whole problem is
compared with them. An item that gives its input back is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curate.clean.fingerprint import Computation
from curate.clean.similar.grams import GramIndex, from_base64

MIN_OPS = 3
"""Operators from which an item with parameters is a problem rather than a building block."""


@dataclass(frozen=True)
class ComputedItem:
    """An item that a problem computes.

    Attributes:
        item: the item's number.
        tier: ``wiring`` or ``values``.
        score: share of the item's neighbourhoods; 1 where all of it was compared.
    """

    item: int
    tier: str
    score: float = 1.0


class Computations:
    """What the items of benchmarks compute, ready to be compared with."""

    def __init__(self, items: Sequence[tuple[int, Computation]], count: int) -> None:
        """Take what is known of items, each with the item's number, and how many items are."""
        self._values: dict[str, int] = {}
        self._blocks: dict[str, int] = {}
        self._problems: dict[str, int] = {}
        owners, hops = [], []
        for number, item in items:
            for value in item.values:
                self._values.setdefault(value, number)
            if item.values or not item.is_known:
                continue
            if item.ops < MIN_OPS:
                self._blocks.setdefault(item.graph, number)
                continue
            self._problems.setdefault(item.graph, number)
            if item.hops:
                owners.append(number)
                hops.append(from_base64(item.hops))
        self._owners = np.array(owners, np.int64)
        self._hops = GramIndex(hops, self._owners, count)

    def copied(self, wiring: dict[str, Any], threshold: float | None) -> ComputedItem | None:
        """Return the problem that a row's wiring has or holds."""
        if (number := self._problems.get(wiring["graph"])) is not None:
            return ComputedItem(number, "wiring")
        if threshold is None or not len(self._owners):
            return None
        shares = self._hops.overlap(np.array(wiring["hops"], np.uint32))
        best = int(shares.argmax())
        if shares[best] < threshold:
            return None
        return ComputedItem(int(self._owners[best]), "wiring", round(float(shares[best]), 4))

    def computed(self, wiring: dict[str, Any]) -> ComputedItem | None:
        """Return the building block that a row's wiring is, or whose values it gives."""
        if (number := self._blocks.get(wiring["graph"])) is not None:
            return ComputedItem(number, "wiring")
        numbers = [self._values[value] for value in wiring["values"] if value in self._values]
        return ComputedItem(min(numbers), "values") if numbers else None
