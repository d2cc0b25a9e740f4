"""The ``normalize`` step: one form for line ends, trailing spaces and the end of the file.

Nothing that Python reads as a value or as structure changes: indentation and spaces inside a line
stay as they are, and so do lines that end inside a string. Unicode is left alone as well: Python
itself compares identifiers in form NFKC (PEP 3131), and in a string another form is another value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal, cast

import tree_sitter_python
from tree_sitter import Language, Node, Parser

from curate.rows import Row, select
from curate.step import Context, Keep, Outcome, RowStep

COLUMNS = ("text", "reference", "triton", "host_function")
"""Columns that hold code."""


class Normalize(RowStep):
    """Gives code ``\\n`` line ends, no trailing spaces, no byte order mark, one final newline."""

    version: ClassVar[int] = 2
    takes: ClassVar[frozenset[str]] = frozenset({"file", "module", "task", "pair", "kernel"})
    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-python")
    batch: ClassVar[int] = 64

    step: Literal["normalize"]

    def apply(self, row: Row, context: Context) -> Outcome:
        code = select(row, COLUMNS)
        changed = {name: normalize(text) for name, text in code.items() if text is not None}
        return Keep((cast(Row, row | changed),))


@lru_cache
def python_parser() -> Parser:
    """Return tree-sitter's parser for Python."""
    return Parser(Language(tree_sitter_python.language()))


def normalize(code: str) -> str:
    """Return ``code`` in normal form; normalising twice changes nothing more.

    Line ends inside a string become ``\\n`` too, because Python reads them so; trailing spaces
    there are part of the value and stay.
    """
    code = code.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    inside = _lines_ending_in_strings(code)
    lines = code.split("\n")
    lines = [line if i in inside else line.rstrip(" \t") for i, line in enumerate(lines)]
    return _without_last_continuation("\n".join(lines).rstrip("\n")) + "\n"


def _without_last_continuation(code: str) -> str:
    """Take away a backslash that joins the last line to a blank one, which is gone by now."""
    while code.endswith("\\"):
        root = python_parser().parse(code.encode()).root_node
        last = root.descendant_for_byte_range(root.end_byte - 1, root.end_byte)
        if last and last.type in ("comment", "string_content", "escape_sequence"):
            break
        code = code[:-1].rstrip()
    return code


def _lines_ending_in_strings(code: str) -> set[int]:
    """Return the 0-based numbers of lines whose end lies inside a string."""
    lines: set[int] = set()
    pending: list[Node] = [python_parser().parse(code.encode()).root_node]
    while pending:
        node = pending.pop()
        if node.type == "string":
            lines.update(range(node.start_point.row, node.end_point.row))
        else:
            pending.extend(node.children)
    return lines
