"""Where a program finds the numbers it needs: sizes of tensors, attributes, arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import sympy
from sympy.logic.boolalg import Boolean

from curate.generator import torch_private as private
from curate.generator.loops import equal
from curate.generator.promises.ranks import LEAD, Lead
from curate.generator.text.expressions import Printer, unused
from curate.generator.torch_private import CeilToInt, FloorDiv, IntTrueDiv
from curate.generator.trace import Symbolic, Traced
from curate.generator.unprintable import Unprintable
from curate.generator.words import words_of
from curate.problem.problem import attribute_path

_ROLES = {
    1: ("length",),
    2: ("batch", "features"),
    3: ("batch", "seq_len", "features"),
    4: ("batch", "channels", "height", "width"),
    5: ("batch", "channels", "depth", "height", "width"),
}
"""What the dimensions of an input usually are; only a name hangs on it."""


_ATTENDED = {"q", "k", "v", "query", "key", "value", "queries", "keys", "values"}
"""Names of inputs that have heads, before the sequence if no dimensions change places."""


@dataclass(frozen=True)
class Fact:
    """A number that the host function can read.

    Attributes:
        expression: what it is in symbols.
        text: how it is read.
        tensor: the tensor whose size it is, and ``dim`` the dimension; None for other numbers.
    """

    expression: sympy.Expr
    text: str
    tensor: str | None = None
    dim: int = -1


def attributes(traced: Traced) -> Iterator[Fact]:
    """Yield the symbolic numbers that the module's parts keep."""
    for path, module in traced.model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            for text, item in _numbers_in(value, f"{attribute_path(path)}.{name}"):
                e = traced.expression(item)
                if e.free_symbols:
                    yield Fact(e, text)


def _numbers_in(value: Any, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the symbolic numbers in an attribute, and the text that reads each."""
    if isinstance(value, Symbolic):
        yield text, value
    elif isinstance(value, tuple | list):
        yield from ((f"{text}[{i}]", n) for i, n in enumerate(value) if isinstance(n, Symbolic))
    elif type(value) is SimpleNamespace:
        for name, held in vars(value).items():
            yield from _numbers_in(held, f"{text}.{name}")


class Sizes:
    """Names the symbols of a trace, each when it is first needed.

    Attributes:
        names: the host's text for each symbol named so far.
        defined: for each of them the fact that it is read from, or None if the text is its own.
        taken: names of the host function's variables.
        roles: what sizes are that an operator tells: the length of a sequence, the batch.
        kept: arguments of the constructor that the module has to keep.
        may_keep: whether there may be more of them.
    """

    def __init__(self, traced: Traced, taken: set[str], lead: Lead | None = None) -> None:
        self.traced = traced
        self.lead = lead
        self.taken = taken
        turns = re.search(r"transpose\(1|permute|einsum|swap|movedim", traced.source)
        self.has_turned = turns is not None
        self.inputs = set(inspect.signature(traced.task.Model.forward).parameters)
        self.roles: dict[sympy.Symbol, str] = {}
        self.kept: list[str] = []
        self.may_keep = True
        self.facts: list[Fact] = []
        self.names: dict[sympy.Symbol, str] = {}
        self.defined: dict[sympy.Symbol, tuple[str, Fact]] = {}
        self.variables: dict[sympy.Expr, str] = {}
        self._known: dict[sympy.Expr, sympy.Expr] = {}
        self._fixed = 0  # symbols that had a value, or were others', when these were found
        self._opaque: dict[sympy.Expr, sympy.Expr] = {}
        guards = [traced.env.replace(guard.expr) for guard in traced.env.guards]
        self._divides = {pair for guard in guards if (pair := _division(guard))}

    def fresh(self, word: str) -> str:
        return unused(word, self.taken)

    def known(self, expression: Any) -> sympy.Expr:
        """Return an expression in the symbols that are left after tracing."""
        e = sympy.sympify(expression)
        if (fixed := len(self.traced.env.replacements)) != self._fixed:
            self._fixed = fixed  # a schedule has asked for a size's value, such as one of groups
            self._take(self.facts)
        if e not in self._known:
            found = self.traced.env.replace(e) if e.free_symbols else e
            found = self.lead.known(found) if self.lead else found
            found = private.without_guards(found)
            found = found.replace(CeilToInt, _rounded_up).replace(FloorDiv, self._divided)
            for term, value in self._opaque.items():
                if term.free_symbols <= found.free_symbols:
                    found = found.subs(term, value)
            self._known[e] = found
        return self._known[e]

    def _divided(self, over: sympy.Expr, under: sympy.Expr) -> sympy.Expr:
        """Return a quotient in one form.

        (n - 1) // 2 + 1 is (n + 1) // 2; and n // (n // 4), as PyTorch sizes the second part of a
        dimension that is split, is 4 where 4 has to divide n.
        """
        if isinstance(under, FloorDiv) and (over, under.args[1]) in self._divides:
            return under.args[1]
        number, rest = over.as_coeff_Add()
        if not (under.is_Integer and number.is_Integer and rest != 0):
            return FloorDiv(over, under)
        whole, left = divmod(int(number), int(under))
        return FloorDiv(rest + left, under) + whole

    def learn(self, facts: list[Fact]) -> None:
        """Take in what the host function can read.

        Where numbers cannot be told from it one by one, the size that they make up gets a symbol:
        a weight has ``dim // 2`` elements, and nothing has ``dim``; another has ``a + b`` rows.
        """
        direct = {fact.expression for fact in facts}
        for i, fact in enumerate(facts):
            e = fact.expression
            terms = [t for t in sympy.Add.make_args(sympy.expand(e)) if not t.is_number]
            hidden = [t for t in terms if not t.free_symbols <= direct]
            kind = {"integer": True} if e.is_integer else {}  # or such as dim ** -0.5
            whole = sympy.Symbol(f"whole{i}", positive=True, **kind)
            told_as_one = len(terms) == 1 and e.atoms(sympy.Function)
            if hidden and (told_as_one or _is_sum_of(hidden, terms)):
                self._opaque.setdefault(hidden[0], whole - sympy.expand(e - hidden[0]))
        self._take(facts)

    def _take(self, facts: list[Fact]) -> None:
        """Keep facts in the symbols that are left, and forget what was found with others."""
        self._known.clear()
        self.facts = [replace(fact, expression=self.known(fact.expression)) for fact in facts]

    def name_of(self, symbol: sympy.Symbol) -> str:
        """Return the host's text for a symbol.

        Raises:
            Unprintable: nothing that the host function can read tells it.
        """
        if symbol not in self.names:
            self._define(symbol)
        return self.names[symbol]

    def _define(self, symbol: sympy.Symbol) -> None:
        for fact in self.facts:
            if fact.expression == symbol:
                if fact.tensor is None and symbol != LEAD:
                    self.names[symbol] = fact.text
                else:
                    self.names[symbol] = self.fresh(self._word(symbol, fact))
                    self.defined[symbol] = self.names[symbol], fact
                return
        for size in private.named_sizes(self.traced.env):
            if size.symbol == symbol:
                text = self.text(size.formula)
                self.names[symbol] = self.fresh(size.word)
                self.defined[symbol] = self.names[symbol], Fact(symbol, text)
                return
        for fact in self.facts:
            e = fact.expression
            if symbol not in e.free_symbols or e.atoms(sympy.Function):
                continue
            factor = sympy.expand(e).coeff(symbol)
            rest = sympy.expand(e - factor * symbol)
            if factor == 0 or symbol in rest.free_symbols or symbol in factor.free_symbols:
                continue
            others = factor.free_symbols | rest.free_symbols
            if not all(s in self.names or self._is_direct(s) for s in others):
                continue
            text = fact.text if rest == 0 else f"({fact.text} - {self.text(rest)})"
            text = text if factor == 1 else f"{text} // {self.text(factor)}"
            self.names[symbol] = self.fresh(self._word(symbol, fact))
            self.defined[symbol] = self.names[symbol], Fact(symbol, text)
            return
        for name, value in self.traced.arguments.items():
            given = isinstance(value, Symbolic) and self.traced.expression(value) == symbol
            own = name.rpartition(".")[2]
            if given and self.may_keep and not hasattr(self.traced.model, own):
                self.kept.append(name)
                self.names[symbol] = f"self.{own}"
                return
        raise Unprintable("a size that nothing tells")

    def _order(self, symbol: sympy.Symbol) -> tuple[int, str]:
        """Return where a symbol comes among what can be read: texts do not hang on its name."""
        known = (i for i, fact in enumerate(self.facts) if fact.expression == symbol)
        return next(known, len(self.facts)), str(symbol)

    def _is_direct(self, symbol: sympy.Symbol) -> bool:
        return any(fact.expression == symbol for fact in self.facts)

    def argument(self, symbol: sympy.Symbol) -> str:
        """Return the name of the constructor's argument that a size is, or ""."""
        for name, value in self.traced.arguments.items():
            if isinstance(value, Symbolic) and self.traced.expression(value) == symbol:
                return name.rpartition(".")[2]
        return ""

    def _word(self, symbol: sympy.Symbol, fact: Fact) -> str:
        """Return a name for a size: the constructor's, the file's, or the tensor's own."""
        if word := self.argument(symbol):
            return word
        words = words_of(self.traced.task)
        if (fact.tensor, fact.dim) in words.sizes:
            return words.sizes[fact.tensor or "", fact.dim]
        value = self.traced.env.backed_var_to_val.get(symbol)
        if self.lead and symbol == LEAD:
            value = self.lead.length
        same: list[str] = []
        for name, known in vars(self.traced.task).items():
            plain = type(known) is int and re.fullmatch(r"[a-z][a-z_0-9]*", name)
            if plain and value is not None and known == int(value):
                same.append(name)
        if fact.tensor is None or not fact.tensor.isidentifier():
            usual = "batch" if symbol == LEAD else "size"
            return next((name for name in same if name not in self.taken), usual)
        usual = self.roles.get(symbol) or self._role(fact.tensor, fact.dim)
        if fact.dim != 0 and symbol != LEAD:
            same = [name for name in same if not name.startswith("batch")]
        drawn = words.drawn.get((fact.tensor, fact.dim))
        same = [name for name in same if name == drawn] or same
        same.sort(key=lambda name: name != usual)  # of several of one size the usual
        for word in [*same, *([usual] if usual and not same else [])]:
            if word not in self.taken:
                return word
        is_one = sum(other.tensor == fact.tensor for other in self.facts) == 1
        usual = usual or ("size" if is_one else f"size{abs(fact.dim)}")
        return f"{fact.tensor}_{(same or [usual])[0]}"

    def _role(self, tensor: str, dim: int) -> str:
        """Return what a dimension of an input usually is, by their number, or ""."""
        dims = [fact.dim for fact in self.facts if fact.tensor == tensor]
        rank = 1 + (max(dims) if dim >= 0 else len(dims))
        roles = _ROLES.get(rank, ())
        if rank == 4 and words_of(self.traced.task).speaks_of_sequences:
            roles = "batch", "seq_len", "num_heads", "head_dim"
        elif rank == 4 and tensor in _ATTENDED:
            heads = ("seq_len", "num_heads") if self.has_turned else ("num_heads", "seq_len")
            roles = "batch", *heads, "head_dim"
        is_input = tensor in self.inputs and -len(roles) <= dim < len(roles)
        return roles[dim] if is_input else ""

    def ties(self) -> list[Any]:
        """Return what must hold of the sizes of convolutions' results that others tell as well."""
        found = []
        for size in private.named_sizes(self.traced.env):
            known = self.known(size.symbol)
            if known != size.symbol or self._is_direct(known):
                found.append(sympy.Eq(self.known(size.formula), known))
        return found

    def tells(self, expression: Any) -> bool:
        """Whether the host function can say a number, without naming anything for it."""
        names, defined, taken = dict(self.names), dict(self.defined), set(self.taken)
        try:
            self.text(expression)
        except Unprintable:
            return False
        finally:
            self.names, self.defined = names, defined
            self.taken &= taken
        return True

    def text(self, expression: Any) -> str:
        """Return the host's text for a number."""
        e = self.known(expression)
        plain = e.is_number or e.is_Symbol or isinstance(e, Boolean)
        for fact in () if plain else self.facts:
            known = fact.expression
            same = known == e or (known.free_symbols == e.free_symbols and equal(known, e))
            if fact.tensor is None and same:
                return fact.text
        for symbol in sorted(e.free_symbols, key=self._order):
            self.name_of(symbol)
        return Printer(self.names).text(e)


def _is_sum_of(hidden: list[sympy.Expr], terms: list[sympy.Expr]) -> bool:
    """Whether some terms of a sum of sizes are several sizes that nothing tells."""
    are_sizes = all(term.is_Symbol for term in hidden)
    return len(hidden) > 1 and are_sizes and all(term.is_positive for term in terms)


def _division(guard: sympy.Basic) -> tuple[sympy.Basic, ...] | None:
    """Return a number and what divides it, if a guard says so: ``a == b or a % b == 0``, or the
    second alone."""
    parts = guard.args if isinstance(guard, sympy.Or) else (guard,)
    equations = [part for part in parts if isinstance(part, sympy.Eq)]
    rests = [e.lhs.args for e in equations if isinstance(e.lhs, private.Mod) and e.rhs == 0]
    others = [e for e in equations if not isinstance(e.lhs, private.Mod)]
    if len(rests) != 1 or len(rests) + len(others) != len(parts):
        return None
    return rests[0] if all({*e.args} == {*rests[0]} for e in others) else None


def _rounded_up(e: sympy.Expr) -> sympy.Expr:
    """Return a quotient that is rounded up in integers, where it is one of integers."""
    if not isinstance(e, IntTrueDiv):
        return CeilToInt(e)
    over, under = e.args
    return FloorDiv(over + under - 1, under)
