"""The adversarial suite: every known way in which a kernel has fooled a verifier, and its twin.

The numbers are those of the catalogue that the suite was written from: A (1-10) no real kernel,
B (11-37) wrong values that pass, C (38-49) tampering with inputs or checker, D (50-65) timing.
Each ``group_*.py`` next to this file lists its cases as ``CASES``; it may also have
``NOT_APPLICABLE``: numbers without a case, and why they cannot concern a Triton program that is
judged here. All programs were written here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType
from typing import Any

STATUSES = frozenset(
    {
        "correct",
        "incorrect",
        "compile_error",
        "runtime_error",
        "timeout",
        "oom",
        "crash",
        "cheat",
        "degenerate",
        "unsupported",
    }
)
"""What a verdict may say (`curate.verify.verdict`)."""

CAUGHT = frozenset({"cheat", "incorrect"})

NUMBERS = range(1, 66)


@dataclass(frozen=True)
class Case:
    """One way to cheat: a program that cheats, and the same program without the cheat.

    Attributes:
        number: in the catalogue; several variants may share one.
        name: of the variant, unique in the suite.
        group: ``A`` to ``D``.
        reference: text of a file in KernelBench's form.
        cheat: text of the candidate that cheats.
        honest: text of its twin, which must be judged ``correct``.
        statuses: what the verdict on the cheat may be; never ``correct``.
        rule: the verdict's reason, where only one is right.
        gpu: whether it can be shown on a GPU only.
        options: fields of `curate.verify.judge.slots.Options` that the case needs.
        sound_reference: what the twin answers, where ``reference`` itself is at fault, so that
            no program can be right.
    """

    number: int
    name: str
    group: str
    reference: str
    cheat: str
    honest: str
    statuses: frozenset[str] = CAUGHT
    rule: str | None = None
    gpu: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    sound_reference: str | None = None

    def __post_init__(self) -> None:
        if self.number not in NUMBERS or self.group not in "ABCD":
            raise ValueError(f"{self.name}: no number {self.number} in group {self.group}")
        if "correct" in self.statuses or not self.statuses <= STATUSES:
            raise ValueError(f"{self.name}: statuses {sorted(self.statuses)}")
        if self.cheat == self.honest:
            raise ValueError(f"{self.name}: the cheat is its own twin")

    @property
    def id(self) -> str:
        """Return the number and the name."""
        return f"{self.number:02d} {self.name}"


# --- to write programs with -------------------------------------------------------------------

TORCH = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
"""

TRITON = (
    TORCH
    + """\
import triton
import triton.language as tl
"""
)


def reference(
    result: str,
    inputs: str = "torch.randn(8, 64)",
    *,
    takes: str = "x",
    parts: str = "",
    top: str = "",
) -> str:
    """Return a reference file whose ``forward`` returns ``result``.

    Args:
        result: expression of ``self`` and the names in ``takes``.
        inputs: the items of the list that ``get_inputs`` returns.
        takes: parameters of ``forward``.
        parts: statements of ``__init__``, which takes no arguments.
        top: statements of the module.
    """
    made = f"    def __init__(self):\n        super().__init__()\n{_block(parts, 8)}\n"
    return f"""\
{TORCH}
{dedent(top)}
class Model(nn.Module):
{made if parts else ""}\
    def forward(self, {takes}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def candidate(kernel: str, forward: str, *, takes: str = "x", parts: str = "") -> str:
    """Return a candidate file: kernels and helpers, and the statements of ``forward``.

    Args:
        kernel: statements of the module, after the usual imports.
        forward: statements of ``forward``.
        takes: parameters of ``forward``.
        parts: statements of ``__init__``, which takes no arguments.
    """
    made = f"    def __init__(self):\n        super().__init__()\n{_block(parts, 8)}\n"
    return f"""\
{TRITON}
{dedent(kernel)}
class ModelNew(nn.Module):
{made if parts else ""}\
    def forward(self, {takes}):
{_block(forward, 8)}
"""


def elementwise(body: str, name: str = "kernel") -> str:
    """Return a kernel that stores ``body``, an expression of the block ``x``, for every element.

    `LAUNCH` calls it.
    """
    return f"""
@triton.jit
def {name}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {body}, mask=at < n)
"""


LAUNCH = """\
y = torch.empty_like(x)
kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
return y
"""
"""Statements of a ``forward`` that applies the kernel of `elementwise` to ``x``."""


def rowwise(body: str, name: str = "kernel", *, other: str = "0.0", one: bool = False) -> str:
    """Return a kernel that has one row ``x`` to a program, ``n`` long, padded with ``other``.

    Args:
        body: statements that compute ``y`` from ``x``, ``mask``, ``cols``, ``n`` and ``row``.
        name: of the kernel. `ROWS` and `ROWS_TO_ONE` call it.
        other: what ``x`` is past the row's end.
        one: whether ``y`` is one number for a row, instead of a row.
    """
    to = "y_ptr + row, y" if one else "y_ptr + row * n + cols, y, mask=mask"
    return f"""
@triton.jit
def {name}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other={other})
{_block(body, 4)}
    tl.store({to})
"""


ROWS = """\
x = x.contiguous()
y = torch.empty_like(x)
kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
return y
"""
"""Statements of a ``forward`` that applies the kernel of `rowwise` to the rows of ``x``."""

ROWS_TO_ONE = ROWS.replace("torch.empty_like(x)", "x.new_empty(x.shape[0])")
"""The same, for a kernel that gives one number for a row."""

MATMUL = """
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :],
                    mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * N + cols[None, :],
                    mask=(inner[:, None] < K) & (cols[None, :] < N), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total,
             mask=(rows[:, None] < M) & (cols[None, :] < N))

def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, c, M, N, K, BM=16, BN=16, BK=32)
    return c
"""
"""A product of two float32 matrices: ``matmul(a, b)``."""


def _block(text: str, spaces: int) -> str:
    return indent(dedent(text).strip("\n"), " " * spaces)


# --- the suite --------------------------------------------------------------------------------


def _groups() -> list[ModuleType]:
    paths = sorted(Path(__file__).parent.glob("group_*.py"))
    return [importlib.import_module(path.stem) for path in paths]


def load_cases() -> list[Case]:
    """Return the cases of every group, by number.

    Raises:
        ValueError: two cases have one id.
    """
    cases = [case for group in _groups() for case in group.CASES]
    ids = [case.id for case in cases]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise ValueError(f"two cases are called {twice}")
    return sorted(cases, key=lambda case: case.number)


def load_not_applicable() -> dict[int, str]:
    """Return the numbers without a case, and why there is none."""
    return {
        number: reason
        for group in _groups()
        for number, reason in getattr(group, "NOT_APPLICABLE", {}).items()
    }
