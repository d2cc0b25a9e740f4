"""What the executor makes of Triton's language: the cases of `kernel_cases`, as TTIR."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "kernel_cases.py"
NAMES = [
    node.name
    for node in ast.parse(CASES.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Run all cases in one process of their own: what stands in for Triton's runtime stays."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", CASES],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CASES.parents[3])},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    result: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("name", NAMES)
def test_language(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "ok"
