"""A hash that is equal for programs that differ in names and formatting only.

Renamed: local variables, arguments, functions, classes and global variables that the code itself
binds, and attributes that classes set on ``self`` and nothing else names, where the base is
``nn.Module``, ``object`` or nothing. Gone: comments, docstrings, formatting, and import
statements, because an imported name is replaced by what it stands for (``F`` by
``torch.nn.functional``).

Kept, because another name is another program: names of libraries and of their attributes, methods
and special names, builtins, strings, numbers, annotations, and names that are used as a keyword
in any call.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import count

PLAIN_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "object"})
"""Bases whose own attributes are known, so that other attributes are the author's."""

KEPT_ATTRIBUTES = frozenset({"training", "call_super_init", "dump_patches"})
"""Attributes of ``nn.Module`` that a class may set and that mean something."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler
_Captured = ast.MatchAs | ast.MatchStar


def canonical_sha256(code: str) -> str:
    """Return 64 hex digits that programs share when one is the other renamed and reformatted.

    Raises:
        SyntaxError: the code is not Python.
    """
    return tokens_sha256(canonical_tokens(code))


def canonical_tokens(code: str) -> list[str]:
    """Return what is hashed: node types, fields and values of the syntax tree, names replaced.

    Raises:
        SyntaxError: the code is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes and the like
        tree = ast.parse(code)
    return list(_Encoder(tree).encode(tree))


def tokens_sha256(tokens: list[str]) -> str:
    """Return the hash of canonical tokens."""
    digest = hashlib.sha256()
    for token in tokens:
        digest.update(token.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


class _Scope:
    """Names bound in one block: what each stands for, numbered at first use."""

    def __init__(self, bound: dict[str, str | None], is_class: bool = False) -> None:
        self.bound = bound
        self.is_class = is_class


class _Encoder:
    """Writes a syntax tree as tokens, with names replaced."""

    def __init__(self, tree: ast.Module) -> None:
        self.keywords = {
            keyword.arg
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            for keyword in node.keywords
        }
        self.numbers = count()
        self.scopes = [_Scope(self._bindings(tree.body))]
        self.selves: list[tuple[str, dict[str, str]]] = []  # name of self, its attributes
        self.own: list[dict[str, str]] = []  # attributes of the classes that we are in
        self.private = self._private_attributes(tree)

    # what a name stands for

    def _bindings(self, body: list[ast.stmt] | list[ast.expr]) -> dict[str, str | None]:
        """Return the names that a block binds; an import's with what it stands for."""
        bound: dict[str, str | None] = {}
        elsewhere: set[str] = set()
        for node in _block(body):
            if isinstance(node, ast.Global | ast.Nonlocal):
                elsewhere.update(node.names)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound |= _imported(node)
            else:
                bound |= {name: None for name in _bound_by(node) if name not in bound}
        return {name: path for name, path in bound.items() if name not in elsewhere}

    def _name(self, name: str) -> str:
        for depth, scope in enumerate(reversed(self.scopes)):
            if name not in scope.bound or (scope.is_class and depth):
                continue
            known = scope.bound[name]
            if known is None and not (scope.is_class or name in self.keywords):
                known = scope.bound[name] = f"%{next(self.numbers)}"
            return known or name
        return name

    # the tree

    def encode(self, node: ast.AST) -> Iterator[str]:
        """Yield the tokens of a node."""
        if isinstance(node, ast.Import | ast.ImportFrom) and not _is_star(node):
            return
        if isinstance(node, ast.Name):
            yield from ("Name", self._name(node.id))
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from self._function(node)
        elif isinstance(node, ast.ClassDef):
            yield from self._class(node)
        elif isinstance(node, _Comprehension):
            yield from self._comprehension(node)
        else:
            yield from self._fields(node)

    def _fields(self, node: ast.AST, skip: tuple[str, ...] = ()) -> Iterator[str]:
        # Empty fields are left out: which ones exist differs between versions of Python.
        yield type(node).__name__
        for name, value in ast.iter_fields(node):
            if name in skip or name in ("ctx", "type_comment", "kind") or value in (None, []):
                continue
            yield name
            yield from self._value(name, value, node)
        yield "end"

    def _value(self, field: str, value: object, owner: ast.AST) -> Iterator[str]:
        if isinstance(value, ast.AST):
            yield from self.encode(value)
        elif isinstance(value, list):
            statements = field in ("body", "orelse", "finalbody")
            for item in _without_docstring(value) if statements else value:
                yield from self._value("", item, owner)
            yield "end"
        elif isinstance(value, str) and not isinstance(owner, ast.Constant | ast.keyword):
            yield self._name(value)
        else:
            yield f"{type(value).__name__} {value!r}"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        name = node.attr
        if isinstance(node.value, ast.Name) and self.selves:
            this, own = self.selves[-1]
            if node.value.id == this and name in own:
                own[name] = own[name] or f"%{next(self.numbers)}"
                name = own[name]
        yield "Attribute"
        yield from self.encode(node.value)
        yield name

    def _function(self, node: _Function) -> Iterator[str]:
        is_method = self.scopes[-1].is_class
        outer = [*getattr(node, "decorator_list", []), *node.args.defaults, *node.args.kw_defaults]
        yield type(node).__name__
        for part in [*outer, *_annotations(node)]:
            yield from self.encode(part) if part else ("none",)
        if not isinstance(node, ast.Lambda):
            yield node.name if is_method else self._name(node.name)
        arguments = _arguments(node.args)
        body = node.body if isinstance(node.body, list) else [node.body]
        bound: dict[str, str | None] = dict.fromkeys(arg for _, arg in arguments)
        self.scopes.append(_Scope(self._bindings(body) | bound))
        entered = is_method and bool(arguments) and not _is_static(node)
        if entered:
            self.selves.append((arguments[0][1], self.own[-1]))
        for place, argument in arguments:
            yield from (place, self._name(argument))
        for statement in _without_docstring(body):
            yield from self.encode(statement)
        if entered:
            self.selves.pop()
        self.scopes.pop()
        yield "end"

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        yield from ("ClassDef", self._name(node.name))
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            yield from self.encode(part)
        own = _set_on_self(node) & self.private if self._is_plain(node) else ()
        self.own.append(dict.fromkeys(own, ""))
        self.scopes.append(_Scope(self._bindings(node.body), is_class=True))
        for statement in _without_docstring(node.body):
            yield from self.encode(statement)
        self.scopes.pop()
        self.own.pop()
        yield "end"

    def _private_attributes(self, tree: ast.Module) -> set[str]:
        """Return the attributes that plain classes set on ``self`` and that nobody else names."""
        uses = Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and self._is_plain(node):
                own = _set_on_self(node)
                uses.subtract(use.attr for use in _uses_of_self(node) if use.attr in own)
            elif isinstance(node, ast.Constant):
                uses[str(node.value)] += 1  # getattr and register_buffer name them in strings
        return {name for name, others in uses.items() if not others} - KEPT_ATTRIBUTES

    def _is_plain(self, node: ast.ClassDef) -> bool:
        return all("".join(self._dotted(base)) in PLAIN_BASES for base in node.bases)

    def _dotted(self, node: ast.expr) -> Iterator[str]:
        """Yield the parts of a dotted name, with imports replaced by what they stand for."""
        if isinstance(node, ast.Attribute):
            yield from self._dotted(node.value)
            yield "." + node.attr
        elif isinstance(node, ast.Name):
            yield self._name(node.id)

    def _comprehension(self, node: _Comprehension) -> Iterator[str]:
        yield from self.encode(node.generators[0].iter)
        targets = [generator.target for generator in node.generators]
        self.scopes.append(_Scope(self._bindings(targets)))
        yield from self._fields(node)
        self.scopes.pop()


def _uses_of_self(node: ast.ClassDef) -> Iterator[ast.Attribute]:
    """Yield the places where a class's methods name an attribute of their first argument."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.args.args and not _is_static(method):
            this = method.args.args[0].arg
            for part in ast.walk(method):
                if isinstance(part, ast.Attribute) and _is_name(part.value, this):
                    yield part


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _set_on_self(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class's methods set and that are no methods."""
    stored = {use.attr for use in _uses_of_self(node) if isinstance(use.ctx, ast.Store)}
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    return {name for name in stored - methods if not name.startswith("__")}


def _block(body: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    """Yield the nodes of a block, but not what lies in functions, classes and the like in it."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef | _Comprehension):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that one node binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, _Named | _Captured) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


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


def _is_star(node: ast.Import | ast.ImportFrom) -> bool:
    return node.names[0].name == "*"


def _is_static(node: _Function) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in decorators)


def _arguments(arguments: ast.arguments) -> list[tuple[str, str]]:
    """Return the arguments in order, each with the kind of place it stands in."""
    found = [("positional_only", a.arg) for a in arguments.posonlyargs]
    found += [("argument", a.arg) for a in arguments.args]
    found += [("rest", a.arg) for a in [arguments.vararg] if a]
    found += [("keyword_only", a.arg) for a in arguments.kwonlyargs]
    found += [("keywords", a.arg) for a in [arguments.kwarg] if a]
    return found


def _annotations(node: _Function) -> list[ast.expr | None]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, arguments.vararg]
    every += [*arguments.kwonlyargs, arguments.kwarg]
    return [a.annotation if a else None for a in every] + [getattr(node, "returns", None)]


def _without_docstring(body: list[ast.stmt] | list[ast.expr]) -> list[ast.AST]:
    """Return statements without those that are only a string: docstrings."""
    return [
        node
        for node in body
        if not (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
    ]
