"""Run a PyTorch problem for real, and say why it cannot be used.

A problem is a file in KernelBench's form. Other people's code belongs in the sandbox.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import Iterator
from typing import Any

import torch

from curate.problem import problem
from curate.problem.half import HalfInFloat32

NOISE = 1e-5
"""Relative difference below which two outputs count as equal, and one output as constant."""


class Unusable(Exception):
    """A problem cannot be used, or none can be made of a module."""

    def __init__(self, reason: str, **evidence: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.evidence = evidence


def load(text: str) -> dict[str, Any]:
    """Run a standalone file and return its names; what it prints is thrown away.

    Raises:
        Unusable: the file cannot be imported.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return problem.load("task", text).__dict__
    except problem.ProgramError as error:
        cause = error.__cause__ or error
        raise Unusable("import_error", error=shown(cause)) from cause


def check(
    text: str, entry_point: str = "Model", thorough: bool = False, limit: int | None = None
) -> None:
    """Run a problem on the CPU, in eval mode and without gradients.

    Args:
        text: the file.
        entry_point: name of its module.
        thorough: ask that each output varies and that each input and parameter matters, rather
            than only that other inputs change some output.
        limit: most elements of an input or output; None for no limit.

    Raises:
        Unusable: it fails, leaves parameters as they were in memory, gives no tensors, gives its
            inputs back, or gives values that no kernel could be judged by.
    """
    names = load(text)
    state = _global_state()
    torch.manual_seed(0)
    random.seed(0)
    try:
        with torch.no_grad(), HalfInFloat32():
            with _poisoned():
                model = names[entry_point](*names["get_init_inputs"]())
            model.eval()
            _check_initialised(model)
            inputs, others = names["get_inputs"](), names["get_inputs"]()
            kept = [_copy(i) for i in inputs]
            weights = {k: v.clone() for k, v in model.state_dict().items()}
            first = _tensors(model(*inputs))
            _check_sizes([*inputs, *first], limit)
            changed = not _equal(kept, inputs) or not _same_state(weights, model)
            second = _tensors(model(*(_copy(i) for i in kept)))
            other = _tensors(model(*others))
    except Unusable:
        raise
    except Exception as error:
        raise Unusable("eager_error", error=shown(error)) from error
    if changed or _global_state() != state:
        raise Unusable("side_effects", what="inputs or state" if changed else "global settings")
    if not _equal(first, second):
        raise Unusable("nondeterministic")
    if _gives_back(model, inputs, first):
        raise Unusable("no_compute")
    if thorough:
        _check_values(first)
        with torch.no_grad(), HalfInFloat32():
            _check_dependence(model, inputs, others, first)
    elif not all(torch.isfinite(t).all() for t in first):
        raise Unusable("not_finite")
    elif _equal(first, other):
        raise Unusable("constant_output")


@contextlib.contextmanager
def _poisoned() -> Iterator[None]:
    """Have memory that is allocated and not initialised filled with NaN inside the context."""
    before = torch.are_deterministic_algorithms_enabled()
    problem.poison_memory()
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before, warn_only=False)


def _check_initialised(model: torch.nn.Module) -> None:
    """Raise if NaN is left in a model's state, on memory that was full of it."""
    state = {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}
    floats = {k: v for k, v in state.items() if v.is_floating_point() or v.is_complex()}
    left = [name for name, value in floats.items() if torch.isnan(value).any()]
    if left:
        raise Unusable("uninitialised", parameters=left)


def _gives_back(model: Any, inputs: list[Any], outputs: list[torch.Tensor]) -> bool:
    """Whether each output is an input as it was given, on any numbers.

    A ReLU gives back what is positive, `nan_to_num` what is finite, and a scale that was not
    trained all. So where the problem's own inputs come back, others follow, of either sign, and NaN
    and infinities, for other parameters and buffers.
    """
    if not _same_tensors(outputs, inputs):
        return False
    drawn = [_other_numbers(given) for given in inputs]
    held = [t for t in model.state_dict().values() if t.is_floating_point() or t.is_complex()]
    before = [tensor.clone() for tensor in held]
    with torch.no_grad():
        try:
            for tensor in held:
                tensor.add_(torch.rand_like(tensor))
            return all(
                _same_tensors(_tensors(model(*map(_copy, others))), list(others))
                for others in zip(*drawn, strict=True)
            )
        except Exception:  # it looks at its inputs, so it does not only pass them on
            return False
        finally:
            for tensor, value in zip(held, before, strict=True):
                tensor.copy_(value)


def _other_numbers(given: Any) -> list[Any]:
    """Return an input with other numbers, with those of the other sign, and with special ones."""
    if not isinstance(given, torch.Tensor):
        return [given] * 3
    size, kind = given.shape, given.dtype
    if kind == torch.bool:
        return [torch.rand(size) < 0.5, torch.rand(size) < 0.5, given]
    if not (given.is_floating_point() or given.is_complex()):
        whole = torch.randint(1, 9, size).to(kind)
        return [whole, -whole, given]
    numbers = 4 * torch.randn(size, dtype=kind)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=kind)
    return [numbers, -numbers, special[torch.arange(given.numel()) % 3].reshape(size)]


def _same_tensors(outputs: list[torch.Tensor], inputs: list[Any]) -> bool:
    """Whether each output has type, shape and values of an input."""
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    return all(
        any(
            output.dtype == value.dtype
            and output.shape == value.shape
            and torch.allclose(output, value, rtol=0, atol=0, equal_nan=True)
            for value in given
        )
        for output in outputs
    )


def _check_sizes(values: list[Any], limit: int | None) -> None:
    largest = max(v.numel() for v in values if isinstance(v, torch.Tensor))
    if limit is not None and largest > limit:
        raise Unusable("too_large", elements=largest, limit=limit)


def _check_values(outputs: list[torch.Tensor]) -> None:
    for index, output in enumerate(outputs):
        if not torch.isfinite(output).all():
            raise Unusable("not_finite", output=index)
    for index, output in enumerate(outputs):
        values = output.double()
        if values.numel() > 1 and values.std() <= NOISE * max(1.0, float(values.mean().abs())):
            raise Unusable("constant_output", output=index, value=float(values.mean()))


def _check_dependence(
    model: torch.nn.Module, inputs: list[Any], others: list[Any], outputs: list[torch.Tensor]
) -> None:
    for index, other in enumerate(others):
        changed = [*inputs[:index], other, *inputs[index + 1 :]]
        if _close(_tensors(model(*changed)), outputs):
            raise Unusable("ignores_input", input=index)
    for name, parameter in model.named_parameters():
        before = parameter.detach().clone()
        parameter.add_(torch.randn_like(parameter))
        if _close(_tensors(model(*inputs)), outputs):
            raise Unusable("ignores_parameter", parameter=name)
        parameter.copy_(before)


def _close(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(
        torch.allclose(a.double(), b.double(), rtol=NOISE, atol=NOISE * 0.1)
        for a, b in zip(left, right, strict=True)
    )


def _tensors(outputs: Any) -> list[torch.Tensor]:
    items = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    if not items or not all(isinstance(t, torch.Tensor) and t.numel() for t in items):
        raise Unusable("no_tensor_output", types=sorted({type(t).__name__ for t in items}))
    return [t.detach().clone() for t in items]


def _without_nan(tensor: torch.Tensor) -> torch.Tensor:
    is_float8 = tensor.is_floating_point() and tensor.dtype.itemsize == 1
    return torch.nan_to_num(tensor.float() if is_float8 else tensor)


def _equal(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.equal(_without_nan(a), _without_nan(b))
        if isinstance(a, torch.Tensor)
        else a == b
        for a, b in zip(left, right, strict=True)
    )


def _copy(given: Any) -> Any:
    return given.clone() if isinstance(given, torch.Tensor) else given


def _same_state(weights: dict[str, torch.Tensor], model: Any) -> bool:
    after = model.state_dict()
    return weights.keys() == after.keys() and _equal(
        list(weights.values()), [after[name] for name in weights]
    )


def _global_state() -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )


def shown(error: BaseException) -> str:
    """Return the first line of an error, with its class and without memory addresses."""
    line = f"{type(error).__name__}: {error}".split("\n")[0]
    return re.sub(r"0x[0-9a-f]+", "0x0", line)[:300]
