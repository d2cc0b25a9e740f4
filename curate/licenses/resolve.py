"""The license of one file of an artifact, from what stands in it and around it.

What a file says of itself governs: SPDX tag, then the notices in its header. A file that says
nothing is under the nearest license files upward, all of those in one folder together. The license
of a project whose classes it copies applies as well, whatever it says. Everything else that names
a license or speaks of terms, in the file or around it, is a claim: it grants nothing, and applies
as well. Whatever cannot be read leaves the file unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import PurePosixPath

from curate.cache.artifact import Artifact
from curate.licenses.around import Around
from curate.licenses.claims import Claim
from curate.licenses.detect import (
    MIN_COVERAGE,
    cited_urls,
    copyright_lines,
    notices_in,
    place,
)
from curate.licenses.legal import DOCS
from curate.licenses.overrides import Override
from curate.licenses.own import Own, OwnReader
from curate.licenses.policy import Policy, UnknownLicense, conjoin, evaluate, license_ids
from curate.licenses.statements import LicenseFinding, LicenseStatement, Unplaced
from curate.licenses.text.prose import ProseSource, read_source
from curate.licenses.text.tags import license_file_tags
from curate.licenses.text.templates import plain_text

VENDORED = re.compile(
    r"_?(?:3rd|third)[-_. ]?part(?:y|ies)(?:[-_]\w+)?|_?3ps?(?:[-_]\w+)?|_?thirdparty\w*"
    r"|_?vendor(?:s|ed|i[sz]ed|ing)?(?:[-_](?!of[-_])\w+)?|_?extern(?:al)?s?|_?ext(?:ernal)?[-_]?libs?"
    r"|_?deps|forks|\.?venv|site_packages|_?bundled?|_?(?:git[-_]?)?sub[-_]?(?:modules|projects|repos)|_?git[-_]modules|_?oss"
    r"|(?:node|bower|jspm)_(?:modules|components|packages)|(?:site|dist)-packages|godeps"
)
"""Folders of other people's code: the root's license says nothing about them."""

_LICENSE_NAME = re.compile(
    r"(?i)(?![\w.-]*(?:third.?party|3rd.?party|bundled|vendored|dependenc))(?:[\w.+-]*[-_.])?(?:(?:un)?licen[cs]e|copying)"
    r"(?:v?\d+)?(?:[-_.][\w.+-]*)?"  # LICENSE1, COPYING3, COPYINGv2.txt
)
_NOTICE_NAME = re.compile(r"(?i)notices?(?:[-_.][\w.+-]*)?")
_TEXT_SUFFIXES = frozenset({"", ".txt", ".md", ".rst"})
_CODE_SUFFIXES = frozenset({".py", ".pyi", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".json", ".toml"})


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
        self._reader = OwnReader(overrides, scancode)
        self._around = Around(artifact, _is_license_file, self._is_denied)
        self._levels: dict[str, LicenseStatement] = {}
        self._readings: dict[str, LicenseStatement] = {}
        self._known_homes: dict[str, tuple[str | None, str | None]] = {}

    def resolve(self, path: str, text: str) -> LicenseFinding:
        """Return the license of the file at ``path`` whose content is ``text``."""
        source = read_source(text, path)
        home = self._home_of_license(path)
        level = self._level(home) if home is not None else None
        own = self._reader.read(source, path)
        stated = self._own_statement(own, path, alone=level is None)
        if not stated.expression and not stated.unplaced:
            governing, why = self._from_level(path, level)
        else:
            governing, why = self._check_against(stated, home, level), ""
        claims = [*own.claims, *self._around.said(path), *self._metadata(path, home, governing)]
        governing = self._join(governing, own, claims, source)
        if governing.unplaced and not self._is_denied(governing.expression):
            why = governing.unplaced[0].why()
        texts, holders = self._texts(path, governing, source, own.spelled)
        said = "\n".join([source.header, *(n.text for n in source.notes if n.place != "header")])
        return LicenseFinding(
            statement=governing,
            why=why,
            texts=texts,
            notices=self._notices(path),
            copyright=tuple(dict.fromkeys((*copyright_lines(said), *holders))),
            derived_from=tuple(cited_urls(text)),
            copied=tuple(own.copied),
        )

    def said(self, path: str) -> list[Claim]:
        """Return what is said of a file around it, and grants nothing."""
        return [*self._around.said(path), *self._around.metadata(".")]

    def folders_with_licenses(self) -> frozenset[str]:
        """Return the folders that license files apply to; "." is the root."""
        return frozenset(self._license_files)

    def has_folder(self, folder: str) -> bool:
        """Return whether files lie in the folder or below it."""
        return folder in self._around.folders

    def around(self, folder: str) -> tuple[LicenseStatement, str]:
        """Return what holds for a file of a folder that says nothing of itself.

        Returns:
            The statement, and why its license is unknown; empty when it is known.
        """
        path = str(PurePosixPath(folder) / "file")
        finding = self.resolve(path, "")
        return finding.statement, finding.why

    def _own_statement(self, own: Own, path: str, alone: bool) -> LicenseStatement:
        """Return what governs, by the file's own words.

        A tag or a notice in the header governs. A notice that only a person or ScanCode can read
        mostly speaks of where code came from, so it governs only where no license file stands by
        (``alone``). An address, or a notice further down, never governs.
        """
        governing, method = [*own.tags, *own.notices], "spdx_tag" if own.tags else "header"
        if not governing and alone:
            method, governing = "override", own.reviewed
        expression = conjoin(*governing) if governing else None
        return LicenseStatement(method, expression, 1.0, path, tuple(own.unplaced))

    # What stands around the file

    def _from_level(
        self, path: str, level: LicenseStatement | None
    ) -> tuple[LicenseStatement, str]:
        """Return the statement for a file that says nothing of itself, or why there is none."""
        if level is not None:
            return level, ""
        nothing = LicenseStatement("license_file", None, 0.0, path)
        vendored = self._vendored_root(path)
        if vendored is not None:
            return nothing, f"vendored in {vendored}/ without a license of its own"
        claims = self._around.metadata(".")
        if claims:
            said = " / ".join(claim.expression or claim.text for claim in claims)
            return nothing, f"no license text; metadata alone says {said}"
        return nothing, "no license text"

    def _check_against(
        self,
        own: LicenseStatement,
        home: str | None,
        level: LicenseStatement | None,
    ) -> LicenseStatement:
        """Return ``own``, or both where the folder's license files apply all the same.

        They do beside a notice in the header, which may be that of code taken from elsewhere, and
        where they forbid what the file permits, or cannot be read. A folder that names the file's
        license next to a forbidden one (Apache-2.0 in LICENSE, AGPL in COPYING) does not forbid it:
        that is how packages of several licenses look.
        """
        if home is None or level is None or own.expression is None:
            return own
        if self._is_denied(own.expression):
            return own
        readings = [self._read(file) for file in self._license_files[home]]
        unread = [r.unplaced for r in readings if not self._is_denied(r.expression)]
        own = replace(own, unplaced=(*own.unplaced, *(text for texts in unread for text in texts)))
        if level.expression is None:
            return own
        both = conjoin(str(own.expression), level.expression)
        if self._is_denied(level.expression):
            agrees = license_ids(str(own.expression)) & self._named(home)
            return own if agrees else replace(own, expression=both, path=level.path, conflict=True)
        return replace(own, expression=both) if own.method == "header" else own

    def _named(self, home: str) -> frozenset[str]:
        """Return the ids that the folder's license files name, read in full or only recognised."""
        readings = [self._read(path) for path in self._license_files[home]]
        named = [reading.expression for reading in readings]
        named += [text.hint for reading in readings for text in reading.unplaced]
        return frozenset(
            key for expression in named if expression for key in license_ids(expression)
        )

    def _join(
        self, statement: LicenseStatement, own: Own, claims: list[Claim], source: ProseSource
    ) -> LicenseStatement:
        """Return ``statement`` and everything that also applies."""
        read = map(self._as_read, claims)
        asked = {claim.text: claim for claim in read if not self._agrees(claim, statement)}
        unread = [claim for claim in asked.values() if claim.expression is None]
        joined = [*own.reviewed, *own.further, *(original.expression for original in own.copied)]
        joined += [claim.expression for claim in asked.values() if claim.expression]
        unplaced = (*statement.unplaced, *(Unplaced(claim.text, claim.path) for claim in unread))
        if not statement.expression:
            return replace(statement, unplaced=unplaced) if statement.unplaced else statement
        expression = conjoin(statement.expression, *joined)
        if not self._is_denied(expression):
            expression = conjoin(expression, *notices_in(source.after_header()))
        turned = self._is_denied(expression) and not self._is_denied(statement.expression)
        conflict = statement.conflict or turned or bool(asked)
        return replace(statement, expression=expression, unplaced=unplaced, conflict=conflict)

    def _as_read(self, claim: Claim) -> Claim:
        """Return a claim with the license that a person says it names."""
        known = self._reader.known(claim.text)
        return replace(claim, expression=known.expression) if known and known.expression else claim

    def _agrees(self, claim: Claim, statement: LicenseStatement) -> bool:
        known = self._reader.known(claim.text)
        if known is not None and known.defers:
            return True
        if " ".join(claim.text.split()) in self._license_texts:
            return True
        return bool(statement.expression) and claim.agrees(str(statement.expression))

    @cached_property
    def _license_texts(self) -> frozenset[str]:
        """Every license file's text, whitespace collapsed: metadata may hold a copy of one."""
        files = (path for paths in self._license_files.values() for path in paths)
        return frozenset(" ".join((self._text(path) or "").split()) for path in files)

    def _metadata(self, path: str, home: str | None, governing: LicenseStatement) -> list[Claim]:
        """Return what metadata asks for beyond the license files.

        That of the file's own folder counts, and of each above it up to the license files. Beside
        what a file says of itself, metadata counts where it forbids or cannot be read.
        """
        level = self._level(home) if home is not None else None
        found: list[Claim] = []
        for folder in map(str, PurePosixPath(path).parents):
            found += self._around.metadata(folder)
            if folder in (home, self._vendored_root(path)):
                break
        more = [claim for claim in found if level is None or not self._agrees(claim, level)]
        if governing is level:
            return more
        return [c for c in more if c.expression is None or self._is_denied(c.expression)]

    # License files

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
            if _is_license_file(path) if name is _LICENSE_NAME else _is_named(path, name):
                homes.setdefault(self._around.home(path), []).append(path)
        return homes

    def _home_of_license(self, path: str) -> str | None:
        """Return the nearest folder upward with a license file that reaches the file."""
        return self._homes(path.rpartition("/")[0] or ".")[0]

    def _vendored_root(self, path: str) -> str | None:
        """Return the nearest folder of other people's code that holds the file."""
        return self._homes(path.rpartition("/")[0] or ".")[1]

    def _homes(self, folder: str) -> tuple[str | None, str | None]:
        """Return the home of the license of a folder's files, and the vendored root over them."""
        if folder not in self._known_homes:
            above = folder.rpartition("/")[0] or "."
            home, root = (None, None) if folder == "." else self._homes(above)
            if VENDORED.fullmatch(folder.rpartition("/")[2].lower()):
                home, root = None, folder
            home = folder if folder in self._license_files else home
            self._known_homes[folder] = (home, root)
        return self._known_homes[folder]

    def _level(self, home: str) -> LicenseStatement:
        if home not in self._levels:
            readings = [self._read(path) for path in self._license_files[home]]
            self._levels[home] = self._combine(readings)
        return self._levels[home]

    def _combine(self, readings: list[LicenseStatement]) -> LicenseStatement:
        """Return all license files of one folder as one statement: every one of them applies."""
        known = [reading for reading in readings if reading.expression]
        unplaced = tuple(text for reading in readings for text in reading.unplaced)
        expression = conjoin(*(str(reading.expression) for reading in known)) if known else None
        denied = [reading for reading in known if self._is_denied(reading.expression)]
        decisive = (denied or [reading for reading in readings if reading.unplaced] or readings)[0]
        return LicenseStatement(
            method=decisive.method,
            expression=expression,
            confidence=min(reading.confidence for reading in readings),
            path=decisive.path,
            unplaced=unplaced,
            conflict=bool(denied) and len(denied) < len(readings),
        )

    def _read(self, path: str) -> LicenseStatement:
        if path not in self._readings:
            self._readings[path] = self._read_license(path)
        return self._readings[path]

    def _read_license(self, path: str) -> LicenseStatement:
        """Return what one license file says."""
        text = self._text(path)
        if text is None:
            return LicenseStatement("license_file", None, 0.0, path, (Unplaced("not UTF-8", path),))
        known = self._reader.known(text)
        if known is not None:
            return LicenseStatement("override", known.expression, 1.0, path)
        placed = place(text)
        harmless = all(self._is_harmless(text) for text in placed.leftovers)
        if placed.grants and placed.expression and harmless and not placed.edited:
            expression = _apply_tags(str(placed.expression), license_file_tags(text))
            return LicenseStatement("license_file", expression, placed.coverage, path)
        scanned = self._reader.scan(text)
        if scanned is not None:
            return LicenseStatement("license_file", scanned, 1.0, path)
        # A restriction needs less proof than a grant: one that fills most of the text holds.
        hint = placed.expression if placed.coverage >= MIN_COVERAGE else None
        denied = hint if self._is_denied(hint) else None
        return LicenseStatement(
            "license_file",
            denied,
            placed.coverage,
            path,
            (Unplaced(text, path, placed.hint, placed.differs),),
        )

    def _is_harmless(self, paragraph: str) -> bool:
        """Whether a person has read a paragraph of a license file and found it to add nothing."""
        known = self._reader.known(paragraph)
        return known is not None and known.defers

    # Texts to keep

    def _texts(
        self, path: str, statement: LicenseStatement, source: ProseSource, spelled: list[str]
    ) -> tuple[tuple[str, ...], list[str]]:
        """Return the license texts that go with the file, and the copyright lines in them."""
        if not statement.expression:
            return (), []
        home = self._home_of_license(path)
        nearest = self._license_files.get(home, []) if home is not None else []
        kept: list[str] = []
        missing: list[str] = []
        if statement.method in ("license_file", "override"):
            kept.extend(nearest)
        for license_id in sorted(license_ids(statement.expression)):
            pool = (*nearest, *self._all_texts)
            found = next((file for file in pool if license_id in self._ids(file)), None)
            if found is not None:
                kept.append(found)
            else:
                missing.append(license_id)
        files = list(dict.fromkeys(kept))
        texts = [text for text in map(self._text, files) if text is not None]
        # A text borrowed from another folder names that folder's authors, not this file's.
        own_texts = (self._text(file) or "" for file in files if file in nearest)
        holders = [line for text in own_texts for line in copyright_lines(text)]
        if missing or not texts:
            told = [text for text in (place(source.header).found.strip(), *spelled) if text]
            texts += told or filter(None, map(plain_text, missing))
        return tuple(dict.fromkeys((*texts, *spelled))), holders

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


def _is_license_file(path: str) -> bool:
    folder = PurePosixPath(path).parent.name.lower()
    data = re.search(r"(?i)licen[cs]e[-_](?:plate|key|number|server)", PurePosixPath(path).name)
    return _is_named(path, _LICENSE_NAME) and folder not in DOCS and not data


def _is_named(path: str, name: re.Pattern[str]) -> bool:
    file = PurePosixPath(path)
    return bool(name.fullmatch(file.name)) and file.suffix.lower() not in _CODE_SUFFIXES


def _apply_tags(expression: str, tags: list[str]) -> str:
    """Return a license file's expression as its own SPDX tags put it, where they name the same."""
    try:
        tagged = conjoin(*tags) if tags else expression
    except UnknownLicense:
        return expression
    return tagged if license_ids(tagged) == license_ids(expression) else conjoin(expression, tagged)
