"""Which operators of PyTorch a ``forward`` calls, and which of them compute something."""

from __future__ import annotations

import collections
import math
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from curate.problem.values import list_tensors

DOUBLE = 8  # bytes of a float64

COPIES = ("clone", "copy", "copy_", "_to_copy", "contiguous")
"""Operators that copy or convert."""

MOVES = {
    *COPIES,
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"),
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like"),
    *("new_full", "fill", "fill_", "zero", "zero_", "scalar_tensor", "arange", "resize_", "set_"),
    *("detach", "lift", "lift_fresh"),
    *("_local_scalar_dense", "is_pinned", "_pin_memory", "record_stream", "_reshape_alias"),
    "_unsafe_view",
}
"""Operators that allocate, fill, copy or convert. These and views compute nothing."""


def is_compute(operator: Any) -> bool:
    """Whether an ATen operator computes something: it is no view and none of `MOVES`."""
    schema = operator._schema
    library, _, name = schema.name.partition("::")
    is_view = any(a.alias_info and not a.alias_info.is_write for a in schema.arguments)
    if library in ("profiler", "prim"):
        return False
    return library != "aten" or (name not in MOVES and not is_view)


def computes(operator: Any, taken: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    """Whether a call of an ATen operator computes something, be it in a conversion.

    Args:
        operator: the operator.
        taken: tensors among its arguments.
        made: what it gave.
    """
    return is_compute(operator) or _narrows(operator, taken, made)


def _narrows(operator: Any, taken: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    """Whether a copy is a conversion that computes.

    Integers made of floating numbers are those cut off, and short ones made of long ones are
    remainders; truth values say which are not zero.
    """
    name = operator._schema.name.removeprefix("aten::")
    if name not in ("_to_copy", "copy_", "copy") or not taken or not made:
        return False
    before, after = taken[-1].dtype, made[0].dtype
    if after.is_floating_point or after.is_complex or before == torch.bool:
        return False
    return bool(before.is_floating_point or after.itemsize < min(4, before.itemsize))


class Mode(TorchDispatchMode):  # type: ignore[misc]
    """A dispatch mode that `torch.compile` may trace, and so need not be loaded for."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, *args, **(kwargs or {}))

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return what an operator gives while the mode is entered."""
        raise NotImplementedError


class TooMuchWork(Exception):
    """A forward does more than anybody waits for, as recurrences of long inputs do."""


class OperatorCalls(Mode):
    """Counts calls of operators that compute while it is entered.

    Args:
        most: calls after which `TooMuchWork` is raised.
        most_bytes: bytes read and written after which it is, too.

    Attributes:
        calls: name of an ATen operator to the number of its calls.
        unstable: those that were not told to keep the order of what is equal.
        call_bytes: bytes that those operators read and wrote.
        most_bytes: bytes of all operators' results that there were at one time, were they float64.
    """

    def __init__(self, most: float = math.inf, most_bytes: float = math.inf) -> None:
        super().__init__()
        self.most, self.limit = most, most_bytes
        self.calls: collections.Counter[str] = collections.Counter()
        self.unstable: set[str] = set()
        self.call_bytes = self.most_bytes = self._held = 0
        self._sizes: dict[int, int] = {}
        self._users: collections.Counter[int] = collections.Counter()

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Count a call."""
        result = func(*args, **kwargs)
        made = list_tensors(result)
        if computes(func, list_tensors(args), made):
            name = func._schema.name.removeprefix("aten::")
            self.calls[name] += 1
            if not kwargs.get("stable"):
                self.unstable.add(name)
            for tensor in [*list_tensors(args), *list_tensors(kwargs), *made]:
                self.call_bytes += tensor.numel() * tensor.element_size()
            if self.calls.total() > self.most or self.call_bytes > self.limit:
                raise TooMuchWork
        for tensor in made:
            if tensor.layout == torch.strided:
                self._hold(tensor)
        return result

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._users[key] += 1
        size = storage.nbytes() // tensor.element_size() * DOUBLE
        self._held += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.most_bytes = max(self.most_bytes, self._held)
        weakref.finalize(tensor, self._drop, key).atexit = False

    def _drop(self, key: int) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._held -= self._sizes.pop(key)
