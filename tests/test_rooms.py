"""Rooms of the package: what lives where, and that imports go one way.

``python tests/test_rooms.py`` writes the list of all files and the tree in CONTRIBUTING.md anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from curate.engine.identity import PACKAGE, imports

ROOT = Path(__file__).parent.parent
FILES = ROOT / "docs/files.md"
TREE = ROOT / "CONTRIBUTING.md"

ORDER = [
    *("files", "flags", "wording", "terminal", "shipped", "journal", "devices", "rows", "step"),
    *("problem", "cache", "engine", "verify"),
    *("candidates", "sources", "licenses", "syntax", "generator", "teacher"),
    *("harvest", "clean", "formats", "generate", "evaluate", "train", "order", "registry"),
    *("recipe", "pin"),
    *("publish", "api", "cli"),
]
"""Modules and folders of the package: each may import those before it."""

LARGEST = 15
"""Files of code that one folder may hold."""


def modules(room: Path) -> list[Path]:
    """Return the modules of a room; the recipes that a wheel brings along have programs beside."""
    recipes = PACKAGE / "shipped/recipes"
    return [path for path in room.rglob("*.py") if not path.is_relative_to(recipes)]


def rooms() -> list[Path]:
    """Return the folders that hold modules, the package's own first."""
    return sorted({path.parent for path in modules(PACKAGE)})


def children(room: Path) -> dict[str, set[str]]:
    """Return what each file and folder of a room imports of the others in it."""
    found: dict[str, set[str]] = {}
    for path in modules(room):
        own = path.relative_to(room).with_suffix("").parts[0]
        if path.stem == "__main__" or own == "__init__":  # a program starts there
            continue
        named = {file.relative_to(room).with_suffix("").parts[0] for file in inside(path, room)}
        found.setdefault(own, set()).update(named - {own, "__init__"})
    return found


def inside(path: Path, room: Path) -> Iterator[Path]:
    return (file for file in imports(path) if file.is_relative_to(room))


@pytest.mark.parametrize("own", ORDER)
def test_imports_go_one_way(own: str) -> None:
    assert not children(PACKAGE)[own] - {*ORDER[: ORDER.index(own)]}


def test_every_unit_has_its_place() -> None:
    assert set(children(PACKAGE)) == set(ORDER)


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_a_room_has_no_circles_and_fits_in_one_head(room: Path) -> None:
    TopologicalSorter(children(room)).prepare()  # raises CycleError
    assert len([path for path in room.glob("*.py") if path.stem != "__init__"]) <= LARGEST


DOORS = {"__init__.py", "compile/kernel.py", "cpu_device.py"}
"""Of the judge: what other rooms import. The registry names its steps as well."""


def test_the_judge_has_few_doors() -> None:
    judge = PACKAGE / "verify"
    outside = [path for path in modules(PACKAGE) if not path.is_relative_to(judge)]
    found = {file.relative_to(judge) for path in outside for file in inside(path, judge)}
    assert {str(door) for door in found if door.name != "__init__.py"} <= DOORS | {
        str(path.relative_to(judge)) for path in (judge / "steps").glob("*.py")
    }


def docstring(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def listing() -> str:
    """Return the page with a line for every file."""
    lines = ["# Files", "", "A line for each, from its docstring.", ""]
    for room in rooms():
        lines += [f"## {room.relative_to(PACKAGE.parent)}", "", docstring(room / "__init__.py"), ""]
        lines += ["| | |", "|-|-|"]
        files = (path for path in sorted(room.glob("*.py")) if path.stem != "__init__")
        lines += [
            f"| `{path.name}` | {docstring(path).replace('|', chr(92) + '|')} |" for path in files
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def tree(room: Path = PACKAGE, indent: str = "  ") -> Iterator[str]:
    """Give a line for each folder and each file at the top, in the order of imports."""
    for name in TopologicalSorter(children(room)).static_order() if room != PACKAGE else ORDER:
        path = room / name
        if path.is_dir():
            yield f"{indent}{name + '/':{24 - len(indent)}}{docstring(path / '__init__.py')}"
            yield from sorted(tree(path, indent + "  "))
        elif room == PACKAGE:
            yield f"{indent}{name + '.py':{24 - len(indent)}}{docstring(path.with_suffix('.py'))}"


def with_tree(page: str) -> str:
    """Return CONTRIBUTING.md with the tree as it is now."""
    before, _, rest = page.partition("```\ncurate/\n")
    after = rest.partition("\n```\n")[2]
    return before + "```\ncurate/\n" + "\n".join(tree()) + "\n```\n" + after


def test_the_list_of_files_and_the_tree_are_true() -> None:
    assert FILES.read_text() == listing(), "python tests/test_rooms.py"
    assert TREE.read_text() == with_tree(TREE.read_text()), "python tests/test_rooms.py"


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_a_room_says_what_lives_there(room: Path) -> None:
    assert docstring(room / "__init__.py")


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in modules(PACKAGE):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_a_test_module_has_a_name_of_its_own() -> None:
    """Pytest imports them by name: two of one name are an error of the whole run only."""
    names = [path.name for path in Path(__file__).parent.rglob("*.py") if path.stem != "conftest"]
    assert not {name for name in names if names.count(name) > 1}


if __name__ == "__main__":
    FILES.write_text(listing())
    TREE.write_text(with_tree(TREE.read_text()))
