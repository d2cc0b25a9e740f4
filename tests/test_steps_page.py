"""The tables in docs/steps.md say what the classes say: ``python tests/test_steps_page.py``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from curate.registry import known_steps, summary
from curate.rows import COLUMNS, COMMON, ROW
from curate.step import SourceStep, Step

PAGE = Path(__file__).parent.parent / "docs/steps.md"


def said(kind: type[Step]) -> str:
    return summary(kind).replace("|", "\\|")


def listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))


def name(kind: type[Step]) -> str:
    return f"`{kind.word()[1]}`"


def with_tables(page: str) -> str:
    sources = ["| source | makes | |", "|-|-|-|"]
    steps = ["| step | takes | makes | sets | |", "|-|-|-|-|-|"]
    for kind in known_steps():
        made = listed(kind.makes | kind.adds)
        if issubclass(kind, SourceStep):
            sources.append(f"| {name(kind)} | {made} | {said(kind)} |")
        else:
            takes, sets = listed(kind.takes), listed(kind.sets)
            steps.append(f"| {name(kind)} | {takes} | {made} | {sets} | {said(kind)} |")
    for table in (sources, steps):
        first = re.escape(table[0][: table[0].index(" ", 2)])
        page = re.sub(
            rf"^{first}[^\n]*\n(?:\|[^\n]*\n)+",
            lambda _, table=table: "\n".join(table) + "\n",
            page,
            count=1,
            flags=re.MULTILINE,
        )
    return page


def test_the_tables_are_true() -> None:
    assert PAGE.read_text() == with_tables(PAGE.read_text()), "python tests/test_steps_page.py"


def test_steps_speak_of_columns_and_kinds_that_there_are() -> None:
    for kind in known_steps():
        assert kind.takes | kind.makes | kind.adds <= COLUMNS.keys()
        columns = {column for k in kind.takes | kind.makes for column in COLUMNS[k]} | {*COMMON}
        assert kind.reads | kind.uses | kind.spoils <= columns <= set(ROW.names)
        assert kind.sets <= columns | {c for k in kind.adds for c in COLUMNS[k]}


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
