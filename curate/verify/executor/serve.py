"""The executor's process: it does what the host half asks, and tells the judge what was done.

It speaks to two sides. The **host half** sends commands, one after the other, and waits only where
it needs a value:

- ``{"do": "new", "storage", "bytes"}``: memory, filled as `Storages.fill` says;
- ``{"do": "free", "storage"}``;
- ``{"do": "op", "name", "args", "kwargs", "outs"}``: an operator, whose results go to places;
- ``{"do": "ask", "name", "args", "kwargs", "first"}``: an operator whose results' sizes only their
  values tell; they get storages from ``first`` on, and their places are the answer;
- ``{"do": "launch", "ttir" or "sha256", "args", "grid", "options"}``;
- ``{"do": "cuda", "ptx" or "sha256", "kernel", "grid", "block", "shared", "args"}``, with arguments
  as `launch_arguments` reads them: a kernel of the PTX that the judge has named by its hash;
- ``{"do": "upload", "out"}`` with a tensor; ``{"do": "read", "place"}``, answered with one;
- ``{"do": "lap", "places"}``: one of many calls in a row has been sent, whose outputs lie there;
  each numbers its storages alike, and the executor makes none of them;
- ``{"do": "keep", "storage", "bytes"}``: like ``new``, for what outlived such calls;
- ``{"do": "end", "number"}``: all that belongs to a call has been sent.

The **judge** calls methods of `ExecutorServer`, `CandidateExecutor` and `Replays`. Nothing here
runs candidates' code or knows an expected value. After an error of the candidate's, what comes is
read and not done.
"""

from __future__ import annotations

import collections
import hashlib
import math
import os
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch

from curate.devices import Device
from curate.engine.processes.child import die_with_parent
from curate.problem.operator_calls import is_compute
from curate.problem.problem import seed_everything
from curate.problem.values import Tensors, same
from curate.verify.executor.cpu import CpuBackend
from curate.verify.executor.launch_arguments import read_argument, read_launch_value
from curate.verify.executor.memory import Misaligned, OutOfBounds, Race
from curate.verify.executor.numbers import UnsupportedType
from curate.verify.executor.operations import DeviceAssert, UnsupportedOperation, Work, WorkExceeded
from curate.verify.executor.operators import find_operator, read_value
from curate.verify.executor.origins import READ, Command, Origins
from curate.verify.executor.replay import Replays
from curate.verify.executor.ttir import TTIRError
from curate.verify.protocol.calls import Handler, Packed, handlers_of
from curate.verify.protocol.messages import (
    CallAccount,
    CallLimits,
    LaunchedKernel,
    LaunchOptions,
)
from curate.verify.protocol.places import TensorPlace, place_of, read_place
from curate.verify.protocol.role import (
    Refusal,
    answer_one,
    give_back,
    refusal,
    set_precision,
)
from curate.verify.protocol.wire import Channel, ConnectionClosed, Message, WireError

MAX_STORAGES = 100_000
MAX_KERNELS = 4096
MAX_LAPS = 4096
MAX_HEARD, SAME_IN_LAPS = 4096, ("new", "op", "launch", "cuda", "lap")
"""Commands of laps that are recognised by their bytes: how many, and which."""
NUMBER_BYTES = 4
"""Bytes that a number among arguments counts as, in what the host half sends; so do a truth value,
a view that does not begin where its storage does, and an axis of a grid."""
UPLOAD = "upload"
"""Name of what the host half sent, among the names of operators."""
FILLING = ("aten::copy_", "aten::fill_", "aten::zero_")
"""Operators that write to their first argument and do not read it."""
KEPT_ON_HOST = 2**24
"""Bytes up to which the result of an operator is kept in the host's memory."""
MAX_UPLOAD = 2**30
"""Bytes that the host half may send or read at once."""


class Stopped(Exception):
    """The call is over: the candidate did something wrong."""

    def __init__(self, status: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class ExecutorBackend(Protocol):
    """Where storages lie and kernels run: `CpuBackend` or `CudaBackend`."""

    name: str
    exact: bool
    compiled_s: float

    def allocate(self, number: int, size: int, fill: int) -> torch.Tensor: ...

    def free(self, number: int) -> None: ...

    def address(self, number: int, start: int) -> int: ...

    def kernel(self, text: str) -> tuple[str, frozenset[int] | None]: ...

    def launch(
        self,
        text: str,
        options: LaunchOptions,
        values: Sequence[int | float | bool],
        grid: tuple[int, int, int],
    ) -> int: ...

    def launch_ptx(
        self, text: str, name: str, sizes: Sequence[int], packed: Sequence[bytes], shared: int
    ) -> None: ...

    def settle(self) -> None: ...

    def wipe(self) -> None: ...


FILLS = (0xFF, 0x5A, 0x01)
"""Bytes of fresh memory, in turn: NaN, large finite numbers or small ones, the same in float32 and
in float64, and large as an integer. No program should count on them."""


class Storages:
    """A device's memory: bytes by the number that the host half gave them."""

    def __init__(self, device: ExecutorBackend, most_bytes: int) -> None:
        self.device, self.most_bytes = device, most_bytes
        self.used = 0
        self.known: dict[int, torch.Tensor] = {}
        self.fills = 0
        self.held: list[int] | None = None

    def new(self, number: int, size: int) -> torch.Tensor:
        """Make a storage, filled with what no program should count on.

        Raises:
            Stopped: there is no such memory.
        """
        if number in self.known or len(self.known) >= MAX_STORAGES or not 0 <= size < 2**48:
            raise WireError("not a new storage")
        if self.used + size > self.most_bytes:
            raise Stopped("oom", "device_memory", f"{self.used + size} bytes of tensors")
        data = self.device.allocate(number, size, FILLS[self.fills % len(FILLS)])
        self.fills += 1
        self.used += size
        self.known[number] = data
        return data

    def free(self, number: int) -> None:
        """Forget a storage; one that is held, later."""
        if self.held is not None:
            self.held.append(number)
        elif (data := self.known.pop(number, None)) is not None:
            self.used -= len(data)
            self.device.free(number)

    def hold(self, hold: bool) -> None:
        """Free what should have been freed meanwhile; from now on free nothing, or free again."""
        held, self.held = self.held, None
        for number in held or ():
            self.free(number)
        self.held = [] if hold else None

    def tensor(self, place: TensorPlace) -> torch.Tensor:
        """Return the tensor at a place.

        Raises:
            WireError: the place is outside its storage.
        """
        data = self.known.get(place.storage)
        if data is None:
            raise WireError("no such storage")
        if place.extent > len(data):
            raise WireError("a place outside its storage")
        whole = len(data) // place.itemsize * place.itemsize
        flat = data[:whole].view(place.dtype)
        return flat.as_strided(place.shape, place.stride, flat.storage_offset() + place.offset)

    def address(self, place: TensorPlace) -> int:
        """Return the address of a place's first element."""
        self.tensor(place)
        return self.device.address(place.storage, place.start)


class CandidateExecutor:
    """One candidate's device, and the account of what was done on it."""

    def __init__(self, host: Channel, device: ExecutorBackend, most_bytes: int) -> None:
        self.host, self.device = host, device
        self.storages = Storages(device, most_bytes)
        self.kernels: dict[str, str] = {}
        self.error: Stopped | None = None
        self.ended = -1
        self.skip_launches = False
        self.dry = False
        self.keep = False
        self.written: dict[TensorPlace, torch.Tensor] = {}
        self.work = Work(math.inf, math.inf)
        self.allowed = math.inf
        self.ptx: str | None = None
        self.broken = self.shares = False
        self.replays = Replays(self.storages, device, self.kernels, self.written)
        self._reset()

    def _reset(self) -> None:
        self.launches: collections.Counter[str] = collections.Counter()
        self.calls: collections.Counter[str] = collections.Counter()
        self.origins, self.read_bytes = Origins(), 0
        self.kept: list[tuple[Command, torch.Tensor]] = []
        self.launched: dict[str, tuple[str, LaunchOptions]] = {}
        self.grids: dict[str, list[int]] = {}
        self.sent_bytes = 0
        self.stream = hashlib.sha256()
        self.laps: collections.Counter[str] = collections.Counter()
        self.heard: dict[bytes, tuple[Any, str, bytes]] = {}
        self.given: dict[Any, int] = {}
        self.order: dict[Any, int] = {}
        self.commands = 0
        self.values_asked = False
        self.wrote_old: set[int] = set()  # storages
        self.error = None

    # --- what the judge asks ---------------------------------------------------------------

    def begin(self, places: list[TensorPlace], values: list[torch.Tensor], how: CallLimits) -> None:
        """Start a call.

        Args:
            places: where values are written, into new storages where the number is new.
            values: one for each.
            how: what the call may do.
        """
        self._reset()
        self.replays.begin(places if how.record else None)
        self.device.exact = how.exact
        self.shares = how.shares
        if how.precision:
            set_precision(self.device.name, how.precision)
        if how.ptx:
            self.ptx = how.ptx
        for place in [p for p in self.written if p.storage not in self.storages.known]:
            del self.written[place]
        for place, value in zip(places, values, strict=True):
            if place.storage not in self.storages.known:
                self.storages.new(place.storage, place.extent)
            there = self.storages.tensor(place).copy_(value)
            kept = value if value.device == there.device else there.clone()
            self.written[place] = kept
            self.given.setdefault(place.storage, len(self.given))
        self.order = dict(self.given)
        self.skip_launches, self.keep, self.dry = how.skip, how.keep, how.dry
        self.work = Work(how.elements, how.seconds)
        self.allowed = self.work.left
        if isinstance(self.device, CpuBackend):
            self.device.work, self.device.order = self.work, how.order
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
        self._settle()
        if self.error is not None:
            raise Refusal(self.error.status, self.error.reason, self.error.message)
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
        trace = self.origins.trace([place.storage for place in results])
        kept = [(c.name, t) for c, t in self.kept if self.origins.comes_first(c)]
        compiled_s, self.device.compiled_s = self.device.compiled_s, 0.0
        return CallAccount(
            found=self._sent(found),
            changed=changed,
            kept=[(name, self._sent([t])[0]) for name, t in kept],
            launches=dict(self.launches),
            calls=dict(self.calls),
            on_the_way=dict(trace.calls),
            call_bytes=trace.call_bytes,
            launch_bytes=trace.launch_work,
            by_operators=trace.by_operators,
            read_bytes=self.read_bytes,
            sent_bytes=self.sent_bytes,
            elements=0 if math.isinf(self.allowed) else self.allowed - self.work.left,
            stream=self._ended_at([place.to_json() for place in places]),
            laps=dict(self.laps),
            compiled_s=compiled_s,
            commands=self.commands,
            values_asked=self.values_asked,
            wrote_old=sorted(self.wrote_old)[:MAX_HEARD],
        )

    def _sent(self, tensors: Tensors) -> Tensors:
        """Return tensors as the judge takes them: on the device, or not."""
        return tensors if self.shares else [t.cpu() for t in tensors]

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
        self.error = self.error or _stopped(error)

    def _hear_all_of(self, number: int | None) -> None:
        """Return when a call's last command was read, or it is over for another reason."""
        try:
            while number is not None and self.ended != number and self.error is None:
                self.hear()
        except ConnectionClosed:
            if self.error is None:
                self.error = Stopped("crash", "left", "the program's process is gone")

    def _ended_at(self, places: Any) -> str:
        """Return the hash of a call's stream, and of where its outputs lie."""
        self.stream.update(self._text({"do": "lap", "places": places}))
        return self.stream.hexdigest()

    def launched_kernels(self) -> list[LaunchedKernel]:
        """Return the kernels of the last call."""
        return [(name, self.kernels[sha], how) for sha, (name, how) in self.launched.items()]

    def launched_grids(self) -> dict[str, list[int]]:
        """Return the largest grid of each kernel in the last call, axis by axis."""
        return self.grids

    @property
    def handlers(self) -> dict[str, Handler]:
        """What answers the judge's requests, `Replays` those about the last recorded call."""
        replays = self.replays
        timing = handlers_of(replays.prepare_timing, replays.time, replays.profile)
        return {
            **handlers_of(self.begin, self.finish, self.launched_kernels, self.launched_grids),
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
                raise Refusal(self.error.status, self.error.reason, self.error.message) from error
            return answer, self._sent(found)

        return stopping

    # --- what the host half asks -----------------------------------------------------------

    def hear(self) -> None:
        """Read one command of the host half and do it.

        Raises:
            ConnectionClosed: the host half is gone.
            WireError: it sent what is no command.
        """
        try:
            frame = self.host.receive_frame(limit=MAX_UPLOAD)
            if self.dry and self.error is None and (known := self.heard.get(frame.header)):
                self._number(known[0])  # as in another lap
                self._note(*known[1:])
                return
            message, tensors = frame.open()
        except WireError as error:
            self.error = _stopped(error)
            raise ConnectionClosed from error  # where the next frame begins cannot be known
        do = message.get("do")
        if do == "end":
            self.ended = message.get("number", -1)
            return
        answers = do in ("read", "ask")
        if self.error is None:
            try:
                text = self._do(str(do), message, tensors)
                if self.dry and do in SAME_IN_LAPS and len(self.heard) < MAX_HEARD:
                    self.heard[frame.header] = message.get("storage"), str(do), text
                return
            except (WireError, KeyError, TypeError, ValueError) as error:
                if isinstance(error, KeyError | TypeError) and do != "op":
                    error = WireError(f"{do}: {type(error).__name__}")
                self._stop(error)
            except Exception as error:
                self._stop(error)
        if answers and self.error is not None:
            said = {"status": self.error.status, "message": self.error.message}
            self.host.send({"stopped": said})

    def _text(self, message: Message) -> bytes:
        """Return what the stream's hash takes a command for; its kernel's text has a hash there."""
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
        return self.order.get(storage, f"old {storage}")

    def _do(self, do: str, message: Message, tensors: Tensors) -> bytes:
        """Do a command; return what the stream's hash takes it for."""
        self._number(message.get("storage") if do == "new" else message.get("first"))
        text = b""
        if do not in ("free", "read", "keep"):
            self.commands += 1
            text = self._text(message)
            self._note(do, text)
        if self.dry and do in ("read", "ask"):
            raise Stopped("skip", "asks", "a call that is not done has no values")
        match do:
            case "new" | "keep":
                number, size = _number(message["storage"]), _number(message["bytes"])
                if do == "keep" or not self.dry:
                    self.storages.new(number, size)
            case "free":
                self.storages.free(_number(message["storage"]))
            case "op":
                self._operator(message)
            case "ask":
                self._ask(message)
            case "launch":
                self._launch(message)
            case "cuda":
                self._launch_cuda(message)
            case "upload":
                self._upload(message, tensors)
            case "read":
                self._read(read_place(message["place"]))
            case "lap":
                pass
            case _:
                raise WireError("an unknown command")
        if self.replays.recording:
            self.replays.recording.add(do, message, tensors)
        return text

    def _number(self, made: Any) -> None:
        """Number a storage that the call has made."""
        if type(made) is int:
            self.order.setdefault(made, len(self.order))

    def _note(self, do: str, text: bytes) -> None:
        """Take note of a command, and of where one of many calls ends."""
        self.stream.update(text)
        if do == "lap":
            self.laps[self.stream.hexdigest()] += 1
            if len(self.laps) > MAX_LAPS:
                raise WireError("too many streams")
            self.stream, self.order = hashlib.sha256(), dict(self.given)

    def _call(self, message: Message) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
        """Run an operator; return itself, its tensors, and what came of it."""
        operator = find_operator(str(message["name"]))
        taken: list[torch.Tensor] = []

        def tensor(described: Any) -> torch.Tensor:
            taken.append(self.storages.tensor(read_place(described)))
            return taken[-1]

        device = self.device.name
        args = [read_value(value, tensor, device) for value in message["args"]]
        named = {str(k): read_value(v, tensor, device) for k, v in message["kwargs"].items()}
        self.work.spend(sum(t.numel() for t in taken))
        with torch.no_grad():
            found = operator(*args, **named)
        made = [t for t in _flat(found) if isinstance(t, torch.Tensor)]
        return operator, taken, made

    def _operator(self, message: Message) -> None:
        places = [None if p is None else read_place(p) for p in message["outs"]]
        if self.dry:
            return
        operator, taken, made = self._call(message)
        self.sent_bytes += NUMBER_BYTES * _numbers([message["args"], message["kwargs"]])
        self._writes(place[0] for place in _written(operator, message))
        if len(places) != len(made):
            raise WireError("an operator with other results")
        for place, result in zip(places, made, strict=True):
            if place is None:  # one of its arguments, written in place
                continue
            target = self.storages.tensor(place)
            if target.shape != result.shape or target.dtype != result.dtype:
                what = f"{tuple(result.shape)} of {result.dtype}, not {tuple(target.shape)}"
                raise UnsupportedOperation("operator_form", f"{message['name']} gives {what}")
            target.copy_(result)
        written = [*filter(None, message["outs"]), *_written(operator, message)]
        self._account(operator, message, taken, made, written)

    def _account(
        self,
        operator: Any,
        message: Message,
        taken: list[torch.Tensor],
        made: list[torch.Tensor],
        written: list[Any],
    ) -> None:
        name = operator._schema.name.removeprefix("aten::")
        computes = is_compute(operator)
        if computes:
            self.calls[name] += 1
        size = sum(t.numel() * t.element_size() for t in (*taken, *made))
        replaced = list(_written(operator, message, replaced=True))
        reads = [p[0] for p in _places([message["args"], message["kwargs"]]) if p not in replaced]
        writes = [(place[0], self._is_whole(read_place(place))) for place in written]
        command = self.origins.note(Command(name, reads, writes, size, computes))
        if self.keep:
            self.kept += [(command, _copied(t)) for t in made]

    def _is_whole(self, place: TensorPlace) -> bool:
        """Whether a place is all of its storage."""
        size = math.prod(place.shape) * place.itemsize
        return place.start == 0 and size == place.extent == len(self.storages.known[place.storage])

    def _ask(self, message: Message) -> None:
        self.values_asked = True
        first = _number(message["first"])
        operator, taken, made = self._call(message)
        places: list[Any] = []
        for number, result in enumerate(made, start=first):
            result = result.contiguous()
            self.storages.new(number, result.numel() * result.element_size())
            place = place_of(result, number)
            place = TensorPlace(number, result.dtype, place.shape, place.stride, 0)
            self.storages.tensor(place).copy_(result)
            places.append(place.to_json())
        self._account(operator, message, taken, made, places)
        self.host.send({"places": places})

    def _launch(self, message: Message) -> None:
        sent = message.get("ttir")
        sha256, text = self._kernel(message, sent)
        name, stored = self.device.kernel(text)
        counts = self.ptx is None  # a program that is judged as CUDA has no others
        if counts:
            self.launches[name] += 1
        options = _read_options(message["options"])
        self.launched[sha256] = name, options
        grid = tuple(_number(size) for size in message["grid"])
        if (self.skip_launches and counts) or self.dry or len(grid) != 3:
            return
        known = self.grids.get(name, grid)
        self.grids[name] = [max(sizes) for sizes in zip(known, grid, strict=True)]
        touched: list[TensorPlace] = []
        address = self._noting(touched)
        values = [read_launch_value(value, address) for value in message["args"]]
        numbers = _numbers(message["args"]) + sum(size > 1 for size in grid)
        self.sent_bytes += NUMBER_BYTES * numbers + len(sent or "")
        pointers = [message["args"][i] for i in (range(len(values)) if stored is None else stored)]
        self._writes(p["t"][0] for p in pointers if isinstance(p, dict))
        done = self.device.launch(text, options, values, grid)
        if counts:  # where nobody counts what was done, all that the tensors hold
            reads = [a["t"][0] if isinstance(a, dict) else None for a in message["args"]]
            work = done or _extent(touched)
            self.origins.note(Command(name, reads, size=work, kernel=text))

    def _kernel(self, message: Message, sent: Any) -> tuple[str, str]:
        """Return the hash and the text of a launch's kernel, which is sent with the first one."""
        sha256 = str(message["sha256"])
        if sent is not None:
            if hashlib.sha256(str(sent).encode()).hexdigest() != sha256:
                raise WireError("a kernel under another's hash")
            if len(self.kernels) >= MAX_KERNELS:
                raise WireError("too many kernels")
            self.kernels[sha256] = str(sent)
        if sha256 not in self.kernels:
            raise WireError("an unknown kernel")
        return sha256, self.kernels[sha256]

    def _launch_cuda(self, message: Message) -> None:
        sha256, text = self._kernel(message, message.get("ptx"))
        if sha256 != self.ptx:
            raise WireError("a kernel of another program")
        sizes = [_number(size) for size in (*message["grid"], *message["block"])]
        name, shared = str(message["kernel"]), _number(message["shared"])
        if len(sizes) != 6 or not all(sizes) or max(*sizes, shared) >= 2**31:
            raise WireError("not a grid of blocks")
        self.launches[name] += 1
        if self.skip_launches or self.dry:
            return
        touched: list[TensorPlace] = []
        address = self._noting(touched)
        packed = [read_argument(value, address) for value in message["args"]]
        self.sent_bytes += sum(map(len, packed)) - 8 * len(touched)
        self._writes(place.storage for place in touched)
        self.device.launch_ptx(text, name, sizes, packed, shared)
        reads = [place.storage for place in touched]
        self.origins.note(Command(name, reads, size=_extent(touched), kernel=""))

    def _noting(self, touched: list[TensorPlace]) -> Callable[[TensorPlace], int]:
        """Return what gives a place's address, and takes note of the place."""

        def address(place: TensorPlace) -> int:
            touched.append(place)
            return self.storages.address(place)

        return address

    def _writes(self, storages: Iterable[Any]) -> None:
        """Take note of memory that is older than the call and written in it: a state."""
        self.wrote_old |= {storage for storage in storages if storage not in self.order}

    def _upload(self, message: Message, tensors: Tensors) -> None:
        place = read_place(message["out"])
        (value,) = tensors
        self.stream.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        if self.dry:
            return
        target = self.storages.tensor(place)
        if target.shape != value.shape or target.dtype != value.dtype:
            raise WireError("an upload to another place")
        target.copy_(value)
        self.sent_bytes += value.numel() * value.element_size()
        self._writes([message["out"][0]])
        command = self.origins.note(Command(UPLOAD, (), [(place.storage, self._is_whole(place))]))
        if self.keep:
            self.kept.append((command, value.clone()))

    def _read(self, place: TensorPlace) -> None:
        self.values_asked = True
        value = self.storages.tensor(place)
        if value.numel() * value.element_size() > MAX_UPLOAD:  # by strides of zero
            raise Stopped("oom", "host_memory", "a tensor larger than a program may read")
        value = value.to("cpu", copy=True)
        self.read_bytes += value.numel() * value.element_size()
        self.origins.note(Command(READ, [place.storage]))
        self.host.send({}, [value])


def _extent(places: Iterable[TensorPlace]) -> int:
    """Return the bytes that tensors lie in."""
    return sum(place.extent - place.start for place in places)


def _numbers(value: Any) -> int:
    """Return how many numbers an argument holds; of a place, whether it says where it begins."""
    if isinstance(value, dict):
        return sum(
            read_place(item).offset > 0 if kind == "t" else _numbers(item)
            for kind, item in value.items()
        )
    if isinstance(value, list):
        return sum(map(_numbers, value))
    return int(isinstance(value, int | float))


def _written(operator: Any, message: Message, replaced: bool = False) -> Iterator[Any]:
    """Yield the arguments that an operator writes to; ``replaced``: and that it does not read."""
    arguments = operator._schema.arguments
    given = {a.name: v for a, v in zip(arguments, message["args"], strict=False)}
    fills = operator._schema.name in FILLING
    for argument in arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and (not replaced or fills or argument.kwarg_only):
            yield from _places({**given, **message["kwargs"]}.get(argument.name))


def _places(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and "t" in value:
        yield value["t"]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _places(item)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a result; a small one where no kernel of the candidate's can reach it."""
    if tensor.numel() * tensor.element_size() <= KEPT_ON_HOST:
        return tensor.detach().to("cpu", copy=True)
    return tensor.detach().clone()


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**48:
        raise WireError("not a number")
    return value


def _read_options(value: Any) -> LaunchOptions:
    if not isinstance(value, dict) or not all(isinstance(v, int) for v in value.values()):
        raise WireError("not a launch's options")
    return value


def _stopped(error: Exception) -> Stopped:
    """Return what an error says of the candidate."""
    if isinstance(error, Stopped):
        return error
    text = f"{error}"[:1000]
    if isinstance(error, OutOfBounds):
        return Stopped("incorrect", "out_of_bounds", text)
    if isinstance(error, Misaligned):
        return Stopped("crash", "misaligned_address", text)
    if isinstance(error, Race):
        return Stopped("incorrect", "race", text)
    if isinstance(error, DeviceAssert):
        return Stopped("runtime_error", "device_assert", text)
    if isinstance(error, WorkExceeded):
        return Stopped("unsupported", "too_much_work", text)
    if isinstance(error, UnsupportedOperation):
        return Stopped("unsupported", error.reason, text)
    if isinstance(error, UnsupportedType | TTIRError):
        return Stopped("unsupported", "kernel", text)
    if isinstance(error, WireError):
        return Stopped("crash", "bad_command", text)
    why = refusal(error)
    return Stopped(why.status, why.reason, f"{why}"[:1000])


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
    """Serve the judge in a child of its own, for one candidate after the other, until it closes.

    Args:
        judge: the channel to the judge.
        arrivals: brings the connection with each candidate's host half.
    """
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
        """Be the device of a new candidate, whose host half's connection has been sent.

        Args:
            most_bytes: of tensors that it may have.
        """
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
