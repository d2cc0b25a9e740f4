"""Python's syntax trees and tokens: what several folders ask of them, or change in them."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from typing import Any, TypeVar

Node = TypeVar("Node", ast.expr, ast.stmt)


def words(names: str) -> frozenset[str]:
    """Return the names in a text that separates them by blanks."""
    return frozenset(names.split())


def expression(source: str) -> ast.expr:
    """Return the syntax tree of an expression."""
    return ast.parse(source, mode="eval").body


def literal(node: ast.expr | None, default: Any = None) -> Any:
    """Return the value of a literal, ``default`` for anything else."""
    try:
        return default if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return default


def names_in(*nodes: ast.AST) -> Iterator[str]:
    """Yield the names under some nodes, whether read or assigned, once per occurrence."""
    return (name.id for name in _names(nodes))


def loads_in(*nodes: ast.AST) -> Iterator[str]:
    """Yield the names that are read under some nodes, once per occurrence."""
    return (name.id for name in _names(nodes) if isinstance(name.ctx, ast.Load))


def stores_in(*nodes: ast.AST) -> Iterator[str]:
    """Yield the names that are assigned under some nodes, once per occurrence."""
    return (name.id for name in _names(nodes) if isinstance(name.ctx, ast.Store))


def _names(nodes: tuple[ast.AST, ...]) -> Iterator[ast.Name]:
    return (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))


def arguments(function: ast.FunctionDef) -> list[ast.arg]:
    """Return a function's arguments in order, without ``*args`` and ``**kwargs``."""
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def rename(code: str, name: str, new: str) -> str:
    """Return code with an identifier renamed; strings, comments and attributes stay."""
    lines = io.StringIO(code).readlines()
    tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    before = [None, *(token.string for token in tokens)]
    for token, previous in reversed(list(zip(tokens, before, strict=False))):
        if token.type == tokenize.NAME and token.string == name and previous != ".":
            (line, start), end = token.start, token.end[1]
            lines[line - 1] = lines[line - 1][:start] + new + lines[line - 1][end:]
    return "".join(lines)
