"""The default executor: worker processes on this machine.

One item in flight is to blame when a child dies: the first that has not ended. It is tried once
more alone, and then quarantined; the items behind it go to another child.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from curate.engine.executor import Job, Lost, Result, WorkerError, part_rows, stopping_error
from curate.engine.processes.sandbox import sandbox_command, worker_environment
from curate.engine.processes.worker import step_reference
from curate.files import read_end
from curate.step import Context, RowStep, SourceStep, Step

ATTEMPTS = 2
GRACE = 30.0  # seconds beyond a row's own limit after which a silent worker is killed


@dataclass
class _Task:
    """A job under way: results not given out yet, and the item that it is at."""

    job: Job
    attempts: int = 0
    done: int = 0
    result: Result = field(default_factory=Result)
    ready: list[tuple[Job, int, Result]] = field(default_factory=list)

    def end_item(self, failure: tuple[str, dict[str, Any]] | None) -> None:
        """Take the item's result as it is, or its failure, and go on to the next item."""
        result = self.result
        if failure:
            result = Result([], [Lost(self.job.items[self.done], "failed", *failure)])
        self.ready.append((self.job, self.done, result))
        self.done, self.attempts, self.result = self.done + 1, 0, Result()

    def end_part(self) -> None:
        """Let a large unit's rows go before the others have come."""
        self.result.more = True
        self.ready.append((self.job, self.done, self.result))
        self.result = Result(part=self.result.part + 1)

    def take_ready(self) -> list[tuple[Job, int, Result]]:
        """Return the results that are there, once."""
        ready, self.ready = self.ready, []
        return ready


class _Worker:
    """One worker process, seen from outside."""

    def __init__(self, sandboxed: bool) -> None:
        command = [sys.executable, "-m", "curate.engine.processes.worker"]
        self.sandboxed = sandboxed
        self.begun: tuple[Step, Context] | None = None
        self.steps = 0  # that it has begun
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self.process = subprocess.Popen(
            sandbox_command(command, as_init=True) if sandboxed else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            # bubblewrap's own environment can be read in the sandbox: nothing of the user's.
            env={"PATH": os.environ.get("PATH", "")}
            if sandboxed
            else {**os.environ, **worker_environment()},
            start_new_session=True,
        )
        self.task: _Task | None = None
        self.ready = False
        self.heard = time.monotonic()
        self._buffer = b""

    def begin(self, step: Step, context: Context) -> None:
        """Have it load a step, unless it is at it; it is ready for jobs once it says so."""
        if self.begun and self.begun[0] is step and self.begun[1] == context:
            return
        self.begun, self.ready = (step, context), False
        self.steps += 1
        self.send(
            {
                "number": self.steps,
                "step": step_reference(step),
                "seed": context.seed,
                "cache": None if self.sandboxed else str(context.cache),
                "sandboxed": self.sandboxed,
                "sandbox": context.sandbox,
            }
        )

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # its death is noticed when we read
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def read(self) -> list[bytes] | None:
        """Return the whole lines that have come, or None when the worker is gone."""
        assert self.process.stdout
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        if not data:
            return None
        self.heard = time.monotonic()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return lines

    def last_words(self) -> str:
        return read_end(self.stderr, 3000)

    def stop(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.stderr.close()


class Shelf:
    """Workers that wait for another step, at most ``most`` of a kind."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.workers: dict[bool, list[_Worker]] = {False: [], True: []}
        """By whether they are in the sandbox."""

    def take(self, sandboxed: bool) -> _Worker:
        """Return a worker that waits, or a new one."""
        while self.workers[sandboxed]:
            worker = self.workers[sandboxed].pop()
            if worker.process.poll() is None:
                return worker
            worker.stop()
        return _Worker(sandboxed)

    def put(self, worker: _Worker) -> None:
        """Keep a worker if it can take another step, or end it."""
        same = self.workers[worker.sandboxed]
        if worker.ready and not worker.task and len(same) < self.most:
            same.append(worker)
        else:
            worker.stop()

    def prepare(self, step: Step, context: Context, workers: int) -> None:
        """Have workers in the sandbox load a step before there is a job of it."""
        found = [self.take(True) for _ in range(min(workers, self.most))]
        for worker in found:
            worker.begin(step, context)
        self.workers[True] += found

    def clear(self, sandboxed: bool) -> None:
        """End the workers of a kind."""
        while self.workers[sandboxed]:
            self.workers[sandboxed].pop().stop()


class LocalExecutor:
    """Runs jobs in ``workers`` processes of this machine, or in as many as a step asks for.

    In a ``with`` statement, processes serve one step after the other until its end. Those in the
    sandbox load the next step there while others are at work: nothing outside is in their reach.
    """

    def __init__(self, workers: int, sandbox: bool = True) -> None:
        self.workers = workers
        self.sandbox = sandbox
        self.shelf = Shelf(0)
        self.expected: Sequence[Step] = ()

    def __enter__(self) -> Self:
        self.shelf = Shelf(self.workers)
        return self

    def __exit__(self, *_: object) -> None:
        self.shelf.clear(False)
        self.shelf.clear(True)

    def expect(self, steps: Sequence[Step]) -> None:
        """Take note of the steps that are to come, in order."""
        self.expected = steps

    def run(
        self, step: Step, context: Context, jobs: Iterator[Job]
    ) -> Iterator[tuple[Job, int, Result]]:
        """Yield ``(job, index, result)`` as items end; see `curate.engine.executor.Executor`."""
        own = step.workers if isinstance(step, RowStep) else None
        pool = Pool(step, context, own or self.workers, self.sandbox, self.shelf)
        try:
            yield from pool.run(jobs)
        finally:
            pool.stop()
        if pool.workers:
            self._prepare(step, context)

    def _prepare(self, step: Step, context: Context) -> None:
        """Have workers load the step in the sandbox that is next after one, or end them."""
        left = itertools.dropwhile(lambda one: one is not step, self.expected)
        following = (s for s in itertools.islice(left, 1, None) if isinstance(s, RowStep))
        if upcoming := next((s for s in following if self.sandbox and s.sandboxed), None):
            self.shelf.prepare(upcoming, context, upcoming.workers or self.workers)
        else:
            self.shelf.clear(True)


class Pool:
    """The workers of one step, from its first job to its last."""

    def __init__(
        self,
        step: Step,
        context: Context,
        workers: int,
        sandbox: bool,
        shelf: Shelf | None = None,
    ) -> None:
        self.step, self.context, self.shelf = step, context, shelf or Shelf(0)
        self.sandboxed = sandbox and isinstance(step, RowStep) and step.sandboxed
        self.jobs: Iterator[Job] = iter(())
        self.waiting: deque[_Task] = deque()
        self.size = workers
        self.stopped: Exception | None = None  # why no more is begun
        self.workers: list[_Worker] = []
        self.selector = selectors.DefaultSelector()
        self.silence = (
            step.timeout_s + GRACE if isinstance(step, RowStep) else float("inf")
        )  # seconds

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, int, Result]]:
        """Yield ``(job, index, result)`` as items end; may be called again for more jobs.

        Raises:
            StepError, Damaged, CannotWrite: the step raised it; what was under way has ended.
        """
        self.jobs = jobs
        while self._waits() or any(w.task for w in self.workers):
            while (worker := self._free_worker()) and self._waits():
                self._give(worker, self.waiting.popleft())
            while len(self.workers) < self.size and self._waits(self._starting()):
                self._hire()
            for key, _ in self.selector.select(timeout=1.0):
                yield from self._hear(key.data)
            for worker in [w for w in self.workers if w.task and self._is_silent(w)]:
                yield from self._bury(worker, "timeout")
        if self.stopped:
            raise self.stopped

    def stop(self) -> None:
        """Let all workers go, whatever they are at."""
        for worker in self.workers:
            self.shelf.put(worker)
        self.selector.close()

    def _waits(self, most: int = 0) -> bool:
        """Whether more than ``most`` tasks wait; no more jobs are pulled than that takes."""
        if self.stopped:
            return False
        while len(self.waiting) <= most and (job := next(self.jobs, None)):
            self.waiting.append(_Task(job))
        return len(self.waiting) > most

    def _free_worker(self) -> _Worker | None:
        return next((w for w in self.workers if w.ready and not w.task), None)

    def _starting(self) -> int:
        return sum(not worker.ready for worker in self.workers)

    def _hire(self) -> None:
        worker = self.shelf.take(self.sandboxed)
        worker.begin(self.step, self.context)
        self.workers.append(worker)
        self.selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

    def _give(self, worker: _Worker, task: _Task) -> None:
        worker.task = task
        worker.heard = time.monotonic()
        worker.send({"items": task.job.items[task.done :], "limit": task.job.limit})

    def _is_silent(self, worker: _Worker) -> bool:
        return worker.ready and time.monotonic() - worker.heard > self.silence

    def _hear(self, worker: _Worker) -> Iterator[tuple[Job, int, Result]]:
        lines = worker.read()
        if lines is None:
            yield from self._bury(worker, "crash")
            return
        for line in lines:
            message = json.loads(line[1:]) if line[:1] == b"W" else None
            if message is None:
                self._child_said(worker, line[1:])
            elif "ready" in message:
                worker.ready = message["ready"] == worker.steps
            elif "stopped" in message:
                if message["stopped"] == worker.steps:
                    self.stopped = stopping_error(message["error"], message["told"])
                self._dismiss(worker)
            else:
                yield from self._job_over(worker, message)
        if isinstance(self.step, SourceStep) and worker.task:
            yield from worker.task.take_ready()

    def _child_said(self, worker: _Worker, line: bytes) -> None:
        task = worker.task
        if task is None or task.done == len(task.job.items):
            return  # a child that talks on after its last row
        is_source = isinstance(self.step, SourceStep)
        result = task.result
        try:
            message = json.loads(line)
            is_row = "emit" in message or "lose" in message
            full = len(result.kept) + len(result.lost) == part_rows(result.part)
            if is_source and is_row and full:
                task.end_part()
            if "emit" in message:
                task.result.kept.append(dict(message["emit"]))
                return
            if "lose" in message:
                # A row step cannot change what it drops; a source's row comes from the source.
                row = message["lose"] if is_source else task.job.items[task.done]
                reason, evidence = str(message["reason"]), dict(message["evidence"])
                task.result.lost.append(Lost(row, "dropped", reason, evidence))
                return
            if message["end"] == "stopped" and not self.sandboxed:
                self.stopped = stopping_error(message["error"], message["told"])
                task.done = len(task.job.items)
                return
            failed = message["end"] != "done"
            why = (str(message["reason"]), dict(message["evidence"])) if failed else None
        except (ValueError, KeyError, TypeError) as error:
            why = ("bad_message", {"error": str(error)})
        task.end_item(why)

    def _job_over(
        self, worker: _Worker, message: dict[str, Any]
    ) -> Iterator[tuple[Job, int, Result]]:
        task, worker.task = worker.task, None
        assert task
        if task.done < len(task.job.items):
            task.result = Result()
            task.attempts += 1
            if task.attempts >= ATTEMPTS:
                died = message["died"] or {"reason": "crash", "evidence": {"message": "cut short"}}
                task.end_item((died["reason"], {**died["evidence"], "attempts": ATTEMPTS}))
        ready = task.take_ready()
        if ready:
            last = ready[-1][2]
            last.cpu_s, last.peak_mb = message["cpu_s"], message["peak_mb"]
        yield from ready
        if task.done < len(task.job.items):
            self.waiting.appendleft(task)
        if message.get("spoiled"):  # the next job gets a new sandbox
            self._dismiss(worker)

    def _dismiss(self, worker: _Worker) -> None:
        self.selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        self.workers.remove(worker)
        worker.stop()

    def _bury(self, worker: _Worker, reason: str) -> Iterator[tuple[Job, int, Result]]:
        """Take leave of a worker that died or went silent, and blame the row it had."""
        words = worker.last_words()
        self._dismiss(worker)
        if not worker.ready and worker.steps == 1:
            raise WorkerError(f"step {self.step.name}: a worker could not start\n{words}")
        if worker.task:
            died = {"reason": reason, "evidence": {"printed": words}}
            yield from self._job_over(worker, {"died": died, "cpu_s": 0.0, "peak_mb": 0})
