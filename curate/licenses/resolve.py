"""The license of one file of an artifact, from what stands in it and around it.

What a file says of itself governs: SPDX tag, then the notices in its header. A file that says
nothing is under the nearest license files upward, all of those in one folder together. Package
metadata is compared with the root's license files and grants nothing. Whatever cannot be read
leaves the file unknown, and where two statements disagree both apply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

from curate.licenses.corroborate import metadata_expressions
from curate.licenses.detect import (
    MIN_COVERAGE,
    Header,
    Placed,
    cited_urls,
    cites_origin,
    copyright_lines,
    notices_after,
    place,
    spdx_tags,
    split_header,
    terms,
)
from curate.licenses.overrides import Override
from curate.licenses.policy import (
    Policy,
    UnknownLicense,
    conjoin,
    evaluate,
    license_ids,
    normalize,
)
from curate.licenses.texts import text_sha256
from curate.sources.artifact import Artifact

VENDORED = frozenset(
    {
        "3rdparty",
        "_vendor",
        "_vendored",
        "third-party",
        "third_party",
        "thirdparty",
        "vendor",
        "vendored",
    }
)
"""Folders of other people's code: the root's license says nothing about them."""

_LICENSE_NAME = re.compile(
    r"(?i)(?!third.?party|3rd.?party)(?:[\w.+-]*[-_.])?(?:(?:un)?licen[cs]e|copying)"
    r"(?:v?\d+)?(?:[-_.][\w.+-]*)?"  # LICENSE1, COPYING3, COPYINGv2.txt
)
_NOTICE_NAME = re.compile(r"(?i)notice(?:[-_.][\w.+-]*)?")
_TEXT_SUFFIXES = frozenset({"", ".txt", ".md", ".rst"})
_CODE_SUFFIXES = frozenset({".py", ".pyi", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".json", ".toml"})
_DIST_INFO = re.compile(r"[^/]+\.dist-info/(?:licenses/)?(?P<inner>.*)")


@dataclass(frozen=True)
class Unplaced:
    """A text about licenses that could not be read.

    Attributes:
        text: as a person should read it, and as an override's hash takes it.
        path: where it stands.
        hint: what templates recognise in it; None when nothing.
    """

    text: str
    path: str
    hint: str | None = None


@dataclass(frozen=True)
class Statement:
    """What one place says of a file's license.

    Attributes:
        method: spdx_tag, header, license_file or override.
        expression: AND of all that could be read; None when nothing could.
        confidence: share of the texts' words that templates cover, 0 to 1.
        path: of the decisive text.
        unplaced: what could not be read.
        conflict: it says things that differ in whether the file may be used.
    """

    method: str
    expression: str | None
    confidence: float
    path: str
    unplaced: tuple[Unplaced, ...] = ()
    conflict: bool = False


@dataclass(frozen=True)
class Finding:
    """The license of one file.

    Attributes:
        statement: the one that governs, with everything joined to it.
        why: why the license is unknown; empty when it is known.
        texts: license texts to keep.
        notices: texts of the NOTICE files that apply.
        copyright: lines from the file's header and from the license files.
        derived_from: addresses that the file says it comes from.
    """

    statement: Statement
    why: str
    texts: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    copyright: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()


class Resolver:
    """Resolves the files of one artifact; what a folder's license files say is read once."""

    def __init__(
        self,
        artifact: Artifact,
        policy: Policy,
        overrides: Mapping[str, Override],
        scancode: bool = False,
    ) -> None:
        self._artifact = artifact
        self._policy = policy
        self._overrides = overrides
        self._scancode = scancode
        self._levels: dict[str, Statement | None] = {}
        self._readings: dict[str, Statement] = {}

    def resolve(self, path: str, text: str) -> Finding:
        """Return the license of the file at ``path`` whose content is ``text``."""
        header = split_header(text, path)
        home = self._home_of_license(path)
        level = self._level(home) if home is not None else None
        own, joined = self._own_statement(path, text, header, alone=level is None)
        if not own.expression and not own.unplaced:
            governing, why = self._from_level(path, level)
        else:
            governing, why = self._check_against(own, header, home, level), ""
        governing = self._join(governing, joined)
        if governing.unplaced and not self._is_denied(governing.expression):
            why = f"unreadable: {' '.join(governing.unplaced[0].text.split())[:160]}"
        texts, holders = self._texts(path, governing, header)
        return Finding(
            statement=governing,
            why=why,
            texts=texts,
            notices=self._notices(path),
            copyright=tuple(dict.fromkeys((*copyright_lines(header.text), *holders))),
            derived_from=tuple(cited_urls(text)),
        )

    def folders_with_licenses(self) -> frozenset[str]:
        """Return the folders that license files apply to; "." is the root."""
        return frozenset(self._license_files)

    def has_folder(self, folder: str) -> bool:
        """Return whether files lie in the folder or below it."""
        return folder in self._folders

    def around(self, folder: str) -> tuple[Statement, str]:
        """Return what holds for a file of a folder that says nothing of itself.

        Returns:
            The statement, and why its license is unknown; empty when it is known.
        """
        path = str(PurePosixPath(folder) / "file")
        finding = self.resolve(path, "")
        return finding.statement, finding.why

    # What the file says of itself

    def _own_statement(
        self, path: str, text: str, header: Header, alone: bool
    ) -> tuple[Statement, list[str]]:
        """Return what governs, by the file's own words, and what else applies in any case.

        A tag or a notice in the header governs. A notice that only a person or ScanCode can read
        mostly speaks of where code came from, so it governs only where no license file stands by
        (``alone``). An address, or a notice further down, never governs.
        """
        placed = place(header.text)
        tagged, unplaced = self._read_tags(path, text)
        reviewed = self._review(path, placed, unplaced)
        notices = [placed.expression] if placed.expression else []
        governing = tagged + ([] if placed.by_url else notices)
        joined = reviewed + (notices if placed.by_url else [])
        method = "spdx_tag" if tagged else "header"
        if not governing and alone:
            method, governing = "override", reviewed
        expression = conjoin(*governing) if governing else None
        if not self._is_denied(expression):
            joined.extend(notices_after(text, header.end))
        return Statement(method, expression, 1.0, path, tuple(unplaced)), joined

    def _read_tags(self, path: str, text: str) -> tuple[list[str], list[Unplaced]]:
        """Return what the SPDX tags say, and the tags that are not SPDX."""
        expressions: list[str] = []
        unplaced: list[Unplaced] = []
        for tag in spdx_tags(text):
            line = f"SPDX-License-Identifier: {tag}"
            known = self._overrides.get(text_sha256(line))
            try:
                expressions.append(normalize((known and known.expression) or tag))
            except UnknownLicense:
                unplaced.append(Unplaced(line, path))
        return expressions, unplaced

    def _review(self, path: str, placed: Placed, unplaced: list[Unplaced]) -> list[str]:
        """Return what is known of a header's notices that no template covers; collect the rest."""
        expressions: list[str] = []
        for notice in terms(placed.leftovers):
            known = self._overrides.get(text_sha256(notice))
            expression = known.expression if known else self._scan(notice)
            if expression is not None:
                expressions.append(expression)
            elif known is None:
                unplaced.append(Unplaced(notice, path))
        return expressions

    # What stands around the file

    def _from_level(self, path: str, level: Statement | None) -> tuple[Statement, str]:
        """Return the statement for a file that says nothing of itself, or why there is none."""
        if level is not None:
            return level, ""
        nothing = Statement("license_file", None, 0.0, path)
        vendored = self._vendored_root(path)
        if vendored is not None:
            return nothing, f"vendored in {vendored}/ without a license of its own"
        claims = metadata_expressions(self._artifact.metadata)
        if claims:
            return nothing, f"no license text; metadata alone says {' / '.join(claims)}"
        return nothing, "no license text"

    def _check_against(
        self, own: Statement, header: Header, home: str | None, level: Statement | None
    ) -> Statement:
        """Return ``own``, or both where the folder's license files apply all the same.

        They do where the header's notice belongs to code taken from elsewhere, and where they
        forbid what the file permits. A folder that names the file's license beside a forbidden one
        (Apache-2.0 in LICENSE, AGPL in COPYING) does not forbid it: that is how packages of
        several licenses look.
        """
        if home is None or level is None or not own.expression or not level.expression:
            return own
        both = conjoin(own.expression, level.expression)
        if self._is_denied(own.expression):
            return own
        if self._is_denied(level.expression):
            agrees = license_ids(own.expression) & self._named(home)
            return own if agrees else replace(own, expression=both, path=level.path, conflict=True)
        if own.method == "header" and cites_origin(header.text):
            return replace(own, expression=both)
        return own

    def _named(self, home: str) -> frozenset[str]:
        """Return the ids that the folder's license files name, read in full or only recognised."""
        readings = [self._read(path) for path in self._license_files[home]]
        named = [reading.expression for reading in readings]
        named += [text.hint for reading in readings for text in reading.unplaced]
        return frozenset(
            key for expression in named if expression for key in license_ids(expression)
        )

    def _join(self, statement: Statement, joined: list[str]) -> Statement:
        if not joined or not statement.expression:
            return statement
        expression = conjoin(statement.expression, *joined)
        turned = self._is_denied(expression) and not self._is_denied(statement.expression)
        return replace(statement, expression=expression, conflict=statement.conflict or turned)

    # License files

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(
            str(parent) for path in self._artifact.paths() for parent in PurePosixPath(path).parents
        )

    @cached_property
    def _license_files(self) -> dict[str, list[str]]:
        """Paths of license files, by the folder that they apply to ("." is the root)."""
        return self._by_home(_LICENSE_NAME)

    @cached_property
    def _notice_files(self) -> dict[str, list[str]]:
        return self._by_home(_NOTICE_NAME)

    def _by_home(self, name: re.Pattern[str]) -> dict[str, list[str]]:
        homes: dict[str, list[str]] = {}
        for path in self._artifact.paths():
            file = PurePosixPath(path)
            if name.fullmatch(file.name) and file.suffix.lower() not in _CODE_SUFFIXES:
                homes.setdefault(self._home(path), []).append(path)
        return homes

    def _home(self, path: str) -> str:
        """Return the folder that a license file applies to.

        A wheel keeps license files in ``*.dist-info/licenses/`` under their paths in the source
        tree: one from a folder that the wheel has applies there, any other to the whole wheel.
        """
        wheel = _DIST_INFO.fullmatch(path)
        home = str(PurePosixPath(wheel["inner"] if wheel else path).parent)
        return "." if wheel and home not in self._folders else home

    def _home_of_license(self, path: str) -> str | None:
        """Return the nearest folder upward with a license file that reaches the file."""
        vendored = self._vendored_root(path)
        for parent in map(str, PurePosixPath(path).parents):
            if parent in self._license_files:
                return parent
            if parent == vendored:
                return None
        return None

    def _vendored_root(self, path: str) -> str | None:
        """Return the nearest folder of other people's code that holds the file."""
        parents = (p for p in PurePosixPath(path).parents if p.name.lower() in VENDORED)
        return next(map(str, parents), None)

    def _level(self, home: str) -> Statement | None:
        if home not in self._levels:
            statement = self._combine([self._read(path) for path in self._license_files[home]])
            self._levels[home] = self._corroborate(statement) if home == "." else statement
        return self._levels[home]

    def _combine(self, readings: list[Statement]) -> Statement:
        """Return all license files of one folder as one statement: every one of them applies."""
        known = [reading for reading in readings if reading.expression]
        unplaced = tuple(text for reading in readings for text in reading.unplaced)
        expression = conjoin(*(str(reading.expression) for reading in known)) if known else None
        denied = [reading for reading in known if self._is_denied(reading.expression)]
        decisive = (denied or [reading for reading in readings if reading.unplaced] or readings)[0]
        return Statement(
            method=decisive.method,
            expression=expression,
            confidence=min(reading.confidence for reading in readings),
            path=decisive.path,
            unplaced=unplaced,
            conflict=bool(denied) and len(denied) < len(readings),
        )

    def _corroborate(self, statement: Statement) -> Statement:
        """Return ``statement``, and with it the metadata's license where the two differ."""
        if statement.expression is None or statement.method == "override":
            return statement
        ids = license_ids(statement.expression)
        claims = metadata_expressions(self._artifact.metadata)
        others = [claim for claim in claims if not ids & license_ids(claim)]
        if not others:
            return statement
        return replace(statement, expression=conjoin(statement.expression, *others), conflict=True)

    def _read(self, path: str) -> Statement:
        if path not in self._readings:
            self._readings[path] = self._read_license(path)
        return self._readings[path]

    def _read_license(self, path: str) -> Statement:
        """Return what one license file says."""
        text = self._text(path)
        if text is None:
            return Statement("license_file", None, 0.0, path, (Unplaced("not UTF-8", path),))
        known = self._overrides.get(text_sha256(text))
        if known is not None:
            return Statement("override", known.expression, 1.0, path)
        placed = place(text)
        if placed.whole:
            expression = _apply_tags(str(placed.expression), spdx_tags(text))
            return Statement("license_file", expression, placed.coverage, path)
        scanned = self._scan(text)
        if scanned is not None:
            return Statement("license_file", scanned, 1.0, path)
        # A restriction needs less proof than a grant: one that fills most of the text holds.
        hint = placed.expression if placed.coverage >= MIN_COVERAGE else None
        denied = hint if self._is_denied(hint) else None
        return Statement(
            "license_file",
            denied,
            placed.coverage,
            path,
            (Unplaced(text, path, placed.expression),),
        )

    # Texts to keep

    def _texts(
        self, path: str, statement: Statement, header: Header
    ) -> tuple[tuple[str, ...], list[str]]:
        """Return the license texts that go with the file, and the copyright lines in them."""
        if not statement.expression:
            return (), []
        home = self._home_of_license(path)
        nearest = self._license_files.get(home, []) if home is not None else []
        kept: list[str] = []
        if statement.method in ("license_file", "override"):
            kept.extend(nearest)
        for license_id in sorted(license_ids(statement.expression)):
            pool = (*nearest, *self._all_texts)
            found = next((file for file in pool if license_id in self._ids(file)), None)
            if found is not None:
                kept.append(found)
        files = list(dict.fromkeys(kept))
        texts = [text for text in map(self._text, files) if text is not None]
        # A text borrowed from another folder names that folder's authors, not this file's.
        own_texts = (self._text(file) or "" for file in files if file in nearest)
        holders = [line for text in own_texts for line in copyright_lines(text)]
        if not texts:
            texts = [found for found in (place(header.text).found.strip(),) if found]
        return tuple(texts), holders

    @cached_property
    def _all_texts(self) -> tuple[str, ...]:
        """Every license text of the artifact, the ones in folders of texts included."""
        files = [path for paths in self._license_files.values() for path in paths]
        for path in self._artifact.paths():
            folder, suffix = PurePosixPath(path).parent.name, PurePosixPath(path).suffix
            if folder.lower() in ("licenses", "licences") and suffix.lower() in _TEXT_SUFFIXES:
                files.append(path)
        return tuple(sorted(set(files)))

    def _ids(self, path: str) -> frozenset[str]:
        expression = self._read(path).expression
        return license_ids(expression) if expression else frozenset()

    def _notices(self, path: str) -> tuple[str, ...]:
        homes = map(str, PurePosixPath(path).parents)
        files = [file for home in homes for file in self._notice_files.get(home, [])]
        return tuple(text for text in map(self._text, files) if text is not None)

    def _text(self, path: str) -> str | None:
        """Return a legal file's text, or None where it is not UTF-8."""
        try:
            return self._artifact.read(path)
        except UnicodeDecodeError:
            return None

    # Small helpers

    def _is_denied(self, expression: str | None) -> bool:
        return expression is not None and not evaluate(expression, self._policy).allowed

    def _scan(self, text: str) -> str | None:
        if not self._scancode:
            return None
        from curate.licenses.scancode import identify

        return identify(text)


def _apply_tags(expression: str, tags: list[str]) -> str:
    """Return a license file's expression as its own SPDX tags put it, where they name the same."""
    try:
        tagged = conjoin(*tags) if tags else expression
    except UnknownLicense:
        return expression
    return tagged if license_ids(tagged) == license_ids(expression) else conjoin(expression, tagged)
