"""One command after the other, done on a device's memory, and the account of what was done."""

from __future__ import annotations

import collections
import hashlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from curate.problem.operator_calls import computes
from curate.problem.values import Tensors, list_tensors
from curate.verify.compile.ptx import stored_parameters
from curate.verify.executor.memory import all_located
from curate.verify.executor.operations import UnsupportedOperation, Work
from curate.verify.executor.operators import (
    find_operator,
    read_argument,
    read_launch_value,
    read_value,
)
from curate.verify.executor.origins import READ, Command, Origins
from curate.verify.executor.streams import StreamOrder
from curate.verify.protocol.messages import CallLimits, LaunchOptions
from curate.verify.protocol.places import TensorPlace, place_of, places_in, read_place
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.wire import Message, WireError

MAX_KERNELS = 4096
MAX_STORAGES = 100_000
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


class ExecutorBackend(Protocol):
    """Where storages lie and kernels run: `CpuBackend` or `CudaBackend`."""

    name: str
    exact: bool
    compiled_s: float

    @property
    def touched(self) -> set[int]: ...

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
in float64, and large as an integer. No program should count on them, nor know them by sight: every
second storage, as a rule, begins with up to `MOST_LEFT` bytes of `LEFT` normal numbers, again and
again, as if others had left them there."""

LEFT, MOST_LEFT = 2**10, 2**20


class Storages:
    """A device's memory: bytes by the number that the host half gave them."""

    def __init__(self, device: ExecutorBackend, most_bytes: int) -> None:
        self.device, self.most_bytes = device, most_bytes
        self.used = 0
        self.known: dict[int, torch.Tensor] = {}
        self.fills = 0
        self.left: torch.Tensor | None = None
        self.held: list[int] | None = None

    def leave(self, seed: int) -> None:
        """Choose the numbers that others seem to have left in fresh memory, from now on."""
        self.left = torch.randn(LEFT, generator=torch.Generator().manual_seed(seed))

    def new(self, number: int, size: int) -> torch.Tensor:
        """Make a storage, filled with what no program should count on."""
        if number in self.known or len(self.known) >= MAX_STORAGES or not 0 <= size < 2**48:
            raise WireError("not a new storage")
        if self.used + size > self.most_bytes:
            raise Refusal("oom", "device_memory", f"{self.used + size} bytes of tensors")
        data = self.device.allocate(number, size, FILLS[self.fills % len(FILLS)])
        if self.left is not None and random.Random(self.fills).random() < 0.5:
            begin = data[:MOST_LEFT]
            left = self.left.view(torch.uint8).repeat(-(-len(begin) // (4 * LEFT)))
            begin.copy_(left[: len(begin)])
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
        """Return the tensor at a place."""
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

    def base(self, number: int) -> int | None:
        """Return the address of a storage, or None if there is none of this number."""
        return self.device.address(number, 0) if number in self.known else None


@dataclass
class WorkDone:
    """What a call did.

    Attributes:
        launches, calls: of kernels, but for those of tuners, and of operators that compute, by
            name.
        origins: whose work is where.
        kept: what operators and uploads gave, where that is kept.
        launched: name and options of each kernel, by the hash of its text.
        grids: the largest of each kernel, axis by axis.
        read_bytes, sent_bytes: that the host read, and sent in whatever way.
        read_floats, sent_floats: of these, in tensors of floating numbers.
        values_asked: whether the host has read values.
        wrote_old: storages older than the call that it wrote to: a state.
    """

    launches: collections.Counter[str] = field(default_factory=collections.Counter)
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    origins: Origins = field(default_factory=Origins)
    kept: list[tuple[Command, torch.Tensor]] = field(default_factory=list)
    launched: dict[str, tuple[str, LaunchOptions]] = field(default_factory=dict)
    grids: dict[str, list[int]] = field(default_factory=dict)
    read_bytes: int = 0
    sent_bytes: int = 0
    read_floats: int = 0
    sent_floats: int = 0
    values_asked: bool = False
    wrote_old: set[int] = field(default_factory=set)


class CommandRunner:
    """Does the commands of a call.

    Attributes:
        kernels: texts of those that came, by their hashes.
        budget: what the call may still take.
        done: what it did.
        streams: which commands wait for which.
    """

    def __init__(self, device: ExecutorBackend, storages: Storages) -> None:
        self.device, self.storages = device, storages
        self.kernels: dict[str, str] = {}
        self.ptx: str | None = None  # hash of the PTX whose kernels count
        self.limits = CallLimits(math.inf, math.inf)
        self.budget = Work(math.inf, math.inf)
        self.done = WorkDone()
        self.streams = StreamOrder()
        self.is_new: Callable[[int], bool] = lambda storage: True

    def begin(self, limits: CallLimits, is_new: Callable[[int], bool]) -> None:
        """Start a call."""
        self.done, self.limits, self.is_new = WorkDone(), limits, is_new
        self.budget = Work(limits.elements, limits.seconds)
        self.ptx = limits.ptx or self.ptx

    def do(self, do: str, message: Message, tensors: Tensors) -> tuple[Message, Tensors] | None:
        """Do a command; return the answer, where the host half waits for one.

        Raises:
            WireError, KeyError, TypeError, ValueError: it is no command.
            Exception: the device's, an operator's, or what a kernel did wrong.
        """
        match do:
            case "new" | "keep":
                number, size = read_number(message["storage"]), read_number(message["bytes"])
                if do == "keep" or not self.limits.dry:
                    self.storages.new(number, size)
                    self.streams.made(number)
            case "free":
                number = read_number(message["storage"])
                self.streams.freed(number)
                self.storages.free(number)
            case "order":
                stream, event = read_number(message["stream"]), read_number(message["event"])
                self.streams.follow(str(message["what"]), stream, event)
            case "op":
                self._operator(message)
            case "ask":
                return self._ask(message), []
            case "launch":
                self._launch(message)
            case "cuda":
                self._launch_cuda(message)
            case "upload":
                self._upload(message, tensors)
            case "read":
                return {}, [self._read(read_place(message["place"]))]
            case "lap":
                pass
            case _:
                raise WireError("an unknown command")
        return None

    # operators

    def _operator(self, message: Message) -> None:
        places = [None if p is None else read_place(p) for p in message["outs"]]
        if self.limits.dry:
            return
        operator, taken, made = self._call(message)
        self.done.sent_bytes += NUMBER_BYTES * _numbers([message["args"], message["kwargs"]])
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
        written = list(_written(operator, message))
        self._writes(place[0] for place in written)
        self._account(operator, message, taken, made, [*filter(None, message["outs"]), *written])

    def _ask(self, message: Message) -> Message:
        self.done.values_asked = True
        first = read_number(message["first"])
        operator, taken, made = self._call(message)
        places: list[Any] = []
        for number, result in enumerate(made, start=first):
            result = result.contiguous()
            self.storages.new(number, result.numel() * result.element_size())
            self.streams.made(number)
            place = place_of(result, number)
            place = TensorPlace(number, result.dtype, place.shape, place.stride, 0)
            self.storages.tensor(place).copy_(result)
            places.append(place.to_json())
        self._account(operator, message, taken, made, places)
        # Whoever learns how many there are has read them all.
        self._has_read(taken)
        self.done.origins.note(Command(READ, [place[0] for place in places]))
        self.streams.waited()
        return {"places": places}

    def _call(self, message: Message) -> tuple[Any, Tensors, Tensors]:
        """Run an operator; return itself, its tensors, and what came of it."""
        operator = find_operator(str(message["name"]))
        taken: Tensors = []

        def tensor(described: Any) -> torch.Tensor:
            taken.append(self.storages.tensor(read_place(described)))
            return taken[-1]

        device = self.device.name
        args = [read_value(value, tensor, device) for value in message["args"]]
        named = {str(k): read_value(v, tensor, device) for k, v in message["kwargs"].items()}
        self.budget.spend(sum(t.numel() for t in taken))
        with torch.no_grad():
            found = operator(*args, **named)
        return operator, taken, list_tensors(found)

    def _account(
        self, operator: Any, message: Message, taken: Tensors, made: Tensors, written: list[Any]
    ) -> None:
        name = operator._schema.name.removeprefix("aten::")
        is_work = computes(operator, taken, made)
        if is_work:
            self.done.calls[name] += 1
        size = sum(t.numel() * t.element_size() for t in (*taken, *made))
        replaced = list(_written(operator, message, replaced=True))
        given = list(places_in([message["args"], message["kwargs"]]))
        reads = [place[0] for place in given if place not in replaced]
        places = [read_place(place) for place in written]
        writes = [(place.storage, self._is_whole(place)) for place in places]
        self.streams.command(str(message["name"]), map(read_place, given), places)
        command = self.done.origins.note(Command(name, reads, writes, size, is_work))
        if self.limits.keep:
            self.done.kept += [(command, _copied(t)) for t in made]

    def _is_whole(self, place: TensorPlace) -> bool:
        """Whether a place is all of its storage."""
        size = math.prod(place.shape) * place.itemsize
        return place.start == 0 and size == place.extent == len(self.storages.known[place.storage])

    def remember(self, do: str, message: Message) -> None:
        """Take note of what later calls may refer to in a command of a call that was stopped.

        Raises:
            WireError, KeyError, TypeError, ValueError: it is no command.
        """
        if do in ("new", "keep", "free", "order"):
            self.do(do, message, [])
        elif do in ("launch", "cuda"):
            self._kernel(message)

    # launches

    def _launch(self, message: Message) -> None:
        sha256, text = self._kernel(message)
        name, stored = self.device.kernel(text)
        counts = self.ptx is None  # a program that is judged as CUDA has no others
        if counts and not message.get("trial"):  # a program that hides launches has fewer
            self.done.launches[name] += 1
        options = _read_options(message["options"])
        self.done.launched[sha256] = name, options
        grid = tuple(read_number(size) for size in message["grid"])
        if self.limits.dry or len(grid) != 3:
            return
        given = enumerate(message["args"])
        places = {i: read_place(a["t"]) for i, a in given if isinstance(a, dict)}
        written = [place for i, place in places.items() if stored is None or i in stored]
        self.streams.command("a launch", places.values(), written)
        if self.limits.skip and counts:
            return
        known = self.done.grids.get(name, grid)
        self.done.grids[name] = [max(sizes) for sizes in zip(known, grid, strict=True)]
        touched: list[TensorPlace] = []
        address = self._noting(touched)
        values = [
            address(places[i])
            if i in places
            else read_launch_value(value, address, self.storages.base)
            for i, value in enumerate(message["args"])
        ]
        numbers = _numbers(message["args"]) + sum(size > 1 for size in grid)
        self.done.sent_bytes += NUMBER_BYTES * numbers + len(_text(message) or "")
        self._writes(place.storage for place in written)
        work = self.device.launch(text, options, values, grid)
        if counts:  # where nobody counts what was done, all that the tensors hold
            reads = [places[i].storage if i in places else None for i in range(len(values))]
            size = work or _extent(touched)
            # What it reached by the distance from another is on no way that its text shows.
            strays = sorted(self.device.touched - {*reads})
            self.done.origins.note(Command(name, reads, size=size, kernel=text, strays=strays))

    def _kernel(self, message: Message) -> tuple[str, str]:
        """Return the hash and the text of a launch's kernel, which is sent with the first one."""
        sha256, sent = str(message["sha256"]), _text(message)
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
        sha256, text = self._kernel(message)
        if sha256 != self.ptx:
            raise WireError("a kernel of another program")
        sizes = [read_number(size) for size in (*message["grid"], *message["block"])]
        name, shared = str(message["kernel"]), read_number(message["shared"])
        if len(sizes) != 6 or not all(sizes) or max(*sizes, shared) >= 2**31:
            raise WireError("not a grid of blocks")
        self.done.launches[name] += 1
        if self.limits.dry:
            return
        if self.streams.concurrent:
            given = enumerate(message["args"])
            places = [(i, read_place(place)) for i, value in given for place in places_in(value)]
            stored = stored_parameters(text, name)
            written = [place for i, place in places if stored is None or i in stored]
            self.streams.command("a launch", [place for _, place in places], written)
        if self.limits.skip:
            return
        touched: list[TensorPlace] = []
        address = self._noting(touched)
        packed = [read_argument(value, address) for value in message["args"]]
        self.done.sent_bytes += sum(map(len, packed)) - 8 * len(touched)
        self._writes(place.storage for place in touched)
        self.device.launch_ptx(text, name, sizes, packed, shared)
        reads = [place.storage for place in touched]
        self.done.origins.note(Command(name, reads, size=_extent(touched), kernel=""))

    def _noting(self, touched: list[TensorPlace]) -> Callable[[TensorPlace], int]:
        """Return what gives a place's address, and takes note of the place."""

        def address(place: TensorPlace) -> int:
            touched.append(place)
            return self.storages.address(place)

        return address

    # values

    def _upload(self, message: Message, tensors: Tensors) -> None:
        place = read_place(message["out"])
        (value,) = tensors
        if self.limits.dry:
            return
        target = self.storages.tensor(place)
        if target.shape != value.shape or target.dtype != value.dtype:
            raise WireError("an upload to another place")
        self.streams.command("a copy to the device", [], [place])
        self.streams.waited()
        target.copy_(all_located(value, self.storages.base))
        size = value.numel() * value.element_size()
        self.done.sent_bytes += size
        self.done.sent_floats += size * value.is_floating_point()
        self._writes([place.storage])
        command = Command(UPLOAD, (), [(place.storage, self._is_whole(place))])
        self.done.origins.note(command)
        if self.limits.keep:
            self.done.kept.append((command, value.clone()))

    def _read(self, place: TensorPlace) -> torch.Tensor:
        self.done.values_asked = True
        value = self.storages.tensor(place)
        self.streams.command("a copy to the host", [place], [])
        self.streams.waited()
        if value.numel() * value.element_size() > MAX_UPLOAD:  # by strides of zero
            raise Refusal("oom", "host_memory", "a tensor larger than a program may read")
        value = value.to("cpu", copy=True)
        self._has_read([value])
        self.done.origins.note(Command(READ, [place.storage]))
        return value

    def _has_read(self, tensors: Tensors) -> None:
        for value in tensors:
            # A short integer may hold what a long one did.
            size = value.element_size() if value.is_floating_point() else torch.int64.itemsize
            self.done.read_bytes += value.numel() * size
            self.done.read_floats += value.numel() * size * value.is_floating_point()

    def _writes(self, storages: Iterable[Any]) -> None:
        self.done.wrote_old |= {storage for storage in storages if not self.is_new(storage)}


def read_number(value: Any) -> int:
    """Return a number of storages, bytes or programs that the host half has sent."""
    if type(value) is not int or not 0 <= value < 2**48:
        raise WireError("not a number")
    return value


def _read_options(value: Any) -> LaunchOptions:
    if not isinstance(value, dict) or not all(isinstance(v, int) for v in value.values()):
        raise WireError("not a launch's options")
    return value


def _extent(places: Iterable[TensorPlace]) -> int:
    """Return the bytes that tensors lie in."""
    return sum(place.extent - place.start for place in places)


def _text(message: Message) -> Any:
    """Return the kernel that a launch brings along; nothing if it came with an earlier one."""
    return message.get("ptx" if message["do"] == "cuda" else "ttir")


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
    """Yield the places that an operator writes to; ``replaced``: and that it does not read."""
    arguments = operator._schema.arguments
    given = {a.name: v for a, v in zip(arguments, message["args"], strict=False)}
    fills = operator._schema.name in FILLING
    for argument in arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and (not replaced or fills or argument.kwarg_only):
            yield from places_in({**given, **message["kwargs"]}.get(argument.name))


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a result; a small one where no kernel of the candidate's can reach it."""
    if tensor.numel() * tensor.element_size() <= KEPT_ON_HOST:
        return tensor.detach().to("cpu", copy=True)
    return tensor.detach().clone()
