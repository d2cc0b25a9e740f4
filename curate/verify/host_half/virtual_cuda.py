"""What programs ask of CUDA and of Triton's driver, answered for a device that is not there.

The facts are those of one NVIDIA H100 SXM (CUDA C++ Programming Guide, "Compute Capabilities").
Streams and events are virtual: work is done in the order in which it is asked for.

Stands in for a private class of Triton; tested with triton 3.6, 3.7 and 3.9.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from triton.backends.compiler import GPUTarget

from curate.devices import ON_CPU
from curate.verify.host_half.handles import CUDA, VirtualDevice
from curate.verify.host_half.stream import Tape

PROPERTIES = types.SimpleNamespace(
    **vars(ON_CPU.properties()), L2_cache_size=50 * 2**20, is_integrated=0
)


class Utilities:
    """What kernels' wrappers ask Triton's driver of the device."""

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """As the driver's function of this name."""
        return {
            "max_shared_mem": PROPERTIES.shared_memory_per_block_optin,
            "max_num_regs": PROPERTIES.regs_per_multiprocessor,
            "multiprocessor_count": PROPERTIES.multi_processor_count,
            "warpSize": PROPERTIES.warp_size,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }


class VirtualDriver:
    """Triton's driver, for a device that is not there."""

    def __init__(self, target: GPUTarget) -> None:
        self.target, self.utils = target, Utilities()

    def get_current_target(self) -> GPUTarget:
        """Return what kernels are compiled for."""
        return self.target

    def get_current_device(self) -> int:
        """Return the device's number."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing: there is one device."""

    def get_current_stream(self, device: int = 0) -> int:
        """Return a stream's handle."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Return what PyTorch calls the device."""
        return CUDA

    def get_device_interface(self) -> Any:
        """Return PyTorch's module for the device."""
        return torch.cuda

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Return the compute capability."""
        return ON_CPU.capability

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Return a buffer as large as the L2 cache."""
        return torch.empty(PROPERTIES.L2_cache_size // 4, dtype=torch.int32, device=CUDA)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Clear the L2 cache."""
        cache.zero_()

    def get_benchmarker(self) -> Any:
        """Return a function that times: every candidate takes as long as every other."""
        return lambda function, *args, quantiles=None, **kwargs: [1.0] * len(quantiles or (1,))


class NoOpContext:
    """A context that changes nothing: a stream, a device guard."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> NoOpContext:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Stream(NoOpContext):
    """A stream; everything is on one."""

    cuda_stream = 0
    device = CUDA
    device_index = 0
    priority = 0

    def synchronize(self) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        """Say that all work is done."""
        return True

    def wait_stream(self, other: Any) -> None:
        """Wait for nothing."""

    def wait_event(self, event: Any) -> None:
        """Wait for nothing."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event."""
        return event or Event()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class Event(NoOpContext):
    """An event that has happened."""

    def record(self, stream: Any = None) -> None:
        """Do nothing."""

    def wait(self, stream: Any = None) -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        """Say that it has happened."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """Return milliseconds between two events: always one."""
        return 1.0


def install() -> None:
    """Answer for CUDA in this process, for good."""
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_capability": lambda device=None: ON_CPU.capability,
        "get_device_name": lambda device=None: ON_CPU.card,
        "is_bf16_supported": lambda including_emulation=True: True,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "Stream": Stream,
        "Event": Event,
        "stream": NoOpContext,
        "device": NoOpContext,
        "device_of": NoOpContext,
        "empty_cache": lambda: None,
        "mem_get_info": lambda device=None: (ON_CPU.memory, ON_CPU.memory),
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "is_current_stream_capturing": lambda: _stream().tape is not None,
    }
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    cuda.CUDAGraph, cuda.graph = Graph, Capture
    torch.get_device_module = lambda device=None: cuda
    torch.version.cuda = torch.version.cuda or "12.8"


class Graph:
    """A CUDA graph: the commands of a capture, sent again at every replay."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.tape = Tape()

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Record commands from now on, without running them."""
        self.tape = Tape()
        _stream().record(self.tape)

    def capture_end(self) -> None:
        """Stop recording commands."""
        _stream().record(None)

    def replay(self) -> None:
        """Send the commands again."""
        _stream().replay(self.tape)

    def reset(self) -> None:
        """Forget the commands."""
        self.tape = Tape()

    def pool(self) -> tuple[int, int]:
        """Return the memory pool's id."""
        return 0, 0

    def instantiate(self) -> None:
        """Do nothing."""


class Capture:
    """`torch.cuda.graph`: what is called inside becomes a graph's commands."""

    def __init__(self, cuda_graph: Graph, *args: Any, **kwargs: Any) -> None:
        self.graph = cuda_graph

    def __enter__(self) -> None:
        self.graph.capture_begin()

    def __exit__(self, *error: Any) -> None:
        self.graph.capture_end()


def _stream() -> Any:
    return VirtualDevice.get()
