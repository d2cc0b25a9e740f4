"""The executor's device where there is a GPU: a warm context, ready cubins, memory with canaries.

Kernels come from the compiler's process as cubins, by their TTIR, and are launched through CUDA's
driver. Nothing is protected inside a context, so it serves one candidate at a time, is wiped
between two of them, and holds no result that is expected.
"""

from __future__ import annotations

import ctypes
import gc
import re
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from curate.devices import Device
from curate.verify.compile.ptx import PtxParameter, entries, find_entry
from curate.verify.compile.serve import Compiler
from curate.verify.executor import ttir
from curate.verify.executor.launch import described
from curate.verify.executor.memory import OutOfBounds
from curate.verify.executor.operations import UnsupportedOperation
from curate.verify.protocol.driver import Launcher, Module
from curate.verify.protocol.messages import LaunchOptions
from curate.verify.protocol.role import SPARE, ask, give_back
from curate.verify.protocol.wire import Channel

GUARD = 16 * 1024
"""Bytes in front of a storage and behind it that no kernel has any business with."""

MOST_LOADED = 512
"""Cubins that are kept for the candidates to come."""

ALIGNED = 16
"""What Triton's compiler may know of an address or an integer: whether this divides it."""

INTEGERS = ("ptr", "i32", "i64")
"""Types of arguments of which it may."""


@dataclass(frozen=True)
class LoadedCubin:
    """A kernel as it was compiled, for arguments of which some are known to be `ALIGNED`.

    Attributes:
        aligned: positions of those.
        launcher: makes the launch.
        parameters: of the compiled kernel; those behind the arguments are scratch memory.
        scratch: bytes of global scratch memory for each block, and their alignment.
        module: keeps the code loaded.
    """

    aligned: frozenset[int]
    launcher: Launcher
    parameters: tuple[PtxParameter, ...]
    scratch: tuple[int, int]
    module: Module


class CudaBackend:
    """One GPU, with the context of this process.

    Attributes:
        name: PyTorch's name of the device.
        exact: whether each launch has all that is known of its arguments compiled in, as Triton's
            own launches do; otherwise that addresses are aligned, and what is compiled serves all
            sizes.
    """

    name = "cuda"

    def __init__(self, compiler: Channel, target: Device) -> None:
        self.compiler, self.target = compiler, target
        self.blocks: dict[int, tuple[torch.Tensor, int, int]] = {}  # with size and canary
        self.checked_later: list[tuple[torch.Tensor, int]] = []
        self.loaded: dict[tuple[str, tuple[Any, ...]], list[LoadedCubin]] = {}
        self.programs: dict[str, tuple[Module, dict[str, tuple[PtxParameter, ...]]]] = {}
        self.exact = False
        self.touched: set[int] = set()  # nobody knows
        self.compiled_s = 0.0  # seconds that it has waited for the compiler

    # memory

    def allocate(self, number: int, size: int, fill: int) -> torch.Tensor:
        """Return bytes for a storage, each of them ``fill``, between two canaries of the same."""
        block = torch.empty(size + 2 * GUARD, dtype=torch.uint8, device=self.name).fill_(fill)
        self.blocks[number] = block, size, fill
        return block[GUARD : GUARD + size]

    def free(self, number: int) -> None:
        """Forget a storage; its canaries are looked at later, its values are wiped."""
        block, size, fill = self.blocks.pop(number)
        self.checked_later.append((torch.cat(_canaries(block, size)), fill))
        block.zero_()

    def address(self, number: int, start: int) -> int:
        """Return the address of a byte of a storage."""
        return int(self.blocks[number][0].data_ptr()) + GUARD + start

    def settle(self) -> None:
        """Wait until all is done, and look at the canaries.

        Raises:
            OutOfBounds: a kernel wrote beyond a tensor.
            RuntimeError: a kernel failed, and with it the context.
        """
        torch.cuda.synchronize()
        seen: dict[int, list[torch.Tensor]] = {}
        for block, size, fill in self.blocks.values():
            seen.setdefault(fill, []).extend(_canaries(block, size))
        for canary, fill in self.checked_later:
            seen.setdefault(fill, []).append(canary)
        self.checked_later.clear()
        if any(bool((torch.cat(parts) != fill).any()) for fill, parts in seen.items()):
            for block, size, fill in self.blocks.values():  # later calls are not to blame
                for canary in _canaries(block, size):
                    canary.fill_(fill)
            raise OutOfBounds("a kernel wrote beyond the memory of a tensor")
        give_back()

    def wipe(self) -> None:
        """Leave nothing of a candidate to the next one."""
        self._wipe_memory()
        for module, _ in self.programs.values():
            module.unload()
        self.programs.clear()
        torch.cuda.synchronize()
        if len(self.loaded) > MOST_LOADED:
            for known in self.loaded.values():
                for cubin in known:
                    cubin.module.unload()
            self.loaded.clear()
        if torch.cuda.memory_allocated() > SPARE:
            gc.collect()  # what recorded the candidate's calls refers to itself
        torch.cuda.empty_cache()

    def _wipe_memory(self) -> None:
        # On its own: a name for a block that is left would keep its memory from being given back.
        for block, _, _ in self.blocks.values():
            block.zero_()
        self.blocks.clear()
        self.checked_later.clear()

    # Triton's kernels

    def kernel(self, text: str) -> tuple[str, frozenset[int] | None]:
        """Return a kernel's name, and the arguments that it may store to; None: all of them."""
        return described(text)

    def launch(
        self,
        text: str,
        options: LaunchOptions,
        values: Sequence[int | float | bool],
        grid: tuple[int, int, int],
    ) -> int:
        """Launch a kernel; return 0: nobody counts what it does."""
        kinds = argument_kinds(text)
        if len(values) != len(kinds):
            raise UnsupportedOperation("arguments", f"{len(values)} for {len(kinds)}")
        aligned = frozenset(
            i
            for i, (value, kind) in enumerate(zip(values, kinds, strict=True))
            if kind in (INTEGERS if self.exact else ("ptr",)) and int(value) % ALIGNED == 0
        )
        cubin = self._cubin(text, options, aligned)
        packed = [
            pack_number(value, kind, parameter.size)
            for value, kind, parameter in zip(values, kinds, cubin.parameters, strict=False)
        ]
        size, step = cubin.scratch
        room = self._scratch(size * grid[0] * grid[1] * grid[2], step)
        behind = [room, *[0] * len(cubin.parameters)][: len(cubin.parameters) - len(values)]
        cubin.launcher(grid, [*packed, *(value.to_bytes(8, "little") for value in behind)])
        return 0

    def _scratch(self, size: int, step: int) -> int:
        if not size:
            return 0
        # On the one stream that there is, the next tensor to get this memory comes later.
        room = torch.empty(size + step, dtype=torch.uint8, device=self.name)
        address = int(room.data_ptr())
        return -(-address // step) * step

    def _cubin(self, text: str, options: LaunchOptions, aligned: frozenset[int]) -> LoadedCubin:
        """Return compiled code that is right for these arguments."""
        key = text, tuple(sorted(options.items()))
        known = self.loaded.setdefault(key, [])
        for cubin in known:
            if cubin.aligned == aligned or (not self.exact and cubin.aligned < aligned):
                return cubin
        known.append(self._compile(text, options, aligned))
        return known[-1]

    def _compile(self, text: str, options: LaunchOptions, aligned: frozenset[int]) -> LoadedCubin:
        started = time.monotonic()
        name, ttir = described(text)[0], specialised(text, aligned)
        made = ask(self.compiler, Compiler.cubin, name, ttir, options, self.target)
        self.compiled_s += time.monotonic() - started
        parameters = tuple(PtxParameter(*one) for one in made.parameters)
        if not parameters:  # there is no PTX for AMD's devices
            kinds = (*argument_kinds(text), "ptr", "ptr")  # and two of scratch memory
            parameters = tuple(PtxParameter(kind, SIZES[kind]) for kind in kinds)
        module = Module(bytes(made.image.numpy()))
        launcher = Launcher(
            module.function(made.name, made.shared),
            [parameter.size for parameter in parameters],
            (self.target.warp_size * made.num_warps, 1, 1),
            made.shared,
            cluster=made.num_ctas,
            cooperative=made.cooperative,
        )
        size, step = made.scratch
        return LoadedCubin(aligned, launcher, parameters, (size * made.num_ctas, step), module)

    # CUDA's kernels

    def launch_ptx(
        self, text: str, name: str, sizes: Sequence[int], packed: Sequence[bytes], shared: int
    ) -> None:
        """Launch a kernel of a PTX file on a grid and blocks, three numbers each."""
        if text not in self.programs:
            self.programs[text] = Module(text.encode()), entries(text)
        module, known = self.programs[text]
        name = find_entry(list(known), name)
        function = module.function(name, shared)
        x, y, z = sizes[3:]
        parameters = [parameter.size for parameter in known[name]]
        if parameters != [len(value) for value in packed]:
            raise UnsupportedOperation("arguments", f"{name} takes other arguments")
        Launcher(function, parameters, (x, y, z), shared)(sizes[:3], packed)


def _canaries(block: torch.Tensor, size: int) -> list[torch.Tensor]:
    return [block[:GUARD], block[GUARD + size :]]


# --- the text of a kernel ---------------------------------------------------------------------

_ENTRY = re.compile(r"tt\.func public @[^(]+\(")
_ARGUMENT = re.compile(r"(%[^:]+: )([^{]+?)\s*(?:\{.*\})?$", re.S)


def _entry(text: str) -> tuple[int, int, list[tuple[str, str]]]:
    """Return where a kernel's arguments begin and end, and each one's name and type."""
    found = _ENTRY.search(text)
    if not found:
        raise ttir.TTIRError("no public function")
    end = found.end() + ttir.closing(text[found.end() : text.index("\n", found.end())])
    parts = [_ARGUMENT.match(part) for part in ttir.split_top(text[found.end() : end])]
    if None in parts:
        raise ttir.TTIRError("an argument without a type")
    return found.end(), end, [(part[1], part[2]) for part in parts if part]


@lru_cache(maxsize=1024)
def argument_kinds(text: str) -> tuple[str, ...]:
    """Return the types of a kernel's arguments as TTIR names them; ``ptr`` for all pointers."""
    return tuple("ptr" if kind.startswith("!tt.ptr") else kind for _, kind in _entry(text)[2])


def specialised(text: str, aligned: frozenset[int]) -> str:
    """Return a kernel for arguments of which some are known to be `ALIGNED`, and no more."""
    start, end, arguments = _entry(text)
    known = f" {{tt.divisibility = {ALIGNED} : i32}}"
    listed = [
        f"{name}{kind}{known if i in aligned else ''}" for i, (name, kind) in enumerate(arguments)
    ]
    return text[:start] + ", ".join(listed) + text[end:]


SIZES = {"ptr": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
SIZES |= {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
"""Bytes of a kernel's parameters by TTIR's names of their types."""

_FORMATS = {"f16": "<e", "f64": "<d"}


def pack_number(value: int | float | bool, kind: str, size: int) -> bytes:
    """Return a launch's argument as a parameter of so many bytes."""
    if kind == "bf16":
        return struct.pack("<f", value)[2:]  # cut off, as Triton's launcher does
    if kind == "f32":
        return bytes(ctypes.c_float(value))  # infinite if it is too large, as in Triton's launches
    if kind in _FORMATS:
        return struct.pack(_FORMATS[kind], value)
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
