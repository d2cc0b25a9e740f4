"""Which shards the last run of each name is made of, as it is kept in the cache."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.files import Damaged, read_sealed, sealed, write_atomically

TRIAL = ".trial"
"""Ends the name of a trial run; no recipe's name has a dot."""


@dataclass(frozen=True)
class Record:
    """What is recorded of one stage of a run."""

    label: str
    step: str
    kinds: list[str]  # that the step looks at; empty for a source
    identity: dict[str, Any]
    shards: list[str]


def write_records(output: Path, run: str, records: list[Record]) -> None:
    """Keep which shards a run is made of, for `curate plan`, `why`, `lost` and `show`."""
    stages = sealed({"stages": [vars(record) for record in records]})
    write_atomically(records_path(output, run), stages)


def read_records(output: Path, run: str) -> list[Record]:
    """Return the stages of the last run of this name; empty if there was none.

    Raises:
        Damaged: the file of records is not as it was written.
    """
    path = records_path(output, run)
    if not path.exists():
        return []
    try:
        return [Record(**record) for record in read_sealed(path)["stages"]]
    except (KeyError, TypeError):
        raise Damaged(path, "is no record of a run by this version of curate") from None


def records_path(output: Path, run: str) -> Path:
    """Return where the records of the last run of this name lie."""
    return output / "cache" / "runs" / f"{run}.json"


def mark_last(output: Path, run: str) -> None:
    """Have a run that was repeated count as the last one, where the folder can be written."""
    with contextlib.suppress(OSError):
        os.utime(records_path(output, run))


def run_names(output: Path) -> list[str]:
    """Return the names of the runs of an output folder, the last one last."""
    paths = records_path(output, "*").parent.glob("*.json")
    return [path.stem for path in sorted(paths, key=lambda path: path.stat().st_mtime)]
