"""Rows quantised to int8 by their largest magnitude, with the scales."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

batch_size = 17


class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(dim=1, keepdim=True).clamp(min=1e-6) / 127.0
        return torch.clamp(torch.floor(x / scale + 0.5), -127, 127).to(torch.int8), scale


def get_inputs():
    return [torch.randn(batch_size, 140)]


def get_init_inputs():
    return []


@triton.jit
def quantize_kernel(x_ptr, out_ptr, scale_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(x), axis=0), 1e-6), 127.0)
    rounded = tl.floor(tl.div_rn(x, scale) + 0.5)
    clamped = tl.minimum(tl.maximum(rounded, -127.0), 127.0)
    tl.store(out_ptr + row * n_cols + cols, clamped.to(tl.int8), mask=mask)
    tl.store(scale_ptr + row, scale)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape, device=x.device, dtype=torch.int8)
        scale = torch.empty((x.shape[0], 1), device=x.device, dtype=torch.float32)
        quantize_kernel[(x.shape[0],)](x, out, scale, x.shape[1], BLOCK=256)
        return out, scale
