"""Where code says that it comes from."""

from __future__ import annotations

import re

_SAID = re.compile(
    r"\b(?:adapted|borrowed|copied|derived|forked|modified|ported|taken|based)\b"
    r"[^\n]{0,80}?\b(?:from|on|of)\b[^\n]{0,80}?\s*(?:\n[#\s]*)?[^\n]{0,40}?"
    r"(https?://[^\s\"'<>()\[\]`,]+)",
    re.IGNORECASE,
)
_HEAD_LINES = 40


def upstream_of(text: str, line: int) -> list[str]:
    """Return the addresses that a file's head, or the comment over a line, names as its source.

    Args:
        text: the file.
        line: the first line of a definition, from 1.

    Returns:
        Addresses after words such as "adapted from", in order, each once.
    """
    lines = text.split("\n")
    first = line - 1
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    said = ["\n".join(_head(lines)), "\n".join(lines[first : line - 1])]
    found = [address.rstrip(".;:") for part in said for address in _SAID.findall(part)]
    return list(dict.fromkeys(found))


def _head(lines: list[str]) -> list[str]:
    """Return what stands before a file's first import, class or function."""
    for index, line in enumerate(lines[:_HEAD_LINES]):
        if re.match(r"import |from \S+ import|class |def |@", line):
            return lines[:index]
    return lines[:_HEAD_LINES]
