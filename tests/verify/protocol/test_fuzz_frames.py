"""What a hostile host half sends to the executor ends its call, and nothing else.

Frames are cut, stretched, forged, out of order and of wrong types. The executor answers each call
with its account or with a `Refusal`; it does not raise anything else, wait for ever, or take more
memory than it may. ``FUZZ_EXAMPLES=10000 pytest tests/verify/protocol/test_fuzz_frames.py`` tries
more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.verify.executor.commands import MAX_UPLOAD
from curate.verify.executor.launch import CpuBackend, load_kernel
from curate.verify.executor.operations import UnsupportedOperation
from curate.verify.executor.operators import find_operator
from curate.verify.executor.serve import EXAMPLE, CandidateExecutor
from curate.verify.protocol.messages import CallAccount, CallLimits
from curate.verify.protocol.places import TensorPlace
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.wire import DTYPES, MAGIC, PREFIX, Channel, pack

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "250"))
MEMORY = 2**22
"""Bytes of tensors that the executor may hold."""
HANG_S = 20.0
INPUT = 1 << 24
"""Number of a storage that is there."""

settings.register_profile(
    "frames",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Allow this process one more GiB of addresses, as a child of the judge has its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def frame(message: Any, tensors: Any = (), payload: bytes = b"", size: int | None = None) -> bytes:
    header = json.dumps({"message": message, "tensors": list(tensors)}).encode()
    return (
        PREFIX.pack(MAGIC, len(header), len(payload) if size is None else size) + header + payload
    )


# --- what is sent -----------------------------------------------------------------------------

SMALL = st.integers(0, 12)
ANY_NUMBER = st.one_of(
    SMALL,
    st.integers(-3, 70),
    st.sampled_from([2**31, 2**48 - 1, 2**48, 2**63, -(2**63), 2**100, 1e300, 0.5, True, None]),
)
JUNK = st.recursive(
    st.one_of(ANY_NUMBER, st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
STORAGE = st.one_of(SMALL, st.sampled_from([INPUT, INPUT + 1]), ANY_NUMBER)
DTYPE = st.one_of(st.sampled_from([*DTYPES, "float32", "float32"]), st.sampled_from(["", "x"]))
SIZES = st.lists(st.one_of(SMALL, SMALL, SMALL, ANY_NUMBER), max_size=4)


@st.composite
def good_places(draw: st.DrawFn) -> list[Any]:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    stride, step = [], 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return [draw(st.sampled_from([INPUT, INPUT, 0, 1])), "float32", shape, stride, 0]


PLACE = st.one_of(
    good_places(), st.tuples(STORAGE, DTYPE, SIZES, SIZES, ANY_NUMBER).map(list), JUNK
)
ARGUMENT = st.one_of(
    st.fixed_dictionaries({"t": PLACE}),
    st.fixed_dictionaries({"l": st.lists(st.fixed_dictionaries({"t": PLACE}), max_size=3)}),
    st.fixed_dictionaries({"l": SIZES}),
    st.fixed_dictionaries({"d": DTYPE}),
    st.fixed_dictionaries({"f": st.sampled_from(["inf", "nan", "one"])}),
    st.fixed_dictionaries({"c": st.lists(ANY_NUMBER, max_size=3)}),
    st.fixed_dictionaries({"m": st.sampled_from(["channels_last", "none"])}),
    st.sampled_from([{"device": None}, {"layout": None}, {"x": 1}, "sum", "mean"]),
    ANY_NUMBER,
    JUNK,
)
OPERATOR = st.one_of(
    st.sampled_from(
        [
            *("aten::add.Tensor", "aten::mm", "aten::sum.dim_IntList", "aten::cat", "aten::relu_"),
            *(
                "aten::full",
                "aten::zeros",
                "aten::arange",
                "aten::as_strided",
                "aten::index.Tensor",
            ),
            *("aten::nonzero", "aten::_index_put_impl_", "aten::_reshape_alias", "aten::set_"),
            *("aten::embedding", "aten::gather", "aten::repeat", "aten::expand", "aten::from_file"),
            *("aten::native_layer_norm", "aten::convolution", "aten::_to_copy", "aten::topk"),
            *("aten::randperm", "aten::copy_", "aten::fill_.Scalar", "prims::iota", "aten::item"),
        ]
    ),
    st.text(max_size=12),
    st.sampled_from(["aten::" + "x" * 5000, "os::system", "aten::__class__", "aten::add.__init__"]),
)


@st.composite
def kernels(draw: st.DrawFn) -> str:
    """Return the text of a kernel with some words of it changed."""
    words = EXAMPLE.split(" ")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(words) - 1))
        words[at] = draw(
            st.one_of(
                st.sampled_from(words),
                st.sampled_from(
                    ["", "{", "}", "tensor<16xf64>", "tensor<1073741824xf32>,", "2147483647"]
                ),
                st.text(max_size=6),
            )
        )
    return " ".join(words)


@st.composite
def launches(draw: st.DrawFn) -> dict[str, Any]:
    text = draw(st.one_of(st.just(EXAMPLE), kernels()))
    sha256 = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return {
        "do": "launch",
        "ttir": draw(st.one_of(st.just(text), st.just(text), JUNK)),
        "sha256": draw(st.one_of(st.just(sha256), st.just(sha256), JUNK)),
        "args": draw(
            st.one_of(
                st.tuples(*[st.fixed_dictionaries({"t": PLACE})] * 2, ANY_NUMBER).map(list),
                st.lists(st.one_of(ARGUMENT, st.text(max_size=4)), max_size=4),
            )
        ),
        "grid": draw(st.one_of(st.just([1, 1, 1]), st.lists(ANY_NUMBER, max_size=4))),
        "options": draw(st.one_of(st.just({"num_warps": 4}), JUNK)),
    }


PTX = ".visible .entry kernel(.param .u64 kernel_param_0)\n{\n}\n"
PTX_HASH = hashlib.sha256(PTX.encode()).hexdigest()
CUDA_ARGUMENT = st.one_of(
    st.none(),
    st.fixed_dictionaries({"t": PLACE}),
    st.fixed_dictionaries({"b": st.one_of(st.sampled_from(["", "00" * 16, "0", "x"]), JUNK)}),
    st.fixed_dictionaries(
        {"b": st.just("00" * 16), "s": st.lists(st.tuples(ANY_NUMBER, PLACE).map(list), max_size=2)}
    ),
    JUNK,
)
CUDA = st.fixed_dictionaries(
    {
        "do": st.just("cuda"),
        "ptx": st.one_of(st.just(PTX), st.none(), JUNK),
        "sha256": st.one_of(st.just(PTX_HASH), JUNK),
        "kernel": st.one_of(st.just("kernel"), JUNK),
        "grid": st.one_of(st.just([1, 1, 1]), st.lists(ANY_NUMBER, max_size=4)),
        "block": st.one_of(st.just([1, 1, 1]), JUNK),
        "shared": st.one_of(st.just(0), ANY_NUMBER),
        "args": st.one_of(st.lists(CUDA_ARGUMENT, max_size=3), JUNK),
    }
)
WAITS = ("make", "use", "record", "wait", "hold", "synchronize", "synchronize all", "")
ORDER = st.fixed_dictionaries(
    {
        "do": st.just("order"),
        "what": st.one_of(st.sampled_from(WAITS), st.sampled_from(WAITS), JUNK),
        "stream": st.one_of(SMALL, ANY_NUMBER),
        "event": st.one_of(SMALL, ANY_NUMBER),
    }
)
COMMAND = st.one_of(
    ORDER,
    ORDER,
    st.fixed_dictionaries({"do": st.just("new"), "storage": STORAGE, "bytes": ANY_NUMBER}),
    st.fixed_dictionaries({"do": st.just("new"), "storage": SMALL, "bytes": st.just(64)}),
    st.fixed_dictionaries({"do": st.just("free"), "storage": STORAGE}),
    st.fixed_dictionaries(
        {
            "do": st.just("op"),
            "name": OPERATOR,
            "args": st.one_of(st.lists(ARGUMENT, max_size=4), JUNK),
            "kwargs": st.one_of(
                st.just({}), st.dictionaries(st.text(max_size=5), ARGUMENT, max_size=2), JUNK
            ),
            "outs": st.one_of(st.lists(st.one_of(st.none(), PLACE), max_size=2), JUNK),
        }
    ),
    st.fixed_dictionaries(
        {
            "do": st.just("ask"),
            "name": OPERATOR,
            "args": st.lists(ARGUMENT, max_size=3),
            "kwargs": st.just({}),
            "first": STORAGE,
        }
    ),
    launches(),
    CUDA,
    st.fixed_dictionaries({"do": st.just("upload"), "out": PLACE}),
    st.fixed_dictionaries({"do": st.just("read"), "place": PLACE}),
    st.fixed_dictionaries(
        {"do": st.just("lap"), "places": st.one_of(st.lists(PLACE, max_size=2), JUNK)}
    ),
    st.fixed_dictionaries({"do": st.just("end"), "number": st.one_of(st.just(0), JUNK)}),
    st.dictionaries(st.sampled_from(["do", "storage", "args", "place"]), JUNK, max_size=3),
)
DESCRIBED = st.one_of(
    st.fixed_dictionaries({"dtype": DTYPE, "shape": SIZES, "stride": st.one_of(st.none(), SIZES)}),
    JUNK,
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Return one frame, whole or broken."""
    message = draw(st.one_of(COMMAND, COMMAND, COMMAND, JUNK))
    tensors = draw(st.one_of(st.just([]), st.just([]), st.lists(DESCRIBED, max_size=2), JUNK))
    payload = draw(st.one_of(st.just(b""), st.just(b""), st.binary(max_size=80)))
    if tensors and isinstance(tensors, dict | float | int | bool):
        tensors = [tensors]
    made = frame(message, tensors or (), payload)
    how = draw(st.integers(0, 19))
    if how == 0:
        return made[: draw(st.integers(0, len(made)))]
    if how == 1:
        at = draw(st.integers(0, len(made) - 1))
        return made[:at] + draw(st.binary(min_size=1, max_size=4)) + made[at + 1 :]
    if how == 2:
        return frame(
            message, (), b"", draw(st.sampled_from([1, MAX_UPLOAD, MAX_UPLOAD + 1, 2**63]))
        )
    if how == 3:
        head = struct.pack(">4sIQ", draw(st.sampled_from([MAGIC, b"CRT2"])), 2**32 - 1, 0)
        return head + draw(st.binary(max_size=20))
    if how == 4:
        return PREFIX.pack(MAGIC, 40_000, 0) + b"[" * 40_000
    return made


# --- what comes of it -------------------------------------------------------------------------


def serve(sent: list[bytes], **how: Any) -> tuple[CandidateExecutor, CallAccount | Refusal]:
    """Return the executor after one call of this many frames, and its answer."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    executor = CandidateExecutor(Channel(there), CpuBackend(), MEMORY)
    place = TensorPlace(INPUT, torch.float32, (4, 4), (4, 1), 0)
    limits = CallLimits(1e6, 60.0, keep=True, ptx=PTX_HASH, **how)
    executor.begin([place], [torch.ones(4, 4)], limits)

    def write() -> None:
        with contextlib.suppress(OSError):
            for part in sent:
                here.sendall(part)
            here.shutdown(socket.SHUT_WR)

    def read() -> None:
        with contextlib.suppress(OSError):
            while here.recv(1 << 16):
                pass

    threads = [threading.Thread(target=work, daemon=True) for work in (write, read)]
    for thread in threads:
        thread.start()
    try:
        answer: CallAccount | Refusal = executor.finish(0, [place], [(place, place)], 2**20)
    except Refusal as refused:
        answer = refused
    finally:
        there.close()
        for thread in threads:
            thread.join(HANG_S)
        here.close()
    assert not any(thread.is_alive() for thread in threads)
    return executor, answer


def check(executor: CandidateExecutor, answer: CallAccount | Refusal) -> None:
    assert executor.storages.used <= MEMORY
    assert executor.storages.used == sum(map(len, executor.storages.known.values()))
    json.dumps(pack(answer.reason if isinstance(answer, Refusal) else answer, []))
    if isinstance(answer, Refusal):
        assert answer.status in (
            "crash",
            "incorrect",
            "runtime_error",
            "unsupported",
            "oom",
            "skip",
        )


@settings(settings.get_profile("frames"))
@given(st.lists(frames(), max_size=6), st.booleans())
def test_no_frames_end_more_than_their_call(sent: list[bytes], dry: bool) -> None:
    check(*serve([*sent, frame({"do": "end", "number": 0})], dry=dry))


@settings(settings.get_profile("frames"))
@given(st.lists(st.binary(max_size=64), max_size=4))
def test_no_bytes_do(sent: list[bytes]) -> None:
    executor, answer = serve(sent)
    check(executor, answer)
    assert isinstance(answer, Refusal) and answer.status == "crash", answer


@settings(settings.get_profile("frames"))
@given(kernels())
def test_no_text_of_a_kernel_does(text: str) -> None:
    sha256 = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    new = {"do": "new", "storage": 0, "bytes": 64}
    args = [{"t": [INPUT, "float32", [16], [1], 0]}, {"t": [0, "float32", [16], [1], 0]}, 16]
    launch = {"do": "launch", "ttir": text, "sha256": sha256, "args": args, "grid": [1, 1, 1]}
    launch["options"] = {}
    sent = [frame(new), frame(launch), frame({"do": "end", "number": 0})]
    check(*serve(sent))
    load_kernel.cache_clear()


def test_orderly_frames_are_answered() -> None:
    new = {"do": "new", "storage": 0, "bytes": 64}
    place, out = [INPUT, "float32", [4, 4], [4, 1], 0], [0, "float32", [4, 4], [4, 1], 0]
    add = {"do": "op", "name": "aten::add.Tensor", "args": [{"t": place}, {"t": place}],
           "kwargs": {}, "outs": [out]}  # fmt: skip
    sent = [frame(m) for m in (new, add, {"do": "end", "number": 0})]
    executor, answer = serve(sent)
    check(executor, answer)
    assert isinstance(answer, CallAccount) and answer.calls == {"add": 1}, answer


@pytest.mark.parametrize("size", [2**47, 2**40, MEMORY + 1])
def test_memory_is_bounded(size: int) -> None:
    _, answer = serve([frame({"do": "new", "storage": 0, "bytes": size})])
    assert isinstance(answer, Refusal) and answer.status == "oom"


def test_a_tensor_of_strides_of_zero_is_not_read_whole() -> None:
    place = [INPUT, "float32", [2**40], [0], 0]
    _, answer = serve([frame({"do": "read", "place": place})])
    assert isinstance(answer, Refusal) and answer.status == "oom", answer


@pytest.mark.parametrize(
    "name",
    [
        "aten::_index_put_impl_",
        "aten::_reshape_alias",
        "aten::_unsafe_masked_index",
        "aten::max_pool2d_with_indices_backward",
        "aten::set_.source_Storage",
        "aten::from_file",
        "aten::linalg_lu_solve",
        "os::system",
    ],
)
def test_operators_that_trust_what_they_are_told_are_not_called(name: str) -> None:
    with pytest.raises(UnsupportedOperation):
        find_operator(name)
