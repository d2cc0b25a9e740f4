"""The judge's side of timing: see `curate.verify.timing` for what is measured and why."""

from __future__ import annotations

import random
import time
from typing import Any

from curate.verify.judge.check import EarlyVerdict
from curate.verify.judge.oracle import Oracle
from curate.verify.judge.session import RequestRefused, Session
from curate.verify.protocol.wire import WireError
from curate.verify.reference.draw import Draw
from curate.verify.timing import (
    CANDIDATE,
    EAGER,
    Checksums,
    find_fault,
    floor_us,
    measure,
    to_json,
    turns,
)


class Timer:
    """A candidate and its baselines, warm and ready to be timed."""

    def __init__(
        self, oracle: Oracle, session: Session, mode: str, device: str, kernels: set[str]
    ) -> None:
        """Load inputs into both processes, and compile the baseline.

        Raises:
            Ended, RequestRefused, NoOracle: a process could not.
        """
        self.oracle, self.session, self.kernels = oracle, session, kernels
        draw = Draw(oracle.seed, oracle.seed, mode=mode)
        self.prepared, tensors = oracle.prepare_timing(draw, device)
        names = ("init", "names", "state", "sets")
        packed = {name: self.prepared[name] for name in names}
        packed |= {"parameters": draw.parameters, "mode": mode}
        session.ask("prepare_timing", tensors, **packed)
        self.bandwidth, self.cache = oracle.bandwidth()

    def run(self) -> dict[str, Any]:
        """Measure, with the device alone; return the fields of a verdict.

        Raises:
            Ended, RequestRefused, NoOracle: a process could not.
        """
        fault, timing = self._measure()
        if fault:  # a fault in time may be somebody else's noise: it must show twice
            again, timing = self._measure()
            if again == fault:
                return {"status": "cheat", "reason": fault, "timing": timing}
        return {"timing": timing | self._profile()}

    def _profile(self) -> dict[str, Any]:
        """Return the share of the candidate's time on the device that its own kernels take.

        What a run under the profiler returns is checked like any other's.
        """
        nonce = random.SystemRandom().getrandbits(63)
        try:
            reply, tensors = self.session.ask("profile", nonce=nonce)
        except RequestRefused as refused:
            return {"kernel_share": None, "profile_problem": refused.message}
        _, expected = self._ask(EAGER, 1, nonce)
        (turn,) = turns(nonce, 1, len(self.prepared["tolerances"]))
        allowed = self.prepared["tolerances"][turn.set]
        got = tensors[0].double().tolist()[0]
        right = len(got) == len(allowed) and all(
            abs(one - other) <= most
            for one, other, most in zip(got, expected[0], allowed, strict=True)
        )
        if not right:
            raise EarlyVerdict(
                "cheat", "wrong_when_profiled", got=got[:4], expected=expected[0][:4]
            )
        spent = {str(name): float(us) for name, us in dict(reply["kernels"]).items()}
        own = sum(us for name, us in spent.items() if name in self.kernels)
        return {"kernel_share": round(own / max(sum(spent.values()), 1e-9), 4)}

    def _measure(self) -> tuple[str | None, dict[str, Any]]:
        """Return the rule that the candidate broke, or None, and what was measured."""
        measured = measure(
            self._ask,
            self.prepared["tolerances"],
            random.SystemRandom(),
            baselines=tuple(self.prepared["baselines"]),
        )
        floor = floor_us(self.prepared["bytes_moved"], self.bandwidth, self.cache)
        timing = to_json(measured, floor) | {"compile_problem": self.prepared["compile_problem"]}
        return find_fault(measured, floor), timing

    def _ask(self, name: str, n: int, nonce: int) -> tuple[float, Checksums]:
        session = self.session if name == CANDIDATE else self.oracle.running()
        started = time.perf_counter()
        _, tensors = session.ask("run_timed", name=name, n=n, nonce=nonce)
        seconds = time.perf_counter() - started
        if len(tensors) != 1 or tensors[0].dim() != 2 or len(tensors[0]) != n:
            raise WireError("not one list of checksums an iteration")
        return seconds, tensors[0].double().tolist()
