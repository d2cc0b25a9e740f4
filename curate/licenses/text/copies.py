"""Classes that are copied from well-known code under licenses that ask for more than a notice.

A file may carry a header of its own over classes that somebody took from a project under the GPL;
no text in it or around it tells. ``copies.tsv`` has the digests of such classes: of the projects'
own ones, in several releases, and of `LEAST` nodes of the syntax tree or more, so that nobody
writes the same by chance. No code of theirs is in it. `benchmarks/license_copies.py` makes it.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("copies.tsv")
LEAST = 90
"""Nodes of a class's tree below which two people may well write the same."""


@dataclass(frozen=True)
class Original:
    """Where a class comes from.

    Attributes:
        name: of the class.
        origin: address of the project.
        expression: its license, as an SPDX expression.
    """

    name: str
    origin: str
    expression: str


def originals(text: str) -> list[Original]:
    """Return what the classes of a file are copies of, in the order of the file.

    Comments, docstrings and layout do not count; names do. A text that is not Python has none.
    """
    if not any(f"class {name}" in text for name in _names()):
        return []
    return [known for digest, _ in class_digests(text) if (known := _table().get(digest))]


def class_digests(text: str) -> Iterator[tuple[str, str]]:
    """Yield digest and name of each large enough class of a module; none if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes and the like
        try:
            classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
            large = [node for node in classes if sum(1 for _ in ast.walk(node)) >= LEAST]
            yield from [(_digest(node), node.name) for node in large]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # not Python, or too deep for it


def _digest(node: ast.ClassDef) -> str:
    for block in ast.walk(node):
        if isinstance(block, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(block, False):
            block.body = block.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(node).encode()).hexdigest()[:16]


@cache
def _table() -> dict[str, Original]:
    lines = (line.split("\t") for line in TABLE.read_text("utf-8").splitlines())
    return {digest: Original(name, origin, license) for digest, name, origin, license in lines}


@cache
def _names() -> frozenset[str]:
    return frozenset(original.name for original in _table().values())
