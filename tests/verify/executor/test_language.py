"""What the executor makes of Triton's language: the cases of `interpreted_kernels`, as TTIR."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "interpreted_kernels.py"
NAMES = [
    node.name
    for node in ast.parse(CASES.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
]

OTHERWISE = {
    # what Triton's compiler refuses and the interpreter takes
    "case_functions": "error encountered during parsing",  # tl.fdiv of a number
    "case_tuples_and_nested_calls": "unhashable",  # an unpacking within an unpacking
    "case_a_kernel_in_a_function_sees_its_variables": "NameError",
    # what it refuses by errors of other classes
    "case_dot_too_small_is_refused": "CompilationError",
    "case_what_the_compiler_refuses": "Unsupported function referenced",
    "case_wrong_calls_are_the_programs_errors": "CompilationError",
    # what the executor can do and the interpreter cannot
    "case_map_elementwise": "no Unsupported",
    "case_dot_scaled_is_unsupported": "no Unsupported",
    # what the compiler takes away: loops that do nothing
    "case_empty_loops_spend_the_budget": "no Unsupported",
    # what is seen as a race, since programs run at the same time
    "case_programs_run_in_either_order": "Race",
    # what only the host half answers
    "case_grids_larger_than_a_gpu_takes": "",
    "case_a_launch_returns_no_compiled_kernel": "",
    "case_programs_may_ask_the_driver": "",
    "case_gluon_is_unsupported": "",
    # what has no address here: a pointer that the program got from this process
    "case_pointers_from_a_table": "OutOfBounds",
}
"""Cases that end otherwise than in the interpreter, and a word of how."""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """Run all cases in one process of their own: Triton interprets or compiles, never both."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", CASES],
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": str(CASES.parents[2])},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    result: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("name", NAMES)
def test_language(name: str, outcomes: dict[str, str]) -> None:
    if name in OTHERWISE:
        assert outcomes[name] != "ok"
        assert OTHERWISE[name] in outcomes[name]
    else:
        assert outcomes[name] == "ok"
