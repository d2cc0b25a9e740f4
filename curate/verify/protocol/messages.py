"""What the judge and its processes send each other, where it is more than one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import torch

from curate.problem.draw import Draw
from curate.problem.values import Tensors, list_tensors
from curate.verify.protocol.calls import message

message(Draw)

# --- the reference ----------------------------------------------------------------------------


class Results(TypedDict):
    """What a call of ``forward`` gives, and the inputs and the state that it changed, by name."""

    output: Any
    changed: dict[str, Any]
    state: dict[str, Any]


class Spread(Results):
    """How far results move; ``leans``: how far those in short types lean to one side, by path."""

    leans: dict[str, float]


@message
@dataclass(frozen=True)
class Loaded:
    """A file that has been run.

    Attributes:
        own_size: the file's value of the size that may vary, or None.
        smaller: of each size that was made smaller, both.
        precision: what the file lets its own products be.
    """

    own_size: int | None
    smaller: dict[str, list[int]]
    precision: dict[str, bool]


@message
@dataclass(frozen=True)
class Drawn:
    """One draw of a problem.

    Attributes:
        init: the constructor's arguments.
        inputs: those of ``forward``.
        names, state: parameters and buffers.
        own: results in the file's own precision.
        exact: results in float64.
    """

    init: list[Any]
    inputs: list[Any]
    names: list[str]
    state: list[torch.Tensor]
    own: Results
    exact: Results

    @property
    def tensors(self) -> Tensors:
        """All of its tensors."""
        return list_tensors([self.init, self.inputs, self.state, self.own, self.exact])


@message
@dataclass(frozen=True)
class Estimate:
    """Operators that compute, by name, and bytes that they move and hold at one time."""

    calls: dict[str, int]
    call_bytes: int
    most_bytes: int


@message
@dataclass(frozen=True)
class ProblemFacts:
    """What a problem is made of.

    Attributes:
        calls, call_bytes: operators that compute, and the bytes that they move.
        mode_dependent: whether training mode gives other results.
        insensitive_inputs: positions of inputs that the output does not depend on.
    """

    calls: dict[str, int]
    call_bytes: int
    mode_dependent: bool
    insensitive_inputs: list[int]


@message
@dataclass(frozen=True)
class Variants:
    """What else a caller may do: draws by what they change, and layouts of inputs."""

    draws: dict[str, list[Draw]]
    layouts: list[str]


@message
@dataclass(frozen=True)
class ReadyBaselines:
    """Baselines that can be timed, whether each is a graph, and why one cannot be compiled."""

    graphs: dict[str, bool]
    compile_problem: str | None
