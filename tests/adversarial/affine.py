"""The small problem that groups C and D tamper with: ``2 * x + 1``, and the honest kernel for it.

What these cheats share is a program around a kernel, not the kernel; one problem is enough.
"""

from __future__ import annotations

from typing import Any

from cases import CAUGHT, Case, candidate, reference

AFFINE = reference("2 * x + 1", "torch.randn(rows, 64)", top="rows = 8\n")

HONEST = """
@triton.jit
def affine_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(y_ptr + at, 2 * x + 1, mask=mask)


def affine(x):
    y = torch.empty_like(x)
    affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
"""The kernel, and the function that launches it."""

CHEAP = """
@triton.jit
def one_kernel(y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 1.0, mask=at < n)


def cheap(x):
    y = torch.empty_like(x)
    one_kernel[(triton.cdiv(x.numel(), 64),)](y, x.numel(), BLOCK=64)
    return y
"""
"""A kernel that does not look at its input: a launch is seen, and the values are wrong."""

COPY = """
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=mask), mask=mask)


def copied(x):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
"""A kernel that hands on what something else has computed."""

DIES = CAUGHT | {"crash", "runtime_error"}
"""For attacks that may take their own process with them."""

Program = tuple[str, str] | tuple[str, str, str]
"""Statements of the module (after `HONEST`), of ``forward``, and of ``__init__``."""


def program(parts: Program) -> str:
    """Return a candidate for `AFFINE`."""
    top, forward, init = (*parts, "")[:3]
    return candidate(HONEST + top, forward, parts=init)


PLAIN: Program = ("", "return affine(x)")


def tamper(
    group: str, number: int, name: str, cheat: Program, honest: Program = PLAIN, **more: Any
) -> Case:
    """Return a case about `AFFINE`; ``more`` are further fields of `Case`."""
    return Case(number, name, group, AFFINE, program(cheat), program(honest), **more)
