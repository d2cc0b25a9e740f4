"""A local folder is copied once, and never read through links."""

import os
from pathlib import Path

import pytest

from curate.cache.artifact import open_artifact
from curate.sources.local import Local
from curate.step import Context, SourceError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "LICENSE").write_text("MIT License")
    (folder / "sub/a.py").write_text("a = 1\n")
    (folder / "b.py").write_text("b = 1\n")
    (folder / "data.bin").write_bytes(b"\0")
    (folder / ".git/hook.py").write_text("git = 1\n")
    monkeypatch.chdir(tmp_path)
    return folder


def local(**options: object) -> Local:
    return Local.model_validate({"source": "local", "path": "code", **options})


def test_rows_and_artifact(folder: Path, tmp_path: Path) -> None:
    context = Context(cache=tmp_path / "cache")
    (unit,) = local().units(context)
    rows = [row for row in local().read(unit, context) if isinstance(row, dict)]
    assert [(row["origin"]["path"], row["text"]) for row in rows] == [
        ("b.py", "b = 1\n"),
        ("sub/a.py", "a = 1\n"),
    ]
    assert str(tmp_path) not in repr(rows)
    artifact = open_artifact(tmp_path / "cache", rows[0]["origin"]["artifact_sha256"])
    assert artifact.paths() == ("LICENSE", "b.py", "sub/a.py")
    # Later steps read the snapshot, not what the folder has become.
    (folder / "b.py").write_text("b = 2\n")
    assert [row["text"] for row in local().read(unit, context) if isinstance(row, dict)] == [
        "b = 1\n",
        "a = 1\n",
    ]


def test_what_runs_write_into_the_folder_is_no_part_of_it(folder: Path) -> None:
    """`path: .` with the default output folder: each run would read what the one before wrote."""
    context = Context(cache=folder / "output/cache")
    before = local().units(context)[0].key
    (folder / "output/cache/artifacts").mkdir(parents=True)
    (folder / "output/cache/artifacts/a.py").write_text("a = 1\n")
    (folder / "output/mine").mkdir()
    (folder / "output/mine/LICENSE.txt").write_text("MIT License")
    assert local().units(context)[0].key == before
    with pytest.raises(SourceError, match="choose another --output"):
        local().units(Context(cache=folder / "cache"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_an_error(folder: Path) -> None:
    (folder / "sub").chmod(0)
    with pytest.raises(SourceError, match="sub: cannot be read"):
        local().units(Context())


def test_key_follows_content_and_options(folder: Path) -> None:
    def key(**options: object) -> str:
        return local(**options).units(Context())[0].key

    first = key()
    os.utime(folder / "b.py", (0, 0))
    (folder / "data.bin").write_bytes(b"other")
    assert key() == first
    assert key(include=["*.py"]) != first
    (folder / "LICENSE").write_text("Apache")
    assert key() != first


def test_change_between_plan_and_read_is_told(folder: Path, tmp_path: Path) -> None:
    context = Context(cache=tmp_path / "cache")
    (unit,) = local().units(context)
    (folder / "b.py").write_text("b = 2\n")
    with pytest.raises(SourceError, match="changed while"):
        list(local().read(unit, context))


def test_pipes_and_links_that_nobody_wants_are_passed_over(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("secret = 1\n")
    (folder / "c.txt").symlink_to(outside / "secret.py")
    (folder / "folder_link").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.py")
    context = Context(cache=tmp_path / "cache")
    (unit,) = local().units(context)
    rows = [row for row in local().read(unit, context) if isinstance(row, dict)]
    assert [row["origin"]["path"] for row in rows] == ["b.py", "sub/a.py"]
    assert "secret" not in repr(rows)


def test_a_link_stands_for_the_file_that_it_leads_to(folder: Path, tmp_path: Path) -> None:
    (folder / "c.py").symlink_to("sub/a.py")
    (folder / "d.py").symlink_to("c.py")
    context = Context(cache=tmp_path / "cache")
    (unit,) = local().units(context)
    rows = [row for row in local().read(unit, context) if isinstance(row, dict)]
    texts = {row["origin"]["path"]: row["text"] for row in rows}
    assert texts["c.py"] == texts["d.py"] == texts["sub/a.py"]


@pytest.mark.parametrize("name", ["c.py", "NOTICE", "sub/COPYING"])
@pytest.mark.parametrize("target", ["/etc/hostname", "../../outside", "nowhere"])
def test_a_link_that_leads_out_or_nowhere_is_refused(folder: Path, name: str, target: str) -> None:
    (folder / name).symlink_to(target)
    with pytest.raises(SourceError, match=rf"'{name}': is a link to .*: put the file in"):
        local().units(Context())


def test_missing_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=r"code: no such folder \(looked from"):
        local().units(Context())
