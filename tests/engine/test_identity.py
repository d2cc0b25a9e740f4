"""Which code a step runs, and that a change of it is seen however far away it is."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from curate.clean.normalize import Normalize
from curate.engine import identity
from curate.verify.steps.verify import Verify

FILES = {
    "__init__.py": "",
    "steps/__init__.py": "",
    "steps/first.py": """
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from curate.types_only import Name

        def apply():
            from curate.near import (
                help_out,
            )
        """,
    "near.py": "from curate import far\n",
    "far.py": 'COMMAND = ["python", "-m", "curate.inner.program"]\n',
    "inner/__init__.py": "",
    "inner/program.py": "import curate.farthest as end\n",
    "farthest.py": "VALUE = 1\n",
    "types_only.py": "",
    "nobody.py": "from curate import near\n",
}
REACHED = FILES.keys() - {"types_only.py", "nobody.py", "steps/__init__.py"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of this name, and nothing known of its files."""
    folder = tmp_path / "curate"
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(inspect.cleandoc(text) + "\n")
    monkeypatch.setattr(identity, "PACKAGE", folder)
    return folder


def digest(package: Path) -> str:
    identity._sha256.cache_clear()
    identity.imports.cache_clear()
    return identity.files_digest(identity.closure(package / "steps/first.py"))


def test_imports_are_followed_to_the_end(package: Path) -> None:
    found = identity.closure(package / "steps/first.py")
    assert {str(path.relative_to(package)) for path in found} == REACHED


@pytest.mark.parametrize("name", FILES)
def test_a_change_shows_if_the_step_runs_the_file(package: Path, name: str) -> None:
    before = digest(package)
    path = package / name
    path.write_text(path.read_text() + "# changed\n")
    assert (digest(package) != before) == (name in REACHED)


def test_the_digest_says_nothing_of_where_the_package_lies(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(package)
    moved = package.rename(package.with_name("elsewhere"))
    monkeypatch.setattr(identity, "PACKAGE", moved)
    assert digest(moved) == before


def test_the_judge_is_part_of_the_step_that_starts_it() -> None:
    def names(kind: type) -> set[str]:
        found = identity.closure(Path(inspect.getfile(kind)))
        return {str(path.relative_to(identity.PACKAGE)) for path in found}

    assert {"verify/executor/memory.py", "verify/host_half/serve.py"} <= names(Verify)
    assert not [name for name in names(Normalize) if name.startswith("verify")]
