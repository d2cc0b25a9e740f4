"""Slice a reference down to what holds its parameters: constructors, and what they need.

`ModelNew` takes the constructor of `Model`, so both have one signature and one ``state_dict``; the
``forward`` methods go, because kernels do their work.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from curate.inductor.source import CannotRewrite
from curate.syntax import rename, stores_in, words

_DRIVERS = frozenset({"get_inputs", "get_init_inputs"})


@dataclass(frozen=True)
class Container:
    """The parts of a reference that `ModelNew` keeps.

    Attributes:
        imports: import statements, one per line.
        preamble: other top-level definitions that the constructor needs, as source text.
        class_text: ``class ModelNew(…)`` without ``forward``; null body becomes a docstring alone.
        forward: the head of ``forward``, as written, indented as a method.
        inputs: names of the arguments of ``forward`` that take inputs, in order.
    """

    imports: list[str]
    preamble: list[str]
    class_text: str
    forward: str
    inputs: list[str]


def slice_reference(reference: str, entry_point: str = "Model") -> Container:
    """Return what `ModelNew` needs of ``reference``.

    Raises:
        CannotRewrite: the class or its ``forward`` is not there.
    """
    tree = ast.parse(reference)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    model = classes.get(entry_point)
    if model is None:
        raise CannotRewrite(f"no class {entry_point}")
    forward = _forward(model, classes)
    keep_forwards = any(_runs_submodules(node) for node in classes.values())
    kept = {name: _kept_methods(node, keep_forwards) for name, node in classes.items()}
    kept[entry_point].discard(forward if forward in model.body else model)
    needed = _needed(tree, model, kept, forward)
    lines = reference.splitlines()
    imports, preamble = [], []
    for node in tree.body:
        if node is model or not (_binds(node) & needed):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports += _imports(node, needed)
        elif isinstance(node, ast.ClassDef):
            preamble.append(_class_text(node, kept[node.name], lines))
        else:
            preamble.append(_segment(node, lines))
    class_text = _class_text(model, kept[entry_point], lines)
    return Container(
        imports,
        preamble,
        rename(class_text, entry_point, "ModelNew"),
        _header(forward, lines),
        [a.arg for a in (*forward.args.posonlyargs, *forward.args.args)][1:]
        + ([forward.args.vararg.arg] if forward.args.vararg else [])
        + [a.arg for a in forward.args.kwonlyargs],
    )


def _header(forward: ast.FunctionDef, lines: list[str]) -> str:
    """Return ``def forward(…):`` as its author wrote it."""
    head = lines[forward.lineno - 1 : forward.body[0].lineno - 1]
    while head and not head[-1].split("#")[0].rstrip().endswith(":"):
        head.pop()
    if not head:  # the body stands on the line of the def
        head = [f"def forward({ast.unparse(forward.args)}):"]
    return textwrap.indent(textwrap.dedent("\n".join(head)), "    ")


def _forward(model: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> ast.FunctionDef:
    """Return the ``forward`` that calls of the class use, its own or a base's in the file."""
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            return node
    for base in model.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            return _forward(classes[base.id], classes)
    raise CannotRewrite(f"{model.name} has no forward of its own", model.lineno)


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def _runs_submodules(node: ast.ClassDef) -> bool:
    """Whether a constructor calls a module, for instance to learn the size of its output."""
    methods = _methods(node)
    for name, method in methods.items():
        if name == "forward" or name not in _reachable(methods):
            continue
        for call in ast.walk(method):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            owner = call.func.value
            own = isinstance(owner, ast.Name) and owner.id == "self"
            if call.func.attr == "forward" or (
                own and call.func.attr not in methods.keys() | _MODULE_API
            ):
                return True
    return False


_MODULE_API = words(
    "register_buffer register_parameter add_module register_module apply modules named_modules "
    "parameters named_parameters children named_children buffers train eval to double float half "
    "requires_grad_ state_dict load_state_dict extend append get_parameter get_buffer "
    "get_submodule named_buffers __setattr__ __class__ update insert items keys values "
    "reset_parameters register_forward_hook _register_load_state_dict_pre_hook type"
)


def _reachable(methods: dict[str, ast.FunctionDef]) -> set[str]:
    """Return the methods that construction and attribute access may run."""
    found: set[str] = set()
    queue = [name for name in methods if name.startswith("__") or name == "reset_parameters"]
    queue += [name for name, node in methods.items() if node.decorator_list]
    while queue:
        name = queue.pop()
        if name in found or name not in methods or name == "forward":
            continue
        found.add(name)
        for node in ast.walk(methods[name]):
            if isinstance(node, ast.Attribute):
                queue.append(node.attr)
    return found


def _kept_methods(node: ast.ClassDef, keep_forwards: bool) -> set[ast.stmt]:
    """Return the statements of a class body that stay."""
    methods = _methods(node)
    reachable = set(methods) if keep_forwards else _reachable(methods)
    return {
        item
        for item in node.body
        if not isinstance(item, ast.FunctionDef) or item.name in reachable
    }


def _binds(node: ast.stmt) -> set[str]:
    """Return the names that a top-level statement defines."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return set(stores_in(node))


def _needed(
    tree: ast.Module,
    model: ast.ClassDef,
    kept: dict[str, set[ast.stmt]],
    forward: ast.FunctionDef,
) -> set[str]:
    """Return the top-level names that the constructor reaches."""
    definitions: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in _binds(node) - _DRIVERS:
            definitions.setdefault(name, []).append(node)
    needed: set[str] = set()
    queue: list[str] = [*_class_names(model, kept[model.name]), *_read(forward.args)]
    queue += _read(forward.returns) if forward.returns else []
    while queue:
        name = queue.pop()
        if name in needed or name not in definitions:
            continue
        needed.add(name)
        for node in definitions[name]:
            if isinstance(node, ast.ClassDef):
                queue += _class_names(node, kept[node.name])
            else:
                queue += _read(node)
    return needed


def _class_names(node: ast.ClassDef, kept: set[ast.stmt]) -> Iterator[str]:
    for part in (*node.bases, *node.decorator_list, *node.keywords, *kept):
        yield from _read(part)


def _read(node: ast.AST) -> Iterator[str]:
    for item in ast.walk(node):
        if isinstance(item, ast.Name):
            yield item.id
        elif isinstance(item, ast.Constant) and str(item.value).isidentifier():
            yield str(item.value)  # a quoted annotation


def _imports(node: ast.Import | ast.ImportFrom, needed: set[str]) -> list[str]:
    """Return one import statement per name that is needed."""
    lines = []
    for alias in node.names:
        if (alias.asname or alias.name).split(".")[0] not in needed:
            continue
        if isinstance(node, ast.Import):
            lines.append(ast.unparse(ast.Import([alias])))
        else:
            lines.append(ast.unparse(ast.ImportFrom(node.module, [alias], node.level)))
    return lines


def _span(node: ast.stmt) -> tuple[int, int]:
    """Return the 0-based half-open line range of a statement, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(d.lineno for d in decorators)]) - 1
    return start, node.end_lineno or node.lineno


def _segment(node: ast.stmt, lines: list[str]) -> str:
    start, end = _span(node)
    return "\n".join(lines[start:end])


def _class_text(node: ast.ClassDef, kept: set[ast.stmt], lines: list[str]) -> str:
    """Return a class's source without the statements that go, comments above them included."""
    body = [item for item in node.body if not _is_docstring(item)]
    dropped: set[int] = set()
    for item in node.body:
        if item in kept and not _is_docstring(item):
            continue
        start, end = _span(item)
        while start > node.lineno and lines[start - 1].strip().startswith("#"):
            start -= 1
        dropped |= set(range(start, end))
    first, end = _span(node)
    text = "\n".join(line for i, line in enumerate(lines[first:end], first) if i not in dropped)
    if not any(item in kept for item in body):
        text = text.rstrip() + "\n    pass"
    return _few_blank_lines(text)


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _few_blank_lines(text: str) -> str:
    """Drop blank lines at the start of the class body and at its end, and runs of them."""
    kept: list[str] = []
    for line in text.rstrip().splitlines():
        if not line.strip() and (not kept or not kept[-1].strip() or kept[-1].endswith(":")):
            continue
        kept.append(line.rstrip())
    return "\n".join(kept)
