"""Products of quantised numbers: judged on the CPU, and read."""

import dataclasses
import re

import pytest
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.verify.verdict import Candidate

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
CASES = {
    "whole numbers": reference(
        "return torch._int_mm(x, y)",
        f"{WHOLE.format('30, 70')}, {WHOLE.format('70, 50')}",
        names="x, y",
    ),
    "scales and bias": reference(
        "sums = torch._int_mm(x, self.weight.t()).float(); "
        "return F.gelu(sums * x_scale[:, None] * self.scale + self.bias).to(torch.bfloat16)",
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
}


@pytest.fixture(scope="module")
def programs():
    return {name: generate(text).text for name, text in CASES.items()}


def verdicts(programs, judge):
    candidates = [Candidate(name, CASES[name], text) for name, text in programs.items()]
    return {verdict.id: verdict for verdict in judge.run(candidates)}


def launches(text):
    return re.findall(r"(\w+)_kernel\[grid\]\(", text.partition("def forward(")[2])


def test_they_are_right(programs, warm_judge):
    assert not not_correct(verdicts(programs, warm_judge).values())


def test_whole_numbers_are_summed_as_whole_numbers_however_they_are_shared(
    programs, warm_judge, monkeypatch
):
    text = programs["whole numbers"]
    assert launches(text) == ["int_mm_partial", "int_mm_combine", "int_mm"]
    assert "float32" not in text.partition("@triton.jit")[2]
    for slot in warm_judge.slots:
        monkeypatch.setattr(slot, "options", dataclasses.replace(slot.options, vary_sizes=True))
    (verdict,) = verdicts({"whole numbers": text}, warm_judge).values()
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
