"""How a kernel uses its parameters, read from its source and from the helpers that it calls.

The source is walked once, statement by statement, with helpers entered where they are called. A
value carries the parameters that may be its address (``x_ptr + row * stride``: x_ptr), those whose
elements it is made of, and those that it was computed from at all. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import Any

from curate.syntax import literal

MAX_DEPTH = 12  # calls between the kernel and a helper
MAX_CALLS = 400  # helpers entered in all

NO_DEFAULT = object()


@dataclass
class ParameterUse:
    """What the source shows of one parameter.

    Attributes:
        name: its name.
        annotation: the source of its annotation, or "".
        default: its literal default, or `NO_DEFAULT`.
        uses: how the parameter itself is used: ``pointer``, ``descriptor``, ``index`` (an integer),
            ``float``, ``shape`` (an integer known when compiled), ``range``, ``condition``,
            ``none_test``, ``dtype``, ``called``, ``atomic``, ``address``, ``tuple``.
        elements: how what is loaded through it is used: ``index``, ``bool``, ``float``, ``dot``,
            ``address``.
        literals: the literals that it is compared with, in order.
        offsets: of a tensor descriptor, the parameters that reach each offset of an access.
    """

    name: str
    annotation: str = ""
    default: Any = NO_DEFAULT
    uses: set[str] = field(default_factory=set)
    elements: set[str] = field(default_factory=set)
    literals: list[Any] = field(default_factory=list)
    offsets: list[frozenset[str]] = field(default_factory=list)

    @property
    def is_constexpr(self) -> bool:
        """Whether the kernel declares it a ``tl.constexpr``."""
        return "constexpr" in self.annotation


@dataclass(frozen=True)
class DataflowValue:
    """What is known of an expression; the strings are names of parameters.

    Attributes:
        bases: those that may be the address it stands for, leftmost first.
        loaded: those whose elements it is.
        reach: those that it was computed from.
        index: whether it comes from ``tl.arange`` or ``tl.program_id``.
        items: the elements of a tuple or list.
        descriptor: whether it is a tensor descriptor made in the kernel.
    """

    bases: tuple[str, ...] = ()
    loaded: frozenset[str] = frozenset()
    reach: frozenset[str] = frozenset()
    index: bool = False
    items: tuple[DataflowValue, ...] = ()
    descriptor: bool = False


NOTHING = DataflowValue()


def _join(values: list[DataflowValue], *, bases: bool = True) -> DataflowValue:
    return DataflowValue(
        tuple(dict.fromkeys(b for v in values for b in v.bases)) if bases else (),
        frozenset().union(*(v.loaded for v in values)),
        frozenset().union(*(v.reach for v in values)),
        any(v.index for v in values),
        descriptor=any(v.descriptor for v in values),
    )


@dataclass(frozen=True)
class KernelReading:
    """What the source shows.

    Attributes:
        parameters: by name, in order.
        reach: local variable, in the kernel or a helper, to the parameters it is computed from.
    """

    parameters: dict[str, ParameterUse]
    reach: dict[str, frozenset[str]]


def read_kernel(source: str, entry_point: str) -> KernelReading:
    """Return how the kernel ``entry_point`` of a file uses its parameters.

    Raises:
        SyntaxError: the source does not parse.
        KeyError: it defines no such function.
    """
    functions = {
        node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)
    }
    kernel = functions[entry_point]
    parameters = {p.name: p for p in _parameters(kernel)}
    walk = _Walk(functions, parameters)
    walk.enter(
        kernel, {name: DataflowValue((name,), reach=frozenset([name])) for name in parameters}
    )
    walk.settle()
    return KernelReading(parameters, walk.reach)


def _parameters(function: ast.FunctionDef) -> list[ParameterUse]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, [*missing, *arguments.defaults], strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    found = []
    for argument, default in pairs:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        found.append(ParameterUse(argument.arg, annotation, literal(default, NO_DEFAULT)))
    return found


# Functions of triton.language, by what they do with their arguments.
MEMORY = {"load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or"}
MEMORY |= {"atomic_xor", "atomic_xchg", "atomic_cas"}
INTEGER_ATOMICS = {"atomic_and", "atomic_or", "atomic_xor", "atomic_cas"}
BASED = {"make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor"}
SHAPED = {"zeros", "full", "reshape", "view", "broadcast_to", "empty"}  # shape: first list
FLOATING = {"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "sigmoid", "erf", "tanh"}
FLOATING |= {"softmax", "floor", "ceil", "fma", "sqrt_rn", "div_rn", "log1p", "expm1", "pow"}
SAME = {"to", "cast", "multiple_of", "max_contiguous", "max_constancy", "advance", "trans", "abs"}
SAME |= {"where", "broadcast", "expand_dims", "maximum", "minimum", "reshape", "view", "sum", "max"}
SAME |= {"min", "ravel", "flip", "permute", "broadcast_to", "cumsum", "clamp", "assume"}
INTEGER = {"cdiv", "range", "swizzle2d", "next_power_of_2", "num_programs"}


class _Walk:
    def __init__(
        self, functions: dict[str, ast.FunctionDef], parameters: dict[str, ParameterUse]
    ) -> None:
        self.functions, self.parameters = functions, parameters
        self.reach: dict[str, frozenset[str]] = {}
        self.addresses: list[DataflowValue] = []  # of each access
        self.calls: list[str] = []
        self.entered = 0

    def settle(self) -> None:
        """Decide which summand of each address is the pointer: all else in it is an integer."""
        for address in sorted(self.addresses, key=lambda value: len(value.bases)):
            known = [b for b in address.bases if "pointer" in self.parameters[b].uses]
            if address.bases and not known:
                self.parameters[min(address.bases, key=self._not_pointer)].uses.add("pointer")
        for name in sorted(frozenset().union(*(address.reach for address in self.addresses))):
            if not self.parameters[name].uses & {"pointer", "descriptor", "float"}:
                self.parameters[name].uses.add("index")

    def _not_pointer(self, name: str) -> int:
        uses = self.parameters[name]
        return (
            4 * uses.is_constexpr
            + 2 * bool(uses.uses & {"index", "shape", "range"})
            - looks_like_pointer(name)
        )

    # --- statements ---

    def enter(self, function: ast.FunctionDef, scope: dict[str, DataflowValue]) -> DataflowValue:
        """Walk a function with its arguments, and return what it returns."""
        returned: list[DataflowValue] = []
        self.calls.append(function.name)
        self.entered += 1
        self._block(function.body, scope, returned)
        self.calls.pop()
        for name, value in scope.items():
            self.reach[name] = self.reach.get(name, frozenset()) | value.reach
        if len(returned) == 1:
            return returned[0]
        return _join(returned)

    def _block(
        self, body: list[ast.stmt], scope: dict[str, DataflowValue], returned: list[DataflowValue]
    ) -> None:
        for statement in body:
            self._statement(statement, scope, returned)

    def _statement(
        self, node: ast.stmt, scope: dict[str, DataflowValue], returned: list[DataflowValue]
    ) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                given = self.value(value, scope)
                for target in targets:
                    self._assign(target, given, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.value(value, scope), scope)
            case ast.AugAssign(target=ast.Name() as name, op=op, value=value):
                load = ast.Name(name.id, ast.Load())
                self._assign(name, self.value(ast.BinOp(load, op, value), scope), scope)
            case ast.Return(value=ast.expr() as value):
                returned.append(self.value(value, scope))
            case ast.Expr(value=value):
                self.value(value, scope)
            case ast.Assert(test=test):
                self.value(test, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self._condition(test, scope)
                other = dict(scope)
                self._block(body, scope, returned)
                self._block(orelse, other, returned)
                for variable, last in other.items():
                    known = scope.get(variable, last)
                    scope[variable] = last if known == last else _join([known, last])
            case ast.For(target=target, iter=over, body=body):
                self._assign(target, self.value(over, scope), scope)
                for _ in range(2):  # once more with what the body assigned
                    self._block(body, scope, returned)
            case ast.While(test=test, body=body):
                for _ in range(2):
                    self._condition(test, scope)
                    self._block(body, scope, returned)
            case ast.With(body=body):
                self._block(body, scope, returned)
            case _:  # pass, break, continue, import: nothing flows
                return

    def _assign(
        self, target: ast.expr, value: DataflowValue, scope: dict[str, DataflowValue]
    ) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = value.items
            if len(items) != len(target.elts):
                items = (value,) * len(target.elts)
            for part, item in zip(target.elts, items, strict=True):
                self._assign(part, item, scope)

    def _condition(self, node: ast.expr, scope: dict[str, DataflowValue]) -> None:
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    self._condition(value, scope)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._condition(operand, scope)
            case _:
                tested = self.value(node, scope)
                if isinstance(node, ast.Name):
                    self._use(tested.bases, "condition")

    # --- expressions ---

    def _use(self, names: tuple[str, ...] | frozenset[str], use: str) -> None:
        for name in names:
            self.parameters[name].uses.add(use)

    def _element(self, value: DataflowValue, use: str) -> None:
        for name in value.loaded:
            self.parameters[name].elements.add(use)

    def _integer(self, value: DataflowValue) -> None:
        if len(value.bases) == 1:
            self._use(value.bases, "index")
        self._element(value, "index")

    def value(self, node: ast.expr, scope: dict[str, DataflowValue]) -> DataflowValue:
        """Return what is known of an expression, and note how it uses parameters."""
        match node:
            case ast.Name(id=name):
                return scope.get(name, NOTHING)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(op, self.value(left, scope), self.value(right, scope))
            case ast.Compare():
                return self._compare(node, scope)
            case ast.BoolOp(values=values):
                self._condition(node, scope)
                found = [self.value(part, scope) for part in values]
                for operand in found:
                    self._element(operand, "bool")
                return _join(found, bases=False)
            case ast.UnaryOp(op=sign, operand=operand):
                inverted = self.value(operand, scope)
                if isinstance(sign, ast.Invert):
                    self._element(inverted, "bool")
                return inverted
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._condition(test, scope)
                return _join([self.value(body, scope), self.value(orelse, scope)])
            case ast.Subscript(value=of, slice=index):
                base = self.value(of, scope)
                if isinstance(index, ast.Constant) and base.items and type(index.value) is int:
                    return base.items[index.value] if index.value < len(base.items) else base
                if isinstance(of, ast.Name) and isinstance(index, ast.Constant | ast.Name):
                    self._use(base.bases, "tuple")
                return base
            case ast.Attribute(value=of, attr=attribute):
                owner = self.value(of, scope)
                if attribute in ("dtype", "element_ty") and len(owner.bases) == 1:
                    if isinstance(of, ast.Attribute):  # x_ptr.dtype.element_ty
                        self._use(owner.bases, "pointer")
                    return DataflowValue(reach=owner.reach)
                return owner if attribute in ("T", "value") else DataflowValue(reach=owner.reach)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                items = tuple(self.value(element, scope) for element in elements)
                return DataflowValue(
                    items=items, reach=frozenset().union(*(item.reach for item in items))
                )
            case ast.Call():
                return self._call(node, scope)
            case _:
                return NOTHING

    def _operation(
        self, op: ast.operator, left: DataflowValue, right: DataflowValue
    ) -> DataflowValue:
        pair = [left, right]
        additive = isinstance(op, ast.Add | ast.Sub)
        if not additive and isinstance(op, ast.Mod | ast.FloorDiv | ast.LShift | ast.RShift):
            for value in pair:
                self._integer(value)
        if isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
            for value in pair:
                self._element(value, "bits")
        if isinstance(op, ast.Mult | ast.Div | ast.Sub):
            for value, other in (pair, pair[::-1]):
                if value.index and not isinstance(op, ast.Div):
                    self._integer(other)
                if value.loaded and len(other.bases) == 1:
                    self._use(other.bases, "scales")
        return _join(pair, bases=additive)

    def _compare(self, node: ast.Compare, scope: dict[str, DataflowValue]) -> DataflowValue:
        sides = [node.left, *node.comparators]
        values = [self.value(side, scope) for side in sides]
        for side, value in zip(sides, values, strict=True):
            compared = literal(side, NO_DEFAULT)
            if compared is not NO_DEFAULT:
                for other in values:
                    if len(other.bases) != 1:
                        continue
                    if compared is None:
                        self._use(other.bases, "none_test")
                    else:
                        self.parameters[other.bases[0]].literals += (
                            compared if isinstance(compared, tuple | list) else [compared]
                        )
            elif value.index:
                for other in values:
                    self._integer(other)
        return DataflowValue(reach=_join(values).reach)

    def _call(self, node: ast.Call, scope: dict[str, DataflowValue]) -> DataflowValue:
        given = [self.value(a.value if isinstance(a, ast.Starred) else a, scope) for a in node.args]
        named = {k.arg: self.value(k.value, scope) for k in node.keywords if k.arg}
        function = node.func
        if isinstance(function, ast.Name) and function.id in self.functions:
            return self._helper(self.functions[function.id], given, named)
        if isinstance(function, ast.Attribute):
            name = function.attr
            if not _is_module(function.value, scope):
                given = [self.value(function.value, scope), *given]
                if name in ("load", "store", "atomic_add") and given[0].bases and given[1:]:
                    return self._through_descriptor(given[0], given[1])
            if name in ("to", "cast"):
                return self._cast(node, given, named)
        elif isinstance(function, ast.Name):
            name = function.id
            if name in scope:
                self._use(scope[name].bases, "called")
        else:
            return NOTHING
        return self._builtin(name, given, named)

    def _helper(
        self, function: ast.FunctionDef, given: list[DataflowValue], named: dict[str, DataflowValue]
    ) -> DataflowValue:
        if function.name in self.calls or len(self.calls) > MAX_DEPTH or self.entered > MAX_CALLS:
            return _join([*given, *named.values()])
        names = [p.name for p in _parameters(function)]
        scope = dict.fromkeys(names, NOTHING)
        scope.update(zip(names, given, strict=False))
        scope.update({name: value for name, value in named.items() if name in scope})
        for parameter in _parameters(function):
            if parameter.is_constexpr and len(scope[parameter.name].bases) == 1:
                self._use(scope[parameter.name].bases, "constant")
        return self.enter(function, scope)

    def _through_descriptor(self, of: DataflowValue, offsets: DataflowValue) -> DataflowValue:
        if not of.descriptor:
            self._use(of.bases[:1], "descriptor")
            self.parameters[of.bases[0]].offsets = [item.reach for item in offsets.items]
        return DataflowValue(loaded=frozenset(of.bases[:1]), reach=of.reach)

    def _cast(
        self, node: ast.Call, given: list[DataflowValue], named: dict[str, DataflowValue]
    ) -> DataflowValue:
        value = given[0] if given else NOTHING
        for kind in [*given[1:2], *named.values()]:
            self._use(kind.bases, "dtype")
        into = ast.unparse(node)
        if "pointer_type" in into:
            self._use(value.bases, "address")
            self._element(value, "address")
            return DataflowValue(reach=value.reach)
        # A float made of it says nothing about the elements themselves.
        kept = value.loaded if "int" in into else frozenset()
        return replace(value, loaded=kept)

    def _builtin(
        self, name: str, given: list[DataflowValue], named: dict[str, DataflowValue]
    ) -> DataflowValue:
        every = [*given, *named.values()]
        first = given[0] if given else next(iter(named.values()), NOTHING)
        if name in MEMORY:
            return self._access(name, first, given, named)
        if name in BASED:
            self.addresses.append(first)
            for value in (*given[1:], *named.values()):
                for item in value.items:
                    self._integer(item)
            self._shape(named.get("block_shape", given[-1] if given else NOTHING))
            return DataflowValue(first.bases, reach=first.reach, descriptor=True)
        if name in ("arange", "static_range"):
            for value in every:
                self._use(value.bases, "shape" if name == "arange" else "unrolled")
            return DataflowValue(reach=_join(every).reach, index=True)
        if name in SHAPED:
            for value in every:
                self._shape(value)
        if name in INTEGER:
            for value in every:
                self._integer(value)
                if name == "range":
                    self._use(value.bases, "range")
            return DataflowValue(reach=_join(every).reach, index=True)
        if name == "program_id":
            return DataflowValue(index=True)
        if name == "dot":
            for value in every[:2]:
                self._element(value, "dot")
        elif name in FLOATING:
            self._use(first.bases, "float")
            for value in every:
                self._element(value, "float")
        if "dtype" in named:
            self._use(named["dtype"].bases, "dtype")
        if name == "where" and given:
            self._element(given[0], "bool")
            return _join(every[1:])
        return _join(every, bases=name in SAME)

    def _shape(self, value: DataflowValue) -> None:
        for item in value.items:
            self._use(item.bases, "shape")

    def _access(
        self,
        name: str,
        address: DataflowValue,
        given: list[DataflowValue],
        named: dict[str, DataflowValue],
    ) -> DataflowValue:
        if not address.descriptor:
            self.addresses.append(address)
        self._element(address, "index")
        position = 1 if name == "load" else 3 if name == "atomic_cas" else 2
        mask = named.get("mask", given[position] if len(given) > position else NOTHING)
        self._element(mask, "bool")
        loaded = self._pointers(address.bases)
        if name in INTEGER_ATOMICS:
            for pointer in loaded:
                self.parameters[pointer].elements.add("index")
        if name.startswith("atomic"):
            self._use(loaded, "atomic")
        return DataflowValue(loaded=loaded, reach=address.reach)

    def _pointers(self, bases: tuple[str, ...]) -> frozenset[str]:
        return frozenset([min(bases, key=self._not_pointer)] if bases else [])


def _is_module(node: ast.expr, scope: dict[str, DataflowValue]) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id not in scope


def looks_like_pointer(name: str) -> bool:
    """Return whether programmers give pointers such a name."""
    return re.search(r"(^|_)(ptrs?|pointer|desc)($|_)|ptr$", name.lower()) is not None
