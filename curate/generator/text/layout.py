"""Print syntax trees as a formatter would: double quotes, long lines broken at brackets."""

from __future__ import annotations

import ast
import re

Block = list[ast.stmt]

WIDTH = 100
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"' r"|'([^'\"\\]*)'")


def comment(statement: ast.stmt) -> str:
    """Return what a comment says: syntax trees have none, but strings. Nothing of what is none."""
    told = statement.value if isinstance(statement, ast.Expr) else None
    said = told.value if isinstance(told, ast.Constant) else None
    return said if isinstance(said, str) and said.startswith("# ") else ""


def blocks(function: ast.FunctionDef) -> list[Block]:
    """Return a kernel's blocks: its own, and those of its loops and branches."""
    inner = (node.body for node in ast.walk(function) if isinstance(node, ast.For | ast.If))
    return [function.body, *inner]


def text(node: ast.AST) -> str:
    """Return ``node`` as one line (for an expression), with double-quoted strings."""
    return _QUOTED.sub(
        lambda found: found[0] if found[1] is None else f'"{found[1]}"', ast.unparse(node)
    )


def statement(node: ast.stmt, indent: int) -> list[str]:
    """Return the lines of one statement, indented by ``indent`` spaces and at most WIDTH wide."""
    pad = " " * indent
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = text(node.targets[0])
        if isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) > 1:
            target = target[1:-1]
        return expression(node.value, indent, f"{target} = ", "")
    if isinstance(node, ast.AugAssign):
        head = text(ast.AugAssign(node.target, node.op, ast.Name("_", ast.Load())))
        return expression(node.value, indent, head.removesuffix("_"), "")
    if isinstance(node, ast.Assert):
        return _assertion(node, indent)
    if isinstance(node, ast.Expr):
        if told := comment(node):
            return [pad + told]
        return expression(node.value, indent, "", "")
    if isinstance(node, ast.Return) and node.value is not None:
        line = f"{pad}return {text(node.value)}"
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1 and len(line) <= WIDTH:
            return [f"{pad}return {', '.join(map(text, node.value.elts))}"]
        return expression(node.value, indent, "return ", "")
    if isinstance(node, ast.For):
        head = f"{pad}for {text(node.target)} in {text(node.iter)}:"
        return [head, *body(node.body, indent + 4)]
    if isinstance(node, ast.If):
        lines = [f"{pad}if {text(node.test)}:", *body(node.body, indent + 4)]
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            first, *rest = statement(node.orelse[0], indent)
            lines += [f"{pad}el{first.lstrip()}", *rest]
        elif node.orelse:
            lines += [f"{pad}else:", *body(node.orelse, indent + 4)]
        return lines
    return [pad + line for line in text(node).splitlines()]


def body(nodes: list[ast.stmt], indent: int) -> list[str]:
    """Return the lines of a block."""
    return [line for node in nodes for line in statement(node, indent)]


def _assertion(node: ast.Assert, indent: int) -> list[str]:
    """Return an assertion, broken at its message, or within what it compares."""
    pad, test = " " * indent, text(node.test)
    message = f", {text(node.msg)}" if node.msg else ""
    if len(f"{pad}assert {test}{message}") <= WIDTH:
        return [f"{pad}assert {test}{message}"]
    if node.msg and len(f"{pad}assert {test}, (") <= WIDTH:
        return [f"{pad}assert {test}, (", f"{pad}    {text(node.msg)}", f"{pad})"]
    if isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
        (right,), blank = node.test.comparators, ast.Name("_", ast.Load())
        sign = text(ast.Compare(blank, node.test.ops, [blank]))[1:-1]
        head = f"assert {text(node.test.left)}{sign}"
        if isinstance(right, ast.Tuple):
            return expression(right, indent, head, message)
        left = expression(node.test.left, indent, "assert ", f"{sign}{text(right)}{message}")
        if isinstance(node.test.left, ast.BinOp | ast.Call):
            return left
    return [f"{pad}assert {test}{message}"]


def expression(node: ast.expr, indent: int, prefix: str, suffix: str) -> list[str]:
    """Return ``prefix node suffix``, broken inside the outermost brackets if it is too long."""
    pad = " " * indent
    line = f"{pad}{prefix}{text(node)}{suffix}"
    if len(line) <= WIDTH:
        return [line]
    if isinstance(node, ast.Subscript):
        index = text(ast.Subscript(ast.Name("_", ast.Load()), node.slice, ast.Load()))
        return _primary(node.value, indent, prefix, index.removeprefix("_") + suffix)
    if isinstance(node, ast.Call):
        return _call(node, indent, prefix, suffix)
    if isinstance(node, ast.Tuple | ast.List) and node.elts:
        opening, closing = ("(", ")") if isinstance(node, ast.Tuple) else ("[", "]")
        items = [line for item in node.elts for line in expression(item, indent + 4, "", ",")]
        return [f"{pad}{prefix}{opening}", *items, f"{pad}{closing}{suffix}"]
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
        return _operators(node, indent, prefix, suffix)
    if isinstance(node, ast.Lambda):
        head = text(node).removesuffix(text(node.body))
        return expression(node.body, indent, f"{prefix}{head}", suffix)
    return [line]


def _primary(node: ast.expr, indent: int, prefix: str, suffix: str) -> list[str]:
    """Return ``node suffix`` where the suffix binds to all of ``node``: an index, a method call."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow):
        return _operators(node, indent, prefix, suffix)  # which brackets it
    if isinstance(node, ast.Call | ast.Subscript):
        return expression(node, indent, prefix, suffix)
    whole = text(ast.Attribute(node, "_", ast.Load())).removesuffix("._")
    return [f"{' ' * indent}{prefix}{whole}{suffix}"]


def _call(node: ast.Call, indent: int, prefix: str, suffix: str) -> list[str]:
    pad = " " * indent
    arguments = [("", item) for item in node.args]
    arguments += [(f"{item.arg}=" if item.arg else "**", item.value) for item in node.keywords]
    short = ", ".join(name + text(value) for name, value in arguments)
    if isinstance(node.func, ast.Attribute) and len(short) < 20 and "(" in text(node.func):
        return _primary(node.func.value, indent, prefix, f".{node.func.attr}({short}){suffix}")
    opening = f"{pad}{prefix}{text(node.func)}("
    if len(pad) + 4 + len(short) <= WIDTH:
        return [opening, f"{pad}    {short}", f"{pad}){suffix}"]
    lines = [line for name, value in arguments for line in expression(value, indent + 4, name, ",")]
    return [opening, *lines, f"{pad}){suffix}"]


def _operators(node: ast.BinOp, indent: int, prefix: str, suffix: str) -> list[str]:
    """Break a chain of operators of one precedence before each operator."""
    pad = " " * indent
    level = _precedence(node.op)
    chain: list[tuple[ast.operator, ast.expr]] = []
    first: ast.expr = node
    while isinstance(first, ast.BinOp) and _precedence(first.op) == level:
        chain.append((first.op, first.right))
        first = first.left
    blank = ast.Name("_", ast.Load())
    symbol = text(ast.BinOp(blank, chain[-1][0], blank)).split()[1]
    start = text(ast.BinOp(first, chain[-1][0], blank)).removesuffix(f" {symbol} _")
    lines = _operand(first, start, indent + 4, "")
    for op, right in reversed(chain):
        symbol, whole = text(ast.BinOp(blank, op, right)).removeprefix("_ ").split(" ", 1)
        lines += _operand(right, whole, indent + 4, f"{symbol} ")
    return [f"{pad}{prefix}(", *lines, f"{pad}){suffix}"]


def _operand(node: ast.expr, whole: str, indent: int, prefix: str) -> list[str]:
    """Return the lines of an operand that reads ``whole`` on one line, brackets included."""
    line = f"{' ' * indent}{prefix}{whole}"
    if len(line) <= WIDTH:
        return [line]
    if whole == text(node):
        return expression(node, indent, prefix, "")
    bracketed = isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Pow)
    return _operators(node, indent, prefix, "") if bracketed else [line]  # type: ignore[arg-type]


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
