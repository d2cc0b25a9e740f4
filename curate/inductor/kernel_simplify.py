"""Reduce an Inductor kernel to what it computes, name for name as Inductor wrote it.

Run-time library calls become `tl` functions or local helpers; masks that are always true, aliases,
conversions to the type a value already has, filled one-element tensors and dead code go away; small
expressions move into the one place that uses them.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from curate.generator.text.container import CannotRewrite
from curate.generator.text.layout import text
from curate.inductor.kernel_types import (
    UNKNOWN,
    KernelValue,
    dtype_named,
    infer,
    infer_many,
    is_float,
    is_number,
)
from curate.inductor.products import tiles
from curate.inductor.source import InductorKernel
from curate.syntax import expression, loads_in, names_in, replace_names, stores_in, words

_TL_HAS = words("exp exp2 log log2 sin cos sqrt rsqrt erf floor ceil abs fma")
_REDUCERS = {"max2": "maximum", "min2": "minimum", "prod": "multiply", "any": "logical_or"}
_REDUCERS_OF_TUPLES = {
    "welford": "welford_combine",
    "max_with_index": "maximum_with_index",
    "min_with_index": "minimum_with_index",
}
_RENAMED = {
    "maximum": "maximum",
    "minimum": "minimum",
    "maximum_with_index": "maximum_with_index",
    "minimum_with_index": "minimum_with_index",
    "welford_reduce": "welford_update",
    "welford_combine": "welford_combine",
    "online_softmax_combine": "softmax_update",
    "online_softmax_combine_with_sum": "softmax_merge",
    "online_softmax_reduce": "softmax_reduce",
    "div_floor_integer": "floor_div",
    "remainder_integer": "floor_mod",
    "pow_integer": "integer_power",
    "select_one": "last_of_scan",
    "randint64": "random_int64",
    "bucketize_binary_search": "bucketize",
    "sort_with_index": "bitonic_sort",
}
_TAKES_FAST_MATH_FLAG = frozenset(name for name in _RENAMED if name.startswith("online_softmax"))
_NUMEL = re.compile(r"([xyz]|r\d_)numel$")
_INDEX_ALIAS = re.compile(r"(r|r\d_|[xyz])(index|offset|base|numel|\d+)$|r\d_\d+$|RBLOCK$")
_INLINED = re.compile(r"tmp\d+$|[xyz]offset$")
_BLOCKWISE = words(
    "reduce sum max min argmax argmin associative_scan cumsum cumprod sort dot reshape trans "
    "expand_dims view permute last_of_scan softmax_reduce bitonic_sort atomic_add join split gather"
)
_EFFECTS = words("load store atomic_add atomic_cas atomic_xchg debug_barrier dot")


@dataclass
class KernelDraft:
    """A kernel on its way to readable text.

    Attributes:
        parameters: names in call order, block sizes last.
        body: statements that still use Inductor's names.
        helpers: local helper functions that the body calls.
        combines: Inductor's own helper functions alongside the kernel, simplified.
        libdevice: whether the body calls `libdevice`.
        block_sizes: block sizes that the kernel itself fixes, as persistent reductions do.
        product: one of `tiles.KINDS` if it is a product of matrices.
        tuner: the name of the configurations among which an autotuner chooses, if one does.
    """

    parameters: list[str]
    body: list[ast.stmt]
    helpers: set[str] = field(default_factory=set)
    combines: list[ast.FunctionDef] = field(default_factory=list)
    libdevice: bool = False
    block_sizes: dict[str, int] = field(default_factory=dict)
    product: str = ""
    tuner: str = ""


def simplify(kernel: InductorKernel, config: dict[str, int]) -> KernelDraft:
    """Return the simplified kernel, launched with the block sizes in ``config``.

    Raises:
        CannotRewrite: the kernel calls a run-time function that has no local stand-in.
    """
    function = copy.deepcopy(kernel.function)
    calls = _MapCalls(kernel.line)
    body = [calls.visit(node) for node in function.body]
    sizes = _take_sizes(body)
    _replace_single_row(body, sizes, config)
    _drop_true_masks(body)
    _drop_aliases(body)
    pointwise = not any(_called(node) & _BLOCKWISE for node in body)
    scope = {
        name: KernelValue(kind if kind[0] == "*" else None if kind == "constexpr" else kind, ())
        for name, kind in kernel.signature.items()
    }
    scope |= {
        name: KernelValue("int", ()) for name, kind in kernel.signature.items() if kind[0] == "c"
    }
    combines = [_combine(helper, calls) for helper in kernel.helpers]
    scans = {c.name: _SCANS[key] for c in combines if (key := _operation(c)) in _SCANS}
    body = _Fold(scope, pointwise, scans).block(body)
    _drop_aliases(body)
    _drop_unused(body)
    _inline(body, body, depth=0)
    body = _CastSizes(name for name, kind in kernel.signature.items() if kind[0] == "i").block(body)
    named = set(names_in(*body))
    parameters = [a.arg for a in function.args.args]
    parameters += [name for name in sizes if name.endswith("BLOCK") and name not in parameters]
    used = named.union(names_in(*combines))
    return KernelDraft(
        parameters=[name for name in parameters if name in named],
        body=body,
        helpers=calls.helpers & used,
        combines=[helper for helper in combines if helper.name in named],
        libdevice="libdevice" in used,
        block_sizes={n: v for n, v in sizes.items() if n.endswith("BLOCK") and n in named},
        product=kernel.grid if kernel.grid in tiles.KINDS else "",
        tuner=tiles.CONFIGS_NAME if kernel.grid in tiles.KINDS else "",
    )


def _combine(helper: ast.FunctionDef, calls: _MapCalls) -> ast.FunctionDef:
    """Simplify a scan's or reduction's combine function."""
    function = copy.deepcopy(helper)
    function.body = [calls.visit(node) for node in function.body]
    _inline(function.body, function.body, depth=0)
    function.decorator_list = []
    return function


_SCANS = {"+": "tl.cumsum", "*": "tl.cumprod"}


def _operation(function: ast.FunctionDef) -> str:
    """Return ``+`` for a function that returns ``a + b``, and so on."""
    last = function.body[-1]
    if len(function.body) == 1 and isinstance(last, ast.Return) and len(function.args.args) == 2:
        parts = text(last).split()
        names = [a.arg for a in function.args.args]
        if len(parts) == 4 and [parts[1], parts[3]] == names:
            return parts[2]
    return ""


class _MapCalls(ast.NodeTransformer):
    """Replace calls of Inductor's run-time library."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.helpers: set[str] = set()

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if text(node).startswith(("tl.device_assert", "tl.static_assert")):
            return ast.Pass()
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        whole = ast.unparse(node)
        if whole.startswith("triton.language."):
            return expression("tl." + whole.removeprefix("triton.language."))
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        return node.value if isinstance(node.slice, ast.Slice) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            inner = ast.unparse(node.func.value)
            if inner.startswith(("libdevice.isinf", "libdevice.isnan")):
                return self.visit(node.func.value)  # type: ignore[no-any-return]
        self.generic_visit(node)
        library, _, name = ast.unparse(node.func).rpartition(".")
        if library == "tl_math" or (library == "libdevice" and name in _TL_HAS):
            node.func = expression(f"tl.{name}")
        elif library == "libdevice" and name == "mul_rn":  # CUDA's only; it forbids fusing to fma
            return ast.BinOp(node.args[0], ast.Mult(), node.args[1])
        elif library == "libdevice" and name == "isnan":
            return ast.Compare(node.args[0], [ast.NotEq()], [node.args[0]])
        elif library == "libdevice" and name == "isinf":
            return expression(f'tl.abs({text(node.args[0])}) == float("inf")')
        elif library == "triton_helpers":
            return self._helper(name, node)
        return node

    def _helper(self, name: str, node: ast.Call) -> ast.AST:
        if name == "promote_to_tensor":
            return node.args[0]
        if name == "device_assert_then":
            return node.args[2]
        if name == "if_mask":
            return node.args[1]
        if name in ("rand4x", "randn4x"):
            function = "tl.rand" if name == "rand4x" else "tl.randn"
            return ast.Call(expression(function), node.args[:2], [])
        if name in _REDUCERS:
            return self._reduce(_REDUCERS[name], node.args[0], node.args[1])
        if name in _REDUCERS_OF_TUPLES:
            values = ast.Tuple(list(node.args[:-1]), ast.Load())
            return self._reduce(_REDUCERS_OF_TUPLES[name], values, node.args[-1])
        if name not in _RENAMED:
            raise CannotRewrite(f"triton_helpers.{name}", self.line)
        if name in _TAKES_FAST_MATH_FLAG:
            node.args.pop()
        elif name == "bucketize_binary_search":
            if text(node.args[8]) != "None":
                raise CannotRewrite("searchsorted with a sorter", self.line)
            del node.args[8:]
        elif name == "sort_with_index":  # ties go by index in any case, so stable says nothing
            node.keywords = [k for k in node.keywords if k.arg != "stable"]
        node.func = ast.Name(self._use(_RENAMED[name]), ast.Load())
        return node

    def _reduce(self, combine: str, values: ast.expr, axis: ast.expr) -> ast.Call:
        function = ast.Name(self._use(combine), ast.Load())
        return ast.Call(expression("tl.reduce"), [values, axis, function], [])

    def _use(self, helper: str) -> str:
        self.helpers.add(helper)
        return helper


def _called(node: ast.AST) -> set[str]:
    """Return the last part of the name of every function called under ``node``."""
    return {
        ast.unparse(call.func).rsplit(".", 1)[-1]
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
    }


def _blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield ``body`` and every block inside it."""
    yield body
    for node in body:
        for name in ("body", "orelse"):
            if getattr(node, name, None):
                yield from _blocks(getattr(node, name))


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield every ``name = value`` with one plain name on the left."""
    for block in _blocks(body):
        for node in block:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                yield node.targets[0].id, node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                assert node.value is not None
                yield node.target.id, node.value


def _remove(body: list[ast.stmt], unwanted: set[str]) -> None:
    """Remove the plain assignments to ``unwanted`` names."""
    for block in _blocks(body):
        block[:] = [
            node
            for node in block
            if not isinstance(node, ast.Pass)
            and not (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and unwanted.issuperset(stores_in(node))
            )
        ]


def _take_sizes(body: list[ast.stmt]) -> dict[str, int]:
    """Remove sizes fixed inside the kernel; return them, to be passed at the launch."""
    sizes = {
        name: value.value
        for name, value in _assignments(body)
        if isinstance(value, ast.Constant)
        and isinstance(value.value, int)
        and (_NUMEL.match(name) or name.endswith("BLOCK"))
    }
    _remove(body, set(sizes))
    return sizes


def _replace_single_row(
    body: list[ast.stmt], sizes: dict[str, int], config: dict[str, int]
) -> None:
    """Where x has one element, write its index for the block of zeros that stands for it."""
    if sizes.get("xnumel") != 1 or config.get("XBLOCK", 1) != 1 or "xindex" not in names_in(*body):
        return

    class Replace(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            if re.match(r"tl\.full\(\[.*?\], 0, tl\.int32\)\.broadcast_to\(", ast.unparse(node)):
                return ast.Name("xindex", ast.Load())
            return self.generic_visit(node)

    for index, node in enumerate(body):
        body[index] = Replace().visit(node)


def _drop_true_masks(body: list[ast.stmt]) -> None:
    true = {
        name
        for name, value in _assignments(body)
        if name.endswith("mask") and re.match(r"tl\.full\(.*, True, tl\.int1\)", ast.unparse(value))
    }
    transformer = _DropMasks(true)
    for index, node in enumerate(body):
        body[index] = transformer.visit(node)
    _remove(body, true - set(loads_in(*body)))


class _DropMasks(ast.NodeTransformer):
    """Remove masks that are always true from loads, stores, `&` and `tl.where`."""

    def __init__(self, true: set[str]) -> None:
        self.true = true

    def _is_true(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.true

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.BitAnd):
            if self._is_true(node.left):
                return node.right
            if self._is_true(node.right):
                return node.left
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = ast.unparse(node.func)
        if function == "tl.where" and self._is_true(node.args[0]):
            return node.args[1]
        position = {"tl.load": 1, "tl.store": 2, "tl.atomic_add": 2}.get(function)
        if position is None:
            return node
        kept = [k for k in node.keywords if k.arg not in ("eviction_policy", "mask")]
        masks = [k.value for k in node.keywords if k.arg == "mask"] + node.args[position:]
        node.args = node.args[:position]
        mask = masks[0] if masks else None
        if mask is None or self._is_true(mask) or ast.unparse(mask) == "None":
            node.keywords = [k for k in kept if k.arg != "other"]
        else:
            node.keywords = [ast.keyword("mask", mask), *kept]
        return node


def _drop_aliases(body: list[ast.stmt]) -> None:
    """Replace ``a = b`` by ``b`` where both always mean the same."""
    times = Counter(stores_in(*body))
    values: dict[str, set[str]] = {}
    for name, value in _assignments(body):
        values.setdefault(name, set()).add(ast.unparse(value))
    aliases: dict[str, ast.expr] = {}
    for name, value in _assignments(body):
        if isinstance(value, ast.Constant) and name.endswith("offset") and len(values[name]) == 1:
            aliases[name] = value
        if not isinstance(value, ast.Name) or len(values[name]) > 1:
            continue
        indices = _INDEX_ALIAS.match(name) and _INDEX_ALIAS.match(value.id)
        if indices or (times[name] == 1 and times[value.id] <= 1) or name == "RBLOCK":
            aliases[name] = value
    for _ in aliases:  # an alias may stand for an alias
        aliases = {
            name: aliases.get(value.id, value) if isinstance(value, ast.Name) else value
            for name, value in aliases.items()
        }
    _remove(body, set(aliases))
    body[:] = [replace_names(node, aliases) for node in body]


_INTEGERS = {"i32", "i64"}


class _Fold(ast.NodeTransformer):
    """Use inferred types and shapes to write numbers as numbers and drop empty conversions."""

    def __init__(
        self, scope: dict[str, KernelValue], pointwise: bool, scans: dict[str, str]
    ) -> None:
        self.scope = scope
        self.scans = scans
        self.pointwise = pointwise

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(node) for node in body]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        _unwrap_scan(node)
        node.value = self.visit(node.value)
        target = node.targets[0]
        if isinstance(target, ast.Name):
            known = infer(node.value, self.scope)
            if target.id in self.scope and self.scope[target.id].constant is None:
                known = self.scope[target.id]  # an accumulator keeps its first type
            self.scope[target.id] = known
        elif isinstance(target, ast.Tuple):
            results = infer_many(node.value, self.scope, len(target.elts))
            for item, known in zip(target.elts, results, strict=True):
                if isinstance(item, ast.Name):
                    self.scope.setdefault(item.id, known)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        if isinstance(node.target, ast.Name):
            self.scope[node.target.id] = KernelValue("i32", ())
        carried = Counter(name for name, _ in _assignments(node.body))
        for name in carried:
            if self.scope.get(name, UNKNOWN).constant is not None:
                known = self.scope[name]
                self.scope[name] = KernelValue(known.dtype, known.shape)
        node.body = self.block(node.body)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if (size := _at_least_one(node)) is not None:
            return size
        left, right = infer(node.left, self.scope), infer(node.right, self.scope)
        node.left = _literal(node.left, left, right)
        node.right = _literal(node.right, right, left)
        if isinstance(node.op, ast.Mult):  # times one is exact
            if text(node.right) == "1.0" and is_float(left.dtype):
                return node.left
            if text(node.left) == "1.0" and is_float(right.dtype):
                return node.right
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.comparators) == 1:
            left, right = infer(node.left, self.scope), infer(node.comparators[0], self.scope)
            if {left.dtype, right.dtype} <= _INTEGERS:  # whichever is wider, numbers compare alike
                left, right = (replace(v, dtype="i32") for v in (left, right))
            node.left = _literal(node.left, left, right)
            node.comparators = [_literal(node.comparators[0], right, left)]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Decide ``a if x.dtype is tl.float32 else b``, which Inductor writes for sign bits."""
        self.generic_visit(node)
        match node.test:
            case ast.Compare(left=ast.Attribute(value=value, attr="dtype"), ops=[ast.Is()]):
                known = infer(value, self.scope).dtype
                if known is not None:
                    return node.body if known == "fp32" else node.orelse
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return self._conversion(node, node.func.value)
        if function == "tl.broadcast_to" and len(node.args) == 2:
            known, wanted = infer(node.args[0], self.scope), infer(node, self.scope)
            implied = self.pointwise and known.shape is not None
            if known.shape == wanted.shape or implied:
                return node.args[0]
        elif function == "tl.where":
            a, b = (infer(argument, self.scope) for argument in node.args[1:])
            if (
                a.constant
                and b.constant
                and (a.dtype, text(a.constant)) == (b.dtype, text(b.constant))
            ):
                return node.args[1]
            node.args[1:] = [_literal(node.args[1], a, b), _literal(node.args[2], b, a)]
        elif function in ("maximum", "minimum"):
            a, b = (infer(argument, self.scope) for argument in node.args)
            left, right = _literal(node.args[0], a, b), _literal(node.args[1], b, a)
            node.args = [right, left] if is_number(left) else [left, right]
        elif function == "libdevice.pow":
            a, b = (infer(argument, self.scope) for argument in node.args)
            if {a.dtype, b.dtype} == {"fp32"}:
                node.args = [_literal(node.args[0], a, b), _literal(node.args[1], b, a)]
        elif function == "tl.associative_scan":
            self._named_scan(node)
        elif function == "tl.store":
            known = infer(node.args[1], self.scope)
            if known.constant is not None and known.dtype in ("fp32", "i32", "i64", "i1"):
                node.args[1] = known.constant
        return node

    def _named_scan(self, node: ast.Call) -> None:
        """Use `tl.cumsum` and `tl.cumprod` where they do the same."""
        name = self.scans.get(text(node.args[2]))
        if name and infer(node.args[0], self.scope).dtype in ("fp32", "fp64", "i32", "i64"):
            node.func = expression(name)
            node.args.pop()

    def _conversion(self, node: ast.Call, receiver: ast.expr) -> ast.AST:
        known = infer(receiver, self.scope)
        wanted = dtype_named(node.args[0], self.scope)
        if wanted is None or node.keywords:
            return node
        if wanted in _INTEGERS and _is_index(receiver):
            return receiver
        if known.constant is not None and known.shape is not None:
            number = _converted(known.constant, wanted)
            if number is not None:
                shape = ", ".join(known.shape)
                return expression(f"tl.full([{shape}], {text(number)}, {text(node.args[0])})")
        if known.dtype == wanted and known.dtype not in ("int", "float"):
            return receiver
        return node


_INDEX = re.compile(r"(ks\d+|[xyz]\d+|r\d_\d+|([xyz]|r\d_)(index|numel)|c\d+_\d+b*)$")


def _is_index(node: ast.expr) -> bool:
    """Whether an expression is made of indices and sizes: any integer type will do for it."""
    used = list(names_in(node))
    plain = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.Load)
    return (
        bool(used)
        and all(map(_INDEX.match, used))
        and all(isinstance(part, plain) for part in ast.walk(node))
    )


def _at_least_one(node: ast.BinOp) -> ast.expr | None:
    """Return ``s`` for ``(1 >= s) * 1 + s * (s > 1)``: where s is 0 there is no element."""
    match node:
        case ast.BinOp(
            left=ast.BinOp(left=a, op=ast.Mult(), right=b),
            op=ast.Add(),
            right=ast.BinOp(left=size, op=ast.Mult(), right=ast.Compare(ops=[ast.Gt()]) as many),
        ):
            least = {text(a), text(b)} == {"1", f"1 >= {text(size)}"}
            return size if least and text(many) == f"{text(size)} > 1" else None
    return None


class _CastSizes(ast.NodeTransformer):
    """Convert sizes by `tl.cast`: Triton makes a size of 1 a constant, which has no ``to``."""

    def __init__(self, sizes: Iterable[str]) -> None:
        self.sizes = set(sizes)

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(node) for node in body]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if isinstance(node.targets[0], ast.Name) and self._is_size(node.value):
            self.sizes.add(node.targets[0].id)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        plain = len(node.args) == 1 and not node.keywords
        if not (plain and isinstance(function, ast.Attribute) and function.attr == "to"):
            return node
        if not self._is_size(function.value):
            return node
        return expression(f"tl.cast({text(function.value)}, {text(node.args[0])})")

    def _is_size(self, node: ast.expr) -> bool:
        """Whether an expression is made of sizes and numbers alone."""
        used = set(names_in(node))
        calls = any(isinstance(n, ast.Call) for n in ast.walk(node))
        return bool(used) and used <= self.sizes and not calls


def _unwrap_scan(node: ast.Assign) -> None:
    """Write ``y, = tl.associative_scan((x,), …)`` without the tuples of one."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and len(target.elts) == 1 and isinstance(value, ast.Call):
        first = value.args[0]
        if text(value.func) == "tl.associative_scan" and isinstance(first, ast.Tuple):
            node.targets = [target.elts[0]]
            value.args[0] = first.elts[0]


def _converted(number: ast.expr, dtype: str) -> ast.expr | None:
    """Return the literal ``number`` as a literal of ``dtype``, where that is exact."""
    if isinstance(number, ast.Call):
        return number if is_float(dtype) else None
    if symbols := list(names_in(number)):
        return number if is_float(dtype) or not symbols[0].startswith("f") else None
    value = ast.literal_eval(number)
    if is_float(dtype):
        return expression(repr(float(value)))
    if isinstance(value, int) and dtype != "i1":
        return number
    return None


def _literal(node: ast.expr, known: KernelValue, other: KernelValue) -> ast.expr:
    """Return the bare number for a tensor filled with it, where Triton gives the same result."""
    if known.constant is None or other.constant is not None or other.dtype is None:
        return node
    same = known.dtype == other.dtype and known.dtype != "i1"
    widened = known.dtype in ("i32", "i64") and is_float(other.dtype)
    lifted = known.dtype == "fp32" and other.dtype in ("i8", "i16", "i32", "i64")
    if known.dtype is None or not (same or widened or lifted):
        return node
    return _converted(known.constant, known.dtype if lifted else other.dtype) or node


def _drop_unused(body: list[ast.stmt]) -> None:
    """Remove assignments whose result nobody reads, until none is left."""
    while True:
        unused = {name for name, _ in _assignments(body)} - set(loads_in(*body))
        if not unused:
            return
        _remove(body, unused)


def _inline(body: list[ast.stmt], block: list[ast.stmt], depth: int) -> None:
    """Move expressions of ``block`` into the statement that alone uses them."""
    for node in block:
        if isinstance(node, ast.For | ast.While | ast.If):
            _inline(body, node.body, depth + 1)
    uses = Counter(loads_in(*body))
    times = Counter(name for name, _ in _assignments(body))
    index = 0
    while index < len(block):
        node = block[index]
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if _INLINED.match(name) and uses[name] == 1 and times[name] == 1:
                user = _only_user(block, index, name)
                merged = user is not None and _merged(block[user], name, node.value, depth)
                if user is not None and merged and not _changed(block[index:user], node.value):
                    block[user] = merged
                    del block[index]
                    continue
        index += 1


def _only_user(block: list[ast.stmt], index: int, name: str) -> int | None:
    for later in range(index + 1, len(block)):
        if name in loads_in(block[later]):
            simple = isinstance(block[later], ast.Assign | ast.Expr | ast.Return)
            return later if simple else None
    return None


def _changed(between: list[ast.stmt], value: ast.expr) -> bool:
    """Whether a name in ``value`` is assigned again on the way."""
    return not set(stores_in(*between[1:])).isdisjoint(loads_in(value))


def _merged(user: ast.stmt, name: str, value: ast.expr, depth: int) -> ast.stmt | None:
    """Return ``user`` with ``value`` for ``name``, or None where that reads worse."""
    if _called(value) & (_BLOCKWISE | _EFFECTS):
        return None
    call = user.value if isinstance(user, ast.Expr) else None
    if isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.store":
        stored = call.args[1]
        if isinstance(stored, ast.Name) and stored.id == name:
            return None  # what is stored keeps a name of its own
    merged = replace_names(user, {name: value})
    operations = sum(
        isinstance(n, ast.BinOp | ast.Compare | ast.Call | ast.UnaryOp) for n in ast.walk(merged)
    )
    offset = re.match(r"[xyz]offset$", name)
    if not offset and (operations > 6 or len(text(merged)) + 4 * depth > 76):
        return None
    return merged
