"""Doing a call's commands again, without the candidate's Python: for its time, on fresh inputs.

While a call is recorded, its commands are kept as they are done. A replay does the same operators,
launches and uploads on the same storages. What only made or freed storages is left out: they are
there, and PyTorch's own allocator would not have touched the device either. Of an operator, the
result itself takes the place of its storage, where on the way to the host half's account it was
copied there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from curate.problem.values import Tensors, list_tensors, same
from curate.verify.executor.memory import all_located
from curate.verify.executor.operators import (
    find_operator,
    read_argument,
    read_launch_value,
    read_value,
)
from curate.verify.protocol.messages import Replayed
from curate.verify.protocol.places import TensorPlace, places_in, read_place
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.wire import Message
from curate.verify.timing import InputSets, TimedCall

if TYPE_CHECKING:
    from curate.verify.executor.commands import ExecutorBackend, Storages

Step = Callable[[], None]

DONE_AGAIN = ("op", "launch", "cuda", "upload")
"""Commands that a replay repeats."""


class Recording:
    """What one call did.

    Attributes:
        inputs: where the judge wrote its inputs.
        commands: those that are `DONE_AGAIN`, with their tensors.
        made: storages that the call made.
        outputs: where its results lie.
        watched: pairs of a place that the judge has written, the inputs first, and of where its
            tensor was after the call.
        changed: which of those held other values then.
    """

    def __init__(self, inputs: list[TensorPlace]) -> None:
        self.inputs = inputs
        self.commands: list[tuple[str, Message, Tensors]] = []
        self.made: set[int] = set()
        self.outputs: list[TensorPlace] = []
        self.watched: list[tuple[TensorPlace, TensorPlace]] = []
        self.changed: list[int] = []

    def add(self, do: str, message: Message, tensors: Tensors) -> None:
        """Keep a command that has been done."""
        if do == "new":
            self.made.add(message["storage"])
        elif do in DONE_AGAIN:
            self.commands.append((do, message, tensors))

    def end(
        self,
        outputs: list[TensorPlace],
        watched: list[tuple[TensorPlace, TensorPlace]],
        changed: list[int],
    ) -> None:
        """Take note of where the call's results lie, by the judge's request for them."""
        self.outputs, self.watched, self.changed = outputs, watched, changed


class Replay:
    """A recorded call that can be made again."""

    def __init__(
        self,
        recording: Recording,
        storages: Storages,
        device: ExecutorBackend,
        kernels: Mapping[str, str],
    ) -> None:
        self.storages, self.device, self.kernels = storages, device, kernels
        self.moved: dict[int, torch.Tensor] = {}  # storages whose bytes an operator has given
        self.is_cuda = any(do == "cuda" for do, _, _ in recording.commands)
        self.names: set[str] = set()  # of the kernels that count
        self.fresh = set(recording.made)  # storages that no step so far has named
        makers = {
            "op": self._operator,
            "launch": self._launch,
            "cuda": self._launch_cuda,
            "upload": self._upload,
        }
        self.steps = [makers[do](message, tensors) for do, message, tensors in recording.commands]

    def __call__(self) -> None:
        for step in self.steps:
            step()

    # places

    def tensor(self, place: TensorPlace) -> torch.Tensor:
        """Return the tensor at a place."""
        data = self.moved.get(place.storage)
        if data is None:
            return self.storages.tensor(place)
        return data.view(place.dtype).as_strided(place.shape, place.stride, place.offset)

    def _address(self, place: TensorPlace) -> int:
        data = self.moved.get(place.storage)
        if data is None:
            return self.storages.address(place)
        return int(data.data_ptr()) + place.start

    def _base(self, number: int) -> int | None:
        data = self.moved.get(number)
        return self.storages.base(number) if data is None else int(data.data_ptr())

    def _name(self, places: Any) -> None:
        self.fresh.difference_update(place[0] for place in places_in(places))

    # steps

    def _operator(self, message: Message, tensors: Tensors) -> Step:
        operator = find_operator(str(message["name"]))
        outs = [None if out is None else read_place(out) for out in message["outs"]]
        self._name([message["args"], message["kwargs"]])
        new = {place.storage for place in outs if place} & self.fresh
        self._name(message["outs"])

        def tensor(described: Any) -> torch.Tensor:
            return self.tensor(read_place(described))

        def step() -> None:
            name = self.device.name
            args = [read_value(value, tensor, name) for value in message["args"]]
            named = {k: read_value(v, tensor, name) for k, v in message["kwargs"].items()}
            with torch.no_grad():
                found = operator(*args, **named)
            given = {t.untyped_storage().data_ptr() for t in list_tensors([args, named])}
            for place, result in zip(outs, list_tensors(found), strict=True):
                if place is None:
                    continue
                whole = name != "cpu" and place.storage in new and _fills(place, result, given)
                size = len(self.storages.known[place.storage])
                if whole and result.untyped_storage().nbytes() == size:
                    data = torch.empty(0, dtype=torch.uint8, device=name)
                    self.moved[place.storage] = data.set_(result.untyped_storage())
                else:
                    self.tensor(place).copy_(result)

        return step

    def _launch(self, message: Message, tensors: Tensors) -> Step:
        text, options = self.kernels[message["sha256"]], message["options"]
        x, y, z = message["grid"]
        self._name(message["args"])
        if not self.is_cuda:
            self.names.add(self.device.kernel(text)[0])

        def step() -> None:
            values = [
                read_launch_value(value, self._address, self._base) for value in message["args"]
            ]
            self.device.launch(text, options, values, (x, y, z))

        return step

    def _launch_cuda(self, message: Message, tensors: Tensors) -> Step:
        text, name, shared = self.kernels[message["sha256"]], message["kernel"], message["shared"]
        sizes = [*message["grid"], *message["block"]]
        self._name(message["args"])
        self.names.add(name)

        def step() -> None:
            packed = [read_argument(value, self._address) for value in message["args"]]
            self.device.launch_ptx(text, name, sizes, packed, shared)

        return step

    def _upload(self, message: Message, tensors: Tensors) -> Step:
        place, (value,) = read_place(message["out"]), tensors
        value = value if self.device.name == "cpu" else value.pin_memory()
        self._name(message["out"])
        has_addresses = all_located(value, self._base) is not value

        def step() -> None:
            sent = all_located(value, self._base) if has_addresses else value
            self.tensor(place).copy_(sent, non_blocking=True)

        return step


def _fills(place: TensorPlace, result: torch.Tensor, given: set[int]) -> bool:
    """Say whether a result can be its storage: it is new, and lies there as it should."""
    storage = result.untyped_storage()
    return (
        place.offset == result.storage_offset() == 0
        and place.stride == tuple(result.stride())
        and place.shape == tuple(result.shape)
        and math.prod(place.shape) > 0
        and storage.data_ptr() not in given
    )


class Replays:
    """What the judge asks about the last recorded call of a candidate.

    Args:
        storages: the candidate's memory.
        device: where it lies.
        kernels: texts of the kernels that it has launched, by their hashes.
        written: what the judge wrote last, by its place.
    """

    def __init__(
        self,
        storages: Storages,
        device: ExecutorBackend,
        kernels: Mapping[str, str],
        written: Mapping[TensorPlace, torch.Tensor],
    ) -> None:
        self.storages, self.device, self.kernels = storages, device, kernels
        self.written = written
        self.recording: Recording | None = None
        self.replay: Replay | None = None
        self.timed: TimedCall | None = None
        self.masters: list[Tensors] = []
        self.found: tuple[list[int], Tensors] = [], []

    def begin(self, inputs: list[TensorPlace] | None) -> None:
        """Forget the last recording; keep what is done from now on, if there are inputs."""
        self.timed = self.replay = None
        self.recording = None if inputs is None else Recording(inputs)
        self.storages.hold(inputs is not None)

    def prepare_timing(self, tensors: list[torch.Tensor], scales: list[float | None]) -> bool:
        """Make the recorded call ready to be timed; return whether by a graph.

        Args:
            tensors: the inputs of one set after the other.
            scales: one for each set; see `InputSets`.
        """
        recorded = self.recording
        if recorded is None:
            raise Refusal("unsupported", "not_recorded", "no call has been recorded")
        self.timed, self.replay = None, Replay(recorded, self.storages, self.device, self.kernels)
        count = len(recorded.inputs)
        state = [recorded.watched[i][0] for i in recorded.changed if i >= count]
        targets = [self.storages.tensor(place) for place in (*recorded.inputs, *state)]
        kept = [self.written[place] for place in state]
        masters = [
            [t.to(self.device.name) for t in (*tensors[start : start + count], *kept)]
            for start in range(0, count * len(scales), max(1, count))
        ]
        self.masters = masters or [kept for _ in scales]
        sets = InputSets(targets, self.masters, scales, count)
        self.timed = TimedCall(self.replay, sets, self.device.name)
        self.device.settle()
        return self.timed.graph is not None

    def time(self, n: int, seed: int, body: bool, check: tuple[int, int] | None) -> Replayed:
        """Return how long replays take, and with ``check`` what one of them gave.

        The arguments are those of `TimedCall.run`.
        """
        self.found = [], []
        times = self._ready().run(n, seed, body, check, self._look)
        self.device.settle()
        (changed, found), self.found = self.found, ([], [])
        return Replayed(list(times), changed, found)

    def _ready(self) -> TimedCall:
        if self.timed is None:
            raise Refusal("unsupported", "not_recorded", "no call is ready to be timed")
        return self.timed

    def _look(self, chosen: int) -> None:
        """Copy what a replay on a set of inputs gave, before the next one."""
        assert self.recording and self.replay
        outputs = [self.replay.tensor(place).clone() for place in self.recording.outputs]
        changed, values = [], []
        for i, (was, now) in enumerate(self.recording.watched):
            is_input = i < len(self.recording.inputs)
            before = self.masters[chosen][i] if is_input else self.written[was]
            after = self.replay.tensor(now)
            if not same(after, before.to(after.device)):
                changed.append(i)
                values.append(after.clone())
        self.found = changed, outputs + values

    def profile(self) -> float | None:
        """Return the share of a replay's time on the device that the candidate's kernels take."""
        timed, replay = self._ready(), self.replay
        assert replay and self.recording
        kinds = {do for do, _, _ in self.recording.commands}
        if self.device.name != "cpu" and kinds in ({"launch"}, {"cuda"}):
            return 1.0  # all that it has are kernels of its own
        timed.once(watch := profiler(activities=[ProfilerActivity.CUDA]))
        spent = [e for e in watch.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        names = replay.names | {_demangled(name) for name in replay.names}
        own = sum(float(event.device_time) for event in spent if event.name in names)
        whole = sum(float(event.device_time) for event in spent)
        return own / whole if whole else None


def _demangled(name: str) -> str:
    """Return a C++ name as a profiler shows it, where PyTorch can tell."""
    demangle = getattr(torch._C, "_demangle", None)
    return str(demangle(name)) if demangle else name
