"""Which tests and which functions of a package use both a CUDA kernel and a Triton kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tree_sitter import Node

from curate.harvest.cuda.kernel_names import words_of
from curate.harvest.kernels.launches import launch_sites, texts_of
from curate.harvest.python.jitted import Jitted
from curate.harvest.python.package import Definition, External, Package, Submodule, Target
from curate.harvest.python.source import (
    Import,
    is_attribute,
    parse,
    read_import,
    source_of,
    text_at,
)

MAX_STEPS = {"test": 3, "dispatcher": 2}
"""Uses of uses that are followed: a test calls a wrapper, which calls what launches the kernel."""
MAX_USERS = 20
"""Files that use a name from which it is no longer asked who uses those: it is everywhere."""

_TEST = re.compile(r"(^|/)(tests?|testing|benchmarks?)/|(^|/)(test|bench|benchmark)_|_test\.py$")
_SCOPES = ("function_definition", "class_definition")


@dataclass(frozen=True)
class Link:
    """Where a package uses both kernels.

    Attributes:
        kind: ``test``, of a file that tests or measures, or ``dispatcher``, of other code.
        path: the file.
        line: where it uses the CUDA kernel, from 1.
        symbol: the function or class that uses both; '' for a test, which is a whole file.
    """

    kind: str
    path: str
    line: int
    symbol: str


@dataclass(frozen=True)
class Use:
    """The nearest use of a kernel by a part of the package."""

    steps: int
    line: int


Users = dict[Definition, Use]
"""Functions, classes and test files (whose name is '') and how they use something."""


def is_test(path: str) -> bool:
    """Whether a file tests or measures."""
    return _TEST.search(path) is not None


def find_links(native: Users, triton: Users) -> tuple[Link, ...]:
    """Return the test and the dispatcher that use both kernels most directly, as far as any do."""
    best: dict[str, tuple[int, str, str]] = {}
    for unit in native.keys() & triton.keys():
        kind = "test" if is_test(unit.path) else "dispatcher"
        steps = (native[unit].steps, triton[unit].steps)
        if max(steps) <= MAX_STEPS[kind]:
            place = (sum(steps), unit.path, unit.name)
            best[kind] = min(best.get(kind, place), place)
    return tuple(
        Link(kind, path, native[Definition(path, name)].line, name)
        for kind, (_, path, name) in sorted(best.items(), reverse=True)
    )


@lru_cache(maxsize=1024)
def users_of_triton(package: Package, kernel: Jitted) -> Users:
    """Return what launches a kernel, and what uses that."""
    first: Users = {}
    for site in launch_sites(package, kernel):
        _note(first, _unit(site.path, site.call), Use(1, site.line))
    return _spread(package, first)


def users_of_native(package: Package, names: frozenset[str], files: frozenset[str]) -> Users:
    """Return what calls a compiled function, and what uses that, and so on.

    Args:
        package: the Python files.
        names: the function's names in C++ and in its bindings.
        files: base names of C++ files whose mention in a string loads the function.
    """
    first: Users = {}
    for path in _holding(package, names | files):
        for node in _native_uses(package, path, names, files):
            _note(first, _unit(path, node), Use(1, node.start_point[0] + 1))
    return _spread(package, first)


def _note(users: Users, unit: Definition, use: Use) -> None:
    """Keep a unit's nearest use, of several the first."""
    known = users.get(unit)
    if known is None or (use.steps, use.line) < (known.steps, known.line):
        users[unit] = use


def _spread(package: Package, first: Users) -> Users:
    """Add what uses the users, and so on."""
    users = dict(first)
    for steps in range(2, max(MAX_STEPS.values()) + 1):
        last = {unit for unit, use in users.items() if use.steps == steps - 1 and unit.name}
        for target in sorted(last, key=lambda unit: (unit.path, unit.name)):
            paths = _holding(package, frozenset({target.name}))
            if len(paths) > MAX_USERS:
                continue
            for path in paths:
                for node in _references(package, path, target):
                    unit = _unit(path, node)
                    if unit != target:
                        _note(users, unit, Use(steps, node.start_point[0] + 1))
    return users


def _unit(path: str, node: Node) -> Definition:
    """Return the outermost function or class around a node; the whole file where it tests."""
    name = ""
    scope: Node | None = node
    while scope is not None and not is_test(path):
        name = text_at(scope, "name") if scope.type in _SCOPES else name
        scope = scope.parent
    return Definition(path, name)


# --- reading Python -------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _index(package: Package) -> dict[str, list[str]]:
    """Return the files that hold each word, `a.cuh` being a word too."""
    found: dict[str, list[str]] = {}
    for path, text in texts_of(package).items():
        for word in set(re.findall(r"[A-Za-z_]\w*(?:\.cuh?\b)?", text)):
            found.setdefault(word, []).append(path)
    return found


def _holding(package: Package, words: Iterable[str]) -> list[str]:
    index = _index(package)
    return sorted({path for word in words for path in index.get(word, ())})


@lru_cache(maxsize=1024)
def _root(package: Package, path: str) -> Node | None:
    try:
        return parse(package.text(path))
    except SyntaxError:
        return None


def _nodes(root: Node, pattern: str) -> Iterator[Node]:
    """Yield the leaves of a tree at which a regular expression matches; only those are visited."""
    for match in re.finditer(pattern.encode(), root.text or b""):
        if (node := root.descendant_for_byte_range(*match.span())) is not None:
            yield node


@lru_cache(maxsize=1024)
def _imports(package: Package, path: str) -> dict[str, tuple[Import, ...]]:
    """Return what import statements anywhere in a file bind to each name."""
    found: dict[str, dict[Import, None]] = {}
    root = _root(package, path)
    for node in _nodes(root, r"\bimport\b") if root is not None else ():
        if node.parent is not None and node.parent.type in _IMPORTS:
            for name, bound in read_import(node.parent):
                found.setdefault(name, {})[bound] = None
    return {name: tuple(bound) for name, bound in found.items()}


def _targets(package: Package, path: str, name: str) -> list[Target | None]:
    """Return what import statements of a file make of a name; nothing where none binds it."""
    return [package.follow(path, bound, name) for bound in _imports(package, path).get(name, ())]


def _references(package: Package, path: str, target: Definition) -> Iterator[Node]:
    """Yield the places in a file that name a definition, import statements left aside."""
    root = _root(package, path)
    if root is None:
        return
    imports = _imports(package, path)
    names = {target.name} if path == target.path else set()
    for name, bound in imports.items():
        asked = [found for found in bound if target.name in (found.attr, name)]
        names |= {name for found in asked if package.follow(path, found, name) == target}
    if "*" in imports and package.resolve(path, target.name) == target:
        names.add(target.name)
    words = "|".join(sorted({*names, target.name}))
    for node in _nodes(root, rf"\b(?:{words})\b"):
        if node.type != "identifier" or _is_imported(node):
            continue
        if not is_attribute(node):
            if source_of(node) in names:
                yield node
        elif node.parent is not None and text_at(node.parent, "attribute") == target.name:
            modules = _targets(package, path, _first(node.parent))
            if any(_attr(package, module, node.parent) == target for module in modules):
                yield node


def _native_uses(
    package: Package, path: str, names: frozenset[str], files: frozenset[str]
) -> Iterator[Node]:
    """Yield the places in a file that call or load a compiled function."""
    root = _root(package, path)
    if root is None:
        return
    imported = {
        alias
        for alias, bound in _imports(package, path).items()
        for found in bound
        if (found.attr or alias) in names
        and _is_outside(package, package.follow(path, found, alias))
    }
    words = "|".join(re.escape(word) for word in sorted({*names, *imported, *files}, reverse=True))
    for node in _nodes(root, rf"\b(?:{words})\b"):
        if node.type == "string_content":
            if source_of(node).rpartition("/")[2] in files:
                yield node
        elif node.type != "identifier" or _is_imported(node):
            continue
        elif not is_attribute(node):
            if source_of(node) in imported:
                yield node
        elif node.parent is not None and _is_native(package, path, node.parent):
            yield node


def _is_native(package: Package, path: str, node: Node) -> bool:
    """Whether ``a.b.name`` is an attribute of a compiled module, as far as can be seen."""
    if source_of(node).startswith("torch.ops."):
        return True
    head = _first(node)
    if targets := _targets(package, path, head):
        return any(_is_outside(package, target) for target in targets)
    if head in ("self", "cls") or package.resolve(path, head) is not None:
        return False
    return (
        len(words_of(text_at(node, "attribute"))) > 1
    )  # an object's method is told by its name alone


def _is_outside(package: Package, target: Target | None) -> bool:
    """Whether a name comes from a module that is neither of the package nor a known library."""
    if isinstance(target, External):
        known = package.environment.is_allowed(target.dotted)
        return target.dotted.startswith("torch.ops") or not known
    return target is None


_IMPORTS = ("import_statement", "import_from_statement")


def _is_imported(node: Node) -> bool:
    """Whether a name stands in an import statement."""
    around = node.parent
    while around is not None and around.type in ("dotted_name", "aliased_import"):
        around = around.parent
    return around is not None and around.type in _IMPORTS


def _first(attribute: Node) -> str:
    node: Node | None = attribute
    while node is not None and node.type == "attribute":
        node = node.child_by_field_name("object")
    return source_of(node) if node is not None and node.type == "identifier" else ""


def _attr(package: Package, module: Target | None, attribute: Node) -> Target | None:
    """Return what ``module.a.b`` names."""
    target = module
    for word in source_of(attribute).split(".")[1:]:
        target = package.resolve(target.path, word) if isinstance(target, Submodule) else None
    return target
