"""Read archives that may be hostile.

Nothing is built, installed or run, and no declared size is trusted: limits hold on what really
comes out of the decompressor. A link gives the file that it leads to, if that is in the archive.
The checks follow PEP 706 (tar filters), and refuse where that would repair, since a pinned source
has no reason to carry such entries.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import posixpath
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from curate.step import SourceError

File = tuple[str, bytes | None]
"""A path with forward slashes, and the content; None where the file was not wanted."""

Wanted = Callable[[str, int], bool]
"""Whether the file at a path, of so many bytes as declared, is read."""

_CHUNK = 1 << 16
_LINK_BYTES = 4096
_LINKS_IN_A_ROW = 10
_DAMAGE = (
    EOFError,
    OSError,
    RuntimeError,  # what zipfile says of an encrypted entry
    NotImplementedError,  # what zipfile says of an unknown compression
    lzma.LZMAError,
    tarfile.TarError,
    UnicodeDecodeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


class ArchiveError(SourceError):
    """An archive is damaged or holds what no source archive should.

    Attributes:
        archive: the archive's name.
        entry: the entry at fault; None where the archive as a whole is.
        reason: what is wrong.
    """

    def __init__(self, archive: str, entry: str | None, reason: str) -> None:
        self.archive, self.entry, self.reason = archive, entry, reason
        where = f"{archive}: {entry!r}" if entry is not None else archive
        super().__init__(f"{where}: {reason}; nothing of it was kept")


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may hold. The largest PyTorch packages stay below a tenth of each."""

    entries: int = 100_000
    total_bytes: int = 2 << 30
    file_bytes: int = 32 << 20
    ratio: int = 100
    ratio_from: int = 16 << 20  # bytes unpacked before the ratio counts: small text packs well


@dataclass
class Names:
    """The entry names of one archive, each checked against those before it."""

    archive: str
    limits: ArchiveLimits = ArchiveLimits()
    _seen: int = 0
    _files: dict[str, str] = field(default_factory=dict)
    _folders: set[str] = field(default_factory=set)

    def file(self, name: str) -> str:
        """Return the file's path, relative and with forward slashes.

        Raises:
            ArchiveError: the path leaves the tree, or meets another one on a file system that
                does not tell upper from lower case or one Unicode form from another.
        """
        path = self._path(name)
        key = _fold(path)
        if not path:
            raise self._error(name, "is a file without a name")
        if key in self._files:
            other = self._files[key]
            reason = "is there twice" if other == path else f"differs from {other!r} in case only"
            raise self._error(name, reason)
        if key in self._folders:
            raise self._error(name, "is both a file and a folder")
        self._files[key] = path
        self._parents(name, path)
        return path

    def folder(self, name: str) -> None:
        """Check the name of a folder; an archive may repeat it."""
        path = self._path(name)
        if _fold(path) in self._files:
            raise self._error(name, "is both a file and a folder")
        self._folders.add(_fold(path))
        self._parents(name, path)

    def _parents(self, name: str, path: str) -> None:
        parts = _fold(path).split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            if parent in self._files:
                raise self._error(name, f"lies in {self._files[parent]!r}, which is a file")
            self._folders.add(parent)

    def _path(self, name: str) -> str:
        self._seen += 1
        if self._seen > self.limits.entries:
            raise self._error(None, f"has more than {self.limits.entries} entries")
        if reason := _fault(name):
            raise self._error(name, reason)
        return "/".join(part for part in name.split("/") if part not in ("", "."))

    def _error(self, entry: str | None, reason: str) -> ArchiveError:
        return ArchiveError(self.archive, entry, reason)


def _fault(name: str) -> str | None:
    """Return what makes an entry's name unsafe, or None."""
    parts = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if re.match(r"[A-Za-z]:", name):
        return "starts with a drive letter"
    if "\\" in name:
        return "holds a backslash"
    if ".." in parts:
        return "leaves the archive with '..'"
    if re.search(r"[\x00-\x1f\x7f]", name):
        return "holds a control character"
    try:
        encoded = [part.encode() for part in parts]
    except UnicodeEncodeError:
        return "is not UTF-8"
    if sum(map(len, encoded)) > 1024 or max(map(len, encoded)) > 255:
        return "is too long"
    return None


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def unpack(
    archive: Path, name: str, wanted: Wanted, limits: ArchiveLimits | None = None
) -> Iterator[File]:
    """Yield the regular files of a zip, wheel or tar archive (gz, bz2, xz), in its own order.

    Args:
        archive: the file; its content says what it is, not its name.
        name: what to call it in errors.
        wanted: whether the file at a path is read, whose declared size is given; others are
            checked and passed over.
        limits: what the archive may hold.

    Raises:
        ArchiveError: at the first entry that is unsafe, too large or damaged. What was yielded
            until then must be thrown away.
    """
    limits = limits or ArchiveLimits()
    try:
        with archive.open("rb") as stream:
            reader = _unpack_zip if stream.read(4) == b"PK\x03\x04" else _unpack_tar
        yield from reader(archive, Names(name, limits), wanted, limits)
    except _DAMAGE as error:
        raise ArchiveError(name, None, f"is damaged or of an unknown form ({error})") from error


def _unpack_zip(
    archive: Path, names: Names, wanted: Wanted, limits: ArchiveLimits
) -> Iterator[File]:
    budget = _Budget(names.archive, archive.stat().st_size, limits)
    links = Links(names.archive, wanted)
    with zipfile.ZipFile(archive) as opened:
        entries: dict[str, zipfile.ZipInfo] = {}
        for entry in opened.infolist():
            original = entry.orig_filename  # zipfile cuts `filename` at a null character
            mode = entry.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise ArchiveError(names.archive, original, "is neither a file nor a folder")
            if entry.is_dir():
                names.folder(original)
                continue
            path = names.file(original)
            if stat.S_ISLNK(mode):
                with opened.open(entry) as stream:
                    links.add(path, stream.read(_LINK_BYTES).decode())
                continue
            entries[path] = entry
            if not wanted(path, entry.file_size):
                yield path, None
                continue
            with opened.open(entry) as stream:
                yield path, budget.read(stream, path)
        for path, target in links.resolve(entries):
            if target is None:
                yield path, None
                continue
            with opened.open(entries[target]) as stream:
                yield path, budget.read(stream, path)


@dataclass
class Links:
    """The links of one tree, each of which stands for the file that it leads to.

    Attributes:
        tree: what to call the tree in errors.
        wanted: whether the file at a path is read.
    """

    tree: str
    wanted: Wanted
    _targets: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, target: str, *, of_root: bool = False) -> None:
        """Take a link; its target is relative to its folder, or to the tree's root.

        Raises:
            ArchiveError: it leaves the tree, and is wanted.
        """
        folder = "" if of_root else posixpath.dirname(path)
        inside = posixpath.normpath(posixpath.join(folder, target))
        self._targets[path] = inside
        if target.startswith("/") or inside.split("/")[0] == ".." or _fault(inside):
            self._targets[path] = ""
            if self._named(path):
                raise self._error(path, f"is a link to {target!r}, outside of it")

    def resolve(self, files: Collection[str]) -> Iterator[tuple[str, str | None]]:
        """Yield each link with the file that it leads to; None where nobody wants it.

        A link to a folder of the tree gives nothing: what it would show is there already.

        Raises:
            ArchiveError: a link that is wanted leads nowhere.
        """
        for path, first in self._targets.items():
            target = first
            for _ in range(_LINKS_IN_A_ROW):
                target = self._targets.get(target, target)
            if self._named(path) and target in files:
                yield path, target
            elif not self._named(path) or any(file.startswith(f"{target}/") for file in files):
                yield path, None
            else:
                raise self._error(path, f"is a link to {first!r}, where nothing is")

    def _named(self, path: str) -> bool:
        """Whether a link's name alone says that it is wanted, whatever it leads to."""
        return self.wanted(path, 1 << 62)

    def _error(self, path: str, reason: str) -> ArchiveError:
        return ArchiveError(self.tree, path, f"{reason}: put the file in its place")


def _unpack_tar(
    archive: Path, names: Names, wanted: Wanted, limits: ArchiveLimits
) -> Iterator[File]:
    links, files = Links(names.archive, wanted), set[str]()
    for entry, stream, budget in _tar_entries(archive, names, limits):
        if entry.issym() or entry.islnk():
            links.add(names.file(entry.name), entry.linkname, of_root=entry.islnk())
            continue
        path = names.file(entry.name)
        files.add(path)
        content = stream() if wanted(path, entry.size) else None
        yield path, budget.read(content, path, count=False) if content else None
    led: dict[str, list[str]] = {}
    for path, target in links.resolve(files):
        if target is None:
            yield path, None
        else:
            led.setdefault(target, []).append(path)
    if not led:
        return
    for entry, stream, budget in _tar_entries(archive, Names(names.archive, limits), limits):
        target = posixpath.normpath(entry.name)
        content = stream() if entry.isreg() and target in led else None
        whole = budget.read(content, entry.name, count=False) if content else b""
        yield from ((path, whole) for path in led.get(target, ()) if content)


def _tar_entries(
    archive: Path, names: Names, limits: ArchiveLimits
) -> Iterator[tuple[tarfile.TarInfo, Callable[[], IO[bytes] | None], _Budget]]:
    """Yield the files and links of an archive, with what opens them; folders are checked here."""
    budget = _Budget(names.archive, archive.stat().st_size, limits)
    with archive.open("rb") as raw, _decompressor(raw) as stream:
        # Mode "r|" only ever reads forward, so every byte that is decompressed, also those of
        # headers and of files passed over, is counted.
        counted = _Counted(stream, budget)
        with tarfile.open(fileobj=counted, mode="r|", errorlevel=2) as opened:
            for entry in opened:
                if entry.isdir():
                    names.folder(entry.name)
                    continue
                linked = entry.issym() or entry.islnk()
                if not linked and (not entry.isreg() or entry.issparse()):
                    raise ArchiveError(names.archive, entry.name, "is no plain file or folder")
                yield entry, partial(opened.extractfile, entry), budget
        while counted.read(_CHUNK):  # what follows the last entry must be whole too
            pass


def _decompressor(raw: IO[bytes]) -> gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(raw)
    raise ValueError("neither zip, tar.gz, tar.bz2 nor tar.xz")


@dataclass
class _Budget:
    """Counts the bytes that come out of an archive, and stops it at the limits."""

    archive: str
    packed: int
    limits: ArchiveLimits
    unpacked: int = 0

    def add(self, size: int, entry: str | None) -> None:
        self.unpacked += size
        if self.unpacked > self.limits.total_bytes:
            limit = self.limits.total_bytes >> 20
            raise ArchiveError(self.archive, entry, f"unpacks to more than {limit} MiB")
        allowed = max(self.limits.ratio_from, self.limits.ratio * self.packed)
        if self.unpacked > allowed:
            reason = f"unpacks to more than {self.limits.ratio} times its size, as bombs do"
            raise ArchiveError(self.archive, entry, reason)

    def read(self, stream: IO[bytes], path: str, count: bool = True) -> bytes:
        """Return a file's content; ``count`` is False where the stream below counts already."""
        content = io.BytesIO()
        while chunk := stream.read(_CHUNK):
            if count:
                self.add(len(chunk), path)
            content.write(chunk)
            if content.tell() > self.limits.file_bytes:
                limit = self.limits.file_bytes >> 20
                raise ArchiveError(self.archive, path, f"is larger than {limit} MiB")
        return content.getvalue()


class _Counted(io.RawIOBase):
    """A stream whose reads are counted."""

    def __init__(self, stream: io.BufferedIOBase, budget: _Budget) -> None:
        self._stream, self._budget = stream, budget

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(min(size, _CHUNK) if size >= 0 else _CHUNK)
        self._budget.add(len(chunk), None)
        return chunk
