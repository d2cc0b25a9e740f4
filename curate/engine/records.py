"""Which shards the last run of each recipe is made of, as it is kept in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.files import Damaged, read_sealed, sealed, write_atomically


@dataclass(frozen=True)
class Record:
    """What is recorded of one stage of the last run of a recipe."""

    label: str
    step: str
    kinds: list[str]  # that the step looks at; empty for a source
    identity: dict[str, Any]
    shards: list[str]


def write_records(output: Path, recipe: str, records: list[Record]) -> None:
    """Keep which shards a run is made of, for `curate plan`, `why`, `lost` and `show`."""
    stages = sealed({"stages": [vars(record) for record in records]})
    write_atomically(records_path(output, recipe), stages)


def read_records(output: Path, recipe: str) -> list[Record]:
    """Return the stages of the last run of a recipe; empty if there was none.

    Raises:
        Damaged: the file of records is not as it was written.
    """
    path = records_path(output, recipe)
    if not path.exists():
        return []
    try:
        return [Record(**record) for record in read_sealed(path)["stages"]]
    except (KeyError, TypeError):
        raise Damaged(path, "is no record of a run by this version of curate") from None


def records_path(output: Path, recipe: str) -> Path:
    """Return where the records of a recipe's last run lie."""
    return output / "cache" / "runs" / f"{recipe}.json"


def run_names(output: Path) -> list[str]:
    """Return the names of the recipes that have run in an output folder, the last run last."""
    paths = records_path(output, "*").parent.glob("*.json")
    return [path.stem for path in sorted(paths, key=lambda path: path.stat().st_mtime)]
