"""Launches without a GPU: all programs of a grid, in chunks that fit a core's cache."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from curate.verify.executor import code, ttir
from curate.verify.executor.memory import Allocation, Memory, Races, address_of, storage_of
from curate.verify.executor.numbers import COMPUTED
from curate.verify.executor.operations import Chunk, UnsupportedOperation, Work
from curate.verify.protocol.messages import LaunchOptions

Array = np.ndarray[Any, Any]

CHUNK = 1 << 16
"""Elements of a kernel's largest block, times programs, that are worked on at a time."""
MAX_PROGRAMS = 1 << 26
MOST_EARLY, MOST_LOOKS, MOST_COPIED = 8, 200, 1 << 24
"""Of a kernel whose programs wait for each other: how many programs run before those that they may
wait for, in every other call; how often they look at memory before they are taken to wait; and
bytes that are copied for each. A program that does not wait as it should gives a wrong result."""
LOADS = frozenset({"tt.load"})
STORES = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas"})


@dataclass(frozen=True)
class ReadyKernel:
    """A kernel that is ready to run.

    Attributes:
        name: the kernel's.
        run: the function that `code.compile_kernel` made.
        arguments: types of its arguments.
        block: elements of its largest block.
        loaded, stored: arguments that it may read and write through; None: cannot be told.
        atomics: whether it has atomic operations.
        in_turn: whether its programs wait for each other, so that they must run one by one.
    """

    name: str
    run: Any
    arguments: tuple[ttir.Type, ...]
    block: int
    loaded: frozenset[int] | None
    stored: frozenset[int] | None
    atomics: bool
    in_turn: bool


@lru_cache(maxsize=512)
def load_kernel(text: str) -> ReadyKernel:
    """Return the kernel of a module's text.

    Raises:
        TTIRError: it is no TTIR.
        UnsupportedOperation, UnsupportedType: it needs what the executor lacks.
    """
    functions = ttir.parse(text)
    entry = next(function for function in functions.values() if function.public)
    ops = [op for function in functions.values() for op in ttir.walk(function.body)]
    sizes = [kind.numel for op in ops for kind in op.types]
    waits = any(
        inner.name.startswith("tt.atomic") or inner.name == "tt.load"
        for op in ops
        if op.name == "scf.while"
        for region in op.regions
        for inner in ttir.walk(region)
    )
    loaded, stored = _touched(functions)
    atomics = any(op.name.startswith("tt.atomic") for op in ops)
    return ReadyKernel(
        entry.name,
        code.compile_kernel(functions),
        tuple(kind for _, kind in entry.arguments),
        max(sizes, default=1),
        loaded,
        stored,
        atomics,
        waits and (atomics or _may_meet(loaded, stored)),
    )


Arguments = frozenset[int] | None
"""Positions of a kernel's arguments; None: any of them."""


def _touched(functions: dict[str, ttir.Function]) -> tuple[Arguments, Arguments]:
    """Return the arguments that a kernel may load from, and those that it may store to."""
    both = (code.touched_arguments(functions, operations) for operations in (LOADS, STORES))
    loaded, stored = (None if found is None else frozenset(found) for found in both)
    return loaded, stored


def _may_meet(loaded: Arguments, stored: Arguments) -> bool:
    return loaded is None or stored is None or bool(loaded & stored)


@lru_cache(maxsize=1024)
def meets(text: str) -> bool:
    """Say whether programs of a kernel's grid may see what others of it write."""
    try:
        return _may_meet(*_touched(ttir.parse(text)))
    except ttir.TTIRError:
        return True


@lru_cache(maxsize=1024)
def described(text: str) -> tuple[str, frozenset[int] | None]:
    """Return a kernel's name, and which of its arguments it may store to; None: any of them."""
    try:
        functions = ttir.parse(text)
        stored = code.touched_arguments(functions, STORES)
    except ttir.TTIRError:
        found = re.search(r"tt\.func public @([\w$.]+)", text)
        return found[1] if found else "kernel", None
    name = next(function.name for function in functions.values() if function.public)
    return name, None if stored is None else frozenset(stored)


def run(
    kernel: ReadyKernel,
    memory: Memory,
    arguments: Sequence[int | float | bool],
    grid: tuple[int, int, int],
    work: Work,
    seed: int = 0,
    check_races: bool = True,
) -> None:
    """Run all programs of a grid."""
    programs = grid[0] * grid[1] * grid[2]
    if min(grid) < 0 or programs > MAX_PROGRAMS:
        raise UnsupportedOperation("grid", f"a grid of {grid}")
    if len(arguments) != len(kernel.arguments):
        raise UnsupportedOperation("arguments", f"{len(arguments)} for {len(kernel.arguments)}")
    values = [
        np.array([value], COMPUTED[kind.element])
        for value, kind in zip(arguments, kernel.arguments, strict=True)
    ]
    order = np.random.default_rng(seed)
    work.kernel = kernel.name
    stored = _stored_to(kernel, memory, values)
    races = Races(programs if check_races else 1, stored, kernel.atomics)

    def chunk(numbers: Array, kind: type[Chunk] = Chunk, races: Races = races) -> Chunk:
        xyz = numbers % grid[0], numbers // grid[0] % grid[1], numbers // (grid[0] * grid[1])
        index = tuple(part.astype(np.int32) for part in xyz)
        return kind(memory, races, work, order, index, numbers.astype(np.int32) + 1, grid)  # type: ignore[arg-type]

    with np.errstate(all="ignore"):
        early: set[int] = set()
        if kernel.in_turn and seed % 2:
            tried = order.permutation(np.arange(1, programs))[:MOST_EARLY]
            for number in sorted(tried.tolist(), reverse=True):
                alone = chunk(np.array([number], np.int64), Impatient, Races(1, None))
                if _ends(partial(kernel.run, alone, None, *values), memory, stored):
                    early.add(number)
        for numbers in _chunks(kernel, programs):
            if not early or int(numbers[0]) not in early:
                kernel.run(chunk(numbers), None, *values)


class Waits(Exception):
    """A program does not end, perhaps because it waits for another."""


class Impatient(Chunk):
    """A program that runs before those that it may wait for: it may look at memory so often."""

    looks = 0

    def _look(self) -> None:
        self.looks += 1
        if self.looks > MOST_LOOKS:
            raise Waits

    def load(self, *args: Any) -> Array:
        self._look()
        return super().load(*args)

    def update(self, *args: Any) -> Array:
        self._look()
        return super().update(*args)

    def compare_and_swap(self, *args: Any) -> Array:
        self._look()
        return super().compare_and_swap(*args)


def _ends(run_it: Callable[[], None], memory: Memory, stored: set[int] | None) -> bool:
    """Run a program; where it does not end, put back what it stored, and return False."""
    touched = [a for a in memory.allocations if stored is None or a.base in stored]
    if sum(len(a.data) for a in touched) > MOST_COPIED:
        return False
    before = [a.data.copy() for a in touched]
    try:
        run_it()
    except Waits:
        for allocation, data in zip(touched, before, strict=True):
            allocation.data[:] = data
        return False
    return True


def _chunks(kernel: ReadyKernel, programs: int) -> Iterator[Array]:
    size = 1 if kernel.in_turn else max(1, CHUNK // max(1, kernel.block))
    for start in range(0, programs, size):
        yield np.arange(start, min(start + size, programs), dtype=np.int64)


def _stored_to(kernel: ReadyKernel, memory: Memory, values: Sequence[Array]) -> set[int] | None:
    """Return the bases of allocations that programs may store to; None: it cannot be told."""
    if kernel.loaded is None or kernel.stored is None:
        return None
    pointers = (i for i in kernel.stored if kernel.arguments[i].element == "ptr")
    return {memory.base(int(values[i][0])) for i in pointers}


BLANK = 0.3
"""Share of launches in which they are."""


class CpuBackend:
    """Memory at addresses of its own, of which every access is checked.

    Attributes:
        name: PyTorch's name of the device.
        work: what launches and operators may still cost.
        order: seed of the order of atomic operations.
        lanes: decides in which launches lanes that a load leaves out are zeros.
        check_races: whether two programs of a launch that touch one element are an error.
        exact: of no matter: nothing is compiled.
    """

    name = "cpu"

    def __init__(self) -> None:
        self.memory = Memory()
        self.allocations: dict[int, Allocation] = {}
        self.work = Work(math.inf, math.inf)
        self.order = 0
        self.lanes = random.Random(0)
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
        kernel = load_kernel(text)
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
        self.memory.touched.clear()
        self.memory.blank = self.lanes.random() < BLANK
        kernel = load_kernel(text)
        run(kernel, self.memory, values, grid, self.work, self.order, self.check_races)
        return int(before - self.work.left) if math.isfinite(before) else 0

    @property
    def touched(self) -> set[int]:
        """Storages that the last launch accessed."""
        return set(map(storage_of, self.memory.touched))

    def launch_ptx(
        self, text: str, name: str, sizes: Sequence[int], packed: Sequence[bytes], shared: int
    ) -> None:
        """Refuse: only a GPU runs PTX."""
        raise UnsupportedOperation("needs_cuda", f"{name} is a CUDA kernel")

    def settle(self) -> None:
        """Wait for nothing: all that was asked is done."""

    def wipe(self) -> None:
        """Do nothing: the memory goes with the object."""
