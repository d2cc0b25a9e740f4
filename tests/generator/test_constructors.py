"""Numbers and tensors that a constructor works out, and sizes that forward does."""

import re

import pytest
from test_generator import ROWS, reference

from curate.generator.generate import generate
from curate.generator.unprintable import Unprintable
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

MODULE = """
import math

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, {given}):
        super().__init__()
        {made}

    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def module(given: str, made: str, body: str, inputs: str, arguments: str = "x") -> str:
    made, body = (code.replace("\n", "\n        ") for code in (made, body))
    return MODULE.format(given=given, made=made, body=body, inputs=inputs, arguments=arguments)


SIZES = {
    "same convolution": module(
        "channels=6, kernel_size=5, stride=2",
        "self.stride = stride\nself.conv = nn.Conv1d(channels, 8, kernel_size, stride)",
        "missing = (math.ceil(x.shape[-1] / self.stride) - 1) * self.stride\n"
        "missing = max(missing + self.conv.kernel_size[0] - x.shape[-1], 0)\n"
        "return self.conv(F.pad(x, (missing // 2, missing - missing // 2)))",
        "torch.randn(2, 6, 37)",
    ),
    "same pool": module(
        "size=3",
        "pass",
        "missing = (math.ceil(x.shape[-1] / 2) - 1) * 2 + 3 - x.shape[-1]\n"
        "return F.avg_pool1d(F.pad(x, [missing // 2, missing - missing // 2]), 3, 2)",
        "torch.randn(2, 3, 18)",
    ),
    "padded convolution": module(
        "channels=4",
        "self.conv = nn.Conv2d(channels, channels, 3, stride=2)",
        "return self.conv(F.pad(x, (0, 1, 0, 1)))",
        "torch.randn(2, 4, 8, 10)",
    ),
    "hidden sum": module(
        "channels=5, skipped=3",
        "self.conv = nn.Conv2d(channels + skipped, 8, 3, padding=1)",
        "return self.conv(F.interpolate(x, scale_factor=2.0))",
        "torch.randn(2, 8, 7, 9)",
    ),
    "hidden factors": module(
        "groups=4, size=6",
        "self.weight = nn.Parameter(torch.rand(groups * size))\n"
        "self.split = lambda x: x.unflatten(-1, (groups, size))",
        "return self.split(x * self.weight).sum(-1)",
        "torch.randn(5, 24)",
    ),
    "windows": module(
        "window=8",
        "self.window = window",
        "x = F.pad(x, (0, 0, 0, -x.shape[1] % self.window))\n"
        "return x.view(x.shape[0], x.shape[1] // self.window, self.window, x.shape[2]).amax(2)",
        "torch.randn(3, 22, 16)",
    ),
    "whole quotient": module(
        "size=2",
        "pass",
        "rows = x.repeat(4, 1)\n"
        "return rows.view(4, int(rows.shape[0] / (8 / 2)), x.shape[1]).cumsum(0)",
        "torch.randn(5, 12)",
    ),
    "logarithm": module(
        "size=16",
        "self.register_buffer('m', torch.rand(int(size * math.log(size)), size))",
        "return self.m.repeat(2, 1) + x",
        "torch.randn(1, 16)",
    ),
    "length": module(
        "scale=2.0",
        "self.scale = scale",
        "return (x * self.scale).view(len(x), -1).softmax(-1)",
        "torch.randn(3, 4, 10)",
    ),
    "convolution of a transposed sequence": module(
        "channels=6",
        "self.conv = nn.Conv1d(channels, 8, 3, padding=1)",
        "return self.conv(x.transpose(1, 2)).relu()",
        "torch.randn(2, 17, 6)",
    ),
    "buffer in another order": module(
        "rows=4, cols=10",
        "self.register_buffer('table', torch.rand(cols, rows).t())",
        "return x * self.table.sin()",
        "torch.randn(4, 10)",
    ),
    "groups": module(
        "size=3",
        "pass",
        "groups = x.shape[1] // y.shape[1]\n"
        "return (x.view(x.shape[0], y.shape[1], groups, x.shape[2]) * y[:, :, None]).sum(2)",
        "torch.randn(3, 24, 10), torch.randn(3, 4, 10)",
        "x, y",
    ),
}


def judged(warm_judge, sources: dict[str, str]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return programs and their caveats, once all of them are right."""
    texts = {name: generate(source).text for name, source in sources.items()}
    candidates = [Candidate(name, sources[name], text) for name, text in texts.items()]
    verdicts = {verdict.id: verdict for verdict in warm_judge.run(candidates)}
    assert not {n: (v.status, v.reason) for n, v in verdicts.items() if v.status != "correct"}
    return texts, {name: list(verdict.caveats) for name, verdict in verdicts.items()}


def test_sizes_that_are_worked_out(warm_judge):
    texts, caveats = judged(warm_judge, SIZES)
    narrow = {"own_sizes_only", "some_sizes_only", "own_arguments_only"}
    assert not {name: found for name, found in caveats.items() if narrow & set(found)}
    assert "self.groups = groups" in texts["hidden factors"]
    assert "super().__init__()\n        self.groups" in texts["hidden factors"]
    assert "self.conv.in_channels" in texts["hidden sum"]
    assert "self.channels" not in texts["hidden sum"]
    assert "(features + self.stride - 1) // self.stride" in texts["same convolution"]
    assert "log" not in texts["logarithm"].partition("class Model")[0]  # 32 bits are too few
    # Triton rounds to zero.
    assert "(1 - features) // 2" in texts["same pool"].partition("class ModelNew")[2]
    assert "(1 - features) // 2" not in texts["same pool"].partition("class ModelNew")[0]


NAMES = """
try:
    from typing import Never
except ImportError:
    from typing_extensions import Never

from typing_extensions import Self


class Smooth(nn.Module):
    def __init__(self, act=F.silu, of: Never = None) -> Self:
        super().__init__()
        self.act = getattr(F, act) if isinstance(act, str) else act

    def forward(self, x):
        return self.act(x)
"""


def test_names_that_only_another_module_or_a_try_binds(warm_judge):
    source = module(
        "", "self.smooth = Smooth('silu')", "return self.smooth(x) * 2", "torch.rand(5)"
    )
    source = source.replace("\n\nclass Model", NAMES + "\n\nclass Model")
    texts, _ = judged(warm_judge, {"names": source})
    assert texts["names"]


BUILT = {
    "compared": module(
        "dim=12, limit=0.05",
        "slopes = 2.0 ** -torch.arange(dim).float()\n"
        "kept = [s if s > limit else s * 0 + limit for s in slopes]\n"
        "self.register_buffer('slopes', torch.stack(kept))",
        "return torch.softmax(x * self.slopes, -1)",
        "torch.randn(5, 12)",
    ),
    "listed": module(
        "n_bins=9, width=16",
        "edges = torch.linspace(0, 1, n_bins).tolist()\n"
        "self.register_buffer('edges', torch.tensor([e * e for e in edges]))\n"
        "self.linear = nn.Linear(width, 8)",
        "return torch.exp(-(self.linear(x)[..., None] - self.edges) ** 2).sum(-1)",
        "torch.randn(5, 16)",
    ),
    "counted": module(
        "depth=3, base=2.0, gain=0.5",
        "steps = torch.tensor([base**i for i in range(depth)])\n"
        "self.count = int((steps > 1.5).sum())\n"
        "self.register_buffer('steps', steps * gain)",
        "for i in range(self.count):\n    x = torch.sin(x * self.steps[i])\nreturn x",
        "torch.randn(5, 24)",
    ),
    "attribute": module(
        "dim=16",
        "self.ramp = torch.linspace(0, 1, dim)",
        "return x * self.ramp",
        "torch.rand(3, 16)",
    ),
}


def test_what_a_constructor_makes_of_values(warm_judge):
    texts, _ = judged(warm_judge, BUILT)
    written_for = {
        name: re.findall(r"(\w+)=", " ".join(re.findall('"written for (.*)"', text)))
        for name, text in texts.items()
    }
    assert written_for == {
        "compared": [],
        "listed": [],
        "counted": ["depth", "base"],
        "attribute": ["dim"],
    }
    assert "assert slopes.shape == (features,)" in texts["compared"]
    # It does not move with the module.
    assert "ramp = self.ramp.to(x.device)" in texts["attribute"]


def test_a_state_that_forward_replaces(warm_judge):
    body = "self.state.copy_(y)\nself.state = torch.tanh(x + self.state)\nreturn 2 * self.state"
    given = "torch.rand(5, 16), torch.rand(5, 16)"
    source = module("", "self.state = torch.zeros(5, 16)", body, given, "x, y")
    texts, _ = judged(warm_judge, {"state": source})
    assert re.search(r"self\.state = \w+\n        return", texts["state"])


@pytest.mark.parametrize("dim", [3, 16])
def test_tensors_out_of_sight_are_refused(dim):
    made = f"self.held = [torch.linspace(0, 1, {dim})]"
    source = module("dim=2", made, "return x * self.held[0]", f"torch.rand(3, {dim})")
    with pytest.raises(Unprintable, match="no attribute of a module"):
        generate(source)


def test_operators_that_take_any_index_or_batch(warm_judge):
    indices = "torch.randint(50, (batch, width)) - 20"
    products = "torch.randn(batch, 5, 7), torch.randn(batch, 7, width)"
    sources = {
        "along": reference("return torch.take_along_dim(x, y, 0)", f"{ROWS}, {indices}", "x, y"),
        "addbmm": reference(
            "return torch.addbmm(self.bias, x, y, beta=self.scale, alpha=2)", products, "x, y"
        ),
    }
    texts, caveats = judged(warm_judge, sources)
    assert "tl.dot" in texts["addbmm"] or "tl.sum" in texts["addbmm"]
    assert "own_sizes_only" not in caveats["along"]


def test_a_share_of_a_size_is_open_in_every_trace():
    made = "self.conv = nn.Conv2d(channels, int(channels * share), 1)"
    source = module("channels=8, share=0.5", made, "return self.conv(x)", "torch.rand(2, 8, 5, 7)")
    words = ("share", "ratio", "portion")
    texts = {generate(source.replace("share", w)).text.replace(w, "share") for w in words}
    assert len(texts) == 1
    assert "written for" not in texts.pop()


CONFIG = module(
    "config",
    "self.config = config\n"
    "self.up = nn.Linear(config.hidden_size, config.mlp.intermediate_size)\n"
    "self.norm = nn.LayerNorm(config.mlp.intermediate_size, eps=config.layer_norm_eps)\n"
    "self.act = {'smooth': F.gelu, 'sharp': F.relu}[config.act]",
    "return self.norm(self.act(self.up(x))) * self.config.scale",
    "torch.randn(4, 7, 12)",
).replace(
    "return []",
    "from types import SimpleNamespace as Config\n    mlp = Config(intermediate_size=24)\n"
    "    return [Config(hidden_size=12, mlp=mlp, layer_norm_eps=1e-05, act='smooth', scale=0.5)]",
)


def test_what_a_configuration_holds_may_be_any_number(warm_judge):
    texts, caveats = judged(warm_judge, {"config": CONFIG})
    assert "config.act == 'smooth'" in texts["config"].replace('"', "'")
    assert not re.search(r"\b(12|24|1e-05|0\.5)\b", texts["config"].partition("class ModelNew")[2])
    assert "own_arguments_only" not in caveats["config"]
