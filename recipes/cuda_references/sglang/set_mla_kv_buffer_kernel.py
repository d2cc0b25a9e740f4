# %% reference
import torch
from torch import nn

tokens = 11


class Model(nn.Module):
    """Puts both parts of every token's compressed key into its row of a cache; row 0 is no row."""

    def forward(self, cache, parts, rotated, rows):
        kept = rows != 0
        out = cache.clone()
        out[rows[kept]] = torch.cat([parts, rotated], 1)[kept]
        return out


def get_init_inputs():
    return []


def get_inputs():
    cache, parts = torch.randn(150, 576).half(), torch.randn(tokens, 512).half()
    rows = 1 + torch.randperm(149)[:tokens]
    rows[torch.rand(tokens) < 0.2] = 0
    return [cache, parts, torch.randn(tokens, 64).half(), rows]


# %% cuda
import torch
from torch import nn

ABOVE = "#define SGL_CUDA_ARCH 900"
BELOW = "auto kept = sglang::set_mla_kv_buffer_kernel<1024, 128, false, int64_t>;"


class ModelNew(nn.Module):
    def forward(self, cache, parts, rotated, rows):
        cache = cache.contiguous().clone()
        given = parts.contiguous(), rotated.contiguous(), cache, rows.contiguous()
        steps = 1024, 128, 2 * 576
        launch_cuda(
            "set_mla_kv_buffer_kernel",
            -(-len(rows) // 8),
            (32, 8),
            [("PPPPqqqIq", *given, *steps, len(rows), 0)],
        )
        return cache


# %% triton
import torch


class ModelNew(torch.nn.Module):
    def forward(self, cache, parts, rotated, rows):
        cache = cache.contiguous().clone()
        given = cache, parts.contiguous(), rotated.contiguous(), rows.contiguous()
        set_mla_kv_buffer_kernel[(len(rows), 5)](
            *(*given, 0, 576, 512, 64, 512, 64),
            BLOCK=128,
            DCP_RANK=0,
            DCP_WORLD_SIZE=1,
        )
        return cache
