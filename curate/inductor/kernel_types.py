"""Infer the type and shape of expressions in a Triton kernel, as far as they are plain to see."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from curate.inductor.shapes import is_symbol
from curate.syntax import words

Shape = tuple[str, ...]

_FLOATS = ("fp16", "bf16", "fp32", "fp64")
_INTEGERS = ("i1", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
_TL_NAMES = {
    "int1": "i1",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}


_SAME_TYPE = words(
    "abs exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf floor ceil sigmoid fma div_rn "
    "maximum minimum where tanh pow log1p expm1 trunc nearbyint multiply"
)


@dataclass(frozen=True)
class KernelValue:
    """What is known of an expression.

    Attributes:
        dtype: ``fp32``, ``i64`` …, ``*fp32`` for a pointer, ``int`` or ``float`` for a Python
            number; None when unknown.
        shape: names and numbers of its dimensions; None when unknown.
        constant: the number that a tensor is filled with.
    """

    dtype: str | None = None
    shape: Shape | None = None
    constant: ast.expr | None = None


UNKNOWN = KernelValue()


def is_float(dtype: str | None) -> bool:
    """Whether ``dtype`` is a floating type."""
    return dtype in _FLOATS or dtype == "float"


def dtype_named(node: ast.expr, scope: dict[str, KernelValue]) -> str | None:
    """Return the type that ``tl.float32`` or ``tmp4.dtype`` stands for."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == "tl":
            return _TL_NAMES.get(node.attr)
        if node.attr == "dtype":
            return scope.get(node.value.id, UNKNOWN).dtype
    return None


def broadcast(*shapes: Shape | None) -> Shape | None:
    """Return the shape that operands of these shapes give, or None when it is not plain."""
    result: Shape = ()
    for shape in shapes:
        if shape is None:
            return None
        longest = max(len(result), len(shape))
        left = ("1",) * (longest - len(result)) + result
        right = ("1",) * (longest - len(shape)) + shape
        merged = []
        for a, b in zip(left, right, strict=True):
            if a != b and "1" not in (a, b):
                return None
            merged.append(b if a == "1" else a)
        result = tuple(merged)
    return result


def promote(a: str | None, b: str | None) -> str | None:
    """Return the type of ``a + b``, or None when it is not plain."""
    if a is None or b is None:
        return None
    for pointer, other in ((a, b), (b, a)):
        if pointer.startswith("*"):
            return pointer if other == "int" or other in _INTEGERS else None
    if a == b:
        return a
    for python, other in ((a, b), (b, a)):
        if python == "int":
            return other
        if python == "float":
            return other if is_float(other) else "fp32"
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    order = _FLOATS if is_float(a) else _INTEGERS
    if {a, b} == {"fp16", "bf16"}:
        return None
    return max(a, b, key=order.index)


def infer(node: ast.expr, scope: dict[str, KernelValue]) -> KernelValue:
    """Return what is known of ``node`` when names have the values in ``scope``."""
    match node:
        case ast.Constant(value=bool()):
            return KernelValue("i1", ())
        case ast.Constant(value=int()):
            return KernelValue("int", ())
        case ast.Constant(value=float()):
            return KernelValue("float", ())
        case ast.Name(id=name):
            return scope.get(name, UNKNOWN)
        case ast.UnaryOp(operand=operand):
            return replace(infer(operand, scope), constant=None)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = infer(left, scope), infer(right, scope)
            dtype = promote(a.dtype, b.dtype)
            if isinstance(op, ast.Div) and not is_float(dtype):
                dtype = "fp32" if dtype in _INTEGERS else None
            return KernelValue(dtype, broadcast(a.shape, b.shape))
        case ast.Compare(left=left, comparators=[right]):
            return KernelValue("i1", broadcast(infer(left, scope).shape, infer(right, scope).shape))
        case ast.Subscript():
            return _subscript(node, scope)
        case ast.Call():
            return _call(node, scope)
    return UNKNOWN


def _subscript(node: ast.Subscript, scope: dict[str, KernelValue]) -> KernelValue:
    """Handle ``x[:, None]``."""
    value = infer(node.value, scope)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if value.shape is None:
        return KernelValue(value.dtype)
    left = list(value.shape)
    shape = []
    for part in parts:
        if isinstance(part, ast.Constant) and part.value is None:
            shape.append("1")
        elif isinstance(part, ast.Slice) and left:
            shape.append(left.pop(0))
        else:
            return UNKNOWN
    return KernelValue(value.dtype, tuple(shape) + tuple(left))


def _call(node: ast.Call, scope: dict[str, KernelValue]) -> KernelValue:
    function = ast.unparse(node.func)
    arguments = [infer(argument, scope) for argument in node.args]
    method = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) != "tl"
    if isinstance(node.func, ast.Attribute) and method and node.func.attr in ("to", "broadcast_to"):
        receiver = infer(node.func.value, scope)
        if node.func.attr == "to":
            if any(keyword.arg == "bitcast" for keyword in node.keywords):
                return KernelValue(None, receiver.shape)
            return KernelValue(dtype_named(node.args[0], scope), receiver.shape)
        shape = tuple(ast.unparse(argument) for argument in node.args)
        return KernelValue(receiver.dtype, shape)
    if not arguments:
        return UNKNOWN
    name = function.rsplit(".", 1)[-1]
    match function:
        case "tl.program_id" | "tl.num_programs":
            return KernelValue("i32", ())
        case "tl.arange":
            return KernelValue("i32", (ast.unparse(node.args[1]),))
        case "tl.full" | "tl.zeros":
            return _filled(node, scope)
        case "tl.broadcast_to":
            return KernelValue(arguments[0].dtype, _shape(node.args[1]))
        case "tl.load":
            dtype = arguments[0].dtype
            return KernelValue(dtype[1:] if dtype and dtype[0] == "*" else None, arguments[0].shape)
        case "tl.sum" | "tl.reduce":
            if len(node.args) < 2 or isinstance(node.args[0], ast.Tuple):
                return UNKNOWN
            return _reduced(arguments[0], node.args[1])
        case "float":
            return KernelValue("float", ())
        case "tl.associative_scan" | "tl.cumsum" | "tl.cumprod":
            return UNKNOWN if isinstance(node.args[0], ast.Tuple) else arguments[0]
        case "tl.reshape":
            return KernelValue(arguments[0].dtype, _shape(node.args[1]))
        case "tl.trans":
            turned = arguments[0].shape
            plain = turned is not None and len(node.args) == 1
            return KernelValue(arguments[0].dtype, turned[::-1] if turned and plain else None)
        case "tl.dot":
            return _product(arguments, node)
    if name not in _SAME_TYPE:
        return UNKNOWN
    typed = arguments[1:] if name == "where" else arguments
    result = typed[0].dtype
    for argument in typed[1:]:
        result = promote(result, argument.dtype)
    return KernelValue(result, broadcast(*(argument.shape for argument in arguments)))


def _product(arguments: list[KernelValue], node: ast.Call) -> KernelValue:
    """Handle ``tl.dot(a, b)``, which accumulates floats in fp32."""
    a, b = arguments[:2]
    floats = is_float(a.dtype) and a.dtype != "fp64" and len(arguments) == 2
    own_type = any(keyword.arg == "out_dtype" for keyword in node.keywords)
    dtype = "fp32" if floats and not own_type else None
    if a.shape is None or b.shape is None or len(a.shape) != 2:
        return KernelValue(dtype)
    return KernelValue(dtype, (a.shape[0], b.shape[1]))


def _reduced(value: KernelValue, axis: ast.expr) -> KernelValue:
    dtype = value.dtype if value.dtype in ("fp32", "fp64", "i32", "i64") else None
    if value.shape is None or not isinstance(axis, ast.Constant):
        return KernelValue(dtype)
    kept = list(value.shape)
    if not isinstance(axis.value, int) or axis.value >= len(kept):
        return KernelValue(dtype)
    del kept[axis.value]
    return KernelValue(dtype, tuple(kept))


def _shape(node: ast.expr) -> Shape | None:
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(ast.unparse(item) for item in node.elts)
    return None


def _filled(node: ast.Call, scope: dict[str, KernelValue]) -> KernelValue:
    """Handle ``tl.full(shape, number, type)``."""
    shape = _shape(node.args[0])
    size = node.args[0]
    if isinstance(size, ast.Attribute) and size.attr == "shape":
        shape = infer(size.value, scope).shape
    dtype = dtype_named(node.args[-1], scope)
    constant = node.args[1] if len(node.args) == 3 and is_number(node.args[1]) else None
    if constant is not None and isinstance(size, ast.List) and set(shape or ()) - {"1"}:
        constant = None  # a block of a size of its own, such as an accumulator
    return KernelValue(dtype, shape, constant)


def is_number(node: ast.expr) -> bool:
    """Whether ``node`` is a number: a literal, a symbol of `unify`, or ``float("inf")``."""
    if is_symbol(node):
        return True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return is_number(node.operand)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "float"
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def infer_many(node: ast.expr, scope: dict[str, KernelValue], count: int) -> list[KernelValue]:
    """Return what is known of the ``count`` results of a call such as `tl.reduce`."""
    unknown = [UNKNOWN] * count
    if not isinstance(node, ast.Call) or not node.args:
        return unknown
    name = ast.unparse(node.func).rsplit(".", 1)[-1]
    first = node.args[0]
    if name in ("reduce", "associative_scan") and isinstance(first, ast.Tuple):
        inputs = [infer(item, scope) for item in first.elts]
        results = [_reduced(v, node.args[1]) for v in inputs] if name == "reduce" else inputs
    elif name in ("welford_update", "maximum_with_index", "minimum_with_index"):
        skipped = 1 if name == "welford_update" else 0
        results = [infer(item, scope) for item in node.args[skipped : skipped + count]]
    elif name in ("bitonic_sort", "softmax_update", "softmax_merge"):
        results = [infer(item, scope) for item in node.args[:2]]
    elif name == "softmax_reduce":
        results = [_reduced(infer(item, scope), node.args[2]) for item in node.args[:2]]
    else:
        return unknown
    return results if len(results) == count else unknown
