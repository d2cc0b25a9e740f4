"""Strided and dilated one-dimensional convolution with bias and SiLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

batch_size = 3


class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, 4, stride=2, dilation=3)

    def forward(self, x):
        return F.silu(self.conv(x))


def get_inputs():
    return [torch.randn(batch_size, 5, 83)]


def get_init_inputs():
    return [5, 7]


@triton.jit
def conv1d_silu_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    channels,
    length,
    filters,
    out_length,
    TAPS: tl.constexpr,
    STRIDE: tl.constexpr,
    DILATION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(1) // filters
    output = tl.program_id(1) % filters
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < out_length
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for channel in range(channels):
        for tap in range(TAPS):
            where = at * STRIDE + tap * DILATION
            x = tl.load(x_ptr + (image * channels + channel) * length + where, mask=mask, other=0.0)
            weight = tl.load(weight_ptr + (output * channels + channel) * TAPS + tap)
            acc += x * weight
    acc += tl.load(bias_ptr + output)
    out = acc * tl.sigmoid(acc)
    tl.store(out_ptr + (image * filters + output) * out_length + at, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, 4, stride=2, dilation=3)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, length = x.shape
        filters = self.conv.out_channels
        out_length = (length - 3 * 3 - 1) // 2 + 1
        out = torch.empty((batch, filters, out_length), device=x.device, dtype=torch.float32)
        grid = (triton.cdiv(out_length, 16), batch * filters)
        conv1d_silu_kernel[grid](
            x,
            self.conv.weight,
            self.conv.bias,
            out,
            channels,
            length,
            filters,
            out_length,
            TAPS=4,
            STRIDE=2,
            DILATION=3,
            BLOCK=16,
        )
        return out
