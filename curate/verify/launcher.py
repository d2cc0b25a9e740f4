"""Launch CUDA kernels from PTX: what a program that is judged as CUDA has in place of Triton.

Such a program calls ``launch_cuda(kernel, grid, block, arguments, shared=0)``, which stands among
its globals: ``kernel`` is the name, or a part of the mangled name that no other kernel has;
``grid`` and ``block`` are up to three numbers; ``shared`` is bytes of dynamic shared memory.
Arguments are typed by the PTX itself: a tensor or None for an address, a number for a number, bytes
for a struct, or a tuple of a format (`struct.pack`'s) and its values, tensors among them.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from curate.verify.compile.ptx import PtxParameter, entries, find_entry

LAUNCH = "launch_cuda"
"""The name that a program calls."""

Admit = Callable[[Any, tuple[Any, ...]], AbstractContextManager[bool]]
"""Given a kernel and its arguments: a context for the launch, and whether there is to be one."""

_ADDRESSES = ("u64", "b64")
_FLOATS = {"f32": "f", "f64": "d"}
_JIT_LOG, _JIT_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
_LOG_BYTES = 8192
_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PLAIN_SHARED = 48 * 1024
"""Bytes of shared memory for which a kernel need not ask."""


class CudaKernel:
    """One kernel of a program's PTX.

    Attributes:
        parameters: what it takes.
        function: the driver's handle, or None where kernels are not run.
    """

    def __init__(self, name: str, parameters: tuple[PtxParameter, ...], function: Any) -> None:
        self.__name__ = name
        self.parameters, self.function = parameters, function


def make_launcher(ptx: str, admit: Admit, device: str) -> Callable[..., None]:
    """Return ``launch_cuda`` for the kernels of a PTX file.

    On a CPU the arguments are checked, and nothing is run.

    Raises:
        RuntimeError: the driver does not take the PTX; the message holds what it says.
    """
    driver = CudaModule(ptx) if device != "cpu" else None
    kernels = {
        name: CudaKernel(name, parameters, driver and driver.function(name))
        for name, parameters in entries(ptx).items()
    }

    def launch_cuda(
        kernel: str, grid: Any, block: Any, arguments: list[Any], shared: int = 0
    ) -> None:
        chosen = kernels[find_entry(list(kernels), kernel)]
        sizes = [*_three(grid), *_three(block)]
        packed = pack_arguments(chosen, arguments)
        with admit(chosen, tuple(_flat(arguments))) as admitted:
            if admitted and driver:
                driver.launch(chosen.function, sizes, packed, shared)

    return launch_cuda


def _three(sizes: Any) -> tuple[int, ...]:
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    full = (*given, 1, 1, 1)[:3]
    if len(given) > 3 or not all(isinstance(size, int) and size > 0 for size in full):
        raise ValueError(f"a grid and a block are 1 to 3 numbers greater than 0, not {sizes}")
    return full


def _flat(arguments: list[Any]) -> list[Any]:
    return [part for one in arguments for part in (one if isinstance(one, tuple) else (one,))]


# --- arguments --------------------------------------------------------------------------------


def pack_arguments(kernel: CudaKernel, arguments: list[Any]) -> list[bytes]:
    """Return the bytes of every argument, as the kernel's parameters want them.

    Raises:
        TypeError: there are more or fewer than the kernel takes, or one is of another type.
    """
    wanted, name = kernel.parameters, kernel.__name__
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


def _pack(parameter: PtxParameter, value: Any) -> bytes:
    if isinstance(value, tuple):
        layout, *values = value
        value = struct.pack(layout, *(_address(v) if _is_address(v) else v for v in values))
    if isinstance(value, bytes):
        if len(value) != parameter.size:
            raise TypeError(f"{len(value)} bytes are given")
        return value
    if _is_address(value):
        if parameter.type not in _ADDRESSES:
            raise TypeError("this parameter is no address")
        return _address(value).to_bytes(8, "little")
    if parameter.type in _FLOATS:
        return struct.pack(_FLOATS[parameter.type], value)
    return operator.index(value).to_bytes(parameter.size, "little", signed=value < 0)


def _is_address(value: Any) -> bool:
    return value is None or isinstance(value, torch.Tensor)


def _address(value: torch.Tensor | None) -> int:
    return 0 if value is None else value.data_ptr()


# --- the driver -------------------------------------------------------------------------------


class CudaModule:
    """A PTX file, loaded by CUDA's driver into PyTorch's context.

    Raises:
        RuntimeError: the driver does not take it.
    """

    def __init__(self, ptx: str) -> None:
        torch.cuda.current_stream().synchronize()  # there is a context now
        self.library = ctypes.CDLL("libcuda.so.1")
        self.module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_JIT_LOG, _JIT_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        code = self.library.cuModuleLoadDataEx(
            ctypes.byref(self.module), ptx.encode(), 2, options, values
        )
        self._check(code, log.value.decode(errors="replace"))

    def function(self, name: str) -> Any:
        """Return the handle of a kernel."""
        function = ctypes.c_void_p()
        self._check(
            self.library.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode())
        )
        return function

    def launch(self, function: Any, sizes: list[int], packed: list[bytes], shared: int) -> None:
        """Launch a kernel on PyTorch's current stream."""
        if shared > _PLAIN_SHARED:
            self._check(self.library.cuFuncSetAttribute(function, _SHARED_MEMORY, shared))
        kept = [ctypes.create_string_buffer(value, max(8, len(value))) for value in packed]
        pointers = (ctypes.c_void_p * len(kept))(*map(ctypes.addressof, kept))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._check(self.library.cuLaunchKernel(function, *sizes, shared, stream, pointers, None))

    def _check(self, code: int, log: str = "") -> None:
        if code:
            said = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(said))
            raise RuntimeError(f"CUDA error: {(said.value or b'unknown').decode()} {log}".rstrip())
