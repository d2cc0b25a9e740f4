"""What a finished data set says of rows: what a run need not print, compile or judge again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from curate.engine.executor import Result
from curate.engine.identity import identity
from curate.files import InputError, check_file, read_sealed
from curate.rows import ROW, Loose, Row
from curate.step import RowStep

CONFIG = "pairs"
"""The config that holds rows as they are, with all their evidence."""


class Published:
    """The pairs of a data set on this machine: what steps made and filled in.

    They hold for a row of a run where the step has the version, options and tools that it had when
    the data set was made, and where the row is equal in all columns that it has by then. What the
    data set does not hold, as it was dropped or failed, is not known.
    """

    def __init__(self, folder: Path) -> None:
        """Read a data set's ``run.json`` and its pairs.

        Raises:
            InputError: the folder holds no data set, or one without the config ``pairs``.
            Damaged: a file is not as it was written.
        """
        if not (folder / "run.json").is_file():
            raise InputError(f"--known {folder}: no data set: it holds no run.json")
        run = read_sealed(folder / "run.json")
        paths = [path for path in run["files"] if path.startswith(f"{CONFIG}/")]
        if not paths:
            raise InputError(f"--known {folder}: the data set has no config `{CONFIG}`")
        for path in paths:
            check_file(folder / path, run["files"][path])
        tables = [pq.read_table(folder / path) for path in paths]
        self.columns = [name for name in tables[0].column_names if name in ROW.names]
        self.table = pa.concat_tables([table.select(self.columns) for table in tables])
        self.places = {row_id: at for at, row_id in enumerate(self.table["id"].to_pylist())}
        self.children: dict[str, list[str]] = {}
        for row_id, parents in zip(self.places, self.table["parent_ids"].to_pylist(), strict=True):
            for parent in parents:
                self.children.setdefault(parent, []).append(row_id)
        self.steps: list[dict[str, Any]] = [
            {name: value for name, value in step.items() if name != "label"}
            for step in run["steps"]
        ]

    def find(
        self, step: RowStep, seed: int, rows: dict[int, Loose], later: frozenset[str]
    ) -> dict[int, Result]:
        """Return what a step makes of rows, by the places of these, as far as it is known.

        ``later`` are the columns that steps behind it fill; they are empty yet.
        """
        if identity(step, seed) not in self.steps:
            return {}
        if step.makes == {"pair"}:
            return self._made(step, rows)
        filled = step.sets
        if "pair" not in step.takes or not filled or not filled <= set(self.columns):
            return {}
        found: dict[int, Result] = {}
        compared = [name for name in self.columns if name not in filled]
        for at, row in rows.items():
            known = self._row(row["id"])
            if known is None or row["kind"] != "pair":
                continue
            expected = {**known, **dict.fromkeys(later)}
            if all(row[name] == expected[name] for name in compared):
                found[at] = Result([{**row, **{name: known[name] for name in filled}}])
        return found

    def _made(self, step: RowStep, rows: dict[int, Loose]) -> dict[int, Result]:
        """Return the pairs that a step made of rows."""
        found: dict[int, Result] = {}
        for at, row in rows.items():
            known = [self._row(child) for child in self.children.get(row["id"], [])]
            made = step.recall(row, [cast(Row, one) for one in known if one])
            if made:
                found[at] = Result(cast(list[Loose], made))
        return found

    def _row(self, row_id: str) -> Loose | None:
        at = self.places.get(row_id)
        return None if at is None else self.table.slice(at, 1).to_pylist()[0]
