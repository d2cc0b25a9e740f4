"""CUDA kernels: what a program may ask for, and what the executor launches of it."""

from __future__ import annotations

import hashlib
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import cuda_pairs

from curate.devices import ON_CPU
from curate.problem.problem import ProgramError
from curate.verify.compile.ptx import PtxParameter, compile_ptx, find_nvcc
from curate.verify.executor.launch import CpuBackend
from curate.verify.executor.serve import EXAMPLE, CandidateExecutor
from curate.verify.files import read_jsonl, text_sha256
from curate.verify.host_half.cuda_launches import LAUNCH, make_launcher, pack_arguments
from curate.verify.host_half.handles import on_device
from curate.verify.host_half.launches import HostLaunches, LaunchLeftOut
from curate.verify.host_half.serve import HostHalf
from curate.verify.host_half.stream import CommandStream, Tape
from curate.verify.judge.slots import Judge, verify
from curate.verify.protocol.messages import CallAccount, CallLimits
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.wire import Channel
from curate.verify.verdict import Candidate, Options

PTX = """\
.version 9.0
.visible .entry _Z5scalePKfPfifb(
\t.param .u64 .ptr .align 1 _Z5scalePKfPfifb_param_0,
\t.param .u64 _Z5scalePKfPfifb_param_1,
\t.param .u32 _Z5scalePKfPfifb_param_2,
\t.param .f32 _Z5scalePKfPfifb_param_3,
\t.param .u8 _Z5scalePKfPfifb_param_4
)
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
SCALE, SHIFT = "_Z5scalePKfPfifb", "_Z5shift5Shift"


class NotingBackend(CpuBackend):
    """Notes what it is to launch, and calls a function in place of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[int], list[bytes], int]] = []

    def launch_ptx(
        self, text: str, name: str, sizes: Sequence[int], packed: Sequence[bytes], shared: int
    ) -> None:
        assert text == PTX
        self.seen.append((name, list(sizes), list(packed), shared))


class Pair:
    """A host half's stream, and the executor that it goes to."""

    def __init__(self, ptx: str | None = PTX) -> None:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel = Channel(one)
        self.stream = CommandStream(self.channel)
        self.launches = HostLaunches(ON_CPU)
        self.backend = NotingBackend()
        self.executor = CandidateExecutor(Channel(other), self.backend, 2**20)
        self.launch = make_launcher(PTX, self.launches)
        sha256 = None if ptx is None else text_hash(ptx)
        self.begin(ptx=sha256)

    def begin(self, **how: Any) -> None:
        self.executor.begin([], [], CallLimits(1e6, 60.0, **how))

    def finish(self, *results: Any) -> CallAccount:
        places = [self.stream.place(handle.inner) for handle in results]
        return self.executor.finish(self.stream.end(), places, [], 2**10)

    def address(self, handle: Any, start: int = 0) -> int:
        return self.backend.address(self.stream.place(handle.inner).storage, start)


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    with on_device(made.stream):
        yield made


def of_type(type: str, size: int) -> tuple[PtxParameter, ...]:
    return (PtxParameter(type, size),)


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
    given = pack_arguments("k", of_type(type, size), [value])
    assert given == [{"b": struct.pack(packed, value).hex()}]


@pytest.mark.parametrize(
    ("parameter", "value", "said"),
    [
        (PtxParameter("u32", 4), "tensor", "Handle for u32 of 4 bytes: this parameter is no"),
        (PtxParameter("u64", 8), "here", "Tensor for u64 of 8 bytes: a tensor that is not on"),
        (PtxParameter("b8", 8), ("d", "tensor"), "value 0 of the format d is no address"),
        (PtxParameter("b8", 4), ("i", "tensor"), "tuple for b8 of 4 bytes"),
        (PtxParameter("u32", 4), 2**32, "too big"),
        (PtxParameter("u32", 4), 0.5, "float for u32"),
        (PtxParameter("b8", 12), ("ii", 1, 2), "8 bytes are given"),
        (PtxParameter("f32", 4), "1", "str for f32"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    pair: Pair, parameter: PtxParameter, value: Any, said: str
) -> None:
    known = {"tensor": torch.ones(1, device="cuda"), "here": torch.ones(1)}
    if isinstance(value, tuple):
        value = tuple(known.get(one, one) for one in value)
    elif isinstance(value, str):
        value = known.get(value, value)
    wanted = (PtxParameter("u8", 1), parameter)
    with pytest.raises(TypeError, match=f"k, argument 1: .*{said}"):
        pack_arguments("k", wanted, [1, value])
    with pytest.raises(TypeError, match="k takes 2 arguments, and 1 are given"):
        pack_arguments("k", wanted, [1])


def test_tensors_become_addresses_also_in_structs(pair: Pair) -> None:
    x = torch.ones(8, device="cuda")
    pair.launch("scale", (2, 3), 128, [x, None, 8, 0.5, True], shared=64)
    pair.launch("shift", 5, (32, 2), [("Pi0P", x[2:], 5)])
    pair.finish()
    address = pair.address(x)
    assert pair.backend.seen == [
        (
            SCALE,
            [2, 3, 1, 128, 1, 1],
            [
                struct.pack("<Q", address),
                bytes(8),
                struct.pack("<i", 8),
                struct.pack("<f", 0.5),
                b"\1",
            ],
            64,
        ),
        (SHIFT, [5, 1, 1, 32, 2, 1], [struct.pack("<Qi4x", address + 8, 5)], 0),
    ]


def test_what_was_done_is_the_executor_s_account(pair: Pair) -> None:
    x, y = torch.zeros(8, device="cuda").exp(), torch.zeros(4, device="cuda")
    for _ in range(2):
        pair.launch("scale", 1, 128, [x, y, 8, 1.0, False])
    did = pair.finish(y)
    assert did.launches == {SCALE: 2}
    assert (did.launch_bytes, did.on_the_way) == (2 * (32 + 16), {"exp": 1})
    assert did.by_operators == [False]
    assert not did.wrote_old
    pair.begin()
    pair.launch("scale", 1, 128, [x, y, 8, 1.0, False])
    assert pair.finish().wrote_old, "the tensors are older than the call"


def test_equal_calls_have_equal_streams(pair: Pair) -> None:
    streams = []
    for size in (8, 8, 9):
        pair.begin()
        x = torch.zeros(16, device="cuda")
        pair.launch("scale", 1, 128, [x, x, size, 1.0, False])
        streams.append(pair.finish().stream)
        del x
    assert streams[0] == streams[1] != streams[2]


def test_launches_can_be_left_out_and_refused(pair: Pair) -> None:
    pair.begin(skip=True)
    pair.launch("empty", 1, 1, [])
    pair.finish()
    pair.begin(dry=True)
    pair.launch("empty", 1, 1, [])
    assert pair.finish().commands == 1
    assert pair.backend.seen == []
    pair.launches.refused = True
    with pytest.raises(LaunchLeftOut):
        pair.launch("empty", 1, 1, [])
    assert pair.launches.asked == 3


def test_a_graph_launches_when_it_is_replayed(pair: Pair) -> None:
    tape = Tape()
    pair.stream.record(tape)
    pair.launch("empty", 1, 1, [])
    pair.stream.record(None)
    for _ in range(3):
        pair.stream.replay(tape)
    assert pair.finish().launches == {"_Z5emptyv": 3}


@pytest.mark.parametrize("grid", [0, (1, 0), (1, 1, 1, 1), 1.5, (1, 2**17)])
def test_a_grid_is_numbers_that_a_gpu_takes(pair: Pair, grid: Any) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        pair.launch("empty", grid, 1, [])


# --- what a hostile host half sends ------------------------------------------------------------

X = [0, "float32", [4], [1], 0]
NEW = {"do": "new", "storage": 0, "bytes": 16}
COMMAND = {
    "do": "cuda",
    "ptx": PTX,
    "sha256": text_hash(PTX),
    "kernel": SCALE,
    "grid": [1, 1, 1],
    "block": [1, 1, 1],
    "shared": 0,
    "args": [],
}


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": text_hash("")},
        {"ptx": PTX + "\n"},
        {"ptx": None},
        {"ptx": PTX + "\n", "sha256": text_hash(PTX + "\n")},
        {"grid": [0, 1, 1]},
        {"grid": [1, 1]},
        {"grid": [1, 1, 2**32 + 1]},
        {"block": ["1", 1, 1]},
        {"shared": -1},
        {"args": [1]},
        {"args": ["00"]},
        {"args": [{"b": "0"}]},
        {"args": [{"b": 5}]},
        {"args": [{"b": "00" * 2**16}]},
        {"args": [{"t": X, "b": "00"}]},
        {"args": [{"t": [1, "float32", [4], [1], 0]}]},
        {"args": [{"t": [0, "float32", [5], [1], 0]}]},
        {"args": [{"s": [[0, X]], "b": "00"}]},
        {"args": [{"s": [[-8, X]], "b": "00" * 16}]},
        {"args": [{"s": [[9, X]], "b": "00" * 16}]},
        {"args": [{"s": [[True, X]], "b": "00" * 16}]},
        {"args": [{"s": 3, "b": "00" * 16}]},
        {"args": 7},
    ],
)
def test_bad_commands_end_the_call(change: dict[str, Any]) -> None:
    pair = Pair()
    pair.channel.hold(NEW)
    pair.channel.hold({**COMMAND, **change})
    with pytest.raises(Refusal) as refused:
        pair.finish()
    assert (refused.value.status, refused.value.reason) == ("crash", "bad_command")
    assert pair.backend.seen == []


def test_a_good_command_does_not() -> None:
    pair = Pair()
    pair.channel.hold(NEW)
    pair.channel.hold({**COMMAND, "args": [{"t": X}, {"s": [[8, X]], "b": "01" * 16}]})
    pair.finish()
    ((_, _, packed, _),) = pair.backend.seen
    address = struct.pack("<Q", pair.backend.address(0, 0))
    assert packed == [address, b"\1" * 8 + address]


def test_a_triton_program_launches_no_cuda_kernels() -> None:
    pair = Pair(ptx=None)
    pair.channel.hold(COMMAND)
    with pytest.raises(Refusal, match="another program"):
        pair.finish()


@pytest.mark.parametrize("ptx", [PTX, None])
def test_launches_of_triton_count_in_triton_programs_only(ptx: str | None) -> None:
    pair = Pair(ptx)
    place = {"t": [0, "float32", [16], [1], 0]}
    command = {
        "do": "launch",
        "ttir": EXAMPLE,
        "sha256": text_hash(EXAMPLE),
        "args": [place, place, 16],
        "grid": [1, 1, 1],
        "options": {},
    }
    pair.channel.hold({**NEW, "bytes": 64})
    pair.channel.hold(command)
    did = pair.finish()
    assert did.launches == ({} if ptx else {"copy": 1})


def test_only_a_gpu_runs_them() -> None:
    pair = Pair()
    pair.executor.commands.device = CpuBackend()
    pair.channel.hold(COMMAND)
    with pytest.raises(Refusal) as refused:
        pair.finish()
    assert (refused.value.status, refused.value.reason) == ("unsupported", "needs_cuda")


# --- programs ----------------------------------------------------------------------------------


def test_only_a_program_that_came_with_ptx_can_launch_cuda_kernels(pair: Pair) -> None:
    half = HostHalf(pair.stream, pair.launches)
    source = f"{LAUNCH}\nclass ModelNew: ...\n"
    half.load(source, PTX)
    with pytest.raises(ProgramError, match=f"name '{LAUNCH}' is not defined"):
        half.load(source, None)


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


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc here")
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
