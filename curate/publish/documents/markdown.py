"""Tables and sections in Markdown, and ``ANALYSIS.md``, which has all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from curate.publish.analysis.analysis import Analysis
from curate.publish.analysis.numbers import number
from curate.publish.analysis.sections import Block, Cell, Lines, Spreads, Table, sections
from curate.publish.analysis.words import headline, trial

QUANTILES = ("minimum", "p05", "p25", "median", "p75", "p95", "maximum")
SPREAD = ("", "measured", "n", "not known", "min", "5 %", "25 %", "median", "75 %", "95 %", "max")


def markdown(a: Analysis, figures: dict[str, str]) -> str:
    """Return the text of ``ANALYSIS.md``.

    Args:
        a: the numbers.
        figures: what is drawn in each file of ``figs/``, by the file's name without ``.png``.
    """
    lines = [f"# {a.name} in numbers\n"]
    lines += [" ".join(a.description.split()) + "\n"] if a.description else []
    lines += [*(f"- {line}" for line in headline(a)), ""]
    if told := trial(a):
        lines.append(f"{told}\n")
    for section in sections(a):
        lines.append(f"## {section.title}\n")
        lines += [f"{section.lead}\n"] if section.lead else []
        for block in section.blocks:
            lines += render(block)
            if isinstance(block, Table | Spreads) and block.key in figures:
                lines.append(f"![{figures[block.key]}](figs/{block.key}.png)\n")
    lines += ["`ANALYSIS.json` holds the same numbers, `report.html` shows rows as well."]
    lines += ["Quantities are rounded to three digits."]
    return "\n".join(lines) + "\n"


def render(block: Block) -> Iterator[str]:
    """Yield a block of a section, and an empty line after it."""
    if isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Spreads):
        rows = [
            (
                *(heading, spread.what, spread.n, spread.unknown + spread.not_finite),
                *(getattr(spread, name) for name in QUANTILES),
            )
            for heading, spread in block.items
        ]
        yield f"**{block.title}**\n"
        yield from table(SPREAD, rows)
    elif isinstance(block, Lines):
        yield from (f"- {line}" for line in block.lines)
        yield ""
    else:
        yield f"{block.text}\n"


def _table(block: Table) -> Iterator[str]:
    if block.single:
        yield f"**{block.title}**: {block.single}\n"
    else:
        if block.title:
            yield f"**{block.title}**\n"
        yield from table(block.heads, block.rows[: block.most])
        if more := len(block.rows[block.most or len(block.rows) :]):
            yield f"{number(more)} more in `ANALYSIS.json`.\n"
    if block.note:
        yield f"{block.note}\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Yield a table and an empty line, or nothing if it has no rows; numbers stand to the right."""
    block = Table("", "", heads, list(rows))
    if block.rows:
        yield f"| {' | '.join(heads)} |"
        yield f"|{'|'.join('-:' if right else '-' for right in block.numeric)}|"
        yield from (f"| {' | '.join(map(_cell, row))} |" for row in block.rows)
        yield ""


def _cell(value: Cell) -> str:
    text = value if isinstance(value, str) else number(value)
    return text.replace("|", "\\|").replace("\n", " ")
