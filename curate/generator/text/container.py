"""Slice a reference down to what holds its parameters: constructors, and what they need.

`ModelNew` takes the constructor of `Model`, so both have one signature and one ``state_dict``; the
``forward`` methods go, because kernels do their work.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from curate.generator.text.layout import WIDTH, statement, text
from curate.generator.unprintable import Unprintable
from curate.syntax import arguments, expression, loads_in, rename, stores_in, words

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
        summary: what the reference says of itself in a line, or "".
        optional: those that have a default and that the reference reads, with the default's text.
    """

    imports: list[str]
    preamble: list[str]
    class_text: str
    forward: str
    inputs: list[str]
    summary: str
    optional: dict[str, str]


def slice_reference(reference: str, entry_point: str = "Model") -> Container:
    """Return what `ModelNew` needs of ``reference``.

    Raises:
        Unprintable: the class or its ``forward`` is not there.
    """
    tree = ast.parse(reference)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    model = classes.get(entry_point)
    if model is None:
        raise Unprintable(f"no class {entry_point}")
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
            preamble.append("\n".join(lines[slice(*_span(node))]))
    class_text = _class_text(model, kept[entry_point], lines)
    return Container(
        imports,
        preamble,
        rename(class_text, entry_point, "ModelNew"),
        _header(forward, lines),
        [a.arg for a in (*forward.args.posonlyargs, *forward.args.args)][1:]
        + ([forward.args.vararg.arg] if forward.args.vararg else [])
        + [a.arg for a in forward.args.kwonlyargs],
        _summary(model),
        _optional(forward),
    )


def without_modules(reference: str, entry_point: str, names: Collection[str]) -> str:
    """Return a reference whose constructor leaves out some modules, if it only makes them."""
    model = next(n for n in ast.parse(reference).body if getattr(n, "name", "") == entry_point)
    init = _methods(model).get("__init__") if isinstance(model, ast.ClassDef) else None
    rest = slice_reference(reference, entry_point).class_text
    lines = reference.splitlines()
    for node in reversed(init.body if init else []):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        owner, _, name = ast.unparse(node.targets[0]).partition(".")
        before, end = lines[node.lineno - 1][: node.col_offset], node.end_lineno or node.lineno
        alone = not (before + lines[end - 1][node.end_col_offset :]).strip()
        if (
            owner == "self"
            and name in names
            and alone
            and len(re.findall(rf"[.'\"]{name}\b", rest)) == 1
        ):
            del lines[node.lineno - 1 : end]
    return "\n".join(lines) + "\n"


_LONGEST_SUMMARY = 240
_OF_CODE = re.compile(r"^torch\.|^(This |Module |A module )|:\w+:`|http")
"""What tells of a class, or of a document, rather than of what is computed."""


def _summary(model: ast.ClassDef) -> str:
    """Return the first sentence of a class's docstring, if it says more than an operator's name."""
    first, *_ = (ast.get_docstring(model) or "").split("\n\n")
    first = " ".join(first.split())
    if len(first) > _LONGEST_SUMMARY:
        first = first.partition(". ")[0].removesuffix(".") + "."
    plain = first.isascii() and not set(first) & set('\\"')
    told = plain and " " in first and not _OF_CODE.search(first)
    return first if told and len(first) <= _LONGEST_SUMMARY else ""


def _optional(forward: ast.FunctionDef) -> dict[str, str]:
    """Return the arguments with a default that a function reads, and the defaults' texts."""
    given = forward.args
    plain = [*given.posonlyargs, *given.args]
    pairs = list(zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True))
    pairs += [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d]
    read = set(loads_in(*forward.body))
    return {a.arg: text(default) for a, default in pairs if a.arg in read}


def with_checks(
    class_text: str,
    fixed: dict[str, Any],
    promised: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> str:
    """Return a class whose constructor refuses arguments other than ``fixed``, if it has one.

    Args:
        class_text: the class.
        fixed: arguments with their values.
        promised: conditions on arguments.
        kept: arguments that become attributes.

    Raises:
        Unprintable: one of ``kept`` is not as it was given, or there is no constructor.
    """
    tree = ast.parse(class_text)
    assert isinstance(tree.body[0], ast.ClassDef)
    init = _methods(tree.body[0]).get("__init__")
    own = init.body if init and init.body[0].lineno > init.lineno else []
    known = {a.arg for a in arguments(init)} if init and own else set()
    values = {name: value for name, value in fixed.items() if name.partition(".")[0] in known}
    can_keep = known - set(stores_in(*own))
    if not can_keep.issuperset(name.partition(".")[0] for name in kept):
        raise Unprintable("an argument that the module does not keep")
    if not own or not (values or promised or kept):
        return class_text
    first = own[1] if _is_docstring(own[0]) and own[1:] else own[0]
    lines = class_text.splitlines()
    if kept:
        begun = [node for node in own if "super().__init__" in ast.unparse(node)]
        at = (begun[0].end_lineno or begun[0].lineno) if begun else _span(first)[0]
        margin = " " * first.col_offset
        lines[at:at] = [f"{margin}self.{name.rpartition('.')[2]} = {name}" for name in kept]
    told = {name: repr(value) for name, value in values.items()}
    new = check_lines(told, first.col_offset) if told else []
    for condition in promised:
        check = ast.Assert(expression(condition), ast.Constant(f"written for {condition}"))
        new += statement(check, first.col_offset)
    at = _span(first)[0]
    while lines[at - 1].strip().startswith("#"):
        at -= 1
    return "\n".join([*lines[:at], *new, *lines[at:]])


_FLAGS = {"None": "{} is None", "True": "{}", "False": "not {}"}


def check_lines(values: dict[str, str], indent: int) -> list[str]:
    """Return the lines of an assertion that names have the values, given as text."""
    conditions = [
        _FLAGS.get(value, "{} == {}").format(name, value) for name, value in values.items()
    ]
    told = ", ".join(f"{name}={value}" for name, value in values.items()).replace('"', "'")
    check = ast.Assert(expression(" and ".join(conditions)), ast.Constant(f"written for {told}"))
    if len(conditions) > 1 and len(text(check)) + indent > WIDTH:
        return [line for one in values.items() for line in check_lines(dict([one]), indent)]
    return statement(check, indent)


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
    raise Unprintable(f"{model.name} has no forward of its own")


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def _runs_submodules(node: ast.ClassDef) -> bool:
    """Whether a constructor calls a module, for instance to learn the size of its output, or has
    one compute a parameter."""
    methods = _methods(node)
    for name, method in methods.items():
        if name == "forward" or name not in _reachable(methods):
            continue
        for call in ast.walk(method):
            if isinstance(call, ast.Call) and "register_parametrization" in ast.unparse(call.func):
                return True
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
    if isinstance(node, ast.If | ast.Try):  # the one or the other import
        return set(stores_in(node)).union(
            *(_binds(one) for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom))
        )
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
    if forward.returns:
        queue += [*_read(forward.returns), *_quoted(forward.returns)]
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
    """Yield the names that a node reads from outside: not a method's arguments and variables."""
    inside: set[str] = set()
    if isinstance(node, ast.FunctionDef):
        yield from (name for part in (node.args, *node.decorator_list) for name in _read(part))
        inside = {a.arg for a in arguments(node)} | set(stores_in(*node.body))
        inside -= {
            n
            for part in node.body
            for g in ast.walk(part)
            if isinstance(g, ast.Global)
            for n in g.names
        }
    for item in ast.walk(node):
        if isinstance(item, ast.Name) and item.id not in inside:
            yield item.id
        for quoted in (getattr(item, "annotation", None), getattr(item, "returns", None)):
            if quoted is not None:
                yield from _quoted(quoted)


def _quoted(annotation: ast.expr) -> Iterator[str]:
    """Yield the names that an annotation has in quotes."""
    for item in ast.walk(annotation):
        if isinstance(item, ast.Constant) and str(item.value).isidentifier():
            yield str(item.value)


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
    left = "\n".join(line for i, line in enumerate(lines[first:end], first) if i not in dropped)
    if not any(item in kept for item in body):
        left = left.rstrip() + "\n    pass"
    return _few_blank_lines(left)


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _few_blank_lines(code: str) -> str:
    """Drop blank lines at the start of the class body and at its end, and runs of them."""
    kept: list[str] = []
    for line in code.rstrip().splitlines():
        if not line.strip() and (not kept or not kept[-1].strip() or kept[-1].endswith(":")):
            continue
        kept.append(line.rstrip())
    return "\n".join(kept)
