"""The default executor: worker processes on this machine.

One item in flight is to blame when a child dies: the first that has not ended. It is tried once
more alone, and then quarantined; the items behind it go to another child.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from curate.engine.executor import Job, Lost, Result, WorkerError, part_rows, stopping_error
from curate.engine.processes.sandbox import sandbox_command, worker_environment
from curate.engine.processes.worker import step_reference
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

    def __init__(self, step: Step, context: Context, sandboxed: bool) -> None:
        command = [sys.executable, "-m", "curate.engine.processes.worker"]
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self.process = subprocess.Popen(
            sandbox_command(command) if sandboxed else command,
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
        self.send(
            {
                "step": step_reference(step),
                "seed": context.seed,
                "cache": None if sandboxed else str(context.cache),
                "sandboxed": sandboxed,
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
        self.stderr.seek(0)
        return self.stderr.read()[-3000:].decode(errors="replace").strip()

    def stop(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.stderr.close()


class LocalExecutor:
    """Runs jobs in ``workers`` processes of this machine, or in as many as a step asks for."""

    def __init__(self, workers: int, sandbox: bool = True) -> None:
        self.workers = workers
        self.sandbox = sandbox

    def run(
        self, step: Step, context: Context, jobs: Iterator[Job]
    ) -> Iterator[tuple[Job, int, Result]]:
        """Yield ``(job, index, result)`` as items end; see `curate.engine.executor.Executor`."""
        own = step.workers if isinstance(step, RowStep) else None
        pool = Pool(step, context, own or self.workers, self.sandbox)
        try:
            yield from pool.run(jobs)
        finally:
            pool.stop()


class Pool:
    """The workers of one step, from its first job to its last."""

    def __init__(
        self,
        step: Step,
        context: Context,
        workers: int,
        sandbox: bool,
    ) -> None:
        self.step, self.context = step, context
        self.sandboxed = sandbox and isinstance(step, RowStep) and step.sandboxed
        self.jobs: Iterator[Job] = iter(())
        self.again: deque[_Task] = deque()
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
        waiting = self._next()
        while waiting or any(w.task for w in self.workers):
            while waiting and (worker := self._free_worker()):
                self._give(worker, waiting)
                waiting = self._next()
            for key, _ in self.selector.select(timeout=1.0):
                yield from self._hear(key.data)
            for worker in [w for w in self.workers if w.task and self._is_silent(w)]:
                yield from self._bury(worker, "timeout")
            waiting = None if self.stopped else waiting or self._next()
        if self.stopped:
            raise self.stopped

    def stop(self) -> None:
        """End all workers, whatever they are at."""
        for worker in self.workers:
            worker.stop()
        self.selector.close()

    def _next(self) -> _Task | None:
        if self.stopped:
            return None
        if self.again:
            return self.again.popleft()
        job = next(self.jobs, None)
        return _Task(job) if job else None

    def _free_worker(self) -> _Worker | None:
        for worker in self.workers:
            if worker.task is None:
                return worker
        if len(self.workers) == self.size:
            return None
        worker = _Worker(self.step, self.context, self.sandboxed)
        self.workers.append(worker)
        self.selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        return worker

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
                worker.ready = True
            elif "stopped" in message:
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
            self.again.append(task)
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
        if not worker.ready:
            raise WorkerError(f"step {self.step.name}: a worker could not start\n{words}")
        if worker.task:
            died = {"reason": reason, "evidence": {"printed": words}}
            yield from self._job_over(worker, {"died": died, "cpu_s": 0.0, "peak_mb": 0})
