"""Operators that have no loops of Inductor's: each with a schedule of its own."""

from __future__ import annotations

from typing import Any

from curate.generator import torch_private as private
from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.schedules import attention, attention_loops, choose, convolutions, products
from curate.generator.schedules.products import Product
from curate.generator.torch_private import CallOperand
from curate.generator.unprintable import Unprintable


def take(program: Program, group: Any, groups: list[Any]) -> Product:
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
    call = private.library_call(group)
    kinds: dict[str, Any] = dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), products.Matrices)
    kinds["convolution"] = convolutions.Convolution
    if call is None or call.operator not in kinds:
        name = getattr(group.node, "python_kernel_name", None) or type(group.node).__name__
        raise Unprintable(f"a library call: {name}")
    if any(o.dtype not in products.FLOATS for o in call.args if isinstance(o, CallOperand)):
        raise Unprintable(f"a product of {call.result.dtype}")
    kind = kinds[call.operator]
    if call.operator == "convolution" and convolutions.is_pointwise(call):
        kind = convolutions.Pointwise
    nodes = group.get_nodes()
    if groups and isinstance(getattr(groups[0], "node", None), private.ir.MultiOutput):
        nodes += groups.pop(0).get_nodes()
    if issubclass(kind, products.Matrices) and kind(program, call, nodes, ()).is_small(program):
        kind = convolutions.PointwiseSums if kind is convolutions.Pointwise else products.Sums
    loops = products.with_followers(
        program, groups, lambda taken: kind(program, call, nodes, taken)
    )
    loops.merge()
    return loops


def schedule(loops: Loops, program: Program) -> None:
    """Print a kernel, or several that do its work together.

    Raises:
        Unprintable: no schedule does what its loops do.
    """
    if isinstance(loops, attention_loops.Attention):
        attention.tiled(loops, program)
    elif isinstance(loops, products.Matrices) and not isinstance(loops, products.Sums):
        products.matrices(loops, program)
    elif not isinstance(loops, convolutions.Convolution):
        choose.schedule(loops, program)
    elif loops.is_few(program):
        convolutions.summed(loops, program)
    else:
        convolutions.tiled(loops, program)
