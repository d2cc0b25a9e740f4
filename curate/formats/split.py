"""The ``split`` step: train, validation and test that share no near-duplicates and no source file.

Rows that must stay together form a cluster: rows whose code is nearly the same
(`curate.clean.minhash`), and rows of one source file. A cluster's split is decided by a hash of
its name, the smallest id in it. A row that is added therefore moves no old one, unless it joins
two clusters or its id is the smallest of the cluster that it joins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from curate.step import Context, TableStep

if TYPE_CHECKING:
    import polars as pl


class Split(TableStep):
    """Puts whole clusters of pairs into train, validation or test."""

    version: ClassVar[int] = 2
    seeded: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"pair", "kernel"})
    columns: ClassVar[tuple[str, ...]] = ("triton", "origin")

    step: Literal["split"]
    validation: Annotated[float, Field(ge=0, lt=1, description="Share of clusters.")] = 0.05
    test: Annotated[float, Field(ge=0, lt=1, description="Share of clusters.")] = 0.05
    threshold: Annotated[
        float,
        Field(
            gt=0, le=1, description="Jaccard similarity from which two programs are one cluster."
        ),
    ] = 0.8

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        import polars as pl

        from curate.clean.minhash import confirmed_pairs, sketch

        ids = table["id"].to_list()
        groups = Groups(ids)
        for a, b in same_file(ids, table["origin"].to_list()):
            groups.join(a, b)

        def known(i: int, j: int) -> bool:
            return groups.name(ids[i]) == groups.name(ids[j])

        for i, j, _ in confirmed_pairs(sketch(table["triton"]), self.threshold, known):
            groups.join(ids[i], ids[j])
        clusters = [groups.name(row) for row in ids]
        return pl.DataFrame(
            {
                "id": ids,
                "reason": pl.Series([None] * len(ids), dtype=pl.String),
                "evidence": pl.Series([None] * len(ids), dtype=pl.String),
                "cluster": pl.Series(clusters, dtype=pl.String),
                "split": pl.Series([self.side(c, context.seed) for c in clusters], dtype=pl.String),
            }
        )

    def side(self, cluster: str, seed: int) -> str:
        """Return the split that a cluster falls into."""
        point = int(hashlib.sha256(f"{seed}:{cluster}".encode()).hexdigest()[:12], 16) / 16**12
        if point < self.test:
            return "test"
        return "validation" if point < self.test + self.validation else "train"


class Groups:
    """Sets of ids that are joined pair by pair; a set is named by its smallest id."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._parent = {row: row for row in ids}

    def name(self, row: str) -> str:
        """Return the smallest id of the set that a row is in."""
        while self._parent[row] != row:
            self._parent[row] = self._parent[self._parent[row]]
            row = self._parent[row]
        return row

    def join(self, a: str, b: str) -> None:
        """Make one set of the two that ``a`` and ``b`` are in."""
        low, high = sorted((self.name(a), self.name(b)))
        self._parent[high] = low


def same_file(ids: list[str], origins: list[dict[str, str | None]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of ids that come from one file of one artifact."""
    first: dict[tuple[str | None, str], str] = {}
    for row, origin in zip(ids, origins, strict=True):
        if path := origin["path"]:
            yield row, first.setdefault((origin["artifact_sha256"], path), row)
