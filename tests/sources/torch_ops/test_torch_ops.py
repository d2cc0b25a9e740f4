"""The source that makes problems from PyTorch's operators and from compositions of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from curate.problem.eager import load
from curate.rows import LICENSE, ORIGIN, ROW, Row
from curate.sources.torch_ops.check import check
from curate.sources.torch_ops.compositions import FAMILIES, compositions
from curate.sources.torch_ops.skips import skip_reason
from curate.sources.torch_ops.torch_ops import TorchOps
from curate.step import Context, Drop


def _read(source: TorchOps, context: Context) -> tuple[list[Row], list[tuple[Row, Drop]]]:
    kept: list[Row] = []
    dropped: list[tuple[Row, Drop]] = []
    for unit in source.units(context):
        for item in source.read(unit, context):
            if isinstance(item, tuple):
                dropped.append(item)
            else:
                kept.append(item)
    return kept, dropped


def test_units_need_no_torch() -> None:
    code = (
        "import sys; from curate.sources.torch_ops.torch_ops import TorchOps\n"
        "from curate.step import Context\n"
        "TorchOps(source='torch_ops').units(Context()); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_units_cover_every_composition_once() -> None:
    units = TorchOps(source="torch_ops", single=0, compositions=250).units(Context())
    covered = [i for unit in units for i in range(unit.spec["start"], unit.spec["stop"])]
    assert covered == list(range(250))
    assert len({unit.key for unit in units}) == len(units)


def test_key_follows_seed_and_the_options_that_matter() -> None:
    def keys(seed: int = 0, **options: object) -> list[str]:
        source = TorchOps.model_validate({"source": "torch_ops", "compositions": 100, **options})
        return [unit.key for unit in source.units(Context(seed=seed))]

    assert keys() == keys()
    assert not set(keys()) & set(keys(seed=1))
    assert keys()[-1] == keys(single=5)[-1]
    assert keys()[0] != keys(operators=["nn.*"])[0]


def test_compositions_repeat_and_follow_the_seed() -> None:
    first = list(islice(compositions(3), 200))
    assert first == list(islice(compositions(3), 200))
    assert first != list(islice(compositions(4), 200))


def test_three_thousand_compositions_differ_in_more_than_sizes() -> None:
    found = list(islice(compositions(0), 3000))
    assert len(found) == 3000
    bodies = {ast.dump(ast.parse(_model_code(text))) for _, text in found}
    assert len(bodies) > 2950
    assert {family for family, _ in found} == {family.__name__ for family in FAMILIES}


def _model_code(text: str) -> str:
    """The class without its docstring: sizes stand below it."""
    (model,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    return "\n".join(ast.unparse(node) for node in model.body[1:])


def test_compositions_use_what_they_define() -> None:
    for _, text in islice(compositions(1), 600):
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        constants = {
            target.id
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        loaded = {
            node.id
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        assert constants <= loaded, text
        assert ("F" in names) == ("import torch.nn.functional as F" in text)
        assert max(len(line) for line in text.splitlines()) <= 100


def test_compositions_pass_their_check() -> None:
    kept, dropped = _read(TorchOps(source="torch_ops", single=0, compositions=150), Context(seed=5))
    assert len(kept) + len(dropped) == 150
    assert len(dropped) <= 3, [drop for _, drop in dropped]
    assert len({row["id"] for row in kept}) == len(kept)


def test_rows_have_every_column() -> None:
    kept, _ = _read(
        TorchOps(source="torch_ops", single=1, compositions=1, operators=("nn.functional.gelu",)),
        Context(),
    )
    symbols = [row["origin"]["symbol"] for row in kept]
    assert symbols == ["nn.functional.gelu#0", f"{FAMILIES[0].__name__}#0"]
    for row in kept:
        assert row["kind"] == "task"
        assert set(row) == set(ROW.names)
        assert set(row["origin"]) == {field.name for field in ORIGIN}
        assert set(row["license"]) == {field.name for field in LICENSE}
        assert "+" not in row["origin"]["purl"]
        assert "def get_init_inputs" in row["reference"]


def test_license_texts_are_kept(tmp_path: Path) -> None:
    kept, _ = _read(TorchOps(source="torch_ops", single=0, compositions=1), Context(cache=tmp_path))
    hashes = kept[0]["license"]["text_sha256"]
    texts = [(tmp_path / "texts" / f"{sha256}.txt").read_text() for sha256 in hashes]
    assert any("Redistribution and use in source and binary forms" in text for text in texts)
    assert (
        Path(__file__).parents[3] / "LICENSE"
    ).read_text() in texts  # also where curate is not installed


def test_operator_patterns_choose_and_bar() -> None:
    patterns = ("amax", "sum", "nn.functional.*norm", "!*.local_response_norm")
    kept, dropped = _read(
        TorchOps(source="torch_ops", single=1, compositions=0, operators=patterns), Context()
    )
    names = {row["origin"]["symbol"].partition("#")[0] for row in kept}
    assert {"amax", "sum", "nn.functional.layer_norm", "nn.functional.group_norm"} <= names
    assert "nn.functional.local_response_norm" not in names
    assert not dropped


def test_left_out_operators_say_why() -> None:
    _, dropped = _read(
        TorchOps(source="torch_ops", single=1, compositions=0, operators=("linalg.svd", "rand*")),
        Context(),
    )
    reasons = {drop.evidence["operator"]: drop.evidence["why"] for _, drop in dropped}
    assert reasons["linalg.svd"] == "linear_algebra"
    assert reasons["rand_like"] == "random"
    assert all(row["reference"] is None for row, _ in dropped)


def test_skip_reason_knows_views_and_keeps_arithmetic() -> None:
    assert skip_reason("transpose") == "view_or_copy"
    assert skip_reason("add") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["masked.amax", "special.bessel_j0", "softmax.with_dtype"])
def test_operators_that_nobody_calls_are_left_out(name: str) -> None:
    assert skip_reason(name) == "rarely_called"


def test_images_are_resized_to_sizes_in_proportion() -> None:
    source = TorchOps(
        source="torch_ops",
        single=1,
        compositions=0,
        operators=("nn.functional.interpolate.nearest", "nn.functional.interpolate.bilinear"),
    )
    kept, _ = _read(source, Context())
    sizes = [int(n) for row in kept for n in re.findall(r"size=\((\d+)", row["reference"] or "")]
    assert sizes and min(sizes) >= 16


@pytest.mark.weekly
def test_single_operators_are_many_and_written_once() -> None:
    chosen = TorchOps(source="torch_ops", single=1, compositions=0, operators=("nn.*",))
    kept, dropped = _read(chosen, Context())
    references = [row["reference"] for row in kept]
    assert len(references) >= 70
    assert len(set(references)) == len(references)
    assert not [drop for _, drop in dropped if drop.reason == "does_not_run"]


CHECKED = {
    "constant_output": "return x * 0.0 + 1.0",
    "not_finite": "return torch.log(x - 100.0)",
    "ignores_input": "return x + 0.0 * y",
    "not_deterministic": "return x + y + torch.rand_like(x)",
    "does_not_run": "return x @ y",
}


@pytest.mark.parametrize("reason", CHECKED)
def test_check_finds(reason: str) -> None:
    from curate.sources.torch_ops.check import check

    text = f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        {CHECKED[reason]}

def get_inputs():
    return [torch.randn(8, 16), torch.randn(8, 16)]

def get_init_inputs():
    return []
"""
    outcome = check(text)
    assert outcome is not None and outcome.reason == reason
    assert check(text.replace(CHECKED[reason], "return x * y")) is None


def test_check_finds_a_parameter_without_effect() -> None:
    from curate.sources.torch_ops.check import check

    text = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(8, 1))

    def forward(self, x):
        return torch.softmax(x + self.shift, dim=-1)

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return []
"""
    outcome = check(text)
    assert outcome == Drop("ignores_parameter", {"parameter": "shift"})


def test_an_operator_that_gives_its_input_back_is_no_problem() -> None:
    source = TorchOps(source="torch_ops", single=16, compositions=0, operators=("diff", "roll"))
    kept, _ = _read(source, Context())
    assert kept
    for row in kept:
        names = load(row["reference"])
        torch.manual_seed(0)
        (given, *rest) = names["get_inputs"]()
        result = names["Model"](*names["get_init_inputs"]())(given, *rest)
        assert not (result.shape == given.shape and torch.equal(result, given)), row["reference"]


def test_quantised_products_of_each_kind_run_and_stay_quantised() -> None:
    texts = [
        text for family, text in islice(compositions(2), 1500) if family == "quantised_product"
    ]
    kinds = {
        "_int_mm(x, ": "dtype=torch.int8",
        "_int_mm(codes, ": "amax(dim=-1, keepdim=True)",
        "[:, None]": "dtype=torch.int8",
        "float8_e": "self.weight.to(x.dtype)",
        "repeat_interleave": "dtype=torch.uint8",
    }
    for sign, more in kinds.items():
        own = [text for text in texts if sign in text]
        assert own and all(more in text for text in own), sign
        assert [check(text) for text in own[:1]] == [None], sign
