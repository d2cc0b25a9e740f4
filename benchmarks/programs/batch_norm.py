"""Batch normalisation by running statistics, and leaky ReLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

batch_size = 3


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.leaky_relu(self.norm(x), 0.2)


def get_inputs():
    return [torch.randn(batch_size, 7, 9, 11)]


def get_init_inputs():
    return [7]


@triton.jit
def batch_norm_kernel(
    x_ptr,
    mean_ptr,
    var_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    channels,
    pixels,
    eps,
    n,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    channel = (offsets // pixels) % channels
    x = tl.load(x_ptr + offsets, mask=mask)
    mean = tl.load(mean_ptr + channel, mask=mask)
    var = tl.load(var_ptr + channel, mask=mask)
    weight = tl.load(weight_ptr + channel, mask=mask)
    bias = tl.load(bias_ptr + channel, mask=mask)
    out = (x - mean) / tl.sqrt(var + eps) * weight + bias
    tl.store(out_ptr + offsets, tl.where(out > 0, out, 0.2 * out), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        norm = self.norm
        n = x.numel()
        batch_norm_kernel[(triton.cdiv(n, 256),)](
            x,
            norm.running_mean,
            norm.running_var,
            norm.weight,
            norm.bias,
            out,
            x.shape[1],
            x.shape[2] * x.shape[3],
            1e-5,
            n,
            BLOCK=256,
        )
        return out
