# %% reference
import torch
from torch import nn

tokens = 18


class Model(nn.Module):
    """A gate that saturates, times a linear part that saturates elsewhere."""

    def __init__(self, gate_bound, linear_bound):
        super().__init__()
        self.gate_bound, self.linear_bound = gate_bound, linear_bound

    def forward(self, x):
        gate, up = x.float().chunk(2, -1)
        gate = self.gate_bound * torch.tanh(gate / self.gate_bound) * torch.sigmoid(gate)
        return (gate * self.linear_bound * torch.tanh(up / self.linear_bound)).to(x.dtype)


def get_init_inputs():
    return [3.0, 7.0]


def get_inputs():
    return [torch.randn(tokens, 2 * 136).half()]


# %% cuda
import torch
from torch import nn

ABOVE = "#define SGL_CUDA_ARCH 900"
BELOW = "auto kept = sglang::situ_and_mul_kernel<half, half, true, false>;"


class ModelNew(nn.Module):
    def __init__(self, gate_bound, linear_bound):
        super().__init__()
        self.gate_bound, self.linear_bound = gate_bound, linear_bound

    def forward(self, x):
        x = x.contiguous()
        tokens, width = len(x), x.shape[1] // 2
        out = torch.empty(tokens, width, dtype=x.dtype, device=x.device)
        bounds = self.gate_bound, 1 / self.gate_bound, self.linear_bound, 1 / self.linear_bound
        launch_cuda(
            "situ_and_mul_kernel",
            -(-tokens * width // 8 // 256),
            256,
            [("PPffffIII0P", x, out, *bounds, width, tokens, 2 * width // 8)],
        )
        return out


# %% triton
class ModelNew(torch.nn.Module):
    def __init__(self, gate_bound, linear_bound):
        super().__init__()
        self.gate_bound, self.linear_bound = gate_bound, linear_bound

    def forward(self, x):
        out = torch.empty(len(x), x.shape[1] // 2, dtype=x.dtype, device=x.device)
        situ_and_mul(out, x.contiguous(), self.gate_bound, self.linear_bound)
        return out
