from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import triton

from curate.verify import libdevice

ROOT = Path(__file__).parents[2]
LIBRARIES = Path(triton.__file__).parent / "language" / "extra"


def symbols(vendor: str) -> list[str]:
    text = (LIBRARIES / vendor / "libdevice.py").read_text()
    return sorted(set(re.findall(r'"(__\w+)"', text)))


def test_every_ocml_function_is_known() -> None:
    assert [name for name in symbols("hip") if libdevice.find(name) is None] == []


def test_libdevice_functions_left_out_are_few() -> None:
    unknown = [name for name in symbols("cuda") if libdevice.find(name) is None]
    directed = [name for name in unknown if re.search(r"_r[zdu]$", name)]
    assert sorted(set(unknown) - set(directed)) == [
        "__nv_byte_perm", "__nv_double2float_rn", "__nv_double2hiint", "__nv_double2loint",
        "__nv_hiloint2double", "__nv_jn", "__nv_jnf", "__nv_rcp64h", "__nv_sad", "__nv_usad",
        "__nv_yn", "__nv_ynf",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("symbol", "arguments", "expected"),
    [
        ("__nv_erff", (0.5,), math.erf(0.5)),
        ("__nv_tgammaf", (-1.5,), math.gamma(-1.5)),
        ("__nv_lgamma", (4.5,), math.lgamma(4.5)),
        ("__nv_roundf", (2.5,), 3.0),
        ("__nv_roundf", (-2.5,), -3.0),
        ("__nv_rintf", (2.5,), 2.0),
        ("__nv_fmodf", (-7.0, 3.0), -1.0),
        ("__nv_remainderf", (5.0, 3.0), -1.0),
        ("__nv_remainderf", (7.0, 2.0), -1.0),
        ("__nv_fdimf", (3.0, 5.0), 0.0),
        ("__nv_sinpif", (2.5,), 1.0),
        ("__nv_logbf", (10.0,), 3.0),
        ("__nv_ilogbf", (0.3,), -2.0),
        ("__nv_erfinvf", (0.5,), 0.4769362762044699),
        ("__nv_cyl_bessel_i0f", (1.0,), 1.2660658777520084),
        ("__nv_j0f", (1.0,), 0.7651976865579666),
        ("__nv_normcdff", (1.0,), 0.8413447460685429),
        ("__nv_rsqrtf", (4.0,), 0.5),
        ("__nv_powf", (2.0, -1.0), 0.5),
        ("__nv_rhypotf", (3.0, 4.0), 0.2),
        ("__nv_fmaf", (2.0, 3.0, 4.0), 10.0),
        ("__nv_signbitf", (-0.0,), 1.0),
        ("__nv_isnand", (math.nan,), 1.0),
        ("__nv_float2int_rz", (-2.7,), -2.0),
        ("__nv_float2int_rn", (2.5,), 2.0),
        ("__ocml_tanh_f32", (0.5,), math.tanh(0.5)),
    ],
)
def test_float_functions(symbol: str, arguments: tuple[float, ...], expected: float) -> None:
    function = libdevice.find(symbol)
    assert function is not None
    result = function(*(np.array([x], np.float32) for x in arguments))
    assert float(result[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("symbol", "arguments", "expected"),
    [
        ("__nv_clz", (1,), 31),
        ("__nv_clz", (-1,), 0),
        ("__nv_clz", (0,), 32),
        ("__nv_popc", (-1,), 32),
        ("__nv_ffs", (8,), 4),
        ("__nv_ffs", (0,), 0),
        ("__nv_brev", (1,), -(2**31)),
        ("__nv_mulhi", (2**30, 8), 2),
        ("__nv_mul24", (-3, 5), -15),
        ("__nv_hadd", (3, 4), 3),
        ("__nv_rhadd", (3, 4), 4),
    ],
)
def test_integer_functions(symbol: str, arguments: tuple[int, ...], expected: int) -> None:
    function = libdevice.find(symbol)
    assert function is not None
    assert int(function(*(np.array([x], np.int32) for x in arguments))[0]) == expected


KERNELS = """
import json, sys
import torch, triton
import triton.language as tl
from curate.verify import interpreter
interpreter.install()

@triton.jit
def combine(a, i, b, j):
    take = (b > a) | ((b == a) & (j < i))
    return tl.where(take, b, a), tl.where(take, j, i)

@triton.jit
def first_of(a, b):
    return a

@triton.jit
def kernel(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    rows = tl.arange(0, R)
    at = rows[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + at)
    index = tl.broadcast_to(tl.arange(0, C)[None, :], (R, C))
    top, where = tl.reduce((x, index), 1, combine)
    tl.store(out_ptr + rows, top)
    tl.store(out_ptr + R + rows, where)
    tl.store(out_ptr + 2 * R + rows, tl.reduce(x, 1, first_of))
    tl.store(out_ptr + 3 * R + at, tl.associative_scan(x, 1, first_of))
    tl.store(out_ptr + 3 * R + R * C + at, tl.associative_scan(x, 0, first_of, reverse=True))

x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
x[1, 3] = x[1, 6] = 9.0
out = torch.zeros(3 * 4 + 2 * 32)
kernel[(1,)](x, out, R=4, C=8)
print(json.dumps([x.tolist(), out.tolist()]))
"""


def test_reductions_and_scans_keep_the_order_of_elements(tmp_path: Path) -> None:
    program = tmp_path / "program.py"  # Triton reads a kernel's source back from its file
    program.write_text(KERNELS)
    ran = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    x, out = map(np.array, json.loads(ran.stdout))
    assert np.array_equal(out[:4], x.max(1))
    assert np.array_equal(out[4:8], x.argmax(1))
    assert np.array_equal(out[8:12], x[:, 0])
    assert np.array_equal(out[12:44].reshape(4, 8), np.repeat(x[:, :1], 8, 1))
    assert np.array_equal(out[44:].reshape(4, 8), np.repeat(x[-1:], 4, 0))


def test_it_refuses_without_the_environment_variable() -> None:
    code = "import curate.verify.interpreter"
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert "set TRITON_INTERPRET=1 before triton is imported" in ran.stderr
