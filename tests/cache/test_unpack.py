"""Hostile archives are refused whole, and the message names the entry."""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from curate.cache.unpack import ArchiveError, ArchiveLimits, Names, unpack


def tar_with(path: Path, *entries: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def plain(name: str, content: bytes = b"x = 1\n") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def zip_with(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def contents(archive: Path, limits: ArchiveLimits | None = None) -> dict[str, bytes | None]:
    return dict(unpack(archive, archive.name, lambda path, size: path.endswith(".py"), limits))


UNSAFE_NAMES = {
    "../evil.py": "leaves the archive",
    "pkg/../../evil.py": "leaves the archive",
    "/etc/evil.py": "absolute",
    "C:/evil.py": "drive letter",
    "pkg\\..\\evil.py": "backslash",
    "pkg/a\nb.py": "control character",
    "x" * 300 + ".py": "too long",
}


@pytest.mark.parametrize("name", UNSAFE_NAMES)
@pytest.mark.parametrize("form", ["tar", "zip"])
def test_unsafe_names_are_refused(tmp_path: Path, form: str, name: str) -> None:
    if form == "tar":
        archive = tar_with(tmp_path / "a.tar.gz", plain("pkg/ok.py"), plain(name))
    else:
        archive = zip_with(tmp_path / "a.zip", ("pkg/ok.py", b""), (name, b""))
    with pytest.raises(ArchiveError, match=UNSAFE_NAMES[name]) as caught:
        contents(archive)
    assert caught.value.entry == name
    assert caught.value.archive == archive.name


def test_null_character_that_zipfile_would_cut_off(tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "a.zip", ("safe.pyQ/../x", b""))
    archive.write_bytes(archive.read_bytes().replace(b"safe.pyQ/../x", b"safe.py\0/../x"))
    with pytest.raises(ArchiveError, match=r"leaves|control"):
        contents(archive)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.SYMTYPE, "is a link"),
        (tarfile.LNKTYPE, "is a link"),
        (tarfile.CHRTYPE, "no plain file"),
        (tarfile.BLKTYPE, "no plain file"),
        (tarfile.FIFOTYPE, "no plain file"),
    ],
)
def test_links_and_devices_in_tar(tmp_path: Path, kind: bytes, reason: str) -> None:
    archive = tar_with(tmp_path / "a.tar.gz", special("pkg/x.py", kind, "/etc/passwd"))
    with pytest.raises(ArchiveError, match=reason):
        contents(archive)


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_a_link_gives_the_file_that_it_leads_to(tmp_path: Path, form: str) -> None:
    if form == "tar":
        archive = tar_with(
            tmp_path / "a.tar.gz",
            special("pkg/first.py", tarfile.SYMTYPE, "sub/../x.py"),
            plain("pkg/x.py"),
            special("pkg/hard.py", tarfile.LNKTYPE, "pkg/x.py"),
            special("pkg/docs", tarfile.SYMTYPE, "/nowhere"),
        )
        names = ("pkg/first.py", "pkg/hard.py", "pkg/x.py")
    else:
        entry = zipfile.ZipInfo("pkg/first.py")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive = zip_with(tmp_path / "a.whl", (entry, b"x.py"), ("pkg/x.py", b"x = 1\n"))
        names = ("pkg/first.py", "pkg/x.py")
    found = contents(archive)
    assert {name: found[name] for name in names} == dict.fromkeys(names, b"x = 1\n")


@pytest.mark.parametrize("target", ["../../x.py", "gone.py", "first.py"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, target: str) -> None:
    archive = tar_with(
        tmp_path / "a.tar.gz", special("pkg/first.py", tarfile.SYMTYPE, target), plain("pkg/x.py")
    )
    with pytest.raises(ArchiveError, match="is a link to"):
        contents(archive)


@pytest.mark.parametrize(
    ("mode", "reason"), [(stat.S_IFLNK, "is a link"), (stat.S_IFCHR, "neither a file")]
)
def test_links_and_devices_in_zip(tmp_path: Path, mode: int, reason: str) -> None:
    entry = zipfile.ZipInfo("pkg/x.py")
    entry.external_attr = (mode | 0o777) << 16
    with pytest.raises(ArchiveError, match=reason):
        contents(zip_with(tmp_path / "a.whl", (entry, b"/etc/passwd")))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a/x.py", "a/x.py"], "there twice"),
        (["a/x.py", "./a//x.py"], "there twice"),
        (["a/x.py", "A/X.py"], "in case only"),
        (["a/caf\u00e9.py", "a/cafe\u0301.py"], "in case only"),
        (["a/x.py", "a/x.py/y.py"], "lies in 'a/x.py'"),
        (["a/x.py/y.py", "a/X.py"], "both a file and a folder"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_meet(tmp_path: Path, names: list[str], reason: str) -> None:
    for archive in (
        tar_with(tmp_path / "a.tar.gz", *map(plain, names)),
        zip_with(tmp_path / "a.zip", *((name, b"") for name in names)),
    ):
        with pytest.raises(ArchiveError, match=reason):
            contents(archive)


def test_folders_may_repeat(tmp_path: Path) -> None:
    folder = special("pkg/", tarfile.DIRTYPE)
    archive = tar_with(tmp_path / "a.tar.gz", folder, plain("pkg/x.py"), folder)
    assert contents(archive) == {"pkg/x.py": b"x = 1\n"}


@pytest.mark.parametrize("name", ["pkg/bomb.py", "pkg/bomb.bin"])
def test_bomb_in_tar_even_in_a_file_that_is_not_wanted(tmp_path: Path, name: str) -> None:
    archive = tar_with(tmp_path / "a.tar.gz", plain(name, bytes(20 << 20)))
    with pytest.raises(ArchiveError, match="bombs"):
        contents(archive)


def test_bomb_in_zip(tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "a.zip", ("pkg/bomb.py", bytes(20 << 20)))
    with pytest.raises(ArchiveError, match=r"'pkg/bomb.py'.*bombs"):
        contents(archive)


def test_declared_size_is_not_trusted(tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "a.zip", ("x.py", b"a" * 5000))
    lying = archive.read_bytes().replace((5000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    archive.write_bytes(lying)
    with pytest.raises(ArchiveError):
        contents(archive)


@pytest.mark.parametrize("form", ["tar", "zip"])
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ArchiveLimits(entries=3), "more than 3 entries"),
        (ArchiveLimits(file_bytes=1 << 20), "larger than 1 MiB"),
        (ArchiveLimits(total_bytes=3 << 20), "more than 3 MiB"),
    ],
)
def test_limits(tmp_path: Path, form: str, limits: ArchiveLimits, reason: str) -> None:
    files = [(f"pkg/{i}.py", bytes(1_100_000)) for i in range(4)]
    if form == "tar":
        archive = tar_with(tmp_path / "a.tar.gz", *(plain(*file) for file in files))
    else:
        archive = zip_with(tmp_path / "a.zip", *files)
    with pytest.raises(ArchiveError, match=reason):
        contents(archive, limits)


@pytest.mark.parametrize("form", ["gz", "bz2", "xz"])
def test_good_archives_of_each_form(tmp_path: Path, form: str) -> None:
    archive = tar_with(
        tmp_path / "unnamed", plain("pkg/x.py", b"a"), plain("pkg/x.so", b"b"), mode=f"w:{form}"
    )
    assert contents(archive) == {"pkg/x.py": b"a", "pkg/x.so": None}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_cut_archives_are_damaged(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    raw = tar_with(tmp_path / "a.tar", plain("x.py", bytes(range(256)) * 400), mode="w")
    packed = pack(raw.read_bytes())
    cut = tmp_path / "cut"
    cut.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ArchiveError, match="damaged"):
        contents(cut)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x03\x04garbage"])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.whl").write_bytes(content)
    with pytest.raises(ArchiveError, match="damaged or of an unknown form"):
        contents(tmp_path / "a.whl")


def test_names_that_are_not_utf8() -> None:
    with pytest.raises(ArchiveError, match="not UTF-8"):
        Names("a").file(b"\xff.py".decode("utf-8", "surrogateescape"))
