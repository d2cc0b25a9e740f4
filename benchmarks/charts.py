"""Charts as SVG, readable on light and dark backgrounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.other { fill: #8c959f } .own { fill: #1a7f64 }
.axis { stroke: #8c959f; stroke-width: 1 } .grid { stroke: #8c959f; opacity: .25 }
.line { fill: none; stroke-width: 2 }
.c0 { stroke: #1a7f64 } .c1 { stroke: #0969da } .c2 { stroke: #bf5700 } .c3 { stroke: #8250df }
.c4 { stroke: #bf3989 } .c5 { stroke: #7d6b00 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .own { fill: #3fb98f }
.c0 { stroke: #3fb98f } .c1 { stroke: #58a6ff } .c2 { stroke: #f0883e } .c3 { stroke: #bc8cff }
.c4 { stroke: #f778ba } .c5 { stroke: #d4b106 }
}
</style>"""
COLOURS = 6
LINE_WIDTH, LINE_HEIGHT = 780, 430


class Bar(NamedTuple):
    """One bar: its label, its length, what is written after it, whether it is this project's."""

    label: str
    value: float
    note: str
    own: bool


def bar_chart(title: str, bars: Sequence[Bar], note: str) -> str:
    """Return a chart of horizontal bars, in the order given."""
    left, top, height, longest, width = 175, 44, 24, 350, 860
    scale = longest / max(bar.value for bar in bars)
    parts = [text(12, 24, title, "title")]
    for number, (label, value, words, own) in enumerate(bars):
        y = top + number * height
        long = max(1.0, value * scale)
        kind = "own" if own else "other"
        parts.append(text(left - 8, y + 14, label, anchor="end"))
        parts.append(
            f'<rect class="{kind}" x="{left}" y="{y + 2}" width="{long:.1f}" height="17"/>'
        )
        parts.append(text(left + long + 6, y + 14, words, "small"))
    bottom = top + len(bars) * height
    parts.append(text(12, bottom + 18, note, "small"))
    return document(width, bottom + 30, parts)


class Line(NamedTuple):
    """One line: its label and its points, which are positive."""

    label: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, lines: Sequence[Line], across: str, up: str, note: str) -> str:
    """Return a chart of lines, both axes logarithmic and marked at powers of ten."""
    left, top, wide, high = 70, 60, 480, 300
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_low, x_high = decades(xs)
    y_low, y_high = decades(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + wide * (math.log10(x) - x_low) / (x_high - x_low),
            top + high * (1 - (math.log10(y) - y_low) / (y_high - y_low)),
        )

    parts = [text(12, 24, title, "title"), text(left - 50, top - 12, up, "small")]
    for power in range(x_low, x_high + 1):
        x, _ = place(10.0**power, 10.0**y_low)
        parts.append(f'<path class="grid" d="M{x:.1f} {top}v{high}"/>')
        parts.append(text(x, top + high + 18, f"{10**power:,}", "small", "middle"))
    for power in range(y_low, y_high + 1):
        _, y = place(10.0**x_low, 10.0**power)
        parts.append(f'<path class="grid" d="M{left} {y:.1f}h{wide}"/>')
        parts.append(text(left - 8, y + 4, f"{10.0**power:,.10g}", "small", "end"))
    parts.append(f'<path class="axis line" d="M{left} {top}v{high}h{wide}"/>')
    parts.append(text(left + wide / 2, top + high + 36, across, "small", "middle"))
    for number, line in enumerate(lines):
        colour = f"line c{number % COLOURS}"
        points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in line.points)
        parts.append(f'<polyline class="{colour}" points="{points}"/>')
        y = top + 10 + 20 * number
        parts.append(f'<path class="{colour}" d="M{left + wide + 16} {y}h18"/>')
        parts.append(text(left + wide + 40, y + 4, line.label))
    parts.append(text(12, top + high + 58, note, "small"))
    return document(LINE_WIDTH, LINE_HEIGHT, parts)


def decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten between which positive values lie."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    chosen = f' class="{kind}"' if kind else ""
    return f'<text{chosen} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def document(width: float, height: float, parts: Sequence[str]) -> str:
    """Return a whole SVG file."""
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    body = "\n".join([STYLE, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">\n{body}\n</svg>\n'


def stack(pictures: Sequence[tuple[str, int]], width: int) -> str:
    """Return pictures of known heights as one, each below the one before."""
    parts, top = [], 0
    for picture, height in pictures:
        parts.append(f'<svg y="{top}" {picture.removeprefix("<svg ")}')
        top += height
    return document(width, top, parts)
