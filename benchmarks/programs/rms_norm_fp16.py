"""Root mean square normalisation of float16 rows, computed in float32."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

batch_size = 19


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features, dtype=torch.float16))

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (wide * scale * self.weight.float()).to(x.dtype)


def get_inputs():
    return [torch.randn(batch_size, 200, dtype=torch.float16)]


def get_init_inputs():
    return [200]


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / n_cols
    out = x * tl.rsqrt(mean_square + eps) * weight
    tl.store(out_ptr + row * n_cols + cols, out.to(tl.float16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features, dtype=torch.float16))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        rms_norm_kernel[(x.shape[0],)](x, self.weight, out, x.shape[1], 1e-6, BLOCK=block)
        return out
