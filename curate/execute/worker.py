"""A worker: one warm process that forks a child for every job.

``python -m curate.execute.worker`` reads JSON lines from standard input. The first names the step;
each later one is a job. The worker imports and warms the step once, then forks a child a job, so
that a child starts with everything imported and may crash, hang or be killed at the cost of its
own row only. A child sends, for each item, any number of ``emit`` and ``lose`` messages and then
one ``end``. It never sees the worker's own pipes: its lines are relayed with ``C`` before them,
the worker's own carry ``W``, so that a hostile row can speak for itself only.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from curate.step import Context, Drop, RowStep, SourceError, SourceStep, Unit

MAX_MESSAGE = 64 * 2**20  # bytes that one message of a child may have
MAX_PROCESSES = 64  # processes that one job may have inside the sandbox
TEMPORARY = (Path("/tmp"), Path("/dev/shm"))  # emptied after every row, in the sandbox
FOUND_THERE: set[Path] = set()  # what was there before any row: where Python itself may lie
TICK = 0.1  # seconds between two looks at a child's memory and processes

Message = dict[str, Any]


def step_reference(step: RowStep | SourceStep) -> Message:
    """Return what `load_step` needs to build the same step in another process."""
    kind = type(step)
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "options": step.model_dump()}


def load_step(reference: Message) -> RowStep | SourceStep:
    """Build the step that `step_reference` described."""
    module, _, name = reference["class"].partition(":")
    step = getattr(importlib.import_module(module), name).model_validate(reference["options"])
    assert isinstance(step, RowStep | SourceStep)
    return step


# --- in the child ---------------------------------------------------------------------------


def handle(step: RowStep | SourceStep, item: Message, context: Context, limit: int | None) -> Any:
    """Yield the messages for one item."""
    if isinstance(step, SourceStep):
        yield from _read_unit(step, item, context, limit)
        return
    outcome = step.apply(item, context)
    if isinstance(outcome, Drop):
        yield {"lose": None, "reason": outcome.reason, "evidence": outcome.evidence}
    else:
        yield from ({"emit": row} for row in outcome.rows)


def _read_unit(
    step: SourceStep, item: Message, context: Context, limit: int | None
) -> Iterator[Message]:
    given = 0
    for read in step.read(Unit(**item), context):
        if isinstance(read, tuple):
            row, drop = read
            yield {"lose": row, "reason": drop.reason, "evidence": drop.evidence}
            continue
        yield {"emit": read}
        given += 1
        if limit is not None and given >= limit:
            return


def describe_error(error: BaseException) -> Message:
    """Return an ``end`` message that says where an exception came from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    reason = "out_of_memory" if isinstance(error, MemoryError) else "exception"
    known = isinstance(error, SourceError)  # an archive's fault, say: told as it is
    evidence = {
        "error": "SourceError" if known else type(error).__name__,
        "message": str(error)[:2000],
        "where": where,
        "stack": [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames[-6:]],
    }
    return {"end": "failed", "reason": reason, "evidence": evidence}


def _child(
    step: RowStep | SourceStep, items: list[Message], context: Context, limit: int | None, fd: int
) -> None:
    with os.fdopen(fd, "w", encoding="utf-8") as pipe:
        for item in items:
            try:
                for message in handle(step, item, context, limit):
                    pipe.write(json.dumps(message) + "\n")
                end: Message = {"end": "done"}
            except Exception as error:
                end = describe_error(error)
            pipe.write(json.dumps(end) + "\n")
            pipe.flush()


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the worker is killed."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG in <sys/prctl.h>
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def _limit_child(step: RowStep | SourceStep, sandboxed: bool) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if isinstance(step, RowStep):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + step.memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    if sandboxed:
        # Counted per user namespace since Linux 5.14; root outside it is exempt, so that the
        # worker counts processes as well.
        resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))


def fork_child(
    step: RowStep | SourceStep,
    job: Message,
    context: Context,
    sandboxed: bool,
    own: list[int],
    printed: int,
) -> tuple[int, int]:
    """Fork a child for a job, which prints to the file ``printed`` and loses the files ``own``.

    Returns:
        The child's pid and the end of the pipe to read.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    try:
        os.setsid()
        _die_with_parent()
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        for fd in [read_end, *own]:
            os.close(fd)
        _limit_child(step, sandboxed)
        _child(step, job["items"], context, job.get("limit"), write_end)
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


# --- in the worker --------------------------------------------------------------------------


class Watch:
    """Follows one child: reads its messages, and kills it when it takes too much."""

    def __init__(
        self, pid: int, fd: int, printed: IO[bytes], step: RowStep | SourceStep, sandboxed: bool
    ) -> None:
        self.pid, self.fd, self.printed, self.sandboxed = pid, fd, printed, sandboxed
        self.seconds = step.timeout_s if isinstance(step, RowStep) else float("inf")
        self.memory = step.memory_mb * 2**20 if isinstance(step, RowStep) else float("inf")
        self.base = _resident(os.getpid())
        self.cpu_s, self.peak_mb = 0.0, 0
        self.parent = os.getppid()
        self.killed: str | None = None
        self._buffer = b""
        self._checked = 0.0

    def messages(self) -> Iterator[bytes]:
        """Yield the child's lines until it has closed its pipe or was killed."""
        deadline = time.monotonic() + self.seconds
        while True:
            ready, _, _ = select.select([self.fd], [], [], TICK)
            if ready:
                data = os.read(self.fd, 1 << 20)
                if not data:
                    return
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                if lines:
                    deadline = time.monotonic() + self.seconds
                yield from lines
            now = time.monotonic()
            if now - self._checked >= TICK:
                self._checked = now
                self._check(now > deadline)
            if self.killed:
                return

    def _check(self, late: bool) -> None:
        if os.getppid() != self.parent:  # the run was killed: leave nothing behind
            kill_group(self.pid)
            os._exit(0)
        pids = _all_processes() if self.sandboxed else [self.pid]
        used = sum(max(0, _resident(pid) - self.base) for pid in pids)
        if late:
            self.killed = "timeout"
        elif used > self.memory:
            self.killed = "out_of_memory"
        elif len(pids) > MAX_PROCESSES:
            self.killed = "too_many_processes"
        elif len(self._buffer) > MAX_MESSAGE:
            self.killed = "message_too_large"

    def finish(self) -> Message | None:
        """End the child and all it started; return why it died, or None if it went well."""
        os.close(self.fd)
        if self.killed:
            kill_group(self.pid)
        _, status, usage = os.wait4(self.pid, 0)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.peak_mb = usage.ru_maxrss >> 10
        kill_group(self.pid)
        if self.sandboxed:
            sweep_sandbox()
        if status == 0 and not self.killed:
            return None
        evidence: Message = {"peak_mb": self.peak_mb, "printed": self._last_words()}
        if os.WIFSIGNALED(status) and not self.killed:
            evidence["signal"] = signal.Signals(os.WTERMSIG(status)).name
        elif not self.killed:
            evidence["exit_code"] = os.WEXITSTATUS(status)
        return {"reason": self.killed or "crash", "evidence": evidence}

    def _last_words(self) -> str:
        size = self.printed.seek(0, os.SEEK_END)
        self.printed.seek(max(0, size - 1000))
        return self.printed.read(1000).decode(errors="replace").strip()


def kill_group(pid: int) -> None:
    """Kill a child's process group, where it still has one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def sweep_sandbox() -> None:
    """Kill every other process of the sandbox and empty its /tmp: nothing survives a row."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # all but ourselves and the sandbox's init
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    for place in TEMPORARY:
        for entry in set(place.iterdir()) - FOUND_THERE:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def _resident(pid: int) -> int:
    """Return bytes that a process holds in memory; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _all_processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) > 2]


def serve_job(
    step: RowStep | SourceStep, job: Message, context: Context, sandboxed: bool, out: IO[bytes]
) -> None:
    """Run one job in a fresh child and relay what it says."""
    own = [out.fileno(), sys.stdin.fileno()]
    with tempfile.TemporaryFile() as printed:
        pid, fd = fork_child(step, job, context, sandboxed, own, printed.fileno())
        watch = Watch(pid, fd, printed, step, sandboxed)
        for line in watch.messages():
            out.write(b"C" + line + b"\n")
            out.flush()
        died = watch.finish()
    tell(out, {"died": died, "cpu_s": watch.cpu_s, "peak_mb": watch.peak_mb})


def tell(out: IO[bytes], message: Message) -> None:
    """Send one of the worker's own messages."""
    out.write(b"W" + json.dumps(message).encode() + b"\n")
    out.flush()


def main() -> None:
    """Serve jobs from standard input until it closes."""
    # Whatever a row prints must not get between our messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    hello = json.loads(sys.stdin.buffer.readline())
    step = load_step(hello["step"])
    cache = hello["cache"]
    context = Context(seed=hello["seed"], cache=Path(cache) if cache else None)
    sandboxed = hello["sandboxed"]
    if sandboxed:
        FOUND_THERE.update(*(place.iterdir() for place in TEMPORARY))
    step.setup(context)
    gc.collect()
    gc.freeze()  # children share what is loaded, and never walk it
    tell(out, {"ready": True})
    for line in sys.stdin.buffer:
        serve_job(step, json.loads(line), context, sandboxed, out)


if __name__ == "__main__":
    main()
