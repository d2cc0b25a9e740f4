"""``figs/*.png``: the charts of an analysis as pictures, for the card and ``ANALYSIS.md``.

The same analysis gives the same bytes: matplotlib's own font, and no date or version in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from curate.publish.analysis.analysis import Analysis
from curate.publish.analysis.charts import number, summary, tick_labels
from curate.publish.analysis.counts import Distribution
from curate.publish.analysis.words import judged_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA, SOFT, LOSS, INK, PALE = "#34618f", "#b9cbdd", "#b5532c", "#16191d", "#dfe2e6"
WIDE = 8.0  # inches
MOST_BARS = 20
LONGEST_LABEL = 48  # characters
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


def figures(a: Analysis) -> dict[str, tuple[str, bytes]]:
    """Return every figure that an analysis has data for: what it shows, and a PNG, by name."""
    import matplotlib as mpl

    made = {}
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own settings are
        params: Any = mpl.rcParams  # typed by the names of all settings
        params.update(STYLE)
        for name, draw in FIGURES.items():
            if drawn := draw(a):
                title, figure = drawn
                made[name] = title, _png(figure)
    return made


def _png(figure: Figure) -> bytes:
    sink = BytesIO()
    # Without "Software" matplotlib would write its version; it writes no date.
    figure.savefig(sink, format="png", metadata={"Software": None})
    return sink.getvalue()


Drawn = tuple[str, "Figure"] | None


def _new(high: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDE, high), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [ax for line in axes for ax in line]


def _bars(
    title: str, unit: str, values: dict[str, int], lost: dict[str, int] | None = None
) -> Drawn:
    """Draw horizontal bars, the first on top; ``lost`` are put at their ends in another colour."""
    if not values:
        return None
    names, ends = list(values), list(values.values())
    figure, (ax,) = _new(0.9 + 0.27 * len(names))
    ax.barh(range(len(names)), ends, color=DATA, height=0.62)
    gone = [(lost or {}).get(name, 0) for name in names]
    ax.barh(range(len(names)), gone, left=ends, color=LOSS, height=0.62)
    for place, (end, less) in enumerate(zip(ends, gone, strict=True)):
        text = f" {number(end)}" + (f", lost {number(less)}" if less else "")
        ax.text(end + less, place, text, va="center", fontsize=8)
    ax.set_yticks(range(len(names)), [shortened(name) for name in names])
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.tick_params(length=0)
    ax.set_xlabel(unit)
    ax.set_title(title)
    return title, figure


def shortened(name: str) -> str:
    """Return a name that fits beside its bar."""
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def _histograms(title: str, spreads: Iterable[tuple[str, Distribution]]) -> Drawn:
    known = [(name, spread) for name, spread in spreads if spread.n]
    if not known:
        return None
    columns = 2 if len(known) > 1 else 1
    rows = -(-len(known) // columns)
    figure, axes = _new(2.5 * rows, columns, rows)
    for ax, (name, spread) in zip(axes, known, strict=False):
        _histogram(ax, name, spread)
    for ax in axes[len(known) :]:
        ax.axis("off")
    return title, figure


def _histogram(ax: Axes, name: str, spread: Distribution) -> None:
    from matplotlib.ticker import MaxNLocator

    bins = spread.bins
    ax.bar([i + 0.5 for i in range(len(bins))], [b.n for b in bins], width=0.94, color=DATA)
    ticks = tick_labels(bins)
    ax.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    ax.set_xlim(0, len(bins))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel("rows")
    ax.set_xlabel(f"{spread.what}\n{summary(spread)}", fontsize=7.5)
    ax.set_title(name)


def _top(counts: dict[str, int]) -> dict[str, int]:
    return dict(list(counts.items())[:MOST_BARS])


# --- the figures ------------------------------------------------------------------------------


def _funnel(a: Analysis) -> Drawn:
    out = {step.label: step.emitted for step in a.steps}
    lost = {step.label: sum(step.lost.values()) for step in a.steps}
    return _bars("Rows after each step, and rows lost in it", "rows", out, lost)


def _verdicts(a: Analysis) -> Drawn:
    tally = a.verdicts.status if a.verdicts.status.n else a.kernels.run
    judged = f"Verdicts on {judged_word(a)}s"
    what = judged if a.verdicts.status.n else "Runs of kernels on the CPU"
    counts = {**tally.counts, **({"not known": tally.unknown} if tally.unknown else {})}
    return _bars(f"{what}, n = {number(tally.n)}", "rows", counts)


def _compile(a: Analysis) -> Drawn:
    ok = {target.target: target.ok for target in a.targets}
    errors = {target.target: target.rows - target.ok for target in a.targets}
    return _bars(f"Rows that compile, of {number(a.rows)}, and errors", "rows", ok, errors)


def _lengths(a: Analysis) -> Drawn:
    code = a.code
    spreads = (
        ("PyTorch, lines", code.reference_lines),
        ("Triton, lines", code.triton_lines),
        ("PyTorch, tokens", code.reference_tokens),
        ("Triton, tokens", code.triton_tokens),
        ("Kernels a program", code.kernels),
        ("Launches a forward", code.launches),
    )
    return _histograms("Lengths of programs, and kernels in them", spreads)


def _operators(a: Analysis) -> Drawn:
    tally = a.code.operators
    n = number(tally.n - tally.unknown)
    return _bars(f"Operators of the reference, n = {n} rows", "rows", _top(tally.counts))


def _registers(a: Analysis) -> Drawn:
    spreads = [(f"{t.target}, registers", t.registers) for t in a.targets]
    spreads += [(f"{t.target}, shared memory", t.shared) for t in a.targets]
    return _histograms("Registers and shared memory by target", spreads)


def _error(a: Analysis) -> Drawn:
    v = a.verdicts
    spreads = (("Error over what is allowed", v.error_ratio), ("Absolute error", v.error))
    return _histograms("Error against the float64 result", spreads)


def _speedup(a: Analysis) -> Drawn:
    v = a.verdicts
    spreads = (("Over eager", v.speedup_eager), ("Over torch.compile", v.speedup_compile))
    return _histograms("Speedup of the candidate", spreads)


def _licenses(a: Analysis) -> Drawn:
    counts = {license.expression: license.rows for license in a.licenses}
    return _bars(f"Licenses, n = {number(a.rows)} rows", "rows", _top(counts))


def _sources(a: Analysis) -> Drawn:
    counts = {source.name: source.rows for source in a.sources if source.rows}
    return _bars(f"Sources, n = {number(a.rows)} rows", "rows", _top(counts))


def _contamination(a: Analysis) -> Drawn:
    found = a.contamination
    spreads = (("Overlap", found.overlap), ("Resemblance", found.resemblance))
    return _histograms("Kept rows and the benchmark item each is most like", spreads)


FIGURES: dict[str, Callable[[Analysis], Drawn]] = {
    "funnel": _funnel,
    "verdicts": _verdicts,
    "compile": _compile,
    "lengths": _lengths,
    "operators": _operators,
    "registers": _registers,
    "error": _error,
    "speedup": _speedup,
    "licenses": _licenses,
    "sources": _sources,
    "contamination": _contamination,
}
