"""A GPU that is not there: what PyTorch's compiler and Triton ask of a device, answered for it.

Inductor looks at a handful of device properties and never at the device itself until it runs a
kernel. Tested with torch 2.11 and triton 3.6, 2.13 and 3.7, and 2.15 and 3.9.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._dynamo.device_interface as device_interface
import torch.utils._triton
import triton
from torch._inductor import utils
from torch._inductor.codecache import CacheBase
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.hints import DeviceProperties
from torch._subclasses import fake_tensor
from triton.backends.compiler import GPUTarget

from curate.devices import DEVICES

CUDA = torch.device("cuda", 0)

_DEVICE_CACHES: tuple[Any, ...] = (
    DeviceProperties.create,
    CacheBase.get_system,
    *(f for f in vars(utils).values() if hasattr(f, "cache_clear")),
    *(f for f in vars(torch.utils._triton).values() if hasattr(f, "cache_clear")),
)


def _copy(tensor: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return torch.ops.aten.copy_.default(tensor, source, non_blocking)


def _contiguous(
    tensor: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format
) -> torch.Tensor:
    return torch.ops.aten.contiguous.default(tensor, memory_format=memory_format)


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


@contextlib.contextmanager
def absent_gpu() -> Iterator[None]:
    """Make Inductor and Triton believe that an NVIDIA GPU is the current and only one.

    Fake tensors on ``cuda:0`` can be made inside; real ones cannot. What is written lies in a
    temporary folder, which goes. Everything is as before on exit.
    Programs do not depend on which.
    """
    device = DEVICES["cuda:90"]
    # Of an architecture rather than of one card.
    properties = SimpleNamespace(**{**vars(device.properties()), "name": str(device.arch)})
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": properties,
        "is_bf16_supported": device.capability >= (8, 0),
    }
    methods = {**answers, "get_compute_capability": device.arch}
    methods = {name: staticmethod(_always(value)) for name, value in methods.items()}
    base = device_interface.CudaInterface
    worker = type("Worker", (base.Worker,), methods)
    interface = type("OfflineInterface", (base,), {**methods, "Worker": worker})
    answers |= {
        "get_device_capability": device.capability,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        # There is no generator to save around tracing, and nothing random runs.
        "get_rng_state": torch.empty(0, dtype=torch.uint8),
        "set_rng_state": None,
    }
    registry = device_interface.device_interfaces
    device_interface.get_interface_for_device("cuda")  # fills the registry
    driver = triton.runtime.driver
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curate-inductor-")))
        folders = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder / "triton"}
        patch = stack.enter_context
        patch(mock.patch.dict(os.environ, {name: str(path) for name, path in folders.items()}))
        patch(mock.patch.dict(registry, {"cuda": interface, "cuda:0": interface}))
        for name, value in answers.items():
            patch(mock.patch.object(torch.cuda, name, _always(value)))
        patch(mock.patch.object(torch.version, "hip", None))
        # For channels one by one, PyTorch asks the device itself.
        plain = torch._C._ConvBackend.Slow2d
        patch(mock.patch.object(torch._C, "_select_conv_backend", _always(plain)))
        patch(mock.patch.object(triton_helpers, "set_driver_to_gpu", _always(None)))
        # It puts a first real tensor on the device.
        patch(mock.patch.object(fake_tensor, "init_gpu_context", _always(None)))
        # These bindings ask for a CUDA device guard, which a CPU build does not have.
        patch(mock.patch.object(torch.Tensor, "__invert__", lambda x: torch.bitwise_not(x)))
        patch(mock.patch.object(torch.Tensor, "copy_", _copy))
        patch(mock.patch.object(torch.Tensor, "contiguous", _contiguous))
        target = GPUTarget(device.backend, device.arch, device.warp_size)
        current = SimpleNamespace(get_current_target=_always(target))
        patch(mock.patch.object(driver, "_active", current))
        patch(_forgotten())
        torch._C._ensureCUDADeviceGuardSet()
        yield


@contextlib.contextmanager
def _forgotten() -> Iterator[None]:
    """Forget what torch remembers of the device, before and after."""
    for cached in _DEVICE_CACHES:
        cached.cache_clear()
    try:
        yield
    finally:
        for cached in _DEVICE_CACHES:
            cached.cache_clear()
