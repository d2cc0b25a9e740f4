# %% reference
import torch
from torch import nn

tokens = 12


class Model(nn.Module):
    """Adds a residual, and divides the sum, as it is rounded, by its root mean square."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, residual, weight):
        total = x + residual
        wide = total.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * weight.float()).to(x.dtype), total


def get_init_inputs():
    return [1e-5]


def get_inputs():
    x, residual = torch.randn(2, tokens, 192).half()
    return [x, residual, torch.randn(192).half()]


# %% cuda
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, residual, weight):
        # Both are overwritten.
        out = torch.empty_like(x, memory_format=torch.contiguous_format).copy_(x)
        total = torch.empty_like(out).copy_(residual)
        tokens, width = out.shape
        launch_cuda(
            "fused_add_rms_norm_kernelIN3c104HalfELi8ELb1E",
            tokens,
            min(width, 1024),
            [out, width, total, weight.contiguous(), self.eps, tokens, width, width],
        )
        return out, total


# %% triton
class ModelNew(torch.nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x, residual, weight):
        return add_rmsnorm(residual.contiguous(), x.contiguous(), weight.contiguous(), self.eps)
