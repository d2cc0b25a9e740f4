"""Product of float16 activations and int8 weights with a scale for each column."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

rows = 35


class Model(nn.Module):
    def forward(self, x, weight, scale):
        return ((x.float() @ weight.float()) * scale.float()).half()


def get_inputs():
    weight = torch.randint(-127, 128, (80, 45), dtype=torch.int8)
    return [torch.randn(rows, 80).half(), weight, torch.rand(45).half() / 50]


def get_init_inputs():
    return []


@triton.jit
def dequant_matmul_kernel(
    x_ptr,
    weight_ptr,
    scale_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        across = start + tl.arange(0, BLOCK_K)[None, :]
        down = start + tl.arange(0, BLOCK_K)[:, None]
        x = tl.load(x_ptr + rows * K + across, mask=(rows < M) & (across < K), other=0.0)
        weight = tl.load(weight_ptr + down * N + cols, mask=(down < K) & (cols < N), other=0)
        acc += tl.dot(x, weight.to(tl.float16))
    scale = tl.load(scale_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    out = acc * scale
    tl.store(out_ptr + rows * N + cols, out.to(tl.float16), mask=(rows < M) & (cols < N))


class ModelNew(nn.Module):
    def forward(self, x, weight, scale):
        m, k = x.shape
        n = weight.shape[1]
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
        dequant_matmul_kernel[grid](
            x, weight, scale, out, m, n, k, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32
        )
        return out
