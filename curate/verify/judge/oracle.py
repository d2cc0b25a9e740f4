"""What the judge knows of a problem: right results, as the reference's process gave them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, cast

import torch

from curate.problem.draw import OVERFLOWS, OWN, TIES, Draw, parameters_seed
from curate.problem.smaller import ALL, NONE
from curate.problem.values import Tensors, list_tensors, same_tensors, without_float8
from curate.verify.judge.session import Host, RequestRefused, Session, SessionEnded
from curate.verify.protocol.calls import Answered, Given
from curate.verify.protocol.compare import Agreement, Mismatch, Strict, compare
from curate.verify.protocol.messages import (
    Drawn,
    Loaded,
    ProblemFacts,
    ReadyBaselines,
    Spread,
    Variants,
)
from curate.verify.protocol.role import FATAL, give_back
from curate.verify.reference.noise import PRODUCTS
from curate.verify.reference.serve import MORE, ROUGH, SKIP, USUAL, Reference
from curate.verify.reference.timed import Baselines
from curate.verify.verdict import Ending, Options

SMALL_BYTES, SMALL_PRODUCT_BYTES = 2**24, 2**22
"""Bytes that a reference's operators may read and write for it to run on the CPU; the latter if
it multiplies matrices."""

UNKNOWN_BYTES = 2**30
"""What a reference is taken to hold that cannot be run without data."""

SAMPLE = 2**26  # values of a result that say how large its values are

CACHE_BYTES = 2**29  # of draws and noise, kept for the next candidate of the same reference

REFERENCE_OOM, REFERENCE_ERROR = "reference_oom", "reference_error"
"""Why there is no oracle where the reference had too little memory, and where it failed."""


TrySize = Callable[[int | None], tuple[float, int]]
"""Gives the microseconds of eager PyTorch at a size, and the bytes of inputs and results."""


class NoOracle(Ending):
    """The reference cannot say what is right: it is ``unsupported`` or ``degenerate``."""


@dataclass(frozen=True)
class Expected:
    """One draw of a problem.

    Attributes:
        draw: the draw; not the one that was asked for where the reference did not take that.
        drawn: inputs, parameters and results.
        ask_noise: gives the noise of a draw's results, made with an effort of
            `curate.verify.reference.serve.EFFORTS`; see `curate.verify.protocol.compare.compare`.
        precision: one of `curate.verify.verdict.PRECISIONS`.
    """

    draw: Draw
    drawn: Drawn
    ask_noise: Callable[[Draw, str], Spread | None] = dataclasses.field(
        default=lambda draw, effort: None, repr=False
    )
    precision: str = "own"

    def compare(self, results: Any, usual: float = 0.0) -> Agreement:
        """Compare a candidate's output, and the inputs that it changed, with what is right.

        Noise only allows more, so what is right without it need not know it.

        Raises:
            Mismatch: they differ.
            NoOracle: the reference cannot say how exact its results are.
        """
        effort = None
        while True:
            try:
                noise = effort and self.ask_noise(self.draw, effort)
                return self._compare(results, noise, usual, tail=effort == MORE)
            except Mismatch as mismatch:
                if effort is None and mismatch.is_error:
                    effort = USUAL
                elif effort == USUAL and mismatch.is_rare:
                    effort = MORE
                elif effort and self.precision == "tf32":
                    return self.compare_coarsely(results)
                else:
                    raise

    def compare_coarsely(self, results: Any) -> Agreement:
        """Compare like `compare`, where 10 bits are enough on the way."""
        agreement = self._compare(results, self.ask_noise(self.draw, ROUGH), 0.0)
        return dataclasses.replace(agreement, coarse=True)

    def _compare(self, results: Any, noise: Any, usual: float, tail: bool = False) -> Agreement:
        own, exact = self.drawn.own, self.drawn.exact
        # What inputs of other sizes overflow on is nobody's business.
        strict: Strict = "all" if self.draw.family == OWN else "exact"
        strict = "none" if self.draw.family in OVERFLOWS else strict
        agreement = Agreement()
        if stray := sorted({*results.get("changed_state", ())} - own["state"].keys()):
            raise Mismatch("state_dict", changed=stray[:20])
        for part in ("output", "changed", "state"):
            if part == "state":  # other state of a program is not compared
                kept = results.get(part, {})
                results = {**results, part: {n: kept.get(n, own[part][n]) for n in own[part]}}
            right = own[part], exact[part], noise and noise[part]
            ties, leans = self.draw.family == TIES, noise and noise["leans"]
            found = compare(results[part], *right, part, strict, ties, usual, leans, tail)
            agreement = agreement.join(found)
        return agreement

    @property
    def size(self) -> int:
        """Bytes of the draw's tensors."""
        return sum(t.numel() * t.element_size() for t in self.drawn.tensors)

    @property
    def usual(self) -> float:
        """How large the output's values are."""
        outputs = [t for t in list_tensors(self.drawn.own["output"]) if t.is_floating_point()]
        some = [t.reshape(-1)[:: max(1, t.numel() // SAMPLE)] for t in outputs]
        values = [t[t.isfinite()].double() for t in map(without_float8, some)]
        return max((float(v.square().mean().sqrt()) for v in values if v.numel()), default=0.0)

    @property
    def is_empty(self) -> bool:
        """Whether the results have no elements: there is nothing to compute."""
        own = self.drawn.own
        tensors = list_tensors([own["output"], own["changed"]])
        return bool(tensors) and not any(t.numel() for t in tensors)

    @property
    def varies(self) -> bool:
        """Whether the output holds two numbers that differ, so that it is not right by chance."""
        outputs = [t for t in list_tensors(self.drawn.own["output"]) if t.numel() > 1]
        return any(bool((t != t.reshape(-1)[0]).any()) for t in outputs)


class Oracle:
    """A session with a reference, and the draws that it gave."""

    def __init__(
        self,
        host: Host,
        reference: str,
        device: str,
        options: Options,
        shrinks: str = ALL,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin nothing yet.

        Args:
            host: starts the reference's process.
            reference: the problem's file.
            device: where the reference runs, if it is not small.
            options: of the judge.
            shrinks: which large sizes are made smaller.
            give_way: is called before each request: see `curate.verify.judge.device.Gate`.
        """
        self.host, self.reference, self.device, self.shrinks = host, reference, device, shrinks
        self.give_way = give_way
        self.asked_for = reference, shrinks, device
        self.seconds, self.precision = options.timeout_s, options.precision
        self.session: Session | None = None
        self.allows: dict[str, bool] = {}  # what the file lets its own products be
        self.own_size: int | None = None
        self.smaller: dict[str, list[int]] = {}  # of each size that was made smaller, both
        self.most_bytes = UNKNOWN_BYTES  # that it holds at one time, as far as that is known
        # Seeds that a candidate cannot know; with one of the caller's own, the same in every run.
        seed = options.draw_seed
        told = secrets.token_hex(8) if seed is None else f"{seed} {reference}"
        self.seed = int(hashlib.sha256(told.encode()).hexdigest()[:13], 16)
        self._drawn: dict[Draw, Expected] = {}
        self._noises: dict[tuple[Draw, str], Spread | None] = {}
        self._answers: dict[object, Any] = {}  # to what needs to be asked once
        self._bytes = 0

    def load(self) -> None:
        """Run the reference's file, once, and choose where it is to run.

        What is small runs on the CPU: a context on the device costs more than the work, and what
        is right never is in the device's memory.
        """
        if self.allows:
            return
        wanted, self.device = self.device, "cpu"
        loaded = self._load(self.shrinks if wanted == "cpu" else NONE)
        self.allows = loaded.precision
        self.own_size, self.smaller = loaded.own_size, loaded.smaller
        if wanted != "cpu" and not self._is_small():
            self.device = wanted
            self.close()

    def _load(self, shrink: str) -> Loaded:
        return self._ask(Reference.load, self.reference, self.device, shrink)

    def takes(self, most: int) -> bool:
        """Whether its operators read and write so many bytes at most."""
        with contextlib.suppress(NoOracle):
            self.load()
            return self._ask(Reference.estimate).call_bytes <= most
        return False

    def _is_small(self) -> bool:
        try:
            estimate = self._ask(Reference.estimate)
        except NoOracle:
            return False  # it may need the device
        self.most_bytes = estimate.most_bytes
        multiplies = any(call.endswith(PRODUCTS) for call in estimate.calls)
        return estimate.call_bytes <= (SMALL_PRODUCT_BYTES if multiplies else SMALL_BYTES)

    def expect(self, draw: Draw) -> Expected:
        """Return what a draw gives; where the reference does not take it, the file's own.

        Raises:
            NoOracle: it does not take the file's own either.
        """
        if draw in self._drawn:
            return self._drawn[draw]
        give_back()  # what comparing the draw before has taken
        try:
            drawn = self._ask(Reference.draw, draw)
            expected = Expected(draw, drawn, self._noise, self.precision)
        except _Skip:
            expected = self.expect(easier(draw))
        if self._may_keep(expected.drawn.tensors):
            self._drawn[draw] = expected
        return expected

    def _may_keep(self, tensors: Tensors) -> bool:
        self._bytes += sum(t.numel() * t.element_size() for t in tensors)
        return self._bytes < CACHE_BYTES

    def _noise(self, draw: Draw, effort: str) -> Spread | None:
        if (draw, effort) in self._noises:
            return self._noises[draw, effort]
        noise = self._ask(Reference.noise, draw, effort)
        if self._may_keep(list_tensors(noise)):
            self._noises[draw, effort] = noise
        return noise

    def facts(self, mode: str) -> ProblemFacts:
        """Return what the reference's process says of the problem on its first draw."""
        draw = Draw(self.seed, parameters_seed(self.seed), mode=mode)
        return self._once(Reference.facts, draw)

    def variants(self, draw: Draw, more: bool) -> Variants:
        """Return what else a caller may do, ``more`` of it if there is time."""
        try:
            return self._once(Reference.variants, draw, more)
        except _Skip:
            nothing = self._answers["variants", draw, more] = Variants({}, [], False)
            return nothing

    def alone(self, draw: Draw) -> list[Draw]:
        """Return a draw with each of its changes alone; see `Reference.alone`."""
        with contextlib.suppress(NoOracle):
            return self._once(Reference.alone, draw) if len(draw.changes) > 1 else []
        return []

    def shares(self, draw: Draw) -> bool:
        """Say whether the reference's results have memory in common; see `Reference.shares`."""
        with contextlib.suppress(NoOracle):
            return self._once(Reference.shares, draw)
        return True  # nobody can say that they do not

    def long_draw(
        self, draw: Draw, number: int, short: bool, few: bool, longest: int
    ) -> tuple[Draw | None, int]:
        """Return a draw with one dimension long, or None, and how many dimensions there are.

        See `curate.problem.vary.LongDraws`.
        """
        return self._once(Reference.long, draw, number, short, few, longest)

    def initial_state(self, draw: Draw) -> dict[str, torch.Tensor]:
        """Return the parameters as the constructor makes them."""
        return self._ask(Reference.initial_state, draw)

    def _once(
        self,
        method: Callable[Concatenate[Any, Given], Answered],
        *args: Given.args,
        **named: Given.kwargs,
    ) -> Answered:
        """Ask, unless the answer is known."""
        key = method.__name__, *args
        if key not in self._answers:
            self._answers[key] = self._ask(method, *args, **named)
        return cast(Answered, self._answers[key])

    def _ask(
        self,
        method: Callable[Concatenate[Any, Given], Answered],
        *args: Given.args,
        **named: Given.kwargs,
    ) -> Answered:
        try:
            return self._ask_once(method, *args, **named)
        except SessionEnded as ended:
            # An assertion on a device may come to light behind the answer to the request before.
            if self.device == "cpu" or not any(words in str(ended.evidence) for words in FATAL):
                raise _gone(ended) from ended
        try:
            return self._ask_once(method, *args, **named)
        except SessionEnded as ended:
            raise _gone(ended) from ended

    def _ask_once(
        self,
        method: Callable[Concatenate[Any, Given], Answered],
        *args: Given.args,
        **named: Given.kwargs,
    ) -> Answered:
        self.give_way()
        if self.session is None or not self.session.is_open:
            self.session = self.host.open(self.seconds)
            if method.__name__ != "load":
                self._load(self.shrinks if self.smaller else NONE)
        self.session.seconds = self.seconds
        try:
            return self.session.ask(method, *args, **named)
        except RequestRefused as refused:
            if self.device != "cpu" and any(words in refused.message for words in FATAL):
                self.session.close()  # an assertion on a device leaves its process no context
            if refused.status == SKIP:
                raise _Skip from refused
            known = {"unsupported": refused.reason, "oom": REFERENCE_OOM}
            reason = known.get(refused.status, REFERENCE_ERROR)
            raise NoOracle("unsupported", reason, message=refused.message) from refused

    def close(self) -> None:
        """End the session; what was drawn stays."""
        if self.session:
            self.session.close()

    def forget(self) -> None:
        """End the session and give back what was drawn, which refers to this oracle."""
        self.close()
        self._drawn.clear()
        self._noises.clear()


class TimedOracle(Oracle):
    """The same on the device, however small the problem is, with baselines to be timed."""

    def load(self) -> None:
        """Run the reference's file, once."""
        if not self.allows:
            loaded = self._load(NONE)
            self.allows, self.own_size = loaded.precision, loaded.own_size
            self._sizes: dict[str, tuple[int | None, float]] = {}
            self._prepared: tuple[Any, ReadyBaselines] | None = None

    def size(
        self, mode: str, choose: Callable[[int | None, TrySize], tuple[int | None, float]]
    ) -> tuple[int | None, float]:
        """Return what chooses the size at which to time gives, once."""
        if mode not in self._sizes:
            self._sizes[mode] = choose(self.own_size, lambda size: self._try_size(mode, size))
        return self._sizes[mode]

    def _try_size(self, mode: str, size: int | None) -> tuple[float, int]:
        draw = Draw(self.seed, parameters_seed(self.seed), size=size, mode=mode)
        try:
            return self._ask(Baselines.try_size, draw)
        except _Skip as error:
            raise NoOracle("unsupported", "size", size=size) from error

    def prepare(self, draws: list[Draw]) -> ReadyBaselines:
        """Load the baselines with sets of inputs; see `curate.verify.reference.timed`."""
        if self._prepared is None or self._prepared[0] != (draws, self.session):
            try:
                found = self._ask(Baselines.prepare_timing, draws)
            except _Skip as error:
                raise NoOracle("unsupported", "timing") from error
            self._prepared = (draws, self.session), found
        return self._prepared[1]

    def time(self, name: str, n: int, seed: int) -> list[float]:
        """Return the microseconds of calls of a baseline."""
        return self._ask(Baselines.time, name, n, seed)


def easier(draw: Draw) -> Draw:
    """Return the next draw to try for a reference that does not take this one."""
    if draw.family != OWN:
        return dataclasses.replace(draw, family=OWN)
    if draw.changes:
        return dataclasses.replace(draw, changes=())
    return dataclasses.replace(draw, size=None)


def _gone(ended: SessionEnded) -> NoOracle:
    said = {"ended": str(ended), **ended.evidence}
    return NoOracle("unsupported", REFERENCE_ERROR, **said)


class _Skip(Exception):
    """The reference does not take a draw."""


class Variety:
    """Whether a problem's results can tell right from wrong, as one draw after the other shows."""

    def __init__(self) -> None:
        self.draws = 0
        self._first: Any = None
        self._has_elements = self._has_floats = self._is_finite = self._varies = False

    def add(self, expected: Expected) -> None:
        """Take one draw into account."""
        output = expected.drawn.own["output"]
        tensors = [t for t in list_tensors(output) if t.numel()]
        floats = [t for t in tensors if t.is_floating_point()]
        self._has_elements |= bool(tensors)
        self._has_floats |= bool(floats)
        self._is_finite |= any(bool(without_float8(t).isfinite().any()) for t in floats)
        if self._first is None:
            self._first = output
        else:
            self._varies |= not same_tensors(self._first, output)
        self.draws += 1

    def problem(self) -> str | None:
        """Return why agreement on these draws would prove nothing, or None."""
        if not self._has_elements:
            return "empty_output"
        if self._has_floats and not self._is_finite:
            return "nothing_finite"
        return "constant_output" if self.draws > 1 and not self._varies else None
