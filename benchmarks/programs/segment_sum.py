"""Rows added into the rows that an index names."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

count = 60


class Model(nn.Module):
    def forward(self, x, index):
        return torch.zeros(9, 20, dtype=x.dtype, device=x.device).index_add(0, index, x)


def get_inputs():
    return [torch.randn(count, 20), torch.randint(0, 9, (count,))]


def get_init_inputs():
    return []


@triton.jit
def segment_sum_kernel(x_ptr, index_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    to = tl.load(index_ptr + row)
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + to * n_cols + cols, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, index):
        x = x.contiguous()
        out = torch.zeros((9, x.shape[1]), device=x.device, dtype=torch.float32)
        segment_sum_kernel[(x.shape[0],)](x, index, out, x.shape[1], BLOCK=32)
        return out
