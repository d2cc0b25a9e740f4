"""What changed between two versions of a data set, by their indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

LABELS = ("verdict", "verdict_reason", "targets", "pure_triton", "license", "split")
NAMED = 5  # rows that are named


@dataclass(frozen=True)
class Changes:
    """Ids of rows that are new, gone, or labelled in another way, in order.

    Attributes:
        relabelled: ids by label; a row may be under several.
        before: how many rows the earlier version has; 0 if there is none.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    relabelled: dict[str, list[str]] = field(default_factory=dict)
    before: int = 0

    def title(self) -> str:
        """Return all of it in a line."""
        relabelled = len({row for rows in self.relabelled.values() for row in rows})
        counts = {"added": len(self.added), "removed": len(self.removed), "relabelled": relabelled}
        told = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
        return f"rows: {told}" if told else "rows: no change"

    def lines(self) -> Iterator[str]:
        """Yield the title and, below it, which labels changed, and in which rows."""
        yield self.title()
        for label, rows in self.relabelled.items():
            yield f"  {label} of {len(rows):,}: {_some(rows)}"
        if self.removed:
            yield f"  removed: {_some(self.removed)}"


def _some(rows: list[str]) -> str:
    return ", ".join(rows[:NAMED]) + (" …" if len(rows) > NAMED else "")


def compare(old: pl.DataFrame | None, new: pl.DataFrame) -> Changes:
    """Return what is new against an earlier index; all of it, where there was none."""
    import polars as pl

    if old is None:
        return Changes(added=new["id"].sort().to_list())
    both = old.join(new, on="id", suffix=" now").sort("id")
    relabelled = {}
    for label in LABELS:
        if label in old.columns:
            changed = both.filter(pl.col(label).ne_missing(pl.col(f"{label} now")))
            relabelled[label] = changed["id"].to_list()
    return Changes(
        added=new.join(old, on="id", how="anti")["id"].sort().to_list(),
        removed=old.join(new, on="id", how="anti")["id"].sort().to_list(),
        relabelled={label: ids for label, ids in relabelled.items() if ids},
        before=len(old),
    )
