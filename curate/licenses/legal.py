"""Files alongside a license that speak of terms: EULA, TERMS, NOTICE, REUSE.toml and their like.

None of them grants anything. What a template covers is joined to the license; what speaks of terms
and is covered by nothing makes it unknown. How much a file must say for that depends on its name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal

from curate.cache.artifact import PAPER_SUFFIXES, is_foreign_name, is_readme, may_hold_terms
from curate.licenses.claims import Claim, read_claim
from curate.licenses.text.terms import speaks
from curate.sources.files import select

Kind = Literal["terms", "credits", "docs", "pool", "other"]
"""terms: all that it says are terms. credits: it names other people and their licenses; it counts
where it speaks of terms. docs: it explains, so that what only describes is left aside. pool: it
lies among texts of licenses, each of them of some files; it counts where it is none. other: it
counts where it speaks of terms plainly."""

_TERMS = re.compile(
    r"(?i)(?:^|[^a-z])(?:eulas?|terms?|tos|clauses?|rail|openrail\w*|restrict\w*|agreements?"
    r"|conditions"
    r"|commercial\w*|non-?commercial\w*|proprietary|patents?|additional|addend\w*|riders?"
    r"|permissions?"
    r"|confidential\w*|royalt\w*|no-?ai|ai-?training|(?:use|usage|acceptable[-_ ]?use|ai|data)[-_"
    r" ]?policy"
    r"|additional[-_]?terms|rights)(?![a-z])"
)
_CREDITS = re.compile(
    r"(?i)third.?part|3rd.?part|notice|copyright|legal|attribution|acknowledg|credits|licensing"
    r"|disclaimer|bundled|vendored|dependenc"
)
_CAPITALS = re.compile(r"[A-Z][A-Z0-9_-]{2,}(?:\.(?:txt|md|rst|TXT|MD))?")
_HARMLESS = re.compile(
    r"(?i)(?:read.?me|change\w*|history|news|release\w*|authors?|contribut\w*|maintainers?|owners"
    r"|codeowners"
    r"|security|privacy|code.of.conduct|cla|dco|install\w*|citation|todo|roadmap|thanks|version"
    r"|manifest"
    r"|record|wheel|sources|top.level|requires|requested|requirements|makefile|dockerfile|agents?"
    r"|claude|gemini|skill|governance|support|faq"
    r"|testing|build\w*|workspace|develop\w*|pkg-info|metadata|upgrad\w*|migrat\w*)(?:[-_.].*)?"
)
_NO_PAPER_SUFFIXES = """
    .py .pyi .cu .cuh .h .hpp .cpp .cc .c .json .toml .yaml .yml .csv .tsv .cfg .ini .lock .png
    .svg .jpg .gif .ipynb .js .ts .css .sh .xml .in .so .pyc .typed .cff .rs .go .java .cmake
    .jinja .j2
"""
_NO_PAPER = frozenset(_NO_PAPER_SUFFIXES.split())
DOCS = frozenset({"doc", "docs"})
"""Folders of documents: a license there is told of, and not granted."""
POOLS = frozenset({"licenses", "licences"})
"""Folders of texts, each of which is the license of some files."""
_FOLDERS = frozenset({*POOLS, "license", "licence", "legal", "terms", "licensing", "rights", *DOCS})
_IN_WHEEL = frozenset({"RECORD", "WHEEL", "INSTALLER", "REQUESTED", "zip-safe", "not-zip-safe"})


def kind_of(path: str, on_top: bool = False) -> Kind | None:
    """Return the kind of legal file that a name stands for; None where it is not one.

    Args:
        path: in the source.
        on_top: it lies where what holds for the whole source lies.
    """
    if path.endswith((".py", ".cu", ".h", ".cuh", ".hpp", ".cpp")):
        return None  # most files, and quickly
    file = PurePosixPath(path)
    if file.name in _IN_WHEEL or _HARMLESS.fullmatch(file.name):
        return None
    if file.parent.name.lower() in DOCS:
        return "docs" if may_hold_terms(path) and file.suffix.lower() in PAPER_SUFFIXES else None
    if is_foreign_name(file.name) or file.stem.lower() in ("license", "licence", "licensing"):
        return "terms"
    if file.suffix.lower() in _NO_PAPER:
        return None
    if _TERMS.search(file.name) and not _CREDITS.search(file.name):
        return "terms"
    if file.parent.name.lower() in POOLS and ".dist-info/" not in path:
        return "pool"
    if _CREDITS.search(file.name):
        return "credits"
    if file.parent.name.lower() in _FOLDERS - POOLS and file.suffix.lower() in PAPER_SUFFIXES:
        return "credits"
    if file.suffix.lower() in PAPER_SUFFIXES and may_hold_terms(path) and not is_readme(path):
        return "credits"
    if _CAPITALS.fullmatch(file.name):
        return "credits" if on_top else "other"
    return "other" if on_top and file.suffix.lower() in PAPER_SUFFIXES else None


def is_list(text: str) -> bool:
    """Return whether a text is a list of words or names: no line of it is a sentence."""
    return all(len(line.split()) <= 2 for line in text.splitlines())


def folder_of(path: str) -> str:
    """Return the folder that a legal file applies to: in legal/ and docs/, the one above."""
    folder = PurePosixPath(path).parent
    return str(folder.parent if folder.name.lower() in _FOLDERS else folder)


def annotated(path: str, text: str) -> list[tuple[list[str], Claim | None]]:
    """Return what REUSE.toml or a Debian copyright file says, as globs and a claim on their files.

    A file that cannot be read makes a claim on everything that nobody can read.
    """
    try:
        if PurePosixPath(path).name == "REUSE.toml":
            return list(_reuse(path, text))
        return list(_debian(path, text))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return [(["**"], Claim(f"{path} cannot be read: {error!r}"[:300], path, None))]


def applies(globs: list[str], path: str) -> bool:
    """Return whether one of the globs names the path; Debian's ``*`` crosses folders."""
    return bool(select([path], globs, ())) or any(fnmatchcase(path, glob) for glob in globs)


def is_annotations(path: str, text: str) -> bool:
    """Return whether a file is REUSE.toml or in Debian's machine-readable copyright format."""
    file = PurePosixPath(path)
    debian = file.name in ("dep5", "copyright") and re.search(r"(?mi)^Files:", text)
    return file.name == "REUSE.toml" or bool(debian)


def _reuse(path: str, text: str) -> Iterator[tuple[list[str], Claim | None]]:
    for entry in tomllib.loads(text)["annotations"]:
        paths = entry["path"]
        globs = [paths] if isinstance(paths, str) else [str(one) for one in paths]
        stated = entry.get("SPDX-License-Identifier", [])
        for value in [stated] if isinstance(stated, str) else stated:
            yield globs, read_claim(str(value), path)
        for name, value in entry.items():
            if name not in ("path", "SPDX-License-Identifier") and speaks(str(value), "edge"):
                yield globs, Claim(f"{name}: {value}", path, None)


def _debian(path: str, text: str) -> Iterator[tuple[list[str], Claim | None]]:
    for stanza in re.split(r"\n[ \t]*\n", text.replace("\r", "")):
        files = re.search(r"(?mi)^Files:((?:.*\n?)(?:[ \t]+\S.*\n?)*)", stanza)
        license_ = re.search(r"(?mi)^License:[ \t]*(.*)", stanza)
        if files and license_:
            yield files[1].split(), read_claim(license_[1], path)
