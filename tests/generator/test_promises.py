"""Promises of programs: ranks, types, layouts, sizes, numbers; judged on the CPU, and read."""

import re

import pytest
import torch
from test_generator import PLANES, ROWS, printed, reference

from curate.generator import torch_private as private
from curate.generator.generate import generate
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

SEQUENCES = "torch.randn(batch, 5, width)"
GATES = f"torch.randn(batch, 2 * width), {ROWS}"

ANY_RANK = {
    "softmax": ("return torch.softmax(x, -1)", ROWS),
    "layer norm": ("return F.layer_norm(x, (x.shape[-1],), self.weight)", SEQUENCES),
    "last sum": ("return x.sum(-1), x.amax(-1, keepdim=True)", SEQUENCES),
    "vector": ("return x * self.weight", SEQUENCES),
    "planes": ("return x * self.scale + x.mean((-1, -2), True)", PLANES),
    "gates": ("return gates[..., : y.shape[-1]] * y", GATES, "gates, y"),
}


def test_what_lies_in_front_may_be_of_any_rank(warm_judge):
    texts = {name: printed(*case).text for name, case in ANY_RANK.items()}
    assert not [name for name, text in texts.items() if re.search(r"\.dim\(\) ==", text)]
    assert "n_rows = x.shape[:-1].numel()" in texts["layer norm"]
    assert "torch.empty(x.shape[:-1], " in texts["last sum"]
    assert "torch.empty((*x.shape[:-1], 1)" in texts["last sum"]
    assert "assert x.dim() >= 2" in texts["planes"]
    assert "assert y.shape == (*gates.shape[:-1], width)" in texts["gates"]
    candidates = [Candidate(n, reference(*ANY_RANK[n]), text) for n, text in texts.items()]
    verdicts = {verdict.id: verdict for verdict in warm_judge.run(candidates)}
    assert not {n: v.reason for n, v in verdicts.items() if v.status != "correct"}
    assert not {n for n, v in verdicts.items() if "own_ranks_only" in v.caveats}


@pytest.mark.parametrize(
    "body",
    [
        "return torch.softmax(x, 1)",
        "return x / x.shape[0]",
        "return x + torch.arange(x.shape[0], device=x.device)[:, None, None]",
        "return x.transpose(0, 1) * 2",
        "return x.flip(0)",
        "return torch.cat([x, x], 0)",
        "return x.mean(0)",
        "return x.sum() / x.dim()",
    ],
)
def test_what_tells_the_dimensions_in_front_apart_has_its_rank(body):
    text = printed(body, SEQUENCES).text
    assert 'assert x.dim() == 3, "x must have rank 3"' in text


def test_types_of_results_are_those_of_pytorch():
    text = printed(
        "return x.float() * y, x * y, x * self.weight[0]", f"{ROWS}, {ROWS}", "x, y"
    ).text
    types = dict(
        re.findall(r"(out\d) = torch\.empty\(.*?dtype=(.*?)(?:\n\s*)?\)\n", text, re.DOTALL)
    )
    assert types == {
        "out0": "torch.float32",
        "out1": "torch.promote_types(x.dtype, y.dtype)",
        "out2": "x.dtype",
    }
    assert "weight.dtype" in text.partition("float64 is not supported")[0]


STRIDED = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width, height):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(height, width).t())
        self.register_buffer("steps", torch.arange(2 * height).float()[::2])

    def forward(self, x):
        return x * self.weight + self.steps


def get_inputs():
    return [torch.randn(6, 24)]


def get_init_inputs():
    return [6, 24]
"""

OPENED = {
    "pool": ("return F.max_pool1d(x, 3, 2, ceil_mode=True)", SEQUENCES),
    "pool without an end": ("return F.max_pool1d(x, 2)", SEQUENCES),
    "glu": ("return F.glu(x, 1)", ROWS),
    "diagonal": ("return torch.diagonal(x) * 2, torch.trace(x)", ROWS),
    "number": ("return x * torch.tensor(self.offset**0.5, dtype=x.dtype)", ROWS),
}


def test_layouts_and_sizes_that_a_caller_may_choose(warm_judge):
    sources = {name: reference(*case) for name, case in OPENED.items()}
    sources["strided"] = STRIDED
    sources["along"] = reference(
        "return torch.take_along_dim(x, y % 2, 1)", f"{ROWS}, torch.randint(2, (batch, 5))", "x, y"
    )
    texts = {name: generate(text).text for name, text in sources.items()}
    assert "weight = weight.contiguous()" in texts["strided"]
    assert "steps = steps.contiguous()" in texts["strided"]
    candidates = [Candidate(name, sources[name], text) for name, text in texts.items()]
    verdicts = {verdict.id: verdict for verdict in warm_judge.run(candidates)}
    assert not {n: (v.status, v.reason) for n, v in verdicts.items() if v.status != "correct"}
    narrow = {"own_sizes_only", "some_sizes_only", "own_arguments_only", "contiguous_only"}
    assert not {n: v.caveats for n, v in verdicts.items() if narrow & set(v.caveats)}


ENCODER = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width, n_heads, n_layers):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(width, n_heads, 2 * width, dropout=0.0)
        self.layers = torch.nn.TransformerEncoder(layer, n_layers)

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(5, 3, 16)]


def get_init_inputs():
    return [16, 2, 1]
"""


def test_a_layer_may_be_copied_and_a_window_may_be_large(warm_judge):
    boxes = "torch.randn(2, 3, 7, 8, 9)"
    sources = {
        "encoder": ENCODER,
        "pool": reference("return F.avg_pool3d(x, 3, stride=2, padding=1)", boxes),
    }
    candidates = [Candidate(n, text, generate(text).text) for n, text in sources.items()]
    verdicts = {verdict.id: verdict for verdict in warm_judge.run(candidates)}
    assert not {n: v.reason for n, v in verdicts.items() if v.status != "correct"}


def test_pytorch_is_left_as_it_was():
    # It asks once, and at first use, which functions make tensors.
    private.list_device_constructors.cache_clear()
    printed("return x.exp()")
    with torch.device("meta"):
        assert torch.tensor([]).is_meta


def test_types_that_pytorch_does_not_promote_have_to_be_the_same():
    text = printed("return F.huber_loss(x, y, reduction='none')", f"{ROWS}, {ROWS}", "x, y").text
    assert 'assert x.dtype == y.dtype, "types must be the same"' in text
    assert "dtype=x.dtype)" in text


ZERO = """
import torch


class Model(torch.nn.Module):
    def __init__(self, n_times=0):
        super().__init__()
        self.twice = bool(n_times)

    def forward(self, x):
        return x * 2 if self.twice else x + 1


def get_inputs():
    return [torch.randn(8, 100)]


def get_init_inputs():
    return []
"""


def test_a_number_that_is_zero_is_false():
    text = generate(ZERO).text
    assert "x + 1" in text.split("tl.store")[1]
    assert "assert n_times == 0" in text
