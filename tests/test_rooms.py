"""Rooms of the package: what lives where, and that imports go one way.

``python tests/test_rooms.py > docs/files.md`` writes the list of all files anew.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from curate.engine.identity import PACKAGE, imports

ROOT = Path(__file__).parent.parent

ORDER = [
    *("files", "devices", "rows", "step", "cache", "engine", "verify", "candidates"),
    *("sources", "licenses", "generate", "harvest", "clean", "formats", "train"),
    *("registry", "recipe", "pin", "publish", "api", "cli"),
]
"""Modules and folders of the package: each may import those before it."""


def rooms() -> list[Path]:
    """Return the folders that hold modules, the package's own first."""
    return sorted({path.parent for path in PACKAGE.rglob("*.py")})


def unit(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p)[-40:])
def test_imports_go_one_way(path: Path) -> None:
    own = unit(path)
    if own == "__init__" or path.stem == "__main__":  # where a program starts
        return
    below = {own, *ORDER[: ORDER.index(own)], "__init__"}
    assert not {unit(file) for file in imports(path)} - below


def test_every_unit_has_its_place() -> None:
    assert {unit(path) for path in PACKAGE.rglob("*.py")} == {*ORDER, "__init__", "__main__"}


def docstring(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def listing() -> str:
    """Return the page with a line for every file."""
    lines = ["# Files", "", "A line for each, from its docstring.", ""]
    for room in rooms():
        lines += [f"## {room.relative_to(PACKAGE.parent)}", "", docstring(room / "__init__.py"), ""]
        lines += ["| | |", "|-|-|"]
        modules = (path for path in sorted(room.glob("*.py")) if path.stem != "__init__")
        lines += [
            f"| `{path.name}` | {docstring(path).replace('|', chr(92) + '|')} |" for path in modules
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def test_the_list_of_files_is_true() -> None:
    assert (ROOT / "docs/files.md").read_text() == listing(), "python tests/test_rooms.py"


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_contributing_says_what_lives_in_a_room(room: Path) -> None:
    said = docstring(room / "__init__.py")
    assert said
    assert room == PACKAGE or said in (ROOT / "CONTRIBUTING.md").read_text()


if __name__ == "__main__":
    print(listing(), end="")
