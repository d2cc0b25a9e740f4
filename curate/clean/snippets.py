"""Programs inside other texts: what a conversation, a table or a string holds.

A copy of a program is one wherever it stands: in a Markdown fence, in JSON, in a string of another
program, quoted with `>` or `#`, or between two paragraphs. `snippets` finds it there, also in one
inside another, such as a fence in a message in JSON.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Where = Literal["", "fence", "json", "string", "quote", "paragraph"]

DEPTH = 4
"""Texts within texts that are looked into."""

MOST = 200
"""Snippets of one text that are looked at."""

MIN_CHARACTERS = 40
"""Characters that a snippet needs; no program of a benchmark is shorter."""

_DEFINES = re.compile(r"\b(?:def|class)\s")
"""What every program of a benchmark has, and hardly any docstring."""

_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<code>.*?)(?:^[ \t]*(?P=fence)|\Z)", re.M | re.S
)
_QUOTED = re.compile(r"(?:^[ \t]*(?:>>>|\.\.\.|[>#+|])(?:[ \t].*)?(?:\n|\Z)){2,}", re.M)
_QUOTE = re.compile(r"^[ \t]*(?:>>>|\.\.\.|[>#+|]) ?", re.M)
_CODE = re.compile(r"\s+\S|[)\]}]|(import|from|class|def|async|if|for|while|with|try|return|@)\b|@")
_ASSIGNS = re.compile(r"[\w.\[\]'\", ]+(: *[\w.\[\]]+)? *[-+*/@]?= *\S|\w[\w.]*\(.*\)\s*$")


class Snippet(NamedTuple):
    """A text that may be a program.

    Attributes:
        text: the text.
        where: what it was found in; '' for the whole.
    """

    text: str
    where: Where


def snippets(text: str) -> list[Snippet]:
    """Return a text and the texts inside it that may be programs, each once."""
    found: dict[str, Snippet] = {text: Snippet(text, "")}
    level = [text]
    for _ in range(DEPTH):
        inner = [s for outer in level for s in _inside(outer)]
        new = [s for s in inner if s.text not in found and _may_be_program(s.text)]
        for snippet in new[: MOST - len(found)]:
            found.setdefault(snippet.text, snippet)
        level = list(dict.fromkeys(s.text for s in new))
        if not new or len(found) >= MOST:
            break
    return list(found.values())


def _may_be_program(text: str) -> bool:
    return len(text) >= MIN_CHARACTERS and _DEFINES.search(text) is not None


def _inside(text: str) -> Iterator[Snippet]:
    values = list(_json_values(text))
    for value in values:
        yield from (Snippet(inner, "json") for inner in _strings_of(value))
    if values:
        return
    tree = _parse(text)
    if tree is not None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                value = node.value
                inner = value.decode(errors="replace") if isinstance(value, bytes) else value
                if "\n" in inner or inner[:1] in ("{", "["):
                    yield Snippet(textwrap.dedent(inner), "string")
    for match in _FENCE.finditer(text):
        yield Snippet(textwrap.dedent(match["code"]), "fence")
    for match in _QUOTED.finditer(text):
        yield Snippet(textwrap.dedent(_QUOTE.sub("", match[0])), "quote")
    if tree is None:
        yield from (Snippet(paragraph, "paragraph") for paragraph in _paragraphs(text))


def _parse(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes and the like
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _json_values(text: str) -> Iterator[Any]:
    """Yield what a text is as JSON, or as lines of JSON; nothing if it is neither."""
    texts = [text] if text.lstrip()[:1] in ("{", "[", '"') else []
    for candidate in texts:
        try:
            yield json.loads(candidate)
            return
        except (ValueError, RecursionError):
            pass
    for line in text.splitlines():
        if line.lstrip()[:2] in ('{"', '["', "[{", "[["):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue


def _strings_of(value: Any) -> Iterator[str]:
    """Yield the strings of a value of JSON; a list of strings is also one text, as notebooks do."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending += list(item.values())[::-1]
        elif isinstance(item, list):
            pending += item[::-1]
            if len(item) > 1 and all(isinstance(line, str) for line in item):
                ends = all(line.endswith("\n") for line in item[:-1])
                yield ("" if ends else "\n").join(item)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the runs of lines that look like code and are Python, in a text that is not."""
    run: list[str] = []
    for line in [*textwrap.dedent(text).splitlines(), "."]:
        is_code = not line.strip() or _CODE.match(line) or _ASSIGNS.match(line)
        if is_code or line.lstrip().startswith("#"):
            run.append(line)
            continue
        code = textwrap.dedent("\n".join(run)).strip("\n") + "\n"
        run = []
        if len(code) >= MIN_CHARACTERS and _parse(code) is not None:
            yield code
