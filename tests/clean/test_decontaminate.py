from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from run_for_tests import Small
from steps_for_tests import Given

from curate.clean.decontaminate import Decontaminate
from curate.clean.fingerprint import make_fingerprints, shipped_names, write_benchmark
from curate.clean.forms.parts import PlainProgram
from curate.clean.wiring.wiring import read_wiring
from curate.engine.identity import identity
from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.recipe import RecipeError, load_recipe
from curate.rows import make_origin, make_row
from curate.step import Context, Drop, Keep

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

SOFTMAX = '''@triton.jit
def softmax_kernel(out_ptr, in_ptr, n_cols, BLOCK: tl.constexpr):
    """Softmax of one row."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(in_ptr + row * n_cols + cols, mask=inside, other=-float("inf"))
    x = x - tl.max(x, axis=0)  # stable
    e = tl.exp(x)
    tl.store(out_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=inside)
'''

RENAMED_SOFTMAX = """@triton.heuristics({"N": lambda args: 64})
@triton.jit
def _rows(
    y,
    source,
    width,
    N,
):
    pid = tl.program_id(0)
    # where we are
    lanes = tl.arange(0, N)
    ok = lanes < width
    v = tl.load(
        source + pid * width + lanes,
        mask=ok,
        other=-float("inf"),
    )
    v = v - tl.max(v, axis=0)
    top = tl.exp(v)
    tl.store(y + pid * width + lanes, (top / tl.sum(top, axis=0)), mask=ok)
"""

OTHER_SOFTMAX = """@triton.jit
def softmax_rows(x_ptr, y_ptr, x_stride, y_stride, n, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(axis=0)
    offsets = tl.arange(0, BLOCK_SIZE)
    values = tl.load(x_ptr + start * x_stride + offsets, mask=offsets < n, other=float("-inf"))
    peak = tl.max(values, 0)
    numerator = tl.exp(values - peak)
    total = tl.sum(numerator, 0)
    tl.store(y_ptr + start * y_stride + offsets, numerator / total, mask=offsets < n)
"""

ADD = """@triton.jit
def add(a, b, c, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    where = start + tl.arange(0, BLOCK)
    inside = where < n
    tl.store(c + where, tl.load(a + where, mask=inside) + tl.load(b + where, mask=inside), inside)
"""

OTHER_ADD = """@triton.jit
def add_vectors(left_ptr, right_ptr, out_ptr, size, BLOCK_SIZE: tl.constexpr):
    block = tl.program_id(axis=0)
    index = block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    left = tl.load(left_ptr + index, mask=index < size, other=0.0)
    right = tl.load(right_ptr + index, mask=index < size, other=0.0)
    total = left + right
    tl.store(out_ptr + index, total, mask=index < size)
"""

RELU = """@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)
"""


@pytest.fixture
def against(tmp_path: Path) -> str:
    """A fingerprint file of a benchmark with three items."""
    folder = tmp_path / "benchmark"
    folder.mkdir()
    for name, code in (("softmax", SOFTMAX), ("add", ADD), ("relu_then_add", RELU + "\n\n" + ADD)):
        (folder / f"{name}.py").write_text(HEAD + code)
    file = tmp_path / "ours.json"
    write_benchmark(file, make_fingerprints([folder], "ours").benchmark)
    return str(file)


def kernel(code: str, kind: str = "kernel", column: str = "triton") -> dict[str, Any]:
    return make_row(kind, code, make_origin("local"), **{column: code})


def judge(against: str, row: dict[str, Any]) -> Drop | Keep:
    return Decontaminate(step="decontaminate", against=(against,)).apply(row, Context())


def test_a_copy_is_found(against: str) -> None:
    assert judge(against, kernel(HEAD + SOFTMAX)) == Drop(
        "contaminated",
        {
            "benchmark": "ours",
            "item": "softmax.py",
            "tier": "structure",
            "score": 1.0,
            "column": "triton",
            "part": "kernel softmax_kernel",
            "lines": [1, 16],
        },
    )


def test_a_renamed_copy_among_other_code_is_found(against: str) -> None:
    code = HEAD + OTHER_ADD + "\n\n" + RENAMED_SOFTMAX + "\n\nWIDTH = 3\n"
    outcome = judge(against, kernel(code, "kernel", "host_function"))
    assert isinstance(outcome, Drop)
    assert outcome.evidence["item"] == "softmax.py"
    assert outcome.evidence["column"] == "host_function"
    first, last = outcome.evidence["lines"]
    lines = code.splitlines()
    assert lines[first - 1].startswith("def _rows")
    assert lines[last - 1].startswith("    tl.store(y")


@pytest.mark.parametrize("code", [OTHER_SOFTMAX, OTHER_ADD, RELU], ids=["softmax", "add", "relu"])
def test_honest_look_alikes_are_kept(code: str, against: str) -> None:
    outcome = judge(against, kernel(HEAD + code))
    assert isinstance(outcome, Keep)


def test_of_items_that_share_a_part_the_first_by_name_is_named(against: str) -> None:
    outcome = judge(against, kernel(HEAD + ADD + "\n\nSIZE = 4\n"))
    assert isinstance(outcome, Drop)
    assert outcome.evidence["item"] == "add.py"


def test_what_is_not_python_is_kept(against: str) -> None:
    row = kernel("def (")
    assert judge(against, row) == Keep((row | {"contamination": None},))


def test_a_row_without_code_is_kept(against: str) -> None:
    row = kernel("") | {"triton": None}
    assert judge(against, row) == Keep((row | {"contamination": None},))


# --- what is computed, and texts inside texts ---------------------------------------------------

FORM = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.rand(3, 6)]


def get_init_inputs():
    return []
"""
GATED = FORM.format(
    init="self.up, self.gate = nn.Linear(width, 8), nn.Linear(width, 8)",
    forward="x = F.mish(self.gate(x)) * self.up(x)\n        x = torch.tanh(x)\n"
    "        return x - x.mean(dim=-1, keepdim=True)",
)
GATED_IN_OTHER_WORDS = FORM.format(
    init="self.a, self.b = nn.Linear(6, 8), nn.Linear(6, 8)",
    forward="g = self.a(x)\n        u = F.linear(x, self.b.weight, self.b.bias)\n"
    "        t = (u * nn.Mish()(g)).tanh()\n        return t - torch.mean(t, -1, True)",
)
HOLDS_GATED = FORM.format(
    init="self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 6)",
    forward="y = torch.relu(self.c(x)) + x\n        t = (self.b(y) * nn.Mish()(self.a(y))).tanh()\n"
    "        t = t - torch.mean(t, -1, True)\n        return torch.cos(t).sum(0)",
)
ONLY_HALF = GATED.replace("x = torch.tanh(x)", "x = x.exp()").replace("x.mean", "x.amax")
CLIPPED = FORM.format(init="self.low = -0.75", forward="return F.hardtanh(x, self.low, 1.5)")
CLIPPED_IN_OTHER_WORDS = FORM.format(
    init="self.high = 1.5", forward="return torch.where(x > self.high, self.high, x).clip(-0.75)"
)
CLIPPED_ELSEWHERE = CLIPPED_IN_OTHER_WORDS.replace("0.75", "0.5")
LAYER = FORM.format(init="self.norm = nn.LayerNorm(width)", forward="return self.norm(x)")
LAYER_IN_OTHER_WORDS = FORM.format(
    init="self.g, self.b = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))",
    forward="return F.layer_norm(x, x.shape[-1:], bias=self.b, weight=self.g, eps=1e-6)",
)
HOLDS_A_LAYER = FORM.format(
    init="self.norm, self.up = nn.LayerNorm(6), nn.Linear(6, 6)",
    forward="return torch.relu(self.norm(self.up(x))) + x",
)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fingerprint file of a benchmark with three problems."""
    folder = tmp_path_factory.mktemp("problems")
    for name, code in (("gated", GATED), ("clipped", CLIPPED), ("layer", LAYER)):
        (folder / f"{name}.py").write_text(code)
    file = folder / "ours.json"
    write_benchmark(file, make_fingerprints([folder], "ours").benchmark)
    return str(file)


def task(code: str) -> dict[str, Any]:
    row = kernel(code, "task", "reference")
    return row | {"wiring": read_wiring(code)}


@pytest.mark.parametrize("code", [GATED_IN_OTHER_WORDS, HOLDS_GATED], ids=["alone", "held"])
def test_a_problem_in_other_words_is_found_by_its_wiring(code: str, problems: str) -> None:
    outcome = judge(problems, task(code))
    assert isinstance(outcome, Drop) and outcome.reason == "contaminated"
    assert (outcome.evidence["tier"], outcome.evidence["item"]) == ("wiring", "gated.py")
    assert isinstance(judge(problems, task(code) | {"wiring": None}), Keep)


@pytest.mark.parametrize("code", [ONLY_HALF, HOLDS_A_LAYER, CLIPPED_ELSEWHERE])
def test_problems_that_share_some_wiring_are_kept(code: str, problems: str) -> None:
    step = Decontaminate(step="decontaminate", against=(problems,), overlap=None, resemblance=None)
    row = task(code)
    (kept,) = step.apply(row, Context()).rows  # type: ignore[union-attr]
    assert kept["id"] == row["id"]
    assert not (kept["contamination"] or {}).get("computes")


@pytest.mark.parametrize(
    ("code", "item", "tier"),
    [
        (CLIPPED_IN_OTHER_WORDS, "clipped.py", "values"),
        (LAYER_IN_OTHER_WORDS, "layer.py", "wiring"),
    ],
)
def test_a_building_block_in_other_words_is_dropped_or_marked(
    code: str, item: str, tier: str, problems: str
) -> None:
    outcome = judge(problems, task(code))
    assert isinstance(outcome, Drop) and outcome.reason == "computes_benchmark_item"
    assert (outcome.evidence["item"], outcome.evidence["tier"]) == (item, tier)
    marking = Decontaminate(step="decontaminate", against=(problems,), computes="mark")
    (kept,) = marking.apply(task(code), Context()).rows  # type: ignore[union-attr]
    assert kept["contamination"]["computes"] == f"ours {item}"


SMALL = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.rand(3, 6)]


def get_init_inputs():
    return []
"""
SMALL_LAYER = """from torch import nn, rand


class Model(nn.Conv1d):
    def forward(self, x):
        return super().forward(x)


def get_inputs():
    return [rand(2, 3, 6)]


def get_init_inputs():
    return [3, 4, 2]
"""
SMALL_ITEMS = {
    "relu.py": SMALL.format("torch.relu(x)"),
    "softsign.py": SMALL.format("x / (1 + x.abs())"),
    "layer.py": SMALL_LAYER,
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fingerprint file of a benchmark whose items are below `MIN_NODES`, but for one."""
    folder = tmp_path_factory.mktemp("small")
    for name, code in {**SMALL_ITEMS, "identity.py": SMALL.format("x.clone()")}.items():
        assert not list(PlainProgram(code).parts())
        (folder / name).write_text(code)
    made = make_fingerprints([folder], "small")
    assert made.passed_over.keys() == {"identity.py"}
    assert "computes nothing" in made.passed_over["identity.py"]
    file = folder / "small.json"
    write_benchmark(file, made.benchmark)
    return str(file)


@pytest.mark.parametrize("item", SMALL_ITEMS)
def test_a_small_item_is_found_by_what_it_computes(item: str, small: str) -> None:
    outcome = judge(small, task(SMALL_ITEMS[item]))
    assert isinstance(outcome, Drop) and outcome.reason == "computes_benchmark_item"
    assert outcome.evidence["item"] == item


@pytest.mark.parametrize(
    "code",
    [
        SMALL.format("torch.relu(x) + x"),  # a problem that holds an item is another one
        SMALL.format("torch.sigmoid(x)"),
        SMALL.format("x"),  # all that moves its input would be one with an item that gives it back
        SMALL.format("x.t()"),
    ],
)
def test_what_holds_a_small_item_or_computes_nothing_is_kept(code: str, small: str) -> None:
    assert isinstance(judge(small, task(code)), Keep)


MESSAGE = f"Can you make this faster?\n\n```python\n{GATED}```\n\nThank you.\n"


@pytest.mark.parametrize(
    ("row", "column", "inside"),
    [
        ({"kind": "prompt", "turns": [{"role": "user", "content": MESSAGE}]}, "turns", "fence"),
        ({"kind": "cuda", "cuda": GATED}, "cuda", None),
        ({"kind": "module", "text": json.dumps({"messages": [MESSAGE]})}, "text", "fence"),
        ({"kind": "pair", "triton": f"import json\n\nASK = {MESSAGE!r}\n"}, "triton", "fence"),
        ({"kind": "pair", "triton": f"WHAT = {GATED!r}\n"}, "triton", "string"),
        (
            {"kind": "sample", "turns": [{"role": "user", "content": f"See.\n\n{GATED}\nSo."}]},
            "turns",
            "paragraph",
        ),
        ({"kind": "module", "text": json.dumps(GATED.splitlines(True))}, "text", "json"),
        (
            {"kind": "module", "text": "".join(f"> {s}\n" for s in GATED.splitlines())},
            "text",
            "quote",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_problem_inside_another_text_is_found(
    row: dict[str, Any], column: str, inside: str | None, problems: str
) -> None:
    step = Decontaminate(step="decontaminate", against=(problems,), resemblance=None)
    outcome = step.apply(kernel("") | {"triton": None} | row, Context())
    assert isinstance(outcome, Drop)
    found = outcome.evidence
    assert (found["item"], found["column"], found.get("inside")) == ("gated.py", column, inside)


def test_thresholds_are_part_of_the_identity(against: str) -> None:
    plain = Decontaminate(step="decontaminate", against=(against,))
    other = Decontaminate(step="decontaminate", against=(against,), overlap=0.9)
    assert identity(plain, seed=0) != identity(other, seed=0)


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_files_pass_what_we_wrote(name: str) -> None:
    for code in (SOFTMAX, OTHER_SOFTMAX, OTHER_ADD, RELU):
        outcome = judge(name, kernel(HEAD + code))
        assert isinstance(outcome, Keep)
        nearest = outcome.rows[0]["contamination"]
        assert nearest is None or nearest["benchmark"] == name


def test_all_shipped_files_are_the_default() -> None:
    assert list(Decontaminate(step="decontaminate").against) == shipped_names()


def test_identity_is_the_content_of_the_files(against: str, tmp_path: Path) -> None:
    def of(name: str) -> dict[str, Any]:
        return identity(Decontaminate(step="decontaminate", against=(name,)), seed=0)

    copy = tmp_path / "copy.json"
    copy.write_bytes(Path(against).read_bytes())
    before = of(against)
    assert of(str(copy)) == before
    content = json.loads(copy.read_text())
    del content["items"]["add.py"]
    copy.write_text(json.dumps(content))
    assert of(str(copy)) != before
    assert of("kernelbench") != of("tritonbench-g")


@pytest.mark.parametrize("name", ["kernelbensch", "missing.json", "."])
def test_unknown_files_are_named(name: str) -> None:
    with pytest.raises(ValidationError, match="shipped are kernelbench, "):
        Decontaminate(step="decontaminate", against=(name,))


def test_a_recipe_with_an_unknown_file_is_refused_with_its_line(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: small\nsources: [{source: local, path: .}]\nsteps:\n"
        "  - step: decontaminate\n    against: [kernelbench, nowhere.json]\n"
    )
    with pytest.raises(RecipeError, match=r"recipe\.yaml:5: steps\.0\.against: .*nowhere\.json"):
        load_recipe(recipe)


def test_in_a_run(against: str, tmp_path: Path) -> None:
    rows = [kernel(HEAD + code) for code in (SOFTMAX, RENAMED_SOFTMAX, OTHER_SOFTMAX, OTHER_ADD)]
    step = Decontaminate(step="decontaminate", against=(against,))
    walk = Walk(Small([Given(rows=rows)], [step]), tmp_path / "out", LocalExecutor(1))  # type: ignore[arg-type]
    stage = walk.run()[-1]
    assert (stage.total("seen"), stage.total("kept")) == (4, 2)


@pytest.mark.parametrize("reader", ["decontaminate", "dedupe, column: wiring"])
def test_a_recipe_that_reads_wirings_too_early_is_refused(reader: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    head = "name: small\nsources: [{source: torch_ops}]\nsteps:\n"
    recipe.write_text(f"{head}  - {{step: {reader}}}\n  - {{step: wiring}}\n")
    with pytest.raises(RecipeError, match="put `- step: wiring` before it"):
        load_recipe(recipe)
    recipe.write_text(f"{head}  - {{step: wiring}}\n  - {{step: {reader}}}\n")
    assert load_recipe(recipe).steps[0].name == "wiring"
