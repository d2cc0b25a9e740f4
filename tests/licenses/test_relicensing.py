"""`curate licenses`: packages, repositories and data sets whose newer versions have other terms."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from licenses.license_samples import AGPL_NOTICE, APACHE, MIT, bsd_text
from sources.index_stand_in import Index, serve, sha

from curate import api
from curate.cli.main import main
from curate.licenses.relicensing import Checked

COMMUNITY = f"{bsd_text()}\nNot for commercial use.\n"


def wheel(version: str, *papers: str, files: dict[str, str] | None = None) -> bytes:
    """Return a wheel with license texts for all of it, and other files by path."""
    packed, folder = io.BytesIO(), f"demo_pkg-{version}.dist-info"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("demo_pkg/model.py", f"version = {version!r}\n")
        archive.writestr(f"{folder}/METADATA", f"Name: demo-pkg\nVersion: {version}\n")
        for number, text in enumerate(papers):
            archive.writestr(f"{folder}/licenses/LICENSE{f'-{number}' * bool(number)}", text)
        for path, text in (files or {}).items():
            archive.writestr(path, text)
    return packed.getvalue()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    state = Index({})
    with serve(state, monkeypatch):
        yield state


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """Return a function that checks a recipe of one source, and gives what became of it."""

    def run(source: dict[str, Any], **options: Any) -> Checked:
        recipe = {"name": "r", "sources": [source], "steps": [{"step": "licenses", **options}]}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        (found,) = api.licenses(tmp_path / "recipe.yaml", output=tmp_path / "output")
        return found

    return run


def package(content: bytes, version: str = "1.0") -> dict[str, Any]:
    return {"source": "pypi", "packages": [f"demo-pkg=={version} --hash=sha256:{sha(content)}"]}


def name(version: str) -> str:
    return f"demo_pkg-{version}-py3-none-any.whl"


# --- packages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "outcome", "change"),
    [
        (MIT, MIT, "same", None),
        (MIT, MIT.replace("20", "19"), "same", None),
        (MIT, APACHE, "stricter", "MIT -> Apache-2.0"),
        (APACHE, MIT, "changed", "Apache-2.0 -> MIT"),
        (MIT, AGPL_NOTICE, "denied", "MIT -> AGPL-3.0-or-later"),
        (AGPL_NOTICE, MIT, "changed", "AGPL-3.0-or-later -> MIT"),
        (bsd_text(), COMMUNITY, "denied", "BSD-3-Clause -> unknown: unreadable"),
        (COMMUNITY, COMMUNITY, "same", None),
        (COMMUNITY, COMMUNITY + "Nor for research.\n", "changed", "unknown: unreadable"),
    ],
)
def test_terms_of_a_package(
    served: Index, check: Any, old: str, new: str, outcome: str, change: str | None
) -> None:
    first, last = wheel("1.0", old), wheel("1.2", new)
    served.files = {name("1.0"): first, name("1.1"): wheel("1.1", AGPL_NOTICE), name("1.2"): last}
    found = check(package(first))
    assert (found.name, found.pinned, found.newest) == ("demo-pkg", "1.0", "1.2")
    assert found.outcome == outcome
    shown = [f"{c.old} -> {c.new}" for c in found.changes]
    assert [change in line for line in shown] == ([True] if change else []), shown
    if outcome == "denied":
        assert found.changes[0].file == "demo_pkg-1.2.dist-info/licenses/LICENSE"


def test_a_license_that_is_taken_away(served: Index, check: Any) -> None:
    first = wheel("1.0", MIT)
    served.files = {name("1.0"): first, name("1.1"): wheel("1.1")}
    found = check(package(first))
    (change,) = found.changes
    assert (found.outcome, change.old, change.new) == ("denied", "MIT", "unknown: no license text")
    assert change.file == "demo_pkg-1.0.dist-info/licenses/LICENSE"


def test_a_second_license_and_one_of_a_folder(served: Index, check: Any) -> None:
    code = {"demo_pkg/ops/a.py": "a = 1\n"}
    papers = {"demo_pkg/ops/LICENSE": bsd_text(), "new/LICENSE": AGPL_NOTICE, "new/a.py": ""}
    first, last = wheel("1.0", MIT, files=code), wheel("1.1", MIT, APACHE, files=code | papers)
    served.files = {name("1.0"): first, name("1.1"): last}
    found = check(package(first))
    assert [(c.folder, c.old, c.new) for c in found.changes] == [
        (".", "MIT", "Apache-2.0 AND MIT"),
        ("demo_pkg/ops", "MIT", "BSD-3-Clause"),
    ]
    assert found.outcome == "stricter"


def test_the_recipe_says_what_is_allowed(served: Index, check: Any) -> None:
    first = wheel("1.0", MIT)
    served.files = {name("1.0"): first, name("1.1"): wheel("1.1", APACHE)}
    assert check(package(first), allow=["MIT"]).outcome == "denied"


def test_nothing_newer_downloads_nothing(served: Index, check: Any) -> None:
    first = wheel("1.0", MIT)
    served.files = {name("1.0"): first, name("2.0rc1"): wheel("2.0rc1", AGPL_NOTICE)}
    found = check(package(first))
    assert (found.outcome, found.newest) == ("same", "1.0")
    assert not [request for request in served.requests if request.startswith("/files/")]


def test_the_same_kind_of_file_is_compared(served: Index, check: Any) -> None:
    first, last = wheel("1.0", MIT), wheel("1.1", MIT)
    served.files = {
        name("1.0"): first,
        "demo_pkg-1.1-cp311-cp311-win_amd64.whl": b"never fetched",
        "demo_pkg-1.1.tar.gz": b"nor this",
        name("1.1"): last,
    }
    assert check(package(first)).outcome == "same"


def test_yanked_and_gone(served: Index, check: Any, tmp_path: Path) -> None:
    first, last = wheel("1.0", MIT), wheel("1.1", MIT)
    served.files, served.yanked = {name("1.0"): first, name("1.1"): last}, {name("1.0"): "a bug"}
    found = check(package(first))
    assert (found.outcome, found.note) == ("same", "the pinned file is yanked: a bug")
    del served.files[name("1.0")]
    found = check(package(first))  # it is in the cache now
    assert (found.outcome, found.note) == ("same", "the pinned file is gone")
    found = check(package(wheel("0.9", MIT), "0.9"))
    assert (found.outcome, found.newest) == ("gone", "1.1")
    served.yanked = {name("1.1"): ""}
    assert check(package(first)).newest is None


def test_an_index_that_cannot_be_reached_is_told(served: Index, check: Any) -> None:
    served.page_status = 503
    found = check(package(b""))
    assert found.outcome == "unreachable"
    assert "503" in found.note


# --- repositories and data sets -----------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", *author, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, license_text: str) -> str:
    (folder / "LICENSE").write_text(license_text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "m")
    return git(folder, "rev-parse", "HEAD").strip()


def test_a_repository_that_changes_its_license(check: Any, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "a.py").write_text("a = 1\n")
    first = commit(folder, MIT)
    source = {"source": "git", "repositories": [{"url": str(folder), "commit": first}]}
    assert check(source).outcome == "same"
    last = commit(folder, COMMUNITY)
    found = check(source)
    assert (found.name, found.pinned, found.newest) == ("kernels", first, last)
    assert (found.outcome, found.changes[0].file) == ("denied", "LICENSE")
    folder.rename(tmp_path / "gone")
    assert check(source).outcome == "unreachable"


def test_a_data_set_that_changes_its_card(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn", reason="the Hub stand-in is a web application")
    from huggingface_hub import close_session, constants
    from publish.hub_stand_in import Blob, Hub, Repo
    from publish.hub_stand_in import serve as serve_hub

    def card(head: str) -> dict[str, Blob]:
        return {
            "README.md": Blob(f"---\n{head}\n---\n".encode(), lfs=False),
            "data/train.parquet": Blob(b"never fetched", lfs=True),
        }

    with serve_hub(Hub()) as here:
        monkeypatch.setattr(constants, "ENDPOINT", here.url)
        template = here.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # another test may have set it
        repo = here.repos.setdefault("one/rows", Repo("one", private=False))
        first = repo.commit("heads/main", "rows", card("license: mit")).oid
        source = {"source": "hub", "dataset": f"one/rows@{first}"}
        close_session()  # an earlier test may have left one that no longer connects
        found = check(source)
        assert (found.note, found.outcome) == ("", "same")
        terms = "license: other\nlicense_name: Researcher Reciprocity License"
        last = repo.commit("heads/main", "terms", card(terms)).oid
        found = check(source)
        asked = here.requests
    assert (found.outcome, found.newest, found.changes[0].old) == ("denied", last, "MIT")
    assert "Researcher Reciprocity License" in found.changes[0].new
    assert not [request for request in asked if "parquet" in str(request)]


# --- the command --------------------------------------------------------------------------------


@pytest.mark.parametrize(("new", "status"), [(MIT, 0), (APACHE, 1), (AGPL_NOTICE, 1)])
def test_the_exit_status(served: Index, tmp_path: Path, new: str, status: int) -> None:
    first = wheel("1.0", MIT)
    served.files = {name("1.0"): first, name("1.1"): wheel("1.1", new)}
    sources = [package(first), {"source": "local", "path": str(tmp_path)}]
    recipe = {"name": "r", "sources": sources, "steps": []}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    arguments = ["licenses", str(tmp_path / "recipe.yaml"), "--output", str(tmp_path / "output")]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == status
    assert "demo-pkg" in shown.stdout and "unpinned" in shown.stdout
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert [entry["outcome"] for entry in told][1] == "unpinned"
    assert (told[0]["outcome"] in ("denied", "stricter")) == bool(status)


@pytest.mark.network
def test_a_real_package_that_took_on_copyleft(check: Any) -> None:
    """orjson added MPL-2.0 in 3.11.5; what is newest by now may say otherwise again."""
    pin = (
        "orjson==3.11.4 "
        "--hash=sha256:39485f4ab4c9b30a3943cfe99e1a213c4776fb69e8abd68f66b83d5a0b0fdc6d"
    )
    found = check({"source": "pypi", "packages": [pin]})
    assert (found.outcome, found.changes[0].old) == ("denied", "Apache-2.0 AND MIT")
    assert "MPL-2.0" in found.changes[0].new
