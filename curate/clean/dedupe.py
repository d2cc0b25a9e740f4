"""The ``dedupe`` step: of rows with the same code, one stays.

Two rows are duplicates when their code is equal, or equal but for names and formatting
(`curate.clean.canonical`). Which one stays does not depend on the order of rows: one whose
license is known before one whose is not, then the one whose license asks for more (whoever copied
it may have had no right to ask for less), then the one with the shorter path (a vendored copy lies
deeper than its original), then the path and the id that sort first.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from curate.clean.canonical import canonical_sha256
from curate.licenses.policy import burden
from curate.step import Context, TableStep

if TYPE_CHECKING:
    import polars as pl

Lost = dict[str, tuple[str, str]]


class Dedupe(TableStep):
    """Drops rows whose code another row of the same kind has already."""

    version: ClassVar[int] = 2
    kinds: ClassVar[frozenset[str]] = frozenset({"file", "module", "task", "pair", "kernel"})
    columns: ClassVar[tuple[str, ...]] = ("license", "origin", "text", "reference", "triton")

    step: Literal["dedupe"]
    column: Annotated[
        Literal["text", "reference", "triton"],
        Field(
            description="The code that is compared: text for files and modules, reference or "
            "triton for tasks and pairs. Rows without it are kept."
        ),
    ]

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        import polars as pl

        rows = table.select("id", "kind", "license", "origin", self.column).to_dicts()
        lost = find_duplicates(rows, self.column)
        reasons, evidence = [], []
        for row in rows:
            reason, kept = lost.get(row["id"], (None, None))
            reasons.append(reason)
            evidence.append(json.dumps({"of": kept, "similarity": 1.0}) if reason else None)
        return pl.DataFrame(
            {
                "id": table["id"],
                "reason": pl.Series(reasons, dtype=pl.String),
                "evidence": pl.Series(evidence, dtype=pl.String),
            }
        )


def find_duplicates(rows: list[dict[str, Any]], column: str) -> Lost:
    """Return, for the id of each duplicate, the reason and the id of the row that stays."""
    first: dict[tuple[str, str], str] = {}
    lost: Lost = {}
    for row in sorted((row for row in rows if row[column] is not None), key=preference):
        code = row[column]
        exact = (row["kind"], hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest())
        if exact in first:
            lost[row["id"]] = ("exact_duplicate", first[exact])
            continue
        renamed = (row["kind"], _canonical(code))
        kept = first.setdefault(renamed, row["id"])
        first[exact] = kept
        if kept != row["id"]:
            lost[row["id"]] = ("renamed_duplicate", kept)
    return lost


def preference(row: dict[str, Any]) -> tuple[bool, int, int, str, str]:
    """Return what rows are sorted by: the first of several duplicates is kept."""
    known = row["license"] or {}
    expression = known.get("choice") or known.get("expression")
    path = (row["origin"] or {}).get("path") or ""
    asks = burden(expression) if expression else 0
    return not expression, -asks, len(path), path, row["id"]


def _canonical(code: str) -> str:
    try:
        return canonical_sha256(code)
    except (SyntaxError, ValueError, RecursionError):
        return code  # not Python: equal to equal text only
