"""What decides a step's result, and which code makes it.

A shard's key is made from a step's `identity`: name, version, options, tools. Code is not in it, so
that a comment does not redo a data set. `code_digest` tells that code has changed all the same:
a run warns of it, shards that were half done are begun anew, and the nodes of a cluster are
compared by it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import curate
from curate.files import file_sha256
from curate.rows import kind_digest
from curate.step import Step

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@cache
def tool_version(name: str) -> str:
    """Return an installed distribution's version without its local part (``+cpu``)."""
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def identity(step: Step, seed: int) -> dict[str, Any]:
    """Return what decides a step's result, besides its input."""
    return {
        "name": step.name,
        "version": step.version,
        "options": step.options(),
        "tools": {name: tool_version(name) for name in step.tools},
        "python": PYTHON,  # its parser, compiler and unparser take part in nearly every step
        "columns": columns_digest(step),  # rows of another form cannot be read as these
        **({"seed": seed} if step.seeded else {}),
    }


def columns_digest(step: Step) -> str:
    """Return a digest of the columns that rows of the kinds which a step takes or makes have."""
    kinds = sorted(step.takes | step.makes | step.adds)
    return hashlib.sha256("".join(map(kind_digest, kinds)).encode()).hexdigest()[:16]


# --- code -----------------------------------------------------------------------------------

PACKAGE = Path(curate.__file__).parent

IMPORT = re.compile(
    rf"^[ \t]*(?:from[ \t]+({PACKAGE.name}[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
    rf"|import[ \t]+({PACKAGE.name}[\w.]*))",
    re.MULTILINE,
)
STARTED = re.compile(rf'"({PACKAGE.name}(?:\.\w+)+)"')
"""A module that is run as a program, by ``python -m``."""

FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:(?:[ \t].*)?\n)+", re.MULTILINE)


@cache
def code_digest(kind: type[Step]) -> str:
    """Return a digest of the code that a step runs in this package.

    That is the file of its class and whatever this file imports of `curate`, also within functions,
    or starts as a program; and so on. Other packages are told apart by their versions.
    """
    return files_digest(closure(Path(inspect.getfile(kind))))


def files_digest(files: frozenset[Path]) -> str:
    """Return a digest of files' names and contents."""
    lines = sorted(f"{_name(path)} {_sha256(path)}" for path in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _name(path: Path) -> str:
    """Return a file's place in this package, wherever that lies; of another file, its name."""
    return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else path.name


def closure(start: Path) -> frozenset[Path]:
    """Return a source file and all files of this package that it comes to import."""
    found, todo = {start}, [start]
    while todo:
        new = imports(todo.pop()) - found
        found |= new
        todo += new
    return frozenset(found)


@cache
def _sha256(path: Path) -> str:
    return file_sha256(path)


@cache
def imports(path: Path) -> frozenset[Path]:
    """Return the files of this package that one imports or starts, but not for types alone."""
    text = FOR_TYPES.sub("", path.read_text(encoding="utf-8"))
    return frozenset(file for name in _modules(text) for file in _files_of(name))


def _modules(text: str) -> Iterator[str]:
    """Yield what may be names of modules of this package."""
    for package, names, module in IMPORT.findall(text):
        yield package or module
        yield from (f"{package}.{name}" for name in re.findall(r"\w+", names) if package)
    yield from STARTED.findall(text)


def _files_of(module: str) -> Iterator[Path]:
    """Yield the files of a module and of the packages around it, as far as they are there."""
    places = [PACKAGE]
    for part in module.split(".")[1:]:
        places.append(places[-1] / part)
    files = (places[-1].with_suffix(".py"), *(place / "__init__.py" for place in places))
    yield from filter(Path.is_file, files)
