"""The devices that programs are compiled for, by the names that recipes use."""

from __future__ import annotations

from dataclasses import dataclass

SHARED_MEMORY = {
    "cuda:75": 64 * 1024,
    "cuda:80": 163 * 1024,
    "cuda:86": 99 * 1024,
    "cuda:89": 99 * 1024,
    "cuda:90": 227 * 1024,
    "cuda:100": 227 * 1024,
    "cuda:120": 99 * 1024,
    "hip:gfx90a": 64 * 1024,
    "hip:gfx942": 64 * 1024,
    "hip:gfx950": 160 * 1024,
}
"""Bytes of shared memory that one block may have (CUDA C++ Programming Guide, "Compute
Capabilities"; AMD Instinct ISA guides, "LDS")."""

ON_CPU = "cuda:90"
"""The device that programs see, and are compiled for, where there is none."""

MAX_THREADS = 1024
"""Threads that one block may have, on all of them."""


@dataclass(frozen=True)
class Target:
    """A device to compile for.

    Attributes:
        name: ``cuda:90``, ``hip:gfx942``.
        backend: ``cuda`` or ``hip``.
        arch: the compute capability as a number, or the name of the AMD architecture.
        warp_size: threads in a warp.
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int


def parse_target(name: str) -> Target:
    """Return the target that a recipe names.

    Raises:
        ValueError: the name is not one of `SHARED_MEMORY`.
    """
    if name not in SHARED_MEMORY:
        raise ValueError(f"no target {name!r}; there are {', '.join(SHARED_MEMORY)}")
    backend, _, arch = name.partition(":")
    if backend == "cuda":
        return Target(name, backend, int(arch), 32)
    return Target(name, backend, arch, 64)


def known_target(name: str) -> str:
    """Return the name of a target.

    Raises:
        ValueError: the name is not one of `SHARED_MEMORY`.
    """
    return parse_target(name).name
