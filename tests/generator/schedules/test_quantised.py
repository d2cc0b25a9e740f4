"""Products of quantised numbers: judged on the CPU, and read."""

import re

import pytest
import torch
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

REFERENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=64, out=40):
        super().__init__()
        {layers}

    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def reference(body, inputs, layers="self.width = width", names="x"):
    layers, body = (text.replace("; ", "\n        ") for text in (layers, body))
    return REFERENCE.format(body=body, inputs=inputs, layers=layers, names=names)


def buffer(name, draw):
    return f'self.register_buffer("{name}", {draw})'


WHOLE = "torch.randint(-127, 128, ({}), dtype=torch.int8)"
WEIGHT = buffer("weight", WHOLE.format("out, width"))
SCALE = buffer("scale", "torch.rand(out) * 0.01 + 0.001")
BIAS = "self.bias = nn.Parameter(torch.randn(out))"
FLOAT8 = "torch.randn(out, width).to(torch.float8_e4m3fn)"
NIBBLES = buffer("packed", "torch.randint(0, 256, (out, width // 2), dtype=torch.uint8)")
LOADS = {
    **dict.fromkeys(("weight only", "zero points", "float8 weight", "batches"), 2),
    **dict.fromkeys(("nibbles", "groups", "eight in a word", "codebook"), 3),
}
"""How many tensors a tile's products read: the loop over them, for each program of one kernel."""

CASES = {
    "whole numbers": reference(
        "return torch._int_mm(x, y)",
        f"{WHOLE.format('30, 70')}, {WHOLE.format('70, 50')}",
        names="x, y",
    ),
    "scales and bias": reference(
        "sums = torch._int_mm(x, self.weight.t()).float(); "
        "return F.silu(sums * x_scale[:, None] * self.scale + self.bias).to(torch.bfloat16)",
        f"{WHOLE.format('30, 64')}, torch.rand(30) * 0.01",
        f"{WEIGHT}; {SCALE}; {BIAS}",
        "x, x_scale",
    ),
    "dynamic": reference(
        "x_scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-6) / 127.0; "
        "rounded = (x / x_scale).round().clamp(-128, 127).to(torch.int8); "
        "return torch._int_mm(rounded, self.weight.t()) * x_scale * self.scale",
        "torch.randn(30, 64)",
        f"{WEIGHT}; {SCALE}",
    ),
    "weight only": reference(
        "return F.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype)[:, None], self.bias)",
        "torch.randn(30, 64)",
        f"{WEIGHT}; {SCALE}; {BIAS}",
    ),
    "zero points": reference(
        "return F.silu(x @ ((self.weight.to(x.dtype) - self.zero[:, None]) * self.scale).t())",
        "torch.randn(2, 20, 64, dtype=torch.bfloat16)",
        f"{WEIGHT}; {buffer('zero', WHOLE.format('out,'))}; self.scale = 0.01",
    ),
    "one row": reference(
        "return x @ (self.weight.to(x.dtype) * self.scale[:, None]).t()",
        "torch.randn(1, 64)",
        f"{WEIGHT}; {SCALE}",
    ),
    "float8 weight": reference(
        "return F.relu(x @ self.weight.to(x.dtype).t()) * self.scale",
        "torch.randn(30, 64, dtype=torch.float16)",
        f"{buffer('weight', 'torch.randn(out, width).to(torch.float8_e5m2)')}; {SCALE}",
    ),
    "float8 of both": reference(
        "x_scale = x.abs().amax(dim=-1, keepdim=True) / 448.0 + 1e-12; "
        "short = (x / x_scale).to(torch.float8_e4m3fn).to(torch.bfloat16); "
        "sums = short @ self.weight.to(torch.bfloat16).t(); "
        "return (sums * x_scale * self.scale).to(torch.bfloat16)",
        "torch.randn(30, 64)",
        f"{buffer('weight', FLOAT8)}; {SCALE}",
    ),
    "nibbles": reference(
        "low, high = (self.packed & 15).to(x.dtype) - 8, (self.packed >> 4).to(x.dtype) - 8; "
        "codes = torch.stack((low, high), dim=-1).reshape(self.out, self.width); "
        "weight = codes * self.scales.repeat_interleave(16, dim=1); "
        "return F.silu(F.linear(x, weight))",
        "torch.randn(30, 64)",
        f"self.out, self.width = out, width; {NIBBLES}; "
        + buffer("scales", "torch.rand(out, width // 16)"),
    ),
    "groups": reference(
        "codes = torch.stack((self.packed & 15, self.packed >> 4), dim=-1); "
        "codes = codes.view(self.packed.shape[0], -1, 16); "
        "weight = codes.to(x.dtype) * self.scales[:, :, None]; "
        "return x @ weight.view(weight.shape[0], -1).t()",
        "torch.randn(30, 64, dtype=torch.float16)",
        f"{NIBBLES}; {buffer('scales', 'torch.rand(out, width // 16).half()')}",
    ),
    "eight in a word": reference(
        "codes = torch.bitwise_right_shift(self.words[:, None], self.shifts[:, None]) & 15; "
        "return x @ ((codes.reshape(self.width, -1).to(x.dtype) - 8.0) * self.scale)",
        "torch.randn(30, 64)",
        f"self.width = width; {SCALE}; {buffer('shifts', 'torch.arange(0, 32, 4).int()')}; "
        + buffer("words", "torch.randint(-2**31, 2**31 - 1, (width // 8, out), dtype=torch.int32)"),
    ),
    "codebook": reference(
        "codes = torch.stack((self.packed >> 4, self.packed & 15), dim=-1).view(-1, self.width); "
        "return F.linear(x, self.book[codes.long()] * self.scale[:, None])",
        "torch.randn(30, 64)",
        f"self.width = width; {NIBBLES}; {SCALE}; {buffer('book', 'torch.linspace(-1, 1, 16)')}",
    ),
    "batches": reference(
        "return torch.bmm(x, self.weight.to(x.dtype) * self.scale)",
        "torch.randn(3, 30, 64)",
        f"{buffer('weight', WHOLE.format('3, width, out'))}; "
        + buffer("scale", "torch.rand(3, 1, out) * 0.01"),
    ),
}


@pytest.fixture(scope="module")
def programs():
    return {name: generate(text).text for name, text in CASES.items()}


def verdicts(programs, judge):
    candidates = [Candidate(name, CASES[name], text) for name, text in programs.items()]
    return {verdict.id: verdict for verdict in judge.run(candidates)}


def launches(text):
    return re.findall(r"(\w+)_kernel\[grid\]\(", text.partition("def forward(")[2])


@pytest.mark.weekly
def test_they_are_right(programs, warm_judge):
    assert not not_correct(verdicts(programs, warm_judge).values())


def test_whole_numbers_are_summed_as_whole_numbers_however_they_are_shared(
    programs, thorough_judge
):
    text = programs["whole numbers"]
    assert launches(text) == ["int_mm_partial", "int_mm_combine", "int_mm"]
    assert "float32" not in text.partition("@triton.jit")[2]
    (verdict,) = verdicts({"whole numbers": text}, thorough_judge).values()
    assert verdict.status == "correct" and "untried_branches" not in verdict.caveats


def test_scales_and_what_follows_are_in_the_kernel_of_the_product(programs):
    for name, count in {"scales and bias": 1, "dynamic": 3}.items():
        text = programs[name]
        assert len(launches(text)) == count, name  # one of two ways to find a row's scale
        kernel = text.partition("@triton.autotune")[2].partition("class ModelNew")[0]
        assert "acc = tl.dot(a, b, acc, out_dtype=tl.int32)" in kernel
        assert "scale = tl.load(" in kernel.partition("tl.dot(")[2]
        assert "PRECISION" not in text


def test_tiles_have_as_many_products_as_tensor_cores_take(programs):
    sizes = re.findall(r"\(\d+, \d+, (\d+), \d\),", programs["scales and bias"])
    assert len(sizes) > 4 and min(map(int, sizes)) >= 32


def test_numbers_of_few_bits_are_made_in_the_tile_that_multiplies_them(programs):
    for name, count in LOADS.items():
        text = programs[name]
        forward = text.partition("def forward(")[2]
        assert forward.count("[grid](") == 1 + forward.count("_few_rows_kernel["), name
        assert not re.search(r"\.to\(torch\.|torch\.stack|dtype=torch\.uint8", forward), name
        loop = text.rpartition("for start in range(")[2].partition("tl.dot(")[0]
        assert loop.count("tl.load(") == count, name
    assert launches(programs["one row"])[0].count("sum") == 0 < len(launches(programs["one row"]))


def test_a_scale_per_column_is_behind_the_product_and_one_per_group_before_it(programs):
    def has_scale(text):
        return re.search(r"scales?_ptr", text) is not None

    for name, is_before in {"weight only": False, "nibbles": True, "groups": True}.items():
        loop, _, rest = programs[name].rpartition("@triton.jit")[2].partition("tl.dot(")
        assert has_scale(loop.partition("for start in range(")[2]) == is_before, name
        assert has_scale(rest.partition("class ModelNew")[0]) != is_before, name


def test_a_byte_of_two_nibbles_is_loaded_once(programs):
    kernel = programs["nibbles"].rpartition("@triton.jit")[2].partition("class ModelNew")[0]
    assert "tl.load(packed_ptr + b_cols * (K // 2) + b_k // 2, mask=b_k_mask, other=0)" in kernel
    assert "scales_ptr + b_cols * (K // 16) + b_k // 16" in kernel and "b_k % 2" in kernel


def test_a_product_that_others_need_the_weight_of_is_not_made_twice():
    text = generate(
        reference(
            "weight = self.weight.to(x.dtype) * self.scale[:, None]; return x @ weight.t(), weight",
            "torch.randn(30, 64)",
            f"{WEIGHT}; {SCALE}",
        )
    ).text
    assert "weight.to(tl.float32)" not in text.rpartition("@triton.jit")[2]


SCALES = {
    "per tensor": ("torch.tensor(0.5)", "torch.rand(())", "x_scale_ptr)", "scale_ptr)"),
    "per row": (
        "torch.rand(1, out)",
        "torch.rand(30, 1)",
        "x_scale_ptr + rows",
        "scale_ptr + cols",
    ),
}


@pytest.mark.parametrize("kind", SCALES)
def test_scaled_mm_multiplies_float8(kind):
    """The judge has no float64 run of it."""
    if kind == "per row" and torch.__version__ < "2.12":
        pytest.skip("PyTorch 2.11 takes such scales for those of blocks")
    own, given, *loads = SCALES[kind]
    product = "torch._scaled_mm(x.to(torch.float8_e4m3fn), self.weight.t(), x_scale, self.scale"
    layers = f"{buffer('weight', FLOAT8)}; {buffer('scale', own)}"
    body = f"return {product}, out_dtype=torch.bfloat16)"
    text = generate(reference(body, f"torch.randn(30, 64), {given}", layers, "x, x_scale")).text
    kernel = text.rpartition("@triton.jit")[2].partition("class ModelNew")[0]
    assert "acc += tl.dot(a, b)" in kernel and "PRECISION" not in text
    assert all(f"tl.load({load}" in kernel for load in loads)
