"""Group normalisation, one program for each group of each image."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

batch_size = 3


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch_size, 12, 7, 9)]


def get_init_inputs():
    return [4, 12]


@triton.jit
def group_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    groups,
    group_channels,
    pixels,
    eps,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    group = program % groups
    size = group_channels * pixels
    offsets = tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + program * size + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / size
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / size
    channel = group * group_channels + offsets // pixels
    weight = tl.load(weight_ptr + channel, mask=mask)
    bias = tl.load(bias_ptr + channel, mask=mask)
    out = centred * tl.rsqrt(variance + eps) * weight + bias
    tl.store(out_ptr + program * size + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.groups = groups

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out = torch.empty_like(x)
        per_group = channels // self.groups
        block = triton.next_power_of_2(per_group * height * width)
        group_norm_kernel[(batch * self.groups,)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            self.groups,
            per_group,
            height * width,
            1e-5,
            BLOCK=block,
        )
        return out
