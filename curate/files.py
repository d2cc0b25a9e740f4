"""Files: their hashes, writing them whole, and telling one that has been damaged since.

It needs nothing but Python. Whatever a run writes to its cache is checked when it is read: a JSON
file carries a hash of its own content, and the hash of any other file stands in such a JSON file
or in the file's name. A file that fails its check raises `Damaged`, which `curate.engine.mend`
answers by making it again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PROJECT = str(Path(__file__).resolve().parents[1])

SEAL = "seal"
"""The field of a sealed JSON object that holds the hash of all other fields."""

_TEMPORARY = re.compile(r"\.tmp-(?P<host>.+)-(?P<pid>\d+)(\.\w+)?")
_LOST = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EIO)  # of a file: gone, or unreadable
_REMEDIES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room within the quota",
    errno.EFBIG: "raise the limit on the size of files (`ulimit -f`)",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that you may read and write, or change its rights",
    errno.EPERM: "choose a folder that you may read and write, or change its rights",
    errno.ENOTDIR: "a part of the path is a file: choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


class Damaged(Exception):
    """A file that a run wrote is gone, or is not as it was written.

    Args:
        path: of the file or folder.
        what: is wrong with it.
    """

    def __init__(self, path: Path | str, what: str) -> None:
        super().__init__(str(path), what)

    @property
    def path(self) -> Path:
        """The file or folder that is to be thrown away."""
        return Path(self.args[0])

    @property
    def what(self) -> str:
        """What is wrong with it."""
        return str(self.args[1])

    def __str__(self) -> str:
        return f"{self.path}: {self.what}; `curate run RECIPE` makes it again"


class InputError(Exception):
    """A file that the user gave is not as it should be; the message says where."""


class CannotWrite(OSError):
    """A file cannot be written; the message says which, why, and what to do."""


def explain(error: OSError) -> str:
    """Return what an error of the operating system says: the path, the reason and the remedy."""
    if isinstance(error, CannotWrite):
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0)
    return where + (error.strerror or str(error)) + (f"; {remedy}" if remedy else "")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name ``path`` in errors of what is done to write it.

    Raises:
        CannotWrite: the operating system refused.
    """
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        named = OSError(error.errno, error.strerror or str(error))
        raise CannotWrite(f"{error.filename or path}: cannot be written: {explain(named)}") from (
            error
        )


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_blob_id(content: bytes) -> str:
    """Return the id that git, and with it the Hub, gives a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


# --- writing --------------------------------------------------------------------------------


def temporary_name(name: str) -> str:
    """Return the name under which this process writes a file until it is whole."""
    # Several machines may write one file of a shared folder at the same time.
    return f"{name}.tmp-{socket.gethostname()}-{os.getpid()}"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it into place; it then outlasts a power cut.

    Raises:
        CannotWrite: the operating system refused. Nothing is left behind.
    """
    temporary = path.with_name(temporary_name(path.name))
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # or the name could reach the disk before the content
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's content, or a folder's names, outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what dead processes have left half-written in a folder; it need not be there.

    To be called by the only process that writes there (see `curate.engine.lock`): a process of
    another machine, which cannot be asked, is taken for dead.
    """
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        found = _TEMPORARY.search(entry.name)
        if found and not (found["host"] == socket.gethostname() and is_alive(int(found["pid"]))):
            remove(Path(entry.path))


def is_temporary(name: str) -> bool:
    """Whether a file's name is one that `temporary_name` gives."""
    return bool(_TEMPORARY.search(name))


def is_alive(pid: int) -> bool:
    """Whether this machine has a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; it need not be there.

    Raises:
        CannotWrite: the operating system refused.
    """
    with writing(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):  # on a disk that is read-only, what is not there is no error
            path.unlink(missing_ok=True)


# --- reading --------------------------------------------------------------------------------


def read_whole(path: Path) -> bytes:
    """Return the bytes of a file that a run wrote.

    Raises:
        Damaged: it is not there, or the disk does not give it.
    """
    with losing(path):
        return path.read_bytes()


def read_checked(path: Path, sha256: str) -> bytes:
    """Return the bytes of a file whose hash is known.

    Raises:
        Damaged: it is not there, or its bytes are others.
    """
    data = read_whole(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(path, "is damaged (its sha256 is not the one that was recorded)")
    return data


def check_file(path: Path, sha256: str) -> None:
    """Check a file that is too large to hold against its hash.

    Raises:
        Damaged: it is not there, or its bytes are others.
    """
    with losing(path):
        if file_sha256(path) != sha256:
            raise Damaged(path, "is damaged (its sha256 is not the one that was recorded)")


@contextmanager
def losing(path: Path) -> Iterator[None]:
    """Say of a file that is gone or unreadable that it is damaged.

    Raises:
        Damaged: the file cannot be had.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _LOST:
            raise
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
        what = "is gone" if gone else f"is damaged ({error.strerror})"
        raise Damaged(path, what) from error


def read_end(file: IO[bytes], most: int) -> str:
    """Return the last bytes of what a process printed, as text.

    Rows and reports keep it: what is in Python's own folders is named from there on.
    """
    file.seek(max(0, file.seek(0, os.SEEK_END) - most))
    text = file.read(most).decode(errors="replace").strip()
    for folder in sorted({*filter(None, sys.path), PROJECT}, key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    return text


def sealed(value: dict[str, Any], indent: int | None = None) -> bytes:
    """Return a JSON object with a hash of its own content, so that damage is noticed."""
    value = {name: part for name, part in value.items() if name != SEAL}  # of an older content
    return json.dumps({**value, SEAL: _seal(value)}, indent=indent).encode()


def unsealed(data: bytes) -> dict[str, Any]:
    """Return the JSON object that `sealed` wrote.

    Raises:
        ValueError: it is another one; the message says what is wrong.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("is damaged (no JSON)" if data else "is empty") from None
    if not isinstance(value, dict) or value.pop(SEAL, None) != _seal(value):
        raise ValueError("is damaged (its content and the hash in it disagree)")
    return value


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file that `sealed` wrote.

    Raises:
        Damaged: it is not there, or is another one.
    """
    data = read_whole(path)
    try:
        return unsealed(data)
    except ValueError as error:
        raise Damaged(path, str(error)) from None


def _seal(value: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(value))  # as it will be read: keys are texts, tuples lists
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


# --- what a user gives ----------------------------------------------------------------------


def read_text(path: Path) -> str:
    """Return what a file of UTF-8 holds.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def json_lines(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the object of each line, and before it the place that errors name.

    Raises:
        InputError: a line is something else.
    """
    # Not splitlines(): a JSON text may hold U+2028 and its like.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{place}: is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{place}: must be a JSON object")
        yield place, row


def strict_json(value: Any) -> Any:
    """Return a value with what strict readers of JSON refuse put in words.

    Evidence may hold what a candidate's process said; it must not spoil the lines of others.
    """
    if isinstance(value, dict):
        return {strict_json(str(name)): strict_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) >= 2**63:
        return "an integer of more than 64 bits"
    return value
