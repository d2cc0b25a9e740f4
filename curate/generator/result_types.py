"""Which floating type each result has: that of the inputs it follows, as PyTorch promotes them.

A module is traced in float32 alone, and kernels compute in float32 whatever they read. What a
result's type follows from shows when the module runs on fake tensors of which one is float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.utils._pytree as pytree
from torch._subclasses import FakeTensorMode

from curate.generator.trace import Traced

PARAMETERS = "parameters"
"""The module's own tensors, whose types change together."""

_LIMITS = {torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny}
_LIMITS |= {torch.finfo(torch.float32).eps}


class Given(Protocol):
    """A tensor that a program is given."""

    name: str
    dtype: torch.dtype
    is_input: bool


@dataclass
class ResultTypes:
    """What is known of types.

    Attributes:
        any_float: whether floating inputs and parameters may be of any type up to float32.
        follows: for each flat result, the graph's inputs whose types decide its own.
    """

    any_float: bool
    follows: list[list[str]] = field(default_factory=list)

    def text(self, result: int, type_of: Callable[[str], str]) -> str:
        """Return the text for a result's type."""
        sources = self.follows[result] if result < len(self.follows) else []
        if not sources:
            return "torch.float32"
        text = type_of(sources[0])
        for source in sources[1:]:
            text = f"torch.promote_types({text}, {type_of(source)})"
        return text

    def checks(self, tensors: Sequence[Given]) -> list[str]:
        """Return assertions that tensors are of types that the kernels are right for."""
        floats = [t for t in tensors if t.dtype == torch.float32]
        lines = [
            f"assert {t.name}.dtype == {t.dtype}"
            for t in tensors
            if t.is_input and (t.dtype != torch.float32 or not self.any_float)
        ]
        if self.any_float and floats:
            types = ", ".join(f"{t.name}.dtype" for t in floats)
            several = len(floats) > 1
            lines.append(
                f"assert torch.float64 not in ({types})"
                if several
                else f"assert {types} != torch.float64"
            )
        return lines


def find(traced: Traced, names: list[str]) -> ResultTypes:
    """Return what types a module's results have.

    Args:
        traced: the module.
        names: the graph's names for its inputs.
    """
    tensors = [
        (origin, node.meta["val"], name)
        for origin, node, name in zip(
            traced.origins, traced.graph.graph.find_nodes(op="placeholder"), names, strict=True
        )
        if isinstance(node.meta.get("val"), torch.Tensor)
    ]
    floats = [(o, v, n) for o, v, n in tensors if v.dtype.is_floating_point]
    plain = all(value.dtype == torch.float32 for _, value, _ in floats)
    if not floats or not plain or _has_limits(traced.graph):
        return ResultTypes(False)
    sources: dict[Any, str] = {}
    for origin, _, name in floats:
        key = origin.leaf if origin.kind == "input" else PARAMETERS
        sources.setdefault(key, name)
    changed: dict[Any, list[torch.dtype | None] | None] = {}
    for key in sources:
        changed[key] = _result_types(traced, {key})
    together = _result_types(traced, set(sources))
    if together is None:
        return ResultTypes(False)
    follows = []
    for i, dtype in enumerate(together):
        own = [
            sources[key] for key, types in changed.items() if types and types[i] == torch.float64
        ]
        if not own and dtype == torch.float64:  # they have to be of one type
            own = [
                sources[
                    next(iter(key for key in changed if changed[key] is None), next(iter(sources)))
                ]
            ]
        follows.append(own)
    return ResultTypes(True, follows)


def _has_limits(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph holds numbers that only float32 has, such as its largest."""
    given = [(node.args, tuple(node.kwargs.values())) for node in graph.graph.nodes]
    return any(isinstance(x, float) and abs(x) in _LIMITS for x in pytree.tree_leaves(given))


def _result_types(traced: Traced, doubled: set[Any]) -> list[torch.dtype | None] | None:
    """Return the types of the flat results if some sources are float64; None if it is refused."""
    task = traced.task
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake, torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            model = task.Model(*task.get_init_inputs()).eval()
            if PARAMETERS in doubled:
                _double(model)
            flat, spec = pytree.tree_flatten(tuple(task.get_inputs()))
            for i, leaf in enumerate(flat):
                if i in doubled:
                    flat[i] = leaf.to(torch.float64)
            results = pytree.tree_leaves(model(*pytree.tree_unflatten(flat, spec)))
        except Exception:  # the module's own code: it may refuse
            return None
    return [r.dtype if isinstance(r, torch.Tensor) else None for r in results]


def _double(model: torch.nn.Module) -> None:
    """Convert floating parameters and buffers; ``Module.to`` cannot where they are fake."""
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None and tensor.is_floating_point():
                    new: Any = tensor.detach().to(torch.float64)
                    held[name] = torch.nn.Parameter(new) if held is module._parameters else new
