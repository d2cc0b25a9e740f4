"""A kernel's Python, rewritten to mean what Triton's compiler makes of it.

The interpreter runs a kernel as Python, where some forms mean something else than in
`triton.compiler.code_generator`, or mean something where the compiler refuses them:

- ``and``, ``or``, ``not``, ``min`` and ``max`` work on blocks, element by element;
- the variable of a ``range`` is an int32 (or int64) that wraps around and divides as on a GPU,
  not a Python number; what is assigned becomes a tensor;
- a block is no condition, ``a < b < c``, ``break``, ``abs`` or a global that is no constexpr are
  refused (`CompileError`), but, unlike in the compiler, only where they are reached;
- ``print`` prints nothing.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.runtime import interpreter

Function = Callable[..., Any]


class CompileError(Exception):
    """A kernel uses Python that Triton's compiler refuses."""


# --- what rewritten code calls --------------------------------------------------------------


def refuse(what: str) -> None:
    """Stand in a kernel for something that the compiler would not have taken."""
    raise CompileError(what)


def assigned(value: Any) -> Any:
    """Return what a variable holds after ``value`` was assigned to it: numbers become tensors."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if type(value) is tuple:
        return tuple(map(assigned, value))
    return interpreter.interpreter_semantic.to_tensor(value, False)


def plain(value: Any) -> Any:
    """Return ``value.value``; the interpreter hands constexprs to kernels as plain values."""
    return getattr(value, "value", value)


def truth(condition: Any) -> bool:
    """Return whether a condition holds.

    Raises:
        CompileError: it is a block.
    """
    if not isinstance(condition, tl.tensor):
        return bool(condition)
    if condition.handle.data.size != 1:
        raise CompileError("a block of more than one element is used as a condition")
    return bool(condition.handle.data.item())


def negation(value: Any) -> Any:
    """Return ``not value``."""
    return value.__not__() if isinstance(value, tl.tensor) else not value


def both(*parts: Function) -> Any:
    """Return ``a and b``; constants decide early, tensors are all computed."""
    return _connect("logical_and", False, parts)


def either(*parts: Function) -> Any:
    """Return ``a or b``."""
    return _connect("logical_or", True, parts)


def _connect(method: str, decisive: bool, parts: tuple[Function, ...]) -> Any:
    value: Any = None
    tensors: list[Any] = []
    for part in parts:
        value = part()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is decisive:
            return value
    return functools.reduce(lambda a, b: getattr(a, method)(b), tensors) if tensors else value


def smallest(*values: Any) -> Any:
    """Return ``min(*values)``."""
    return plain(tl.core.builtin_min(*values))


def largest(*values: Any) -> Any:
    """Return ``max(*values)``."""
    return plain(tl.core.builtin_max(*values))


def dynamic_range(start: Any, end: Any = None, step: Any = 1, **options: Any) -> Iterator[Any]:
    """Yield the values of ``range`` or ``tl.range`` as scalars; ``options`` are for a compiler."""
    if end is None:
        start, end = 0, start
    semantic = interpreter.interpreter_semantic
    bounds = [semantic.to_tensor(bound) for bound in (start, end, step)]
    if not all(bound.dtype.is_int() for bound in bounds):
        raise CompileError("the bounds of a loop are not integers")
    kind = functools.reduce(semantic.integer_promote_impl, [bound.dtype for bound in bounds])
    stored = interpreter._get_np_dtype(kind)
    for value in range(*map(operator.index, bounds)):
        yield tl.tensor(interpreter.TensorHandle(np.array([value], stored), kind), kind)


def say_nothing(*args: Any, **kwargs: Any) -> None:
    """Stand for ``print``."""


_BUILTINS: dict[str, Function] = {
    "max": largest,
    "min": smallest,
    "print": say_nothing,
    "range": dynamic_range,
}

_HELPERS: dict[str, Function] = {
    function.__name__: function
    for function in (refuse, assigned, plain, truth, negation, both, either)
} | _BUILTINS

_PREFIX = "_curate_"


# --- rewriting ------------------------------------------------------------------------------


def rewrite(function: Function, tick: Callable[[], None]) -> Function:
    """Return a kernel's function with the compiler's meaning.

    Args:
        function: as it was decorated.
        tick: called before each round of a loop.

    Raises:
        CompileError: its text is not to be had.
    """
    try:
        lines, start = inspect.getsourcelines(function)
    except OSError as error:
        raise CompileError("@jit functions should be defined in a Python file") from error
    kernel = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(kernel, ast.FunctionDef)
    captured = _captured(function)
    _Rewriter(kernel, function.__globals__ | captured).rewrite()
    helpers = {_PREFIX + name: helper for name, helper in (_HELPERS | {"tick": tick}).items()}
    # They are passed in, so that nothing is added to the globals of the program.
    given = captured | helpers
    module = ast.parse(f"def enclosing({', '.join(given)}):\n    return {kernel.name}")
    enclosing = module.body[0]
    assert isinstance(enclosing, ast.FunctionDef)
    enclosing.body.insert(0, kernel)
    ast.increment_lineno(ast.fix_missing_locations(module), start - 1)
    scope: dict[str, Any] = {}
    exec(compile(module, function.__code__.co_filename, "exec"), function.__globals__, scope)
    result: Function = scope["enclosing"](**given)
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__module__", "__qualname__"):
        setattr(result, name, getattr(function, name))
    return result


def _captured(function: Function) -> dict[str, Any]:
    """Return the variables of enclosing functions that a function uses."""
    return dict(inspect.getclosurevars(function).nonlocals)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(_PREFIX + name, ast.Load()), list(arguments), [])


def _refuse(what: str) -> ast.Call:
    return _call("refuse", ast.Constant(what))


class _Rewriter(ast.NodeTransformer):
    """Rewrites one kernel in place.

    Args:
        kernel: its syntax tree.
        names: the globals and captured variables that it sees.
    """

    def __init__(self, kernel: ast.FunctionDef, names: dict[str, Any]) -> None:
        self.kernel, self.names = kernel, names
        self.loops = 0  # around the node being rewritten, and not unrolled
        self.own = {node.arg for node in ast.walk(kernel.args) if isinstance(node, ast.arg)} | {
            node.id
            for node in ast.walk(kernel)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def rewrite(self) -> None:
        """Rewrite the body; decorators, defaults and annotations have been evaluated already."""
        kernel, arguments = self.kernel, self.kernel.args
        kernel.decorator_list, kernel.returns, arguments.defaults = [], None, []
        arguments.kw_defaults = [None] * len(arguments.kwonlyargs)
        for node in ast.walk(arguments):
            if isinstance(node, ast.arg):
                node.annotation = None
        kernel.body = [self.visit(statement) for statement in kernel.body]

    def visit(self, node: ast.AST) -> Any:
        """Rewrite a node, or refuse it where the compiler has no rule for it."""
        what = type(node).__name__
        if isinstance(node, ast.stmt | ast.expr) and what not in _SYNTAX:
            refusal = _refuse(f"{what} at line {node.lineno} of the kernel")
            return refusal if isinstance(node, ast.expr) else ast.Expr(refusal)
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Give a name the compiler's meaning."""
        name = node.id
        if name in self.own:
            return node
        if name in self.names:
            return node if self._visible(name) else _refuse(f"the global {name} is no tl.constexpr")
        if name in _BUILTINS:
            return ast.Name(_PREFIX + name, ast.Load())
        if hasattr(builtins, name) and name not in CodeGenerator.builtin_namespace:
            return _refuse(f"{name} is not defined in a kernel")
        return node

    def _visible(self, name: str) -> bool:
        """Whether kernels may use a global: constexprs, and what belongs to Triton."""
        value = self.names[name]
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            return (value.__module__ or "").startswith(("triton.", "curate.verify."))
        if triton.knobs.compilation.allow_non_constexpr_globals:
            return True
        data = (bool, int, float, complex, str, list, dict, set, tuple)
        return not isinstance(value, data) or hasattr(value, "_fields")

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Let ``BLOCK.value`` work."""
        self.generic_visit(node)
        reads = node.attr == "value" and isinstance(node.ctx, ast.Load)
        return _call("plain", node.value) if reads else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Make tensors of numbers."""
        self.generic_visit(node)
        if len(node.targets) > 1:
            return ast.Expr(_refuse("an assignment to several targets"))
        node.value = _call("assigned", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Leave a constexpr as it is, and forget the annotation."""
        if node.value is None:
            return ast.Pass()
        value = self.visit(node.value)
        if not ast.unparse(node.annotation).strip("'\"").endswith("constexpr"):
            value = _call("assigned", value)
        return ast.Assign([node.target], value)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Make ``a = a + b`` of ``a += b``."""
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            old = ast.Name(node.target.id, ast.Load())
            value = _call("assigned", ast.BinOp(old, node.op, node.value))
            return ast.Assign([node.target], value)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Compute the condition only: assertions are for debug builds."""
        return ast.Expr(self.visit(node.test))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Refuse functions in a kernel."""
        return ast.Expr(_refuse(f"the nested function {node.name}"))

    def visit_If(self, node: ast.If) -> ast.AST:
        """Take scalars as conditions only."""
        self.generic_visit(node)
        node.test = _call("truth", node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Take scalars as conditions only."""
        self.generic_visit(node)
        node.test = _call("truth", node.test)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """Take scalars as conditions only, and count the rounds."""
        self.loops += 1
        self.generic_visit(node)
        self.loops -= 1
        node.test = _call("truth", node.test)
        node.body.insert(0, ast.Expr(_call("tick")))
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Refuse it in a loop that is not unrolled."""
        self.generic_visit(node)
        return ast.Expr(_refuse("a return in a loop")) if self.loops else node

    def visit_For(self, node: ast.For) -> ast.AST:
        """Count the rounds."""
        dynamic = "static_range" not in ast.unparse(node.iter)
        self.loops += dynamic
        self.generic_visit(node)
        self.loops -= dynamic
        node.body.insert(0, ast.Expr(_call("tick")))
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Refuse chains and ``in``."""
        self.generic_visit(node)
        if len(node.ops) > 1 or isinstance(node.ops[0], ast.In | ast.NotIn):
            return _refuse(f"the comparison {ast.unparse(node)}")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Let ``not`` work on blocks."""
        self.generic_visit(node)
        return _call("negation", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Let ``and`` and ``or`` work on blocks."""
        self.generic_visit(node)
        name = "both" if isinstance(node.op, ast.And) else "either"
        return _call(name, *map(_delayed, node.values))


def _delayed(value: ast.expr) -> ast.Lambda:
    function = ast.parse("lambda: None", mode="eval").body
    assert isinstance(function, ast.Lambda)
    function.body = value
    return function


_SYNTAX = {name.removeprefix("visit_") for name in dir(CodeGenerator)} | {
    "FormattedValue",
    "Starred",
}
"""The statements and expressions that the compiler knows; the last two have no method there."""
