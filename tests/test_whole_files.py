"""A file is written whole and outlasts a power cut, and damage to it is noticed."""

import os
from pathlib import Path

import pytest

from curate.files import (
    CannotWrite,
    Damaged,
    check_file,
    read_checked,
    read_sealed,
    sealed,
    write_atomically,
)


def test_content_is_on_the_disk_before_the_name_and_the_name_before_we_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        done.append(f"fsync {Path(f'/proc/self/fd/{handle}').readlink()}")
        fsync(handle)

    def replaced(self: Path, target: Path) -> Path:
        done.append(f"rename {target}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    path = tmp_path / "folder/file.json"
    write_atomically(path, b"whole")
    assert [line.partition(".tmp-")[0] for line in done] == [
        f"fsync {path}",
        f"rename {path}",
        f"fsync {path.parent}",
    ]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_cannot_be_written_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os if call == "fsync" else Path, call, full)
    with pytest.raises(CannotWrite, match=r"file\.json: cannot be written: .*make room"):
        write_atomically(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file.json", b"old")]


def test_every_flipped_bit_and_every_cut_of_a_sealed_object_is_noticed(tmp_path: Path) -> None:
    path, value = tmp_path / "a.json", {"rows": 12, "by": {"kind": [1, 2.5]}, "name": "größe"}
    whole = sealed(value)
    path.write_bytes(whole)
    assert read_sealed(path) == value
    for place in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            path.write_bytes(data)
            try:
                assert read_sealed(path) == value
            except Damaged as damage:
                assert damage.path == path
        path.write_bytes(whole[:place])
        with pytest.raises(Damaged):
            read_sealed(path)


def test_a_file_is_compared_with_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "a"
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of abc
    path.write_bytes(b"abc")
    assert read_checked(path, sha256) == b"abc"
    check_file(path, sha256)
    path.write_bytes(b"abd")
    for read in (read_checked, check_file):
        with pytest.raises(Damaged, match="is damaged"):
            read(path, sha256)
    path.unlink()
    for read in (read_checked, check_file):
        with pytest.raises(Damaged, match="is gone"):
            read(path, sha256)
