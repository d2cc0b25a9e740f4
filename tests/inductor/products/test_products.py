"""Products and convolutions as kernels: right at other sizes, in other types and layouts."""

import re

import pytest

from curate.inductor.configurations import compile_reference
from curate.inductor.standalone import rewrite
from curate.verify.judge.slots import verify
from curate.verify.verdict import Candidate, Options

pytestmark = pytest.mark.slow  # PyTorch's compiler runs several times for every module


def module(forward: str, inputs: str, init: str = "self.scale = 1.0", names: str = "x") -> str:
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=24, out=40):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [24, 40]
"""


LINEAR = "self.fc = nn.Linear(width, out)"
MODULES = {
    "mm": module("x @ y", "torch.randn(70, 33), torch.randn(33, 50)", names="x, y"),
    "transposed": module("x.t() @ y.t()", "torch.randn(33, 70), torch.randn(50, 33)", names="x, y"),
    "linear": module("torch.relu(self.fc(x)) * 2", "torch.randn(3, 20, 24)", LINEAR),
    "a vector": module("x @ y", "torch.randn(40, 30), torch.randn(30, 1)", names="x, y"),
    "epilogue": module("torch.relu(self.fc(x)) * 2", "torch.randn(30, 24)", LINEAR),
    "fused rows": module("F.softmax(self.fc(x), -1)", "torch.randn(30, 24)", LINEAR),
    "two": module(
        "F.gelu(self.fc(x)) @ y", "torch.randn(9, 24), torch.randn(40, 7)", LINEAR, "x, y"
    ),
    "heads": module(
        "torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v",
        "torch.randn(2, 3, 20, 16), torch.randn(2, 3, 18, 16), torch.randn(2, 3, 18, 10)",
        names="q, k, v",
    ),
    "with a sum": module(
        "torch.baddbmm(x, a, b)",
        "torch.randn(4, 6, 5), torch.randn(4, 6, 8), torch.randn(4, 8, 5)",
        names="x, a, b",
    ),
    "conv1d": module(
        "self.c(x)", "torch.randn(3, 6, 50)", "self.c = nn.Conv1d(6, 24, 4, stride=3)"
    ),
    "conv2d": module(
        "torch.relu(self.c(x))",
        "torch.randn(2, 5, 12, 14)",
        "self.c = nn.Conv2d(5, 40, 3, padding=1)",
    ),
    "every number": module(
        "self.c(x)",
        "torch.randn(2, 8, 13, 14)",
        "self.c = nn.Conv2d(8, 32, (3, 5), (2, 1), (0, 2), (1, 2), groups=2, bias=False)",
    ),
    "conv3d": module(
        "self.c(x)", "torch.randn(2, 3, 6, 7, 8)", "self.c = nn.Conv3d(3, 16, 3, padding=1)"
    ),
    "channels of the constructor": module(
        "torch.relu(self.c(x)) + self.c.weight.shape[0]",
        "torch.randn(2, 24, 9)",
        "self.c = nn.Conv1d(width, out, 1)",
    ),
    "depthwise": module(
        "F.gelu(self.c(x))",
        "torch.randn(2, 8, 9, 10)",
        "self.c = nn.Conv2d(8, 8, 3, padding=1, groups=8)",
    ),
    "two a group": module(
        "self.c(x)", "torch.randn(2, 4, 9, 10)", "self.c = nn.Conv2d(4, 8, 3, groups=4)"
    ),
    "transposed with every number": module(
        "torch.tanh(self.c(x))",
        "torch.randn(2, 6, 17)",
        "self.c = nn.ConvTranspose1d(6, 20, 3, 2, 1, output_padding=1, dilation=2)",
    ),
    "transposed in groups": module(
        "self.c(x)", "torch.randn(2, 4, 5, 5)", "self.c = nn.ConvTranspose2d(4, 40, 3, 2, groups=2)"
    ),
    "a size named M": module("M @ K", "torch.randn(17, 20), torch.randn(20, 19)", names="M, K"),
}


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    found = {}
    for name, reference in MODULES.items():
        made = compile_reference(reference, "cuda:90", own_products=True)
        program = rewrite(reference, made.code, made.spec)
        assert not program.extern_calls, name
        found[name] = program.text
    return found


def judged(pairs: dict[str, tuple[str, str]]) -> dict[str, str]:
    candidates = [Candidate(name, *pair) for name, pair in pairs.items()]
    options = Options(backend="cpu", workers=2, draw_seed=1)
    found = {verdict.id: verdict for verdict in verify(candidates, options)}
    return {name: f"{v.status} {v.reason or ''}".strip() for name, v in found.items()}


def test_products_are_right(programs: dict[str, str]) -> None:
    pairs = {name: (MODULES[name], text) for name, text in programs.items()}
    assert judged(pairs) == dict.fromkeys(MODULES, "correct")


def test_products_are_right_in_other_sizes_and_types(programs: dict[str, str]) -> None:
    changed = {
        "mm": MODULES["mm"].replace("70, 33", "130, 257").replace("33, 50", "257, 65"),
        "linear": MODULES["linear"].replace("return [24, 40]", "return [72, 20]"),
        "two": MODULES["two"].replace("9, 24), torch.randn(40, 7", "5, 24), torch.randn(40, 70"),
    }
    changed["linear"] = changed["linear"].replace("3, 20, 24", "2, 150, 72")
    half = {
        f"{name} in half": re.sub(r"(randn\([\d, ]+)\)", r"\1, dtype=torch.bfloat16)", reference)
        for name, reference in MODULES.items()
        if name in ("mm", "transposed", "with a sum")
    }
    pairs = {
        name: (text, programs[name.removesuffix(" in half")])
        for name, text in (changed | half).items()
    }
    assert judged(pairs) == dict.fromkeys(pairs, "correct")


IN_PLACE = ("depthwise", "two a group")
"""Convolutions of so few channels that each place under the filter is a term of a sum."""


def test_a_product_reads_like_one(programs: dict[str, str]) -> None:
    for name, text in programs.items():
        if name in IN_PLACE:
            assert "tl.dot" not in text and len(re.findall(r"tl\.load\([\s(]*x_ptr", text)) == 9
            assert re.search(r"def depthwise_conv\w*_kernel\(", text), name
            continue
        assert "tl.dot(a, b, acc" in text, name
        assert '@triton.autotune(configs=PRODUCT_CONFIGS, key=["M", "N", "K"])' in text, name
        assert text.count("PRODUCT_CONFIGS = [") == 1, name
        assert "* 1 " not in text, name
        grids = [line for line in text.splitlines() if "lambda meta" in line]
        assert grids and all(line.endswith("grid = lambda meta: (") for line in grids), name
    assert "maximum(acc + bias, 0.0)" in programs["conv2d"], "what follows is in the same kernel"
    assert "tl.store(out_ptr + offsets, out, mask=mask)" in programs["conv2d"]
    assert "maximum(acc + bias, 0.0) * 2.0" in programs["epilogue"]
    assert "def matmul_kernel(" in programs["two"], "the second product does no more than that"
    assert "weight_ptr + inner[:, None] + b_cols[None, :] * K" in programs["epilogue"]


def test_sizes_beyond_32_bits_are_passed_as_they_are() -> None:
    reference = module(
        "x @ y", "torch.randn(1 << 16, 1 << 16), torch.randn(1 << 16, 1)", names="x, y"
    )
    made = compile_reference(reference, "cuda:90", own_products=True)
    text = rewrite(reference, made.code, made.spec).text
    assert "INDEX_DTYPE" not in text
    assert "M = batch" in text


def test_integers_and_float64_stay_with_the_library() -> None:
    for dtype in ("torch.float64", "torch.int64"):
        inputs = f"torch.ones(8, 8, dtype={dtype}), torch.ones(8, 8, dtype={dtype})"
        reference = module("(x @ y) + 1", inputs, names="x, y")
        made = compile_reference(reference, "cuda:90", own_products=True, dynamic=False)
        assert made.extern_calls == ("extern_kernels.mm",), dtype
