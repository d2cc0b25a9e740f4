"""Programs that are right but at corners of what their reference takes."""

from __future__ import annotations

import pytest
from verify_programs import HEAD, Judge

REFERENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, {names}):
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

PROGRAM = (
    HEAD
    + """
@triton.jit
def by_rows({pointers}, y_ptr, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < width
    {body}


class ModelNew(nn.Module):
    def forward(self, {names}):
        {first} = {first}.contiguous()
        y = {first}.new_empty({made})
        block = triton.next_power_of_2({first}.shape[-1])
        count = {first}.numel() // {first}.shape[-1]
        by_rows[(count,)]({names}, y, {first}.shape[-1], BLOCK=block)
        return y
"""
)

UNIT = (
    "F.normalize(x, dim=-1)",
    "torch.randn(12, 40)",
    "x = tl.load(x_ptr + row * width + at, mask=inside, other=0.0)\n"
    "    norm = tl.sqrt(tl.sum(x * x, 0))\n"
    "    tl.store(y_ptr + row * width + at, {}, mask=inside)",
)
MASKED = (
    "(x * m).sum(-1) / m.sum(-1).clamp(min=1)",
    "torch.randn(12, 40), (torch.rand(12, 40) < 0.3).float()",
    "x = tl.load(x_ptr + row * width + at, mask=inside, other=0.0)\n"
    "    m = tl.load(m_ptr + row * width + at, mask=inside, other=0.0)\n"
    "    tl.store(y_ptr + row, tl.sum(x * m, 0) / {})",
)
LOWEST = (
    "x.amin(-1)",
    "torch.randn(12, 40)",
    "x = tl.load(x_ptr + row * width + at, mask=inside, other={})\n"
    "    tl.store(y_ptr + row, tl.min(x, 0))",
)
LOSS = (
    "F.binary_cross_entropy(x, m, reduction='none')",
    "torch.rand(12, 40), torch.rand(12, 40)",
    "x = tl.load(x_ptr + row * width + at, mask=inside, other=0.5)\n"
    "    m = tl.load(m_ptr + row * width + at, mask=inside, other=0.5)\n"
    "    one, other = {}\n"
    "    tl.store(y_ptr + row * width + at, -m * one - (1 - m) * other, mask=inside)",
)
COLUMNS = (
    "x / x.abs().amax(0, keepdim=True).clamp(min=1e-9)",
    "torch.randn(12, 40)",
    "x = tl.load(x_ptr + row * width + at, mask=inside, other=0.0)\n"
    "    top = tl.abs(x)\n"
    "    for other in range(tl.num_programs(0)):\n"
    "        beside = tl.load(x_ptr + other * width + at, mask=inside, other=0.0)\n"
    "        top = tl.maximum(top, tl.abs(beside))\n"
    "    tl.store(y_ptr + row * width + at, x / {}, mask=inside)",
)

CASES = {
    "columns of zeros": (COLUMNS, "tl.maximum(top, 1e-9)", "top"),
    "rows of zeros": (UNIT, "x / tl.maximum(norm, 1e-12)", "x / norm"),
    "masks of zeros": (MASKED, "tl.maximum(tl.sum(m, 0), 1.0)", "tl.sum(m, 0)"),
    "rows far above zero": (LOWEST, "float('inf')", "9999.0"),
    "probabilities of zero and one": (
        LOSS,
        "tl.maximum(tl.log(x), -100.0), tl.maximum(tl.log(1 - x), -100.0)",
        "tl.log(x), tl.log(1 - x)",
    ),
}


def pair(what: tuple[str, str, str], code: str) -> tuple[str, str]:
    forward, inputs, body = what
    names = "x, m" if "m_ptr" in body else "x"
    pointers = ", ".join(f"{name}_ptr" for name in names.split(", "))
    made = "x.shape" if "y_ptr + row * width" in body else "x.shape[:-1]"
    filled = {"first": "x", "names": names, "pointers": pointers, "made": made}
    program = PROGRAM.format(body=body.format(code), **filled)
    return REFERENCE.format(names=names, forward=forward, inputs=inputs), program


@pytest.fixture(scope="module")
def corners(judge: Judge) -> dict[str, tuple[dict, dict]]:
    pairs = [pair(what, code) for what, *codes in CASES.values() for code in codes]
    found = iter(judge(pairs))
    return {name: (next(found), next(found)) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_what_a_reference_guards_against_is_tried(
    corners: dict[str, tuple[dict, dict]], name: str
) -> None:
    honest, careless = corners[name]
    assert honest["status"] == "correct", honest
    assert careless["status"] == "incorrect", careless


SORT = """
@triton.jit
def sort_rows(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + at, mask=at < width, other=2**40)
    keys = tl.sort(x * BLOCK + {place})
    tl.store(y_ptr + row * width + at, {found}, mask=at < width)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[-1])
        sort_rows[(x.shape[0],)](x, y, x.shape[-1], BLOCK=block)
        return y
"""


def test_equal_keys_are_tried_where_a_sort_is_stable(judge: Judge) -> None:
    def sorting(stable: bool) -> str:
        forward = f"torch.sort(x, stable={stable})[1]"
        return REFERENCE.format(names="x", forward=forward, inputs="torch.randint(0, 9999, (6, 8))")

    kept = HEAD + SORT.format(place="at", found="keys % BLOCK")
    turned = HEAD + SORT.format(place="(BLOCK - 1 - at)", found="BLOCK - 1 - keys % BLOCK")
    honest, careless, free = judge(
        [(sorting(True), kept), (sorting(True), turned), (sorting(False), turned)]
    )
    assert honest["status"] == "correct", honest
    assert careless["status"] == "incorrect", careless
    assert free["status"] == "correct", free


CONVOLUTION = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3, 2, 3, 3))

    def forward(self, x):
        return torch.tanh(x) * self.scale.sum()

def get_inputs():
    return [torch.randn(2, 3, 5, 4)]

def get_init_inputs():
    return []
"""
SCALES = (
    HEAD
    + """
@triton.jit
def scaled(x_ptr, scale_ptr, y_ptr, n, outer, inner, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = 0.0
    for i in range(3):
        for j in range(18):
            total += tl.load(scale_ptr + i * outer + {place})
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    power = tl.exp(-2 * tl.abs(x))
    y = (1 - power) / (1 + power)
    tl.store(y_ptr + at, tl.where(x < 0, -y, y) * total, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3, 2, 3, 3))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scale = self.scale{made}
        grid = (triton.cdiv(x.numel(), 64),)
        scaled[grid](x, scale, y, x.numel(), scale.stride(0), scale.stride(3), BLOCK=64)
        return y
"""
)


def test_parameters_of_convolutions_are_tried_with_channels_last(judge: Judge) -> None:
    dense = SCALES.format(place="j", made=".contiguous()")
    strided = SCALES.format(place="j * inner", made="")
    sound, careless = judge([(CONVOLUTION, dense), (CONVOLUTION, strided)])
    assert "contiguous_only" not in sound["caveats"] and sound["status"] == "correct", sound
    assert careless["status"] == "correct" and "contiguous_only" in careless["caveats"], careless


ANGLES = (
    "torch.sin(x * 1000.0 * torch.exp(-torch.arange(x.shape[-1], device=x.device) / 4))",
    "torch.randn(12, 40).bfloat16()",
    "x = tl.load(x_ptr + row * width + at, mask=inside, other=0.0).to(tl.float32)\n"
    "    y = tl.sin({})\n"
    "    tl.store(y_ptr + row * width + at, y, mask=inside)",
)


def test_angles_that_16_bits_lose_make_no_decoy_of_a_kernel(judge: Judge) -> None:
    # Of large inputs any sine is right, also that of a kernel that was left out.
    codes = ("x * 1000.0 * tl.exp(-at / 4)", "x * 1000.0 * tl.exp(-at / 3)")
    reference, right = pair(ANGLES, codes[0])
    programs = (right, pair(ANGLES, codes[1])[1])
    single = "x.new_empty(x.shape, dtype=torch.float32)"
    made = [text.replace("x.new_empty(x.shape)", single) for text in programs]
    sound, careless = judge([(reference, text) for text in made])
    assert sound["status"] == "correct", sound
    assert careless["status"] == "incorrect", careless
