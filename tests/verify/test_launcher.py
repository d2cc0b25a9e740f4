from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import cuda_pairs

from curate.verify import watch
from curate.verify.candidate import CandidateProcess as Process
from curate.verify.compile.ptx import PtxParameter, compile_ptx, entries, find_entry, find_nvcc
from curate.verify.files import read_jsonl, text_sha256
from curate.verify.judge.slots import Judge, verify
from curate.verify.launcher import LAUNCH, CudaKernel, make_launcher, pack_arguments
from curate.verify.problem import LoadedProgram, ProgramError
from curate.verify.recorder import Launches, LaunchRefused, Recorder
from curate.verify.verdict import Candidate, Options

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc here")

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


@contextlib.contextmanager
def admit(kernel: Any, arguments: tuple[Any, ...]) -> Iterator[bool]:
    yield True


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


@needs_nvcc
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


@pytest.mark.parametrize(
    ("type", "size", "value", "packed"),
    [
        ("u32", 4, 7, "<I"),
        ("u32", 4, -7, "<i"),
        ("u64", 8, 2**40, "<Q"),
        ("u8", 1, True, "<B"),
        ("f32", 4, 0.1, "<f"),
        ("f64", 8, 0.1, "<d"),
        ("f32", 4, 3, "<f"),
    ],
)
def test_numbers_are_packed_as_the_parameter_wants_them(
    type: str, size: int, value: float, packed: str
) -> None:
    kernel = CudaKernel("k", (PtxParameter(type, size),), None)
    assert pack_arguments(kernel, [value]) == [struct.pack(packed, value)]


def test_tensors_are_addresses_also_in_structs() -> None:
    tensor = torch.zeros(4)
    kernel = CudaKernel(
        "k", (PtxParameter("u64", 8), PtxParameter("u64", 8), PtxParameter("b8", 24)), None
    )
    packed = pack_arguments(kernel, [tensor, None, ("PPi0P", tensor, None, 5)])
    address = tensor.data_ptr()
    assert packed[:2] == [struct.pack("<Q", address), bytes(8)]
    assert packed[2] == struct.pack("<QQi4x", address, 0, 5)


@pytest.mark.parametrize(
    ("parameter", "value", "said"),
    [
        (PtxParameter("u32", 4), torch.zeros(1), "Tensor for u32 of 4 bytes: this parameter is no"),
        (PtxParameter("u32", 4), 2**32, "too big"),
        (PtxParameter("u32", 4), 0.5, "float for u32"),
        (PtxParameter("b8", 12), ("ii", 1, 2), "8 bytes are given"),
        (PtxParameter("f32", 4), "1", "str for f32"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    parameter: PtxParameter, value: Any, said: str
) -> None:
    kernel = CudaKernel("k", (PtxParameter("u8", 1), parameter), None)
    with pytest.raises(TypeError, match=f"k, argument 1: .*{said}"):
        pack_arguments(kernel, [1, value])
    with pytest.raises(TypeError, match="k takes 2 arguments, and 1 are given"):
        pack_arguments(kernel, [1])


def test_launches_are_counted_skipped_and_refused() -> None:
    launches = Launches()
    launch = make_launcher(PTX, launches.admit, "cpu")
    launches.recorder = Recorder()
    shift = ("di0q", 1.0, 2)
    launch("shift", 1, (32, 2), [shift])
    launch("scale", (2, 3), 128, [torch.ones(8), None, 8, 1.0, False])
    assert launches.recorder.launches == {"_Z5shift5Shift": 1, "_Z5scalePKfPfifb": 1}
    assert launches.recorder.launch_bytes == 32
    launches.refused = "raise"
    with pytest.raises(LaunchRefused):
        launch("shift", 1, 1, [shift])
    assert launches.count == 3


@pytest.mark.parametrize("grid", [0, (1, 0), (1, 1, 1, 1), 1.5])
def test_a_grid_is_numbers(grid: Any) -> None:
    launch = make_launcher(PTX, admit, "cpu")
    with pytest.raises((ValueError, TypeError)):
        launch("empty", grid, 1, [])


def load(program: str, ptx: str | None) -> None:
    process = Process(Launches())
    process.before = watch.snapshot()
    request = {"source": program, "ptx": ptx, "device": "cpu"}
    process.load({**request, "precision": {}}, [])


def test_only_a_program_that_came_with_ptx_can_launch_cuda_kernels() -> None:
    program = f"{LAUNCH}\nclass ModelNew: ...\n"
    load(program, PTX)
    with pytest.raises(ProgramError, match=f"name '{LAUNCH}' is not defined"):
        load(program, None)


def test_other_launches_of_cuda_kernels_do_not_count() -> None:
    """PyTorch's own launcher of PTX stays what it was: nothing that a Triton program may use."""
    launches = Launches()
    program = LoadedProgram("import torch.cuda._utils as u\nclass ModelNew: launch = u._CudaKernel")
    launches.recorder = Recorder()
    kernel = program.module.ModelNew.launch(None, None)
    with contextlib.suppress(Exception):  # there may be no driver
        kernel((1, 1, 1), (1, 1, 1), [])
    assert not launches.recorder.launches
    assert not launches.count


def test_ptx_is_part_of_what_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"id": "a", "reference": "r", "candidate": "c", "ptx": "p"}\n'
        '{"id": "b", "reference": "r", "candidate": "c", "ptx": null}\n'
    )
    cuda, triton = read_jsonl(path)
    assert (cuda.ptx, triton.ptx) == ("p", None)
    assert text_sha256(cuda) != text_sha256(triton)
    assert text_sha256(triton) == text_sha256(Candidate("x", "r", "c"))


def test_without_a_gpu_cuda_is_unsupported() -> None:
    judge = Judge(Options(backend="cpu", workers=1))
    found = judge.slots[0].judge(Candidate("a", cuda_pairs.REFERENCE, cuda_pairs.PROGRAM, PTX))
    judge.close()
    assert (found.status, found.reason) == ("unsupported", "needs_cuda")


@needs_nvcc
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_cuda_kernels_are_judged() -> None:
    ptx = compile_ptx(cuda_pairs.CUDA, 90, 100)
    candidates = [
        Candidate(f"own:{name}", cuda_pairs.REFERENCE, program, ptx)
        for name, (program, _, _) in cuda_pairs.OWN.items()
    ]
    found = {verdict.id: verdict for verdict in verify(candidates, Options(backend="cuda"))}
    assert [v for v in found.values() if not cuda_pairs.as_it_must(v)] == []
    assert found["own:right"].evidence["kind"] == "pure_cuda"
