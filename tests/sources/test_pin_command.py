"""`curate pin` writes version and hash into a recipe, and leaves the rest of its text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from index_stand_in import Index, serve, sha

from curate.cli.main import main
from curate.pin import pin
from curate.recipe import RecipeError, load_recipe
from curate.step import SourceError

FILES = {
    "demo_pkg-1.0.tar.gz": b"first",
    "demo_pkg-1.2.tar.gz": b"source",
    "demo_pkg-1.2-cp311-cp311-linux_x86_64.whl": b"one machine",
    "demo_pkg-1.2-py3-none-any.whl": b"any machine",
    "demo_pkg-2.0rc1.tar.gz": b"early",
}
HEAD = "name: a # of a recipe\nsources:\n"
TAIL = "# the steps\nsteps:\n  - step: licenses\n"
LAST = f"demo-pkg==1.2 --hash=sha256:{sha(b'any machine')}"
FIRST = f"demo-pkg==1.0 --hash=sha256:{sha(b'first')}"
OTHER = f"other==1 --hash=sha256:{sha(b'')}"

TEXTS = {
    "a name alone": ("  - source: pypi\n    packages:\n      - Demo.Pkg # x\n", 0),
    "an old pin": (f"  - source: pypi\n    packages:\n      - '{FIRST}' # x\n", 0),
    "after the others": (f"  - source: pypi\n    packages:\n      - {OTHER} # x\n", 1),
    "a list in one line": (f"  - source: pypi\n    packages: [{OTHER}] # x\n", 0),
    "no packages yet": ("  - source: torch_ops\n    single: 1 # x\n", 3),
    "no indent": ("- source: torch_ops\n  single: 1 # x\n", 3),
}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    state = Index(FILES)
    with serve(state, monkeypatch):
        yield state


@pytest.mark.parametrize("where", TEXTS)
def test_the_newest_version_is_pinned_and_the_rest_stays(
    tmp_path: Path, index: Index, where: str
) -> None:
    sources, lines = TEXTS[where]
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + sources + TAIL)
    (pinned,) = pin(path, ["demo_pkg"])
    text = path.read_text()
    assert pinned.text == LAST
    assert text.startswith(HEAD) and text.endswith(TAIL) and "# x" in text
    assert len(text.splitlines()) == len((HEAD + sources + TAIL).splitlines()) + lines
    found = [p for s in load_recipe(path).sources for p in getattr(s, "packages", ())]
    assert [p for p in found if p.startswith("demo-pkg")] == [LAST]
    (again,) = pin(path, ["demo-pkg==1.2"])
    assert again.before == LAST and path.read_text() == text


def test_a_version_is_taken_as_it_is_named(tmp_path: Path, index: Index) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + TEXTS["no packages yet"][0] + TAIL)
    assert pin(path, ["demo-pkg==1.0"])[0].text == FIRST
    assert pin(path, ["demo-pkg==2.0rc1"])[0].before == FIRST


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("demo-pkg==3", "no such version. The nearest ones: 2.0rc1, 1.2"),
        ("demo-pkg>=1", "`name` or `name==version`"),
        ("demo-pkg[extra]", "`name` or `name==version`"),
        ("demo-pkg==1.*", "`name` or `name==version`"),
        ("-r x", "`name` or `name==version`"),
    ],
)
def test_what_cannot_be_pinned_changes_nothing(
    tmp_path: Path, index: Index, package: str, message: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + TEXTS["a name alone"][0] + TAIL)
    before = path.read_bytes()
    with pytest.raises((RecipeError, SourceError), match=message):
        pin(path, ["demo-pkg", package])
    assert path.read_bytes() == before


def test_a_package_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + TEXTS["a name alone"][0] + TAIL)
    with serve(Index({}), monkeypatch), pytest.raises(SourceError, match="no such package"):
        pin(path, ["demo-pkg"])
    with (
        serve(Index({"demo_pkg-1.0rc1.tar.gz": b""}), monkeypatch),
        pytest.raises(SourceError, match="no final version"),
    ):
        pin(path, ["demo-pkg"])


def test_an_index_that_cannot_be_read_leaves_the_newest_unknown(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://127.0.0.1:1/simple/")
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + TEXTS["a name alone"][0] + TAIL)
    before = path.read_bytes()
    refused = CliRunner().invoke(main, ["pin", str(path), "demo-pkg"])
    assert refused.exit_code == 2 and not refused.stdout
    assert "http://127.0.0.1:1/simple/ cannot be reached" in refused.stderr
    assert "name it, as demo-pkg==1.2" in refused.stderr
    assert path.read_bytes() == before
    named = CliRunner().invoke(main, ["pin", str(path), "demo-pkg==1.2"])
    assert named.exit_code == 0 and LAST in named.stdout and LAST in path.read_text()
    assert "warning: http://127.0.0.1:1/simple/ cannot be reached" in named.stderr


@pytest.mark.parametrize("text", ["", "[1", "name: a\n", "sources: []\n", "sources: {}\n"])
def test_what_is_no_recipe(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=r"a\.yaml"):
        pin(path, ["demo-pkg"])
    with pytest.raises(RecipeError, match="cannot be read"):
        pin(tmp_path / "none.yaml", ["demo-pkg"])
