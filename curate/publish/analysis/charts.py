"""Charts as inline SVG: no script, no image, colours from the page's style sheet.

Each is drawn small enough for a phone at its natural size, so that its text stays readable; a page
sets several side by side.
"""

from __future__ import annotations

import math

from markupsafe import Markup, escape

from curate.publish.analysis.counts import Bin, Distribution

WIDTH, HEIGHT = 260, 150
LEFT, RIGHT, TOP, BOTTOM = 36, 16, 8, 22
MOST_TICKS = 5


def number(value: float | None) -> str:
    """Return a number as people read it: 12,345, 0.25, 3.1e-07, or a dash for None."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "infinite" if math.isinf(value) else "not a number"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 0.001:
        return f"{value:.3g}"
    return f"{value:.2g}"


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


def axis_max(most: int) -> tuple[int, int]:
    """Return where an axis of counts ends, and the distance of its ticks."""
    for step in (m * 10**power for power in range(12) for m in (1, 2, 5)):
        if step * 4 >= most:
            return step * -(-most // step), step
    raise ValueError("too many rows")


def histogram(spread: Distribution, title: str) -> Markup:
    """Return a histogram of a quantity; its bars are as wide as each other."""
    bins = spread.bins
    top, step = axis_max(max(b.n for b in bins))
    wide = (WIDTH - LEFT - RIGHT) / len(bins)
    high = HEIGHT - TOP - BOTTOM

    def y(n: float) -> float:
        return TOP + high * (1 - n / top)

    parts = [_grid(y(n), number(n)) for n in range(0, top + 1, step)]
    for i, b in enumerate(bins):
        if b.n:
            tip = f"{range_name(b, bins)}: {b.n:,} rows"
            parts.append(_bar(LEFT + i * wide, y(b.n), wide, y(0) - y(b.n), tip))
    parts += _ticks(bins, wide)
    label = escape(f"{title}. {summary(spread)}")
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _grid(y: float, label: str) -> str:
    return (
        f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'
    )


def _bar(x: float, y: float, wide: float, high: float, tip: str) -> str:
    gap = min(1.5, wide * 0.15)
    return (
        f'<rect class="bar" x="{x + gap / 2:.1f}" y="{y:.1f}" width="{wide - gap:.1f}" '
        f'height="{max(high, 1):.1f}"><title>{escape(tip)}</title></rect>'
    )


def _ticks(bins: list[Bin], wide: float) -> list[str]:
    base = HEIGHT - BOTTOM + 14
    drawn = []
    for place, text in tick_labels(bins):
        x = min(LEFT + place * wide, WIDTH - 3.2 * len(text))  # half a text's width from the edge
        drawn.append(f'<text x="{x:.1f}" y="{base}" text-anchor="middle">{text}</text>')
    return drawn


def are_whole(bins: list[Bin]) -> bool:
    """Say whether each range holds one whole number."""
    return all(b.high - b.low == 1 and b.low == int(b.low) for b in bins)


def tick_labels(bins: list[Bin]) -> list[tuple[float, str]]:
    """Return some labels of an axis: a place in bars from the left, and the text.

    A bar of one whole number is labelled below its middle, others at their edges.
    """
    if are_whole(bins):
        places = [(i + 0.5, number(b.low)) for i, b in enumerate(bins)]
    else:
        edges = [b.low for b in bins] + [bins[-1].high]
        places = [(float(i), number(edge)) for i, edge in enumerate(edges)]
    every = -(-len(places) // MOST_TICKS)
    return places[::every]


def range_name(b: Bin, bins: list[Bin]) -> str:
    """Return what a bar covers, in words."""
    if are_whole(bins):
        return number(b.low)
    return f"{number(b.low)} to {number(b.high)}"


def summary(spread: Distribution) -> str:
    """Return a distribution in one sentence."""
    if not spread.n:
        return "No row has a value."
    return (
        f"n = {spread.n:,}; median {number(spread.median)}, "
        f"middle half {number(spread.p25)} to {number(spread.p75)}, "
        f"range {number(spread.minimum)} to {number(spread.maximum)}"
    )


def bar(parts: list[tuple[str, float]], whole: float) -> Markup:
    """Return a horizontal bar for a table's cell: classes and lengths, of ``whole`` in all."""
    x, drawn = 0.0, ['<rect class="track" width="100" height="10"/>']
    for name, n in parts:
        wide = 100 * n / whole if whole else 0
        if n:
            drawn.append(
                f'<rect class="{escape(name)}" x="{x:.2f}" y="0" '
                f'width="{max(wide, 0.25):.2f}" height="10"/>'
            )
        x += wide
    return Markup(
        '<svg class="line" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(drawn)}</svg>"
    )
