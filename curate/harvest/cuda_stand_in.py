"""Lets code that asks for a CUDA device run on the CPU.

Inside `CudaStandIn` tensors say that they are on ``cuda:0``, and what asks for a place there gets
one on the CPU. `answer_for_cuda` gives ``torch.cuda`` a device's answers; it is meant for a
process that does nothing but run wrappers.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from curate.verify import interpreter

CUDA = torch.device("cuda", 0)

_ANSWERS: dict[Any, Any] = {
    torch.Tensor.device.__get__: CUDA,
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.get_device: 0,
}

_MOVES = (torch.Tensor.cuda, torch.Tensor.pin_memory)
"""Methods that return their tensor, as it is where they would put it."""


class CudaStandIn(TorchFunctionMode):  # type: ignore[misc]
    """While entered, tensors on the CPU look as if they were on a CUDA device."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _ANSWERS:
            return _ANSWERS[func]
        if func in _MOVES:
            return args[0]
        if func is torch.Tensor.record_stream:
            return None
        given = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if given.get("pin_memory"):
            given["pin_memory"] = False
        return func(*map(_on_cpu, args), **given)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    is_name = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    return "cpu" if is_name else value


class _NoContext(contextlib.nullcontext[None]):
    """Stands for ``torch.cuda.device`` and ``torch.cuda.stream``."""


class _Stream(SimpleNamespace):
    """Stands for the one stream; it does everything at once."""

    cuda_stream = 0

    def synchronize(self) -> None:
        """Wait for nothing."""

    def wait_stream(self, other: Any) -> None:
        """Wait for nothing."""


_PROPERTIES = SimpleNamespace(
    name="NVIDIA H100",
    major=9,
    minor=0,
    multi_processor_count=8,  # small, so that persistent kernels are interpreted soon
    total_memory=2**34,
    warp_size=32,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    L2_cache_size=2**25,
)


def answer_for_cuda() -> None:
    """Let ``torch.cuda`` answer as one small device does, for the rest of the process."""
    stream = _Stream()
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": False,  # or PyTorch asks CUDA itself
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_name": _PROPERTIES.name,
        "get_device_properties": _PROPERTIES,
        "current_stream": stream,
        "default_stream": stream,
        "synchronize": None,
        "set_device": None,
        "empty_cache": None,
        "is_current_stream_capturing": False,
        "is_bf16_supported": True,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, _answer=answer, **kwargs: _answer)
    for name in ("device", "device_of", "stream"):
        setattr(torch.cuda, name, _NoContext)
    _look_through_launches()


def _look_through_launches() -> None:
    """Let the interpreter see tensors where they are."""
    launch = interpreter.CheckedExecutor.__call__

    def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return launch(executor, *args, **kwargs)

    executor: Any = interpreter.CheckedExecutor
    executor.__call__ = call
