"""What a ``forward`` did: kernels launched, and PyTorch operators called.

Recording is on in every run that is checked, so that a program cannot tell a run in which it is
watched from another.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from curate.verify.protocol.role import Mode, list_tensors

MOVES = {
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"),
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like"),
    *("new_full", "fill", "fill_", "zero", "zero_", "scalar_tensor", "arange", "resize_", "set_"),
    *("clone", "copy", "copy_", "_to_copy", "contiguous", "detach", "lift", "lift_fresh"),
    *("_local_scalar_dense", "is_pinned", "_pin_memory", "record_stream", "_reshape_alias"),
    "_unsafe_view",
}
"""Operators that allocate, fill, copy or convert. These and views compute nothing."""

SAMPLE = 1024
"""Elements of a result that are kept to recognise it in the output."""


GUARD, POISON = 1024, 0xA5
"""Bytes on each side of a tensor that a program allocates on a device, and what they hold."""

ALLOCATES = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


class LaunchRefused(Exception):
    """Raised in place of a launch, to see whether a program gets by without its kernels."""


def is_compute(operator: Any) -> bool:
    """Whether an ATen operator computes something: it is no view and none of `MOVES`."""
    schema = operator._schema
    library, _, name = schema.name.partition("::")
    is_view = any(a.alias_info and not a.alias_info.is_write for a in schema.arguments)
    if library in ("profiler", "prim"):
        return False
    return library != "aten" or (name not in MOVES and not is_view)


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return up to `SAMPLE` evenly spaced elements, copied."""
    flat = tensor.detach().reshape(-1)
    kept = flat[:: max(1, flat.numel() // SAMPLE)][:SAMPLE].clone()
    # PyTorch cannot look for NaN in float8 on every device.
    return kept.float() if kept.is_floating_point() and kept.element_size() == 1 else kept


@dataclass(frozen=True)
class TensorFingerprint:
    """What stays of a tensor's values, whatever their order: enough to know them again."""

    numel: int
    total: float
    squares: float
    least: float
    most: float

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorFingerprint | None:
        """Return a tensor's fingerprint; None where its values are not numbers that differ."""
        if tensor.is_complex() or tensor.numel() < 2:
            return None
        flat = tensor.detach().reshape(-1).double()
        least, most = float(flat.min()), float(flat.max())
        if not math.isfinite(least) or not math.isfinite(most) or least == most:
            return None
        return cls(flat.numel(), float(flat.sum()), float(flat.square().sum()), least, most)

    def matches(self, other: TensorFingerprint) -> bool:
        """Whether both are of the same values, up to rounding to fewer digits."""
        size = max(abs(self.least), abs(self.most))
        root = math.sqrt(max(self.squares, 1e-300))
        return self.numel == other.numel and all(
            abs(one - two) <= 1e-6 * scale
            for one, two, scale in (
                (self.least, other.least, size),
                (self.most, other.most, size),
                (self.total, other.total, root * math.sqrt(self.numel)),
                (math.sqrt(self.squares), math.sqrt(other.squares), root),
            )
        )


class Recorder(Mode):
    """Counts launches and calls while it is entered.

    Attributes:
        launches: kernel name to the number of its launches.
        calls: name of an ATen operator that computes to the number of its calls.
        last_call: the last of them.
        call_bytes: bytes that those operators read and wrote.
        launch_bytes: bytes of the tensors that the kernels were given.
        failed: errors that launches raised, whatever the program made of them.
    """

    def __init__(self, known: list[torch.Tensor] | None = None, blank: bool = False) -> None:
        """Make a recorder.

        Args:
            known: tensors that a program has from elsewhere.
            blank: whether new integers and booleans are zeros, instead of as large as they can be.
        """
        super().__init__()
        self.blank = blank
        self.launches: collections.Counter[str] = collections.Counter()
        self.calls: collections.Counter[str] = collections.Counter()
        self.last_call = ""
        self.call_bytes = 0
        self.launch_bytes = 0
        self.failed: list[Exception] = []
        self._results: list[tuple[torch.Size, torch.dtype, torch.Tensor]] = []
        # Storages that kernels may have written, or that came with the inputs and parameters.
        self._from_elsewhere = {t.untyped_storage().data_ptr() for t in known or []}
        self._alive = list(known or [])  # or another tensor could get the same address
        self._ready: list[tuple[TensorFingerprint, torch.Tensor]] = []
        self._rooms: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_compute(func):
            self.last_call = func._schema.name.removeprefix("aten::")
            self.calls[self.last_call] += 1
            results = list_tensors(result)
            for tensor in [*list_tensors(args), *list_tensors(kwargs), *results]:
                self.call_bytes += tensor.numel() * tensor.element_size()
            if not _capturing():
                self._results += [(t.shape, t.dtype, sample(t)) for t in results]
        return self._new(result) if func in ALLOCATES else result

    def _new(self, result: torch.Tensor) -> torch.Tensor:
        """Return a new tensor with values that it should not hold, others on every other forward.

        A boolean has two values only, and one that was never written may be right by chance.
        """
        guarded = self._guard(result)
        if self.blank and not (result.is_floating_point() or result.is_complex() or _capturing()):
            guarded.zero_()
        return guarded

    def _guard(self, result: torch.Tensor) -> torch.Tensor:
        """Return a new tensor with room around it that nothing may write to.

        What a graph captures must stay where it is.
        """
        extent = 1 + sum(
            (n - 1) * step for n, step in zip(result.shape, result.stride(), strict=True)
        )
        dense = result.numel() == extent
        if result.device.type == "cpu" or not result.numel() or not dense or _capturing():
            return result
        size = result.numel() * result.element_size()
        room = torch.full((size + 2 * GUARD,), POISON, dtype=torch.uint8, device=result.device)
        inside = room[GUARD : GUARD + size].view(result.dtype)
        if result.is_floating_point():
            inside.fill_(float("nan"))  # as uninitialised memory is: see role.poison_memory
        self._rooms.append(room)
        return inside.as_strided(result.shape, result.stride(), inside.storage_offset())

    def trespassed(self) -> bool:
        """Whether something was written next to a tensor that the program allocated."""
        return any(
            bool((part != POISON).any())
            for room in self._rooms
            for part in (room[:GUARD], room[-GUARD:])
        )

    @contextmanager
    def launch(self, kernel: Any, arguments: tuple[Any, ...]) -> Iterator[None]:
        """Count a launch, and remember what its arguments held before it."""
        self.launches[kernel_name(kernel)] += 1
        with _no_mode():
            for tensor in list_tensors(arguments):
                self.launch_bytes += tensor.numel() * tensor.element_size()
                if _capturing():
                    continue
                storage = tensor.untyped_storage().data_ptr()
                if storage not in self._from_elsewhere:
                    if found := TensorFingerprint.of(tensor):
                        self._ready.append((found, sample(tensor)))
                    self._from_elsewhere.add(storage)
                    self._alive.append(tensor)
        try:
            yield
        except Exception as error:
            self.failed.append(error)
            raise

    def was_called(self, output: torch.Tensor) -> bool:
        """Whether an operator's result has the shape, type and values of ``output``."""
        wanted = sample(output)
        return any(
            shape == output.shape
            and dtype == output.dtype
            and torch.equal(kept.nan_to_num(), wanted.nan_to_num())
            for shape, dtype, kept in self._results
        )

    def was_ready(self, output: torch.Tensor) -> bool:
        """Whether a kernel was given ``output``'s values, in any order, by no other kernel."""
        found = TensorFingerprint.of(output)
        return found is not None and any(found.matches(ready) for ready, _ in self._ready)

    def was_scaled(self, output: torch.Tensor) -> bool:
        """Whether ``output`` is a kernel's argument, times a number, plus a number."""
        wanted = sample(output).double()
        return any(
            kept.numel() == wanted.numel() > 2
            and ready.numel == output.numel()
            and float(torch.corrcoef(torch.stack([kept.double(), wanted]))[0, 1].abs()) > 1 - 1e-10
            for ready, kept in self._ready
        )


def _capturing() -> bool:
    """Whether what is called now goes into a CUDA graph, which cannot be looked into."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _no_mode() -> AbstractContextManager[None]:
    """Return a context in which operators are not recorded."""
    return torch.utils._python_dispatch._disable_current_modes()  # type: ignore[no-any-return]


def kernel_name(kernel: Any) -> str:
    """Return the name of a jitted function."""
    return str(getattr(kernel, "__name__", None) or getattr(kernel.fn, "__name__", "kernel"))


class Launches:
    """Stands between programs and Triton's launches, from `install` to the end of the process.

    Attributes:
        recorder: what counts launches, or None.
        refused: None, ``skip`` to leave launches out, ``raise`` to raise `LaunchRefused`.
        count: launches so far, recorded or not.
        turn: which configuration an autotuned kernel takes: the n-th, counted round.
    """

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.refused: str | None = None
        self.count = self.turn = 0
        self._tuners: dict[int, Any] = {}
        self._bench = Autotuner._bench

    def install(self) -> None:
        """Replace Triton's launch by ours."""
        run = JITFunction.run

        def call(this: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup:
                return run(this, *args, grid=grid, warmup=True, **kwargs)
            with self.admit(this, (*args, *kwargs.values())) as admitted:
                return run(this, *args, grid=grid, warmup=False, **kwargs) if admitted else None

        def first_of_turn(tuner: Any, *args: Any, config: Any, **meta: Any) -> float:
            self._tuners[id(tuner)] = tuner
            position = next(i for i, c in enumerate(tuner.configs) if c is config)
            return float((position - self.turn) % len(tuner.configs))

        replay = torch.cuda.CUDAGraph.replay

        def replayed(graph: Any) -> Any:
            self.count += 1
            if self.recorder is not None:  # its launches were counted when it was captured
                self.recorder.launches["cuda_graph"] += 1
            return replay(graph)

        JITFunction.run, Autotuner._bench = call, first_of_turn
        torch.cuda.CUDAGraph.replay = replayed

    def next_turn(self) -> None:
        """Let autotuned kernels take their next configuration."""
        self.turn += 1
        for tuner in self._tuners.values():
            tuner.cache.clear()

    def tune(self) -> None:
        """Let autotuned kernels measure their configurations, as they do on their own."""
        Autotuner._bench = self._bench
        for tuner in self._tuners.values():
            tuner.cache.clear()

    @contextmanager
    def admit(self, kernel: Any, arguments: tuple[Any, ...]) -> Iterator[bool]:
        """Count a launch, and yield whether there is to be one.

        Raises:
            LaunchRefused: launches are refused.
        """
        self.count += 1
        if self.refused == "raise":
            raise LaunchRefused("the judge refused this launch")
        if self.recorder is None:
            yield self.refused is None
            return
        with self.recorder.launch(kernel, arguments):
            yield self.refused is None
