"""Launches of Triton kernels, lowered to TTIR and sent to the executor.

Replaces methods of Triton's runtime; tested with triton 3.6, 3.7 and 3.9.
"""

from __future__ import annotations

import random
import types
import weakref
from typing import Any

import torch
import triton
from triton.runtime._allocation import NullAllocator, _allocator
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from curate import devices
from curate.verify.compile.lowering import Lowering
from curate.verify.host_half.handles import Handle, VirtualDevice
from curate.verify.host_half.virtual_cuda import virtual_driver

MAX_GRID = (2**31 - 1, 65535, 65535)
"""Programs along x, y and z (CUDA C++ Programming Guide, "Compute Capabilities")."""


class LaunchLeftOut(Exception):
    """Raised in place of a launch, to see whether a program gets by without its kernels."""


class HostLaunches:
    """Stands in for Triton's runtime.

    Attributes:
        refused: whether launches raise, for a program that may get by without them.
        asked: how many launches a program has asked for, whatever became of them.
        tries: whether a launch is a tuner's own, before the call that a program asks for.
    """

    def __init__(self, target: devices.Device) -> None:
        self.target, self.lowering = target, Lowering(target)
        self.refused = False
        self.turn = 0
        self.asked = 0
        self.tries = False
        self.configurations: dict[str, tuple[set[int], set[int]]] = {}

    def install(self) -> None:
        """Take the place of Triton's runtime in this process, for good."""
        choose, launches = Autotuner.run, self

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
            compiled = WarmKernel(launches, kernel, args, named)
            if not warmup:
                compiled.launch(grid, args, named)
            return compiled

        def warm(kernel: Any, *args: Any, grid: Any, **named: Any) -> Any:
            return WarmKernel(launches, kernel, args, named)

        bench, prune = Autotuner._bench, Autotuner.prune_configs
        tuned: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
        fitting: weakref.WeakKeyDictionary[Any, dict[str, list[Any]]] = weakref.WeakKeyDictionary()

        def tune(tuner: Any, *args: Any, **named: Any) -> Any:
            """Take the configurations in turn: only a device can say which is fastest."""
            tuner.cache = {}
            return choose(tuner, *args, **named)

        def tried(tuner: Any, *args: Any, config: Any, **meta: Any) -> float:
            """Run a kernel once before its first call, as a tuner does again and again.

            With another key a tuner does it anew, which only shows in what kernels add up.
            """
            key = _key_of(tuner, meta) if _has_atomics(tuner) else ""
            known = tuned.setdefault(tuner, set())
            if key not in known:
                known.add(key)
                tuner.do_bench = lambda call, quantiles: call()
                launches.tries = True
                try:
                    bench(tuner, *args, config=config, **meta)
                finally:
                    launches.tries = False
            return 0.0

        def pruned(tuner: Any, named: dict[str, Any]) -> list[Any]:
            """Return what fits at the first call with a key: a tuner does not ask again."""
            key, known = _key_of(tuner, named), fitting.setdefault(tuner, {})
            if key not in known:
                known[key] = prune(tuner, named)
            shift = launches.turn % len(known[key])
            offered, taken = launches.configurations.setdefault(
                tuner.base_fn.__name__, (set(), set())
            )
            offered.update(map(id, known[key]))  # `known` keeps them
            taken.add(id(known[key][shift]))
            return known[key][shift:] + known[key][:shift]

        JITFunction.run, JITFunction.warmup = run, warm
        Autotuner.run, Autotuner._bench, Autotuner.prune_configs = tune, tried, pruned
        triton.runtime.driver.set_active(virtual_driver(self.target))

    def untried(self) -> dict[str, int]:
        """Return how many configurations of kernels were not taken, where that is not none."""
        counts = {
            name: len(offered - taken) for name, (offered, taken) in self.configurations.items()
        }
        return {name: count for name, count in counts.items() if count}

    def admit(self) -> None:
        """Count a launch that a program asks for."""
        self.asked += not self.tries
        if self.refused:
            raise LaunchLeftOut("kernels are left out")

    def send(self, kernel: Any, args: Any, grid: Any, named: dict[str, Any]) -> None:
        """Lower one launch and send it.

        Raises:
            CompilationError: Triton's front end refuses the kernel.
            ValueError: an argument is no pointer that a GPU could follow.
        """
        self.admit()
        lowered = self.lowering.lower(kernel, args, grid, named)
        if any(size > most for size, most in zip(lowered.grid, MAX_GRID, strict=True)):
            raise RuntimeError("Triton Error [CUDA]: invalid argument")
        if lowered.allocates and isinstance(allocator := _allocator.get(), NullAllocator):
            allocator(0, 1, None)  # raises, as a launch would
        pointers = {}
        for i, value in enumerate(lowered.arguments):
            if isinstance(value, Handle):
                pointers[i] = value.inner
            elif hasattr(value, "data_ptr"):
                raise ValueError(
                    f"Pointer argument (at {i}) cannot be accessed from Triton (cpu tensor?)"
                )
        if 0 not in lowered.grid:
            with torch._C.DisableTorchFunction():
                VirtualDevice.get().launch(lowered, pointers, self.tries)


def _key_of(tuner: Any, named: dict[str, Any]) -> str:
    """Return what a tuner knows a choice by: the arguments of its key, and types of tensors."""
    given = {**tuner.nargs, **named}
    types = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return repr([*(given.get(name) for name in tuner.keys), *types])


def _has_atomics(tuner: Any) -> bool:
    return any(name.startswith("atomic_") for name in tuner.base_fn.__code__.co_names)


class WarmKernel:
    """What `kernel.warmup` and a launch return: it can be launched again on a grid."""

    def __init__(
        self, launches: HostLaunches, kernel: Any, args: Any, named: dict[str, Any]
    ) -> None:
        self._launches, self._kernel, self._args, self._named = launches, kernel, args, named
        self.name = kernel.__name__
        # What programs ask of a compiled kernel: figures of a small one, which do not tell by their
        # values that nothing was compiled.
        plain = {n: v for n, v in named.items() if isinstance(v, int | float | str)}
        figures = random.Random(f"{self.name} {sorted(plain.items())}")
        self.n_regs, self.n_spills = 8 * figures.randint(3, 8), 0
        usual = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
        known = {name: named.get(name, value) for name, value in usual.items()}
        self.metadata = types.SimpleNamespace(**known, shared=512 * figures.randint(1, 32))

    def __getitem__(self, grid: Any) -> Any:
        def call(*args: Any, **named: Any) -> None:
            kept = {k: v for k, v in self._named.items() if k not in named}
            full = list(args)
            constants = {p.name for p in self._kernel.params if p.is_constexpr}
            given = [n for n in self._kernel.arg_names if n not in constants]
            if len(full) < len(self._kernel.arg_names):
                by_name = dict(zip(given, full, strict=False))
                kept.update(by_name)
                full = []
                missing = dict(zip(self._kernel.arg_names, self._args, strict=False))
                kept = {**{k: v for k, v in missing.items() if k in constants}, **kept}
            by_place = self._kernel.arg_names[: len(full)]
            kept = {name: value for name, value in kept.items() if name not in by_place}
            self.launch(grid, full, {**kept, **named})

        return call

    def launch(self, grid: Any, args: Any, named: dict[str, Any]) -> None:
        """Make a launch on a grid."""
        self._launches.send(self._kernel, args, grid, named)

    def _init_handles(self) -> None:
        """Do nothing: there is no device to load a module on."""
