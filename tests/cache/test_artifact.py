"""Artifacts are stored whole or not at all, and read back byte for byte."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from curate.cache.artifact import Info, open_artifact, store, wanted
from curate.cache.unpack import ArchiveError, File
from curate.files import Damaged

SHA = "a" * 64
PYPI = Info(source="pypi", purl="pkg:pypi/demo@1.0", version="1.0")
SDIST: list[File] = [
    ("demo-1.0/PKG-INFO", b"Name: demo\nClassifier: A\nClassifier: B\nLicense: MIT\n\nName: body"),
    ("demo-1.0/demo/b.py", b"x = '\xc3\xa9'\r\n"),
    ("demo-1.0/demo/a.py", b"\xff"),
    ("demo-1.0/demo/lib.so", None),
]


def test_reads_back(tmp_path: Path) -> None:
    stored = store(tmp_path, SHA, PYPI, SDIST, strip_top=True)
    artifact = open_artifact(tmp_path, SHA)
    assert stored is artifact
    assert artifact.paths() == ("PKG-INFO", "demo/a.py", "demo/b.py")
    assert artifact.read("demo/b.py") == "x = '\u00e9'\r\n"
    assert artifact.skipped == {".so": 1}
    assert artifact.info.purl == "pkg:pypi/demo@1.0"
    assert artifact.info.retrieved_at
    with pytest.raises(UnicodeDecodeError):
        artifact.read("demo/a.py")
    with pytest.raises(FileNotFoundError):
        artifact.read("demo/lib.so")
    with pytest.raises(FileNotFoundError):
        artifact.read("../index.json")


def test_only_a_single_top_folder_is_stripped(tmp_path: Path) -> None:
    files: list[File] = [("a/x.py", b""), ("b/y.py", None)]
    assert store(tmp_path, SHA, PYPI, files, strip_top=True).paths() == ("a/x.py",)


def test_nothing_is_kept_when_the_files_fail(tmp_path: Path) -> None:
    def files() -> Iterator[File]:
        yield "x.py", b""
        raise ArchiveError("demo", "y.py", "is a link")

    with pytest.raises(ArchiveError):
        store(tmp_path, SHA, PYPI, files())
    assert list((tmp_path / "artifacts").iterdir()) == []
    with pytest.raises(Damaged, match="is gone"):
        open_artifact(tmp_path, SHA)


def test_storing_twice_keeps_the_first(tmp_path: Path) -> None:
    store(tmp_path, SHA, PYPI, [("x.py", b"1")])
    index = tmp_path / "artifacts" / SHA / "index.json"
    before = index.read_bytes()
    assert store(tmp_path, SHA, PYPI, [("x.py", b"1")]).read("x.py") == "1"
    assert index.read_bytes() == before
    assert json.loads(before)["sha256"] == SHA


def test_a_folder_without_index_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "artifacts" / SHA / "files").mkdir(parents=True)
    with pytest.raises(Damaged, match="is gone"):
        open_artifact(tmp_path, SHA)
    with pytest.raises(Damaged, match="stands in the way"):
        store(tmp_path, SHA, PYPI, [("x.py", b"1")])


@pytest.mark.parametrize("path", ["demo/a.py", "demo/b.py", "PKG-INFO"])
def test_a_file_that_was_changed_in_the_cache_is_not_read(tmp_path: Path, path: str) -> None:
    artifact = store(tmp_path, SHA, PYPI, SDIST, strip_top=True)
    file = artifact.root / path
    file.write_bytes(file.read_bytes() + b"#")
    with pytest.raises(Damaged, match=path):
        artifact.read_bytes(path)
    file.unlink()
    with pytest.raises(Damaged, match="is gone"):
        artifact.read_bytes(path)


@pytest.mark.parametrize(("old", "new"), [("demo@1.0", "demo@1.1"), ('"a"', '"b"'), ("{", "")])
def test_an_index_that_was_changed_is_not_believed(tmp_path: Path, old: str, new: str) -> None:
    artifact = store(tmp_path, SHA, PYPI, SDIST, strip_top=True)
    index = artifact.root.parent / "index.json"
    text = index.read_text()
    index.write_text(text.replace(old, new, 1) if old in text else text[:-5])
    with pytest.raises(Damaged, match=r"index\.json"):
        open_artifact.__wrapped__(tmp_path, SHA).paths()


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("a/b.py", True),
        ("a/b.CU", True),
        ("a/b.so", False),
        ("README.md", True),
        ("LICENSE", True),
        ("third_party/x/LICENCE-MIT.txt", True),
        ("x-1.dist-info/licenses/AUTHORS", True),
        ("LICENSES/MIT.txt", True),
        ("NOTICE.md", True),
        ("UNLICENSE", True),
        ("pyproject.toml", True),
        ("PKG-INFO", True),
        ("pkg-1.0/notes.txt", True),
        ("pkg-1.0/docs/notes.txt", False),
        ("ee/Readme.rst", True),
        ("legal/x.txt", True),
        ("a/b/Lizenz.txt", True),
        ("a/\u8bb8\u53ef\u8bc1.md", True),
        ("a/license.yaml", True),
        ("a/words.yaml", False),
    ],
)
def test_what_artifacts_keep(path: str, kept: bool) -> None:
    assert wanted(path) is kept
