"""Which rows of a finished data set entries of an opt-out list cover: `curate optout`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.formats.dataset.index import INDEX_FILE
from curate.formats.dataset.provenance import PROVENANCE_FILE, read_provenance
from curate.licenses.optout import DEFAULT_LIST, OptOut, add_optouts, first_match
from curate.publish.analysis.analysis import place_name
from curate.publish.analysis.errors import NoRun
from curate.rows import Loose


@dataclass
class Covered:
    """What one entry covers of one source.

    Attributes:
        entry: of the opt-out list.
        source: package, repository or source that the rows come from.
        rows: how many.
        views: rows of each config that show them.
    """

    entry: OptOut
    source: str
    rows: int = 0
    views: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Removal:
    """What entries would take out of a data set.

    Attributes:
        total: rows of the data set.
        covered: an entry and a source each, in order of the entries; a row counts for the first
            entry that covers it.
        configs: of the data set.
        path: the opt-out list that was written to; None if none was.
        added: entries that were new to it.
    """

    total: int
    covered: list[Covered]
    configs: list[str]
    path: Path | None = None
    added: list[OptOut] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows would go."""
        return sum(found.rows for found in self.covered)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "total": self.total,
            "rows": self.rows,
            "covered": [
                {**vars(found), "entry": found.entry.model_dump(exclude_none=True)}
                for found in self.covered
            ],
            "list": None if self.path is None else str(self.path),
            "added": [entry.model_dump(exclude_none=True) for entry in self.added],
        }


def covered(folder: Path, entries: Sequence[OptOut]) -> Iterator[tuple[OptOut, Loose]]:
    """Yield every line of a data set's provenance that an entry covers, after the first that does.

    Raises:
        SourceError: an entry asks for a file's hash, and the file is not in the cache.
    """
    for line in read_provenance(folder):
        entry = first_match(entries, line, folder.parent / "cache")
        if entry is not None:
            yield entry, line


def removal(folder: Path, run: dict[str, Any], entries: Sequence[OptOut]) -> Removal:
    """Return what entries would take out of a data set, and change nothing.

    Raises:
        NoRun: an older version of `curate` wrote the data set.
        SourceError: as `covered`.
    """
    if PROVENANCE_FILE not in run["files"]:
        raise NoRun(f"{folder} has no {PROVENANCE_FILE}: run the recipe again, which writes it")
    found: dict[tuple[int, str], Covered] = {}
    for entry, line in covered(folder, entries):
        source = place_name(line["origin"])
        place = found.setdefault((entries.index(entry), source), Covered(entry, source))
        place.rows += 1
        for files, rows in line["files"].items():
            config = files.partition("/")[0]
            place.views[config] = place.views.get(config, 0) + rows
    total = pq.read_metadata(folder / INDEX_FILE).num_rows
    return Removal(total, [found[key] for key in sorted(found)], list(run["configs"]))


def optout_lists(run: dict[str, Any]) -> list[str | None]:
    """Return the option `optout` of every step `licenses` of a run."""
    return [step["options"]["optout"] for step in run["steps"] if step["name"] == "licenses"]


def write_entries(run: dict[str, Any], entries: Sequence[OptOut]) -> tuple[Path, list[OptOut]]:
    """Add entries to the opt-out list of a run's recipe; return its path and those that are new.

    Raises:
        NoRun: the recipe has no step that reads a list.
        OptOutError: the list cannot be read or added to.
    """
    lists = optout_lists(run)
    if not lists:
        raise NoRun("the recipe has no step `licenses`, which reads the opt-out list: add one")
    path = Path(next(filter(None, lists), DEFAULT_LIST))
    return path, add_optouts(path, entries)
