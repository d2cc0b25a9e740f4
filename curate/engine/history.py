"""A row's whole history: every step that saw it or its parents, and what became of it there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.engine.records import Record
from curate.engine.store import Store
from curate.rows import Loose


@dataclass(frozen=True)
class RowEvent:
    """What one step made of one row.

    Attributes:
        fate: ``read`` (by a source), ``kept``, ``made`` (from its parent), ``dropped``, ``failed``.
    """

    step: str
    row_id: str
    kind: str
    fate: str
    reason: str | None = None
    evidence: dict[str, Any] | None = None


def find_ids(store: Store, stages: list[Record], prefix: str) -> list[str]:
    """Return the ids that start with ``prefix``, of rows that were kept or lost anywhere."""
    found: set[str] = set()
    for _, table, _ in _tables(store, stages, ["id"]):
        mask = pc.starts_with(table["id"], prefix)
        found.update(table["id"].filter(mask).to_pylist())
    return sorted(found)


def history(store: Store, stages: list[Record], row_id: str) -> list[RowEvent]:
    """Return what happened to a row, to the rows it came from and to those made of it, in order."""
    family = _family(store, stages, row_id)
    events = []
    born: set[str] = set()
    for stage, table, lost in _tables(store, stages, None):
        mask = pc.is_in(table["id"], value_set=pa.array(sorted(family)))
        for row in table.filter(mask).to_pylist():
            known = row["id"] in born
            if lost or not known or row["kind"] in stage.kinds:
                events.append(_event(stage, row, lost, known))
            born.add(row["id"])
    return events


def _event(stage: Record, row: Loose, lost: bool, known: bool) -> RowEvent:
    if lost:
        evidence = json.loads(row["evidence"])
        return RowEvent(stage.label, row["id"], row["kind"], row["fate"], row["reason"], evidence)
    first = "made" if stage.kinds else "read"
    return RowEvent(stage.label, row["id"], row["kind"], "kept" if known else first)


def _family(store: Store, stages: list[Record], row_id: str) -> set[str]:
    parents: dict[str, list[str]] = {}
    for _, table, _ in _tables(store, stages, ["id", "parent_ids"]):
        for row in table.to_pylist():
            parents[row["id"]] = row["parent_ids"] or []
    family, todo = {row_id}, [row_id]
    while todo:
        for parent in parents.get(todo.pop(), []):
            if parent not in family:
                family.add(parent)
                todo.append(parent)
    children = [row_id]
    while children:
        current = children.pop()
        for row, its in parents.items():
            if current in its and row not in family:
                family.add(row)
                children.append(row)
    return family


def _tables(
    store: Store, stages: list[Record], columns: list[str] | None
) -> Iterator[tuple[Record, pa.Table, bool]]:
    """Yield every table of every stage, kept and lost, in the order of the recipe."""
    for stage in stages:
        for key in stage.shards:
            manifest = store.manifest(stage.step, key)
            if manifest is None:
                continue  # the run stopped before it made this shard
            yield stage, store.rows(stage.step, key, columns), False
            if manifest.dropped or manifest.failed:
                lost = store.lost(stage.step, key)
                yield stage, lost.select(columns) if columns else lost, True


@dataclass(frozen=True)
class Losses:
    """How many rows a step lost: by reason, most frequent first."""

    step: str
    dropped: dict[str, int]
    failed: dict[str, int]

    @property
    def rows(self) -> int:
        """All rows that it lost."""
        return sum(self.dropped.values()) + sum(self.failed.values())

    @property
    def reasons(self) -> dict[str, int]:
        """The rows by reason, most frequent first."""
        return dict((Counter(self.dropped) + Counter(self.failed)).most_common())

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        counts = {"dropped": self.dropped, "failed": self.failed}
        return {"step": self.step, "rows": self.rows, **counts}


def losses(store: Store, stage: Record) -> Losses:
    """Return how many rows a stage lost, as far as it has run."""
    dropped, failed = Counter[str](), Counter[str]()
    for key in stage.shards:
        if manifest := store.manifest(stage.step, key):
            dropped.update(manifest.dropped)
            failed.update(manifest.failed)
    return Losses(stage.label, dict(dropped.most_common()), dict(failed.most_common()))


def lost_rows(store: Store, stage: Record, reason: str | None) -> Iterator[Loose]:
    """Yield the rows that a stage dropped or failed on, with ``fate``, ``reason``, ``evidence``."""
    for _, table, lost in _tables(store, [stage], None):
        if lost:
            yield from (row for row in table.to_pylist() if reason in (None, row["reason"]))


def last_rows(store: Store, stages: list[Record], kinds: frozenset[str]) -> Iterator[Loose]:
    """Yield the rows of some kinds that came out of the last stage that has run."""
    done = [s for s in stages if any(store.manifest(s.step, key) for key in s.shards)]
    for _, table, lost in _tables(store, done[-1:], None):
        if not lost:
            yield from (row for row in table.to_pylist() if row["kind"] in kinds)
