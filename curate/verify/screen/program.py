"""A candidate's file, parsed, and answers about it that several rules of `screen` need.

Names are resolved through the file's imports, so that ``F.relu`` and ``torch.relu`` are known by
their full names whatever the file calls them. Code under ``if __name__ == "__main__"`` is left
out, since a judge imports the file. Calls are followed by name alone: what is reached may be more
than what runs, never less, unless the file computes names.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain

from curate.problem.branches import parse

MODEL = "ModelNew"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.expr


class ParsedProgram:
    """A parsed file, and answers about it that several rules need.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
    """

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.tree = parse(source)
        self.nodes: list[ast.AST] = []  # each followed by all that stands in it
        self.parents: dict[ast.AST, ast.AST] = {}
        self._ends: dict[ast.AST, tuple[int, int]] = {}
        self._index()
        self.docstrings = {
            node.value
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        self._names: dict[ast.AST, str | None] = {}
        self._bound: dict[ast.AST, set[str]] = {}
        self.aliases: set[str] = set()  # variables that stand for an import
        self.stored: dict[str, int] = {}  # how often the file binds a name
        for node in self.nodes:
            for name in bound_names(node):
                self.stored[name] = self.stored.get(name, 0) + 1
        self.imports = dict(chain.from_iterable(map(imported_names, self.nodes)))
        for node in self.nodes:  # `mm = torch.mm`
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, full = node.targets[0], self.name(node.value)
                known = isinstance(target, ast.Name) and self.stored[target.id] == 1
                if known and full and isinstance(target, ast.Name):
                    self.imports.setdefault(target.id, full)
                    self.aliases.add(target.id)
        self._names.clear()  # some were asked for before all imports were known

    def _index(self) -> None:
        waiting: list[tuple[ast.AST, int | None]] = [(self.tree, None)]
        while waiting:
            node, start = waiting.pop()
            if start is not None:
                self._ends[node] = start, len(self.nodes)
                continue
            waiting.append((node, len(self.nodes)))
            self.nodes.append(node)
            children = list(children_of(node))
            self.parents.update(dict.fromkeys(children, node))
            waiting.extend((child, None) for child in reversed(children))

    def walk(self, *nodes: ast.AST) -> Iterator[ast.AST]:
        """Yield nodes and all that stands in them, in the order of the source."""
        for node in nodes:
            start, end = self._ends.get(node, (0, 0))
            yield from self.nodes[start:end]

    # Names

    def name(self, node: ast.AST) -> str | None:
        """Return the full name of an import, a builtin, or an attribute of one.

        ``F.relu`` is ``torch.nn.functional.relu``; ``getattr(torch, "relu")`` is ``torch.relu``;
        anything that the file itself made is None.
        """
        if node not in self._names:
            self._names[node] = self._name(node)
        return self._names[node]

    def _name(self, node: ast.AST) -> str | None:
        parts: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Call) and (got := constant_getattr(node)):
                node, attribute = got
                parts.append(attribute)
            else:
                root = self._root(node)
                return ".".join([root, *reversed(parts)]) if root else None

    def _root(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Call):
            importer = self.name(node.func) in ("__import__", "importlib.import_module")
            return text_of(node.args[0]) if importer and node.args else None
        if not isinstance(node, ast.Name) or self._is_local(node):
            return None
        if node.id in self.imports:
            return self.imports[node.id]
        return node.id if node.id in BUILTINS and node.id not in self.stored else None

    @cached_property
    def mentions(self) -> dict[str, list[ast.AST]]:
        """The full names of imports and builtins that the file mentions, and where.

        An attribute of anything else stands there with ``*`` for its owner: ``*.tb_frame``.
        """
        found: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            for name in self._mentioned(node):
                found.setdefault(name, []).append(node)
        return found

    def _mentioned(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (full for _, full in imported_names(node))
        elif isinstance(node, ast.Attribute):
            yield self.name(node) or f"*.{node.attr}"
        elif isinstance(node, ast.Call) or (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        ):
            name = self.name(node)
            if name is not None:
                yield name

    def _is_local(self, node: ast.Name) -> bool:
        """Tell whether a function around a name binds it to something of its own."""
        return node.id not in self.aliases and any(
            node.id in self._bound_in(outer)
            for outer in self.ancestors(node)
            if isinstance(outer, Function | ast.Lambda)
        )

    def _bound_in(self, function: Function | ast.Lambda) -> set[str]:
        if function not in self._bound:
            self._bound[function] = {n for node in self.walk(function) for n in bound_names(node)}
        return self._bound[function]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    # Kernels

    @cached_property
    def kernels(self) -> dict[str, Function | None]:
        """The file's Triton functions by name; None where the definition is not in the file."""
        found: dict[str, Function | None] = {}
        functions = {node.name: node for node in self.nodes if isinstance(node, Function)}
        for node in self.nodes:
            if isinstance(node, Function) and any(map(self._is_jit, node.decorator_list)):
                found[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = node.value
                if self._is_jit(made.func) and made.args:
                    inner = made.args[0].id if isinstance(made.args[0], ast.Name) else ""
                    names = [t.id for t in node.targets if isinstance(t, ast.Name)]
                    found |= dict.fromkeys([*names, inner] if inner else names)
                    found |= {name: functions.get(inner) for name in names}
        return found

    def _is_jit(self, node: ast.expr) -> bool:
        target = node.func if isinstance(node, ast.Call) else node
        full = self.name(target)
        if full is None:  # `from triton import *`
            return isinstance(target, ast.Name) and target.id == "jit"
        return full.startswith("triton.") and full.endswith(".jit")

    @cached_property
    def device_nodes(self) -> frozenset[ast.AST]:
        """The nodes of the bodies of kernels."""
        bodies = [node.body for node in self.kernels.values() if node is not None]
        return frozenset(chain.from_iterable(self.walk(*body) for body in bodies))

    @cached_property
    def host_nodes(self) -> list[ast.AST]:
        """The nodes outside kernels."""
        return [node for node in self.nodes if node not in self.device_nodes]

    def launched(self, node: ast.AST) -> str | None:
        """Return the kernel's name where a node is ``kernel[grid](…)`` or ``kernel.run(…)``."""
        if not isinstance(node, ast.Call):
            return None
        target = node.func
        if isinstance(target, ast.Subscript) or (
            isinstance(target, ast.Attribute) and target.attr in ("run", "warmup")
        ):
            name = last_name(target.value)
            return name if name in self.kernels else None
        return None

    @cached_property
    def launchers(self) -> frozenset[str]:
        """Names of the file's functions and classes in which a call ends in a launch."""
        calls = {
            name: [n for n in self.walk(*nodes) if isinstance(n, ast.Call)]
            for name, nodes in self.definitions.items()
            if name not in HOOKS
        }
        found = {name for name, made in calls.items() if any(map(self.launched, made))}
        while new := {
            name
            for name, made in calls.items()
            if name not in found and any(called_name(call) in found for call in made)
        }:
            found |= new
        return frozenset(found)

    def launches(self, nodes: Iterable[ast.AST]) -> bool:
        """Tell whether a kernel is launched in these nodes or in a function that they call."""
        return any(map(self.is_launching, self.walk(*nodes)))

    def is_launching(self, node: ast.AST) -> bool:
        """Tell whether a node is a launch or calls a function of the file that launches."""
        return isinstance(node, ast.Call) and (
            self.launched(node) is not None or called_name(node) in self.launchers
        )

    # What is reached

    @cached_property
    def definitions(self) -> dict[str, list[Definition]]:
        """Functions, classes and values at the top of the file or of a class, by name."""
        found: dict[str, list[Definition]] = {}
        for node in self.host_nodes:
            if isinstance(node, Function | ast.ClassDef):
                found.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and self.is_at_top(node):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(node.value)
        return found

    def is_at_top(self, node: ast.AST) -> bool:
        """Tell whether a node runs when the file is imported."""
        return not any(isinstance(n, Function | ast.Lambda) for n in self.ancestors(node))

    @cached_property
    def model(self) -> ast.ClassDef | None:
        """The class ``ModelNew``."""
        classes = [d for d in self.definitions.get(MODEL, []) if isinstance(d, ast.ClassDef)]
        return classes[-1] if classes else None

    @cached_property
    def forwards(self) -> list[Function]:
        """``ModelNew.forward``, or every ``forward`` of a file that has no ``ModelNew``."""
        if self.model is not None:
            forward = self.method(self.model, "forward")
            return [forward] if forward is not None else []
        return [d for d in self.definitions.get("forward", []) if isinstance(d, Function)]

    def method(self, owner: ast.ClassDef, name: str, depth: int = 8) -> Function | None:
        """Return a method of a class or of the bases that the file defines."""
        for node in owner.body:
            if isinstance(node, Function) and node.name == name:
                return node
        for base in owner.bases if depth else ():
            for found in self.definitions.get(last_name(base) or "", []):
                if isinstance(found, ast.ClassDef):
                    inherited = self.method(found, name, depth - 1)
                    if inherited is not None:
                        return inherited
        return None

    def reach(self, roots: Iterable[ast.AST]) -> list[ast.AST]:
        """Return the host nodes of some code and of all that it names, over and over."""
        waiting, seen, found = list(roots), set[str](), dict[ast.AST, None]()
        while waiting:
            for node in self.walk(waiting.pop()):
                if node in found or node in self.device_nodes:
                    continue
                found[node] = None
                name = last_name(node)
                if name is not None and name not in seen and name not in HOOKS:
                    seen.add(name)
                    waiting.extend(self.definitions.get(name, []))
        return list(found)

    @cached_property
    def forward_nodes(self) -> list[ast.AST]:
        """The host nodes that ``forward`` reaches."""
        return self.reach(self.forwards)

    @cached_property
    def forward_functions(self) -> list[Function]:
        """The functions that ``forward`` reaches."""
        return [node for node in self.forward_nodes if isinstance(node, Function)]

    # PyTorch

    def computes(self, nodes: Iterable[ast.AST]) -> bool:
        """Tell whether PyTorch computes something in these nodes."""
        return any(map(self.is_compute, self.walk(*nodes)))

    def is_compute(self, node: ast.AST) -> bool:
        """Tell whether a node is a computation by PyTorch, such as ``x @ y`` or ``x.relu()``."""
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.MatMult)
        if not isinstance(node, ast.Call):
            return False
        full = self.name(node.func)
        if full is not None:
            owner, _, name = full.rpartition(".")
            return owner in COMPUTING_MODULES or (owner == "torch" and name in COMPUTE)
        if not isinstance(node.func, ast.Attribute):
            return False
        return node.func.attr in COMPUTE or self._is_layer(node.func)

    def _is_layer(self, node: ast.Attribute) -> bool:
        return (
            isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and node.attr in self.layers
        )

    @cached_property
    def layers(self) -> frozenset[str]:
        """Attributes of ``self`` that are made as layers of ``torch.nn``."""
        return frozenset(
            target.attr
            for node in self.host_nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if re.fullmatch(r"torch\.nn\.[A-Z]\w+", self.name(node.value.func) or "")
            and not (self.name(node.value.func) or "").endswith(("Parameter", "List", "Dict"))
            for target in node.targets
            if isinstance(target, ast.Attribute)
        )


BUILTINS = frozenset(dir(builtins))

HOOKS = frozenset({"forward", "backward", "__init__", "__call__", "apply", "run", "setup_context"})
"""Method names that say nothing about which class is meant."""

COMPUTING_MODULES = frozenset(
    {"torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.sparse"}
)

COMPUTE = frozenset(
    re.findall(
        r"\w+",
        """
        matmul mm bmm mv dot addmm addmv baddbmm einsum tensordot inner outer linear bilinear
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cdist
        softmax log_softmax relu gelu silu elu selu celu sigmoid tanh softplus hardtanh leaky_relu
        exp exp2 expm1 log log2 log1p logsumexp sqrt rsqrt sin cos tan erf pow square abs neg sign
        sum mean var std prod norm max min amax amin argmax argmin cumsum cumprod cummax cummin
        sort argsort topk median mode quantile layer_norm batch_norm group_norm instance_norm
        rms_norm dropout scaled_dot_product_attention cross_entropy nll_loss mse_loss
        add sub mul div add_ sub_ mul_ div_ addcmul addcdiv lerp bernoulli multinomial
        gather scatter scatter_add index_add index_select where maximum minimum
        floor ceil round clamp relu_ exp_
        """,
    )
)
"""Functions of ``torch`` and methods of tensors that compute values."""


def children_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a node, without operators and without what runs only as a script."""
    script = isinstance(node, ast.If) and "__name__" in names_in(node.test)
    for field, value in ast.iter_fields(node):
        if script and field == "body":
            continue
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST) and child._fields:
                yield child


def names_in(*nodes: ast.AST) -> set[str]:
    """Return the identifiers in nodes: variables, not attributes."""
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def last_name(node: ast.AST) -> str | None:
    """Return ``c`` for ``c`` and for ``a.b.c``."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def called_name(call: ast.Call) -> str | None:
    """Return the function that a call names: ``f`` for ``f()`` and ``self.f()``, ``C`` for
    ``C.apply()``."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in HOOKS:
        return last_name(call.func.value)
    return last_name(call.func)


def text_of(node: ast.AST) -> str | None:
    """Return a literal string's value."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def constant_getattr(call: ast.Call) -> tuple[ast.expr, str] | None:
    """Return object and name of ``getattr(object, "name")``."""
    if last_name(call.func) == "getattr" and len(call.args) >= 2:
        name = text_of(call.args[1])
        return (call.args[0], name) if name else None
    return None


def bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds, imports left out."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg


def imported_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield names that a statement imports, with what they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            module = "." * node.level + (node.module or "")
            yield alias.asname or alias.name, f"{module}.{alias.name}"


def test_of(node: ast.AST) -> ast.expr | None:
    """Return the condition of a branch or loop."""
    return node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else None
