"""Is an output as right as it can be expected to be?

The allowed error is not a constant. The reference is run in its own precision and in float64; a
candidate may be as far from the float64 result as the reference itself is, or as the result moves
when the last digits of inputs and intermediate results change, times a small factor, plus a floor
of a few units in the last place.
"""

from __future__ import annotations

import dataclasses
import math
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
"""How many times as far as roundings on the way were seen to move it such a result may be off."""

ROUNDED = 0.29
"""The standard deviation of what rounding takes off, in units of the last place."""

BIAS = 0.15
"""Mean error, in units in the last place, from which results in such a type lean to one side."""

INEXACT = 0.05
"""Mean error of a reference, in units of bfloat16, from which its results are like those."""

MOST_UNITS = 4.0
"""Units that an element's error counts at most in such a mean: one result that cancels must not
decide it."""

CHAOS = 0.5
"""How far roundings must move a row, of its size, for any element of it to be the one that they
move most: as where a softmax picks one of numbers that 16 bits do not tell apart."""

LOST = 2.0**40
"""How many times an element's size roundings on the way must move it for float32 to overflow."""

HUGE = 2.0**100
"""Numbers of this size may be infinite or NaN where inputs are so large that a reference overflows:
in another order of the same products, one of a part is 2^28 times as large."""

MANY = 32
"""Elements from which a mean error says something."""

ROW = 4
"""Elements that make a row, whose elements are of like size."""

UNCERTAIN = 0.02
"""Share of integers that may be others where rounding on the way to them decides."""

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

PIECE = 2**25
"""Elements that are compared at once. Of what is compared in pieces, each is held to what is
typical of itself."""

SAMPLE = 10_000
"""Elements from which a quantile is taken, evenly spaced."""

GAP = 2.0**16
"""How many times larger than the next number those are that only mask others, as -1e9 in scores."""

SCORE = 2.0**-10
"""A number beside a mask is at least that; what is smaller may be all that cancelling has left."""


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
        is_rare: whether few elements are wrong, or all of them lean.
    """

    def __init__(self, reason: str, **evidence: Any) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason = reason
        self.evidence = evidence
        self.is_rare = reason == "bias"

    @property
    def is_error(self) -> bool:
        """Whether numbers are further off than allowed: noise may allow more."""
        at_one = self.reason in ("value", "nonfinite") and "index" in self.evidence
        return self.reason == "bias" or at_one


RARE, RARE_SHORT = 1e-5, 0.05
"""Share of wrong elements up to which more runs with noise may show that rounding explains them:
of float32, in which they would find every threshold that an input lies on, and of a short type."""

TAIL = ((5e-3, 1.5), (2e-3, 2.0), (1e-4, 4.0))
"""Shares of elements of a short type that may be so many times as far off as the most runs with
noise allow: where rounding decides which way a ReLU goes, no number of runs has met all cases."""

UNMET = 0.1
"""Elements of a short type that may be any number, for each that rounding was seen to move by
`CHAOS` of its row, and integers for each that it was seen to move: it moves others seldom, and so
in a program where it did not in those runs."""


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
    leans: dict[str, float] | None = None,
    tail: bool = False,
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
        leans: how far rounding on the way makes results in short types `lean`, by their path.
        tail: whether ``noise`` is of so many runs that a few elements (`TAIL`) may be beyond it.

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
            noise_lean = (leans or {}).get(path, 0.0)
            made = _Leaf(path, leaf, *known, strict, ties, usual, noise_lean, tail)
            worst = worst.join(made.compare())
        elif isinstance(leaf, torch.Tensor) or not _same_value(leaf, expected):
            raise Mismatch("value", output=path, expected=repr(expected), got=repr(leaf)[:200])
    return worst


def _same_value(got: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(got, int | float):
        return bool(got == expected or abs(got - expected) <= 1e-5 * abs(expected))
    return bool(type(got) is type(expected) and got == expected)


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """One tensor of an output; see `compare` for what is known of it."""

    path: str
    got: torch.Tensor
    own: torch.Tensor
    exact: torch.Tensor
    noise: torch.Tensor | None
    strict: Strict
    ties: bool
    usual: float
    noise_lean: float
    tail: bool

    def compare(self) -> Agreement:
        path, got, own = self.path, self.got, self.own
        if not isinstance(got, torch.Tensor):
            raise Mismatch("structure", output=path, expected="a tensor", got=type(got).__name__)
        if got.shape != own.shape:
            raise Mismatch("shape", output=path, expected=list(own.shape), got=list(got.shape))
        if got.dtype != own.dtype:
            raise Mismatch("dtype", output=path, expected=str(own.dtype), got=str(got.dtype))
        if own.is_complex():
            got, own, exact = (torch.view_as_real(t.resolve_conj()) for t in (got, own, self.exact))
            noise = None if self.noise is None else self.noise.unsqueeze(-1)
            return self._with(got, own, exact, noise)._compare_floats()
        if own.is_floating_point():
            return self._compare_floats()
        self._compare_exactly()
        return Agreement()

    def _with(self, got: Any, own: Any, exact: Any, noise: Any) -> _Leaf:
        return dataclasses.replace(self, got=got, own=own, exact=exact, noise=noise)

    def _compare_exactly(self) -> None:
        """Compare integers; either precision's answer will do where rounding decides."""
        wrong = (self.got != self.own) & (self.got != self.exact.to(self.own.dtype))
        is_rare = False
        if self.noise is not None and float(wrong.double().mean()) <= UNCERTAIN:
            wrong &= self.noise == 0
            is_rare = int(wrong.sum()) <= UNMET * int((self.noise > 0).sum())
            if is_rare and self.tail:
                return
        if wrong.any():
            raise self._mismatch("value", wrong, is_rare=is_rare)

    def _compare_floats(self) -> Agreement:
        """Compare floating tensors, piece by piece where they are large: each piece takes six
        copies in float64."""
        shape, noise = self.own.shape, self.noise
        if self.own.numel() <= PIECE:
            return self._compare_piece()
        worst = Agreement()
        width = row if (row := _row_length(self.own)) <= PIECE else 1
        form = (-1, width) if width > 1 else (-1,)
        whole = [t.reshape(form) for t in (self.got, self.own, self.exact)]
        moved = None if noise is None else noise.expand(shape).reshape(form)
        # Equal pieces: of a few elements that are left over, little could be said.
        count = -(-self.own.numel() // PIECE)
        step = -(-len(whole[0]) // count)
        for start in range(0, len(whole[0]), step):
            part = slice(start, start + step)
            got, own, exact = (t[part] for t in whole)
            piece = self._with(got, own, exact, None if moved is None else moved[part])
            try:
                worst = worst.join(piece._compare_piece())
            except Mismatch as mismatch:
                if "index" in mismatch.evidence:
                    row, *column = mismatch.evidence["index"]
                    at = torch.tensor((start + row) * width + sum(column))
                    index = [int(i) for i in torch.unravel_index(at, shape)]
                    mismatch.evidence["index"] = index
                raise
        return worst

    def _compare_piece(self) -> Agreement:
        kind = self.own.dtype
        got, own, exact = self.got, self.own, self.exact
        if kind.itemsize == 1:  # PyTorch only converts from and to float8
            got, own, exact = (t.float() for t in (got, own, exact))
        # Each answer of a device is waited for: there are as few as may be.
        finite, all_finite = own.isfinite(), True
        if not (finite & got.isfinite()).all():
            same = (got == own) | (got.isnan() & own.isnan())
            if self.ties:  # the sign of a zero, which operators may lose, decides an infinity's
                same |= got.isinf() & own.isinf()
            asked = {"all": True, "exact": ~exact.isfinite(), "none": False}[self.strict]
            bad = ~got.isfinite()
            if self.noise is not None:
                size = exact.abs() + _row_size(exact)
                bad &= self.noise <= LOST * size
            if self.strict == "none":
                bad &= exact.abs() < HUGE
            if is_short(kind):
                bad &= ~_overflows_by_rounding(got, exact, kind)
                # A program that keeps float32 on the way has numbers where 16 bits overflow.
                better = ~finite & asked & ~same & got.isfinite()
                better &= exact.abs() <= torch.finfo(kind).max
                own = torch.where(better, exact.to(own.dtype), own)
                finite |= better
            wrong = torch.where(finite, bad, ~same & asked)
            if wrong.any():
                raise self._with(got, own, exact, None)._mismatch("nonfinite", wrong)
            finite &= got.isfinite()
            all_finite = bool(finite.all())
        known, true, found = own.double(), exact.double(), got.double()
        true = torch.where(true.isfinite(), true, known)
        if not all_finite:
            known, true, found = (torch.where(finite, t, 0.0) for t in (known, true, found))
        error = (found - true).abs_()
        if not error.numel():
            return Agreement()
        # Where rounding decides between two values, as in `floor`, the reference's is right too.
        differs = (found - known).abs_() > _floor(kind) * known.abs()
        largest, any_differs = torch.stack((error.max(), differs.any().double())).tolist()
        agreement = Agreement(largest)
        if any_differs:
            far = self.strict == "none"
            allowed = allowed_error(known.to(kind), true, self.noise, self.ties, far)
            if self.usual:
                size = true.abs() + true.square().mean().sqrt()
                allowed = allowed + (BESIDE * size).clamp(max=_floor(kind) * self.usual)
            if is_short(kind):  # whichever way rounding turned a ReLU in both is right
                error = torch.minimum(error, (found - known).abs())
            ratio = torch.where(differs, error / allowed, 0.0)
            if self.tail and is_short(kind):
                ratio = self._without_tail(ratio, (known - true).abs(), true)
            agreement = Agreement(largest, float(ratio.max()))
            if agreement.error_ratio > 1:
                wrong = ratio == agreement.error_ratio
                plain = self._with(got, own, exact, None)
                rare = RARE_SHORT if is_short(kind) else RARE
                is_rare = float((ratio > 1).double().mean()) <= rare
                raise plain._mismatch("value", wrong, error, allowed, is_rare)
        if (own.numel() if all_finite else int(finite.sum())) >= MANY:
            if is_short(kind):
                self._reject_bias(found, known, true, kind)
            elif any_differs and _is_inexact(known, true):  # it computes in a short type on the way
                self._reject_bias(found, known, true, torch.bfloat16)
        return agreement

    def _without_tail(
        self, ratio: torch.Tensor, own_error: torch.Tensor, true: torch.Tensor
    ) -> torch.Tensor:
        """Return errors by what is allowed, with 1 for what more runs with noise might explain."""
        share = float((ratio > 1).double().mean())
        most = max((times for few, times in TAIL if share <= few), default=1.0)
        ratio = torch.where(ratio <= most, ratio.clamp(max=1.0), ratio)
        moved = own_error if self.noise is None else torch.maximum(own_error, self.noise.double())
        chaos = float((moved >= _chaos_from(true)).double().mean())
        return ratio.clamp(max=1.0) if share <= UNMET * chaos else ratio

    def _reject_bias(
        self, found: torch.Tensor, known: torch.Tensor, true: torch.Tensor, kind: torch.dtype
    ) -> None:
        """Raise if results in a short type lean to one side, and neither the reference's nor those
        with noise do.

        Each may be as far off as its rounding; a factor of 1.01 is no more, and shows in the mean.
        Results that are nearly the same are rounded the same way: as many count as differ. Where
        the reference has no digits, results say nothing.
        """
        says = _has_digits(known, true)
        if int(says.sum()) < MANY:
            return
        units, reference = (_units_off(one, true, kind)[says] for one in (found, known))
        got, own, spread = torch.stack((units.mean(), reference.mean(), units.std())).tolist()
        usual = abs(own) + SHORT_FACTOR * self.noise_lean + BIAS
        if abs(got) <= usual + 4 * spread / units.numel() ** 0.5:
            return
        if abs(got) > usual + 4 * max(spread, ROUNDED) / found[says].unique().numel() ** 0.5:
            raise Mismatch("bias", output=self.path, units=round(got, 3), expected=round(own, 3))

    def _mismatch(
        self,
        reason: str,
        wrong: torch.Tensor,
        error: torch.Tensor | None = None,
        allowed: torch.Tensor | None = None,
        is_rare: bool = False,
    ) -> Mismatch:
        """Describe the first element at which ``wrong`` is true."""
        index = tuple(torch.nonzero(wrong)[0].tolist())
        pair = {"expected": _plain(self.own[index].item()), "got": _plain(self.got[index].item())}
        mismatch = Mismatch(reason, output=self.path, index=list(index), **pair)
        mismatch.is_rare = is_rare
        if error is not None and allowed is not None:
            share = float((error > allowed).double().mean())
            how_far = {"error": float(error[index]), "allowed": float(allowed[index])}
            mismatch.evidence |= {**how_far, "wrong_share": round(share, 6)}
        return mismatch


def _overflows_by_rounding(
    got: torch.Tensor, exact: torch.Tensor, kind: torch.dtype
) -> torch.Tensor:
    """Return where an infinity stands for a number at the end of what a short type holds."""
    most = torch.finfo(kind).max * (1 - torch.finfo(kind).eps)
    return got.isinf() & (exact.abs() >= most) & (got.sign() == exact.sign())


def lean(found: torch.Tensor, true: torch.Tensor, kind: torch.dtype) -> float:
    """Return how far results lean to one side: their mean error, counted away from zero, in units
    in a type's last place."""
    return float(_units_off(found, true, kind).mean())


def _units_off(found: torch.Tensor, true: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Return errors away from zero in last places of the value or, if that is more, of its row."""
    known = torch.finfo(kind)
    size = torch.maximum(true.abs(), _row_size(true)).clamp(min=known.tiny)
    off = (found - true) * true.sign() / (known.eps * size)
    return off.nan_to_num(0.0).clamp(-MOST_UNITS, MOST_UNITS)


def _is_inexact(known: torch.Tensor, true: torch.Tensor) -> bool:
    """Whether a reference's results are as far off as those of bfloat16, whatever their type."""
    units = _units_off(known, true, torch.bfloat16).abs()[_has_digits(known, true)]
    return bool(units.numel()) and float(units.mean()) > INEXACT


def _has_digits(known: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Return where a reference's results are more than what rounding leaves of rows of zeros, as of
    an image of one value that is normalised."""
    return (known - true).abs() <= _chaos_from(true)


def _chaos_from(true: torch.Tensor) -> torch.Tensor:
    """Return how far off an element is that has no digits left of its value, nor of its row."""
    return CHAOS * (true.abs() + _row_size(true))


def is_short(kind: torch.dtype) -> bool:
    """Whether a floating type has fewer digits than kernels compute with."""
    return bool(torch.finfo(kind).eps > torch.finfo(torch.float32).eps)


def _row_length(tensor: torch.Tensor) -> int:
    """Return how many elements a row has: what may be expected to be of like size. It is the last
    dimension, or all but the first two, where that is not very short; or else all."""
    row: int = math.prod(tensor.shape[2:] if tensor.dim() > 3 else tensor.shape[-1:])
    return row if row >= ROW else int(tensor.numel())


def _like_size(tensor: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of those that are like each element: of all, or of those along
    the dimension where it is least."""
    squares = tensor.square()
    least = squares.mean().expand(tensor.shape)
    for dim, length in enumerate(tensor.shape if tensor.dim() > 1 else ()):
        if length >= ROW:
            least = torch.minimum(least, squares.mean(dim, keepdim=True))
    return least.sqrt()


def _row_size(tensor: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of each element's row."""
    row = _row_length(tensor)
    size = tensor.square().reshape(-1, row).mean(-1, keepdim=True).sqrt()
    return size.expand(-1, row).reshape(tensor.shape)


def allowed_error(
    own: torch.Tensor,
    exact: torch.Tensor,
    noise: torch.Tensor | None = None,
    ties: bool = False,
    far: bool = False,
) -> torch.Tensor:
    """Return, for each element, how far from the float64 result a candidate may be.

    Args:
        own: the reference's output in its own precision; finite.
        exact: its output in float64; finite, same shape.
        noise: see `compare`; may be anything where the output is not finite.
        ties: whether inputs were drawn to lie on thresholds: then many elements move by the one
            step that a comparison makes, and nothing follows for the others.
        far: whether inputs were drawn far from one another: then algorithms that mix them, as
            Winograd's, are as exact as the largest results let them be.
    """
    if not own.numel():
        return exact
    moved = None if noise is None else noise.double().nan_to_num(0.0, 0.0, 0.0).expand(exact.shape)
    if (mask := _mask_values(exact)) is not None:
        allowed = torch.empty_like(exact)
        for part in (mask, ~mask):
            rest = None if moved is None else moved[part]
            allowed[part] = _allowed_alike(own[part], exact[part], rest, ties, far)
        return allowed
    return _allowed_alike(own, exact, moved, ties, far)


def _mask_values(exact: torch.Tensor) -> torch.Tensor | None:
    """Return where numbers are so large that next to them any other would pass as exact, or None.

    They are larger by `GAP` than all others, with nothing between.
    """
    flat = exact.abs().reshape(-1)
    sizes = flat[:: max(1, flat.numel() // SAMPLE)].sort().values
    gaps = torch.where(sizes[:-1] >= SCORE, sizes[1:] / sizes[:-1], 0.0)
    if not gaps.numel() or gaps.max() < GAP:
        return None
    return exact.abs() > sizes[int(gaps.argmax())] * GAP**0.5


def _allowed_alike(
    own: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor | None, ties: bool, far: bool
) -> torch.Tensor:
    """Return what is allowed of numbers that may be compared with their mean size."""
    if is_short(own.dtype):
        return _allowed_short(own, exact, moved)
    like = exact.abs().max() if far else _like_size(exact)
    size = exact.abs() + like + torch.finfo(own.dtype).tiny
    # A reference that overflows does not license just any number.
    own_error = torch.minimum((own.double() - exact).abs(), GROSS * size)
    if moved is None:
        moved = torch.zeros_like(own_error)
    # Of a row without digits, as an image of one value that is normalised, some elements stay where
    # they are by luck.
    moved = torch.where(moved > GROSS * size, torch.maximum(moved, _row_size(moved)), moved)
    if not ties:
        own_error = torch.maximum(own_error, moved)
    # Elements that any rounding moves by much say nothing about the others.
    calm, share = own_error <= GROSS * size, own_error / size
    if calm.all():
        typical_error = _quantile(share, TYPICAL) * size
    else:
        usual, wild = (
            _quantile(few, TYPICAL) if len(few) else 0.0 for few in (share[calm], share[~calm])
        )
        typical_error = torch.where(calm, usual, wild) * size
    # Where few elements are much less exact than the others, another order of operations makes
    # it other elements.
    worst = WORST * torch.where(calm, share, 0.0).max()
    # How far elements on a threshold may move says nothing about the others.
    median = torch.maximum(moved, _quantile(moved, USUAL))
    allowed = torch.maximum(torch.maximum(own_error, typical_error), median)
    return FACTOR * allowed + (_floor(own.dtype) + worst) * size


def _allowed_short(
    own: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor | None
) -> torch.Tensor:
    """Return what is allowed in a type of 16 bits or fewer: a rounding of its own.

    A reference in such a type rounds after every operator, and a kernel only once, or anything
    between. So the reference's own error counts once where it is more than that; and what roundings
    on the way may do counts for all elements of like size: what the reference's results are off by
    besides their last rounding, or what noise shows.
    """
    known = torch.finfo(own.dtype)
    ulp = known.eps * exact.abs().clamp(min=known.tiny)
    size = exact.abs() + _row_size(exact) + known.tiny
    own_error = torch.minimum((own.double() - exact).abs(), GROSS * size)
    before = (own_error - ulp / 2).clamp(min=0.0) / size
    allowed = torch.maximum(own_error, SHORT_FACTOR * _quantile(before, TYPICAL) * size)
    if moved is not None:
        row = _row_length(moved)
        most = moved.reshape(-1, row).amax(-1, keepdim=True).expand(-1, row).reshape(moved.shape)
        usual, is_chaos = _row_size(moved), _row_size(moved) >= CHAOS * _row_size(exact)
        moved = torch.maximum(moved, torch.where(is_chaos, most, usual))
        allowed = torch.maximum(allowed, SHORT_FACTOR * moved)
    return allowed + SHORT_ULP * ulp + _floor(torch.float32) * size


def _floor(dtype: torch.dtype) -> float:
    """Return the error, relative to the values, that is always allowed."""
    ulp = float(torch.finfo(dtype).eps)
    return (FLOOR_ULP if ulp <= torch.finfo(torch.float32).eps else FLOOR_ULP_SHORT) * ulp


def _quantile(values: torch.Tensor, share: float) -> torch.Tensor:
    flat = values.reshape(-1)
    flat = flat[:: max(1, flat.numel() // SAMPLE)]
    return flat.kthvalue(max(1, round(share * flat.numel()))).values


def _plain(value: Any) -> Any:
    """Return a number as JSON has it; NaN and infinities become words."""
    finite = isinstance(value, int) or value - value == 0
    return value if finite else str(value)
