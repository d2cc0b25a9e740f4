"""A hash that is equal for programs that differ in names and formatting only.

Renamed: local variables, arguments, functions, classes and global variables that the code itself
binds, and attributes that classes set on ``self`` and nothing else names, where the base is
``nn.Module``, ``object`` or nothing. With an argument go the keywords of calls of its own function,
and the strings that name it in a kernel's decorators and in launch grids (``meta["BLOCK"]``).
Gone: comments, docstrings, formatting, annotations, and import statements, because an imported name
is replaced by what it stands for (``F`` by ``torch.nn.functional``).

Kept, because another name is another program: names of libraries and of their attributes, methods
and special names, builtins, strings, numbers, keywords of calls of others' functions, and arguments
whose name is the keyword of a call of nobody knows what (`curate.clean.forms.calls`).
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, get_args

from curate.clean.forms.calls import CallGraph
from curate.clean.forms.syntax import (
    BINDS,
    FIELDS,
    Function,
    by_type,
    children,
    is_jitted,
    is_name,
    is_string,
    parameters,
    walk,
)

PLAIN_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "object"})
"""Bases whose own attributes are known, so that other attributes are the author's."""

KEPT_ATTRIBUTES = frozenset({"training", "call_super_init", "dump_patches"})
"""Attributes of ``nn.Module`` that a class may set and that mean something."""

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_OWN_BLOCK = frozenset({*get_args(Function), ast.ClassDef, *get_args(_Comprehension)})
"""Nodes whose insides are a block of their own."""

_STATEMENTS = frozenset({"body", "orelse", "finalbody"})
"""Fields that hold statements, where they hold lists."""


def canonical_tokens(code: str) -> list[str]:
    """Return what is hashed: node types, fields and values of the syntax tree, names replaced.

    Raises:
        SyntaxError: the code is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes and the like
        return tree_tokens(ast.parse(code))


def tree_tokens(tree: ast.Module) -> list[str]:
    """Return the canonical tokens of a program that is parsed already."""
    encoder = _Encoder(tree)
    encoder.encode(tree)
    return encoder.tokens


def tokens_sha256(tokens: list[str]) -> str:
    """Return the hash of canonical tokens."""
    text = "\0".join([*tokens, ""])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Scope(dict[str, str]):
    """What each name means in one block, found out and numbered when it is first asked for."""

    def __init__(
        self, encoder: _Encoder, bound: dict[str, str | None], is_class: bool = False
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.bound = bound
        self.is_class = is_class
        # Names of a class's block are not seen in its methods.
        self.outer = next((s for s in reversed(encoder.scopes) if not s.is_class), None)

    def __missing__(self, name: str) -> str:
        if name not in self.bound:
            meaning = self.outer[name] if self.outer is not None else name
        elif (path := self.bound[name]) is not None:
            meaning = path
        elif self.is_class:
            meaning = name
        else:
            meaning = self.encoder.new_name()
        self[name] = meaning
        return meaning


class _Encoder:
    """Writes a syntax tree as tokens, with names replaced."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = by_type(tree)
        self.tokens: list[str] = []
        self.calls = CallGraph(nodes)
        self.numbers = count()
        self.parameters: dict[tuple[int, str], str] = {}
        self.decorated: Function | None = None  # whose decorators we are in
        self.scopes: list[_Scope] = []
        self.scopes.append(_Scope(self, _bindings(tree.body)))
        self.selves: list[tuple[str, dict[str, str]]] = []  # name of self, its attributes
        self.own: list[dict[str, str]] = []  # attributes of the classes that we are in
        self.plain: list[bool] = []  # whether each of them is without a decorator and a base
        self.private = self._private_attributes(nodes)

    def new_name(self) -> str:
        """Return a name that nothing else has."""
        return f"%{next(self.numbers)}"

    def parameter(self, function: Function, name: str) -> str:
        """Return what an argument of a function is called."""
        if name in self.calls.loose:
            return name
        key = id(function), name
        if key not in self.parameters:
            self.parameters[key] = self.new_name()
        return self.parameters[key]

    def encode(self, node: ast.AST) -> None:
        """Append the tokens of a node."""
        _ENCODERS.get(type(node), _Encoder.fields)(self, node)

    def fields(self, node: ast.AST) -> None:
        # Empty fields are left out: which ones exist differs between versions of Python.
        kind = type(node)
        self.tokens.append(kind.__name__)
        for name in FIELDS[kind]:
            value = getattr(node, name, None)
            if value is None or value == []:
                continue
            self.tokens.append(name)
            if isinstance(value, list):
                for item in _without_docstring(value) if name in _STATEMENTS else value:
                    self._value(item, node)
                self.tokens.append("end")
            else:
                self._value(value, node)
        self.tokens.append("end")

    def _value(self, value: object, owner: ast.AST) -> None:
        if isinstance(value, ast.AST):
            self.encode(value)
        elif isinstance(value, str):
            self.tokens.append(self.scopes[-1][value])
        else:
            self.tokens.append(f"{type(value).__name__} {value!r}")

    def constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str) and self.decorated:
            self.string(value, self.decorated)
        else:
            said = [] if value is None else ["value", f"{type(value).__name__} {value!r}"]
            self.tokens += ("Constant", *said, "end")

    def string(self, text: str, function: Function | None) -> None:
        """Append a string, or the argument of a function that it names."""
        if function and any(name == text for _, name in parameters(function)):
            self.tokens += ("Constant", self.parameter(function, text), "end")
        else:
            self.tokens += ("Constant", "value", f"str {text!r}", "end")

    def call(self, node: ast.Call) -> None:
        callee = self.calls.callee(node)
        names = {name for _, name in parameters(callee)} if isinstance(callee, ast.AST) else ()
        self.tokens += ("Call", "func")
        self.encode(node.func)
        for argument in node.args:
            self.encode(argument)
        for keyword in node.keywords:
            name = keyword.arg or "**"
            if isinstance(callee, ast.AST) and name in names:
                name = self.parameter(callee, name)
            self.tokens += ("keyword", name)
            self.encode(keyword.value)
        self.tokens.append("end")

    def subscript(self, node: ast.Subscript) -> None:
        index = node.slice
        if isinstance(index, ast.Constant) and isinstance(index.value, str):
            self.tokens.append("Subscript")
            self.encode(node.value)
            self.string(index.value, self.calls.launched.get(index.value))
        else:
            self.fields(node)

    def annotated(self, node: ast.AnnAssign) -> None:
        if self.scopes[-1].is_class and not self.plain[-1]:
            self.fields(node)  # of a dataclass and the like: a field, and no other variable is one
        elif node.value:
            self.tokens += ("Assign", "targets")
            self.encode(node.target)
            self.tokens += ("end", "value")
            self.encode(node.value)
            self.tokens.append("end")

    def name(self, node: ast.Name) -> None:
        self.tokens += ("Name", self.scopes[-1][node.id])

    def import_(self, node: ast.Import | ast.ImportFrom) -> None:
        if node.names[0].name == "*":
            self.fields(node)

    def attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        if self.selves and isinstance(node.value, ast.Name):
            this, own = self.selves[-1]
            if node.value.id == this and name in own:
                own[name] = own[name] or f"%{next(self.numbers)}"
                name = own[name]
        self.tokens.append("Attribute")
        self.encode(node.value)
        self.tokens.append(name)

    def function(self, node: Function) -> None:
        is_method = self.scopes[-1].is_class
        self.tokens.append(type(node).__name__)
        outer, self.decorated = self.decorated, node if is_jitted(node) else None
        for decorator in getattr(node, "decorator_list", []):
            self.encode(decorator)
        self.decorated = outer
        for part in (*node.args.defaults, *node.args.kw_defaults):
            if part:
                self.encode(part)
            else:
                self.tokens.append("none")
        if not isinstance(node, ast.Lambda):
            self.tokens.append(node.name if is_method else self.scopes[-1][node.name])
        arguments = parameters(node)
        body = node.body if isinstance(node.body, list) else [node.body]
        bound: dict[str, str | None] = {name: self.parameter(node, name) for _, name in arguments}
        scope = _Scope(self, _bindings(body) | bound)
        self.scopes.append(scope)
        entered = is_method and bool(arguments) and not _is_static(node)
        if entered:
            self.selves.append((arguments[0][1], self.own[-1]))
        for place, argument in arguments:
            self.tokens += (place, scope[argument])
        self._block(body)
        if entered:
            self.selves.pop()

    def class_(self, node: ast.ClassDef) -> None:
        self.tokens += ("ClassDef", self.scopes[-1][node.name])
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.encode(part)
        own = _set_on_self(node) & self.private if self.private and self._is_plain(node) else ()
        self.plain.append(self._is_plain(node) and not node.decorator_list)
        self.own.append(dict.fromkeys(own, ""))
        self.scopes.append(_Scope(self, _bindings(node.body), is_class=True))
        self._block(node.body)
        self.plain.pop()
        self.own.pop()

    def _block(self, body: list[ast.stmt] | list[ast.expr]) -> None:
        """Append the tokens of the innermost block, and leave it."""
        for statement in _without_docstring(body):
            self.encode(statement)
        self.scopes.pop()
        self.tokens.append("end")

    def comprehension(self, node: _Comprehension) -> None:
        self.encode(node.generators[0].iter)
        targets = [generator.target for generator in node.generators]
        self.scopes.append(_Scope(self, _bindings(targets)))
        self.fields(node)
        self.scopes.pop()

    # attributes of self

    def _private_attributes(self, nodes: dict[type[ast.AST], list[Any]]) -> set[str]:
        """Return the attributes that plain classes set on ``self`` and that nobody else names."""
        classes = [node for node in nodes[ast.ClassDef] if self._is_plain(node)]
        if not classes:
            return set()
        uses = Counter(node.attr for node in nodes[ast.Attribute])
        # getattr and register_buffer name them in strings
        uses.update(str(node.value) for node in nodes[ast.Constant])
        for node in classes:
            own = _set_on_self(node)
            uses.subtract(use.attr for use in _uses_of_self(node) if use.attr in own)
        return {name for name, others in uses.items() if not others} - KEPT_ATTRIBUTES

    def _is_plain(self, node: ast.ClassDef) -> bool:
        return all(self._dotted(base) in PLAIN_BASES for base in node.bases)

    def _dotted(self, node: ast.expr) -> str:
        """Return a dotted name with imports replaced by what they stand for."""
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        return self.scopes[-1][node.id] if isinstance(node, ast.Name) else ""


_ENCODERS: dict[type[ast.AST], Callable[[_Encoder, Any], None]] = {
    ast.Name: _Encoder.name,
    ast.Constant: _Encoder.constant,
    ast.Attribute: _Encoder.attribute,
    ast.Call: _Encoder.call,
    ast.Subscript: _Encoder.subscript,
    ast.AnnAssign: _Encoder.annotated,
    ast.ClassDef: _Encoder.class_,
    ast.Import: _Encoder.import_,
    ast.ImportFrom: _Encoder.import_,
    **dict.fromkeys(get_args(Function), _Encoder.function),
    **dict.fromkeys(get_args(_Comprehension), _Encoder.comprehension),
}
"""How nodes are written that are not written as `_Encoder.fields` does."""


def _uses_of_self(node: ast.ClassDef) -> Iterator[ast.Attribute]:
    """Yield the places where a class's methods name an attribute of their first argument."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.args.args and not _is_static(method):
            this = method.args.args[0].arg
            for part in walk(method):
                if isinstance(part, ast.Attribute) and is_name(part.value, this):
                    yield part


def _set_on_self(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class's methods set and that are no methods."""
    stored = {use.attr for use in _uses_of_self(node) if isinstance(use.ctx, ast.Store)}
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    return {name for name in stored - methods if not name.startswith("__")}


def _bindings(body: Iterable[ast.AST]) -> dict[str, str | None]:
    """Return the names that a block binds; an import's with what it stands for.

    What lies in functions, classes and comprehensions in the block is not looked at.
    """
    bound: dict[str, str | None] = {}
    elsewhere: set[str] = set()
    pending = list(body)[::-1]
    while pending:
        node = pending.pop()
        kind = type(node)
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                bound.setdefault(node.id)
        elif kind in BINDS:
            if name := getattr(node, BINDS[kind]):
                bound.setdefault(name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= _imported(node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            elsewhere.update(node.names)
        if kind not in _OWN_BLOCK:
            pending += children(node)[::-1]
    return {name: path for name, path in bound.items() if name not in elsewhere}


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str | None]:
    """Return the names that an import binds, and the dotted path behind each."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.split(".")[0]: alias.name
            if alias.asname
            else alias.name.split(".")[0]
            for alias in node.names
        }
    module = "." * node.level + (node.module or "")
    return {
        alias.asname or alias.name: f"{module}.{alias.name}"
        for alias in node.names
        if alias.name != "*"
    }


def _is_static(node: Function) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in decorators)


def _without_docstring(body: list[ast.stmt] | list[ast.expr]) -> list[ast.AST]:
    """Return statements without those that are only a string: docstrings."""
    return [node for node in body if not is_string(node)]
