"""Element-wise loops before a kernel, done by the kernel itself where it reads their results.

A copy of keys that repeats heads, scales or transposes costs memory and a launch. The kernel has an
address in the copy; the copy's own indices are the address's digits, and its body says the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch

from curate.generator import torch_private as private
from curate.generator.loops import ZERO, Loops, equal, quotient
from curate.generator.program import Program
from curate.generator.torch_private import FloorDiv, ModularIndexing
from curate.generator.unprintable import Unprintable
from curate.generator.values import Recorder, Value, is_opposite, made_of

Term = tuple[sympy.Expr, sympy.Expr, sympy.Expr]
"""Of an address: what it has times what, and how many values that takes from zero on."""


class InlineRecorder(Recorder):
    """Records bodies; what `producers` store is computed where it is loaded."""

    def __init__(self, loops: Loops, producers: Mapping[str, Any]) -> None:
        super().__init__(loops)
        self.producers = producers
        self.results: dict[str, Value] = {}

    def load(self, name: str, index: Any) -> Value:
        name, at = self.loops.place(name, index)
        node = self.producers.get(name)
        if node is None:
            return super().load(name, self._shorter(at))
        variables = _variables(node, self.loops.simplified(at), self.loops.axes)
        private.run_body(node, variables, [], self)
        return self.results[name]

    def index_expr(self, expression: Any, dtype: torch.dtype) -> Value:
        return super().index_expr(self._shorter(sympy.sympify(expression)), dtype)

    def _shorter(self, index: sympy.Expr) -> sympy.Expr:
        """Return an index without divisions that undo one another: of views of views."""

        def undone(part: sympy.Expr) -> sympy.Expr:
            inner, *sizes = part.args
            inner = private.simplify(inner, self.loops.axes)
            again = isinstance(part, ModularIndexing) and isinstance(inner, ModularIndexing)
            if again and sizes[0] == inner.args[1] == 1 and inner.args[2] % sizes[1] == 0:
                inner = inner.args[0]
            try:
                return _counted(part.func(inner, *sizes), self.loops.axes)[0]
            except Unprintable:  # of a sum
                return part.func(inner, *sizes)

        return index.replace(lambda part: isinstance(part, FloorDiv | ModularIndexing), undone)

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "where" and (same := self._loaded_once(*args)) is not None:
            args = same
        return super()._default(name, args, kwargs)

    def _loaded_once(self, mask: Value, left: Any, right: Any) -> tuple[Value, ...] | None:
        """Return what is chosen from, if both read the same place: nibbles of one byte."""
        both = [left, right]
        if not all(isinstance(one, Value) and one.op == "masked" for one in both):
            return None
        if left.args[0] is not mask or not is_opposite(right.args[0], mask):
            return None
        places = [
            {(x.name, x.index) for x in made_of([one.args[1]]) if x.op == "load" and x.masks}
            for one in both
        ]
        if places[0] != places[1]:
            return None
        return mask, *(self._unguarded(one.args[1], one.args[0]) for one in both)

    def _unguarded(self, value: Any, mask: Value) -> Any:
        """Return a value whose loads do not wait for a mask."""
        if not isinstance(value, Value) or mask not in made_of([value]):
            return value
        args = tuple(self._unguarded(arg, mask) for arg in value.args)
        if value.op != "load":
            return self.make(value.op, args, value.dtype, value.axes, number=value.number)
        left = tuple(one for one in value.masks if one is not mask)
        more = {"name": value.name, "index": value.index, "masks": left}
        return self.make("load", args, value.dtype, value.axes, **more)

    def store(self, name: str, index: Any, value: Value, mode: str | None = None) -> None:
        name, at = self.loops.place(name, index)
        if name in self.producers:
            self.results[name] = value
        else:
            super().store(name, at, value, mode)


def find(
    program: Program, groups: Iterable[Any], readers: set[str], wanted: Iterable[str]
) -> list[Any]:
    """Return the element-wise groups that make some buffers only for nodes of these names."""
    makers = {
        name: group
        for group in groups
        if isinstance(group, private.LOOPS)
        for name in program.writes(group.get_nodes())
    }
    found: list[Any] = []
    readers, queue = set(readers), list(wanted)
    while queue:
        group = makers.get(queue.pop())
        if group is None or group in found:
            continue
        nodes = group.get_nodes()
        plain = not any(node.get_ranges()[1] for node in nodes)
        names = {node.get_name() for node in nodes}
        if plain and is_only_for(program, nodes, readers | names):
            found.append(group)
            readers |= names
            queue += program.reads(nodes)
    return found


def copied(program: Program, group: Any) -> dict[str, Any]:
    """Return the buffer that a group makes with its node, if all it does is to copy from another.

    Nothing is returned where some kernel changes that in place.
    """
    if not isinstance(group, private.SchedulerNode) or group.get_ranges()[1]:
        return {}
    if not private.is_copy(group) or program.reads([group]) & {*map(program.real, program.changed)}:
        return {}
    return program.writes([group])


def is_only_for(program: Program, nodes: Iterable[Any], readers: set[str]) -> bool:
    """Whether what some nodes make is read by nodes of these names alone."""
    for node in nodes:
        for buffer in node.get_outputs():
            name = buffer.get_name()
            users = {user.node.get_name() for user in buffer.users}
            if not users or not users <= readers or name in program.aliases:
                return False
            if name in program.returned:
                return False
    return True


def divisors(node: Any) -> Iterable[tuple[sympy.Expr, sympy.Expr]]:
    """Yield by what a node's body divides its variables, with these variables' sizes."""
    sizes = dict(zip(private.body_variables(node), node.get_ranges()[0], strict=True))
    for _, index in private.body_loads(node):
        for part in index.atoms(FloorDiv, ModularIndexing):
            if part.args[0] in sizes and (len(part.args) == 2 or part.args[1] == 1):
                yield part.args[-1], sympy.sympify(sizes[part.args[0]])


def _variables(
    node: Any, address: sympy.Expr, axes: Mapping[sympy.Symbol, sympy.Expr]
) -> list[sympy.Expr]:
    """Return a node's variables where it stores to an address, as in a number's digits.

    Raises:
        Unprintable: they cannot be told.
    """
    variables = private.body_variables(node)
    store = sympy.expand(private.without_guards(private.body_store(node)))
    strides = {v: store.coeff(v) for v in variables}
    sizes = dict(zip(variables, map(sympy.sympify, node.get_ranges()[0]), strict=True))
    if not equal(store, sum((v * stride for v, stride in strides.items()), ZERO)):
        raise Unprintable("a result that is stored in no order")
    left = [v for v in variables if sizes[v] != 1]
    terms = _terms(address, axes)
    digits: dict[sympy.Symbol, sympy.Expr] = dict.fromkeys(variables, ZERO)
    while left:
        # the outermost: all others' strides divide its own
        outer = next(
            (v for v in left if all(_over(strides[v], strides[w]) is not None for w in left)), None
        )
        if outer is None:
            raise Unprintable("a result that is stored in no order")
        left.remove(outer)
        digits[outer], terms = _divided(terms, strides[outer])
    return [digits[v] for v in variables]


def _exact(e: sympy.Expr) -> sympy.Expr:
    """Return a size whose divisions leave no rest: else shapes would not fit each other."""
    return e.replace(FloorDiv, lambda over, under: over / under)


def _over(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    found = quotient(a, b)
    return found if found is not None else quotient(_exact(a), _exact(b))


def _terms(address: sympy.Expr, axes: Mapping[sympy.Symbol, sympy.Expr]) -> list[Term]:
    """Return the parts of an address.

    Raises:
        Unprintable: it is not a sum of indices with strides.
    """
    found: list[Term] = []
    for term in sympy.Add.make_args(sympy.expand(address)):
        parts = [f for f in sympy.Mul.make_args(term) if f.free_symbols & axes.keys()]
        if term == 0:
            continue
        if len(parts) != 1:
            raise Unprintable("an address that is no sum of strides")
        index, size = _counted(parts[0], axes)
        found.append((term / parts[0], index, size))
    return found


def _counted(
    index: sympy.Expr, axes: Mapping[sympy.Symbol, sympy.Expr]
) -> tuple[sympy.Expr, sympy.Expr]:
    """Return an index, shorter if it can be, and how many values it takes."""
    if index in axes:
        return index, axes[index]
    if isinstance(index, FloorDiv | ModularIndexing):
        inner, size = _counted(index.args[0], axes)
        if isinstance(index, FloorDiv):
            return FloorDiv(inner, index.args[1]), size / index.args[1]
        by, end = index.args[1:]
        if equal(_exact(size / by), _exact(end)):
            return (inner if by == 1 else FloorDiv(inner, by)), size / by
        if by == 1:
            return ModularIndexing(inner, 1, end), end
    raise Unprintable("an address that is no sum of strides")


def _fit(terms: list[Term], limit: sympy.Expr) -> bool:
    """Whether terms stay below a stride, together."""
    if not terms:
        return True
    for i, (stride, _, size) in enumerate(terms):
        if _over(limit, stride * size) is not None and _fit(terms[:i] + terms[i + 1 :], stride):
            return True
    return False


def _divided(terms: list[Term], by: sympy.Expr) -> tuple[sympy.Expr, list[Term]]:
    """Return how often a stride goes into an address, and what is left of it."""
    whole, rest = ZERO, []
    for stride, index, size in terms:
        times = _over(stride, by)
        if times is None:
            rest.append((stride, index, size))
        else:
            whole += times * index
    if _fit(rest, by):
        return whole, rest
    for i, (stride, index, _) in enumerate(rest):
        parts, others = _over(by, stride), rest[:i] + rest[i + 1 :]
        if parts is not None and _fit(others, stride):
            inside = ModularIndexing(index, 1, parts)
            return whole + FloorDiv(index, parts), [*others, (stride, inside, parts)]
    raise Unprintable("an address across the parts of a copy")
