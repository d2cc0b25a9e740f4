"""The step: what it keeps, what it drops and why, and where it can run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from curate.engine.processes.sandbox import sandbox_command
from curate.inductor.inductor import Inductor
from curate.rows import GENERATED, STATIC, make_origin, make_row
from curate.step import Context, Drop, Keep

TASK = """
import torch

class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = torch.nn.Linear(size, size)

    def forward(self, x):
        {body}

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return [8]
"""


def apply(body, **options):
    origin = make_origin("local", path="a.py")
    row = make_row("task", body, origin, reference=TASK.format(body=body), entry_point="Model")
    return row, Inductor(step="inductor", **options).apply(row, Context())


def test_a_kept_row_is_the_task_with_its_code():
    row, outcome = apply("return torch.softmax(self.fc(x), -1)", target="hip:gfx942")
    assert isinstance(outcome, Keep)
    (kept,) = outcome.rows
    changed = {name for name in row if row[name] != kept[name]}
    assert changed == {"generated", "static"}
    assert set(kept["generated"]) == {field.name for field in GENERATED}
    assert set(kept["static"]) == {field.name for field in STATIC}
    assert kept["generated"]["target"] == "hip:gfx942"
    assert kept["static"]["kernels"] == 1
    assert kept["static"]["dynamic_dims"] == 1
    assert kept["static"]["ops"] == ["aten.linear.default", "aten.softmax.int"]
    assert kept["static"]["extern_calls"] == ["extern_kernels.addmm"]
    assert json.loads(kept["generated"]["spec"])["out_tree"] == 0
    json.dumps(kept)


def test_a_reference_that_cannot_be_imported_is_dropped():
    outcome = Inductor(step="inductor").apply({"reference": "import nothing_here"}, Context())
    assert outcome == Drop(
        "export_failed", {"error": "ModuleNotFoundError: No module named 'nothing_here'"}
    )


@pytest.mark.parametrize(
    ("body", "reason", "evidence"),
    [
        ("return x @ x.T", "no_kernels", {"extern_calls": ["extern_kernels.mm"]}),
        ("return {1: x + 1}", "unsupported", {"what": "result of type dict"}),
        ("return x + 'a'", "export_failed", None),
        ("import nothing_here", "export_failed", None),
    ],
)
def test_losses_have_a_reason_and_evidence(body, reason, evidence):
    _, outcome = apply(body)
    assert isinstance(outcome, Drop)
    assert outcome.reason == reason
    if evidence is None:
        assert outcome.evidence["error"].split(":")[0] in {"TypeError", "ModuleNotFoundError"}
    else:
        assert outcome.evidence == evidence


def test_an_unknown_target_is_refused_with_the_known_ones():
    with pytest.raises(ValidationError, match=r"'cuda:75', 'cuda:80'.*'hip:gfx950'"):
        Inductor(step="inductor", target="cuda:91")


def test_loading_the_step_imports_no_torch():
    check = "import sys, curate.inductor.inductor; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_it_runs_in_the_sandbox_without_home_or_user():
    script = f"""
from curate.inductor.inductor import Inductor
from curate.step import Context
step = Inductor(step="inductor")
step.setup(Context())
task = {TASK.format(body="return torch.softmax(x, -1)")!r}
outcome = step.apply({{"reference": task}}, Context())
print(outcome.rows[0]["static"]["kernels"])
"""
    root = Path(__file__).resolve().parents[2]
    command = ["env", f"PYTHONPATH={root}", sys.executable, "-c", script]
    ran = subprocess.run(sandbox_command(command), capture_output=True, text=True)
    assert ran.stdout == "2\n", ran.stderr  # for rows that fit a tile, and for longer ones
