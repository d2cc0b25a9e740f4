"""The charts of a run, drawn by matplotlib: pictures in ``figs/``, and SVG inside the report.

The same analysis gives the same bytes: matplotlib's own font, and no date, version or random id in
what is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from curate.publish.analysis.counts import Bin, Distribution
from curate.publish.analysis.numbers import number, summary
from curate.publish.analysis.sections import Section, Spreads, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA, REST, LOSS, INK, PALE = "#34618f", "#b9cbdd", "#b5532c", "#16191d", "#dfe2e6"
COLOURS = {"kept": DATA, "lost": LOSS, "rest": REST}
VARIABLES = {DATA: "--data", INK: "--soft", PALE: "--rule"}
"""What the report's style sheet calls the colours, so that they follow its dark mode."""

WIDE = 8.0  # inches, of a picture
SMALL = (3.6, 2.1)  # inches, of a chart in the report
MOST_BARS = 20
MOST_TICKS = 5
LONGEST_LABEL = 48  # characters
CAPTION = 120  # characters across a picture, below its charts
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
    "figure.dpi": 150,
    "figure.constrained_layout.h_pad": 0.12,
    "figure.constrained_layout.w_pad": 0.12,
    "svg.fonttype": "none",
}


def figures(sections: Iterable[Section]) -> dict[str, tuple[str, bytes]]:
    """Return a picture of every block that can be drawn, by key: its title, and a PNG."""
    made = {}
    with _style():
        for block in (block for section in sections for block in section.blocks):
            if isinstance(block, Table) and block.figure:
                made[block.key] = block.figure, _png(_bars(block))
            elif isinstance(block, Spreads) and block.key:
                made[block.key] = block.title, _png(_histograms(block))
    return made


def histogram(spread: Distribution, title: str) -> Markup:
    """Return a histogram of a quantity as SVG in the page's colours; its bars have tooltips."""
    with _style():
        figure, (ax,) = _new(SMALL)
        _histogram(ax, spread)
        ax.tick_params(axis="x", pad=6)
        for patch, b in zip(ax.patches, spread.bins, strict=True):
            patch.set_gid(f"tip {range_name(b, spread.bins)}: {b.n:,} rows")
        text = _drawn(figure, "svg", dict.fromkeys(("Creator", "Date", "Format", "Type"))).decode()
    body = _for_page(text[text.index("<svg") :])
    label = escape(f"{title}. {summary(spread)}")
    head = f'<svg class="chart" viewBox="0 0 {72 * SMALL[0]:.0f} {72 * SMALL[1]:.0f}" role="img"'
    return Markup(f'{head} aria-label="{label}">{body.partition(">")[2].strip()}')


def _for_page(svg: str) -> str:
    """Return an SVG without what the page's policy forbids: styles, links and clipping."""
    for pattern, to in (
        (r"<defs>.*?</defs>|<metadata>.*?</metadata>|<use [^>]*/>|<!--.*?-->", ""),
        (r' clip-path="[^"]*"', ""),
        (r' style="([^"]*)"', _attributes),
        (r'<g id="(tip [^"]*)">', lambda m: f"<g><title>{m[1].removeprefix('tip ')}</title>"),
        (r' id="[^"]*"', ""),
        (r"\s*\n\s*", "\n"),
    ):
        svg = re.sub(pattern, to, svg, flags=re.DOTALL)
    return svg


def _attributes(style: re.Match[str]) -> str:
    """Return a style as attributes, but for the font, which is the page's."""
    pairs = (pair.split(":") for pair in style[1].split(";") if pair.strip())
    known = {name.strip(): value.strip() for name, value in pairs}
    return "".join(
        f' {name}="{f"var({VARIABLES[value]})" if value in VARIABLES else value}"'
        for name, value in known.items()
        if not name.startswith("font")
    )


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own settings are
        params: Any = mpl.rcParams  # typed by the names of all settings
        params.update(STYLE)
        yield


def _png(figure: Figure) -> bytes:
    # Without "Software" matplotlib would write its version; it writes no date.
    return _drawn(figure, "png", {"Software": None})


def _drawn(figure: Figure, form: str, metadata: dict[str, None]) -> bytes:
    sink = BytesIO()
    figure.savefig(sink, format=form, metadata=metadata, transparent=form == "svg")
    return sink.getvalue()


def _new(size: tuple[float, float], columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [ax for line in axes for ax in line]


def _bars(table: Table) -> Figure:
    """Draw a table's bars, the first on top, with their numbers at their ends."""
    names = [str(row[0]).strip("`") for row in table.rows[:MOST_BARS]]
    figure, (ax,) = _new((WIDE, 0.9 + 0.27 * len(names)))
    for place, bar in enumerate(table.bars[:MOST_BARS]):
        end = 0
        for kind, n in bar.items():
            ax.barh(place, n, left=end, color=COLOURS[kind], height=0.62)
            end += n
        lost = f", lost {number(bar['lost'])}" if bar.get("lost") else ""
        ax.text(end, place, f" {number(next(iter(bar.values())))}{lost}", va="center", fontsize=8)
    ax.set_yticks(range(len(names)), [shortened(name) for name in names])
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.tick_params(length=0)
    ax.set_xlabel("rows")
    ax.set_title(table.figure)
    return figure


def shortened(name: str) -> str:
    """Return a name that fits alongside its bar."""
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def _histograms(block: Spreads) -> Figure:
    columns = 2 if len(block.items) > 1 else 1
    rows, wide = -(-len(block.items) // columns), CAPTION // columns
    figure, axes = _new((WIDE, 2.5 * rows), columns, rows)
    for ax, (heading, spread) in zip(axes, block.items, strict=False):
        _histogram(ax, spread)
        ax.set_ylabel("rows")
        lines = [part for text in (spread.what, summary(spread)) for part in wrap(text, wide)]
        ax.set_xlabel("\n".join(lines), fontsize=7.5)
        ax.set_title(heading.replace("`", ""))
    for ax in axes[len(block.items) :]:
        ax.axis("off")
    return figure


def _histogram(ax: Axes, spread: Distribution) -> None:
    """Draw a histogram whose bars are as wide as each other."""
    from matplotlib.ticker import MaxNLocator

    bins = spread.bins
    least = max(b.n for b in bins) / 100  # so that a bar of few rows can be seen
    heights = [max(b.n, least) if b.n else 0 for b in bins]
    ax.bar([i + 0.5 for i in range(len(bins))], heights, width=0.94, color=DATA)
    ticks = tick_labels(bins)
    if spread.above is not None:
        ticks = [(place, "more" if place == len(bins) else text) for place, text in ticks]
    ax.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    ax.set_xlim(0, len(bins))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], integer=True))
    ax.yaxis.grid(visible=True, color=PALE)
    ax.set_axisbelow(True)
    ax.spines["left"].set_visible(False)
    ax.tick_params(length=0)


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
