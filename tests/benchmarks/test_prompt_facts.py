"""The prompts of a small data set are true, and the check finds one that is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from prompt_facts import Row, check

from curate.formats.messages import Messages
from curate.rows import COMPILE, STATIC, VERDICT, make_origin, make_row
from curate.step import Keep

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return torch.{operator}(x) * self.scale


rows = 48


def get_inputs():
    return [torch.randn(rows, 100)]


def get_init_inputs():
    return [2.0]
"""
TRITON = '''\
@triton.jit
def {operator}_kernel(x_ptr, out_ptr, n_elements, scale, BLOCK_SIZE: tl.constexpr):
    """Compute {operator}(x) * scale.

    Each program takes BLOCK_SIZE elements.
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, tl.{operator}(x) * scale, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        assert x.dtype != torch.float64, "float64 is not supported"
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        {operator}_kernel[grid](x, out, x.numel(), self.scale, BLOCK_SIZE=1024)
        return out
'''


def pair(number: int) -> Any:
    operator = ("exp", "cos", "sin", "erf")[number % 4]
    static = {"pure_triton": True, "any_float": True, "specialised": [], "kernels": 1}
    static |= {"ops": [f"aten.{operator}.default", f"{operator}.scaled"], "extern_calls": []}
    verdict = {"status": "correct", "caveats": [], "launches": 1, "max_abs_error": 3e-5}
    verdict |= {"kind": "pure_triton"}
    columns: Row = {
        "reference": REFERENCE.format(operator=operator),
        "triton": TRITON.format(operator=operator),
        "license": {"choice": "MIT", "expression": "MIT"},
        "static": dict.fromkeys(f.name for f in STATIC) | static,
        "verdict": dict.fromkeys(f.name for f in VERDICT) | verdict,
        "compile": [dict.fromkeys(f.name for f in COMPILE) | {"target": "cuda:90", "ok": True}],
        "split": "test" if number % 5 == 0 else "train",
    }
    return make_row("pair", f"row {number}", make_origin("local"), **columns)


def shown(pairs: list[Any]) -> Iterator[Row]:
    view = Messages(format="messages").begin()
    for row in pairs:
        view.look_at(row)
    for row in pairs:
        kept = view.render(row)
        assert isinstance(kept, Keep)
        yield {**kept.rows[0], "split": row["split"]}


PAIRS = [pair(number) for number in range(120)]
SHOWN = list(shown(PAIRS))


def test_every_sentence_of_a_small_data_set_is_true() -> None:
    made, wrong = check(SHOWN, {row["id"]: row for row in PAIRS})
    assert wrong == []
    assert made["constructor"] == len(PAIRS)
    claims = ("one kernel", "loaded once", "no PyTorch", "short floats", "other sizes", "inputs")
    more = ("forward only", "target", "tolerance", "rounding", "example", "in KernelBench's order")
    assert all(made[claim] > 3 for claim in (*claims, *more)), made


@pytest.mark.parametrize(
    ("claim", "column", "old", "new"),
    [
        ("one kernel", "triton", "        return out", "        cos_kernel[grid](x)\n" * 2),
        ("loaded once", "triton", "x_ptr + offsets", "x_ptr + offsets % 3"),
        ("no PyTorch", "triton", "torch.empty_like(x)", "torch.relu(x)"),
        ("short floats", "triton", "!= torch.float64", "== torch.float32"),
        (
            "other sizes",
            "triton",
            "        grid",
            "        assert x.shape == (48, 100)\n        grid",
        ),
        ("forward only", "triton", "        return out", "        self.backward = 0"),
        ("constructor", "triton", "__init__(self, scale)", "__init__(self, scale, axis)"),
        ("inputs", "reference", "rows = 48", "rows = 49"),
        ("example", "triton", "return out", "return out + 1"),
    ],
)
def test_a_program_that_does_otherwise_contradicts(
    claim: str, column: str, old: str, new: str
) -> None:
    other = {row["id"]: {**row, column: row[column].replace(old, new)} for row in PAIRS}
    assert any(line.endswith(f": {claim}") for line in check(SHOWN, other)[1])


@pytest.mark.parametrize(
    ("claim", "known"),
    [
        ("rounding", {"status": "incorrect"}),
        ("other sizes", {"caveats": ["own_sizes_only"]}),
        ("tolerance", {"max_abs_error": 0.1}),
        ("one kernel", {"launches": 2}),
        ("no PyTorch", {"kind": "hybrid"}),
    ],
)
def test_a_verdict_that_says_otherwise_contradicts(claim: str, known: Row) -> None:
    other = {row["id"]: {**row, "verdict": {**row["verdict"], **known}} for row in PAIRS}
    assert any(line.endswith(f": {claim}") for line in check(SHOWN, other)[1])


def test_a_sentence_that_nobody_knows_contradicts() -> None:
    (row, *_), pairs = SHOWN, {row["id"]: row for row in PAIRS}
    asked = {**row["messages"][1], "content": "Be quick.\n" + row["messages"][1]["content"]}
    wrong = check([{**row, "messages": [row["messages"][0], asked]}], pairs)[1]
    assert wrong == [f"{row['id']}: unknown sentence: Be quick."]
