# %% reference
import torch
from torch import nn

routes = 90


class Model(nn.Module):
    """Where the routes of every expert begin, if routes are sorted by expert, and where all end."""

    def __init__(self, experts):
        super().__init__()
        self.experts = experts

    def forward(self, chosen):
        expert = torch.arange(self.experts + 1, device=chosen.device)
        return (chosen < expert[:, None]).sum(1).int()


def get_init_inputs():
    return [24]


def get_inputs():
    return [torch.randint(24, (routes,)).sort()[0].int()]


# %% cuda
import torch
from torch import nn

BELOW = """\
auto kept = sglang::cutlass_moe::count_expert_routes<false>;
auto also_kept = sglang::cutlass_moe::compute_expert_offsets<false>;
"""


class ModelNew(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.experts = experts

    def forward(self, chosen):
        small = {"dtype": torch.int32, "device": chosen.device}
        sizes, others = torch.empty(2, self.experts, 3, **small).unbind()
        offsets = torch.empty(self.experts + 1, **small)
        given = [chosen.contiguous(), sizes, others, len(chosen), 64, 32]
        launch_cuda("count_expert_routes", self.experts, 256, given)
        launch_cuda("compute_expert_offsets", 1, 1, [sizes, offsets, None, self.experts])
        return offsets


# %% triton
class ModelNew(torch.nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.experts = experts

    def forward(self, chosen):
        offsets = torch.empty(self.experts + 1, dtype=torch.int32, device=chosen.device)
        given = chosen.contiguous(), offsets, len(chosen)
        _compute_expert_offsets_kernel[(self.experts,)](*given)
        return offsets
