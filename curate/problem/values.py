"""Tensors in lists, tuples and dicts, and what configurations hold: found, changed, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

Tensors = list[torch.Tensor]


def to_device(value: Any, device: str) -> Any:
    """Return a value with its tensors on a device, their strides kept."""
    return map_tensors(value, lambda tensor: tensor.to(device))


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a value with a function applied to every tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, function) for item in value)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def list_tensors(value: Any) -> Tensors:
    """Return the tensors in a value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple):
        return []
    return [tensor for part in parts for tensor in list_tensors(part)]


def count_elements(value: Any) -> int:
    """Return how many elements the tensors of a structure have together."""
    return sum(tensor.numel() for tensor in list_tensors(value))


def without_float8(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor, in float32 where it is float8: PyTorch only converts from and to that."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, NaN where the other has NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = without_float8(one), without_float8(other)
    if one is other or torch.equal(one, other):
        return True
    if one.is_floating_point() or one.is_complex():
        return bool(torch.equal(one.nan_to_num(nan=0.123), other.nan_to_num(nan=0.123)))
    return False


def same_tensors(one: Any, other: Any) -> bool:
    """Whether all tensors of two values are the `same`."""
    pairs = list_tensors(one), list_tensors(other)
    return len(pairs[0]) == len(pairs[1]) and all(map(same, *pairs))


# --- configurations -------------------------------------------------------------------------


def contents(values: dict[str, Any], into: tuple[type, ...], outer: str = "") -> Iterator[Any]:
    """Yield ``(name, value)`` of all that is held, what a configuration holds as ``config.eps``.

    Args:
        values: by their names.
        into: which configurations are looked into: `SimpleNamespace`, dict.
        outer: what the names begin with.
    """
    for name, value in values.items():
        parts = vars(value) if type(value) is SimpleNamespace else value
        if type(value) in into and parts and all(map(_is_word, parts)):
            yield from contents(parts, into, f"{outer}{name}.")
        else:
            yield f"{outer}{name}", value


def _is_word(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier()


def with_changed(values: Any, name: str, value: Any) -> Any:
    """Return a dict or namespace with another value at a name of `contents`, or at a place in a
    list or tuple that is held there; none is modified."""
    head, _, rest = name.partition(".")
    if isinstance(values, list | tuple):
        return type(values)(value if i == int(head) else one for i, one in enumerate(values))
    parts = dict(values if isinstance(values, dict) else vars(values))
    parts[head] = with_changed(parts[head], rest, value) if rest else value
    return parts if isinstance(values, dict) else SimpleNamespace(**parts)
