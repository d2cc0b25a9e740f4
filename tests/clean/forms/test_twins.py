from __future__ import annotations

import pytest

from curate.clean.forms.twins import twin_tokens

PROGRAM = '''
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def erf_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    """Compute erf."""
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.erf(x), mask=mask)


def run(x, out):
    erf_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK_SIZE=1024)
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.erf(x)", "libdevice.lgamma(x)"),
        ("tl.erf(x)", "x * 0.017"),
        ("tl.erf(x)", "-x"),
        ("tl.erf(x)", "x > 0"),
        ("other=0.0", 'other=float("-inf")'),
        ("1024", "512"),
        ("erf_kernel", "ceil_kernel"),
        ("def run(x, out):", "def run(x, out):\n    assert x.dtype == torch.bfloat16"),
    ],
)
def test_twins(old: str, new: str) -> None:
    edited = PROGRAM.replace(old, new)
    assert edited != PROGRAM
    assert twin_tokens(edited) == twin_tokens(PROGRAM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.erf(x)", "tl.erf(x) * x"),
        ("tl.erf(x)", "tl.erf(tl.exp(x))"),
        ("tl.erf(x)", "tl.sum(x)"),
        ("tl.erf(x)", "x"),
        ("x_ptr + offsets, mask=mask", "x_ptr + offsets"),
        ("    tl.store", "    x = tl.exp(x)\n    tl.store"),
    ],
)
def test_other_programs(old: str, new: str) -> None:
    edited = PROGRAM.replace(old, new)
    assert edited != PROGRAM
    assert twin_tokens(edited) != twin_tokens(PROGRAM)


def test_code_without_kernels_is_compared_whole() -> None:
    assert twin_tokens("def f(x):\n    return x + 1") == twin_tokens("def g(y):\n    return y * 2")
    assert twin_tokens("def f(x):\n    return x + 1") != twin_tokens("def f(x):\n    return x + x")
