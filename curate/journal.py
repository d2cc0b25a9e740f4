"""Journals: files of JSON lines that one process at a time appends to.

Whatever stops that process, the lines that are there stay true: an append is one write at the end
of the file, so that a kill leaves at most one torn line, the last. Readers pass over it, and the
next process that writes cuts it off. The lock is the kernel's (flock), on the file itself: it goes
with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from curate.files import InputError, json_lines, writing

_NOW = fcntl.LOCK_NB  # rather than wait until the lock is free
_MOST_COMMAND = 300  # characters of a command that a message shows


class Locked(Exception):
    """Another process writes the file.

    Attributes:
        holder: its id and its command, as text; None if this machine does not know them.
    """

    def __init__(self, path: Path) -> None:
        self.holder = _holder(path)
        super().__init__(f"{path}: {self.holder or 'another process'} is writing it")


class NotAJournal(ValueError):
    """The end of a file is neither a whole line nor the start of one that belongs there."""


class Journal:
    """A journal while it is appended to; a context manager.

    A torn last line is cut off when the file is opened by one process alone.

    Args:
        path: of the file; it is made if it is not there, as is its folder.
        start: how each of its lines starts: whatever else stands at the end is left alone.
        durable: whether a line is to outlast a power cut, and not only a kill.
        shared: whether others may hold the lock in the same way at the same time.

    Raises:
        Locked: another process holds the lock.
        NotAJournal: something else stands at the end of the file, which is left as it is.
        CannotWrite: the operating system refused.
    """

    def __init__(
        self, path: Path, start: bytes = b"", *, durable: bool = False, shared: bool = False
    ) -> None:
        self.path, self._durable = path, durable
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            with self.closed_on_error():
                try:
                    fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | _NOW)
                except BlockingIOError:
                    raise Locked(path) from None
                if not shared:
                    self.cut(whole_lines(path, start))

    def cut(self, lines: Sequence[bytes]) -> None:
        """Keep the first lines of the file, and cut off what follows."""
        size = sum(len(line) + 1 for line in lines)
        if size < os.fstat(self._file.fileno()).st_size:
            self._file.truncate(size)

    def append(self, *lines: bytes) -> None:
        """Write lines, each with its end, at once; when this returns, a kill does not lose them.

        Raises:
            CannotWrite: the operating system refused.
        """
        data = memoryview(b"".join(lines))
        with writing(self.path):
            while data:  # a signal or a full disk may have the system take less
                data = data[self._file.write(data) or 0 :]
            if self._durable:
                os.fsync(self._file.fileno())

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the file if what is done within raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, and give up the lock."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def json_line(value: dict[str, Any]) -> bytes:
    """Return a JSON object as a line.

    Raises:
        ValueError: a number is not finite, which strict readers of JSON refuse.
    """
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def whole_lines(path: Path, start: bytes = b"") -> list[bytes]:
    """Return the lines of a journal, without their ends; a torn last line is passed over.

    Args:
        path: of the file.
        start: how each line starts.

    Raises:
        NotAJournal: the end of the file is neither a whole line nor the start of one.
        OSError: the file cannot be read.
    """
    *lines, torn = path.read_bytes().split(b"\n")
    if torn[: len(start)] != start[: len(torn)]:
        raise NotAJournal("its last line has no end, and does not start as its lines do")
    return lines


def journal_lines(path: Path, start: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a journal and their places, as `json_lines` does.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    try:
        text = b"\n".join(whole_lines(path, start)).decode()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    yield from json_lines(path, text)


def open_journal(path: Path, start: bytes, what: str, *, durable: bool = False) -> Journal:
    """Return the `Journal` in a file that the user gave; ``what`` says what is written there.

    Raises:
        InputError: the file holds something else, cannot be written, or another process is
            writing it.
    """
    try:
        return Journal(path, start, durable=durable)
    except Locked as error:
        who = f": {error.holder}" if error.holder else ""
        raise InputError(f"{path}: another process is writing {what} there{who}") from error
    except NotAJournal as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(str(error)) from error


def shown_command(arguments: Sequence[str]) -> str:
    """Return a command as a message shows it."""
    command = shlex.join(arguments)
    return command if len(command) <= _MOST_COMMAND else command[:_MOST_COMMAND] + " …"


def _holder(path: Path) -> str | None:
    """Return which process of this machine holds the lock of a file, or None."""
    with contextlib.suppress(OSError, IndexError):
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == f"{device}:{status.st_ino}":
                command = Path("/proc", words[4], "cmdline").read_bytes().decode(errors="replace")
                return f"process {words[4]} (`{shown_command(command.split(chr(0))[:-1])}`)"
    return None
