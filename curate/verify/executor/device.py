"""An executor's device: its memory, as the host half numbers it, and the backend without a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch

from curate.verify.executor import launch
from curate.verify.executor.memory import Allocation, Memory, address_of
from curate.verify.executor.operations import UnsupportedOperation, Work
from curate.verify.protocol.messages import LaunchOptions
from curate.verify.protocol.places import TensorPlace
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.wire import WireError

MAX_STORAGES = 100_000


class ExecutorBackend(Protocol):
    """Where storages lie and kernels run: `CpuBackend` or `CudaBackend`."""

    name: str
    exact: bool
    compiled_s: float

    def allocate(self, number: int, size: int, fill: int) -> torch.Tensor: ...

    def free(self, number: int) -> None: ...

    def address(self, number: int, start: int) -> int: ...

    def kernel(self, text: str) -> tuple[str, frozenset[int] | None]: ...

    def launch(
        self,
        text: str,
        options: LaunchOptions,
        values: Sequence[int | float | bool],
        grid: tuple[int, int, int],
    ) -> int: ...

    def launch_ptx(
        self, text: str, name: str, sizes: Sequence[int], packed: Sequence[bytes], shared: int
    ) -> None: ...

    def settle(self) -> None: ...

    def wipe(self) -> None: ...


FILLS = (0xFF, 0x5A, 0x01)
"""Bytes of fresh memory, in turn: NaN, large finite numbers or small ones, the same in float32 and
in float64, and large as an integer. No program should count on them."""


class Storages:
    """A device's memory: bytes by the number that the host half gave them."""

    def __init__(self, device: ExecutorBackend, most_bytes: int) -> None:
        self.device, self.most_bytes = device, most_bytes
        self.used = 0
        self.known: dict[int, torch.Tensor] = {}
        self.fills = 0
        self.held: list[int] | None = None

    def new(self, number: int, size: int) -> torch.Tensor:
        """Make a storage, filled with what no program should count on."""
        if number in self.known or len(self.known) >= MAX_STORAGES or not 0 <= size < 2**48:
            raise WireError("not a new storage")
        if self.used + size > self.most_bytes:
            raise Refusal("oom", "device_memory", f"{self.used + size} bytes of tensors")
        data = self.device.allocate(number, size, FILLS[self.fills % len(FILLS)])
        self.fills += 1
        self.used += size
        self.known[number] = data
        return data

    def free(self, number: int) -> None:
        """Forget a storage; one that is held, later."""
        if self.held is not None:
            self.held.append(number)
        elif (data := self.known.pop(number, None)) is not None:
            self.used -= len(data)
            self.device.free(number)

    def hold(self, hold: bool) -> None:
        """Free what should have been freed meanwhile; from now on free nothing, or free again."""
        held, self.held = self.held, None
        for number in held or ():
            self.free(number)
        self.held = [] if hold else None

    def tensor(self, place: TensorPlace) -> torch.Tensor:
        """Return the tensor at a place."""
        data = self.known.get(place.storage)
        if data is None:
            raise WireError("no such storage")
        if place.extent > len(data):
            raise WireError("a place outside its storage")
        whole = len(data) // place.itemsize * place.itemsize
        flat = data[:whole].view(place.dtype)
        return flat.as_strided(place.shape, place.stride, flat.storage_offset() + place.offset)

    def address(self, place: TensorPlace) -> int:
        """Return the address of a place's first element."""
        self.tensor(place)
        return self.device.address(place.storage, place.start)


class CpuBackend:
    """Memory at addresses of its own, of which every access is checked.

    Attributes:
        name: PyTorch's name of the device.
        work: what launches and operators may still cost.
        order: seed of the order of atomic operations.
        check_races: whether two programs of a launch that touch one element are an error.
        exact: of no matter: nothing is compiled.
    """

    name = "cpu"

    def __init__(self) -> None:
        self.memory = Memory()
        self.allocations: dict[int, Allocation] = {}
        self.work = Work(math.inf, math.inf)
        self.order = 0
        self.check_races = True
        self.exact = False
        self.compiled_s = 0.0

    def allocate(self, number: int, size: int, fill: int) -> torch.Tensor:
        """Return bytes for a storage, each of them ``fill``."""
        data = torch.empty(size, dtype=torch.uint8).fill_(fill)
        self.allocations[number] = self.memory.add(data.numpy(), number)
        return data

    def free(self, number: int) -> None:
        """Forget a storage."""
        self.memory.remove(self.allocations.pop(number))

    def address(self, number: int, start: int) -> int:
        """Return the address of a byte of a storage."""
        return address_of(number) + start

    def kernel(self, text: str) -> tuple[str, frozenset[int] | None]:
        """Return a kernel's name, and the arguments that it may store to; None: all of them."""
        kernel = launch.load_kernel(text)
        return kernel.name, kernel.stored

    def launch(
        self,
        text: str,
        options: LaunchOptions,
        values: Sequence[int | float | bool],
        grid: tuple[int, int, int],
    ) -> int:
        """Run a kernel; return how many elements it took."""
        before = self.work.left
        kernel = launch.load_kernel(text)
        launch.run(kernel, self.memory, values, grid, self.work, self.order, self.check_races)
        return int(before - self.work.left) if math.isfinite(before) else 0

    def launch_ptx(
        self, text: str, name: str, sizes: Sequence[int], packed: Sequence[bytes], shared: int
    ) -> None:
        """Refuse: only a GPU runs PTX."""
        raise UnsupportedOperation("needs_cuda", f"{name} is a CUDA kernel")

    def settle(self) -> None:
        """Wait for nothing: all that was asked is done."""

    def wipe(self) -> None:
        """Do nothing: the memory goes with the object."""
