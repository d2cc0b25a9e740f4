"""A plot of an evaluation: every metric, every model, with intervals. SVG, written by hand so that
it needs nothing that a GPU node lacks."""

from __future__ import annotations

from html import escape
from typing import Any

COLOURS = ("#8a8f98", "#2563eb", "#d97706", "#059669", "#9333ea")
"""Colours of the models in their order; grey for the first, which others are held against."""

LEFT, TOP, BAR, GAP = 150, 56, 16, 14
WIDTH = 420  # of 100 %
RIGHT = 150  # for the figures next to the bars

STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.dim{fill:#59636e;font-size:12px}"
    ".rule{stroke:#d1d9e0;stroke-width:1}.whisker{stroke:#1f2328;stroke-width:1.2}"
)


def draw(values: dict[str, Any]) -> str:
    """Return the plot of results, as `curate.evaluate.results.summarize` gives them."""
    models = {name: m["metrics"] for name, m in values["models"].items() if "metrics" in m}
    metrics = list(dict.fromkeys(name for found in models.values() for name in found))
    group = BAR * len(models) + GAP
    bottom = TOP + group * len(metrics)
    whole_width, height = LEFT + WIDTH + RIGHT, bottom + 44
    parts = [_legend(list(models)), *(_rule(share, bottom) for share in (0, 25, 50, 75, 100))]
    for i, metric in enumerate(metrics):
        top = TOP + i * group + GAP / 2
        middle = top + BAR * len(models) / 2 + 4.5
        parts.append(f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end">{metric}</text>')
        for j, (name, found) in enumerate(models.items()):
            if metric in found:
                colour = COLOURS[j % len(COLOURS)]
                parts.append(_bar(found[metric], top + j * BAR, colour, f"{name}, {metric}"))
    parts.append(
        f'<text class="dim" x="{LEFT}" y="{bottom + 38}">share of '
        f"{len(values['problems']) - len(values['excluded'])} problems; lines are 95 % intervals"
        "</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole_width} {height}" '
        f'width="{whole_width}" height="{height}" role="img" aria-label="Evaluation of '
        f'{escape(", ".join(models), quote=True)}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _x(share: float) -> float:
    return LEFT + WIDTH * share


def _legend(names: list[str]) -> str:
    parts, x = [], float(LEFT)
    for i, name in enumerate(names):
        colour = COLOURS[i % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="16" width="12" height="12" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="27">{escape(name)}</text>')
        x += 42 + 7.5 * len(name)
    return "".join(parts)


def _rule(percent: int, bottom: float) -> str:
    x = _x(percent / 100)
    return (
        f'<line class="rule" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{bottom}"/>'
        f'<text class="dim" x="{x}" y="{bottom + 18}" text-anchor="middle">{percent} %</text>'
    )


def _bar(estimate: dict[str, float | None], top: float, colour: str, title: str) -> str:
    value = float(estimate["value"] or 0)
    low, high = estimate["low"], estimate["high"]
    middle = top + BAR / 2
    drawn = (
        f'<rect x="{LEFT}" y="{top + 1.5}" width="{max(1.0, WIDTH * value):.1f}" '
        f'height="{BAR - 3}" rx="1.5" fill="{colour}"><title>{escape(title)}</title></rect>'
    )
    end = value
    if low is not None and high is not None:
        end = max(value, high)
        drawn += "".join(
            f'<line class="whisker" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'
            for x1, x2, y1, y2 in (
                (_x(low), _x(high), middle, middle),
                (_x(low), _x(low), middle - 3, middle + 3),
                (_x(high), _x(high), middle - 3, middle + 3),
            )
        )
    return (
        drawn
        + f'<text class="dim" x="{_x(end) + 8:.1f}" y="{middle + 4}">{100 * value:.1f} %</text>'
    )
