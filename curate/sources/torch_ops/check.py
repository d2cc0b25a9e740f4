"""Run a problem once on the CPU and say what is wrong with it, if anything.

The problems are written by this package, so they run in the process that asks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from curate.step import Drop

MAX_ELEMENTS = 2**20
"""Largest tensor of a problem: more makes the judge slow on a CPU."""

_NOISE = 1e-5


@contextmanager
def quiet() -> Iterator[None]:
    """Run torch on one thread, with no warnings, and leave its random numbers as they were.

    The problems are small: a second thread costs more than it gives, and far more where other
    workers share the cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(threads)


def check(text: str) -> Drop | None:
    """Return why a problem cannot be used, or None when it is good.

    A good problem builds, runs in eval mode, repeats itself bit by bit, gives finite values that
    are not all equal, and depends on each of its inputs and parameters.
    """
    space: dict[str, Any] = {}
    with quiet(), torch.no_grad():
        try:
            exec(compile(text, "<torch_ops>", "exec"), space)
            model = space["Model"](*space["get_init_inputs"]()).eval()
            inputs, others = space["get_inputs"](), space["get_inputs"]()
            outputs = _tensors(model(*inputs))
        except Exception as error:
            return Drop(
                "does_not_run", {"error": type(error).__name__, "message": str(error)[:500]}
            )
        return _judge_values(inputs, outputs, _tensors(model(*inputs))) or _judge_dependence(
            model, inputs, others, outputs
        )


def _judge_values(inputs: list[Any], outputs: Tensors, again: Tensors) -> Drop | None:
    largest = max(t.numel() for t in [*_tensors(inputs), *outputs])
    if largest > MAX_ELEMENTS:
        return Drop("too_large", {"elements": largest, "limit": MAX_ELEMENTS})
    for index, output in enumerate(outputs):
        if not torch.isfinite(output).all():
            return Drop("not_finite", {"output": index})
    if not all(torch.equal(a, b) for a, b in zip(outputs, again, strict=True)):
        return Drop("not_deterministic")
    for index, output in enumerate(outputs):
        values = output.double()
        if values.numel() > 1 and values.std() <= _NOISE * max(1.0, float(values.mean().abs())):
            return Drop("constant_output", {"output": index, "value": float(values.mean())})
    return None


def _judge_dependence(
    model: torch.nn.Module, inputs: list[Any], others: list[Any], outputs: Tensors
) -> Drop | None:
    for index, other in enumerate(others):
        changed = [*inputs[:index], other, *inputs[index + 1 :]]
        if _same(lambda changed=changed: model(*changed), outputs):  # type: ignore[misc]
            return Drop("ignores_input", {"input": index})
    for name, parameter in model.named_parameters():
        before = parameter.detach().clone()
        parameter.add_(torch.randn_like(parameter))
        if _same(lambda: model(*inputs), outputs):
            return Drop("ignores_parameter", {"parameter": name})
        parameter.copy_(before)
    return None


Tensors = list[torch.Tensor]


def _same(run: Callable[[], Any], outputs: Tensors) -> bool:
    return all(
        torch.allclose(a.double(), b.double(), rtol=_NOISE, atol=_NOISE * 0.1)
        for a, b in zip(_tensors(run()), outputs, strict=True)
    )


def _tensors(value: Any) -> Tensors:
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]
