"""The host half's end of the stream of commands: storages get numbers, work is sent.

Uses private parts of PyTorch; tested with torch 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from curate.verify.compile.lowering import Lowered
from curate.verify.executor.memory import FIRST
from curate.verify.host_half.streams import HostStreams
from curate.verify.protocol.places import TensorPlace, place_of, read_place
from curate.verify.protocol.wire import Channel, Message

JUDGES, OUTLIVED = 1 << 24, 1 << 23
"""Numbers of the first storage that is the judge's, and of the first that outlived one of many
laps; others that are made here count from zero."""

FEW_LAPS, LAPS_S = 20, 3.0
"""Forwards in a row that are made in any case, and seconds for more of them."""

ANSWERED = ("ask", "read")
"""Commands that wait for an answer."""

BLOCK = 512
"""Bytes of which a tensor takes some multiple on a device."""

SWEEP = 256
"""Storages after which those that are gone are freed in the executor."""


class ExecutorStopped(BaseException):
    """The executor does no more: the call is over, whatever the program makes of it."""


class Tape:
    """What a CUDA graph holds: commands, and the storages that were made for them."""

    def __init__(self) -> None:
        self.commands: list[tuple[Message, list[torch.Tensor] | None]] = []
        self.kept: list[torch.UntypedStorage] = []


class CommandStream:
    """Sends commands and asks for values.

    Tensors here are on PyTorch's device ``meta``: they have sizes and strides, and a storage
    without memory, which two views of one tensor share as they would share its memory.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.numbers = itertools.count()
        self.known: dict[int, tuple[StorageWeakRef, int, int]] = {}  # with number and bytes
        self.lap_first: int | None = None  # number of the first storage of each lap
        self.outlived = itertools.count(OUTLIVED)
        self.sent: set[str] = set()
        self.given: set[int] = set()  # addresses of tensors whose values the judge writes
        self.calls = itertools.count()
        self.tape: Tape | None = None
        self.streams = HostStreams(self._say)

    def storage(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's storage; one that is new is made in the executor."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self.known.get(key)
        if known is not None and not known[0].expired():
            return known[1]
        in_tape_of_lap = self.tape is not None and self.lap_first is not None
        number = next(self.outlived if in_tape_of_lap else self.numbers)
        self._remember(storage, number)
        if self.tape is not None:
            self.tape.kept.append(storage)
        self._pass_on({"do": "new", "storage": number, "bytes": storage.nbytes()})
        return number

    def _remember(self, storage: torch.UntypedStorage, number: int) -> None:
        if len(self.known) >= SWEEP and len(self.known) % SWEEP == 0:
            self.sweep()
        if (old := self.known.get(storage._cdata)) is not None:
            self._free(old[1])
        self.known[storage._cdata] = StorageWeakRef(storage), number, storage.nbytes()

    def sweep(self) -> None:
        """Free what no tensor holds any more."""
        for key, (reference, number, _) in list(self.known.items()):
            if reference.expired():
                del self.known[key]
                self._free(number)

    def held(self) -> int:
        """Return the bytes of storages that some tensor holds, each in blocks as PyTorch takes."""
        held = (size for reference, _, size in self.known.values() if not reference.expired())
        return sum(-(-size // BLOCK) * BLOCK for size in held)

    def _free(self, number: int) -> None:
        if number < JUDGES:  # the judge's inputs may be used again
            self._pass_on({"do": "free", "storage": number})

    def place(self, tensor: torch.Tensor) -> TensorPlace:
        """Return where a tensor lies."""
        return place_of(tensor, self.storage(tensor))

    def adopt(self, place: TensorPlace) -> torch.Tensor:
        """Return a tensor at a place that the executor or the judge has made."""
        size = place.extent // place.itemsize
        with _disable_current_modes():
            flat = torch.empty(max(size, 0), dtype=place.dtype, device="meta")
            tensor = flat.as_strided(place.shape, place.stride, place.offset)
        self._remember(tensor.untyped_storage(), place.storage)
        return tensor

    def _say(self, what: str, stream: int, event: int) -> None:
        self.channel.hold({"do": "order", "what": what, "stream": stream, "event": event})

    # graphs

    def record(self, tape: Tape | None) -> None:
        """Put commands on a tape from now on instead of sending them, or no more."""
        self.tape = tape
        self.streams.capturing = tape is not None

    def replay(self, tape: Tape) -> None:
        """Send the commands of a tape."""
        for message, tensors in tape.commands:
            self._pass_on(message, tensors)

    def send(self, message: Message, tensors: list[torch.Tensor] | None = None) -> None:
        """Send a command, or put it on the tape: what is captured is not done."""
        if self.tape is not None:
            self.tape.commands.append((message, tensors))
        else:
            self._pass_on(message, tensors)

    def _pass_on(self, message: Message, tensors: list[torch.Tensor] | None = None) -> None:
        if tensors or message["do"] in ANSWERED:
            self.channel.send(message, tensors)
        else:
            self.channel.hold(message)

    def _refuse_capture(self) -> None:
        if self.tape is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    # commands

    def operator(
        self, name: str, args: Sequence[Any], kwargs: dict[str, Any], outs: Sequence[Any]
    ) -> None:
        """Have an operator run; ``outs`` are the tensors for its results, or None."""
        places = [None if out is None else self.place(out).to_json() for out in outs]
        packed = [self.pack(value) for value in args]
        named = {key: self.pack(value) for key, value in kwargs.items()}
        self.send({"do": "op", "name": name, "args": packed, "kwargs": named, "outs": places})

    def ask(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Have an operator run whose results' sizes depend on values; return the results."""
        self._refuse_capture()
        first = next(self.numbers)
        self.numbers = itertools.count(first + 64)
        packed = [self.pack(value) for value in args]
        named = {key: self.pack(value) for key, value in kwargs.items()}
        self._pass_on({"do": "ask", "name": name, "args": packed, "kwargs": named, "first": first})
        answer, _ = self._answer()
        return [self.adopt(read_place(place)) for place in answer["places"]]

    def launch(
        self, lowered: Lowered, pointers: dict[int, torch.Tensor], is_trial: bool = False
    ) -> None:
        """Have a kernel run.

        Args:
            lowered: the launch.
            pointers: the tensors among its arguments, by position.
            is_trial: whether a tuner makes it, before the one that a program asks for.
        """
        args: list[Any] = []
        numbers = (v for i, v in enumerate(lowered.arguments) if i not in pointers)
        if any(t.dtype == torch.int64 for t in pointers.values()) or any(
            isinstance(number, int) and number >= FIRST for number in numbers
        ):
            self.sweep()  # an address of what is gone must not be good
        for i, value in enumerate(lowered.arguments):
            if i in pointers:
                args.append({"t": self.place(pointers[i]).to_json()})
            else:
                args.append(_finite(value))
        self.send(
            {
                "do": "launch",
                "ttir": self.unsent(lowered.ttir, lowered.sha256),
                "sha256": lowered.sha256,
                "args": args,
                "grid": list(lowered.grid),
                "options": lowered.options,
                "trial": is_trial,
            }
        )

    def unsent(self, text: str, sha256: str) -> str | None:
        """Return the text of a kernel, unless the executor has it."""
        if sha256 in self.sent:
            return None
        if self.tape is None:  # a tape may never be sent
            self.sent.add(sha256)
        return text

    def upload(self, value: torch.Tensor, out: torch.Tensor) -> None:
        """Write a tensor of this process's to the executor's memory."""
        place = self.place(out).to_json()
        if value.data_ptr() in self.given:
            return
        self.send({"do": "upload", "out": place}, [value])

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's values."""
        self._refuse_capture()
        self._pass_on({"do": "read", "place": self.place(tensor).to_json()})
        _, (value,) = self._answer()
        return value

    # laps: calls in a row that are compared by their commands, and not done

    @contextlib.contextmanager
    def laps(self) -> Iterator[None]:
        """Let each of many calls number its storages alike, so that equal calls send equal bytes.

        What is left of them in the end is made in the executor: later calls may use it.
        """
        first = self.lap_first = next(self.numbers)
        outlived = next(self.outlived)  # and those that come
        self.numbers = itertools.count(first)
        try:
            yield
        finally:
            self._rename()
            self.lap_first, self.numbers = None, itertools.count(first)
            for reference, number, size in self.known.values():
                if outlived <= number < JUDGES and not reference.expired():
                    self.channel.hold({"do": "keep", "storage": number, "bytes": size})

    def lap(self, places: list[Any]) -> None:
        """Say that one of many calls has been sent, and where its outputs lie."""
        self.channel.hold({"do": "lap", "places": places})
        self._rename()

    def _rename(self) -> None:
        """Give storages that outlive their lap other numbers: the next lap needs theirs."""
        first = self.lap_first
        assert first is not None
        for key, (reference, number, size) in list(self.known.items()):
            if first <= number < OUTLIVED:
                if reference.expired():
                    del self.known[key]
                else:
                    self.known[key] = reference, next(self.outlived), size
        self.numbers = itertools.count(first)

    def end(self) -> int:
        """Say that a call has been sent; return its number."""
        number = next(self.calls)
        self.channel.send({"do": "end", "number": number})
        return number

    def _answer(self) -> tuple[Message, list[torch.Tensor]]:
        message, tensors = self.channel.receive()
        if "stopped" in message:
            raise ExecutorStopped(str(message["stopped"]))
        return message, tensors

    def pack(self, value: Any) -> Any:
        """Return an operator's argument as JSON; `executor.operators.read_value` reads it."""
        if isinstance(value, torch.Tensor):
            if value.device.type != "meta":  # a number in a tensor, as PyTorch allows among others
                return self.pack(value.item()) if value.ndim == 0 else self._constant(value)
            return {"t": self.place(value).to_json()}
        if isinstance(value, bool | str) or value is None:
            return value
        if isinstance(value, int | float):
            return _packed_number(value)
        if isinstance(value, list | tuple):
            return {"l": [self.pack(item) for item in value]}
        if isinstance(value, torch.dtype):
            return {"d": str(value).removeprefix("torch.")}
        if isinstance(value, torch.memory_format):
            return {"m": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": None}
        if isinstance(value, torch.layout):
            return {"layout": None}
        if isinstance(value, complex):
            return {"c": [value.real, value.imag]}
        if isinstance(value, torch.Generator):
            return None
        raise TypeError(f"a {type(value).__name__} cannot be given to an operator")

    def _constant(self, value: torch.Tensor) -> Any:
        """Upload a tensor of this process's that an operator takes among others."""
        out = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        self.upload(value, out)
        self._kept = out
        return {"t": self.place(out).to_json()}


def _packed_number(value: int | float) -> Any:
    if isinstance(value, int):
        return int(value)
    return float(value) if value - value == 0 else {"f": repr(float(value))}


def _finite(value: Any) -> Any:
    """Return a launch's number as JSON can hold it."""
    if isinstance(value, float) and value - value != 0:
        return repr(value)
    return value
