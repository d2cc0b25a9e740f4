"""ScanCode on one text that the templates do not place: the optional extra ``[scancode]``."""

from __future__ import annotations

import importlib
import tempfile
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1024)
def identify(text: str) -> str | None:
    """Return ScanCode's SPDX expression for ``text``; None where it names nothing it knows.

    Raises:
        ImportError: the extra is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "LICENSE"
        path.write_bytes(text.encode())
        result = importlib.import_module("scancode.api").get_licenses(str(path))
    expression: str | None = result["detected_license_expression_spdx"]
    return None if expression is None or "unknown" in expression.lower() else expression
