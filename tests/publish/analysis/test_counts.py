import math
import sys
from collections import Counter

import pytest

from curate.publish.analysis.counts import MOST_BARS, Counts, distribution
from curate.publish.analysis.numbers import summary


def spread(*values: float) -> Counter[float]:
    return Counter(values)


@pytest.mark.parametrize(
    "values",
    [
        [1],
        [0],
        [3, 3, 3],
        list(range(1, 256)),
        [0, 0, 1, 5, 1200],
        [1e-12, 3e-7, 0.0, 250.0],
        [0.25, 0.5, 0.5, 1.0],
        [-3.5, 2.0],
        [10.0**k for k in range(-12, 6)],
        [10.0**k for k in range(-300, 300, 3)],
        [0.0, 1e-300, *[10.0 ** (k % 7 - 9) for k in range(400)], 3.5, 4.99e291],
    ],
)
def test_every_value_is_in_one_bar(values: list[float]) -> None:
    found = distribution(Counter(values), "x")
    assert sum(b.n for b in found.bins) == len(values)
    edges = [b.low for b in found.bins] + [found.bins[-1].high]
    assert edges == sorted(set(edges))
    assert edges[0] <= min(values) and max(values) <= edges[-1]
    assert len(found.bins) <= 2 * MOST_BARS


def test_quantiles_are_values_that_occur() -> None:
    found = distribution(Counter(range(1, 101)), "x")
    assert (found.minimum, found.p05, found.p25, found.median) == (1, 5, 25, 50)
    assert (found.p75, found.p95, found.maximum) == (75, 95, 100)


def test_a_long_tail_gets_ranges_that_grow() -> None:
    assert distribution(spread(*range(10, 20), 10_000), "x").log
    assert not distribution(spread(*range(16, 256)), "x").log


def test_one_row_far_out_does_not_stretch_the_axis() -> None:
    usual = {10.0**-k: 50 for k in range(4, 10)}
    found = distribution(Counter({**usual, 0.0: 60, 4.99e291: 1, 1e-200: 2}), "x")
    assert [b.n for b in found.bins] == [62, *[50] * 6, 1]
    assert found.bins[1].low == found.below == 1e-9
    assert found.bins[-1].low == found.above == 1e-3
    assert found.maximum == 4.99e291
    assert summary(found).endswith("; first bar: all below 1e-09; last bar: all from 0.001")
    plain = distribution(Counter(usual), "x")
    assert plain.below is plain.above is None and "bar" not in summary(plain)


def test_unknown_and_infinite_quantities_are_counted_apart() -> None:
    counts = Counts()
    for value in (1.0, None, math.inf, math.nan, 2.0, None, sys.float_info.max):
        counts.quantity("error", value)
    found = counts.distribution("error", "x")
    assert (found.n, found.unknown, found.not_finite) == (2, 2, 3)
    assert counts.distribution("nothing", "x").bins == []


def test_a_row_with_several_values_counts_once_for_each() -> None:
    counts = Counts()
    for values in (["add", "mul", "add"], ["mul"], [], None):
        counts.many("operators", values)
    found = counts.tally("operators")
    assert (found.n, found.unknown, found.counts) == (4, 1, {"mul": 2, "add": 1})


def test_quantities_keep_three_digits() -> None:
    counts = Counts()
    for value in range(100_000):
        counts.quantity("tokens", value)
    found = counts.distribution("tokens", "x")
    assert found.n == 100_000
    assert len(counts._quantities["tokens"]) < 3_000
