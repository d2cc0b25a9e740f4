"""Make a module class stand alone: the class, what it needs from its package, and no more."""

from __future__ import annotations

import re
import typing
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from curate.harvest import einops
from curate.harvest.fragment import KNOWN_NAMES, Fragment, cut
from curate.harvest.package import Definition, External, Package, Symbol, package_of
from curate.harvest.source import Statement, dedented, is_allowed
from curate.rows import Row, make_row
from curate.step import Context, Drop, Keep, Outcome, RowStep

MODEL = "Model"
"""The name under which KernelBench's form holds the class."""


class Closure(RowStep):
    """Replace a module's source by a file that runs alone.

    The file holds the class, renamed ``Model``, and every class, function and constant that it
    needs from its own file and from files of the same artifact, in the order in which Python
    would have run them. It imports torch and in-memory parts of the standard library only.
    ``origin.derived_from`` names the lines taken from other files.
    """

    step: Literal["closure"]

    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-python")
    kinds: ClassVar[frozenset[str]] = frozenset({"module"})
    batch: ClassVar[int] = 16

    max_lines: Annotated[
        int,
        Field(gt=0, description="Longest standalone file; a longer one is dropped as too_large."),
    ] = 600

    def apply(self, row: Row, context: Context) -> Outcome:
        package = package_of(row, context.cache)
        target = Definition(row["origin"]["path"], row["origin"]["symbol"])
        try:
            closed = close(package, target)
        except NotClosed as loss:
            return Drop(loss.reason, loss.evidence)
        lines = closed.text.count("\n")
        if lines > self.max_lines:
            return Drop("too_large", {"lines": lines, "max_lines": self.max_lines})
        origin = row["origin"] | {"derived_from": [*row["origin"]["derived_from"], *closed.taken]}
        return Keep((_closed_row(row, origin, closed.text),))


def _closed_row(row: Row, origin: Row, text: str) -> Row:
    return make_row(
        "module",
        text,
        origin,
        text=text,
        entry_point=MODEL,
        license=row["license"],
        parent_ids=[row["id"]],
    )


class NotClosed(Exception):
    """A class cannot be made to stand alone."""

    def __init__(self, reason: str, **evidence: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.evidence = evidence


class Closed:
    """A standalone file.

    Attributes:
        text: its source.
        taken: ``path:first-last`` of each statement that came from another file.
    """

    def __init__(self, text: str, taken: list[str]) -> None:
        self.text = text
        self.taken = taken


def close(package: Package, target: Definition) -> Closed:
    """Return the standalone file of a class.

    Raises:
        NotClosed: something that the class needs cannot be had; ``reason`` and ``evidence`` say
            what.
    """
    fragments = _collect(package, target)
    names = _final_names(target, fragments)
    body = "\n\n\n".join(_rendered(fragment, names) for fragment in _in_order(fragments))
    if outside := _OUTSIDE.search(body):
        raise NotClosed("external_import", modules=[outside.group()])
    files = [package.file(path) for path in sorted({f.statement.path for f in fragments})]
    loaded = {name for file in files for name in file.loaded if _is_mentioned(name, body)}
    if einops.LAYER_NAME in body:
        body = f"{einops.LAYER}\n\n\n{body}"
        loaded.add("torch")
    head = _import_block(names, loaded, any(file.future_annotations for file in files))
    taken = [_place(f.statement) for f in fragments if f.statement.path != target.path]
    return Closed(f"{head}\n\n\n{body}\n", sorted(taken))


_OUTSIDE = re.compile(
    r"\btorch\.(distributed|ops|classes|hub|utils\.cpp_extension)\b|\bos\.(?!environ\b|getenv\b)\w+"
)


def _collect(package: Package, target: Definition) -> list[Fragment]:
    """Return every statement that the target needs, itself first, in order of discovery."""
    fragments: dict[tuple[str, int], Fragment] = {}
    external: set[str] = set()
    unresolved: set[str] = set()
    queue = [target]
    seen = {target}
    while queue:
        wanted = queue.pop(0)
        for statement in package.file(wanted.path).definitions.get(wanted.name, []):
            key = (statement.path, statement.index)
            if key in fragments:
                continue
            fragment = fragments[key] = _cut(package, statement)
            unresolved |= fragment.unresolved
            external |= {name for name in fragment.nested if not is_allowed(name)}
            for _, found in fragment.uses.values():
                if isinstance(found, External) and not is_allowed(found.dotted):
                    external.add(found.dotted if found.module == "torch" else found.module)
                elif isinstance(found, Definition) and found not in seen:
                    seen.add(found)
                    queue.append(found)
    if external:
        raise NotClosed("external_import", modules=sorted(external))
    if unresolved:
        raise NotClosed("unresolved_name", names=sorted(unresolved))
    return list(fragments.values())


def _cut(package: Package, statement: Statement) -> Fragment:
    try:
        return cut(package, statement)
    except SyntaxError as error:
        raise NotClosed("syntax_error", path=statement.path, message=str(error)) from error


def _final_names(target: Definition, fragments: list[Fragment]) -> dict[Symbol, str]:
    """Return the name that each used object has in the standalone file."""
    names: dict[Symbol, str] = {target: MODEL}
    taken = {MODEL} | KNOWN_NAMES
    used = [found for fragment in fragments for _, found in fragment.uses.values()]
    for found in sorted(dict.fromkeys(used), key=lambda found: isinstance(found, Definition)):
        if found not in names:
            wish = found.name if isinstance(found, Definition) else found.alias
            names[found] = _free_name(wish, taken)
            taken.add(names[found])
    return names


def _free_name(name: str, taken: set[str]) -> str:
    count, candidate = 1, name
    while candidate in taken:
        count += 1
        candidate = f"{name}{count}"
    return candidate


def _in_order(fragments: list[Fragment]) -> list[Fragment]:
    """Order statements as Python runs them: imported files first, each from top to bottom."""
    imports: dict[str, list[str]] = {}
    for fragment in fragments:
        found = imports.setdefault(fragment.statement.path, [])
        found += [t.path for _, t in fragment.uses.values() if isinstance(t, Definition)]
    order: list[str] = []
    visited: set[str] = set()

    def visit(path: str) -> None:
        if path not in visited:
            visited.add(path)
            for other in sorted(set(imports.get(path, []))):
                visit(other)
            order.append(path)

    visit(fragments[0].statement.path)
    rank = {path: position for position, path in enumerate(order)}
    return sorted(fragments, key=lambda f: (rank[f.statement.path], f.statement.index))


def _rendered(fragment: Fragment, names: dict[Symbol, str]) -> str:
    """Return the statement's text under the final names.

    Raises:
        NotClosed: a name that must change is also a local name, so that the change is unsafe.
    """
    node = fragment.statement.node
    data = node.text or b""
    edits = dict(fragment.edits)
    for (first, last), (head, found) in fragment.uses.items():
        final = names[found]
        if data[first - node.start_byte : last - node.start_byte] == final.encode():
            continue
        if clash := {head, final} & fragment.local:
            raise NotClosed("name_collision", names=sorted(clash))
        edits[first, last] = final
    return dedented(node, edits)


def _import_block(names: dict[Symbol, str], loaded: set[str], future: bool) -> str:
    """Return the import statements, the standard library's first."""
    lines = {f"import {name}" for name in loaded}
    members: dict[str, set[str]] = {}
    for found, name in names.items():
        if not isinstance(found, External):
            continue
        if found.attr is not None:
            item = found.attr if found.attr == name else f"{found.attr} as {name}"
            members.setdefault(_home(found), set()).add(item)
        else:
            lines.add(f"import {found.module}" + (f" as {name}" * (found.module != name)))
    lines |= {f"from {module} import {', '.join(sorted(m))}" for module, m in members.items()}
    ordered = sorted(
        lines, key=lambda line: ("torch" in line.split()[1], line.startswith("from"), line)
    )
    return "\n".join(["from __future__ import annotations\n"] * future + ordered)


def _home(found: External) -> str:
    """Return the module to import from: `typing` has what tasks use of `typing_extensions`."""
    is_typing = found.module == "typing_extensions" and found.attr in typing.__all__
    return "typing" if is_typing else found.module


def _is_mentioned(module: str, text: str) -> bool:
    return is_allowed(module) and "." in module and re.search(rf"\b{module}\b", text) is not None


def _place(statement: Statement) -> str:
    first, last = statement.node.start_point[0] + 1, statement.node.end_point[0] + 1
    return f"{statement.path}:{first}-{last}"
