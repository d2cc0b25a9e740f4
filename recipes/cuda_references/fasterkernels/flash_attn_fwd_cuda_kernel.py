# %% reference
import torch
from torch import nn

keys = 80


class Model(nn.Module):
    """Attention of every query to every key."""

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores, -1) @ v


def get_init_inputs():
    return []


def get_inputs():
    q = torch.randn(2, 3, 70, 64).half()
    k, v = torch.randn(2, 2, 3, keys, 64).half()
    return [q, k, v]


# %% cuda
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        batch, heads, queries, depth = q.shape
        launch_cuda(
            "flash_attn_fwd_cuda_kernelILi64E",
            (-(-queries // 64), batch * heads),
            64,
            [
                *(q, k, v, depth**-0.5, out, batch, heads, queries, k.shape[2]),
                *(*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3]),
            ],
        )
        return out


# %% triton
class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return flash_attention_2_fwd(q.contiguous(), k.contiguous(), v.contiguous())
