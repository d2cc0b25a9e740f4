"""One run at a time writes an output folder.

The lock is the one of a journal (`curate.journal`), ``<output>/cache/lock``. What is written in it
only tells others, on other machines too, who holds it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from curate.files import CannotWrite, is_alive
from curate.journal import Journal, Locked, json_line, shown_command, whole_lines

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

PATIENCE_S = 1.0
"""Seconds that the holder of a lock may take to write its name into it."""


class Busy(Exception):
    """Another process writes the output folder; the message says which."""


@contextmanager
def hold(output: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold an output folder's lock.

    Args:
        output: the folder.
        shared: whether others may hold it in the same way at the same time, as the processes of
            ``--shard`` do.

    A folder that was written before and cannot be written now, as on a disk mounted for reading, is
    not locked: what is read from it is checked, and the first write fails.

    Raises:
        Busy: another process holds it.
        CannotWrite: there can be no such folder, or no file in it.
    """
    path = output / "cache" / "lock"
    try:
        journal = Journal(path, shared=shared)
    except Locked:
        raise Busy(_busy(output, path)) from None
    except CannotWrite as error:
        if not (path.exists() and getattr(error.__cause__, "errno", None) in READ_ONLY):
            raise
        yield
        return
    with journal:
        if not shared:  # one of several adds a line
            journal.cut([])
        holder = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "command": shown_command([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        journal.append(json_line(holder))
        yield


def _busy(output: Path, path: Path) -> str:
    """Return the message that names who holds the lock."""
    give_up = time.monotonic() + PATIENCE_S
    while not (holder := _holder(path)) and time.monotonic() < give_up:
        time.sleep(0.05)
    who = "another process"
    if holder:
        who = "process {pid} on {host} (`{command}`, since {since})".format(**holder)
    return (
        f"{output}: {who} is writing it; wait until it has ended, stop it, or choose another folder"
    )


def _holder(path: Path) -> dict[str, str] | None:
    """Return the last of those who signed the lock and may still run, or None."""
    found = None
    with contextlib.suppress(OSError):
        for line in whole_lines(path):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                one = json.loads(line)
                if one["host"] != socket.gethostname() or is_alive(int(one["pid"])):
                    found = {name: one[name] for name in ("host", "pid", "command", "since")}
    return found
