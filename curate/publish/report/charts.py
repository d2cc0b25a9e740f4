"""The charts of a run: pictures in ``figs/``, drawn by matplotlib, and SVG inside the report.

The same analysis gives the same bytes: matplotlib's own font, and no date, version or random id in
what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import count
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

WIDE = 8.0  # inches, of a picture
WIDTH, HEIGHT = 260, 154  # of a chart in the report
LEFT, RIGHT, ABOVE, BELOW = 34, 24, 8, 26  # around its bars
LEAST = 0.01  # of the highest bar's height: so that a bar of few rows can be seen
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
    bins, most = spread.bins, max(b.n for b in spread.bins)
    wide, high = (WIDTH - LEFT - RIGHT) / len(bins), HEIGHT - ABOVE - BELOW
    base = HEIGHT - BELOW

    def x(place: float) -> str:
        return f"{LEFT + wide * place:.1f}"

    def text(at: str, y: float, anchor: str, words: str) -> str:
        return f'<text x="{at}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'

    drawn = []
    for n in round_numbers(most):
        y = base - high * n / most
        drawn.append(f'<path d="M{LEFT} {y:.1f}H{x(len(bins))}" stroke="var(--rule)"/>')
        drawn.append(text(f"{LEFT - 5}", y + 4, "end", number(n)))
    for place, b in enumerate(bins):
        tall = high * max(b.n / most, LEAST) if b.n else 0
        bar = f"M{x(place + 0.03)} {base}V{base - tall:.1f}H{x(place + 0.97)}V{base}Z"
        tip = f"{range_name(b, bins)}: {b.n:,} rows"
        drawn.append(f'<path d="{bar}" fill="var(--data)"><title>{escape(tip)}</title></path>')
    drawn += [text(x(place), base + 14, "middle", words) for place, words in _ticks(spread)]
    label = escape(f"{title}. {summary(spread)}")
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    return Markup("\n".join([head, *drawn, "</svg>"]))


def round_numbers(most: int) -> range:
    """Return at most five round numbers from 0 to ``most``."""
    steps = (unit * 10**power for power in count() for unit in (1, 2, 5))
    return range(0, most + 1, next(step for step in steps if most < 5 * step))


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own settings are
        params: Any = mpl.rcParams  # typed by the names of all settings
        params.update(STYLE)
        yield


def _png(figure: Figure) -> bytes:
    sink = BytesIO()
    # Without "Software" matplotlib would write its version; it writes no date.
    figure.savefig(sink, format="png", metadata={"Software": None})
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
    least = LEAST * max(b.n for b in bins)
    heights = [max(b.n, least) if b.n else 0 for b in bins]
    ax.bar([i + 0.5 for i in range(len(bins))], heights, width=0.94, color=DATA)
    ticks = _ticks(spread)
    ax.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    ax.set_xlim(0, len(bins))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], integer=True))
    ax.yaxis.grid(visible=True, color=PALE)
    ax.set_axisbelow(True)
    ax.spines["left"].set_visible(False)
    ax.tick_params(length=0)


def _ticks(spread: Distribution) -> list[tuple[float, str]]:
    """Return the labels below a histogram; its last bar may hold all that is more."""
    ticks = tick_labels(spread.bins)
    if spread.above is None:
        return ticks
    return [(place, "more" if place == len(spread.bins) else text) for place, text in ticks]


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
