"""Files: their hashes, and writing them whole. It needs nothing but Python."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_blob_id(content: bytes) -> str:
    """Return the id that git, and with it the Hub, gives a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several machines may write one file of a shared folder at the same time.
    temporary = path.with_name(f"{path.name}.tmp-{socket.gethostname()}-{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
