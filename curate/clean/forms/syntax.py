"""What a syntax tree says of a program: its nodes, the names that they bind, hints left out."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

BINDS: dict[type[ast.AST], str] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), "name"),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar), "name"),
    ast.MatchMapping: "rest",
}
"""The field in which a node names what it binds, where that is not a `Name` node."""

_SILENT = frozenset(
    {"ctx", "type_comment", "kind", "annotation", "simple", "returns", "type_params"}
)
"""Fields that change nothing of what a program does: most are hints of types."""

FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _SILENT)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
"""The fields of each type of node that say something of the program."""

_BELOW = {
    kind: tuple(name for name in fields if name not in ("op", "ops", "id", "attr", "arg"))
    for kind, fields in FIELDS.items()
} | {ast.Constant: ()}
"""The fields that may hold other nodes than operators."""


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes right below a node, operators left out, in the order of their fields."""
    found: list[ast.AST] = []
    for name in _BELOW[type(node)]:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [item for item in value if isinstance(item, ast.AST)]
    return found


def walk(root: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, operators left out, in the order of `ast.walk`."""
    nodes = [root]
    for node in nodes:  # which grows meanwhile
        nodes += children(node)
    return nodes


def by_type(root: ast.AST) -> dict[type[ast.AST], list[Any]]:
    """Return a node and all below it, by type and each in the order of `walk`."""
    found: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in walk(root):
        found[type(node)].append(node)
    return found


def parameters(function: Function) -> list[tuple[str, str]]:
    """Return a function's arguments in order, each with the kind of place that it stands in."""
    arguments = function.args
    found = [("positional_only", a.arg) for a in arguments.posonlyargs]
    found += [("argument", a.arg) for a in arguments.args]
    found += [("rest", a.arg) for a in [arguments.vararg] if a]
    found += [("keyword_only", a.arg) for a in arguments.kwonlyargs]
    found += [("keywords", a.arg) for a in [arguments.kwarg] if a]
    return found


def is_name(node: ast.expr, name: str) -> bool:
    """Say whether an expression is a certain name."""
    return isinstance(node, ast.Name) and node.id == name


def is_string(node: ast.AST) -> bool:
    """Say whether a statement is only a string, as a docstring is."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_jitted(node: ast.AST) -> bool:
    """Say whether a decorator of a function is ``jit`` by name, whatever it was imported as."""
    names = (n for decorator in getattr(node, "decorator_list", ()) for n in walk(decorator))
    return not isinstance(node, ast.ClassDef) and any(
        (isinstance(n, ast.Attribute) and n.attr == "jit")
        or (isinstance(n, ast.Name) and n.id.endswith("jit"))
        for n in names
    )
