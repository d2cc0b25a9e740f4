"""Print syntax trees as a formatter would: double quotes, long lines broken at brackets."""

from __future__ import annotations

import ast
import re

WIDTH = 88
_SINGLE_QUOTED = re.compile(r"'([^'\"\\]*)'")


def text(node: ast.AST) -> str:
    """Return ``node`` as one line (for an expression), with double-quoted strings."""
    return _SINGLE_QUOTED.sub(r'"\1"', ast.unparse(node))


def statement(node: ast.stmt, indent: int) -> list[str]:
    """Return the lines of one statement, indented by ``indent`` spaces and at most WIDTH wide."""
    pad = " " * indent
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = text(node.targets[0])
        if isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) > 1:
            target = target[1:-1]
        return _expression(node.value, indent, f"{target} = ", "")
    if isinstance(node, ast.Expr):
        return _expression(node.value, indent, "", "")
    if isinstance(node, ast.Return) and node.value is not None:
        return _expression(node.value, indent, "return ", "")
    if isinstance(node, ast.For):
        head = f"{pad}for {text(node.target)} in {text(node.iter)}:"
        return [head, *body(node.body, indent + 4)]
    if isinstance(node, ast.If | ast.While):
        word = "if" if isinstance(node, ast.If) else "while"
        lines = [f"{pad}{word} {text(node.test)}:", *body(node.body, indent + 4)]
        if node.orelse:
            lines += [f"{pad}else:", *body(node.orelse, indent + 4)]
        return lines
    return [pad + line for line in text(node).splitlines()]


def body(nodes: list[ast.stmt], indent: int) -> list[str]:
    """Return the lines of a block."""
    return [line for node in nodes for line in statement(node, indent)]


def _expression(node: ast.expr, indent: int, prefix: str, suffix: str) -> list[str]:
    """Return ``prefix node suffix``, broken inside the outermost brackets if it is too long."""
    pad = " " * indent
    line = f"{pad}{prefix}{text(node)}{suffix}"
    if len(line) <= WIDTH:
        return [line]
    if isinstance(node, ast.Subscript):
        index = text(ast.Subscript(ast.Name("_", ast.Load()), node.slice, ast.Load()))
        return _expression(node.value, indent, prefix, index.removeprefix("_") + suffix)
    if isinstance(node, ast.Call):
        return _call(node, indent, prefix, suffix)
    if isinstance(node, ast.Tuple | ast.List) and node.elts:
        opening, closing = ("(", ")") if isinstance(node, ast.Tuple) else ("[", "]")
        items = [line for item in node.elts for line in _expression(item, indent + 4, "", ",")]
        return [f"{pad}{prefix}{opening}", *items, f"{pad}{closing}{suffix}"]
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
        return _operators(node, indent, prefix, suffix)
    return [line]


def _call(node: ast.Call, indent: int, prefix: str, suffix: str) -> list[str]:
    pad = " " * indent
    arguments = [("", item) for item in node.args]
    arguments += [(f"{item.arg}=" if item.arg else "**", item.value) for item in node.keywords]
    short = ", ".join(name + text(value) for name, value in arguments)
    if isinstance(node.func, ast.Attribute) and len(short) < 20 and "(" in text(node.func):
        return _expression(node.func.value, indent, prefix, f".{node.func.attr}({short}){suffix}")
    opening = f"{pad}{prefix}{text(node.func)}("
    if len(pad) + 4 + len(short) <= WIDTH:
        return [opening, f"{pad}    {short}", f"{pad}){suffix}"]
    lines = [
        line for name, value in arguments for line in _expression(value, indent + 4, name, ",")
    ]
    return [opening, *lines, f"{pad}){suffix}"]


def _operators(node: ast.BinOp, indent: int, prefix: str, suffix: str) -> list[str]:
    """Break a chain of operators of one precedence before each operator."""
    pad = " " * indent
    chain: list[str] = []
    left: ast.expr = node
    level = _precedence(node.op)
    innermost = node.op
    while isinstance(left, ast.BinOp) and _precedence(left.op) == level:
        probe = ast.BinOp(ast.Name("_", ast.Load()), left.op, left.right)
        chain.append(text(probe).removeprefix("_ "))
        innermost = left.op
        left = left.left
    symbol = chain[-1].split(" ", 1)[0]
    probe = ast.BinOp(left, innermost, ast.Name("_", ast.Load()))
    chain.append(text(probe).removesuffix(f" {symbol} _"))
    inner = [f"{pad}    {part}" for part in reversed(chain)]
    return [f"{pad}{prefix}(", *inner, f"{pad}){suffix}"]


def _precedence(op: ast.operator) -> int:
    order: list[tuple[type[ast.operator], ...]] = [
        (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
        (ast.Add, ast.Sub),
        (ast.LShift, ast.RShift),
        (ast.BitAnd,),
        (ast.BitXor,),
        (ast.BitOr,),
    ]
    return next((i for i, group in enumerate(order) if isinstance(op, group)), -1)
