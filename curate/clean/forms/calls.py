"""Which of a program's own functions its calls call, as far as it is plain to see.

The keyword of a call is a name like any other where the call is one of the program's own
functions, and a fixed word where it is a library's. Some calls are neither for certain: those of a
variable, or of an attribute that may hold anything. The names of their keywords are loose: an
argument that is called so may be the one that is meant.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from curate.clean.forms.syntax import BINDS, Function, is_jitted, is_name, parameters, walk

Callee = Function | Literal["library", "unknown"]

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class CallGraph:
    """The calls of one program.

    Attributes:
        loose: names of keywords in calls of who knows what.
        launched: the jitted functions by the names of their arguments; of several that share a
            name, the first. Launch grids and tuners name such arguments in strings.
    """

    def __init__(self, nodes: dict[type[ast.AST], list[Any]]) -> None:
        """Look at a program, of which all nodes are given by type."""
        self._classes: list[ast.ClassDef] = nodes[ast.ClassDef]
        self._methods = {
            id(c): {n.name: n for n in c.body if isinstance(n, ast.FunctionDef)}
            for c in self._classes
        }
        self._method_names = {name for methods in self._methods.values() for name in methods}
        self._bound = Counter(_bound_names(nodes))
        imports = [*nodes[ast.Import], *nodes[ast.ImportFrom]]
        imported = {alias.asname or alias.name for node in imports for alias in node.names}
        inside = {id(node) for c in self._classes for node in c.body}
        self._own = {
            node.name: node
            for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            for node in nodes[kind]
            if id(node) not in inside and self._bound[node.name] == 1 and node.name not in imported
        }
        self._stored = Counter(n.attr for n in nodes[ast.Attribute] if isinstance(n.ctx, ast.Store))
        self._instances = {
            target.attr: node.value.func.id
            for node in nodes[ast.Assign]
            if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }
        self.launched: dict[str, Function] = {}
        for node in filter(is_jitted, nodes[ast.FunctionDef]):
            for _, name in parameters(node):
                self.launched.setdefault(name, node)
        self._callees: dict[int, Callee] = {}
        self.loose = self._loose_names(
            [node for node in nodes[ast.Call] if node.keywords],
            {node.value for node in nodes[ast.Constant] if isinstance(node.value, str)},
        )

    def callee(self, call: ast.Call) -> Callee:
        """Return what a call of the program calls; of a class, its ``__init__``."""
        return self._callees.get(id(call), "unknown")

    @cached_property
    def _class_of(self) -> dict[int, ast.ClassDef]:
        """The class that each call is in; the innermost, which stands after those around it."""
        calls = ((c, n) for c in self._classes for n in walk(c) if isinstance(n, ast.Call))
        return {id(call.func): owner for owner, call in calls}

    def _loose_names(self, calls: list[ast.Call], texts: set[str]) -> set[str]:
        loose: set[str] = set()
        spread = False  # whether a call of ours takes names out of a dictionary
        for call in calls:
            callee = self._callee(call.func)
            if callee == "library" and any(self._is_own(a) for a in call.args):
                callee = "unknown"  # functools.partial(own, keyword=…)
            self._callees[id(call)] = callee
            if callee == "unknown":
                loose.update(keyword.arg for keyword in call.keywords if keyword.arg)
            spread |= callee != "library" and any(k.arg is None for k in call.keywords)
        return loose | texts if spread else loose

    def _callee(self, node: ast.expr) -> Callee:
        """Return what an expression stands for when it is called."""
        if isinstance(node, ast.Subscript):  # kernel[grid]
            return self._callee(node.value)
        if isinstance(node, ast.Name):
            if node.id in self._own:
                return self._called_as(self._own[node.id], "__init__")
            return "unknown" if self._bound[node.id] or node.id == "dict" else "library"
        if not isinstance(node, ast.Attribute):
            return "unknown"
        return self._attribute(node)

    def _attribute(self, node: ast.Attribute) -> Callee:
        base, name = node.value, node.attr
        if is_name(base, "self") and (owner := self._class_of.get(id(node))):
            if name in (methods := self._methods[id(owner)]) and not self._stored[name]:
                return methods[name]
            if self._stored[name] == 1 and self._instances.get(name) in self._own:
                return self._called_as(self._own[self._instances[name]], "forward")
        is_super = isinstance(base, ast.Call) and is_name(base.func, "super")
        if is_super and (owner := self._class_of.get(id(node))):
            # A library's, where the class has no base that the program may have made itself.
            roots = {n.id for part in owner.bases for n in walk(part) if isinstance(n, ast.Name)}
            return "unknown" if any(self._bound[root] for root in roots) else "library"
        own = isinstance(base, ast.Name) and base.id in self._own
        return "unknown" if own or name in self._method_names or self._stored[name] else "library"

    def _called_as(self, definition: _Definition, method: str) -> Callee:
        if not isinstance(definition, ast.ClassDef):
            return definition
        return self._methods[id(definition)].get(method, "unknown")

    def _is_own(self, node: ast.expr) -> bool:
        """Say whether an expression is one of the program's own functions, classes or modules."""
        if isinstance(node, ast.Name):
            return node.id in self._own
        return isinstance(node, ast.Attribute) and (
            node.attr in self._method_names or self._instances.get(node.attr) in self._own
        )


def _bound_names(nodes: dict[type[ast.AST], list[Any]]) -> Iterator[str]:
    """Yield every name that is bound, once per place, imports left out."""
    yield from (node.id for node in nodes[ast.Name] if not isinstance(node.ctx, ast.Load))
    yield from (node.arg for node in nodes[ast.arg])
    for kind, field in BINDS.items():
        yield from (name for node in nodes[kind] if (name := getattr(node, field)))
