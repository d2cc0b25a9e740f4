"""Rows that belong together and must not be in two splits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

from curate.step import TableError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]


class SplitsCross(TableError):
    """Rows of an earlier data set belong together and are in two of its splits."""


class Groups:
    """Rows that belong together, pair by pair, and in which split an earlier data set has them.

    Rows are numbered in order of their ids; a group is numbered as the first row in it. Groups
    whose splits differ are not joined: the new row that ties them is lost, and ties no others.
    """

    def __init__(self, ids: list[str], whole: pl.Series, splits: list[str | None]) -> None:
        """Make groups of the rows that are equal in ``whole``; a null is equal to none.

        Raises:
            SplitsCross: two rows of such a group are in two splits.
        """
        import numpy as np
        import polars as pl

        self._ids = ids
        self._splits = splits
        rows = pl.DataFrame({"whole": whole}).with_row_index("row")
        same = pl.when(pl.col("whole").is_null()).then("row")
        first = same.otherwise(pl.col("row").first().over("whole"))
        self._parent = rows.select(first).to_series().to_numpy().astype(np.int64)
        self._lost: dict[int, dict[str, str]] = {}
        self._held: dict[int, int] = {}  # of a group that has a split, a row that was there
        for row, split in enumerate(splits):
            if (
                split
                and splits[held := self._held.setdefault(int(self._parent[row]), row)] != split
            ):
                self._refuse(held, row)

    def of(self, rows: Indices) -> Indices:
        """Return the group of each row."""
        groups = self._parent[rows]
        while (up := self._parent[groups] != groups).any():
            groups[up] = self._parent[groups[up]]
        self._parent[rows] = groups
        return groups

    def join(self, one: int, other: int) -> None:
        """Make one group of those that two rows are in, or lose one of the two.

        Raises:
            SplitsCross: both rows are in the earlier data set, in two splits.
        """
        if one in self._lost or other in self._lost:
            return
        low, high = sorted((self._group(one), self._group(other)))
        held, too = self._held.get(low), self._held.get(high)
        if held is not None and too is not None and self._splits[held] != self._splits[too]:
            new = [row for row in (one, other) if self._splits[row] is None]
            if not new:
                self._refuse(one, other)
            self._lost[max(new)] = {str(self._splits[r]): self._ids[r] for r in (held, too)}
        elif low != high:
            self._parent[high] = low
            if held is None and too is not None:
                self._held[low] = too

    def join_equal(self, values: pl.Series) -> None:
        """Join the groups of rows that are equal in a value; a null is equal to none.

        Raises:
            SplitsCross: as `join` does.
        """
        first: dict[object, int] = {}
        for row, value in enumerate(values):
            if value is None or row in self._lost:
                continue
            one = first.setdefault(value, row)
            if one in self._lost:
                first[value] = row
            else:
                self.join(one, row)

    def _group(self, row: int) -> int:
        while (up := int(self._parent[row])) != row:
            self._parent[row] = self._parent[up]
            row = up
        return row

    def _refuse(self, one: int, other: int) -> NoReturn:
        rows = " and ".join(f"{self._ids[r]} ({self._splits[r]})" for r in (one, other))
        raise SplitsCross(
            f"rows of the earlier data set belong together but are in two splits: {rows}; it was "
            "split with other options, or by a curate that looked at less; leave out `previous` to "
            "split all rows anew"
        )

    def verdicts(self) -> pl.DataFrame:
        """Return ``id``, ``reason``, ``evidence``, ``cluster`` and, where known, ``split``."""
        import numpy as np
        import polars as pl

        every = np.arange(len(self._ids))
        groups = [None if row in self._lost else g for row, g in enumerate(self.of(every).tolist())]
        names: dict[int | None, str | None] = {None: None}
        for row, group in zip(self._ids, groups, strict=True):
            names.setdefault(group, row)
        splits: dict[int | None, str | None] = {g: self._splits[r] for g, r in self._held.items()}
        lost = [self._lost.get(row) for row in range(len(groups))]
        columns = {
            "id": self._ids,
            "reason": ["joins_splits" if rows else None for rows in lost],
            "evidence": [json.dumps(rows) if rows else None for rows in lost],
            "cluster": [names[group] for group in groups],
            "split": [splits.get(group) for group in groups],
        }
        return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
