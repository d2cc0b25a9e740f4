"""License texts for the tests: from installed packages, and notices written here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

from curate.rows import Row
from curate.step import Drop

APACHE_NOTICE = "Licensed under the Apache License, Version 2.0"
AGPL_NOTICE = (
    "This program is free software: you can redistribute it and/or modify it under the terms of "
    "the GNU Affero General Public License as published by the Free Software Foundation, either "
    "version 3 of the License, or (at your option) any later version."
)
LESS = [
    "Redistribution and use for any commercial purpose is forbidden.",
    "Not for commercial use.",
    "Only members of the Acme Research Club may run this code.",
]


def installed_text(package: str) -> str:
    """Return the license text of an installed package."""
    files = metadata.files(package) or []
    names = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")
    # Only the package's own text, not those of code that it bundles.
    own = [f for f in files if f.name in names and len(f.parts) <= 3 and "dist-info" in f.parts[0]]
    return own[0].read_text(encoding="utf-8")


def bsd_text() -> str:
    """Return BSD-3-Clause with its copyright line, as `licenseclassifier` is under it."""
    return installed_text("licenseclassifier")


CODE = "import torch\n\n\ndef double(x):\n    return x + x\n"
MIT = installed_text("pydantic")
APACHE = installed_text("datasets")

Decide = Callable[..., str]
Judge = Callable[..., "Row | Drop"]
"""Of files by path, the path of one and METADATA: its license, or why it is dropped."""


def kept(row: Row | Drop) -> dict[str, Any]:
    assert not isinstance(row, Drop), row
    license_: dict[str, Any] = row["license"]
    return license_


def dropped(outcome: Row | Drop, reason: str) -> dict[str, Any]:
    assert isinstance(outcome, Drop), outcome["license"]
    assert outcome.reason == reason, outcome
    return outcome.evidence
