"""The ``dedupe`` step: of rows with the same code, one stays.

Rows are gone through in the order of `PREFERENCE`, which does not depend on how the table is
sorted. A row is dropped when a row of its kind that was kept before it has

1. the same text (``exact_duplicate``);
2. the same code but for names, comments, docstrings and formatting (``renamed_duplicate``,
   `curate.clean.forms.canonical`), if that is at least `MINIMUM` tokens: what is left of a stub
   without its docstring is that of any other stub;
3. where the recipe asks for it, nearly the same text (``near_duplicate``,
   `curate.clean.similar.minhash`).

With ``twins``, the second are rows with the same code but for names, numbers and operators
(``structural_twin``, `curate.clean.forms.twins`): of forty programs that take one formula each of
all elements, one stays.

By ``wiring`` a row is dropped when its reference has the same graph, with all its numbers,
dimensions and types but without its sizes, as that of a row that was kept before it
(``wiring_duplicate``): the two compute the same, however they are written.

A row is never dropped because it is like a row that is dropped itself: chains of likenesses lead
away from where they began.

The step keeps some 150 bytes per row and its path for the whole table, and with ``similarity`` the
sketches, some of which are put into files (`curate.clean.similar.minhash`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from curate.clean.forms.canonical import canonical_tokens, tokens_sha256
from curate.clean.forms.twins import twin_tokens
from curate.licenses.policy import burden
from curate.step import Context, TableStep

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from curate.clean.similar.minhash import Sketches

    Indices = NDArray[np.int64]

MINIMUM = 40
"""Canonical tokens from which two programs that share them are called copies: fewer are those of
``raise NotImplementedError``, ``return None`` and the like."""

HASH = 16
"""Bytes of a hash that are kept."""

PREFERENCE = (
    "judged",  # 0: judged correct, 1: not judged, 2: judged otherwise
    "unlicensed",
    "asks",  # most first: whoever copied the code may have had no right to ask for less
    "cited",  # the file says that it comes from some address
    "nameless",  # of no package and no repository
    "generated",  # by a program
    "depth",  # of the path: vendored copies lie deep
    "length",  # longest first: what the shorter code lacks is lost with the longer
    "path_length",
    "path",
    "id",
)
"""What rows are sorted by, smallest first: the first of several duplicates is kept."""


class Dedupe(TableStep):
    """Drops rows whose code another row of the same kind has already."""

    version: ClassVar[int] = 5
    takes: ClassVar[frozenset[str]] = frozenset(
        {"file", "module", "task", "pair", "kernel", "cuda", "sample"}
    )
    columns: ClassVar[tuple[str, ...]] = (
        *("license", "origin", "verdict"),
        *("text", "reference", "triton", "cuda", "wiring"),
    )

    step: Literal["dedupe"]
    column: Annotated[
        Literal["text", "reference", "triton", "cuda", "wiring"],
        Field(
            description="What is compared: text for files and modules, reference or triton for "
            "tasks and pairs, cuda or triton for CUDA pairs; or wiring, what the reference of a "
            "task or pair computes, which step `wiring` sets. Rows without it are kept. Answers of "
            "a teacher are compared by triton only: those to one task share the rest."
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
    twins: Annotated[
        bool,
        Field(
            description="Whether programs that differ in names, numbers and operators only are "
            "copies too, such as ceil and erf of all elements (`structural_twin`)."
        ),
    ] = False

    def needs(self) -> frozenset[str]:
        return frozenset({self.column})

    @model_validator(mode="after")
    def _wirings_are_equal_or_not(self) -> Dedupe:
        if self.column == "wiring" and (self.similarity is not None or self.twins):
            name = "twins" if self.twins else "similarity"
            raise ValueError(f"{name} compares texts; leave it out with column: wiring")
        return self

    def summarize(self, rows: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the columns of `PREFERENCE`, hashes of the code and, if asked for, its sketch."""
        from curate.clean.similar.minhash import sketch_columns

        wiring = self.column == "wiring"
        codes = rows["reference" if wiring else self.column]
        if self.column != "triton":
            codes = codes.set(rows["kind"] == "sample", None)
        summary = preference(rows, codes)
        if wiring:
            return summary.with_columns(graph_columns(rows["wiring"], codes.is_not_null()))
        summary = summary.with_columns(hash_columns(codes, self.twins))
        if self.similarity is None:
            return summary
        return summary.with_columns(sketch_columns(codes))

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        import polars as pl

        lost = find_duplicates(table, self.similarity, context.cache)
        if self.column == "wiring":
            lost = lost.with_columns(reason=pl.lit("wiring_duplicate"))
        elif self.twins:
            named = {"renamed_duplicate": "structural_twin"}
            lost = lost.with_columns(pl.col("reason").replace(named))
        evidence = [
            json.dumps({"of": of, "similarity": round(similarity, 4)})
            for of, similarity in zip(lost["of"], lost["similarity"], strict=True)
        ]
        lost = lost.select("id", "reason", pl.Series("evidence", evidence, pl.String))
        return table.select("id").join(lost, on="id", how="left", maintain_order="left")


def preference(rows: pl.DataFrame, codes: pl.Series) -> pl.DataFrame:
    """Return ``id``, ``kind`` and the columns of `PREFERENCE` of rows, and of their codes."""
    import polars as pl

    license, origin = pl.col("license").struct, pl.col("origin").struct
    status = pl.col("verdict").struct.field("status")
    path = origin.field("path").fill_null("")
    addresses = origin.field("derived_from").list.eval(pl.element().str.contains("://"))
    known = rows.select(pl.coalesce(license.field("choice"), license.field("expression")))
    asks = [-burden(expression) if expression else 0 for expression in known.to_series()]
    judged = pl.when(status == "correct").then(0).when(status != "unsupported").then(2).otherwise(1)
    return rows.select(
        "id",
        "kind",
        judged=judged.cast(pl.Int8),
        unlicensed=known.to_series().is_null(),
        asks=pl.Series(asks, dtype=pl.Int32),
        cited=addresses.list.any().fill_null(False),
        nameless=pl.coalesce(origin.field("purl"), origin.field("repo")).is_null(),
        generated=origin.field("generator").is_not_null(),
        depth=path.str.count_matches("/", literal=True),
        length=-codes.str.len_chars().cast(pl.Int64),
        path_length=path.str.len_chars(),
        path=path,
    )


def graph_columns(wirings: pl.Series, known: pl.Series) -> list[pl.Expr]:
    """Return the columns ``exact`` and ``canonical`` of wirings, of which the second is null.

    Args:
        wirings: the rows' column ``wiring``.
        known: which rows count; one whose graph computes nothing never does.
    """
    import polars as pl

    computes = known & (wirings.struct.field("ops") > 0)
    graphs = wirings.struct.field("exact").set(~computes.fill_null(False), None)
    return [
        pl.lit(graphs.cast(pl.Binary)).alias("exact"),
        pl.lit(None, pl.Binary).alias("canonical"),
    ]


def hash_columns(codes: pl.Series, twins: bool = False) -> list[pl.Series]:
    """Return the columns ``exact``, of the hashes of programs, and ``canonical``, of those of their
    code without names, which are null where it says too little.

    Args:
        codes: the programs.
        twins: whether ``canonical`` is without numbers and operators, too.
    """
    import polars as pl

    present = codes.drop_nulls()
    exact = {code: hashlib.sha256(code.encode()).digest()[:HASH] for code in present}
    canonical = {code: _canonical(code, twins) for code in exact}
    return [
        pl.Series("exact", [exact.get(code) for code in codes], pl.Binary),
        pl.Series("canonical", [canonical.get(code) for code in codes], pl.Binary),
    ]


def _canonical(code: str, twins: bool) -> bytes | None:
    try:
        tokens = twin_tokens(code) if twins else canonical_tokens(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # not Python: no structure to compare
    return bytes.fromhex(tokens_sha256(tokens))[:HASH] if len(tokens) >= MINIMUM else None


def find_duplicates(
    table: pl.DataFrame, similarity: float | None = None, folder: Path | None = None
) -> pl.DataFrame:
    """Return the duplicates among rows, of which summaries are given, and why each is dropped.

    Args:
        table: what `Dedupe.summarize` returns, of all rows.
        similarity: from which a row counts as a near duplicate.
        folder: where sketches may be put into files.

    Returns:
        A frame with ``id``, ``reason``, ``of`` (the id of a row that stays) and ``similarity`` (of
        their texts for a near duplicate; 1 for the others).
    """
    import polars as pl

    from curate.clean.similar.minhash import gather

    sketches = None if similarity is None else gather(table, folder)
    rows = (
        table.select("kind", *PREFERENCE, "exact", "canonical")
        .with_row_index("row")
        .filter(pl.col("exact").is_not_null())
        .sort("kind", *PREFERENCE)
        .select("row", "id", "kind", "exact", "canonical")
    )
    schema = {"id": pl.String, "reason": pl.String, "of": pl.String, "similarity": pl.Float64}
    found = [pl.DataFrame(schema=schema)]
    for of_kind in rows.partition_by("kind", maintain_order=True):
        found.append(_find_among(of_kind, sketches, similarity))
    return pl.concat(found)


def _find_among(
    rows: pl.DataFrame, sketches: Sketches | None, similarity: float | None
) -> pl.DataFrame:
    """Return the duplicates among rows of one kind, which stand in order of preference."""
    import polars as pl

    rows = rows.with_row_index("place")
    rows = rows.with_columns(first=pl.col("place").first().over("exact"))
    texts = rows.filter(pl.col("place") == pl.col("first")).with_row_index("text")
    same = pl.when(pl.col("canonical").is_null()).then("text")
    groups = texts.select(same.otherwise(pl.col("text").first().over("canonical")))
    group = groups.to_series().to_numpy()
    if sketches is None or similarity is None:
        lost = _find_renamed(group)
    else:
        lost = _find_alike(group, sketches.select(texts["row"].to_numpy()), similarity)
    lost = lost.with_columns(
        first=texts["place"].gather(lost["text"]), of=texts["place"].gather(lost["of"])
    )
    # A copy of a row that is dropped is as like to the row that stays as that one is.
    found = rows.join(lost, on="first", how="left", maintain_order="left").filter(
        pl.col("reason").is_not_null() | (pl.col("place") != pl.col("first"))
    )
    twins = rows["id"].gather(found.select(pl.coalesce("of", "first")).to_series())
    return found.select(
        "id",
        pl.col("reason").fill_null("exact_duplicate"),
        of=twins,
        similarity=pl.col("similarity").fill_null(1.0),
    )


def _find_renamed(groups: Indices) -> pl.DataFrame:
    """Return the texts of which a group has an earlier one, and that one."""
    import numpy as np
    import polars as pl

    text = np.flatnonzero(groups != np.arange(len(groups)))
    return pl.DataFrame({"text": text, "of": groups[text]}).with_columns(
        reason=pl.lit("renamed_duplicate"), similarity=pl.lit(1.0)
    )


def _find_alike(groups: Indices, sketches: Sketches, similarity: float) -> pl.DataFrame:
    """Return the texts that one that stays is like, that one, and how like it is.

    Args:
        groups: the number of each text's group of renamed copies; texts in order of preference.
        sketches: of the texts.
        similarity: from which a text counts as a near duplicate.
    """
    import numpy as np
    import polars as pl

    from curate.clean.similar.minhash import Index

    index = Index(sketches)
    stays = np.ones(len(groups), bool)
    several = np.bincount(groups, minlength=len(groups))[groups] > 1
    holders: dict[int, int] = {}  # of each group, the text that stays
    lost: list[tuple[int, int, float, bool]] = []
    for texts, pairs in index.walk(np.flatnonzero(several | ~index.lone()), similarity):
        twins: dict[int, list[tuple[float, int]]] = {}
        for text, other, alike in zip(*(part.tolist() for part in pairs), strict=True):
            twins.setdefault(text, []).append((-alike, other))
        for text, group in zip(texts.tolist(), groups[texts].tolist(), strict=True):
            if group in holders:
                lost.append((text, holders[group], 1.0, True))
            elif staying := [twin for twin in twins.get(text, ()) if stays[twin[1]]]:
                alike, other = min(staying)
                lost.append((text, other, -alike, False))
            else:
                holders[group] = text
                continue
            stays[text] = False
        index.add(texts[stays[texts]])
    names = {"text": pl.Int64, "of": pl.Int64, "similarity": pl.Float64, "renamed": pl.Boolean}
    reason = (
        pl.when("renamed").then(pl.lit("renamed_duplicate")).otherwise(pl.lit("near_duplicate"))
    )
    return pl.DataFrame(lost, schema=names, orient="row").with_columns(reason=reason)
