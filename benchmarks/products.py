"""Write 100 products, convolutions and attentions, at sizes that fill a GPU, with our programs.

    python benchmarks/products.py PAIRS.jsonl
    python benchmarks/real_sizes.py PAIRS.jsonl --mib 0 --warm 15 --seconds 500

The second command needs a GPU: it times PyTorch's eager mode, which calls cuBLAS, cuDNN and its
fused attention, and the programs. Half of the modules are in float32, without TF32 on either side,
half in bfloat16; ``kind`` says which, and of what.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
        self.to({dtype})

    def forward(self, {names}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

Module = tuple[str, str, str, str]
"""What the module returns, its inputs' shapes, the layers it has, and its inputs' names."""


def product(m: int, k: int, n: int, forward: str = "x @ y.t()") -> Module:
    """Return a product of matrices; a second factor that is transposed lies as a weight does."""
    shapes = f"{f'{k}, {m}' if 'x.t()' in forward else f'{m}, {k}'}; "
    shapes += f"{n}, {k}" if "y.t()" in forward else f"{k}, {n}"
    return forward, shapes, "pass", "x, y"


def linear(rows: int, k: int, n: int, forward: str) -> Module:
    """Return a linear layer and what is done with its result."""
    more = f"; {rows}, {n}" if "residual" in forward else ""
    names = "x, residual" if more else "x"
    return forward, f"{rows}, {k}{more}", f"self.fc = nn.Linear({k}, {n})", names


def conv(layer: str, shape: str, forward: str = "self.conv(x)") -> Module:
    """Return a convolution and what is done with its result."""
    return forward, shape, f"self.conv = nn.{layer}", "x"


def attention(
    heads: int, size: int, length: int, more: str = "", key_heads: int = 0, keys: int = 0
) -> Module:
    """Return fused attention, batch 4, whose queries may share keys and values."""
    few = key_heads or heads
    more += ", enable_gqa=True" if key_heads else ""
    shapes = f"4, {heads}, {length}, {size}" + 2 * f"; 4, {few}, {keys or length}, {size}"
    return f"F.scaled_dot_product_attention(q, k, v{more})", shapes, "pass", "q, k, v"


CAUSAL = ", is_causal=True"

MODULES = {
    "product": [
        product(4096, 4096, 4096),
        product(4096, 4096, 4096, "x @ y"),
        product(4096, 4096, 4096, "x.t() @ y"),
        product(1024, 8192, 8192),
        product(8192, 1024, 4096),
        product(16384, 768, 3072),
        product(16384, 3072, 768),
        product(2048, 5120, 13824),
        product(256, 524288, 256),
        product(8, 8192, 8192),
        product(64, 8192, 8192),
        product(3000, 5000, 2000),
        ("x @ y", "64, 1024, 64; 64, 64, 1024", "pass", "x, y"),
        ("torch.bmm(x, y.transpose(1, 2))", "128, 512, 256; 128, 512, 256", "pass", "x, y"),
        linear(8192, 1024, 4096, "F.gelu(self.fc(x))"),
        linear(8192, 4096, 1024, "self.fc(x) + residual"),
        linear(16384, 768, 768, "torch.relu(self.fc(x))"),
        linear(4096, 4096, 11008, "F.silu(self.fc(x))"),
        linear(32768, 512, 512, "torch.sigmoid(self.fc(x)) * 2"),
    ],
    "convolution": [
        conv("Conv2d(64, 128, 3, padding=1)", "64, 64, 56, 56"),
        conv("Conv2d(128, 128, 3, padding=1)", "64, 128, 28, 28"),
        conv("Conv2d(256, 256, 3, padding=1)", "128, 256, 14, 14"),
        conv("Conv2d(512, 512, 3, padding=1)", "128, 512, 14, 14"),
        conv("Conv2d(128, 256, 3, stride=2, padding=1)", "128, 128, 56, 56"),
        conv("Conv2d(3, 64, 7, stride=2, padding=3)", "64, 3, 224, 224"),
        conv("Conv2d(3, 768, 16, stride=16)", "128, 3, 224, 224"),
        conv("Conv2d(256, 512, 1)", "64, 256, 28, 28"),
        conv("Conv2d(1024, 256, 1)", "128, 1024, 14, 14"),
        conv("Conv2d(256, 256, 3, padding=1, groups=8)", "64, 256, 28, 28"),
        conv("Conv2d(256, 256, 3, padding=1, groups=256)", "64, 256, 56, 56"),
        conv("Conv2d(96, 96, 7, padding=3, groups=96)", "64, 96, 56, 56"),
        conv("Conv2d(64, 64, 3, padding=2, dilation=2)", "64, 64, 112, 112"),
        conv("Conv2d(64, 128, 3, padding=1)", "64, 64, 56, 56", "torch.relu(self.conv(x))"),
        conv("Conv1d(128, 256, 5)", "64, 128, 4096"),
        conv("Conv1d(512, 512, 3, padding=1)", "32, 512, 1500"),
        conv("Conv3d(32, 64, 3, padding=1)", "8, 32, 32, 32, 32"),
        conv("ConvTranspose2d(128, 64, 4, stride=2, padding=1)", "64, 128, 28, 28"),
    ],
    "attention": [
        attention(16, 64, 2048),
        attention(16, 64, 2048, CAUSAL),
        attention(12, 64, 1024),
        attention(32, 64, 4096, CAUSAL),
        attention(16, 128, 2048),
        attention(16, 128, 2048, CAUSAL),
        attention(32, 128, 4096, CAUSAL),
        attention(16, 80, 1024),
        attention(16, 96, 2048, CAUSAL),
        attention(32, 128, 1024, CAUSAL, key_heads=8),
        attention(16, 64, 1024, keys=4096),
        attention(16, 32, 2048),
        (
            "torch.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1) @ v",
            "; ".join(["4, 16, 1024, 64"] * 3),
            "pass",
            "q, k, v",
        ),
    ],
}


def reference(module: Module, dtype: str) -> str:
    """Return a file in KernelBench's form."""
    forward, shapes, init, names = module
    inputs = ", ".join(f"torch.randn({shape}, dtype={dtype})" for shape in shapes.split("; "))
    return MODULE.format(forward=forward, inputs=inputs, init=init, names=names, dtype=dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    given = parser.parse_args()
    from curate.generator.generate import generate

    with given.pairs.open("w", encoding="utf-8") as file:
        for kind, modules in MODULES.items():
            for module in modules:
                for dtype in ("float32", "bfloat16"):
                    text = reference(module, f"torch.{dtype}")
                    layer = "" if module[2] == "pass" else f" {module[2].partition('nn.')[2]}"
                    row = {
                        "id": f"{dtype}: {module[0]} ({module[1]}){layer}",
                        "kind": f"{kind}, {dtype}",
                        "reference": text,
                        "triton": generate(text).text,
                    }
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
