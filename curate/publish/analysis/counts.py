"""Counting rows: how many have which value, and how a quantity is spread.

What is kept does not grow with the rows: quantities are rounded to three digits and counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

DIGITS = 3  # that a quantity keeps
MOST_BARS = 20  # of a linear histogram
LONG_TAIL = 25  # largest over lower quartile, from which ranges grow with the quantity
MOST_LOG_BARS = 24  # of a histogram whose ranges grow


class Frozen(BaseModel):
    """The part that all results share."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Ends = tuple[float | None, float | None]


class ValueCounts(Frozen):
    """How many rows have which value of one property.

    Attributes:
        n: rows that were looked at.
        unknown: rows whose value is not known.
        counts: rows by value, most first. A row may have several values, or none.
    """

    n: int = 0
    unknown: int = 0
    counts: dict[str, int] = {}


class Bin(NamedTuple):
    """Rows whose quantity is at least ``low`` and less than ``high``; of the last, at most."""

    low: float
    high: float
    n: int


class Distribution(Frozen):
    """How a quantity is spread over rows.

    Attributes:
        what: what is measured, in words, with its unit.
        n: rows whose quantity is known and finite.
        unknown: rows whose quantity is not known.
        not_finite: rows whose quantity is infinite or not a number.
        minimum, p05, p25, median, p75, p95, maximum: nearest-rank quantiles; null if n is 0.
        bins: rows by range.
        log: whether the ranges grow with the quantity.
        below, above: where the first range ends and the last begins, if they hold all that is
            further out than the others.
    """

    what: str
    n: int = 0
    unknown: int = 0
    not_finite: int = 0
    minimum: float | None = None
    p05: float | None = None
    p25: float | None = None
    median: float | None = None
    p75: float | None = None
    p95: float | None = None
    maximum: float | None = None
    bins: list[Bin] = []
    log: bool = False
    below: float | None = None
    above: float | None = None


QUANTILES = {
    "minimum": 0.0,
    "p05": 0.05,
    "p25": 0.25,
    "median": 0.5,
    "p75": 0.75,
    "p95": 0.95,
    "maximum": 1.0,
}


class Counts:
    """Tallies and quantities by name, filled row by row."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._values: dict[str, Counter[str]] = {}
        self._quantities: dict[str, Counter[float]] = {}

    def one(self, name: str, value: Any) -> None:
        """Count a row by its value of a property; None is unknown."""
        self.many(name, None if value is None else [value])

    def many(self, name: str, values: Iterable[Any] | None) -> None:
        """Count a row by each of its values of a property; None is unknown."""
        self._rows[name] += 1
        if values is None:
            self._unknown[name] += 1
            return
        known = self._values.setdefault(name, Counter())
        known.update({_word(value) for value in values})

    def quantity(self, name: str, value: float | None) -> None:
        """Count a row by a quantity; None is unknown."""
        known = self._quantities.setdefault(name, Counter())
        if value is None:
            self._unknown[name] += 1
        else:
            short = rounded(value)  # of the largest float it is infinite
            known[short if math.isfinite(short) else math.nan] += 1

    def names(self, prefix: str) -> list[str]:
        """Return what follows a prefix in the names of properties, in order."""
        found = {*self._rows, *self._quantities}
        return sorted(name.removeprefix(prefix) for name in found if name.startswith(prefix))

    def tally(self, name: str) -> ValueCounts:
        """Return what was counted under a name."""
        counts = ranked(self._values.get(name, Counter()))
        return ValueCounts(n=self._rows[name], unknown=self._unknown[name], counts=counts)

    def distribution(self, name: str, what: str) -> Distribution:
        """Return how a quantity is spread."""
        known = Counter(self._quantities.get(name, Counter()))
        lost = sum(known.pop(value) for value in [v for v in known if math.isnan(v)])
        return distribution(known, what, self._unknown[name], lost)


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def ranked(counts: Counter[str]) -> dict[str, int]:
    """Return counts as a dict, most first, those that are equal by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def rounded(value: float) -> float:
    """Return a number with `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def distribution(
    known: Counter[float], what: str, unknown: int = 0, not_finite: int = 0
) -> Distribution:
    """Return how values are spread, given how often each occurs."""
    values = sorted(known)
    n = known.total()
    if not n:
        return Distribution(what=what, unknown=unknown, not_finite=not_finite)
    quantiles = {name: quantile(values, known, share) for name, share in QUANTILES.items()}
    log = _is_long_tailed(values, quantiles)
    below = above = None
    if log:
        edges, (below, above) = _clipped(_log_edges(values), known)
    else:
        edges = _linear_edges(values)
    return Distribution(
        what=what,
        n=n,
        unknown=unknown,
        not_finite=not_finite,
        **quantiles,
        bins=_fill(edges, known),
        log=log,
        below=below,
        above=above,
    )


def quantile(values: Sequence[float], known: Counter[float], share: float) -> float:
    """Return the smallest value that at least a share of all rows do not exceed."""
    rank, seen = max(1, math.ceil(share * known.total())), 0
    for value in values:
        seen += known[value]
        if seen >= rank:
            return value
    raise ValueError("no values")


def _is_long_tailed(values: Sequence[float], quantiles: dict[str, float]) -> bool:
    if values[0] < 0 or values[-1] <= 0:
        return False
    least = max(quantiles["p25"], min(v for v in values if v > 0))
    return values[-1] / least > LONG_TAIL


def _linear_edges(values: Sequence[float]) -> list[float]:
    whole = all(value == int(value) for value in values)
    span = values[-1] - values[0] + (1 if whole else 0)
    step = _nice(span / MOST_BARS)
    if whole:
        step = max(1.0, step)
    first = math.floor(values[0] / step)
    last = max(first + 1, math.ceil((values[-1] + (0.5 if whole else 0)) / step))
    return [rounded_edge(i * step) for i in range(first, last + 1)]


def rounded_edge(value: float) -> float:
    """Return a number without the noise of binary fractions."""
    return float(f"{value:.10g}")


def _nice(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below ``least``."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))


def _log_edges(values: Sequence[float]) -> list[float]:
    whole = all(value == int(value) for value in values)
    low, high = min(v for v in values if v > 0), values[-1]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
    steps = (1, 1.5, 2, 3, 5, 7) if whole else (1, 2, 5) if len(powers) < 7 else (1,)
    found = [rounded_edge(m * 10.0**power) for power in powers for m in steps]
    edges = [edge for edge in found if not whole or edge == int(edge)]
    first = max((e for e in edges if e <= low), default=edges[0])
    last = next(e for e in edges if e > high)
    inside = [e for e in edges if first <= e <= last]
    return [0.0, *inside] if values[0] == 0 else inside


def _clipped(edges: list[float], known: Counter[float]) -> tuple[list[float], Ends]:
    """Return few enough edges, and the ends that hold more than a range of their own.

    One row may have an error of 5e+291 where the others have some millionths. So 98 rows of 100
    keep their ranges, and the first and the last range hold what is below and above.
    """
    if len(edges) <= MOST_LOG_BARS + 1:
        return edges, (None, None)
    some = Counter({value: times for value, times in known.items() if value > 0})
    low, high = (quantile(sorted(some), some, share) for share in (0.01, 0.99))
    end = len(edges) - 1
    first = max(i for i, edge in enumerate(edges) if edge <= low)
    last = min((i for i, edge in enumerate(edges) if edge > high), default=end)
    wide = -(-(last - first) // (MOST_LOG_BARS - 2))  # ranges that become one
    kept = sorted({0, *range(first, last, wide), last, end})
    ends = (edges[first] if first > 1 else None, edges[last] if last < end - 1 else None)
    return [edges[i] for i in kept], ends


def _fill(edges: Sequence[float], known: Counter[float]) -> list[Bin]:
    bins = []
    for low, high in pairwise(edges):
        inside = (low <= v < high or v == high == edges[-1] for v in known)
        n = sum(times for times, is_in in zip(known.values(), inside, strict=True) if is_in)
        bins.append(Bin(low, high, n))
    return bins
