"""Where a package launches its kernels, and what it gives to their parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tree_sitter import Node

from curate.harvest.kernels.values import Values
from curate.harvest.python.jitted import Jitted, called_name, definition_of, jitted_functions
from curate.harvest.python.package import Package, Submodule
from curate.harvest.python.source import items_at, parse, source_of, text_at, walk

OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "grid"})
"""Keywords of a launch that are for the compiler, not for the kernel."""


@dataclass(frozen=True)
class Site:
    """A place where a kernel is launched.

    Attributes:
        path: the file.
        call: the call ``kernel[grid](…)``.
        functions: the functions around it, the innermost first.
    """

    path: str
    call: Node
    functions: tuple[Node, ...]

    @property
    def line(self) -> int:
        """Line of the call, from 1."""
        return int(self.call.start_point[0]) + 1

    @property
    def outermost(self) -> Node | None:
        """The outermost function around it."""
        return self.functions[-1] if self.functions else None


def can_be_launched(package: Package, kernel: Jitted) -> bool:
    """Whether a jitted function is a kernel, and no helper that kernels call."""
    if kernel.returns_value:
        return False
    if is_launched(package, kernel):
        return True
    return kernel.writes_memory and not is_called(package, kernel)


def is_launched(package: Package, kernel: Jitted) -> bool:
    """Whether some file of the package launches the kernel."""
    return any(True for _ in _sites(package, kernel))


def is_called(package: Package, kernel: Jitted) -> bool:
    """Whether another jitted function of the package calls it, as only a helper is."""
    mentions = f"{kernel.name}("
    return any(
        target == definition_of(kernel)
        for path, text in texts_of(package).items()
        if mentions in text
        for other in _jitted_in(package, path)
        if other.node != kernel.node
        for target in _called_targets(package, other, kernel.name)
    )


def _jitted_in(package: Package, path: str) -> tuple[Jitted, ...]:
    try:
        return jitted_functions(package, path)
    except SyntaxError:
        return ()


def _called_targets(package: Package, caller: Jitted, name: str) -> Iterator[object]:
    """Yield what calls by this name, or by an attribute of this name, stand for."""
    for node in walk(caller.function):
        called = called_name(node) if node.type == "call" else ""
        head, _, rest = called.partition(".")
        if called.rpartition(".")[2] == name:
            target = package.resolve(caller.path, head)
            if rest == name and isinstance(target, Submodule):
                target = package.resolve(target.path, name)
            yield target


def launch_sites(package: Package, kernel: Jitted) -> list[Site]:
    """Return every launch of a kernel in its package, by file and line."""
    return list(_sites(package, kernel))


def _sites(package: Package, kernel: Jitted) -> Iterator[Site]:
    for path in _files_with(package, kernel.name):
        for name, site in _sites_of_file(package, path):
            if _is_of(package, kernel, site, name):
                yield site


def launchers_beside(package: Package, path: str) -> dict[str, set[str]]:
    """Return the functions of a file that launch something, and the names of what they launch."""
    found: dict[str, set[str]] = {}
    for name, site in _sites_of_file(package, path):
        if site.outermost is not None:
            found.setdefault(text_at(site.outermost, "name"), set()).add(name.rpartition(".")[2])
    return found


def _is_of(package: Package, kernel: Jitted, site: Site, name: str) -> bool:
    head, *rest = name.split(".")
    if kernel.symbol != kernel.name:  # only what is around it can see it
        is_named = site.path == kernel.path and name.rpartition(".")[2] == kernel.name
        if kernel.outer is not None:
            return is_named and site.outermost == kernel.outer
        home = _class_of(kernel.node)
        return is_named and (head == text_at(home, "name") or _class_of(site.call) == home)
    target = package.resolve(site.path, head)
    for word in rest:
        target = package.resolve(target.path, word) if isinstance(target, Submodule) else None
    return target == definition_of(kernel)


def _class_of(node: Node) -> Node:
    """Return the class around a node, or the file's root."""
    while node.parent is not None and node.type != "class_definition":
        node = node.parent
    return node


def _files_with(package: Package, name: str) -> Iterator[str]:
    """Yield the files in which a name stands before a bracket, or gets another name."""
    for path, text in texts_of(package).items():
        if "](" in text and any(f"{name}{end}" in text for end in ("[", ")[", " as ")):
            yield path


@lru_cache(maxsize=4)
def texts_of(package: Package) -> dict[str, str]:
    """Return the text of every file that can be read."""
    found = {}
    for path in package.paths:
        with contextlib.suppress(SyntaxError):
            found[path] = package.text(path)
    return found


@lru_cache(maxsize=512)
def _sites_of_file(package: Package, path: str) -> tuple[tuple[str, Site], ...]:
    """Return each call of a subscripted name, and the name."""
    try:
        root = parse(package.text(path))
    except SyntaxError:
        return ()
    found: list[tuple[str, Site]] = []
    stack: list[tuple[Node, tuple[Node, ...]]] = [(root, ())]
    while stack:
        node, functions = stack.pop()
        if node.type == "call" and (name := _launched_name(node)):
            found.append((name, Site(path, node, functions)))
        if node.type == "function_definition":
            functions = (node, *functions)
        stack.extend((child, functions) for child in reversed(node.named_children))
    return tuple(found)


def _launched_name(call: Node) -> str | None:
    """Return ``kernel`` of ``kernel[grid](…)`` or of ``wrap_triton(kernel)[grid](…)``."""
    function = call.child_by_field_name("function")
    value = function.child_by_field_name("value") if function is not None else None
    if function is None or function.type != "subscript" or value is None:
        return None
    if value.type == "call":
        given = items_at(value, "arguments")
        value = given[0] if len(given) == 1 else value
    return source_of(value) if value.type in ("identifier", "attribute") else None


def gives_all(kernel: Jitted, site: Site) -> bool:
    """Whether a site may give every parameter that has no default.

    It does not where a decorator that is no part of Triton gave the rest.
    """
    listed = site.call.child_by_field_name("arguments")
    splats = ("list_splat", "dictionary_splat")
    if listed is None or any(child.type in splats for child in listed.named_children):
        return True
    given = {name for name, _ in _bound(kernel.parameters, site.call)}
    return kernel.required <= given


def described(package: Package, kernel: Jitted, sites: list[Site]) -> list[dict[str, Any]]:
    """Return what launch sites give to a kernel's parameters, as JSON values.

    Each is ``{"path", "line", "function", "arguments", "options"}``; an argument is ``{"text",
    "kind", "dtype", "value"}`` as `curate.harvest.kernels.values` reads it. Parameters that a site
    gives by ``*`` or ``**``, or not at all, are left out.
    """
    return [_described(package, kernel, site) for site in sites]


def _described(package: Package, kernel: Jitted, site: Site) -> dict[str, Any]:
    values = Values(package, site.path, site.functions)
    arguments, options = {}, {}
    for name, node in _bound(kernel.parameters, site.call):
        value = values.of(node)
        if name in kernel.parameters:
            arguments[name] = {"text": source_of(node), **value.described()}
        elif name in OPTIONS:
            options[name] = value.literal
    return {
        "path": site.path,
        "line": site.line,
        "function": text_at(site.functions[0], "name") if site.functions else None,
        "arguments": arguments,
        "options": options,
    }


def _bound(parameters: list[str], call: Node) -> Iterator[tuple[str, Node]]:
    """Yield the arguments of a call with the names of what they are given to."""
    position: int | None = 0
    for node in items_at(call, "arguments"):
        if node.type == "keyword_argument":
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if name is not None and value is not None:
                yield source_of(name), value
        elif node.type == "list_splat":
            position = None  # how many it gives is not known
        elif node.type not in ("comment", "dictionary_splat") and position is not None:
            if position < len(parameters):
                yield parameters[position], node
            position += 1
