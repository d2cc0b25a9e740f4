"""The `local` source: a folder on this machine, as it is when the run starts."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import Field

from curate.cache.artifact import Info, is_stored, open_artifact, store, wanted
from curate.cache.unpack import ArchiveLimits, File, Links, Names
from curate.rows import Row
from curate.sources.files import FileSource, cache_of
from curate.step import Context, Drop, Place, SourceError, Unit


class Local(FileSource):
    """Files of a folder; `.git` and what runs wrote into their output folder are passed over.

    A link stands for the file of the folder that it leads to, and must not leave the folder.
    """

    source: Literal["local"]
    path: Annotated[
        str,
        Field(
            min_length=1,
            description="The folder, relative to where the command is run. Its code and license "
            "files are copied into the cache first, so that all steps read the same bytes; "
            "editing one of them makes the next run read the folder anew.",
        ),
    ]

    def lacking(self) -> Iterator[tuple[str, str]]:
        if not Path(self.path).is_dir():
            yield "path", _no_folder(Path(self.path))

    def pins(self) -> dict[Place, str]:
        return {("path",): os.path.realpath(self.path)}

    def units(self, context: Context) -> list[Unit]:
        files = _snapshot(Path(self.path), context.cache)
        return [Unit(self.path, self._key(_digest(files)), {"sha256": _digest(files)})]

    def read(self, unit: Unit, context: Context) -> Iterator[Row | tuple[Row, Drop]]:
        cache, sha256 = cache_of(context), unit.spec["sha256"]
        if not is_stored(cache, sha256):
            files = _snapshot(Path(self.path), cache)
            if _digest(files) != sha256:
                raise SourceError(f"{self.path}: changed while the run was reading it; run again")
            store(cache, sha256, Info(source=self.source), files)
        yield from self._rows(unit.label, open_artifact(cache, sha256))


def _digest(files: list[File]) -> str:
    """Return the sha256 of the sorted list of (path, sha256 of content)."""
    listing = [
        (path, hashlib.sha256(content).hexdigest())
        for path, content in files
        if content is not None
    ]
    return hashlib.sha256(json.dumps(sorted(listing)).encode()).hexdigest()


def _snapshot(root: Path, cache: Path | None) -> list[File]:
    """Read the folder's files that artifacts keep; the content of others is None.

    Raises:
        SourceError: there is no such folder, it holds what no artifact may, or it cannot be read.
    """
    if not root.is_dir():
        raise SourceError(_no_folder(root))
    output = cache.parent.resolve() if cache else None
    if output == root.resolve():
        raise SourceError(f"{root}: is the output folder, too; choose another --output")
    names, limits, total = Names(str(root)), ArchiveLimits(), 0
    links = Links(str(root), wanted)
    files: dict[str, bytes | None] = {}
    for folder, folders, entries in os.walk(root, onerror=_refuse, followlinks=False):
        inner = (name for name in folders if name != ".git")
        folders[:] = sorted(name for name in inner if Path(folder, name).resolve() != output)
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*entries, *linked]):
            file = Path(folder, name)
            path = names.file(file.relative_to(root).as_posix())
            if file.is_symlink():
                links.add(path, str(file.readlink()))
                continue
            keep = wanted(path, file.stat().st_size)
            files[path] = _read(file, limits.file_bytes) if keep else None
            total += len(files[path] or b"")
            if total > limits.total_bytes:
                raise SourceError(f"{root}: holds more than {limits.total_bytes >> 20} MiB of code")
    found = dict(files)
    for path, target in links.resolve(files):
        content = files[target] if target else None
        found[path] = _read(root / target, limits.file_bytes) if target and not content else content
    return sorted(found.items())


def _refuse(error: OSError) -> NoReturn:
    raise SourceError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _no_folder(path: Path) -> str:
    return f"{path}: no such folder (looked from {Path.cwd()})"


def _read(file: Path, limit: int) -> bytes | None:
    """Return a plain file's bytes; None for a special file, or what became a link just now."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            return None
        raise SourceError(f"{file}: cannot be read ({error.strerror})") from error
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise SourceError(f"{file}: is larger than {limit >> 20} MiB; exclude it by moving it")
    return content
