"""Along which axes of its kernels' grids a program's text computes how many programs there are.

The others hold a number, as in ``(1, n_rows)``, or are left out: no sizes of inputs change them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from curate.problem.branches import Function, is_jit, parse

Axes = frozenset[int]
"""Axes that are computed, of an expression that is a grid; of a number, 0 if it is computed."""

COMPUTED, FIXED = Axes({0}), Axes()
"""Of numbers, and of grids of which the text does not say how many axes they have."""


class Grids:
    """The launches of a program's text."""

    def __init__(self, source: str) -> None:
        """Read a text.

        Raises:
            SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
        """
        tree = parse(source)
        functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
        self._kernels = {f.name for f in functions if any(map(is_jit, f.decorator_list))}
        self._found: dict[str, Axes] = {}
        self._others = FIXED  # of launches whose kernel only a variable names
        self._read(tree.body, {})

    def computed(self, kernel: str) -> Axes:
        """Return the axes of a kernel's grid that the text computes."""
        return self._found.get(kernel, self._others)

    def _read(self, statements: list[ast.stmt], known: dict[str, Axes]) -> None:
        """Read statements in order."""
        for statement in statements:
            if isinstance(statement, Function):
                self._read_function(statement, known)
                continue
            for expression in _expressions(statement):
                self._note_launches(expression, known)
            known.update(dict.fromkeys(_assigned(statement), COMPUTED))
            match statement:
                case ast.Assign(targets=[ast.Name(name)], value=value):
                    known[name] = _axes(value, known)
                case ast.Assign(targets=[ast.Tuple(names)], value=ast.Tuple(values)) if len(
                    names
                ) == len(values):
                    pairs = zip(names, [_axes(value, known) for value in values], strict=True)
                    known.update({n.id: axes for n, axes in pairs if isinstance(n, ast.Name)})
                case ast.If(body=body, orelse=orelse):
                    self._read_ways([body, orelse], known)
                case _:
                    self._read_ways([*_blocks(statement), []], known)

    def _read_ways(self, blocks: list[list[ast.stmt]], known: dict[str, Axes]) -> None:
        """Read blocks of which one is done."""
        after = [dict(known) for _ in blocks]
        for block, names in zip(blocks, after, strict=True):
            self._read(block, names)
        for name in {name for names in after for name in names}:
            known[name] = FIXED.union(*(names[name] for names in after if name in names))

    def _read_function(self, function: Function, known: dict[str, Axes]) -> None:
        parameters = (node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg))
        inner = {**known, **dict.fromkeys(parameters, COMPUTED)}
        self._read(function.body, inner)
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        # A grid may be a function: ``def grid(meta): return (triton.cdiv(n, meta["BLOCK"]),)``.
        known[function.name] = FIXED.union(*(_axes(v, inner) for v in returned if v))

    def _note_launches(self, expression: ast.expr, known: dict[str, Axes]) -> None:
        """Take note of ``kernel[grid]``, and of ``other[grid](...)`` for any other name."""
        called = {id(node.func) for node in ast.walk(expression) if isinstance(node, ast.Call)}
        for node in ast.walk(expression):
            if not isinstance(node, ast.Subscript):
                continue
            name = getattr(node.value, "id", getattr(node.value, "attr", ""))
            axes = _axes(node.slice, known)
            if name in self._kernels:
                self._found[name] = self._found.get(name, FIXED) | axes
            elif id(node) in called:
                self._others |= axes


def _axes(value: ast.expr, known: dict[str, Axes]) -> Axes:
    match value:
        case ast.Constant():
            return FIXED
        case ast.Tuple(elts) | ast.List(elts):
            return Axes(axis for axis, size in enumerate(elts) if _axes(size, known))
        case ast.Name(name):
            return known.get(name, COMPUTED)
        case ast.Lambda(body=body):
            return _axes(body, known)
        case ast.IfExp(body=one, orelse=other):
            return _axes(one, known) | _axes(other, known)
    return COMPUTED


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield a statement's own expressions, without those of its blocks."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.withitem):
            yield from filter(None, (child.context_expr, child.optional_vars))
        elif isinstance(child, ast.expr):
            yield child


def _assigned(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns, without those in its blocks."""
    for expression in _expressions(statement):
        for node in ast.walk(expression):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a compound statement."""
    for node in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for value in vars(node).values():
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value
