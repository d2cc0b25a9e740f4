"""Counts of values in equal bins, added atomically."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

count = 1000


class Model(nn.Module):
    def forward(self, x):
        bins = torch.clamp(torch.floor((x + 2.0) * 5.0), 0, 19).long()
        return torch.bincount(bins, minlength=20)


def get_inputs():
    return [torch.randn(count)]


def get_init_inputs():
    return []


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, n, low, per_unit, bins, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    place = tl.floor((x - low) * per_unit)
    place = tl.minimum(tl.maximum(place, 0.0), bins - 1.0).to(tl.int32)
    ones = tl.full([BLOCK], 1, tl.int64)
    tl.atomic_add(counts_ptr + place, ones, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        counts = torch.zeros(20, device=x.device, dtype=torch.int64)
        grid = (triton.cdiv(x.numel(), 128),)
        histogram_kernel[grid](x, counts, x.numel(), -2.0, 5.0, 20, BLOCK=128)
        return counts
