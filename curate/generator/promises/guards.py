"""What a program has to assert: tracing's guards, as few and as plain as say the same.

PyTorch guards each comparison that it makes, in its own terms: a rotary embedding of ``width``
takes for granted that ``(width + 1) // 2 == half_dim``, ``width // 2 == half_dim`` and that both
halves are equal. Together that is ``width == half_dim * 2``, which a person would write. What
follows from what is found by trying sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import sympy
import torch

from curate.generator import torch_private as private
from curate.generator.loops import equal
from curate.generator.promises.ranks import Lead
from curate.generator.text.expressions import Printer
from curate.generator.trace import Traced
from curate.generator.unprintable import Unprintable

_OF_CONVOLUTIONS = (
    *("_subclasses/fake_impls.py", "_subclasses/functional_tensor.py", "_meta_registrations.py"),
    *("_inductor/utils.py", "_refs/__init__.py"),
)
"""Files of PyTorch that compare a convolution's numbers: its kernels are right for all of them."""

_SLICES = "_compute_slice_index"
"""Their function that takes a slice to end within its tensor."""

_TORCH = str(Path(torch.__file__).parent)

_INEQUALITIES = (sympy.Ne, sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)
_REMAINDERS = (sympy.Mod, private.Mod, private.PythonMod)

_FEW = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24)
_SOME = (*_FEW, 7, 9, 10, 20, 32, 48, 64, 96, 128, 1000, 1024)
_MANY = (*range(1, 200), 255, 256, 500, 511, 512, 1000, 1023, 1024, 4096, 65_536, 1_000_003)
_TRIED = {1: _MANY, 2: (*_SOME, 11, 13, 15, 17, 30, 60, 120, 240, 256, 2000, 2048), 3: _SOME}
_TRIED[4] = _FEW
_NO_SIZES = (0, -1, -3)
"""Numbers on which conditions are compared, by how many there are, and what arguments may be
besides; of conditions on more, none is left out. Tensors' sizes are 2 and more: tracing takes no
notice of what is different for 1."""


def of_trace(
    traced: Traced,
    known: Callable[[Any], sympy.Expr],
    sizes: set[sympy.Symbol],
    free: set[sympy.Symbol],
    lead: Lead | None,
) -> list[Any]:
    """Return a trace's guards but for those that any size fulfils, or that matter to no kernel.

    Args:
        traced: the module.
        known: returns an expression in the symbols that are left after tracing.
        sizes: symbols of tensors' sizes.
        free: those of them that are no argument of the constructor.
        lead: the dimensions in front, if a program is for any rank.

    Raises:
        Unprintable: a guard is about the rank.
    """
    nodes = traced.graph.graph.nodes
    convolutions = [n for n in nodes if n.target is torch.ops.aten.convolution.default]
    found = [e for e in map(known, _channels(traced, convolutions)) if e != sympy.true]
    for guard in traced.env.guards:
        e = known(guard.expr)
        if e == sympy.false:  # cannot be said in what is left: its numbers are the file's
            found += _as_in_the_file(traced, guard.expr, known)
        if e in (sympy.true, sympy.false) or not e.free_symbols:
            continue
        if isinstance(e, sympy.Eq) and equal(*e.args):
            continue
        framework = guard.sloc.framework_loc
        file, function = (framework.filename, framework.name) if framework else ("", "")
        if _matters(e, file, function, bool(convolutions), sizes, free):
            if lead and lead.hides(e):
                raise Unprintable("a rank")
            found.append(e)
    return found


def _matters(
    e: Any,
    file: str,
    function: str,
    convolves: bool,
    sizes: set[sympy.Symbol],
    free: set[sympy.Symbol],
) -> bool:
    """Whether a condition matters to a kernel, by what it says and where in PyTorch it is asked."""
    is_equality, differs = isinstance(e, sympy.Eq), isinstance(e, sympy.Ne)
    if function == "squeeze" and differs:
        return True
    if convolves and file.endswith(_OF_CONVOLUTIONS) and function != _SLICES and not is_equality:
        return False
    of_views = function.startswith("_reshape_view") and differs
    if file.startswith(_TORCH) and (of_views or _compares_counts(e)):
        return False
    says_one = is_equality and 1 in e.args  # broadcasting takes it for granted
    if file.endswith("_prims_common/__init__.py") and not says_one:  # of layouts alone
        return False
    if file.endswith("_inductor/ir.py") and not is_equality:
        return False
    return not _is_trivial(e, sizes if "_subclasses" in file else free)


def _as_in_the_file(traced: Traced, guard: Any, known: Callable[[Any], sympy.Expr]) -> list[Any]:
    """Return that the symbols of a condition have the values that tracing had for them."""
    values = traced.env.backed_var_to_val
    equalities = [sympy.Eq(known(s), values[s]) for s in sorted(guard.free_symbols, key=str)]
    return [e for e in equalities if e not in (sympy.true, sympy.false)]


def _channels(traced: Traced, convolutions: list[torch.fx.Node]) -> Iterator[Any]:
    """Yield that an image has as many channels as the weight of a transposed convolution takes.

    Tracing takes it for granted without a guard.
    """
    for node in convolutions:
        if node.args[6]:
            image, weight = (x.meta["val"].shape for x in node.args[:2])
            yield sympy.Eq(traced.expression(image[1]), traced.expression(weight[0]))


def _compares_counts(e: Any) -> bool:
    """Whether a condition only says that not all of some sizes are 0 or 1: n < n * m, h * w > 1."""
    if not isinstance(e, _INEQUALITIES):
        return False
    left, right = e.args
    if 0 in e.args:
        return isinstance(e, sympy.Ne) and (left + right).is_Mul
    over, under = sympy.fraction(sympy.cancel(left / right))
    more = over if under == 1 else under
    if e.atoms(*_REMAINDERS) or 1 not in (over, under):
        return False
    return more.is_Mul or not (left.is_number or right.is_number)


def _is_trivial(e: Any, sizes: set[sympy.Symbol]) -> bool:
    """Whether a condition only says that sizes are neither 0 nor 1, or within 2**31."""
    if any(abs(int(n)) >= 2**31 - 1 for n in e.atoms(sympy.Integer)) or _says_filled(e, sizes):
        return True
    if not isinstance(e, _INEQUALITIES) or not e.free_symbols <= sizes or len(e.free_symbols) > 3:
        return False
    plain = [side for side in e.args if side.is_Integer]
    of_two = sympy.StrictGreaterThan(sum(e.free_symbols), 2)
    return bool(plain) and 0 <= int(plain[0]) <= 2 and e not in (of_two, of_two.reversed)


def _says_filled(e: Any, sizes: set[sympy.Symbol]) -> bool:
    """Whether a condition only says that a tensor has elements: h * (w // 2) != 0, 1 % h != 0."""
    if not isinstance(e, sympy.Ne) or {0, 1}.isdisjoint(e.args):
        return False
    count = e.args[1] if e.args[0].is_number else e.args[0]
    remainders = count.atoms(*_REMAINDERS)
    if any(m.args[0] != 1 and sympy.cancel(m.args[1] / m.args[0]).free_symbols for m in remainders):
        return False
    return bool(remainders or count.free_symbols & sizes)


# --- as few and as plain as say the same ----------------------------------------------------------


def needed(guards: Iterable[Any], sizes: set[sympy.Symbol]) -> list[Any]:
    """Return conditions that say what all of some say together, as far as tried numbers show.

    ``sizes`` are those of tensors that are no argument of the constructor.
    """
    held = [guard for guard in dict.fromkeys(map(_plainer, guards)) if guard != sympy.true]
    held += [one for one in _candidates(held) if one not in held and _follows(one, held, sizes)]
    for guard in sorted(held, key=_effort, reverse=True):
        rest = [other for other in held if other is not guard]
        if _follows(guard, rest, sizes):
            held = rest
    return held


def _effort(guard: Any) -> tuple[int, int, str]:
    """Return how hard a condition is to read."""
    divisions = len(guard.atoms(sympy.Mod, *private.DIVISIONS))
    return int(sympy.count_ops(guard)) + divisions, len(guard.free_symbols), str(guard)


def _plainer(guard: Any) -> Any:
    """Return a comparison without factors that both sides have, with a number on the right."""
    if not isinstance(guard, sympy.core.relational.Relational):
        return guard
    left, right = guard.args
    if 0 not in guard.args and all(symbol.is_positive for symbol in guard.free_symbols):
        over, under = sympy.fraction(sympy.sympify(left) / right)
        if len(over.free_symbols | under.free_symbols) < len(guard.free_symbols):
            left, right = over, under
    found = guard.func(left, right)
    reverse = found != sympy.true and found.args[0].is_number
    return found.reversed if reverse else found


def _candidates(guards: list[Any]) -> Iterator[Any]:
    """Yield what a person might have written: n % 4 == 0, width == half * 2."""
    equalities = [guard for guard in guards if isinstance(guard, sympy.Eq)]
    numbers = sorted({int(n) for e in equalities for n in e.atoms(sympy.Integer) if 1 < n <= 4096})
    symbols: set[sympy.Symbol] = set().union(*(e.free_symbols for e in equalities), ())
    for symbol in sorted(symbols, key=str):
        yield from (sympy.Eq(private.Mod(symbol, n), 0) for n in numbers)
    pairs = {pair for e in equalities for pair in itertools.permutations(e.free_symbols, 2)}
    for one, other in sorted(pairs, key=str):
        yield from (sympy.Eq(one, other * n) for n in [1, *numbers])


def _follows(guard: Any, others: list[Any], sizes: set[sympy.Symbol]) -> bool:
    """Whether others make a condition true, for all numbers that are tried."""
    own = guard.free_symbols
    wider = [other.free_symbols for other in others if other.free_symbols > own]
    return any(
        _follows_within(sorted(symbols, key=str), guard, others, sizes)
        for symbols in [own, *wider]
        if len(symbols) in _TRIED
    )


def _follows_within(
    symbols: list[sympy.Symbol], guard: Any, others: list[Any], sizes: set[sympy.Symbol]
) -> bool:
    """Whether those of others that are about some symbols make a condition true."""
    known = [other for other in others if other.free_symbols <= set(symbols)]
    holds, *given = (_function(g, tuple(symbols)) for g in (guard, *known))
    if holds is None:
        return False
    usual = _TRIED[len(symbols)]
    tried = [
        usual[1:] if s in sizes else usual if s.is_positive else usual + _NO_SIZES for s in symbols
    ]
    met = False
    for numbers in itertools.product(*tried):
        if all(condition is None or _is_true(condition, numbers) for condition in given):
            met = True
            if not _is_true(holds, numbers):
                return False
    return met


def _is_true(condition: Callable[..., bool], numbers: tuple[int, ...]) -> bool:
    try:
        return bool(condition(*numbers))
    except (ArithmeticError, ValueError):
        return False


@cache
def _function(guard: Any, symbols: tuple[sympy.Symbol, ...]) -> Callable[..., bool] | None:
    """Return a condition as a function of its symbols, or None if it cannot be written as one."""
    names = {symbol: f"s{i}" for i, symbol in enumerate(symbols)}
    try:
        text = Printer(names).text(guard)
    except Unprintable:
        return None
    made: Callable[..., bool] = eval(f"lambda {', '.join(names.values())}: {text}", {"math": math})
    return made
