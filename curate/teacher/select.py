"""The ``select`` step: of the answers to one question, which is kept as what.

================  ================================================================================
``best``          the correct answer to keep: the fastest where they were timed, else the one of
                  fewest tokens, else that of the earliest attempt, else that of the smallest id
``alternative``   another correct first answer
``repaired``      another correct answer that came after a wrong one
``fixed``         a wrong answer that was repaired: a correct one comes after it in its conversation
``failed``        a wrong answer that was not
``unjudged``      an answer that nothing could judge: text, a program that is unsupported, or a
                  correct one that was asked to be faster, where nobody timed both programs
================  ================================================================================

A question is a task and a family of prompts, and to its answers belong the repairs of the wrong
ones. The best may be a repair: ``sample.attempt`` tells. The best answer to ``optimise`` is faster
than the pair that it was made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from curate.step import Context, TableStep
from curate.verify import WRONG

if TYPE_CHECKING:
    import polars as pl


class Select(TableStep):
    """Marks each of a teacher's answers as best, alternative, repaired, fixed or failed."""

    takes: ClassVar[frozenset[str]] = frozenset({"sample", "pair"})
    uses: ClassVar[frozenset[str]] = frozenset({"verdict"})
    sets: ClassVar[frozenset[str]] = frozenset({"sample"})
    columns: ClassVar[tuple[str, ...]] = ("parent_ids", "sample", "verdict")

    step: Literal["select"]

    def summarize(self, rows: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the question, the answers that were repaired, and what makes one better."""
        import polars as pl

        sample, verdict = pl.col("sample").struct, pl.col("verdict").struct
        attempt, parents = sample.field("attempt").fill_null(1), pl.col("parent_ids").list
        # The parents of a repair end with the conversation: an answer and a prompt by turns.
        return rows.select(
            "id",
            "kind",
            task=parents.first(),
            of=parents.get(-2 * attempt, null_on_oob=True),
            family=sample.field("family"),
            earlier=parents.tail(2 * (attempt - 1)).list.gather_every(2),
            attempt=attempt,
            status=verdict.field("status"),
            time=verdict.field("timing").struct.field("candidate_us"),
            tokens=sample.field("completion_tokens"),
        )

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return the selection of every answer; pairs have none."""
        import polars as pl

        timed = table.filter(pl.col("kind") == "pair").select(of="id", before="time")
        rows = table.join(timed, on="of", how="left", maintain_order="left")
        right, faster = pl.col("status") == "correct", pl.col("time") < pl.col("before")
        enough = pl.when(pl.col("family") == "optimise").then(faster).otherwise(True)
        correct = rows.filter(pl.col("kind") == "sample", right)
        ranked = correct.filter(enough).sort("time", "tokens", "attempt", "id", nulls_last=True)
        best = ranked.unique(["task", "family"], keep="first", maintain_order=True)["id"]
        fixed = correct["earlier"].explode().drop_nulls()
        selection = (
            pl.when(pl.col("kind") == "pair")
            .then(None)
            .when(pl.col("id").is_in(best.implode()))
            .then(pl.lit("best"))
            .when(right & enough.is_null())
            .then(pl.lit("unjudged"))
            .when(right & (pl.col("attempt") > 1))
            .then(pl.lit("repaired"))
            .when(right)
            .then(pl.lit("alternative"))
            .when(~pl.col("status").is_in(sorted(WRONG)).fill_null(False))
            .then(pl.lit("unjudged"))
            .when(pl.col("id").is_in(fixed.implode()))
            .then(pl.lit("fixed"))
            .otherwise(pl.lit("failed"))
        )
        nothing = pl.lit(None, pl.String)
        return rows.select("id", reason=nothing, evidence=nothing, selection=selection)
