"""What a softmax's weights are made of, and which scores it leaves out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from curate.generator.text.operations import CONJUNCTIONS, DISJUNCTIONS
from curate.generator.unprintable import Unprintable
from curate.generator.values import NEGATED, Recorder, Value, made_of, unconverted

_NOT = ("logical_not", "bitwise_not")
_SIGNS = {"le": (1, 0), "lt": (1, 1), "ge": (-1, 0), "gt": (-1, 1)}
"""For ``a op b``: the sign of a - b, and what is added to it, for which it says ``... <= 0``."""


@dataclass(frozen=True)
class Softmax:
    """A softmax, as a product with its weights needs it.

    Attributes:
        scores: what it is of.
        share: the value of one weight: an exponential over the sum of all.
        weights: what is multiplied: that, or what is computed from it in proportion.
        is_safe: whether weights are 0, not NaN, if all scores are -inf.
    """

    scores: Value
    share: Value
    weights: Value
    is_safe: bool


def find(weights: Value) -> Softmax:
    """Return the softmax that weights come from.

    Raises:
        Unprintable: they come from something else.
    """
    shares = [(v, s) for v in made_of([weights]) if (s := _scores(v)) is not None]
    if len(shares) != 1:
        raise Unprintable("a product of no softmax")
    (share, scores) = shares[0]
    is_safe = False
    if weights.op == "where" and _are_all_hidden(weights.args[0], scores):
        is_safe = weights.args[1].op == "constant" and weights.args[1].number == 0
        weights = weights.args[2] if is_safe else weights
    if not _is_linear(weights, share):
        raise Unprintable("weights that are not in proportion to a softmax")
    return Softmax(scores, share, weights, is_safe)


def _scores(share: Value) -> Value | None:
    """Return of what a value is the softmax."""
    if share.op != "truediv" or share.args[0].op != "exp" or share.args[0].args[0].op != "sub":
        return None
    exponential, total = share.args
    scores, peak = exponential.args[0].args
    if {peak.op, total.op} == {"part"} and peak.args[0] is total.args[0]:
        both = peak.args[0]
        fits = both.name == "online_softmax_reduce" and both.args[0] is scores
        return scores if fits and (peak.number, total.number) == (0, 1) else None
    fits = peak.op == "reduce" and peak.name == "max" and peak.args[0] is scores
    fits = fits and total.op == "reduce" and total.name == "sum" and total.args[0] is exponential
    return scores if fits else None


def _are_all_hidden(value: Value, scores: Value) -> bool:
    """Whether a value says that all scores of a row are -inf."""
    if value.op not in _NOT or value.args[0].op != "reduce" or value.args[0].name != "any":
        return False
    one, told = value.args[0].args[0], True
    while one.op in (*_NOT, "to_dtype"):
        told ^= one.op in _NOT
        one = one.args[0]
    if one.op not in ("eq", "ne") or one.args[0] is not scores:
        return False
    return told == (one.op == "ne") and _is_hidden(one.args[1])


def _is_hidden(value: Value) -> bool:
    return bool(value.op == "constant" and value.number == -math.inf)


def _is_linear(value: Value, share: Value) -> bool:
    """Whether a value is some number times a share."""
    if value is share:
        return True
    parts = [one for one in value.inputs() if share in made_of([one])]
    others = [one for one in value.inputs() if one not in parts]
    if len(parts) != 1 or any(v.op == "reduce" for one in others for v in made_of([one])):
        return False
    if value.op == "where":
        zero = [one for one in others if one.op == "constant" and one.number == 0]
        return value.args[0] not in parts and bool(zero) and _is_linear(parts[0], share)
    if value.op == "truediv" and value.args[0] is not parts[0]:
        return False
    return value.op in ("mul", "truediv", "to_dtype", "neg") and _is_linear(parts[0], share)


# --- scores that are -inf ------------------------------------------------------------------------


@dataclass
class Visible:
    """Which scores count.

    Attributes:
        scores: the scores, with conditions written shorter.
        within: what they are where the bounds hold.
        bounds: differences of indices, such as key - row, that are at most 0 where a score counts.
        is_known: whether all others count.
        factor: a number by which differences of scores are multiplied, as powers of 2.
    """

    scores: Value
    within: Value
    bounds: list[sympy.Expr]
    is_known: bool
    factor: Value | None = None


def visible(scores: Value, recorder: Recorder) -> Visible:
    """Return which scores are not -inf, as far as their conditions compare indices."""
    if scores.op == "add":
        for bias, other in (scores.args, scores.args[::-1]):
            bias = unconverted(bias)
            if bias.op == "where" and (hides := _hidden_of(bias)):
                shown, kept = hides
                if kept.op == "constant" and kept.number == 0:
                    inner = visible(other, recorder)
                    return _where(shown, inner, recorder, scores.args[0].dtype)
    if scores.op == "where" and (hides := _hidden_of(scores)):
        return _where(hides[0], visible(hides[1], recorder), recorder, scores.dtype)
    products = [v for v in made_of([scores]) if v.op == "product"]
    inside = {id(v) for one in products for v in made_of([one])}
    may_hide = (v for v in made_of([scores]) if v.op == "load" or _is_hidden(v))
    return Visible(scores, scores, [], all(id(v) in inside for v in may_hide))


def _hidden_of(value: Value) -> tuple[tuple[Value, bool], Value] | None:
    """Return the condition under which a choice is not -inf, whether it holds, and what it is."""
    condition, chosen, other = value.args
    if _is_hidden(other):
        return (condition, True), chosen
    return ((condition, False), other) if _is_hidden(chosen) else None


def _where(
    shown: tuple[Value, bool], inner: Visible, recorder: Recorder, dtype: torch.dtype
) -> Visible:
    bounds, others = _facts(*shown)
    conditions = [_at_most(bound, recorder) for bound in bounds]
    for value, holds in others:
        conditions.append(value if holds else _opposite(value, recorder))
    if not conditions:
        return inner
    whole = conditions[0]
    for one in conditions[1:]:
        whole = recorder.make("logical_and", (whole, one), torch.bool)
    hidden = recorder.constant(-math.inf, dtype)
    scores = recorder.make("where", (whole, inner.scores, hidden), dtype)
    known = inner.is_known and not others
    return Visible(scores, inner.within, [*bounds, *inner.bounds], known)


def _opposite(value: Value, recorder: Recorder) -> Value:
    """Return the condition that another does not hold."""
    if value.op in NEGATED and not any(one.dtype.is_floating_point for one in value.args):
        return recorder.make(NEGATED[value.op], value.args, torch.bool)
    return recorder.make("logical_not", (value,), torch.bool)


def _at_most(bound: sympy.Expr, recorder: Recorder) -> Value:
    """Return the condition that a difference is at most 0: the one index at most the other."""
    terms = sympy.Add.make_args(bound)
    above = sympy.Add(*(t for t in terms if t.as_coeff_Mul()[0] > 0 and not t.is_number))
    sides = [recorder.index_expr(e, torch.int64) for e in (above, sympy.expand(above - bound))]
    return recorder.make("le", tuple(sides), torch.bool)


def unscaled(scores: Value, recorder: Recorder) -> tuple[Value, Value | None]:
    """Return scores without a positive factor, and that factor for powers of 2.

    The peak is where it is with the factor. Without such a factor the second is None.
    """
    if scores.op == "where" and _is_hidden(scores.args[2]):
        condition, shown, hidden = scores.args
        shown, factor = unscaled(shown, recorder)
        return recorder.make("where", (condition, shown, hidden), scores.dtype), factor
    if scores.op not in ("mul", "truediv") or not _is_positive(scores.args[1]):
        return scores, None
    by = recorder.constant(1 / math.log(2), scores.dtype)
    args = (scores.args[1], by) if scores.op == "mul" else (by, scores.args[1])
    factor = recorder.make(scores.op, args, scores.dtype)
    factor.word = "scale_log2e"
    return scores.args[0], factor


def _is_positive(factor: Value) -> bool:
    """Whether a number is known to be positive."""
    if factor.op == "constant":
        return bool(factor.number > 0)
    return factor.op == "index" and not factor.axes and _has_positive(factor.index)


def _has_positive(expression: Any) -> bool:
    kept = type(expression).__name__ in _KEEP_SIGN and expression.args
    return bool(expression.is_positive or (kept and all(map(_has_positive, expression.args))))


_KEEP_SIGN = {"FloatPow", "Pow", "Mul", "FloatTrueDiv", "IntTrueDiv", "ToFloat"}
_KEEP_SIGN |= {"OpaqueUnaryFn_sqrt"}
"""Functions that are positive where their arguments are."""


Facts = tuple[list[sympy.Expr], list[tuple[Value, bool]]]


def _facts(value: Value, holds: bool) -> Facts:
    """Return what a condition says of differences of indices, and the other conditions in it."""
    op = value.op
    if op in _NOT:
        return _facts(value.args[0], not holds)
    if op == "to_dtype":
        return _facts(value.args[0], holds)
    if op == "constant":
        return ([], []) if bool(value.number) == holds else ([], [(value, holds)])
    if op in (CONJUNCTIONS if holds else DISJUNCTIONS):
        both = [_facts(one, holds) for one in value.args]
        return [e for bounds, _ in both for e in bounds], [v for _, other in both for v in other]
    if op in ("eq", "ne"):
        found = _choice(value, holds == (op == "eq"))
        return found or ([], [(value, holds)])
    name = op if holds else NEGATED.get(op, "")
    if name in _SIGNS:
        a, b = map(_index, value.args)
        if a is not None and b is not None:
            sign, more = _SIGNS[name]
            return [sympy.expand(sign * (a - b) + more)], []
    return [], [(value, holds)]


def _choice(value: Value, same: bool) -> Facts | None:
    """Return what it says that a choice between two numbers is, or is not, one of them."""
    choice, number = unconverted(value.args[0]), value.args[1]
    if number.op != "constant":
        return None
    if choice.dtype == torch.bool:
        return _facts(choice, same == bool(number.number)) if number.number in (0, 1) else None
    if choice.op != "where" or {one.op for one in choice.args[1:]} != {"constant"}:
        return None
    first, second = (one.number == number.number for one in choice.args[1:])
    return None if first == second else _facts(choice.args[0], same == first)


def _index(value: Value) -> sympy.Expr | None:
    value = unconverted(value)
    if value.op == "index" and not value.args:
        return value.index
    whole = value.op == "constant" and int(value.number) == value.number
    return sympy.Integer(value.number) if whole else None
