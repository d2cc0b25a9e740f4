"""The wiring of a program: which operator feeds which, in forms that other words do not change.

A graph comes from `curate.clean.wiring.operators` as a list of nodes. Two forms of it are hashed:

- the exact form keeps numbers, dimensions, element types and how each operand lies in memory
  (which dimensions are swapped, cut or repeated). Names and sizes are out of it;
- the coarse form keeps operators and what feeds them. Copies, casts and views are passed through,
  a division is a product with an inverse, sums and products of several are one node, and operands
  whose order means nothing are sorted.

Code that nothing reads is out of both, and equal nodes are one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

INPUT, WEIGHT, NUMBER = "input", "weight", "number"
"""Nodes that compute nothing: what a call gives, what a module holds, a number in the code."""

LEAVES = frozenset({INPUT, WEIGHT, NUMBER})

COPY = "copy"
"""The operator whose result has its operand's values, perhaps in another order or element type."""

HEAVY = frozenset(
    {"mm", "lstm", "gru", "rnn_tanh", "rnn_relu"}
    | {f"conv{dims}d{transposed}" for dims in (1, 2, 3) for transposed in ("", "t")}
)
"""Operators at which neighbourhoods end: what they read was computed by another part."""

RADII = (2, 3)
"""Operators along a path of a neighbourhood that does not end at a heavy one."""

_COMMUTATIVE = frozenset(
    {"add", "mul", "maximum", "minimum", "eq", "ne"}
    | {"bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor"}
)
_FLAT = frozenset({"add", "mul"})
"""Operators that are the same however several of them are put in brackets."""


@dataclass(frozen=True)
class Operand:
    """What a node reads.

    Attributes:
        node: the number of a node before it.
        layout: how the operand lies in that node's memory; '' for as it was written.
    """

    node: int
    layout: str = ""


@dataclass(frozen=True)
class Node:
    """One operator's result, or a leaf.

    Attributes:
        op: the operator.
        detail: its other arguments.
        operands: what it reads, in order.
    """

    op: str
    detail: str = ""
    operands: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class WiringGraph:
    """What a program computes.

    Attributes:
        nodes: each after those that it reads.
        outputs: what the program returns.
        ops: operators of the program that compute something, before they are broken down.
    """

    nodes: list[Node]
    outputs: list[Operand]
    ops: int


def exact_sha256(graph: WiringGraph) -> str:
    """Return 20 hex digits that graphs share when they differ in names and sizes only."""
    built = _Builder(coarse=False)
    return built.sha256(built.add(graph))


class Coarse:
    """A graph in coarse form.

    Attributes:
        sha256: 20 hex digits of the whole of it.
        hops: hashes of neighbourhoods, of 32 bits, rising; see `_neighbourhoods`.
    """

    def __init__(self, graph: WiringGraph) -> None:
        built = _Builder(coarse=True)
        outputs = built.add(graph)
        self.sha256 = built.sha256(outputs)
        self.hops = _neighbourhoods(built.nodes, _reached(built.nodes, (o.node for o in outputs)))


class _Builder:
    """Builds a graph anew in one of the two forms, equal nodes once."""

    def __init__(self, coarse: bool) -> None:
        self.coarse = coarse
        self.nodes: list[Node] = []
        self._hashes: list[str] = []
        self._known: dict[Node, int] = {}

    def add(self, graph: WiringGraph) -> list[Operand]:
        """Add what the outputs need; return the outputs in this form."""
        needed = _reached(graph.nodes, (output.node for output in graph.outputs))
        uses = Counter(o.node for number in needed for o in graph.nodes[number].operands)
        became: dict[int, Operand] = {}

        def read(operand: Operand) -> Operand:
            found = became[operand.node]
            return Operand(found.node) if self.coarse else Operand(found.node, operand.layout)

        once: set[int] = set()  # nodes of ours that one node reads
        for number in sorted(needed):
            node = graph.nodes[number]
            operands = tuple(map(read, node.operands))
            made = self._add_node(Node(node.op, node.detail, operands), once)
            became[number] = made
            if uses[number] == 1:
                once.add(made.node)
            else:
                once.discard(made.node)
        return [read(output) for output in graph.outputs]

    def _add_node(self, node: Node, once: set[int]) -> Operand:
        operands = node.operands
        if node.op == COPY and (self.coarse or not (node.detail or operands[0].layout)):
            return operands[0]
        if self.coarse and node.op in _FLAT:
            operands = self._flattened(node.op, operands, once)
        if node.op in _COMMUTATIVE:
            operands = tuple(sorted(operands, key=lambda o: (self._hashes[o.node], o.layout)))
        detail = "" if self.coarse else node.detail
        return Operand(self._put(Node(node.op, detail, operands)))

    def _flattened(
        self, op: str, operands: tuple[Operand, ...], once: set[int]
    ) -> tuple[Operand, ...]:
        """Return the operands of a sum or product of sums or products; its numbers are one."""
        flat: list[Operand] = []
        for operand in operands:
            inner = self.nodes[operand.node]
            flat += inner.operands if inner.op == op and operand.node in once else (operand,)
        numbers = [o for o in flat if self.nodes[o.node].op == NUMBER]
        return tuple(o for o in flat if o not in numbers[1:] or o == numbers[0])

    def _put(self, node: Node) -> int:
        if node.op not in (INPUT, WEIGHT) and node in self._known:
            return self._known[node]
        read = (f"{self._hashes[o.node]}{o.layout}" for o in node.operands)
        self.nodes.append(node)
        self._hashes.append(_sha256(node.op, node.detail, *read))
        self._known[node] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def sha256(self, outputs: list[Operand]) -> str:
        """Return the hash of all that outputs need, each node once, in the order of reading."""
        uses = self._uses(outputs)
        numbers: dict[int, int] = {}
        lines: list[str] = []
        if self.coarse:
            outputs = sorted(outputs, key=lambda o: (self._hashes[o.node], uses[o.node]))
        pending = [(output.node, False) for output in reversed(outputs)]
        while pending:
            number, is_read = pending.pop()
            if number in numbers:
                continue
            node = self.nodes[number]
            operands = node.operands
            if node.op in _COMMUTATIVE:  # those that are alike by what they are used for
                key = {o: (self._hashes[o.node], o.layout, uses[o.node]) for o in operands}
                operands = tuple(sorted(operands, key=key.__getitem__))
            if not is_read:
                pending.append((number, True))
                pending += [(o.node, False) for o in reversed(operands)]
                continue
            numbers[number] = len(numbers)
            read = (f"{numbers[o.node]}{o.layout}" for o in operands)
            lines.append(" ".join([node.op, node.detail, *read]))
        ends = (f"{numbers[o.node]}{o.layout}" for o in outputs)
        return _sha256(*lines, *ends)[:20]

    def _uses(self, outputs: list[Operand]) -> dict[int, str]:
        """Return a hash of what becomes of each node on the way to the outputs."""
        found: dict[int, list[str]] = {output.node: ["output"] for output in outputs}
        hashes: dict[int, str] = {}
        for number in sorted(_reached(self.nodes, found), reverse=True):
            hashes[number] = _sha256(*sorted(found[number]))
            node = self.nodes[number]
            for place, operand in enumerate(node.operands):
                where = "" if node.op in _COMMUTATIVE else str(place)
                use = f"{self._hashes[number]}{where}{operand.layout}{hashes[number]}"
                found.setdefault(operand.node, []).append(use)
        return hashes


def _reached(nodes: list[Node], roots: Iterable[int]) -> set[int]:
    """Return the numbers of some nodes and of all that these need."""
    found: set[int] = set()
    pending = list(roots)
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            pending += [operand.node for operand in nodes[number].operands]
    return found


def _neighbourhoods(nodes: list[Node], reached: set[int]) -> list[int]:
    """Return the hashes of what each operator is and of what it reads, near by.

    One neighbourhood goes back to the nearest heavy operators, and others over a few operators.
    One that comes upon an input is left out, since in a larger program something else is there;
    where all end at the input, the whole is one.
    """
    order = sorted(number for number in reached if nodes[number].op not in LEAVES)
    found: set[str] = set()

    back: dict[int, str] = {}
    for number in order:
        back[number] = _back_to_heavy(nodes, number, back)
    found |= set(back.values())
    shallow: dict[int, str] = dict.fromkeys(order, "*")
    for radius in range(1, max(RADII) + 1):
        shallow = {number: _one_more(nodes, number, shallow, radius) for number in order}
        if radius in RADII:
            found |= set(shallow.values())
    return sorted({int(text[:8], 16) for text in found - {""}})


def _back_to_heavy(nodes: list[Node], number: int, before: dict[int, str]) -> str:
    """Return the hash of an operator and of what leads to it from the nearest heavy ones."""
    node = nodes[number]
    below = []
    for operand in node.operands:
        op = nodes[operand.node].op
        if node.op in HEAVY and op != WEIGHT:
            below.append("*")
        elif op == INPUT or before.get(operand.node) == "":
            return ""
        else:
            below.append(before.get(operand.node, op))
    return _sha256(node.op, *_in_order(node, below))


def _one_more(nodes: list[Node], number: int, below: dict[int, str], radius: int) -> str:
    """Return the hash of a neighbourhood of one more operator along each path than ``below``."""
    read = []
    for operand in nodes[number].operands:
        op = nodes[operand.node].op
        if op == INPUT and radius > 1:
            return ""
        read.append("*" if op == INPUT else below.get(operand.node, op))
    return "" if "" in read else _sha256(nodes[number].op, *_in_order(nodes[number], read))


def _in_order(node: Node, read: list[str]) -> list[str]:
    """Return hashes of operands sorted, where their order means nothing."""
    return sorted(read) if node.op in _COMMUTATIVE else read


def _sha256(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


NOTHING = frozenset(Coarse(WiringGraph([Node(op)], [Operand(0)], 0)).sha256 for op in LEAVES)
"""Coarse hashes of programs that compute nothing: they give what they read, copied or viewed."""
