"""Operators in terms of others, where Inductor has loops for those only."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _identity(reduce: str, dtype: torch.dtype) -> Any:
    """Return the number that a reduction leaves out."""
    if reduce in ("sum", "mean"):
        return 0
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    ends = (-float("inf"), float("inf")) if dtype.is_floating_point else (info.min, info.max)
    return ends[reduce == "amin"]


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Atomic operations for sums and extremes, sums and counts for means, a search for products."""
    if x.dim() == 0:
        return NotImplemented
    if reduce == "prod":
        return _product_at(x, dim, index, src, include_self)
    if reduce == "mean":
        zeros = torch.zeros_like(x)
        total = zeros.scatter_add(dim, index, src)
        count = zeros.scatter_add(dim, index, torch.ones_like(src))
        rounded = None if x.dtype.is_floating_point else "floor"
        if include_self:
            return torch.div(x + total, count + 1, rounding_mode=rounded)
        mean = torch.div(total, count.clamp(min=1), rounding_mode=rounded)
        return torch.where(count > 0, mean, x)
    if not include_self:
        base = x.scatter(dim, index, _identity(reduce, x.dtype))
        return base.scatter_reduce(dim, index, src, reduce)
    return NotImplemented


def _product_at(x: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool) -> Any:
    """Each result looks for its factors: there is no atomic multiplication."""
    dim %= x.dim()
    if any(index.shape[d] != x.shape[d] for d in range(x.dim()) if d != dim):
        return NotImplemented
    src = src[tuple(slice(size) for size in index.shape)]
    places = torch.arange(x.shape[dim], device=x.device)
    mine = index.movedim(dim, -1).unsqueeze(-2) == places[:, None]
    factors = torch.where(mine, src.movedim(dim, -1).unsqueeze(-2), 1)
    found = factors.prod(-1, dtype=x.dtype).movedim(-1, dim)
    if include_self:
        return x * found
    return torch.where(mine.any(-1).movedim(-1, dim), found, x)


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    dim %= x.dim()
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    index = index.to(torch.int64).view(shape).expand_as(src)
    return x.scatter_reduce(dim, index, src, reduce, include_self=include_self)


def _windows(x: Tensor, sizes: list[int], fill: float) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the elements of adaptive pooling's windows, in as many more dimensions.

    Windows are of several widths: the narrower ones hold ``fill`` behind their elements. The other
    results are how many elements there are, and where each window begins in each dimension.
    """
    n, first, places, mask, count = len(sizes), [], [], None, None
    for d, out in enumerate(sizes):
        size, along = x.shape[d - n], [-1 if i == d else 1 for i in range(n)]
        at = torch.arange(out, device=x.device).view(along)
        start = torch.div(at * size, out, rounding_mode="trunc")
        end = torch.div((at + 1) * size + (out - 1), out, rounding_mode="trunc")
        widest = size if type(out) is int and out == 1 else (size + out - 1) // out + 1
        offset = torch.arange(widest, device=x.device).view(along)
        place = start.view([*start.shape, *[1] * n]) + offset
        first.append(start)
        places.append(place)
        count = end - start if count is None else count * (end - start)
        if widest is not size:
            inside = place < end.view([*end.shape, *[1] * n])
            mask = inside if mask is None else mask & inside
    kept = x.shape[: x.dim() - n]
    assert count is not None
    if mask is None:
        return x.view([*kept, *[1] * n, *x.shape[-n:]]), count, first
    mask = mask.expand([*kept, *torch.broadcast_shapes(*(p.shape for p in places))])
    values = aten._unsafe_masked_index(x, mask, [*[None] * len(kept), *places], fill)
    return values, count, first


def _adaptive_average(x: Tensor, output_size: list[int]) -> Tensor:
    values, count, _ = _windows(x, output_size, 0.0)
    return values.sum(list(range(-len(output_size), 0))) / count


def _adaptive_maximum(x: Tensor, output_size: list[int]) -> tuple[Tensor, Tensor]:
    n = len(output_size)
    values, _, first = _windows(x, output_size, -float("inf"))
    widths = values.shape[-n:]
    largest, at = values.flatten(-n).max(-1)
    index: Any = 0
    for d in reversed(range(n)):
        if type(widths[d]) is int and widths[d] == 1:
            continue
        index = index + (first[d] + at.fmod(widths[d])) * math.prod(x.shape[x.dim() - n + d + 1 :])
        at = torch.div(at, widths[d], rounding_mode="trunc")
    return largest, index


def _norm(x: Tensor, p: float) -> Tensor:
    """Return norms along the last dimension."""
    if p == 0:
        return x.abs().ceil().clamp(max=1).sum(-1)
    if p == 1:
        return x.abs().sum(-1)
    if p == 2:
        return (x * x).sum(-1).sqrt()
    if p == float("inf"):
        return x.abs().amax(-1)
    return (x.abs() ** p).sum(-1) ** (1 / p)


def _cdist(a: Tensor, b: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """Each result finds its pair of rows: they are numbered along the upper triangle."""
    n = x.shape[0]
    pairs = n * (n - 1) // 2
    at = torch.arange(pairs, device=x.device)
    root = (8 * (pairs - 1 - at) + 1).to(torch.float64).sqrt()
    i = n - 2 - (root / 2 - 0.5).floor().to(torch.int64)
    j = at + i + 1 - pairs + torch.div((n - i) * (n - i - 1), 2, rounding_mode="trunc")
    return _norm(aten.embedding(x, i) - aten.embedding(x, j), p)


def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The sum of a batch of products is one product, with what is summed in one dimension."""
    torch._check(a.shape[0] == b.shape[0] and a.shape[2] == b.shape[1])
    left = a.transpose(0, 1).reshape(a.shape[1], a.shape[0] * a.shape[2])
    return torch.addmm(x, left, b.flatten(0, 1), beta=beta, alpha=alpha)


def _trilinear(a: Tensor, b: Tensor, c: Tensor, *dims: list[int]) -> Tensor:
    """Multiply tensors, each with some new dimensions, and sum along those of a fourth list."""
    given = zip((a, b, c), dims[:3], strict=True)
    first, *others = (functools.reduce(torch.unsqueeze, new, x) for x, new in given)
    found = math.prod(others, start=first)
    return found.sum(dims[3]) if dims[3] else found


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    low: Any = x.amin() if min == max else min
    high: Any = x.amax() if min == max else max
    place = ((x - low) * (bins / (high - low))).to(torch.int64).clamp(0, bins - 1).flatten()
    inside = ((x >= low) & (x <= high)).to(x.dtype).flatten()
    return torch.zeros(bins, dtype=x.dtype, device=x.device).scatter_add(0, place, inside)


def _logit(x: Tensor, eps: float | None = None) -> Tensor:
    """Without ``eps`` nothing is to be clamped: beyond 0 and 1 the logarithm is NaN."""
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return torch.log(x / (1 - x))


def _convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    _: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    mask: list[bool],
) -> Any:
    """The gradient of the input is a convolution, of the other kind; that of the weight is none
    that is worth printing."""
    if mask[1]:
        return NotImplemented
    bias = grad.sum([0, *range(2, grad.dim())]) if mask[2] else None
    if not mask[0]:
        return None, None, bias
    behind = [0] * (x.dim() - 2)
    if not transposed:  # what a window of the forward leaves over at the end
        behind = [
            0 if s == 1 else (size + 2 * p - d * (k - 1) - 1) % s
            for s, size, p, d, k in zip(
                _each(stride, x), x.shape[2:], _each(padding, x), _each(dilation, x),
                weight.shape[2:], strict=True,
            )
        ]  # fmt: skip
    how = stride, padding, dilation, not transposed, behind, groups
    return aten.convolution(grad, weight, None, *how), None, bias


def _reflected(x: Tensor, padding: list[int]) -> Tensor:
    """Pad by reflection, which takes what is longer than the padding."""
    for dim, before, after in zip(
        range(x.dim() - 1, 0, -1), padding[::2], padding[1::2], strict=False
    ):
        size = x.shape[dim]
        if before >= size or after >= size:
            raise ValueError("a reflection is longer than what it reflects")
        at = torch.arange(-before, size + after, device=x.device).abs()
        x = aten._unsafe_index(x, [*[None] * dim, size - 1 - (size - 1 - at).abs()])
    return x


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """Multiply columns by rows, where nothing is summed."""
    return a * b if _is_one(a.shape[-1]) else NotImplemented


def _added_outer(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return x + a * b if _is_one(a.shape[-1]) and beta == alpha == 1 else NotImplemented


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _each(numbers: list[int], x: Tensor) -> list[int]:
    """Return a number for each dimension of an image; one may stand for all."""
    return list(numbers) * (x.dim() - 2) if len(numbers) == 1 else list(numbers)


OWN: dict[Any, Callable[..., Any]] = {
    aten.scatter_reduce.two: _scatter_reduce,
    aten.index_reduce.default: _index_reduce,
    aten._adaptive_avg_pool2d.default: _adaptive_average,
    aten._adaptive_avg_pool3d.default: _adaptive_average,
    aten.adaptive_max_pool2d.default: _adaptive_maximum,
    aten.adaptive_max_pool3d.default: _adaptive_maximum,
    aten._cdist_forward.default: _cdist,
    aten._pdist_forward.default: _pdist,
    aten._trilinear.default: _trilinear,
    aten.addbmm.default: _addbmm,
    aten.histc.default: _histc,
    aten.logit.default: _logit,
    aten.convolution_backward.default: _convolution_backward,
    aten.reflection_pad1d.default: _reflected,
    aten.reflection_pad2d.default: _reflected,
    aten.reflection_pad3d.default: _reflected,
    aten.mm.default: _outer,
    aten.bmm.default: _outer,
    aten.addmm.default: _added_outer,
    aten.baddbmm.default: _added_outer,
}
"""What is decomposed otherwise than Inductor does, or than PyTorch's meta kernels ask for."""
