"""Run a candidate on many draws alongside its oracle, and weigh what it did."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from curate.problem.branches import Branch, find_branches
from curate.problem.draw import (
    MANY,
    NEGATIVE_INTEGERS,
    NOT_FINITE,
    OWN,
    SETS,
    Draw,
    Variation,
    draws_integers,
    plan,
)
from curate.problem.values import Tensors, map_tensors, same_tensors
from curate.verify.grids import Grids
from curate.verify.judge.device import Room
from curate.verify.judge.halves import ForwardRun, Halves, Ran
from curate.verify.judge.oracle import REFERENCE_OOM, Expected, NoOracle, Oracle, Variety
from curate.verify.judge.session import RequestRefused, SessionEnded
from curate.verify.protocol.compare import Agreement, Mismatch
from curate.verify.protocol.messages import CallAccount
from curate.verify.verdict import Candidate, Ending, Options

BUDGET = "too_much_work"
"""Reason for a program that takes more work than it may."""

ENOUGH = 3
"""Draws after which a program that has no budget left is not held against it."""

DEAR = 2.0
"""How often the first draw's work must fit in what is left for each of the others."""

COSTLY = 20_000_000
"""Elements in a forward of the file's own size above which the tests after the draws use a small
size, on the CPU."""

LARGE_BYTES, LARGE_HELD = 2**28, 2**30
"""Bytes of a draw's tensors, and of what the reference holds in float64, from which on a device
does the same: one draw of the file's own size, and small ones after it."""

SMALL_ROOM = 2
"""Units of the device's memory that are enough for the small ones."""

REFUSED = 2
"""Other sizes that a program refuses on such a problem before no more are drawn."""

LARGE_SETS = 2
"""Sets of parameters that a program has then."""

FEW = 2**16
"""Values of each input that are kept to see whether any varied."""

BURST = 60
"""Forwards between two checked ones, for programs that count their calls: they are done where the
commands alone do not tell (`curate.verify.judge.halves`)."""

DEVICE = "cuda"
"""The device as far as a program can see."""

OTHER = 500
"""What is added to a draw's seed for one more like it."""

GROWN_BYTES = 2**21  # of a draw's tensors, where a size is made larger
SLACK = 2**20
"""Bytes of tensors that a reply may have beyond what is expected."""

WHOLE = 0.99
"""Share of the reference's work, in bytes, from which on PyTorch has done all of it."""

WEIGHED = (OWN, "steps", "signed", "small")
"""Families on which the judge checks who did the work; on the others many stages are identities."""

LONG_FAMILIES = ("negative", "shifted")
"""Families of draws with a long dimension: inputs are of one sign, then of the other, so that zeros
behind the last element show in a maximum or a minimum."""

TRIFLE = 0.01
"""Share of a program's work, in bytes, below which its kernels do nothing that counts."""


Way = int | str | tuple[str, int]
"""What a call does on the way to its results: it takes a branch, by its number; it launches a
kernel, by its name; it has two programs or more along an axis of a kernel's grid."""


class EarlyVerdict(Ending):
    """A verdict, found before the last draw."""


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


class CandidateCheck:
    """One candidate, alongside its oracle, in one mode."""

    def __init__(
        self, oracle: Oracle, session: Halves, mode: str, options: Options, room: Room
    ) -> None:
        """Make a check.

        Args:
            oracle: knows what is right.
            session: with the candidate's processes.
            mode: ``eval`` or ``train``.
            options: how to judge.
            room: the memory that it has; what it no longer needs it gives back.
        """
        self.oracle, self.session, self.mode, self.options = oracle, session, mode, options
        self.room = room
        self.on_cpu = options.backend == "cpu"
        self.own_size = oracle.own_size if options.vary_sizes else None
        self.kind = "pure_triton"
        self.outcome = Outcome()
        self.variety = Variety()
        self.last: Draw
        self.last_bytes, self.has_integers = 0, False
        self.by_torch: list[bool] = []
        self.by_host = False
        self.given: list[list[Any]] = []
        self.ways: set[tuple[tuple[str, int], ...]] = set()
        self.spent = self.own_spent = 0.0
        self.refused = 0
        self.own_bytes, self.thrifty = 0, False
        self.built: Draw | None = None
        self.first: tuple[Draw, Any] | None = None
        self.branches: dict[int, Branch] = {}
        self.grids = Grids("")
        self.taken: set[Way] = set()  # on the way to the last results
        self.tried: set[Way] = set()  # on the way to right results
        self.typical = 0.0

    def run(self, candidate: Candidate) -> None:
        """Try the candidate; return if it is right, with the rest in ``outcome``.

        Raises:
            EarlyVerdict: it is not, or nothing can be said.
            SessionEnded, RequestRefused: its process died, or it raised.
            NoOracle: the reference cannot say what is right.
        """
        self.kind = "pure_triton" if candidate.ptx is None else "pure_cuda"
        facts = self.oracle.facts(self.mode)
        self.outcome.evidence["reference_device"] = self.oracle.device
        self.outcome.evidence["insensitive_inputs"] = facts.insensitive_inputs
        if self.oracle.smaller:
            self.outcome.warn("smaller_sizes_only", sizes=self.oracle.smaller)
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            self.branches = find_branches(candidate.candidate, candidate.reference)
            self.grids = Grids(candidate.candidate)
        self.session.load(candidate.candidate, candidate.ptx, self.oracle.allows)
        try:
            self._try_all()
            if self.outcome.trials:
                self._reject_idle_kernels()
                self._ablate()
                self._burst()
                self._try_variants()
                self._try_long_sizes()
                self._try_other_values()
        except (EarlyVerdict, RequestRefused) as error:
            # What has been compared by then counts, if it is enough to say something.
            enough = self.outcome.trials >= min(ENOUGH, self.options.trials)
            if not self.on_cpu or error.reason != BUDGET or not enough:
                raise
            self.outcome.warn("fewer_trials", **error.evidence)
        if not self.outcome.trials:
            raise EarlyVerdict("unsupported", BUDGET)
        self._reject_idle_kernels()
        if len(self.given) > 1 and (fixed := _never_varied(self.given)):
            self.outcome.warn("constant_inputs", positions=fixed)
        if branches := self._untried_branches():
            self.outcome.warn("untried_branches", lines=sorted({b.line for b in branches.values()}))
        if narrow := self._narrow():
            self.outcome.warn("untried_grids", axes=sorted(narrow))
        if reason := self.variety.problem():
            raise EarlyVerdict("degenerate", reason)

    # draws

    def _try_all(self) -> None:
        """Run every draw of the plan, and the first one twice: the order must not matter."""
        trials, seed = self.options.trials, self.oracle.seed
        self._try(self._draw(plan(1, self.own_size, seed)[0]))
        dear = not self.outcome.trials or DEAR * self.spent * trials > self.options.elements
        self.thrifty = (self.on_cpu and dear) or self._is_large()
        many = not (dear or self.thrifty) and self._may_grow()
        few = LARGE_SETS if self._is_large() else 0
        others_are_small = bool(few) and self.own_size is not None
        if others_are_small:
            self._try_again()
            self.room.keep(SMALL_ROOM)
        draws = plan(trials, self.own_size, seed, self.thrifty, many, few)
        for i, draw in enumerate(draws[1:], start=1):
            if draw.size is None or not few or self.refused < REFUSED:
                self._try(self._draw(draw))
            if i == min(SETS, trials) - 1 and not others_are_small:
                self._try_again()

    def _is_large(self) -> bool:
        """Whether the file's own inputs and results are so large that few draws take them."""
        held = 0 if self.on_cpu else self.oracle.most_bytes
        return bool(self.outcome.trials) and (self.own_bytes > LARGE_BYTES or held > LARGE_HELD)

    def _may_grow(self) -> bool:
        """Whether `MANY` instead of the file's own size takes little enough memory and work."""
        times = MANY / max(1, self.own_size or MANY)
        work = DEAR * self.spent * times
        return self.last_bytes * times < GROWN_BYTES and work < self.options.elements

    def _draw(self, draw: Draw) -> Draw:
        return dataclasses.replace(draw, mode=self.mode)

    def _try(self, draw: Draw) -> None:
        """Run one draw, and raise unless the outputs are right."""
        expected = self.oracle.expect(draw)
        try:
            self._build(expected)
            # Some objects are new: a program must not hold on to those of an earlier call.
            fresh = self.outcome.trials % SETS == SETS - 1
            usual = draw.size is None or self.thrifty
            weighed = usual and (draw.family in WEIGHED or len(self.ways) > 1)
            ran = self._forward(expected, fresh=fresh, weighed=weighed)
        except RequestRefused as refused:
            if not self._may_refuse(refused, draw, expected.draw):
                raise EarlyVerdict(
                    refused.status,
                    refused.reason,
                    message=refused.message,
                    trial=expected.draw.to_json(),
                ) from refused
            return
        self._compare(expected, ran.results)
        if self.first is not None and expected.is_empty:
            return  # of one row, `pdist` makes nothing: it takes no kernel, and shows as little
        self._weigh(ran, expected, weighed)
        self.given.append(map_tensors(expected.drawn.inputs, _few))
        self.own_bytes = self.own_bytes or expected.size
        self.variety.add(expected)
        # Draws are kept, and not what came of them: that may be most of the device's memory.
        self.last, self.last_bytes = expected.draw, expected.size
        self.has_integers = draws_integers(expected.drawn.inputs)
        self.outcome.trials += 1
        if self.first is None:
            self.first, self.typical = (expected.draw, ran.results), expected.usual
            if self._is_large():
                self.first = expected.draw, None

    def _may_refuse(self, refused: RequestRefused, asked: Draw, tried: Draw) -> bool:
        """Whether an exception is a caveat and no fault."""
        if refused.reason == BUDGET:
            if asked.size is None and self.own_size is not None:
                self.outcome.warn("smaller_sizes_only", message=refused.message)
                return True
            return False
        if tried.size is not None and _is_honest(refused):
            self.outcome.warn("own_sizes_only", message=refused.message, trial=tried.to_json())
            self.refused += 1
            return True
        return False

    def _build(self, expected: Expected) -> None:
        """Construct the candidate with the draw's parameters, unless it has them."""
        draw = expected.draw
        if self.built and self.built.instance == draw.instance:
            return
        drawn = expected.drawn
        seed = draw.parameters
        other = self.session.build(drawn.init, drawn.names, drawn.state, seed, self.mode)
        if other is not None:
            self._map_state(expected, other)
        self.built = draw

    def _map_state(self, expected: Expected, other: dict[str, torch.Tensor]) -> None:
        """Give the parameters under other names, if they start with the same values.

        A program that is built from the same seed has the same parameters, whatever it calls
        them. Anything else is another model.
        """
        names, own = list(other), [t.cpu() for t in other.values()]
        first = self.oracle.initial_state(expected.draw)
        theirs = list(first)
        state = dict(zip(expected.drawn.names, expected.drawn.state, strict=True))
        pairs = _paired(names, own, theirs, [t.cpu() for t in first.values()])
        if pairs is None:
            raise EarlyVerdict("incorrect", "state_dict", expected=theirs[:20], got=names[:20])
        self.session.set_state(pairs, {name: state[pairs[name]] for name in names})

    def _forward(
        self,
        expected: Expected,
        fresh: bool = False,
        weighed: bool = False,
        layout: str | None = None,
        record: int | None = None,
    ) -> Ran:
        """Run the candidate on a draw."""
        ran = self._noting(
            lambda: self.session.run(
                self._inputs(expected, fresh, layout), expected.size + SLACK, weighed, record
            )
        )
        if ran.subclasses:
            raise EarlyVerdict("cheat", "tensor_subclass", classes=ran.subclasses)
        if ran.devices not in ([], [DEVICE]):
            raise EarlyVerdict("incorrect", "device", expected=DEVICE, got=ran.devices)
        return ran

    def record(self, expected: Expected, turn: int) -> CallAccount:
        """Run the candidate so that the executor can do the call again; return what it did.

        Args:
            expected: the draw.
            turn: what decides on configurations of autotuners, which are taken in turn.

        Raises:
            EarlyVerdict, RequestRefused, SessionEnded: as in any other run.
        """
        self._build(expected)
        ran = self._forward(expected, record=turn)
        self._compare(expected, ran.results)
        return ran.did

    def _inputs(
        self, expected: Expected, fresh: bool = False, layout: str | None = None
    ) -> ForwardRun:
        return ForwardRun(
            expected.drawn.inputs, expected.draw.seed, not self._is_large(), fresh, layout
        )

    def _noting(self, ask: Callable[[], Ran]) -> Ran:
        """Have the candidate do something, and take note of the way that it took."""
        try:
            ran = ask()
        except RequestRefused:
            self._note_way()
            raise
        self._note_way()
        return ran

    def _note_way(self) -> None:
        """Take note of the branches and grids on the way to the last results.

        Branches are a claim of the program's own process, so they can only add draws and a caveat:
        a program that claims to have taken all is judged as one that has none. Grids are the
        executor's account.
        """
        self.taken = set()
        if self.branches:
            self.taken |= set(self.session.branches())
        for kernel, grid in self.session.grids().items():
            wide = {(kernel, axis) for axis, programs in enumerate(grid) if programs > 1}
            self.taken |= {kernel, *wide}

    def _compare(self, expected: Expected, results: Any) -> None:
        """Raise unless the outputs, and the inputs that changed, are right."""
        try:
            agreement = expected.compare(results)
            self.tried |= self.taken
        except Mismatch as mismatch:
            if not self._is_right_beside_usual(expected, results):
                reason = "precision" if _lacks_digits(mismatch, expected, results) else None
                raise EarlyVerdict(
                    "incorrect",
                    reason or mismatch.reason,
                    trial=expected.draw.to_json(),
                    **mismatch.evidence,
                ) from mismatch
            self.outcome.warn("absolute_accuracy", **mismatch.evidence)
            return
        self.outcome.agreement = self.outcome.agreement.join(agreement)
        if agreement.coarse:
            self.outcome.warn("low_precision", trial=expected.draw.to_json())

    def _is_right_beside_usual(self, expected: Expected, results: Any) -> bool:
        """Whether a result of small inputs is as exact as results of the file's own inputs are.

        ``(1 - exp(-2 x)) / (1 + exp(-2 x))`` for tanh is: near zero it loses digits of its value,
        and none of one.
        """
        if expected.draw.family != "small" or not self.outcome.trials:
            return False
        try:
            expected.compare(results, self.typical)
        except Mismatch:
            return False
        return True

    # what it did

    def _weigh(self, ran: Ran, expected: Expected, weighed: bool) -> None:
        """Note who did the work, and raise if no kernel was launched at all."""
        launches, calls = ran.did.launches, ran.did.calls
        did = {"launches": launches, "aten_calls": calls}
        evidence = self.outcome.evidence
        if self.first is None:
            evidence |= did
        evidence["kind"] = "hybrid" if calls else evidence.get("kind", self.kind)
        self.spent = float(ran.did.elements)
        self.own_spent = self.own_spent or self.spent
        if not launches:
            evidence["kind"] = "no_kernel"
            raise EarlyVerdict("cheat", "no_kernel", trial=expected.draw.to_json(), **did)
        self.by_host |= ran.by_host
        if ran.by_operators:
            rule = "host_does_the_work" if self.by_host else "torch_does_the_work"
            raise EarlyVerdict("cheat", rule, trial=expected.draw.to_json(), **did)
        if expected.draw.size is None:
            self.ways.add((*sorted(calls.items()), ("bytes", ran.did.call_bytes)))
        if weighed:
            share = ran.did.call_bytes / max(1, self.oracle.facts(self.mode).call_bytes)
            trifle = ran.did.launch_bytes < TRIFLE * ran.did.call_bytes
            calls = ran.did.on_the_way
            whole = bool(calls) and (self._covers(calls) or share >= WHOLE)
            self.by_torch.append(
                ran.was_ready  # what a kernel was given held the result already
                or (whole and (share >= 1 or trifle))
            )

    def _covers(self, calls: dict[str, int]) -> bool:
        """Whether calls of operators are all those of the reference that compute, or more."""
        wanted = collections.Counter(self.oracle.facts(self.mode).calls)
        return not wanted - collections.Counter(calls)

    def _reject_idle_kernels(self) -> None:
        """Raise if what the kernels were given was the result already, or as good as that.

        On some draws a stage may be an identity, as ReLU is on positive numbers.
        """
        if self.by_host:
            raise EarlyVerdict("cheat", "host_does_the_work")
        often = len(self.by_torch) > 1 and 2 * sum(self.by_torch) > len(self.by_torch)
        # A program that calls other operators from one call to the next has chosen when to.
        if often or (any(self.by_torch) and len(self.ways) > 1):
            raise EarlyVerdict("cheat", "torch_does_the_work")

    def _try_again(self) -> None:
        """Run the first draw once more, unrecorded."""
        if not self.first or self.built is None:
            return
        draw, before = self.first
        if self.built.instance != draw.instance:
            return
        expected = self.oracle.expect(draw)
        ran = self._forward(expected)
        self._compare(expected, ran.results)
        if not ran.did.launches:
            raise EarlyVerdict("cheat", "no_kernel", trial=expected.draw.to_json(), again=True)
        if before is not None:
            self.outcome.evidence["deterministic"] = same_tensors(before, ran.results)

    def _ablate(self) -> None:
        """Take the kernels away: a result that is still right did not come from them."""
        expected = self._other()
        if not expected.varies:
            return
        self._build(expected)
        run, limit = self._inputs(expected), expected.size + SLACK
        for refuse in (False, True):
            try:
                ran = self._noting(partial(self.session.ablate, run, limit, refuse))
                output = ran.results["output"]
                expected.compare({"output": output, "changed": expected.drawn.own["changed"]})
            except (RequestRefused, Mismatch):
                continue
            if expected.drawn.own["changed"]:
                continue  # the result may be in the inputs
            if not refuse:
                raise EarlyVerdict("cheat", "decoy_kernel", trial=expected.draw.to_json())
            self.outcome.warn("has_fallback", message="right without its kernels, if they raise")

    def _other(self) -> Expected:
        """Return another draw than the last, whose result a buffer may still hold."""
        draw = dataclasses.replace(self.last, seed=self.last.seed + OTHER, family="signed")
        return self.oracle.expect(self._affordable(draw))

    def _burst(self) -> None:
        """Call the candidate many times, and then look again, also at what calls before gave."""
        expected = self._other()
        self._build(expected)
        run, limit = self._inputs(expected), expected.size + SLACK
        ran = self._noting(partial(self.session.burst, run, limit, BURST))
        output = ran.results["output"]
        self._compare(expected, {"output": output, "changed": expected.drawn.own["changed"]})
        if harmed := ran.harmed:
            raise EarlyVerdict("incorrect", "earlier_call", changed=harmed)
        if ran.keeps_state:
            self.outcome.warn("keeps_state", message="it writes to memory older than the call")
        if ran.unsteady:
            self.outcome.warn("calls_differ", message="equal calls ask the device for other work")
        self._compare(expected, self._forward(expected).results)

    # beyond what the file asks for

    def _try_variants(self) -> None:
        """Try other sizes, arguments and layouts, where the reference takes them."""
        last = self._usual()
        try:
            variants = self.oracle.variants(dataclasses.replace(last, family=OWN))
            usual = self.oracle.expect(last)
        except NoOracle as error:
            self._leave_untried(error)
            return
        for layout in variants.layouts:
            self._try_beyond("contiguous_only", usual, layout=layout)
        if self.options.vary_sizes:
            self._try_changes("some_sizes_only", variants.draws.get("sizes", []))
            self._try_changes("own_ranks_only", variants.draws.get("ranks", []))
        self._try_changes("own_arguments_only", variants.draws.get("arguments", []))

    def _usual(self) -> Draw:
        """Return the last draw, or one like it with more than one row."""
        draw = self._affordable(self.last)
        return dataclasses.replace(draw, size=3) if draw.size == 1 else draw

    def _affordable(self, draw: Draw) -> Draw:
        """Return a draw, or one like it of a small size where a program is much work."""
        costly = self._is_large() or (self.on_cpu and self.own_spent > COSTLY)
        if not costly or self.own_size is None or "own_sizes_only" in self.outcome.caveats:
            return draw
        return dataclasses.replace(draw, size=min(3, self.own_size))

    def _untried_branches(self) -> dict[int, Branch]:
        """Return the branches of functions that were called which no right result came through."""
        return {
            number: branch
            for number, branch in self.branches.items()
            if branch.function in self.tried and number not in self.tried and not branch.refuses
        }

    def _narrow(self) -> set[tuple[str, int]]:
        """Return axes of kernels' grids that are computed and had one program in right draws."""
        kernels = [way for way in self.tried if isinstance(way, str)]
        computed = {(name, axis) for name in kernels for axis in self.grids.computed(name)}
        return computed - self.tried

    def _untried(self) -> set[Way]:
        return {*self._untried_branches(), *self._narrow()}

    def _try_long_sizes(self) -> None:
        """Make dimensions of the inputs long, one by one, until branches and grids were tried."""
        first = plan(1, None, self.oracle.seed)[0]
        draw = self._draw(dataclasses.replace(first, parameters=self.last.parameters))
        number, dimensions = 0, 1
        while number < dimensions and self._untried() and self.options.vary_sizes:
            refused: dict[str, Any] | None = None
            for short in (True, False):
                try:
                    found, dimensions = self.oracle.long_draw(draw, number, short)
                except NoOracle as error:
                    self._leave_untried(error)
                    return
                untried = self._untried()
                refused = self._try_long(found) if found else refused
                if refused == {} and self._untried() in (untried, set()):
                    break
            if refused:
                self.outcome.warn("some_sizes_only", **refused)
            number += 1

    def _try_long(self, draw: Draw) -> dict[str, Any] | None:
        """Try a draw with a long dimension; return what goes wrong, nothing if nothing does.

        None stands for a draw that the reference does not take.

        Raises:
            EarlyVerdict: the program is wrong and did what no call with right results did.
        """
        untried = self._untried()
        for number, family in enumerate(LONG_FAMILIES):
            tried = dataclasses.replace(draw, family=family, seed=draw.seed + number)
            expected = self._expect(tried)
            if expected is None:
                return None
            self.taken = set()
            try:
                self._build(expected)
                ran = self._forward(expected, fresh=True)
                self._compare(expected, ran.results)
            except SessionEnded as ended:
                return {"message": str(ended)}
            except (RequestRefused, EarlyVerdict) as error:
                self._reject_new(error, expected, bool(self.taken & untried))
                return error.evidence
            if not self.taken & untried:
                return {}
            self.by_host |= ran.by_host
            calls = ran.did.calls
            if not ran.did.launches or ran.by_operators or (calls and self._covers(calls)):
                told = {"aten_calls": calls, "trial": expected.draw.to_json()}
                self.outcome.warn("has_fallback", **told)
            self.session.note_other_kernels()
        return {}

    def _reject_new(
        self, error: RequestRefused | EarlyVerdict, expected: Expected, is_new: bool
    ) -> None:
        """Raise what is wrong, if the call did what no call with right results did.

        As on other sizes of the draws, a program may raise there.
        """
        if isinstance(error, RequestRefused):
            if error.status == "unsupported" or self._lacks_memory(error):
                self._leave_untried(error)
            elif is_new and not _is_honest(error):
                told = {"message": error.message, "trial": expected.draw.to_json()}
                raise EarlyVerdict(error.status, error.reason, **told) from error
        elif is_new or error.status == "cheat":
            raise error

    def _try_other_values(self) -> None:
        """Try integers below zero, where the file draws none, and values that are not finite."""
        last = dataclasses.replace(self._usual(), seed=self.last.seed + OTHER)
        draws = {"finite_only": dataclasses.replace(last, family=NOT_FINITE)}
        if self.has_integers:
            draws["own_integers_only"] = dataclasses.replace(last, family=NEGATIVE_INTEGERS)
        for caveat, draw in draws.items():
            self._try_beyond(caveat, self._expect(draw))

    def _expect(self, draw: Draw) -> Expected | None:
        """Return what a draw gives, or None where the reference does not take its changes."""
        try:
            expected = self.oracle.expect(draw)
        except NoOracle as error:
            self._leave_untried(error)
            return None
        special = draw.family in (NOT_FINITE, NEGATIVE_INTEGERS)
        taken = expected.draw.changes == draw.changes
        return expected if taken and not (special and expected.draw != draw) else None

    def _try_changes(self, caveat: str, draws: list[Draw]) -> None:
        """Try draws with changes; where one goes wrong, name those that go wrong alone."""
        wrong: list[Variation] = []
        shown: dict[str, Any] = {}
        for draw in draws:
            if found := self._fault(self._expect(draw)):
                alone = [dataclasses.replace(draw, changes=(change,)) for change in draw.changes]
                known = [d for d in alone if len(alone) > 1 and self._fault(self._expect(d))]
                wrong += [d.changes[0] for d in known] or draw.changes
                shown = shown or found
        if wrong:
            changes = [dataclasses.asdict(change) for change in wrong]
            self.outcome.warn(caveat, changes=changes, **shown)

    def _try_beyond(self, caveat: str, expected: Expected | None, **how: Any) -> None:
        """Try what the file does not ask for, and note if it goes wrong."""
        if found := self._fault(expected, **how):
            self.outcome.warn(caveat, **found, **how)

    def _leave_untried(self, error: NoOracle | RequestRefused) -> None:
        """Note that something beyond the file could not be tried, or raise the error.

        Where neighbours may hold the memory that lacks, nothing follows: the judge asks again.
        """
        if error.reason == BUDGET or (self._lacks_memory(error) and not self._is_large()):
            raise error
        self.outcome.evidence["untried"] = str(error)[:200]

    def _lacks_memory(self, error: NoOracle | RequestRefused) -> bool:
        """Whether the device had too little memory."""
        return not self.on_cpu and (error.status == "oom" or error.reason == REFERENCE_OOM)

    def _fault(self, expected: Expected | None, layout: str | None = None) -> dict[str, Any]:
        """Return what goes wrong with a draw; nothing if there is none."""
        if expected is None:
            return {}
        if not self.session.is_open:
            return {"message": "its process had ended before"}
        try:
            self._build(expected)
            expected.compare(self._forward(expected, fresh=True, layout=layout).results)
            self.tried |= self.taken
        except RequestRefused as refused:
            if refused.status == "unsupported" or self._lacks_memory(refused):
                self._leave_untried(refused)
                return {}
            return {"message": refused.message}
        except Mismatch as mismatch:
            return {"reason": mismatch.reason, **mismatch.evidence}
        except SessionEnded as ended:
            return {"message": str(ended)}
        except EarlyVerdict as found:
            if found.status == "cheat":
                raise
            return {"reason": found.reason, **found.evidence}
        return {}


def _is_honest(refused: RequestRefused) -> bool:
    """Whether a program raises, as one may at sizes that it is not made for."""
    raised = refused.status in ("runtime_error", "compile_error")
    return raised and refused.reason != "out_of_bounds"


def _few(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, or evenly spaced values of a large one."""
    some = tensor if tensor.numel() <= FEW else tensor.reshape(-1)[:: tensor.numel() // FEW]
    return some.clone()


def _never_varied(draws: list[list[Any]]) -> list[int]:
    """Return the positions of inputs that were the same in every draw of the file's own size."""
    found = []
    for i, value in enumerate(draws[0]):
        others = [draw[i] for draw in draws[1:]]
        if isinstance(value, torch.Tensor):
            same = all(
                isinstance(o, torch.Tensor)
                and (o.shape != value.shape or same_tensors([o], [value]))
                for o in others
            )
            same &= value.numel() > 0
        else:
            same = value is not None and all(repr(o) == repr(value) for o in others)
        if same and not isinstance(value, list | tuple | dict):
            found.append(i)
    return found


def _paired(
    names: list[str], own: Tensors, theirs: list[str], initial: Tensors
) -> dict[str, str] | None:
    """Return which of the reference's tensors each of a program's is, by name or else by value.

    None means that there is no one way to pair them.
    """
    if sorted(names) == sorted(theirs):
        known = dict(zip(theirs, initial, strict=True))
        if all(known[n].shape == t.shape for n, t in zip(names, own, strict=True)):
            return {name: name for name in names}
    left = dict(zip(theirs, initial, strict=True))
    pairs: dict[str, str] = {}
    for name, tensor in zip(names, own, strict=True):
        found = next((n for n, t in left.items() if same_tensors([tensor], [t])), None)
        if found is None:
            return None
        pairs[name] = found
        del left[found]
    return None if left else pairs


def _lacks_digits(mismatch: Mismatch, expected: Expected, results: Any) -> bool:
    """Say whether results are wrong only in that they were computed with 10 bits."""
    if not mismatch.is_error:
        return False
    try:
        expected.compare_coarsely(results)
    except (Mismatch, NoOracle):
        return False
    return True
