"""Products of scaled blocks (microscaling formats) in the executor."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from curate.devices import find_device
from curate.verify.compile.lowering import Lowering
from curate.verify.executor import launch
from curate.verify.executor.memory import Memory
from curate.verify.executor.operations import Work
from curate.verify.host_half.virtual_cuda import virtual_driver

TARGET = find_device("cuda:90")
M, N, K = 16, 32, 64
FLOAT4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
TYPES = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@triton.jit
def product_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, A_SCALED: tl.constexpr, B_SCALED: tl.constexpr,
    ALONG: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    KA: tl.constexpr = K // 2 if A == "e2m1" and ALONG else K
    MA: tl.constexpr = M if A != "e2m1" or ALONG else M // 2
    KB: tl.constexpr = K // 2 if B == "e2m1" and ALONG else K
    NB: tl.constexpr = N if B != "e2m1" or ALONG else N // 2
    a = tl.load(a_ptr + tl.arange(0, MA)[:, None] * KA + tl.arange(0, KA)[None, :])
    b = tl.load(b_ptr + tl.arange(0, KB)[:, None] * NB + tl.arange(0, NB)[None, :])
    groups = tl.arange(0, K // 32)[None, :]
    a_scale = None
    b_scale = None
    if A_SCALED:
        a_scale = tl.load(a_scale_ptr + rows[:, None] * (K // 32) + groups)
    if B_SCALED:
        b_scale = tl.load(b_scale_ptr + columns[:, None] * (K // 32) + groups)
    c = tl.dot_scaled(
        a,
        a_scale,
        A,
        b,
        b_scale,
        B,
        lhs_k_pack=ALONG or A != "e2m1",
        rhs_k_pack=ALONG or B != "e2m1",
    )
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], c)


def operand(kind: str, shape: tuple[int, int], packed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an operand as it lies in memory, and the numbers that it stands for."""
    if kind != "e2m1":
        values = torch.randn(shape).to(TYPES[kind])
        raw = values.view(torch.uint8) if kind[0] == "e" else values
        return raw, values.double()
    codes = torch.randint(0, 16, shape, dtype=torch.uint8)
    first, second = (codes.unflatten(packed, (-1, 2)).select(packed + 1, i) for i in range(2))
    return (first | second << 4).contiguous(), FLOAT4[codes.long()].double()


@pytest.mark.parametrize(
    ("a", "b", "a_scaled", "b_scaled", "along"),
    [
        ("e2m1", "e2m1", True, True, True),
        ("e2m1", "e2m1", True, True, False),
        ("e4m3", "bf16", True, False, True),
        ("e5m2", "e2m1", True, True, True),
        ("bf16", "e2m1", False, True, True),
        ("fp16", "e4m3", False, True, True),
    ],
)
def test_products_of_scaled_blocks(
    a: str, b: str, a_scaled: bool, b_scaled: bool, along: bool
) -> None:
    torch.manual_seed(0)
    triton.runtime.driver.set_active(virtual_driver(TARGET))
    left, left_values = operand(a, (M, K), 1 if along else 0)
    right, right_values = operand(b, (K, N), 0 if along else 1)
    left_scale, right_scale = (
        torch.randint(120, 134, (n, K // 32), dtype=torch.uint8) for n in (M, N)
    )
    out = torch.full((M, N), torch.nan)
    tensors = (left, left_scale, right, right_scale, out)
    named = {"M": M, "N": N, "K": K, "A": a, "B": b, "ALONG": along}
    named |= {"A_SCALED": a_scaled, "B_SCALED": b_scaled}
    lowered = Lowering(TARGET).lower(product_kernel, tensors, (1,), named)
    memory = Memory()
    raw = [memory.add(t.reshape(-1).view(torch.uint8).numpy()).base for t in tensors]
    kernel = launch.load_kernel(lowered.ttir)
    launch.run(kernel, memory, raw, lowered.grid, Work(1e9, 60))
    if a_scaled:
        left_values *= (left_scale.double() - 127).exp2().repeat_interleave(32, 1)
    if b_scaled:
        right_values *= (right_scale.double() - 127).exp2().repeat_interleave(32, 1).T
    expected = left_values @ right_values
    error = (out - expected).abs() / (left_values.abs() @ right_values.abs())
    assert float(error.max()) < (2**-11 if "fp16" in (a, b) else 2**-20)
