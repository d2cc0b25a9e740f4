"""License and NOTICE texts, kept under the hash of their content so that publishing can ship them.

Thousands of rows share a few texts: a row names them by sha256 and the folder holds each once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from curate.files import Damaged, read_checked, write_atomically


def text_sha256(text: str) -> str:
    """Return the hex sha256 of ``text`` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def save_text(cache: Path, text: str) -> str:
    """Write ``text`` to ``<cache>/texts/<sha256>.txt`` unless it is there; return its sha256."""
    sha256 = text_sha256(text)
    try:
        load_text(cache, sha256)
    except Damaged:
        # Several workers may save one text at once.
        write_atomically(_path(cache, sha256), text.encode())
    return sha256


def load_text(cache: Path, sha256: str) -> str:
    """Return a saved text.

    Raises:
        Damaged: ``cache`` has no text with this hash.
    """
    return read_checked(_path(cache, sha256), sha256).decode()


def _path(cache: Path, sha256: str) -> Path:
    return cache / "texts" / f"{sha256}.txt"
