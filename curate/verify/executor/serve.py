"""The executor's process: it does what the host half asks, and tells the judge what was done.

It speaks to two sides. The **host half** sends commands, one after the other, and waits only where
it needs a value:

- ``{"do": "new", "storage", "bytes"}``: memory, filled as `Storages.fill` says;
- ``{"do": "free", "storage"}``;
- ``{"do": "op", "name", "args", "kwargs", "outs"}``: an operator, whose results go to places;
- ``{"do": "ask", "name", "args", "kwargs", "first"}``: an operator whose results' sizes only their
  values tell; they get storages from ``first`` on, and their places are the answer;
- ``{"do": "launch", "ttir" or "sha256", "args", "grid", "options", "trial"}``;
- ``{"do": "cuda", "ptx" or "sha256", "kernel", "grid", "block", "shared", "args"}``, with arguments
  as `operators.read_argument` reads them: a kernel of the PTX that the judge has named by its hash;
- ``{"do": "upload", "out"}`` with a tensor; ``{"do": "read", "place"}``, answered with one;
- ``{"do": "order", "what", "stream", "event"}``: see `streams.StreamOrder.follow`;
- ``{"do": "lap", "places"}``: one of many calls in a row has been sent, whose outputs lie there;
  each numbers its storages alike, and the executor makes none of them;
- ``{"do": "keep", "storage", "bytes"}``: like ``new``, for what outlived such calls;
- ``{"do": "end", "number"}``: all that belongs to a call has been sent.

`commands.CommandRunner` does them and has the account of the work; `CallStream` has their hash. The
**judge** calls methods of `ExecutorServer`, `CandidateExecutor` and `Replays`. Nothing here runs
candidates' code or knows an expected value. After an error of the candidate's, what comes is
read and not done.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import math
import os
import random
import select
import socket
from collections.abc import Iterable
from typing import Any

import torch

from curate.devices import Device
from curate.engine.processes.child import die_with_parent
from curate.problem.problem import seed_everything
from curate.problem.values import Tensors, same
from curate.verify.executor.commands import (
    MAX_UPLOAD,
    CommandRunner,
    ExecutorBackend,
    Storages,
)
from curate.verify.executor.launch import CpuBackend, meets
from curate.verify.executor.memory import Misaligned, OutOfBounds, Race, storage_of
from curate.verify.executor.numbers import UnsupportedType
from curate.verify.executor.operations import DeviceAssert, UnsupportedOperation, Work, WorkExceeded
from curate.verify.executor.replay import Replays
from curate.verify.executor.ttir import TTIRError
from curate.verify.protocol.calls import Handler, Packed, handlers_of
from curate.verify.protocol.messages import CallAccount, CallLimits, LaunchedKernel
from curate.verify.protocol.places import TensorPlace, place_of
from curate.verify.protocol.role import Refusal, answer_one, give_back, refusal, set_precision
from curate.verify.protocol.wire import Channel, ConnectionClosed, Message, WireError

ANSWERED = ("ask", "read")
"""Commands that wait for an answer."""
MAX_LAPS = 4096
LARGE_STORAGE = 2**16
"""Bytes from which a storage shows how far offsets go: few programs may do all of a smaller one."""

MAX_HEARD, SAME_IN_LAPS = 4096, ("new", "op", "launch", "cuda", "lap")
"""Commands of laps that are recognised by their bytes: how many, and which."""
UNCOUNTED = ("free", "read", "keep", "order")
"""Commands that say nothing of the work that a call asks for."""


class CallStream:
    """What a call has asked for, as one hash: calls with equal streams ask for the same work.

    Attributes:
        commands: how many there were.
        laps: hashes of calls in a row, and how often each was.
    """

    def __init__(self, given: Iterable[int]) -> None:
        """Start, with storages that the judge has written, in the order of the inputs."""
        self.commands = 0
        self.laps: collections.Counter[str] = collections.Counter()
        self._hash = hashlib.sha256()
        self._given = {storage: number for number, storage in enumerate(dict.fromkeys(given))}
        self._order: dict[Any, int] = dict(self._given)
        self._heard: dict[bytes, tuple[Any, str, bytes]] = {}

    def is_new(self, storage: int) -> bool:
        """Whether a storage is the call's own, or was given to it."""
        return storage in self._order

    def add(self, do: str, message: Message, tensors: Tensors) -> bytes:
        """Take a command into account; return what the hash takes it for."""
        self._number(message.get("storage") if do == "new" else message.get("first"))
        if do in UNCOUNTED:
            return b""
        self.commands += 1
        text = self._text(message)
        self._note(do, text)
        for value in tensors:
            plain = value.contiguous().reshape(-1).view(torch.uint8)
            self._hash.update(plain.numpy().tobytes())
        return text

    def keep(self, header: bytes, do: str, message: Message, text: bytes) -> None:
        """Remember a command of one lap by its bytes."""
        if do in SAME_IN_LAPS and len(self._heard) < MAX_HEARD:
            self._heard[header] = message.get("storage"), do, text

    def add_again(self, header: bytes) -> bool:
        """Take a command into account that was there in another lap; say whether it was."""
        if (known := self._heard.get(header)) is None:
            return False
        made, do, text = known
        self._number(made)
        self._note(do, text)
        return True

    def ended_at(self, places: list[TensorPlace]) -> str:
        """Return the hash, once it is known where the outputs lie."""
        told = [place.to_json() for place in places]
        self._hash.update(self._text({"do": "lap", "places": told}))
        return self._hash.hexdigest()

    def _number(self, made: Any) -> None:
        """Number a storage that the call has made."""
        if type(made) is int:
            self._order.setdefault(made, len(self._order))

    def _note(self, do: str, text: bytes) -> None:
        """Hash a command, and take note of where one of many calls ends."""
        self._hash.update(text)
        if do == "lap":
            self.laps[self._hash.hexdigest()] += 1
            if len(self.laps) > MAX_LAPS:
                raise WireError("too many streams")
            self._hash, self._order = hashlib.sha256(), dict(self._given)

    def _text(self, message: Message) -> bytes:
        """Return what the hash takes a command for; its kernel's text has a hash of its own."""
        return repr(self._normal({**message, "ttir": None, "ptx": None})).encode()

    def _normal(self, value: Any) -> Any:
        """Return a command with the call's own storages numbered in the order of their making.

        Inputs go by their position; those that were there before the call keep their own number,
        since what they hold may differ.
        """
        if isinstance(value, dict):
            return {
                k: self._known(v) if k in ("storage", "first") else self._normal(v)
                for k, v in value.items()
            }
        if isinstance(value, list):
            if len(value) == 5 and isinstance(value[1], str) and isinstance(value[2], list):
                return [self._known(value[0]), *value[1:]]
            return [self._normal(item) for item in value]
        return value

    def _known(self, storage: Any) -> Any:
        return self._order.get(storage, f"old {storage}")


class CandidateExecutor:
    """One candidate's device: its host half sends commands, and the judge asks what was done."""

    def __init__(self, host: Channel, device: ExecutorBackend, most_bytes: int) -> None:
        self.host, self.device = host, device
        self.storages = Storages(device, most_bytes)
        self.commands = CommandRunner(device, self.storages)
        self.stream = CallStream(())
        self.error: Refusal | None = None
        self.ended = -1
        self.written: dict[TensorPlace, torch.Tensor] = {}
        self.broken = False
        self.replays = Replays(self.storages, device, self.commands.kernels, self.written)

    # --- what the judge asks ---------------------------------------------------------------

    def begin(self, places: list[TensorPlace], values: list[torch.Tensor], how: CallLimits) -> None:
        """Start a call."""
        self.error = None
        self.stream = CallStream(place.storage for place in places)
        self.commands.begin(how, self.stream.is_new)
        self.commands.streams.begin(place.storage for place in places)
        self.commands.done.origins.given = frozenset(place.storage for place in places)
        self.storages.leave(how.seed)
        self.replays.begin(places if how.record else None)
        self.device.exact = how.exact
        if how.precision:
            set_precision(self.device.name, how.precision)
        for place in [p for p in self.written if p.storage not in self.storages.known]:
            del self.written[place]
        for place, value in zip(places, values, strict=True):
            if place.storage not in self.storages.known:
                self.storages.new(place.storage, place.extent)
            there = self.storages.tensor(place).copy_(value)
            kept = value if value.device == there.device else there.clone()
            self.written[place] = kept
        if isinstance(self.device, CpuBackend):
            self.device.work, self.device.order = self.commands.budget, how.order
            self.device.lanes = random.Random(how.seed)
        seed_everything(how.seed)

    def finish(
        self,
        number: int | None,
        places: list[TensorPlace],
        watched: list[tuple[TensorPlace, TensorPlace]],
        most: int,
    ) -> CallAccount:
        """Return what a call did, once its last command was read.

        Args:
            number: of the call, or None not to wait for its end.
            places: of its results.
            watched: pairs of a place that the judge has written and of where its tensor is now.
            most: bytes of tensors there.

        Raises:
            Refusal: the candidate did something wrong.
        """
        self._hear_all_of(number)
        used = [*places, *(now for _, now in watched)]
        if number is not None and used and not self.commands.limits.dry:
            try:
                self.commands.streams.end(used)
            except Refusal as race:
                self._stop(race)
        self._settle()
        if self.error is not None:
            raise self.error
        try:
            found = [self.storages.tensor(place) for place in places]
            there = [self.storages.tensor(now) for _, now in watched]
        except WireError as error:
            raise Refusal("crash", "bad_command", str(error)) from error
        changed = []
        for i, (was, now) in enumerate(watched):
            written = self.written[was]
            if now != was and same(there[i], written):  # whoever has a view of it sees the former
                there[i] = self.storages.tensor(was)
            if not same(there[i], written):
                changed.append(i)
        found += [there[i] for i in changed]
        if self.replays.recording:
            self.replays.recording.end(places, watched, changed)
        size = sum(t.numel() * t.element_size() for t in found)
        if size > most:
            raise Refusal("incorrect", "shape", f"{size} bytes of results")
        results = [*places, *(watched[i][1] for i in changed)]
        done, allowed = self.commands.done, self.commands.limits.elements
        trace = done.origins.trace([place.storage for place in results])
        kept = [(c.name, t) for c, t in done.kept if done.origins.comes_first(c)]
        compiled_s, self.device.compiled_s = self.device.compiled_s, 0.0
        return CallAccount(
            found=self._sent(found),
            changed=changed,
            kept=[(name, self._sent([t])[0]) for name, t in kept],
            launches=dict(done.launches),
            calls=dict(done.calls),
            on_the_way=dict(trace.calls),
            call_bytes=trace.call_bytes,
            launch_bytes=trace.launch_work,
            by_operators=trace.by_operators,
            by_host=trace.by_host,
            read_bytes=done.read_bytes,
            sent_bytes=done.sent_bytes,
            float_bytes=min(done.read_floats, done.sent_floats),
            elements=0 if math.isinf(allowed) else allowed - self.commands.budget.left,
            stream=self.stream.ended_at(places),
            laps=dict(self.stream.laps),
            compiled_s=compiled_s,
            commands=self.stream.commands,
            values_asked=done.values_asked,
            wrote_old=sorted(done.wrote_old)[:MAX_HEARD],
            promises=list(self.commands.budget.broken)[:MAX_HEARD],
            narrow=self._spanned()[:MAX_HEARD],
        )

    def _spanned(self) -> list[tuple[str, int]]:
        """Return kernels and the storages that their offsets of 32 bits span, or half of them."""
        found = []
        for (kernel, base), far in self.commands.budget.reached.items():
            data = self.storages.known.get(storage_of(base))
            if data is not None and LARGE_STORAGE <= len(data) <= 2 * far:
                found.append((kernel, storage_of(base)))
        return found

    def _sent(self, tensors: Tensors) -> Tensors:
        """Return tensors as the judge takes them: on the device, or not."""
        return tensors if self.commands.limits.shares else [t.cpu() for t in tensors]

    def _settle(self) -> None:
        """Wait for the device; what went wrong there ends the call, and may end this process."""
        try:
            self.device.settle()
        except Exception as error:
            self._stop(error)
        if self.error is not None and self.error.status == "crash":
            self.broken = self.device.name != "cpu"

    def _stop(self, error: Exception) -> None:
        """Take an error of the candidate's for the end of the call, if it is the first."""
        self.error = self.error or stopped(error)

    def _hear_all_of(self, number: int | None) -> None:
        """Return when a call's last command was read, or it is over for another reason."""
        try:
            while number is not None and self.ended != number and self.error is None:
                self.hear()
        except ConnectionClosed:
            self._stop(Refusal("crash", "left", "the program's process is gone"))

    def launched_kernels(self) -> list[LaunchedKernel]:
        """Return the kernels of the last call."""
        texts, launched = self.commands.kernels, self.commands.done.launched
        return [(name, texts[sha256], how) for sha256, (name, how) in launched.items()]

    def kernels_meet(self) -> bool:
        """Say whether programs of a grid of the last call may see what others of it write."""
        return any(meets(text) for _, text, _ in self.launched_kernels())

    def launched_grids(self) -> dict[str, list[int]]:
        """Return the largest grid of each kernel in the last call, axis by axis."""
        return self.commands.done.grids

    @property
    def handlers(self) -> dict[str, Handler]:
        """What answers the judge's requests, `Replays` those about the last recorded call."""
        replays = self.replays
        timing = handlers_of(replays.prepare_timing, replays.time, replays.profile)
        return {
            **handlers_of(self.begin, self.finish, self.launched_kernels, self.launched_grids),
            **handlers_of(self.kernels_meet),
            **{name: self._stopping(handler) for name, handler in timing.items()},
        }

    def _stopping(self, handler: Handler) -> Handler:
        """Take an error of the candidate's for the end of the call."""

        def stopping(given: Packed, tensors: Tensors) -> tuple[object, Tensors]:
            try:
                answer, found = handler(given, tensors)
            except Exception as error:
                self._stop(error)
                self._settle()
                assert self.error
                raise self.error from error
            return answer, self._sent(found)

        return stopping

    # --- what the host half asks -----------------------------------------------------------

    def hear(self) -> None:
        """Read one command of the host half and do it.

        Raises:
            ConnectionClosed: the host half is gone, or sent what is no command.
        """
        dry = self.commands.limits.dry
        try:
            frame = self.host.receive_frame(limit=MAX_UPLOAD)
            if dry and self.error is None and self.stream.add_again(frame.header):
                return
            message, tensors = frame.open()
        except WireError as error:
            self.error = stopped(error)
            raise ConnectionClosed from error  # where the next frame begins cannot be known
        do = str(message.get("do"))
        if do == "end":
            self.ended = message.get("number", -1)
            return
        if self.error is not None:
            with contextlib.suppress(WireError, KeyError, TypeError, ValueError):
                self.commands.remember(do, message)
        else:
            try:
                text = self._do(do, message, tensors)
                if dry:
                    self.stream.keep(frame.header, do, message, text)
                return
            except (KeyError, TypeError) as error:
                wrong = WireError(f"{do}: {type(error).__name__}")
                self._stop(error if do == "op" else wrong)
            except Exception as error:
                self._stop(error)
        if do in ANSWERED and self.error is not None:
            said = {"status": self.error.status, "message": self.error.message}
            self.host.send({"stopped": said})

    def _do(self, do: str, message: Message, tensors: Tensors) -> bytes:
        """Do a command; return what the stream's hash takes it for."""
        text = self.stream.add(do, message, tensors)
        if self.commands.limits.dry and do in ANSWERED:
            raise Refusal("skip", "asks", "a call that is not done has no values")
        answer = self.commands.do(do, message, tensors)
        if answer is not None:
            self.host.send(*answer)
        if self.replays.recording:
            self.replays.recording.add(do, message, tensors)
        return text


MEANINGS: dict[type[Exception], tuple[str, str]] = {
    OutOfBounds: ("incorrect", "out_of_bounds"),
    Misaligned: ("crash", "misaligned_address"),
    Race: ("incorrect", "race"),
    DeviceAssert: ("runtime_error", "device_assert"),
    WorkExceeded: ("unsupported", "too_much_work"),
    UnsupportedType: ("unsupported", "kernel"),
    TTIRError: ("unsupported", "kernel"),
    WireError: ("crash", "bad_command"),
}
"""What errors in a command say of the candidate: a status and a reason."""


def stopped(error: Exception) -> Refusal:
    """Return what an error in a command says of the candidate."""
    if isinstance(error, Refusal):
        return error
    text = f"{error}"[:1000]
    if isinstance(error, UnsupportedOperation):
        return Refusal("unsupported", error.reason, text)
    if known := next((MEANINGS[c] for c in type(error).__mro__ if c in MEANINGS), None):
        return Refusal(*known, text)
    why = refusal(error)
    return Refusal(why.status, why.reason, f"{why}"[:1000])


def warm(target: Device | None = None) -> None:
    """Load what commands need and, if kernels are for a GPU, the compiler, before children fork."""
    if target is not None:
        from curate.verify.compile import serve as compiler

        compiler.warm(target)
    device = CpuBackend()
    storages = Storages(device, 2**20)
    x, out = (storages.new(number, 64).view(torch.float32) for number in range(2))
    x.fill_(1.0)
    places = [place_of(t, n) for n, t in enumerate((x, out))]
    arguments = [storages.address(place) for place in places]
    device.work = Work(1e6, 60)
    device.launch(EXAMPLE, {}, [*arguments, 16], (1, 1, 1))
    torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3))
    torch.ones(4, 4) @ torch.ones(4, 4)


EXAMPLE = """module {
  tt.func public @copy(%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>, %arg2: i32) {
    %0 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %1 = tt.splat %arg2 : i32 -> tensor<16xi32>
    %2 = arith.cmpi slt, %0, %1 : tensor<16xi32>
    %3 = tt.splat %arg0 : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %4 = tt.addptr %3, %0 : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
    %5 = tt.load %4, %2 : tensor<16x!tt.ptr<f32>>
    %6 = tt.splat %arg1 : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
    %7 = tt.addptr %6, %0 : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
    tt.store %7, %5, %2 : tensor<16x!tt.ptr<f32>>
    tt.return
  }
}"""


def serve(judge: Channel, arrivals: socket.socket) -> None:
    """Serve the judge in a child of its own, for one candidate after the other, until it closes."""
    torch.set_grad_enabled(False)
    server = ExecutorServer(judge, arrivals)
    while server.serve_one():
        pass


def _start_compiler(ours: list[socket.socket]) -> Channel:
    """Start a process that compiles kernels, and ends with this one; return the channel to it."""
    from curate.verify.compile import serve as compiler

    own, other = socket.socketpair()
    if os.fork() == 0:
        die_with_parent()
        for sock in (*ours, own):
            sock.close()
        compiler.serve(Channel(other))
        os._exit(0)
    other.close()
    return Channel(own)


class ExecutorServer:
    """The executor of the candidate at hand, if there is one, and the judge's requests."""

    def __init__(self, judge: Channel, arrivals: socket.socket) -> None:
        self.judge, self.arrivals = judge, arrivals
        self.executor: CandidateExecutor | None = None
        self.device: ExecutorBackend | None = None
        self.listens = False  # there is a host half
        self.own = self.handlers = handlers_of(self.open, self.meet, self.part)

    def serve_one(self) -> bool:
        """Do a command or answer a request; return False once the judge is gone."""
        if self.executor is not None and self.listens:
            host = self.executor.host
            wait = 0 if host.has_more else None
            ready, _, _ = select.select([self.judge.sock, host.sock], [], [], wait)
            if self.judge.sock not in ready:
                try:
                    self.executor.hear()
                except ConnectionClosed:
                    self.listens = False
                return True
        return self._answer()

    def _answer(self) -> bool:
        """Answer one request of the judge; return whether it is still there."""
        try:
            answer_one(self.judge, self.handlers.__getitem__)
        except ConnectionClosed:
            return False
        give_back()
        return True

    def open(self, target: Device) -> None:
        """Take the GPU, and be ready for candidates."""
        from curate.verify.executor.cuda import CudaBackend

        # Before there is a context, which does not survive a fork.
        compiler = _start_compiler([self.judge.sock, self.arrivals])
        self.device = CudaBackend(compiler, target)
        torch.ones(1, device=self.device.name)

    def meet(self, most_bytes: int) -> None:
        """Be the device of a new candidate, whose host half's connection has been sent."""
        _, (fd,), _, _ = socket.recv_fds(self.arrivals, 1, 1)
        host = Channel(socket.socket(fileno=fd))
        self.executor = CandidateExecutor(host, self.device or CpuBackend(), most_bytes)
        self.handlers = {**self.own, **self.executor.handlers}
        self.listens = True

    def part(self) -> bool:
        """Forget the candidate, with all that it has in memory; say if that cannot be done."""
        assert self.executor
        self.executor.host.close()
        broken, self.executor, self.listens = self.executor.broken, None, False
        self.handlers = self.own
        if self.device and not broken:
            try:
                self.device.wipe()
                self.judge.wipe()
            except RuntimeError:  # a kernel that was under way has failed
                broken = True
        return broken
