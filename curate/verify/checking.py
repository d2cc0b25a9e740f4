"""Run a candidate on many draws beside its oracle, and weigh what it did."""

from __future__ import annotations

import collections
import dataclasses
from dataclasses import dataclass, field
from typing import Any

from curate.verify.compare import Agreement, Mismatch, compare
from curate.verify.draws import SETS, Draw, plan
from curate.verify.oracle import Expected, Oracle, degenerate
from curate.verify.role import Tensors, pack_all, same_tensors, unpack_named
from curate.verify.session import Ended, Refused, Session
from curate.verify.wire import WireError

BURST = 128
"""Forwards between two checked ones on a device, for programs that count their calls."""

WHOLE = 0.99
"""Share of the reference's work, in bytes, from which on PyTorch has done all of it."""

TRIFLE = 0.01
"""Share of a program's work, in bytes, below which its kernels do nothing that counts."""


class Found(Exception):
    """A verdict, found before the last draw.

    Attributes:
        status: one of the judge's statuses.
        reason: a short code.
        evidence: what shows it.
    """

    def __init__(self, status: str, reason: str, **evidence: Any) -> None:
        super().__init__(f"{status}: {reason}")
        self.status, self.reason, self.evidence = status, reason, evidence


@dataclass
class Outcome:
    """What is known of a candidate so far.

    Attributes:
        agreement: the worst of all draws.
        trials: draws that were compared.
        caveats: codes of what the verdict does not cover.
        evidence: what the candidate did.
    """

    agreement: Agreement = field(default_factory=Agreement)
    trials: int = 0
    caveats: list[str] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)

    def warn(self, caveat: str, **evidence: Any) -> None:
        """Note something that the verdict does not cover, once."""
        if caveat not in self.caveats:
            self.caveats.append(caveat)
            self.evidence[caveat] = evidence


class Check:
    """One candidate's process, beside its oracle, in one mode."""

    def __init__(self, oracle: Oracle, session: Session, mode: str, interpreted: bool) -> None:
        self.oracle, self.session, self.mode = oracle, session, mode
        self.interpreted = interpreted
        self.outcome = Outcome()
        self.expected: list[Expected] = []
        self.built: Draw | None = None
        self.first: tuple[Expected, Any] | None = None

    def run(self, source: str, trials: int, operations: int, vary_sizes: bool) -> None:
        """Try the candidate; return if it is right, with the rest in ``outcome``.

        Raises:
            Found: it is not, or nothing can be said.
            Ended, Refused: its process died, or it raised.
            NoOracle: the reference cannot say what is right.
        """
        facts = self.oracle.facts(self.mode)
        self.outcome.evidence["insensitive_inputs"] = facts["insensitive_inputs"]
        loaded, _ = self.session.ask(
            "load",
            source=source,
            device=self.oracle.device,
            precision=self.oracle.precision,
            operations=operations if self.interpreted else None,
        )
        self._reject_patches(loaded)
        varied = vary_sizes and bool(self.oracle.free_sizes)
        draws = [
            dataclasses.replace(draw, mode=self.mode)
            for draw in plan(trials, varied, thrifty=self.interpreted)
        ]
        for i, draw in enumerate(draws):
            self._try(draw)
            if i == min(SETS, len(draws)) - 1:
                self._try_again()
        if not self.outcome.trials:
            raise Found("unsupported", "interpreter_budget")
        self._ablate(facts)
        if not self.interpreted:
            self._burst()
        self._try_strided()
        if reason := degenerate(self.expected):
            raise Found("degenerate", reason)

    # draws

    def _try(self, draw: Draw) -> None:
        """Run one draw, and raise unless the outputs are right."""
        expected = self.oracle.expect(draw)
        try:
            self._build(expected)
            reply, output = self._forward(expected)
        except Refused as refused:
            if not self._may_refuse(refused, draw, expected.draw):
                raise Found(
                    refused.status,
                    refused.reason,
                    message=refused.message,
                    trial=expected.draw.to_json(),
                ) from refused
            return
        self._compare(expected, output)
        self._weigh(reply, expected)
        self.expected.append(expected)
        self.outcome.trials += 1
        if self.first is None:
            self.first = expected, output

    def _may_refuse(self, refused: Refused, asked: Draw, tried: Draw) -> bool:
        """Whether an exception is a caveat and no fault."""
        if refused.reason == "interpreter_budget":
            if asked.size is None and self.oracle.free_sizes:
                self.outcome.warn("smaller_sizes_only", message=refused.message)
                return True
            return False
        honest = refused.status in ("runtime_error", "compile_error")
        if tried.size is not None and honest and refused.reason != "out_of_bounds":
            self.outcome.warn("own_sizes_only", message=refused.message, trial=tried.to_json())
            return True
        return False

    def _build(self, expected: Expected) -> None:
        """Construct the candidate with the draw's parameters, unless it has them."""
        draw = expected.draw
        if self.built and self.built.parameters == draw.parameters:
            return
        message, tensors = expected.packed("init", "names", "state")
        reply, received = self.session.ask(
            "build", tensors, **message, parameters=draw.parameters, mode=self.mode
        )
        if reply["names"] is not None:
            self._map_state(expected, reply, received)
        self.built = draw

    def _map_state(self, expected: Expected, reply: dict[str, Any], received: Tensors) -> None:
        """Give the parameters under other names, if they start with the same values.

        A program that is built from the same seed has the same parameters, whatever it calls
        them. Anything else is another model.
        """
        names = list(unpack_named(reply, received, "names"))
        own = list(unpack_named(reply, received, "state"))
        theirs, initial = self.oracle.initial_state(expected.draw)
        state = dict(zip(expected.value("names"), expected.value("state"), strict=True))
        if len(own) != len(initial) or not same_tensors(own, [t.cpu() for t in initial]):
            raise Found("incorrect", "state_dict", expected=theirs[:20], got=names[:20])
        message, tensors = pack_all({"names": names, "state": [state[name] for name in theirs]})
        self.session.ask("set_state", tensors, **message)

    def _forward(
        self, expected: Expected, fresh: bool = False, **how: Any
    ) -> tuple[dict[str, Any], Any]:
        """Run the candidate on a draw; return its reply and its results."""
        message, tensors = expected.packed("inputs")
        reply, received = self.session.ask(
            "run", tensors, **message, seed=expected.draw.seed, fresh=fresh, **how
        )
        results = {name: unpack_named(reply, received, name) for name in ("output", "changed")}
        return reply, results

    def _compare(self, expected: Expected, results: Any) -> None:
        try:
            agreement = compare(results, expected.value("own"), expected.value("exact"))
        except Mismatch as mismatch:
            raise Found(
                "incorrect", mismatch.reason, trial=expected.draw.to_json(), **mismatch.evidence
            ) from mismatch
        self.outcome.agreement = self.outcome.agreement.join(agreement)

    # what it did

    def _reject_patches(self, reply: dict[str, Any]) -> None:
        if patched := reply["patched"]:
            raise Found("cheat", "patches_library", names=[str(name) for name in patched][:20])

    def _weigh(self, reply: dict[str, Any], expected: Expected) -> None:
        """Raise unless the candidate's kernels had a part in a right result."""
        self._reject_patches(reply)
        if reply["subclasses"]:
            raise Found("cheat", "tensor_subclass", classes=reply["subclasses"])
        if reply["devices"] not in ([], [self.oracle.device]):
            raise Found("incorrect", "device", expected=self.oracle.device, got=reply["devices"])
        launches, calls = dict(reply["launches"]), dict(reply["calls"])
        did = {"launches": launches, "aten_calls": calls, "failed_launches": reply["failed"]}
        if self.first is None:
            self.outcome.evidence |= did | {"kind": "hybrid" if calls else "pure_triton"}
        elif calls:
            self.outcome.evidence["kind"] = "hybrid"
        if reply["failed"]:
            raise Found("cheat", "fallback", trial=expected.draw.to_json(), **did)
        if not launches:
            self.outcome.evidence["kind"] = "no_kernel"
            raise Found("cheat", "no_kernel", trial=expected.draw.to_json(), **did)
        facts = self.oracle.facts(self.mode)
        covers = not collections.Counter(facts["calls"]) - collections.Counter(calls)
        share = reply["call_bytes"] / max(1, facts["call_bytes"])
        if expected.draw.size is None:
            whole = covers or share >= WHOLE
            trifle = reply["launch_bytes"] < TRIFLE * reply["call_bytes"]
            if calls and whole and (reply["is_torch_result"] or trifle):
                raise Found("cheat", "torch_does_the_work", share=round(share, 4), **did)

    def _try_again(self) -> None:
        """Run the first draw once more: the order must not matter."""
        if not self.first:
            return
        expected, before = self.first
        if self.built is None or self.built.parameters != expected.draw.parameters:
            return
        _, results = self._forward(expected)
        self._compare(expected, results)
        self.outcome.evidence["deterministic"] = same_tensors(before, results)

    def _ablate(self, facts: dict[str, Any]) -> None:
        """Take the kernels away: a result that is still right did not come from them."""
        expected = self.expected[-1]
        self._build(expected)
        message, tensors = expected.packed("inputs")
        for refuse, caveat in (("skip", None), ("raise", "has_fallback")):
            try:
                reply, received = self.session.ask(
                    "ablate", tensors, **message, seed=expected.draw.seed, refuse=refuse
                )
                output = {"output": unpack_named(reply, received, "output")}
                own, exact = expected.value("own"), expected.value("exact")
                compare(output, {"output": own["output"]}, {"output": exact["output"]})
            except (Refused, Mismatch, WireError):
                continue
            if own["changed"]:
                continue  # the result may be in the inputs
            if caveat:
                self.outcome.warn(caveat, message="right without its kernels, if they raise")
            else:
                raise Found("cheat", "decoy_kernel", trial=expected.draw.to_json())

    def _burst(self) -> None:
        """Call the candidate many times, and then look again."""
        expected = self.expected[-1]
        message, tensors = expected.packed("inputs")
        self.session.ask("burst", tensors, **message, seed=expected.draw.seed, count=BURST)
        _, results = self._forward(expected)
        self._compare(expected, results)

    def _try_strided(self) -> None:
        """Try inputs with gaps at odd addresses; the file asks for none, so that this is noted."""
        expected = self.expected[-1]
        try:
            _, results = self._forward(expected, fresh=True, layout="strided")
            compare(results, expected.value("own"), expected.value("exact"))
        except Refused as refused:
            if refused.status != "unsupported":
                self.outcome.warn("contiguous_only", message=refused.message)
        except Mismatch as mismatch:
            self.outcome.warn("contiguous_only", reason=mismatch.reason, **mismatch.evidence)
        except Ended as ended:
            self.outcome.warn("contiguous_only", message=f"{ended.status}: {ended.reason}")
