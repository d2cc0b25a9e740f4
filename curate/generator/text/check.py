"""Check that a program's file stands alone: it compiles, binds every name and imports little."""

from __future__ import annotations

import ast
import builtins
import sys

from curate.generator.unprintable import Unprintable
from curate.syntax import loads_in, stores_in

_IMPORTABLE = {"torch", "triton", "numpy", "typing_extensions"} | sys.stdlib_module_names


def check(text: str) -> None:
    """Raise Unprintable unless ``text`` compiles, binds every name and imports little."""
    try:
        compile(text, "<program>", "exec")
    except SyntaxError as error:
        raise Unprintable(f"syntax error: {error.msg}") from error
    tree = ast.parse(text)
    bound = {*stores_in(tree), *dir(builtins), "__name__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            for module in names if isinstance(node, ast.Import) else [node.module or ""]:
                if module.split(".")[0] not in _IMPORTABLE:
                    raise Unprintable(f"import {module}")
            bound |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            bound.add(node.name)
    for name in loads_in(tree):
        if name not in bound:
            raise Unprintable(f"unbound name {name}")
