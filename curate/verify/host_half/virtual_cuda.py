"""What programs ask of CUDA and of Triton's driver, answered for a device that is not there.

The facts are those of the GPU that runs the work or, where there is none, of one NVIDIA H100 SXM.
Streams and events are virtual: work is done in the order in which it is asked for, and the executor
takes note of who waits for whom.

Stands in for a private class of Triton (`virtual_driver`); tested with triton 3.6, 3.7 and 3.9.
"""

from __future__ import annotations

import random
import types
from typing import Any

import torch

from curate.devices import Device
from curate.verify.compile.aot import gpu_target
from curate.verify.host_half.handles import CUDA, VirtualDevice
from curate.verify.host_half.stream import CommandStream, Tape
from curate.verify.host_half.streams import DEFAULT, HostStreams

L2_BYTES = 50 * 2**20


def virtual_driver(device: Device) -> Any:
    """Return Triton's driver, for a device that is not there."""
    facts = device.properties()
    properties = {
        "max_shared_mem": facts.shared_memory_per_block_optin,
        "max_num_regs": facts.regs_per_multiprocessor,
        "multiprocessor_count": facts.multi_processor_count,
        "warpSize": facts.warp_size,
        "sm_clock_rate": 1_980_000,
        "mem_clock_rate": 2_619_000,
        "mem_bus_width": 5120,
    }
    target = gpu_target(device)
    return types.SimpleNamespace(
        target=target,
        utils=types.SimpleNamespace(get_device_properties=lambda number=0: dict(properties)),
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        set_current_device=lambda number: None,
        get_current_stream=lambda number=0: current_stream().cuda_stream,
        get_active_torch_device=lambda: CUDA,
        get_device_interface=lambda: torch.cuda,
        get_device_capability=lambda number=0: device.capability,
        get_empty_cache_for_benchmark=lambda: torch.empty(
            L2_BYTES // 4, dtype=torch.int32, device=CUDA
        ),
        clear_cache=lambda cache: cache.zero_(),
        # Every candidate takes as long as every other.
        get_benchmarker=lambda: (
            lambda function, *args, quantiles=None, **kwargs: [1.0 for _ in quantiles or (1,)]
        ),
    )


class NoOpContext:
    """A context that changes nothing: a stream, a device guard."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> NoOpContext:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


ADDRESSES, STEP = 0x7F00_0000_0000, 64
"""Handles of streams: that of the first, and how far they are apart. The default one's is zero."""


class Stream:
    """A stream, in a context one that commands go to."""

    device, device_index, device_type = CUDA, 0, 1

    def __init__(
        self, device: Any = None, priority: int = 0, stream_id: int | None = None, **kwargs: Any
    ) -> None:
        self.stream_id = _streams().make(priority) if stream_id is None else stream_id
        self.priority = priority
        self._before: list[int] = []

    @property
    def cuda_stream(self) -> int:
        return ADDRESSES + STEP * self.stream_id if self.stream_id else 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5

    def synchronize(self) -> None:
        _streams().synchronize(self.stream_id)

    def query(self) -> bool:
        """Say that all work is done, as a program may wait to hear."""
        self.synchronize()
        return True

    def wait_stream(self, stream: Any) -> None:
        self.wait_event(stream.record_event())

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event that happens when all is done that the stream has got so far."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before.append(_streams().current)
        set_stream(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _streams().use(self._before.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return self.stream_id


class ExternalStream(Stream):
    """A stream by its handle."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        number, odd = divmod(stream_ptr - ADDRESSES, STEP)
        known = stream_ptr == 0 or (not odd and _streams().knows(number))
        super().__init__(device, stream_id=(number if stream_ptr else 0) if known else None)


class StreamContext(NoOpContext):
    """`torch.cuda.stream`: what is called inside goes to a stream; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> StreamContext:
        if self.stream is not None:
            self.stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__()


class Event(NoOpContext):
    """What a stream has got at some moment; it happens at once."""

    cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number: int | None = None

    def record(self, stream: Any = None) -> None:
        self._number = _streams().record((stream or current_stream()).stream_id)

    def wait(self, stream: Any = None) -> None:
        if self._number is not None:
            _streams().wait((stream or current_stream()).stream_id, self._number)

    def synchronize(self) -> None:
        if self._number is not None:
            _streams().wait_on_host(self._number)

    def query(self) -> bool:
        """Say that it has happened, as a program may wait to hear."""
        self.synchronize()
        return True

    def elapsed_time(self, other: Any) -> float:
        """Return milliseconds between two events: one, give or take what clocks do."""
        numbers = f"{self._number} {getattr(other, '_number', None)}"
        return 1.0 + random.Random(numbers).random() / 64


def current_stream(device: Any = None) -> Stream:
    """Return the stream that commands go to."""
    return Stream(stream_id=_streams().current)


def set_stream(stream: Stream | None) -> None:
    """Have commands go to a stream."""
    if stream is not None:
        _streams().use(stream.stream_id)


WITHOUT_EFFECT = (
    *("init", "_lazy_init", "set_device", "empty_cache", "ipc_collect", "_sleep"),
    *("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all"),
    *("set_per_process_memory_fraction", "set_sync_debug_mode"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated"),
)
"""Functions of `torch.cuda` that do nothing here."""

ALLOCATED = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
"""Functions of `torch.cuda` that answer how many bytes the tensors that there are take."""

ZERO = (*("current_device", "initial_seed", "get_sync_debug_mode"),)
"""Functions of `torch.cuda` that answer zero."""


def install(target: Device) -> None:
    """Answer for CUDA in this process, for good."""
    cuda: Any = torch.cuda
    profiler = types.SimpleNamespace(cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0)
    facts = types.SimpleNamespace(
        **vars(target.properties()), L2_cache_size=L2_BYTES, is_integrated=0
    )
    answers: dict[str, Any] = {
        # Each has a function of its own, or `torch._dynamo` finds one object under two rules.
        **{name: (lambda *args, **kwargs: None) for name in WITHOUT_EFFECT},
        **{name: (lambda *args, **kwargs: 0) for name in ZERO},
        **{name: (lambda *args, **kwargs: _stream().held()) for name in ALLOCATED},
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "synchronize": lambda device=None: _streams().synchronize(),
        "get_device_properties": lambda device=None: facts,
        "get_device_capability": lambda device=None: target.capability,
        "get_device_name": lambda device=None: target.card,
        "is_bf16_supported": lambda including_emulation=True: True,
        "current_stream": current_stream,
        "default_stream": lambda device=None: Stream(stream_id=DEFAULT),
        "set_stream": set_stream,
        "Stream": Stream,
        "ExternalStream": ExternalStream,
        "get_stream_from_external": ExternalStream,
        "Event": Event,
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "device": NoOpContext,
        "device_of": NoOpContext,
        "mem_get_info": lambda device=None: (target.memory, target.memory),
        "memory_stats": lambda device=None: {},
        "memory_summary": lambda device=None, abbreviated=False: "",
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)],
        "is_tf32_supported": lambda: True,
        "can_device_access_peer": lambda device, peer: False,
        "graph_pool_handle": lambda: (0, 0),
        "cudart": lambda: profiler,
        "is_current_stream_capturing": lambda: _stream().tape is not None,
    }
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, lambda *args, **kwargs: 0)
    for name in ("start", "stop", "init"):
        setattr(cuda.profiler, name, lambda *args, **kwargs: None)
    cuda.CUDAGraph, cuda.graph = Graph, Capture
    # Otherwise recurrent layers ask the driver how cuDNN wants their weights; there may be none.
    torch.backends.cudnn.is_acceptable = lambda tensor: False
    torch.get_device_module = lambda device=None: cuda
    torch.version.cuda = torch.version.cuda or "12.8"


class Graph:
    """A CUDA graph: the commands of a capture, sent again at every replay."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.tape = Tape()

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        self.tape = Tape()
        _stream().record(self.tape)

    def capture_end(self) -> None:
        _stream().record(None)

    def replay(self) -> None:
        _stream().replay(self.tape)

    def reset(self) -> None:
        self.tape = Tape()

    def pool(self) -> tuple[int, int]:
        return 0, 0

    def instantiate(self) -> None:
        """Do nothing."""


class Capture:
    """`torch.cuda.graph`: what is called inside becomes a graph's commands."""

    def __init__(self, cuda_graph: Graph, *args: Any, **kwargs: Any) -> None:
        self.graph = cuda_graph

    def __enter__(self) -> None:
        _streams().synchronize()
        self.graph.capture_begin()

    def __exit__(self, *error: Any) -> None:
        self.graph.capture_end()


def _stream() -> CommandStream:
    return VirtualDevice.get()


def _streams() -> HostStreams:
    return _stream().streams
