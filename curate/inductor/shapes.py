"""Sizes and strides as expressions: are they dense, and which view leads from one to another?

Expressions are compared by their values at two points where every symbol has a large number of its
own. For the sums and products that Inductor writes, equal values mean equal expressions.
"""

from __future__ import annotations

import ast
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from curate.generator.text.layout import text
from curate.syntax import expression

Point = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Sizes and strides of a tensor, in elements, as expressions over size variables."""

    size: tuple[ast.expr, ...]
    stride: tuple[ast.expr, ...]
    dtype: str = ""

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie densely in row-major order; dimensions of size 1 do not count."""
        return is_dense(self.size, self.stride)


def at_points(expressions: Sequence[ast.expr]) -> list[Point]:
    """Return the value of each expression at the two points."""
    return [(_value(e, 0), _value(e, 1)) for e in expressions]


def _value(node: ast.expr, point: int) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, point)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, point), _value(right, point)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv() if b:
                    return a // b
                case ast.Mod() if b:
                    return a % b
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=arguments):
            numbers = [_value(argument, point) for argument in arguments]
            return max(numbers) if name == "max" else min(numbers)
        case ast.Name(id=name) if known := _SYMBOL.match(name):
            return int(known[1 + point])
    digest = hashlib.sha256(f"{text(node)} {point}".encode()).digest()
    return 10_000 + int.from_bytes(digest[:3], "big")


_SYMBOL = re.compile(r"c(\d+)_(\d+)b*$")
_NUMBER = re.compile(rf"{_SYMBOL.pattern}|f\d+b*$|([xyz]|r\d_)numel$")


def is_symbol(node: ast.AST) -> bool:
    """Whether a name stands for a number of the module (see `unify`), or for an axis' size."""
    return isinstance(node, ast.Name) and bool(_NUMBER.match(node.id))


def _dense_strides(sizes: list[Point]) -> list[Point]:
    strides = [(1, 1)] * len(sizes)
    for i in range(len(sizes) - 2, -1, -1):
        strides[i] = (strides[i + 1][0] * sizes[i + 1][0], strides[i + 1][1] * sizes[i + 1][1])
    return strides


def is_dense(size: Sequence[ast.expr], stride: Sequence[ast.expr]) -> bool:
    """Whether a tensor of this size and stride is contiguous."""
    sizes, strides = at_points(size), at_points(stride)
    wanted = _dense_strides(sizes)
    return all(
        have == want or n == (1, 1) for n, have, want in zip(sizes, strides, wanted, strict=True)
    )


def elements(size: Sequence[ast.expr]) -> Point:
    """Return the number of elements at the two points."""
    sizes = at_points(size)
    return math.prod(n[0] for n in sizes), math.prod(n[1] for n in sizes)


def view(
    base: ast.expr, have: Layout | None, want: Layout, offset: ast.expr, fresh: bool = False
) -> ast.expr:
    """Return the expression that views ``base``, laid out as ``have``, as ``want``.

    ``offset`` counts elements from the first element of ``base``, which is the first of its storage
    if ``fresh``. Anything that is no plain view,
    transposition, slice or expansion becomes `torch.as_strided`.
    """
    if have is not None:
        if text(offset) == "0":
            found = _reshaped(base, have, want)
        else:
            found = _sliced(base, have, want, offset)
        if found is not None:
            return found
    size, stride = (_tuple(part) for part in (want.size, want.stride))
    arguments = [base, size, stride]
    if text(offset) != "0":
        start = expression(f"{text(base)}.storage_offset()")
        arguments.append(offset if fresh else ast.BinOp(start, ast.Add(), offset))
    return _call("torch.as_strided", arguments)


def _tuple(items: Sequence[ast.expr]) -> ast.expr:
    return ast.Tuple(list(items), ast.Load())


def _call(function: str, arguments: list[ast.expr]) -> ast.expr:
    return ast.Call(expression(function), arguments, [])


def _method(base: ast.expr, name: str, arguments: Sequence[ast.expr]) -> ast.expr:
    return ast.Call(ast.Attribute(base, name, ast.Load()), list(arguments), [])


def _reshaped(base: ast.expr, have: Layout, want: Layout) -> ast.expr | None:
    have_size, have_stride = at_points(have.size), at_points(have.stride)
    size, stride = at_points(want.size), at_points(want.stride)
    dense = have.is_contiguous and is_dense(want.size, want.stride)
    if have_size == size and (have_stride == stride or dense):
        return base
    if elements(have.size) == elements(want.size):
        if dense:
            return _method(base, "view", want.size)
        order = sorted(range(len(size)), key=lambda i: (stride[i][0], size[i][0]), reverse=True)
        inner_size = [want.size[i] for i in order]
        inner_stride = [want.stride[i] for i in order]
        if have.is_contiguous and is_dense(inner_size, inner_stride):
            viewed = base
            if at_points(inner_size) != have_size:
                viewed = _method(base, "view", inner_size)
            return _permuted(viewed, [order.index(i) for i in range(len(size))])
    if len(have.size) < len(size):
        lead = len(size) - len(have.size)
        same = size[lead:] == have_size and stride[lead:] == have_stride
        if same and all(s == (0, 0) for s in stride[:lead]):
            return _method(base, "expand", want.size)
    return None


def _permuted(base: ast.expr, order: list[int]) -> ast.expr:
    moved = [i for i, source in enumerate(order) if i != source]
    if not moved:
        return base
    if len(order) == 2:
        return _method(base, "t", [])
    if len(moved) == 2:
        return _method(base, "transpose", [ast.Constant(i) for i in moved])
    return _method(base, "permute", [ast.Constant(i) for i in order])


def _sliced(base: ast.expr, have: Layout, want: Layout, offset: ast.expr) -> ast.expr | None:
    """Recognise `narrow`: one dimension shorter, the strides unchanged."""
    have_size, have_stride = at_points(have.size), at_points(have.stride)
    if len(have.size) != len(want.size) or have_stride != at_points(want.stride):
        return None
    size = at_points(want.size)
    shorter = [i for i, (a, b) in enumerate(zip(have_size, size, strict=True)) if a != b]
    start = at_points([offset])[0][0]
    if len(shorter) != 1 or have_stride[shorter[0]][0] == 0:
        return None
    dim = shorter[0]
    first, left = divmod(start, have_stride[dim][0])
    if left or not isinstance(offset, ast.Constant) or have_stride[dim][0] != have_stride[dim][1]:
        return None
    return _method(base, "narrow", [ast.Constant(dim), ast.Constant(first), want.size[dim]])
