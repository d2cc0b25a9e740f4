"""``launch_cuda``: what a program that is judged as CUDA has in place of Triton.

Such a program calls ``launch_cuda(kernel, grid, block, arguments, shared=0)``, which stands among
its globals: ``kernel`` is the name, or a part of the mangled name that no other kernel has;
``grid`` and ``block`` are up to three numbers; ``shared`` is bytes of dynamic shared memory.
Arguments are typed by the PTX itself: a tensor or None for an address, a number for a number, bytes
for a struct, or a tuple of a format (`struct.pack`'s) and its values, tensors among them. An
address is known to the executor alone, so that ``tensor.data_ptr()`` is of no use here.
"""

from __future__ import annotations

import hashlib
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from curate.verify.compile.ptx import PtxParameter, entries, find_entry
from curate.verify.host_half.handles import Handle, VirtualDevice
from curate.verify.host_half.launches import MAX_GRID, HostLaunches

LAUNCH = "launch_cuda"
"""The name that a program calls."""

_ADDRESSES = ("u64", "b64")
_FLOATS = {"f32": "f", "f64": "d"}
_MARK = 0x0102030405060708
"""Stands for an address, to find where a format puts it."""


def make_launcher(ptx: str, launches: HostLaunches) -> Callable[..., None]:
    """Return ``launch_cuda`` for the kernels of a PTX file."""
    kernels, sha256 = entries(ptx), hashlib.sha256(ptx.encode()).hexdigest()

    def launch_cuda(
        kernel: str, grid: Any, block: Any, arguments: Sequence[Any], shared: int = 0
    ) -> None:
        name = find_entry(list(kernels), kernel)
        programs, threads = _three(grid), _three(block)
        if any(size > most for size, most in zip(programs, MAX_GRID, strict=True)):
            raise RuntimeError("CUDA error: invalid argument")
        with torch._C.DisableTorchFunction():
            packed = pack_arguments(name, kernels[name], arguments)
            launches.admit()
            stream = VirtualDevice.get()
            command = {
                "do": "cuda",
                "ptx": stream.unsent(ptx, sha256),
                "sha256": sha256,
                "kernel": name,
                "grid": list(programs),
                "block": list(threads),
                "shared": operator.index(shared),
                "args": packed,
            }
            stream.send(command)

    return launch_cuda


def _three(sizes: Any) -> tuple[int, ...]:
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    full = (*given, 1, 1, 1)[:3]
    if len(given) > 3 or not all(isinstance(size, int) and size > 0 for size in full):
        raise ValueError(f"a grid and a block are 1 to 3 numbers greater than 0, not {sizes}")
    return full


# --- arguments --------------------------------------------------------------------------------


def pack_arguments(
    name: str, wanted: Sequence[PtxParameter], arguments: Sequence[Any]
) -> list[Any]:
    """Return a kernel's arguments as `curate.verify.executor.operators.read_argument` reads them.

    Raises:
        TypeError: there are more or fewer than the kernel takes, or one is of another type.
    """
    if len(wanted) != len(arguments):
        raise TypeError(f"{name} takes {len(wanted)} arguments, and {len(arguments)} are given")
    packed = []
    for number, (parameter, value) in enumerate(zip(wanted, arguments, strict=True)):
        try:
            packed.append(_pack(parameter, value))
        except (TypeError, OverflowError, struct.error) as error:
            what = f"{type(value).__name__} for {parameter.type} of {parameter.size} bytes"
            raise TypeError(f"{name}, argument {number}: {what}: {error}") from error
    return packed


def _pack(parameter: PtxParameter, value: Any) -> Any:
    if _is_address(value):
        if parameter.type not in _ADDRESSES:
            raise TypeError("this parameter is no address")
        return None if value is None else {"t": _place(value)}
    places: list[Any] = []
    if isinstance(value, tuple):
        layout, *values = value
        value, places = _pack_struct(layout, values)
    if isinstance(value, bytes):
        if len(value) != parameter.size:
            raise TypeError(f"{len(value)} bytes are given")
    elif parameter.type in _FLOATS:
        value = struct.pack(_FLOATS[parameter.type], value)
    else:
        value = operator.index(value).to_bytes(parameter.size, "little", signed=value < 0)
    return {"s": places, "b": value.hex()} if places else {"b": value.hex()}


def _pack_struct(layout: str, values: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """Return the bytes of a struct, and where in them the address of which place is missing."""
    numbers = [0 if _is_address(value) else value for value in values]
    whole = struct.pack(layout, *numbers)
    places = []
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            marked = struct.pack(layout, *numbers[:i], _MARK, *numbers[i + 1 :])
            differ = (at for at, (a, b) in enumerate(zip(whole, marked, strict=True)) if a != b)
            at = next(differ, len(whole))
            if marked[at : at + 8] != _MARK.to_bytes(8, "little"):
                raise TypeError(f"value {i} of the format {layout} is no address")
            places.append([at, _place(value)])
    return whole, places


def _is_address(value: Any) -> bool:
    return value is None or isinstance(value, torch.Tensor)


def _place(tensor: torch.Tensor) -> list[Any]:
    if not isinstance(tensor, Handle):
        raise TypeError("a tensor that is not on the GPU")
    return VirtualDevice.get().place(tensor.inner).to_json()
