"""Calls of the functions that stand for modules which a network repeats."""

from __future__ import annotations

from typing import Any

from curate.generator.loops import Loops
from curate.generator.program import Program
from curate.generator.sizes import attribute_path
from curate.generator.torch_private import LibraryCall


class PartCall(Loops):
    """A call of a part.

    Attributes:
        part: the part, and ``path`` the module's.
        inputs: operands that it takes.
        results: what it makes.
    """

    def __init__(self, program: Program, call: LibraryCall, nodes: list[Any]) -> None:
        self._begin(program, nodes)
        self.inputs, _, number = call.args
        self.path, self.part = program.traced.parts.calls[number]
        self.results = [call.result, *call.others]


def call(loops: PartCall, program: Program) -> None:
    """Print the call."""
    given = [program.operand(operand) for operand in loops.inputs]
    made = [program.made(result.buffer, loops.part.name) for result in loops.results]
    arguments = ", ".join([attribute_path(loops.path), *given])
    program.say(f"{', '.join(made)} = {loops.part.name}({arguments})")
