"""Modules of KernelBook become tasks, or are dropped with the reason.

The rows in ``kernelbook_rows.jsonl`` were made by ``benchmarks/kernelbook_rows.py`` with PyTorch
2.5.0 from modules written there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shared_judge import not_correct

from curate.generator.inductor import Inductor
from curate.harvest.kernelbook.kernelbook import Kernelbook
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, Keep
from curate.verify import Candidate, Judge

pytest_plugins = ["shared_judge"]

RECORDS = {
    record["entry_point"]: record
    for record in map(
        json.loads, Path(__file__).with_name("kernelbook_rows.jsonl").read_text().splitlines()
    )
}
MIT = {"expression": "MIT", "choice": "MIT", "method": "card"}


def row(**columns: Any) -> Row:
    text = json.dumps(columns)
    return make_row("record", text, make_origin("hub"), text=text, license=MIT)


def apply(record: Row) -> Keep | Drop:
    return Kernelbook(step="kernelbook").apply(record, Context())


def task(record: Row) -> Row:
    outcome = apply(record)
    assert isinstance(outcome, Keep), outcome
    return outcome.rows[0]


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_sound_row_becomes_a_task(name: str) -> None:
    made = task(row(**RECORDS[name]))
    assert "class Model(" in made["reference"]
    assert made["license"] == row(**RECORDS[name])["license"]
    assert made["origin"]["symbol"] == name
    assert made["origin"]["derived_from"] == [RECORDS[name]["repo_link"]]


def test_a_program_is_printed_for_it_and_is_correct(thorough_judge: Judge) -> None:
    printed = Inductor(step="inductor").apply(task(row(**RECORDS["ScaledSwish"])), Context())
    assert isinstance(printed, Keep), printed
    (pair,) = printed.rows
    candidate = Candidate("a", pair["reference"], pair["triton"])
    assert not not_correct(thorough_judge.run([candidate]))


def test_keyword_arguments_become_positional_in_the_order_of_the_constructor() -> None:
    # def __init__(self, offset, factor=1.0), called with factor=0.5, offset=0.25
    assert "return [0.25, 0.5]" in task(row(**RECORDS["ScaledSwish"]))["reference"]


def test_a_class_called_like_one_of_torch_keeps_it() -> None:
    code = RECORDS["Affine"]["python_code"].replace("Affine", "Identity")
    code = code.replace("return x *", "return nn.Identity()(x) *")
    renamed = {**RECORDS["Affine"], "entry_point": "Identity", "python_code": code}
    assert "nn.Identity()(x)" in task(row(**renamed))["reference"]


@pytest.mark.parametrize(
    ("old", "new", "reason", "evidence"),
    [
        ("torch.ones(n)", "torch.empty(n)", "uninitialised", "scale"),
        ("torch.ones(n)", "torch.Tensor(n)", "uninitialised", "scale"),
        ("x * self", "F.dropout(x) * self", "nondeterministic", ""),
        ("return x * self", "return 0 * x * self", "constant_output", ""),
        ("import torch\n", "import helpers\n", "foreign_import", "helper"),
        ("get_inputs", "inputs", "incomplete", "get_inputs"),
        ("{'n'", "{'m'", "init_inputs", "missing"),
        ("def forward(", "def forward(((", "syntax_error", "python_code"),
    ],
)
def test_defects_are_dropped_with_their_reason(
    old: str, new: str, reason: str, evidence: str
) -> None:
    code = RECORDS["Affine"]["python_code"]
    assert old in code
    outcome = apply(row(**{**RECORDS["Affine"], "python_code": code.replace(old, new)}))
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
    assert outcome.evidence["missing"] == ["python_code"]
