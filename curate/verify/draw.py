"""Inputs, parameters and sizes to try a program on.

A program that is right on one draw may still skip a bias that starts as zero, swap two inputs of
one shape, or know its sizes by heart. Every trial draws anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from curate.verify.problem import Problem

SIZES = (1, 3, 5)
"""What the varying size is set to: one, which compilers treat apart, and odd numbers."""


@dataclass(frozen=True)
class Draw:
    """One way to draw a problem's inputs.

    Attributes:
        seed: of the parameters and the inputs.
        signed: whether floating inputs are redrawn from a normal distribution around zero, so
            that inputs from [0, 1) do not make ReLU an identity.
        size: None for the file's own sizes; otherwise the number that the sizes of the inputs
            which the model does not depend on are set to.
    """

    seed: int
    signed: bool = False
    size: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return the draw as JSON values."""
        return {"seed": self.seed, "signed": self.signed, "size": self.size}


def plan(problem: Problem, trials: int, vary_sizes: bool) -> list[Draw]:
    """Return the draws of a check: the file's own first, and every second one signed.

    Where sizes may vary all but the first are small and odd, which also keeps them cheap.
    """
    sizes = SIZES if vary_sizes and free_sizes(problem) else (None,)
    return [
        Draw(seed, signed=seed % 2 == 1, size=sizes[seed % len(sizes)] if seed else None)
        for seed in range(trials)
    ]


def free_sizes(problem: Problem) -> list[str]:
    """Return the names of sizes that only the inputs depend on, such as ``batch_size``.

    They are the module's integers that ``get_inputs`` reads and nothing else does.
    """
    module = problem.reference
    elsewhere = set(module.get_init_inputs.__code__.co_names)
    elsewhere |= {name for f in vars(module.Model).values() for name in _names(f)}
    read = [name for name in module.get_inputs.__code__.co_names if name not in elsewhere]
    return [name for name in read if type(getattr(module, name, None)) is int]


def _names(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return code.co_names if code else ()


@contextmanager
def resized(problem: Problem, size: int | None) -> Iterator[None]:
    """Give the first of the problem's free sizes another value inside the context."""
    names = free_sizes(problem)[:1] if size is not None else []
    saved = {name: getattr(problem.reference, name) for name in names}
    try:
        for name in names:
            setattr(problem.reference, name, size)
        yield
    finally:
        for name, value in saved.items():
            setattr(problem.reference, name, value)


def draw_inputs(problem: Problem, draw: Draw) -> list[Any]:
    """Return the arguments of ``forward`` for one draw."""
    torch.manual_seed(draw.seed)
    with resized(problem, draw.size):
        inputs = problem.inputs()
    if draw.signed:
        return [_signed(value) if isinstance(value, torch.Tensor) else value for value in inputs]
    return inputs


def _signed(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return tensor
    spread = tensor.double().std()
    if not spread.isfinite() or spread == 0:
        return tensor
    drawn = torch.randn(tensor.shape, dtype=torch.float64) * spread
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(drawn)


def redraw_parameters(model: nn.Module, seed: int) -> None:
    """Move every parameter, and every constant floating buffer, away from its default.

    A parameter moves by up to half its spread, or half its value where it is constant (half of
    one for zero); one that was never initialised is drawn from [-0.5, 0.5). So signs of scales
    and variances stay, and no stage is an identity.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        shift = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 0.5
        is_parameter = _is_parameter(model, name)
        if tensor.isnan().any():
            if is_parameter:
                tensor.copy_(shift)
            continue
        low, high = float(tensor.min()), float(tensor.max())
        if low == high:
            scale = abs(low) if low else 1.0
        elif is_parameter:
            scale = float(tensor.double().std())
        else:
            continue
        if scale < float("inf"):
            tensor.add_((scale * shift).to(tensor.dtype))


def _is_parameter(model: nn.Module, name: str) -> bool:
    try:
        model.get_parameter(name)
    except AttributeError:
        return False
    return True
