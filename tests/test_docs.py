"""What the documents promise of themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), target


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_nobody_is_told_to_install_the_project_from_an_index() -> None:
    # There is no such project: a stranger may register the name.
    folders = ("curate", "docs", "schemas", "recipes", "benchmarks")
    files = [*ROOT.glob("*.md"), *(path for name in folders for path in (ROOT / name).rglob("*"))]
    for path in files:
        if path.suffix in (".py", ".md", ".json", ".yaml"):
            assert not re.search(r"(install|add) '?kernel-curate", path.read_text()), path
