"""Products of float16 on a CPU, at the speed of float32."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from curate.problem.operator_calls import Mode

_PRODUCTS = frozenset(
    ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "convolution", "convolution_backward")
)


class HalfInFloat32(Mode):
    """Multiplies float16 on a CPU in float32, and rounds each result once, as a GPU does.

    PyTorch's own loops for float16 do the same sums, a hundred times slower where the CPU has no
    such instructions.
    """

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return an operator's result."""
        name = func._schema.name.removeprefix("aten::")
        tensors = [given for given in args if isinstance(given, torch.Tensor)]
        if name not in _PRODUCTS or not all(map(_is_half, tensors)):
            return func(*args, **kwargs)
        wide = (given.float() if isinstance(given, torch.Tensor) else given for given in args)
        return tree_map(_narrow, func(*wide, **kwargs))


def _is_half(tensor: torch.Tensor) -> bool:
    return bool(tensor.dtype == torch.float16 and tensor.device.type == "cpu")


def _narrow(value: Any) -> Any:
    return value.half() if isinstance(value, torch.Tensor) else value
