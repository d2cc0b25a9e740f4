"""`standalone` on what Inductor writes today for modules written here."""

import ast
import json
import re

import pytest

from curate.inductor import wrapper
from curate.inductor.configurations import compile_reference
from curate.inductor.inductor import Inductor
from curate.inductor.standalone import Standalone, rewrite
from curate.inductor.wrapper import _size_name
from curate.rows import TaskRow, make_origin, make_row
from curate.step import Context, Drop, Keep
from curate.syntax import expression
from curate.verify.compile.aot import compile_program
from curate.verify.judge.slots import verify
from curate.verify.verdict import Candidate, Options

pytestmark = pytest.mark.slow  # PyTorch's compiler runs for every module

CONTEXT = Context()


class Rewriting(Inductor):
    """The step without the generator, so that what it compiles is rewritten."""

    def _print(self, row: TaskRow) -> str:
        return "left out"


STEP = Standalone(step="standalone")


def module(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> str:
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + F.relu(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        {init}

    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


MODULES = {
    "pointwise": module("F.silu(x) * 0.5 + y", "torch.randn(5, 33), torch.randn(33)", "", "x, y"),
    "blocks": module(
        "self.blocks(x)",
        "torch.randn(3, 9, 24)",
        "self.blocks = nn.Sequential(Block(24), nn.Linear(24, 24), Block(24))",
    ),
    "softmax": module("x.softmax(-1), x.logsumexp(0)", "torch.randn(11, 37)"),
    "reductions": module(
        "x.var(1), x.argmax(1), x.amin(0), x.sum(), (x > 9).any(1)", "torch.randn(2, 1100)"
    ),
    "scan": module("torch.cumsum(x, 1), torch.cummax(x, 1)[0]", "torch.randn(2, 1100)"),
    "conv": module(
        "F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)",
        "torch.randn(2, 3, 9, 11)",
        "self.conv = nn.Conv2d(3, 4, 3, padding=1); self.bn = nn.BatchNorm2d(4)",
    ),
    "layouts": module(
        "x.transpose(1, 2).contiguous() + 1, torch.cat([x, x.flip(2)], 1)", "torch.randn(2, 19, 23)"
    ),
    "halves": module(  # three loads of x in the second loop, which must not share a name
        "torch.cat([y[..., :64] * 2 - y[..., 64:], y[..., 64:] * 3 + y[..., :64]], -1)"
        " if (y := F.normalize(x, dim=-1)) is not None else x",
        "torch.randn(3, 5, 128)",
    ),
    "arctangent": module("torch.atan(x) + torch.addcmul(x, x, x)", "torch.randn(6, 30)"),
    "half": module("F.gelu(x) + 1, x.softmax(-1)", "torch.randn(4, 40).bfloat16()"),
    "integers": module(
        "x // y, x % y, (x & y) == 0",
        "torch.randint(-50, 50, (41,)), torch.randint(1, 9, (41,))",
        "",
        "x, y",
    ),
    "nan": module(
        "F.relu(x), x.amax(1), torch.isnan(x), x.clamp(-1, 1)",
        "torch.tensor([[1.0, float('nan'), -3.0], [float('inf'), 0.0, -0.5]])",
    ),
    "gather": module(
        "torch.gather(x, 1, i) * 2, x[i[:, 0] % 5]",
        "torch.randn(5, 20), torch.randint(0, 20, (5, 9))",
        "",
        "x, i",
    ),
    "search": module(
        "torch.bucketize(x, b), x.sort(1)[0]",
        "torch.randn(5, 50), torch.linspace(-1, 1, 9)",
        "",
        "x, b",
    ),
    "counter": module(
        "(self.steps.add_(1), x * self.steps)[1]",
        "torch.randn(6)",
        "self.register_buffer('steps', torch.zeros(()))",
    ),
    "tree": module(
        "{'pair': [p[0] + p[1]['k'], None], 'n': 3}",
        "(torch.randn(8), {'k': torch.randn(8)})",
        "",
        "p",
    ),
    "constants": module("x * torch.tensor([1.0, 2.0, 4.0])", "torch.randn(5, 3)"),
}

ORIGIN = make_origin("local", path="m.py", symbol="Model", start_line=1)


def task(name: str, target: str = "cuda:90", dynamic: bool = False, matmul: bool = False):
    """Return a task row as it comes from `inductor`."""
    row = make_row("task", MODULES[name], ORIGIN, reference=MODULES[name], entry_point="Model")
    step = Rewriting(step="inductor", target=target, dynamic=dynamic, own_products=matmul)
    outcome = step.apply(row, CONTEXT)
    assert isinstance(outcome, Keep), outcome
    return outcome.rows[0]


def pair(row):
    outcome = STEP.apply(row, CONTEXT)
    assert isinstance(outcome, Keep), outcome
    return outcome.rows[0]


@pytest.fixture(scope="module")
def pairs():
    """Every module, with sizes as constants and as arguments."""
    return {
        f"{name} {'dynamic' if dynamic else 'static'}": pair(task(name, dynamic=dynamic))
        for name in MODULES
        for dynamic in (False, True)
    }


def test_programs_agree_with_their_references(pairs):
    candidates = [Candidate(name, row["reference"], row["triton"]) for name, row in pairs.items()]
    options = Options(backend="cpu", workers=2, trials=3, draw_seed=1)
    found = {verdict.id: verdict for verdict in verify(candidates, options)}
    expected = {name: "degenerate" if name.startswith("nan") else "correct" for name in pairs}
    assert {name: v.status for name, v in found.items()} == expected, found


def test_programs_import_nothing_but_torch_and_triton(pairs):
    for name, row in pairs.items():
        imported = set()
        for node in ast.walk(ast.parse(row["triton"])):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
        assert imported <= {"torch", "triton", "math"}, name
        assert "inductor" not in row["triton"], name


def test_programs_are_plain_text_of_moderate_width(pairs):
    for name, row in pairs.items():
        text = row["triton"]
        left = re.search(r"\b(_?tmp\d|in_ptr\d|out_ptr\d|[xr]index|buf\d|eviction_policy)", text)
        assert left is None, (name, left)
        assert max(map(len, text.splitlines())) <= 100, name


def test_a_pair_says_where_it_comes_from(pairs):
    row = pairs["conv static"]
    spec = json.loads(task("conv")["generated"]["spec"])
    assert row["kind"] == "pair"
    assert row["generated"] is None
    assert row["origin"]["generator"] == {
        "name": "inductor+standalone",
        "tools": [f"torch {spec['torch']}", f"triton {spec['triton']}"],
    }
    assert row["static"]["extern_calls"] == ["F.conv2d"]
    assert row["static"]["pure_triton"] is False
    assert row["static"]["kernels"] == row["triton"].count("_kernel[grid](")
    assert pairs["pointwise static"]["static"]["pure_triton"] is True
    assert pairs["pointwise static"]["static"]["dynamic_dims"] == 0
    assert pairs["pointwise dynamic"]["static"]["dynamic_dims"] >= 1


def test_the_license_covers_inductors_lines():
    row = task("pointwise")
    row["license"] = {"expression": "MIT OR Apache-2.0", "choice": "MIT"}
    found = pair(row)["license"]
    assert found["choice"] == "BSD-3-Clause AND MIT"
    assert "BSD-3-Clause" in found["expression"]


def test_the_class_keeps_the_constructor_and_drops_forward_methods(pairs):
    text = pairs["blocks static"]["triton"]
    assert "super(ModelNew, self).__init__()" in text
    assert "self.blocks = nn.Sequential(Block(24), nn.Linear(24, 24), Block(24))" in text
    assert text.count("def forward(") == 1
    assert "self.blocks[0].norm.weight" in text


def test_sizes_are_constants_or_arguments(pairs):
    assert "n_elements = 165" in pairs["pointwise static"]["triton"]
    dynamic = pairs["pointwise dynamic"]["triton"]
    assert "x_dim1 = x.shape[1]" in dynamic
    assert "assert y.shape == (x_dim1,)" in dynamic
    assert "n_elements = out.numel()" in dynamic


def test_a_size_of_one_which_is_a_constant_to_triton(pairs):
    row = pairs["reductions dynamic"]
    assert "tl.cast(x_dim1" in row["triton"]
    smaller = row["reference"].replace("torch.randn(2, 1100)", "torch.randn(1, 1)")
    (result,) = compile_program(smaller, row["triton"], ["cuda:90"])
    assert result["ok"], result["message"]


@pytest.mark.parametrize("target", ["cuda:80", "hip:gfx942"])
def test_other_targets_and_matrix_products(target):
    row = pair(task("blocks", target, dynamic=True, matmul=True))
    assert "tl.dot(" in row["triton"]
    assert row["static"]["pure_triton"] is True


def test_the_same_input_gives_the_same_text():
    row = task("reductions")
    assert pair(row) == pair(row)


def test_what_is_not_known_is_dropped_with_its_place():
    row = task("softmax")
    row["generated"]["code"] = row["generated"]["code"].replace(
        "triton_helpers.max2(", "triton_helpers.new_reduction("
    )
    outcome = STEP.apply(row, CONTEXT)
    assert isinstance(outcome, Drop)
    assert outcome.reason == "not_standalone"
    assert outcome.evidence["construct"] == "triton_helpers.new_reduction"
    line = row["generated"]["code"].splitlines()[outcome.evidence["line"] - 1]
    assert "async_compile.triton(" in line


def test_a_task_that_was_not_generated_is_dropped():
    row = make_row("task", "", ORIGIN, reference=MODULES["scan"])
    assert STEP.apply(row, CONTEXT).reason == "not_generated"


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ("width * height", "height_width"),
        ("x_dim2 * x_dim1 * batch", "batch_x_dim1_x_dim2"),
        ("channels // 4", "channels_per_4"),
        ("1 + (height - 3) // 2", "height_out"),
        ("a * b * c * d", ""),
        ("x.shape[1] * n", ""),
    ],
)
def test_computed_sizes_have_names(size, name):
    assert _size_name(expression(size)) == name


def test_a_share_of_kernels_is_tuned_but_none_that_adds_to_what_it_writes(monkeypatch):
    def program(forward: str, inputs: str, arguments: str) -> str:
        source = module(forward, inputs, "pass", arguments)
        made = compile_reference(source, "cuda:90", dynamic="i" not in arguments)
        return rewrite(source, made.code, made.spec).text

    plain = "torch.relu(x) + y", "torch.randn(30, 50), torch.randn(30, 50)", "x, y"
    monkeypatch.setattr(wrapper, "TUNED", 1)
    text = program(*plain)
    assert '@triton.autotune(configs=ELEMENT_CONFIGS, key=["n_elements"])\n@triton.jit' in text
    assert text.count("ELEMENT_CONFIGS = [") == 1
    assert 'grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)' in text
    summed = (
        "x.new_zeros(8, 50).index_put((i,), x, True)",
        "torch.randint(8, (30,)), torch.randn(30, 50)",
    )
    added = program(*summed, "i, x").split("@triton")
    (adding,) = [number for number, part in enumerate(added) if "tl.atomic_add" in part]
    assert not added[adding - 1].startswith(".autotune"), "a second launch would add again"
    monkeypatch.setattr(wrapper, "TUNED", 2**33)
    assert "autotune" not in program(*plain)
