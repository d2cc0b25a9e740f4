"""The ``split`` step: train, validation and test that share no near-duplicates and no source.

Rows that must stay together form a cluster: rows whose code is nearly the same
(`curate.clean.minhash`), rows of one source file (of another data set's rows, which do not name
theirs, those of one repository; of rows that come from no file, those made of one task) and, where
the recipe asks for it, rows of one package or repository. A cluster is named by the smallest id in
it, and a hash of its name and of the recipe's seed decides its split. A cluster that is too large
for a split, because it has more rows than the split's share of all rows, is in train: packages that
copy from each other make one cluster of most of a table.

Shares are therefore expected ones, the same for every kind of row and every source, and not quotas:
with clusters of one row, validation and test are as large as asked but for binomial noise, and the
more rows a cluster has, the larger the noise, and the more rows are in train.

A row that is added can move others: it may join clusters, or be the smallest id of the one that it
joins. With ``previous`` none moves: rows of the earlier data set stay where they are, and new rows
go where their cluster is. A new row that belongs to clusters of two splits is dropped
(``joins_splits``).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn

from pydantic import Field, field_validator

from curate.step import Context, TableError, TableStep

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

SPLITS = ("train", "validation", "test")
PLACE = ("source", "repo", "purl", "artifact_sha256", "path")


class Split(TableStep):
    """Puts whole clusters of pairs, kernels and answers into train, validation or test."""

    version: ClassVar[int] = 4
    seeded: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"pair", "kernel", "cuda", "sample"})
    columns: ClassVar[tuple[str, ...]] = ("triton", "origin", "parent_ids")

    step: Literal["split"]
    validation: Annotated[float, Field(ge=0, lt=1, description="Expected share of rows.")] = 0.05
    test: Annotated[float, Field(ge=0, lt=1, description="Expected share of rows.")] = 0.05
    threshold: Annotated[
        float,
        Field(
            gt=0, le=1, description="Jaccard similarity from which two programs are one cluster."
        ),
    ] = 0.8
    repositories: Annotated[
        bool,
        Field(
            description="Whether all rows of one package or repository are in one split, as for "
            "a test on code of authors who are not in train. It takes many of them: one that has "
            "more rows than a split's share, or that is tied to others by copies, is in train."
        ),
    ] = False
    previous: Annotated[
        str | None,
        Field(
            description="Folder of a data set that curate wrote before. Its rows stay in their "
            "splits, and new rows that would tie two splits together are dropped."
        ),
    ] = None

    @field_validator("previous")
    @classmethod
    def _can_be_read(cls, previous: str | None) -> str | None:
        if previous is not None:
            read_splits(previous)
        return previous

    def options(self) -> dict[str, Any]:
        """Return the options; an earlier data set counts by its rows' splits."""
        if self.previous is None:
            return super().options()
        known = json.dumps(sorted(read_splits(self.previous).items()))
        return {**super().options(), "previous": hashlib.sha256(known.encode()).hexdigest()}

    def summarize(self, rows: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the code's sketch, and the hash ``whole`` of what a row must stay together with:
        its package or repository, its file, or the task that it answers."""
        import polars as pl

        from curate.clean.minhash import sketch_columns

        origin = rows["origin"].struct
        places = zip(*(origin.field(name) for name in PLACE), strict=True)
        tasks = rows.select(pl.coalesce(pl.col("parent_ids").list.first(), "id")).to_series()
        whole = [self.whole(task, *p) for task, p in zip(tasks, places, strict=True)]
        return rows.select(
            "id",
            pl.Series("whole", whole, dtype=pl.Binary),
            *sketch_columns(rows["triton"]),
        )

    def whole(
        self,
        task: str,
        source: str | None,
        repo: str | None,
        purl: str | None,
        artifact_sha256: str | None,
        path: str | None,
    ) -> bytes:
        """Return the hash of what a row of this task and origin must stay together with."""
        place = repository(repo, purl) if self.repositories else None
        if place is None and source == "hub":
            place = repo  # the path is that of the data set's file
        elif place is None and path:
            place = json.dumps([artifact_sha256, path])
        return hashlib.sha256((place or task).encode()).digest()[:16]

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the cluster and the split of every row, or why it is dropped.

        Raises:
            SplitsCross: rows that ``previous`` has in two splits belong together.
        """
        import polars as pl

        from curate.clean.minhash import gather, link

        rows = table.select("id", "whole").with_row_index("row").sort("id")
        known = read_splits(self.previous) if self.previous else {}
        ids = rows["id"].to_list()
        groups = Groups(ids, rows["whole"], [known.get(row) for row in ids])
        sketches = gather(table, context.cache).select(rows["row"].to_numpy())
        link(sketches, self.threshold, groups.of, groups.join)
        verdicts = groups.verdicts()
        kept = verdicts.filter(pl.col("reason").is_null())
        clusters = kept.group_by("cluster", "split").len("rows")
        sides = [
            split or self.side(cluster, rows / len(kept) if rows > 1 else 0, context.seed)
            for cluster, split, rows in clusters.iter_rows()
        ]
        clusters = clusters.select("cluster", pl.Series("split", sides, pl.String))
        verdicts = verdicts.drop("split").join(clusters, on="cluster", how="left")
        return table.select("id").join(verdicts, on="id", how="left", maintain_order="left")

    def side(self, cluster: str, share: float, seed: int) -> str:
        """Return the split that a cluster with a share of all rows falls into."""
        point = int(hashlib.sha256(f"{seed}:{cluster}".encode()).hexdigest()[:12], 16) / 16**12
        if point < self.test:
            return "test" if share <= self.test else "train"
        if point < self.test + self.validation:
            return "validation" if share <= self.validation else "train"
        return "train"


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

    def _group(self, row: int) -> int:
        while (up := int(self._parent[row])) != row:
            self._parent[row] = self._parent[up]
            row = up
        return row

    def _refuse(self, one: int, other: int) -> NoReturn:
        rows = " and ".join(f"{self._ids[r]} ({self._splits[r]})" for r in (one, other))
        raise SplitsCross(
            f"rows of the earlier data set belong together but are in two splits: {rows}; it was "
            "split with other options, so that it cannot be carried on with these"
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


def read_splits(folder: str) -> dict[str, str]:
    """Return the split of every row of a data set that curate wrote, by id.

    Raises:
        ValueError: there is no such data set, or it has one row in two splits.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    known: dict[str, str] = {}
    for split in SPLITS:
        for path in sorted(Path(folder).glob(f"*/{split}-*.parquet")):
            try:
                ids = pq.read_table(path, columns=["id"])["id"].to_pylist()
            except (OSError, KeyError, pa.ArrowException) as error:
                raise ValueError(f"{path} cannot be read: {error}") from error
            for shown in ids:
                row = shown.partition("-")[0]  # a row that is shown several times is numbered
                if known.setdefault(row, split) != split:
                    raise ValueError(f"{folder} has row {row} in {known[row]} and in {split}")
    if not known:
        raise ValueError(
            f"{folder} holds no data set: there is no <config>/train-*.parquet in it; name the "
            "folder that holds run.json"
        )
    return known


def repository(repo: str | None, purl: str | None) -> str | None:
    """Return the repository that a row comes from or, without its version, the package."""
    if repo:
        return repo.removesuffix("/").removesuffix(".git")
    return purl.partition("@")[0] if purl else None
