"""The shell steps of `.github/workflows/label.yml` as they stand, from plan to merge, on the CPU.

What GitHub does between them is done here: outputs, artifacts and the matrix of shards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"

REFERENCE = f"""{HEAD}

class Model(nn.Module):
    def forward(self, x):
        return x * 3 + 1


def get_inputs():
    return [torch.randn(100)]


def get_init_inputs():
    return []
"""

PROGRAM = f"""{HEAD}

@triton.jit
def scale_and_add(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 3 + 1, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        scale_and_add[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
"""

PROGRAMS = {
    "right": (PROGRAM, "correct"),
    "wrong": (PROGRAM.replace("* 3 + 1", "* 3"), "incorrect"),
    "by PyTorch": (PROGRAM.replace("return out", "return x * 3 + 1"), "cheat"),
}


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A runner: its variables, and `curate` on its path instead of a new environment."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "curate"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m curate "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    known = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    output = tmp_path / "github_output"
    return {**os.environ, "PATH": path, "PYTHONPATH": known, "GITHUB_OUTPUT": str(output)}


def run_steps(job: dict[str, Any], variables: dict[str, str], folder: Path) -> None:
    """Run a job's shell steps as a runner does, but for those that install `curate`."""
    for step in job["steps"]:
        if "run" in step and "venv" not in step["run"]:
            command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
            ran = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
            assert ran.returncode == 0, (step["run"], ran.stdout, ran.stderr)


@pytest.mark.slow
@pytest.mark.weekly
def test_every_candidate_has_one_verdict_in_the_end(
    machine: dict[str, str], tmp_path: Path
) -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/label.yml").read_text())["jobs"]
    work = tmp_path / "work"
    work.mkdir()
    rows = [{"id": i, "reference": REFERENCE, "triton": p} for i, (p, _) in PROGRAMS.items()]
    (work / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    machine |= {"CANDIDATES": "in.jsonl", "SHARDS": "2", "BACKEND": "cpu", "TIMING": "--no-timing"}

    run_steps(jobs["plan"], machine, work)
    name, _, value = Path(machine["GITHUB_OUTPUT"]).read_text().partition("=")
    assert name == "shards" and json.loads(value) == [1, 2]
    for shard in json.loads(value):
        run_steps(jobs["judge"], {**machine, "SHARD": str(shard)}, work)
    run_steps(jobs["merge"], machine, work)

    lines = (work / "verdicts.jsonl").read_text().splitlines()
    found = [(verdict["id"], verdict["status"]) for verdict in map(json.loads, lines)]
    assert found == [(name, status) for name, (_, status) in PROGRAMS.items()]
