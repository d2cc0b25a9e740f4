"""The parts of a program, and a hash of each that says what it is and not what it is called.

A part is a piece of a program that says something by itself: a kernel, a kernel with the jitted
helpers that it calls, a class, a function, the whole program. Two parts have one hash when they
differ only in names, comments, docstrings, formatting, annotations, the decorators of functions
and the way that libraries are imported (`curate.clean.forms.canonical` says what renaming is).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from curate.clean.forms.canonical import tokens_sha256, tree_tokens
from curate.clean.forms.syntax import is_jitted, is_string, walk

MIN_NODES = 40
"""Nodes of its syntax tree (annotations, decorators and docstrings left out) that a part needs.

Chosen by looking at matches in packages and generated pairs: those of 10 to 30 nodes are rounding
helpers and modules with one operator, which everybody writes; those of 50 or more are copies. The
smallest whole program of KernelBench has 43."""

INPUT_FUNCTIONS = frozenset({"get_inputs", "get_init_inputs"})
"""Functions of KernelBench's form that give shapes only; unrelated problems share them."""

Kind = Literal["program", "class", "kernel", "kernel_and_helpers", "function"]

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Body = list[ast.stmt]


@dataclass(frozen=True)
class Part:
    """A part of a program.

    Attributes:
        kind: what it is.
        name: its name in the program; empty for the program itself.
        lines: its first and last line, 1-based.
        nodes: the size of its syntax tree.
        ast: 20 hex digits, the hash of its structure.
        body: its statements, in plain form.
    """

    kind: Kind
    name: str
    lines: tuple[int, int]
    nodes: int
    ast: str
    body: _Body = field(repr=False, compare=False)


class PlainProgram:
    """A program in plain form: without what a copy may lack, library names in full.

    Attributes:
        body: its statements.
        libraries: the first parts of the names of the modules that it imports.
        bound: the names that it binds, wherever that is, but for special ones.
        attributes: the attributes that it sets, and its methods, but for special ones.
    """

    def __init__(self, code: str) -> None:
        """Read a program.

        Raises:
            SyntaxError, ValueError, RecursionError: it is not Python, or nested too deep.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes and the like
            tree = ast.parse(code)
        self._line_count = code.count("\n") + 1
        self._defined = {node.name: node for node in _definitions(tree.body)}
        self._jitted = {name: node for name, node in self._defined.items() if is_jitted(node)}
        self.libraries = _libraries(tree)
        self.body: list[ast.stmt] = _Plain(_imported(tree)).visit(tree).body
        definitions = list(_definitions(self.body))
        self._global = _bound_globally(self.body, definitions)
        self.bound = {name for name in bound_in(self.body) if not name.startswith("__")}
        self.attributes = _attributes_in(self.body)
        for node in definitions:
            if not isinstance(node, ast.ClassDef):
                node.decorator_list = []

    def parts(self, min_nodes: int = MIN_NODES) -> Iterator[Part]:
        """Yield the parts that have ``min_nodes`` nodes or more, the program itself first."""
        for kind, name, body in self._bodies():
            if (nodes := _count_nodes(body)) >= min_nodes:
                lines = (1, self._line_count) if kind == "program" else _lines(body[0])
                yield Part(kind, name, lines, nodes, self._hash(body), body)

    def _bodies(self) -> Iterator[tuple[Kind, str, list[ast.stmt]]]:
        yield "program", "", self.body
        for name, node in self._defined.items():
            if isinstance(node, ast.ClassDef):
                yield "class", name, [node]
            elif name not in INPUT_FUNCTIONS:
                yield "kernel" if name in self._jitted else "function", name, [node]
            if name in self._jitted and len(reached := _reached(node, self._jitted)) > 1:
                yield "kernel_and_helpers", name, reached

    def _hash(self, body: list[ast.stmt]) -> str:
        """Return the hash of a part; names that the rest of the program binds count as bound."""
        free = [name for name in _free_names(body) if name in self._global]
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in free]
        bound = [ast.Assign(targets, ast.Constant(None))] if free else []
        return tokens_sha256(tree_tokens(ast.Module([*body, *bound], [])))[:20]


def _bound_globally(body: list[ast.stmt], definitions: list[_Definition]) -> set[str]:
    """Return the names that a program binds outside its functions and classes."""
    inside = {id(n) for statement in definitions for n in walk(statement)}
    stored = (n for s in body for n in walk(s) if isinstance(n, ast.Name))
    names = {n.id for n in stored if isinstance(n.ctx, ast.Store) and id(n) not in inside}
    return names | {node.name for node in definitions}


def _lines(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _definitions(body: Iterable[ast.stmt]) -> Iterator[_Definition]:
    """Yield the functions and classes of a module, also those defined under a condition."""
    for node in body:
        if isinstance(node, _Definition):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(
                n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)
            )


def _reached(kernel: ast.stmt, jitted: dict[str, _Definition]) -> list[ast.stmt]:
    """Return a kernel and the jitted functions that it calls, in the order of first use."""
    found: dict[str, ast.stmt] = {}
    pending = [kernel]
    while pending:
        node = pending.pop(0)
        for name in (n.id for n in walk(node) if isinstance(n, ast.Name)):
            if name in jitted and name not in found and jitted[name] is not kernel:
                found[name] = jitted[name]
                pending.append(jitted[name])
    return [kernel, *found.values()]


def _count_nodes(body: list[ast.stmt]) -> int:
    return sum(
        1 + ("op" in node._fields) + len(getattr(node, "ops", ()))  # `walk` leaves operators out
        for statement in body
        for node in walk(statement)
        if not isinstance(node, (ast.Import, ast.ImportFrom, ast.alias))
    )


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the dotted path behind each name that a program imports."""
    paths: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.Import):
            paths |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            prefix = f"{node.module}." if node.module else ""
            paths |= {alias.asname or alias.name: prefix + alias.name for alias in node.names}
    return paths


def _libraries(tree: ast.Module) -> set[str]:
    """Return the packages that a program imports from."""
    found = set()
    for node in walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


class _Plain(ast.NodeTransformer):
    """Takes away what a copy may lose and stay a copy, and writes imported names in full."""

    def __init__(self, imported: dict[str, str]) -> None:
        self.imported = imported

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id not in self.imported:
            return node
        first, *rest = self.imported[node.id].split(".")
        path: ast.expr = ast.Name(first, ast.Load())
        for name in rest:
            path = ast.Attribute(path, name, ast.Load())
        return path

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        outer = self.imported
        local = bound_in([node])
        self.imported = {name: path for name, path in outer.items() if name not in local}
        self._visit_body(node)
        self.imported = outer
        return node

    def _visit_body(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node, _Definition | ast.Module):
            node.body = [n for n in node.body if not is_string(n)] or [ast.Pass()]
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function
    visit_ClassDef = visit_Module = _visit_body

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []  # super(Model, self) and super() are the same
        return node


def _attributes_in(body: list[ast.stmt]) -> set[str]:
    """Return the attributes that statements set, and the methods that they define."""
    found = set()
    for node in (n for statement in body for n in walk(statement)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            found |= {item.name for item in node.body if isinstance(item, _Definition)}
    return {name for name in found if not name.startswith("__")}


def _free_names(body: list[ast.stmt]) -> list[str]:
    """Return the names that a part reads and binds nowhere, in the order of first use."""
    names = (n.id for s in body for n in walk(s) if isinstance(n, ast.Name))
    bound = bound_in(body)
    return [name for name in dict.fromkeys(names) if name not in bound]


def bound_in(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names of arguments, variables, functions and classes in some statements."""
    bound = set()
    for node in (n for statement in body for n in walk(statement)):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, _Definition):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
    return bound
