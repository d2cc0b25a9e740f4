"""Product, softmax and product as the loops of one kernel.

Inductor leaves a library's product, a group of loops for the softmax, and another product. Their
bodies are recorded over common axes, in which each product is one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from curate.generator import torch_private as private
from curate.generator.loops import common_sizes, equal, positions, product
from curate.generator.program import Program
from curate.generator.schedules import producers, products, softmax
from curate.generator.torch_private import CallOperand, LibraryCall
from curate.generator.unprintable import Unprintable
from curate.generator.values import Value, made_of

LARGEST_HEAD = 256
"""Elements of a query, in the file, up to which a program holds them all."""

_CHEAP = {"load", "constant", "index", "add", "sub", "mul", "truediv", "to_dtype"}
"""What is done to keys and values by each program that reads them."""

ROLES = ("batch", "row", "key", "dim", "col")
"""What a dimension counts: batch and head, queries, keys, elements of a query, of a result."""


@dataclass
class Found:
    """Groups that are one attention.

    Attributes:
        first, second: what the library would be asked for.
        groups: the groups between the two products.
        nodes: those of all groups, the products' too.
        producers: nodes whose results only these read and that are computed where they are read.
    """

    first: LibraryCall
    second: LibraryCall
    groups: list[Any]
    nodes: list[Any]
    producers: dict[str, Any] = field(default_factory=dict)
    before: list[Any] = field(default_factory=list)

    def get_nodes(self) -> list[Any]:
        return [*self.nodes, *(node for group in self.before for node in group.get_nodes())]


def fuse(program: Program, groups: list[Any]) -> list[Any]:
    """Return a program's groups, with one in place of those that are an attention."""
    left = list(groups)
    for group in groups:
        found = _between(program, left, group) if group in left else None
        for attempt in _attempts(program, left, found) if found else ():
            if _is_one(program, attempt):
                own = {id(node) for node in attempt.get_nodes()}
                at = next(i for i, g in enumerate(left) if g.get_nodes()[-1] is attempt.nodes[-1])
                left[at] = attempt
                left = [g for g in left if g is attempt or id(g.get_nodes()[0]) not in own]
                break
    return left


def _is_one(program: Program, found: Found) -> bool:
    """Whether one kernel can and should do it all, when the last of it is due."""
    if program.reads(found.get_nodes()) & set(map(program.real, program.changed)):
        return False
    try:
        loops = Attention(program, found, ())
    except Unprintable:
        return False
    return all(program.hint(loops.sizes[role]) <= LARGEST_HEAD for role in ("dim", "col"))


def _call(group: Any) -> LibraryCall | None:
    if isinstance(group, private.ExternKernelSchedulerNode):
        call = private.library_call(group)
        if call and call.operator in ("mm", "bmm", "addmm", "baddbmm"):
            tensors = [one for one in call.args if isinstance(one, CallOperand)]
            return call if all(one.dtype in products.FLOATS for one in tensors) else None
    return None


def _between(program: Program, groups: list[Any], start: Any) -> Found | None:
    """Return a product, with the loops that read it and the product that these lead to."""
    first = _call(start)
    if first is None:
        return None
    made = {program.real(first.result.buffer)}
    between: list[Any] = []
    for group in groups[groups.index(start) + 1 :]:
        nodes = group.get_nodes()
        if not program.reads(nodes) & made:
            continue
        second = _call(group)
        if second is not None:
            own = [*start.get_nodes(), *(n for g in between for n in g.get_nodes())]
            found = Found(first, second, between, [*own, *nodes])
            names = {node.get_name() for node in found.nodes}
            fits = second.operator in ("mm", "bmm") and between
            return found if fits and producers.is_only_for(program, own, names) else None
        if not isinstance(group, private.LOOPS):
            return None
        between.append(group)
        made |= program.writes(nodes).keys()
    return None


def _attempts(program: Program, groups: list[Any], found: Found) -> Iterator[Found]:
    """Yield an attention with those loops taken in that make its operands, the most first."""
    names = {node.get_name() for node in found.nodes}
    made = {b.get_name() for n in found.nodes for b in n.get_outputs()}
    operands = [*found.first.args[-2:], *found.second.args]
    q, k, *rest = [program.real(o.buffer) for o in operands]
    v = [name for name in rest if name not in made]
    tried: list[list[Any]] = []
    for wanted in ([q, k, *v], [q, k], [q, *v], [q], [k, *v], [k], v, []):
        before = producers.find(program, groups, names, wanted)
        if before in tried:
            continue
        tried.append(before)
        nodes = program.writes(node for group in before for node in group.get_nodes())
        yield Found(found.first, found.second, found.groups, found.nodes, nodes, before)


class Attention(products.Product):
    """What one kernel of attention does.

    Attributes:
        axes_of_role: the axes of each role; ``keys`` and ``dims`` are those of values and of keys
            again, which lie otherwise in a tile.
        q, k, v: elements of the operands; ``weights`` what multiplies ``v``.
        scores: which scores count, and what they are.
        product: the value that stands for the result of the second product.
    """

    def __init__(self, program: Program, found: Found, groups: Sequence[Any]) -> None:
        later = [node for group in groups for node in group.get_nodes()]
        self._begin(program, [*found.get_nodes(), *later])
        self.recorder = producers.InlineRecorder(self, found.producers)
        self.found, self.followers = found, list(groups)
        self.call, self.places = found.second, []
        self._operands()
        spans = self._spans(later)
        self._lay_out([sizes for sizes, _ in spans])
        self._scores()
        self._result()
        for node, (sizes, variables) in zip(later, spans, strict=True):
            private.run_body(node, variables(self._along(self.order, sizes)), [], self.recorder)

    # -- axes -------------------------------------------------------------------------------------

    def _operands(self) -> None:
        """Tell queries from keys and weights from values, and what their dimensions are."""
        self.q_operand, self.k_operand = self.found.first.args[-2:]
        left, right = self.found.second.args
        made = {b.get_name() for node in self.found.nodes for b in node.get_outputs()}
        is_left = left.buffer in made
        self.weights_operand, self.v_operand = (left, right) if is_left else (right, left)
        *batch, rows, dims = self.q_operand.sizes
        keys = self.k_operand.sizes[-1]
        cols = self.v_operand.sizes[-1 if is_left else -2]
        self.batched = len(batch)
        self.sizes = dict(zip(ROLES, (product(batch), rows, keys, dims, cols), strict=True))
        lead = ["batch"] * self.batched
        self.order = [*lead, "row", "col"] if is_left else [*lead, "col", "row"]
        self.value_order = [*lead, "keys", "col"] if is_left else [*lead, "col", "keys"]
        self.weights_order = [*lead, "row", "key"] if is_left else [*lead, "key", "row"]
        expected = [self.sizes[role] for role in self.weights_order]
        if len(expected) != len(self.weights_operand.sizes) or not all(
            map(equal, expected, self.weights_operand.sizes)
        ):
            raise Unprintable("weights of another shape than scores")
        if self.program.known(keys) == 1:
            raise Unprintable("attention of one key")

    def _lay_out(self, spans: list[list[sympy.Expr]]) -> None:
        """Choose axes of which all variables of all loops are made."""
        self._splits = {role: [[size]] for role, size in self.sizes.items()}
        for group in self.found.groups:
            for node in group.get_nodes():
                self._split(*self._run_through(node))
        for sizes in spans:
            self._split(self.order, sizes)
        for node in self.found.producers.values():
            for divisor, size in producers.divisors(node):
                if equal(size, self.sizes["batch"]):
                    self._try(["batch"], [private.simplify(size / divisor, {}), divisor])
        for operand, order in (
            (self.q_operand, ["batch", "row", "dim"]),
            (self.k_operand, ["batch", "dim", "key"]),
            (self.v_operand, [{"keys": "key"}.get(role, role) for role in self.value_order]),
        ):
            node = self.found.producers.get(self.program.real(operand.buffer))
            if node is not None:
                order = order[-len(operand.strides) :]
                steps = dict(zip(order, operand.strides, strict=True))
                order.sort(key=lambda role: self.program.hint(steps[role]), reverse=True)
                self._try(order, [sympy.sympify(n) for n in node.get_ranges()[0]])
        self.axes_of_role: dict[str, list[sympy.Symbol]] = {}
        self.of_dim: dict[sympy.Symbol, Any] = {}
        for role in (*ROLES, "keys", "dims"):
            sizes = common_sizes(self._splits[{"keys": "key", "dims": "dim"}.get(role, role)])
            own = [sympy.Symbol(f"{role}{i}", integer=True, nonnegative=True) for i in range(9)]
            self.axes_of_role[role] = own[: len(sizes)]
            self.axes |= dict(zip(own, sizes, strict=False))
        self.of_dim = {axis: role for role, axes in self.axes_of_role.items() for axis in axes}
        self.reduced = list(self.axes_of_role["key"])

    def _run_through(self, node: Any) -> tuple[list[str], list[sympy.Expr]]:
        """Return what a node between the products runs through, and the sizes of its variables."""
        rows, own = ["batch", "row"], [sympy.sympify(n) for part in node.get_ranges() for n in part]
        is_whole = not equal(product(own), product(self.sizes[role] for role in rows))
        return [*rows, "key"] if is_whole else rows, own

    def _split(self, roles: list[str], own: list[sympy.Expr]) -> None:
        """Note into which parts a loop's variables split the dimensions that they run through."""
        left = common_sizes([[self.sizes[role] for role in roles], own])
        parts: dict[str, list[sympy.Expr]] = {}
        for role in reversed(roles):
            parts[role] = []
            while not equal(product(parts[role]), self.sizes[role]):
                parts[role].insert(0, left.pop())
        for role, sizes in parts.items():
            common_sizes([*self._splits[role], sizes])
        for role, sizes in parts.items():
            self._splits[role].append(sizes)

    def _try(self, roles: list[str], own: list[sympy.Expr]) -> None:
        try:
            self._split(roles, own)
        except (Unprintable, IndexError):
            return

    def _along(self, roles: Iterable[str], sizes: Sequence[Any] | None = None) -> list[sympy.Expr]:
        """Return variables of some sizes, or of one for each dimension, in terms of axes."""
        axes = [(a, self.axes[a]) for role in dict.fromkeys(roles) for a in self.axes_of_role[role]]
        if sizes is not None:
            return positions(axes, list(sizes))
        return [
            positions([(a, self.axes[a]) for a in self.axes_of_role[r]], [self._size(r)])[0]
            for r in roles
        ]

    def _size(self, role: str) -> sympy.Expr:
        return self.sizes[{"keys": "key", "dims": "dim"}.get(role, role)]

    @property
    def kept(self) -> list[sympy.Symbol]:
        return [*self.axes_of_role["batch"], *self.axes_of_role["row"]]

    # -- values -----------------------------------------------------------------------------------

    def _scores(self) -> None:
        """Record the first product and the loops behind it."""
        lead, first = ["batch"] * self.batched, self.found.first
        self.q, q_factors = self._operand(self.q_operand, [*lead, "row", "dim"])
        self.k, k_factors = self._operand(self.k_operand, [*lead, "dims", "key"])
        self.dot = self._product((self.q, self.k), ("batch", "row", "key"))
        value = self._scaled(self.dot, [*q_factors, *k_factors])
        places = self._along([*lead, "row", "key"])
        if first.operator in ("addmm", "baddbmm"):
            alpha, beta = (first.kwargs.get(name, 1) for name in ("alpha", "beta"))
            value = self.with_bias(value, first.args[0], places, alpha, beta)
        self.recorder.store(first.result.buffer, self.at(first.result, places), value)
        for group in self.found.groups:
            for node in group.get_nodes():
                at, outer = self._along(*self._run_through(node)), len(node.get_ranges()[0])
                private.run_body(node, at[:outer], at[outer:], self.recorder)
        operand = self.weights_operand
        found = self.recorder.load(
            operand.buffer, self.at(operand, self._along(self.weights_order))
        )
        self.softmax = softmax.find(found)
        self.scores = softmax.visible(self.softmax.scores, self.recorder)
        seen = self.scores
        seen.within, _ = softmax.unscaled(seen.within, self.recorder)
        seen.scores, seen.factor = softmax.unscaled(seen.scores, self.recorder)

    def _result(self) -> None:
        """Record the second product."""
        self.v, factors = self._operand(self.v_operand, self.value_order)
        self.product = self._product((self.v,), ("batch", "row", "col"))
        result = self.call.result
        at = self.at(result, self._along(self.order))
        self.recorder.store(result.buffer, at, self._scaled(self.product, factors))

    def _operand(self, operand: CallOperand, roles: list[str]) -> tuple[Value, list[Value]]:
        """Return an operand's element, without its factors, and these.

        Raises:
            Unprintable: it is not a tile that is quickly made.
        """
        value = self.recorder.load(operand.buffer, self.at(operand, self._along(roles)))
        factors = []
        while value.op == "mul":
            numbers = [one for one in value.args if not one.axes]
            if not numbers:
                break
            factors.append(numbers[-1])
            value = value.args[0] if numbers[-1] is value.args[1] else value.args[1]
        wanted = [set(self.axes_of_role[role]) for role in roles[-2:]]
        if not all(value.axes & axes for axes in wanted if axes):
            raise Unprintable("an operand that is the same for all elements")
        parts = list(made_of([value]))
        along = set(self.axes_of_role[next(r for r in roles if r in ("row", "key", "keys"))])
        loads = [one for one in parts if one.op == "load" and one.axes & along]
        costly = len(loads) > 1 or any(one.op not in _CHEAP for one in parts)
        if costly and operand is not self.q_operand:
            raise Unprintable("keys or values that take long to compute")
        return value, factors

    def _product(self, args: tuple[Value, ...], roles: Iterable[str]) -> Value:
        made = self.recorder.make("product", args, torch.float32)
        made.axes = frozenset(axis for role in roles for axis in self.axes_of_role[role])
        return made

    def _scaled(self, value: Value, factors: list[Value]) -> Value:
        """Return a value times factors; a root that comes twice is the number itself."""
        left = list(factors)
        while left:
            factor = left.pop(0)
            if factor in left and (whole := self._squared(factor)) is not None:
                left.remove(factor)
                factor = whole
            if factor.op == "constant" and factor.number == 1:
                continue
            value = self.recorder.make("mul", (value, factor), torch.float32)
        return value

    def _squared(self, factor: Value) -> Value | None:
        if factor.op == "constant":
            return self.recorder.constant(float(f"{factor.number**2:.12g}"), torch.float32)
        e: Any = factor.index
        kind = type(e).__name__
        is_root = kind in ("FloatPow", "Pow") and e.args[1] == 0.5
        is_root |= kind == "OpaqueUnaryFn_sqrt"
        return self.recorder.index_expr(e.args[0], torch.float32) if is_root else None
