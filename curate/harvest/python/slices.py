"""Cut a definition out of its package so that it stands alone, with all that it needs."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from typing import Any

from curate.harvest.python import einops
from curate.harvest.python.fragment import KNOWN_NAMES, Fragment, cut
from curate.harvest.python.package import Definition, External, Package, Symbol
from curate.harvest.python.source import Statement, dedented
from curate.harvest.python.substitutes import Substitute

Place = tuple[str, int]
"""The file of a statement, and its number there."""


class NotClosed(Exception):
    """A definition cannot be made to stand alone."""

    def __init__(self, reason: str, **evidence: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.evidence = evidence


class StandaloneFile:
    """A standalone file.

    Attributes:
        text: its source.
        taken: ``path:first-last`` of each statement that came from another file.
        places: the statements that it was made from.
    """

    def __init__(self, text: str, taken: list[str], places: frozenset[Place]) -> None:
        self.text = text
        self.taken = taken
        self.places = places

    def check_length(self, max_lines: int) -> None:
        """Do nothing for a file of at most ``max_lines`` lines.

        Raises:
            NotClosed: it is longer: ``too_large``.
        """
        lines = self.text.count("\n")
        if lines > max_lines:
            raise NotClosed("too_large", lines=lines, max_lines=max_lines)


def close(
    package: Package,
    target: Definition,
    names: Mapping[Symbol, str],
    chosen: Mapping[Definition, list[Statement]] | None = None,
    without: frozenset[str] = frozenset(),
    imported: frozenset[Place] | None = frozenset(),
) -> StandaloneFile:
    """Return the standalone file of a definition.

    Args:
        package: where it stands.
        target: what to close.
        names: the names that definitions are to have in the file.
        chosen: the statements that make a definition, where not all that bind its name do.
        without: decorators of kernels that are left out, by their full names.
        imported: statements that run when the file is imported, in whose functions questions to
            the platform are answered; None for all.

    Raises:
        NotClosed: something that the definition needs cannot be had; ``reason`` and ``evidence``
            say what.
    """
    fragments = _collect(package, target, chosen or {}, without, imported)
    final = _final_names(names, fragments)
    body = "\n\n\n".join(_rendered(fragment, final) for fragment in _in_order(fragments))
    if outside := _OUTSIDE.search(body):
        raise NotClosed("external_import", modules=[outside.group()])
    files = [package.file(path) for path in sorted({f.statement.path for f in fragments})]
    allowed = package.environment.is_allowed
    dotted = {name for file in files for name in file.loaded if "." in name and allowed(name)}
    loaded = {name for name in dotted if re.search(rf"\b{name}\b", body)}
    ours = [found.text for found in final if isinstance(found, Substitute) and found.text]
    if einops.LAYER_NAME in body:
        ours.append(einops.LAYER)
    body = "\n\n\n".join([*sorted(ours), body])
    if re.search(r"\btorch\.(einsum|nn\.\w+)\b", body) or any("torch." in text for text in ours):
        loaded.add("torch")
    loaded |= {"contextlib"} if any("contextlib." in text for text in ours) else set()
    head = _import_block(final, loaded, any(file.future_annotations for file in files))
    taken = [_place(f.statement) for f in fragments if f.statement.path != target.path]
    places = frozenset((f.statement.path, f.statement.index) for f in fragments)
    return StandaloneFile(f"{head}\n\n\n{body}\n", sorted(taken), places)


_OUTSIDE = re.compile(
    r"\btorch\.(distributed|ops|classes|hub|utils\.cpp_extension)\b|\bos\.(?!environ\b|getenv\b)\w+"
)


def _collect(
    package: Package,
    target: Definition,
    chosen: Mapping[Definition, list[Statement]],
    without: frozenset[str],
    imported: frozenset[Place] | None,
) -> list[Fragment]:
    """Return every statement that the target needs, itself first, in order of discovery."""
    fragments: dict[Place, Fragment] = {}
    external: set[str] = set()
    unresolved: set[str] = set()
    allowed = package.environment.is_allowed
    queue = [target]
    seen = {target}
    while queue:
        wanted = queue.pop(0)
        bound = package.file(wanted.path).definitions.get(wanted.name, [])
        for statement in chosen.get(wanted, bound):
            key = (statement.path, statement.index)
            if key in fragments:
                continue
            everywhere = imported is None or key in imported
            fragment = fragments[key] = _cut(package, statement, without, everywhere)
            unresolved |= fragment.unresolved
            external |= {name for name in fragment.nested if not allowed(name)}
            for _, found in fragment.uses.values():
                if isinstance(found, External) and not allowed(found.dotted):
                    external.add(found.dotted if found.module == "torch" else found.module)
                elif isinstance(found, Definition) and found not in seen:
                    seen.add(found)
                    queue.append(found)
    if external:
        raise NotClosed("external_import", modules=sorted(external))
    if unresolved:
        raise NotClosed("unresolved_name", names=sorted(unresolved))
    return list(fragments.values())


def _cut(
    package: Package, statement: Statement, without: frozenset[str], everywhere: bool
) -> Fragment:
    try:
        return cut(package, statement, without, everywhere)
    except SyntaxError as error:
        raise NotClosed("syntax_error", path=statement.path, message=str(error)) from error


_ORDER = (Substitute, External, Definition)
"""A substitute's text has its name; the others can be called otherwise."""


def _final_names(wished: Mapping[Symbol, str], fragments: list[Fragment]) -> dict[Symbol, str]:
    """Return the name that each used object has in the standalone file."""
    names: dict[Symbol, str] = {}
    names.update(wished)
    taken = {*wished.values()} | KNOWN_NAMES
    used = [found for fragment in fragments for _, found in fragment.uses.values()]
    for found in sorted(dict.fromkeys(used), key=lambda found: _ORDER.index(type(found))):
        if found not in names:
            wish = found.alias if isinstance(found, External) else found.name
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
        if isinstance(found, Substitute) and found.home:
            members.setdefault(found.home, set()).add(found.name)
        if not isinstance(found, External):
            continue
        if found.attr is not None:
            item = found.attr if found.attr == name else f"{found.attr} as {name}"
            members.setdefault(_home(found), set()).add(item)
        else:
            lines.add(f"import {found.module}" + (f" as {name}" * (found.module != name)))
    lines |= {f"from {module} import {', '.join(sorted(m))}" for module, m in members.items()}
    ordered = sorted(lines, key=lambda line: (_is_third_party(line), line.startswith("from"), line))
    return "\n".join(["from __future__ import annotations\n"] * future + ordered)


_OLD_MATH = ("triton.language.math", "triton.language.libdevice")
_MATH = re.compile(
    r"abs|ceil|cos|div_rn|erf|exp2?|fdiv|floor|fma|log2?|rsqrt|sin|sqrt|sqrt_rn|umulhi"
)


def _is_third_party(line: str) -> bool:
    return line.split()[1].startswith(("numpy", "torch", "triton"))


def _home(found: External) -> str:
    """Return the module to import from today.

    `typing` has what tasks use of `typing_extensions`; what triton 3 no longer has in
    `triton.language.math` is in `libdevice`.
    """
    if found.module in _OLD_MATH and not _MATH.fullmatch(found.attr or "abs"):
        return "triton.language.extra.libdevice"
    is_typing = found.module == "typing_extensions" and found.attr in typing.__all__
    return "typing" if is_typing else found.module


def _place(statement: Statement) -> str:
    first, last = statement.node.start_point[0] + 1, statement.node.end_point[0] + 1
    return f"{statement.path}:{first}-{last}"
