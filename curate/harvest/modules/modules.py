"""Find the `torch.nn.Module` classes of a file."""

from __future__ import annotations

from typing import ClassVar, Literal

from curate.harvest.python.package import Definition, External, Package, Submodule, package_of
from curate.harvest.python.source import Statement, items_at, source_of, text_at, undecorated
from curate.rows import FileRow, Row, part_row
from curate.step import Context, Drop, Keep, Outcome, RowStep


class Modules(RowStep):
    """Turn a file into one row for each module class in it that defines ``forward``.

    Bases are followed by name: through import aliases, classes of the same file and files of
    the same artifact. Nothing is imported.
    """

    step: Literal["modules"]

    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-python")
    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    reads: ClassVar[frozenset[str]] = frozenset({"text"})
    makes: ClassVar[frozenset[str]] = frozenset({"module"})
    sets: ClassVar[frozenset[str]] = frozenset({"text", "entry_point"})
    batch: ClassVar[int] = 16

    def apply(self, row: FileRow, context: Context) -> Outcome:
        path = row["origin"]["path"]
        package = package_of(row, context.cache)
        try:
            file = package.file(path)
        except SyntaxError as error:
            return Drop("syntax_error", {"line": error.lineno})
        found = []
        for name in file.definitions:
            statement = file.class_statement(name)
            if statement and _has_forward(statement) and is_module(package, path, name):
                found.append(_module_row(row, statement, name))
        if not found:
            return Drop("no_modules")
        return Keep(tuple(sorted(found, key=lambda made: made["origin"]["start_line"] or 0)))


def is_module(
    package: Package, path: str, name: str, seen: frozenset[Definition] = frozenset()
) -> bool:
    """Whether a class of a file inherits from something in `torch.nn`."""
    here = Definition(path, name)
    statement = package.file(path).class_statement(name)
    if statement is None or here in seen:
        return False
    for base in items_at(undecorated(statement.node), "superclasses"):
        head, _, rest = source_of(base).partition(".")
        target = package.resolve(path, head)
        if isinstance(target, Submodule) and rest:
            target, rest = package.resolve(target.path, rest), ""
        if isinstance(target, External) and f"{target.dotted}.{rest}".startswith("torch.nn."):
            return True
        if isinstance(target, Definition) and is_module(
            package, target.path, target.name, seen | {here}
        ):
            return True
    return False


def _has_forward(statement: Statement) -> bool:
    functions = map(undecorated, items_at(undecorated(statement.node), "body"))
    return any(
        f.type == "function_definition" and text_at(f, "name") == "forward" for f in functions
    )


def _module_row(row: FileRow, statement: Statement, name: str) -> Row:
    node = statement.node
    lines = (node.start_point[0] + 1, node.end_point[0] + 1)
    return part_row(row, "module", source_of(node), lines, name, name)
