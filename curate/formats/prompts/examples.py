"""Worked examples in prompts: short programs of other rows that the judge called correct.

Half of the rows of a split have one, from the same split: no row of a test split is in a prompt of
another one, nor the other way round. Which one it is, the ids of the rows decide.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from curate.rows import Loose, PairRow

MOST_LINES = 60  # of an example's program, and of its module
MOST_EXAMPLES = 500  # per split that are kept, those with the smallest hashes


@dataclass(frozen=True)
class WorkedExample:
    """A row's module and program, as they stand in the prompt of another row.

    Attributes:
        license: SPDX expression under which the row is used.
        operators: of the module's graph.
    """

    id: str
    reference: str
    triton: str
    license: str
    operators: frozenset[str]
    cluster: str | None


class Examples:
    """The examples of a data set, by split."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[str, list[tuple[str, WorkedExample]]] = {}

    def add(self, row: Loose) -> None:
        """Keep a row if it can be an example."""
        if (example := _example(row)) is not None:
            known = self._known.setdefault(row["split"] or "train", [])
            known.append((_hash(example.id), example))
            if len(known) > 2 * MOST_EXAMPLES:
                self._cut(known)

    @staticmethod
    def _cut(known: list[tuple[str, WorkedExample]]) -> None:
        known.sort(key=lambda item: item[0])
        del known[MOST_EXAMPLES:]

    def for_row(self, row: PairRow) -> WorkedExample | None:
        """Return the example of a row's prompt; None for half of the rows, and where none fits."""
        if int(_hash(row["id"])[0], 16) % 2:
            return None
        known = self._known.get(row["split"] or "train", [])
        self._cut(known)
        own = frozenset((row["static"] and row["static"]["ops"]) or ())
        fits = [e for _, e in known if e.id != row["id"] and not e.operators & own]
        fits = [e for e in fits if e.cluster is None or e.cluster != row["cluster"]]
        return min(fits, key=lambda e: _hash(row["id"] + e.id), default=None)


HARMLESS = {"smaller_sizes_only"}
"""Caveats that an example may have: a CPU judges every problem of a usual size at smaller ones."""


def _example(row: Loose) -> WorkedExample | None:
    static = row["static"]
    if row["kind"] != "pair" or not _is_plainly_right(row["verdict"]):
        return None
    if not (static and static["ops"] and static["kernels"]) or static["specialised"]:
        return None
    if any(row[text].count("\n") > MOST_LINES for text in ("reference", "triton")):
        return None
    return WorkedExample(
        id=row["id"],
        reference=row["reference"],
        triton=row["triton"],
        license=row["license"]["choice"] or row["license"]["expression"],
        operators=frozenset(static["ops"]),
        cluster=row["cluster"],
    )


def _is_plainly_right(verdict: Loose | None) -> bool:
    return (
        verdict is not None
        and verdict["status"] == "correct"
        and set(verdict["caveats"]) <= HARMLESS
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
