"""What is tried with a candidate, one function each; `plan.PLAN` has their order.

Each returns if it finds nothing wrong, notes a caveat, or raises an `Ending`.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import torch

from curate.problem.draw import (
    BUFFERS,
    FAR,
    MANY,
    NOT_FINITE,
    OWN,
    SETS,
    WIDE,
    Draw,
    Variation,
    integer_families,
    parameters_seed,
    plan,
)
from curate.problem.values import map_tensors, same_tensors
from curate.problem.vary import LONG
from curate.verify.judge.check import BUDGET, OTHER, CandidateCheck, EarlyVerdict
from curate.verify.judge.oracle import Expected, NoOracle
from curate.verify.judge.session import RequestRefused, SessionEnded
from curate.verify.protocol.compare import Mismatch

DEAR = 2.0
"""How often the first draw's work must fit in what is left for each of the others."""

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

TURNED, ANOTHER = Variation("order", 0, 0), Variation("one", 0, 0)

ODD = 1
"""The number of a set of parameters with which counters of calls are beyond zero."""

IN_TRAINING = "shifted", "large"
"""Families that are tried in training mode besides the last draw's."""

GROWN_BYTES = 2**21  # of a draw's tensors, where a size is made larger

WEIGHED = (OWN, "steps", "signed", "small")
"""Families on which the judge checks who did the work; on the others many stages are identities."""

LONG_WORK = 2e8
"""Elements that an executor may touch in one forward with a long dimension: a second's work."""

LONG_ON_DEVICE = LONG[2:]
"""Lengths on a device. A row of 131,101 in one tile takes its compiler 85 seconds, one of 33,001
four."""

LONG_FAMILIES = ("negative", "shifted")
"""Families of draws with a long dimension: inputs are of one sign, then of the other, so that zeros
behind the last element show in a maximum or a minimum."""


def draws(check: CandidateCheck) -> None:
    """Run every draw of the plan, and the first one twice: the order must not matter."""
    trials, seed = check.options.trials, check.oracle.seed
    _try_draw(check, check.of_mode(plan(1, check.own_size, seed)[0]))
    dear = not check.outcome.trials or DEAR * check.spent * trials > check.options.elements
    check.thrifty = (check.on_cpu and dear) or check.is_large()
    many = not (dear or check.thrifty) and _may_grow(check)
    few = LARGE_SETS if check.is_large() else 0
    others_are_small = bool(few) and check.own_size is not None
    if others_are_small:
        _try_again(check)
        check.room.keep(SMALL_ROOM)
    draws = plan(trials, check.own_size, seed, check.thrifty, many, few)
    for i, draw in enumerate(draws[1:], start=1):
        if draw.size is None or not few or check.refused < REFUSED:
            _try_draw(check, check.of_mode(draw))
        if i == min(SETS, trials) - 1 and not others_are_small:
            _try_again(check)
    if check.own_numbers and all(check.own_numbers):
        check.outcome.warn("own_numbers_only")


def _may_grow(check: CandidateCheck) -> bool:
    """Whether `MANY` instead of the file's own size takes little enough memory and work."""
    times = MANY / max(1, check.own_size or MANY)
    work = DEAR * check.spent * times
    return check.last_bytes * times < GROWN_BYTES and work < check.options.elements


def _try_draw(check: CandidateCheck, draw: Draw) -> None:
    """Run one draw, and raise unless the outputs are right."""
    expected = check.oracle.expect(draw)
    try:
        check.build(expected)
        # Some objects are new: a program must not hold on to those of an earlier call.
        fresh = check.outcome.trials % SETS == SETS - 1
        usual = draw.size is None or check.thrifty
        weighed = usual and (draw.family in WEIGHED or len(check.ways) > 1)
        ran = check.forward(expected, fresh=fresh, weighed=weighed)
    except RequestRefused as refused:
        if not _may_refuse(check, refused, draw, expected.draw):
            raise EarlyVerdict(
                refused.status,
                refused.reason,
                message=refused.message,
                trial=expected.draw.to_json(),
            ) from refused
        return
    check.compare(expected, ran.results)
    if draw.family != OWN:
        check.own_numbers.append(expected.draw.family == OWN)
    if check.first is not None and expected.is_empty:
        return  # of one row, `pdist` makes nothing: it takes no kernel, and shows as little
    check.weigh(ran, expected, weighed)
    check.given.append(map_tensors(expected.drawn.inputs, _few))
    check.own_bytes = check.own_bytes or expected.size
    check.variety.add(expected)
    # Draws are kept, and not what came of them: that may be most of the device's memory.
    check.last, check.last_bytes = expected.draw, expected.size
    check.integer_families = integer_families(expected.drawn.inputs)
    check.outcome.trials += 1
    if check.first is None:
        check.first, check.typical = (expected.draw, ran.results), expected.usual
        if check.is_large():
            check.first = expected.draw, None


def _may_refuse(check: CandidateCheck, refused: RequestRefused, asked: Draw, tried: Draw) -> bool:
    """Whether an exception is a caveat and no fault."""
    if refused.reason == BUDGET:
        if asked.size is None and check.own_size is not None:
            check.outcome.warn("smaller_sizes_only", message=refused.message)
            return True
        return False
    if tried.size is not None and _is_honest(refused):
        check.outcome.warn("own_sizes_only", message=refused.message, trial=tried.to_json())
        check.refused += 1
        return True
    return False


def _try_again(check: CandidateCheck) -> None:
    """Run the first draw once more, unrecorded."""
    if not check.first or check.built is None:
        return
    draw, before = check.first
    if check.built.instance != draw.instance:
        return
    expected = check.oracle.expect(draw)
    ran = check.forward(expected)
    check.compare(expected, ran.results)
    if not ran.did.launches:
        raise EarlyVerdict("cheat", "no_kernel", trial=expected.draw.to_json(), again=True)
    if before is not None:
        check.outcome.evidence["deterministic"] = same_tensors(before, ran.results)


def ablation(check: CandidateCheck) -> None:
    """Take the kernels away: a result that is still right did not come from them."""
    expected = check.other()
    for refuse in (False, True):
        if not _right_without_kernels(check, expected, refuse):
            continue
        # Numbers unlike the file's may be so inexact in their type that any result is right.
        if not _right_without_kernels(check, check.other(OWN), refuse):
            continue
        if not refuse:
            raise EarlyVerdict("cheat", "decoy_kernel", trial=expected.draw.to_json())
        check.outcome.warn("has_fallback", message="right without its kernels, if they raise")


def _right_without_kernels(check: CandidateCheck, expected: Expected, refuse: bool) -> bool:
    if not expected.varies or expected.drawn.own["changed"]:  # the result may be in the inputs
        return False
    check.build(expected)
    run = check.inputs(expected)
    try:
        ran = check.noting(partial(check.session.ablate, run, refuse))
        expected.compare({"output": ran.results["output"], "changed": {}})
    except (RequestRefused, Mismatch):
        return False
    return True


def burst(check: CandidateCheck) -> None:
    """Call the candidate many times, and then look again, also at what calls before gave."""
    expected = check.other()
    check.build(expected)
    ran = check.noting(partial(check.session.burst, check.inputs(expected), BURST))
    output = ran.results["output"]
    check.compare(expected, {"output": output, "changed": expected.drawn.own["changed"]})
    if harmed := ran.harmed:
        raise EarlyVerdict("incorrect", "earlier_call", changed=harmed)
    if ran.keeps_state:
        check.outcome.warn("keeps_state", message="it writes to memory older than the call")
    if ran.counts:
        check.outcome.warn("keeps_state", message="its host functions keep more from call to call")
    if ran.unsteady:
        check.outcome.warn("calls_differ", message="equal calls ask the device for other work")
    # What a program has kept by a checksum of its inputs may be for the same numbers in order, and
    # what it has kept by some of them for all with those.
    reads = "reads_values" in check.outcome.caveats
    for change in (TURNED, ANOTHER) if reads else (TURNED,):
        check.compare(expected, check.forward(expected).results)
        changed = dataclasses.replace(expected.draw, changes=(*expected.draw.changes, change))
        if other := check.expect(changed):
            check.compare(other, check.forward(other).results)


def variants(check: CandidateCheck) -> None:
    """Try other sizes, arguments and layouts, where the reference takes them."""
    last = check.usual()
    try:
        variants = check.oracle.variants(last.of(OWN), not check.thrifty)
        usual = check.oracle.expect(last)
    except NoOracle as error:
        if not check.leaves_untried(error):
            raise
        return
    if variants.cut_short:
        check.outcome.evidence["untried"] = "some changes: the reference takes too long"
    for layout in variants.layouts:
        _try_beyond(check, "contiguous_only", usual, layout=layout)
    if check.options.vary_sizes:
        _try_changes(check, "some_sizes_only", variants.draws.get("sizes", []))
        _try_changes(check, "own_ranks_only", variants.draws.get("ranks", []))
    _try_changes(check, "own_arguments_only", variants.draws.get("arguments", []))
    _try_changes(check, "own_arguments_only", variants.draws.get("more arguments", []))
    for draw in variants.draws.get("types", []):
        wrong = check.fault(check.expect(draw))
        if "reason" in wrong:  # to refuse a type is to say what it takes
            check.outcome.warn("own_types_only", **wrong)


def long_sizes(check: CandidateCheck) -> None:
    """Make dimensions of the inputs long, one by one: with much work until branches and grids were
    tried, and on a CPU with little after that; on a device each takes a compiler seconds."""
    first = plan(1, None, check.oracle.seed)[0]
    draw = check.of_mode(dataclasses.replace(first, parameters=check.last.parameters))
    number, dimensions = 0, 1
    while number < dimensions and (check.on_cpu or check.untried()):
        refused: Refused = None
        longest = 0  # what was tried last that counts
        for short in (True, False):
            untried = check.untried()
            try:
                found, length, dimensions = _try_lengths(check, draw, number, short)
            except NoOracle as error:
                if not check.leaves_untried(error):
                    raise
                return
            if found or (found is not None and length >= longest):
                refused, longest = found, length
            if found and "message" not in found:  # it is wrong, and does not raise
                break
            if found == {} and check.untried() in (untried, set()):
                break
        if refused:
            check.outcome.warn("some_sizes_only", **refused)
        number += 1


Refused = dict[str, Any] | None
"""What goes wrong with a draw, nothing if nothing does; None stands for a draw that was not tried,
since the reference does not take it."""


def _try_lengths(
    check: CandidateCheck, draw: Draw, number: int, short: bool
) -> tuple[Refused, int, int]:
    """Try the longest draw that is little enough work for the reference and for the program.

    A tile of one row may be 64 times the work of its numbers. Returned is also how long it was, and
    how many dimensions there are.
    """
    few, tried, dimensions = not check.untried(), None, 0
    for longest in LONG if check.on_cpu else LONG_ON_DEVICE:
        found, dimensions = check.oracle.long_draw(draw, number, short, few, longest)
        if found is None:
            break
        if found != tried:
            tried = found
            try:
                longest = max(int(c.value) for c in found.changes if type(c.value) is int)
                return _try_long(check, found), longest, dimensions
            except RequestRefused as error:
                if error.reason != BUDGET or check.session.elements <= LONG_WORK:
                    raise
    return None, 0, dimensions


def _try_long(check: CandidateCheck, draw: Draw) -> Refused:
    """Try a draw with a long dimension."""
    untried = check.untried()
    for number, family in enumerate(LONG_FAMILIES):
        tried = dataclasses.replace(draw, family=family, seed=draw.seed + number)
        expected = check.expect(tried)
        if expected is None:
            return None
        check.taken = set()
        try:
            check.build(expected)
            if check.on_cpu:
                check.session.most = LONG_WORK
            ran = check.forward(expected, fresh=True)
            check.compare(expected, ran.results)
        except SessionEnded as ended:
            return {"message": str(ended)}
        except (RequestRefused, EarlyVerdict) as error:
            if _ends_check(check, error, expected, bool(check.taken & untried)):
                raise
            return error.evidence
        finally:
            check.session.most = math.inf
        if not check.taken & untried:
            return {}
        check.by_host |= ran.by_host
        calls = ran.did.calls
        if not ran.did.launches or ran.by_operators or (calls and check.covers(calls)):
            told = {"aten_calls": calls, "trial": expected.draw.to_json()}
            check.outcome.warn("has_fallback", **told)
        check.session.note_other_kernels()
    return {}


def _ends_check(
    check: CandidateCheck, error: RequestRefused | EarlyVerdict, expected: Expected, is_new: bool
) -> bool:
    """Say whether an error counts: the call did what no call with right results did.

    As on other sizes of the draws, a program may raise there.
    """
    if isinstance(error, EarlyVerdict):
        return is_new or error.status == "cheat"
    if error.status == "unsupported" or check.lacks_memory(error):
        return not check.leaves_untried(error)
    if is_new and not _is_honest(error):
        told = {"message": error.message, "trial": expected.draw.to_json()}
        raise EarlyVerdict(error.status, error.reason, **told) from error
    return False


def other_parameters(check: CandidateCheck) -> None:
    """Change the parameters of the module, then its tables, too, and then make all parameters
    large: what a program has made of them before is stale."""
    last = check.usual()
    usual = check.oracle.expect(last)
    seed = parameters_seed(last.parameters)
    tables = [seed + BUFFERS] if check.oracle.facts(check.mode).has_tables else []
    seeds = [seed, *tables, *([seed + WIDE] if check.session.given_state[0] else [])]
    for parameters in seeds:
        other = check.expect(dataclasses.replace(last, parameters=parameters))
        if other is None or other.drawn.names != usual.drawn.names or not check.session.is_open:
            return
        check.build(usual)
        check.forward(usual)
        check.give_parameters(other)
        if found := check.fault(other, builds=False):
            check.outcome.warn("own_parameters_only", **found)


def training(check: CandidateCheck) -> None:
    """Call the program in training mode, where the reference draws nothing at random there: at
    first, and after many calls, as counters have it; far from zero; and at another size, which the
    program took in eval mode."""
    draw = dataclasses.replace(check.usual(), mode="train")
    later = dataclasses.replace(draw, parameters=parameters_seed(draw.parameters, ODD))
    tries = [draw, later, *(draw.of(family) for family in IN_TRAINING if not check.thrifty)]
    if check.own_size is not None and "own_sizes_only" not in check.outcome.caveats:
        tries.append(dataclasses.replace(draw, size=check.own_size + ODD))
    for tried in tries if check.mode == "eval" else ():
        if "eval_mode_only" not in check.outcome.caveats:
            _try_beyond(check, "eval_mode_only", check.expect(tried))


def not_finite(check: CandidateCheck) -> None:
    """Try NaN and infinities."""
    _try_beyond(check, "finite_only", _like_last(check, NOT_FINITE))


def far_numbers(check: CandidateCheck) -> None:
    """Try numbers that are far smaller and far larger than one."""
    _try_beyond(check, "usual_numbers_only", _like_last(check, FAR))


def other_integers(check: CandidateCheck) -> None:
    """Try integers and masks that the file does not draw, each kind if the reference takes it."""
    for family in check.integer_families:
        if check.session.is_open:
            _try_beyond(check, "own_integers_only", _like_last(check, family))


def _like_last(check: CandidateCheck, family: str) -> Expected | None:
    last = check.usual()
    return check.expect(dataclasses.replace(last, seed=check.last.seed + OTHER, family=family))


def _try_changes(check: CandidateCheck, caveat: str, draws: list[Draw]) -> None:
    """Try draws with changes; where one goes wrong, name those that go wrong alone."""
    wrong: list[Variation] = []
    shown: dict[str, Any] = {}
    for draw in draws:
        if any(change.what == "input" for change in draw.changes):
            _call_as_before(check, draw)
        if found := check.fault(check.expect(draw)):
            known = [d for d in check.oracle.alone(draw) if check.fault(check.expect(d))]
            wrong += [d.changes[0] for d in known] or draw.changes
            shown = shown or found
    if wrong:
        changes = [dataclasses.asdict(change) for change in wrong]
        check.outcome.warn(caveat, changes=changes, **shown)


def _call_as_before(check: CandidateCheck, draw: Draw) -> None:
    """Call the module that a draw is for with the file's own numbers: what it keeps of them, as a
    table of the first places, is then stale."""
    as_before = tuple(change for change in draw.changes if change.what != "input")
    check.fault(check.expect(dataclasses.replace(draw, changes=as_before)))


def _try_beyond(check: CandidateCheck, caveat: str, expected: Expected | None, **how: Any) -> None:
    """Try what the file does not ask for, and note if it goes wrong."""
    if found := check.fault(expected, **how):
        check.outcome.warn(caveat, **found, **how)


def _is_honest(refused: RequestRefused) -> bool:
    """Whether a program raises, as one may at sizes that it is not made for."""
    raised = refused.status in ("runtime_error", "compile_error")
    return raised and refused.reason != "out_of_bounds"


def _few(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, or evenly spaced values of a large one."""
    some = tensor if tensor.numel() <= FEW else tensor.reshape(-1)[:: tensor.numel() // FEW]
    return some.clone()
