# %% reference
import torch
from torch import nn

tokens = 9


class Model(nn.Module):
    """Sums for every token the rows that its slots name, each times a weight; -1 names none."""

    def forward(self, rows, places, weights):
        active = (places >= 0) & (places < len(rows))
        chosen = rows.float()[places.clamp(0, len(rows) - 1)]
        weights = torch.where(active, weights, 0.0)[..., None]
        return torch.where(active[..., None], chosen * weights, 0.0).sum(1).to(rows.dtype)


def get_init_inputs():
    return []


def get_inputs():
    places = torch.randint(-1, 40, (tokens, 4))
    return [torch.randn(40, 200).half(), places, torch.rand(tokens, 4)]


# %% cuda
import torch
from torch import nn

BELOW = "auto kept = sglang::shuffle_weighted_sum::reduce<half, float, int64_t, 4, 128, false>;"


class ModelNew(nn.Module):
    def forward(self, rows, places, weights):
        rows, places, weights = rows.contiguous(), places.contiguous(), weights.contiguous()
        tokens, width = len(places), rows.shape[1]
        out = torch.empty(tokens, width, dtype=rows.dtype, device=rows.device)
        launch_cuda(
            "reduce",
            (tokens, -(-width // 256)),
            128,
            [rows, out, places, weights, width, len(rows), width, width, *weights.stride()],
        )
        return out


# %% triton
class ModelNew(torch.nn.Module):
    def forward(self, rows, places, weights):
        rows = rows.contiguous()
        out = torch.empty(len(places), rows.shape[1], dtype=rows.dtype, device=rows.device)
        _shuffle_weighted_sum_triton(rows, out, places.contiguous(), weights.contiguous())
        return out
