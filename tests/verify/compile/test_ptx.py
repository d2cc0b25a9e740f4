from __future__ import annotations

import sys
from pathlib import Path

import pytest

from curate.verify.compile.ptx import PtxParameter, compile_ptx, entries, find_entry, find_nvcc

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import cuda_pairs

PTX = """\
.version 9.0
.visible .entry _Z5scalePKfPfifb(
\t.param .u64 .ptr .align 1 _Z5scalePKfPfifb_param_0,
\t.param .u64 _Z5scalePKfPfifb_param_1,
\t.param .u32 _Z5scalePKfPfifb_param_2,
\t.param .f32 _Z5scalePKfPfifb_param_3,
\t.param .u8 _Z5scalePKfPfifb_param_4
)
.maxntid 128
{
}
.weak .entry _Z5shift5Shift(
\t.param .align 8 .b8 _Z5shift5Shift_param_0[16]
)
{
}
.visible .entry _Z5emptyv()
{
}
"""


def test_ptx_says_what_kernels_take() -> None:
    assert entries(PTX) == {
        "_Z5scalePKfPfifb": (
            PtxParameter("u64", 8),
            PtxParameter("u64", 8),
            PtxParameter("u32", 4),
            PtxParameter("f32", 4),
            PtxParameter("u8", 1),
        ),
        "_Z5shift5Shift": (PtxParameter("b8", 16),),
        "_Z5emptyv": (),
    }


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc here")
def test_ptx_of_nvcc_says_it_too() -> None:
    found = entries(compile_ptx(cuda_pairs.CUDA, 90, 100))["affine"]
    assert [p.size for p in found] == [8, 8, 4, 4, 8, 8, 1, 1, 16]
    assert [p.type for p in found][3:6] == ["f32", "f64", "u64"]


def test_a_part_of_a_name_is_enough_if_it_is_of_one_kernel_only() -> None:
    names = ["_Z4copyIfE", "_Z4copyIdE", "_Z4copy"]
    assert find_entry(names, "copyIfE") == "_Z4copyIfE"
    assert find_entry(names, "_Z4copy") == "_Z4copy", "a whole name needs no more"
    with pytest.raises(ValueError, match=r"3 kernels have 'copy'"):
        find_entry(names, "copy")
    with pytest.raises(ValueError, match=r"0 kernels have 'move'.*_Z4copyIdE"):
        find_entry(names, "move")
