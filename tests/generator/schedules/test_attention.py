"""Attention as one kernel: judged on the CPU, and read."""

import re

import pytest
import torch
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

REFERENCE = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=60, heads=6, kv_heads=2, dim=10):
        super().__init__()
        {layer}

    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def reference(body, inputs, names="q, k, v", layer="self.heads = heads"):
    body = body.replace("\n", "\n        ")
    return REFERENCE.format(body=body, inputs=inputs, names=names, layer=layer)


def inputs(queries=70, keys=70, head=24, heads=3, kv_heads=3, more="", tail=""):
    shapes = (heads, queries), (kv_heads, keys), (kv_heads, keys)
    given = [f"torch.randn(2, {h}, {n}, {head}){tail}" for h, n in shapes]
    return ", ".join([*given, *([more] if more else [])])


SDPA = "return F.scaled_dot_product_attention(q, k, v{})"
WRITTEN = "s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])\n{}return torch.softmax(s, -1) @ v"
MASK = "torch.rand(2, 1, 40, 70) > 0.5"
HIDDEN = f"({MASK}) & (torch.rand(2, 1, 40, 1) > 0.4)"

CASES = {
    "cross": reference(SDPA.format(""), inputs(queries=40)),
    "causal": reference(SDPA.format(", is_causal=True"), inputs()),
    "head of 40": reference(SDPA.format(", is_causal=True"), inputs(75, 75, 40)),
    "half": reference(SDPA.format(", is_causal=True"), inputs(75, 75, 64, tail=".half()")),
    "boolean mask": reference(
        SDPA.format(", attn_mask=m"), inputs(40, more=MASK), names="q, k, v, m"
    ),
    "hidden rows": reference(
        SDPA.format(", attn_mask=m"), inputs(40, more=HIDDEN), names="q, k, v, m"
    ),
    "float mask": reference(
        SDPA.format(", attn_mask=m"), inputs(40, more="torch.randn(40, 70)"), names="q, k, v, m"
    ),
    "half mask": reference(
        SDPA.format(", attn_mask=m"),
        inputs(40, more="torch.rand(40, 70) > 0.3", tail=".bfloat16()"),
        names="q, k, v, m",
    ),
    "groups": reference(
        SDPA.format(", is_causal=True, enable_gqa=True"), inputs(heads=6, kv_heads=2)
    ),
    "repeated heads": reference(
        "k, v = (x.repeat_interleave(3, 1) for x in (k, v))\n" + SDPA.format(""),
        inputs(40, heads=6, kv_heads=2),
    ),
    "one head of keys": reference(
        "k, v = k[:, :1], v[:, :1]\n" + WRITTEN.format(""), inputs(40, kv_heads=2)
    ),
    "written": reference(WRITTEN.format(""), inputs(40)),
    "written in half": reference(WRITTEN.format(""), inputs(40, tail=".half()")),
    "written, causal": reference(
        WRITTEN.format(
            "m = torch.ones_like(s[0, 0]).tril(k.shape[2] - q.shape[2])\n"
            "s = s.masked_fill(m == 0, float('-inf'))\n"
        ),
        inputs(40),
    ),
    "window": reference(
        WRITTEN.format(
            "i = torch.arange(q.shape[2], device=q.device)\nd = i[:, None] - i\n"
            "s = s.masked_fill((d < 0) | (d >= 9), float('-inf'))\n"
        ),
        inputs(),
    ),
    "soft cap": reference(WRITTEN.format("s = 30 * torch.tanh(s / 30)\n"), inputs(40)),
    "alibi": reference(
        WRITTEN.format(
            "i = torch.arange(k.shape[2], device=q.device)\n"
            "slopes = 2.0 ** -torch.arange(1, q.shape[1] + 1, device=q.device)\n"
            "s = s + slopes[:, None, None] * (i - i[:, None])\n"
        ),
        inputs(),
    ),
    "one query": reference(WRITTEN.format(""), inputs(1)),
    "one query, lengths": reference(
        WRITTEN.format(
            "places = torch.arange(s.shape[-1], device=s.device)\n"
            "s = s.masked_fill(places >= m[:, None, None, None], float('-inf'))\n"
        ),
        inputs(1, 140, more="torch.randint(1, 141, (2,))"),
        names="q, k, v, m",
    ),
    "one query of groups": reference(
        SDPA.format(", enable_gqa=True"), inputs(1, heads=6, kv_heads=2, tail=".half()")
    ),
    "images": reference(
        "a = torch.bmm(q.flatten(2).transpose(1, 2), k.flatten(2)).softmax(-1)\n"
        "return torch.bmm(v.flatten(2), a.transpose(1, 2)).view(v.shape)",
        "torch.randn(2, 18, 7, 9), torch.randn(2, 18, 7, 9), torch.randn(2, 36, 7, 9)",
    ),
    "matrices": reference(
        "return torch.softmax(q @ k.t() + m, -1) @ v",
        "torch.randn(40, 24), torch.randn(70, 24), torch.randn(70, 36), torch.randn(40, 70)",
        names="q, k, v, m",
    ),
}
LAYER = reference(
    "b, t, c = x.shape\n"
    "q, k, v = self.qkv(x).split(c, dim=2)\n"
    "q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))\n"
    "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
    "return self.out(y.transpose(1, 2).reshape(b, t, c))",
    "torch.randn(2, 33, 60)",
    names="x",
    layer="self.heads = heads; self.qkv = nn.Linear(width, 3 * width); "
    "self.out = nn.Linear(width, width)",
)
RETURNED = reference("w = torch.softmax(q @ k.transpose(-2, -1), -1)\nreturn w @ v, w", inputs(40))
NORMALISED = reference(
    "q, k = (F.normalize(x, dim=-1) for x in (q, k))\n" + SDPA.format(""),
    inputs(40, head=64, tail=".bfloat16()"),
)


@pytest.fixture(scope="module")
def programs():
    cases = CASES | {"layer": LAYER, "returned": RETURNED}
    return {name: generate(text).text for name, text in cases.items()}


def kernel(program):
    return re.search(r"@triton\.jit\n(def .*?)\n\n\nclass", program, re.DOTALL)[1]


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.weekly) for i in range(1, 5))]
)
def test_they_are_right_at_other_sizes(programs, warm_judge, part):
    references = CASES | {"layer": LAYER, "returned": RETURNED}
    candidates = [Candidate(name, references[name], text) for name, text in programs.items()]
    assert not not_correct(warm_judge.run(candidates[part::5]))


def test_each_is_one_kernel_without_scores_in_memory(programs):
    for name in CASES:
        forward = programs[name].partition("def forward(")[2]
        assert programs[name].count("@triton.jit") == 1, name
        assert forward.count("torch.empty") == 1, name
        two_parts = name in ("half mask", "written in half")
        loops = kernel(programs[name]).count("for start in") * (not name.startswith("one query"))
        assert kernel(programs[name]).count("tl.dot(") == (2 + two_parts) * loops, name


def test_a_layer_reads_queries_keys_and_values_where_they_lie(programs):
    # From PyTorch 2.15 on, Inductor copies what attention returns before it is projected.
    wanted = 3 + (torch.__version__ >= "2.15")
    assert programs["layer"].count("@triton.jit") == wanted
    assert programs["layer"].count("torch.empty") == wanted


def test_causal_loops_stop_at_the_diagonal(programs):
    causal = kernel(programs["causal"])
    assert re.search(r"whole = tl.minimum\((\w+), tile \* BLOCK_M\) // BLOCK_N \* BLOCK_N", causal)
    assert re.search(r"end = tl.minimum\((\w+), \(tile \+ 1\) \* BLOCK_M\)", causal)
    assert "for start in range(whole, end, BLOCK_N):" in causal
    assert "key_mask & (keys <= rows)" in programs["causal"]
    shifted = kernel(programs["written, causal"])
    assert re.search(r"end = tl.minimum\(\w+, \(tile \+ 1\) \* BLOCK_M \+ \(?\w+ - \w+", shifted)
    first = "first = tl.maximum(0, tile * BLOCK_M - 8) // BLOCK_N * BLOCK_N"
    assert first in programs["window"]
    assert "end = " not in programs["cross"]


def test_heads_of_keys_are_found_by_groups(programs):
    assert "num_head // (num_heads // k_num_heads)" in programs["groups"]
    assert re.search(r"// 3\b.* \* ", programs["repeated heads"])


def test_rows_that_see_no_key_are_zeros_or_nan(programs):
    zeros = "exp_sum = tl.where(exp_sum == 0.0, 1.0, exp_sum)"
    assert zeros in programs["hidden rows"]
    assert not any(zeros in programs[name] for name in ("causal", "written, causal", "window"))


def test_half_weights_multiply_as_they_are_unless_a_mask_makes_pytorch_exact(programs):
    assert "weights.to(v.dtype)" in programs["half"]
    assert "low = (weights - high).to(v.dtype)" in programs["half mask"]


def test_factors_that_are_worked_out_have_the_16_bits_of_the_inputs(warm_judge):
    text = generate(NORMALISED).text
    made = re.findall(r"dtype=torch\.(\w+)", text.partition("def forward(")[2])
    assert made.count("bfloat16") == 3  # norms are longer
    assert not not_correct(warm_judge.run([Candidate("normalised", NORMALISED, text)]))


def test_weights_that_are_returned_are_kept(programs):
    assert programs["returned"].count("@triton.jit") > 1


def test_of_a_head_of_32_in_float32_or_padded_to_that_only_small_tiles_are_left():
    program = generate(reference(SDPA.format(""), inputs(head=32))).text
    made = {}
    exec(program[: program.index("@triton.autotune")], made)

    def left(head, dtype=torch.float32, **blocks):
        named = {"q_ptr": torch.zeros(1, dtype=dtype), "head_dim": head}
        kept = made["fitting_tiles"](made["ATTENTION_TILES"], named, **blocks)
        return max(tile.kwargs["BLOCK_M"] * tile.kwargs["BLOCK_N"] for tile in kept)

    assert left(16, BLOCK_D=16) > left(64, BLOCK_D=64) > 2**11
    assert left(32, BLOCK_D=32) == left(64, BLOCK_D=64, BLOCK_V=32) == 2**11
    assert left(32, torch.bfloat16, BLOCK_D=32) > left(24, torch.bfloat16, BLOCK_D=32) == 2**11


SCALED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax({logits}, dim=-1) + 1


def get_inputs():
    return [torch.randn(64, 100)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("logits", "rounds"),
    [("x.tanh() * 1.3", True), ("x.tanh() / 0.7", True), ("x + 1.3", False), ("x", False)],
)
def test_a_softmax_of_a_product_takes_off_the_same_product(logits, rounds):
    """An FMA would take a rounded peak off a product that is not: exp(1e9 * x - peak) overflows."""
    program = generate(SCALED.format(logits=logits)).text
    assert ("enable_fp_fusion=False" in program) == rounds
