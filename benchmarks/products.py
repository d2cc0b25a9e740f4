"""How fast are our products and convolutions beside the libraries'?

    python benchmarks/products.py make PROGRAMS.jsonl
    python benchmarks/products.py time PROGRAMS.jsonl RESULT.json

``make`` needs no GPU: it has the generator print a program for each of the modules below. ``time``
needs a GPU, torch and triton: it times eager PyTorch and the program on the same inputs, in float32
and in bfloat16, and writes milliseconds, the ratio (above 1 the program is faster), TFLOP/s, and
the largest difference from eager in float64, beside that of eager itself. PyTorch uses no TF32, as
by default; its convolutions use none either.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def module(forward: str, inputs: str, init: str = "pass", names: str = "x") -> str:
    """Return a file in KernelBench's form."""
    return MODULE.format(forward=forward, inputs=inputs, init=init, names=names)


def conv(text: str, shape: str) -> str:
    """Return a module of one convolution."""
    return module("self.c(x)", f"torch.randn({shape})", f"self.c = nn.{text}")


def product(m: int, k: int, n: int) -> str:
    """Return a module of one product, whose second factor lies as a layer's weight does."""
    return module("x @ y.t()", f"torch.randn({m}, {k}), torch.randn({n}, {k})", names="x, y")


def attention(heads: int, head_size: int, length: int, causal: bool, key_heads: int = 0) -> str:
    """Return a module of fused attention, batch 4, whose queries may share keys and values."""
    few = key_heads or heads
    inputs = ", ".join(f"torch.randn(4, {n}, {length}, {head_size})" for n in (heads, few, few))
    more = ", enable_gqa=True" if key_heads else ""
    forward = f"F.scaled_dot_product_attention(q, k, v, is_causal={causal}{more})"
    return module(forward, inputs, names="q, k, v")


MODULES = {
    "mm 4096": product(4096, 4096, 4096),
    "mm 1024x8192x8192": product(1024, 8192, 8192),
    "mm 512": product(512, 512, 512),
    "mm 128x1024x1024": product(128, 1024, 1024),
    "mm 256x524288x256": product(256, 524288, 256),
    "mm 8x4096x4096": product(8, 4096, 4096),
    "bmm 64x1024x64": module(
        "x @ y", "torch.randn(64, 1024, 64), torch.randn(64, 64, 1024)", names="x, y"
    ),
    "linear and gelu": module(
        "F.gelu(self.fc(x))", "torch.randn(8192, 1024)", "self.fc = nn.Linear(1024, 4096)"
    ),
    "conv2d 3x3": conv("Conv2d(64, 128, 3, padding=1)", "64, 64, 56, 56"),
    "conv2d 3x3 deep": conv("Conv2d(512, 512, 3, padding=1)", "64, 512, 14, 14"),
    "conv2d 7x7 strided": conv("Conv2d(3, 64, 7, stride=2, padding=3)", "64, 3, 224, 224"),
    "conv2d 1x1": conv("Conv2d(256, 512, 1)", "64, 256, 28, 28"),
    "conv2d in groups": conv("Conv2d(256, 256, 3, padding=1, groups=8)", "64, 256, 28, 28"),
    "conv2d depthwise": conv("Conv2d(256, 256, 3, padding=1, groups=256)", "64, 256, 56, 56"),
    "conv1d": conv("Conv1d(128, 256, 5)", "64, 128, 4096"),
    "conv3d": conv("Conv3d(32, 64, 3, padding=1)", "8, 32, 32, 32, 32"),
    "conv_transpose2d": conv("ConvTranspose2d(128, 64, 4, stride=2, padding=1)", "64, 128, 28, 28"),
    "attention 64": attention(16, 64, 2048, causal=False),
    "attention 64 causal": attention(16, 64, 2048, causal=True),
    "attention 128 causal": attention(16, 128, 2048, causal=True),
    "attention 80": attention(16, 80, 1024, causal=False),
    "attention grouped causal": attention(32, 128, 1024, causal=True, key_heads=8),
    "attention written out": module(
        "torch.softmax(q @ k.transpose(-2, -1) * 0.125, dim=-1) @ v",
        "torch.randn(4, 16, 1024, 64), torch.randn(4, 16, 1024, 64), torch.randn(4, 16, 1024, 64)",
        names="q, k, v",
    ),
}


def make(given: argparse.Namespace) -> None:
    """Write the programs."""
    from curate.generator.generate import generate

    with given.programs.open("w", encoding="utf-8") as file:
        for name, reference in MODULES.items():
            row = {"id": name, "reference": reference, "triton": generate(reference).text}
            file.write(json.dumps(row) + "\n")
    print(f"{len(MODULES)} programs")


def load(text: str, name: str) -> dict[str, Any]:
    """Run a program's text, which Triton has to find in a file."""
    import importlib.util
    import tempfile

    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return vars(found)


def measured(row: dict[str, str], kind: str) -> dict[str, Any]:
    """Return the figures of one program in one type."""
    import torch
    import triton
    from torch.utils.flop_counter import FlopCounterMode

    dtype = getattr(torch, kind)
    reference, program = load(row["reference"], "reference"), load(row["triton"], "program")
    torch.manual_seed(0)
    inputs = [x.cuda().to(dtype) for x in reference["get_inputs"]()]
    eager = reference["Model"]().cuda().to(dtype)
    ours = program["ModelNew"]().cuda().to(dtype)
    ours.load_state_dict(eager.state_dict())
    with FlopCounterMode(display=False) as counter:
        own = eager(*inputs)
    found = ours(*inputs)
    exact = eager.double()(*(x.double() for x in inputs))
    eager.to(dtype)
    size = float(exact.abs().mean())
    figures: dict[str, Any] = {"id": row["id"], "dtype": kind}
    for who, result in (("eager", own), ("ours", found)):
        figures[f"{who}_error"] = float((result.double() - exact).abs().max()) / size
    del own, found, exact
    for who, model in (("eager", eager), ("ours", ours)):
        times = [
            triton.testing.do_bench(lambda model=model: model(*inputs), return_mode="median")
            for _ in range(3)
        ]
        figures[f"{who}_ms"] = round(statistics.median(times), 5)
    figures["ratio"] = round(figures["eager_ms"] / figures["ours_ms"], 3)
    figures["tflops"] = round(counter.get_total_flops() / figures["ours_ms"] / 1e9, 1)
    return figures


def time_all(given: argparse.Namespace) -> None:
    """Time every program, and write the figures after each."""
    import torch
    import triton

    torch.set_grad_enabled(False)
    torch.backends.cudnn.allow_tf32 = False
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "measured": [],
    }
    for line in given.programs.read_text(encoding="utf-8").splitlines():
        for kind in ("float32", "bfloat16"):
            row = json.loads(line)
            try:
                figures = measured(row, kind)
            except Exception as error:
                figures = {"id": row["id"], "dtype": kind, "failed": repr(error)[:500]}
            print(json.dumps(figures), flush=True)
            report["measured"].append(figures)
            given.result.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            torch.cuda.empty_cache()


def main() -> None:
    """Make programs, or time them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make", help="write the programs; needs no GPU")
    making.add_argument("programs", type=Path)
    making.set_defaults(run=make)
    timing = commands.add_parser("time", help="time them on this machine's GPU")
    timing.add_argument("programs", type=Path)
    timing.add_argument("result", type=Path)
    timing.set_defaults(run=time_all)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
