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
from typing import Literal

from curate.clean.syntax import BINDS, Function, is_jitted, is_name, parameters, walk

Callee = Function | Literal["library", "unknown"]

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Calls:
    """The calls of one program.

    Attributes:
        loose: names of keywords in calls of who knows what.
        launched: the jitted functions by the names of their arguments; of several that share a
            name, the first. Launch grids and tuners name such arguments in strings.
    """

    def __init__(self, nodes: list[ast.AST]) -> None:
        """Look at a program, of which all nodes are given."""
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        self._methods = {
            id(c): {n.name: n for n in c.body if isinstance(n, ast.FunctionDef)} for c in classes
        }
        self._method_names = {name for methods in self._methods.values() for name in methods}
        self._bound = Counter(_bound_names(nodes))
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        imported = {alias.asname or alias.name for node in imports for alias in node.names}
        inside = {id(node) for c in classes for node in c.body}
        self._own = {
            node.name: node
            for node in nodes
            if isinstance(node, _Definition)
            and id(node) not in inside
            and self._bound[node.name] == 1
            and node.name not in imported
        }
        self._stored = Counter(
            n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        )
        self._instances = {
            target.attr: node.value.func.id
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if isinstance(target, ast.Attribute) and isinstance(node.value.func, ast.Name)
        }
        self.launched: dict[str, Function] = {}
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and is_jitted(node):
                for _, name in parameters(node):
                    self.launched.setdefault(name, node)
        self._class_of = {
            id(node): c for c in classes for node in walk(c) if isinstance(node, ast.Call)
        }  # the innermost: outer classes stand before those in them
        self._callees: dict[int, Callee] = {}
        self.loose = self._loose_names(
            [node for node in nodes if isinstance(node, ast.Call)],
            {node.value for node in nodes if isinstance(node, ast.Constant)},
        )

    def callee(self, call: ast.Call) -> Callee:
        """Return what a call of the program calls; of a class, its ``__init__``."""
        return self._callees.get(id(call), "unknown")

    def _loose_names(self, calls: list[ast.Call], constants: set[object]) -> set[str]:
        loose: set[str] = set()
        texts = {text for text in constants if isinstance(text, str)}
        spread = False  # whether a call of ours takes names out of a dictionary
        for call in calls:
            if not call.keywords:
                continue
            owner = self._class_of.get(id(call))
            callee = self._callee(call.func, owner)
            if callee == "library" and any(self._is_own(a) for a in call.args):
                callee = "unknown"  # functools.partial(own, keyword=…)
            self._callees[id(call)] = callee
            if callee == "unknown":
                loose.update(keyword.arg for keyword in call.keywords if keyword.arg)
            spread |= callee != "library" and any(k.arg is None for k in call.keywords)
        return loose | texts if spread else loose

    def _callee(self, node: ast.expr, owner: ast.ClassDef | None) -> Callee:
        """Return what an expression in a class's body, if in one, stands for when it is called."""
        if isinstance(node, ast.Subscript):  # kernel[grid]
            found = self._callee(node.value, owner)
            return "unknown" if found == "library" else found
        if isinstance(node, ast.Name):
            if node.id in self._own:
                return self._called_as(self._own[node.id], "__init__")
            return "unknown" if self._bound[node.id] or node.id == "dict" else "library"
        if not isinstance(node, ast.Attribute):
            return "unknown"
        return self._attribute(node, owner)

    def _attribute(self, node: ast.Attribute, owner: ast.ClassDef | None) -> Callee:
        base, name = node.value, node.attr
        if owner and isinstance(base, ast.Name) and base.id == "self":
            if name in (methods := self._methods[id(owner)]) and not self._stored[name]:
                return methods[name]
            if self._stored[name] == 1 and self._instances.get(name) in self._own:
                return self._called_as(self._own[self._instances[name]], "forward")
        if owner and isinstance(base, ast.Call) and is_name(base.func, "super"):
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


def _bound_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield every name that is bound, once per place, imports left out."""
    for node in nodes:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif type(node) in BINDS and (name := getattr(node, BINDS[type(node)])):
            yield name
