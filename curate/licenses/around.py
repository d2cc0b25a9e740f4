"""What speaks of the license of a file from around it, and grants nothing.

Metadata and the files that it points to, README, ``__init__`` and its like, legal files in any
language, REUSE.toml: what each of them says holds for its folder and all below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import PurePosixPath

from curate.cache.artifact import Artifact, is_readme, may_hold_terms
from curate.licenses.claims import Claim, named_in
from curate.licenses.detect import MIN_COVERAGE, paragraphs, place, terms
from curate.licenses.legal import (
    POOLS,
    Kind,
    annotated,
    applies,
    folder_of,
    is_annotations,
    is_list,
    kind_of,
)
from curate.licenses.metadata import (
    READERS,
    FileNamed,
    assigned_claims,
    description,
    metadata_claims,
)
from curate.licenses.readme import readme_claims
from curate.licenses.text.bargain import terms_at
from curate.licenses.text.languages import fold
from curate.licenses.text.prose import Note, read_source
from curate.licenses.text.terms import Care, binds, speaks
from curate.sources.files import select

_HEAD = 4000  # characters of a list in which terms would stand
_DIST_INFO = re.compile(r"(?P<outer>.*/)?[^/]+\.(?:dist|egg)-info/(?:licenses/)?(?P<inner>.*)")
_OTHER_ENCODING = re.compile("\ufffd{3}")
"""What a text in another encoding than UTF-8 is read as, if its letters are not Latin ones."""
_SPEAKER = re.compile(
    r"(?:__\w+__|_?(?:about|version|meta|metadata|license|(?:(?:pkg|package)_?)?info)|setup)\.pyi?"
)
"""Files of code that speak for their folder: ``__init__``, ``__about__`` and their like."""
_OF_ITS_FILE = re.compile(
    r"(?i)\b(?:this|the) (?:file|module|script|function|class|header)\b|adapted|copied"
    r"|based on|derived"
    r"|taken from|copyright|borrowed|modified"
)
"""Words by which a comment there speaks of its file, or of where it is from, alone."""
_PACKAGE = re.compile(
    r"(?i)\b(?:package|project|library|software|distribution|repository|toolkit)\b"
)
"""Words by which a comment there speaks of more than its file."""


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
        tree: one from a folder that the wheel has applies there, any other to all that stands
        beside the ``*.dist-info``. What lies in legal/ or license/ applies to the folder above.
        """
        wheel = _DIST_INFO.fullmatch(path)
        if wheel is None:
            return self._folder_of(path)
        outer = (wheel["outer"] or "").rstrip("/")
        home = self._folder_of(wheel["inner"])
        return home if home in self.folders and not outer else outer or "."

    def _folder_of(self, path: str) -> str:
        """Return the folder that a file applies to; a license among others holds for some files."""
        parent = PurePosixPath(path).parent
        return (
            str(parent)
            if self._is_license(path) and parent.name.lower() in POOLS
            else folder_of(path)
        )

    def metadata(self, folder: str) -> list[Claim]:
        """Return what the metadata files of one folder claim, and the files that they point to."""
        if folder not in self._metadata:
            found: list[Claim] = []
            for path in self._metadata_files.get(folder, []):
                claims, named = metadata_claims(path, self._text(path))
                found += [
                    *claims,
                    *(claim for file in named for claim in self._pointed(path, file)),
                ]
            self._metadata[folder] = found
        return self._metadata[folder]

    def _pointed(self, path: str, named: FileNamed) -> Iterator[Claim]:
        """Yield what a file that metadata points to claims; license files are read elsewhere."""
        folder = str(PurePosixPath(path).parent)
        glob = named.glob.removeprefix("./")
        inside = glob if folder == "." else f"{folder}/{glob}"
        files = select(self._artifact.paths(), [re.sub(r"\[\w+\]", "?", inside)], ())
        if not files and (named.one or not may_hold_terms(inside)):
            # Files of other names than those are not kept, so that nobody knows what it says.
            yield Claim(f"{path} points to {glob}, which was not read", path, None)
        for file in files:
            if not (self._is_license(file) and self.home(file) == self.home(path)):
                yield from self._read(file, "terms", found_by_name=False)

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
            papers, speakers = self._papers.get(folder, []), self._speakers.get(folder, [])
            own = [claim for path in papers for claim in self._read(path, self._kind(path))]
            own += [claim for path in speakers for claim in self._spoken(path)]
            above = [] if folder == "." else self._said_in(str(PurePosixPath(folder).parent))
            self._said[folder] = own + above
        return self._said[folder]

    def _kind(self, path: str) -> Kind | None:
        return kind_of(path, on_top=self.home(path) == ".")

    def _spoken(self, path: str) -> Iterator[Claim]:
        """Yield what a README, a description or an ``__init__`` claims for its folder."""
        text = self._text(path)
        if self._is_unreadable(path):
            yield Claim(f"{path} is not UTF-8", path, None)
        if is_readme(path):
            yield from readme_claims(text, path, self._names)
            return
        if not path.endswith(".py"):
            name, said = description(text)
            yield from readme_claims(said, path, self._names | {name.lower()})
            return
        yield from assigned_claims(text, path)
        source = read_source(text, path)
        for note in source.notes:
            if not note.comment and binds(note.text):
                care: Care = "edge" if note.place == "header" else "code"
                yield from self._said_by(note.text, path, care)
            elif note.comment and self._comments_on_all(note):
                yield from self._said_by(note.text, path, "edge")
        for string in source.strings:  # what is printed when the package is loaded
            terms_told = self._means_all(string) and speaks(string, "code")
            if terms_told and terms_at(fold(string)) is not None:
                yield Claim(string, path, None)

    def _comments_on_all(self, note: Note) -> bool:
        """Whether a comment in such a file may be about more than the file."""
        if note.place in ("header", "top"):
            return _OF_ITS_FILE.search(note.text) is None
        return note.place == "foot" and self._means_all(note.text)

    def _means_all(self, text: str) -> bool:
        """Whether a text speaks of the package, and not of its file alone."""
        return bool(_PACKAGE.search(text)) or not self._names.isdisjoint(text.lower().split())

    @cached_property
    def _names(self) -> frozenset[str]:
        """What the artifact calls itself: folders on its top level."""
        tops = {path.partition("/")[0].lower() for path in self._artifact.paths() if "/" in path}
        named = {name for top in tops for name in (top, top.replace("_", "-"), f"{top}:")}
        return frozenset(named)

    def _said_by(self, text: str, path: str, care: Care) -> Iterator[Claim]:
        """Yield what a text in prose claims."""
        if not terms(paragraphs(text), care):
            return
        placed = place(text)
        if placed.expression:
            yield Claim(placed.found, path, placed.expression)
        for edited in placed.edited:
            yield Claim(f"{edited.id}, but {edited.differs}", path, None)
        for notice in terms(placed.leftovers, care):
            named = named_in(notice, path, care, self._names)
            yield from [Claim(notice, path, None)] if named is None else named

    def _read(self, path: str, kind: Kind | None, found_by_name: bool = True) -> Iterator[Claim]:
        """Yield the claims of one paper; a list of words is none, if only its name says so."""
        text = self._text(path)
        if self._is_unreadable(path):
            yield Claim(f"{path} is not UTF-8", path, None)
            return
        listed = kind in ("other", "terms") and is_list(text) and self.home(path) != "."
        if found_by_name and listed and not speaks(text[:_HEAD], "edge"):
            return
        placed = place(text)
        if kind == "pool" and placed.expression and placed.coverage >= MIN_COVERAGE:
            return
        if placed.expression and (kind == "terms" or self._is_denied(placed.expression)):
            yield Claim(placed.found, path, placed.expression)
        for edited in placed.edited:
            yield Claim(f"{edited.id}, but {edited.differs}", path, None)
        care: Care = "code" if kind == "other" else "edge"
        kind = "terms" if kind == "pool" else kind
        spoken = placed.leftovers if kind == "terms" else terms(placed.leftovers, care)
        for notice in spoken if kind != "docs" else filter(binds, spoken):
            named = named_in(notice, path, care, credits=kind in ("credits", "docs"))
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
    def _speakers(self) -> dict[str, list[str]]:
        """Files that speak for their folder without being about licenses."""

        def speaks_for_it(path: str) -> bool:
            name = path.rpartition("/")[2]
            return (
                is_readme(path)
                or name in ("METADATA", "PKG-INFO")
                or bool(_SPEAKER.fullmatch(name))
            )

        return self._by_folder(speaks_for_it, self.home)

    @cached_property
    def _papers(self) -> dict[str, list[str]]:
        def is_paper(path: str) -> bool:
            return (
                self._kind(path) is not None
                and not is_readme(path)
                and not self._is_license(path)
                and not self._annotates(path)
            )

        return self._by_folder(is_paper, self.home)

    @cached_property
    def _annotations(self) -> dict[str, list[tuple[list[str], Claim | None]]]:
        found: dict[str, list[tuple[list[str], Claim | None]]] = {}
        for path in filter(self._annotates, self._artifact.paths()):
            folder = PurePosixPath(path).parent
            home = folder.parent if folder.name in (".reuse", "debian") else folder
            found.setdefault(str(home), []).extend(annotated(path, self._text(path)))
        return found

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

    def _is_unreadable(self, path: str) -> bool:
        data = self._artifact.read_bytes(path)
        try:
            return "\0" in data.decode("utf-8")
        except UnicodeDecodeError:
            return b"\0" in data or bool(_OTHER_ENCODING.search(self._text(path)))

    def _text(self, path: str) -> str:
        return self._artifact.read_bytes(path).decode("utf-8", "replace")
