"""What a package says of its own license where no license text stands: metadata, ``__license__``.

All of it makes claims, which grant nothing and can only take away (`claims`). Fields: core metadata
(https://packaging.python.org/en/latest/specifications/core-metadata/), PEP 621 and PEP 639, Poetry,
setuptools, and the field ``license`` of other formats. A field that points to a file makes what
stands in the file a claim.
"""

from __future__ import annotations

import ast
import configparser
import email.parser
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from curate.licenses.claims import Claim, addressed_in, named_license, read_claim
from curate.licenses.readme import readme_claims
from curate.licenses.text.languages import fold
from curate.licenses.text.prose import string_at
from curate.licenses.text.terms import speaks

CLASSIFIERS_FILE = Path(__file__).with_name("classifiers.toml")

_SETUP_LICENSE = re.compile(
    r"""(?i)\blicen[cs]e(?:_expression)?["']?\s*[:=]\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)"""
)
_CLASSIFIER = re.compile(r"""["'](License ::[^"'\n]*)["']""")
_FIELDS = ("license", "licence", "license-expression", "license_expression")
_FILE_FIELDS = ("license-file", "license-files", "license_file", "license_files")


@dataclass(frozen=True)
class FileNamed:
    """A glob of files that metadata names as its license, relative to the metadata's folder.

    Attributes:
        glob: as it stands.
        one: it is the license, and not in a list of files that may be there.
    """

    glob: str
    one: bool = True


@dataclass(frozen=True)
class Prose:
    """What a field says in words: it counts as a README's does."""

    text: str


@dataclass(frozen=True)
class Address:
    """Where a field says that the license stands.

    Attributes:
        url: of it.
        names: what the project is called, in small letters.
    """

    url: str
    names: frozenset[str]


Said = str | FileNamed | Prose | Address


def metadata_claims(path: str, text: str) -> tuple[list[Claim], list[FileNamed]]:
    """Return what a metadata file claims of its package, and the files that it points to.

    A file that cannot be read claims what nobody can know.
    """
    reader = READERS[PurePosixPath(path).name]
    try:
        values = list(reader(text))
    except (tomllib.TOMLDecodeError, configparser.Error, ValueError, RecursionError) as error:
        return [Claim(f"{path} cannot be read: {error}"[:300], path, None)], []
    found: list[Claim] = []
    for value in values:
        if isinstance(value, FileNamed):
            continue
        if isinstance(value, Prose):
            found += readme_claims(value.text, path)
            continue
        if isinstance(value, Address):
            found += addressed_in(f"License: {value.url}", path, value.names)
            continue
        known = value.startswith("License ::")
        claim = _classifier(value, path) if known else read_claim(value, path)
        found += [claim] if claim else []
    named = [value for value in values if isinstance(value, FileNamed)]
    return list(dict.fromkeys(found)), list(dict.fromkeys(named))


def description(text: str) -> tuple[str, str]:
    """Return a package's name and its description, out of METADATA or PKG-INFO."""
    message = email.parser.Parser().parsestr(text)
    body = message.get_payload()
    folded = str(message.get("Description") or "")
    unfolded = re.sub(r"\n(?:        |       \|)", "\n", folded)
    return str(message.get("Name") or ""), f"{unfolded}\n\n{body if isinstance(body, str) else ''}"


def _classifier(value: str, path: str) -> Claim | None:
    if value.strip() in ("License :: OSI Approved", "License :: DFSG approved"):
        return None
    known = _classifiers().get(value.strip()) or named_license(value.rpartition("::")[2])
    return Claim(value, path, known)


@cache
def _classifiers() -> dict[str, str]:
    return tomllib.loads(CLASSIFIERS_FILE.read_text("utf-8"))


def _core_metadata(text: str) -> Iterator[Said]:
    message = email.parser.Parser().parsestr(text, headersonly=True)
    for field in ("License", "License-Expression"):
        yield from map(str, message.get_all(field) or ())
    yield from _license_classifiers(map(str, message.get_all("Classifier") or ()))
    yield from (Prose(str(message[field])) for field in ("Summary", "Keywords") if message[field])
    pairs = [str(entry).partition(",")[::2] for entry in message.get_all("Project-URL") or ()]
    urls = {"Home-page": str(message["Home-page"] or ""), **dict(pairs)}
    yield from _addresses(urls, str(message["Name"] or ""))


def _addresses(urls: Mapping[str, Any], name: str) -> Iterator[Address]:
    """Yield the addresses that a project's links call its license's."""
    known = {label: str(url).strip() for label, url in urls.items()}
    names = {name.lower(), *(url.rstrip("/").rpartition("/")[2].lower() for url in known.values())}
    for label, url in known.items():
        if re.search(r"licen[cs]|terms|eula", fold(label)):
            own = names - {url.rstrip("/").rpartition("/")[2].lower()}
            yield Address(url, frozenset(own))


def _pyproject(text: str) -> Iterator[Said]:
    data = tomllib.loads(text)
    tool = data.get("tool")
    tools = list(tool.values()) if isinstance(tool, dict) else []
    tables = [data.get("project"), *tools]
    inner = [
        table.get(key)
        for table in tools
        if isinstance(table, dict)
        for key in ("metadata", "dynamic")
    ]
    for table in [*tables, *inner]:
        if isinstance(table, dict):
            yield from _fields(table)
            urls = table.get("urls")
            yield from _addresses(urls, str(table.get("name"))) if isinstance(urls, dict) else ()


def _fields(table: Mapping[str, Any]) -> Iterator[Said]:
    for field in _FIELDS:
        value = table.get(field)
        if isinstance(value, dict):
            yield from map(FileNamed, _texts(value.get("file")))
            value = value.get("text")
        yield from map(_file_or_text, _texts(value))
    for field in _FILE_FIELDS:
        value = table.get(field)
        listed = [*value.values()] if isinstance(value, dict) else [value]
        yield from (FileNamed(glob, one=False) for entry in listed for glob in _texts(entry))
    yield from _license_classifiers(_texts(table.get("classifiers")))
    for field in ("description", "keywords"):
        yield from map(Prose, [", ".join(_texts(table.get(field)))])


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(entry) for entry in value]
    return [value] if isinstance(value, str) else []


def _file_or_text(value: str) -> Said:
    """Return a value as setuptools reads it: "file: LICENSE" points to a file."""
    pointed = re.fullmatch(r"\s*file:\s*(\S.*?)\s*", value)
    return FileNamed(pointed[1]) if pointed else value


def _setup_cfg(text: str) -> Iterator[Said]:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    if parser.has_section("metadata"):
        section = dict(parser["metadata"])
        yield from (_file_or_text(section[key]) for key in _FIELDS if section.get(key))
        yield from (Prose(section.get(key, "")) for key in ("description", "summary", "keywords"))
        for key in _FILE_FIELDS:
            globs = re.findall(r"[^,\s]+", section.get(key, ""))
            yield from (FileNamed(glob, one=False) for glob in globs)
        yield from _license_classifiers(section.get("classifiers", "").splitlines())
        yield from _license_classifiers(section.get("classifier", "").splitlines())


def _setup_py(text: str) -> Iterator[Said]:
    """Yield what a ``setup.py`` says, however it is assigned; what is computed is passed over."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # it may be of Python 2
        yield from (found["value"] for found in _SETUP_LICENSE.finditer(text))
        yield from _CLASSIFIER.findall(text)
        return
    known = dict(_assigned(tree))
    for node in ast.walk(tree):
        pairs: list[tuple[object, ast.expr | None]] = []
        if isinstance(node, ast.Call):
            pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.Dict):
            pairs = [
                (key.value if isinstance(key, ast.Constant) else None, value)
                for key, value in zip(node.keys, node.values, strict=True)
            ]
        for key, value in pairs:
            if value is not None and key in (*_FIELDS, *_FILE_FIELDS):
                yield from _evaluated(value, known, file=key in _FILE_FIELDS)
        if isinstance(node, ast.Constant) and str(node.value).startswith("License ::"):
            yield str(node.value)


def _evaluated(node: ast.expr, known: Mapping[str, ast.expr], file: bool) -> Iterator[Said]:
    """Yield the texts of an expression, and the files that it opens."""
    for _ in range(5):
        if isinstance(node, ast.Name) and node.id in known:
            node = known[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _evaluated(element, known, file)
        return
    text = constant_text(node)
    if text is not None:
        yield FileNamed(text, one=False) if file else text
        return
    for inner in ast.walk(node):
        opened = isinstance(inner, ast.Call) and inner.args and constant_text(inner.args[-1])
        if opened and re.search(r"(?i)licen|copying|\.(?:txt|md|rst)$", opened):
            yield FileNamed(opened)


def constant_text(node: ast.AST | None) -> str | None:
    """Return the text that a literal is, of an f-string what it says for sure; None for others."""
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(constant_text(part) or " … " for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant_text(node.left), constant_text(node.right)
        return None if left is None or right is None else left + right
    return None


def _cargo(text: str) -> Iterator[Said]:
    data = tomllib.loads(text)
    workspace = data.get("workspace")
    for table in (
        data.get("package"),
        workspace.get("package") if isinstance(workspace, dict) else 0,
    ):
        if isinstance(table, dict):
            yield from _fields(table)


def _yaml(text: str) -> Iterator[Said]:
    try:
        data = yaml.safe_load(text)  # JSON too
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    for key in ("license", "licence", "licenses", "license-url"):
        if isinstance(data, dict):
            yield from _named(data.get(key))


def _named(value: Any) -> Iterator[Said]:
    """Yield the licenses that a value names: a text, a list, or an object with a type or an id."""
    if isinstance(value, str):
        pointed = re.fullmatch(r"(?i)\s*see licen[cs]e in (\S+)\s*", value)  # as npm has it
        yield FileNamed(pointed[1]) if pointed else value
    elif isinstance(value, list):
        for entry in value:
            yield from _named(entry)
    elif isinstance(value, dict):
        keys = ("type", "name", "identifier", "id", "@id", "url")
        yield from _named(next((value[key] for key in keys if value.get(key)), None))


def _license_classifiers(values: Iterable[str]) -> Iterator[str]:
    return (value.strip() for value in values if value.strip().startswith("License ::"))


READERS: dict[str, Callable[[str], Iterable[Said]]] = {
    "PKG-INFO": _core_metadata,
    "METADATA": _core_metadata,
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    "package.json": _yaml,
    "Cargo.toml": _cargo,
    "CITATION.cff": _yaml,
    "codemeta.json": _yaml,
}
"""Metadata files by name, and what reads their values."""


# Code

_LEGAL_NAME = re.compile(
    r"_*(?:spdx_?)?(?:licen[cs]es?|copying|terms(?:_of_use)?|legal|rights|copyright)(?:_\w+)?",
    re.I,
)
_MAY_ASSIGN = re.compile(
    r"(?i)(?:licen[cs]e|copying|terms|legal|rights|copyright)\w*[\"']?\s*[\],):=]|__(?:doc|status|credits|author|notes?|disclaimer|notice|usage)__\s*\+?="
)
_DUNDER = re.compile(rf"(?im)^{_LEGAL_NAME.pattern}\s*(?::[^=\n]+)?=\s*(?=[\"'(rRuUbBfF])")


def assigned_claims(text: str, path: str) -> list[Claim]:
    """Return what a module says by ``__license__ = "…"`` and names like it, outside functions."""
    if _MAY_ASSIGN.search(text) is None:
        return []
    found: list[Claim] = []
    for name, value in _assigned_texts(text):
        dunder = name.startswith("__")
        legal = _LEGAL_NAME.fullmatch(name) and "copyright" not in name.lower()
        if not legal and not speaks(value, "edge"):
            continue
        claim = read_claim(value, path)
        if claim and (claim.expression or dunder or speaks(value, "edge")):
            found.append(claim)
    return list(dict.fromkeys(found))


def _assigned_texts(text: str) -> Iterator[tuple[str, str]]:
    """Yield names that may speak of terms, and the texts that are assigned to them."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        for match in _DUNDER.finditer(text):  # what does not parse here may parse elsewhere
            value = string_at(text, match.end())
            if value is not None:
                yield match[0].partition("=")[0].partition(":")[0].strip(), value
        return
    for name, node in _assigned(tree):
        if _LEGAL_NAME.fullmatch(name) or re.fullmatch(r"__\w+__", name):
            for inner in [node] if not isinstance(node, ast.List | ast.Tuple) else node.elts:
                value = constant_text(inner)
                if value is None:  # what is computed counts where its parts speak of terms
                    parts = filter(None, map(constant_text, ast.walk(inner)))
                    value = re.sub(r"(?i)licen[cs]e", "", " ".join(parts))
                    value = value if speaks(value, "edge") else None
                if value is not None:
                    yield name, value


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a module binds outside functions and classes, and to what.

    Entries of a dictionary count as names: ``about = {"license": "MIT"}``.
    """
    rest: list[ast.stmt] = list(tree.body)
    while rest:
        statement = rest.pop(0)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in ("body", "orelse", "finalbody"):
            rest += getattr(statement, block, [])
        for handler in getattr(statement, "handlers", []):
            rest += handler.body
        for node in ast.walk(statement) if isinstance(statement, ast.Expr) else ():
            if isinstance(node, ast.NamedExpr):
                yield node.target.id, node.value
            elif isinstance(node, ast.Call) and len(node.args) == 3:  # setattr
                yield constant_text(node.args[1]) or "", node.args[2]
        value = getattr(statement, "value", None)
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and value is not None:
            for target in targets:
                yield from _bound(target, value)
        if isinstance(value, ast.Call):
            yield from ((word.arg, word.value) for word in value.keywords if word.arg)
        if isinstance(value, ast.Dict):
            for key, entry in zip(value.keys, value.values, strict=True):
                name = constant_text(key)
                if name is not None:
                    yield name, entry


def _bound(target: ast.AST | None, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield target.attr, value
    elif isinstance(target, ast.Subscript):
        name = constant_text(target.slice)
        if name is not None:
            yield name, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _bound(one, its)
