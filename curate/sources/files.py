"""What the sources of files share: which files become rows, and what the rows hold."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from curate.cache.artifact import Artifact
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, SourceError, SourceStep

NOT_LIBRARY = (
    "**/test/**",
    "**/tests/**",
    "**/testing/**",
    "**/test_*.py",
    "**/*_test.py",
    "**/conftest.py",
    "**/doc/**",
    "**/docs/**",
    "**/example/**",
    "**/examples/**",
    "setup.py",
)


class FileSource(SourceStep):
    """A source whose rows are files (kind ``file``), each with its text and its place."""

    makes: ClassVar[frozenset[str]] = frozenset({"file"})
    sets: ClassVar[frozenset[str]] = frozenset({"text"})

    version: ClassVar[int] = 3  # artifacts keep more of the files that speak of terms; links

    include: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Globs of the files that become rows, relative to the source's top "
            "folder: `*` matches within a folder, `**/` any number of folders. Only code is "
            "there to match (.py .pyi .cu .cuh .h .hpp .cpp).",
        ),
    ] = ("**/*.py",)
    exclude: Annotated[
        tuple[str, ...],
        Field(
            description="Globs of files that are left out although `include` matches them. "
            "Left-out files are no rows, but code that rows need is still found in them."
        ),
    ] = NOT_LIBRARY
    contains: Annotated[
        tuple[str, ...],
        Field(
            description="Words of which a file must hold one to become a row, such as `triton`; "
            "none asks for nothing. What holds none is left out as by `exclude`."
        ),
    ] = ()
    max_file_kb: Annotated[
        int,
        Field(
            gt=0,
            description="Files larger than this many KiB are dropped as `file_too_large`: they "
            "are tables or generated code.",
        ),
    ] = 1024

    def _key(self, content: str) -> str:
        """Return a unit's key: what pins its content, and which files are taken of it."""
        chosen = [self.include, self.exclude, self.contains, self.max_file_kb]
        options = json.dumps([content, *chosen])
        return hashlib.sha256(options.encode()).hexdigest()

    def _rows(
        self, label: str, artifact: Artifact, **known: Any
    ) -> Iterator[Row | tuple[Row, Drop]]:
        """Yield one row per selected file, in order of path; ``known`` are origin fields.

        A file whose text is of no use is yielded with null text and the reason to drop it.
        """
        selected = select(artifact.paths(), self.include, self.exclude)
        if not selected:
            raise SourceError(
                f"{label}: none of its {len(artifact.paths())} files matches `include` "
                f"{list(self.include)} and not `exclude`; correct the globs or remove the source"
            )
        words = [word.encode() for word in self.contains]
        for path in selected:
            content = artifact.read_bytes(path)
            if words and not any(word in content for word in words):
                continue
            origin = make_origin(self.source, artifact_sha256=artifact.sha256, path=path, **known)
            if drop := _useless(content, self.max_file_kb):
                yield make_row("file", "", origin), drop
            else:
                text = content.decode()
                yield make_row("file", text, origin, text=text)


def _useless(content: bytes, max_file_kb: int) -> Drop | None:
    """Return why a file's text is of no use, or None."""
    if len(content) > max_file_kb << 10:
        evidence = {"bytes": len(content), "allowed": max_file_kb << 10}
        return Drop("file_too_large", evidence)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return Drop("not_utf8", {"offset": error.start, "bytes": content[error.start :][:4].hex()})
    return None if text.strip() else Drop("empty_file", {"bytes": len(content)})


def select(paths: Iterable[str], include: Iterable[str], exclude: Iterable[str]) -> list[str]:
    """Return the paths that a glob of ``include`` matches and none of ``exclude``, sorted."""
    wanted, unwanted = [_glob(g) for g in include], [_glob(g) for g in exclude]
    return sorted(
        path
        for path in paths
        if any(g.fullmatch(path) for g in wanted) and not any(g.fullmatch(path) for g in unwanted)
    )


@lru_cache
def _glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob; `fnmatch` will not do, since its ``*`` crosses folders."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(parts.get(token, re.escape(token)) for token in tokens), re.DOTALL)


def without_credentials(text: str) -> str:
    """Hide user names, passwords and tokens in addresses."""
    return re.sub(r"(//[^\s?\"']+)\?[^\s\"']+", r"\1?***", re.sub(r"//[^/@\s]*@", "//***@", text))


def cache_of(context: Context) -> Path:
    """Return the cache folder, which sources cannot do without.

    Raises:
        SourceError: the context has none.
    """
    if context.cache is None:
        raise SourceError("sources need a cache folder, and this run has none")
    return context.cache
