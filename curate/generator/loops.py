"""Fused loops as one: axes that all of a kernel's nodes share, and what is computed over them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import sympy

from curate.generator import torch_private as private
from curate.generator.unprintable import Unprintable
from curate.generator.values import Recorder, StoredValue, Value

if TYPE_CHECKING:
    from curate.generator.program import Program

ONE, ZERO = sympy.Integer(1), sympy.Integer(0)


def equal(a: Any, b: Any) -> bool:
    """Whether two sizes are the same for all values of their symbols."""
    return bool(a == b) or _equal(sympy.sympify(a), sympy.sympify(b))


@lru_cache(maxsize=10_000)
def _equal(a: sympy.Expr, b: sympy.Expr) -> bool:
    one, other = _sample(a), _sample(b)
    if one is not None and other is not None and one != other:
        return False
    return bool(sympy.expand(a - b) == 0)


@lru_cache(maxsize=10_000)
def _sample(e: sympy.Expr) -> int | None:
    """Return a size for some values of its symbols, which shows quickly that sizes differ."""
    values = {s: sympy.Integer(1000 + crc32(s.name.encode())) for s in e.free_symbols}
    try:
        found = e.xreplace(values)
    except ZeroDivisionError:  # a quotient of two of them is below one
        return None
    return int(found) if found.is_Integer else None


def product(sizes: Iterable[Any]) -> sympy.Expr:
    """Return how many elements some sizes make."""
    return sympy.Mul(*map(sympy.sympify, sizes))


@lru_cache(maxsize=10_000)
def quotient(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    """Return a / b if b divides a as polynomials do."""
    found = sympy.cancel(a / b)
    numerator, denominator = sympy.fraction(found)
    return found if denominator == 1 and numerator == found else None


def in_terms_of(e: sympy.Expr, sizes: dict[sympy.Expr, sympy.Symbol]) -> sympy.Expr:
    """Return a product of sizes with symbols for those of them that are sums."""
    for size, symbol in sizes.items():
        whole = sympy.expand(size)
        while whole.is_Add and whole.free_symbols <= e.free_symbols and _may_divide(whole, e):
            rest = quotient(e, whole)
            if rest is None or not all(n.is_Integer for n in _factors(rest)):
                break
            e = rest * symbol
    return e


def _may_divide(a: sympy.Expr, b: sympy.Expr) -> bool:
    one, other = _sample(a), _sample(b)
    return not one or other is None or other % one == 0


def _factors(e: sympy.Expr) -> list[sympy.Expr]:
    """Return the numbers by which the terms of a sum are multiplied."""
    return list(sympy.expand(e).as_coefficients_dict().values())


def _is_near(e: sympy.Expr) -> bool:
    """Whether an expression is (n - 1) % n or (n + 1) % n, as `torch.roll` has it."""
    return isinstance(e, private.Mod | private.PythonMod) and abs(e.args[1] - e.args[0]) == 1


def _remainder(e: sympy.Expr) -> sympy.Expr:
    return e.args[0] if e.args[1] - e.args[0] == 1 else ONE


def axes_of_sizes(sizes: list[sympy.Expr]) -> dict[sympy.Symbol, sympy.Expr]:
    """Return new symbols for axes, with their sizes."""
    names = (sympy.Symbol(f"a{i}", integer=True, nonnegative=True) for i in range(len(sizes)))
    return dict(zip(names, sizes, strict=True))


def common_sizes(lists: list[list[Any]]) -> list[sympy.Expr]:
    """Return sizes, outermost first, of which every list's sizes are products, in order.

    Raises:
        Unprintable: there are none.
    """
    left = [[s for s in map(sympy.sympify, sizes) if s != 1] for sizes in lists]
    found: list[sympy.Expr] = []
    while any(left):
        if not all(left):
            raise Unprintable("loops of different sizes in one kernel")
        last = [sizes[-1] for sizes in left]
        for size in sorted(set(last), key=lambda s: (sympy.count_ops(s), str(s))):
            quotients = [quotient(one, size) for one in last]
            if all(q is not None for q in quotients):
                break
        else:
            raise Unprintable("loops whose sizes do not divide each other")
        found.append(size)
        for sizes, rest in zip(left, quotients, strict=True):
            sizes.pop()
            if rest != 1:
                sizes.append(rest)
    return found[::-1]


def positions(
    axes: Iterable[tuple[sympy.Symbol, sympy.Expr]], sizes: list[Any]
) -> list[sympy.Expr]:
    """Return variables, by their sizes, in terms of axes that have the same elements in order."""
    left = list(axes)
    found: list[sympy.Expr] = []
    for size in reversed(sizes):
        position, covered = ZERO, ONE
        while not equal(covered, size):
            axis, length = left.pop()
            position += axis * covered
            covered *= length
        found.insert(0, position)
    return found


class Loops:
    """What one kernel does.

    Attributes:
        axes: symbols with their sizes, outermost first; those of ``reduced`` are the last.
        kept, reduced: the axes that stay, and those that reductions take away.
        stores: results, in order.
        stored: what was stored in a buffer: index and value.
        nodes: the scheduler's nodes that it stands for.
    """

    def _begin(self, program: Program, nodes: list[Any]) -> None:
        self.program = program
        self.nodes = nodes
        self.axes: dict[sympy.Symbol, sympy.Expr] = {}
        self.reduced: list[sympy.Symbol] = []
        self.expressions: list[sympy.Expr] = []
        self.stores: list[StoredValue] = []
        self.stored: dict[str, tuple[sympy.Expr, Value]] = {}
        self.recorder = Recorder(self)
        self._indirect: dict[sympy.Symbol, Value] = {}
        self._merged: dict[sympy.Symbol, sympy.Expr] = {}
        self._into: dict[sympy.Symbol, sympy.Symbol] = {}

    def __init__(self, program: Program, group: Any) -> None:
        self._begin(program, list(group.get_nodes()))
        kept, reduced = map(sympy.sympify, group.group[1])
        self.total = sympy.expand(kept * reduced)
        spans = []
        for node in self.nodes:
            own = [size for sizes in node.get_ranges() for size in sizes]
            small = not equal(product(own), self.total)
            spans.append([*own, reduced] if small else own)
        self.axes = axes_of_sizes(common_sizes([[kept, reduced], *spans]))
        while not equal(self.extent(self.reduced), reduced):
            self.reduced.insert(0, list(self.axes)[-1 - len(self.reduced)])
        for node, span in zip(self.nodes, spans, strict=True):
            outer, inner = node.get_ranges()
            at = self._positions(span)
            until = len(outer) + len(inner)
            private.run_body(node, at[: len(outer)], at[len(outer) : until], self.recorder)

    @property
    def kept(self) -> list[sympy.Symbol]:
        return [axis for axis in self.axes if axis not in self.reduced]

    def _positions(self, sizes: list[Any]) -> list[sympy.Expr]:
        """Return a node's variables, by their sizes, in terms of the axes."""
        return positions(self.axes.items(), sizes)

    def extent(self, axes: Iterable[sympy.Symbol]) -> sympy.Expr:
        """Return how many elements some axes have together."""
        return product(self.axes[axis] for axis in axes)

    def place(self, name: str, index: Any) -> tuple[str, sympy.Expr]:
        return self.program.place(name, sympy.sympify(index))

    def simplified(self, expression: Any) -> sympy.Expr:
        found = sympy.sympify(expression)
        if found.free_symbols:
            found = sympy.expand(private.simplify(found.replace(_is_near, _remainder), self.axes))
        return found.subs(self._merged) if self._merged else found

    def indirect(self, value: Value) -> sympy.Symbol:
        """Return a symbol for an index that is computed; bodies have other names for theirs."""
        for symbol, known in self._indirect.items():
            if known is value:
                return symbol
        symbol = sympy.Symbol(f"place{len(self._indirect)}", integer=True, nonnegative=True)
        self._indirect[symbol] = value
        return symbol

    def indirect_value(self, symbol: sympy.Symbol) -> Value | None:
        return self._indirect.get(symbol)

    def axes_of(self, index: sympy.Expr) -> tuple[frozenset[sympy.Symbol], list[Value]]:
        """Return the axes in an index and the values in it."""
        symbols = sorted(index.free_symbols, key=str)
        values = [self._indirect[s] for s in symbols if s in self._indirect]
        return frozenset(s for s in symbols if s in self.axes), values

    def live(self, axes: Iterable[sympy.Symbol]) -> frozenset[sympy.Symbol]:
        """Return the axes that some axes are part of, now that neighbours are merged."""
        return frozenset(self._into.get(axis, axis) for axis in axes)

    # -- merging ----------------------------------------------------------------------------------

    def merge(self) -> None:
        """Make one axis of neighbours that every address runs through as through one."""
        expressions = list(dict.fromkeys(self.expressions))
        order = list(self.axes)
        at = 0
        while at + 1 < len(order):
            outer, inner = order[at], order[at + 1]
            fits = self._fits(outer, inner)
            if fits and all(self._runs_through(e, outer, inner) for e in expressions):
                self._join(outer, inner)
                expressions = [e.subs(outer, 0) for e in expressions]
                order.pop(at)
                at = max(at - 1, 0)
            else:
                at += 1
        self.expressions = expressions

    def _fits(self, outer: sympy.Symbol, inner: sympy.Symbol) -> bool:
        """Whether two axes may become one, as far as it is not their addresses' business."""
        return (outer in self.reduced) == (inner in self.reduced)

    def _runs_through(self, index: sympy.Expr, outer: sympy.Symbol, inner: sympy.Symbol) -> bool:
        if index.free_symbols.isdisjoint((outer, inner)):
            return True
        split = [f for f in index.atoms(sympy.Function) if {outer, inner} & f.free_symbols]
        if split:
            return False
        shifted = index.subs({outer: ZERO}).subs({inner: inner + self.axes[inner] * outer})
        return equal(shifted, index)

    def _join(self, outer: sympy.Symbol, inner: sympy.Symbol) -> None:
        self._merged[outer] = ZERO
        self._into = {a: inner if b == outer else b for a, b in self._into.items()}
        self._into[outer] = inner
        self.axes[inner] = sympy.expand(self.axes[outer] * self.axes[inner])
        del self.axes[outer]
        self.reduced = [axis for axis in self.reduced if axis != outer]

    def index(self, expression: sympy.Expr) -> sympy.Expr:
        """Return a recorded index in terms of the merged axes."""
        return expression.subs(self._merged)

    # -- fusion of loops in another order ---------------------------------------------------------

    def absorb(self, group: Any) -> bool:
        """Take in later element-wise loops that are these in another order; say whether it did.

        Inductor does not fuse them: a softmax over the first dimension reads column by column and
        writes row by row. Which variable is which axis shows in a load that both do, or of
        what these store.
        """
        if not self.reduced or not self.kept:
            return False
        if not isinstance(group, private.LOOPS):
            return False  # a library's
        loads: dict[str, list[sympy.Expr]] = {}
        for value in self.recorder.made.values():
            if value.op == "load" and not value.masks and value.index is not None:
                loads.setdefault(value.name, []).append(self.index(value.index))
        for name, (index, _) in self.stored.items():
            loads.setdefault(name, []).append(self.index(index))
        plans = []
        for node in group.get_nodes():
            outer, inner = node.get_ranges()
            reads = {dependency.name for dependency in node.read_writes.reads}
            if inner or not reads & self.stored.keys() or not equal(product(outer), self.total):
                return False
            sizes = dict(zip(private.body_variables(node), outer, strict=True))
            plan = self._alignment(node, sizes, loads)
            if plan is None or not self._reads_in_place(node, dict(zip(sizes, plan, strict=True))):
                return False
            plans.append((node, plan))
        for node, plan in plans:
            private.run_body(node, plan, [], self.recorder)
        self.nodes += group.get_nodes()
        return True

    def _reads_in_place(self, node: Any, plan: dict[sympy.Symbol, sympy.Expr]) -> bool:
        """Whether a node reads what these loops store where they store it."""
        for name, index in private.body_loads(node):
            name, index = self.place(name, index)
            if name in self.stored and not equal(
                index.xreplace(plan), self.index(self.stored[name][0])
            ):
                return False
        return True

    def _alignment(
        self,
        node: Any,
        sizes: dict[sympy.Symbol, sympy.Expr],
        loads: dict[str, list[sympy.Expr]],
    ) -> list[sympy.Expr] | None:
        """Return the axis, or all of them, that each of a node's variables is, or None."""
        for name, index in private.body_loads(node):
            name, index = self.place(name, index)
            index = sympy.expand(index)
            for own in loads.get(name, []):
                if name in self.stored and index in sizes and equal(sizes[index], self.total):
                    return [own]
                found: dict[sympy.Symbol, sympy.Symbol] = {}
                for variable, size in sizes.items():
                    stride = index.coeff(variable)
                    fitting = [
                        axis
                        for axis, length in self.axes.items()
                        if stride != 0 and equal(own.coeff(axis), stride) and equal(length, size)
                    ]
                    if len(fitting) == 1:
                        found[variable] = fitting[0]
                if len(set(found.values())) == len(sizes):
                    return [found[variable] for variable in sizes]
        return None
