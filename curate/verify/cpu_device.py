"""A device for wrappers: both halves of the judge without a GPU, in one process.

A wrapper's Python runs on handles (`curate.verify.host_half`), and each command is done by the
executor (`curate.verify.executor`) before the next line of the wrapper: so an error is raised where
its cause is. Nothing here is a proof. It is meant for a process that does nothing else.
"""

from __future__ import annotations

import math

import torch
from torch.utils._python_dispatch import _disable_current_modes

from curate.devices import ON_CPU
from curate.problem.values import Tensors
from curate.verify.compile.aot import first_line as first_line
from curate.verify.executor import serve as executor
from curate.verify.executor.launch import CpuBackend
from curate.verify.host_half import serve as host_half
from curate.verify.host_half.handles import Handle as Handle
from curate.verify.host_half.handles import on_device as on_device
from curate.verify.host_half.handles import to_cpu as to_cpu
from curate.verify.host_half.handles import to_gpu as to_gpu
from curate.verify.host_half.launches import HostLaunches
from curate.verify.host_half.stream import CommandStream
from curate.verify.host_half.stream import ExecutorStopped as ExecutorStopped
from curate.verify.protocol.messages import CallLimits
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.role import refusal as refusal
from curate.verify.protocol.wire import Message

MOST_BYTES = 2**30
"""Bytes of tensors that may be on the device at once."""


_installed: list[HostLaunches] = []


def warm() -> None:
    """Let ``torch.cuda`` and Triton find a device, for good; load what the first call needs."""
    torch.set_grad_enabled(False)
    _installed.append(host_half.prepare(ON_CPU))
    executor.warm()


def asked_launches() -> int:
    """Return how many launches wrappers have asked for, those that were refused included."""
    return _installed[-1].asked


class _Between:
    """What is on its way from one half to the other: one message, since each waits."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, Tensors]] = []

    def send(self, message: Message, tensors: Tensors | None = None) -> None:
        """Hand a message over."""
        self.sent.append((message, tensors or []))

    def receive_frame(self, limit: int = 0) -> _Between:
        """Say that a message can be taken."""
        return self

    def open(self) -> tuple[Message, Tensors]:
        """Take it."""
        return self.sent.pop()


class CpuDevice:
    """A device, which one search uses for all its calls: what a wrapper caches stays valid."""

    def __init__(self) -> None:
        self._between = _Between()
        self.backend = CpuBackend()
        self.executor = executor.CandidateExecutor(self._between, self.backend, MOST_BYTES)  # type: ignore[arg-type]
        self.stream = CommandStream(self)  # type: ignore[arg-type]

    @property
    def error(self) -> Refusal | None:
        """What the call did wrong on the device, if it did."""
        return self.executor.error

    def begin(self, seed: int, elements: float, races: bool) -> None:
        """Start a call, whatever became of the last one.

        Args:
            seed: of random operators and of the order of atomic operations.
            elements: that it may work on.
            races: whether an access whose result depends on the order of programs is an error.
        """
        self._between.sent.clear()
        self.executor.error = None
        self.stream.sweep()
        self.backend.check_races = races
        self.executor.begin([], [], CallLimits(elements, math.inf, seed, seed))
        # What nobody wrote is the same in every call.
        self.executor.storages.fills, self.executor.storages.left = 0, None

    def check(self) -> None:
        """Raise `ExecutorStopped` if the call did something wrong."""
        if self.error is not None:
            raise ExecutorStopped(str(self.error))

    # what `CommandStream` takes for its channel

    def send(self, message: Message, tensors: Tensors | None = None) -> None:
        """Have the executor do a command."""
        self._between.send(message, tensors)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            self.executor.hear()
        self.check()

    hold = send  # what a wrapper did wrong is to be known at once

    def receive(self) -> tuple[Message, Tensors]:
        """Return the executor's answer to the last command."""
        return self._between.open()
