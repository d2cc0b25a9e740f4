"""Pin packages in a recipe: `curate pin` writes the line with version and hash.

The recipe's text is changed in place, so that comments stay. The recipe need not be valid:
before it is pinned, a package is just its name, such as ``torchtune``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from curate.files import write_atomically
from curate.recipe import RecipeError, read_yaml
from curate.shipped.find import find_recipe
from curate.sources.index import choose

SOURCE, LIST = "pypi", "packages"


@dataclass(frozen=True)
class Pinned:
    """A package that was pinned.

    Attributes:
        text: the new line: name, version and hash.
        before: the text that it replaced; None if the line is new.
        unread: what kept indexes that pip is configured for from being read.
    """

    text: str
    before: str | None
    unread: tuple[str, ...]


def pin(path: Path, packages: Sequence[str]) -> list[Pinned]:
    """Pin packages in a recipe: replace the line of each, or add one after the others.

    Args:
        path: the recipe.
        packages: ``name``, for its newest version, or ``name==version``.

    Raises:
        RecipeError: the recipe cannot be read, or a package is not written as above.
        SourceError: the index does not have a package; or the newest version is wanted, and an
            index cannot be read.
    """
    asked = [_read_package(text) for text in packages]
    if find_recipe(path) != path:
        raise RecipeError(f"{path}: comes with curate; change a copy of it: curate init {path}")
    try:
        text = path.read_text(encoding="utf-8")
        _find_sources(text, path)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}") from None
    pinned = []
    for name, version in asked:
        found = choose(name, version)
        line = f"{canonicalize_name(name)}=={found.version} --hash=sha256:{found.sha256}"
        text, before = _put(text, path, name, line)
        pinned.append(Pinned(line, before, found.unread))
    write_atomically(path, text.encode())
    return pinned


def _read_package(text: str) -> tuple[str, str | None]:
    name, _, version = text.partition("==")
    try:
        if Requirement(text).name == name.strip():
            return name.strip(), str(Version(version)) if version else None
    except (InvalidRequirement, InvalidVersion):
        pass
    raise RecipeError(f"{text}: a package is named as `name` or `name==version`")


def _put(text: str, path: Path, name: str, line: str) -> tuple[str, str | None]:
    """Return a recipe's text with a package's line, and the text that it replaced."""
    sources = _find_sources(text, path)
    lists = list(_package_lists(sources))
    for item in (item for found in lists for item in found.value):
        if _name_of(item) == canonicalize_name(name):
            start, end = item.start_mark.index, item.end_mark.index
            return text[:start] + line + text[end:], str(item.value)
    if lists:
        last = lists[0].value[-1]
        if lists[0].flow_style:
            return _insert(text, last.end_mark.index, f", {line}"), None
        indent = " " * (last.start_mark.column - 2)
        return _insert_line(text, last, f"{indent}- {line}"), None
    indent = " " * (sources.value[0].start_mark.column - 2)
    new = f"{indent}- source: {SOURCE}\n{indent}  {LIST}:\n{indent}    - {line}"
    return _insert_line(text, sources, new), None


def _find_sources(text: str, path: Path) -> yaml.SequenceNode:
    """Return the recipe's list of sources."""
    try:
        root, _ = read_yaml(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: is not valid YAML: {error}") from None
    sources = _value_of(root, "sources")
    if not isinstance(sources, yaml.SequenceNode) or not sources.value or sources.flow_style:
        raise RecipeError(f"{path}: has no list `sources` with a line for each")
    return sources


def _package_lists(sources: yaml.SequenceNode) -> Iterator[yaml.SequenceNode]:
    for source in sources.value:
        kind, packages = _value_of(source, "source"), _value_of(source, LIST)
        if not isinstance(packages, yaml.SequenceNode) or not packages.value:
            continue
        if kind is not None and kind.value == SOURCE:
            yield packages


def _value_of(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for known, value in pairs if known.value == key), None)


def _name_of(item: yaml.Node) -> str | None:
    found = re.match(r"[A-Za-z0-9._-]+", item.value) if isinstance(item.value, str) else None
    return canonicalize_name(found[0]) if found else None


def _insert_line(text: str, after: yaml.Node, line: str) -> str:
    """Return a text with a line after the last one of a node."""
    while isinstance(after, yaml.SequenceNode | yaml.MappingNode) and after.value:
        last = after.value[-1]
        after = last[1] if isinstance(last, tuple) else last
    end = text.find("\n", after.end_mark.index)
    if end < 0:
        return f"{text}\n{line}\n"
    return _insert(text, end + 1, f"{line}\n")


def _insert(text: str, at: int, what: str) -> str:
    return text[:at] + what + text[at:]
