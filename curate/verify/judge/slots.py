"""The judge: is a program what it claims to be?

The judge asks the reference's process for inputs, parameters and right results, gives inputs and
parameters to the candidate's, and compares what comes back in its own memory. So right values are
the only thing that helps a candidate. Each of these processes has a sandbox of its own. On backend
``cpu`` the candidate is two: one runs its Python and holds no numbers, the other does the work
(`curate.verify.judge.halves`); and a third compiles its kernels. docs/judge.md has a picture.
"""

from __future__ import annotations

import dataclasses
import itertools
import queue
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from curate.verify.judge.device import Gate, describe_device, resolve_backend
from curate.verify.judge.lanes import LANES, Lane, LaneProcess
from curate.verify.judge.slot import Slot
from curate.verify.verdict import Candidate, Options, Verdict

JOIN_S = 10.0
"""Seconds that a slot may take to notice that it is closed."""

GROUP = 4
"""Candidates of one reference that one slot judges in a row, so that the reference runs once."""


def verify(candidates: Iterable[Candidate], options: Options | None = None) -> Iterator[Verdict]:
    """Judge candidates; verdicts come as they are found, in any order, one for each.

    Args:
        candidates: programs and the modules that they claim to equal; read as workers get free.
        options: how to judge.

    Raises:
        SandboxUnavailable: other people's code would run and there is no sandbox.
        HostError: the processes that run it cannot start.
        ValueError: the backend asked for has no device here.
    """
    judge = Judge(options or Options())
    try:
        yield from judge.run(candidates)
    finally:
        judge.close()


def make_slot(options: Options) -> Slot:
    """Return a slot on its own, for a caller that judges one candidate after the other."""
    backend = resolve_backend(options.backend)
    return Slot(dataclasses.replace(options, backend=backend), describe_device(backend), Gate())


class Judge:
    """A number of slots, each with hosts of its own, that share a device."""

    def __init__(self, options: Options) -> None:
        backend = resolve_backend(options.backend)
        self.options = dataclasses.replace(options, backend=backend)
        self.locks = tempfile.TemporaryDirectory()
        self.slots = self._make_slots(Path(self.locks.name))

    def _make_slots(self, locks: Path) -> Sequence[Slot | Lane]:
        """Return slots in this process or, if they are many, in some others."""
        count = self.options.workers
        if count <= LANES:
            device = describe_device(self.options.backend)
            gates = [device.gate(locks, count) for _ in range(count)]
            return [Slot(self.options, device, gate) for gate in gates]
        counts = [min(LANES, count - first) for first in range(0, count, LANES)]
        processes = [LaneProcess(self.options, each, locks) for each in counts]
        return [lane for process in processes for lane in process.lanes]

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Verdict]:
        """Yield a verdict for every candidate; see `verify`."""
        groups = _Shared(_groups(candidates))
        results: queue.Queue[Verdict | BaseException | None] = queue.Queue()

        def work(slot: Slot | Lane) -> None:
            torch.set_num_threads(1)  # of this thread: each has a core
            try:
                while group := groups.take():
                    for candidate in group:
                        results.put(slot.judge(candidate))
            except BaseException as error:
                results.put(error)
            finally:
                results.put(None)

        threads = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in self.slots]
        for thread in threads:
            thread.start()
        working = len(threads)
        try:
            while working:
                result = results.get()
                if isinstance(result, BaseException):
                    raise result
                if result is None:
                    working -= 1
                else:
                    yield result
        finally:
            groups.stop()
            if working:
                self.close()  # the caller stopped early: what is under way ends here
            for thread in threads:
                thread.join(timeout=JOIN_S)

    def close(self) -> None:
        """End every process, for good."""
        for slot in self.slots:
            slot.close()
        self.locks.cleanup()


class _Shared:
    """An iterator that several threads take from."""

    def __init__(self, items: Iterator[list[Candidate]]) -> None:
        self.items, self.lock, self.stopped = items, threading.Lock(), False

    def take(self) -> list[Candidate] | None:
        with self.lock:
            return None if self.stopped else next(self.items, None)

    def stop(self) -> None:
        self.stopped = True


def _groups(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    for _, same in itertools.groupby(candidates, key=lambda candidate: candidate.reference):
        while group := list(itertools.islice(same, GROUP)):
            yield group
