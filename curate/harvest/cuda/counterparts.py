"""The Triton kernel of a package that does what a CUDA kernel of the same package does.

Names nominate: two kernels are a pair when the words of their names are the same, or those of the
functions that launch them and no other kernel. A pair is promoted when a test or a dispatcher uses
both sides (`curate.harvest.cuda.links`), and then names of one word are enough. Neither proves
that both compute the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from curate.harvest.cuda.cuda_package import CudaLaunch, CudaPackage, kernels_below, launch_of
from curate.harvest.cuda.cuda_source import CudaItem
from curate.harvest.cuda.kernel_names import words_of
from curate.harvest.cuda.links import (
    Link,
    Users,
    find_links,
    is_test,
    users_of_native,
    users_of_triton,
)
from curate.harvest.kernels.launches import can_be_launched, launchers_beside, texts_of
from curate.harvest.python.jitted import Jitted, jitted_functions
from curate.harvest.python.package import Package

Words = frozenset[str]


@dataclass(frozen=True)
class Counterpart:
    """A Triton kernel, and where its package uses it alongside the CUDA kernel, if it does."""

    kernel: Jitted
    links: tuple[Link, ...]


@dataclass(frozen=True)
class _Named:
    """A Triton kernel, the words of its name, and those of it and of what launches it alone."""

    kernel: Jitted
    words: Words
    names: frozenset[Words]


def counterpart_of(package: Package, cuda: CudaPackage, kernel: CudaItem) -> Counterpart | None:
    """Return the Triton kernel that is most likely a CUDA kernel's counterpart, or None."""
    launch = launch_of(cuda, kernel)
    words = words_of(kernel.name)
    names = frozenset({words, *_launcher_words(cuda, kernel, launch)}) - {frozenset()}
    found = [named for named in _named(package) if names & named.names]
    native = _native_users(package, cuda, kernel, launch) if found else {}
    best: list[tuple[tuple[object, ...], Counterpart]] = []
    for named in found:
        other = named.kernel
        links = find_links(native, users_of_triton(package, other)) if native else ()
        is_enough = links or any(len(name) > 1 for name in names & named.names)
        if is_enough and can_be_launched(package, other):
            place = (-_shared(kernel.path, other.path), other.path, other.start_line)
            best.append(((not links, named.words != words, *place), Counterpart(other, links)))
    return min(best, key=lambda entry: entry[0])[1] if best else None


def _launcher_words(
    cuda: CudaPackage, kernel: CudaItem, launch: CudaLaunch | None
) -> frozenset[Words]:
    """Return the names, as words, of the host functions that launch a kernel and no other."""
    if launch is None:
        return frozenset()
    return frozenset(
        words_of(host.name)
        for host in launch.hosts
        if host.role == "host" and kernels_below(cuda, launch.unit, host) == {kernel.name}
    )


@lru_cache(maxsize=2)
def _named(package: Package) -> tuple[_Named, ...]:
    """Return every jitted function of a package, tests left aside."""
    found = []
    for path, text in texts_of(package).items():
        if "triton" not in text or "jit" not in text or is_test(path):
            continue
        try:
            kernels = jitted_functions(package, path)
        except SyntaxError:
            continue
        beside = launchers_beside(package, path)
        for kernel in kernels:
            alone = [name for name, launched in beside.items() if launched == {kernel.name}]
            names = frozenset(words_of(name) for name in [kernel.name, *alone]) - {frozenset()}
            found.append(_Named(kernel, words_of(kernel.name), names))
    return tuple(found)


def _native_users(
    package: Package, cuda: CudaPackage, kernel: CudaItem, launch: CudaLaunch | None
) -> Users:
    hosts = {h.name for h in launch.hosts if h.role == "host"} if launch else set()
    hosts |= _callers_elsewhere(cuda, {name for name in hosts if words_of(name)})
    names = {name for name in {*hosts, *_bound_names(cuda, hosts)} if words_of(name)}
    loaded = {kernel.path, launch.unit} if launch else {kernel.path}
    files = frozenset(path.rpartition("/")[2] for path in loaded)
    return users_of_native(package, frozenset(names), files)


def _callers_elsewhere(cuda: CudaPackage, hosts: set[str]) -> set[str]:
    """Return the C++ functions of any file that call host functions."""
    if not hosts:
        return set()
    items = (item for path in cuda.mentions(sorted(hosts)) for item in cuda.items(path))
    return {i.name for i in items if i.role == "host" and (i.words - i.names) & hosts}


def _bound_names(cuda: CudaPackage, hosts: Iterable[str]) -> set[str]:
    """Return the names under which C++ gives functions to Python: of ``def("name", &host)``."""
    found: set[str] = set()
    for host in sorted(host for host in hosts if words_of(host)):
        bound = re.compile(rf'\(\s*"(?:\w+::)?(\w+)[^"]*"\s*,(?:[^;"]*?[^\w;"])?{host}\b')
        for path in cuda.mentions([host]):
            found.update(bound.findall(cuda.text(path)))
    return found


def _shared(one: str, other: str) -> int:
    """Return how many folders two paths have in common."""
    pairs = zip(one.split("/")[:-1], other.split("/")[:-1], strict=False)
    return next(
        (i for i, (a, b) in enumerate(pairs) if a != b), min(one.count("/"), other.count("/"))
    )
