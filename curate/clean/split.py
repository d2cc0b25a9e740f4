"""The ``split`` step: train, validation and test without renamed copies or files in common.

Rows that must stay together form a cluster:

- rows whose code is nearly the same as text (`curate.clean.similar.minhash`), or of which one has
  all statements of the other, and few more, with names and constants left out
  (`curate.clean.forms.statements`), and rows whose kernels have the same statements;
- rows whose references have the same ``wiring``: the same operators feed each other;
- rows of one source file (of another data set's rows, which do not name theirs, those of one
  repository; of rows that come from no file, those of one family of compositions, or made of one
  task) and, where the recipe asks for it, rows of one package or repository.

Programs that compute something else stay apart only if one of these holds. Two that differ in one
operator, such as a log2 and an acosh of one shape, may be in two splits, though they share most of
their words; `curate.formats.dataset.leakage` labels them.

A cluster is named by the smallest id in it, and a hash of its name and of the recipe's seed decides
its split. A cluster that is too large for a split, because it has more rows than the split's share
of all rows, is in train: packages that copy from each other make one cluster of most of a table.

Shares are therefore expected ones, the same for every kind of row, and no upper limits: with
clusters of one row, validation and test are as large as asked but for binomial noise.

Evaluation splits hold their share of every source. A source (a package, a repository, torch's
operators) of `SPREAD` clusters or more of which the hash puts fewer rows into one of the two splits
has clusters moved there from train until its share is reached: those with the smallest hashes, of
those that fit and hold at most half of the source's rows. A package whose files copy from each
other is one cluster, and in one split.

Such a test says nothing of code by authors who are not in train. With ``held_out``, as many
packages or repositories are in test as a whole, with what is tied to them: the largest that fit.

A row that is added can move others: it may join clusters, or be the smallest id of the one that it
joins. With ``previous`` none moves: rows of the earlier data set stay where they are, and new rows
go where their cluster is. A new row that belongs to clusters of two splits is dropped
(``joins_splits``).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from curate.clean.groups import Groups
from curate.step import Context, TableStep

if TYPE_CHECKING:
    import polars as pl

SPLITS = ("train", "validation", "test")
PLACE = ("source", "repo", "purl", "artifact_sha256", "path", "symbol")

SPREAD = 3
"""Clusters from which a source is in every split: fewer cannot be."""


class Split(TableStep):
    """Puts whole clusters of pairs, kernels and answers into train, validation or test."""

    version: ClassVar[int] = 6
    seeded: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"pair", "kernel", "cuda", "sample"})
    uses: ClassVar[frozenset[str]] = frozenset({"wiring"})
    sets: ClassVar[frozenset[str]] = frozenset({"cluster", "split"})
    columns: ClassVar[tuple[str, ...]] = ("triton", "wiring", "origin", "parent_ids")

    step: Literal["split"]
    validation: Annotated[float, Field(ge=0, lt=1, description="Share of each source.")] = 0.05
    test: Annotated[float, Field(ge=0, lt=1, description="Share of each source.")] = 0.05
    threshold: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="Jaccard similarity from which two programs are one cluster: of their "
            "texts, or of their statements without names, where one has all that the other has.",
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
    held_out: Annotated[
        int,
        Field(
            ge=0,
            description="Packages or repositories that are in test as a whole, with all that is "
            "tied to them by copies: the largest that hold no more rows than test's share.",
        ),
    ] = 0
    previous: Annotated[
        str | None,
        Field(
            description="Folder of a data set that curate wrote before. Its rows stay in their "
            "splits, and new rows that would tie two splits together are dropped."
        ),
    ] = None

    @model_validator(mode="after")
    def _leaves_rows_to_train(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation {self.validation:g} and test {self.test:g} leave no rows for train: "
                "together they must be less than 1"
            )
        return self

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
        """Return the sketch of the code, its ``statements``, and hashes: of its ``kernels``, of its
        ``graph``, of its ``source``, and of the ``whole`` that a row must stay together with, which
        is its package or repository, its file, its family, or the task that it answers."""
        import polars as pl

        from curate.clean.forms.statements import kernels_sha256, statement_hashes
        from curate.clean.similar.minhash import sketch_columns

        origin, wiring = rows["origin"].struct, pl.col("wiring").struct
        places = [*zip(*(origin.field(name) for name in PLACE), strict=True)]
        tasks = rows.select(pl.coalesce(pl.col("parent_ids").list.first(), "id")).to_series()
        whole = [self.whole(task, *p) for task, p in zip(tasks, places, strict=True)]
        sources = [
            _digest(repository(repo, purl) or source or "") for source, repo, purl, *_ in places
        ]
        statements = [statement_hashes(code or "").tolist() for code in rows["triton"]]
        # A graph in which nothing is computed says nothing.
        graph = pl.when(wiring.field("ops") > 0).then(wiring.field("graph"))
        return rows.select(
            "id",
            pl.Series("whole", whole, dtype=pl.Binary),
            pl.Series("source", sources, dtype=pl.Binary),
            graph.alias("graph"),
            *sketch_columns(rows["triton"]),
            pl.Series("kernels", [kernels_sha256(c or "") for c in rows["triton"]], pl.Binary),
            pl.Series("statements", statements, dtype=pl.List(pl.UInt32)),
        )

    def whole(
        self,
        task: str,
        source: str | None,
        repo: str | None,
        purl: str | None,
        artifact_sha256: str | None,
        path: str | None,
        symbol: str | None,
    ) -> bytes:
        """Return the hash of what a row of this task and origin must stay together with."""
        place = repository(repo, purl) if self.repositories else None
        if place is None and source == "hub":
            place = repo  # the path is that of the data set's file
        elif place is None and path:
            place = json.dumps([artifact_sha256, path])
        elif place is None and "#" in (symbol or ""):
            place = (symbol or "").partition("#")[0]  # of the family's problems, one is "name#7"
        return _digest(place or task)

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the cluster and the split of every row, or why it is dropped.

        Raises:
            SplitsCross: rows that ``previous`` has in two splits belong together.
        """
        import polars as pl

        from curate.clean.similar.contained import gather_sets, link_contained
        from curate.clean.similar.minhash import gather, link

        rows = (
            table.select("id", "whole", "graph", "kernels", "source")
            .with_row_index("row")
            .sort("id")
        )
        known = read_splits(self.previous) if self.previous else {}
        ids = rows["id"].to_list()
        groups = Groups(ids, rows["whole"], [known.get(row) for row in ids])
        order = rows["row"].to_numpy()
        sketches = gather(table, context.cache).select(order)
        link(sketches, self.threshold, groups.of, groups.join)
        statements = gather_sets(table["statements"]).select(order)
        link_contained(statements, self.threshold, groups.join)
        for column in ("graph", "kernels"):
            groups.join_equal(rows[column])
        verdicts = groups.verdicts()
        kept = verdicts.join(rows.select("id", "source"), on="id").filter(
            pl.col("reason").is_null()
        )
        splits = self._sides(kept, context.seed)
        clusters = pl.DataFrame(
            {"cluster": [*splits], "split": [*splits.values()]},
            schema=dict.fromkeys(("cluster", "split"), pl.String),
        )
        verdicts = verdicts.drop("split").join(clusters, on="cluster", how="left")
        return table.select("id").join(verdicts, on="id", how="left", maintain_order="left")

    def _sides(self, kept: pl.DataFrame, seed: int) -> dict[str, str]:
        """Return the split of each cluster.

        Args:
            kept: ``cluster`` and ``source`` of rows, and their ``split`` where it is given.
            seed: the recipe's.
        """
        clusters = kept.group_by("cluster", "split").len("rows").sort("cluster")
        sides: dict[str, str] = {}
        free: dict[str, float] = {}  # clusters that may be moved, with their shares
        for cluster, split, rows in clusters.iter_rows():
            share = rows / len(kept) if rows > 1 else 0
            sides[cluster] = split or self.side(cluster, share, seed)
            if not split:
                free[cluster] = share
        sources = (
            kept.group_by("source", "cluster")
            .len("rows")
            .sort("source", "cluster")
            .partition_by("source", maintain_order=True)
        )
        shares = {cluster: rows / len(kept) for cluster, _, rows in clusters.iter_rows()}
        for cluster in self._held_out(sources, {c: shares[c] for c in free}):
            sides[cluster] = "test"
            free.pop(cluster, None)
        for parts in sources:
            if len(parts) >= SPREAD:
                self._spread(parts, free, sides, seed)
        return sides

    def _held_out(self, sources: list[pl.DataFrame], shares: dict[str, float]) -> list[str]:
        """Return the clusters of the largest sources that fit into test's share as a whole.

        Args:
            sources: the clusters of each.
            shares: of all rows, of the clusters that may be moved.
        """
        fit = []
        for parts in sources:
            clusters = parts["cluster"].to_list()
            share = sum(shares.get(cluster, 1) for cluster in clusters)
            if share <= self.test:
                fit.append((-share, clusters))
        return [cluster for _, clusters in sorted(fit)[: self.held_out] for cluster in clusters]

    def _spread(
        self, parts: pl.DataFrame, free: dict[str, float], sides: dict[str, str], seed: int
    ) -> None:
        """Move a source's clusters from train until the evaluation splits have their shares.

        Args:
            parts: the source's clusters, and how many of its ``rows`` each has.
            free: clusters that may be moved, with their shares of all rows.
            sides: the split of every cluster.
            seed: the recipe's.
        """
        rows = dict(zip(parts["cluster"], parts["rows"], strict=True))
        total = sum(rows.values())
        for split, most in (("test", self.test), ("validation", self.validation)):
            missing = most * total - sum(n for c, n in rows.items() if sides[c] == split)
            movable = [c for c in rows if sides[c] == "train" and free.get(c, 1) <= most]
            for cluster in sorted(movable, key=lambda c: _point(c, seed)):
                if missing > 0 and 2 * rows[cluster] <= total:
                    sides[cluster] = split
                    missing -= rows[cluster]

    def side(self, cluster: str, share: float, seed: int) -> str:
        """Return the split that the hash of a cluster with a share of all rows falls into."""
        point = _point(cluster, seed)
        if point < self.test:
            return "test" if share <= self.test else "train"
        if point < self.test + self.validation:
            return "validation" if share <= self.validation else "train"
        return "train"


def _point(cluster: str, seed: int) -> float:
    """Return a number from 0 to 1 that is a cluster's own."""
    return int(hashlib.sha256(f"{seed}:{cluster}".encode()).hexdigest()[:12], 16) / 16**12


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


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
