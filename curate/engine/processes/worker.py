"""A worker: a warm process that forks a server for every step, which forks a child for every job.

``python -m curate.engine.processes.worker`` reads JSON lines from standard input. One that names a
step begins it; each that follows is a job of it. What all steps import is imported once, by the
worker, which runs nothing of a step's and stays as it is. So a step's server begins the same
whichever steps were before it: it imports and warms the step, then forks a child for each job, so
that a child starts with everything imported and may crash, hang or be killed at the cost of its own
row only. A child sends, for each item, any number of ``emit`` and ``lose`` messages and then one
``end``. It never sees the worker's own pipes: its lines are relayed with ``C`` before them, the
worker's own carry ``W``, so that a hostile row can speak for itself only.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from curate.engine.executor import STOPPING
from curate.engine.processes.child import (
    TICK,
    WATCHED,
    Child,
    ChildLimits,
    Message,
    die_with_parent,
    fork_child,
    is_spoiled,
    kill_group,
    remember_sandbox,
)
from curate.step import (
    Context,
    Drop,
    RowStep,
    SourceError,
    SourceStep,
    Step,
    TableStep,
    Unit,
)

MAX_MESSAGE = 64 * 2**20  # bytes that one message of a child may have
SANDBOXED_BASE = "torch._dynamo"
"""What every step in the sandbox imports, which takes longer than the rest of most of them."""


def step_reference(step: Step) -> Message:
    """Return what `load_step` needs to build the same step in another process."""
    kind = type(step)
    return {
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "options": step.model_dump(),
        "folder": str(step.folder),
    }


def load_step(reference: Message) -> Step:
    """Build the step that `step_reference` described."""
    module, _, name = reference["class"].partition(":")
    step = getattr(importlib.import_module(module), name).model_validate(
        reference["options"], context={"folder": Path(reference["folder"])}
    )
    assert isinstance(step, Step)
    return step


# --- in the child ---------------------------------------------------------------------------


def handle(step: Step, item: Message, context: Context, limit: int | None) -> Any:
    """Yield the messages for one item."""
    if isinstance(step, SourceStep):
        yield from _read_unit(step, item, context, limit)
        return
    if isinstance(step, TableStep):
        from curate.engine.table import Summary, summarize

        summarize(step, Summary(**item), context)
        return
    assert isinstance(step, RowStep)
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


def _told(error: Exception) -> Message:
    """Return what `stopping_error` needs to raise an error in another process."""
    kind = next(kind for kind in STOPPING if isinstance(error, kind))
    return {"error": kind.__name__, "told": [str(word) for word in error.args]}


def _child(step: Step, items: list[Message], context: Context, limit: int | None, fd: int) -> None:
    with os.fdopen(fd, "w", encoding="utf-8") as pipe:
        for item in items:
            try:
                for message in handle(step, item, context, limit):
                    pipe.write(json.dumps(message) + "\n")
                end: Message = {"end": "done"}
            except STOPPING as error:
                end = {"end": "stopped", **_told(error)}
            except Exception as error:
                end = describe_error(error)
            pipe.write(json.dumps(end) + "\n")
            pipe.flush()
            if end["end"] == "stopped":
                return


# --- in a step's server ---------------------------------------------------------------------


class Watch:
    """Follows one child: reads its messages, and kills it when it takes too much."""

    def __init__(self, child: Child, fd: int, seconds: float) -> None:
        self.child, self.fd, self.seconds = child, fd, seconds
        self._buffer = b""

    def messages(self) -> Iterator[bytes]:
        """Yield the child's lines until it has closed its pipe or was killed."""
        deadline = time.monotonic() + self.seconds
        while not self.child.killed:
            if _is_deserted():
                kill_group(self.child.pid)
                os._exit(0)
            ready, _, _ = select.select([self.fd], [], [], TICK)
            if ready:
                data = os.read(self.fd, 1 << 20)
                if not data:
                    return
                *lines, self._buffer = (self._buffer + data).split(b"\n")
                if lines:
                    deadline = time.monotonic() + self.seconds
                yield from lines
            self.child.check()
            if len(self._buffer) > MAX_MESSAGE:
                self.child.killed = "message_too_large"
            elif time.monotonic() > deadline:
                self.child.killed = "timeout"


def _is_deserted() -> bool:
    """Whether the run that gives us jobs is gone: leave nothing behind."""
    stdin = select.poll()
    stdin.register(sys.stdin, select.POLLHUP)
    return bool(stdin.poll(0))


def serve_job(
    step: Step, job: Message, context: Context, sandboxed: bool, out: IO[bytes], close: list[int]
) -> None:
    """Run one job in a fresh child, which must not have the files ``close``; relay what it says."""
    memory, seconds = (
        (step.memory_mb, step.timeout_s) if isinstance(step, RowStep) else (None, float("inf"))
    )
    limits = ChildLimits(memory, sandboxed)
    read_end, write_end = os.pipe()
    close = [*close, read_end, out.fileno(), sys.stdin.fileno()]
    with tempfile.TemporaryFile() as printed:
        pid = fork_child(
            lambda: _child(step, job["items"], context, job["limit"], write_end),
            limits,
            close,
            printed.fileno(),
        )
        os.close(write_end)
        child = Child(pid, printed, limits)
        for line in Watch(child, read_end, seconds).messages():
            out.write(b"C" + line + b"\n")
            out.flush()
        os.close(read_end)
        died = child.bury()
    spoiled = sandboxed and is_spoiled()
    usage = {"cpu_s": child.cpu_s, "peak_mb": child.peak_mb}
    tell(out, {"died": died, "spoiled": spoiled, **usage})


def tell(out: IO[bytes], message: Message) -> None:
    """Send one of the worker's own messages."""
    out.write(b"W" + json.dumps(message).encode() + b"\n")
    out.flush()


def serve(orders: Message, out: IO[bytes], close: list[int]) -> bytes:
    """Serve a step's jobs from standard input; return the line that begins another step."""
    step = load_step(orders["step"])
    cache, sandboxed = orders["cache"], orders["sandboxed"]
    context = Context(orders["seed"], Path(cache) if cache else None, orders["sandbox"])
    try:
        step.setup(context)
    except STOPPING as error:
        tell(out, {"stopped": orders["number"], **_told(error)})
        return b""
    keep_imported()
    gc.enable()
    tell(out, {"ready": orders["number"]})
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "step" in message:
            return line
        serve_job(step, message, context, sandboxed, out, close)
    return b""


def keep_imported() -> None:
    """Let forks share what is loaded, and never walk it."""
    gc.collect()
    gc.freeze()


# --- in the worker --------------------------------------------------------------------------


def serve_apart(orders: Message, out: IO[bytes]) -> bytes:
    """Serve a step in a fork of this process; return the orders that it ended with."""
    with tempfile.TemporaryFile() as following:
        server = os.fork()
        if not server:
            try:
                die_with_parent()
                if orders["sandboxed"]:
                    WATCHED.append(os.getppid())
                following.write(serve(orders, out, [following.fileno()]))
                following.flush()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        while os.waitpid(-1, 0)[0] != server:
            pass  # an orphan of the sandbox, whose first process we are
        following.seek(0)
        return following.read()


def main() -> None:
    """Serve steps from standard input, one after the other, until it closes."""
    gc.disable()  # what is imported stays: there is nothing to find
    # Whatever a row prints must not get between our messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders = sys.stdin.buffer.readline()
    if json.loads(orders)["sandboxed"]:
        remember_sandbox()
        importlib.import_module(SANDBOXED_BASE)
    keep_imported()
    while orders:
        orders = serve_apart(json.loads(orders), out)


if __name__ == "__main__":
    main()
