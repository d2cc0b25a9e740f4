"""The step `inductor`: what it prints, what it drops and why, and where it can run."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from curate.clean.dedupe import Dedupe
from curate.clean.split import Split
from curate.engine.processes.sandbox import sandbox_command
from curate.generator.inductor import FIRST, SECOND, Inductor
from curate.rows import ROW, STATIC, make_origin, make_row
from curate.step import Context, Drop, Keep

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn(8, 100)]


def get_init_inputs():
    return []
"""


def apply(body, **options):
    text = TASK.format(body=body)
    row = make_row("task", text, make_origin("torch_ops"), reference=text)
    row["license"] = {"expression": "MIT", "choice": "MIT"}
    return Inductor(step="inductor", **options).apply(row, Context())


def test_a_task_becomes_a_pair():
    outcome = apply("return torch.sigmoid(x) + 1")
    assert isinstance(outcome, Keep)
    (pair,) = outcome.rows
    assert pair["kind"] == "pair"
    assert "class ModelNew" in pair["triton"]
    assert set(pair["static"]) == {field.name for field in STATIC}
    assert pair["static"]["kernels"] == 1
    assert pair["static"]["any_float"] is True
    assert pair["static"]["ops"] == ["aten.add.Tensor", "aten.sigmoid.default"]
    assert pair["origin"]["generator"]["name"] == "generator"
    assert pair["license"]["choice"] == "MIT"  # no line of PyTorch's is in it


def test_a_data_set_tells_what_a_task_became():
    text = TASK.format(body="return torch.sigmoid(x) + 1")
    row = make_row("task", text, make_origin("torch_ops"), reference=text)
    row["license"] = {"expression": "MIT", "choice": "MIT"}
    step = Inductor(step="inductor")
    (pair,) = step.apply(row, Context()).rows
    written = {**pair, "compile": [], "verdict": {"status": "correct"}}
    assert step.recall(row, [written]) == [pair]
    assert step.recall(row, []) is None
    assert step.recall(row, [{**written, "triton": pair["triton"] + "\n"}]) is None
    assert step.recall({**row, "reference": text + "\n"}, [written]) is None
    assert Inductor(step="inductor", variants=2).recall(row, [written]) is None


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return x + torch.rand_like(x)", "random numbers"),
        ("return {1: x + 1}", "a result of type dict"),
        ("return x + 'a'", "not traced: TypeError"),
        ("import nothing_here", "not traced: ModuleNotFoundError"),
        ("return x", "it computes nothing"),
    ],
)
def test_losses_have_a_reason(body, what):
    outcome = apply(body)
    assert isinstance(outcome, Drop)
    assert outcome.reason == "not_printed"
    assert what in outcome.evidence["what"]


def test_programs_in_which_sizes_decide_between_schedules_are_printed():
    outcome = apply("return torch.softmax(x, 1)")
    assert "<= 4096:" in outcome.rows[0]["triton"]


def test_a_task_whose_loops_have_two_schedules_becomes_two_pairs_on_request():
    assert len(apply("return torch.softmax(x, 1)").rows) == 1
    pairs = apply("return torch.softmax(x, 1)", variants=2).rows
    assert [pair["origin"]["generator"]["name"] for pair in pairs] == [FIRST, SECOND]
    for column in ("id", "triton"):
        assert pairs[0][column] != pairs[1][column]
    for column in ("reference", "parent_ids", "license"):
        assert pairs[0][column] == pairs[1][column]


def test_a_task_whose_loops_have_one_schedule_becomes_one_pair():
    (pair,) = apply("return torch.sigmoid(x) + 1", variants=2).rows
    assert pair["origin"]["generator"]["name"] == FIRST
    assert isinstance(apply("return x", variants=2), Drop)


def test_both_pairs_of_a_task_stay_and_are_in_one_split():
    bodies = ("torch.softmax(x, 1)", "torch.cumsum(x, 1)", "x.amax(1)")
    rows = [pair for body in bodies for pair in apply(f"return {body}", variants=2).rows]
    table = pl.from_arrow(pa.Table.from_pylist(rows, ROW))

    def judged(step):
        columns = table.select("id", "kind", *step.columns)
        return step.judge(step.summarize(columns, Context()), Context())

    assert len(rows) == 6
    assert judged(Dedupe(step="dedupe", column="triton"))["reason"].is_null().all()
    verdicts = judged(Split(step="split", threshold=1))
    clusters = dict(zip(verdicts["id"], verdicts["cluster"], strict=True))
    of_task = {}
    for row in rows:
        of_task.setdefault(row["parent_ids"][0], set()).add(clusters[row["id"]])
    assert [len(found) for found in of_task.values()] == [1, 1, 1]
    assert len(set(clusters.values())) == 3


def test_loading_the_step_imports_no_torch():
    check = "import sys, curate.generator.inductor; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_it_runs_in_the_sandbox_without_home_or_user():
    script = f"""
from curate.generator.inductor import Inductor
from curate.step import Context
step = Inductor(step="inductor")
step.setup(Context())
from curate.rows import make_origin, make_row
task = {TASK.format(body="return torch.softmax(x, -1)")!r}
row = make_row("task", task, make_origin("local", path="a.py"), reference=task)
outcome = step.apply(row, Context())
print(outcome.rows[0]["static"]["kernels"] > 0)
"""
    root = Path(__file__).resolve().parents[2]
    command = ["env", f"PYTHONPATH={root}", sys.executable, "-c", script]
    ran = subprocess.run(sandbox_command(command), capture_output=True, text=True)
    assert ran.stdout == "True\n", ran.stderr
