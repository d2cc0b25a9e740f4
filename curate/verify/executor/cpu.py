"""The executor's device where there is no GPU: memory of the host, launches by `launch.run`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from curate.verify.executor import launch
from curate.verify.executor.memory import Allocation, Memory, address_of
from curate.verify.executor.operations import UnsupportedOperation, Work
from curate.verify.protocol.messages import LaunchOptions


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
