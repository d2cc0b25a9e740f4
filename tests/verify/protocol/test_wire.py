from __future__ import annotations

import json
import math
import os
import pickle
import socket
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.verify.protocol.wire import (
    DTYPES,
    MAGIC,
    MAX_HEADER,
    PREFIX,
    Channel,
    ConnectionClosed,
    Late,
    WireError,
    pack,
    unpack,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """The judge's channel, and the plain socket of whoever is at the other end."""
    own, other = socket.socketpair()
    other.settimeout(10)
    with own, other:
        yield Channel(own), other


Ends = tuple[Channel, socket.socket]


def soon() -> float:
    return time.monotonic() + 10


def there_and_back(ends: Ends, value: Any) -> Any:
    """Send a value through a connection, by a thread since buffers are small."""
    tensors: list[torch.Tensor] = []
    packed = pack(value, tensors)
    sender = threading.Thread(target=Channel(ends[1]).send, args=({"value": packed}, tensors))
    sender.start()
    message, received = ends[0].receive(soon())
    sender.join()
    return unpack(message["value"], received)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


# --- round trips ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (3, 5)], ids=str)
def test_tensors_of_every_type_arrive_bit_by_bit(
    ends: Ends, name: str, shape: tuple[int, ...]
) -> None:
    dtype = DTYPES[name]
    size = math.prod(shape) * dtype.itemsize
    most = 2 if dtype == torch.bool else 256
    values = torch.randint(0, most, (size,), generator=torch.Generator().manual_seed(0))
    sent = values.to(torch.uint8).view(dtype).reshape(shape)
    got = there_and_back(ends, sent)
    assert (got.dtype, got.shape, got.stride()) == (dtype, sent.shape, sent.stride())
    assert bits(got) == bits(sent)


def test_every_bit_pattern_of_an_eight_bit_type_arrives(ends: Ends) -> None:
    patterns = torch.arange(256, dtype=torch.uint8)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8):
        assert torch.equal(there_and_back(ends, patterns.view(dtype)).view(torch.uint8), patterns)


def test_nan_infinities_and_negative_zero_arrive(ends: Ends) -> None:
    sent = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 5e-324], dtype=torch.float64)
    assert bits(there_and_back(ends, sent)) == bits(sent)


def test_dense_strides_are_kept_and_gaps_are_not(ends: Ends) -> None:
    x = torch.randn(4, 5, 6)
    for dense in (x.permute(2, 0, 1), x.transpose(0, 1), x.permute(2, 1, 0)):
        got = there_and_back(ends, dense)
        assert got.stride() == dense.stride() and torch.equal(got, dense)
    for other in (x[:, ::2], x[..., 3], torch.ones(3).expand(4, 3), x[1:, 1:]):
        got = there_and_back(ends, other)
        assert got.is_contiguous() and torch.equal(got, other)


def test_lazy_conjugates_and_negatives_are_resolved(ends: Ends) -> None:
    x = torch.randn(7, dtype=torch.complex64)
    assert torch.equal(there_and_back(ends, x.conj()), x.conj().resolve_conj())
    assert torch.equal(there_and_back(ends, x.conj().imag), x.conj().imag.resolve_neg())


def test_received_tensors_have_memory_of_their_own(ends: Ends) -> None:
    one, other = there_and_back(ends, [torch.zeros(3, dtype=torch.uint8), torch.zeros(4)])
    assert one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
    assert other.data_ptr() % 16 == 0
    other.fill_(1)
    assert not one.any()


def test_received_tensors_have_storages_of_their_own_size(ends: Ends) -> None:
    sent = [torch.arange(n, dtype=dtype) for n in (4, 5) for dtype in (torch.float32, torch.uint8)]
    received = there_and_back(ends, sent)
    for tensor, original in zip(received, sent, strict=True):
        assert tensor.untyped_storage().nbytes() == original.untyped_storage().nbytes()
        assert tensor.storage_offset() == 0 and tensor.data_ptr() % tensor.element_size() == 0
    received[0].fill_(9)
    assert all(torch.equal(one, other) for one, other in zip(received[1:], sent[1:], strict=True))


def test_values_of_every_kind_arrive(ends: Ends) -> None:
    value = {
        "none": None,
        "flags": (True, False),
        "numbers": [0, -3, 2**70, 0.1, 1e300, 2 + 3j],
        "deep": [[(), []], {"a": {1: ("x", {2.5: None})}}],
        "torch": (torch.float8_e5m2, torch.device("cpu"), torch.bfloat16),
        "text": 'ünïcode " \\ \n \0',
    }
    got = there_and_back(ends, value)
    assert got == value
    assert [type(number) for number in got["numbers"]] == [int, int, int, float, float, complex]


def test_special_floats_arrive(ends: Ends) -> None:
    nan, more, less = there_and_back(ends, [math.nan, math.inf, -math.inf])
    assert math.isnan(nan) and (more, less) == (math.inf, -math.inf)


def test_a_namespace_arrives(ends: Ends) -> None:
    sent = SimpleNamespace(width=8, inner=SimpleNamespace(eps=1e-5, sizes=(2, 3)))
    assert there_and_back(ends, sent) == sent


def test_named_tuples_and_sizes_become_tuples(ends: Ends) -> None:
    pair = namedtuple("pair", "x y")(1, torch.ones(2))
    x, y = there_and_back(ends, pair)
    assert x == 1 and torch.equal(y, torch.ones(2))
    assert there_and_back(ends, torch.ones(2, 3).shape) == (2, 3)


def test_a_large_tensor_arrives(ends: Ends) -> None:
    sent = torch.arange(3_000_000)
    assert torch.equal(there_and_back(ends, sent), sent)


def test_many_frames_arrive_in_order(ends: Ends) -> None:
    far = Channel(ends[1])
    for i in range(10):
        far.send({"i": i}, [torch.full((i,), i)])
    for i in range(10):
        message, (tensor,) = ends[0].receive(soon())
        assert message == {"i": i} and tensor.tolist() == [i] * i


def test_a_class_of_layers_arrives_as_itself(ends: Ends) -> None:
    assert there_and_back(ends, [torch.nn.BatchNorm2d, 8]) == [torch.nn.BatchNorm2d, 8]


@pytest.mark.parametrize("name", ["Parameter", "functional", "__name__", 3, None])
def test_no_other_name_of_torch_nn_does(name: Any) -> None:
    with pytest.raises(WireError):
        unpack({"layer": name}, [])


# --- what is not sent -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        b"bytes",
        len,
        Ends,
        pytest.Item,
        torch.nn.Linear(1, 1),
        [1, {"a": {3}}],
        {"a": torch.strided},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_data_is_refused(value: Any) -> None:
    with pytest.raises(WireError, match="is not data"):
        pack(value, [])


def test_a_tensor_of_a_type_that_is_not_known_is_refused(ends: Ends) -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        ends[0].send({}, [torch.zeros(3), torch.zeros(3).to(torch.float8_e8m0fnu)])
    ends[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        ends[1].recv(1)


# --- forged frames --------------------------------------------------------------------------


def header(message: Any = None, tensors: Any = None) -> bytes:
    fields = {"message": {} if message is None else message}
    return json.dumps({**fields, "tensors": [] if tensors is None else tensors}).encode()


def frame(
    head: bytes,
    payload: bytes = b"",
    *,
    magic: bytes = MAGIC,
    head_size: int | None = None,
    size: int | None = None,
) -> bytes:
    sizes = len(head) if head_size is None else head_size, len(payload) if size is None else size
    return PREFIX.pack(magic, *sizes) + head + payload


def described(shape: Any, dtype: Any = "float32", stride: Any = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "stride": stride}


def with_tensor(payload: bytes, *args: Any, **kwargs: Any) -> bytes:
    return frame(header(tensors=[described(*args, **kwargs)]), payload)


FORGED = {
    "another magic": frame(header(), magic=b"CRT2"),
    "a pickle": pickle.dumps({"serial": 1, "padding": "x" * 50}),
    "zeros": bytes(64),
    "a header without end": frame(b"", head_size=MAX_HEADER + 1),
    "a payload without end": frame(header(), size=2**63),
    "no JSON": frame(b"{"),
    "no UTF-8": frame(b"\xff\xfe\xfd"),
    "nested without end": frame(b"[" * 100_000),
    "a list for a header": frame(b"[]"),
    "a number for a header": frame(b"1"),
    "no tensors": frame(b'{"message": {}}'),
    "no message": frame(b'{"tensors": []}'),
    "a message that is a list": frame(header(message=[1])),
    "tensors that are an object": frame(header(tensors={"0": described([1])}), bytes(4)),
    "a tensor that is a number": frame(header(tensors=[3])),
    "a tensor without a shape": frame(header(tensors=[{"dtype": "float32"}])),
    "an unknown type": with_tensor(bytes(4), [1], "qint8"),
    "a type that is a list": with_tensor(bytes(4), [1], ["float32"]),
    "a larger tensor than the payload": with_tensor(bytes(4), [2]),
    "a huge tensor": with_tensor(bytes(4), [2**40, 2**40]),
    "a size beyond 64 bits": with_tensor(bytes(4), [2**64]),
    "a negative size": with_tensor(bytes(4), [-1]),
    "two negative sizes": with_tensor(bytes(4), [-1, -1]),
    "a size that is true": with_tensor(bytes(4), [True]),
    "a size with a fraction": with_tensor(bytes(4), [1.0]),
    "a shape that is a number": with_tensor(bytes(4), 1),
    "a thousand dimensions": with_tensor(bytes(4), [1] * 1000),
    "a smaller tensor than the payload": with_tensor(bytes(8), [1]),
    "a payload without tensors": frame(header(), bytes(8)),
    "overlapping strides": with_tensor(bytes(16), [2, 2], stride=[1, 1]),
    "strides of zero": with_tensor(bytes(16), [2, 2], stride=[0, 0]),
    "strides with gaps": with_tensor(bytes(16), [2, 2], stride=[1000, 1]),
    "negative strides": with_tensor(bytes(16), [2, 2], stride=[-2, 1]),
    "too few strides": with_tensor(bytes(16), [2, 2], stride=[1]),
    "too many strides": with_tensor(bytes(16), [2, 2], stride=[2, 1, 1]),
    "strides that are words": with_tensor(bytes(16), [2, 2], stride="21"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_frame_is_refused(ends: Ends, name: str) -> None:
    ends[1].sendall(FORGED[name])
    with pytest.raises(WireError):
        ends[0].receive(soon())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_frame_with_other_bytes_is_a_frame_or_refused(changes: list[tuple[int, int]]) -> None:
    tensors = [torch.arange(6.0).reshape(2, 3).t(), torch.tensor(True)]
    one, other = socket.socketpair()
    with one, other:
        Channel(other).send({"serial": 7}, tensors)
        sent = bytearray(one.recv(10_000))
        for at, byte in changes:
            sent[at % len(sent)] = byte
        other.sendall(sent)
        other.close()
        with suppress(WireError, ConnectionClosed):
            message, received = Channel(one).receive(soon(), limit=1000)
            assert type(message) is dict and all(t.numel() <= 1000 for t in received)


def test_a_payload_over_the_limit_is_refused_before_it_comes(ends: Ends) -> None:
    Channel(ends[1]).send({}, [torch.zeros(100)])
    with pytest.raises(WireError, match="where 399 are taken"):
        ends[0].receive(soon(), limit=399)
    Channel(ends[1]).send({}, [torch.zeros(100)])


def test_a_payload_at_the_limit_is_taken(ends: Ends) -> None:
    Channel(ends[1]).send({}, [torch.zeros(100)])
    _, (tensor,) = ends[0].receive(soon(), limit=400)
    assert tensor.shape == (100,)


def resident_mb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def test_a_promised_size_reserves_no_memory(ends: Ends) -> None:
    before = resident_mb()
    ends[1].sendall(frame(header(tensors=[described([2**32])]), b"x", size=2**34))
    ends[1].close()
    with pytest.raises(ConnectionClosed):
        ends[0].receive(soon())
    assert resident_mb() - before < 64


WHOLE = with_tensor(bytes(8), [2])


@pytest.mark.parametrize("length", [0, 1, PREFIX.size - 1, PREFIX.size, 40, len(WHOLE) - 1])
def test_a_frame_that_breaks_off_is_the_other_sides_end(ends: Ends, length: int) -> None:
    ends[1].sendall(WHOLE[:length])
    ends[1].close()
    with pytest.raises(ConnectionClosed):
        ends[0].receive(soon())


@pytest.mark.parametrize("length", [0, 1, PREFIX.size, len(WHOLE) - 1])
def test_a_frame_that_stops_is_late(ends: Ends, length: int) -> None:
    ends[1].sendall(WHOLE[:length])
    with pytest.raises(Late):
        ends[0].receive(time.monotonic() + 0.05)


def test_bytes_that_trickle_do_not_put_off_the_deadline(ends: Ends) -> None:
    done = threading.Event()

    def trickle() -> None:
        for byte in WHOLE[:-1]:
            if done.wait(0.02):
                return
            ends[1].sendall(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    with pytest.raises(Late):
        ends[0].receive(time.monotonic() + 0.2)
    done.set()
    thread.join()


def test_sending_to_who_does_not_read_is_late(ends: Ends) -> None:
    with pytest.raises(Late):
        ends[0].send({}, [torch.zeros(2**22)], time.monotonic() + 0.1)


def test_sending_to_who_is_gone_says_so(ends: Ends) -> None:
    ends[1].close()
    with pytest.raises(ConnectionClosed):
        ends[0].send({}, [torch.zeros(2**20)])


def test_nothing_is_unpickled(ends: Ends, tmp_path: Path) -> None:
    class Planted:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "planted"),)

    data = pickle.dumps(Planted())
    for sent in (data, frame(data), frame(header(), data), with_tensor(data, [len(data)], "uint8")):
        one, other = socket.socketpair()
        with one, other:
            other.sendall(sent)
            other.close()
            try:
                _, tensors = Channel(one).receive(soon())
            except (WireError, ConnectionClosed):
                continue
            assert bytes(tensors[0].tolist()) == data, "bytes, and no more"
    assert not (tmp_path / "planted").exists()


# --- forged values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packed",
    [
        {},
        [],
        [1],
        {"tensor": 0, "list": []},
        {"tensor": 1},
        {"tensor": -1},
        {"tensor": "0"},
        {"tensor": None},
        {"tensor": 0.5},
        {"list": 3},
        {"tuple": None},
        {"list": [{"object": 1}]},
        {"dict": [[1]]},
        {"dict": [[1, 2, 3]]},
        {"dict": [[{"list": []}, 2]]},
        {"dict": 3},
        {"float": "one"},
        {"float": None},
        {"dtype": "float31"},
        {"dtype": {}},
        {"device": "nowhere"},
        {"complex": "12"},
        {"pickle": "gASVAA=="},
    ],
    ids=json.dumps,
)
def test_a_forged_value_is_refused(packed: Any) -> None:
    with pytest.raises(WireError):
        unpack(packed, [torch.zeros(1)])
