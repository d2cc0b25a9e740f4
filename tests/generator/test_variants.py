"""The same loops in a second schedule: right too, and printed where there is one."""

import pytest
from test_generator import needs_order

from curate.generator.generate import generate
from curate.generator.unprintable import Unprintable
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

REFERENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=24, out=40):
        super().__init__()
        {layer}

    def forward(self, {names}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def reference(body, inputs, layer="self.width = width", names="x"):
    return REFERENCE.format(body=body, inputs=inputs, layer=layer, names=names)


ROWS = "torch.randn(6, 24)"
CASES = {
    "broadcast": reference("x * y", "torch.randn(6, 24), torch.randn(24)", names="x, y"),
    "softmax": reference("F.softmax(x, -1)", ROWS),
    "sums of rows": reference("x.sum(-1)", "torch.randn(6, 5, 24)"),
    "short rows": reference(
        "self.norm(x)", "torch.randn(6, 5, 24)", "self.norm = nn.LayerNorm(24, bias=False)"
    ),
    "columns": reference("x.amax(0)", ROWS),
    "all": reference("(x - x.mean()).exp()", ROWS),
    "scan": reference("x.cumsum(-1) * 2", "torch.randn(6, 5, 24)"),
    "product": reference(
        "torch.relu(self.linear(x))",
        "torch.randn(3, 20, 24)",
        "self.linear = nn.Linear(width, out)",
    ),
    "batches": reference("x @ y", "torch.randn(2, 20, 16), torch.randn(2, 16, 18)", names="x, y"),
    "convolution": reference(
        "self.c(x)", "torch.randn(2, 24, 9, 10)", "self.c = nn.Conv2d(24, 40, 3, padding=1)"
    ),
    "attention": reference(
        "F.scaled_dot_product_attention(x, y, z, is_causal=True)",
        ", ".join(["torch.randn(2, 3, 20, 16)"] * 3),
        names="x, y, z",
    ),
}
DIFFER = {  # what only the first program has, and what only the second has
    "broadcast": ("BLOCK_COLS", "offsets % "),
    "softmax": ("# Online softmax", "tl.maximum(peak, x, propagate_nan"),
    "sums of rows": ("\n        BLOCK_COLS = min(", "<= 4096:"),
    "short rows": ("max(1, 512 // BLOCK_COLS)", "BLOCK_ROWS = 1\n"),
    "columns": ("n_splits", "walks down"),
    "all": ("n_splits", "One program goes along all elements"),
    "scan": ("n_splits", "holds BLOCK_ROWS rows"),
    "product": ("tl.swizzle2d", "BLOCK_M=64"),
    "batches": ("@triton.autotune", "BLOCK_M=64"),
    "convolution": ("GROUP_M", "BLOCK_N=64"),
    "attention": ("fitting_tiles", "BLOCK_M=32"),
}


@pytest.fixture(scope="module")
def programs():
    return {name: [generate(text, variant=n).text for n in (0, 1)] for name, text in CASES.items()}


@pytest.mark.weekly
def test_both_are_right(programs, warm_judge):
    candidates = [
        Candidate(f"{name} {number}", CASES[name], text)
        for name, texts in programs.items()
        for number, text in enumerate(texts)
    ]
    wrong = {
        verdict.id: (verdict.status, verdict.reason, verdict.evidence.get("message"))
        for verdict in warm_judge.run(candidates)
        if verdict.status != "correct"
    }
    assert not wrong


@pytest.mark.parametrize("name", CASES)
def test_the_second_has_another_schedule(programs, name):
    first, second = programs[name]
    of_first, of_second = DIFFER[name]
    assert of_first in first and of_first not in second
    assert of_second in second and of_second not in first


def test_a_softmax_takes_three_passes(programs):
    assert programs["softmax"][1].count("for start in range(") == 3


def test_kernels_that_have_one_schedule_only_stay_as_they_are():
    text = reference("(torch.relu(x), y @ y)", f"{ROWS}, torch.randn(50, 50)", names="x, y")
    second = generate(text, variant=1).text
    assert second.count("Each program takes BLOCK_SIZE elements.") == 1
    assert "BLOCK_M=64" in second


@pytest.mark.parametrize(
    "body",
    ["torch.relu(x)", "x[:1, :8].sum()", pytest.param("torch.sort(x).values", marks=needs_order)],
)
def test_there_may_be_one_schedule_only(body):
    with pytest.raises(Unprintable, match="only one schedule"):
        generate(reference(body, ROWS), variant=1)
