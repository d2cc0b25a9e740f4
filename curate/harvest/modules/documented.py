"""What a module's docstrings, comments and code say of the shapes of its arguments.

Shapes are lists of letters as the author wrote them: ``[b, s, n_h, h_d]`` in a docstring,
``# x: (B, C, H, W)`` in a comment, ``b, n, d = x.shape`` and ``rearrange(x, 'b n d -> ...')`` in
code.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

Letters = tuple[str, ...]


@dataclass(frozen=True)
class Documentation:
    """What is written about a module.

    Attributes:
        source: the text of its class.
        docs: docstrings of class, constructor and ``forward``, one after the other.
        forward: the text of ``forward``.
    """

    source: str = ""
    docs: str = ""
    forward: str = ""

    def about(self, name: str) -> str:
        """Return what the docstrings say of an argument, type and all; '' if nothing."""
        head = rf"^[ \t]*[-*]?[ \t]*`*{re.escape(name)}`*[ \t]*(?=[(:])"
        found = re.search(rf"{head}(.*(?:\n(?!{_NEXT_ARGUMENT}).*)*)", self.docs, re.M)
        return found.group(1) if found else ""

    def shapes(self, name: str) -> list[Letters]:
        """Return the shapes that an argument of ``forward`` is said to have."""
        about = re.sub(r"^\([^:\n]*\):", "", self.about(name))  # `x (torch.Tensor): ...`
        found = [_letters(inside) for inside in _BRACKETS.findall(about)]
        word = re.escape(name)
        comment = rf"#.*\b{word}\b(?:\s*:|\s+has shape|\s+is)\s*([(\[][^)\]]*[)\]])"
        found += [_letters(inside[1:-1]) for inside in re.findall(comment, self.forward)]
        given = re.split(rf"^[ \t]*{word}[ \t]*=", self.forward, maxsplit=1, flags=re.M)[0]
        given += self.forward[len(given) :].split("\n")[0]  # x = rearrange(x, 'b n d -> b d n')
        for pattern in _UNPACKED:
            found += [_letters(inside) for inside in re.findall(pattern.format(word), given)]
        if re.search(rf"\b{word}\[:, None\]", given):
            found.append(("b",))
        return list(dict.fromkeys(letters for letters in found if letters))


def documentation(text: str, entry_point: str) -> Documentation:
    """Return what a file says of a class in it."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == entry_point:
            functions = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
            forward, init = functions.get("forward"), functions.get("__init__")
            docs = [ast.get_docstring(part) or "" for part in (forward, node, init) if part]
            return Documentation(
                ast.get_source_segment(text, node) or "",
                "\n\n".join(docs),
                (ast.get_source_segment(text, forward) or "") if forward else "",
            )
    return Documentation()


_NEXT_ARGUMENT = (
    r"[ \t]*$|[ \t]*(?:Returns|Raises|Yields|Examples?|Notes?):"
    r"|[ \t]*\w+[ \t]*\([^)\n]*\)?[^)\n]*\):|[ \t]*[a-z_]+:[ \t]"
)

_BRACKETS = re.compile(r"[\[(]([^\[\]()]*)[\])]")

_UNPACKED = (
    r"(?m)^\s*([\w, ]+?)\s*=\s*{0}\.(?:shape|size\(\))\s*$",
    r"(?m)^\s*([\w, ]+?)\s*,\s*\w+\s*=\s*\*{0}\.shape\s*,",  # b, n, device = *x.shape, x.device
    r"(?:rearrange|reduce|repeat)\(\s*{0}\s*,\s*['\"]([^'\"]*?)\s*->",
)


def _letters(inside: str) -> Letters:
    """Return the letters between two brackets; none where they are no shape."""
    inside = inside.strip().strip(",")
    by = r"\s*,\s*" if "," in inside else r"\s+x\s+" if " x " in inside else r"\s+"
    letters = tuple(re.split(by, inside))
    if len(letters) > 6 or not all(_LETTER.fullmatch(x) for x in letters):
        return ()
    if by == r"\s+" and len(letters) > 1 and any(len(x) > 3 for x in letters):
        return ()  # words of a sentence
    if len(letters) == 1 and not re.fullmatch(r"b|B|N|bsz?|batch\w*", letters[0]):
        return ()
    return () if all(x.isdigit() for x in letters) else letters


_LETTER = re.compile(r"[A-Za-z_]\w{0,30}|\d{1,4}|\.\.\.|\*")
