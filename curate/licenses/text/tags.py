"""SPDX tags in the comments of a file of code (SPDX 3.0.1, annex E; REUSE 3.3).

A tag grants where its name is spelled as in the standard and it begins a line of a comment before
the first statement. Further down it is about a part, so that it applies as well. In a string, in a
snippet, or in the middle of a line it is a claim. Every other line that looks like a
tag cannot be read, and makes the license unknown: who wrote it meant something by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from curate.licenses.text.languages import fold
from curate.licenses.text.prose import Note, ProseSource
from curate.licenses.text.terms import speaks

_OTHER_TAGS = """
    creator filecomment filecontributor filecopyrighttext filename filenotice filetype
    packagecomment packagecopyrighttext packagedownloadlocation packagehomepage packagename
    packageoriginator packagesupplier packageversion snippetbegin snippetcomment
    snippetcopyrighttext snippetend snippetname
"""
_OTHERS = frozenset(_OTHER_TAGS.split())
_TAG = re.compile(r"SPDX-License-Identifier:[ \t]*(?P<value>.*?)[ \t]*(?:\*/|-->)?[ \t]*")
_TAG_LINE = re.compile(rf"(?m)^[ \t#/*;%<!-]*{_TAG.pattern}$")
_TAG_IN_STRING = re.compile(r"(?m)^[\s\"'#/*;%<!rRbBfFuU-]*SPDX-License-Identifier:([^\n\"'\\]*)")
_LOOKS_LIKE_TAG = re.compile(
    r"^\W*(?:spdx[-_ ]?\w*(?:[-_ ]\w+){0,3}\s*[:=]|spdx[-_ ]?licen[cs]e"
    r"|\w{3,6}[-_]licen\w*[-_]ident\w*)"
    r"|\bspdx[-_ ]?\w*(?:[-_]\w+)+\s*[:=]|\bspdx-licen"
)
_OTHER_TAG = re.compile(r"SPDX-(?P<name>\w+):?(?P<value>.*)", re.S)
_BLOCK = re.compile(r"(?:SPDX-Snippet|REUSE-Ignore)(?P<edge>Begin|Start|End)\b")


@dataclass
class Tags:
    """What a file's SPDX tags say.

    Attributes:
        grants: values of the tags that grant, as written.
        further: values of the tags in comments further down.
        claims: values of the tags that only name a license.
        unread: lines that look like a tag and are none.
    """

    grants: list[str] = field(default_factory=list)
    further: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def license_file_tags(text: str) -> list[str]:
    """Return the values of the SPDX-License-Identifier lines of a license text, as written."""
    return [found["value"] for found in _TAG_LINE.finditer(text)]


def read_tags(source: ProseSource) -> Tags:
    """Return what the SPDX tags of a file of code say."""
    tags = Tags()
    if source.text.isascii() and not _may_hold_tags(source.text):
        return tags
    inside = False
    for note in source.notes:
        for line in note.text.split("\n") if _may_hold_tags(note.text) else ():
            edge = _BLOCK.match(line.strip())
            if edge:
                inside = edge["edge"] != "End"
            else:
                _read_line(line.strip(), note, inside, tags)
    for string in source.strings if "SPDX-License-Identifier" in source.text else ():
        tags.claims += [value.strip() for value in _TAG_IN_STRING.findall(string)]
    return tags


def _may_hold_tags(text: str) -> bool:
    if not text.isascii() or "&" in text:
        text = fold(text)
    text = text.lower()
    return "spdx" in text or "reuse-ignore" in text or ("licen" in text and "ident" in text)


def _read_line(line: str, note: Note, inside: bool, tags: Tags) -> None:
    tag = _TAG.fullmatch(line)
    if tag:
        kind = tags.grants if note.place == "header" else tags.further
        (kind if note.comment and not inside else tags.claims).append(tag["value"])
        return
    other = _OTHER_TAG.fullmatch(line)
    known = other is not None and other["name"].lower() in _OTHERS
    if known and other is not None and not speaks(other["value"], "edge"):
        return
    if known or _LOOKS_LIKE_TAG.search(fold(line)):
        tags.unread.append(line)
