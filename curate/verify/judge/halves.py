"""The judge's end of a candidate: its Python in one process, its numbers in another.

`Halves` answers what `curate.verify.judge.check` asks of a candidate. The host half (`host_half`)
runs the program's Python on handles; the executor does the work and says what was done. Whatever
the host half claims is checked against the executor's account, or is of no use to a program.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import socket
from collections.abc import Sequence
from typing import Any

from curate.problem.values import Tensors, list_tensors, map_tensors, same_tensors
from curate.verify.host_half.stream import FEW_LAPS, JUDGES
from curate.verify.judge.session import Host, Lasting, RequestRefused, Session, SessionEnded
from curate.verify.judge.work import by_host, by_operators, who_worked
from curate.verify.protocol.places import TensorPlace, read_place
from curate.verify.protocol.role import PERMUTED, Answer, layout_of, mutated_inputs
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

CPU_BYTES = 2**33
"""Bytes of tensors that a program may have on the CPU."""

OPENING_S = 60.0
"""Seconds that an executor may take to have its device, which are not the candidate's."""

MOST_MET = 200
"""Candidates after which the executor's process is replaced, so that leaks cannot grow."""

HELD = 4
"""Calls whose results, and whose inputs, are looked at again after later calls."""

MANY_LAPS, LAP_COMMANDS = 320, 1300
"""Forwards that are compared by their commands alone, and how many commands may be made for
them."""


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
        most = self.host.target.memory if self.host.device else CPU_BYTES
        session.request("meet", most_bytes=most)
        self.met += 1
        return session

    def _start(self, seconds: float) -> Session:
        self.departures, arrivals = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.met = 0
        with arrivals:
            session = self.process.start(OPENING_S, arrivals)
        if self.host.device:
            session.request("open", target=dataclasses.asdict(self.host.target))
        session.seconds = seconds
        return session

    def part(self) -> None:
        """Have the process forget its candidate; one that cannot do so at once is ended."""
        session = self.process.at_hand(PARTING_S)
        if session is None:
            return
        try:
            broken = session.request("part")[0]["broken"]
        except (SessionEnded, RequestRefused):
            broken = True
        if broken or self.met >= MOST_MET:
            session.close("superseded")


class Halves:
    """A conversation with both halves of one candidate.

    Attributes:
        events: what the host half reported that the program reached for.
        kernels: that the first call launched: names, TTIR and options.
        other_kernels: that calls launched which took other branches (`note_other_kernels`).
        seconds: how long the candidate may still take.
    """

    def __init__(
        self,
        host: Host,
        device: ExecutorProcess,
        seconds: float,
        elements: float,
        on_device: bool = False,
    ) -> None:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.elements = elements  # that are left
        self.on_device = on_device  # where the judge has its tensors
        self.device = device
        self.executor = device.meet(other, seconds)
        self.host = host.open(seconds, one)
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
        self.kernels: list[Any] = []
        self.other_kernels: list[Any] = []
        self.limit = MAX_PAYLOAD
        self.said: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """Whether both halves are there."""
        return self.host.is_open and self.executor.is_open

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the program reached for, as its own process claims."""
        return self.host.events

    @property
    def seconds(self) -> float:
        """Seconds that are left."""
        return min(self.host.seconds, self.executor.seconds)

    def ask(self, do: str, tensors: Tensors | None = None, limit: int = 0, **fields: Any) -> Answer:
        """Answer a request.

        - ``load {source, ptx, precision}``: run the file's text;
        - ``build {init, names, state, parameters, mode}``: construct ``ModelNew`` and give it the
          state; the answer holds its own names and state if they are others;
        - ``set_state {names, state, theirs}``: give it the state by its own names;
        - ``run {inputs, seed, fresh, layout, weighed, holds}``: one forward, its
          results, and what it did; ``holds``: those of calls before are kept, as a caller may
          keep them; ``weighed``: also who did the work; ``record``: the number of the turn,
          for a call that the executor is to do again (`replay`);
        - ``ablate {inputs, seed, refuse}``: one forward whose launches are left out, or raise;
        - ``burst {inputs, seed, count}``: many forwards, of whose results one comes back, what they
          have changed of calls before (``harmed``), and whether they keep a state of their own;
        - ``branches``: which ones (`curate.problem.branches`) the host half claims to have taken
          since it was last asked;
        - ``grids``: the largest grid of each kernel that the last call launched, axis by axis.

        Raises:
            RequestRefused: the program did something wrong.
            SessionEnded: one of the processes is gone or late.
        """
        handlers = {
            "load": self._load,
            "build": self._build,
            "set_state": self._set_state,
            "run": self._run,
            "ablate": self._ablate,
            "burst": self._burst,
            "branches": self._branches,
            "grids": self._grids,
        }
        self.limit = limit or MAX_PAYLOAD
        return handlers[do](fields, tensors or [])

    def close(self, kill: str | None = "done") -> dict[str, Any]:
        """End the host half, and have the executor forget the candidate."""
        ended = self.host.close(kill)
        self.device.part()
        return ended

    # one call

    def _begin(self, places: list[TensorPlace], values: Tensors, **how: Any) -> None:
        usual = {"skip": False, "dry": False, "keep": False, "seed": 0, "order": 0}
        known = {**usual, "precision": None, "record": False, "shares": self.on_device, **how}
        self.executor.request(
            "begin",
            [value.detach() for value in values],
            places=[place.to_json() for place in places],
            elements=max(0, self.elements),
            seconds=MOST_SECONDS * self.executor.seconds,
            **known,
        )

    def _call(
        self,
        do: str,
        tensors: Tensors | None = None,
        watched: Sequence[TensorPlace] = (),
        **how: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], Tensors]:
        """Have the host half do something; return what it said and what the executor did.

        The tensors are those at the places that it said, then those at ``watched`` places that
        have changed, then what operators and uploads gave; see `Executor.finish`.

        Raises:
            RequestRefused: by the executor's account if it has one, or else by the host half's.
        """
        number = next(self.calls)
        refused = None
        said: dict[str, Any] = {}
        try:
            said, _ = self.host.request(do, tensors, MOST_SAID, **how)
        except RequestRefused as error:
            refused = error
        outputs = said.get("places", [])
        if not isinstance(outputs, list) or len(outputs) > 10_000:
            raise WireError("not a list of places")
        given = said.get("given", [])  # where the program has left its inputs and its state
        now = list(watched)
        if isinstance(given, list) and len(given) <= len(now):
            now[: len(given)] = map(read_place, given)
        did, found = self._finish(number, outputs, watched, now)
        if refused is not None:
            raise _claimed(refused)
        return said, did, found

    def _finish(
        self,
        number: int | None,
        places: Sequence[Any] = (),
        watched: Sequence[TensorPlace] = (),
        now: Sequence[TensorPlace] = (),
    ) -> tuple[dict[str, Any], Tensors]:
        did, found = self.executor.request(
            "finish",
            number=number,
            places=list(places),
            watched=[[a.to_json(), b.to_json()] for a, b in zip(watched, now, strict=True)],
            most=self.limit,
        )
        self.elements -= did["elements"]
        self.executor.host.waited["compile"] += did["compiled_s"]
        return did, found

    def _load(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        ptx = request["ptx"]
        sha256 = None if ptx is None else hashlib.sha256(ptx.encode()).hexdigest()
        self._begin([], [], precision=request["precision"], ptx=sha256)
        self._call("load", source=request["source"], ptx=ptx)
        return {}, []

    def _build(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        init = unpack(request["init"], tensors)
        names, values = unpack(request["names"], tensors), unpack(request["state"], tensors)
        sent: Tensors = []
        packed = pack(init, sent)
        self._begin([], [], seed=request["parameters"])
        self.held.clear()
        said, _, _ = self._call(
            "build",
            sent,
            init=packed,
            parameters=request["parameters"],
            mode=request["mode"],
            state=[[name, list(value.shape)] for name, value in zip(names, values, strict=True)],
        )
        self.state = [(str(name), read_place(place)) for name, place in said["state"]]
        own = [name for name, _ in self.state]
        shapes = {name: tuple(place.shape) for name, place in self.state}
        fits = own == names and all(
            shapes[name] == tuple(value.shape) for name, value in zip(names, values, strict=True)
        )
        if fits:
            self._give_state(names, values)
            return {"names": None}, []
        _, initial = self._finish(None, [place.to_json() for _, place in self.state])
        found: Tensors = []
        return {"names": pack(own, found), "state": pack(initial, found)}, found

    def _set_state(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        names = unpack(request["names"], tensors)
        self.pairs = dict(zip(names, request["theirs"], strict=True))
        self._give_state(names, unpack(request["state"], tensors))
        return {}, []

    def _give_state(self, names: list[str], values: Tensors) -> None:
        """Write the state; it is written again where a forward has changed it."""
        places = dict(self.state)
        values = [value.to(places[name].dtype) for name, value in zip(names, values, strict=True)]
        self.given_state = names, values
        self._begin([places[name] for name in names], values)
        self.spoiled = False

    def _run(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        recorded = request.get("record")
        self.turn = self.turn + 1 if recorded is None else recorded
        record = recorded is not None
        answer = self._forward(request, tensors, keep=request["weighed"], record=record)
        if self.turn == 1 and not record:
            self.kernels = self.executor.request("kernels")[0]["kernels"]
        return answer

    def note_other_kernels(self) -> None:
        """Take note of the kernels of the last call that no such call before has launched."""
        known = [*self.kernels, *self.other_kernels]
        last = self.executor.request("kernels")[0]["kernels"]
        self.other_kernels += [kernel for kernel in last if kernel not in known]

    def _ablate(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        self.turn += 1  # as in any other run
        skip = request["refuse"] == "skip"
        return self._forward(request, tensors, skip=skip, refuse=not skip)

    def _burst(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run many forwards: where they send the same commands, one result stands for all.

        Where a call reads values, or writes to memory that is older than itself, as a counter on
        the device would be, the same commands may do something else; such calls are all done.
        """
        _, found = self._forward({**request, "fresh": True}, tensors)
        again, other = self._forward(request, tensors)
        own = {place.storage for _, place in self.state}
        again |= {"harmed": self._harmed(), "keeps_state": bool({*again["wrote_old"]} - own)}
        if not same_tensors(found, other):
            return again, other
        if not again["values_asked"] and not again["wrote_old"]:
            if self._laps(request, tensors, again) == {again["stream"]}:
                return again, other
            again["unsteady"] = True
        counts = again["keeps_state"] and not again["values_asked"]
        for _ in range(max(request["count"], _laps_for(again) if counts else 0)):
            more, third = self._forward(request, tensors)
            if not same_tensors(other, third):
                return {**again, **more}, third
        return again, other

    def _branches(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        taken = self.host.request("branches", limit=MOST_SAID)[0].get("taken")
        if not isinstance(taken, list) or not all(type(number) is int for number in taken):
            raise WireError("not a list of branches")
        return {"taken": taken}, []

    def _grids(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        return self.executor.request("grids")

    def _laps(self, request: dict[str, Any], tensors: Tensors, like: dict[str, Any]) -> set[str]:
        """Return the streams of many forwards in a row, of which none is done."""
        inputs = unpack(request["inputs"], tensors)
        given = list_tensors(inputs)
        places = self._input_places(given, request)
        self._begin(places, [t.detach() for t in given], seed=request["seed"], dry=True)
        self.held.clear()
        request = {**request, "holds": False}
        try:
            _, did, _ = self._run_program(request, inputs, places, laps=_laps_for(like))
        except RequestRefused as refused:
            return {refused.reason}
        return set(did["laps"])

    def _harmed(self) -> list[str]:
        """Return what later calls have changed of the last calls: their results or inputs."""
        found, left = set(), self.elements
        self.limit = MAX_PAYLOAD  # they may be of other sizes
        for places, results, inputs in self.held:
            did, now = self._finish(None, [p.to_json() for p in places], inputs, inputs)
            found |= {"results"} if not same_tensors(results, now[: len(places)]) else set()
            found |= {"inputs"} if did["changed"] else set()
        self.elements = left  # that call's work has been counted
        return sorted(found)

    def _hold(self, did: dict[str, Any], found: Tensors, inputs: list[TensorPlace]) -> None:
        """Take note of a call's results, but for what lies in its inputs or in the state."""
        known = {place.storage for place in (*inputs, *(place for _, place in self.state))}
        pairs = [(read_place(p), t) for p, t in zip(self.said["places"], found, strict=False)]
        kept = [(p, t) for p, t in pairs if p.storage not in known]
        results = [t.clone() if self.on_device else t for _, t in kept]
        changes = any(i < len(inputs) for i in did["changed"])
        self.held.append(([p for p, _ in kept], results, [] if changes else inputs))

    def _forward(
        self,
        request: dict[str, Any],
        tensors: Tensors,
        skip: bool = False,
        refuse: bool = False,
        keep: bool = False,
        record: bool = False,
    ) -> Answer:
        inputs = unpack(request["inputs"], tensors)
        given = list_tensors(inputs)
        places = self._input_places(given, request)
        values = [t.detach() for t in given]
        if self.spoiled:
            self._give_state(*self.given_state)
        how = {"skip": skip, "keep": keep, "record": record}
        self._begin(places, values, seed=request["seed"], order=self.turn, **how)
        self.spoiled = True
        said, did, found = self._run_program(request, inputs, places, refuse)
        lists = [said.get(name) for name in ("places", "devices", "subclasses")]
        if "output" not in said or not all(isinstance(one, list) for one in lists):
            raise WireError("not what a run is answered by")
        self.said = said
        if not request.get("holds"):
            self.held.clear()
        elif not skip and not refuse:
            self._hold(did, found, places)
        return self._answer(said, did, found, inputs)

    def _run_program(
        self,
        request: dict[str, Any],
        inputs: Any,
        places: list[TensorPlace],
        refuse: bool = False,
        laps: int = 1,
    ) -> tuple[dict[str, Any], dict[str, Any], Tensors]:
        return self._call(
            "run",
            None,
            [*places, *(place for _, place in self.state)],
            inputs=pack(inputs, []),
            places=[place.to_json() for place in places],
            seed=_unrelated(request["seed"]),
            turn=self.turn,
            refuse=refuse,
            laps=laps,
            holds=bool(request.get("holds")),
            permuted=request.get("layout") == PERMUTED,
        )

    def _answer(
        self, said: dict[str, Any], did: dict[str, Any], found: Tensors, inputs: Any
    ) -> Answer:
        now = len(said["places"]) + len(did["changed"])
        results = self._results(said, did["changed"], found[:now], inputs)
        given = list_tensors(inputs)
        self.spoiled = any(i >= len(given) for i in did["changed"])
        own = len(said["places"]) + sum(i < len(given) for i in did["changed"])  # but for state
        sent: Tensors = []
        packed = {name: pack(value, sent) for name, value in results.items()}
        there = "cuda" if self.on_device else "cpu"
        named = [(n, t.to(there)) for n, t in zip(did["kept"], found[now:], strict=True)]
        outputs_found = list_tensors(results["output"])
        work = who_worked(named, [*given, *self.given_state[1]], outputs_found)
        return {
            **did,
            **packed,
            "subclasses": said["subclasses"],
            "devices": said["devices"],
            "was_ready": work.ready,
            "by_operators": by_operators(did["by_operators"][:own], found[:own]),
            "by_host": work.uploaded or by_host(did, given, outputs_found),
            "unsteady": False,
        }, sent

    def replayed(self, changed: list[int], found: Tensors, inputs: Any) -> dict[str, Any]:
        """Return what a replay of the last recorded call gave on some inputs.

        Args:
            changed: positions of what the judge had written that held other values afterwards.
            found: outputs, then those.
            inputs: the inputs.
        """
        self.spoiled = True
        return self._results(self.said, changed, found, inputs)

    def _results(
        self, said: dict[str, Any], changed: list[int], found: Tensors, inputs: Any
    ) -> dict[str, Any]:
        """Return a call's output, and the inputs and the state as it left them."""
        outputs = len(said["places"])
        after = dict(zip(changed, found[outputs:], strict=True))
        given = list_tensors(inputs)
        replaced = iter([after.get(i, tensor) for i, tensor in enumerate(given)])
        state = {
            self.pairs.get(name, name): after.get(i, value)
            for i, (name, value) in enumerate(zip(*self.given_state, strict=True), len(given))
        }
        return {
            "output": unpack(said["output"], found[:outputs]),
            "changed": mutated_inputs(map_tensors(inputs, lambda _: next(replaced)), inputs),
            "state": state,
            "changed_state": [n for i, n in enumerate(state, len(given)) if i in after],
        }

    def _input_places(self, given: Tensors, request: dict[str, Any]) -> list[TensorPlace]:
        """Return where inputs go: to where the last ones of their form were, if they may."""
        layout = request.get("layout")
        anew = layout or request.get("fresh")
        kind = repr([(t.shape, t.dtype, t.stride()) for t in given])
        if not anew and kind in self.inputs:
            return self.inputs[kind]
        places = []
        for tensor in given:
            found = layout_of(tensor.shape, layout) if layout else None
            stride, offset = found or (tuple(tensor.stride()), 0)
            shape = tuple(tensor.shape)
            places.append(TensorPlace(next(self.numbers), tensor.dtype, shape, stride, offset))
        if not anew:
            self.inputs[kind] = places
        return places


def _laps_for(did: dict[str, Any]) -> int:
    """Return how many forwards there may be of a call that sends so many commands."""
    return max(FEW_LAPS, min(MANY_LAPS, LAP_COMMANDS // max(1, int(did["commands"]))))


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
