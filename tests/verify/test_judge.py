"""Every status and every caveat, end to end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
import triton
from verify_programs import HEAD, LAYER_NORM, SOFTMAX

from curate.rows import VERDICT
from curate.verify import judge as judging
from curate.verify.judge import Judge, tidy, verify
from curate.verify.verdict import Candidate, Options, Verdict

pytestmark = pytest.mark.slow

OPTIONS = Options(
    backend="interpreter", workers=2, trials=4, timeout_s=20, memory_mb=1024, operations=20_000
)

REFERENCE = """
import os
import time
import torch
import torch.nn as nn

{top}

class Model(nn.Module):
    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

CANDIDATE = (
    HEAD
    + """
import os
import sys
import time

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {body}, mask=at < n)

def launch(x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block})
    return y

{top}

class ModelNew(nn.Module):
    def forward(self, x):
        {forward}
"""
)


def reference(forward: str = "return x + 1", inputs: str = "torch.rand(100)", top: str = "") -> str:
    return REFERENCE.format(forward=indented(forward), inputs=inputs, top=top)


def candidate(
    forward: str = "return launch(x)", body: str = "x + 1", top: str = "", block: int = 128
) -> str:
    return CANDIDATE.format(forward=indented(forward), body=body, top=top, block=block)


def indented(text: str) -> str:
    return text.replace("\n", "\n        ")


@dataclass(frozen=True)
class Case:
    """A reference, a program, and what is to be said of it."""

    status: str
    reason: str | None = None
    reference: str = reference()
    candidate: str = candidate()
    caveats: tuple[str, ...] | None = None


ROWS = "rows = {rows}\nwidth = {width}"
TWO_SIZES = reference(inputs="torch.rand(rows, width)", top=ROWS.format(rows=4, width=6))
MODES = reference("return 2 * x if self.training else x + 1")

CASES = {
    # what a program is
    "right": Case("correct", caveats=("contiguous_only",)),
    "right, of any strides": Case(
        "correct", candidate=candidate("return launch(x.contiguous())"), caveats=()
    ),
    "wrong value": Case("incorrect", "value", candidate=candidate(body="x + 1.001")),
    "wrong shape": Case("incorrect", "shape", candidate=candidate("return launch(x)[:50]")),
    "wrong type": Case("incorrect", "dtype", candidate=candidate("return launch(x).double()")),
    "wrong structure": Case("incorrect", "structure", candidate=candidate("return [launch(x)]")),
    "no data": Case("incorrect", "structure", candidate=candidate("return launch(x), print")),
    "wrong state": Case(
        "incorrect", "state_dict", LAYER_NORM.reference, LAYER_NORM.faulty("another state_dict")
    ),
    "out of bounds": Case(
        "runtime_error", "out_of_bounds", candidate=candidate().replace("mask=at < n)", "mask=None)")
    ),
    "bad syntax": Case("compile_error", "SyntaxError", candidate=candidate("return return")),
    "raises": Case("runtime_error", "KeyError", candidate=candidate("raise KeyError('no')")),
    "raises when loaded": Case(
        "runtime_error", "ZeroDivisionError", candidate=candidate(top="1 / 0")
    ),
    "raises when built": Case(
        "runtime_error",
        "ValueError",
        candidate=candidate().replace(
            "    def forward", "    def __init__(self):\n        raise ValueError\n    def forward"
        ),
    ),
    "no ModelNew": Case(
        "runtime_error", "ProgramError", candidate=candidate().replace("ModelNew", "Other")
    ),
    "hangs": Case("timeout", "timeout", candidate=candidate("while True:\n    pass")),
    "eats memory": Case(
        "oom",
        "MemoryError",
        candidate=candidate("kept = []\nwhile True:\n    kept.append(bytearray(1 << 26))"),
    ),
    "aborts": Case("crash", "crash", candidate=candidate("os.abort()")),
    "leaves": Case("crash", None, candidate=candidate("os._exit(0)")),
    "no kernel": Case("cheat", "no_kernel", candidate=candidate("return x + 1")),
    "kernel for show": Case(
        "cheat", "decoy_kernel", candidate=candidate("launch(x)\nreturn x + 1")
    ),
    "PyTorch, and a copy": Case(
        "cheat", "torch_does_the_work", candidate=candidate("return launch(x + 1)", body="x")
    ),
    "caught its kernel's error": Case(
        "cheat",
        "fallback",
        candidate=candidate(
            "try:\n    return launch(x)\nexcept Exception:\n    return x + 1",
            body="tl.load(x_ptr + at + n)",
        ),
    ),
    "looks at frames": Case(
        "cheat", "walks_frames", candidate=candidate("sys._getframe()\nreturn launch(x)")
    ),
    "patches": Case(
        "cheat", "patches_library", candidate=candidate(top="torch.allclose = lambda *a: True")
    ),
    # what a reference says
    "constant": Case("degenerate", "constant_output", reference("return x * 0"), candidate(body="x*0")),
    "empty": Case(
        "degenerate", "empty_output", reference("return (x + 1)[:0]"), candidate("return launch(x)[:0]")
    ),
    "not finite": Case(
        "degenerate", "nothing_finite", reference("return x / 0"), candidate(body="x / 0")
    ),
    "reference raises": Case("unsupported", "reference_error", reference("return x.nothing()")),
    "reference does not load": Case("unsupported", "reference_error", "import nothing_at_all"),
    "reference ends": Case("unsupported", "reference_error", reference("os._exit(0)")),
    "reference is random": Case(
        "unsupported", "random", reference("return x + torch.rand_like(x)")
    ),
    "reference gives no data": Case("unsupported", "not_data", reference("return x + 1, {1, 2}")),
    "inline assembly": Case(
        "unsupported",
        "inline_asm",
        candidate=candidate(
            body='tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, True, 1)'
        ),
    ),
    "too much work": Case(
        "unsupported", "interpreter_budget", reference(inputs="torch.rand(1_000_000)")
    ),
    # what a verdict does not cover
    "own sizes only": Case(
        "correct",
        None,
        SOFTMAX.reference,
        SOFTMAX.honest.replace("y = torch", "assert len(x) == 7\n        y = torch"),
        ("own_sizes_only", "contiguous_only", "some_sizes_only"),
    ),
    "one size by heart": Case(
        "correct",
        None,
        TWO_SIZES,
        candidate("assert x.shape[1] == 6\nreturn launch(x.contiguous())"),
        ("some_sizes_only",),
    ),
    "fallback": Case(
        "correct",
        None,
        candidate=candidate(
            "try:\n    return launch(x.contiguous())\nexcept Exception:\n    return x + 1"
        ),
        caveats=("has_fallback",),
    ),
    "other state names": Case(
        "correct",
        None,
        LAYER_NORM.reference,
        LAYER_NORM.honest.replace("self.norm", "self.called_otherwise"),
        ("contiguous_only",),
    ),
    "right when training": Case(
        "correct",
        None,
        MODES,
        candidate("return launch(x.contiguous())", "2 * x"),
        ("train_mode_only",),
    ),
    "right in either mode": Case(
        "correct",
        None,
        MODES,
        candidate("return launch(x.contiguous())"),
        (),
    ),
    "right in no mode": Case("incorrect", "value", MODES, candidate(body="3 * x")),
    "much work": Case(
        "correct",
        None,
        reference(inputs="torch.rand(50_000)"),
        candidate("return launch(x.contiguous())", block=128),
        ("fewer_trials",),
    ),
    "smaller sizes only": Case(
        "correct",
        None,
        SOFTMAX.reference.replace("rows = 7", "rows = 4000"),
        SOFTMAX.honest,
        ("smaller_sizes_only", "contiguous_only"),
    ),
}

Verdicts = dict[str, Verdict]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with closing(Judge(OPTIONS)) as judge:
        yield judge


def judged(judge: Judge, cases: dict[str, Case]) -> Verdicts:
    candidates = [Candidate(name, case.reference, case.candidate) for name, case in cases.items()]
    verdicts = list(judge.run(candidates))
    assert len(verdicts) == len(cases)
    return {verdict.id: verdict for verdict in verdicts}


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> Verdicts:
    return judged(judge, CASES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_status_reason_and_caveats(verdicts: Verdicts, name: str) -> None:
    verdict, case = verdicts[name], CASES[name]
    assert verdict.status == case.status, verdict.to_json()
    if case.reason is not None or case.status == "correct":
        assert verdict.reason == case.reason, verdict.to_json()
    if case.caveats is not None:
        assert verdict.caveats == case.caveats, verdict.to_json()
