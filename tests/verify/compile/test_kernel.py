from __future__ import annotations

import json
from typing import Any

import pytest

from curate.rows import COMPILE, KERNEL, Row, make_origin, make_row
from curate.step import Context, Drop, Keep
from curate.verify.compile.kernel import KernelSignature, read_signature
from curate.verify.steps.compile import Compile

COPY = """
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, N: tl.constexpr, KIND: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(y_ptr + o, tl.load(x_ptr + o).to(KIND))
"""

DOT = """
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, N: tl.constexpr, KIND: tl.constexpr):
    o = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + o)
    tl.store(y_ptr + o, tl.dot(x, x).to(KIND))
"""


def row(source: str, size: int, element: str = "fp32") -> Row:
    signature = KernelSignature(
        {"x_ptr": f"*{element}", "y_ptr": "*fp32", "N": "constexpr", "KIND": "constexpr"},
        {"N": size, "KIND": {"dtype": "fp32"}},
        ["x_ptr", "y_ptr"],
    )
    kernel = dict.fromkeys(field.name for field in KERNEL) | {"signature": signature.to_json()}
    return make_row(
        "kernel", source, make_origin("local"), triton=source, entry_point="k", kernel=kernel
    )


def compiled(given: Row, *targets: str) -> Any:
    step = Compile(step="compile", targets=targets)
    return step.apply(given, Context())


def test_signature_survives_json() -> None:
    signature = read_signature(row(COPY, 64)["kernel"]["signature"])
    assert read_signature(signature.to_json()) == signature


def test_one_entry_a_target() -> None:
    outcome = compiled(row(COPY, 64), "cuda:80", "cuda:90", "hip:gfx942")
    assert isinstance(outcome, Keep)
    entries = outcome.rows[0]["compile"]
    assert [entry["target"] for entry in entries] == ["cuda:80", "cuda:90", "hip:gfx942"]
    for entry in entries:
        assert set(entry) == {field.name for field in COMPILE}
        assert entry["ok"] and entry["registers"] > 0
        assert json.loads(entry["signature"])["k"][0]["constants"]["N"] == 64


def test_target_that_fails_is_kept_beside_one_that_does_not() -> None:
    outcome = compiled(row(COPY, 64, "fp8e4nv"), "cuda:80", "cuda:90")
    assert isinstance(outcome, Keep)
    old, new = outcome.rows[0]["compile"]
    assert new["ok"] and new["error"] is None
    assert not old["ok"] and "fp8e4nv" in old["message"]
    assert old["registers"] is None


def test_shared_memory_above_the_targets_limit() -> None:
    outcome = compiled(row(DOT, 128), "cuda:86", "cuda:90")
    assert isinstance(outcome, Keep)
    old, new = outcome.rows[0]["compile"]
    assert old["error"] == "shared_memory"
    assert new["ok"] and new["shared"] > 99 * 1024


@pytest.mark.parametrize(
    ("given", "reason"),
    [(row(COPY, 100), "compile_error"), (row("import no_such_module\n", 64), "import_error")],
)
def test_kernel_that_compiles_nowhere_is_dropped(given: Row, reason: str) -> None:
    outcome = compiled(given, "cuda:80", "cuda:90")
    assert isinstance(outcome, Drop)
    assert outcome.reason == reason


def test_compiler_that_ends_the_process_costs_one_target(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from curate.verify.compile import kernel

    real = kernel.compile_launch

    def crash(launch: Any, target: Any) -> Any:
        if target.name == "cuda:80":
            os.write(2, b"LLVM ERROR: Cannot select: intrinsic\n")
            os.abort()
        return real(launch, target)

    monkeypatch.setattr(kernel, "compile_launch", crash)
    outcome = compiled(row(COPY, 64), "cuda:80", "cuda:90")
    assert isinstance(outcome, Keep)
    failed, fine = outcome.rows[0]["compile"]
    assert (failed["error"], failed["message"]) == ("crash", "Cannot select: intrinsic")
    assert fine["ok"]


def test_compilation_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from curate.verify.compile import kernel

    def hang(launch: Any, target: Any) -> Any:
        while True:
            pass

    monkeypatch.setattr(kernel, "SECONDS", 1)
    monkeypatch.setattr(kernel, "compile_launch", hang)
    outcome = compiled(row(COPY, 64), "cuda:90")
    assert isinstance(outcome, Drop)
    assert outcome.evidence["error"] == "timeout"
