"""Messages between the judge and the processes under test: JSON and raw tensor bytes.

A frame is a fixed prefix, a JSON header and a payload. The header describes every tensor of the
payload; nothing is unpickled, and a receiver checks each number before it makes a tensor of it.
Tensors on a device stay there, between two trusted processes: they are copied into memory that
both have mapped, and out of it.
Values that a header can carry are null, booleans, numbers, strings, dtypes, devices, and lists,
tuples, dicts and namespaces (`types.SimpleNamespace`) of these and of tensors.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from curate.verify.protocol.driver import SharedMemory

PREFIX = struct.Struct(">4sIQ")  # magic, bytes of the header, bytes of the payload
MAGIC = b"CRT1"
MAX_HEADER = 4 * 2**20  # bytes
MAX_PAYLOAD = 64 * 2**30  # bytes
CHUNK = 1 << 20
ARRIVES_S = 10.0  # seconds in which a descriptor of shared memory follows its message
KEPT_SHARED = 1 << 28  # bytes of shared memory that are kept for the next message
ALIGNMENT = 512  # bytes, of tensors in memory that is shared
ALIGNED = 16  # bytes, of tensors on the CPU
AHEAD = 1 << 16  # bytes that are read at once, or held back to be sent at once

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint16, torch.uint32, torch.uint64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
        *(torch.complex32, torch.complex64, torch.complex128),
    )
}


Message = dict[str, Any]
"""What a frame says, by name: JSON, in which nothing has been looked at."""

MESSAGES: dict[type, Callable[[Any, list[torch.Tensor]], Any]] = {}
"""Classes that can be sent, and what gives their content (`curate.verify.protocol.calls`)."""


class WireError(Exception):
    """A frame that breaks the rules, or a value that cannot be sent."""


class TooLarge(WireError):
    """A frame with more bytes of tensors than are taken."""


class ConnectionClosed(Exception):
    """The other side is gone."""


class Late(Exception):
    """No answer came before the deadline."""


# --- values ---------------------------------------------------------------------------------


def pack(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return ``value`` as JSON; its tensors are appended to ``tensors`` and named by position.

    Raises:
        WireError: it holds something that is not data.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if type(value) in MESSAGES:
        return {"message": MESSAGES[type(value)](value, tensors)}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, list | tuple):  # named tuples and torch.Size count as tuples
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [pack(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[pack(k, tensors), pack(v, tensors)] for k, v in value.items()]}
    if type(value) is SimpleNamespace:
        return {"namespace": [[k, pack(v, tensors)] for k, v in vars(value).items()]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, type) and _layer(value.__name__) is value:
        return {"layer": value.__name__}
    raise WireError(f"a {type(value).__name__} is not data")


def _layer(name: str) -> type | None:
    """Return PyTorch's class of layers of this name, as constructors are given."""
    found = getattr(torch.nn, name, None)
    is_layer = isinstance(found, type) and issubclass(found, torch.nn.Module)
    return found if is_layer else None


def unpack(packed: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the value that `pack` made this of.

    Raises:
        WireError: it is not what `pack` gives.
    """
    if packed is None or isinstance(packed, bool | str | int | float):
        return packed
    if not isinstance(packed, dict) or len(packed) != 1:
        raise WireError("not a packed value")
    ((kind, content),) = packed.items()
    try:
        if kind == "tensor":
            if not 0 <= content < len(tensors):
                raise WireError("no such tensor")
            return tensors[content]
        if kind in ("list", "tuple"):
            items = [unpack(item, tensors) for item in content]
            return items if kind == "list" else tuple(items)
        if kind == "dict":
            return {unpack(k, tensors): unpack(v, tensors) for k, v in content}
        if kind == "namespace":
            return SimpleNamespace(**{k: unpack(v, tensors) for k, v in content})
        if kind == "float":
            return float(content)
        if kind == "dtype":
            return DTYPES[content]
        if kind == "layer" and (found := _layer(content)):
            return found
        if kind == "device":
            return torch.device(content)
        if kind == "complex":
            real, imaginary = content
            return complex(real, imaginary)
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise WireError(f"bad {kind}") from error
    raise WireError(f"unknown kind {kind!r}")


# --- tensors --------------------------------------------------------------------------------


def _describe(tensor: torch.Tensor) -> dict[str, Any]:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.layout != torch.strided or tensor.is_quantized:
        raise WireError(f"a tensor of {tensor.dtype}, {tensor.layout} cannot be sent")
    shape, stride = list(tensor.shape), list(tensor.stride())
    ordinary = tensor.is_contiguous() or not _is_dense(shape, stride)
    described = {"dtype": name, "shape": shape, "stride": None if ordinary else stride}
    return described if tensor.device.type == "cpu" else {**described, "on_device": True}


def _is_dense(shape: list[int], stride: list[int]) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in whatever order."""
    expected = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size > 1 and step != expected:
            return False
        expected *= size
    return True


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes, one element after the other."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if not plain.is_contiguous() or plain.numel() == 1:
        # `contiguous` would return a single element with a stride as it is.
        plain = plain.clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return memoryview(_plain(tensor).cpu().numpy()).cast("B")


def _make_tensor(described: Any, payload: torch.Tensor, offset: int) -> tuple[torch.Tensor, int]:
    """Return the tensor that a header describes, and where the next one starts.

    It has memory of its own, or on the CPU a part of the payload, which nobody else uses.
    """
    try:
        dtype = DTYPES[described["dtype"]]
        shape, stride = described["shape"], described["stride"]
    except (TypeError, KeyError) as error:
        raise WireError("bad description of a tensor") from error
    if not _are_sizes(shape) or (stride is not None and not _are_sizes(stride)):
        raise WireError("bad shape")
    size = math.prod(shape) * dtype.itemsize
    if offset + size > payload.numel():
        raise WireError("a tensor is larger than its payload")
    part = payload[offset : offset + size]
    if size and payload.device.type == "cpu" and part.data_ptr() % ALIGNED == 0:
        # Not a view: its storage begins with it, and has its size.
        tensor = torch.frombuffer(part.numpy(), dtype=dtype).reshape(shape)
    else:
        tensor = part.clone().view(dtype).reshape(shape)
    if stride is not None and size:
        if len(stride) != len(shape) or not _is_dense(shape, stride):
            raise WireError("bad strides")
        room = torch.empty(shape, dtype=dtype, device=tensor.device)
        tensor = room.as_strided(shape, stride).copy_(tensor)
    return tensor, offset + size


def _are_sizes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(n) is int and 0 <= n < 2**48 for n in value)
    )


# --- frames ---------------------------------------------------------------------------------


_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Frame:
    """A frame as it came: nothing in it has been looked at."""

    header: bytes
    payload: bytearray
    channel: Channel | None = None

    def open(self) -> tuple[Message, list[torch.Tensor]]:
        """Return the message and its tensors.

        Raises:
            WireError: the frame breaks the rules.
        """
        message, described = self._header()
        payload = torch.frombuffer(self.payload or bytearray(1), dtype=torch.uint8)
        shared = self.channel and self.channel.shared_bytes(message.pop("new_memory", None))
        try:
            return message, self._tensors(described, payload, shared)
        finally:
            if shared is not None and self.channel:
                self.channel.taken()

    def _tensors(
        self, described: list[Any], payload: torch.Tensor, shared: torch.Tensor | None
    ) -> list[torch.Tensor]:
        tensors, offset, there = [], 0, 0
        for item in described:
            if shared is not None and isinstance(item, dict) and item.get("on_device"):
                tensor, there = _make_tensor(item, shared, there)
                there = -(-there // ALIGNMENT) * ALIGNMENT
            else:
                tensor, offset = _make_tensor(item, payload, offset)
            tensors.append(tensor)
        if offset != len(self.payload):
            raise WireError("the payload is larger than its tensors")
        return tensors

    def message(self) -> Message:
        """Return the message alone."""
        return self._header()[0]

    def _header(self) -> tuple[Message, list[Any]]:
        try:
            header = json.loads(self.header)
            message, described = header["message"], header["tensors"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WireError("not a header") from error
        if not isinstance(message, dict) or not isinstance(described, list):
            raise WireError("not a header")
        return message, described


class Channel:
    """One end of a connection; sends and receives whole frames.

    Args:
        sock: the connection.
        devices: brings descriptors of the device's memory; None where tensors go as bytes.
    """

    def __init__(self, sock: socket.socket, devices: socket.socket | None = None) -> None:
        self.sock, self.devices = sock, devices
        self._given: SharedMemory | None = None
        self._taken: SharedMemory | None = None
        self._held = bytearray()  # to be sent with the next frame
        self._ahead, self._at = bytearray(), 0  # received, and how much of it is taken

    @property
    def has_more(self) -> bool:
        """Whether bytes have been received that nobody has taken."""
        return self._at < len(self._ahead)

    def hold(self, message: Message) -> None:
        """Send a message with the next one, or once there are many."""
        header = _encode({"message": message, "tensors": []}).encode()
        self._held += PREFIX.pack(MAGIC, len(header), 0) + header
        if len(self._held) > AHEAD:
            self._send_all([], None)

    def send(
        self,
        message: Message,
        tensors: list[torch.Tensor] | None = None,
        deadline: float | None = None,
    ) -> None:
        """Send a message with its tensors.

        Raises:
            Late: the other side did not take it in time.
            ConnectionClosed: the other side is gone.
            WireError: a tensor cannot be sent.
        """
        if self.devices is None:
            tensors = [tensor.cpu() for tensor in tensors or []]
        described = [_describe(tensor) for tensor in tensors or []]
        parts = [_bytes_of(tensor) for tensor in tensors or [] if tensor.device.type == "cpu"]
        if shared := [tensor for tensor in tensors or [] if tensor.device.type != "cpu"]:
            message = {**message, "new_memory": self._share(shared)}
        header = _encode({"message": message, "tensors": described}).encode()
        self._held += PREFIX.pack(MAGIC, len(header), sum(part.nbytes for part in parts)) + header
        self._send_all(parts, deadline)

    def _share(self, tensors: list[torch.Tensor]) -> bool:
        """Copy tensors to where the other side finds them; say whether that is somewhere new."""
        assert self.devices
        starts, size = [], 0
        for tensor in tensors:
            starts.append(size)
            size += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        is_new = self._given is None or self._given.size < size
        if is_new:
            if self._given is not None:
                self._given.close()
            self._given = SharedMemory(max(size, 1))
            fd = self._given.descriptor()
            socket.send_fds(self.devices, [self._given.size.to_bytes(8, "little")], [fd])
            os.close(fd)
        assert self._given
        for start, tensor in zip(starts, tensors, strict=True):
            plain = _plain(tensor)
            self._given.bytes[start : start + len(plain)].copy_(plain)
        torch.cuda.synchronize()
        self._given = _kept(self._given)  # the descriptor keeps it for the other side
        return is_new

    def shared_bytes(self, is_new: Any) -> torch.Tensor | None:
        """Return the memory in which the other side shares tensors."""
        if self.devices is None or is_new is None:
            return None
        if is_new:
            self._taken = self._map()
        return self._taken and self._taken.bytes

    def taken(self) -> None:
        """Say that what the other side shared is copied: it may write there again."""
        torch.cuda.synchronize()
        self._taken = _kept(self._taken)

    def _map(self) -> SharedMemory:
        assert self.devices
        self.devices.settimeout(ARRIVES_S)
        try:
            data, fds, _, _ = socket.recv_fds(self.devices, 8, 1)
        except OSError as error:
            raise WireError("memory that was promised did not come") from error
        if len(data) != 8 or len(fds) != 1:
            raise WireError("memory that was promised did not come")
        if self._taken is not None:
            self._taken.close()
        try:
            return SharedMemory(int.from_bytes(data, "little"), fds[0])
        finally:
            os.close(fds[0])

    def wipe(self) -> None:
        """Leave nothing in the memory that is shared, for the next candidate to find."""
        for shared in (self._given, self._taken):
            if shared is not None:
                shared.bytes.zero_()

    def _send_all(self, parts: list[memoryview], deadline: float | None) -> None:
        held, self._held = self._held, bytearray()
        try:
            for part in (memoryview(held), *parts):
                self.sock.settimeout(_left(deadline))
                self.sock.sendall(part)
        except TimeoutError as error:
            raise Late from error
        except OSError as error:
            raise ConnectionClosed from error

    def receive(
        self, deadline: float | None = None, limit: int = MAX_PAYLOAD
    ) -> tuple[Message, list[torch.Tensor]]:
        """Return the next message and its tensors; see `receive_frame` and `Frame.open`."""
        return self.receive_frame(deadline, limit).open()

    def receive_frame(self, deadline: float | None = None, limit: int = MAX_PAYLOAD) -> Frame:
        """Return the next frame.

        Args:
            deadline: by `time.monotonic`; None waits for ever.
            limit: bytes of tensors that are taken.

        Raises:
            Late: nothing whole came in time.
            ConnectionClosed: the other side is gone.
            TooLarge: its tensors have more bytes than the limit.
            WireError: what came is no frame.
        """
        prefix = self._read(PREFIX.size, deadline)
        magic, header_size, payload_size = PREFIX.unpack(bytes(prefix))
        if magic != MAGIC or header_size > MAX_HEADER:
            raise WireError("not a frame")
        if payload_size > limit:
            raise TooLarge(f"{payload_size} bytes of tensors, where {limit} are taken")
        header = bytes(self._read(header_size, deadline))
        return Frame(header, self._read(payload_size, deadline), self)

    def _read(self, size: int, deadline: float | None) -> bytearray:
        data = self._ahead[self._at : self._at + size]
        self._at += len(data)
        if len(data) == size:
            return data
        # Grown as bytes come: a forged size must not make us reserve memory.
        while len(data) < size:
            self.sock.settimeout(_left(deadline))
            try:
                part = self.sock.recv(max(AHEAD, min(size - len(data), max(CHUNK, len(data)))))
            except TimeoutError as error:
                raise Late from error
            except OSError as error:
                raise ConnectionClosed from error
            if not part:
                raise ConnectionClosed
            data += part
        self._ahead, self._at = data[size:], 0
        del data[size:]
        return data

    def close(self) -> None:
        """Close this end."""
        self.sock.close()
        if self.devices is not None:
            self.devices.close()
            for shared in (self._given, self._taken):
                if shared is not None:
                    shared.close()


def _kept(shared: SharedMemory | None) -> SharedMemory | None:
    """Return memory for the next message too; what is large is given back after one."""
    if shared is None or shared.size <= KEPT_SHARED:
        return shared
    shared.close()
    return None


def _left(deadline: float | None) -> float | None:
    """Return the seconds until a deadline by `time.monotonic`; raise `Late` if there are none."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise Late
    return left
