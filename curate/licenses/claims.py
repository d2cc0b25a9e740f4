"""Claims: what names a license without granting it. They are compared, and can only take away.

Package metadata, a tag in a string, ``__license__`` and a sentence that names a license are claims.
One that names what the license texts grant changes nothing. One that names more applies as well;
one that cannot be read makes the license unknown.
"""

from __future__ import annotations

import configparser
import email.parser
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from curate.licenses.detect import place
from curate.licenses.policy import (
    UnknownLicense,
    conjoin,
    evaluate,
    license_ids,
    make_policy,
    normalize,
)
from curate.licenses.text.languages import fold
from curate.licenses.text.prose import string_at
from curate.licenses.text.terms import Care, speaks

CLASSIFIERS_FILE = Path(__file__).with_name("classifiers.toml")

_BSD = "BSD-3-Clause OR BSD-2-Clause OR 0BSD"
_ALIASES = {
    "mit": "MIT",
    "expat": "MIT",
    "mit expat": "MIT",
    "mit 0": "MIT-0",
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2 0": "Apache-2.0",
    "apache2": "Apache-2.0",
    "apache2 0": "Apache-2.0",
    "asl 2": "Apache-2.0",
    "asl 2 0": "Apache-2.0",
    "al2": "Apache-2.0",
    "bsd": _BSD,
    "0 clause bsd": "0BSD",
    "bsd 2 clause": "BSD-2-Clause",
    "2 clause bsd": "BSD-2-Clause",
    "simplified bsd": "BSD-2-Clause",
    "freebsd": "BSD-2-Clause",
    "bsd 2": "BSD-2-Clause",
    "bsd 3 clause": "BSD-3-Clause",
    "bsd 3": "BSD-3-Clause",
    "3 clause bsd": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "modified bsd": "BSD-3-Clause",
    "revised bsd": "BSD-3-Clause",
    "new revised bsd": "BSD-3-Clause",
    "isc": "ISC",
    "iscl": "ISC",
    "zlib": "Zlib",
    "zlib libpng": "Zlib",
    "boost": "BSL-1.0",
    "boost 1 0": "BSL-1.0",
    "unlicense": "Unlicense",
    "cc0": "CC0-1.0",
    "cc0 1 0": "CC0-1.0",
    "cc0 1 0 universal": "CC0-1.0",
    "psf": "PSF-2.0 OR Python-2.0 OR Python-2.0.1",
    "python foundation": "PSF-2.0 OR Python-2.0 OR Python-2.0.1",
    "gplv2": "GPL-2.0-only",
    "gplv3": "GPL-3.0-only",
    "gpl v2": "GPL-2.0-only",
    "gpl v3": "GPL-3.0-only",
    "agplv3": "AGPL-3.0-only",
    "lgplv3": "LGPL-3.0-only",
}
_FILLERS = frozenset(
    [
        "the",
        "a",
        "license",
        "licence",
        "licenses",
        "licensed",
        "version",
        "v",
        "software",
        "open",
        "source",
        "opensource",
        "approved",
        "osi",
    ]
)
_PARTS = re.compile(r"(?i)\s*(?:[,;/&+|]|\band\b|\bor\b)\s*")
_SAYS_NOTHING = re.compile(
    r"(?i)\W*(?:|unknown|none|n/?a|(?:file:? *|please )?(?:see |in )*(?:the"
    r" )?(?:\.?/?)(?:un)?(?:licen[cs]e|copying)s?"
    r"(?:\.(?:txt|md|rst))?(?: file| for details)*)\W*"
)
_LICENSE_KEY = re.compile(
    r"""(?im)^[ \t]*["']?licen[cs]e(?:[-_ ]expression)?["']?[ \t]*[:=][ \t]*["']?([^"'\n]*?)["']?["
    r" \t]*,?[ \t]*$"""
)
_SETUP_LICENSE = re.compile(
    r"""(?i)\blicen[cs]e(?:_expression)?["']?\s*[:=]\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)"""
)
_CLASSIFIER = re.compile(r"""["'](License ::[^"'\n]*)["']""")


@dataclass(frozen=True)
class Claim:
    """What names a license without granting it.

    Attributes:
        text: as it stands.
        path: file where it stands.
        expression: SPDX; None where it could not be read.
    """

    text: str
    path: str
    expression: str | None

    def agrees(self, granted: str) -> bool:
        """Return whether the claim asks for no more than ``granted``, which may be an AND."""
        return self.expression is not None and bool(
            evaluate(self.expression, make_policy(license_ids(granted))).allowed
        )


def read_claim(text: str, path: str) -> Claim | None:
    """Return the claim that free text makes; None where it says nothing ("see LICENSE")."""
    value = " ".join(text.split())
    if _SAYS_NOTHING.fullmatch(value):
        return None
    return Claim(value, path, _expression(text))


def _expression(text: str) -> str | None:
    value = " ".join(text.split())
    for reading in (_spdx, _alias, _several):
        expression = reading(value)
        if expression is not None:
            return expression
    placed = place(text)
    return placed.expression if placed.whole and not placed.by_url else None


def _spdx(value: str) -> str | None:
    try:
        return normalize(value)
    except UnknownLicense:
        return None


def _alias(value: str) -> str | None:
    words = [word for word in re.findall(r"[^\W_]+", fold(value)) if word not in _FILLERS]
    half = len(words) // 2
    if words[:half] == words[half:]:  # "MIT License (MIT)"
        words = words[:half]
    return _ALIASES.get(" ".join(words))


def _several(value: str) -> str | None:
    """Return the AND of a list of names, such as "MIT/Apache-2.0"."""
    parts = _PARTS.split(value)
    found = [_spdx(part) or _alias(part) for part in parts]
    return conjoin(*map(str, found)) if len(parts) > 1 and all(found) else None


# Metadata files


def claims_of(path: str, text: str) -> list[Claim]:
    """Return what a metadata file says of its package's license.

    A file that cannot be read claims what nobody can know. Fields: core metadata
    (https://packaging.python.org/en/latest/specifications/core-metadata/), PEP 621 and PEP 639,
    Poetry, setuptools, and the field ``license`` of other formats.
    """
    reader = READERS[PurePosixPath(path).name]
    try:
        values = list(reader(text))
    except (tomllib.TOMLDecodeError, configparser.Error, ValueError, RecursionError) as error:
        return [Claim(f"{path} cannot be read: {error}"[:300], path, None)]
    found = []
    for value in values:
        known = value.startswith("License ::")
        claim = _classifier(value, path) if known else read_claim(value, path)
        found += [claim] if claim else []
    return list(dict.fromkeys(found))


def _classifier(value: str, path: str) -> Claim | None:
    if value.strip() in ("License :: OSI Approved", "License :: DFSG approved"):
        return None
    known = _classifiers().get(value.strip()) or _alias(value.rpartition("::")[2])
    return Claim(value, path, known)


@cache
def _classifiers() -> dict[str, str]:
    return tomllib.loads(CLASSIFIERS_FILE.read_text("utf-8"))


def _core_metadata(text: str) -> Iterator[str]:
    message = email.parser.Parser().parsestr(text, headersonly=True)
    for field in ("License", "License-Expression"):
        yield from map(str, message.get_all(field) or ())
    yield from _license_classifiers(map(str, message.get_all("Classifier") or ()))


def _pyproject(text: str) -> Iterator[str]:
    data = tomllib.loads(text)
    tool = data.get("tool")
    tools = list(tool.values()) if isinstance(tool, dict) else []
    tables = [data.get("project"), *tools]
    flit = [table.get("metadata") for table in tools if isinstance(table, dict)]
    for table in [*tables, *flit]:
        if isinstance(table, dict):
            yield from _fields(table)


def _fields(table: Mapping[str, Any]) -> Iterator[str]:
    for field in ("license", "licence", "license-expression", "license_expression"):
        value = table.get(field)
        value = value.get("text") if isinstance(value, dict) else value
        if isinstance(value, str | list):
            yield from [value] if isinstance(value, str) else map(str, value)
    classifiers = table.get("classifiers")
    if isinstance(classifiers, list):
        yield from _license_classifiers(map(str, classifiers))


def _setup_cfg(text: str) -> Iterator[str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    if parser.has_section("metadata"):
        section = dict(parser["metadata"])
        yield from (
            section[key] for key in ("license", "licence", "license_expression") if section.get(key)
        )
        yield from _license_classifiers(section.get("classifiers", "").splitlines())
        yield from _license_classifiers(section.get("classifier", "").splitlines())


def _setup_py(text: str) -> Iterator[str]:
    yield from (found["value"] for found in _SETUP_LICENSE.finditer(text))
    yield from _CLASSIFIER.findall(text)


def _license_key(text: str) -> Iterator[str]:
    yield from _LICENSE_KEY.findall(text)


def _license_classifiers(values: Iterable[str]) -> Iterator[str]:
    return (value.strip() for value in values if value.strip().startswith("License ::"))


READERS: dict[str, Callable[[str], Iterable[str]]] = {
    "PKG-INFO": _core_metadata,
    "METADATA": _core_metadata,
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    "package.json": _license_key,
    "Cargo.toml": _license_key,
    "CITATION.cff": _license_key,
    "codemeta.json": _license_key,
}
"""Metadata files by name, and what reads their values."""


# Code


_DUNDER = re.compile(
    r"(?im)^_*(?:spdx_?)?(?:licen[cs]e|copying|terms(?:_of_use)?|legal|rights"
    r"|copyright)(?:_\w+)?\s*(?::[^=\n]+)?=\s*(?=[\"'(rRuUbBfF])"
)


def assigned_claims(text: str, path: str) -> list[Claim]:
    """Return what a module says by ``__license__ = "…"`` and names like it, at its top level."""
    found: list[Claim] = []
    for match in _DUNDER.finditer(text):
        dunder = match[0].startswith("__")
        value = string_at(text, match.end())
        if value is None or ("copyright" in match[0].lower() and not speaks(value, "edge")):
            continue
        claim = read_claim(value, path)
        if claim and (claim.expression or dunder or speaks(value, "edge")):
            found.append(claim)
    return found


# Prose


_LICENSED_AS = re.compile(
    r"(?:the )?(?:original )?(?:apache(?: software)?(?:,? licen[cs]e)?,?[- ]?(?:version ?|v\.?"
    r" ?)?2(?:\.0)?(?: licen[cs]e)?|apache licen[cs]e"
    r"|(?:mit|expat)(?:/expat)?(?:[- ]licen[cs]ed?)?|(?:new |modified |revised |simplified )?bsd[-"
    r" ][023](?:[- ]clause)?(?:[- ]licen[cs]ed?)?"
    r"|[023][- ]clause bsd(?: licen[cs]ed?)?|(?:new |modified |revised |simplified )?bsd(?:[-"
    r" ]style)?(?:[- ]licen[cs]ed?)?|isc licen[cs]e|zlib licen[cs]e"
    r"|boost(?: software)? licen[cs]e(?: 1\.0)?|(?:the )?unlicense|cc0(?:[- ]1\.0)?(?:"
    r" universal)?)\b"
)
_LINK = re.compile(
    r"https?://\S+|(?:please )?(?:see|refer to|found in|read|in|cf\.?)?(?: the)?(?: accompanying|"
    r" attached| included| repository'?s| top-level)? ?"
    r"\b(?:licen[cs]e|copying|notice)s?(?:\.(?:txt|md|rst))?(?: and notice)? (?:file|for (?:more "
    r"|full )?(?:details|information|terms)|at the root|in the root|in https?)"
    r"|see licen[cs]e\b(?: in the (?:project |repository )?root)?(?: for licen[cs]e information)?"
    r"|(?:for )?(?:the )?(?:full|complete) (?:text of the )?licen[cs]e(?: texts?)?|\(the"
    r" [\"'“]licen[cs]e[\"'”]\)|(?:re)?licen[cs]ed under|under (?:the |an? )?licen[cs]e"
    r"|licen[cs]ed|spdx-license-identifier|licen[cs]e ?:"
)
_LIMIT = re.compile(
    r"\b(?:except\w*|unless|until|only|not?|non|never|nor|without|however|but|commercial\w*"
    r"|academic\w*|subject"
    r"|provided that|restrict\w*|prohibit\w*|forbid\w*|additional\w*|excluding|other than|solely"
    r"|may|must|shall|if|when)\b|n't\b"
)


def named_in(paragraph: str, path: str, care: Care) -> list[Claim] | None:
    """Return the licenses that a paragraph merely names, as claims; None where it says more.

    "Adapted from flash-attention, BSD-3-Clause, see the LICENSE file" merely names one. A sentence
    that limits anything says more, and so does a name that is not known.
    """
    text = fold(" ".join(paragraph.split()))
    names = [found[0] for found in _LICENSED_AS.finditer(text)]
    rest = _LINK.sub(" ", _LICENSED_AS.sub(" ", text))
    if speaks(rest, care):
        return None
    sentences = re.split(r"(?<=[.;!?])\s+", text)
    for sentence in sentences:
        about = speaks(sentence, "code") or _LICENSED_AS.search(sentence)
        if about and _LIMIT.search(_LINK.sub(" ", sentence)):
            return None
    claims = [Claim(name, path, _alias(name)) for name in dict.fromkeys(names)]
    return None if any(claim.expression is None for claim in claims) else claims
