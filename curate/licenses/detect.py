"""What a text says about licenses: SPDX tags, notices in a file's header, whole license texts.

A license of the allow list grants where its text stands word for word (`text/templates.py`); other
licenses are recognised by `licenseclassifier`. Text that neither covers can take a grant away (an
added restriction, a second notice) but never give one: license texts that quote BSD-3-Clause and
then forbid commercial use exist, and so do tools that call them BSD-3-Clause. Whatever is left over
and is not plainly harmless makes the text unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from licenseclassifier import identify_license

from curate.licenses.policy import UnknownLicense, conjoin, normalize
from curate.licenses.text.names import holder_words, names_holders
from curate.licenses.text.templates import Whole, difference, find_whole, templated
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
    r"(?i)copyright\s+(?:license|licence|notice|notices|holder|holders|owner|law)\b"
)
# The copyright line of a license that nobody filled in.
_UNFILLED = re.compile(
    r"(?i)^\W*copyright\W*(?:\(c\)\W*)?(?:(?:<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}|yyyy|year|name of"
    r"|author|copyright|owner|holders?)[\s,.]*)+$"
)
_INTRODUCES = re.compile(
    r"(?i)(?::|\b(?:such as|like|e\.g\.|for example|as follows|this|following))\W*$"
)
_GOES_ON = re.compile(r"(?i)(?:,|&|\band|\ball rights)\s*$")
_TITLE = re.compile(r"(?i)^\W*(?:the )?[\w .-]{0,30}?licen[cs]e\W+(?=copyright\b|\(c\)|©)")
_ALL_RIGHTS = re.compile(r"(?i)^\W*all rights reserved\W*$")
_MIGHT_BE_COPYRIGHT = re.compile(r"[Cc][Oo][Pp][Yy][Rr]|[Rr][Ii][Gg][Hh][Tt][Ss]|©|\([cC]\)")
# Words that head a license text. A line of nothing else names a license and adds no terms.
_HEADING_WORD = re.compile(
    r"(?i)[0-3]|v2|0bsd|apache2?|attribution|no|copyright|notice|boost|bsd[23]?|cc0|clauses?|consortium|expat|internet|isc|licen[cs]e"
    r"|mit|modified|new|original|revised|simplified|software|systems|the|universal|unlicense|version"
    r"|zero|zlib"
)
_FOR_SOFTWARE = re.compile(r"For [\w.-]+ software")
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
class Edited:
    """A text that is nearly a license.

    Attributes:
        id: of the license that it resembles.
        text: of it, whitespace collapsed.
        differs: what it adds to the license, or lacks of it.
    """

    id: str
    text: str
    differs: str


@dataclass(frozen=True)
class Placed:
    """What the templates say of a text.

    Attributes:
        expression: AND of the licenses found; None when there are none.
        coverage: share of the words that templates cover, 0 to 1.
        leftovers: paragraphs that no template covers, whitespace collapsed; copyright lines and
            headings are left aside.
        edited: texts that are nearly a license, and whose words differ from it.
        grants: a license stands there itself, and not only its address or a mention of it.
        found: text of the matched regions.
    """

    expression: str | None
    coverage: float
    leftovers: tuple[str, ...]
    edited: tuple[Edited, ...]
    grants: bool
    found: str

    @property
    def hint(self) -> str | None:
        """AND of what is recognised, nearly or word for word; None where nothing is."""
        known = [*([self.expression] if self.expression else []), *(one.id for one in self.edited)]
        return conjoin(*known) if known else None

    @property
    def differs(self) -> str:
        """How the licenses that are edited differ from what they seem to be."""
        return "; ".join(f"{one.id}, but {one.differs}" for one in self.edited)

    @property
    def whole(self) -> bool:
        """Whether the text is the licenses of `expression` and nothing else."""
        return self.expression is not None and not self.leftovers and not self.edited


@lru_cache(maxsize=4096)
def place(text: str) -> Placed:
    """Return the licenses whose templates ``text`` holds, and everything else that it holds."""
    text = _DIRECTIVE.sub(_of_tools, _SPDX_LINE.sub("", text))
    reading = _Reading()
    if _HINTS_AT_LICENSE.search(text):
        reading.read(text)
    else:
        reading.rest.append(text)
    leftovers = tuple(notice for part in reading.rest for notice in paragraphs(part))
    words = len(_WORD.findall(text))
    apart = (*leftovers, *(edited.text for edited in reading.edited))
    left = sum(len(_WORD.findall(notice)) for notice in apart)
    return Placed(
        expression=conjoin(*map(_spdx_id, reading.ids)) if reading.ids else None,
        coverage=1 - left / words if words else 0.0,
        leftovers=leftovers,
        edited=tuple(reading.edited),
        grants=reading.grants,
        found="\n".join(reading.regions),
    )


def _of_tools(line: re.Match[str]) -> str:
    """Return nothing in place of what a line says to tools, but what it says to people."""
    return line[0] if speaks(line[0].strip(), "code") else ""


class _Reading:
    """Collects what a text holds, part by part."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.regions: list[str] = []
        self.rest: list[str] = []
        self.edited: list[Edited] = []
        self.grants = False

    def read(self, text: str) -> None:
        """Read a text: licenses that stand there word for word, and what lies between them."""
        position = 0
        for whole in find_whole(text, holder_words(copyright_lines(text))):
            self._gap(text[position : whole.start])
            self._whole(whole, text)
            position = whole.end
        self._gap(text[position:])

    def _whole(self, whole: Whole, text: str) -> None:
        region = text[whole.start : whole.end]
        if whole.edits:
            self._edit(whole.id, region, f"adds {' / '.join(whole.edits)!r}")
            return
        self.ids.append(whole.id)
        self.regions.append(region)
        self.grants = self.grants or _begins(text[: whole.start])

    def _gap(self, text: str) -> None:
        """Read what no text of ours covers: other licenses, and nearly licenses."""
        position = 0
        for match in identify_license(text, 0):
            start = match.start + _lead(text[match.start : match.end], match.id)
            region = text[start : match.end]
            self.rest.append(text[position:start])
            position = match.end
            address = region.strip().lower().startswith("http")
            license_id = _spdx_id(match.id)
            if license_id in templated() and not address:
                self._edit(license_id, region, difference(license_id, region))
                continue
            self.ids.append(match.id)
            self.regions.append(region)
            self.rest += [line for line in region.splitlines() if _is_rider(line)]
            self.grants = self.grants or not address
        self.rest.append(text[position:])

    def _edit(self, license_id: str, region: str, differs: str) -> None:
        self.edited.append(Edited(license_id, " ".join(region.split()), differs))


def _begins(before: str) -> bool:
    """Whether what comes next begins a sentence: in the middle of one, a license is mentioned."""
    if any(before.count(quotes) % 2 for quotes in ('"""', "'''")):
        return False  # code that is commented out
    last = re.split(r"[.:;!?)]\s|\n[^\w\n]*\n", before.rstrip(" \t>#*/"))[-1]
    if any(paragraphs(line) for line in last.splitlines()):
        return False
    above = paragraphs(before)
    return not above or _INTRODUCES.search(above[-1]) is None


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of ``text`` that are neither copyright lines nor mere headings."""
    lines = ("" if _is_copyright(line) else _apart(line) for line in _lines(text))
    parts = re.split(r"\n[^\w\n]*\n", "\n".join(lines))
    paragraphs = (" ".join(part.split()) for part in parts)
    return [paragraph for paragraph in paragraphs if not _is_heading(paragraph)]


def _lines(text: str) -> list[str]:
    """Return the lines of a text, holders that go on in the next line with their copyright line."""
    lines: list[str] = []
    for line in text.splitlines():
        above = lines[-1] if lines else ""
        if _GOES_ON.search(above) and _MIGHT_BE_COPYRIGHT.search(above) and line.strip():
            joined = f"{above.rstrip()} {line.strip(' #*/>')}"
            if _is_copyright(joined):
                lines[-1] = joined
                continue
        lines.append(line)
    return lines


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
        for line in _lines(text)
        if _is_copyright(line) and not (_ALL_RIGHTS.match(line) or _UNFILLED.match(line))
    )
    return tuple(dict.fromkeys(line for line in lines if line))


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
    title = _TITLE.match(line)
    if title is not None and _is_heading(title[0]):
        line = line[title.end() :]
    if _ALL_RIGHTS.match(line) or _UNFILLED.match(line):
        return True
    stated = _COPYRIGHT.match(line) and not _COPYRIGHT_PROSE.search(line)
    return bool(stated) and names_holders(line)


def _spdx_id(license_id: str) -> str:
    """Return the classifier's id as SPDX; ids of its own become references, which are denied."""
    try:
        return normalize(license_id)
    except UnknownLicense:
        return f"LicenseRef-{license_id}"
