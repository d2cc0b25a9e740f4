"""Judge many candidates into a verdict file, and go on where an earlier run stopped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.verify.files import VerdictFile
from curate.verify.verdict import STATUSES, Candidate, Options, Verdict

if TYPE_CHECKING:
    from curate.verify.judge.slots import Judge


class Tally:
    """How far a labelling is.

    Attributes:
        total: candidates in all.
        known: verdicts that an earlier run left.
        statuses: verdicts by status, the known ones among them.
    """

    def __init__(self, total: int) -> None:
        self.total, self.known = total, 0
        self.statuses: Counter[str] = Counter()
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """Verdicts that there are."""
        return self.statuses.total()

    def counts(self) -> list[tuple[str, int]]:
        """Return the statuses that occur, in the order of `STATUSES`, and how often."""
        return [(s, self.statuses[s]) for s in STATUSES if self.statuses[s]]

    def line(self) -> str:
        """Return all of it as one line."""
        rate = (self.done - self.known) / max(time.monotonic() - self._began, 1e-3)
        rest = self.total - self.done
        left = f"  {timedelta(seconds=round(rest / rate))} left" if rate and rest else ""
        counts = ", ".join(f"{status} {n}" for status, n in self.counts())
        return f"{self.done}/{self.total}  {rate:.2f}/s{left}  {counts}"


class CannotJudge(Exception):
    """The judge cannot start here, or cannot go on; the message says why."""


def label(
    candidates: list[Candidate],
    options: Options,
    output: Path | None = None,
    report: Callable[[Tally], None] = lambda tally: None,
) -> list[Verdict]:
    """Judge candidates; return their verdicts in the candidates' order.

    Args:
        candidates: each with an id of its own.
        options: how to judge.
        output: a verdict file, to which every verdict is appended as it comes. What it holds
            already, of the same text and options and from the same judge, is not judged again.
        report: told of the tally at the start and after every verdict.

    Raises:
        InputError: the output is no verdict file, or another process is writing it.
        CannotJudge: as `check_device` says, or there is no sandbox.
    """
    with VerdictFile(output, options) if output else nullcontext() as file:
        found = {c.id: known for c in candidates if file and (known := file.known(c))}
        tally = Tally(len(candidates))
        tally.known = len(found)
        tally.statuses.update(verdict.status for verdict in found.values())
        todo = {c.id: c for c in candidates if c.id not in found}
        if todo:
            check_device(options)
        report(tally)
        with closing(_judge(_together(todo.values()), options)) as verdicts:
            for verdict in verdicts:
                if file:
                    file.append(todo[verdict.id], verdict)
                found[verdict.id] = verdict
                tally.statuses[verdict.status] += 1
                report(tally)
    return [found[c.id] for c in candidates]


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """Return the exit status of a command that judged: 0 if all are correct, otherwise 1."""
    return int(any(verdict.status != "correct" for verdict in verdicts))


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return, as JSON values, how many candidates have each status, reason and caveat."""
    return {
        "candidates": len(verdicts),
        "statuses": dict(Counter(v.status for v in verdicts).most_common()),
        "reasons": dict(Counter(v.reason for v in verdicts if v.reason).most_common()),
        "caveats": dict(Counter(c for v in verdicts for c in v.caveats).most_common()),
    }


def check_device(options: Options) -> None:
    """Raise unless this machine has the device that the options need.

    Raises:
        CannotJudge: it has not; the message says which it lacks.
    """
    from curate.verify.judge.device import resolve_backend

    try:
        backend = resolve_backend(options.backend)
    except ValueError as error:
        raise CannotJudge(str(error)) from error
    if options.timing and backend == "cpu":
        raise CannotJudge("--timing needs a GPU, and this machine has none: leave it out")


def _together(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates with those of one reference side by side: it is run once for them."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.reference, []).append(candidate)
    return [candidate for group in groups.values() for candidate in group]


def _judge(candidates: list[Candidate], options: Options) -> Generator[Verdict, None, None]:
    """Yield what a judge of their own says."""
    if not candidates:
        return  # torch takes seconds to import
    from curate.verify.judge.slots import Judge

    judge = Judge(options)
    try:
        yield from judged(judge, candidates)
    finally:
        judge.close()


def start_judge(options: Options) -> Judge:
    """Return a judge that has judged its own example.

    Raises:
        CannotJudge: there is no such device here, or no sandbox, or the example is not correct.
    """
    from curate.problem.problem import EXAMPLE
    from curate.verify.judge.slots import Judge

    check_device(options)
    judge = Judge(options)
    (example,) = judged(judge, [Candidate("example", *EXAMPLE)])
    if example.status != "correct":
        judge.close()
        raise CannotJudge(f"the judge calls its own example {example.status}: {example.to_json()}")
    return judge


def judged(judge: Judge, candidates: list[Candidate]) -> Iterator[Verdict]:
    """Yield verdicts of a judge that stays warm, and say in one way why it cannot go on."""
    from curate.engine.processes.sandbox import SandboxUnavailable
    from curate.verify.judge.session import HostError

    try:
        yield from judge.run(candidates)
    except (HostError, SandboxUnavailable) as error:
        judge.close()
        raise CannotJudge(str(error)) from error
