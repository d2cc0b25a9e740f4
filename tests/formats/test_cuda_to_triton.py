from __future__ import annotations

from typing import Any

import pytest

from curate.formats.cuda_to_triton import CudaToTriton
from curate.rows import make_origin, make_row

LICENSE = {"choice": None, "expression": "MIT"}
PAIRING = {"evidence": [], "path": "a.py", "start_line": 1, "symbol": "_twice"}


@pytest.mark.parametrize(
    ("grade", "reference", "verdict"),
    [
        ("name", None, None),
        ("name", None, {"status": "unsupported", "reason": "no_binding"}),
        ("verified", "class Model: ...", {"status": "correct", "reason": None}),
    ],
)
def test_a_view_says_how_far_a_pair_is_proved(
    grade: str, reference: str | None, verdict: dict[str, Any] | None
) -> None:
    pairing = {**PAIRING, "grade": grade, "verdict": verdict}
    origin = make_origin("pypi", purl="pkg:pypi/p@1", path="a.cu", symbol="twice")
    texts = {"cuda": "__global__ void twice() {}", "triton": "def _twice(): ...", "text": "x"}
    row = make_row(
        "cuda", "x", origin, license=LICENSE, pairing=pairing, reference=reference, **texts
    )
    view = CudaToTriton(format="cuda_to_triton")
    (found,) = view.render(row).rows
    assert set(found) == set(view.columns().names)
    assert (found["grade"], found["reference"]) == (grade, reference)
    assert found["cuda_verdict"] == (verdict and verdict["status"])
    assert found["cuda_verdict_reason"] == (verdict and verdict["reason"])
    assert "__global__" in found["prompt"]
    assert "_twice" in found["completion"]
