"""Lowerings where Inductor calls PyTorch's own kernels: of scatters and special functions.

As `curate.generator.torch_private`, it stands on private interfaces of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V, ops
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND

from curate.generator.unprintable import Unprintable
from curate.syntax import words


@contextmanager
def own_lowerings() -> Iterator[None]:
    """Have Inductor lower here what it has no loops for, and leave splitting to the schedules."""
    aten, own = torch.ops.aten, dict[Any, Callable[..., Any]]()
    register = lowering.register_lowering
    register(aten.scatter_reduce.two, type_promotion_kind=None, lowering_dict=own)(_scatter)
    register(aten.scatter_add.default, type_promotion_kind=None, lowering_dict=own)(_scatter)
    promotion = {"type_promotion_kind": ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT}
    for operator, name in _SPECIAL.items():
        pointwise = lowering.make_pointwise(lambda x, name=name: getattr(ops, name)(x))
        register(getattr(aten, operator).default, lowering_dict=own, **promotion)(pointwise)
    with (
        mock.patch.dict(lowering.lowerings, own),
        mock.patch.object(lowering, "_avg_poolnd", _averages),
        mock.patch.object(ir.Scan, "num_splits", lambda **given: (ir.ReductionHint.DEFAULT, 1)),
        mock.patch.object(
            lowering, "needs_fallback_due_to_atomic_add_limitations", lambda t: t == torch.bool
        ),
    ):
        yield


def _averages(*given: Any, _plain: Any = lowering._avg_poolnd, **options: Any) -> Any:
    """Lower an average over windows of any size to loops: from 26 elements on Inductor has none."""
    with mock.patch.object(V.graph.sizevars, "statically_known_true", lambda condition: False):
        return _plain(*given, **options)


_SPECIAL = {f"special_{name}": name for name in words("i0e i1e ndtri")}
_SPECIAL |= {f"special_{name}": name for name in words("modified_bessel_k0 modified_bessel_k1")}
_SPECIAL |= {"digamma": "digamma"}

_MODES = {"sum": "atomic_add", "amax": "atomic_max", "amin": "atomic_min"}


def _scatter(x: Any, dim: int, index: Any, src: Any, reduce: str = "sum") -> Any:
    """Lower a scatter to a copy and atomic operations on it."""
    if reduce not in _MODES or not x.get_size():
        raise Unprintable(f"a scatter with {reduce}")
    base = V.graph.current_node.args[0]
    is_own = base.target is torch.ops.aten.scatter.value and len(base.users) == 1
    out = x if is_own else lowering.clone(x)
    out.realize()
    place_of, number_of, sizes = index.make_loader(), src.make_loader(), out.get_size()

    def place(at: Sequence[Any]) -> list[Any]:
        found = list(at)
        found[dim] = ops.indirect_indexing(place_of(at), sizes[dim], wrap_neg=False)
        return found

    data = ir.Scatter(
        device=out.get_device(),
        dtype=out.get_dtype(),
        inner_fn=number_of,
        ranges=index.get_size(),
        output_indexer=place,
        scatter_mode=_MODES[reduce],
    )
    layout = ir.MutationLayoutSHOULDREMOVE(out)
    buffer = ir.ComputedBuffer(name=None, layout=layout, data=data)
    buffer.name = V.graph.register_buffer(buffer)
    V.graph.register_operation(buffer)
    return out
