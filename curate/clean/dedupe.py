"""The ``dedupe`` step: of rows with the same code, one stays.

Rows are gone through in an order of `preference` that does not depend on how the table is sorted.
A row is dropped when a row that was kept before it has

1. the same text (``exact_duplicate``);
2. the same code but for names, comments, docstrings and formatting (``renamed_duplicate``,
   `curate.clean.canonical`), if that is at least `MINIMUM` tokens: what is left of a stub without
   its docstring is that of any other stub;
3. where the recipe asks for it, nearly the same text (``near_duplicate``, `curate.clean.minhash`).

A row is never dropped for its likeness to a row that is dropped itself. Chains of likenesses lead
away from where they began: of the pairs within a connected component of likenesses of 0.7 or more,
5 % to 12 % are less alike than that, measured on 50,000 and 200,000 functions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from curate.clean.canonical import canonical_tokens, tokens_sha256
from curate.licenses.policy import burden
from curate.step import Context, TableStep

if TYPE_CHECKING:
    import polars as pl

MINIMUM = 40
"""Canonical tokens from which two programs that share them are called copies.

Of 20,000 functions of installed packages, 72 share fewer with another: 67 of those 72 pairs have a
Jaccard similarity below 0.7, and are ``raise NotImplementedError``, ``return None`` and the like.
Of the 56 that share more, 19 do, most of them renamed copies. The shortest of 939 Triton kernels
has 69.
"""


class Duplicate(NamedTuple):
    """Why a row is dropped.

    Attributes:
        reason: ``exact_duplicate``, ``renamed_duplicate`` or ``near_duplicate``.
        of: the id of the row that stays.
        similarity: of their texts for a near duplicate; 1 for the others.
    """

    reason: str
    of: str
    similarity: float


class Dedupe(TableStep):
    """Drops rows whose code another row of the same kind has already."""

    version: ClassVar[int] = 3
    kinds: ClassVar[frozenset[str]] = frozenset({"file", "module", "task", "pair", "kernel"})
    columns: ClassVar[tuple[str, ...]] = (
        *("license", "origin", "verdict"),
        *("text", "reference", "triton"),
    )

    step: Literal["dedupe"]
    column: Annotated[
        Literal["text", "reference", "triton"],
        Field(
            description="The code that is compared: text for files and modules, reference or "
            "triton for tasks and pairs. Rows without it are kept."
        ),
    ]
    similarity: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="Jaccard similarity of token 5-grams from which a row counts as a near "
            "duplicate; null drops exact and renamed copies only. 0.8 suits whole files. Problems "
            "and kernels are short and alike where they compute different things (at 0.8, ceil "
            "is a near duplicate of erf), so leave it out for them: `split` keeps them together.",
        ),
    ] = None

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        import polars as pl

        lost = find_duplicates(table, self.column, self.similarity)
        verdicts = [lost.get(row) for row in table["id"]]
        reasons = [found and found.reason for found in verdicts]
        evidence = [
            found and json.dumps({"of": found.of, "similarity": round(found.similarity, 4)})
            for found in verdicts
        ]
        return pl.DataFrame(
            {
                "id": table["id"],
                "reason": pl.Series(reasons, dtype=pl.String),
                "evidence": pl.Series(evidence, dtype=pl.String),
            }
        )


def find_duplicates(
    table: pl.DataFrame, column: str, similarity: float | None = None
) -> dict[str, Duplicate]:
    """Return why each duplicate is dropped, by id; every row named as its twin stays."""
    import polars as pl

    lost: dict[str, Duplicate] = {}
    present = table.filter(pl.col(column).is_not_null())
    for kind in present["kind"].unique().sort():
        rows = present.filter(pl.col("kind") == kind)
        keys = [preference(row, column) for row in rows.iter_rows(named=True)]
        rows = rows.select("id", column)[sorted(range(len(keys)), key=keys.__getitem__)]
        lost |= _find_among(rows["id"].to_list(), rows[column].to_list(), similarity)
    return lost


def preference(row: dict[str, Any], column: str) -> tuple[Any, ...]:
    """Return what rows are sorted by: the first of several duplicates is kept.

    In this order: a program that was judged correct, then one that was not judged, then others; a
    license that is known, and of two the one that asks for more, because whoever copied the code
    may have had no right to ask for less; the better `provenance`; the longer code, since what
    the shorter lacks is lost with the longer; the shorter path, and the path and the id that sort
    first.
    """
    status = (row["verdict"] or {}).get("status")
    judged = 0 if status == "correct" else 1 if status in (None, "unsupported") else 2
    known = row["license"] or {}
    expression = known.get("choice") or known.get("expression")
    asks = burden(expression) if expression else 0
    origin = row["origin"] or {}
    path = origin.get("path") or ""
    length = len(row[column])
    return judged, not expression, -asks, provenance(origin), -length, len(path), path, row["id"]


def provenance(origin: dict[str, Any]) -> tuple[bool, bool, bool, int]:
    """Return how far a row seems from where its code was written; lower is nearer.

    A file that cites no address it comes from stands before one that does, code with a package or
    a repository before code without, code of a person before a generator's, and a file near the
    top of its tree before one deeper down, where vendored copies lie.
    """
    cited = any("://" in place for place in origin.get("derived_from") or ())
    nameless = not (origin.get("purl") or origin.get("repo"))
    depth = (origin.get("path") or "").count("/")
    return cited, nameless, origin.get("generator") is not None, depth


def _find_among(
    ids: Sequence[str], codes: Sequence[str], similarity: float | None
) -> dict[str, Duplicate]:
    """Return why duplicates among rows in order of preference are dropped."""
    first: dict[bytes, str] = {}
    copies: list[tuple[str, str]] = []
    distinct: list[int] = []
    for number, code in enumerate(codes):
        text = hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
        twin = first.setdefault(text, ids[number])
        if twin == ids[number]:
            distinct.append(number)
        else:
            copies.append((ids[number], twin))
    lost = _find_alike([ids[n] for n in distinct], [codes[n] for n in distinct], similarity)
    for row, twin in copies:
        # A copy of a row that is dropped is as like to the row that stays as that one is.
        lost[row] = lost.get(twin) or Duplicate("exact_duplicate", twin, 1.0)
    return lost


def _find_alike(
    ids: Sequence[str], codes: Sequence[str], similarity: float | None
) -> dict[str, Duplicate]:
    """Return why rows, all of different text and in order of preference, are dropped."""
    from curate.clean.minhash import Index, sketch

    index = None if similarity is None else Index(sketch(codes))
    kept: dict[str, str] = {}
    lost: dict[str, Duplicate] = {}
    for number, (row, code) in enumerate(zip(ids, codes, strict=True)):
        canonical = _canonical(code)
        if canonical in kept:
            lost[row] = Duplicate("renamed_duplicate", kept[canonical], 1.0)
            continue
        if index and (twin := index.nearest(number)) and twin[1] >= (similarity or 0):
            lost[row] = Duplicate("near_duplicate", ids[twin[0]], twin[1])
            continue
        if canonical:
            kept[canonical] = row
        if index:
            index.add(number)
    return lost


def _canonical(code: str) -> str | None:
    """Return the hash of a program without its names, or None where it says too little."""
    try:
        tokens = canonical_tokens(code)
    except (SyntaxError, ValueError, RecursionError):
        return None  # not Python: no structure to compare
    return tokens_sha256(tokens) if len(tokens) >= MINIMUM else None
