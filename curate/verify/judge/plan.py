"""The plan of a check: what is tried with a candidate, in which order, and what follows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from curate.problem.branches import parse
from curate.problem.values import same_tensors
from curate.verify.judge import examinations
from curate.verify.judge.check import BUDGET, CandidateCheck, EarlyVerdict
from curate.verify.judge.session import RequestRefused
from curate.verify.screen.surroundings import surroundings
from curate.verify.verdict import Candidate

ENOUGH = 3
"""Draws after which a program that has no budget left is not held against it."""


@dataclass(frozen=True)
class Examination:
    """One line of the plan.

    Attributes:
        name: what is tried.
        run: tries it.
        when: says whether it is tried.
    """

    name: str
    run: Callable[[CandidateCheck], None]
    when: Callable[[CandidateCheck], bool]


def always(check: CandidateCheck) -> bool:
    """Whatever came before."""
    return True


def compared(check: CandidateCheck) -> bool:
    """Where a draw was compared: on a CPU all may be too much work."""
    return check.outcome.trials > 0


def may_vary(check: CandidateCheck) -> bool:
    """Where sizes may be others than the file's."""
    return compared(check) and check.options.vary_sizes


def has_parameters(check: CandidateCheck) -> bool:
    """Where the module has tensors of its own, and they are few enough to be made once more."""
    if not compared(check) or check.is_large():
        return False
    return bool(check.session.given_state[0]) or check.oracle.facts(check.mode).has_tables


def has_choices(check: CandidateCheck) -> bool:
    """Where inputs hold integers, or are masks."""
    return compared(check) and bool(check.integer_families)


PLAN = (
    Examination("draws of inputs and parameters", examinations.draws, always),
    Examination("who did the work", CandidateCheck.reject_idle_kernels, compared),
    Examination("calls without kernels", examinations.ablation, compared),
    Examination("many calls in a row", examinations.burst, compared),
    Examination("other layouts, sizes, arguments", examinations.variants, compared),
    Examination("long dimensions", examinations.long_sizes, may_vary),
    Examination("values that are not finite", examinations.not_finite, compared),
    Examination("numbers of all sizes", examinations.far_numbers, compared),
    Examination("integers that the file does not draw", examinations.other_integers, has_choices),
    Examination("training mode", examinations.training, compared),
    Examination(
        "other parameters in the same module", examinations.other_parameters, has_parameters
    ),
)
"""What is tried, in this order. The first that finds a candidate wrong decides."""


def examine(check: CandidateCheck, candidate: Candidate) -> None:
    """Try a candidate; return if it is right, with the rest in ``check.outcome``.

    Raises:
        EarlyVerdict: it is not, or nothing can be said.
        SessionEnded, RequestRefused: its process died, or it raised.
        NoOracle: the reference cannot say what is right.
    """
    check.load(candidate)
    try:
        for examination in PLAN:
            if examination.when(check):
                examination.run(check)
    except (EarlyVerdict, RequestRefused) as error:
        # What has been compared by then counts, if it is enough to say something.
        enough = check.outcome.trials >= min(ENOUGH, check.options.trials)
        if not check.on_cpu or error.reason != BUDGET or not enough:
            raise
        check.outcome.warn("fewer_trials", **error.evidence)
    if not check.outcome.trials:
        raise EarlyVerdict("unsupported", BUDGET)
    _conclude(check, candidate)


CALLED = "__init__", "forward"
"""The methods of a module that a caller gives arguments."""

NAMES_LIMIT = re.compile(
    r"^\s*(?:assert|if|elif|while)\b.*(?:2 ?\*\* ?31|1 ?<< ?31|214748364[78]|iinfo)", re.MULTILINE
)
"""Where a program says up to which size 32 bits are enough, it may refuse larger ones."""

ADDRESS = "tt.ptr_to_int"
"""What a kernel does that takes an address for a number."""


def _conclude(check: CandidateCheck, candidate: Candidate) -> None:
    """Note what all that was tried has left open, or raise if it proves nothing."""
    check.reject_idle_kernels()
    if len(check.given) > 1 and (fixed := _never_varied(check.given)):
        check.outcome.warn("constant_inputs", positions=fixed)
    if branches := check.untried_branches():
        lines = {branch.line for branch in branches.values()}
        check.outcome.warn("untried_branches", lines=sorted(lines))
    if narrow := check.narrow():
        check.outcome.warn("untried_grids", axes=sorted(narrow))
    if check.spanned and not NAMES_LIMIT.search(candidate.candidate):
        check.outcome.warn("narrow_offsets", kernels=sorted(check.spanned))
    if check.session.is_open and (left := check.session.configurations()):
        check.outcome.warn("untried_configurations", kernels=left)
    if named := _only_by_name(candidate.reference):
        check.outcome.warn("own_arguments_only", names=named)
    if check.operators:
        check.outcome.warn("torch_computes", operators=sorted(check.operators))
    names = surroundings(candidate.candidate, candidate.reference)
    kernels = [*check.session.kernels, *check.session.other_kernels]
    if any(ADDRESS in text for _, text, _ in kernels):
        names[ADDRESS] = 0
    if names:
        check.outcome.warn("looks_around", names=names)
    if reason := check.variety.problem():
        raise EarlyVerdict("degenerate", reason)


def _only_by_name(reference: str) -> list[str]:
    """Return the arguments of a module's methods that are given by name alone: none is tried."""
    models = [n for n in parse(reference).body if isinstance(n, ast.ClassDef)]
    methods = [f for n in models if n.name == "Model" for f in n.body]
    known = [f.args for f in methods if isinstance(f, ast.FunctionDef) and f.name in CALLED]
    return [one.arg for arguments in known for one in arguments.kwonlyargs]


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
