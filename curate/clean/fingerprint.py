"""Fingerprint files: what `decontaminate` knows of a benchmark, as hashes and without its code.

A part is a piece of a program that says something by itself: a kernel, a kernel with the jitted
helpers that it calls, a class, a function, the whole program. Two parts have one hash when they
differ only in names, comments, docstrings, formatting, annotations, the decorators of functions
and the way that libraries are imported (`curate.clean.canonical` says what renaming is).

The file is JSON with one line for each item of the benchmark, so that versions can be compared.
"""

from __future__ import annotations

import ast
import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curate.clean.canonical import canonical_sha256
from curate.verify.files import InputError

FORM = 1
"""Raised when the same code gets other hashes; a file of another form is refused."""

MIN_NODES = 40
"""Nodes of its syntax tree (annotations, decorators and docstrings left out) that a part needs.

Chosen by looking at matches in packages and generated pairs: those of 10 to 30 nodes are rounding
helpers and modules with one operator, which everybody writes; those of 50 or more are copies. The
smallest whole program of KernelBench has 43."""

INPUT_FUNCTIONS = frozenset({"get_inputs", "get_init_inputs"})
"""Functions of KernelBench's form that give shapes only; unrelated problems share them."""

SHIPPED = Path(__file__).with_name("fingerprints")
"""Folder with the files that the package ships."""

Kind = Literal["program", "class", "kernel", "kernel_and_helpers", "function"]


class Fingerprint(BaseModel):
    """A part of an item, without its code."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    name: Annotated[str, Field(description="The part's name in the item; empty for a program.")]
    ast: Annotated[str, Field(pattern="^[0-9a-f]{20}$", description="Hash of its structure.")]


class Benchmark(BaseModel):
    """What a fingerprint file holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    version: Annotated[str | None, Field(description="Commit or release of the benchmark.")] = None
    url: Annotated[str | None, Field(description="Where the benchmark is kept.")] = None
    license: Annotated[str | None, Field(description="The benchmark's own, SPDX.")] = None
    form: Annotated[int, Field(description="Version of what the hashes are made of.")] = FORM
    min_nodes: Annotated[int, Field(description="Nodes that a part needs.")] = MIN_NODES
    items: dict[str, tuple[Fingerprint, ...]]

    def to_json(self) -> str:
        """Return the file's text: the same for the same benchmark, one line an item."""
        head = self.model_dump(exclude={"items"})
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        items = [
            f"{json.dumps(item)}: {json.dumps([part.model_dump() for part in parts])}"
            for item, parts in sorted(self.items.items())
        ]
        return "{\n" + ",\n".join([*lines, '"items": {\n' + ",\n".join(items) + "\n}"]) + "\n}\n"


# --- the parts of a program -------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of a program.

    Attributes:
        kind: what it is.
        name: its name in the program; empty for the program itself.
        lines: its first and last line, 1-based.
        nodes: the size of its syntax tree.
        ast: 20 hex digits, the hash of its structure.
    """

    kind: Kind
    name: str
    lines: tuple[int, int]
    nodes: int
    ast: str


def find_parts(code: str, min_nodes: int = MIN_NODES) -> Iterator[Part]:
    """Yield the parts of a program that have ``min_nodes`` nodes or more.

    Raises:
        SyntaxError, ValueError, RecursionError: the code is not Python, or nested too deep.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes and the like
        tree = ast.parse(code)
    defined = {node.name: node for node in _definitions(tree.body)}
    jitted = {name: node for name, node in defined.items() if _is_jitted(node)}
    tree = _Plain(_imported(tree)).visit(tree)
    frame = _Frame(tree)
    whole: list[tuple[Kind, str, list[ast.stmt]]] = [("program", "", tree.body)]
    for name, node in defined.items():
        if isinstance(node, ast.ClassDef):
            whole.append(("class", name, [node]))
        elif name not in INPUT_FUNCTIONS:
            whole.append(("kernel" if name in jitted else "function", name, [node]))
        if name in jitted and len(reached := _reached(node, jitted)) > 1:
            whole.append(("kernel_and_helpers", name, reached))
    for kind, name, body in whole:
        if (nodes := _count_nodes(body)) >= min_nodes:
            first, last = (1, code.count("\n") + 1) if kind == "program" else _lines(body[0])
            yield Part(kind, name, (first, last), nodes, frame.hash(body))


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _lines(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _definitions(body: Iterable[ast.stmt]) -> Iterator[_Definition]:
    """Yield the functions and classes of a module, also those defined under a condition."""
    for node in body:
        if isinstance(node, _Definition):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(
                n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)
            )


def _is_jitted(node: _Definition) -> bool:
    """Say whether a decorator is ``jit`` by name, whatever it was imported as."""
    names = (n for decorator in node.decorator_list for n in ast.walk(decorator))
    return not isinstance(node, ast.ClassDef) and any(
        (isinstance(n, ast.Attribute) and n.attr == "jit")
        or (isinstance(n, ast.Name) and n.id.endswith("jit"))
        for n in names
    )


def _reached(kernel: ast.stmt, jitted: dict[str, _Definition]) -> list[ast.stmt]:
    """Return a kernel and the jitted functions that it calls, in the order of first use."""
    found: dict[str, ast.stmt] = {}
    pending = [kernel]
    while pending:
        node = pending.pop(0)
        for name in (n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            if name in jitted and name not in found and jitted[name] is not kernel:
                found[name] = jitted[name]
                pending.append(jitted[name])
    return [kernel, *found.values()]


def _count_nodes(body: list[ast.stmt]) -> int:
    return sum(
        not isinstance(node, ast.expr_context | ast.Import | ast.ImportFrom | ast.alias)
        for statement in body
        for node in ast.walk(statement)
    )


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the dotted path behind each name that a program imports."""
    paths: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            prefix = f"{node.module}." if node.module else ""
            paths |= {alias.asname or alias.name: prefix + alias.name for alias in node.names}
    return paths


class _Plain(ast.NodeTransformer):
    """Takes away what a copy may lose and stay a copy, and writes imported names in full."""

    def __init__(self, imported: dict[str, str]) -> None:
        self.imported = imported

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id not in self.imported:
            return node
        return ast.parse(self.imported[node.id], mode="eval").body

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        outer = self.imported
        local = _bound_in([node])
        self.imported = {name: path for name, path in outer.items() if name not in local}
        self._visit_body(node)
        self.imported = outer
        return node

    def _visit_body(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node, _Definition | ast.Module):
            node.body = [n for n in node.body if not _is_string(n)] or [ast.Pass()]
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function
    visit_ClassDef = visit_Module = _visit_body

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []  # super(Model, self) and super() are the same
        return node


def _is_string(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class _Frame:
    """What surrounds a part in its program: the names that the program binds."""

    def __init__(self, tree: ast.Module) -> None:
        statements = list(_definitions(tree.body))
        inside = {id(n) for s in statements for n in ast.walk(s)}
        self.bound = {node.name for node in statements}
        self.bound |= {
            n.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in inside
        }
        for node in statements:
            if not isinstance(node, ast.ClassDef):
                node.decorator_list = []

    def hash(self, body: list[ast.stmt]) -> str:
        """Return the hash of a part of the program."""
        others = [name for name in _free_names(body) if name in self.bound]
        stub = [ast.parse(" = ".join([*others, "None"])).body[0]] if others else []
        part = ast.Module([*body, *stub], [])
        return canonical_sha256(ast.unparse(part))[:20]


def _free_names(body: list[ast.stmt]) -> list[str]:
    """Return the names that a part reads and binds nowhere, in the order of first use."""
    names = (n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name))
    bound = _bound_in(body)
    return [name for name in dict.fromkeys(names) if name not in bound]


def _bound_in(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names of arguments, variables, functions and classes in some statements."""
    bound = set()
    for node in (n for statement in body for n in ast.walk(statement)):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, _Definition):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
    return bound


# --- making a file ----------------------------------------------------------------------------

SUFFIXES = (".py", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Made:
    """Fingerprints of a benchmark, and the items that have none with the reason."""

    benchmark: Benchmark
    passed_over: dict[str, str]


def make_fingerprints(
    paths: Iterable[Path],
    name: str,
    version: str | None = None,
    url: str | None = None,
    license: str | None = None,
) -> Made:
    """Return the fingerprints of the programs that files and folders hold.

    Args:
        paths: ``.py`` files; ``.json``, ``.jsonl`` and ``.parquet`` files with rows, of which
            every text that is Python counts; folders of these.
        name: the benchmark's.
        version: its commit or release.
        url: where it is kept.
        license: its own, as an SPDX expression.

    Raises:
        InputError: a file cannot be read, holds something else, or nothing counts.
    """
    items: dict[str, tuple[Fingerprint, ...]] = {}
    passed_over: dict[str, str] = {}
    for item, codes in _items(paths):
        if item in items or item in passed_over:
            raise InputError(f"{item}: two items are called so; give the folder that holds both")
        found, error = _fingerprints(codes)
        if found:
            items[item] = found
        else:
            passed_over[item] = error or f"no part has {MIN_NODES} nodes"
    if not items:
        why = f"; {item}: {passed_over[item]}" if passed_over else ""
        raise InputError(f"nothing to fingerprint is there{why}")
    try:
        made = Benchmark(name=name, version=version, url=url, license=license, items=items)
    except ValidationError as error:
        raise InputError(f"--name {name}: use a-z, 0-9 and . _ - only") from error
    return Made(made, passed_over)


def _fingerprints(codes: list[str]) -> tuple[tuple[Fingerprint, ...], str | None]:
    """Return the fingerprints of an item's programs, and what was wrong with the last bad one."""
    found: dict[tuple[str, str, str], Fingerprint] = {}
    wrong = None
    for code in codes:
        try:
            parts = list(find_parts(code, min_nodes=0))
            has_kernels = any(part.kind == "kernel" for part in parts)
            for part in parts:
                # Beside kernels, plain functions are launchers and heuristics: many programs share
                # them that compute other things.
                if part.nodes >= MIN_NODES and not (has_kernels and part.kind == "function"):
                    key = (part.kind, part.name, part.ast)
                    found[key] = Fingerprint(kind=part.kind, name=part.name, ast=part.ast)
        except (SyntaxError, ValueError, RecursionError) as error:
            wrong = f"is not Python: {error}"
    return tuple(found[key] for key in sorted(found)), wrong


def _items(paths: Iterable[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each item and the programs in it."""
    for path in paths:
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            for file in files:
                yield from _items_of_file(file, file.relative_to(path).as_posix())
        elif path.suffix in SUFFIXES:
            yield from _items_of_file(path, path.name)
        else:
            raise InputError(f"{path}: must be a folder or end in {', '.join(SUFFIXES)}")


def _items_of_file(path: Path, name: str) -> Iterator[tuple[str, list[str]]]:
    if path.suffix == ".py":
        yield name, [_read_text(path)]
        return
    for number, row in enumerate(_rows(path), 1):
        label = row.get("name") or row.get("id") or number
        yield f"{name}#{label}", [value for value in row.values() if isinstance(value, str)]


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON, JSON lines or Parquet."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            rows: Any = pq.read_table(path).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
    else:
        text = _read_text(path)
        try:
            lines = [line for line in text.split("\n") if line.strip()]
            rows = json.loads(text) if path.suffix == ".json" else [json.loads(s) for s in lines]
        except json.JSONDecodeError as error:
            raise InputError(f"{path}: is not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: must hold a list of objects")
    return rows


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


# --- files --------------------------------------------------------------------------------


def shipped_names() -> list[str]:
    """Return the names of the files that the package ships."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def find_file(name: str) -> Path:
    """Return the file behind a name: one that the package ships, or a path.

    Raises:
        InputError: there is none.
    """
    if name in shipped_names():
        return SHIPPED / f"{name}.json"
    path = Path(name)
    if not path.is_file():
        raise InputError(
            f"{name}: is no fingerprint file and no shipped one; "
            f"shipped are {', '.join(shipped_names())}"
        )
    return path


def file_sha256(path: Path) -> str:
    """Return the hash of a file's content."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def write_benchmark(path: Path, benchmark: Benchmark) -> None:
    """Write a fingerprint file; the same bytes for the same benchmark.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(benchmark.to_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error}") from error


def read_benchmark(path: Path) -> Benchmark:
    """Return what a fingerprint file holds.

    Raises:
        InputError: it cannot be read, holds something else, or was made by another version.
    """
    try:
        benchmark = Benchmark.model_validate_json(_read_text(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: is no fingerprint file: {place}: {first['msg']}") from error
    if benchmark.form != FORM:
        raise InputError(
            f"{path}: is of form {benchmark.form}, and this version reads form {FORM}; make it "
            "again with `curate fingerprint`"
        )
    return benchmark
