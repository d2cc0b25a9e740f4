"""How long one call takes, on a clock that the timed program cannot reach.

The judge sends "run n iterations with this nonce" to the process under test, and stops its own
clock when it holds the n checksums. `TimedModel` serves such a request. Each iteration

1. fills the input tensors, always the same objects, from one of K sets of master inputs which the
   nonce chooses, every floating tensor scaled by a number in [0.5, 1) which the nonce chooses;
2. writes a buffer of at least twice the size of the L2 cache;
3. calls the model;
4. projects each output on a vector of random signs drawn from the nonce, which gives one number.

So a program that defers its work, leaves it on another stream, repeats an old answer, replays a
graph on old inputs or computes less after some calls returns wrong numbers. Scaling keeps zeros,
signs, order, symmetry and the structure of masks, and integers stay as they are: what a program may
rely on still holds.

**Overhead.** The same loop without step 3, in the reference's process, is timed too and subtracted.
Its projections read the part of the buffer that was written last, since a model's outputs are in
the cache as well. Outputs that are not contiguous are made so, on the program's time.

**Slope.** The time of an iteration is the difference between a long run and a short run, divided by
the difference of their iterations: the request's way there and back cancels. The programs take
turns; which comes first, and whether its long run or its short one does, is drawn by the judge, so
that a program cannot slow its short runs down. The GPU has up to a thousand launches in its queue;
while it writes the buffer the host gets ahead, as in `triton.testing.do_bench`
(https://github.com/triton-lang/triton, python/triton/testing.py), so that what it takes to launch a
kernel is not counted, unless a program launches so many that the GPU must wait for it.

**Tolerance.** Let e be the errors of an output's elements, each at most the a_j that
`curate.verify.protocol.compare` allows, and r random signs. Then r·e has mean 0 and, by
Hoeffding's inequality, P(|r·e| > t |a|) <= 2 exp(-t²/2), with |a| the Euclidean norm. With t = 5 an
output that compares as right fails with a probability of less than 1e-5. The reference's own
projection is the expected number, and it has errors too; they are among those that a_j is 8 times
as large as.
Conversely r·d of a wrong output with errors d has the standard deviation |d|: it is caught in
nearly every iteration where |d| is well above t |a|, and in a share of them where it is not.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from curate.verify.protocol.compare import allowed_error
from curate.verify.protocol.role import list_tensors, map_tensors, to_double

Checksums = list[list[float]]
"""One list per iteration, with one number per output."""

Ask = Callable[[str, int, int], tuple[float, Checksums]]
"""``ask(name, n, nonce)`` has a program run; it returns the seconds it took and n checksums."""

OVERHEAD = "overhead"
EAGER = "eager"
COMPILED = "compile"
CANDIDATE = "candidate"

ROUNDS = 7
"""Slopes measured of each program; a figure is their median."""

ALONE = 3
"""Slopes of the baselines that are measured before the candidate has run at all."""

SPAN_S = 0.04
"""What the long run of the fastest program should take."""

LONGEST_S = 0.2
"""What a long run should take at most; it has `FEWEST` iterations even so."""

FEWEST, MOST = 4, 1000
"""Iterations of a long run."""

WARM_S = 0.02
"""Runs get longer until one takes this: what is compiled, tuned or started up is then."""

FLUSH_BYTES = 384 << 20
"""Written between two calls, or twice the L2 cache where that is more. `do_bench` writes 256 MiB;
here the host has more to launch meanwhile."""

SETS_BYTES = 4 << 30
"""Memory that the sets of master inputs may take, unless two take more."""

DEVIATIONS = 5.0
"""t of the tolerance."""

WRONG_SHARE = 0.01
"""Share of checksums that may be wrong: rounding decides some outputs, such as those of argmax. A
program that leaves out as many calls gains as little."""

TIES = 0.001
"""Share of an integer output's elements that may be others, for the same reason."""

IMPLAUSIBLE = 0.8
"""Share of the time in which memory can be read and written, below which nothing was."""

SLOWED = 0.25
"""Share by which the eager reference may get slower once the candidate has run."""

SAMPLE = 1 << 24
"""Elements of an output from which its tolerance is computed, evenly spaced."""


# --- what the nonce decides -----------------------------------------------------------------


@dataclass(frozen=True)
class TimedTurn:
    """What the nonce decides about one iteration.

    Attributes:
        set: which set of master inputs.
        fraction: in [0, 1); the scales of the input tensors follow from it.
        seed: of the signs; less than 2^31.
    """

    set: int
    fraction: float
    seed: int


def turns(nonce: int, n: int, sets: int) -> Iterator[TimedTurn]:
    """Yield the n turns of a run. Those of a longer run begin with them."""
    generator = random.Random(nonce)
    for _ in range(n):
        chosen = int(generator.random() * sets)
        yield TimedTurn(chosen, generator.random(), generator.getrandbits(31))


def scale_of(fraction: float, position: int) -> float:
    """Return the factor of the input tensor at a position, in [0.5, 1)."""
    return 0.5 + (fraction + 0.618034 * position) % 1 / 2


# --- projections ----------------------------------------------------------------------------


@triton.jit(do_not_specialize=["slot", "seed"])  # type: ignore[untyped-decorator]
def _project_kernel(y_ptr, sums_ptr, slot, numel, seed, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the signed sum of a block of y to ``sums[slot]``."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + index, mask=index < numel, other=0).to(tl.float64)
    y = tl.where(y != y, 7919.0, y)
    y = tl.where(y == float("inf"), 104729.0, y)
    y = tl.where(y == float("-inf"), -104729.0, y)
    bits = index.to(tl.uint32) * 0x9E3779B1 + seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    bits = bits ^ (bits >> 16)
    tl.atomic_add(sums_ptr + slot, tl.sum(tl.where((bits & 1) == 1, y, -y), axis=0))


def _signs(numel: int, seed: int) -> torch.Tensor:
    """Return the kernel's signs: MurmurHash3's finaliser of the index, on 32 bits."""
    low = 0xFFFFFFFF
    bits = (torch.arange(numel) * 0x9E3779B1 + seed) & low
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & low
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & low
    return (bits ^ (bits >> 16)) % 2 * 2.0 - 1.0


def project(y: torch.Tensor, sums: torch.Tensor, slot: int, seed: int) -> None:
    """Add an output's projection on random signs to ``sums[slot]``, in float64.

    NaN and the infinities count as three constants, so that they must be where they belong. The
    order of summation is left open: it changes float64's last digits.
    """
    y = _plain_numbers(y)
    if not y.numel():
        return
    if y.device.type == "cpu":
        y = y.reshape(-1).double()
        y = y.nan_to_num(nan=7919.0, posinf=104729.0, neginf=-104729.0)
        sums[slot] += (_signs(y.numel(), seed).double() * y).sum()
    else:
        blocks = triton.cdiv(y.numel(), 4096)
        _project_kernel[(blocks,)](y, sums, slot, y.numel(), seed, BLOCK=4096, num_warps=8)


def _plain_numbers(y: torch.Tensor) -> torch.Tensor:
    """Return an output as contiguous numbers of a type that every device can load."""
    y = y.detach()
    if y.is_complex():
        y = torch.view_as_real(y.resolve_conj())
    if y.dtype == torch.bool:
        y = y.to(torch.uint8)
    elif y.is_floating_point() and y.element_size() == 1:
        y = y.float()
    return y.contiguous()


def _seed_of(seed: int, position: int) -> int:
    """Return the seed of the signs for the output at a position."""
    return (seed + 0x3C6EF372 * position) & 0x7FFFFFFF


# --- the process under test -----------------------------------------------------------------


def count_sets(inputs: Sequence[Any], budget: int = SETS_BYTES) -> int:
    """Return how many sets of master inputs to draw, 2 to 4, given one."""
    return max(2, min(4, budget // max(1, _bytes_of(list_tensors(inputs)))))


def _bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(int(t.numel() * t.element_size()) for t in tensors)


class TimedModel:
    """A model and sets of master inputs for it, on a device, ready to be timed."""

    def __init__(
        self, model: Callable[..., Any], sets: Sequence[Sequence[Any]], device: str
    ) -> None:
        """Move the sets to the device; the model is there, in the mode it is to be timed in.

        Raises:
            ValueError: the sets differ in the shapes or types of their tensors.
        """
        self._model = model
        self._masters = [[t.detach().to(device) for t in list_tensors(one)] for one in sets]
        kinds = [[(t.shape, t.dtype) for t in one] for one in self._masters]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError("the sets of inputs to time with differ in shapes or types")
        inputs = [torch.empty_like(t) for t in self._masters[0]]
        # .data has a version counter of its own, so that new contents do not show in the inputs'.
        self._contents = [t.data for t in inputs]
        self._arguments = [_with_tensors(one, inputs) for one in sets]
        self._device = torch.device(device)
        self._buffer: torch.Tensor | None = None
        if self._device.type != "cpu":
            cache = torch.cuda.get_device_properties(self._device).L2_cache_size
            size = max(2 * cache, FLUSH_BYTES)
            self._buffer = torch.empty(size // 4, dtype=torch.int32, device=device)
        self._stand_ins: list[torch.Tensor] | None = None

    def run(self, n: int, nonce: int, call_model: bool = True) -> Checksums:
        """Return the checksums of n calls, or do everything but the calls.

        Raises:
            TypeError: an output is no plain tensor.
            ValueError: there is no tensor in the output, or not always as many.
        """
        with _as_users_run():
            stand_ins = None if call_model else self._make_stand_ins()
            sums = torch.zeros(0)
            for i, turn in enumerate(turns(nonce, n, len(self._masters))):
                self._fill_inputs(turn.set, turn.fraction)
                if self._buffer is not None:
                    self._buffer.fill_(0x3C3C3C3C)
                outputs = stand_ins or _outputs(self._model(*self._arguments[turn.set]))
                if i == 0:
                    sums = torch.zeros(n * len(outputs), dtype=torch.float64, device=self._device)
                elif n * len(outputs) != sums.numel():
                    raise ValueError("the output does not always hold as many tensors")
                for position, y in enumerate(outputs):
                    project(y, sums, i * len(outputs) + position, _seed_of(turn.seed, position))
            # This waits for everything that the checksums depend on.
            checksums: Checksums = sums.reshape(n, -1).tolist()
            return checksums

    def tolerances(self, exact: Callable[..., Any]) -> Checksums:
        """Return, for each set of inputs, how far checksums may be from the reference's.

        Args:
            exact: the same model in float64. Where it raises a `RuntimeError`, as modules do
                that name float32 in their code, only the floor of the tolerance is left.
        """
        with _as_users_run():
            return [
                [
                    max(pair)
                    for pair in zip(
                        *(self._tolerances(exact, chosen, fraction) for fraction in (0.0, 0.999)),
                        strict=True,
                    )
                ]
                for chosen in range(len(self._masters))
            ]

    def bytes_moved(self) -> int:
        """Return the bytes of the tensors that go into a call and come out of it."""
        with _as_users_run():
            return _bytes_of([*self._contents, *self._make_stand_ins()])

    def _fill_inputs(self, chosen: int, fraction: float) -> None:
        for i, (tensor, master) in enumerate(
            zip(self._contents, self._masters[chosen], strict=True)
        ):
            if (tensor.is_floating_point() or tensor.is_complex()) and tensor.element_size() > 1:
                torch.mul(master, scale_of(fraction, i), out=tensor)
            else:
                tensor.copy_(master)

    def _make_stand_ins(self) -> list[torch.Tensor]:
        """Return contiguous tensors like the outputs, in the end of the buffer if they fit."""
        if self._stand_ins is None:
            self._fill_inputs(0, 0.0)
            self._stand_ins = []
            end = 0 if self._buffer is None else 4 * self._buffer.numel()
            for y in _outputs(self._model(*self._arguments[0])):
                size = y.numel() * y.element_size()
                start = (end - size) // 256 * 256
                if self._buffer is None or start < 0:
                    self._stand_ins.append(torch.zeros(y.shape, dtype=y.dtype, device=y.device))
                    continue
                part = self._buffer.view(torch.uint8)[start : start + size]
                self._stand_ins.append(part.view(y.dtype).view(y.shape))
                end = start
        return self._stand_ins

    def _tolerances(self, exact: Callable[..., Any], chosen: int, fraction: float) -> list[float]:
        self._fill_inputs(chosen, fraction)
        double = to_double(map_tensors(self._arguments[chosen], torch.clone))
        own = [y.clone() for y in _outputs(self._model(*self._arguments[chosen]))]
        try:
            true = _outputs(exact(*double))
        except RuntimeError:
            true = own
        if [t.shape for t in true] != [t.shape for t in own]:
            true = own
        return [tolerance(*both) for both in zip(own, true, strict=True)]


@contextmanager
def _as_users_run() -> Iterator[None]:
    """Take no gradients, and turn off what the judge has PyTorch do to make mistakes show."""
    # As in `role.poison_memory`, not by the public function, which imports Inductor.
    saved = torch.are_deterministic_algorithms_enabled()
    torch._C._set_deterministic_algorithms(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch._C._set_deterministic_algorithms(saved, warn_only=True)


def _with_tensors(value: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Return arguments with other tensors in the place of theirs."""
    others = iter(tensors)
    return list(map_tensors(list(value), lambda _: next(others)))


def _outputs(result: Any) -> list[torch.Tensor]:
    found = list_tensors(result)
    if not found:
        raise ValueError("the output holds no tensor, so that it cannot be checked while timed")
    for tensor in found:
        # A subclass could put the work off until somebody looks.
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"an output is a {type(tensor).__name__}, no plain tensor")
    return found


def tolerance(own: torch.Tensor, exact: torch.Tensor) -> float:
    """Return how far the projection of a right output may be from that of the reference's.

    Args:
        own: the reference's output in its own precision.
        exact: its output in float64, of the same shape.
    """
    if not own.numel():
        return 0.0
    step = max(1, own.numel() // SAMPLE)
    own, exact = (_plain_numbers(t).reshape(-1)[::step] for t in (own, exact))
    finite = own.isfinite()
    exact = torch.where(finite & exact.isfinite(), exact.double(), own.double())
    own, exact = torch.where(finite, own, 0), torch.where(finite, exact, 0.0)
    if own.is_floating_point():
        allowed = torch.where(finite, allowed_error(own, exact), 0.0)
    else:
        typical = math.sqrt(TIES) * float(own.double().max() - own.double().min())
        allowed = (own.double() - exact).abs() + typical
    norm, size = (math.sqrt(step) * float(t.norm()) for t in (allowed, exact))
    # Sums of float64 in another order differ in the last digits.
    return DEVIATIONS * norm + 1e-12 * size


def copy_bandwidth(device: str) -> float:
    """Return the bytes per second that a large copy reads and writes, both counted."""
    source = torch.ones(FLUSH_BYTES // 4, device=device)
    target = torch.empty_like(source)

    def seconds(times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            target.copy_(source)
        target[0].item()
        return time.perf_counter() - started

    seconds(2)
    slope = min(seconds(12) - seconds(2) for _ in range(3)) / 10
    return 2 * FLUSH_BYTES / max(slope, 1e-9)


# --- the judge ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stats:
    """Times of one call.

    Attributes:
        median_us: microseconds, the overhead subtracted.
        spread: distance of the quartiles over the median.
        n: iterations of the long runs.
        wrong: share of the checksums that were not the reference's.
    """

    median_us: float
    spread: float
    n: int
    wrong: float


@dataclass(frozen=True)
class Measured:
    """What a schedule found.

    Attributes:
        overhead_us: of one iteration without the call.
        noise_us: distance of the overhead's quartiles; shorter times are not resolved.
        stats: those of each program.
        alone_us: the time of the first baseline before the candidate had run.
    """

    overhead_us: float
    noise_us: float
    stats: dict[str, Stats]
    alone_us: float


def measure(
    ask: Ask,
    tolerances: Sequence[Sequence[float]],
    generator: random.Random,
    baselines: Sequence[str] = (EAGER, COMPILED),
    rounds: int = ROUNDS,
) -> Measured:
    """Time the baselines and the candidate, in turns.

    Args:
        ask: runs ``overhead``, the baselines and ``candidate``. What it raises ends the schedule.
        tolerances: of each set of inputs, from `TimedModel.tolerances`.
        generator: draws nonces and orders; one that the candidate cannot foresee.
        baselines: programs of the reference's process; the first is what checksums are held to.
        rounds: slopes of each.
    """
    schedule = _Schedule(ask, tolerances, generator, baselines[0])
    known = {name: schedule.warm_up(name) for name in (OVERHEAD, *baselines)}
    alone = schedule.slopes(_lengths(known, baselines[0]), ALONE)
    known[CANDIDATE] = schedule.warm_up(CANDIDATE)
    lengths = _lengths(known, baselines[0])
    schedule.slopes(lengths, 1)
    together = schedule.slopes(lengths, rounds)
    overhead = together[OVERHEAD]
    stats = {}
    for name in (*baselines, CANDIDATE):
        net = _net(together, name)
        median = statistics.median(net)
        spread = _between_quartiles(net) / max(abs(median), 1e-12)
        wrong = schedule.wrong[name] / max(1, schedule.checked[name])
        stats[name] = Stats(1e6 * median, spread, lengths[name], wrong)
    return Measured(
        overhead_us=1e6 * statistics.median(overhead),
        noise_us=1e6 * _between_quartiles(overhead),
        stats=stats,
        alone_us=1e6 * statistics.median(_net(alone, baselines[0])),
    )


class _Schedule:
    """Asks programs to run, and counts the checksums that are wrong."""

    def __init__(
        self,
        ask: Ask,
        tolerances: Sequence[Sequence[float]],
        generator: random.Random,
        expected: str,
    ) -> None:
        self.ask, self.tolerances, self.generator = ask, tolerances, generator
        self.expected = expected
        self.wrong: dict[str, int] = {}
        self.checked: dict[str, int] = {}

    def warm_up(self, name: str) -> float:
        """Run a program until it is warm; return about how many seconds an iteration takes."""
        n = 2
        self.ask(name, n, self._nonce())
        while True:
            # The shorter of two: one hiccup would make every run too short.
            seconds = min(self.ask(name, n, self._nonce())[0] for _ in range(2))
            if seconds > WARM_S or n >= 256:
                return seconds / n
            n *= 4

    def slopes(self, lengths: Mapping[str, int], rounds: int) -> dict[str, list[float]]:
        """Return each program's seconds per iteration, in every round."""
        found: dict[str, list[float]] = {name: [] for name in lengths}
        for _ in range(rounds):
            nonces = {is_long: self._nonce() for is_long in (False, True)}
            order = [(name, is_long) for name in lengths for is_long in nonces]
            self.generator.shuffle(order)
            seconds, sums = {}, {}
            for name, is_long in order:
                n = lengths[name] if is_long else max(1, lengths[name] // 4)
                seconds[name, is_long], sums[name, is_long] = self.ask(name, n, nonces[is_long])
            for name, long in lengths.items():
                apart = long - max(1, long // 4)
                found[name].append((seconds[name, True] - seconds[name, False]) / apart)
                for is_long, nonce in nonces.items():
                    n = long if is_long else max(1, long // 4)
                    self._check(name, n, nonce, sums[name, is_long], sums[self.expected, is_long])
        return found

    def _check(self, name: str, n: int, nonce: int, got: Checksums, want: Checksums) -> None:
        if name == OVERHEAD:
            return
        sets = (turn.set for turn in turns(nonce, n, len(self.tolerances)))
        right = sum(
            _is_right(one, other, self.tolerances[chosen])
            for one, other, chosen in zip(got, want, sets, strict=False)
        )
        self.checked[name] = self.checked.get(name, 0) + n
        self.wrong[name] = self.wrong.get(name, 0) + n - right

    def _nonce(self) -> int:
        return self.generator.getrandbits(63)


def _is_right(got: Sequence[float], want: Sequence[float], allowed: Sequence[float]) -> bool:
    return len(got) == len(want) and all(
        isinstance(one, float) and abs(one - other) <= most  # which a NaN is not
        for one, other, most in zip(got, want, allowed, strict=True)
    )


def _lengths(seconds_each: Mapping[str, float], expected: str) -> dict[str, int]:
    """Return the iterations of each program's long run; no program runs more than the reference."""
    fastest = max(min(seconds_each.values()), 1e-9)

    def length(name: str) -> int:
        wanted = min(SPAN_S / fastest, LONGEST_S / max(seconds_each[name], 1e-9))
        return max(FEWEST, min(MOST, round(wanted)))

    most = length(expected)
    return {name: min(most, length(name)) for name in seconds_each}


def _net(slopes: Mapping[str, list[float]], name: str) -> list[float]:
    return [a - b for a, b in zip(slopes[name], slopes[OVERHEAD], strict=True)]


def _between_quartiles(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low


def floor_us(bytes_moved: int, bandwidth: float, cache: int = 0) -> float:
    """Return the microseconds in which inputs can be read and outputs written.

    Args:
        bytes_moved: from `TimedModel.bytes_moved`.
        bandwidth: bytes per second, from `copy_bandwidth`.
        cache: bytes of the L2 cache, where what was written may stay.
    """
    return 1e6 * max(0, bytes_moved - cache) / bandwidth


def find_fault(measured: Measured, floor: float) -> str | None:
    """Return the rule that a candidate broke while it was timed, or None.

    - ``wrong_when_timed``: it gave other outputs than when it was checked;
    - ``slows_reference``: the reference has been slower since it ran;
    - ``implausible_time``: it took less than memory needs, and eager PyTorch did not. A
      program that rightly leaves out an input which the reference reads looks the same.

    Args:
        measured: from `measure`.
        floor: microseconds, from `floor_us`.
    """
    candidate, eager = measured.stats[CANDIDATE], measured.stats[EAGER]
    if candidate.wrong > WRONG_SHARE:
        return "wrong_when_timed"
    slower = eager.median_us - measured.alone_us
    if slower > max(SLOWED * measured.alone_us, 4 * measured.noise_us, 1.0):
        return "slows_reference"
    limit = IMPLAUSIBLE * floor - measured.noise_us
    if candidate.median_us < limit and eager.median_us >= floor:
        return "implausible_time"
    return None


def to_json(measured: Measured, floor: float) -> dict[str, Any]:
    """Return what was measured as a verdict holds it; times in microseconds.

    ``compile_us`` is None where `torch.compile` was not measured. A speedup is None as well where
    the candidate's time is not above the noise.
    """
    candidate = measured.stats[CANDIDATE]
    resolved = candidate.median_us > max(0.0, 2 * measured.noise_us)
    values: dict[str, Any] = {
        "candidate_us": round(candidate.median_us, 3),
        "spread": round(candidate.spread, 4),
    }
    for name in (EAGER, COMPILED):
        stats = measured.stats.get(name)
        values[f"{name}_us"] = round(stats.median_us, 3) if stats else None
        values[f"{name}_spread"] = round(stats.spread, 4) if stats else None
        ratio = stats.median_us / candidate.median_us if stats and resolved else None
        values[f"speedup_{name}"] = None if ratio is None else round(ratio, 4)
    return values | {
        "overhead_us": round(measured.overhead_us, 3),
        "noise_us": round(measured.noise_us, 3),
        "floor_us": round(floor, 3),
        "iterations": candidate.n,
        "wrong_share": round(candidate.wrong, 6),
        "eager_alone_us": round(measured.alone_us, 3),
    }
