"""Which floating type each result has: that of the inputs it follows, as PyTorch promotes them.

A module is traced in float32 alone, and kernels compute in float32 whatever they read. What a
result's type follows from shows when the module runs on fake tensors of which one is float64.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from curate.generator import torch_private as private
from curate.generator.operators.recurrences import recurrences
from curate.generator.trace import Traced

if TYPE_CHECKING:
    from curate.generator.program import Tensor

PARAMETERS = "parameters"
"""The module's own tensors, whose types change together."""

_LIMITS = {torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny}
_LIMITS |= {torch.finfo(torch.float32).eps}


Types = list[torch.dtype | None]


@dataclass
class ResultTypes:
    """What is known of types.

    Attributes:
        any_float: whether floating inputs and parameters may be of any type up to float32.
        follows: for each flat result, the graph's inputs whose types decide its own.
        of_one: whether floating inputs and parameters have to be of one type.
    """

    any_float: bool
    follows: list[list[str]] = field(default_factory=list)
    of_one: bool = False

    def text(self, result: int, type_of: Callable[[str], str]) -> str:
        """Return the text for a result's type."""
        sources = self.follows[result] if result < len(self.follows) else []
        if not sources:
            return "torch.float32"
        types = list(dict.fromkeys(map(type_of, sources)))
        if len(types) > 2:
            return f"functools.reduce(torch.promote_types, ({', '.join(types)}))"
        return f"torch.promote_types({', '.join(types)})" if types[1:] else types[0]

    def checks(self, tensors: Sequence[Tensor]) -> list[str]:
        """Return assertions that tensors are of types that the kernels are right for."""
        floats = [t for t in tensors if t.dtype == torch.float32]
        exact = [t for t in tensors if t.is_input and t.dtype != torch.float32]
        exact += [] if self.any_float else floats
        lines = [
            f"assert {t.name}.dtype == {t.dtype}, '{t.name} must be {str(t.dtype)[6:]}'"
            for t in exact
        ]
        if self.any_float and floats:
            types = ", ".join(f"{t.name}.dtype" for t in floats)
            condition = f"torch.float64 not in ({types})"
            if len(floats) == 1:
                condition = f"{types} != torch.float64"
            lines.append(f"assert {condition}, 'float64 is not supported'")
        if self.of_one and floats[1:]:
            types = " == ".join(f"{t.name}.dtype" for t in floats)
            lines.append(f"assert {types}, 'types must be the same'")
        return lines


def find(traced: Traced, names: list[str]) -> ResultTypes:
    """Return what types a module's results have; a graph has these names for its inputs."""
    tensors = [
        (origin, node.meta["val"], name)
        for origin, node, name in zip(
            traced.origins, traced.graph.graph.find_nodes(op="placeholder"), names, strict=True
        )
        if isinstance(node.meta.get("val"), torch.Tensor)
    ]
    floats = [(o, v, n) for o, v, n in tensors if v.dtype.is_floating_point]
    plain = all(value.dtype == torch.float32 for _, value, _ in floats)
    if not floats or not plain or traced.assigned or _has_limits(traced.graph):
        return ResultTypes(False)
    sources: dict[Any, str] = {}
    for origin, _, name in floats:
        key = origin.leaf if origin.kind == "input" else PARAMETERS
        sources.setdefault(key, name)

    @functools.cache
    def run(given: frozenset[tuple[Any, torch.dtype]], real: bool = False) -> Types | None:
        return _result_types(traced, dict(given), real)

    def if_all(keys: Iterable[Any], dtype: torch.dtype) -> frozenset[tuple[Any, torch.dtype]]:
        return frozenset((key, dtype) for key in keys)

    alone = {key: run(if_all([key], torch.float64)) for key in sources}
    groups = [[key] for key, types in alone.items() if types is not None]
    refused = [key for key, types in alone.items() if types is None]
    groups += [refused] if refused else []  # they have to be of one type
    doubled = [run(if_all(group, torch.float64)) for group in groups]
    usual, together = (run(if_all(sources, dtype)) for dtype in (torch.float32, torch.float64))
    if usual is None or together is None:
        return ResultTypes(False)
    deciding = []
    for i, dtype in enumerate(together):
        own = [g[0] for g, t in zip(groups, doubled, strict=True) if t and t[i] == torch.float64]
        follows = usual[i] == torch.float32 and dtype == torch.float64
        deciding.append((own or groups[-1][:1]) if follows else [])
    whole = [if_all(sources, dtype) for dtype in (torch.bfloat16, torch.float16)]
    for i, dtype in enumerate(run(whole[0]) or ()):
        if usual[i] == dtype == torch.float32:  # a part of it always is: x.float() * y
            deciding[i].clear()
    if not all(_hold(case, run(case), usual, deciding) for case in whole):
        return ResultTypes(False)
    mixed = [if_all(group, torch.bfloat16) for group in groups] if groups[1:] else []
    real = _is_small(traced)
    together_only = not all(_hold(case, run(case, real), usual, deciding) for case in mixed)
    count = 1 if together_only else None
    follows = [[sources[key] for key in own[:count]] for own in deciding]
    return ResultTypes(True, follows, together_only)


def _hold(
    given: frozenset[tuple[Any, torch.dtype]],
    found: Types | None,
    usual: Types,
    deciding: list[list[Any]],
) -> bool:
    """Whether results have the types that their sources give."""
    case = dict(given)
    for i, dtype in enumerate(found or ()):
        types = [case.get(key, torch.float32) for key in deciding[i]] or [torch.float32]
        if usual[i] == torch.float32 and dtype != functools.reduce(torch.promote_types, types):
            return False
    return True


MOST_ELEMENTS = 2**19
"""Elements of inputs and parameters up to which a module runs in earnest: what PyTorch says of the
types of fake tensors is not always what it does (``huber_loss`` of mixed types)."""


def _is_small(traced: Traced) -> bool:
    values = [node.meta["val"] for node in traced.graph.graph.find_nodes(op="placeholder")]
    sizes = [
        math.prod(private.hint(traced.expression(n)) for n in v.shape)
        for v in values
        if isinstance(v, torch.Tensor)
    ]
    return sum(sizes) <= MOST_ELEMENTS


def _has_limits(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph holds numbers that only float32 has, such as its largest."""
    given = [(node.args, tuple(node.kwargs.values())) for node in graph.graph.nodes]
    return any(isinstance(x, float) and abs(x) in _LIMITS for x in pytree.tree_leaves(given))


def _result_types(
    traced: Traced, given: dict[Any, torch.dtype], real: bool = False
) -> Types | None:
    """Return the types of the flat results if sources are of some types; None if it is refused."""
    task = traced.task
    fake, model = (private.no_fakes(), None) if real else _without_values(traced)
    layers = nullcontext() if real else recurrences()
    with fake, layers, torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            model = task.Model(*task.get_init_inputs()).eval() if model is None else model
            if PARAMETERS in given:
                _convert(model, given[PARAMETERS])
            flat, spec = pytree.tree_flatten(tuple(task.get_inputs()))
            flat = [leaf.to(given[i]) if i in given else leaf for i, leaf in enumerate(flat)]
            with nullcontext() if real else traced.parts.called(model):
                results = pytree.tree_leaves(model(*pytree.tree_unflatten(flat, spec)))
        except Exception:  # the module's own code: it may refuse
            return None
    return [r.dtype if isinstance(r, torch.Tensor) else None for r in results]


def _without_values(traced: Traced) -> tuple[Any, torch.nn.Module | None]:
    """Return a mode and a copy of a module in it, which is built once; None if it is refused."""
    if traced.typed is None:
        mode, task, made = private.plain_fakes(), traced.task, None
        build = private.no_fakes() if traced.shapes else nullcontext()
        quiet = warnings.catch_warnings(action="ignore")
        is_part = not inspect.isclass(task.Model)  # which is quick to make
        if not is_part:
            with mode, recurrences(), torch.no_grad(), quiet, build, suppress(Exception):
                made = task.Model(*task.get_init_inputs()).eval()
                traced.parts.strip(made)
        traced.typed = mode, made
    mode, made = traced.typed
    return mode, made and _copied(made, {})


def _copied(module: torch.nn.Module, made: dict[int, torch.nn.Module]) -> torch.nn.Module:
    """Return a module with the same tensors, and others in place of the modules inside it."""
    if id(module) not in made:
        made[id(module)] = new = object.__new__(type(module))
        vars(new).update(vars(module))
        for name in ("_parameters", "_buffers"):
            vars(new)[name] = dict(vars(module)[name])
        inner = vars(module)["_modules"].items()
        vars(new)["_modules"] = {n: m and _copied(m, made) for n, m in inner}
    return made[id(module)]


def _convert(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert floating parameters and buffers; ``Module.to`` cannot where they are fake."""
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None and tensor.is_floating_point():
                    new: Any = tensor.detach().to(dtype)
                    held[name] = torch.nn.Parameter(new) if held is module._parameters else new
