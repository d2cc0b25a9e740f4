"""Operators that have no loops of Inductor's: each with a schedule of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from curate.generator import torch_private as private
from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.schedules import (
    attention,
    attention_loops,
    choose,
    convolutions,
    producers,
    products,
    recurrences,
)
from curate.generator.torch_private import CallOperand
from curate.generator.unprintable import Unprintable
from curate.problem.problem import attribute_path


@dataclass
class FusedProduct:
    """A product with factors that are made, or read as what was copied, where it reads them.

    Attributes:
        group: the library's call.
        producers: what makes the factors, by buffer.
    """

    group: Any
    producers: dict[str, Any]

    def get_nodes(self) -> list[Any]:
        """Return all nodes that its kernel stands for, as a group of the scheduler does."""
        return [*self.producers.values(), *self.group.get_nodes()]


Joined = attention_loops.Found | FusedProduct
"""Groups that are one kernel, which Inductor leaves apart."""


def fuse(program: Program, groups: list[Any]) -> list[Any]:
    """Return groups in which products take in what makes their factors, where that is little."""
    left = list(groups)
    for group in groups:
        call = _product(group)
        if call is None:
            continue
        a, b = products.factors(call)
        for factors in ([a, b], [b], [a]):
            before, made = _makers(program, left, group, factors)
            if not made:
                continue
            try:
                found = _fused(program, group, made)
            except Unprintable:
                continue
            left = [found if one is group else one for one in left if one not in before]
            break
    return _without_copies(program, left)


def _makers(
    program: Program, groups: list[Any], group: Any, factors: Iterable[CallOperand]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the groups that make some factors for a product alone, and their nodes by buffer."""
    names = {node.get_name() for node in group.get_nodes()}
    wanted = [program.real(operand.buffer) for operand in factors]
    before = producers.find(program, groups, names, wanted)
    made = program.writes(node for one in before for node in one.get_nodes())
    is_changed = program.reads(made.values()) & set(map(program.real, program.changed))
    return before, {} if is_changed else made


def _without_copies(program: Program, groups: list[Any]) -> list[Any]:
    """Return groups in which products read, in a copy's order, what was copied only for them."""
    left = list(groups)
    for group in groups:
        copied = producers.copied(program, group)
        readers = [one for one in left if copied.keys() & program.reads(one.get_nodes())]
        names = {node.get_name() for one in readers for node in one.get_nodes()}
        if not copied or not producers.is_only_for(program, copied.values(), names):
            continue
        try:
            found = {id(one): _fused(program, one, copied) for one in readers}
        except Unprintable:
            continue
        left = [found.get(id(one), one) for one in left if one is not group]
    return left


def _fused(program: Program, group: Any, made: dict[str, Any]) -> FusedProduct:
    """Return a product that takes in what makes its factors.

    Raises:
        Unprintable: it is no product, or cannot.
    """
    if isinstance(group, FusedProduct):
        made, group = group.producers | made, group.group
    call = _product(group)
    if call is None:
        raise Unprintable("what is read by other than products")
    products.Matrices(program, call, group.get_nodes(), (), made)
    return FusedProduct(group, made)


def _product(group: Any) -> private.LibraryCall | None:
    """Return a group's product of matrices, or None."""
    is_call = isinstance(group, private.ExternKernelSchedulerNode)
    call = private.library_call(group) if is_call else None
    return call if call and call.operator in products.KINDS else None


def take(program: Program, group: Any, groups: list[Any]) -> Loops:
    """Return the loops of a library call, with those of ``groups`` that fit into it.

    Raises:
        Unprintable: there is no schedule for the call.
    """
    if isinstance(group, attention_loops.Found):
        found = products.with_followers(
            program, groups, lambda taken: attention_loops.Attention(program, group, taken)
        )
        found.merge()
        return found
    made = {}
    if isinstance(group, FusedProduct):
        made, group = group.producers, group.group
    call = private.library_call(group)
    several: dict[str, Any] = {"recurrence": recurrences.Recurrence, "part": PartCall}
    if call and call.operator in several:
        results = [g for g in groups if private.is_result(g, group)]
        groups[:] = [g for g in groups if g not in results]
        called: Loops = several[call.operator](program, call, [group, *results])
        return called
    if call is None or call.operator not in (*products.KINDS, "convolution"):
        name = getattr(group.node, "python_kernel_name", None) or type(group.node).__name__
        raise Unprintable(f"a library call: {name}")
    types = products.KINDS.get(call.operator, products.FLOATS)
    if any(o.dtype not in types for o in products.factors(call) if isinstance(o, CallOperand)):
        raise Unprintable(f"a product of {call.result.dtype}")
    kind: Any = products.Matrices
    if call.operator == "convolution":
        is_pointwise = convolutions.is_pointwise(call)
        kind = convolutions.Pointwise if is_pointwise else convolutions.Convolution
    nodes = group.get_nodes()
    if groups and isinstance(getattr(groups[0], "node", None), private.ir.MultiOutput):
        nodes += groups.pop(0).get_nodes()
    if issubclass(kind, products.Matrices) and kind(program, call, nodes, ()).is_small(program):
        kind = convolutions.PointwiseSums if kind is convolutions.Pointwise else products.Sums
    loops = products.with_followers(
        program, groups, lambda taken: kind(program, call, nodes, taken, made)
    )
    loops.merge()
    return loops


def schedule(loops: Loops, program: Program) -> None:
    """Print a kernel, or several that do its work together.

    Raises:
        Unprintable: no schedule does what its loops do.
    """
    known = schedules(loops, program)
    program.variants = max(program.variants, len(known))
    if known:
        known[min(program.variant, len(known) - 1)](loops, program)


def schedules(loops: Loops, program: Program) -> list[Any]:
    """Return the schedules that a person might choose for some loops, the best first."""
    if isinstance(loops, recurrences.Recurrence):
        return [recurrences.steps]
    if isinstance(loops, PartCall):
        return [call_part]
    if isinstance(loops, attention_loops.Attention):
        return [attention.tiled, partial(attention.tiled, tuned=False)]
    if isinstance(loops, products.Matrices) and not isinstance(loops, products.Sums):
        return [products.matrices, partial(products.tiles, tuned=False)]
    if not isinstance(loops, convolutions.Convolution):
        return list(choose.schedules(loops, program))
    if loops.is_few(program):
        return [convolutions.summed]
    return [convolutions.tiled, partial(convolutions.tiled, tuned=False)]


class PartCall(Loops):
    """A call of a part.

    Attributes:
        part: the part, and ``path`` the module's.
        inputs: operands that it takes.
        results: what it makes.
    """

    def __init__(self, program: Program, call: private.LibraryCall, nodes: list[Any]) -> None:
        self._begin(program, nodes)
        self.inputs, _, number = call.args
        self.path, self.part = program.traced.parts.calls[number]
        self.results = [call.result, *call.others]


def call_part(loops: PartCall, program: Program) -> None:
    """Print the call."""
    given = [program.operand(operand) for operand in loops.inputs]
    made = [program.made(result.buffer, loops.part.name) for result in loops.results]
    own = [attribute_path(loops.path)] if loops.path else []
    program.say(f"{', '.join(made)} = {loops.part.name}({', '.join([*own, *given])})")
