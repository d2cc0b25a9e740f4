"""Licenses word for word: the texts of SPDX's list, with rooms for names and nothing else.

`licenseclassifier` recognises a license that was changed a little, which is what it is for; whoever
changes a license a little may mean it. So a license of the allow list grants only where its text is
one of ``templates/``, compared by SPDX's matching guidelines (SPDX 3.0.1, annex B: case, layout,
punctuation and bullets do not count, words do). A template is the license's text with four marks::

    [words]      may be missing
    <one|two>    one of them
    {holders}    a room for the names of people and organisations
    *            a bullet or number, or none
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from curate.licenses.text.languages import fold
from curate.licenses.text.names import are_names

_FOLDER = Path(__file__).parents[1] / "templates"
_NOTICE = "-notice"  # Apache-2.0-notice.txt: how a file says that it is under Apache-2.0

_WORD = re.compile(r"[^\W_]+")
_MARK = re.compile(r"[\[\]<>|*]|\{\w+\}|[^\W_]+")
_ROOM_WORDS = 40  # the longest list of holders seen has 31
_BULLET = r"(?:(?:\d{1,2}|[a-e]|i{1,3}|iv|v|vi{1,3}) )?"


@dataclass(frozen=True)
class Whole:
    """A license that stands in a text word for word.

    Attributes:
        id: SPDX id.
        start, end: characters of the text that it takes.
        edits: what stands in its rooms and is more than names; as the text has it.
    """

    id: str
    start: int
    end: int
    edits: tuple[str, ...]


@dataclass(frozen=True)
class _Template:
    id: str
    words: tuple[str, ...]  # all of them, those that may be missing too
    anchor: str  # words that every text of the license has
    pattern: re.Pattern[str]


def templated() -> frozenset[str]:
    """Return the ids of the licenses whose texts are known word for word."""
    return frozenset(template.id for template in _templates())


@cache
def plain_text(license_id: str) -> str | None:
    """Return a license's text without a holder, for code that comes without it; None if unknown."""
    path = _FOLDER / f"{license_id}.txt"
    if not path.is_file():
        return None
    text, before = path.read_text("utf-8"), ""
    while text != before:  # the innermost marks first
        before = text
        text = re.sub(r"<([^<>|\[\]]*)(?:\|[^<>\[\]]*)*>", r"\1", text)
        text = re.sub(r"\[[^\[\]<>]*\]", "", text)
    text = re.sub(r"\{\w+\}", "the copyright holders", text.replace("*", ""))
    return "\n".join(" ".join(line.split()) for line in text.splitlines()).strip()


def find_whole(text: str, holders: frozenset[str]) -> list[Whole]:
    """Return the licenses that stand in ``text`` word for word, in order, none over another.

    Args:
        text: any text.
        holders: words of the names that copyright lines around it give.
    """
    spans = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    words = [_plain(text[start:end]) for start, end in spans]
    line = " ".join(words) + " "
    offsets = [0]
    for word in words:
        offsets.append(offsets[-1] + len(word) + 1)
    found: list[Whole] = []
    for template in _templates():
        if template.anchor not in line:
            continue
        for match in template.pattern.finditer(line):
            first, last = (bisect_right(offsets, at) - 1 for at in (match.start(), match.end() - 1))
            rooms = (_room(text, spans, offsets, match.span(n + 1)) for n in range(match.re.groups))
            edits = tuple(room for room in rooms if room and not are_names(room, holders))
            found.append(Whole(template.id, spans[first][0], spans[last][1], edits))
    apart: list[Whole] = []
    for whole in sorted(found, key=lambda whole: (whole.start, -whole.end)):
        if not apart or whole.start >= apart[-1].end:
            apart.append(whole)
    return apart


def difference(license_id: str, text: str) -> str:
    """Return the words by which a text differs from the license that it resembles."""
    mine = (template for template in _templates() if template.id == license_id)
    alike = max((_alike(template, text) for template in mine), key=lambda each: each[0].ratio())
    matcher, template = alike
    words = _WORD.findall(text)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    more = [" ".join(words[start:end]) for _, _, _, start, end in codes if start < end]
    less = [" ".join(template.words[start:end]) for _, start, end, _, _ in codes if start < end]
    return f"adds {' / '.join(more)!r}" if more else f"lacks {' / '.join(less)!r}"


def _alike(template: _Template, text: str) -> tuple[SequenceMatcher[str], _Template]:
    words = [_plain(word) for word in _WORD.findall(text)]
    return SequenceMatcher(None, template.words, words, autojunk=False), template


def _room(
    text: str, spans: list[tuple[int, int]], offsets: list[int], found: tuple[int, int]
) -> str:
    """Return what stands in a room, with the marks around it."""
    if found[0] == found[1]:  # -1, -1 where the license has another form
        return ""
    first = bisect_right(offsets, found[0]) - 1
    last = bisect_right(offsets, found[1] - 1) - 1
    return text[spans[first][0] : spans[last][1]]


def _plain(word: str) -> str:
    return fold(word).replace("licence", "license")


@cache
def _templates() -> tuple[_Template, ...]:
    """Return the templates, those first that others are a part of."""
    files = sorted(_FOLDER.glob("*.txt"))
    read = [_template(file.stem.removesuffix(_NOTICE), file.read_text("utf-8")) for file in files]
    return tuple(sorted(read, key=lambda template: -len(template.pattern.pattern)))


def _template(license_id: str, text: str) -> _Template:
    marks = iter(match[0] for match in _MARK.finditer(text))
    pattern = "".join(_patterns(marks, until=""))
    fixed = re.split(r"[^a-z0-9 ]+", _required(pattern))
    anchor = max(fixed, key=len).strip()
    words = tuple(_plain(word) for word in _WORD.findall(re.sub(r"\{\w+\}", " ", text)))
    return _Template(license_id, words, anchor, re.compile(rf"(?<![^ ]){pattern}"))


def _patterns(marks: Iterator[str], until: str) -> Iterator[str]:
    """Yield regular expressions over words that each have a space behind them."""
    for mark in marks:
        if mark == until:
            return
        if mark == "[":
            yield f"(?:{''.join(_patterns(marks, ']'))})?"
        elif mark == "<":
            yield f"(?:{''.join(_patterns(marks, '>'))})"
        elif mark == "|":
            yield "|"
        elif mark == "*":
            yield _BULLET
        elif mark.startswith("{"):
            yield rf"((?:\w+ ){{1,{_ROOM_WORDS}}}?)"
        else:
            yield f"{_plain(mark)} "


def _required(pattern: str) -> str:
    """Return a pattern without its groups, whose words may be missing."""
    depth, kept = 0, []
    for letter in pattern:
        depth += (letter == "(") - (letter == ")")
        kept.append(letter if depth == 0 and letter != ")" else "#")
    return "".join(kept)
