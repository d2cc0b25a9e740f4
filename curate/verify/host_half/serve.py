"""The host half's process: builds a program on handles and runs it, as the judge asks.

One candidate per process. It serves the public methods of `HostHalf`.
The inputs are places in the executor's memory: none of their numbers is ever here.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from curate.devices import Device
from curate.problem.problem import EXAMPLE, LoadedProgram, LoadedTask, seed_everything
from curate.problem.values import Tensors
from curate.verify.compile.lowering import Lowering
from curate.verify.host_half import virtual_cuda
from curate.verify.host_half.cuda_launches import LAUNCH, make_launcher
from curate.verify.host_half.handles import Handle, on_device, to_gpu
from curate.verify.host_half.launches import HostLaunches
from curate.verify.host_half.state import kept_state
from curate.verify.host_half.stream import FEW_LAPS, LAPS_S, CommandStream, ExecutorStopped
from curate.verify.host_half.streams import DEFAULT
from curate.verify.host_half.watch import watch_clocks, watch_events, watch_judge
from curate.verify.protocol.calls import Handler, Packed, handlers_of
from curate.verify.protocol.messages import Forward, Returned
from curate.verify.protocol.places import TensorPlace
from curate.verify.protocol.role import Refusal, serve_requests
from curate.verify.protocol.wire import Channel, ConnectionClosed, Message, WireError, pack, unpack

KEPT = 8
"""Sets of inputs that are kept: the judge gives some of them again, with other values. And calls
whose results are, as a caller may keep them."""

LARGE_STATE, SMALL_STATE = 2**26, 2**20
"""Bytes from which a tensor of the state is not sent to the device where the judge writes it."""

PLAIN = {"Handle", "Tensor", "Parameter"}


class HostHalf:
    """One program, on a device that is not here."""

    def __init__(self, stream: CommandStream, launches: HostLaunches) -> None:
        self.stream, self.launches = stream, launches
        self.name = f"model_{secrets.token_hex(3)}"  # that no program knows beforehand
        self.taken: set[int] = set()  # numbers of branches
        self.inputs: dict[str, list[tuple[Handle, torch.Tensor]]] = {}
        self.results: collections.deque[Any] = collections.deque(maxlen=KEPT)
        self.program: LoadedProgram
        self.model: nn.Module
        self.other: nn.Module  # a second instance, which is not called

    def load(self, source: str, ptx: str | None) -> None:
        """Run the file's text, which may launch the kernels of the PTX."""
        with self._call():
            note = f"note_{self.name}"
            given = {note: self.taken.add}
            if ptx is not None:
                given[LAUNCH] = make_launcher(ptx, self.launches)
            with torch.enable_grad():  # as in whoever imports it
                self.program = LoadedProgram(source, given, self.name, note)

    def build(
        self, init: list[Any], parameters: int, mode: str, state: list[tuple[str, list[int]]]
    ) -> list[tuple[str, TensorPlace]]:
        """Construct the model; say under which names its state lies where.

        Args:
            init: arguments of the constructor.
            parameters: seed.
            mode: ``eval`` or ``train``.
            state: names and shapes of what the judge writes there, if the model has the same.
        """
        with self._call():
            self.results.clear()
            model = self.program.build(parameters, init)
            self.stream.given = _large_state(model, state)
            self.model = model.train(mode == "train").to("cuda")
            self.stream.given = set()
            # What a class or a module knows of its last instance is then another's.
            if sum(p.numel() for p in model.parameters()) <= SMALL_STATE:
                self.other = self.program.build(parameters + 1, init).to("cuda")
            self._state = {name: self._handle(t) for name, t in self.model.state_dict().items()}
            return [(str(n), self.stream.place(t.inner)) for n, t in self._state.items()]

    def _handle(self, value: Any) -> Handle:
        if isinstance(value, Handle):
            return value
        if isinstance(value, torch.Tensor):
            return to_gpu(value)
        raise Refusal("runtime_error", "state", "the state holds what is no tensor")

    def run(self, turn: int, forward: Forward) -> Returned | None:
        """Run a forward as the autotuners' turn decides; of many in a row, nothing is said."""
        self.launches.turn, self.launches.refused = turn, forward.refuse
        with self._call():
            if forward.laps > 1:
                with self.stream.laps():
                    self._run_laps(forward)
                return None
            answer = self._forward(forward)
            answer.given.extend(self._state_places())
            return answer

    def _state_places(self) -> list[TensorPlace]:
        """Return where the state lies now: a parameter's data may be another's."""
        now = self.model.state_dict()
        held = [now[n] if isinstance(now.get(n), Handle) else t for n, t in self._state.items()]
        return [self.stream.place(t.inner) for t in held]

    def _run_laps(self, forward: Forward) -> None:
        late = time.monotonic() + LAPS_S
        for lap in range(forward.laps):
            self.stream.lap([place.to_json() for place in self._forward(forward).places])
            if lap >= FEW_LAPS and time.monotonic() > late:
                break

    def _forward(self, forward: Forward) -> Returned:
        given = self._given(forward.places)
        inputs = unpack(forward.inputs, given)
        seed_everything(forward.seed)
        self.stream.streams.use(DEFAULT)
        own = [(p, p.data) for p in self.model.parameters() if forward.permuted and p.dim() == 4]
        for parameter, data in own:
            parameter.data = data.contiguous(memory_format=torch.channels_last)
        try:
            result = self.model(*inputs)
        finally:
            for parameter, data in own:
                parameter.data = data
        leaves: list[torch.Tensor] = []
        packed = pack(result, leaves)
        devices = sorted({t.device.type for t in leaves})
        handles = [t if isinstance(t, Handle) else to_gpu(t) for t in leaves]
        places = [self.stream.place(t.inner) for t in handles]
        kinds = sorted({type(t).__name__ for t in leaves} - PLAIN)
        if not forward.holds:
            self.results.clear()
        self.results.append((inputs, result))
        after = [self.stream.place(t.inner) for t in given]  # its data may be another's
        return Returned(packed, places, after, devices, kinds, _rearranged(inputs, forward, given))

    def branches(self) -> list[int]:
        """Return the numbers of branches (`curate.problem.branches`) taken, and forget them."""
        taken = sorted(self.taken)
        self.taken.clear()
        return taken

    def configurations(self) -> dict[str, int]:
        """Return how many configurations of its tuned kernels were not taken so far."""
        return self.launches.untried()

    def kept(self) -> str:
        """Return a digest of what the program's host functions keep."""
        return kept_state(vars(self.program.module), self.model)

    def _given(self, places: list[TensorPlace]) -> list[Handle]:
        """Return inputs: where they lie as before the same objects, whose values are others."""
        key = repr(places)
        if key not in self.inputs:
            if len(self.inputs) >= KEPT:
                del self.inputs[next(iter(self.inputs))]
            made = [self.stream.adopt(place) for place in places]
            self.inputs[key] = [(Handle(inner), inner) for inner in made]
        for handle, inner in self.inputs[key]:
            handle.inner = inner
        return [handle for handle, _ in self.inputs[key]]

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Tell the executor where a call ends, however it does."""
        try:
            yield
        except ExecutorStopped as error:
            raise Refusal("skip", "stopped", str(error)) from error
        finally:
            with contextlib.suppress(ConnectionClosed):
                self.stream.end()


def _rearranged(inputs: Any, forward: Forward, given: list[Handle]) -> bool:
    """Whether a call has taken things out of lists and dicts of a caller, or put others there."""
    leaves: list[torch.Tensor] = []
    try:
        packed = pack(inputs, leaves)
    except WireError:
        return True
    return packed != forward.inputs or [*map(id, leaves)] != [*map(id, given)]


def _large_state(model: nn.Module, expected: list[tuple[str, list[int]]]) -> set[int]:
    """Return the addresses of large tensors of a state that the judge is going to write."""
    state = model.state_dict()
    if [(name, list(value.shape)) for name, value in state.items()] != expected:
        return set()
    return {
        value.data_ptr()
        for value in state.values()
        if value.device.type == "cpu" and value.untyped_storage().nbytes() >= LARGE_STATE
    }


class Nowhere:
    """A channel on which everything is lost: what a warm process works on before it forks."""

    def send(self, message: Message, tensors: Tensors | None = None) -> None:
        """Lose a message."""

    hold = send


def warm(target: Device) -> Callable[[Channel, socket.socket], None]:
    """Load what programs need, before children are forked; return what a child does."""
    return functools.partial(serve, prepare(target))


def prepare(target: Device) -> HostLaunches:
    """Let ``torch.cuda`` and Triton find a device in this process, for good."""
    virtual_cuda.install(target)
    launches = HostLaunches(target)
    launches.install()
    task, stream = LoadedTask(EXAMPLE[0]), CommandStream(Nowhere())  # type: ignore[arg-type]
    with torch.no_grad(), on_device(stream):
        model = LoadedProgram(EXAMPLE[1]).build(0, task.init_inputs()).to("cuda")
        model(*(to_gpu(value) for value in task.inputs()))
        layer = nn.Sequential(nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Linear(6, 4))
        x = layer.eval().to("cuda")(torch.randn(1, 2, 8, 8, device="cuda"))
        x = torch.softmax(x.mean(-1) @ x.sum(-1).transpose(-1, -2).half().float(), -1)
        torch.cat([x, x.new_zeros(1, 2, 1)], -1).clamp(min=0).contiguous().view(-1).copy_(
            x.new_ones(1)
        )
    launches.lowering = Lowering(target)  # forgets what was lowered
    return launches


def serve(launches: HostLaunches, channel: Channel, executor: socket.socket) -> None:
    """Serve the judge on a channel, in a child of its own."""
    torch.set_grad_enabled(False)
    stream = CommandStream(Channel(executor))
    half = HostHalf(stream, launches)

    def report(rule: str, event: str, line: int) -> None:
        channel.send({"event": rule, "what": event, "line": line})

    changed = watch_judge(*_accounts(half))

    def watched(serve_it: Handler) -> Handler:
        def handler(given: Packed, tensors: Tensors) -> tuple[object, Tensors]:
            try:
                return serve_it(given, tensors)
            finally:
                if what := changed():
                    report("alters_judge", what, 0)
                elif launches.turn != given.get("turn", launches.turn):
                    report("alters_judge", "turn", 0)
                if what := clocks():
                    report("sets_clock", what, 0)

        return handler

    watch_events(report, half.name)
    handlers = handlers_of(half.load, half.build, half.run)
    handlers = {name: watched(handler) for name, handler in handlers.items()}
    handlers |= handlers_of(half.branches, half.configurations, half.kept)
    for name in [n for n in sys.modules if n.partition(".")[0] == "curate"]:
        del sys.modules[name]  # a program that looks for the judge finds none
    with on_device(stream):
        clocks = watch_clocks()
        serve_requests(channel, handlers)


def _accounts(half: HostHalf) -> list[Any]:
    """Return where functions are that say what a program asks for, and the objects that hold it."""
    modules = [m for name, m in sys.modules.items() if name.startswith(__package__ + ".")]
    classes = [c for m in modules for c in vars(m).values() if isinstance(c, type)]
    own = [c for c in dict.fromkeys(classes) if c.__module__.startswith("curate.")]
    return [*modules, *own, JITFunction, Autotuner, half, half.stream, half.stream.streams]
