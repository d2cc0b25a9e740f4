"""What an expression is, as far as the function around it says: a tensor, a number, a dtype."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from tree_sitter import Node

from curate.harvest.python.package import Definition, Package
from curate.harvest.python.source import items_at, source_of, text_at, walk

Literal = int | float | bool | str | None


@dataclass(frozen=True)
class ArgumentValue:
    """What is known of a value.

    Attributes:
        kind: tensor, int, float, bool, none, str, dtype or unknown.
        dtype: of a tensor its elements' type, of a dtype itself; None where unknown.
        literal: the value itself, where the source says it.
    """

    kind: str
    dtype: str | None = None
    literal: Literal = None

    def described(self) -> dict[str, Any]:
        """Return the value as JSON values."""
        return {"kind": self.kind, "dtype": self.dtype, "value": self.literal}


UNKNOWN = ArgumentValue("unknown")
TENSOR = ArgumentValue("tensor")
INT = ArgumentValue("int")
FLOAT = ArgumentValue("float")
BOOL = ArgumentValue("bool")

_LITERALS = {
    **{"integer": "int", "float": "float", "string": "str"},
    **{"true": "bool", "false": "bool", "none": "none"},
}
"""Types of nodes that are literals, and their kinds."""
_DTYPES = {
    **{name: name for name in ("float16", "bfloat16", "float32", "float64", "bool", "uint8")},
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")},
    **{"half": "float16", "float": "float32", "double": "float64", "long": "int64"},
    **{"int": "int32", "int1": "bool", "float8_e4m3fn": "float8_e4m3fn"},
    **{"float8_e5m2": "float8_e5m2", "float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2"},
}
_CASTS = {
    name: _DTYPES[name] for name in ("half", "float", "double", "long", "int", "bool", "bfloat16")
}
_MAKERS = re.compile(
    r"(empty|zeros|ones|full|rand|randn|randint)(_like)?|arange|tensor|eye|empty_strided|linspace|"
    r"cat|stack|matmul"
)
_NEW = re.compile(r"new_(empty|zeros|ones|full|tensor|empty_strided)")
_INT_METHODS = re.compile(
    r"numel|size|stride|dim|ndimension|element_size|data_ptr|nelement|storage_offset"
)
_INT_FUNCTIONS = re.compile(r"next_power_of_2|cdiv|len|int|ceil|floor|isqrt|bit_length")
_FLOAT_FUNCTIONS = re.compile(r"float|sqrt|exp|log|log2|rsqrt")
_SAME_DTYPE = re.compile(
    r"contiguous|view|reshape|transpose|permute|t|(un)?squeeze|flatten|expand|clone|detach|view_as|"
    r"reshape_as|expand_as|unflatten|narrow|select|cuda|cpu|requires_grad_|movedim"
)
_ANNOTATED = {
    "Tensor": TENSOR,
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "str": ArgumentValue("str"),
    "dtype": ArgumentValue("dtype"),
}


class Values:
    """What the names of a launch site stand for.

    Args:
        package: the package.
        path: the file of the site.
        functions: the functions around the site, the innermost first.
    """

    def __init__(self, package: Package, path: str, functions: tuple[Node, ...]) -> None:
        self._package = package
        self._path = path
        self._scopes = [_Scope(function) for function in functions]
        self._names: dict[str, ArgumentValue] = {}

    def of(self, node: Node) -> ArgumentValue:
        """Return what an expression is."""
        if node.type in _LITERALS:
            return _literal(node)
        read = getattr(self, f"_{node.type}", None)
        found: ArgumentValue = read(node) if read else UNKNOWN
        return found

    def _parenthesized_expression(self, node: Node) -> ArgumentValue:
        return self.of(node.named_children[0])

    def _comparison_operator(self, node: Node) -> ArgumentValue:
        return BOOL

    def _not_operator(self, node: Node) -> ArgumentValue:
        return BOOL

    def _boolean_operator(self, node: Node) -> ArgumentValue:
        return joined([self.of(child) for child in node.named_children])

    def _conditional_expression(self, node: Node) -> ArgumentValue:
        first, _, last = node.named_children[:3]
        return joined([self.of(first), self.of(last)])

    def _unary_operator(self, node: Node) -> ArgumentValue:
        inner = self.of(node.named_children[0])
        if isinstance(inner.literal, int | float) and source_of(node).startswith("-"):
            return ArgumentValue(inner.kind, literal=-inner.literal)
        return ArgumentValue(inner.kind, inner.dtype)

    def _binary_operator(self, node: Node) -> ArgumentValue:
        kinds = [self.of(child) for child in node.named_children[:2]]
        if TENSOR.kind in (kinds[0].kind, kinds[1].kind):
            return TENSOR
        sign = text_at(node, "operator")
        numbers = {value.kind for value in kinds}
        if sign == "/" or (sign == "**" and "-" in source_of(node.named_children[1])):
            return FLOAT if "unknown" not in numbers else UNKNOWN
        if numbers == {"int"} or (sign == "//" and "int" in numbers):
            return INT
        return FLOAT if numbers in ({"float"}, {"int", "float"}) else UNKNOWN

    def _attribute(self, node: Node) -> ArgumentValue:
        name = source_of(node.named_children[-1])
        owner = source_of(node.named_children[0])
        if owner in ("torch", "tl", "triton.language") and name in _DTYPES:
            return ArgumentValue("dtype", _DTYPES[name])
        value = self.of(node.named_children[0])
        if name == "dtype":
            return ArgumentValue("dtype", value.dtype)
        if name in ("T", "mT", "data", "grad"):
            return ArgumentValue(value.kind, value.dtype)
        return INT if name in ("ndim", "itemsize") else UNKNOWN

    def _subscript(self, node: Node) -> ArgumentValue:
        owner = source_of(node.named_children[0])
        if owner.endswith((".shape", ".stride()", ".size()")):
            return INT
        value = self.of(node.named_children[0])
        return value if value.kind == "tensor" else UNKNOWN

    def _call(self, node: Node) -> ArgumentValue:
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if function is None or arguments is None:
            return UNKNOWN
        name = source_of(function).rpartition(".")[2]
        owner = function.child_by_field_name("object")
        if _INT_FUNCTIONS.fullmatch(name) or (owner is not None and _INT_METHODS.fullmatch(name)):
            return INT
        if name in ("min", "max", "abs", "round") and owner is None:
            return joined([self.of(child) for child in arguments.named_children])
        if _FLOAT_FUNCTIONS.fullmatch(name) and (owner is None or source_of(owner) == "math"):
            return FLOAT
        if name == "bool" and owner is None:
            return BOOL
        return self._tensor_call(name, owner, arguments) if owner is not None else UNKNOWN

    def _tensor_call(self, name: str, owner: Node, arguments: Node) -> ArgumentValue:
        keywords, given = _arguments(arguments)
        named = self.of(keywords["dtype"]) if "dtype" in keywords else None
        if source_of(owner) == "torch" and _MAKERS.fullmatch(name):
            like = self.of(given[0]) if name.endswith("_like") and given else UNKNOWN
            return ArgumentValue("tensor", named.dtype if named else like.dtype)
        value = self.of(owner)
        if value.kind == "unknown" and name in ("contiguous", "view", "reshape"):
            value = TENSOR  # nothing else has these methods
        if _NEW.fullmatch(name):
            return ArgumentValue("tensor", named.dtype if named else value.dtype)
        told = [self.of(argument) for argument in given] + ([named] if named else [])
        types = [argument.dtype for argument in told if argument.kind == "dtype"]
        if types and name in ("to", "type", "view"):
            return ArgumentValue("tensor", types[0])
        if value.kind != "tensor":
            return UNKNOWN
        if name in _CASTS:
            return ArgumentValue("tensor", _CASTS[name])
        if name == "to":  # a device
            return value
        if name in ("item", "tolist"):
            return UNKNOWN
        return ArgumentValue("tensor", value.dtype if _SAME_DTYPE.fullmatch(name) else None)

    def _identifier(self, node: Node) -> ArgumentValue:
        name = source_of(node)
        if name not in self._names:
            self._names[name] = UNKNOWN  # what it is while `x = x + 1` is read
            self._names[name] = self._name(name)
        return self._names[name]

    def _name(self, name: str) -> ArgumentValue:
        for scope in self._scopes:
            if name in scope.annotations or name in scope.assigned:
                told = [_annotated(a) for a in scope.annotations.get(name, [])]
                seen = [self._assigned(*pair) for pair in scope.assigned.get(name, [])]
                return joined([*told, *seen])
        return self._constant(name)

    def _assigned(self, value: Node, position: int | None) -> ArgumentValue:
        """Return what an assignment gives to its name, or to the one at a position."""
        if position is None:
            return self.of(value)
        if value.type in ("expression_list", "tuple") and position < len(value.named_children):
            return self.of(value.named_children[position])
        shaped = source_of(value).partition("[")[0].endswith((".shape", ".stride()", ".size()"))
        return INT if shaped else UNKNOWN

    def _constant(self, name: str) -> ArgumentValue:
        """Return what a top-level name is, where it is one literal."""
        target = self._package.resolve(self._path, name)
        if not isinstance(target, Definition):
            return UNKNOWN
        bound = self._package.file(target.path).definitions[target.name]
        if len(bound) != 1 or bound[0].node.type != "expression_statement":
            return UNKNOWN
        right = bound[0].node.named_children[0].child_by_field_name("right")
        if right is None or right.type not in _LITERALS or right.type == "none":
            return UNKNOWN
        return self.of(right)


class _Scope:
    """What a function says of its names: annotations and defaults, and what it assigns."""

    def __init__(self, function: Node) -> None:
        self.annotations: dict[str, list[Node]] = {}
        self.assigned: dict[str, list[tuple[Node, int | None]]] = {}
        for parameter in items_at(function, "parameters"):
            self._parameter(parameter)
        body = function.child_by_field_name("body")
        for node in walk(body) if body is not None else ():
            if node.type == "assignment":
                self._assignment(node)

    def _parameter(self, node: Node) -> None:
        named = node.child_by_field_name("name")
        name = source_of(named if named is not None else (node.named_children or [node])[0])
        annotation = node.child_by_field_name("type")
        default = node.child_by_field_name("value")
        self.annotations[name] = [annotation] if annotation is not None else []
        if default is not None:
            self.assigned.setdefault(name, []).append((default, None))

    def _assignment(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return
        if left.type == "identifier":
            self.assigned.setdefault(source_of(left), []).append((right, None))
        elif left.type in ("pattern_list", "tuple_pattern"):
            for position, child in enumerate(left.named_children):
                if child.type == "identifier":
                    self.assigned.setdefault(source_of(child), []).append((right, position))


def joined(values: list[ArgumentValue]) -> ArgumentValue:
    """Return what values have in common; one that is None or unknown does not weaken others."""
    known = [value for value in values if value.kind not in ("none", "unknown")]
    if not known:
        return ArgumentValue("none") if {value.kind for value in values} == {"none"} else UNKNOWN
    kinds = {value.kind for value in known}
    if len(kinds) > 1:
        return FLOAT if kinds == {"int", "float"} else UNKNOWN
    dtypes = {value.dtype for value in known if value.dtype}
    literal = known[0].literal if len(values) == 1 else None
    return ArgumentValue(known[0].kind, dtypes.pop() if len(dtypes) == 1 else None, literal)


def _literal(node: Node) -> ArgumentValue:
    kind = _LITERALS[node.type]
    try:
        return ArgumentValue(kind, literal=ast.literal_eval(source_of(node)))
    except (ValueError, SyntaxError):  # an f-string
        return ArgumentValue(kind)


def _annotated(annotation: Node) -> ArgumentValue:
    """Return what an annotation says; ``Optional[X]`` and ``X | None`` say X."""
    words = [source_of(node) for node in walk(annotation) if node.type == "identifier"]
    if source_of(annotation).strip("\"'").endswith("Tensor"):
        return TENSOR
    known = [_ANNOTATED[word] for word in words if word in _ANNOTATED]
    containers = {"List", "list", "Tuple", "tuple", "Dict", "dict", "Sequence", "Callable"}
    return joined(known) if known and not containers & set(words) else UNKNOWN


def _arguments(arguments: Node) -> tuple[dict[str, Node], list[Node]]:
    keywords: dict[str, Node] = {}
    given: list[Node] = []
    for node in arguments.named_children:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if node.type == "keyword_argument" and name is not None and value is not None:
            keywords[source_of(name)] = value
        else:
            given.append(node)
    return keywords, given
