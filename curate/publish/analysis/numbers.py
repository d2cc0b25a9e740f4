"""Numbers as people read them."""

from __future__ import annotations

import math

from curate.publish.analysis.counts import Distribution


def number(value: float | None) -> str:
    """Return a number as people read it: 12,345, 0.25, 3.1e-07, or a dash for None."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "infinite" if math.isinf(value) else "not a number"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if 100 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.2g}"


def share(part: float, whole: float) -> str:
    """Return a percentage that is never rounded to all or nothing."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %" if percent % 1 and percent < 99.95 else f"{percent:.0f} %"


def plural(n: int, word: str) -> str:
    """Return a number and a noun: 1 row, 2 rows."""
    return f"{number(n)} {word}" if n == 1 else f"{number(n)} {word}s"


def summary(spread: Distribution) -> str:
    """Return a distribution in one sentence."""
    if not spread.n:
        return "No row has a value."
    ends = [
        f"{which} bar: all {where} {number(edge)}"
        for which, where, edge in (("first", "below", spread.below), ("last", "from", spread.above))
        if edge is not None
    ]
    return "; ".join(
        [
            f"n = {spread.n:,}",
            f"median {number(spread.median)}, "
            f"middle half {number(spread.p25)} to {number(spread.p75)}, "
            f"range {number(spread.minimum)} to {number(spread.maximum)}",
            *ends,
        ]
    )
