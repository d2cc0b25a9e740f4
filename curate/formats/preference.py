"""The ``preference`` format: of two programs for one module, the faster one is chosen.

Columns ``prompt``, ``chosen`` and ``rejected`` are what TRL's `DPOTrainer` reads.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import pyarrow as pa
from pydantic import PrivateAttr

from curate.formats.format import PROOF, Format, View, proof
from curate.formats.prompts.question import asked
from curate.rows import Loose, PairRow
from curate.step import Drop, Keep
from curate.teacher.template import fence

MARGIN = 1.05
"""How many times as long the other one takes at least: less may be noise."""


class Timed(NamedTuple):
    """A program that was judged correct, and its time.

    Attributes:
        task: the row that both programs come from, and the device that timed them.
        us: microseconds of a call.
    """

    id: str
    task: tuple[str, str]
    triton: str
    us: float


class Preference(Format):
    """Two correct programs of the same loops in two schedules (`inductor`'s ``variants: 2``).

    Both were timed on one device, by `verify` with ``timing``; a pair within 5 % is left out.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "reference", "triton", "verdict"})

    format: Literal["preference"]

    _by_task: dict[tuple[str, str], list[Timed]] = PrivateAttr(default_factory=dict)

    def columns(self) -> pa.Schema:
        texts = ("prompt", "chosen", "rejected", "rejected_id")
        times = ("chosen_us", "rejected_us")
        columns = [(name, pa.string()) for name in texts] + [(name, pa.float64()) for name in times]
        return pa.schema([*columns, *PROOF])

    def look_at(self, row: Loose) -> None:
        if (own := _timed(row)) is not None:
            self._by_task.setdefault(own.task, []).append(own)

    def render(self, row: PairRow) -> View:
        own = _timed(row)
        if own is None:
            return Drop("not_timed")
        others = [one for one in self._by_task[own.task] if one.us >= own.us * MARGIN]
        if not others:
            return Drop("no_slower_program")
        other = max(others, key=lambda one: (one.us, one.id))
        view = {
            "prompt": asked(row, None),
            "chosen": fence(own.triton),
            "rejected": fence(other.triton),
            "rejected_id": other.id,
            "chosen_us": own.us,
            "rejected_us": other.us,
        }
        return Keep(({**view, **proof(row)},))


def _timed(row: Loose | PairRow) -> Timed | None:
    verdict = row["verdict"]
    if verdict is None or verdict["status"] != "correct" or not row["parent_ids"]:
        return None
    us = verdict["timing"] and verdict["timing"]["candidate_us"]
    task = row["parent_ids"][0], verdict["device"] or ""
    return Timed(row["id"], task, row["triton"], us) if us else None
