"""Is an output as right as it can be expected to be?

The allowed error is not a constant. The reference is run in its own precision and in float64; a
candidate may be as far from the float64 result as the reference itself is, or as the result moves
when the last digits of inputs and intermediate results change, times a small factor, plus a floor
of a few units in the last place.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch

Strict = Literal["all", "exact", "none"]

FACTOR = 8.0
"""How many times the reference's own error a candidate may have: it may add in another order."""

FLOOR_ULP, FLOOR_ULP_SHORT = 8.0, 1.0
"""Units in the last place that are always allowed, of the value and of a typical value: for types
that kernels compute in, and for shorter ones, to which a result is rounded once."""

SHORT_ULP = 0.75
"""Units in the last place that a result in a type of 16 bits may be off besides the reference's own
error: its rounding, which is half of one, and what comes before that in float32."""

SHORT_FACTOR = 4.0
"""How many times the reference's typical error before its last rounding a result may be off."""

BIAS = 0.15
"""Mean error, in units in the last place, from which results in such a type lean to one side."""

WORST = 1.0
"""How much of the reference's largest error, relative to the values, is allowed everywhere."""

TYPICAL = 0.95
"""The reference's own error is taken as at least this quantile of its errors in the tensor: one
element may be exact by luck, and the largest error may belong to an outlier."""

USUAL = 0.5
"""The same, of how far the float64 result moves: an element may stay where it is by luck."""

GROSS = 0.02
"""Share of the values up to which the reference's own error counts."""

BESIDE = 1e-3
"""Share of the values up to which ``usual`` counts."""

PIECE = 2**26
"""Elements that are compared at once. Of what is compared in pieces, each is held to what is
typical of itself."""

SAMPLE = 10_000
"""Elements from which a quantile is taken, evenly spaced."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Two outputs agree.

    Attributes:
        max_abs_error: largest distance from the float64 result.
        error_ratio: largest ratio of an error to what was allowed; at most 1.
        coarse: whether they agree to the 10 bits of TF32 and float16 only.
    """

    max_abs_error: float = 0.0
    error_ratio: float = 0.0
    coarse: bool = False

    def join(self, other: Agreement) -> Agreement:
        """Return the worse of the two, number by number."""
        return Agreement(
            max(self.max_abs_error, other.max_abs_error),
            max(self.error_ratio, other.error_ratio),
            self.coarse or other.coarse,
        )


class Mismatch(Exception):
    """Two outputs differ.

    Attributes:
        reason: ``structure``, ``shape``, ``dtype``, ``nonfinite``, ``value``, ``bias`` or
            ``precision``.
        evidence: where, what was expected and what was found, as JSON values.
    """

    def __init__(self, reason: str, **evidence: Any) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason = reason
        self.evidence = evidence

    @property
    def is_error(self) -> bool:
        """Whether floating numbers are further off than allowed: noise may allow more."""
        return self.reason == "value" and "error" in self.evidence


def flatten(value: Any, path: str = "output") -> dict[str, Any]:
    """Return an output's leaves (tensors and plain values) by their path.

    Lists and tuples count as the same.
    """
    if isinstance(value, list | tuple):
        parts = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    elif isinstance(value, dict):
        named = sorted(value.items(), key=lambda pair: repr(pair[0]))  # order says nothing
        parts = [(f"{path}[{key!r}]", item) for key, item in named]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [(f"{path}.{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    else:
        return {path: value}
    return {name: leaf for part, item in parts for name, leaf in flatten(item, part).items()}


def compare(
    got: Any,
    own: Any,
    exact: Any,
    noise: Any = None,
    path: str = "output",
    strict: Strict = "all",
    ties: bool = False,
    usual: float = 0.0,
) -> Agreement:
    """Compare a candidate's output with the reference's.

    Args:
        got: the candidate's output: tensors and plain values in lists, tuples, dicts.
        own: the reference's output in its own precision.
        exact: the reference's output in float64, or ``own`` where there is none.
        noise: how far the float64 output moves when last digits change on the way to it, or None:
            what is ill-conditioned is allowed as much error.
        path: what evidence calls the output.
        strict: where NaN and infinities must be as in the reference: ``all``; ``exact``, where it
            has them in float64 too; or ``none``, as on inputs so large that it overflows.
        ties: see `allowed_error`.
        usual: size of values of which a few units in the last place are allowed besides, as far as
            that is little compared with the values here.

    Raises:
        Mismatch: they differ; the evidence names the first leaf that does.
    """
    leaves, own_leaves, exact_leaves = (flatten(one, path) for one in (got, own, exact))
    noise_leaves = {} if noise is None else flatten(noise, path)
    if list(leaves) != list(own_leaves):
        raise Mismatch("structure", expected=list(own_leaves)[:20], got=list(leaves)[:20])
    worst = Agreement()
    for path, leaf in leaves.items():
        expected = own_leaves[path]
        if isinstance(expected, torch.Tensor):
            known = expected, exact_leaves[path], noise_leaves.get(path)
            worst = worst.join(_compare_tensors(path, leaf, *known, strict, ties, usual))
        elif isinstance(leaf, torch.Tensor) or not _same_value(leaf, expected):
            raise Mismatch("value", output=path, expected=repr(expected), got=repr(leaf)[:200])
    return worst


def _same_value(got: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(got, int | float):
        return bool(got == expected or abs(got - expected) <= 1e-5 * abs(expected))
    return bool(type(got) is type(expected) and got == expected)


def _compare_tensors(
    path: str,
    got: Any,
    own: torch.Tensor,
    exact: torch.Tensor,
    noise: torch.Tensor | None,
    strict: Strict,
    ties: bool,
    usual: float,
) -> Agreement:
    if not isinstance(got, torch.Tensor):
        raise Mismatch("structure", output=path, expected="a tensor", got=type(got).__name__)
    if got.shape != own.shape:
        raise Mismatch("shape", output=path, expected=list(own.shape), got=list(got.shape))
    if got.dtype != own.dtype:
        raise Mismatch("dtype", output=path, expected=str(own.dtype), got=str(got.dtype))
    if own.is_complex():
        got, own, exact = (torch.view_as_real(t.resolve_conj()) for t in (got, own, exact))
        noise = None if noise is None else noise.unsqueeze(-1)
    if own.is_floating_point():
        return _compare_floats(path, got, own, exact, noise, strict, ties, usual)
    _compare_exactly(path, got, own, exact)
    return Agreement()


def _compare_exactly(path: str, got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> None:
    """Compare integers; either precision's answer will do where rounding decides."""
    wrong = (got != own) & (got != exact.to(own.dtype))
    if wrong.any():
        raise _mismatch("value", path, wrong, got, own)


def _compare_floats(
    path: str,
    got: torch.Tensor,
    own: torch.Tensor,
    exact: torch.Tensor,
    noise: torch.Tensor | None,
    *how: Any,
) -> Agreement:
    """Compare floating tensors, piece by piece where they are large: each piece takes six copies
    in float64."""
    if own.numel() <= PIECE:
        return _compare_piece(path, got, own, exact, noise, *how)
    worst = Agreement()
    whole = [t.reshape(-1) for t in (got, own, exact)]
    moved = None if noise is None else noise.expand(own.shape).reshape(-1)
    # Equal pieces: of a few elements that are left over, little could be said.
    count = -(-own.numel() // PIECE)
    step = -(-own.numel() // count)
    for start in range(0, own.numel(), step):
        part = slice(start, start + step)
        near = None if moved is None else moved[part]
        try:
            one, other, true = (t[part] for t in whole)
            worst = worst.join(_compare_piece(path, one, other, true, near, *how))
        except Mismatch as mismatch:
            if "index" in mismatch.evidence:
                at = torch.tensor(start + mismatch.evidence["index"][0])
                index = [int(i) for i in torch.unravel_index(at, own.shape)]
                mismatch.evidence["index"] = index
            raise
    return worst


def _compare_piece(
    path: str,
    got: torch.Tensor,
    own: torch.Tensor,
    exact: torch.Tensor,
    noise: torch.Tensor | None,
    strict: Strict,
    ties: bool,
    usual: float,
) -> Agreement:
    finite = own.isfinite()
    if not (all_finite := bool(finite.all())) or not got.isfinite().all():
        same = (got == own) | (got.isnan() & own.isnan())
        if ties:  # the sign of a zero, which operators may lose, decides that of an infinity
            same |= got.isinf() & own.isinf()
        asked = {"all": True, "exact": ~exact.isfinite(), "none": False}[strict]
        wrong = torch.where(finite, ~got.isfinite(), ~same & asked)
        if wrong.any():
            raise _mismatch("nonfinite", path, wrong, got, own)
    known, true, found = own.double(), exact.double(), got.double()
    true = torch.where(true.isfinite(), true, known)
    if not all_finite:
        known, true, found = (torch.where(finite, t, 0.0) for t in (known, true, found))
    error = (found - true).abs_()
    if not error.numel():
        return Agreement()
    # Where rounding decides between two values, as in `floor`, the reference's own is right too.
    differs = (found - known).abs_() > _floor(own.dtype) * known.abs()
    agreement = Agreement(float(error.max()))
    if differs.any():
        allowed = allowed_error(known.to(own.dtype), true, noise, ties)
        if usual:
            size = true.abs() + float(true.square().mean().sqrt())
            allowed = allowed + (BESIDE * size).clamp(max=_floor(own.dtype) * usual)
        ratio = torch.where(differs, error / allowed, 0.0)
        agreement = Agreement(float(error.max()), float(ratio.max()))
        if agreement.error_ratio > 1:
            wrong = ratio == agreement.error_ratio
            raise _mismatch("value", path, wrong, got, own, error, allowed)
    _reject_bias(path, got, own, true, finite)
    return agreement


def _reject_bias(
    path: str, got: torch.Tensor, own: torch.Tensor, true: torch.Tensor, finite: torch.Tensor
) -> None:
    """Raise if results in a short type lean to one side, and the reference's do not.

    Each may be as far off as its rounding; a factor of 1.01 is no more, and shows in the mean.
    """
    eps = torch.finfo(own.dtype).eps
    counts = finite & (true.abs() > torch.finfo(own.dtype).tiny / eps)
    if eps <= torch.finfo(torch.float32).eps or int(counts.sum()) < MANY:
        return
    units = eps * true.abs()[counts]
    sign = true.sign()[counts]
    lean, own_lean = (
        float(((x.double()[counts] - true[counts]) * sign / units).mean()) for x in (got, own)
    )
    spread = 4 * 0.5 / float(counts.sum()) ** 0.5
    if abs(lean) > abs(own_lean) + BIAS + spread:
        raise Mismatch("bias", output=path, units=round(lean, 3), expected=round(own_lean, 3))


MANY = 256
"""Elements from which a mean error says something."""


def allowed_error(
    own: torch.Tensor,
    exact: torch.Tensor,
    noise: torch.Tensor | None = None,
    ties: bool = False,
) -> torch.Tensor:
    """Return, for each element, how far from the float64 result a candidate may be.

    Args:
        own: the reference's output in its own precision; finite.
        exact: its output in float64; finite, same shape.
        noise: see `compare`; may be anything where the output is not finite.
        ties: whether inputs were drawn to lie on thresholds: then many elements move by the one
            step that a comparison makes, and nothing follows for the others.
    """
    if not own.numel():
        return exact
    size = exact.abs() + float(exact.square().mean().sqrt()) + torch.finfo(own.dtype).tiny
    # A reference that overflows does not license just any number.
    own_error = torch.minimum((own.double() - exact).abs(), GROSS * size)
    moved = (
        torch.zeros_like(own_error) if noise is None else noise.double().nan_to_num(0.0, 0.0, 0.0)
    )
    if torch.finfo(own.dtype).eps > torch.finfo(torch.float32).eps:
        return _allowed_short(own, exact, torch.maximum(own_error, moved))
    if not ties:
        own_error = torch.maximum(own_error, moved)
    typical_error = _quantile(own_error, TYPICAL)
    # Where few elements are much less exact than the others, another order of operations makes
    # it other elements.
    worst = WORST * float((own_error / size).max())
    # How far elements on a threshold may move says nothing about the others.
    usual = torch.maximum(moved, _quantile(moved, USUAL) * torch.ones_like(moved))
    allowed = torch.maximum(own_error.clamp(min=typical_error), usual)
    return FACTOR * allowed + (_floor(own.dtype) + worst) * size


def _allowed_short(own: torch.Tensor, exact: torch.Tensor, own_error: torch.Tensor) -> torch.Tensor:
    """Return what is allowed in a type of 16 bits or fewer: a rounding of its own.

    A reference in such a type rounds after every operator, and a kernel only once; so the
    reference's own error counts once where it is more than that. What its results are off by
    besides their last rounding comes from roundings on the way, of which a kernel may have some
    too, such as the weights of an attention; it counts for all elements.
    """
    ulp = torch.finfo(own.dtype).eps * exact.abs() + torch.finfo(own.dtype).tiny
    before = _quantile((own_error - ulp / 2).clamp(min=0.0), TYPICAL)
    return own_error.clamp(min=SHORT_FACTOR * before) + ulp * SHORT_ULP


def _floor(dtype: torch.dtype) -> float:
    """Return the error, relative to the values, that is always allowed."""
    ulp = float(torch.finfo(dtype).eps)
    return (FLOOR_ULP if ulp <= torch.finfo(torch.float32).eps else FLOOR_ULP_SHORT) * ulp


def _quantile(values: torch.Tensor, share: float) -> float:
    flat = values.reshape(-1)
    flat = flat[:: max(1, flat.numel() // SAMPLE)]
    return float(flat.kthvalue(max(1, round(share * flat.numel()))).values)


def _mismatch(
    reason: str,
    path: str,
    wrong: torch.Tensor,
    got: torch.Tensor,
    own: torch.Tensor,
    error: torch.Tensor | None = None,
    allowed: torch.Tensor | None = None,
) -> Mismatch:
    """Describe the first element at which ``wrong`` is true."""
    index = tuple(torch.nonzero(wrong)[0].tolist())
    evidence: dict[str, Any] = {
        "output": path,
        "index": list(index),
        "expected": _plain(own[index].item()),
        "got": _plain(got[index].item()),
    }
    if error is not None and allowed is not None:
        evidence["error"] = float(error[index])
        evidence["allowed"] = float(allowed[index])
        evidence["wrong_share"] = round(float((error > allowed).double().mean()), 6)
    return Mismatch(reason, **evidence)


def _plain(value: Any) -> Any:
    """Return a number as JSON has it; NaN and infinities become words."""
    finite = isinstance(value, int) or value - value == 0
    return value if finite else str(value)
