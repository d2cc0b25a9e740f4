"""Products of matrices: a template of our own that Inductor fills in, with what follows fused.

Inductor calls the library for products unless it may choose among templates by timing them, which
needs a GPU. Here its lowering of `mm` and `bmm` takes the one template below, and Inductor writes
what follows the product into it, as its scheduler decides. Which tiles are best is left to the
program's autotuner (`curate.inductor.products.tiles`).

Factors in float32 are cut into three parts of bfloat16 each (``bf16x6``), which tensor cores
multiply: as exact as products in float32, on every GPU, and faster than those of cuBLAS
(``benchmarks/products.py``). Rows and columns beyond the last ones are read from the first ones
again, which is faster than to mask them, and are not stored.

Follows ``torch/_inductor/select_algorithm.py`` and ``kernel/mm_common.py`` of torch 2.11 and 2.13,
which are private.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._inductor.kernel.mm_common import mm_args
from torch._inductor.lowering import lowerings
from torch._inductor.select_algorithm import SymbolicGridFn, TritonTemplate

from curate.inductor.products import convolution
from curate.inductor.products.tiles import GROUP_M

Lowering = Callable[..., Any]

_SOURCE = """
{{def_kernel("A", "B")}}
    M = {{size("A", -2)}}
    N = {{size("B", -1)}}
    K = {{size("A", -1)}}
    stride_am = {{stride("A", -2)}}
    stride_ak = {{stride("A", -1)}}
    stride_bk = {{stride("B", -2)}}
    stride_bn = {{stride("B", -1)}}
    BATCHES
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
    a_rows = (rows % M).to(tl.int64)
    b_cols = (cols % N).to(tl.int64)
    a_ptrs = A + FIRST_A a_rows[:, None] * stride_am + inner[None, :] * stride_ak
    b_ptrs = B + FIRST_B inner[:, None] * stride_bk + b_cols[None, :] * stride_bn
    acc = tl.zeros((MBLOCK, NBLOCK), tl.float32)
    for start in range(0, K, KBLOCK):
        a = tl.load(a_ptrs, mask=inner[None, :] < K - start, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < K - start, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="bf16x6")
        a_ptrs += KBLOCK * stride_ak
        b_ptrs += KBLOCK * stride_bk
    idx_m = rows.to(tl.int64)[:, None]
    idx_n = cols.to(tl.int64)[None, :]
    mask = (idx_m < M) & (idx_n < N)
    {{store_output((INDICES"idx_m", "idx_n"), "acc", "mask", val_shape=("MBLOCK", "NBLOCK"))}}
"""

_BATCHES = """batches = {{size("A", 0)}}
    stride_ab = {{stride("A", 0)}}
    stride_bb = {{stride("B", 0)}}
    batch = tl.program_id(1).to(tl.int64)"""


def _one_program(*_: Any) -> tuple[int, int, int]:
    """Stand for the grid, which the rewritten program works out itself."""
    return 1, 1, 1


@functools.cache
def _template(batched: bool) -> TritonTemplate:
    source = _SOURCE.replace("BATCHES", _BATCHES if batched else "")
    for side in "AB":
        first = f"batch * stride_{side.lower()}b +" if batched else ""
        source = source.replace(f"FIRST_{side}", first)
    source = source.replace("INDICES", '"batch", ' if batched else "")
    name = "curate_bmm" if batched else "curate_mm"
    return TritonTemplate(name, SymbolicGridFn(_one_program), source)


def _lower(batched: bool, usual: Lowering, a: Any, b: Any, **how: Any) -> Any:
    """Return the node of a product: what Inductor's own lowering would have chosen by timing."""
    if a.get_dtype() not in convolution.TYPES:
        return usual(a, b, **how)
    *_, layout, a, b = mm_args(a, b, layout=how.get("layout"))
    blocks = {"MBLOCK": 64, "NBLOCK": 64, "KBLOCK": 32, "GROUPBLOCK": GROUP_M}
    made = _template(batched).generate((a, b), layout, num_stages=3, num_warps=4, **blocks)
    assert made is not None
    return made.output_node()


@contextlib.contextmanager
def by_template() -> Iterator[None]:
    """Have Inductor write products of matrices itself."""
    aten = torch.ops.aten
    ours = {
        operator: functools.partial(_lower, batched, lowerings[operator])
        for operator, batched in ((aten.mm.default, False), (aten.bmm.default, True))
    }
    of_library = lowerings[aten.convolution.default]
    ours[aten.convolution.default] = functools.partial(convolution.lower, of_library)
    with mock.patch.dict(lowerings, ours):
        yield


def split_sums(graph: torch.fx.Graph) -> None:
    """Write ``addmm``, ``baddbmm`` and a convolution with a bias as a product and a sum, which is
    then fused into it."""
    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
        _split_bias(graph, node)
    products = {aten.addmm.default: aten.mm.default, aten.baddbmm.default: aten.bmm.default}
    for node in graph.nodes:
        if node.target not in products or node.kwargs:
            continue
        bias, a, b = node.args
        with graph.inserting_before(node):
            product = graph.call_function(products[node.target], (a, b))
            total = graph.call_function(aten.add.Tensor, (product, bias))
        for made in (product, total):
            made.meta.update(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)


def _split_bias(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Write a convolution with a bias as one without, and a sum."""
    aten = torch.ops.aten
    x, weight, bias, *how = node.args
    if bias is None:
        return
    assert isinstance(bias, torch.fx.Node) and isinstance(weight, torch.fx.Node)
    with graph.inserting_before(node):
        product = graph.call_function(node.target, (x, weight, None, *how))
        column = bias
        for _ in range(weight.meta["val"].dim() - 2):
            value = column.meta["val"].unsqueeze(-1)
            column = graph.call_function(aten.unsqueeze.default, (column, -1))
            column.meta.update({**node.meta, "val": value})
        total = graph.call_function(aten.add.Tensor, (product, column))
    for made in (product, total):
        made.meta.update(node.meta)
    node.replace_all_uses_with(total)
    graph.erase_node(node)
