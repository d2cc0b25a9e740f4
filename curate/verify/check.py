"""Run a candidate and its reference on many draws, and say whether they agree."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
from torch import nn

from curate.verify.compare import Agreement, Mismatch, compare, flatten
from curate.verify.draw import Draw, draw_inputs, plan, redraw_parameters
from curate.verify.interpreter import Unsupported, root_cause, work_budget
from curate.verify.problem import REFERENCE, Problem, ProgramError, copy_state, describe


class _Verdict(Exception):
    """Ends a check.

    Attributes:
        status: one of the statuses of `curate.rows.VERDICT`, or ``reference_error``.
        reason: a short code in snake_case.
        evidence: what shows it, as JSON values.
    """

    def __init__(self, status: str, reason: str, evidence: dict[str, Any]) -> None:
        super().__init__(status)
        self.status, self.reason, self.evidence = status, reason, evidence


class _Skip(Exception):
    """The reference does not take a draw's signs or size, so that nothing is learned from it."""


def check_program(
    reference: str, candidate: str, *, trials: int, operations: int, vary_sizes: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check a candidate against its reference in the interpreter.

    Args:
        reference: text of a file in KernelBench's form.
        candidate: text of the file with ``ModelNew``.
        trials: draws with the file's own sizes.
        operations: on blocks, that interpreted kernels may take in all.
        vary_sizes: whether the candidate is meant for other sizes too, so that a wrong result
            for another batch size counts against it.

    Returns:
        The verdict, with the fields of `curate.rows.VERDICT`, and the evidence for it. The
        status is ``correct``, ``incorrect``, ``runtime_error``, ``unsupported``, ``degenerate``
        (the reference's output is constant or not finite) or ``reference_error``. A correct
        program's reason is null, or ``smaller_sizes_only``.
    """
    agreement, done, reason = Agreement(), 0, None
    status, evidence = "correct", {}
    try:
        with _deterministic():
            problem = Problem(reference, candidate)
            with work_budget(operations):
                agreement, done, reason = _check(problem, plan(problem, trials, vary_sizes))
    except _Verdict as verdict:
        status, reason, evidence = verdict.status, verdict.reason, verdict.evidence
    except ProgramError as error:
        failed = "reference_error" if error.which == REFERENCE else "runtime_error"
        status, reason, evidence = failed, "load", {"message": str(error)}
    return {
        "status": status,
        "reason": reason,
        "backend": "interpreter",
        "device": "cpu",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "trials": done,
        "max_abs_error": agreement.max_abs_error if status == "correct" else None,
        "tolerance": agreement.tolerance if status == "correct" else None,
    }, evidence


@contextmanager
def _deterministic() -> Iterator[None]:
    """Fill every uninitialised tensor with NaN, and take no gradients."""
    saved = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        with torch.no_grad():
            yield
    finally:
        torch.use_deterministic_algorithms(saved)


def _check(problem: Problem, draws: list[Draw]) -> tuple[Agreement, int, str | None]:
    """Try every draw; return the worst agreement, the draws that count, and a caveat or None.

    Where the file's own sizes are too much work, the other sizes speak for the program, and the
    caveat says so.
    """
    worst, outputs, caveat = Agreement(), [], None
    for draw in draws:
        try:
            agreement, output = _try(problem, draw)
        except _Skip:
            agreement, output = _try(problem, Draw(draw.seed))
        except _Verdict as verdict:
            smaller = draw is draws[0] and draws[-1].size is not None
            if verdict.reason != "interpreter_budget" or not smaller:
                raise
            caveat = "smaller_sizes_only"
            continue
        worst = worst.join(agreement)
        outputs.append(output)
    _reject_degenerate(outputs)
    return worst, len(outputs), caveat


def _try(problem: Problem, draw: Draw) -> tuple[Agreement, Any]:
    """Run both on one draw; return how well they agree, and the reference's output.

    The candidate runs first, so that the expected output is nowhere in memory yet.
    """
    model, new = problem.build(draw.seed)
    redraw_parameters(model, draw.seed)
    copy_state(model, new)
    inputs = draw_inputs(problem, draw)
    got: Any
    try:
        got = _run(new, inputs, draw.seed)
    except Exception as error:
        got = root_cause(error)
    own, exact = _run_reference(model, inputs, draw)
    try:
        if isinstance(got, Exception):
            raise got
        return compare(got, own, exact), own
    except Unsupported as error:
        raise _Verdict("unsupported", error.reason, {"message": str(error)}) from error
    except Mismatch as mismatch:
        evidence = {"trial": draw.describe(), **mismatch.evidence}
        raise _Verdict("incorrect", mismatch.reason, evidence) from mismatch
    except Exception as error:
        evidence = {"trial": draw.describe(), "message": describe(error)}
        raise _Verdict("runtime_error", type(error).__name__, evidence) from error


def _run(model: nn.Module, inputs: list[Any], seed: int) -> dict[str, Any]:
    """Return what ``forward`` gives, and what it leaves of its inputs."""
    given = copy.deepcopy(inputs)
    torch.manual_seed(seed)
    result = model(*given)
    return {"output": copy.deepcopy(result), "inputs": given}


def _run_reference(
    model: nn.Module, inputs: list[Any], draw: Draw
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the reference's results in its own precision and in float64.

    Raises:
        _Skip: it does not take a draw that is not the file's own.
        _Verdict: it raises on the file's own inputs, or gives another output each time.
    """
    try:
        state = copy.deepcopy(model)
        again = _run(copy.deepcopy(model), inputs, draw.seed + 1) if draw.seed == 0 else None
        own = _run(model, inputs, draw.seed)
    except Exception as error:
        if draw.signed or draw.size is not None:
            raise _Skip from error
        raise _Verdict("reference_error", "raises", {"message": describe(error)}) from error
    if draw.signed and not _finite(own):
        raise _Skip
    if again is not None and not _equal(own, again):
        raise _Verdict("unsupported", "random", {"message": "the output depends on the seed"})
    try:
        exact = _run(state.double(), _to_double(inputs), draw.seed)
        if list(flatten(exact)) == list(flatten(own)):
            return own, exact
    except RuntimeError:
        # Some modules name float32 in their code and cannot be run in another precision; they
        # are held to the floor of the tolerance alone.
        return own, own
    return own, own


def _to_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, list | tuple):
        return type(value)(_to_double(item) for item in value)
    if isinstance(value, dict):
        return {key: _to_double(item) for key, item in value.items()}
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in flatten(value).values() if isinstance(leaf, torch.Tensor)]


def _finite(result: Any) -> bool:
    return all(bool(t.isfinite().all()) for t in _tensors(result) if t.is_floating_point())


def _equal(one: Any, other: Any) -> bool:
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return all(a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def _reject_degenerate(results: list[Any]) -> None:
    """Raise a verdict where agreement would prove nothing.

    Raises:
        _Verdict: the reference gives the same output for every draw, or nothing finite.
    """
    outputs = [_tensors(result["output"]) for result in results]
    floats = [t for output in outputs for t in output if t.is_floating_point() and t.numel()]
    if floats and not any(bool(t.isfinite().any()) for t in floats):
        raise _Verdict("degenerate", "nothing_finite", {})
    if len(results) > 1 and all(_equal(results[0]["output"], r["output"]) for r in results[1:]):
        raise _Verdict("degenerate", "constant_output", {})
