"""What a text says about licenses: SPDX tags, notices in a file's header, whole license texts.

Licenses are recognised by `licenseclassifier`'s templates and by nothing else. Text that a template
does not cover can take a grant away (an added restriction, a second notice) but never give one:
license texts that quote BSD-3-Clause and then forbid commercial use exist, and so do tools that
call them BSD-3-Clause. Whatever is left over and is not plainly harmless makes the text unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from licenseclassifier import identify_license

from curate.licenses.policy import UnknownLicense, conjoin, normalize
from curate.licenses.text.terms import Care, speaks

MIN_COVERAGE = 0.75
"""Share of a text's words that templates must cover before the text counts as a license at all."""

_WORD = re.compile(r"[^\W_]+")
# Names of tags that say nothing of terms. What stands in the others is read where they stand.
_SPDX_LINE = re.compile(
    r"^[^\w\n]*SPDX-(?:License-Identifier|FileType|FileName|FileContributor|Package\w+|Snippet(?:Begin|End|Name))\b.*$",
    re.M,
)
_DIRECTIVE = re.compile(
    r"^[^\w\n]*(?:-\*-.*-\*-|!\s*/.*|(?:ruff|flake8|mypy|pylint|isort|fmt|yapf)\s*:.*|type:\s*ignore.*|noqa\b.*)$",
    re.M,
)

_COPYRIGHT = re.compile(
    r"^\W*(?:SPDX-FileCopyrightText:\s*\S|(?:(?:Portions|Modifications|Parts)\s+)?Copyright\b\s*:?\s*(?:\([cC]\)|©|\d{4}|by\b|[A-Z])"
    r"|\([cC]\)\s*\d{4}|©)",
)
_COPYRIGHT_PROSE = re.compile(
    r"(?i)copyright\s+(?:license|licence|notice|notices|holder|holders|owner|law)\b|\[yyyy\]"
)
_ALL_RIGHTS = re.compile(r"(?i)^\W*all rights reserved\W*$")
_MIGHT_BE_COPYRIGHT = re.compile(r"[Cc][Oo][Pp][Yy][Rr]|[Rr][Ii][Gg][Hh][Tt][Ss]|©|\([cC]\)")
# Words with which a copyright line, or what looks like one, would be more than that.
_TERMS = re.compile(
    r"(?i)\b(?:licen[cs]\w*|commercial\w*|noncommercial\w*|academic\w*|personal|educational"
    r"|purposes?|only|not?|must|may|shall|use|used|permi\w+|prohibit\w*|restrict\w*|proprietary"
    r"|confidential|under|provided|subject|except\w*)\b"
)
_ADDRESS = re.compile(
    r"\S+@\S+|https?://\S+|www\.\S+|<[^>]*>|\S+\.(?:com|org|io|net|ai|dev)\b|\bgithub\S*|\S+/\S+"
)
_COPYRIGHT_WORD = re.compile(r"(?i)copyright|all rights reserved|spdx-\w+")
_HOLDER_WORDS = frozenset(
    [
        "a",
        "affiliate",
        "affiliates",
        "al",
        "all",
        "and",
        "at",
        "author",
        "authors",
        "aka",
        "b",
        "by",
        "c",
        "community",
        "company",
        "contributor",
        "contributors",
        "copyright",
        "d",
        "da",
        "dal",
        "de",
        "del",
        "della",
        "den",
        "der",
        "des",
        "developer",
        "developers",
        "di",
        "dos",
        "du",
        "e",
        "el",
        "et",
        "foundation",
        "from",
        "group",
        "holder",
        "holders",
        "in",
        "inc",
        "institute",
        "its",
        "la",
        "lab",
        "labs",
        "le",
        "ltd",
        "llc",
        "member",
        "members",
        "of",
        "on",
        "original",
        "other",
        "others",
        "owner",
        "owners",
        "portions",
        "present",
        "project",
        "reserved",
        "respective",
        "rights",
        "s",
        "team",
        "the",
        "their",
        "to",
        "university",
        "van",
        "various",
        "von",
        "y",
        "org",
        "individual",
        "see",
        "as",
        "shown",
        "many",
        "with",
        "more",
        "details",
        "later",
        "respective",
        "file",
        "txt",
        "js",
        "rst",
        "for",
        "part",
        "parts",
        "now",
        "others",
        "listed",
        "file",
        "authors",
        "et",
        "gmbh",
        "und",
        "und/or",
        "or",
        "i",
        "ii",
        "iii",
    ]
)
# Words that head a license text. A line of nothing else names a license and adds no terms.
_HEADING_WORD = re.compile(
    r"(?i)[0-3]|v2|0bsd|apache2?|boost|bsd[23]?|cc0|clauses?|consortium|expat|internet|isc|licen[cs]e"
    r"|mit|modified|new|original|revised|simplified|software|systems|the|universal|unlicense|version"
    r"|zero|zlib"
)
_FOR_SOFTWARE = re.compile(r"For [\w.-]+ software")
# Where a license names its holder, and words that are no part of a name.
_SLOT = re.compile(
    r"(?is)\bsoftware\s+is\s+provided\s+by\s+([^;]{1,300}?)\W+as\W+is\b"
    r"|\bno\s+event\s+shall\s+([^;]{1,300}?)\s+be\s+liable"
    r"|\bneither\s+the\s+names?\s+of\s+([^;]{1,300}?)\s+nor\b"
)
_NO_NAME = re.compile(
    r"(?i)\b(?:who|which|unless|not?|never|pay\w*|must|may|only|us(?:e|es|ed|ing)|forbid\w*|prohibit\w*)\b"
)
_LEAD = 1000  # characters in which 50 words and a title end
_COPYRIGHT_MARK = re.compile(r"(?i)copyright|©|\(c\)")

# Scanning a whole file costs milliseconds. Of 844 templates 12 hold none of these words, none of
# them a license of this field.
_HINTS_AT_LICENSE = re.compile(r"(?i)licen[cs]|permi|warrant|redistribut|freely|copyright")

_CITED = re.compile(
    r"(?i)\b(?:adapted|adopted|borrowed|copied|derived|forked|incorporat(?:es|ed|ing)|lifted|modified|ported|simplified|taken"
    r"|based)\s+(?:\w+\s+){0,2}?(?:from|on)\b"
)
_NEAR = 400  # characters after "adapted from" in which an address counts
_CITED_LENGTH = 200  # characters, more than the words take
_URL = re.compile(r"https?://[^\s<>()\[\]{}'\"`]+")


@dataclass(frozen=True)
class Placed:
    """What the templates say of a text.

    Attributes:
        expression: AND of the licenses found; None when there are none.
        coverage: share of the words that templates cover, 0 to 1.
        leftovers: paragraphs that no template covers, whitespace collapsed; copyright lines and
            headings are left aside.
        by_url: every license found was found by its address, not by its words.
        found: text of the matched regions.
    """

    expression: str | None
    coverage: float
    leftovers: tuple[str, ...]
    by_url: bool
    found: str

    @property
    def whole(self) -> bool:
        """Whether the text is the licenses of `expression` and nothing else."""
        return self.expression is not None and not self.leftovers


@lru_cache(maxsize=4096)
def place(text: str) -> Placed:
    """Return the licenses whose templates ``text`` holds, and everything else that it holds."""
    text = _DIRECTIVE.sub("", _SPDX_LINE.sub("", text))
    ids: list[str] = []
    regions: list[str] = []
    rest: list[str] = []
    position = 0
    for match in identify_license(text, 0):
        start = match.start + _lead(text[match.start : match.end], match.id)
        ids.append(match.id)
        regions.append(text[start : match.end])
        rest.append(text[position:start])
        position = match.end
    rest.append(text[position:])
    # Templates have room for a holder's name, and with it for more than a name.
    rest += [line for region in regions for line in region.splitlines() if _is_rider(line)]
    rest += [slot[0] for region in regions for slot in _SLOT.finditer(region) if _says_more(slot)]
    leftovers = tuple(notice for part in rest for notice in paragraphs(part))
    words = len(_WORD.findall(text))
    left = sum(len(_WORD.findall(notice)) for notice in leftovers)
    return Placed(
        expression=conjoin(*map(_spdx_id, ids)) if ids else None,
        coverage=1 - left / words if words else 0.0,
        leftovers=leftovers,
        by_url=all(region.strip().lower().startswith("http") for region in regions),
        found="\n".join(regions),
    )


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of ``text`` that are neither copyright lines nor mere headings."""
    lines = ("" if _is_copyright(line) else _apart(line) for line in text.splitlines())
    parts = re.split(r"\n[^\w\n]*\n", "\n".join(lines))
    paragraphs = (" ".join(part.split()) for part in parts)
    return [paragraph for paragraph in paragraphs if not _is_heading(paragraph)]


def terms(notices: Iterable[str], care: Care) -> list[str]:
    """Return the notices that speak of license terms: in a header, they make the file unknown."""
    return [
        notice
        for notice in notices
        if speaks(notice, care) or (care != "code" and _COPYRIGHT.match(notice) is not None)
    ]


def _is_rider(line: str) -> bool:
    """Whether a line begins as a copyright line and says more."""
    stated = _MIGHT_BE_COPYRIGHT.search(line) and _COPYRIGHT.match(line)
    return bool(stated) and not _COPYRIGHT_PROSE.search(line) and not _is_copyright(line)


def _says_more(slot: re.Match[str]) -> bool:
    """Whether the room that a license has for a holder's name is used for more than a name."""
    name = next(part for part in slot.groups() if part is not None)
    return bool(_NO_NAME.search(name)) or speaks(name, "code")


def _apart(line: str) -> str:
    """Return a line that begins as a copyright line and says more as a paragraph of its own."""
    return f"\n{line}" if _is_rider(line) else line


def notices_in(text: str) -> list[str]:
    """Return the licenses, as SPDX, of the whole notices that stand in ``text``."""
    if not _HINTS_AT_LICENSE.search(text):
        return []
    matches = identify_license(text, 0)
    spelled = [m for m in matches if not text[m.start : m.end].lstrip(" \t#/*").startswith("http")]
    return sorted({_spdx_id(match.id) for match in spelled})


def copyright_lines(text: str) -> list[str]:
    """Return the lines that say who holds the copyright, in order, each once."""
    return list(_copyright_lines(text))


@lru_cache(maxsize=4096)
def _copyright_lines(text: str) -> tuple[str, ...]:
    lines = (
        line.strip(" \t#*/").removeprefix("SPDX-FileCopyrightText:").strip()
        for line in text.splitlines()
        if _is_copyright(line) and not _ALL_RIGHTS.match(line)
    )
    return tuple(dict.fromkeys(line for line in lines if line))


def cites_origin(text: str) -> bool:
    """Return whether ``text`` says that code was adapted, copied, taken … from somewhere."""
    return _CITED.search(text) is not None


def cited_urls(text: str) -> list[str]:
    """Return the addresses that follow "adapted from", "based on" and the like, each once.

    This is provenance and may name too much: an address counts when it stands within two lines.
    """
    urls: list[str] = []
    position = 0
    while (address := text.find("://", position)) >= 0:
        # The words stand before an address, within what is looked at after them.
        for found in _CITED.finditer(text, max(position, address - _NEAR - _CITED_LENGTH), address):
            near = "\n".join(text[found.end() : found.end() + _NEAR].split("\n")[:2])
            urls.extend(url.rstrip(".,;:") for url in _URL.findall(near))
        position = address + 3
    return list(dict.fromkeys(urls))


def _lead(region: str, license_id: str) -> int:
    """Return how many characters of a matched region stand before the license's own words.

    The classifier extends a match back to the word "copyright", up to 50 words before the license,
    and some templates allow 20 words of any kind after it: room enough to hide a restriction.
    """
    start = 0
    for mark in _COPYRIGHT_MARK.finditer(region, 0, _LEAD):
        # Without the word there is nothing to extend to. A template that needs it matches no more.
        region = region[: mark.start()] + "x" * len(mark[0]) + region[mark.end() :]
        same = [m for m in identify_license(region, 0) if m.id == license_id]
        if not same or same[-1].end < len(region) or same[-1].start > _LEAD:
            break
        start = same[-1].start
    return start


def _is_heading(paragraph: str) -> bool:
    if _FOR_SOFTWARE.fullmatch(paragraph):
        return True
    return all(map(_HEADING_WORD.fullmatch, _WORD.findall(paragraph)))


def _is_copyright(line: str) -> bool:
    if not _MIGHT_BE_COPYRIGHT.search(line):
        return False
    if _ALL_RIGHTS.match(line):
        return True
    stated = _COPYRIGHT.match(line) and not _COPYRIGHT_PROSE.search(line)
    return bool(stated) and not _TERMS.search(line) and _names_holders(line)


def _names_holders(line: str) -> bool:
    """Whether a copyright line says who holds it and nothing else.

    Names are capitalised; of other words there are few. That is no proof in a line of capitals
    only, where words that speak of terms must be absent too.
    """
    line = _ADDRESS.sub(" ", line)
    words = [word for word in _WORD.findall(line) if word.isascii() and word.islower()]
    names = set(words) - _HOLDER_WORDS  # a project's name is often in small letters
    return len(names) <= 2 and not speaks(_COPYRIGHT_WORD.sub("", line), "edge")


def _spdx_id(license_id: str) -> str:
    """Return the classifier's id as SPDX; ids of its own become references, which are denied."""
    try:
        return normalize(license_id)
    except UnknownLicense:
        return f"LicenseRef-{license_id}"
