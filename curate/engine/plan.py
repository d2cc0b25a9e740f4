"""What a run would do: which shards are there, which are to be made, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curate.engine.identity import identity
from curate.engine.records import Record, read_records
from curate.engine.run import Shard, Walk
from curate.step import SourceStep


@dataclass(frozen=True)
class PlanLine:
    """One step of a plan.

    Attributes:
        done: shards (of a source: units) that are there already.
        todo: shards to make; None where it depends on a source that has not been read.
        why: the reason in words; empty when nothing is to be done.
    """

    label: str
    done: int
    todo: int | None
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        return {"step": self.label, "done": self.done, "todo": self.todo, "why": self.why}


def plan(walk: Walk) -> list[PlanLine]:
    """Return one line per step, without running anything."""
    # A first trial is compared with the recipe's own run: what is new is what it changes.
    known = read_records(walk.output, walk.name) or read_records(walk.output, walk.recipe.name)
    before = {record.label: record for record in known}
    lines: list[PlanLine] = []
    shards: list[Shard] = []
    unknown = ""
    for stage in walk.stages():
        changed = _changed(before.get(stage.label), identity(stage.step, walk.recipe.seed))
        is_source = isinstance(stage.step, SourceStep)
        if unknown and not is_source:
            lines.append(PlanLine(stage.label, 0, None, changed or f"waits for {unknown}"))
            continue
        todo = walk.missing(stage, shards)
        made = walk.known_shards(stage, shards)
        total = len(walk.units(stage)) if is_source else len(made)
        why = (changed or _incomplete(lines, todo, total)) if todo else ""
        lines.append(PlanLine(stage.label, total - todo, todo, why))
        shards = made
        if todo and not unknown:
            unknown = stage.label
    return lines


def _incomplete(lines: list[PlanLine], todo: int, total: int) -> str:
    if any(line.todo for line in lines):
        return "a step before it runs"
    return f"{todo} of {total} shards are not there"


def _changed(before: Record | None, now: dict[str, Any]) -> str:
    """Return how a step differs from what the run before did."""
    if before is None:
        return "never run"
    old = before.identity
    changes = []
    for name in sorted(old["options"].keys() | now["options"].keys()):
        was, becomes = old["options"].get(name), now["options"].get(name)
        if was != becomes:
            changes.append(f"option {name}: {was} → {becomes}")
    for name, version in now["tools"].items():
        if old["tools"].get(name) != version:
            changes.append(f"{name} {old['tools'].get(name)} → {version}")
    for name in ("version", "python", "columns", "seed"):
        if old.get(name) != now.get(name):
            changes.append(f"{name} {old.get(name)} → {now.get(name)}")
    return "; ".join(changes)
