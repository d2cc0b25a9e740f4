"""What a caller and an executor say to each other.

An executor takes jobs (some rows of one shard, or one unit of a source) and gives back one result
an item. What an item did to its own process never reaches another item's result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from curate.rows import Row
from curate.step import Context, RowStep, SourceStep


@dataclass(frozen=True)
class Lost:
    """A row that goes no further: ``fate`` is ``dropped`` or ``failed``."""

    row: Row
    fate: str
    reason: str
    evidence: dict[str, Any]


@dataclass
class Result:
    """What became of one item: the rows it gave, and those lost on the way.

    Attributes:
        cpu_s: processor seconds of the item's job, on the last item of the job.
        peak_mb: memory that the job took at most, MiB, on the last item of the job.
    """

    kept: list[Row] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    cpu_s: float = 0.0
    peak_mb: int = 0


@dataclass(frozen=True)
class Job:
    """Items that one forked child handles one after the other.

    Attributes:
        shard: the caller's name for the shard that the items belong to.
        start: position of the first item in that shard.
        items: rows, or one unit of a source.
    """

    shard: str
    start: int
    items: list[dict[str, Any]]


class Executor(Protocol):
    """Runs jobs; in which order and where is its own affair.

    Attributes:
        sandbox: whether other people's code runs in a sandbox.
    """

    sandbox: bool

    def run(
        self, step: RowStep | SourceStep, context: Context, jobs: Iterator[Job], limit: int | None
    ) -> Iterator[tuple[Job, int, Result]]:
        """Yield ``(job, index in job, result)`` for every item, in any order.

        ``jobs`` is pulled from only when a worker is free, so that a lazy iterator bounds memory.
        ``limit`` stops a source's unit after that many rows.

        Raises:
            WorkerError: a worker cannot start, whatever the item.
        """
        ...


class WorkerError(Exception):
    """A worker could not start; the message holds what it printed."""
