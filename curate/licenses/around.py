"""What names a license around a file without granting it: metadata, legal files, REUSE.toml."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import PurePosixPath

from curate.cache.artifact import Artifact
from curate.licenses.claims import READERS, Claim, claims_of, named_in
from curate.licenses.detect import place, terms
from curate.licenses.legal import annotated, applies, folder_of, is_annotations, kind_of
from curate.licenses.text.terms import Care

_DIST_INFO = re.compile(r"[^/]+\.(?:dist|egg)-info/(?:licenses/)?(?P<inner>.*)")


class Around:
    """Reads the legal files and metadata of one artifact, once per folder.

    Args:
        artifact: whose files are asked about.
        is_license: whether a path is that of a license file, which is read elsewhere.
        is_denied: whether code under an expression may not be used.
    """

    def __init__(
        self,
        artifact: Artifact,
        is_license: Callable[[str], bool],
        is_denied: Callable[[str], bool],
    ) -> None:
        self._artifact = artifact
        self._is_license = is_license
        self._is_denied = is_denied
        self._metadata: dict[str, list[Claim]] = {}
        self._said: dict[str, list[Claim]] = {}

    @cached_property
    def folders(self) -> frozenset[str]:
        """Every folder that holds files, or folders with files."""
        direct = {path.rpartition("/")[0] for path in self._artifact.paths()}
        return frozenset(
            str(parent) for folder in direct for parent in PurePosixPath(folder, "file").parents
        )

    def home(self, path: str) -> str:
        """Return the folder that a license file or paper applies to.

        A wheel keeps license files in ``*.dist-info/licenses/`` under their paths in the source
        tree: one from a folder that the wheel has applies there, any other to the whole wheel.
        """
        wheel = _DIST_INFO.fullmatch(path)
        home = str(PurePosixPath(wheel["inner"] if wheel else path).parent)
        return "." if wheel and home not in self.folders else home

    def metadata(self, folder: str) -> list[Claim]:
        """Return what the metadata files of one folder claim."""
        if folder not in self._metadata:
            files = self._metadata_files.get(folder, [])
            self._metadata[folder] = [
                claim for path in files for claim in claims_of(path, self._text(path))
            ]
        return self._metadata[folder]

    def said(self, path: str) -> list[Claim]:
        """Return what the legal files in the folders above a file claim of it."""
        found = list(self._said_in(str(PurePosixPath(path).parent)))
        for folder, entries in self._annotations.items():
            if folder == "." or path.startswith(f"{folder}/"):
                inner = path if folder == "." else path.removeprefix(f"{folder}/")
                found += [claim for globs, claim in entries if claim and applies(globs, inner)]
        return found

    def _said_in(self, folder: str) -> list[Claim]:
        """Return what the legal files of a folder and of those above it claim."""
        if folder not in self._said:
            own = [claim for paper in self._papers.get(folder, []) for claim in self._read(paper)]
            above = [] if folder == "." else self._said_in(str(PurePosixPath(folder).parent))
            self._said[folder] = own + above
        return self._said[folder]

    def _read(self, path: str) -> Iterator[Claim]:
        """Yield the claims of one paper."""
        text, kind = self._text(path), kind_of(path)
        if not text.isprintable() and "\0" in text:
            yield Claim(f"{path} is no text", path, None)
            return
        placed = place(text)
        if placed.expression and (kind == "terms" or self._is_denied(placed.expression)):
            yield Claim(placed.found, path, placed.expression)
        care: Care = "code" if kind == "other" else "edge"
        spoken = placed.leftovers if kind == "terms" else terms(placed.leftovers, care)
        for notice in spoken:
            named = named_in(notice, path, care)
            said = named is not None and (kind != "terms" or bool(named))
            # That a part comes from elsewhere, under a license that is allowed, is a credit.
            joins = [
                c for c in named or () if kind == "terms" or self._is_denied(str(c.expression))
            ]
            yield from joins if said else [Claim(notice, path, None)]

    @cached_property
    def _metadata_files(self) -> dict[str, list[str]]:
        return self._by_folder(lambda path: path.rpartition("/")[2] in READERS, self.home)

    @cached_property
    def _papers(self) -> dict[str, list[str]]:
        def is_paper(path: str) -> bool:
            return (
                kind_of(path) is not None
                and not self._is_license(path)
                and not self._annotates(path)
            )

        return self._by_folder(is_paper, lambda path: folder_of(self.home_path(path)))

    @cached_property
    def _annotations(self) -> dict[str, list[tuple[list[str], Claim | None]]]:
        found: dict[str, list[tuple[list[str], Claim | None]]] = {}
        for path in filter(self._annotates, self._artifact.paths()):
            folder = PurePosixPath(path).parent
            home = folder.parent if folder.name in (".reuse", "debian") else folder
            found.setdefault(str(home), []).extend(annotated(path, self._text(path)))
        return found

    def home_path(self, path: str) -> str:
        """Return where a paper of a wheel's ``*.dist-info`` stood in the source tree."""
        home = self.home(path)
        name = PurePosixPath(path).name
        return name if home == "." and _DIST_INFO.fullmatch(path) else f"{home}/{name}"

    def _annotates(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return name in ("REUSE.toml", "dep5", "copyright") and is_annotations(
            path, self._text(path)
        )

    def _by_folder(
        self, chosen: Callable[[str], bool], folder: Callable[[str], str]
    ) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in filter(chosen, self._artifact.paths()):
            found.setdefault(folder(path), []).append(path)
        return found

    def _text(self, path: str) -> str:
        return self._artifact.read_bytes(path).decode("utf-8", "replace")
