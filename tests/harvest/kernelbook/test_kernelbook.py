"""Rows of KernelBook become tasks whose programs run today, or are dropped with the reason.

The rows in ``kernelbook_rows.jsonl`` were made by ``benchmarks/kernelbook_rows.py`` with PyTorch
2.5.0 from modules written there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.harvest.kernelbook.kernelbook import Kernelbook
from curate.inductor.standalone import Standalone
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, Keep

RECORDS = {
    record["entry_point"]: record
    for record in map(
        json.loads, Path(__file__).with_name("kernelbook_rows.jsonl").read_text().splitlines()
    )
}
SOUND = sorted(RECORDS.keys() - {"SwishMlp"})
MIT = {"expression": "MIT", "choice": "MIT", "method": "card"}
GRID = "from torch._inductor.runtime.triton_heuristics import grid\n"


def row(**columns: Any) -> Row:
    text = json.dumps(columns)
    return make_row("record", text, make_origin("hub"), text=text, license=MIT)


def changed(name: str, column: str, old: str, new: str) -> Row:
    code = RECORDS[name][column]
    assert old in code
    return row(**{**RECORDS[name], column: code.replace(old, new)})


def apply(record: Row, **options: Any) -> Keep | Drop:
    step = Kernelbook.model_validate({"step": "kernelbook", **options})
    return step.apply(record, Context())


def program(record: Row, **options: Any) -> Row:
    outcome = apply(record, **options)
    assert isinstance(outcome, Keep), outcome
    pair = Standalone(step="standalone").apply(outcome.rows[0], Context())
    assert isinstance(pair, Keep), pair
    return pair.rows[0]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_row_becomes_a_plain_program(name: str) -> None:
    pair = program(row(**RECORDS[name]))
    assert "torch._inductor" not in pair["triton"]
    assert "class ModelNew(" in pair["triton"]
    assert "class Model(" in pair["reference"]
    assert pair["static"]["pure_triton"]
    assert pair["license"]["choice"] == "BSD-3-Clause AND MIT"
    assert pair["origin"]["symbol"] == name
    assert pair["origin"]["derived_from"] == [RECORDS[name]["repo_link"]]
    tools = pair["origin"]["generator"]["tools"]
    assert tools[:2] == ["torch 2.5.0", "triton 3.1.0"]
    assert "repair grid" in tools
    assert ("repair reduction_axis" in tools) == (name in ("SwishMean", "MseLoss"))
    assert ("repair saved_outputs" in tools) == (name == "Affine")


def test_kernels_are_named_after_their_operators() -> None:
    assert "def sigmoid_mul_kernel(" in program(row(**RECORDS["SwishOfSwish"]))["triton"]
    assert program(row(**RECORDS["SwishOfSwish"]))["static"]["ops"] == [
        "aten.mul.Tensor",
        "aten.sigmoid.default",
    ]


def test_keyword_arguments_become_positional_in_the_order_of_the_constructor() -> None:
    # def __init__(self, offset, factor=1.0), called with factor=0.5, offset=0.25
    assert "return [0.25, 0.5]" in program(row(**RECORDS["ScaledSwish"]))["reference"]


def test_tensors_keep_the_places_that_the_program_gives_them() -> None:
    """Which parameter goes where is the program's business: a wrong one stays wrong."""
    right = program(row(**RECORDS["Affine"]))["triton"]
    code = RECORDS["Affine"]["triton_code"]
    assert "primals_1 = self.scale" in code and "primals_2 = self.shift" in code
    code = code.replace("= self.scale", "= ?").replace("= self.shift", "= self.scale")
    swapped = {**RECORDS["Affine"], "triton_code": code.replace("= ?", "= self.shift")}
    wrong = program(row(**swapped))["triton"]
    assert "x * scale + shift" in right
    assert "x * shift + scale" in wrong, wrong


def test_a_wrong_kernel_stays_wrong() -> None:
    record = changed("SwishOfSwish", "triton_code", "tmp2 * tmp3", "tmp2 + tmp3")
    assert "scaled + tl.sigmoid(scaled)" in program(record)["triton"]


def test_a_class_called_like_one_of_torch_keeps_it() -> None:
    record = RECORDS["Affine"]
    code = record["python_code"].replace("Affine", "Identity")
    code = code.replace("return x *", "return nn.Identity()(x) *")
    triton = record["triton_code"].replace("Affine", "Identity")
    renamed = {**record, "entry_point": "Identity", "python_code": code, "triton_code": triton}
    assert "nn.Identity()(x)" in program(row(**renamed))["reference"]


def test_libraries_do_part_of_the_work() -> None:
    outcome = apply(row(**RECORDS["SwishMlp"]))
    assert isinstance(outcome, Drop)
    assert (outcome.reason, outcome.evidence["calls"]) == ("extern_calls", ["extern_kernels.addmm"])
    pair = program(row(**RECORDS["SwishMlp"]), extern_calls=True)
    assert not pair["static"]["pure_triton"]
    assert pair["static"]["extern_calls"] == ["torch.addmm"]


@pytest.mark.parametrize(
    ("name", "column", "old", "new", "reason", "evidence"),
    [
        ("Affine", "triton_code", GRID, "", "not_movable", "unbound name grid"),
        ("Affine", "triton_code", "[grid(", "[split_scan_grid(", "not_movable", "unbound name"),
        ("SwishOfSwish", "triton_code", "[grid(256)]", "", "not_movable", "without a grid"),
        ("SwishOfSwish", "triton_code", "grid(256)", "grid(64)", "not_movable", "grid(64) for"),
        ("SwishOfSwish", "triton_code", "tl.sigmoid(tmp0)", "tl.rand(3, x0)", "not_movable", "ran"),
        ("SwishOfSwish", "triton_code", "SwishOfSwishNew", "Other", "not_movable", "no SwishOfSwi"),
        ("Affine", "triton_code", "output[0]", "output[9]", "not_movable", "call returns"),
        ("Affine", "original_triton_code", "call(args):", "call(args)", "syntax_error", ""),
        ("Affine", "original_triton_code", "'i32'", "i32()", "not_movable", "no signature"),
        ("Affine", "triton_code", "num_warps=4", "num_warps=warps", "not_movable", "unbound"),
        ("Affine", "triton_code", "num_warps=4", "num_warps=len(args)", "not_movable", "malformed"),
        ("Affine", "original_triton_code", "_add_mul_0", "_other_0", "not_movable", "is not in"),
        ("Affine", "python_code", "torch.ones(n)", "torch.empty(n)", "uninitialised", "scale"),
        ("Affine", "python_code", "torch.ones(n)", "torch.Tensor(n)", "uninitialised", "scale"),
        ("Affine", "python_code", "x * self", "F.dropout(x) * self", "nondeterministic", ""),
        ("Affine", "python_code", "return x * self", "return 0 * x * self", "constant_output", ""),
        ("Affine", "python_code", "import torch\n", "import helpers\n", "foreign_import", "helper"),
        ("Affine", "python_code", "get_inputs", "inputs", "incomplete", "get_inputs"),
        ("Affine", "python_code", "{'n'", "{'m'", "init_inputs", "missing"),
        ("Affine", "python_code", "def forward(", "def forward(((", "syntax_error", "python_code"),
    ],
)
def test_defects_are_dropped_with_their_reason(
    name: str, column: str, old: str, new: str, reason: str, evidence: str
) -> None:
    outcome = apply(changed(name, column, old, new))
    assert isinstance(outcome, Drop), outcome
    assert outcome.reason == reason
    assert evidence in json.dumps(outcome.evidence)


def test_swapped_columns_are_told() -> None:
    record = RECORDS["Affine"]
    columns = {"python_code": record["triton_code"], "triton_code": record["python_code"]}
    outcome = apply(row(**{**record, **columns}))
    assert isinstance(outcome, Drop) and outcome.reason == "swapped_columns"


def test_records_of_another_data_set_are_told() -> None:
    outcome = apply(row(question="?", entry_point="Model"))
    assert isinstance(outcome, Drop) and outcome.reason == "not_kernelbook"
    assert outcome.evidence["missing"] == ["python_code", "triton_code", "original_triton_code"]


@pytest.mark.slow
def test_the_judge_calls_sound_rows_correct_and_others_not() -> None:
    from curate.verify.judge.slots import verify
    from curate.verify.verdict import Candidate, Options

    records = {name: row(**RECORDS[name]) for name in SOUND}
    affine = RECORDS["Affine"]["triton_code"].replace("= self.scale", "= ?")
    affine = affine.replace("= self.shift", "= self.scale").replace("= ?", "= self.shift")
    records["swapped"] = row(**{**RECORDS["Affine"], "triton_code": affine})
    records["wrong"] = changed("SwishOfSwish", "triton_code", "tmp2 * tmp3", "tmp2 * tmp3 * 1.001")
    pairs = {name: program(record) for name, record in records.items()}
    candidates = [Candidate(name, p["reference"], p["triton"]) for name, p in pairs.items()]
    options = Options(backend="cpu", trials=3, workers=1)
    found = {verdict.id: verdict.status for verdict in verify(candidates, options)}
    assert found.pop("swapped") == found.pop("wrong") == "incorrect"
    assert found == dict.fromkeys(SOUND, "correct")
