"""The form of a program in which names, numbers and operators say nothing.

``exp`` and ``log`` of all elements are one program with another word in it, and so are a sum and a
maximum of two tensors. Such programs have one form: operators of Python and functions that work on
each element are all one function of what they are given but for numbers, and numbers and strings
are all one. Of a program with kernels, what launches them is left out: it differs with the types of
inputs.
"""

from __future__ import annotations

import ast

from curate.clean.forms.canonical import tree_tokens
from curate.clean.forms.syntax import is_jitted

ELEMENTWISE = frozenset(
    {"abs", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "floor", "fma", "log", "log2"}
    | {"maximum", "minimum", "rsqrt", "sigmoid", "sin", "sqrt", "sqrt_rn", "where"}
)
"""Functions of `triton.language` that work on each element."""


def twin_tokens(code: str) -> list[str]:
    """Return the canonical tokens of a program without its names, numbers and operators.

    Raises:
        SyntaxError: the code is not Python.
    """
    tree = ast.parse(code)
    tree.body = [node for node in tree.body if is_jitted(node)] or tree.body
    _Blank().visit(tree)
    return tree_tokens(ast.fix_missing_locations(tree))


class _Blank(ast.NodeTransformer):
    """Puts one operator in the place of all, and one number in the place of all."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        kept = isinstance(node.value, bool | None)
        return node if kept else ast.Constant(0)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self._operator([node.left, node.right])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return self._operator([node.left, *node.comparators])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return self._operator([node.operand])

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        node.op = ast.Add()
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if _is_elementwise(node.func):
            return self._operator(node.args)
        if isinstance(node.func, ast.Name) and node.func.id == "float":
            return ast.Constant(0)
        self.generic_visit(node)
        return node

    def _operator(self, operands: list[ast.expr]) -> ast.expr:
        """Return the one operator's call, or a number where all operands are numbers."""
        read = [self.visit(operand) for operand in operands]
        read = [operand for operand in read if not isinstance(operand, ast.Constant)]
        if not read:
            return ast.Constant(0)
        return ast.Call(ast.Name("operator", ast.Load()), read, [])


def _is_elementwise(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    return function.value.id == "libdevice" or function.attr in ELEMENTWISE
