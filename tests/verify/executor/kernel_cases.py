"""Small kernels, one per feature; each is compared with PyTorch or NumPy.

Run as a program, its last line is a JSON object: for each function named ``case_…`` "ok", or the
exception.
"""

from __future__ import annotations

import json
import math
import traceback
from typing import Any

import executor_for_tests as executor
import numpy as np
import torch
import triton
import triton.language as tl
from packaging.version import Version

executor.install()

from triton.compiler.errors import CompilationError  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

N = 64
ONE = (1,)
BLOCK_POINTERS = Version(triton.__version__) < Version("3.9")  # which removed them


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def equal(got: torch.Tensor, expected: Any) -> None:
    torch.testing.assert_close(got, torch.as_tensor(expected), rtol=0, atol=0, equal_nan=True)


def close(got: torch.Tensor, expected: torch.Tensor, relative: float = 1e-6) -> None:
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=relative, atol=relative)


def raised(kind: type[Exception], launch: Any) -> Exception:
    try:
        launch()
    except Exception as error:
        cause = error
        assert isinstance(cause, kind), repr(cause)
        return cause
    raise AssertionError(f"no {kind.__name__}")


def unsupported(reason: str, launch: Any) -> None:
    error = raised(executor.UnsupportedOperation, launch)
    assert getattr(error, "reason", None) == reason, repr(error)


# --- tl.dot ---------------------------------------------------------------------------------


@triton.jit
def dot_kernel(
    a, b, c, M: tl.constexpr, K: tl.constexpr, P: tl.constexpr, OUT: tl.constexpr = tl.float32
):
    i, k = tl.arange(0, M), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * M + i[None, :])
    z = tl.dot(x, y, input_precision=P, out_dtype=OUT)
    tl.store(c + i[:, None] * M + i[None, :], z)


def dot(a: torch.Tensor, b: torch.Tensor, out: torch.dtype, precision: str | None) -> torch.Tensor:
    c = torch.zeros(a.shape[0], b.shape[1], dtype=out)
    kind = {torch.float16: tl.float16, torch.int32: tl.int32}.get(out, tl.float32)
    dot_kernel[ONE](a, b, c, M=a.shape[0], K=a.shape[1], P=precision, OUT=kind)
    return c


def error_of_dot(precision: str | None) -> float:
    a, b = randn(32, 128), randn(128, 32, seed=1)
    exact = a.double() @ b.double()
    return float((dot(a, b, torch.float32, precision) - exact).abs().max())


def case_dot_takes_tf32_unless_asked() -> None:
    assert 1e-3 < error_of_dot(None) < 1e-1
    assert error_of_dot("tf32") == error_of_dot(None)


def case_dot_ieee_and_splits_are_exact() -> None:
    assert error_of_dot("ieee") < 2e-5
    assert error_of_dot("tf32x3") < 5e-5
    assert error_of_dot("bf16x6") < 5e-5
    assert 1e-5 < error_of_dot("bf16x3") < 1e-2


def case_dot_tf32_keeps_ten_bits() -> None:
    a = torch.eye(16) * (1 + 2.0**-10 + 2.0**-11)
    equal(dot(a, torch.eye(16), torch.float32, "tf32"), torch.eye(16) * (1 + 2.0**-10))


def case_dot_half_precision_adds_in_float32() -> None:
    for kind in (torch.float16, torch.bfloat16):
        a, b = randn(32, 64).to(kind), randn(64, 32, seed=1).to(kind)
        close(dot(a, b, torch.float32, None), a.float() @ b.float(), 1e-5)


def case_dot_float16_accumulator_is_rounded() -> None:
    a, b = torch.ones(16, 64).half(), torch.ones(64, 16).half()
    a[:, 0], b[0] = 2048.0, 1.0
    a[:, 1:16] = 0.0
    a[:, 16::16] = 1.0
    for k in range(16, 64):
        if k % 16:
            a[:, k] = 0.0
    # 2048 + 1 is 2048 in float16; added at once, 2048 + 3 would be 2052.
    equal(dot(a, b, torch.float16, None), torch.full((16, 16), 2048.0).half())


def case_dot_int8_is_exact() -> None:
    a = torch.randint(-128, 128, (32, 64), generator=torch.Generator().manual_seed(0)).to(
        torch.int8
    )
    b = a.T.contiguous()
    equal(dot(a, b, torch.int32, None), a.int() @ b.int())


def case_dot_float8() -> None:
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        a, b = randn(32, 32).to(kind), randn(32, 32, seed=1).to(kind)
        close(dot(a, b, torch.float32, None), a.float() @ b.float(), 1e-5)


def case_dot_too_small_is_refused() -> None:
    a = randn(4, 4)
    raised(CompilationError, lambda: dot(a, a, torch.float32, None))


@triton.jit
def batched_dot_kernel(a, b, c):
    n, i, j = tl.arange(0, 2), tl.arange(0, 16), tl.arange(0, 16)
    at = n[:, None, None] * 256 + i[None, :, None] * 16 + j[None, None, :]
    acc = tl.full((2, 16, 16), 1.0, tl.float32)
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), acc, allow_tf32=False))


def case_dot_of_batches_with_accumulator() -> None:
    a, b, c = randn(2, 16, 16), randn(2, 16, 16, seed=1), torch.zeros(2, 16, 16)
    batched_dot_kernel[ONE](a, b, c)
    close(c, a @ b + 1, 1e-5)


# --- atomics --------------------------------------------------------------------------------


@triton.jit
def atomic_kernel(x, index, out, old, n, OP: tl.constexpr):
    i = tl.arange(0, 64)
    at, value = out + tl.load(index + i), tl.load(x + i)
    if OP == "add":
        before = tl.atomic_add(at, value, mask=i < n)
    elif OP == "max":
        before = tl.atomic_max(at, value, mask=i < n)
    elif OP == "min":
        before = tl.atomic_min(at, value, mask=i < n)
    elif OP == "and":
        before = tl.atomic_and(at, value, mask=i < n)
    elif OP == "or":
        before = tl.atomic_or(at, value, mask=i < n)
    elif OP == "xor":
        before = tl.atomic_xor(at, value, mask=i < n)
    else:
        before = tl.atomic_xchg(at, value, mask=i < n)
    tl.store(old + i, before, mask=i < n)


NUMPY_ATOMICS = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def atomics(op: str, x: torch.Tensor, start: torch.Tensor) -> None:
    index = torch.randint(0, 8, (64,), generator=torch.Generator().manual_seed(1))
    out, old, expected = start.clone(), torch.zeros_like(x), start.numpy().copy()
    atomic_kernel[ONE](x, index, out, old, 50, OP=op)
    NUMPY_ATOMICS[op].at(expected, index[:50].numpy(), x[:50].numpy())
    torch.testing.assert_close(out, torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


def case_atomics_on_integers_with_duplicates() -> None:
    for kind in (torch.int32, torch.int64, torch.uint32):
        for op in NUMPY_ATOMICS:
            low = 0 if kind == torch.uint32 else -1000
            x = torch.randint(low, 1000, (64,), generator=torch.Generator().manual_seed(0))
            atomics(op, x.to(kind), torch.full((8,), 5, dtype=kind))


def case_atomics_on_floats_with_duplicates() -> None:
    for op in ("add", "max", "min"):
        atomics(op, randn(64), torch.zeros(8))
        atomics(op, randn(64).double(), torch.zeros(8).double())


def case_atomic_add_on_float16() -> None:
    atomics("add", randn(64).half().round(), torch.zeros(8).half())


def case_atomic_add_on_bfloat16() -> None:
    x = torch.arange(64).bfloat16()
    index, out = torch.arange(64) % 8, torch.zeros(8).bfloat16()
    atomic_kernel[ONE](x, index, out, torch.zeros_like(x), 64, OP="add")
    equal(out, x.view(8, 8).sum(0).bfloat16())


@triton.jit
def broadcast_atomics_kernel(x, index, sums, flags):
    i = tl.arange(0, 64)
    one = tl.full([1], 1, tl.int32)
    tl.atomic_add(sums + tl.load(index + i), tl.load(x + tl.arange(0, 1)), mask=one > 0)
    tl.atomic_cas(flags + i, tl.broadcast_to(one - 1, [64]), tl.broadcast_to(one, [64]))


def case_atomics_with_one_value_for_the_block() -> None:
    sums, flags = torch.zeros(8), torch.zeros(64, dtype=torch.int32)
    broadcast_atomics_kernel[ONE](torch.full((1,), 3.0), torch.arange(64) % 8, sums, flags)
    equal(sums, torch.full((8,), 24.0))
    equal(flags, torch.ones_like(flags))


def case_atomic_exchange_returns_the_old() -> None:
    x, out, old = torch.arange(64), torch.arange(64) + 100, torch.zeros(64, dtype=torch.int64)
    atomic_kernel[ONE](x, torch.arange(64), out, old, 64, OP="xchg")
    equal(out, x)
    equal(old, x + 100)


@triton.jit
def cas_kernel(lock, out):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + 1)
    tl.atomic_xchg(lock, 0)


def case_atomic_cas_as_a_lock() -> None:
    lock, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    cas_kernel[(5,)](lock, out)
    assert int(out) == 5


# --- launches -------------------------------------------------------------------------------


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (16, 64, 128)],
    key=["n"],
    reset_to_zero=["out"],
    prune_configs_by={"early_config_prune": lambda configs, named, **meta: configs[1:]},
)
@triton.heuristics({"EVEN": lambda meta: meta["n"] % meta["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n) + BLOCK, mask=i < n)


def case_autotune_prunes_and_resets() -> None:
    x, out = randn(100), torch.ones(100)
    tuned_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 100)
    assert tuned_kernel.best_config.kwargs == {"BLOCK": 64}
    close(out[64:], x[64:] + 64)


@triton.jit
def copy_kernel(x, out, n, scale, flag, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) * scale
    if flag:
        value += 1
    tl.store(out + i, value, mask=i < n)


def case_the_grid_sees_arguments_as_they_are() -> None:
    x, out = randn(100), torch.zeros(100)
    copy_kernel[lambda meta: (math.ceil(meta["x"].numel() / meta["BLOCK"]),)](
        x, out, 100, 2.0, True, num_warps=4, num_stages=2, num_ctas=1
    )
    close(out, 2 * x + 1)


def case_float_arguments_are_float32() -> None:
    x, out = torch.full((100,), 60000.0).half(), torch.zeros(100)
    copy_kernel[(2,)](x, out, 100, 2.0, False)
    close(out, torch.full((100,), 120000.0))


def case_unknown_keywords_are_refused() -> None:
    x = randn(100)
    raised(KeyError, lambda: copy_kernel[(2,)](x, x, 100, 2.0, True, BLOKC=64))


def case_an_empty_grid_runs_nothing() -> None:
    out = torch.zeros(100)
    copy_kernel[(0,)](out, out, 100, 2.0, True)
    equal(out, torch.zeros(100))


@triton.jit
def last_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.load(x_ptr + tl.program_id(0) * BLOCK))


@triton.jit
def early_return_kernel(out, n):
    if tl.program_id(0) >= n:
        return
    tl.store(out + tl.program_id(0), 1.0)


def case_early_return() -> None:
    out = torch.zeros(8)
    early_return_kernel[(8,)](out, 5)
    equal(out, [1.0] * 5 + [0.0] * 3)


@triton.jit
def spin_kernel(out):
    x = 0
    while x < 1:
        x = x * 1
    tl.store(out, x)


@triton.jit
def empty_loop_kernel(out):
    for _ in range(10**9):
        pass
    tl.store(out, 1)


# --- the language ---------------------------------------------------------------------------


@triton.jit
def boolean_kernel(x, out, n, m):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i), mask=(i < n) and not (i < m))
    tl.store(out + 64 + i, tl.load(x + i), mask=(i < m) or (i >= n))


def case_and_or_not_work_on_blocks() -> None:
    x, out = randn(64), torch.zeros(128)
    boolean_kernel[ONE](x, out, 50, 10)
    i = torch.arange(64)
    equal(out[:64], torch.where((i < 50) & (i >= 10), x, 0.0))
    equal(out[64:], torch.where((i < 10) | (i >= 50), x, 0.0))


@triton.jit
def builtin_minimum_kernel(x, out, n):
    i = tl.arange(0, 64)
    tl.store(out + i, min(max(tl.load(x + i), 0.0), 0.5))
    tl.store(out + 64, min(n, 7) + max(3, 4))


def case_min_and_max_work_on_blocks() -> None:
    x, out = randn(64), torch.zeros(65)
    builtin_minimum_kernel[ONE](x, out, 100)
    equal(out[:64], x.clamp(0, 0.5))
    equal(out[64:], [11.0])


@triton.jit
def block_condition_kernel(x, out):
    i = tl.arange(0, 64)
    if tl.load(x + i) > 0:
        tl.store(out + i, 1.0)


@triton.jit
def break_kernel(out):
    for i in range(4):
        tl.store(out + i, 1.0)
        if i == 2:
            break


@triton.jit
def builtin_abs_kernel(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, abs(tl.load(x + i)))


WIDTH: tl.constexpr = 64
DEPTH = tl.constexpr(64)


@triton.jit
def global_kernel(out):
    tl.store(out + tl.arange(0, WIDTH), 1.0)


@triton.jit
def return_kernel(out):
    for i in range(4):
        if i == 2:
            return
        tl.store(out + i, 1.0)


@triton.jit
def python_function_kernel(out):
    tl.store(out, philox(0, 0))


@triton.jit
def assigned_size_kernel(out):
    size, _ = 16, 2
    tl.store(out + tl.arange(0, size), 1.0)


@triton.jit
def constexpr_global_kernel(out, N: tl.constexpr):
    tl.store(out + tl.arange(0, DEPTH), 1.0 + tl.arange(0, DEPTH) + N.value)


def case_what_the_compiler_refuses() -> None:
    x, out = randn(64), torch.zeros(64)
    raised(CompilationError, lambda: block_condition_kernel[ONE](x, out))
    raised(CompilationError, lambda: break_kernel[ONE](out))
    raised(CompilationError, lambda: builtin_abs_kernel[ONE](x, out))
    raised(CompilationError, lambda: global_kernel[ONE](out))
    raised(CompilationError, lambda: return_kernel[ONE](out))
    raised(RuntimeError, lambda: python_function_kernel[ONE](out))
    raised(CompilationError, lambda: assigned_size_kernel[ONE](out))


def case_constexpr_globals() -> None:
    out = torch.zeros(64)
    constexpr_global_kernel[ONE](out, N=3)
    equal(out, torch.arange(64) + 4.0)


def make_kernel(width: int) -> Any:
    constant = tl.constexpr(width)

    @triton.jit
    def inner(out, W: tl.constexpr = width):
        tl.store(out + tl.arange(0, constant), 1.0 * W)

    return inner


def case_globals_of_the_program_stay_its_own() -> None:
    assert "dataclasses" not in globals()
    assert not [name for name in globals() if "curate" in name or name == "InterpreterError"]


@triton.jit
def loop_variable_kernel(out, n):
    at = 0
    for i in range(3, 0, -1):
        tl.store(out + at, (i - 3) // 2)
        tl.store(out + at + 1, (i - 4) % 3)
        at += 2
    for i in tl.range(0, n, 2, num_stages=2):
        tl.store(out + at, i * 2147483647)
        at += 1
    for i in tl.static_range(2):
        tl.store(out + at + i, tl.full((), i, tl.int32))


def case_loop_variables_are_int32() -> None:
    out = torch.zeros(10, dtype=torch.int64)
    loop_variable_kernel[ONE](out, 3)
    equal(out, [0, -1 % -3, 0, -2, -1, 0, 0, -2, 0, 1])


@triton.jit
def integer_kernel(x, y, out):
    i = tl.arange(0, 8)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + 8 + i, a % b)
    tl.store(out + 16 + i, a * 1000003 + b)
    tl.store(out + 24 + i, a >> 1)
    tl.store(out + 32 + i, (a.to(tl.uint32) >> 1).to(tl.int32))
    tl.store(out + 40 + i, -a)
    tl.store(out + 48 + i, ~a)
    tl.store(out + 56 + i, (a < b) + (a < 0))


def case_integers_truncate_and_wrap() -> None:
    a = torch.tensor([7, -7, 7, -7, 2**31 - 1, -(2**31), 5, 0], dtype=torch.int32)
    b = torch.tensor([2, 2, -2, -2, 3, 3, 7, -1], dtype=torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    integer_kernel[ONE](a, b, out)
    x, y = a.long(), b.long()
    equal(out[:8], torch.div(x, y, rounding_mode="trunc").int())
    equal(out[8:16], torch.fmod(x, y).int())
    equal(out[16:24], (x * 1000003 + y).int())
    equal(out[24:32], a >> 1)
    equal(out[32:40], ((x % 2**32) >> 1).int())
    equal(out[40:48], -a)
    equal(out[48:56], ~a)
    equal(out[56:], ((a < b) ^ (a < 0)).int())


@triton.jit
def wrong_call_kernel(out, WHICH: tl.constexpr):
    if WHICH == 0:
        tl.store(out)
    elif WHICH == 1:
        double_it(1.0, 2.0)
    else:
        libdevice.tanh()


def case_wrong_calls_are_the_programs_errors() -> None:
    for which in range(3):
        raised(
            CompilationError,
            lambda which=which: wrong_call_kernel[ONE](torch.zeros(1), WHICH=which),
        )


@triton.jit
def tuple_function(a, b):
    return a + b, (a - b, 2)


@triton.jit
def tuple_kernel(pair, out):
    total, (difference, two) = tuple_function(tl.load(pair[0]), tl.load(pair[1]))
    tl.store(out, total)
    tl.store(out + 1, difference * two)
    tl.store(out + 2, len(pair))


@triton.constexpr_function
def next_multiple(n, m):
    return (n + m - 1) // m * m


@triton.jit
def constexpr_function_kernel(out, N: tl.constexpr):
    SIZE: tl.constexpr = next_multiple(N, 8)
    tl.static_assert(SIZE == 16)
    tl.store(out + tl.arange(0, SIZE), 1.0)


def case_constexpr_functions() -> None:
    out = torch.zeros(16)
    constexpr_function_kernel[ONE](out, N=9)
    equal(out, torch.ones(16))


@triton.jit
def hints_kernel(x, out, n):
    tl.assume(n > 0)
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, 64), 64), 64)
    tl.device_assert(i < 0, "never checked outside debug builds")
    assert n < 0
    tl.device_print("x", i)
    print("n", n)
    tl.debug_barrier()
    tl.static_print("static")
    y = tl.load(x + i, mask=i < n, other=-1.0, eviction_policy="evict_first")
    tl.store(out + i, y, cache_modifier=".cg")


def case_hints_assertions_and_prints() -> None:
    x, out = randn(64), torch.zeros(64)
    hints_kernel[ONE](x, out, 60)
    equal(out, torch.cat([x[:60], torch.full((4,), -1.0)]))


@triton.jit
def asm_kernel(x, out):
    i = tl.arange(0, 64)
    y = tl.inline_asm_elementwise(
        "add.f32 $0, $1, $1;", "=r,r", [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out + i, y)


@triton.jit
def timer_kernel(out):
    tl.store(out, tl.extra.cuda.globaltimer())


@triton.jit
def double_it(x):
    return x * 2


@triton.jit
def map_kernel(x, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.map_elementwise(double_it, tl.load(x + i)))


def case_inline_assembly_is_unsupported() -> None:
    x = randn(64)
    unsupported("inline_asm", lambda: asm_kernel[ONE](x, x))
    unsupported("inline_asm", lambda: timer_kernel[ONE](torch.zeros(1, dtype=torch.int64)))


def case_map_elementwise() -> None:
    x, out = randn(64), torch.zeros(64)
    map_kernel[ONE](x, out)
    equal(out, x * 2)


@triton.jit
def while_kernel(out, n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    tl.store(out, steps)


def case_while_loops() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    while_kernel[ONE](out, 27)
    equal(out, torch.tensor([111], dtype=torch.int32))


@triton.jit
def arguments_kernel(out, none, flag, big, small: tl.int64, kind: tl.constexpr):
    if none is None:
        tl.store(out, 1)
    if flag:
        tl.store(out + 1, big)
    tl.store(out + 2, small.to(kind))


def case_none_bool_and_large_arguments() -> None:
    out = torch.zeros(3, dtype=torch.int64)
    arguments_kernel[ONE](out, None, True, 2**40, -3, tl.int8)
    equal(out, [1, 2**40, -3])


# --- moving blocks --------------------------------------------------------------------------


@triton.jit
def shape_kernel(x, y, out):
    i = tl.arange(0, 32)
    a, b = tl.load(x + i), tl.load(y + i)
    j = tl.arange(0, 64)
    tl.store(out + j, tl.cat(a, b, can_reorder=True))
    tl.store(out + 64 + j, tl.interleave(a, b))
    joined = tl.join(a, b)
    left, right = tl.split(joined)
    tl.store(out + 128 + i, left - right)
    tl.store(out + 160 + i, tl.flip(a, 0))
    m = tl.reshape(a, (4, 8))
    at = tl.arange(0, 8)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(out + 192 + at, tl.trans(m))
    tl.store(out + 224 + i, tl.ravel(m.T.T))
    tl.store(out + 256 + i, tl.permute(tl.reshape(a, (2, 4, 4)), (2, 0, 1)).reshape(32))
    tl.store(out + 288 + j, tl.broadcast_to(a[:, None], (32, 2)).reshape(64))


def case_shapes() -> None:
    x, y, out = randn(32), randn(32, seed=1), torch.zeros(352)
    shape_kernel[ONE](x, y, out)
    equal(out[:64], torch.cat([x, y]))
    equal(out[64:128], torch.stack([x, y], 1).view(-1))
    equal(out[128:160], x - y)
    equal(out[160:192], x.flip(0))
    equal(out[192:224], x.view(4, 8).T.reshape(-1))
    equal(out[224:256], x)
    equal(out[256:288], x.view(2, 4, 4).permute(2, 0, 1).reshape(-1))
    equal(out[288:], x.repeat_interleave(2))


@triton.jit
def gather_kernel(x, index, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(index + i), 0))


def case_gather() -> None:
    x, out = randn(64), torch.zeros(64)
    index = torch.arange(63, -1, -1)
    gather_kernel[ONE](x, index, out)
    equal(out, x.flip(0))
    raised(executor.OutOfBounds, lambda: gather_kernel[ONE](x, index - 1, out))


@triton.jit
def member_kernel(x, out):
    i, j = tl.arange(0, 64), tl.arange(0, 8)
    m = tl.load(x + i).reshape(8, 8)
    tl.store(out + j, m.sum(1))
    tl.store(out + 8 + j, m.max(axis=0))
    tl.store(out + 16 + j, m.argmax(1))
    tl.store(out + 24 + j, m.to(tl.float32).exp().sum(0))
    tl.store(out + 32 + j, (m > 0).sum(1))
    tl.store(out + 40 + j, tl.reduce_or(m > 2, 1))
    tl.store(out + 48 + j, m.sum(axis=1, keep_dims=True).reshape(8))


def case_methods_of_blocks() -> None:
    for kind in (torch.float32, torch.bfloat16):
        x, out = randn(64).to(kind), torch.zeros(56)
        member_kernel[ONE](x, out)
        m = x.view(8, 8).float()
        expected = [
            m.sum(1), m.max(0).values, m.argmax(1), m.exp().sum(0), (m > 0).sum(1), (m > 2).any(1),
            m.sum(1),
        ]  # fmt: skip
        close(out, torch.cat([e.float() for e in expected]), 1e-5 if kind == torch.float32 else 0.1)


@triton.jit
def histogram_kernel(x, out, n):
    i = tl.arange(0, 256)
    values = tl.load(x + i)
    tl.store(out + tl.arange(0, 16), tl.histogram(values, 16))
    tl.store(out + 16 + tl.arange(0, 16), tl.histogram(values, 16, mask=i < n))


def case_histogram() -> None:
    x = torch.randint(0, 16, (256,), generator=torch.Generator().manual_seed(0)).int()
    out = torch.zeros(32, dtype=torch.int32)
    histogram_kernel[ONE](x, out, 200)
    equal(out[:16], torch.bincount(x, minlength=16).int())
    equal(out[16:], torch.bincount(x[:200], minlength=16).int())
    unsupported("histogram_range", lambda: histogram_kernel[ONE](x + 1, out, 256))


@triton.jit
def sort_kernel(x, out):
    i = tl.arange(0, 64)
    a = tl.load(x + i)
    tl.store(out + i, tl.sort(a))
    tl.store(out + 64 + i, tl.sort(a, descending=True))
    tl.store(out + 128 + tl.arange(0, 8), tl.topk(a, 8))


def case_sort_and_topk() -> None:
    numbers = torch.randint(-9, 9, (64,), generator=torch.Generator().manual_seed(0))
    for x in (randn(64), randn(64).bfloat16(), randn(64).half(), numbers):
        out = torch.zeros(136, dtype=x.dtype)
        sort_kernel[ONE](x, out)
        equal(out[:64], x.sort().values)
        equal(out[64:128], x.sort(descending=True).values)
        equal(out[128:], x.topk(8).values)


# --- reductions and scans -------------------------------------------------------------------


@triton.jit
def reduce_kernel(x, out):
    i = tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(x + i)
    r = tl.arange(0, 4)
    tl.store(out + r, tl.argmax(a, 1))
    tl.store(out + 4 + r, tl.argmin(a, 1))
    top, where = tl.max(a, 1, return_indices=True)
    tl.store(out + 8 + r, top)
    tl.store(out + 12 + r, where)
    tl.store(out + 16 + r, tl.sum(a, axis=-1))
    tl.store(out + 20, tl.sum(a))
    tl.store(out + 21, tl.max(a))
    tl.store(out + 22, tl.argmax(tl.ravel(a), 0))
    tl.store(out + 24 + tl.arange(0, 16), tl.min(a, 0))
    tl.store(out + 40 + r, tl.sum(tl.max(a, 1, keep_dims=True), 1))
    tl.store(out + 44 + r, tl.xor_sum(a.to(tl.int32), 1))
    tl.store(out + 48 + i, tl.cumsum(a, 1))
    tl.store(out + 112 + i, tl.cumprod(a, 1, reverse=True))
    tl.store(out + 176 + i, tl.cumsum(a, -1))


def case_reductions_scans_and_first_of_equals() -> None:
    x = torch.randint(-3, 4, (4, 16), generator=torch.Generator().manual_seed(0)).float()
    out = torch.zeros(240)
    reduce_kernel[ONE](x, out)
    n = x.numpy()
    equal(out[:4], n.argmax(1).astype(np.float32))
    equal(out[4:8], n.argmin(1).astype(np.float32))
    equal(out[8:12], n.max(1))
    equal(out[12:16], n.argmax(1).astype(np.float32))
    equal(out[16:20], n.sum(1))
    equal(out[20:23], [n.sum(), n.max(), float(n.argmax())])
    equal(out[24:40], n.min(0))
    equal(out[40:44], n.max(1))
    equal(out[44:48], np.bitwise_xor.reduce(n.astype(np.int32), 1).astype(np.float32))
    equal(out[48:112].view(4, 16), x.cumsum(1))
    equal(out[112:176].view(4, 16), x.flip(1).cumprod(1).flip(1))
    equal(out[176:].view(4, 16), x.cumsum(1))


@triton.jit
def last_of_equals(a, i, b, j):
    take = (a > b) | ((a == b) & (i > j))
    return tl.where(take, a, b), tl.where(take, i, j)


@triton.jit
def own_indices_kernel(x, index, out):
    i = tl.arange(0, 16)
    a, j = tl.load(x + i), tl.load(index + i)
    _, first = tl.reduce((a, j), 0, tl.standard._argmax_combine_tie_break_left)
    _, last = tl.reduce((a, j), 0, last_of_equals)
    tl.store(out, first)
    tl.store(out + 1, last)
    total, ones = tl.associative_scan((a, tl.full((16,), 1.0, tl.float32)), 0, pair_sum)
    tl.store(out + 2 + i, total / ones)


@triton.jit
def pair_sum(a, m, b, n):
    return a + b, m + n


def case_reductions_of_several_values() -> None:
    x = torch.tensor([0.0, 3.0, 1.0, 3.0] * 4)
    index, out = torch.arange(100, 116), torch.zeros(18)
    own_indices_kernel[ONE](x, index, out)
    equal(out[:2], [101.0, 115.0])
    close(out[2:], x.cumsum(0) / torch.arange(1, 17))


@triton.jit
def float16_sum_kernel(x, out):
    a = tl.load(x + tl.arange(0, 4096))
    tl.store(out, tl.sum(a))


def case_sums_go_by_halves() -> None:
    for kind in (torch.float16, torch.bfloat16):
        x, out = torch.ones(4096).to(kind), torch.zeros(1, dtype=torch.float32)
        float16_sum_kernel[ONE](x, out)
        equal(out, [4096.0])


@triton.jit
def nan_kernel(x, out):
    a = tl.load(x + tl.arange(0, 16))
    tl.store(out, tl.max(a))
    i = tl.arange(0, 16)
    tl.store(out + 16 + i, tl.clamp(a, -1.0, 1.0))
    tl.store(out + 32 + i, tl.clamp(a, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 48 + i, tl.maximum(a, 0.0))
    tl.store(out + 64 + i, tl.maximum(a, 0.0, propagate_nan=tl.PropagateNan.ALL))


def case_nan_in_max_and_clamp() -> None:
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        x = (randn(16) * 2).to(kind)
        x[3] = math.nan
        out = torch.zeros(80, dtype=kind)
        nan_kernel[ONE](x, out)
        clean = torch.where(x.isnan(), -math.inf, x)
        equal(out[0], clean.max())
        equal(out[16:32], clean.clamp(-1, 1))
        equal(out[32:48], x.clamp(-1, 1))
        equal(out[48:64], clean.clamp(min=0))
        equal(out[64:], x.clamp(min=0))


# --- numbers --------------------------------------------------------------------------------


@triton.jit
def math_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(out + i, tl.exp(a))
    tl.store(out + N + i, tl.exp2(a))
    tl.store(out + 2 * N + i, tl.log(a))
    tl.store(out + 3 * N + i, tl.log2(a))
    tl.store(out + 4 * N + i, tl.sin(a))
    tl.store(out + 5 * N + i, tl.cos(a))
    tl.store(out + 6 * N + i, tl.sqrt(a))
    tl.store(out + 7 * N + i, tl.rsqrt(a))
    tl.store(out + 8 * N + i, tl.erf(a))
    tl.store(out + 9 * N + i, tl.floor(a * 3))
    tl.store(out + 10 * N + i, tl.ceil(a * 3))
    tl.store(out + 11 * N + i, tl.abs(-a))
    tl.store(out + 12 * N + i, tl.sigmoid(a))
    tl.store(out + 13 * N + i, tl.fma(a, a, -a))
    tl.store(out + 14 * N + i, libdevice.tanh(a))
    tl.store(out + 15 * N + i, tl.softmax(a))
    tl.store(out + 16 * N + i, tl.fdiv(a * 0 + 1, a))
    tl.store(out + 17 * N + i, libdevice.pow(a, a))


def case_functions() -> None:
    for kind in (torch.float32, torch.float64):
        x = (randn(64).abs() + 0.1).to(kind)
        out = torch.zeros(18, 64, dtype=kind)
        math_kernel[ONE](x, out, N=64)
        y = x.double()
        expected = [
            y.exp(), y.exp2(), y.log(), y.log2(), y.sin(), y.cos(), y.sqrt(), y.rsqrt(), y.erf(),
            (x * 3).floor(), (x * 3).ceil(), y, y.sigmoid(), y * y - y, y.tanh(), y.softmax(0),
            1 / y, y**y,
        ]  # fmt: skip
        close(out, torch.stack([e.double() for e in expected]), 2e-6)


@triton.jit
def rounding_kernel(x, y, out):
    i = tl.arange(0, 64)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.div_rn(a, b))
    tl.store(out + 64 + i, tl.sqrt_rn(tl.abs(a)))
    tl.store(out + 128 + i, tl.fma(a, b, -(a * b)))
    tl.store(out + 192 + i, a / b)
    tl.store(out + 256 + i, a % b)


def case_correctly_rounded_functions() -> None:
    x, y, out = randn(64), randn(64, seed=1), torch.zeros(320)
    rounding_kernel[ONE](x, y, out)
    equal(out[:64], x / y)
    equal(out[64:128], x.double().abs().sqrt().float())
    equal(out[128:192], (x.double() * y.double() - (x * y).double()).float())
    close(out[192:256], x / y)
    equal(out[256:], torch.fmod(x, y))


@triton.jit
def convert_kernel(x, out, R: tl.constexpr = None):
    i = tl.arange(0, 64)
    kind = out.dtype.element_ty
    tl.store(out + i, tl.load(x + i).to(kind, fp_downcast_rounding=R))


TYPES = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def case_conversions_round_to_nearest() -> None:
    for source in (torch.float32, torch.float16, torch.bfloat16):
        x = (randn(64) * 10).to(source)
        for target in TYPES:
            out = torch.zeros(64).to(target)
            convert_kernel[ONE](x, out)
            equal(out.float(), x.to(target).float())
    for source in TYPES:
        x, out = randn(64).to(source), torch.zeros(64)
        convert_kernel[ONE](x, out)
        equal(out, x.float())


def case_conversions_from_and_to_integers() -> None:
    for kind in (torch.float32, *TYPES[:2]):
        numbers, out, back = torch.arange(64), torch.zeros(64).to(kind), torch.zeros(64).long()
        convert_kernel[ONE](numbers, out)
        equal(out, numbers.to(kind))
        convert_kernel[ONE](out, back)
        equal(back, numbers)
        convert_kernel[ONE](numbers % 2 == 0, out)
        equal(out, (numbers % 2 == 0).to(kind))


def case_conversions_round_to_zero() -> None:
    x = randn(64) * 10
    x[0], x[1], x[2] = 1e38, -1e38, math.inf
    for target in (torch.float16, torch.bfloat16):
        out = torch.zeros(64).to(target)
        convert_kernel[ONE](x, out, R="rtz")
        assert bool((out.float().abs()[3:] <= x.abs()[3:]).all())
        away = torch.nextafter(out[3:], torch.copysign(torch.tensor(math.inf).to(target), out[3:]))
        assert bool((away.float().abs() > x[3:].abs()).all())
        assert out[2].isinf() and float(out[0]) == (65504.0 if target == TYPES[0] else out[0])


def case_float8_saturates() -> None:
    x = torch.full((64,), 1e6)
    x[1], x[2], x[3] = -1e6, math.inf, math.nan
    for target, limit in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)):
        out = torch.zeros(64).to(target)
        convert_kernel[ONE](x, out)
        expected = torch.full((64,), limit)
        expected[1], expected[3] = -limit, math.nan
        equal(out.float(), expected)


@triton.jit
def bits_kernel(x, out):
    i = tl.arange(0, 64)
    bits = tl.load(x + i).to(tl.int32, bitcast=True)
    tl.store(out + i, bits)
    tl.store(out + 64 + i, tl.umulhi(bits, bits))


def case_bits_and_high_products() -> None:
    x, out = randn(64), torch.zeros(128, dtype=torch.int32)
    bits_kernel[ONE](x, out)
    bits = x.view(torch.int32)
    equal(out[:64], bits)
    unsigned = bits.numpy().view(np.uint32).astype(np.uint64)
    equal(out[64:], ((unsigned * unsigned) >> np.uint64(32)).astype(np.uint32).view(np.int32))


@triton.jit
def random_kernel(out, seed):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.randint(seed, i))
    _, _, _, last = tl.randint4x(seed, i)
    tl.store(out + 64 + i, last)


@triton.jit
def uniform_kernel(out, seed):
    i = tl.arange(0, 4096)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(out + 4096 + i, tl.randn(seed, i))


def philox(seed: int, offset: int) -> list[int]:
    """Philox-4x32-10 (Salmon et al., SC 2011) as Triton keys it."""
    c, k = [offset, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        x, y = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        high_x, low_x, high_y, low_y = x >> 32, x % 2**32, y >> 32, y % 2**32
        c = [high_y ^ c[1] ^ k[0], low_y, high_x ^ c[3] ^ k[1], low_x]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def case_random_numbers_are_philox() -> None:
    for seed in (0, 42, 2**40 + 5):
        out = torch.zeros(128, dtype=torch.uint32)
        random_kernel[ONE](out, seed)
        numbers = np.array([philox(seed, i) for i in range(64)], np.uint32)
        equal(out[:64], numbers[:, 0])
        equal(out[64:], numbers[:, 3])
    uniform = torch.zeros(8192)
    uniform_kernel[ONE](uniform, 7)
    assert float(uniform[:4096].min()) >= 0
    assert float(uniform[:4096].max()) < 1
    assert abs(float(uniform[:4096].mean()) - 0.5) < 0.02
    assert abs(float(uniform[4096:].std()) - 1) < 0.05


# --- memory ---------------------------------------------------------------------------------


@triton.jit
def block_pointer_kernel(x, out, rows, columns, PAD: tl.constexpr, CHECK: tl.constexpr):
    source = tl.make_block_ptr(x, (rows, columns), (columns, 1), (0, 0), (8, 8), (1, 0))
    source = tl.advance(source, (0, 8))
    a = tl.load(source, boundary_check=CHECK, padding_option=PAD)
    target = tl.make_block_ptr(out, (8, 8), (8, 1), (0, 0), (8, 8), (1, 0))
    tl.store(target, a)


def case_block_pointers() -> None:
    if not BLOCK_POINTERS:
        raised(CompilationError, lambda: block_pointer_kernel[ONE](*(None,) * 4, PAD="", CHECK=()))
        return
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        x = randn(6, 12).to(kind)
        for pad, value in (("zero", 0.0), ("nan", math.nan)):
            out = torch.zeros(8, 8, dtype=kind)
            block_pointer_kernel[ONE](x, out, 6, 12, PAD=pad, CHECK=(0, 1))
            expected = torch.full((8, 8), value, dtype=kind)
            expected[:6, :4] = x[:, 8:]
            equal(out, expected)


def case_block_pointers_are_checked() -> None:
    if not BLOCK_POINTERS:
        return
    x, out = randn(6, 12), torch.zeros(8, 8)
    raised(
        executor.OutOfBounds,
        lambda: block_pointer_kernel[ONE](x, out, 6, 12, PAD="", CHECK=(1,)),
    )
    raised(
        executor.OutOfBounds,
        lambda: block_pointer_kernel[ONE](randn(16, 16), out[:4].clone(), 16, 16, PAD="", CHECK=()),
    )


@triton.jit
def device_descriptor_kernel(x, out, rows, columns):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [8, 8])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [8, 8])
    for j in range(0, columns, 8):
        target.store([0, j], source.load([0, j]) * 2)


@triton.jit
def host_descriptor_kernel(source, target):
    target.store([0, 8], tl.load_tensor_descriptor(source, [0, 8]) + 1)
    target.atomic_add([0, 0], source.load([0, 0]))


def case_tensor_descriptors() -> None:
    x, out = randn(6, 12), torch.zeros(6, 12)
    device_descriptor_kernel[ONE](x, out, 6, 12)
    equal(out, 2 * x)
    out = torch.ones(6, 12)
    source, target = (TensorDescriptor.from_tensor(t, [8, 8]) for t in (x, out))
    host_descriptor_kernel[ONE](source, target)
    equal(out, torch.cat([1 + x[:, :8], x[:, 8:] + 1], 1))


def case_tensor_descriptors_are_checked() -> None:
    x, out = randn(6, 12), torch.zeros(6, 12)
    raised(executor.OutOfBounds, lambda: device_descriptor_kernel[ONE](x, out[:3].clone(), 6, 12))


@triton.jit
def descriptor_gather_kernel(source, target, rows, out):
    index = tl.load(rows + tl.arange(0, 8))
    block = source.gather(index, 0)
    tl.store(out + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], block)
    target.scatter(block, index, 0)


def case_descriptor_gather_and_scatter() -> None:
    x, out, back = randn(16, 8), torch.zeros(8, 8), torch.zeros(16, 8)
    rows = torch.tensor([3, 1, 15, 0, 7, 7, 2, 9], dtype=torch.int32)
    source, target = (TensorDescriptor.from_tensor(t, [1, 8]) for t in (x, back))
    descriptor_gather_kernel[ONE](source, target, rows, out)
    equal(out, x[rows.long()])
    expected = torch.zeros(16, 8)
    expected[rows.long()] = x[rows.long()]
    equal(back, expected)


@triton.jit
def pointer_table_kernel(table, out, n):
    p = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, 64)
    tl.store(out + tl.program_id(0) * n + i, tl.load(p + i, mask=i < n), mask=i < n)


@triton.jit
def far_kernel(x, out, far):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i + far.to(tl.int64) * 4, mask=i < 0, other=3.0))


def case_masked_addresses_are_not_touched() -> None:
    out = torch.zeros(64)
    far_kernel[ONE](randn(64), out, 2**30)
    equal(out, torch.full((64,), 3.0))


@triton.jit
def careless_sum_kernel(x, out, n):
    i = tl.arange(0, 64)
    tl.store(out, tl.sum(tl.load(x + i, mask=i < n)))


def case_lanes_that_a_load_leaves_out_are_no_zeros() -> None:
    for x in (randn(64), torch.ones(64, dtype=torch.int64)):
        out = torch.zeros(1, dtype=x.dtype)
        careless_sum_kernel[ONE](x, out, 40)
        assert not (out.double() - x[:40].double().sum()).abs() < 1e6  # NaN, or far away


@triton.jit
def outside_kernel(x, out, shift):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i + shift))


def case_addresses_outside_are_refused() -> None:
    x, out = randn(64), torch.zeros(64)
    for shift in (1, -1, 2**30, -(2**30)):
        raised(executor.OutOfBounds, lambda shift=shift: outside_kernel[ONE](x, out, shift))
    address = x.data_ptr() // 4
    raised(executor.OutOfBounds, lambda: outside_kernel[ONE](x, out, -address))
    raised(executor.OutOfBounds, lambda: outside_kernel[ONE](x, out, -address - 1))


def main() -> None:
    """Run every case and print what came of it."""
    outcomes = {}
    for name, case in list(globals().items()):
        if name.startswith("case_"):
            try:
                case()
                outcomes[name] = "ok"
            except Exception as error:
                cause = error
                outcomes[name] = "".join(traceback.format_exception(cause))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
