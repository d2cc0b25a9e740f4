"""What a ``forward`` did: kernels launched, and PyTorch operators called.

Recording is on in every run that is checked, so that a program cannot tell a run in which it is
watched from another.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

MOVES = {
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"),
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like"),
    *("new_full", "fill", "fill_", "zero", "zero_", "scalar_tensor", "arange", "resize_", "set_"),
    *("clone", "copy", "copy_", "_to_copy", "contiguous", "detach", "lift", "lift_fresh"),
    *("_local_scalar_dense", "is_pinned", "_pin_memory", "record_stream", "_reshape_alias"),
}
"""Operators that allocate, fill, copy or convert. These and views compute nothing."""

SAMPLE = 1024
"""Elements of a result that are kept to recognise it in the output."""


class LaunchRefused(Exception):
    """Raised in place of a launch, to see whether a program gets by without its kernels."""


def is_compute(operator: Any) -> bool:
    """Whether an ATen operator computes something: it is no view and none of `MOVES`."""
    schema = operator._schema
    name = schema.name.partition("::")[2]
    is_view = any(a.alias_info and not a.alias_info.is_write for a in schema.arguments)
    return name not in MOVES and not is_view


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return up to `SAMPLE` evenly spaced elements, copied."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)][:SAMPLE].clone()


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Counts launches and calls while it is entered.

    Attributes:
        launches: kernel name to the number of its launches.
        calls: name of an ATen operator that computes to the number of its calls.
        call_bytes: bytes that those operators read and wrote.
        launch_bytes: bytes of the tensors that the kernels were given.
        failed: errors that launches raised, whatever the program made of them.
    """

    def __init__(self, keep_results: bool = False) -> None:
        super().__init__()
        self.launches: collections.Counter[str] = collections.Counter()
        self.calls: collections.Counter[str] = collections.Counter()
        self.call_bytes = 0
        self.launch_bytes = 0
        self.failed: list[Exception] = []
        self.keep_results = keep_results
        self.results: list[tuple[torch.Size, torch.dtype, torch.Tensor]] = []
        self._inside_launch = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._inside_launch and is_compute(func):
            self.calls[func._schema.name.removeprefix("aten::")] += 1
            results = _tensors(result)
            for tensor in [*_tensors(args), *_tensors(tuple((kwargs or {}).values())), *results]:
                self.call_bytes += tensor.numel() * tensor.element_size()
            if self.keep_results:
                self.results += [(t.shape, t.dtype, sample(t)) for t in results]
        return result

    @contextmanager
    def launch(self, kernel: Any, arguments: tuple[Any, ...]) -> Iterator[None]:
        """Count a launch; operators that the interpreter calls inside it do not count."""
        self.launches[kernel_name(kernel)] += 1
        for tensor in _tensors(arguments):
            self.launch_bytes += tensor.numel() * tensor.element_size()
        self._inside_launch = True
        try:
            yield
        except Exception as error:
            self.failed.append(error)
            raise
        finally:
            self._inside_launch = False

    def holds(self, output: torch.Tensor) -> bool:
        """Whether an operator's result has the shape, type and values of ``output``."""
        wanted = sample(output)
        return any(
            shape == output.shape
            and dtype == output.dtype
            and torch.equal(kept.nan_to_num(), wanted.nan_to_num())
            for shape, dtype, kept in self.results
        )


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def kernel_name(kernel: Any) -> str:
    """Return the name of a jitted function, compiled or interpreted."""
    return str(getattr(kernel, "__name__", None) or getattr(kernel.fn, "__name__", "kernel"))


class Launches:
    """Stands between programs and Triton's launches, from `install` to the end of the process.

    Attributes:
        recorder: what counts launches, or None.
        refused: None, ``skip`` to leave launches out, ``raise`` to raise `LaunchRefused`.
        turn: which configuration an autotuned kernel takes: the n-th, counted round.
    """

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.refused: str | None = None
        self.turn = 0
        self._tuners: dict[int, Any] = {}

    def install(self, interpreted: bool) -> None:
        """Replace Triton's launch by ours."""
        if interpreted:
            self._install_interpreted()
        else:
            self._install_compiled()

    def _install_interpreted(self) -> None:
        from triton.runtime import interpreter

        executor: Any = interpreter.GridExecutor
        launch = executor.__call__

        def call(this: Any, *args: Any, **kwargs: Any) -> None:
            with self._admit(this.fn, (*args, *kwargs.values())) as admitted:
                if admitted:
                    launch(this, *args, **kwargs)

        executor.__call__ = call

    def _install_compiled(self) -> None:
        run = JITFunction.run

        def call(this: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup:
                return run(this, *args, grid=grid, warmup=True, **kwargs)
            with self._admit(this, (*args, *kwargs.values())) as admitted:
                return run(this, *args, grid=grid, warmup=False, **kwargs) if admitted else None

        def first_of_turn(tuner: Any, *args: Any, config: Any, **meta: Any) -> float:
            self._tuners[id(tuner)] = tuner
            position = next(i for i, c in enumerate(tuner.configs) if c is config)
            return float((position - self.turn) % len(tuner.configs))

        JITFunction.run, self._bench, Autotuner._bench = call, Autotuner._bench, first_of_turn

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
    def _admit(self, kernel: Any, arguments: tuple[Any, ...]) -> Iterator[bool]:
        if self.refused == "raise":
            raise LaunchRefused("the judge refused this launch")
        if self.recorder is None:
            yield self.refused is None
            return
        with self.recorder.launch(kernel, arguments):
            yield self.refused is None
