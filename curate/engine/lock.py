"""One run at a time writes an output folder.

The lock is the kernel's (flock), on ``<output>/cache/lock``: it goes with the process that holds
it, however that ends. What is written in the file only tells others who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from curate.files import is_alive, writing

PATIENCE_S = 1.0
"""Seconds that the holder of a lock may take to write its name into it."""

_MOST_COMMAND = 300  # characters of a command that a message shows


class Busy(Exception):
    """Another process writes the output folder; the message says which."""


@contextmanager
def hold(output: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold an output folder's lock.

    Args:
        output: the folder.
        shared: whether others may hold it in the same way at the same time, as the processes of
            ``--shard`` do.

    Raises:
        Busy: another process holds it.
        CannotWrite: there can be no such folder, or no file in it.
    """
    path = output / "cache" / "lock"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(_busy(output, path)) from None
        with writing(path):
            _sign(file, alone=not shared)
        yield


def _sign(file: IO[str], alone: bool) -> None:
    """Write who holds the lock; one of several adds a line."""
    if alone:
        file.truncate(0)
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    if len(command) > _MOST_COMMAND:
        command = command[:_MOST_COMMAND] + " …"
    holder = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": command,
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    file.write(json.dumps(holder) + "\n")
    file.flush()


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
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                one = json.loads(line)
                if one["host"] != socket.gethostname() or is_alive(int(one["pid"])):
                    found = {name: one[name] for name in ("host", "pid", "command", "since")}
    return found
