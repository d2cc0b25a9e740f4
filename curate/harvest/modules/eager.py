"""Run a task for real, and say why it cannot be used. For the sandbox only."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import re
import sys
import types
from typing import Any

import torch


class Lost(Exception):
    """No task can be made of a module."""

    def __init__(self, reason: str, **evidence: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.evidence = evidence


def load(text: str) -> dict[str, Any]:
    """Run a standalone file and return its names. For the sandbox only.

    Raises:
        Lost: the file cannot be imported.
    """
    module = types.ModuleType("task")
    sys.modules["task"] = module
    linecache.cache["<task>"] = (len(text), None, text.splitlines(True), "<task>")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, "<task>", "exec"), module.__dict__)
    except Exception as error:
        raise Lost("import_error", error=shown(error)) from error
    return module.__dict__


def check(text: str, entry_point: str) -> None:
    """Run a task for real, in float32 on the CPU, in eval mode.

    Raises:
        Lost: it fails, gives no tensors, or gives values that no kernel could be judged by.
    """
    names = load(text)
    state = _global_state()
    torch.manual_seed(0)
    random.seed(0)
    try:
        with torch.no_grad():
            model = names[entry_point](*names["get_init_inputs"]())
            model.eval()
            inputs, others = names["get_inputs"](), names["get_inputs"]()
            kept = [_copy(i) for i in inputs]
            weights = {k: v.clone() for k, v in model.state_dict().items()}
            first = _tensors(model(*inputs))
            changed = not _equal(kept, inputs) or not _same_state(weights, model)
            second = _tensors(model(*(_copy(i) for i in kept)))
            other = _tensors(model(*others))
    except Exception as error:
        if isinstance(error, Lost):
            raise
        raise Lost("eager_error", error=shown(error)) from error
    if changed or _global_state() != state:
        raise Lost("side_effects", what="inputs or state" if changed else "global settings")
    if not _equal(first, second):
        raise Lost("nondeterministic")
    if not all(torch.isfinite(t).all() for t in first if t.is_floating_point() or t.is_complex()):
        raise Lost("not_finite")
    if _equal(first, other):
        raise Lost("constant_output")


def _tensors(outputs: Any) -> list[torch.Tensor]:
    items = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    if not items or not all(isinstance(t, torch.Tensor) and t.numel() for t in items):
        raise Lost("no_tensor_output", types=sorted({type(t).__name__ for t in items}))
    return [t.detach().clone() for t in items]


def _equal(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
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
