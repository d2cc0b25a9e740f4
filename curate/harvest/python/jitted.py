"""The functions of a file that Triton compiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tree_sitter import Node

from curate.harvest.python.package import Definition, External, Package, Submodule
from curate.harvest.python.source import (
    Statement,
    has_default,
    imports_in,
    items_at,
    source_of,
    text_at,
    undecorated,
    walk,
)

JIT = "triton.jit"
LAUNCHERS = frozenset({JIT, "triton.autotune", "triton.heuristics"})
"""Triton's decorators of a kernel: what they do is part of it."""

_NAMES = {
    "triton.runtime.jit.jit": JIT,
    "triton.runtime.jit": JIT,
    "triton.runtime.autotuner.autotune": "triton.autotune",
    "triton.runtime.autotuner.heuristics": "triton.heuristics",
    "triton.runtime.autotune": "triton.autotune",
}
_DEF = "function_definition"
_SCOPES = (_DEF, "class_definition")


@dataclass(frozen=True)
class Jitted:
    """A function under ``@triton.jit``, or one that is given to ``triton.jit``.

    Attributes:
        path: its file.
        name: what it is launched by.
        symbol: its name with those of the functions and classes around it, dots between.
        node: the definition with its decorators.
        outer: the outermost function around it, if there is one.
    """

    path: str
    name: str
    symbol: str
    node: Node
    outer: Node | None

    @property
    def function(self) -> Node:
        """The definition without its decorators."""
        return undecorated(self.node)

    @property
    def start_line(self) -> int:
        """Line of its first decorator, from 1."""
        return int(self.node.start_point[0]) + 1

    @property
    def parameters(self) -> list[str]:
        """Names of its parameters, in order."""
        names = map(parameter_name, items_at(self.function, "parameters"))
        return [name for name in names if name]

    @property
    def required(self) -> set[str]:
        """Names of its parameters that have no default."""
        kept = [n for n in items_at(self.function, "parameters") if not has_default(n)]
        return {name for name in map(parameter_name, kept) if name}

    @property
    def returns_value(self) -> bool:
        """Whether it gives a value to its caller, as no launched kernel can."""
        own = [node for node in walk(self.function) if node.type == "return_statement"]
        return any(node.named_children for node in own)

    @property
    def writes_memory(self) -> bool:
        """Whether it stores itself."""
        return any(
            node.type == "call" and called_name(node).rpartition(".")[2].startswith(_WRITES)
            for node in walk(self.function)
        )


_WRITES = ("store", "atomic_", "async_copy_local_to_global", "async_descriptor_store")


def parameter_name(node: Node) -> str | None:
    """Return the name of one item of a parameter list; None for ``*``, ``/`` and comments."""
    while node.type in ("typed_parameter", "default_parameter", "typed_default_parameter"):
        node = node.child_by_field_name("name") or node.named_children[0]
    return source_of(node) if node.type == "identifier" else None


def dotted_target(package: Package, path: str, expression: str) -> str:
    """Return the full dotted name of what ``a.b.c`` names in a file, '' where it is local."""
    head, _, rest = expression.partition(".")
    target = package.resolve(path, head)
    while isinstance(target, Submodule) and rest:
        head, _, rest = rest.partition(".")
        target = package.resolve(target.path, head)
    if not isinstance(target, External):
        return ""
    dotted = f"{target.dotted}.{rest}" if rest else target.dotted
    return _NAMES.get(dotted, dotted)


def decorator_name(package: Package, path: str, decorator: Node) -> str:
    """Return the full dotted name of a decorator, '' where it comes from the package."""
    expression = decorator.named_children[0]
    is_call = expression.type == "call"
    return dotted_target(
        package, path, called_name(expression) if is_call else source_of(expression)
    )


@lru_cache(maxsize=256)
def jitted_functions(package: Package, path: str) -> tuple[Jitted, ...]:
    """Return the functions of a file that Triton compiles, in order.

    Raises:
        SyntaxError: the file does not parse.
    """
    found = []
    for node in walk(package.file(path).root):
        if node.type == "decorated_definition":
            if is_jitted(package, path, node):
                found.append(_jitted(path, node))
        elif node.type == "assignment" and (function := _given_to_jit(package, path, node)):
            found.append(_jitted(path, function, source_of(node.named_children[0])))
    return tuple(sorted(found, key=lambda kernel: (kernel.start_line, kernel.name)))


def is_jitted(package: Package, path: str, node: Node) -> bool:
    """Whether a statement is a function under ``@triton.jit``."""
    decorators = (child for child in node.named_children if child.type == "decorator")
    return undecorated(node).type == _DEF and any(
        JIT in (decorator_name(package, path, decorator), _inner_name(decorator))
        for decorator in decorators
    )


def _inner_name(decorator: Node) -> str:
    """Return the full dotted name of a decorator that a function around it imports."""
    head, _, rest = source_of(decorator.named_children[0]).partition("(")[0].partition(".")
    scope = decorator.parent
    while scope is not None:
        if scope.type == _DEF:
            for found in (f for name, f in imports_in(scope) if name == head):
                return ".".join(filter(None, (found.module, found.attr, rest)))
        scope = scope.parent
    return ""


def _given_to_jit(package: Package, path: str, assignment: Node) -> Node | None:
    """Return the definition of ``f`` in a top-level ``name = triton.jit(f)``."""
    call = assignment.child_by_field_name("right")
    left = assignment.child_by_field_name("left")
    if call is None or call.type != "call" or left is None or left.type != "identifier":
        return None
    if dotted_target(package, path, called_name(call)) != JIT:
        return None
    given = [source_of(child) for child in items_at(call, "arguments")]
    for statement in package.file(path).definitions.get(given[0] if given else "", []):
        if statement.node.type == _DEF:
            return statement.node
    return None


def called_name(call: Node) -> str:
    """Return the source of what a call calls."""
    return text_at(call, "function")


def _jitted(path: str, node: Node, name: str | None = None) -> Jitted:
    name = name or text_at(undecorated(node), "name")
    around, outer = [], None
    scope = node.parent
    while scope is not None:
        if scope.type in _SCOPES:
            around.append(text_at(scope, "name"))
            outer = scope if scope.type == _DEF else outer
        scope = scope.parent
    return Jitted(path, name, ".".join([*reversed(around), name]), node, outer)


def definition_of(kernel: Jitted) -> Definition:
    """Return the top-level name by which other code finds a kernel."""
    return Definition(kernel.path, kernel.name)


def statements_of(package: Package, kernel: Jitted) -> list[Statement]:
    """Return the statements that make a kernel: its own, and those that wrap or complete it."""
    bound = package.file(kernel.path).definitions.get(kernel.name, [])
    first, last = kernel.node.start_byte, kernel.node.end_byte
    if any(s.node.start_byte <= first and last <= s.node.end_byte for s in bound):
        return [s for s in bound if s.node == kernel.node or undecorated(s.node).type != _DEF]
    if kernel.symbol == kernel.name:
        return bound
    every = (s for bound in package.file(kernel.path).definitions.values() for s in bound)
    index = max((s.index for s in every if s.node.start_byte <= first), default=0)
    return [Statement(kernel.path, index, kernel.node, frozenset())]
