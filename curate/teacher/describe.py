"""What a PyTorch problem asks for, in words and formulas, without its code.

Only problems that read as a list of formulas can be told so: `forward` is a sequence of assignments
and a ``return``, the constructor sets parameters, layers and plain values, and ``get_inputs`` says
shapes and element types. Nothing is run: the text is parsed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

FLOATS = ("randn", "rand", "empty", "zeros", "ones")  # of torch: shape in, float32 out
ELEMENTWISE = frozenset({"abs", "clamp", "exp", "sigmoid", "add", "mul", "square", "neg"})
CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
LAYOUT = frozenset(
    {"chunk", "split", "view", "reshape", "transpose", "permute", "unsqueeze", "squeeze"}
    | {"expand", "flatten", "unflatten", "contiguous", "t", "unbind", "size"}
)
"""Functions that compute nothing."""

ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "addition",
    ast.Sub: "subtraction",
    ast.Mult: "multiplication",
    ast.Div: "division",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.Gt: "comparison",
    ast.Lt: "comparison",
    ast.GtE: "comparison",
    ast.LtE: "comparison",
}
LIBRARIES = frozenset({"torch", "F", "nn", "math"})
NAMESPACES = frozenset({"nn", "functional"})  # that say nothing of what is computed
FORMULA = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp),
    *(ast.Compare, ast.Tuple, ast.List, ast.Subscript, ast.Slice, ast.expr_context),
    *(ast.operator, ast.unaryop, ast.cmpop),
)


@dataclass(frozen=True)
class InputTensor:
    """A tensor that `forward` is called with; it is contiguous."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ProblemInWords:
    """A PyTorch problem in words.

    Attributes:
        operators: what is computed, each once, in order.
        inputs: of `forward`, in order.
        arguments: of the constructor, as ``name=value``, in order.
        state: parameters and layers by name, with the expressions that make them.
        steps: formulas, the last of which is what `forward` returns.
    """

    operators: tuple[str, ...]
    inputs: tuple[InputTensor, ...]
    arguments: tuple[str, ...]
    state: tuple[tuple[str, str], ...]
    steps: tuple[str, ...]


class _Untellable(Exception):
    """The problem is no list of formulas."""


def describe(reference: str) -> ProblemInWords | None:
    """Return what a file in KernelBench's form asks for; None where words would not do."""
    try:
        return _Reader(ast.parse(reference)).problem()
    except (_Untellable, SyntaxError, ValueError, RecursionError, ArithmeticError):
        return None


def inputs_of(reference: str) -> tuple[InputTensor, ...] | None:
    """Return the tensors that ``get_inputs`` makes; None where the text does not say what they are.

    They have the names of `forward`'s parameters, or none where these cannot be told.
    """
    try:
        return tuple(_Reader(ast.parse(reference)).tensors())
    except (_Untellable, SyntaxError, ValueError, TypeError, RecursionError, ArithmeticError):
        return None


class _Reader:
    """Reads one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.known = dict(_constants(tree))
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self.operators: dict[str, None] = {}
        self.layers: dict[str, str] = {}

    def problem(self) -> ProblemInWords:
        if set(self.classes) != {"Model"} or set(self.functions) - {
            "get_inputs",
            "get_init_inputs",
        }:
            raise _Untellable  # what others there are may decide what is computed
        methods = {n.name: n for n in self.classes["Model"].body if isinstance(n, ast.FunctionDef)}
        if "forward" not in methods or set(methods) - {"__init__", "forward"}:
            raise _Untellable
        names, state, steps = self._constructor(methods.get("__init__"))
        values = self._returned("get_init_inputs")
        given = [repr(self._value(value)) for value in values]
        if len(given) > len(names):
            raise _Untellable
        steps += self._steps(methods["forward"])
        return ProblemInWords(
            tuple(self.operators),
            tuple(self._inputs(_parameters(methods["forward"]))),
            tuple(f"{name}={value}" for name, value in zip(names, given, strict=False)),
            tuple(state),
            tuple(steps),
        )

    def _constructor(
        self, method: ast.FunctionDef | None
    ) -> tuple[list[str], list[tuple[str, str]], list[str]]:
        """Return parameters' names, what holds weights, and formulas of the plain values."""
        state: list[tuple[str, str]] = []
        plain: list[str] = []
        for statement in method.body if method else []:
            match statement:
                case ast.Expr(ast.Constant(str())) | ast.Expr(ast.Call(ast.Attribute(ast.Call()))):
                    continue  # a docstring, or super().__init__()
                case ast.Assign([ast.Attribute(ast.Name("self"), name)], value):
                    if not isinstance(value, ast.Call):
                        plain.append(f"{name} = {self._formula(value)}")
                    elif (made := _dotted(value.func)) and made[0] in ("nn", "torch"):
                        state.append((name, ast.unparse(value)))
                        self.layers[name] = made[-1]
                    else:
                        raise _Untellable
                case _:
                    raise _Untellable
        return _parameters(method) if method else [], state, plain

    def _steps(self, forward: ast.FunctionDef) -> list[str]:
        steps = []
        for statement in forward.body:
            match statement:
                case ast.Expr(ast.Constant(str())):
                    continue
                case ast.Assign([ast.Name() | ast.Tuple() as target], value):
                    steps.append(f"{ast.unparse(target).strip('()')} = {self._formula(value)}")
                case ast.Return(ast.expr() as value):
                    steps.append(f"return {self._formula(value)}")
                case _:
                    raise _Untellable
        return steps

    def _formula(self, value: ast.expr) -> str:
        """Return an expression without what is PyTorch's manner: ``x.abs()`` is ``abs(x)``."""
        if not all(isinstance(node, FORMULA) for node in ast.walk(value)):
            raise _Untellable
        return ast.unparse(_Plain(self).visit(value))

    def _returned(self, function: str) -> list[ast.expr]:
        match self.functions.get(function):
            case ast.FunctionDef(body=[ast.Return(ast.List(elements))]):
                return elements
        raise _Untellable

    def _inputs(self, names: list[str]) -> Iterator[InputTensor]:
        given = self._returned("get_inputs")
        if len(given) != len(names):
            raise _Untellable
        for name, value in zip(names, given, strict=True):
            yield InputTensor(name, *self._tensor(value))

    def tensors(self) -> Iterator[InputTensor]:
        """Yield what ``get_inputs`` returns, whatever else the file holds."""
        given = self._returned("get_inputs")
        body = self.classes["Model"].body if "Model" in self.classes else []
        forward = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == "forward"]
        args = [a for f in forward for a in (*f.args.posonlyargs, *f.args.args)][1:]
        names = [arg.arg for arg in args[: len(given)]]
        yield from self._inputs(names if len(names) == len(given) else [""] * len(given))

    def _tensor(self, value: ast.expr) -> tuple[str, tuple[int, ...]]:
        """Return element type and shape of a tensor that an expression makes."""
        match value:
            case ast.BinOp(left, _, ast.Constant() | ast.UnaryOp(_, ast.Constant())) | ast.BinOp(
                ast.Constant(), _, left
            ):
                return self._tensor(left)
            case ast.Compare(left, _, [ast.Constant()]):
                return "bool", self._tensor(left)[1]
            case ast.Call(ast.Attribute(ast.Name("torch"), name), args, keywords):
                return self._made(name, args, {k.arg: k.value for k in keywords})
            case ast.Call(ast.Attribute(inner, name), args) if name in ELEMENTWISE:
                return self._tensor(inner)
            case ast.Call(ast.Attribute(inner, name), []) if name in CASTS:
                return CASTS[name], self._tensor(inner)[1]
            case ast.Call(ast.Attribute(inner, "to"), [ast.Attribute(ast.Name("torch"), dtype)]):
                return dtype, self._tensor(inner)[1]
        raise _Untellable

    def _made(
        self, function: str, args: list[ast.expr], how: dict[str | None, ast.expr]
    ) -> tuple[str, tuple[int, ...]]:
        if function == "randint":
            shape, dtype = how.pop("size", args[-1]), "int64"
        elif function in FLOATS:
            shape, dtype = ast.Tuple(args), "float32"
        else:
            raise _Untellable
        if "dtype" in how:
            dtype = ".".join(_dotted(how["dtype"])[1:])
        sizes = self._value(shape)
        if len(sizes) == 1 and isinstance(sizes[0], tuple):
            sizes = sizes[0]
        if not dtype or not all(isinstance(size, int) for size in sizes):
            raise _Untellable
        return dtype, tuple(sizes)

    def _value(self, node: ast.expr) -> Any:
        return _value(node, self.known)


class _Plain(ast.NodeTransformer):
    """Turns an expression into a formula and notes the operators in it."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader

    def visit_Call(self, node: ast.Call) -> ast.expr:
        args: list[ast.expr]
        match node.func:
            case ast.Attribute(ast.Name("self"), name):
                args, called = [], self.reader.layers.get(name)
            case ast.Attribute() if _root(node.func) in LIBRARIES:
                parts = [part for part in _dotted(node.func)[1:] if part not in NAMESPACES]
                args, called = [], ".".join(parts)
                name = called
            case ast.Attribute(value, name):
                args, called = [self.visit(value)], name
            case _:
                raise _Untellable
        if called is None:
            raise _Untellable
        args += [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if called not in LAYOUT:
            self.reader.operators[called] = None
        return ast.Call(ast.Name(name), args, keywords)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if _root(node) in LIBRARIES or (isinstance(node.value, ast.Name) and _root(node) == "self"):
            return ast.Name(node.attr)
        return ast.Attribute(self.visit(node.value), node.attr)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if not (isinstance(left, ast.Constant) and isinstance(right, ast.Constant)):
            self.reader.operators[SIGNS.get(type(node.op), "arithmetic")] = None
        return ast.BinOp(left, node.op, right)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.reader.operators["comparison"] = None
        self.generic_visit(node)
        return node


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    known: dict[str, Any] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                try:
                    known[name] = _value(value, known)
                except _Untellable:
                    continue
                yield name, known[name]


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    """Return the value of an expression of literals and known names."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name) if name in known:
            return known[name]
        case ast.Tuple(elements) | ast.List(elements):
            return tuple(_value(element, known) for element in elements)
        case ast.UnaryOp(ast.USub(), inner):
            return -_number(inner, known)
        case ast.BinOp(left, sign, right) if type(sign) in ARITHMETIC:
            return ARITHMETIC[type(sign)](_number(left, known), _number(right, known))
    raise _Untellable


def _number(node: ast.expr, known: dict[str, Any]) -> int | float:
    value = _value(node, known)
    if not isinstance(value, int | float):
        raise _Untellable
    return value


def _parameters(method: ast.FunctionDef) -> list[str]:
    args = method.args
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
        raise _Untellable
    return [arg.arg for arg in args.args[1:]]


def _dotted(node: ast.expr) -> list[str]:
    """Return the parts of ``a.b.c``; empty for anything else."""
    match node:
        case ast.Name(name):
            return [name]
        case ast.Attribute(value, name):
            return [*parts, name] if (parts := _dotted(value)) else []
    return []


def _root(node: ast.expr) -> str | None:
    parts = _dotted(node)
    return parts[0] if parts else None
