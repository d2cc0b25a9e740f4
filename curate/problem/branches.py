"""Branches of a program's host functions, and code of it that notes which of them ran.

A branch is a run of statements that are done together or not at all, or one side of a conditional
expression. Kernels have none here: all their lanes take every path.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

COMPOUND = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith),
    *(ast.Try, ast.TryStar, ast.Match),
)
"""Statements after which the next one may not be done: they may leave the function or a loop."""

CONSTRUCTOR = "__init__"

Function = ast.FunctionDef | ast.AsyncFunctionDef

_PARSER = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return a file's syntax tree, as `ast.parse` does.

    CPython keeps one account of the depth for all threads: where one parses while a garbage
    collection holds up another, that one raises `SystemError`
    (https://github.com/python/cpython/issues/106905).
    """
    with _PARSER:
        return ast.parse(source)


@dataclass(frozen=True)
class Branch:
    """One branch; branches are numbered in the order in which `find_branches` returns them.

    Attributes:
        line: of its first statement, 1-based.
        function: number of the branch that its function starts with.
        refuses: whether it does nothing but check or raise.
    """

    line: int
    function: int
    refuses: bool


def find_branches(source: str, reference: str = "") -> dict[int, Branch]:
    """Return the branches of a program's host functions by their numbers; none if all are taken.

    Args:
        source: the program's text.
        reference: the problem's text: functions that are in it in the same words are left out, and
            branches of constructors that its constructors have, too.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
    """
    marker = _Marker("", set(_texts(parse(reference))))
    marker.visit(parse(source))
    found = {n: b for n, b in enumerate(marker.branches) if n not in marker.copied}
    return found if any(n != b.function and not b.refuses for n, b in found.items()) else {}


def compile_noted(source: str, filename: str, note: str) -> CodeType:
    """Compile a program so that it calls a function with the number of each branch that it takes.

    Lines stay where they are, and kernels as they are. A text that is nested too deeply to be
    changed is compiled as it is.

    Args:
        source: the program's text.
        filename: its file, for messages.
        note: name of the function, which must return None.

    Raises:
        SyntaxError, ValueError, MemoryError: as `compile`.
    """
    try:
        tree = ast.parse(source, filename)
        _Marker(note).visit(tree)
        return compile(ast.fix_missing_locations(tree), filename, "exec")
    except RecursionError:
        return compile(source, filename, "exec")


class _Marker(ast.NodeTransformer):
    """Numbers branches, and puts a call into each.

    Attributes:
        branches: by their numbers.
        copied: numbers of those whose text is ``known``.
    """

    def __init__(self, note: str, known: set[str] | frozenset[str] = frozenset()) -> None:
        self.note, self.known = note, known
        self.branches: list[Branch] = []
        self.copied: set[int] = set()
        self._function: int | None = None  # number of the branch that the function at hand is
        self._constructs = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._host_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._host_function(node)

    def _host_function(self, node: Function) -> ast.AST:
        if any(is_jit(decorator) for decorator in node.decorator_list):
            return node
        is_copied = bool(self.known) and ast.dump(node) in self.known
        first, outer = len(self.branches), (self._function, self._constructs)
        self._function, self._constructs = first, node.name == CONSTRUCTOR
        node.body = self._block(node.body)
        self._function, self._constructs = outer
        if is_copied:
            self.copied.update(range(first, len(self.branches)))
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Turn ``a if c else b`` into ``note(1) or a if c else note(2) or b``."""
        if self._function is None:
            return self.generic_visit(node)
        node.test = self.visit(node.test)
        node.body, node.orelse = self._noted(node.body), self._noted(node.orelse)
        return node

    def _noted(self, value: ast.expr) -> ast.expr:
        call = self._call([value], refuses=False)
        return ast.copy_location(ast.BoolOp(ast.Or(), [call, self.visit(value)]), value)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list) and value and self._is_block(node, value):
                setattr(node, name, self._block(value))
            elif isinstance(value, list):
                setattr(node, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
        return node

    def _is_block(self, node: ast.AST, value: list[object]) -> bool:
        is_code = self._function is not None and not isinstance(node, ast.ClassDef)
        return is_code and isinstance(value[0], ast.stmt)

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements with a call in front of each run of them."""
        found: list[ast.stmt] = []
        for run in _runs(statements):
            call = self._call(run, _refuses(run))
            text = 1 if _is_text(run[0]) else 0  # a docstring stays first
            found += run[:text]
            found.append(ast.copy_location(ast.Expr(call), run[0]))
            found += [self.visit(statement) for statement in run[text:]]
        return found

    def _call(self, nodes: Sequence[ast.stmt] | Sequence[ast.expr], refuses: bool) -> ast.expr:
        number = len(self.branches)
        assert self._function is not None
        self.branches.append(Branch(nodes[0].lineno, self._function, refuses))
        if self._constructs and self.known and _text(nodes) in self.known:
            self.copied.add(number)
        return ast.Call(ast.Name(self.note, ast.Load()), [ast.Constant(number)], [])


def _texts(tree: ast.Module) -> Iterator[str]:
    """Yield the functions of a file, and the branches of its constructors, each as one text."""
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        yield ast.dump(function)
        for node in ast.walk(function) if function.name == CONSTRUCTOR else ():
            if isinstance(node, ast.IfExp):
                yield from (_text([node.body]), _text([node.orelse]))
            for value in vars(node).values():
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    yield from map(_text, _runs(value))


def _text(nodes: Sequence[ast.AST]) -> str:
    return " ".join(map(ast.dump, nodes))


def _runs(statements: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield statements up to each compound one, after which the next may not be done."""
    run: list[ast.stmt] = []
    for statement in statements:
        run.append(statement)
        if isinstance(statement, COMPOUND):
            yield run
            run = []
    if run:
        yield run


def is_jit(decorator: ast.expr) -> bool:
    """Whether a decorator makes a kernel: ``@triton.jit``, ``@jit``, ``@triton.jit(do_not_…)``."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    word = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return word == "jit"


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _refuses(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements only check, or end by raising."""
    if statements and isinstance(statements[-1], ast.Raise):
        return True
    return all(
        isinstance(s, ast.Assert | ast.Pass)
        or _is_text(s)
        or (isinstance(s, ast.If) and _refuses(s.body) and _refuses(s.orelse))
        for s in statements
    )
