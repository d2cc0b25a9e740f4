"""Rows that the report shows: some of the final ones, and what each step made of a few.

Which ones is decided by hashes of their ids, so the same run shows the same rows.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import escape

from curate.engine.records import Record
from curate.licenses.optout import OPTED_OUT
from curate.publish.analysis.analysis import Run, license_name
from curate.rows import Loose, place

MOST_ROWS = 200
MOST_BYTES = 1_500_000  # of code in the examples
LONGEST_ROW = 60_000  # bytes of code; a longer row is passed over
FAIR_SHARE = 12  # rows that each kind, status and license gets before the rest are drawn
SHARDS = 6  # that rows are followed back in, through all steps
TRACKED = 4  # rows of a shard that are followed
PER_STEP = 2  # samples of a step
SHOWN_LINES = 60  # of a sample's code
TITLES = {"reference": "PyTorch", "triton": "Triton", "host_function": "with what launches it"}
LABELS = ("license", "kernel", "sample", "compile", "verdict", "contamination", "cluster", "split")


def order(row_id: str) -> str:
    """Return what rows are sorted by when some are drawn."""
    return hashlib.sha256(f"report {row_id}".encode()).hexdigest()


# --- final rows -------------------------------------------------------------------------------


def draw(rows: Iterable[Loose]) -> list[Loose]:
    """Return at most `MOST_ROWS` rows with at most `MOST_BYTES` of code, in the order drawn.

    Each kind of row, status and license gets up to `FAIR_SHARE` rows first, so that the rare are
    seen; then all are drawn alike.
    """
    strata: dict[tuple[str, ...], list[tuple[int, str, Loose]]] = {}
    whole: list[tuple[int, str, Loose]] = []
    for row in rows:
        if code_bytes(row) > LONGEST_ROW:
            continue
        rank = -int(order(row["id"]), 16)
        _push(strata.setdefault(stratum(row), []), (rank, row["id"], row), FAIR_SHARE)
        _push(whole, (rank, row["id"], row), MOST_ROWS)
    fair = [entry for _, heap in sorted(strata.items()) for entry in heap]
    fair.sort(key=lambda entry: (-entry[0], entry[1]))
    rest = sorted(whole, key=lambda entry: (-entry[0], entry[1]))
    return list(_within_budget(entry[2] for entry in (*fair, *rest)))


def stratum(row: Loose) -> tuple[str, ...]:
    """Return what a fair share is given to."""
    return row["kind"], row_status(row), license_name(row)


def row_status(row: Loose) -> str:
    """Return a pair's verdict, or how the run of a kernel ended."""
    if row["kind"] == "kernel":
        run = (row["kernel"] or {}).get("run") or {}
        return str(run.get("status") or "not run")
    return str((row["verdict"] or {}).get("status") or "not judged")


def _push(heap: list[tuple[int, str, Loose]], entry: tuple[int, str, Loose], most: int) -> None:
    if len(heap) < most:
        heapq.heappush(heap, entry)
    elif entry[:2] > heap[0][:2]:
        heapq.heapreplace(heap, entry)


def _within_budget(rows: Iterable[Loose]) -> Iterator[Loose]:
    seen: set[str] = set()
    left = MOST_BYTES
    for row in rows:
        if row["id"] in seen or len(seen) == MOST_ROWS or code_bytes(row) > left:
            continue
        seen.add(row["id"])
        left -= code_bytes(row)
        yield row


def code_bytes(row: Loose) -> int:
    """Return how many bytes the code of an example takes in the page."""
    return sum(len(escape(text).encode()) for _, text in shown_code(row))


def shown_code(row: Loose) -> list[tuple[str, str]]:
    """Return titles and texts of the code that an example of a row shows."""
    found = [(title, row[name]) for name, title in TITLES.items() if row[name]]
    if row["kind"] == "sample" and row["triton"] is None:
        found.append(("answer", row["turns"][-1]["content"]))
    return found or [("text", row["text"] or "")]


# --- steps ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """What a step made of a row.

    Attributes:
        row_id: of the row that came out.
        where: its place of origin.
        before, after: names and texts of the code that changed; either may be missing.
        labels: what the step wrote down, as names and JSON values.
    """

    row_id: str
    where: str
    before: tuple[str, str] | None
    after: tuple[str, str] | None
    labels: dict[str, Any]


@dataclass(frozen=True)
class LostSample:
    """A row that a step lost, and why."""

    where: str
    evidence: dict[str, Any]


def losses(run: Run, record: Record) -> dict[str, LostSample]:
    """Return one lost row per reason of a step; code that was opted out is never shown."""
    first: dict[str, tuple[str, Loose]] = {}
    for row in run.lost_rows(record):
        rank = order(row["id"])
        if row["reason"] not in first or rank < first[row["reason"]][0]:
            first[row["reason"]] = rank, row
    told = {
        reason: LostSample(place(row), json.loads(row["evidence"]))
        for reason, (_, row) in sorted(first.items())
    }
    if OPTED_OUT in told:
        told[OPTED_OUT] = LostSample("not told: the authors asked", {})
    return told


def changes(run: Run) -> dict[str, list[Before]]:
    """Return what steps made of a few rows, by the step's label, at most `PER_STEP` each.

    Only rows that are in the data set at the end, and what they were made from, are shown: a row
    that was lost may have been lost because it must not be.
    """
    steps = [record for record in run.records if record.kinds]
    read = [(source.step, key) for source in run.sources for key in source.shards]
    shards = [read, *([(record.step, key) for key in record.shards] for record in steps)]
    found: dict[str, list[tuple[bool, str, Before]]] = {}
    for number in _some_shards(run):
        last = run.last_rows(*shards[-1][number])
        rows = {row["id"]: row for row in sorted(last, key=lambda row: order(row["id"]))[:TRACKED]}
        for i, record in reversed(list(enumerate(steps))):
            before = {row["id"]: row for row in run.store.rows(*shards[i][number]).to_pylist()}
            ancestors = {}
            for row in rows.values():
                origin = _origin(row, before)
                ancestors[origin["id"]] = origin
                if change := compare(origin, row):
                    entry = (change.after is None, order(row["id"]), change)
                    found.setdefault(record.label, []).append(entry)
            rows = ancestors
    return {
        label: [entry[2] for entry in sorted(entries, key=lambda e: e[:2])[:PER_STEP]]
        for label, entries in found.items()
    }


def _some_shards(run: Run) -> list[int]:
    """Return the numbers of a few shards that have rows at the end; steps keep the numbers."""
    last = run.records[-1]
    if not last.kinds:
        return []
    filled = [(order(m.key), i) for i, m in enumerate(run.manifests(last)) if m.emitted]
    return [i for _, i in sorted(filled)[:SHARDS]]


def _origin(row: Loose, before: dict[str, Loose]) -> Loose:
    """Return what a row was before a step: itself, or the row that it was made from."""
    places = (row["id"], *(row["parent_ids"] or ()))
    return next(before[place] for place in places if place in before)


def compare(before: Loose, after: Loose) -> Before | None:
    """Return what differs between a row and what became of it, or None."""
    old, new = codes(before), codes(after)
    changed = [name for name, code in new.items() if code != old.get(name)]
    labels = {n: after[n] for n in LABELS if after.get(n) and after[n] != before.get(n)}
    if not changed and not labels:
        return None
    first = second = None
    if changed:
        name = changed[0]
        source = name if name in old else next(reversed(old), "")
        same_kind = source == name and before["kind"] == after["kind"]
        start = _first_difference(old[source], new[name]) if same_kind else 0
        above = start if same_kind else _place_in_file(before, after)
        first = (source, excerpt(old[source], above)) if source else None
        second = (name, excerpt(new[name], start))
    return Before(after["id"], place(after), first, second, labels)


def codes(row: Loose) -> dict[str, str]:
    """Return the codes that a row has, in the order in which steps make them."""
    texts = {
        "text": row["text"],
        "reference": row["reference"],
        "triton": row["triton"],
        "host_function": row["host_function"],
    }
    return {name: text for name, text in texts.items() if text}


def _first_difference(a: str, b: str) -> int:
    """Return how many lines two texts share before they differ, less a few to see where."""
    pairs = zip(a.splitlines(), b.splitlines(), strict=False)
    same = next((i for i, (x, y) in enumerate(pairs) if x != y), 0)
    return max(0, same - 3)


def _place_in_file(before: Loose, after: Loose) -> int:
    """Return the line of a file that what was found in it is shown from."""
    line = after["origin"]["start_line"] if before["kind"] == "file" else None
    return max(0, (line or 1) - 8)


def excerpt(code: str, start: int = 0) -> str:
    """Return `SHOWN_LINES` lines of code from ``start`` on, and how many are left out."""
    lines = code.splitlines()
    shown = lines[start : start + SHOWN_LINES]
    left = len(lines) - start - len(shown)
    above = [f"# … {start} lines above"] if start else []
    below = [f"# … {left} more lines"] if left > 0 else []
    return "\n".join([*above, *shown, *below])
