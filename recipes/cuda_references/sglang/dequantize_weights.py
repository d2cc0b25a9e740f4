# %% reference
import torch
from torch import nn

groups = 4


class Model(nn.Module):
    """Weights of 4 bits, eight in an integer in AWQ's order, with a scale and a zero a group."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shifts", 4 * torch.tensor([0, 4, 1, 5, 2, 6, 3, 7]), False)

    def unpack(self, packed):
        return (packed[..., None] >> self.shifts & 15).flatten(1)

    def forward(self, weights, scales, zeros):
        rows = len(weights) // len(scales)
        zeros = self.unpack(zeros).repeat_interleave(rows, 0)
        return (self.unpack(weights) - zeros) * scales.repeat_interleave(rows, 0)


def get_init_inputs():
    return []


def get_inputs():
    bits = {"low": -(2**31), "high": 2**31, "dtype": torch.int32}
    weights = torch.randint(size=(32 * groups, 16), **bits)
    zeros = torch.randint(size=(groups, 16), **bits)
    return [weights, torch.rand(groups, 128).half(), zeros]


# %% cuda
import torch
from torch import nn

ABOVE = "#define SGL_CUDA_ARCH 900"
BELOW = "auto kept = sglang::device::awq::dequantize_weights<half>;"


class ModelNew(nn.Module):
    def forward(self, weights, scales, zeros):
        rows, columns = weights.shape
        out = torch.empty(rows, 8 * columns, dtype=scales.dtype, device=scales.device)
        launch_cuda(
            "dequantize_weights",
            (-(-columns // 16), -(-rows // 16)),
            (16, 16),
            [
                *(weights.contiguous(), scales.contiguous(), zeros.contiguous()),
                *(out, rows // len(scales), columns, rows),
            ],
        )
        return out


# %% triton
class ModelNew(torch.nn.Module):
    def forward(self, weights, scales, zeros):
        return awq_dequantize_triton(weights.contiguous(), scales.contiguous(), zeros.contiguous())
