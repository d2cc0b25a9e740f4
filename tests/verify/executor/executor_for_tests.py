"""Runs kernels on tensors of this process by way of TTIR and the executor, without a host half."""

from __future__ import annotations

from typing import Any

import torch
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from curate.devices import find_device
from curate.verify.compile.lowering import Lowering
from curate.verify.executor import launch
from curate.verify.executor.memory import Memory, OutOfBounds
from curate.verify.executor.operations import UnsupportedOperation, Work
from curate.verify.host_half.virtual_cuda import virtual_driver

__all__ = ["OutOfBounds", "UnsupportedOperation", "install"]

TARGET = find_device("cuda:90")
lowering = Lowering(TARGET)


def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
    lowered = lowering.lower(kernel, args, grid, named)
    memory, known = Memory(), {}

    def address(tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            data = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
            known[storage.data_ptr()] = memory.add(data)
        offset = tensor.storage_offset() * tensor.element_size()
        return known[storage.data_ptr()].base + offset

    values = [address(v) if isinstance(v, torch.Tensor) else v for v in lowered.arguments]
    loaded = launch.load_kernel(lowered.ttir)
    launch.run(loaded, memory, values, lowered.grid, Work(1e12, 60))


def install() -> None:
    JITFunction.run = run
    Autotuner._bench = lambda tuner, *args, config, **meta: 0.0
    triton.runtime.driver.set_active(virtual_driver(TARGET))
