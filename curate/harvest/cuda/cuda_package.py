"""The C++ and CUDA files of one artifact, and CUDA kernels cut out of them with all they need."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from curate.harvest.cuda.cuda_source import CudaItem, cuda_items
from curate.harvest.python.slices import NotClosed, Place, StandaloneFile
from curate.rows import LocatedRow

SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".cpp")
_VENDORED = re.compile(r"(^|/)(cutlass|3rdparty|third_party|thirdparty|vendor|_vendored)/")


class CudaPackage:
    """The C++ and CUDA files of one artifact.

    Args:
        paths: every path of the artifact, with forward slashes.
        read: gives the content of a path.
    """

    def __init__(self, paths: Iterable[str], read: Callable[[str], str]) -> None:
        self._read = read
        self.paths = tuple(sorted(path for path in paths if path.endswith(SUFFIXES)))
        self._items: dict[str, tuple[CudaItem, ...]] = {}

    def text(self, path: str) -> str:
        """Return a file's text; '' for one that is not UTF-8."""
        try:
            return self._read(path).removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError:
            return ""

    def items(self, path: str) -> tuple[CudaItem, ...]:
        """Return the parts of a file."""
        if path not in self._items:
            self._items[path] = cuda_items(path, self.text(path))
        return self._items[path]

    def kernels(self, path: str) -> list[CudaItem]:
        """Return the ``__global__`` functions that a file defines, in order."""
        return [item for item in self.items(path) if item.role == "kernel"]

    def kernel(self, path: str, line: int) -> CudaItem:
        """Return the kernel that begins at a line.

        Raises:
            ValueError: there is none.
        """
        for item in self.kernels(path):
            if item.lines[0] == line:
                return item
        raise ValueError(f"{path}:{line} is no kernel: the row is not from this package")

    def included(self, path: str) -> tuple[str, ...]:
        """Return the files of the artifact that a file includes, itself last, each once, in the
        order in which the compiler meets their ends."""
        order: dict[str, None] = {}
        seen: set[str] = set()

        def visit(here: str) -> None:
            if here not in seen:
                seen.add(here)
                for item in self.items(here):
                    if item.role == "include" and (found := self.resolve(here, item.name)):
                        visit(found)
                order[here] = None

        visit(path)
        return tuple(order)

    def resolve(self, path: str, included: str) -> str | None:
        """Return the file of the artifact that an ``#include`` in ``path`` names.

        It is looked for alongside the file, in the folders above, and then anywhere, where one file
        alone ends so. Libraries that a package carries along count as outside.
        """
        if _VENDORED.search(f"{included}/"):
            return None
        folder = posixpath.dirname(path)
        while True:
            found = posixpath.normpath(posixpath.join(folder, included))
            if found in self._path_set:
                return None if _VENDORED.search(found) else found
            if not folder:
                break
            folder = posixpath.dirname(folder)
        ends = [
            p for p in self._by_name.get(posixpath.basename(included), ()) if _ends(p, included)
        ]
        return ends[0] if len(ends) == 1 and not _VENDORED.search(ends[0]) else None

    @cached_property
    def _path_set(self) -> frozenset[str]:
        return frozenset(self.paths)

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.paths:
            found.setdefault(posixpath.basename(path), []).append(path)
        return found

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {path: self.text(path) for path in self.paths if not _VENDORED.search(path)}

    def mentions(self, words: Iterable[str]) -> Iterator[str]:
        """Yield the files that hold one of some words, which no vendored file is."""
        pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b")
        for path, text in self._texts.items():
            if pattern.search(text):
                yield path


def _ends(path: str, included: str) -> bool:
    return path == included or path.endswith(f"/{included.lstrip('./')}")


def cuda_package_of(row: LocatedRow, cache: Path | None) -> CudaPackage:
    """Return the package around a row's file; the file alone when it has no artifact."""
    sha256, path = row["origin"]["artifact_sha256"], row["origin"]["path"]
    if sha256 is None or cache is None:
        return CudaPackage((path,), lambda _: str(row["text"]))
    return _open_package(cache, sha256)


@lru_cache(maxsize=4)
def _open_package(cache: Path, sha256: str) -> CudaPackage:
    from curate.cache.artifact import open_artifact

    artifact = open_artifact(cache, sha256)
    return CudaPackage(artifact.paths(), artifact.read)


# --- launches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class CudaLaunch:
    """How host code comes to launch a kernel.

    Attributes:
        unit: the file that is compiled: the kernel's own, or the first that includes it and
            launches it.
        launcher: the smallest part of the unit that launches the kernel, with the macros between
            the two.
        hosts: the host functions and types that lead to the kernel, the nearest first.
    """

    unit: str
    launcher: tuple[CudaItem, ...]
    hosts: tuple[CudaItem, ...]


_HOST = ("host", "type", "other", "macro")


def launch_of(package: CudaPackage, kernel: CudaItem) -> CudaLaunch | None:
    """Return how a kernel is launched; None where no file of its package does it."""
    for unit in _units(package, kernel):
        items = [item for path in package.included(unit) for item in package.items(path)]
        macros = _leading(kernel.names, [i for i in items if i.role == "macro"])
        callers = [i for i in items if i.role in _HOST and i.role != "macro"]
        names = kernel.names | _names_of(macros)
        direct = [caller for caller in callers if caller.words & names]
        if direct:
            chosen = min(direct, key=lambda i: (not _launches(i, macros), len(i.text), i.index))
            used = tuple(macro for macro in macros if macro.names & chosen.words)
            leading = _leading(names, [item for item in items if item.role in _HOST])
            hosts = tuple(item for item in leading if item.role != "macro")
            return CudaLaunch(unit, (chosen, *used), hosts)
    return None


def _launches(caller: CudaItem, macros: tuple[CudaItem, ...]) -> bool:
    """Whether a part has a launch in it, itself or by a macro."""
    return caller.launches or any(m.launches and m.names & caller.words for m in macros)


def _units(package: CudaPackage, kernel: CudaItem) -> Iterator[str]:
    """Yield the files that may launch a kernel: its own, then those that include it."""
    yield kernel.path
    base = posixpath.basename(kernel.path)
    for path in package.mentions([kernel.name]):
        if path != kernel.path and kernel.path in package.included(path):
            yield path
    if kernel.path.endswith((".cu", ".cpp")):
        return
    for path in package.mentions([base.removesuffix(posixpath.splitext(base)[1])]):
        if path.endswith((".cu", ".cpp")) and kernel.path in package.included(path):
            yield path


def _leading(names: frozenset[str], callers: list[CudaItem]) -> tuple[CudaItem, ...]:
    """Return the parts that mention some names, and those that mention these and so on, the
    nearest first."""
    found: dict[CudaItem, None] = {}
    wanted = names
    while wanted:
        nearest = [c for c in callers if c not in found and (c.words - c.names) & wanted]
        found.update(dict.fromkeys(nearest))
        wanted = _names_of(nearest)
    return tuple(found)


def kernels_below(package: CudaPackage, unit: str, host: CudaItem) -> set[str]:
    """Return the names of the kernels that a host function of a compiled file may launch."""
    items = [item for path in package.included(unit) for item in package.items(path)]
    defined: dict[str, list[CudaItem]] = {}
    for item in items:
        if item.role in ("kernel", *_HOST):
            for name in item.names:
                defined.setdefault(name, []).append(item)
    seen: dict[CudaItem, None] = {}
    queue = [host]
    while queue:
        item = queue.pop()
        if item not in seen:
            seen[item] = None
            if item.role != "kernel":
                queue += [found for word in item.words for found in defined.get(word, ())]
    return {item.name for item in seen if item.role == "kernel"}


def _names_of(items: Iterable[CudaItem]) -> frozenset[str]:
    return frozenset(name for item in items for name in item.names)


# --- slices ---------------------------------------------------------------------------------


def close_cuda(package: CudaPackage, kernel: CudaItem) -> StandaloneFile:
    """Return a file with a kernel, what it needs from its package, and what launches it.

    Files that are not in the package stay as ``#include`` lines. ``taken`` names the lines of
    other files than the kernel's own.

    Raises:
        NotClosed: nothing in the package launches the kernel.
    """
    launch = launch_of(package, kernel)
    if launch is None:
        raise NotClosed("no_launch", kernel=kernel.name, path=kernel.path)
    paths = package.included(launch.unit)
    chosen = _needed(package, paths, [kernel, *launch.launcher])
    rank = {path: position for position, path in enumerate(paths)}
    ordered = sorted(chosen, key=lambda item: (rank[item.path], item.index))
    heads = _outside(package, paths, {item.path for item in ordered} | {launch.unit})
    body = _rendered(heads) + "\n\n" * bool(heads) + _rendered(ordered)
    taken = [f"{i.path}:{i.lines[0]}-{i.lines[1]}" for i in ordered if i.path != kernel.path]
    places: frozenset[Place] = frozenset((item.path, item.index) for item in ordered)
    return StandaloneFile(f"{body}\n", sorted(taken), places)


def _needed(package: CudaPackage, paths: tuple[str, ...], start: list[CudaItem]) -> list[CudaItem]:
    """Return the parts that some parts need, themselves among them.

    Another kernel counts as needed only by what launches it; a ``using`` by its file's parts.
    """
    defined: dict[str, list[CudaItem]] = {}
    directives: dict[str, list[CudaItem]] = {}
    for path in paths:
        for item in package.items(path):
            if item.role == "using":
                directives.setdefault(path, []).append(item)
            elif item.role != "include":
                for name in item.names:
                    defined.setdefault(name, []).append(item)
    chosen: dict[CudaItem, None] = {}
    queue = list(start)
    while queue:
        item = queue.pop()
        if item in chosen:
            continue
        chosen[item] = None
        queue += directives.pop(item.path, [])
        for word in item.words:
            queue += [found for found in defined.get(word, ()) if found not in chosen]
    return list(chosen)


def _outside(package: CudaPackage, paths: tuple[str, ...], used: set[str]) -> list[CudaItem]:
    """Return the ``#include`` lines of used files that name files outside the package, each once.

    The order is the compiler's.
    """
    found: dict[tuple[str, tuple[str, ...]], CudaItem] = {}
    for path in (path for path in paths if path in used):
        for item in package.items(path):
            if item.role == "include" and package.resolve(path, item.name) is None:
                found.setdefault((item.name, _conditions(item)), item)
    return list(found.values())


def _conditions(item: CudaItem) -> tuple[str, ...]:
    return tuple(head for head in item.around if head.startswith("#"))


def _rendered(items: list[CudaItem]) -> str:
    """Return parts in order, in the namespaces and under the conditions that they stood in."""
    lines: list[str] = []
    open_heads: list[str] = []
    previous: CudaItem | None = None
    for item in items:
        heads = list(_conditions(item) if item.role == "include" else item.around)
        shared = 0
        while shared < min(len(heads), len(open_heads)) and heads[shared] == open_heads[shared]:
            shared += 1
        lines += [_end(head) for head in reversed(open_heads[shared:])]
        if previous is not None and not (previous.role == item.role in ("include", "macro")):
            lines.append("")
        lines += heads[shared:]
        lines.append(item.text)
        open_heads, previous = heads, item
    lines += [_end(head) for head in reversed(open_heads)]
    return "\n".join(lines)


def _end(head: str) -> str:
    if head.startswith("#"):
        return "#endif"
    name = head.removesuffix("{").strip()
    return f"}}  // {name}" if name.startswith("namespace") else "}"
