from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from faults import _Child, _serve_search

from curate.problem.problem import EXAMPLE

REFERENCE, ORIGINAL = EXAMPLE


@pytest.fixture(scope="module")
def child() -> Iterator[_Child]:
    child = _Child(_serve_search)
    yield child
    child.close()


@pytest.mark.parametrize(
    ("before", "after", "outcome", "seen"),
    [
        ("x + 1", "x + 2", "fault", True),
        ("x + 1", "1 + x", "none", False),
        ("x + 1", "x + 1.00001", "fault", False),
        ("x + 1", "tl.where(x != x, 0.0, x + 1)", "special", False),
        ("out_ptr + offsets", "out_ptr + offsets - 64", "invalid", True),
        ("x + 1", "x + y", "invalid", True),
    ],
)
def test_the_search_tells_faults_from_other_mutants(
    child: _Child, before: str, after: str, outcome: str, seen: bool
) -> None:
    assert before in ORIGINAL
    mutant = ORIGINAL.replace(before, after)
    answer: dict[str, Any] = child.ask(("program", REFERENCE, ORIGINAL, "id", mutant))
    assert (answer["outcome"], answer["kernelbench"]) == (outcome, seen), answer


def test_a_program_that_is_wrong_itself_is_left_out(child: _Child) -> None:
    wrong = ORIGINAL.replace("x + 1", "x + 2")
    assert child.ask(("other", REFERENCE, wrong, "id", ORIGINAL))["outcome"] == "skipped"
