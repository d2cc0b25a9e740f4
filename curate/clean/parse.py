"""The ``parse`` step: code must be Python."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal

from tree_sitter import Node

from curate.clean.normalize import COLUMNS, python_parser
from curate.rows import Row, select
from curate.step import Context, Drop, Keep, Outcome, RowStep


class Parse(RowStep):
    """Drops rows whose code does not parse, by tree-sitter and by Python's own compiler."""

    takes: ClassVar[frozenset[str]] = frozenset({"file", "module", "task", "pair", "kernel"})
    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-python")
    batch: ClassVar[int] = 64

    step: Literal["parse"]

    def apply(self, row: Row, context: Context) -> Outcome:
        for column, code in select(row, COLUMNS).items():
            if code is not None and (error := find_syntax_error(code)):
                return Drop("syntax_error", {"column": column, **error})
        return Keep((row,))


def find_syntax_error(code: str) -> dict[str, Any] | None:
    """Return the first error's 1-based ``line`` and ``message``, or None for valid Python.

    Python's compiler knows more (``return`` outside a function), and tree-sitter, which later
    steps read the tree from, must have found no error either.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes and the like
            compile(code, "<row>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return {"line": error.lineno, "message": error.msg}
    except (ValueError, RecursionError, MemoryError) as error:
        # Null bytes; expressions nested deeper than the compiler's stack.
        return {"line": None, "message": f"{type(error).__name__}: {error}"}
    root = python_parser().parse(code.encode()).root_node
    if not root.has_error:
        return None
    node = _first_error(root)
    what = "missing " + node.type if node.is_missing else "unexpected text"
    return {"line": node.start_point.row + 1, "message": f"tree-sitter: {what}"}


def _first_error(node: Node) -> Node:
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error)
    return node
