# %% reference
import torch
from torch import nn
from torch.nn import functional as F

tokens = 24


class Model(nn.Module):
    """SwiGLU: SiLU of the first half of each row, times the second half."""

    def forward(self, x):
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(tokens, 2 * 144).half()]


# %% cuda
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        width = x.shape[1] // 2
        out = torch.empty(len(x), width, dtype=x.dtype, device=x.device)
        launch_cuda(
            "act_and_mul_kernelIN3c104HalfE7__half2XadL_ZNS_11silu_kernelIS2_EET_RKS5_fEE"
            "XadL_ZNS_18packed_silu_kernelIS3_EES5_S7_fEELb1ELb1ELb0ELb0E",
            len(x),
            min(width // 8, 1024),
            [out, x, width, 0.0, 1.0, 0.0],
        )
        return out


# %% triton
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return beam_silu_mul(x.contiguous())
