"""The step `inductor`: what it prints, what it drops and why, and where it can run."""

import subprocess
import sys
from pathlib import Path

import pytest

from curate.engine.processes.sandbox import sandbox_command
from curate.generator.inductor import Inductor
from curate.rows import STATIC, make_origin, make_row
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


def apply(body):
    text = TASK.format(body=body)
    row = make_row("task", text, make_origin("local", path="a.py"), reference=text)
    row["license"] = {"expression": "MIT", "choice": "MIT"}
    return Inductor(step="inductor").apply(row, Context())


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
