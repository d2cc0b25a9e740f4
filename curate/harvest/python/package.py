"""The files of one artifact, and where each top-level name comes from."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from curate.harvest.python.environment import TASKS, Environment
from curate.harvest.python.source import Import, SourceFile
from curate.harvest.python.substitutes import Substitute, substitute
from curate.rows import LocatedRow


@dataclass(frozen=True)
class Definition:
    """A top-level name of a file of the artifact."""

    path: str
    name: str


@dataclass(frozen=True)
class External:
    """A module outside the artifact, or an attribute of one, and the name it goes by."""

    module: str
    attr: str | None
    alias: str

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.attr}" if self.attr else self.module


@dataclass(frozen=True)
class Submodule:
    """A file of the artifact, imported as a module."""

    path: str


def dotted_name(symbol: Definition | External) -> str:
    """Return the full name of a definition or of what a module outside the artifact holds."""
    if isinstance(symbol, External):
        return symbol.dotted
    module = symbol.path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/")
    return f"{module.replace('/', '.')}.{symbol.name}"


Symbol = Definition | External | Substitute

Target = Symbol | Submodule


class Package:
    """The Python files of one artifact.

    Args:
        paths: every path of the artifact, with forward slashes.
        read: gives the content of a path.
        environment: where code taken from the package is to run.
    """

    def __init__(
        self, paths: tuple[str, ...], read: Callable[[str], str], environment: Environment = TASKS
    ) -> None:
        self.environment = environment
        self._read = read
        self._paths = frozenset(path for path in paths if path.endswith(".py"))
        self._files: dict[str, SourceFile] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its Python files, sorted."""
        return tuple(sorted(self._paths))

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(
            folder for path in self._paths for folder in _ancestors(posixpath.dirname(path))
        )

    def file(self, path: str) -> SourceFile:
        """Return the parsed file.

        Raises:
            SyntaxError: the file does not parse, or is not UTF-8.
        """
        if path not in self._files:
            self._files[path] = SourceFile(
                path, self.text(path), lambda i: self._available(path, i), self.environment
            )
        return self._files[path]

    def text(self, path: str) -> str:
        """Return a file's text, its line ends as in Python.

        Raises:
            SyntaxError: the file is not UTF-8.
        """
        try:
            return self._read(path).removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise SyntaxError(f"{path} is not UTF-8") from error

    def resolve(self, path: str, name: str) -> Target | None:
        """Return what a top-level name of a file stands for, following re-exports."""
        return self._substituted(self._resolve(path, name, frozenset()))

    def _resolve(self, path: str, name: str, seen: frozenset[Definition]) -> Target | None:
        here = Definition(path, name)
        if here in seen:
            return None
        seen |= {here}
        try:
            file = self.file(path)
        except SyntaxError:
            return None
        if name in file.definitions:
            return here
        if name in file.imports:
            return self._follow(path, file.imports[name], name, seen)
        for star in file.stars:
            target = self._find(path, star.level, star.module)
            if target and not name.startswith("_"):
                found = self._resolve(target, name, seen)
                if found:
                    return found
        if posixpath.basename(path) == "__init__.py":
            return self._submodule(posixpath.join(posixpath.dirname(path), name))
        return None

    def follow(self, path: str, found: Import, name: str) -> Target | None:
        """Return what an import statement anywhere in a file binds to a name."""
        return self._substituted(self._follow(path, found, name, frozenset()))

    def _substituted(self, target: Target | None) -> Target | None:
        """Return what stands for a framework's definition in this environment."""
        if not self.environment.substitutes or not isinstance(target, Definition | External):
            return target
        return substitute(dotted_name(target)) or target

    def _follow(
        self, path: str, found: Import, name: str, seen: frozenset[Definition]
    ) -> Target | None:
        if not self._is_local(path, found):
            return External(found.module, found.attr, name)
        target = self._find(path, found.level, found.module)
        if found.attr is None or target is None:
            return Submodule(target) if target else None
        return self._resolve(target, found.attr, seen)

    def _available(self, path: str, found: Import) -> bool:
        return self._is_local(path, found) or self.environment.is_allowed(found.module)

    def _is_local(self, path: str, found: Import) -> bool:
        if found.level:
            return True
        head = found.module.partition(".")[0]
        return (
            not self.environment.is_allowed(head)
            and self._find(path, 0, head, folder=True) is not None
        )

    def _find(self, path: str, level: int, module: str, folder: bool = False) -> str | None:
        """Return the path of an imported module of the artifact, as seen from a file."""
        inner = module.replace(".", "/")
        if level:
            base = posixpath.dirname(path)
            for _ in range(level - 1):
                base = posixpath.dirname(base)
            return self._module_path(posixpath.join(base, inner) if inner else base)
        for root in _ancestors(posixpath.dirname(path)):
            if posixpath.join(root, "__init__.py") in self._paths:
                continue  # a package is not an import root
            stem = posixpath.join(root, inner)
            if found := self._module_path(stem):
                return found
            if folder and stem in self._folders:
                return stem
        return None

    def _module_path(self, stem: str) -> str | None:
        for path in (f"{stem}.py", posixpath.join(stem, "__init__.py")):
            if path in self._paths:
                return path
        return None

    def _submodule(self, stem: str) -> Submodule | None:
        found = self._module_path(stem)
        return Submodule(found) if found else None


def package_of(row: LocatedRow, cache: Path | None, environment: Environment = TASKS) -> Package:
    """Return the package around a row's file; the file alone when it has no artifact."""
    sha256, path = row["origin"]["artifact_sha256"], row["origin"]["path"]
    if sha256 is None or cache is None:
        return Package((path,), lambda _: str(row["text"]), environment)
    return _open_package(cache, sha256, environment)


@lru_cache(maxsize=4)
def _open_package(cache: Path, sha256: str, environment: Environment) -> Package:
    from curate.cache.artifact import open_artifact

    artifact = open_artifact(cache, sha256)
    return Package(artifact.paths(), artifact.read, environment)


def _ancestors(folder: str) -> list[str]:
    """Return a folder and those above it, the outermost first."""
    found = [folder]
    while folder:
        folder = posixpath.dirname(folder)
        found.append(folder)
    return found[::-1]
