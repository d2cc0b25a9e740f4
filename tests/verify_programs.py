"""Pairs of a reference and a Triton program, and faults to put into the programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Judge = Callable[..., list[dict[str, Any]]]
"""What the fixture ``judge`` is: pairs of files, and `Options`, in; verdicts as JSON out."""

HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""


@dataclass(frozen=True)
class Pair:
    """A reference, an honest candidate, and faults: what to replace, by what."""

    reference: str
    candidate: str
    faults: dict[str, tuple[str, str]] = field(default_factory=dict)

    def faulty(self, fault: str) -> str:
        old, new = self.faults[fault]
        assert old in self.candidate, old
        return HEAD + self.candidate.replace(old, new)

    @property
    def honest(self) -> str:
        return HEAD + self.candidate


SOFTMAX = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

rows = 7

def get_inputs():
    return [torch.rand(rows, 100)]

def get_init_inputs():
    return []
""",
    """
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, x / tl.sum(x, axis=0), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block)
        return y
""",
    {
        "missing store mask": ("tl.sum(x, axis=0), mask=mask)", "tl.sum(x, axis=0))"),
        "wrong padding": ('other=-float("inf")', "other=0.0"),
        "short by one": ("mask = cols < n", "mask = cols < n - 1"),
        "rows by heart": ("(x.shape[0],)", "(7,)"),
        "no normalisation": ("x / tl.sum(x, axis=0)", "x"),
        "half precision": (
            "x = tl.exp(",
            "x = tl.exp(tl.cast(x, tl.float16).to(tl.float32) * 0 + ",
        ),
    },
)

LAYER_NORM = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(6, 48)]

def get_init_inputs():
    return [48]
""",
    """
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n
    weight = tl.load(w_ptr + cols, mask=mask)
    bias = tl.load(b_ptr + cols, mask=mask)
    y = centred * tl.rsqrt(variance + eps) * weight + bias
    tl.store(y_ptr + row * n + cols, y, mask=mask)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        y = torch.empty_like(x)
        weight, bias = self.norm.weight, self.norm.bias
        layer_norm_kernel[(x.shape[0],)](x, weight, bias, y, x.shape[1], 1e-5, BLOCK=64)
        return y
""",
    {
        "bias skipped": ("* weight + bias", "* weight"),
        "scale skipped": ("(variance + eps) * weight", "(variance + eps)"),
        "identity": ("centred * tl.rsqrt(variance + eps) * weight + bias", "x"),
        "unbiased variance": ("centred, axis=0) / n", "centred, axis=0) / (n - 1)"),
        "wrong epsilon": ("1e-5", "1e-3"),
        "padding in the variance": ("tl.where(mask, x - mean, 0.0)", "x - mean"),
        "parameters swapped": ("(x, weight, bias, y", "(x, bias, weight, y"),
        "another state_dict": (
            "self.norm = nn.LayerNorm",
            "self.renamed = self.norm = nn.LayerNorm",
        ),
    },
)

LINEAR = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, outer))
        self.bias = nn.Parameter(torch.zeros(outer))

    def forward(self, x):
        return torch.relu(x @ self.weight + self.bias)

def get_inputs():
    return [torch.rand(40, 70)]

def get_init_inputs():
    return [70, 24]
""",
    """
@triton.jit
def linear_kernel(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :],
                    mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * N + cols[None, :],
                    mask=(inner[:, None] < K) & (cols[None, :] < N), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    total += tl.load(bias_ptr + cols, mask=cols < N, other=0.0)[None, :]
    total = tl.maximum(total, 0.0)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total,
             mask=(rows[:, None] < M) & (cols[None, :] < N))

class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, outer))
        self.bias = nn.Parameter(torch.zeros(outer))

    def forward(self, x):
        (m, k), n = x.shape, self.weight.shape[1]
        y = torch.empty((m, n), device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))
        linear_kernel[grid](x, self.weight, self.bias, y, m, n, k, BM=16, BN=16, BK=32)
        return y
""",
    {
        "zero bias skipped": ("    total += tl.load(bias_ptr", "    tl.load(bias_ptr"),
        "relu skipped": ("    total = tl.maximum(total, 0.0)\n", ""),
        "last block of the sum dropped": ("range(0, K, BK)", "range(0, K - BK, BK)"),
        "inputs rounded to bfloat16": (
            "tl.dot(a, b, input",
            "tl.dot(a.to(tl.bfloat16).to(tl.float32), b, input",
        ),
        "one block too few": ("triton.cdiv(m, ", "(m // "),
        "bias along the wrong axis": (
            "tl.load(bias_ptr + cols, mask=cols < N, other=0.0)[None, :]",
            "tl.load(bias_ptr + rows, mask=rows < N, other=0.0)[:, None]",
        ),
    },
)

ATTENTION = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, q, k, v):
        scores = (q @ k.transpose(-1, -2)) * 0.25
        return torch.softmax(scores, dim=-1) @ v

heads = 2

def get_inputs():
    return [torch.randn(heads, 40, 16) for _ in range(3)]

def get_init_inputs():
    return []
""",
    """
@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, length, BM: tl.constexpr, BN: tl.constexpr,
                     D: tl.constexpr):
    base = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    at = rows[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + base + at, mask=rows[:, None] < length, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        keys = start + tl.arange(0, BN)
        inside = keys < length
        there = keys[:, None] * D + dims[None, :]
        k = tl.load(k_ptr + base + there, mask=inside[:, None], other=0.0)
        v = tl.load(v_ptr + base + there, mask=inside[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * 0.25
        scores = tl.where(inside[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        scale = tl.exp(top - new_top)
        weights = tl.exp(scores - new_top[:, None])
        total = total * scale + tl.sum(weights, 1)
        out = out * scale[:, None] + tl.dot(weights, v, input_precision="ieee")
        top = new_top
    tl.store(o_ptr + base + at, out / total[:, None], mask=rows[:, None] < length)

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        heads, length, dim = q.shape
        out = torch.empty_like(q)
        grid = (triton.cdiv(length, 16), heads)
        attention_kernel[grid](q, k, v, out, length, BM=16, BN=16, D=dim)
        return out
""",
    {
        "inputs swapped": ("(q, k, v, out", "(q, v, k, out"),
        "no rescaling": ("out = out * scale[:, None]", "out = out"),
        "padding takes part": (
            'inside[None, :], scores, -float("inf")',
            "inside[None, :], scores, 0.0",
        ),
        "scale forgotten": ("* 0.25", "* 1.0"),
        "one head only": ("triton.cdiv(length, 16), heads)", "triton.cdiv(length, 16), 1)"),
    },
)

SEGMENT_SUM = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, values, segment):
        return torch.zeros(8).index_add(0, segment, values)

def get_inputs():
    return [torch.randn(300), torch.randint(0, 8, (300,))]

def get_init_inputs():
    return []
""",
    """
@triton.jit
def segment_kernel(values_ptr, segment_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    values = tl.load(values_ptr + at, mask=mask)
    segment = tl.load(segment_ptr + at, mask=mask, other=0)
    tl.atomic_add(out_ptr + segment, values, mask=mask)

class ModelNew(nn.Module):
    def forward(self, values, segment):
        out = torch.zeros(8, device=values.device)
        n = values.numel()
        segment_kernel[(triton.cdiv(n, 128),)](values, segment, out, n, BLOCK=128)
        return out
""",
    {
        "output not cleared": ("torch.zeros(8", "torch.empty(8"),
        "no atomic": ("tl.atomic_add(", "tl.store("),
        "out of bounds": ("out_ptr + segment,", "out_ptr + segment + 1,"),
    },
)

LIBRARY = Pair(
    """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x) + torch.tanh(x) * torch.log1p(x.abs()) + torch.expm1(-x.abs()) + x.floor()

def get_inputs():
    return [torch.randn(500)]

def get_init_inputs():
    return []
""",
    """
from triton.language.extra import libdevice

@triton.jit
def math_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = 0.5 * x * (1 + libdevice.erf(x * 0.7071067811865476))
    y += libdevice.tanh(x) * libdevice.log1p(tl.abs(x)) + libdevice.expm1(-tl.abs(x))
    y += libdevice.floor(x)
    tl.store(y_ptr + at, y, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        math_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
""",
    {
        "constant wrong in the fifth digit": ("0.7071067811865476", "0.70715"),
        "tanh approximation": (
            "0.5 * x * (1 + libdevice.erf(x * 0.7071067811865476))",
            "0.5 * x * (1 + libdevice.tanh(0.79788456 * (x + 0.044715 * x * x * x)))",
        ),
        "rounded to nearest": ("libdevice.floor", "libdevice.rint"),
    },
)

REDUCTIONS = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return (x.argmax(dim=1), x.var(dim=1), torch.cumsum(x, dim=1), x.sort(dim=1).values,
                torch.cummax(x, dim=1).values)

def get_inputs():
    return [torch.randn(5, 32)]

def get_init_inputs():
    return []
""",
    """
@triton.jit
def combine(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    delta = mean_b - mean_a
    n = n_a + n_b
    share = n_b / n
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n

@triton.jit
def larger(a, b):
    return tl.maximum(a, b)

@triton.jit
def reduce_kernel(x_ptr, top_ptr, var_ptr, sum_ptr, sort_ptr, max_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, N)
    x = tl.load(x_ptr + row * N + cols)
    tl.store(top_ptr + row, tl.argmax(x, axis=0).to(tl.int64))
    one = tl.full((N,), 1.0, tl.float32)
    mean, m2, n = tl.reduce((x, tl.zeros((N,), tl.float32), one), 0, combine)
    tl.store(var_ptr + row, m2 / (n - 1))
    tl.store(sum_ptr + row * N + cols, tl.cumsum(x, axis=0))
    tl.store(sort_ptr + row * N + cols, tl.sort(x))
    tl.store(max_ptr + row * N + cols, tl.associative_scan(x, 0, larger))

class ModelNew(nn.Module):
    def forward(self, x):
        top = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        var = torch.empty(x.shape[0], device=x.device)
        sums, ordered, largest = (torch.empty_like(x) for _ in range(3))
        reduce_kernel[(x.shape[0],)](x, top, var, sums, ordered, largest, N=x.shape[1])
        return top, var, sums, ordered, largest
""",
    {
        "argmin": ("tl.argmax(", "tl.argmin("),
        "biased variance": ("m2 / (n - 1)", "m2 / n"),
        "an output missing": (
            "return top, var, sums, ordered, largest",
            "return top, var, sums, ordered",
        ),
        "another integer type": ("dtype=torch.int64", "dtype=torch.int32"),
        "descending": ("tl.sort(x)", "tl.sort(x, descending=True)"),
    },
)

AUTOTUNED = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        return x - y

def get_inputs():
    return [torch.rand(4, 100), torch.rand(4, 100)]

def get_init_inputs():
    return []
""",
    """
@triton.autotune(
    [triton.Config({"BLOCK": 128}, num_warps=8), triton.Config({"BLOCK": 64})],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def subtract_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + at, tl.load(x_ptr + at) - tl.load(y_ptr + at))
    else:
        mask = at < n
        x = tl.load(x_ptr + at, mask=mask)
        tl.store(out_ptr + at, x - tl.load(y_ptr + at, mask=mask), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        subtract_kernel[grid](x, y, out, x.numel())
        return out
""",
    {
        "swapped": ("(x, y, out, x.numel())", "(y, x, out, x.numel())"),
        "input overwritten": ("out = torch.empty_like(x)", "out = x"),
    },
)

COMPARISONS = Pair(
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, limit, label):
        chosen = torch.where(label == 1.0, x, limit)
        shrunk = torch.where(limit.abs() > 0.25, limit, 0.0)
        return torch.ge(x, limit), chosen, shrunk

rows = 7

def get_inputs():
    return [torch.randn(rows, 1), torch.randn(100), torch.randint(2, (rows, 100)).float()]

def get_init_inputs():
    return []
""",
    """
@triton.jit
def compare_kernel(x_ptr, limit_ptr, label_ptr, ge_ptr, chosen_ptr, shrunk_ptr, n,
                   BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row)
    limit = tl.load(limit_ptr + cols, mask=mask)
    label = tl.load(label_ptr + row * n + cols, mask=mask)
    tl.store(ge_ptr + row * n + cols, x >= limit, mask=mask)
    tl.store(chosen_ptr + row * n + cols, tl.where(label == 1.0, x, limit), mask=mask)
    shrunk = tl.where(tl.abs(limit) > 0.25, limit, 0.0)
    tl.store(shrunk_ptr + cols, shrunk, mask=mask & (row == 0))

class ModelNew(nn.Module):
    def forward(self, x, limit, label):
        chosen, shrunk = torch.empty_like(label), torch.empty_like(limit)
        ge = torch.empty_like(label, dtype=torch.bool)
        grid, n = (x.shape[0],), limit.shape[0]
        label = label.contiguous()
        compare_kernel[grid](x, limit, label, ge, chosen, shrunk, n, BLOCK=128)
        return ge, chosen, shrunk
""",
    {
        "equal inputs": ("x >= limit", "x > limit"),
        "a label that nothing looks for": ("label == 1.0, x", "label == 2.0, x"),
        "on the threshold": ("tl.abs(limit) > 0.25", "tl.abs(limit) >= 0.25"),
    },
)

PAIRS = {
    "softmax": SOFTMAX,
    "layer_norm": LAYER_NORM,
    "linear": LINEAR,
    "attention": ATTENTION,
    "segment_sum": SEGMENT_SUM,
    "library": LIBRARY,
    "reductions": REDUCTIONS,
    "autotuned": AUTOTUNED,
    "comparisons": COMPARISONS,
}
