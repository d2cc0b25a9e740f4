"""What a file of code says to people: its comments, and the strings that stand alone in it.

Python and C are read by small scanners of their own, not by a parser: a file that does not parse
has comments too, and what a file says must not depend on the Python that runs this. Line ends of
every kind end a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

C_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp"})

Place = Literal["header", "top", "body", "foot"]
"""header: before the first statement. top: among the imports after it. foot: after the last one."""

_LINE_ENDS = re.compile(r"\r\n?")
_BREAKS = re.compile(
    r"[\v\f\x1c-\x1e\x85\u2028\u2029]"
)  # these end a line for readers, not for Python
# Begins with a set of characters, for which a search is quick; lookbehinds tell which it was.
_PYTHON = re.compile(
    r"[#\"'](?:"
    r"(?<=\#)(?P<comment>[^\n]*)"
    r'|(?<=")(?:""(?P<long1>[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*)(?:"""|\Z)'
    r'|(?P<short1>[^"\\\n]*(?:\\.[^"\\\n]*)*)"?)'
    r"|(?<=')(?:''(?P<long2>[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*)(?:'''|\Z)"
    r"|(?P<short2>[^'\\\n]*(?:\\.[^'\\\n]*)*)'?))",
    re.S,
)
_C = re.compile(
    r"[/\"'](?:"
    r"(?<=/)(?P<comment>/(?:[^\n\\]|\\.)*|\*.*?(?:\*/|\Z))"
    r'|(?<=R")(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|(?<=")(?:[^"\\\n]|\\.)*"?'
    r"|(?<=')(?<![0-9A-Fa-f]')(?:[^'\\\n]|\\.)+')",  # 1'024 is a number
    re.S,
)
_TOP = re.compile(
    r"(?:\s*(?:from\s[^\n(]*import\s*(?:\([^)]*\)|[^\n]*)|import\s[^\n]*|__\w+__\s*=[^\n]*"
    r"|\#[^\n]*|//[^\n]*|/\*.*?\*/|using\s[^\n]*)(?:\n|\Z))*",
    re.S,
)
_MARKS = re.compile(r"^[ \t]*(?:#+:?|//+[!<]*|\*+(?!/))?[ \t]*", re.M)
_PREFIXES = frozenset({"", "r", "b", "u", "f", "t", "rb", "br", "fr", "rf", "rt", "tr"})
_COMMENTED_OUT = re.compile(r"\s*(?:(?:#|//)\s+\S|[rbuf]{0,2}([\"'])[^\"']*\1\s*[,+)\\]*\s*$)")
_NOTICE_LENGTH = 30  # characters; no notice of a license is shorter
_INSIDE = "([{,=+-*/%&|<>\\"  # a string after one of these is part of an expression


@dataclass(frozen=True)
class Note:
    """A run of comment lines, or one string that is a statement of its own.

    Attributes:
        text: without comment marks and quotes; line breaks are newlines.
        start, end: characters of the file that it takes, in `ProseSource.text`.
        place: where in the file it stands.
        comment: it is comments, not a string.
    """

    text: str
    start: int
    end: int
    place: Place
    comment: bool


@dataclass(frozen=True)
class ProseSource:
    """A file's text and what it says to people.

    Attributes:
        text: with newlines as the only line breaks, without a byte order mark.
        notes: in order.
        header: text of the notes before the first statement.
        strings: the other strings, with quotes.
    """

    text: str
    notes: tuple[Note, ...]
    header: str
    strings: tuple[str, ...]

    def after_header(self) -> str:
        """Return all comments and strings after the header: what may hold a whole notice."""
        notes = [note.text for note in self.notes if note.place != "header"]
        return "\n\n".join([*notes, *(s for s in self.strings if len(s) > _NOTICE_LENGTH)])


def read_source(text: str, path: str) -> ProseSource:
    """Return what a file of code says to people; ``path`` tells C and CUDA from Python."""
    text = _LINE_ENDS.sub("\n", text).lstrip("\ufeff")
    is_c = PurePosixPath(path).suffix.lower() in C_SUFFIXES
    strings: list[str] = []
    pieces = list(_pieces(text, is_c, strings))
    header_end = _header_end(text, pieces)
    top = _TOP.match(text, header_end)
    top_end = top.end() if top else header_end
    last = len(text.rstrip())
    foot = last
    for start, end, _, _ in reversed(pieces):
        if end < foot and text[end:foot].strip():
            break
        foot = start
    notes: list[Note] = []
    header: list[str] = []
    lines: list[str] = []  # of the note that is being read
    previous = stop = 0
    docstring_seen = False
    for start, end, raw, comment in pieces:
        said = _MARKS.sub("", _BREAKS.sub("\n", raw))
        place: Place = "body"
        if end <= header_end:
            place = "header"
            unread = text[start : start + 2].lower().strip("\"'").strip("ru")  # f"…" and b"…"
            if (
                comment or docstring_seen or unread
            ):  # what is commented out, or a string that is not used
                said, unused = ("", said) if not comment else _commented_out(said)
                strings += [unused] if unused.strip() else []
            docstring_seen = docstring_seen or not comment
            # Empty lines keep a docstring from joining the comment above it into one paragraph.
            block = not comment or "\n" in said
            header += [*["\n"] * (block or text.count("\n", previous, start) > 1), said]
            header += ["\n"] * block
        elif start < top_end:
            place = "top"
        elif start >= foot:
            place = "foot"
        follows = text[previous:start].strip() == "" and text.count("\n", previous, start) == 1
        if notes and follows and comment and notes[-1].comment and notes[-1].place == place:
            lines.append(said)
            stop = end
        else:
            if notes:
                notes[-1] = replace(notes[-1], text="\n".join(lines), end=stop)
            stop = end
            lines = [said]
            notes.append(Note("", start, end, place, comment))
        previous = end
    if notes:
        notes[-1] = replace(notes[-1], text="\n".join(lines), end=stop)
    return ProseSource(text, tuple(notes), "\n".join(header), tuple(strings))


def _commented_out(said: str) -> tuple[str, str]:
    """Return a comment's lines, and those of them that were commented out before."""
    lines = said.split("\n")
    unused = [line for line in lines if _COMMENTED_OUT.match(line)]
    return "\n".join(line for line in lines if not _COMMENTED_OUT.match(line)), "\n".join(unused)


_BEFORE_STRING = re.compile(r"[\s(\\]*(?:[rRbBuUfFtT]{1,2}(?=[\"']))?")


def string_at(text: str, position: int) -> str | None:
    """Return the value of the Python string, or strings in a row, at a position; None for none."""
    parts: list[str] = []
    while True:
        before = _BEFORE_STRING.match(text, position)
        found = _PYTHON.match(text, before.end() if before else position)
        between = text[position : found.start()] if found else ""
        row_ends = parts and "\n" in between and "(" not in parts[0]
        if found is None or found["comment"] is not None or row_ends:
            return "".join(parts[1:]) if parts else None
        if not parts:
            parts.append(between)  # whether a parenthesis is open
        parts.append(next(part for part in found.groups()[1:] if part is not None))
        position = found.end()


def _header_end(text: str, pieces: list[tuple[int, int, str, bool]]) -> int:
    end = 0
    for start, stop, _, _ in pieces:
        if text[end:start].strip():
            break
        end = stop
    return end


def _pieces(text: str, is_c: bool, strings: list[str]) -> Iterator[tuple[int, int, str, bool]]:
    """Yield start, end, text and kind of comments and of strings that stand alone."""
    string_end, alone = -1, False
    for match in (_C if is_c else _PYTHON).finditer(text):
        start, end = match.span()
        if match["comment"] is not None:
            said = match[0].removesuffix("*/") if match[0].startswith("/*") else match[0]
            said = said.replace("\\\n", "\n") if is_c else said
            yield start, end, said.replace("/*", "", 1) if is_c else said, True
            continue
        if is_c:
            strings.append(match[0])
            continue
        if string_end < 0 or text[string_end:start].strip().lower() not in _PREFIXES:
            alone = _stands_alone(text, start)
        string_end = end
        if alone:
            body = next(part for part in match.groups()[1:] if part is not None)
            while start and text[start - 1].isalpha():  # r"…" and the like
                start -= 1
            yield start, end, body, False
        else:
            strings.append(match[0])


def _stands_alone(text: str, start: int) -> bool:
    """Whether the string at ``start`` begins a statement, so that nothing uses it."""
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].strip(" \t(").lower() not in _PREFIXES:
        return False
    at = start
    while at and (text[at - 1] in " \t\n(" or (start - at < 3 and text[at - 1].isalpha())):
        at -= 1
    opened = "(" in text[at:start]
    if opened and "\n" not in text[at : text.index("(", at)] and at:
        return False  # a call
    return not at or text[at - 1] not in _INSIDE
