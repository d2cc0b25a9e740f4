"""CUDA's driver, as far as the executor needs it: modules, launches, memory that processes share.

Everything happens in PyTorch's context, on its current stream. The calls are those of the CUDA
Driver API's documentation; their numbers are from its header ``cuda.h``. HIP has calls of the same
names and numbers for AMD's devices, on which this is untested.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
PLAIN_SHARED = 48 * 1024
"""Bytes of shared memory for which a kernel need not ask."""

CLUSTER, COOPERATIVE = 4, 2  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, …_COOPERATIVE
_JIT_LOG, _JIT_LOG_BYTES, _LOG_BYTES = 5, 6, 8192  # CU_JIT_ERROR_LOG_BUFFER, and its size

_OUT_OF_RESOURCES = 701  # CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES


class DriverError(RuntimeError):
    """The driver refused a call; the message has the words of `cuGetErrorString`."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id, padding, and 64 bytes of value."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((f"grid_{axis}", ctypes.c_uint) for axis in "xyz"),
        *((f"block_{axis}", ctypes.c_uint) for axis in "xyz"),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


IS_AMD = torch.version.hip is not None


@functools.cache
def library() -> ctypes.CDLL:
    """Return the driver, with a context that is PyTorch's."""
    torch.cuda.current_stream().synchronize()
    return ctypes.CDLL("libamdhip64.so" if IS_AMD else "libcuda.so.1")


def call(name: str, *arguments: Any) -> int:
    """Make a call, such as ``ModuleUnload``; return its error code."""
    return int(getattr(library(), f"{'hip' if IS_AMD else 'cu'}{name}")(*arguments))


def check(code: int, log: str = "") -> None:
    """Raise `DriverError` unless a call has gone well."""
    if code:
        said = ctypes.c_char_p()
        call("DrvGetErrorString" if IS_AMD else "GetErrorString", code, ctypes.byref(said))
        words = (said.value or b"unknown").decode()
        what = "out of resources: " if code == _OUT_OF_RESOURCES else ""
        kind = "HIP" if IS_AMD else "CUDA"
        raise DriverError(f"{kind} error: {what}{words} {log}".rstrip())


class Module:
    """Kernels that the driver has loaded, from a cubin or from PTX; unloaded with the object.

    Raises:
        DriverError: the driver does not take them; the message holds what its assembler says.
    """

    def __init__(self, image: bytes) -> None:
        self._module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_JIT_LOG, _JIT_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        code = call("ModuleLoadDataEx", ctypes.byref(self._module), image, 2, options, values)
        check(code, log.value.decode(errors="replace"))

    def function(self, name: str, shared: int = 0) -> ctypes.c_void_p:
        """Return a kernel that may be launched with so many bytes of dynamic shared memory."""
        function = ctypes.c_void_p()
        check(call("ModuleGetFunction", ctypes.byref(function), self._module, name.encode()))
        if shared > PLAIN_SHARED and not IS_AMD:
            check(call("FuncSetAttribute", function, SHARED_MEMORY, shared))
        return function

    def unload(self) -> None:
        """Forget the kernels."""
        call("ModuleUnload", self._module)


class Launcher:
    """One kernel with one form of launch, ready to be launched many times.

    Args:
        function: from `Module.function`.
        sizes: bytes of each parameter.
        block: threads along x, y and z.
        shared: bytes of dynamic shared memory.
        cluster: blocks of a cluster, along x.
        cooperative: whether all blocks must be there at the same time.
    """

    def __init__(
        self,
        function: ctypes.c_void_p,
        sizes: Sequence[int],
        block: tuple[int, int, int],
        shared: int,
        cluster: int = 1,
        cooperative: bool = False,
    ) -> None:
        self.function = function
        self.places = [ctypes.create_string_buffer(max(8, size)) for size in sizes]
        self.pointers = (ctypes.c_void_p * max(1, len(sizes)))(
            *(ctypes.addressof(place) for place in self.places)
        )
        self.attributes = (_Attribute * 2)()
        self.config = _Config(1, 1, 1, *block, shared, None, self.attributes, 0)
        if cluster > 1:
            self._add(CLUSTER, (cluster, 1, 1))
        if cooperative:
            self._add(COOPERATIVE, (1,))

    def _add(self, kind: int, values: Sequence[int]) -> None:
        attribute = self.attributes[self.config.count]
        attribute.id = kind
        for i, value in enumerate(values):
            attribute.value[i] = value
        self.config.count += 1

    def __call__(self, grid: Sequence[int], packed: Sequence[bytes]) -> None:
        """Launch on PyTorch's current stream."""
        for place, value in zip(self.places, packed, strict=True):
            ctypes.memmove(place, value, len(value))
        config = self.config
        config.grid_x, config.grid_y, config.grid_z = grid
        config.stream = torch.cuda.current_stream().cuda_stream
        if IS_AMD:
            block = config.block_x, config.block_y, config.block_z, config.shared
            stream = ctypes.c_void_p(config.stream)
            how = (*grid, *block, stream, self.pointers, None)
            check(call("ModuleLaunchKernel", self.function, *how))
            return
        check(call("LaunchKernelEx", ctypes.byref(config), self.function, self.pointers, None))


# --- memory that processes share --------------------------------------------------------------

_FILE_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
NONE = ctypes.c_uint64(0)
"""An offset, an alignment, an address or flags that are not asked for."""
GRANULE = 2 << 20
"""Bytes in steps of which shared memory is made."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class SharedMemory:
    """Memory of the device that another process can map, by a file descriptor.

    Legacy IPC handles name a process, and so do not pass the namespaces of a sandbox.

    Attributes:
        size: bytes.
        bytes: a tensor of uint8 over all of it.
    """

    def __init__(self, size: int, fd: int | None = None) -> None:
        """Make memory, or map what another process has made, whose descriptor is not closed here.

        Raises:
            DriverError: there is no such memory left.
        """
        torch.cuda.current_stream().synchronize()  # this thread has PyTorch's context now
        self.size = -(-size // GRANULE) * GRANULE
        self.handle, self.address = ctypes.c_uint64(), ctypes.c_uint64()
        at = _Location(1, torch.cuda.current_device())
        handle, size_t = ctypes.byref(self.handle), ctypes.c_size_t(self.size)
        if fd is None:
            made = _Properties(1, _FILE_DESCRIPTOR, at, None, 0)
            how = handle, size_t, ctypes.byref(made), NONE
            if call("MemCreate", *how):
                torch.cuda.empty_cache()  # PyTorch keeps what it has freed, as for itself
                check(call("MemCreate", *how))
        else:
            kind = _FILE_DESCRIPTOR
            check(call("MemImportFromShareableHandle", handle, ctypes.c_void_p(fd), kind))
        try:
            check(call("MemAddressReserve", ctypes.byref(self.address), size_t, NONE, NONE, NONE))
            check(call("MemMap", self.address, size_t, NONE, self.handle, NONE))
            access = ctypes.byref(_Access(at, _READ_WRITE))
            check(call("MemSetAccess", self.address, size_t, access, ctypes.c_size_t(1)))
        except DriverError:
            self.close()
            raise
        self.bytes = torch.as_tensor(_Array(self.address.value, self.size), device="cuda")

    def descriptor(self) -> int:
        """Return a file descriptor by which another process can map the memory."""
        fd = ctypes.c_int()
        kind = _FILE_DESCRIPTOR
        check(call("MemExportToShareableHandle", ctypes.byref(fd), self.handle, kind, NONE))
        return fd.value

    def close(self) -> None:
        """Unmap the memory; it is freed once no process maps it."""
        torch.cuda.synchronize()
        size = ctypes.c_size_t(self.size)
        if self.address.value:
            call("MemUnmap", self.address, size)
            call("MemAddressFree", self.address, size)
        call("MemRelease", self.handle)


class _Array:
    """Memory as PyTorch takes it (`__cuda_array_interface__`, version 3)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }
