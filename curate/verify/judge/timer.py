"""The judge's side of timing: what is timed, at which size, how often, and what the times say.

A candidate's time is that of its commands, done again by the executor on fresh inputs; PyTorch's is
that of the same calls in the reference's process; `curate.verify.timing` has what a process does.
The judge has them take turns, and compares what the candidate gives in the middle of its runs.
Nothing but a wrong result makes a program a cheat here.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curate.problem.draw import Draw, Variation, parameters_seed
from curate.problem.values import list_tensors, map_tensors
from curate.verify.executor.replay import Replays
from curate.verify.judge.check import CandidateCheck, EarlyVerdict
from curate.verify.judge.oracle import Expected, NoOracle, TimedOracle, TrySize
from curate.verify.judge.session import RequestRefused, SessionEnded
from curate.verify.protocol.compare import Mismatch
from curate.verify.reference.timed import COMPILED, EAGER
from curate.verify.timing import FLUSH_BYTES, LEAST_SCALE

CANDIDATE, OVERHEAD = "candidate", "overhead"

LONG_US = 100.0
"""Sizes grow until eager PyTorch takes as long: what is shorter is the overhead of launches."""

MOST_BYTES = 1 << 30
"""Bytes of inputs and results up to which they grow: what only moves them takes 250 us then, at
4 TB/s."""

NEEDS_BYTES = 2 << 30
"""Bytes that timing needs besides inputs, results and what is computed on the way: three buffers
that flush the cache, and one more process on the device."""

SETS, TIMED = 2, 2000
"""Sets of inputs, and what is added to the oracle's seed for the first."""

INSTANCE = 500
"""Number of the parameters that a program has when it is timed."""

MOST_TURNS = 32
"""Configurations of autotuners that are looked at."""

ROUNDS = 7
"""Runs of each program; a figure is the median of theirs."""

SPAN_US, FEWEST, MOST, QUICK = 30_000.0, 3, 100, 5
"""How long a run should take; the calls that it has at least and at most; and those of a run that
tells how long one takes."""

FLUSH_US = FLUSH_BYTES / 4e6
"""About how long the cache's flush takes, at 4 TB/s."""

RESOLVED = 3.0
"""Distances of the quartiles by which a time must be above the overhead."""

Ask = Callable[[str, int], list[float]]
"""``ask(name, n)`` returns the microseconds of n calls of a program."""


class Untimed(Exception):
    """A program cannot be timed; the message says why."""


# --- sizes ------------------------------------------------------------------------------------


def choose_size(own: int | None, try_size: TrySize) -> tuple[int | None, float]:
    """Return the size at which to time, None for the file's own, and how many times as many bytes
    inputs and results have there.

    It is doubled until eager PyTorch takes `LONG_US`, unless inputs and results would be more
    than `MOST_BYTES`, or do not depend on it, or the reference does not take it.
    """
    us, size = try_size(None)
    chosen, wanted, growth, own_bytes = None, own or 0, 1.0, max(1, size)
    while wanted > 0 and us < LONG_US and 2 * size <= MOST_BYTES:
        wanted, before = 2 * wanted, size
        try:
            us, size = try_size(wanted)
        except NoOracle:
            break
        if not before < size <= MOST_BYTES:
            break
        chosen, growth = wanted, size / own_bytes
    return chosen, growth


# --- figures ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallTimes:
    """Times of one program, in microseconds.

    Attributes:
        median: of the rounds' medians.
        spread: distance of the rounds' quartiles over the median.
        n: calls of each round.
    """

    median: float
    spread: float
    n: int


def measure(ask: Ask, names: Sequence[str], order: random.Random) -> dict[str, CallTimes]:
    """Time programs in turns, each turn in another order."""
    lengths = {name: _length(statistics.median(ask(name, QUICK))) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in order.sample(list(names), len(names)):
            found[name].append(statistics.median(ask(name, lengths[name])))
    return {
        name: CallTimes(
            statistics.median(medians),
            between_quartiles(medians) / max(statistics.median(medians), 1e-9),
            lengths[name],
        )
        for name, medians in found.items()
    }


def _length(us: float) -> int:
    return max(FEWEST, min(MOST, round(SPAN_US / (us + FLUSH_US))))


def between_quartiles(values: Sequence[float]) -> float:
    """Return the distance of the quartiles."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def to_json(
    times: Mapping[str, CallTimes], overhead: Sequence[float], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what was measured as a verdict has it; times in microseconds.

    A time that noise reaches is None, and so are the speedups with it.

    Args:
        times: of each program that was measured.
        overhead: microseconds between two events with nothing in between.
        known: what else is to be in it.
    """
    nothing = statistics.median(overhead) if overhead else 0.0
    noise = between_quartiles(overhead) if len(overhead) > 1 else 0.0
    resolved = {n: t for n, t in times.items() if t.median > nothing + RESOLVED * noise}
    values: dict[str, Any] = {}
    for name in (CANDIDATE, EAGER, COMPILED):
        prefix = "" if name == CANDIDATE else f"{name}_"
        one = resolved.get(name)
        values[f"{name}_us"] = None if one is None else round(one.median, 3)
        values[f"{prefix}spread"] = None if one is None else round(one.spread, 4)
        if name != CANDIDATE:
            both = one is not None and CANDIDATE in resolved
            ratio = resolved[name].median / resolved[CANDIDATE].median if both else None
            values[f"speedup_{name}"] = None if ratio is None else round(ratio, 4)
    values["overhead_us"] = round(nothing, 3) if overhead else None
    values["noise_us"] = round(noise, 3) if overhead else None
    values["iterations"] = times[CANDIDATE].n if CANDIDATE in times else None
    usual = {"size": None, "graph": None, "kernel_share": None}
    return {**values, **usual, "compile_problem": None, "problem": None, **known}


# --- a candidate ------------------------------------------------------------------------------


class Timer:
    """A correct candidate and its baselines: what is timed, at which size.

    Attributes:
        growth: how many times as many bytes as the file's own inputs and results those have that
            it is timed on.
        problem: why it cannot be timed, or None.
    """

    def __init__(self, check: CandidateCheck, oracle: TimedOracle) -> None:
        """Choose a size."""
        self.check, self.oracle, self.session = check, oracle, check.session
        known = check.options.draw_seed is not None
        self.random = random.Random(oracle.seed) if known else random.SystemRandom()
        self.expected: list[Expected] = []
        self.known: dict[str, Any] = {}
        self.problem: str | None = None
        self.graph = False  # whether the candidate's stream is replayed by one
        self.session.on_device = oracle.device != "cpu"
        self.check.built = None  # its state is to be where the oracle's tensors are
        self.chosen, self.growth = None, 1.0
        try:
            oracle.load()
            if check.own_size is not None:
                self.chosen, self.growth = oracle.size(check.mode, choose_size)
        except (NoOracle, SessionEnded) as error:
            self.problem = str(error)

    def prepare(self) -> None:
        """Have the candidate recorded at the size, and load the baselines.

        Raises:
            EarlyVerdict: it is wrong on an ordinary draw of the file's own size.
        """
        if self.problem is not None:
            return
        oracle, chosen = self.oracle, self.chosen
        try:
            try:
                self._prepare(chosen)
            except Untimed:
                if chosen is None:
                    raise
                chosen = None
                self._prepare(chosen)
            baselines = oracle.prepare([one.draw for one in self.expected])
            self.known["size"] = chosen
            self.known["compile_problem"] = baselines.compile_problem
            self.known["graph"] = self.graph and all(baselines.graphs.values())
            self.baselines = list(baselines.graphs)
        except (Untimed, NoOracle, RequestRefused, SessionEnded) as error:
            self.problem = str(error)

    def _prepare(self, size: int | None) -> None:
        """Have the candidate recorded at a size, and ready to be replayed.

        Raises:
            Untimed: it cannot be; at another size than the file's own, whatever the reason.
        """
        self.expected = self._draw(size)
        try:
            self._record()
        except (RequestRefused, EarlyVerdict) as error:
            if size is None and isinstance(error, EarlyVerdict):
                raise
            raise Untimed(f"at size {size or 'of its own'}: {error}") from error

    def _draw(self, size: int | None) -> list[Expected]:
        """Return sets of inputs with what is right for them: one only, if two are not alike."""
        parameters = parameters_seed(self.oracle.seed, INSTANCE)
        found = []
        for i in range(SETS):
            seed = self.oracle.seed + TIMED + i
            factor = random.Random(seed).uniform(LEAST_SCALE, 1.0)
            changes = (Variation("scale", "inputs", factor),)
            draw = Draw(seed, parameters, size=size, mode=self.check.mode, changes=changes)
            found.append(self.oracle.expect(draw))
        if found[0].draw.size != size:
            raise Untimed(f"the reference does not take the size {size}")
        alike = _kind(found[0]) == _kind(found[1])
        return found if alike else found[:1]

    # recordings

    def _record(self) -> None:
        """Record the candidate's stream, with the fastest configuration of autotuners."""
        self._record_turn(0)  # what is made in the first call only is made
        streams: dict[str, int] = {}
        for turn in range(MOST_TURNS):
            stream = self._record_turn(turn)
            if stream in streams:
                break
            streams[stream] = turn
        turns = {turn: stream for stream, turn in streams.items()}
        if len(turns) > 1:
            times = {turn: self._time_turn(turn, stream) for turn, stream in turns.items()}
            best = min(times, key=lambda turn: times[turn])
            self._time_turn(best, turns[best])
        else:
            self.graph = self._replays()

    def _record_turn(self, turn: int) -> str:
        did = self.check.record(self.expected[0], turn)
        if did.values_asked:
            raise Untimed("it reads values, on which its commands depend")
        return did.stream

    def _time_turn(self, turn: int, stream: str) -> float:
        if self._record_turn(turn) != stream:
            raise Untimed("equal calls ask the device for other work")
        self.graph = self._replays()
        return statistics.median(self._ask(CANDIDATE, QUICK))

    def _replays(self) -> bool:
        """Have the executor prepare replays of what was recorded; say whether by a graph."""
        tensors = [t for one in self.expected for t in list_tensors(one.drawn.inputs)]
        scales = [_scale(one.draw) for one in self.expected]
        return self.session.executor.ask(Replays.prepare_timing, tensors, scales)

    # measuring

    def run(self) -> dict[str, Any]:
        """Measure, with the device alone; return a verdict's `timing`.

        Raises:
            EarlyVerdict: a replay gave a wrong result.
        """
        if self.problem is None:
            try:
                return self._measure()
            except (Untimed, NoOracle, RequestRefused, SessionEnded) as error:
                self.problem = str(error)
        return to_json({}, [], {**self.known, "problem": self.problem})

    def _measure(self) -> dict[str, Any]:
        overhead = [us for _ in range(3) for us in self._ask(OVERHEAD, MOST)]
        times = measure(self._ask, [CANDIDATE, *self.baselines], self.random)
        try:
            share = self.session.executor.ask(Replays.profile)
            self.known["kernel_share"] = None if share is None else round(share, 4)
        except RequestRefused as refused:
            self.known["profile_problem"] = refused.message
        return to_json(times, overhead, self.known)

    def _ask(self, name: str, n: int) -> list[float]:
        seed = self.random.getrandbits(53)
        if name in (EAGER, COMPILED):
            return self.oracle.time(name, n, seed)
        chosen = self.random.randrange(len(self.expected))
        check = (self.random.randrange(n), chosen) if name == CANDIDATE else None
        did = self.session.executor.ask(Replays.time, n, seed, name == CANDIDATE, check)
        if check:
            self._compare(self.expected[chosen], did.changed, did.found)
        return did.times

    def _compare(self, expected: Expected, changed: list[int], found: list[Any]) -> None:
        """Raise `EarlyVerdict` unless what a replay gave is right."""
        results = self.session.replayed(changed, found, expected.drawn.inputs)
        try:
            expected.compare(results)
        except Mismatch as mismatch:
            shown = {"trial": expected.draw.to_json(), "what": mismatch.reason}
            raise EarlyVerdict(
                "cheat", "wrong_when_timed", **shown, **mismatch.evidence
            ) from mismatch


def _scale(draw: Draw) -> float | None:
    """Return what a draw's inputs have been multiplied with; None if the reference refused."""
    return next((float(c.value) for c in draw.changes if c.what == "scale"), None)


def _kind(expected: Expected) -> str:
    """Return what must be equal for two sets of inputs to be for one recording."""
    inputs = expected.drawn.inputs
    forms = [(t.shape, t.dtype, t.stride()) for t in list_tensors(inputs)]
    return repr((forms, map_tensors(inputs, lambda tensor: None), expected.draw.size))
