"""Check that a program's file stands alone: it compiles, binds every name and imports little."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator

from curate.generator.unprintable import Unprintable

_IMPORTABLE = {"torch", "triton", "numpy"} | sys.stdlib_module_names


def check(text: str) -> None:
    """Raise Unprintable unless ``text`` compiles, binds every name and imports little."""
    try:
        compile(text, "<program>", "exec")
    except SyntaxError as error:
        raise Unprintable(f"syntax error: {error.msg}") from error
    tree = ast.parse(text)
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            if module.split(".")[0] not in _IMPORTABLE:
                raise Unprintable(f"import {module}")
    for name in _unbound(tree):
        raise Unprintable(f"unbound name {name.id}")


def _unbound(tree: ast.Module) -> Iterator[ast.Name]:
    """Yield the names that a file reads and that nothing in it binds, in any scope."""
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not _is_load(n)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {a.asname or a.name.split(".")[0] for n in ast.walk(tree) for a in _aliases(n)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler) and n.name}
    bound |= {*dir(builtins), "__name__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and _is_load(node) and node.id not in bound:
            yield node


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
