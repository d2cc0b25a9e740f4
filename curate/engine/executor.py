"""What a caller and an executor say to each other.

An executor takes jobs (some rows of one shard, one unit of a source, or one shard that a table
step is to summarize) and gives back one result per item; of a unit, which may be large, one result
per part. What an item did to its own process never reaches another item's result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from curate.files import CannotWrite, Damaged
from curate.rows import Loose
from curate.step import Context, Step, StepError

SHARD_ROWS = (128, 1024)  # rows of a unit that make one shard: at first, and at most


def part_rows(part: int) -> int:
    """Return how many rows make a part of a unit; the first are small, so that small units are
    shared among workers, and later parts larger, so that large units are few files."""
    least, most = SHARD_ROWS
    return least if part < most // least else most


@dataclass(frozen=True)
class Lost:
    """A row that goes no further: ``fate`` is ``dropped`` or ``failed``."""

    row: Loose
    fate: str
    reason: str
    evidence: dict[str, Any]


@dataclass
class Result:
    """What became of one item: the rows it gave, and those lost on the way.

    Attributes:
        cpu_s: processor seconds of the item's job, on the last item of the job.
        peak_mb: memory that the job took at most, MiB, on the last item of the job.
        part: number of this part of a unit; parts of a unit that is read again begin at 0 again.
        more: whether another part of the unit follows.
    """

    kept: list[Loose] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    cpu_s: float = 0.0
    peak_mb: int = 0
    part: int = 0
    more: bool = False


@dataclass(frozen=True)
class Job:
    """Items that one forked child handles one after the other.

    Attributes:
        shard: the caller's name for the shard that the items belong to.
        start: position of the first item in that shard.
        items: rows; one unit of a source; or, for a table step, one `curate.engine.table.Summary`.
        limit: rows to read of a unit at most.
    """

    shard: str
    start: int
    items: list[dict[str, Any]]
    limit: int | None = None


class Executor(Protocol):
    """Runs jobs; in which order and where is its own affair.

    Attributes:
        sandbox: whether other people's code runs in a sandbox.
    """

    sandbox: bool

    def expect(self, steps: Sequence[Step]) -> None:
        """Hear which steps are to come, in order."""
        ...

    def run(
        self, step: Step, context: Context, jobs: Iterator[Job]
    ) -> Iterator[tuple[Job, int, Result]]:
        """Yield ``(job, index in job, result)`` for every item, in any order; a unit's parts in
        theirs.

        ``jobs`` is pulled from only when a worker is free, so that a lazy iterator bounds memory.

        Raises:
            WorkerError: a worker cannot start, whatever the item.
            StepError, Damaged, CannotWrite: the step raised it, and what was under way has ended.
        """
        ...


STOPPING: tuple[type[Exception], ...] = (StepError, Damaged, CannotWrite)
"""What is no row's fault: it ends the step wherever it is raised, but in the sandbox. The arguments
of each are texts, so that it can be told from one process to another."""


def stopping_error(name: str, told: list[str]) -> Exception:
    """Return the one of `STOPPING` that another process raised.

    Raises:
        KeyError: it is none of them.
    """
    return {kind.__name__: kind for kind in STOPPING}[name](*told)


class WorkerError(Exception):
    """A worker could not start; the message holds what it printed."""


class ExecutorUnavailable(Exception):
    """An executor cannot be had on this machine; the message says what to do."""
