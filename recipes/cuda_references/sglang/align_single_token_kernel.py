# %% reference
import torch
from torch import nn


class Model(nn.Module):
    """Gives each expert of one token a block of slots, by expert, of which the first is taken."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, experts):
        count = experts.shape[1]
        ordered, slot = experts[0].sort()
        blocks = torch.full((count, self.block), count, dtype=torch.int32, device=experts.device)
        blocks[:, 0] = slot
        used = torch.tensor([count * self.block], dtype=torch.int32, device=experts.device)
        return blocks.flatten(), ordered, used


def get_init_inputs():
    return [16]


def get_inputs():
    return [torch.randperm(64)[None, :8].int()]


# %% cuda
import torch
from torch import nn

BELOW = "auto kept = sglang::align_single_token_kernel<false, false>;"


class ModelNew(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, experts):
        count, small = experts.shape[1], {"dtype": torch.int32, "device": experts.device}
        blocks = torch.empty(count * self.block, **small)
        ordered, used = torch.empty(count, **small), torch.empty(1, **small)
        given = experts.contiguous(), blocks, ordered, used, count, self.block
        launch_cuda("align_single_token_kernel", 1, 32, [("PPPPII", *given)])
        return blocks, ordered, used


# %% triton
class ModelNew(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, experts):
        return moe_align_single_token(experts.contiguous(), self.block)
