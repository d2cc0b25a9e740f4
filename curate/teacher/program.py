"""The program in an answer of a language model: found in its fences, whatever their style.

Fences are those of CommonMark 0.31 (section 4.5), read with more patience: they may be indented or
quoted, follow words on their line, and end where the answer ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TEXT_FAMILIES = frozenset({"explain"})
"""Families of prompts that ask for text: what the answer holds is not taken for a program."""

_THOUGHT = re.compile(r"^\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_OPENING = re.compile(r"^(?P<before>.*?)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\s]*)[^`]*$")
_MODEL_NEW = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
_CODE_START = re.compile(r'^(import|from|class|def|@|#|"""|\'\'\'|r""")')
_PYTHON = frozenset({"", "python", "python3", "py", "triton"})


@dataclass
class _Fence:
    """A fenced block: the word after its opening, and its lines."""

    info: str
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n") + "\n"


def program_of(answer: str) -> str | None:
    """Return the program that an answer gives, or None if it gives none.

    It is the last fenced block that defines ``ModelNew``; where none does, the longest block of
    Python, which the judge will find wanting; where nothing is fenced, the answer itself if it is
    code. A fence that was not closed ends with the answer. What stands in thinking tags does not
    count. Line ends become ``\\n``.
    """
    answer = without_thinking(answer)
    fences = [fence for fence in _fences(answer) if fence.text.strip()]
    whole = [fence for fence in fences if _MODEL_NEW.search(fence.text)]
    if whole:
        return whole[-1].text
    python = [fence for fence in fences if fence.info.lower() in _PYTHON]
    if python:
        return max(python, key=lambda fence: len(fence.text)).text
    bare = answer.strip()
    if not fences and _CODE_START.match(bare) and _MODEL_NEW.search(bare):
        return bare + "\n"
    return None


def without_thinking(answer: str) -> str:
    """Return an answer from where its thinking ends; nothing is left of a thought without end."""
    return split_thinking(answer)[1]


def split_thinking(answer: str) -> tuple[str, str]:
    """Return the thoughts of an answer, without their tags, and what follows them.

    Line ends become ``\\n``. A thought without end takes the whole answer.
    """
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")
    thoughts, rest = "", answer
    if ends := list(_THOUGHT_END.finditer(answer)):
        thoughts, rest = answer[: ends[-1].start()], answer[ends[-1].end() :]
    elif _THOUGHT.match(answer):
        thoughts, rest = answer, ""
    return _THOUGHT.sub("", thoughts).strip(), rest


def _fences(text: str) -> list[_Fence]:
    found: list[_Fence] = []
    fence, before = "", ""
    for line in text.split("\n"):
        if not fence:
            if opening := _OPENING.match(line):
                fence, before = opening["fence"], opening["before"]
                found.append(_Fence(opening["info"].strip("{}.").split(",")[0]))
            continue
        line = _without_margin(line, before)
        left = line.rstrip()
        if left.strip(fence[0]).strip() == "" and len(left.strip()) >= len(fence):
            fence = ""
        elif left.endswith(fence) and not left.endswith(fence[0] + fence):
            found[-1].lines.append(left.removesuffix(fence))
            fence = ""
        else:
            found[-1].lines.append(line)
    return found


def _without_margin(line: str, margin: str) -> str:
    """Take from a line the spaces and quotation marks that stood before its opening fence."""
    if margin.strip(" \t>"):  # words: they are no margin
        return line
    for char in margin:
        if not line.startswith(char):
            break
        line = line[1:]
    return line
