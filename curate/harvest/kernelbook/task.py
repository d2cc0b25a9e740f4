"""Put a module of KernelBook into KernelBench's form (by its text), and run it (in the sandbox)."""

from __future__ import annotations

import ast
import sys

from curate.harvest.modules.taskfile import make_positional
from curate.problem.eager import Unusable, check
from curate.syntax import rename

_IMPORTABLE = {"torch", "numpy"} | sys.stdlib_module_names
_MODEL = "Model"


def write_task(code: str, entry_point: str) -> str:
    """Return ``python_code`` as a task (``Model`` with its input functions), not yet run.

    Raises:
        Unusable: it is no module with its inputs, or one that KernelBench's form has no place for.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise Unusable("syntax_error", column="python_code", message=str(error)) from error
    _check_form(tree, entry_point)
    if entry_point != _MODEL:
        if _MODEL in _bound(tree):
            raise Unusable("name_taken", name=_MODEL)
        code = rename(code, entry_point, _MODEL)  # attributes stay: `torch.nn` may have its name
    return _positional_arguments(make_positional(code, _MODEL))


def run_task(task: str) -> None:
    """Build the module and run it. For the sandbox only.

    Raises:
        Unusable: it fails, leaves parameters as they were in memory, or gives values that no
            program could be judged by.
    """
    check(task, _MODEL)


def _check_form(tree: ast.Module, entry_point: str) -> None:
    imports = [
        (name, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _modules(node)
    ]
    for name, line in imports:
        if name.split(".")[0] == "triton" or name.startswith("torch._inductor"):
            raise Unusable("swapped_columns", column="python_code", holds=name, line=line)
    for name, line in imports:
        if name.split(".")[0] not in _IMPORTABLE:
            raise Unusable("foreign_import", module=name, line=line)
    missing = {entry_point, "get_inputs", "get_init_inputs"} - _bound(tree)
    if missing:
        raise Unusable("incomplete", missing=sorted(missing))


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{'.' * node.level}{node.module or ''}"]


def _bound(tree: ast.Module) -> set[str]:
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


# --- constructor arguments -----------------------------------------------------------------------


def _positional_arguments(text: str) -> str:
    """Return the file with ``get_init_inputs`` as KernelBench wants it.

    KernelBook returns ``[arguments, keywords]``, KernelBench the arguments alone.
    """
    tree = ast.parse(text)
    node = next(n for n in tree.body if getattr(n, "name", "") == "get_init_inputs")
    assert isinstance(node, ast.FunctionDef)
    match node.body:
        case [ast.Return(value=ast.List(elts=[ast.List(elts=given), ast.Dict() as keywords]))]:
            items = _in_order(tree, [ast.unparse(item) for item in given], keywords)
        case _:
            raise Unusable("init_inputs", code=ast.unparse(node)[:200])
    lines = text.splitlines()
    new = ["def get_init_inputs():", f"    return [{', '.join(items)}]"]
    lines[node.lineno - 1 : node.end_lineno] = new
    return "\n".join(lines) + "\n"


def _in_order(tree: ast.Module, given: list[str], keywords: ast.Dict) -> list[str]:
    """Return positional arguments and keywords as positional arguments, defaults in the gaps."""
    named: dict[str, str] = {}
    for key, expression in zip(keywords.keys, keywords.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise Unusable("init_inputs", code=ast.unparse(keywords)[:200])
        named[key.value] = ast.unparse(expression)
    items = list(given)
    for name, default in _parameters(tree)[len(given) :]:
        if not named:
            break
        value = named.pop(name, None) or default
        if value is None:
            raise Unusable("init_inputs", missing=name)
        items.append(value)
    if named:
        raise Unusable("init_inputs", keywords=sorted(named))
    return items


def _parameters(tree: ast.Module) -> list[tuple[str, str | None]]:
    """Return the constructor's positional parameters and their defaults, without ``self``."""
    model = next(n for n in tree.body if getattr(n, "name", "") == _MODEL)
    for node in model.body if isinstance(model, ast.ClassDef) else []:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            defaults = [ast.unparse(default) for default in node.args.defaults]
            required = len(names) - len(defaults)
            return list(zip(names, [*[None] * required, *defaults], strict=True))[1:]
    return []
