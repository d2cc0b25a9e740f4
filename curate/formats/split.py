"""The ``split`` step: train, validation and test that share no near-duplicates and no source file.

Rows that must stay together form a cluster: rows whose code is nearly the same (MinHash over
token 5-grams, Broder 1997, by `datasketch`), and rows of one source file. A cluster's split is
decided by a hash of its name, the smallest id in it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from curate.step import Context, TableStep

if TYPE_CHECKING:
    import polars as pl

PERMUTATIONS = 128
SHINGLE = 5  # tokens


class Split(TableStep):
    """Puts whole clusters of pairs into train, validation or test."""

    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("datasketch",)
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

        ids = table["id"].to_list()
        groups = Groups(ids)
        for a, b in near_duplicates(ids, table["triton"].to_list(), self.threshold):
            groups.join(a, b)
        for a, b in same_file(ids, table["origin"].to_list()):
            groups.join(a, b)
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


def near_duplicates(
    ids: list[str], texts: list[str], threshold: float
) -> Iterator[tuple[str, str]]:
    """Yield pairs of ids whose texts' estimated Jaccard similarity reaches the threshold."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    hashes: dict[str, MinHash] = {}
    for row, text in zip(ids, texts, strict=True):
        sketch = MinHash(num_perm=PERMUTATIONS, seed=1)
        sketch.update_batch(shingles(text))
        for other in index.query(sketch):
            if sketch.jaccard(hashes[other]) >= threshold:
                yield row, other
        hashes[row] = sketch
        index.insert(row, sketch)


def shingles(text: str) -> list[bytes]:
    """Return the distinct 5-grams of a text's words and operators."""
    tokens = re.findall(r"\w+|[^\w\s]", text)
    grams = {" ".join(tokens[i : i + SHINGLE]) for i in range(max(1, len(tokens) - SHINGLE + 1))}
    return [gram.encode() for gram in sorted(grams)]


def same_file(ids: list[str], origins: list[dict[str, str | None]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of ids that come from one file of one artifact."""
    first: dict[tuple[str | None, str], str] = {}
    for row, origin in zip(ids, origins, strict=True):
        if path := origin["path"]:
            yield row, first.setdefault((origin["artifact_sha256"], path), row)
