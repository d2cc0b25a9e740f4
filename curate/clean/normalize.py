"""The ``normalize`` step: one form for line ends, trailing spaces and the end of the file.

Nothing that Python reads as a value or as structure changes: indentation and spaces inside a line
stay as they are, and so do lines that end inside a string. Unicode is left alone as well: Python
itself compares identifiers in form NFKC (PEP 3131), and in a string another form is another value.

Code that reads otherwise than it runs has no such form, and is dropped: controls of bidirectional
text show a comment as code, or the end of a string elsewhere ("Trojan Source", CVE-2021-42574).
Python allows them in comments and strings only, which is where such attacks put them, so it makes
no difference where they stand. A string that needs one can hold its escape, ``"\\u202e"``. Marks of
direction (U+200E, U+200F, U+061C) stay: texts in Hebrew and Arabic have them, and they move nothing
but what stands next to them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar, Literal, cast

import tree_sitter_python
from tree_sitter import Language, Node, Parser

from curate.rows import Row, select
from curate.step import Context, Drop, Keep, Outcome, RowStep

COLUMNS = ("text", "reference", "triton", "host_function")
"""Columns that hold code."""

BIDI_CONTROLS = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
"""Embeddings, overrides and isolates of the Unicode Bidirectional Algorithm, and their ends."""


class Normalize(RowStep):
    """Gives code ``\\n`` line ends, no trailing spaces, no byte order mark, one final newline.
    Drops code with controls of bidirectional text: it reads otherwise than it runs.
    """

    version: ClassVar[int] = 3
    takes: ClassVar[frozenset[str]] = frozenset({"file", "module", "task", "pair", "kernel"})
    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-python")
    batch: ClassVar[int] = 64

    step: Literal["normalize"]

    def apply(self, row: Row, context: Context) -> Outcome:
        code = {name: text for name, text in select(row, COLUMNS).items() if text is not None}
        for column, text in code.items():
            if found := BIDI_CONTROLS.search(text):
                line = text.count("\n", 0, found.start()) + 1
                evidence = {"column": column, "line": line, "character": f"U+{ord(found[0]):04X}"}
                return Drop("bidi_controls", evidence)
        changed = {name: normalize(text) for name, text in code.items()}
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
