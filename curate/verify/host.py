"""A warm process in the sandbox that forks a child for every problem and every candidate.

``python -m curate.verify.host`` speaks over a socket that it inherits as standard input.
Messages are JSON, one per packet:

- `HostOptions` comes first and is answered by the folder of the package whose code the host runs;
- an `HostOrder` to start a child comes with file descriptors: the child's own channel to the judge
  (`curate.verify.protocol.wire`), which are two, and for some purposes channels to other children.
  The host forks a child that serves on them, and never reads them;
- an `HostOrder` to kill ends the child that is running; one to settle is answered besides, child or
  no child, by an `Ended` of the number that it gives;
- when a child ends, the host clears the sandbox and sends `Ended`.

Everything that every child needs is imported before the first fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import socket
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FunctionType

import curate
from curate.devices import ON_CPU, Device
from curate.engine.processes.child import (
    TICK,
    Child,
    ChildLimits,
    changed_state,
    fork_child,
    is_spoiled,
    remember_sandbox,
)
from curate.verify.protocol.wire import Channel

PACKET, MOST_SOCKETS = 1 << 16, 4
SOCKET_TYPE = socket.SOCK_SEQPACKET


@dataclass(frozen=True)
class HostOptions:
    """What a host is for.

    Attributes:
        purpose: of its children; see `warm`.
        memory_mb: of each child.
        sandboxed: whether they are in a sandbox.
        device: whether they may use the GPU.
        target: the GPU that programs see.
        traces: whether they use `torch.compile` or fake tensors.
    """

    purpose: str
    memory_mb: int
    sandboxed: bool
    device: bool = False
    target: Device = ON_CPU
    traces: bool = False


@dataclass(frozen=True)
class HostOrder:
    """What the judge wants: a child with a number of its own, or none any more for some reason."""

    start: int | None = None
    kill: str | None = None
    settle: int | None = None


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        job: its number.
        died: why, in a word; None if it went well.
        evidence: what shows it.
        spoiled: whether something is left that cannot be cleared.
        changed: what it changed of the host itself.
    """

    job: int
    died: str | None = None
    evidence: dict[str, object] = field(default_factory=dict)
    spoiled: bool = False
    changed: list[str] = field(default_factory=list)


def warm(purpose: str, target: Device, has_device: bool, traces: bool) -> Callable[..., None]:
    """Import what children need and return what they do, given their channel and other sockets.

    No device is used before the fork: its context does not survive one.
    """
    import torch

    torch.set_num_threads(1)
    if not traces:
        _spare_dynamo()
    elif purpose == "reference":
        importlib.import_module("torch._inductor.compile_fx")
    if purpose == "host_half":
        from curate.verify.host_half import serve as host_half

        return host_half.warm(target)
    if purpose == "executor":
        from curate.verify.executor import serve as executor

        executor.warm(target if has_device else None)
        return executor.serve
    if purpose == "reference":
        from curate.verify.reference import serve as reference

        reference.warm()
        return reference.serve
    from curate.verify.compile import serve as compiler

    compiler.warm(target, runs_programs=traces)
    return compiler.serve


def _spare_dynamo() -> None:
    """Have PyTorch's shape functions not import `torch._dynamo`, which takes 1.2 CPU seconds.

    Each of them is wrapped in a function that imports it on the first call, to keep the compiler
    out (`torch._compile`). Nothing is compiled here, so that the wrappers may call them as they
    are. In a release of PyTorch with other wrappers this does nothing.
    """
    import torch

    code = torch._disable_dynamo(lambda: None).__code__
    for wrapper in gc.get_objects():
        if type(wrapper) is FunctionType and wrapper.__code__ is code:
            named = dict(zip(code.co_freevars, wrapper.__closure__ or (), strict=False))
            if "fn" in named:
                function = named["fn"].cell_contents
                function.__dynamo_disable = function


class HostServer:
    """Serves the judge until it goes away."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.waiting: tuple[HostOrder, list[int]] | None = None
        self.spoiled = False
        told = json.loads(self._receive()[0])
        asked = HostOptions(**{**told, "target": Device(**told["target"])})
        self.has_device = asked.device
        self.limits = ChildLimits(
            asked.memory_mb, asked.sandboxed, address_space=not self.has_device
        )
        if self.limits.sandboxed:
            remember_sandbox()
        self.work = warm(asked.purpose, asked.target, asked.device, asked.traces)
        gc.collect()
        gc.freeze()  # children share what is loaded, and never walk it
        gc.enable()
        self._say(str(Path(curate.__file__).absolute().parent))

    def _receive(self) -> tuple[bytes, list[int]]:
        """Return the judge's next message, and the file descriptors that came with it."""
        data, fds, _, _ = socket.recv_fds(self.control, PACKET, MOST_SOCKETS)
        if not data:
            os._exit(0)  # the judge is gone
        return data, fds

    def _next(self) -> tuple[HostOrder, list[int]]:
        data, fds = self._receive()
        return HostOrder(**json.loads(data)), fds

    def _say(self, message: object) -> None:
        self.control.send(json.dumps(message).encode()[:PACKET])

    def run(self) -> None:
        """Fork children as the judge asks, one at a time."""
        while True:
            (order, fds), self.waiting = self.waiting or self._next(), None
            if order.start is not None:
                self._serve(order.start, fds)
            elif order.settle is not None:
                self._say(asdict(Ended(order.settle, spoiled=self.spoiled)))

    def _serve(self, job: int, fds: list[int]) -> None:
        def work() -> None:
            sock, devices, *peers = (socket.socket(fileno=fd) for fd in fds)
            self.work(Channel(sock, devices if self.has_device else None), *peers)

        with tempfile.TemporaryFile() as printed:
            pid = fork_child(work, self.limits, [self.control.fileno()], printed.fileno())
            for fd in fds:
                os.close(fd)
            child = Child(pid, printed, self.limits)
            self._watch(child)
            died = child.bury()
        spoiled = self.limits.sandboxed and is_spoiled()
        self.spoiled |= spoiled
        changed = changed_state() if spoiled else []
        why = died or {"reason": None, "evidence": {}}
        self._say(asdict(Ended(job, why["reason"], why["evidence"], spoiled, changed)))

    def _watch(self, child: Child) -> None:
        """Return when the child has ended, or takes too much, or the judge wants it gone."""
        ended = os.pidfd_open(child.pid)
        try:
            while not child.killed:
                ready, _, _ = select.select([ended, self.control.fileno()], [], [], TICK)
                if ended in ready:
                    return
                if self.control.fileno() in ready:
                    order, fds = self._next()
                    child.killed = order.kill or "superseded"
                    if order.start is not None or order.settle is not None:  # another fork's turn
                        self.waiting = order, fds
                child.check()
        finally:
            os.close(ended)


def main() -> None:
    """Serve the judge at the other end of standard input."""
    gc.disable()  # what is imported stays: to walk it again and again takes a sixth of the start
    control = socket.socket(fileno=os.dup(0))
    os.dup2(2, 1)  # whatever is printed here goes to the log
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    HostServer(control).run()


if __name__ == "__main__":
    main()
