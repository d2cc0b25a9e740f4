"""Convolutions: a template that multiplies matrices whose factor is gathered from the image.

Inductor leaves convolutions to the library unless it may time templates on a GPU. Here its lowering
takes the templates below for one to three dimensions, transposed ones included. A row of the left
factor is what one place of the output sees: its columns are the channels of the input and, for
each, the places under the filter. The right factor is the weight as it lies in memory.

Where each group has few channels, as in depthwise convolutions, a tile of a product would be
nearly empty: there every place under the filter is a term of a sum, which Inductor writes as it
writes other elementwise work.

Follows ``torch/_inductor/kernel/conv.py`` of torch 2.11 and 2.13, which is private.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor import ir
from torch._inductor.kernel.conv import conv_layout
from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate
from torch._inductor.virtualized import V, ops

from curate.inductor.products.tiles import AXES, GROUP_M, filter_names

TYPES = (torch.float16, torch.bfloat16, torch.float32)
"""Types whose products accumulate in float32, those of matrices as well."""

FEW_CHANNELS = 16
"""Channels that a group gives, below which a tile of a product would be nearly empty."""

MOST_TERMS = 25
"""Places under the filter, times channels, up to which each is a term of its own."""

_START = """
{{def_kernel("A", "B")}}
    kind = "KIND"
    M = {{size("A", 0)}} * (PLACES)
    N = {{FILTERS}}
    K = {{PRODUCTS}}
    channels = {{CHANNELS}}
SIZES
    tiles_m = tl.cdiv(M, MBLOCK)
    tiles_n = tl.cdiv(N, NBLOCK)
    group_size = GROUPBLOCK * tiles_n
    tile = tl.program_id(0)
    first_m = tile // group_size * GROUPBLOCK
    tiles_high = tl.minimum(tiles_m - first_m, GROUPBLOCK)
    tile_m = first_m + tile % group_size % tiles_high
    tile_n = tile % group_size // tiles_high
    rows = tile_m * MBLOCK + tl.arange(0, MBLOCK)
    cols = tile_n * NBLOCK + tl.arange(0, NBLOCK)
    inner = tl.arange(0, KBLOCK)
    place = rows % M
"""

_END = """    a = tl.load(a_ptrs + OFFSET, mask=inside, other=0.0)
    b = tl.load(b_ptrs + WEIGHT, mask=(k < K)[:, None], other=0.0)
    acc = tl.dot(a, b, acc, input_precision="bf16x6")
"""


def _body(axes: tuple[str, ...], transposed: bool, grouped: bool) -> list[str]:
    """Return the lines behind `_START` for some axes of an image."""
    short = {axis: axis[0] for axis in axes}
    whole, taps = " * ".join(axes), " * ".join(f"kernel_{axis}" for axis in axes)
    group = ["group = tl.program_id(1)"] if grouped else []
    image = "(image * groups + group)" if grouped else "image"
    one, every = ("group * N + cols % N", "group * N + cols") if grouped else ("cols % N", "cols")
    if transposed:  # in its weight, outputs lie behind inputs
        filters = "cols % N" if not grouped else "group * channels * N + cols % N"
        weight = f"(channel * N * ({taps}) + k % ({taps}))[:, None]"
        b_ptrs = f"b_ptrs = B + (({filters}) * ({taps}))[None, :]"
    else:
        weight = "k[:, None]"
        b_ptrs = f"b_ptrs = B + (({one}).to(tl.int64) * K)[None, :]"
    lines = [
        *_split("place", [f"out_{axis}" for axis in axes], "image"),
        *group,
        f"a_ptrs = A + ({image}.to(tl.int64) * channels * {whole})[:, None]",
        *(_first(axis, transposed) for axis in axes),
        b_ptrs,
        "acc = tl.zeros((MBLOCK, NBLOCK), tl.float32)",
        "for start in range(0, K, KBLOCK):",
        "    k = start + inner",
        *("    " + line for line in _split("k", [f"kernel_{axis}" for axis in axes], "channel")),
    ]
    inside, offset = ["(k < K)[None, :]"], "channel[None, :]"
    for axis in axes:
        name, sign = short[axis], "-" if transposed else "+"
        seen = f"{name} = first_{name} {sign} (tap_{name} * dilation_{axis})[None, :]"
        lines.append("    " + seen)
        if transposed:
            inside.append(f"({name} >= 0) & ({name} < {axis} * stride_{axis})")
            inside.append(f"({name} % stride_{axis} == 0)")
            offset = f"({offset} * {axis} + {name} // stride_{axis})"
        else:
            inside.append(f"({name} >= 0) & ({name} < {axis})")
            offset = f"({offset} * {axis} + {name})"
    lines.append("    inside = " + " & ".join(inside))
    lines += _END.replace("OFFSET", offset[1:-1]).replace("WEIGHT", weight).splitlines()
    named = {"image": "image[:, None]", "filter": f"({every})[None, :]"}
    named |= {name: f"out_{name}[:, None]" for name in short.values()}
    lines += [f"idx_{name} = {value}" for name, value in named.items()]
    lines.append("mask = (rows < M)[:, None] & (cols < N)[None, :]")
    indices = ", ".join(f'"idx_{name}"' for name in named)
    lines.append(
        f'{{{{store_output(({indices}), "acc", "mask", val_shape=("MBLOCK", "NBLOCK"))}}}}'
    )
    return lines


def _split(number: str, sizes: list[str], rest: str) -> list[str]:
    """Return lines that take a number apart into places along axes, and what is left."""
    lines, left = [], number
    for size in reversed(sizes):
        what, _, axis = size.partition("_")
        lines.append(f"{_PLACES[what]}_{axis[0]} = {left} % {size}")
        left = f"{left} // {size}"
    return [*lines, f"{rest} = {left}"]


_PLACES = {"out": "out", "kernel": "tap"}


def _first(axis: str, transposed: bool) -> str:
    """Return the line that says what a place of the output sees first."""
    place = f"out_{axis[0]}"
    if transposed:
        return f"first_{axis[0]} = ({place} + padding_{axis})[:, None]"
    return f"first_{axis[0]} = ({place} * stride_{axis} - padding_{axis})[:, None]"


@functools.cache
def _template(dims: int, transposed: bool, grouped: bool) -> TritonTemplate:
    axes = AXES[dims]
    sizes = [f'{axis} = {{{{size("A", {n + 2})}}}}' for n, axis in enumerate(axes)]
    sizes += [f"out_{axis} = {{{{size(None, {n + 2})}}}}" for n, axis in enumerate(axes)]
    sizes += [f"{name} = {{{{{name.upper()}}}}}" for name in filter_names(axes)]
    sizes += ["groups = {{GROUPS}}"] if grouped else []
    kind = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    places = " * ".join(f"({{{{size(None, {n + 2})}}}})" for n in range(dims))
    start = _START.replace("SIZES", "\n".join(f"    {line}" for line in sizes))
    source = start.replace("KIND", kind).replace("PLACES", places)
    source += "\n".join(f"    {line}" for line in _body(axes, transposed, grouped)) + "\n"
    name = f"curate_{'grouped_' if grouped else ''}{kind}"
    return TritonTemplate(name, SymbolicGridFn(lambda *_, **__: (1, 1, 1)), source)


def lower(
    usual: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    """Return the node of a convolution; arguments are those of ``aten.convolution``."""
    how = stride, padding, dilation, transposed, output_padding, groups
    guard = V.graph.sizevars.guard_int_seq
    shape = guard(weight.get_size())
    dims = len(shape) - 2
    whole = len(x.get_size()) == dims + 2 and dims in AXES and bias is None
    if not whole or x.get_dtype() not in TYPES:
        return usual(x, weight, bias, *how)
    x, weight = (
        ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(t)) for t in (x, weight)
    )
    sizes = conv_layout(x, weight, None, *how).size
    taps = math.prod(shape[2:])
    inputs, filters = (
        (shape[0] // groups, shape[1]) if transposed else (shape[1], shape[0] // groups)
    )
    numbers = {"kernel": shape[2:], "stride": stride, "padding": padding, "dilation": dilation}
    listed = {
        what: list(guard(given)) * (dims if len(given) == 1 else 1)
        for what, given in numbers.items()
    }
    if groups > 1 and filters < FEW_CHANNELS:
        if transposed or inputs * taps > MOST_TERMS:
            return usual(x, weight, bias, *how)
        return _sum_of_terms(x, weight, sizes, listed, inputs, filters)
    axes = AXES[dims]
    constants = {
        f"{what}_{axis}".upper(): value
        for what, values in listed.items()
        for axis, value in zip(axes, values, strict=True)
    }
    layout = ir.FixedLayout(x.get_device_or_error(), x.get_dtype(), sizes)
    blocks = {"MBLOCK": 64, "NBLOCK": 64, "KBLOCK": 32, "GROUPBLOCK": GROUP_M}
    made = _template(dims, transposed, groups > 1).generate(
        (x, weight),
        layout,
        num_stages=3,
        num_warps=4,
        CHANNELS=inputs,
        FILTERS=filters,
        PRODUCTS=inputs * taps,
        GROUPS=groups,
        **constants,
        **blocks,
    )
    assert made is not None
    return made.output_node()


def _sum_of_terms(
    x: Any, weight: Any, sizes: Any, how: dict[str, list[int]], inputs: int, filters: int
) -> Any:
    """Return a convolution of few channels as a sum, one term for each place under the filter."""
    load, filter_of = x.make_loader(), weight.make_loader()
    ends = x.get_size()[2:]

    def value(index: Any) -> Any:
        image, out, *places = index
        group = ir.ModularIndexing(out, filters, sympy.Integer(2) ** 62) if filters > 1 else out
        total = None
        for channel, *taps in itertools.product(range(inputs), *map(range, how["kernel"])):
            spot = [
                place * s - p + tap * d
                for place, tap, s, p, d in zip(
                    places, taps, how["stride"], how["padding"], how["dilation"], strict=True
                )
            ]
            seen = _masked(load, [image, group * inputs + channel, *spot], ends, how["padding"])
            term = ops.mul(seen, filter_of([out, channel, *taps]))
            total = term if total is None else ops.add(total, term)
        return total

    return ir.Pointwise.create(
        device=x.get_device_or_error(), dtype=x.get_dtype(), inner_fn=value, ranges=list(sizes)
    )


def _masked(load: Any, index: list[Any], ends: Any, padding: list[int]) -> Any:
    """Return what lies at a place of the image; zero outside, where there is padding."""
    checks = [
        check
        for spot, end, pad in zip(index[2:], ends, padding, strict=True)
        if pad
        for check in (
            ops.ge(ops.index_expr(spot, torch.int64), ops.constant(0, torch.int64)),
            ops.lt(ops.index_expr(spot, torch.int64), ops.index_expr(end, torch.int64)),
        )
    ]
    if not checks:
        return load(index)
    return ops.masked(functools.reduce(ops.and_, checks), lambda: load(index), 0.0)
