"""Repositories made here, some of them hostile, are read at one commit and never run."""

import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from curate.cache.artifact import open_artifact
from curate.files import Damaged
from curate.rows import Row
from curate.sources import git as git_source
from curate.sources.git import Git, public_url
from curate.step import Context, SourceError


def git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", *author, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "m")
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "LICENSE").write_text("MIT License")
    (folder / "a.py").write_bytes(b"a = 1\r\n")
    return folder


def step(url: str | Path, sha: str) -> Git:
    pins = [{"url": str(url), "commit": sha}]
    return Git.model_validate({"source": "git", "repositories": pins})


def rows_of(source: Git, cache: Path) -> list[Row]:
    context = Context(cache=cache)
    (unit,) = source.units(context)
    return [row for row in source.read(unit, context) if isinstance(row, dict)]


@pytest.mark.parametrize("what", ["objects/pack/*.pack", "objects/pack/*.idx"])
def test_a_clone_that_is_damaged_is_not_read(repository: Path, tmp_path: Path, what: str) -> None:
    source, cache = step(repository, commit(repository)), tmp_path / "cache"
    expected = rows_of(source, cache)
    (clone,) = (cache / "git").glob("*.git")
    (file,) = clone.glob(what)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    with pytest.raises(Damaged, match="the cached clone of kernels is damaged") as told:
        rows_of(source, cache)
    assert told.value.path == clone
    shutil.rmtree(clone)
    assert rows_of(source, cache) == expected


@pytest.mark.parametrize("form", ["folder", "file"])
def test_reads_one_commit_and_then_needs_no_repository(
    repository: Path, tmp_path: Path, form: str
) -> None:
    old = commit(repository)
    (repository / "a.py").write_text("a = 2\n")
    commit(repository)
    url = repository.as_uri() if form == "file" else str(repository)
    (row,) = rows_of(step(url, old), tmp_path / "cache")
    assert row["text"] == "a = 1\r\n"
    assert row["origin"]["commit"] == old
    assert row["origin"]["repo"] == "kernels"
    assert str(tmp_path) not in repr(row)
    artifact = open_artifact(tmp_path / "cache", row["origin"]["artifact_sha256"])
    assert artifact.paths() == ("LICENSE", "a.py")
    assert artifact.info.commit == old
    repository.rename(tmp_path / "gone")
    assert rows_of(step(url, old), tmp_path / "cache") == [row]


def test_artifact_is_named_as_documented(repository: Path, tmp_path: Path) -> None:
    sha = commit(repository)
    (row,) = rows_of(step(repository, sha), tmp_path / "cache")
    pipe = f"git ls-tree -r -z --full-tree {sha} | sha256sum"
    listed = subprocess.run(pipe, shell=True, cwd=repository, capture_output=True, text=True)
    assert row["origin"]["artifact_sha256"] == listed.stdout.split()[0]


def test_filters_attributes_links_and_submodules_do_nothing(
    repository: Path, tmp_path: Path
) -> None:
    (repository / ".gitattributes").write_text(
        "*.py filter=evil\na.py export-ignore\nb.py export-subst\n"
    )
    (repository / "b.py").write_text("b = '$Format:%H$'\n")
    (repository / "link.txt").symlink_to("/etc/passwd")
    (repository / "c.py").symlink_to("a.py")
    sha = commit(repository)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{sha},module")
    git(repository, "commit", "-q", "-m", "submodule")
    sha = git(repository, "rev-parse", "HEAD").strip()
    marker = tmp_path / "ran"
    git(repository, "config", "filter.evil.smudge", f"touch {marker}; cat")
    for name in ("post-checkout", "reference-transaction", "post-upload-pack"):
        hook = repository / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
        hook.chmod(0o755)
    rows = rows_of(step(repository, sha), tmp_path / "cache")
    assert [(row["origin"]["path"], row["text"]) for row in rows] == [
        ("a.py", "a = 1\r\n"),
        ("b.py", "b = '$Format:%H$'\n"),
        ("c.py", "a = 1\r\n"),
    ]
    assert not marker.exists()


def test_a_license_that_is_a_link_is_followed_or_refused(repository: Path, tmp_path: Path) -> None:
    (repository / "legal").mkdir()
    (repository / "legal/mit.txt").write_text("MIT")
    (repository / "UNLICENSE").symlink_to("legal/mit.txt")
    sha = commit(repository)
    (row, *_) = rows_of(step(repository, sha), tmp_path / "cache")
    artifact = open_artifact(tmp_path / "cache", row["origin"]["artifact_sha256"])
    assert artifact.read("UNLICENSE") == "MIT"
    (repository / "COPYING").symlink_to("../terms.txt")
    with pytest.raises(SourceError, match=r"'COPYING': is a link to '\.\./terms\.txt'"):
        rows_of(step(repository, commit(repository)), tmp_path / "cache")


def test_tree_with_unsafe_path_is_refused(repository: Path, tmp_path: Path) -> None:
    commit(repository)
    blob = git(repository, "hash-object", "-w", "a.py").strip()
    raw = b"100644 ..\\evil.py\0" + bytes.fromhex(blob)
    made = subprocess.run(
        ["git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin"],
        cwd=repository,
        input=raw,
        capture_output=True,
        check=True,
    )
    sha = git(repository, "commit-tree", made.stdout.decode().strip(), "-m", "evil").strip()
    git(repository, "update-ref", "refs/heads/evil", sha)
    with pytest.raises(SourceError, match="backslash"):
        rows_of(step(repository, sha), tmp_path / "cache")
    assert not list((tmp_path / "cache/artifacts").iterdir())


def test_missing_commit(repository: Path, tmp_path: Path) -> None:
    commit(repository)
    with pytest.raises(SourceError, match=f"kernels: commit {'0' * 40} cannot be had: .*not our"):
        rows_of(step(repository, "0" * 40), tmp_path / "cache")
    assert not list((tmp_path / "cache/git").iterdir())


def test_server_that_gives_no_single_commits(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(git_source._CONFIG, "protocol.version", "0")
    old = commit(repository)
    (repository / "a.py").write_text("a = 2\n")
    commit(repository)
    (row,) = rows_of(step(repository, old), tmp_path / "cache")
    assert row["text"] == "a = 1\r\n"
    with pytest.raises(SourceError, match="Check the address"):
        rows_of(step(repository, "0" * 40), tmp_path / "cache")


def test_missing_repository(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="gone: commit"):
        rows_of(step(tmp_path / "gone", "a" * 40), tmp_path / "cache")


@pytest.mark.parametrize(
    ("url", "sha", "message"),
    [
        ("https://example.org/x", "main", "40 lower-case hex digits"),
        ("https://example.org/x", "a" * 12, "40 lower-case hex digits"),
        ("ext::sh -c touch% /tmp/pwned", "a" * 40, "must be an https"),
        ("--upload-pack=touch /tmp/pwned", "a" * 40, "must be an https"),
        ("http://example.org/x", "a" * 40, "must be an https"),
        ("https://me:secret@example.org/x", "a" * 40, "a recipe is published"),
        ("https://example.org/x?private_token=secret", "a" * 40, "a recipe is published"),
    ],
)
def test_bad_options(url: str, sha: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        step(url, sha)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:token@example.org/a/b.git?x=1", "https://example.org/a/b.git"),
        ("ssh://git@example.org/a/b.git", "ssh://example.org/a/b.git"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        ("/home/me/work", "work"),
        ("file:///home/me/work", "work"),
    ],
)
def test_public_url(url: str, shown: str) -> None:
    assert public_url(url) == shown
