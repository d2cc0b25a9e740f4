"""Programs whose parts the tests look for."""

KERNELS = '''"""Scale the rows of a matrix."""
import torch
import triton
import triton.language as tl


@triton.jit
def _clip(x, LIMIT: tl.constexpr):
    return tl.minimum(tl.maximum(x, -LIMIT), LIMIT)


@triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n_cols"])
@triton.jit
def scale_rows(x_ptr, scale_ptr, n_cols, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    # one program a row
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    values = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    factor = tl.load(scale_ptr + row)
    tl.store(x_ptr + row * n_cols + cols, _clip(values * factor, LIMIT), mask=cols < n_cols)


def scale(x, factors):
    rows, n_cols = x.shape
    grid = (rows,)
    scale_rows[grid](x, factors, n_cols, LIMIT=4.0)
    assert x.is_contiguous() and factors.numel() == rows and factors.device == x.device
    return x
'''

MODULE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width: int, groups: int) -> None:
        super(Model, self).__init__()
        self.norm = nn.GroupNorm(groups, width)
        self.gate = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(x)
        return torch.sigmoid(self.gate(hidden)) * hidden + x

width = 64

def get_inputs():
    return [torch.rand(16, width), torch.rand(16, width), torch.rand(16, width), torch.rand(16, 1)]

def get_init_inputs():
    return [width, 8]
"""
