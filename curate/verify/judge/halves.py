"""The judge's end of a candidate: its Python in one process, its numbers in another.

`Halves` does what `curate.verify.judge.check` asks of a candidate. The host half (`host_half`)
runs the program's Python on handles; the executor does the work and says what was done. Whatever
the host half claims is checked against the executor's account, or is of no use to a program.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import math
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch

from curate.problem.values import Tensors, list_tensors, map_tensors, same_tensors
from curate.verify.executor.serve import CandidateExecutor, ExecutorServer
from curate.verify.host_half.serve import HostHalf
from curate.verify.host_half.stream import FEW_LAPS, JUDGES
from curate.verify.judge.session import (
    Host,
    HostEvent,
    Lasting,
    RequestRefused,
    Session,
    SessionEnded,
)
from curate.verify.judge.work import by_host, holds_for_most, list_movers, who_worked
from curate.verify.protocol.messages import (
    CallAccount,
    CallLimits,
    Forward,
    LaunchedKernel,
    Results,
    Returned,
)
from curate.verify.protocol.places import TensorPlace, overlap
from curate.verify.protocol.role import PERMUTED, STRIDED, layout_of, mutated_inputs
from curate.verify.protocol.wire import MAX_PAYLOAD, WireError, pack, unpack

STOPPED = "stopped"
"""Why the host half gives up when the executor does no more: the executor knows the reason."""

MOST_SECONDS = 0.9
"""Share of the seconds left after which the executor says that they were not enough: a verdict can
rest on the draws before that, and not on a process that is killed."""

PARTING_S = 2.0
"""Seconds that the executor may take to forget a candidate."""

MOST_SAID = 2**20
"""Bytes of tensors that a host half may send: it has none, and could fill the judge's memory."""

MOST_PLACES = 10_000
"""Tensors that a result may have."""

CPU_BYTES = 2**33
"""Bytes of tensors that a program may have on the CPU."""

OPENING_S = 60.0
"""Seconds that an executor may take to have its device, which are not the candidate's."""

MOST_MET = 200
"""Candidates after which the executor's process is replaced, so that leaks cannot grow."""

HELD = 4
"""Calls whose results, and whose inputs, are looked at again after later calls."""

AHEAD, MOST_AHEAD = 16, 12
"""Elements that keep what follows aligned, and how many times as many others may lie before an
input that is a new object."""

TURNS = 2
"""Configurations of each tuned kernel that a device runs, where a CPU runs all in turn: to compile
one takes longer than all calls."""

IN_GAPS = 7
"""What lies between the elements of an input with gaps."""

MANY_LAPS, LAP_COMMANDS = 320, 1300
"""Forwards that are compared by their commands alone, and how many commands may be made for
them."""


Said = TypeVar("Said")


class CandidateResults(Results):
    """A candidate's; ``changed_state`` names what it changed of its state."""

    changed_state: list[str]


@dataclass(frozen=True)
class ForwardRun:
    """One forward.

    Attributes:
        inputs: the arguments.
        seed: of random operators.
        limit: bytes of results that are taken.
        holds: whether results of calls before are kept, as a caller may keep them.
        fresh: whether the inputs are new objects.
        layout: how they lie in memory, if not as they would anyway.
    """

    inputs: list[Any]
    seed: int
    limit: int
    holds: bool
    fresh: bool = False
    layout: str | None = None


@dataclass(frozen=True)
class Ran:
    """What a forward gave and did.

    Attributes:
        results: what it gave.
        did: the executor's account.
        subclasses, devices: of the results, as the host half says.
        rearranged: whether it says that lists and dicts of the caller hold other things.
        was_ready: whether operators had made the results before a launch.
        by_operators, by_host: whether most of the results are theirs.
        harmed: what a burst has changed of calls before it, or what a call has beside its inputs.
        keeps_state: whether a burst wrote to memory older than itself.
        counts: whether host functions kept something else after a burst than before it.
        unsteady: whether equal calls of a burst asked for other work.
        movers: operators that moved a good part of what it gave.
        shares: whether two of the results have memory in common, or one of them with an input or
            with the model's state.
        contiguous: whether the output lies in memory one element after the other.
        narrow: kernels that have an input or a result behind offsets of 32 bits: one of those of
            which there is most.
    """

    results: CandidateResults
    did: CallAccount
    subclasses: list[str]
    devices: list[str]
    rearranged: bool
    was_ready: bool
    by_operators: bool
    by_host: bool
    harmed: list[str] = field(default_factory=list)
    keeps_state: bool = False
    counts: bool = False
    unsteady: bool = False
    movers: list[str] = field(default_factory=list)
    shares: bool = False
    contiguous: bool = True
    narrow: list[str] = field(default_factory=list)


class ExecutorProcess:
    """The executor's process, for one host half after the other."""

    def __init__(self, host: Host) -> None:
        self.host, self.process = host, Lasting(host)
        self.departures: socket.socket  # carries connections with host halves
        self.met = 0

    def meet(self, peer: socket.socket, seconds: float) -> Session:
        """Return the session, for at most so many seconds with the host half at the other end."""
        session = self.process.at_hand(seconds) or self._start(seconds)
        socket.send_fds(self.departures, [b"!"], [peer.fileno()])
        options = self.host.options
        most = options.target.memory if options.device else CPU_BYTES
        session.ask(ExecutorServer.meet, most)
        self.met += 1
        return session

    def _start(self, seconds: float) -> Session:
        self.departures, arrivals = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.met = 0
        with arrivals:
            session = self.process.start(OPENING_S, arrivals)
        if self.host.options.device:
            session.ask(ExecutorServer.open, self.host.options.target)
        session.seconds = seconds
        return session

    def part(self) -> None:
        """Have the process forget its candidate; one that cannot do so at once is ended."""
        session = self.process.at_hand(PARTING_S)
        if session is None:
            return
        try:
            broken = session.ask(ExecutorServer.part)
        except (SessionEnded, RequestRefused):
            broken = True
        if broken or self.met >= MOST_MET:
            session.close("superseded")


class Halves:
    """A conversation with both halves of one candidate.

    Attributes:
        events: what the host half reported that the program reached for.
        kernels: that the first call launched.
        other_kernels: that calls launched which took other branches (`note_other_kernels`).
        kernels_meet: on a device, whether one of ``kernels`` reads through an argument that it
            writes through.
        exact: whether kernels are compiled anew for each call's sizes, as Triton does. Otherwise
            the first call's are, and a recorded one's, and what serves all sizes is for the rest.
    """

    def __init__(
        self,
        host: Host,
        device: ExecutorProcess,
        seconds: float,
        elements: float,
        on_device: bool = False,
        exact: bool = False,
    ) -> None:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.elements = elements  # that are left
        self.most = math.inf  # of them that one call may take
        self.on_device = on_device  # where the judge has its tensors
        self.exact = exact
        self.device = device
        self.executor = device.meet(other, seconds)
        self.host = host.open(seconds, one)
        self.host.limit = MOST_SAID
        one.close()
        other.close()
        self.calls = itertools.count()
        self.numbers = itertools.count(JUDGES)
        self.inputs: dict[str, list[TensorPlace]] = {}
        self.state: list[tuple[str, TensorPlace]] = []
        self.held: collections.deque[Any] = collections.deque(maxlen=HELD)  # see `_hold`
        self.turn = 0
        self.pairs: dict[str, str] = {}
        self.given_state: tuple[list[str], Tensors] = [], []
        self.spoiled = False
        self.kernels: list[LaunchedKernel] = []
        self.other_kernels: list[LaunchedKernel] = []
        self.kernels_meet = False
        self.limit = MAX_PAYLOAD
        self.said: Returned

    @property
    def is_open(self) -> bool:
        """Whether both halves are there."""
        return self.host.is_open and self.executor.is_open

    @property
    def events(self) -> list[HostEvent]:
        """What the program reached for, as its own process claims."""
        return self.host.events

    def close(self) -> None:
        """End the host half, and have the executor forget the candidate."""
        self.host.close()
        self.device.part()

    # one call

    def _begin(self, places: list[TensorPlace], values: Tensors, **how: Any) -> None:
        elements = max(0, min(self.elements, self.most))
        seconds = MOST_SECONDS * self.executor.seconds
        limits = CallLimits(elements, seconds, shares=self.on_device, **how)
        given = [value.detach() for value in values]
        with self._ending_what_broke():
            self.executor.ask(CandidateExecutor.begin, places, given, limits)

    @contextlib.contextmanager
    def _ending_what_broke(self) -> Iterator[None]:
        """End an executor whose device answers no more: whatever is asked next would fail."""
        try:
            yield
        except RequestRefused as refused:
            if refused.status == "crash":
                self.executor.close("broken")
            raise

    def _call(
        self, ask: Callable[[], Said], watched: Sequence[TensorPlace] = ()
    ) -> tuple[Said, CallAccount]:
        """Have the host half do something; return what it said and what the executor did.

        Raises:
            RequestRefused: by the executor's account if it has one, or else by the host half's.
        """
        number = next(self.calls)
        said, refused = None, None
        try:
            said = ask()
        except RequestRefused as error:
            refused = error
        places: list[TensorPlace] = []
        now = list(watched)
        if isinstance(said, Returned):
            places, given = said.places, said.given
            if len(places) > MOST_PLACES:
                raise WireError("too many places")
            if len(given) <= len(now):  # where the program has left its inputs and its state
                now[: len(given)] = given
        did = self._finish(number, places, watched, now)
        try:
            if refused is not None:
                raise _claimed(refused)
        finally:
            del refused  # its traceback holds this frame, and so what callers have drawn
        return cast(Said, said), did

    def _finish(
        self,
        number: int | None,
        places: Sequence[TensorPlace] = (),
        watched: Sequence[TensorPlace] = (),
        now: Sequence[TensorPlace] = (),
    ) -> CallAccount:
        pairs = list(zip(watched, now, strict=True))
        finish = CandidateExecutor.finish
        with self._ending_what_broke():
            did = self.executor.ask(finish, number, list(places), pairs, self.limit)
        self.elements -= did.elements
        self.executor.host.waited["compile"] += did.compiled_s
        return did

    def load(self, source: str, ptx: str | None, precision: dict[str, bool]) -> None:
        """Run the file's text.

        Raises, as all that follows:
            RequestRefused: the program did something wrong.
            SessionEnded: one of the processes is gone or late.
        """
        sha256 = None if ptx is None else hashlib.sha256(ptx.encode()).hexdigest()
        self.limit = MAX_PAYLOAD
        self._begin([], [], precision=precision, ptx=sha256)
        self._call(lambda: self.host.ask(HostHalf.load, source, ptx))

    def build(
        self, init: list[Any], names: list[str], values: Tensors, parameters: int, mode: str
    ) -> dict[str, torch.Tensor] | None:
        """Construct ``ModelNew`` and give it the state.

        Returns:
            The state that it starts with, if its names or shapes are others than those given.
        """
        self._begin([], [], seed=parameters)
        self.held.clear()
        self.limit = MAX_PAYLOAD
        shapes = [(name, list(value.shape)) for name, value in zip(names, values, strict=True)]
        self.state, _ = self._call(
            lambda: self.host.ask(HostHalf.build, init, parameters, mode, shapes)
        )
        if [(name, list(place.shape)) for name, place in self.state] == shapes:
            self._give_state(names, values)
            return None
        did = self._finish(None, [place for _, place in self.state])
        return dict(zip((name for name, _ in self.state), did.found, strict=True))

    def set_state(self, pairs: dict[str, str], state: dict[str, torch.Tensor]) -> None:
        """Give it the state by its own names; the pairs have the reference's for them."""
        self.pairs = pairs
        self._give_state(list(state), list(state.values()))

    def _give_state(self, names: list[str], values: Tensors) -> None:
        """Write the state; it is written again where a forward has changed it."""
        places = dict(self.state)
        values = [value.to(places[name].dtype) for name, value in zip(names, values, strict=True)]
        self.given_state = names, values
        self._begin([places[name] for name in names], values)
        self.spoiled = False

    def run(self, run: ForwardRun, weighed: bool = False, record: int | None = None) -> Ran:
        """Run one forward.

        Args:
            run: its inputs.
            weighed: whether to look at who did the work.
            record: the number of the turn, for a call that the executor is to do again.
        """
        self.turn = self.turn + 1 if record is None else record
        ran = self._forward(run, keep=weighed, record=record is not None)
        if self.turn == 1 and record is None:
            self.kernels = self.executor.ask(CandidateExecutor.launched_kernels)
            if self.executor.host.options.device:  # a CPU's executor sees every race itself
                self.kernels_meet = self.executor.ask(CandidateExecutor.kernels_meet)
        return ran

    def note_other_kernels(self) -> None:
        """Take note of the kernels of the last call that no such call before has launched."""
        known = [*self.kernels, *self.other_kernels]
        last = self.executor.ask(CandidateExecutor.launched_kernels)
        self.other_kernels += [kernel for kernel in last if kernel not in known]

    def ablate(self, run: ForwardRun, refuse: bool) -> Ran:
        """Run one forward whose launches are left out, or raise."""
        self.turn += 1  # as in any other run
        return self._forward(run, skip=not refuse, refuse=refuse)

    def burst(self, run: ForwardRun, count: int) -> Ran:
        """Run many forwards: where they send the same commands, one result stands for all.

        Where a call reads values, or writes to memory that is older than itself, as a counter on
        the device would be, the same commands may do something else; such calls are all done.
        """
        first = self._forward(dataclasses.replace(run, fresh=True))
        again = self._forward(run)
        own = {place.storage for _, place in self.state}
        keeps_state = bool({*again.did.wrote_old} - own)
        again = dataclasses.replace(again, harmed=self._harmed(), keeps_state=keeps_state)
        if not same_tensors(first.results, again.results):
            return again
        kept = self.host.ask(HostHalf.kept)
        last = self._repeat(run, again, count)
        return dataclasses.replace(last, counts=self.host.ask(HostHalf.kept) != kept)

    def _repeat(self, run: ForwardRun, again: Ran, count: int) -> Ran:
        """Run a forward of a burst many times more; return what one gave, if need be another."""
        if not again.did.values_asked and not again.did.wrote_old:
            if self._laps(run, again.did) == {again.did.stream}:
                return again
            again = dataclasses.replace(again, unsteady=True)
        may_count = again.keeps_state and not again.did.values_asked
        for _ in range(max(count, _laps_for(again.did) if may_count else 0)):
            more = self._forward(run)
            if not same_tensors(again.results, more.results):
                return dataclasses.replace(more, harmed=again.harmed, keeps_state=again.keeps_state)
        return again

    def branches(self) -> list[int]:
        """Return the branches (`curate.problem.branches`) that the host half claims to have taken.

        Those since this was last asked.
        """
        return self.host.ask(HostHalf.branches)

    def configurations(self) -> dict[str, int]:
        """Return how many configurations of tuned kernels the host half claims to have left out."""
        return self.host.ask(HostHalf.configurations)

    def grids(self) -> dict[str, list[int]]:
        """Return the largest grid of each kernel that the last call launched, axis by axis."""
        return self.executor.ask(CandidateExecutor.launched_grids)

    def _laps(self, run: ForwardRun, like: CallAccount) -> set[str]:
        """Return the streams of many forwards in a row, of which none is done."""
        given = list_tensors(run.inputs)
        places = self._input_places(given, run)
        self._begin(places, given, seed=run.seed, dry=True)
        self.held.clear()
        run = dataclasses.replace(run, holds=False)
        try:
            _, did = self._run_program(run, places, laps=_laps_for(like))
        except RequestRefused as refused:
            return {refused.reason}
        return set(did.laps)

    def _harmed(self) -> list[str]:
        """Return what later calls have changed of the last calls: their results or inputs."""
        found, left = set(), self.elements
        self.limit = MAX_PAYLOAD  # they may be of other sizes
        for places, results, inputs in self.held:
            did = self._finish(None, places, inputs, inputs)
            found |= {"results"} if not same_tensors(results, did.found[: len(places)]) else set()
            found |= {"inputs"} if did.changed else set()
        self.elements = left  # that call's work has been counted
        return sorted(found)

    def _hold(self, did: CallAccount, inputs: list[TensorPlace]) -> None:
        """Take note of a call's results, but for what lies in its inputs or in the state."""
        known = {place.storage for place in (*inputs, *(place for _, place in self.state))}
        pairs = zip(self.said.places, did.found, strict=False)
        kept = [(p, t) for p, t in pairs if p.storage not in known]
        results = [t.clone() if self.on_device else t for _, t in kept]
        changes = any(i < len(inputs) for i in did.changed)
        self.held.append(([p for p, _ in kept], results, [] if changes else inputs))

    def _forward(
        self,
        run: ForwardRun,
        skip: bool = False,
        refuse: bool = False,
        keep: bool = False,
        record: bool = False,
    ) -> Ran:
        given = list_tensors(run.inputs)
        places = self._input_places(given, run)
        if self.spoiled:
            self._give_state(*self.given_state)
        self.limit, exact = run.limit, self.exact or record or self.turn == 1
        how = {"skip": skip, "keep": keep, "record": record, "exact": exact}
        apart = zip(places, given, strict=True) if run.layout == STRIDED else ()
        pairs = [(place, tensor) for place, tensor in apart if place.offset]
        gaps = [dataclasses.replace(place, offset=0) for place, _ in pairs]
        others = [torch.full_like(tensor, IN_GAPS) for _, tensor in pairs]
        self._begin([*places, *gaps], [*given, *others], seed=run.seed, order=self.turn, **how)
        self.spoiled = True
        said, did = self._run_program(run, places, refuse, gaps=gaps)
        if said is None:
            raise WireError("not what a run is answered by")
        self.said = said
        if not run.holds:
            self.held.clear()
        elif not skip and not refuse:
            self._hold(did, places)
        return self._ran(said, did, run.inputs)

    def _run_program(
        self,
        run: ForwardRun,
        places: list[TensorPlace],
        refuse: bool = False,
        laps: int = 1,
        gaps: Sequence[TensorPlace] = (),
    ) -> tuple[Returned | None, CallAccount]:
        seed, permuted = _unrelated(run.seed), run.layout == PERMUTED
        turn = self.turn % TURNS if self.on_device else self.turn
        forward = Forward(pack(run.inputs, []), places, seed, refuse, laps, run.holds, permuted)
        return self._call(
            lambda: self.host.ask(HostHalf.run, turn, forward),
            [*places, *(place for _, place in self.state), *gaps],
        )

    def _ran(self, said: Returned, did: CallAccount, inputs: list[Any]) -> Ran:
        results = self._results(said, did.changed, did.found, inputs)
        given = list_tensors(inputs)
        self.spoiled = any(i >= len(given) for i in did.changed)
        own = len(said.places) + sum(i < len(given) for i in did.changed)  # but for state
        found = did.found[:own]
        beside = any(i >= len(given) + len(self.state) for i in did.changed)
        there = "cuda" if self.on_device else "cpu"
        named = [(name, tensor.to(there)) for name, tensor in did.kept]
        outputs = list_tensors(results["output"])
        work = who_worked(named, [*given, *self.given_state[1]], outputs)
        return Ran(
            results,
            did,
            said.subclasses,
            said.devices,
            said.rearranged,
            was_ready=work.ready,
            movers=list_movers(named, outputs),
            by_operators=holds_for_most(did.by_operators[:own], found),
            by_host=work.uploaded
            or by_host(did, given, outputs, holds_for_most(did.by_host[:own], found)),
            shares=overlap(
                said.places, [*said.given[: len(given)], *(place for _, place in self.state)]
            ),
            contiguous=all(place.is_contiguous for place in said.places),
            harmed=["gaps between inputs"] if beside else [],
            narrow=_narrow(did, [*said.places, *said.given[: len(given)]]),
        )

    def replayed(self, changed: list[int], found: Tensors, inputs: list[Any]) -> CandidateResults:
        """Return what a replay of the last recorded call gave on some inputs."""
        self.spoiled = True
        return self._results(self.said, changed, found, inputs)

    def _results(
        self, said: Returned, changed: list[int], found: Tensors, inputs: list[Any]
    ) -> CandidateResults:
        """Return a call's output, and the inputs and the state as it left them."""
        outputs = len(said.places)
        after = dict(zip(changed, found[outputs:], strict=True))
        given = list_tensors(inputs)
        replaced = iter([after.get(i, tensor) for i, tensor in enumerate(given)])
        state = {
            self.pairs.get(name, name): after.get(i, value)
            for i, (name, value) in enumerate(zip(*self.given_state, strict=True), len(given))
        }
        return {
            "output": unpack(said.output, found[:outputs]),
            "changed": mutated_inputs(map_tensors(inputs, lambda _: next(replaced)), inputs),
            "state": state,
            "changed_state": [n for i, n in enumerate(state, len(given)) if i in after],
        }

    def _input_places(self, given: Tensors, run: ForwardRun) -> list[TensorPlace]:
        """Return where inputs go: to where the last ones of their form were, if they may."""
        anew = run.layout or run.fresh
        kind = repr([(t.shape, t.dtype, t.stride()) for t in given])
        if not anew and kind in self.inputs:
            return self.inputs[kind]
        places = []
        for number, tensor in enumerate(given):
            found = layout_of(tensor.shape, run.layout, number) if run.layout else None
            # New objects may lie behind others, as slices do.
            ahead = AHEAD * (1 + run.seed % MOST_AHEAD) if run.fresh and not run.layout else 0
            stride, offset = found or (tuple(tensor.stride()), ahead)
            shape = tuple(tensor.shape)
            places.append(TensorPlace(next(self.numbers), tensor.dtype, shape, stride, offset))
        if not anew:
            self.inputs[kind] = places
        return places


def _narrow(did: CallAccount, places: list[TensorPlace]) -> list[str]:
    """Return kernels whose offsets of 32 bits span the largest of some tensors, or one of half its
    size."""
    most = max((place.extent for place in places), default=0)
    large = {place.storage for place in places if 2 * place.extent >= most}
    return sorted({kernel for kernel, storage in did.narrow if storage in large})


def _laps_for(did: CallAccount) -> int:
    """Return how many forwards there may be of a call that sends so many commands."""
    return max(FEW_LAPS, min(MANY_LAPS, LAP_COMMANDS // max(1, did.commands)))


def _claimed(refused: RequestRefused) -> RequestRefused:
    """Return what the host half says of itself, which cannot be that it is not to be judged.

    A class of the program's may be called like one of the judge's own reasons.
    """
    if refused.status == "unsupported" and refused.reason == "not_data":
        refused.status, refused.reason = "incorrect", "structure"
    elif refused.status in ("unsupported", "skip"):
        refused.status, refused.reason = "runtime_error", "claims_to_be_unsupported"
    elif refused.status == "runtime_error" and refused.reason.islower():
        refused.reason = f"class {refused.reason}"
    return refused


def _unrelated(seed: int) -> int:
    """Return a seed for the program's own process, from which the inputs' cannot be told."""
    return int(hashlib.sha256(f"program {seed}".encode()).hexdigest()[:13], 16)
