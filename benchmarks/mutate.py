"""Faults put into correct Triton programs, one at a time.

`mutants` parses a candidate's file, finds every place where one of the operators below applies, in
the kernels and in ``ModelNew``, and returns the file's text with one place changed. What an
operator looks for depends on what an expression is for: an address, a mask, or a value. The 13
classes are those of `CLASSES`; mutation analysis as such is DeMillo, Lipton and Sayward (1978).

Only the standard library is needed. The same text and seed give the same mutants.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)

MEMORY = {"load": 1, "store": 2, "atomic_add": 2, "atomic_max": 2, "atomic_min": 2}
"""Functions that take an address first, and where in their arguments the mask is."""

SHAPING = frozenset(
    [
        "program_id",
        "num_programs",
        "arange",
        "zeros",
        "full",
        "sum",
        "max",
        "min",
        "reduce",
        "cumsum",
        "cumprod",
        "argmax",
        "argmin",
        "associative_scan",
        "reshape",
        "view",
        "trans",
        "broadcast_to",
        "expand_dims",
        "range",
        "static_range",
        "load",
        "store",
        "cdiv",
        "dot",
        "float",
    ]
)
"""Functions whose own numbers are shapes, axes or identities, not values."""

REDUCTIONS = frozenset(
    ["sum", "max", "min", "argmax", "argmin", "reduce", "cumsum", "cumprod", "associative_scan"]
)

OTHER_FUNCTION = {
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "sum": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "cumsum": "cumprod",
    "cumprod": "cumsum",
    "exp": "exp2",
    "exp2": "exp",
    "log": "log2",
    "sin": "cos",
    "cos": "sin",
    "sqrt": "abs",
    "sqrt_rn": "abs",
    "rsqrt": "sqrt",
    "floor": "ceil",
    "ceil": "floor",
    "atomic_add": "atomic_max",
}

OTHER_OPERATOR: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
}

OTHER_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq, ast.GtE),
    ast.NotEq: (ast.Eq,),
}

APPROXIMATIONS = {
    "exp": "tl.exp2(({0}) * 1.4427)",
    "sqrt_rn": "tl.sqrt({0})",
    "div_rn": "(({0}) / ({1}))",
    "erf": "(2 * tl.sigmoid(2 * (1.12838 * ({0}) + 0.100896 * ({0}) * ({0}) * ({0}))) - 1)",
    "tanh": "(({0}) * (27 + ({0}) * ({0})) / (27 + 9 * ({0}) * ({0})))",
    "sigmoid": "tl.minimum(tl.maximum(0.5 + 0.197 * ({0}), 0), 1)",
    "log1p": "tl.log(1 + ({0}))",
    "expm1": "(tl.exp({0}) - 1)",
    "sin": "(({0}) * (1 - ({0}) * ({0}) * (1 / 6 - ({0}) * ({0}) / 120)))",
}
"""Faster forms that are found in kernels, of use on part of the range only."""


@dataclass(frozen=True)
class Mutant:
    """A program with one fault.

    Attributes:
        kind: the class of the fault, a key of `CLASSES`.
        operator: what was done, in a few words.
        line: of the original text, from 1.
        before: the text that was replaced.
        after: what stands there now.
        in_kernel: whether the place lies in a kernel rather than in ``ModelNew``.
        text: the whole file.
    """

    kind: str
    operator: str
    line: int
    before: str
    after: str
    in_kernel: bool
    text: str


@dataclass(frozen=True)
class Change:
    """Another text for one node of the syntax tree."""

    node: ast.expr | ast.stmt
    text: str
    operator: str


class Program:
    """A candidate's text, and what operators ask about its expressions.

    Attributes:
        kernels: the functions under ``@triton.jit``.
        hosts: the methods of ``ModelNew`` but its constructor.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        lengths = map(len, text.encode().splitlines(keepends=True))
        self.line_starts = [0, *itertools.accumulate(lengths)]  # in bytes, as ast counts
        self.parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }
        functions = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)]
        self.kernels = [f for f in functions if any(map(_is_jit, f.decorator_list))]
        self.hosts = [
            f
            for f in functions
            if isinstance(owner := self.parents[f], ast.ClassDef)
            and owner.name == "ModelNew"
            and f.name != "__init__"
        ]
        self.contexts: dict[ast.AST, str] = {}
        self.mask_names: set[str] = set()
        for kernel in self.kernels:
            self._find_contexts(kernel)

    # what an expression is for

    def _find_contexts(self, kernel: ast.FunctionDef) -> None:
        """Mark the nodes that make up addresses and masks; all others are values."""
        addresses: list[ast.expr] = []
        masks: list[ast.expr] = []
        for call in _calls(kernel, *MEMORY):
            addresses.append(call.args[0])
            masks += [m for m in [_argument(call, "mask", MEMORY[_called(call)])] if m]
        stored = {name.id for root in addresses for name in _names(root)}
        masked = {name.id for root in masks for name in _names(root)}
        assigned = list(_assignments(kernel))
        for names in (stored, masked):
            while (
                added := {
                    name.id
                    for target, value in assigned
                    if target in names and not list(_calls(value, "load"))
                    for name in _names(value)
                }
                - names
            ):
                names |= added
        self.mask_names |= masked - stored
        for target, value in assigned:
            if target in stored and not list(_calls(value, "load")):
                addresses.append(value)
            elif target in masked and not list(_calls(value, "load")):
                masks.append(value)
        for context, roots in (("mask", masks), ("address", addresses)):
            self.contexts |= {node: context for root in roots for node in ast.walk(root)}

    def nodes(self, context: str, kind: type[Node]) -> Iterator[Node]:
        """Yield a kind of node in the kernels' ``address``, ``mask`` or ``value`` expressions."""
        for kernel in self.kernels:
            for statement in kernel.body:
                for node in ast.walk(statement):
                    if isinstance(node, kind) and self.contexts.get(node, "value") == context:
                        yield node

    def kernel_calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield the calls in kernels of functions with these names."""
        for kernel in self.kernels:
            yield from _calls(kernel, *names)

    def launches(self) -> Iterator[ast.Call]:
        """Yield the calls ``kernel[grid](...)``."""
        for host in self.hosts:
            for node in ast.walk(host):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                    yield node

    def parameters(self, launch: ast.Call) -> list[tuple[str, str]]:
        """Return a launch's positional parameters and their role.

        The role is ``pointer``, ``index`` (it takes part in addresses), ``bound`` (in masks and
        loops) or ``value``.
        """
        name = launch.func.value if isinstance(launch.func, ast.Subscript) else None
        for kernel in self.kernels:
            if isinstance(name, ast.Name) and kernel.name == name.id:
                return [(a.arg, self._role(kernel, a.arg)) for a in kernel.args.args]
        return []

    def _role(self, kernel: ast.FunctionDef, name: str) -> str:
        if name.endswith(("ptr", "pointer")):
            return "pointer"
        uses = [node for node in _names(kernel) if node.id == name]
        if any(self.contexts.get(use) == "address" for use in uses):
            return "index"
        in_range = {n for call in _calls(kernel, "range", "static_range") for n in ast.walk(call)}
        if any(self.contexts.get(use) == "mask" or use in in_range for use in uses):
            return "bound"
        return "value"

    # texts

    def source(self, node: ast.AST) -> str:
        """Return a node's text as it stands in the file."""
        return ast.get_source_segment(self.text, node) or ""

    def apply(self, change: Change) -> str:
        """Return the file's text with one node's text replaced."""
        node, whole = change.node, self.text.encode()
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.line_starts[node.lineno - 1] + node.col_offset
        end = self.line_starts[node.end_lineno - 1] + node.end_col_offset
        return (whole[:start] + change.text.encode() + whole[end:]).decode()


# --- the syntax tree ------------------------------------------------------------------------


def _is_jit(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).split("(")[0] in ("triton.jit", "jit")


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _calls(root: ast.AST, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(root):
        if isinstance(node, ast.Call) and _called(node) in names:
            yield node


def _names(root: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(root) if isinstance(node, ast.Name))


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return named[0] if named else call.args[position] if len(call.args) > position else None


def _assignments(root: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(root):
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                yield target.id, node.value


def _text(node: ast.expr) -> str:
    """Return an expression's text, in parentheses where it may need them."""
    text = ast.unparse(node)
    atoms = ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript
    return text if isinstance(node, atoms) else f"({text})"


def _number(node: ast.AST) -> float | None:
    """Return the value of a numeric literal; None for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value: Any = node.value
        return float(value)
    return None


def _rename_call(call: ast.Call, name: str) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        owner = ast.unparse(function.value)
        return f"{owner}.{name}({', '.join(map(ast.unparse, [*call.args, *call.keywords]))})"
    return f"{name}({', '.join(map(ast.unparse, [*call.args, *call.keywords]))})"


def _with_keywords(call: ast.Call, **changes: str | None) -> str:
    """Return a call's text with keywords added, replaced, or dropped (None)."""
    kept = [k for k in call.keywords if k.arg not in changes]
    added = [f"{name}={text}" for name, text in changes.items() if text is not None]
    arguments = [*map(ast.unparse, call.args), *map(ast.unparse, kept), *added]
    return f"{ast.unparse(call.func)}({', '.join(arguments)})"


def _with_argument(call: ast.Call, position: int, text: str) -> str:
    arguments = [*map(ast.unparse, call.args)]
    arguments[position] = text
    return f"{ast.unparse(call.func)}({', '.join([*arguments, *map(ast.unparse, call.keywords)])})"


# --- the classes of faults ------------------------------------------------------------------


def arithmetic(p: Program) -> Iterator[Change]:
    """Another operator, swapped operands, a lost sign, another function."""
    for node in p.nodes("value", ast.BinOp):
        other = OTHER_OPERATOR.get(type(node.op))
        if other:
            yield Change(node, _text(ast.BinOp(node.left, other(), node.right)), "other operator")
        if isinstance(node.op, ast.Sub | ast.Div):
            yield Change(node, _text(ast.BinOp(node.right, node.op, node.left)), "operands swapped")
    for unary in p.nodes("value", ast.UnaryOp):
        if isinstance(unary.op, ast.USub):
            yield Change(unary, _text(unary.operand), "sign dropped")
    for update in p.nodes("value", ast.AugAssign):
        other = OTHER_OPERATOR.get(type(update.op))
        if other:
            changed = ast.AugAssign(update.target, other(), update.value)
            yield Change(update, ast.unparse(changed), "other operator")
    defined = {kernel.name for kernel in p.kernels}
    for call in p.nodes("value", ast.Call):
        other_name = OTHER_FUNCTION.get(_called(call))
        if other_name and (isinstance(call.func, ast.Attribute) or other_name in defined):
            yield Change(call, _rename_call(call, other_name), "other function")


def comparison(p: Program) -> Iterator[Change]:
    """Another comparison between values, a negated condition."""
    for node in p.nodes("value", ast.Compare):
        for other in OTHER_COMPARISONS.get(type(node.ops[0]), ()):
            text = _text(ast.Compare(node.left, [other()], node.comparators))
            yield Change(node, text, f"{type(node.ops[0]).__name__} to {other.__name__}")
    for unary in p.nodes("value", ast.UnaryOp):
        if isinstance(unary.op, ast.Invert | ast.Not):
            yield Change(unary, _text(unary.operand), "negation dropped")


def constant(p: Program) -> Iterator[Change]:
    """Another number in a value: far, near, of the other sign, or none."""
    for node in p.nodes("value", ast.Constant):
        value, call = _number(node), p.parents[node]
        inside = isinstance(call, ast.Call) and _called(call) in SHAPING
        if value is None or inside or isinstance(call, ast.keyword | ast.Subscript | ast.List):
            continue
        yield from _other_numbers(node)
    for launch in p.launches():
        for argument in launch.args:
            if isinstance(argument, ast.Constant) and _number(argument) is not None:
                yield from _other_numbers(argument)


def _other_numbers(node: ast.Constant) -> Iterator[Change]:
    value: Any = node.value
    if value == 0:
        yield Change(node, "1", "0 to 1")
        yield Change(node, "0.001", "0 to 0.001")
        return
    yield Change(node, "0", "to 0")
    yield Change(node, f"(-{node.value!r})", "negated")
    if abs(value) < 1e-2:  # an epsilon
        yield Change(node, repr(value * 10), "times 10")
        yield Change(node, repr(value / 10), "by 10")
    else:
        yield Change(node, repr(value * 2), "doubled")
        yield Change(node, repr(value * 1.01), "one percent more")


def mask(p: Program) -> Iterator[Change]:
    """A mask dropped, one element short or long, or one of its parts gone."""
    for call in p.kernel_calls(*MEMORY):
        if any(keyword.arg == "mask" for keyword in call.keywords):
            yield Change(call, _with_keywords(call, mask=None, other=None), "dropped")
    for node in p.nodes("mask", ast.Compare):
        if isinstance(node.ops[0], ast.Lt | ast.Gt):
            other = OTHER_COMPARISONS[type(node.ops[0])][0]
            text = _text(ast.Compare(node.left, [other()], node.comparators))
            yield Change(node, text, "one more")
        if isinstance(node.ops[0], ast.Lt):
            bound = _text(node.comparators[0])
            yield Change(node, f"({ast.unparse(node.left)} < {bound} - 1)", "one less")
        for other in OTHER_COMPARISONS.get(type(node.ops[0]), ())[1:]:
            text = _text(ast.Compare(node.left, [other()], node.comparators))
            yield Change(node, text, "inverted")
    for part in p.nodes("mask", ast.BinOp):
        if isinstance(part.op, ast.BitAnd):
            yield Change(part, _text(part.left), "right part dropped")
            yield Change(part, _text(part.right), "left part dropped")


def boundary(p: Program) -> Iterator[Change]:
    """Too few programs or steps, or blocks that start at the wrong place."""
    for host in p.hosts:
        for call in _calls(host, "cdiv"):
            size, block = map(_text, call.args)
            yield Change(call, f"({size} // {block})", "last block not launched")
            yield Change(call, f"({ast.unparse(call)} - 1)", "one program less")
    for call in p.kernel_calls("range", "static_range"):
        if len(call.args) > 1:
            yield Change(call, _with_argument(call, 1, f"{_text(call.args[1])} - 1"), "stop - 1")
        if len(call.args) > 2:
            step = _text(call.args[2])
            stop = f"{_text(call.args[1])} - {step}"
            yield Change(call, _with_argument(call, 1, stop), "last step left out")
            start = f"{_text(call.args[0])} + {step}"
            yield Change(call, _with_argument(call, 0, start), "first step left out")
    for call in p.kernel_calls("program_id"):
        outer = p.parents[call]
        if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Mult):
            yield Change(outer, f"({ast.unparse(outer)} + 1)", "blocks start one late")
            shrunk = ast.unparse(outer.right if outer.left is call else outer.left)
            yield Change(outer, f"({ast.unparse(call)} * ({shrunk} - 1))", "blocks overlap")
    for launch in p.launches():
        for argument, (_, role) in zip(launch.args, p.parameters(launch), strict=False):
            if role == "bound":
                yield Change(argument, f"({ast.unparse(argument)}) - 1", "bound - 1")
                yield Change(argument, f"({ast.unparse(argument)}) // 2", "bound halved")


def axis(p: Program) -> Iterator[Change]:
    """Another axis of a reduction, a grid, a shape or a transposition."""
    for call in p.kernel_calls(*REDUCTIONS):
        found = _argument(call, "axis", 1)
        if found is not None and _number(found) in (0, 1):
            yield Change(found, str(1 - int(_number(found) or 0)), "reduced along the other")
    for kernel in p.kernels:
        used = {ast.unparse(call) for call in _calls(kernel, "program_id")}
        for call in _calls(kernel, "program_id") if len(used) > 1 else ():
            for other in sorted(used - {ast.unparse(call)}):
                yield Change(call, other, "other axis of the grid")
    for call in p.kernel_calls("trans"):
        yield Change(call, _text(call.args[0]), "not transposed")
    for host in p.hosts:
        for node in ast.walk(host):
            yield from _other_dimension(node)


def _other_dimension(node: ast.AST) -> Iterator[Change]:
    """Yield changes of ``x.shape[0]``, ``x.size(0)`` and ``x.stride(0)``."""
    index: ast.expr | None = None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".shape"):
        index = node.slice
    if isinstance(node, ast.Call) and _called(node) in ("size", "stride") and node.args:
        index = node.args[0]
    if index is not None and (value := _number(index)) is not None:
        yield Change(index, str(int(value) + 1), "next dimension")
        if value > 0:
            yield Change(index, str(int(value) - 1), "dimension before")


def stride(p: Program) -> Iterator[Change]:
    """An address with a wrong step or part."""
    for node in p.nodes("address", ast.BinOp):
        left, right = _text(node.left), _text(node.right)
        if isinstance(node.op, ast.Mult):
            yield Change(node, left, "factor dropped")
            yield Change(node, f"({left} * ({right} + 1))", "factor + 1")
            yield Change(node, f"({left} * ({right} - 1))", "factor - 1")
        elif isinstance(node.op, ast.FloorDiv | ast.Mod):
            other = OTHER_OPERATOR[type(node.op)]
            yield Change(node, _text(ast.BinOp(node.left, other(), node.right)), "// and % swapped")
            yield Change(node, left, "// or % dropped")
        elif isinstance(node.op, ast.Add) and not right.endswith("ptr"):
            yield Change(node, left, "term dropped")
            yield Change(node, f"({left} + {right} + 1)", "off by one")
    for launch in p.launches():
        for argument, (_, role) in zip(launch.args, p.parameters(launch), strict=False):
            if role == "index":
                yield Change(argument, f"({ast.unparse(argument)}) + 1", "argument + 1")
                yield Change(argument, f"({ast.unparse(argument)}) - 1", "argument - 1")


def accumulator(p: Program) -> Iterator[Change]:
    """A sum, or the memory between two kernels, in fewer bits."""
    for kind in ("float16", "bfloat16"):
        for node in p.nodes("value", ast.AugAssign):
            if isinstance(node.op, ast.Add) and isinstance(node.target, ast.Name):
                yield Change(node, _then_round(p.source(node), node.target.id, kind), kind)
        for assign in p.nodes("value", ast.Assign):
            target = assign.targets[0]
            if isinstance(target, ast.Name) and _accumulates(assign.value, target.id):
                yield Change(assign, _then_round(p.source(assign), target.id, kind), kind)
        for call in p.kernel_calls("sum", "cumsum"):
            yield Change(
                call, _with_argument(call, 0, f"{_text(call.args[0])}.to(tl.{kind})"), kind
            )
        for kernel in p.kernels:
            if isinstance(last := kernel.body[-1], ast.Return) and isinstance(
                last.value, ast.BinOp
            ):
                text = f"return {_text(last.value)}.to(tl.{kind}).to(tl.float32)"
                yield Change(last, text, f"{kind} combination")
        for host in p.hosts:
            yield from _narrow_buffers(host, kind)


def _then_round(statement: str, name: str, kind: str) -> str:
    """Return a statement's text followed by the rounding of the variable that it set."""
    return f"{statement}; {name} = {name}.to(tl.{kind}).to({name}.dtype)"


def _accumulates(value: ast.expr, name: str) -> bool:
    sums = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
    dot = isinstance(value, ast.Call) and _called(value) in ("dot", "fma", "where")
    return (sums or dot) and any(found.id == name for found in _names(value))


def _narrow_buffers(host: ast.FunctionDef, kind: str) -> Iterator[Change]:
    """Yield changes of the type of tensors that are not returned."""
    returned = {
        name.id
        for node in ast.walk(host)
        if isinstance(node, ast.Return) and node.value
        for name in _names(node.value)
    }
    for target, value in _assignments(host):
        for keyword in value.keywords if isinstance(value, ast.Call) else ():
            if target not in returned and ast.unparse(keyword.value) == "torch.float32":
                yield Change(keyword.value, f"torch.{kind}", f"{kind} between kernels")


def precision(p: Program) -> Iterator[Change]:
    """A value rounded to fewer bits, an upcast left out, an approximation."""
    for kind in ("float16", "bfloat16"):
        for assign in p.nodes("value", ast.Assign):
            target = assign.targets[0]
            in_address = isinstance(target, ast.Name) and _is_address(p, target.id)
            if isinstance(target, ast.Name) and not in_address and target.id not in p.mask_names:
                text = _then_round(p.source(assign), target.id, kind)
                yield Change(assign, text, f"{kind} value")
        for call in p.kernel_calls("dot"):
            first, second = (f"{_text(argument)}.to(tl.{kind})" for argument in call.args[:2])
            text = _with_argument(call, 0, first)
            changed = ast.parse(text, mode="eval").body
            assert isinstance(changed, ast.Call)
            yield Change(call, _with_argument(changed, 1, second), f"{kind} factors")
    for call in p.kernel_calls("dot"):
        yield Change(call, _with_keywords(call, input_precision="'tf32'"), "tf32 factors")
    for call in p.kernel_calls("to"):
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.args[0]) == "tl.float32":
            yield Change(call, _text(call.func.value), "upcast dropped")
    for call in p.nodes("value", ast.Call):
        if form := APPROXIMATIONS.get(_called(call)):
            yield Change(call, form.format(*map(ast.unparse, call.args)), "approximation")
    for node in p.nodes("value", ast.Constant):
        if isinstance(node.value, float) and len(repr(node.value).strip("0.")) > 4:
            yield Change(node, f"{node.value:.3g}", "three digits")


def _is_address(p: Program, name: str) -> bool:
    """Whether a variable takes part in addresses."""
    return any(node.id == name for node in p.nodes("address", ast.Name))


def dropped_stage(p: Program) -> Iterator[Change]:
    """A step of the computation left out."""
    for node in p.nodes("value", ast.BinOp):
        yield Change(node, _text(node.left), "right operand dropped")
        yield Change(node, _text(node.right), "left operand dropped")
    for call in p.nodes("value", ast.Call):
        owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if _called(call) in SHAPING | set(MEMORY) or not call.args:
            continue
        if _called(call) == "where":
            if not {name.id for name in _names(call.args[0])} & p.mask_names:
                yield Change(call, _text(call.args[1]), "condition taken as true")
                yield Change(call, _text(call.args[2]), "condition taken as false")
        elif owner in ("tl", "libdevice", "tl.math", "") and _called(call) != "to":
            yield Change(call, _text(call.args[0]), f"{_called(call)} dropped")
    for update in p.nodes("value", ast.AugAssign):
        yield Change(update, "pass", "update dropped")
        yield Change(update, f"{ast.unparse(update.target)} = {_text(update.value)}", "overwritten")
    launches = list(p.launches())
    for launch in launches if len(launches) > 1 else ():
        if isinstance(statement := p.parents[launch], ast.Expr):
            yield Change(statement, "pass", "launch dropped")


def swapped(p: Program) -> Iterator[Change]:
    """Two arguments in each other's place."""
    for launch in p.launches():
        roles = [role for _, role in p.parameters(launch)]
        for at in range(len(launch.args) - 1):
            for to in range(at + 1, min(at + 4, len(launch.args))):
                if len(roles) > to and roles[at] == roles[to]:
                    text = ast.unparse(_swap_arguments(launch, at, to))
                    yield Change(launch, text, f"two {roles[at]}s of a launch")
    for call in p.nodes("value", ast.Call):
        if _called(call) == "where":
            yield Change(call, ast.unparse(_swap_arguments(call, 1, 2)), "branches of where")
        if _called(call) == "fma":
            yield Change(call, ast.unparse(_swap_arguments(call, 1, 2)), "factor and term of fma")
    for kernel in p.kernels:
        pointers = [a.arg for a in kernel.args.args if a.arg.endswith("ptr")]
        for call in _calls(kernel, "load"):
            for name in _names(call.args[0]):
                for other in pointers if name.id in pointers else ():
                    if other != name.id:
                        yield Change(name, other, "load from another pointer")


def _swap_arguments(call: ast.Call, at: int, to: int) -> ast.Call:
    arguments = list(call.args)
    arguments[at], arguments[to] = arguments[to], arguments[at]
    return ast.Call(call.func, arguments, call.keywords)


def identity(p: Program) -> Iterator[Change]:
    """A reduction that starts from, or fills up with, what is no identity of it."""
    for call in p.kernel_calls("load"):
        if (other := _argument(call, "other", 2)) is not None:
            for text in _other_identities(other):
                yield Change(other, text, "other value where masked")
    for call in p.kernel_calls("where"):
        if {name.id for name in _names(call.args[0])} & p.mask_names:
            for text in _other_identities(call.args[2]):
                yield Change(call.args[2], text, "other value where masked")
            yield Change(call, _text(call.args[1]), "not masked")
    for call in p.kernel_calls("full"):
        for text in _other_identities(call.args[1]):
            yield Change(call.args[1], text, "other start")
    for call in p.kernel_calls("zeros"):
        dtype = _argument(call, "dtype", 1)
        if dtype is not None:
            text = f"tl.full({ast.unparse(call.args[0])}, 1, {ast.unparse(dtype)})"
            yield Change(call, text, "starts from one")


def _other_identities(node: ast.expr) -> list[str]:
    text = ast.unparse(node).replace('"', "'")
    if "inf" in text:
        flipped = "float('inf')" if "-" in text else "float('-inf')"
        return ["0.0", "-1.0", flipped]
    value = _number(node)
    if value is None:
        return []
    return ["1.0", "float('-inf')"] if value == 0 else ["0.0"]


def broadcast(p: Program) -> Iterator[Change]:
    """A value taken from the wrong place of a smaller tensor, or spread along the wrong axis."""
    turned = {"[:, None]": "[None, :]", "[None, :]": "[:, None]"}
    for kernel in p.kernels:
        for node in ast.walk(kernel):
            if isinstance(node, ast.Subscript):
                shape = ast.unparse(node)[len(ast.unparse(node.value)) :]
                if shape in turned:
                    yield Change(node, ast.unparse(node.value) + turned[shape], "other axis")
        yield from _other_index(kernel)


def _other_index(kernel: ast.FunctionDef) -> Iterator[Change]:
    """Yield loads with one index replaced by another one, or pinned to zero."""
    parameters = {a.arg for a in kernel.args.args}
    for call in _calls(kernel, "load"):
        for name in _names(call.args[0]):
            if name.id in parameters or name.id.endswith(("ptr", "ptrs")):
                continue
            yield Change(name, f"(0 * {name.id})", "index pinned to 0")
            others = {n.id for other in _calls(kernel, "load") for n in _names(other.args[0])}
            for other_name in sorted(others - parameters - {name.id}):
                if not other_name.endswith(("ptr", "ptrs")) and other_name != "tl":
                    yield Change(name, other_name, "other index")


CLASSES: dict[str, Callable[[Program], Iterator[Change]]] = {
    "arithmetic operator": arithmetic,
    "comparison": comparison,
    "constant": constant,
    "mask": mask,
    "boundary": boundary,
    "axis": axis,
    "stride": stride,
    "accumulator dtype": accumulator,
    "precision": precision,
    "dropped stage": dropped_stage,
    "swapped arguments": swapped,
    "reduction identity": identity,
    "broadcast": broadcast,
}
"""The classes of faults, each with what finds their places."""


def mutants(text: str, seed: int, limit: int | None = None) -> list[Mutant]:
    """Return programs with one fault each, no two alike.

    Args:
        text: a file with Triton kernels and ``ModelNew``.
        seed: of the choice among the places.
        limit: how many at most; the classes are drawn from in turn. None for all.
    """
    program = Program(text)
    in_kernels = {node for kernel in program.kernels for node in ast.walk(kernel)}
    seen = {ast.dump(program.tree)}
    queues: list[list[tuple[str, Change]]] = []
    for kind, find in CLASSES.items():
        changes = _in_turn(list(find(program)), random.Random(f"{seed} {kind} {text}"))
        queues.append([(kind, change) for change in reversed(changes)])
    found: list[Mutant] = []
    while any(queues) and (limit is None or len(found) < limit):
        for queue in queues:
            if queue and (limit is None or len(found) < limit):
                kind, change = queue.pop()
                mutant = _mutant(program, kind, change, change.node in in_kernels)
                if (shape := _shape(mutant.text)) not in seen:
                    seen.add(shape)
                    found.append(mutant)
    return found


def _in_turn(changes: list[Change], rng: random.Random) -> list[Change]:
    """Return changes in random order, but of each operator the first before any second one."""
    rng.shuffle(changes)
    number: Counter[str] = Counter()
    keyed = []
    for change in changes:
        number[change.operator] += 1
        keyed.append((number[change.operator], change))
    return [change for _, change in sorted(keyed, key=lambda pair: pair[0])]


def _mutant(program: Program, kind: str, change: Change, in_kernel: bool) -> Mutant:
    before, line = program.source(change.node), change.node.lineno
    text = program.apply(change)
    return Mutant(kind, change.operator, line, before, change.text, in_kernel, text)


def _shape(text: str) -> str:
    """Return the syntax tree as text; operators that leave no valid Python are a bug."""
    return ast.dump(ast.parse(text))
