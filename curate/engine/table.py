"""Table steps at work: summaries of shards, one judgement over all, verdicts on each shard's rows.

Memory is bounded by the summaries, which are mapped from their files, and by one shard's rows at a
time; the table itself is never held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from curate.engine.store import LOST, LedgerError, Store
from curate.rows import ROW, SAMPLE
from curate.step import Context, TableStep

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Summary:
    """A summary that is to be made: of which shard, and the key that it is kept under."""

    step: str
    key: str
    target: str


def summarize(step: TableStep, summary: Summary, context: Context) -> None:
    """Make a summary and write it.

    Raises:
        LedgerError: the step left rows out, or changed their order.
    """
    import polars as pl

    assert context.cache
    store = Store(context.cache.parent)
    columns = ["id", "kind", *step.columns]
    source = store.finished(summary.step, summary.key)
    rows = pl.DataFrame(store.rows(summary.step, summary.key, columns))
    rows = rows.filter(pl.col("kind").is_in(sorted(step.takes)))
    made = step.summarize(rows, context)
    if not made["id"].equals(rows["id"]):
        raise LedgerError(f"step {step.name}: it summarized other rows than it was given")
    store.write_summary(step.name, summary.target, source, made)


def judge(step: TableStep, summaries: Sequence[str], context: Context) -> pl.DataFrame:
    """Return a step's verdicts on the rows of all summaries, in their order.

    Raises:
        LedgerError: two rows have one id, or the step judged other rows than it was given.
    """
    import polars as pl

    assert context.cache
    store = Store(context.cache.parent)
    parts = [store.summary(step.name, key) for key in summaries]
    filled = [part for part in parts if len(part)]
    nothing = pl.DataFrame(schema={"id": pl.String, "reason": pl.String, "evidence": pl.String})
    if not filled:
        return nothing
    table = pl.concat(filled, rechunk=False)
    repeated = table["id"].filter(table["id"].is_duplicated())
    if len(repeated):
        raise LedgerError(f"step {step.name}: two rows have the id {repeated[0]}")
    verdicts = step.judge(table, context)
    if not verdicts["id"].equals(table["id"]):
        raise LedgerError(f"step {step.name}: it judged other rows than it was given")
    return verdicts


@dataclass(frozen=True)
class Decided:
    """What verdicts make of a shard's rows; ``untouched`` of those kept had none."""

    kept: pa.Table
    lost: pa.Table
    untouched: int


def decide(rows: pa.Table, verdicts: pl.DataFrame) -> Decided:
    """Return what becomes of a shard's rows; one without a verdict is kept as it is."""
    import polars as pl

    found = pl.DataFrame({"id": rows["id"]}).join(
        verdicts.with_columns(judged=True), on="id", how="left", maintain_order="left"
    )
    for name in ("cluster", "split"):
        if name in verdicts.columns:
            own = pl.DataFrame({"own": rows[name]})["own"]
            column = found.select(pl.when("judged").then(name).otherwise(own)).to_series()
            rows = rows.set_column(ROW.get_field_index(name), name, column.to_arrow())
    if "selection" in verdicts.columns:
        rows = _select(rows, found["selection"])
    keep = found["reason"].is_null()
    lost = rows.filter(pa.array((~keep).to_numpy()))
    why = found.filter(~keep).select(
        fate=pl.lit("dropped"), reason="reason", evidence=pl.col("evidence").fill_null("{}")
    )
    for name in why.columns:
        lost = lost.append_column(name, why[name].to_arrow())
    kept = rows.filter(pa.array(keep.to_numpy()))
    return Decided(kept.cast(ROW), lost.cast(LOST), found["judged"].null_count())


def _select(rows: pa.Table, selection: pl.Series) -> pa.Table:
    """Return rows with ``selection`` in their ``sample``; a null leaves it as it is."""
    import polars as pl

    samples = pl.DataFrame({"sample": rows["sample"], "selection": selection})
    chosen = pl.col("sample").struct.with_fields(pl.col("selection"))
    column = samples.select(
        pl.when(pl.col("selection").is_null()).then("sample").otherwise(chosen).alias("sample")
    )
    place = ROW.get_field_index("sample")
    return rows.set_column(place, ROW.field("sample"), column.to_arrow()["sample"].cast(SAMPLE))
