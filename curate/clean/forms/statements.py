"""The statements of a program, each as a hash that renaming and reformatting leave as it is.

Two programs are nearly the same where one has all statements of the other, and few more: one is the
other renamed, reordered, with other constants or with a line that logs. Where each has a statement
that the other lacks they may compute different things, as one template with two operators does.

Left out of a statement are comments, docstrings, annotations, imports, layout, parentheses that
only group, numbers, and what strings say. Names are numbered within the statement, but for Python's
own, attributes (``tl.exp``, not ``self.width``) and the keywords of calls of attributes. Tokens are
read rather than a syntax tree, which would take twenty times as long.
"""

from __future__ import annotations

import builtins
import hashlib
import keyword
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from curate.clean.similar.minhash import U32, mix64

_TEXT = (
    r"#[^\n]*|\\\n"
    r"|[rRbBfFuU]{0,2}(?:'''[\s\S]*?'''|\"\"\"[\s\S]*?\"\"\")"
    r"|[rRbBfFuU]{0,2}(?:'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
)
_BREAK = re.compile(_TEXT + r"|[()\[\]{}\n;]")
_TOKEN = re.compile(
    _TEXT + r"|[^\W\d]\w*|\.?\d(?:[eE][+-]|[\w.])*|->|[*/<>]{2}=?|[=!<>:+\-*/|&^%@]=|[^\s\w]"
)
_TOP = re.compile(r"^(?=[^\s)\]}#])", re.M)
_JIT = re.compile(r"jit\b")
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_WORDS = frozenset(keyword.kwlist)
_KEPT = frozenset(dir(builtins)) | _WORDS
_FUNCTION = ("def", "async")
_SOFT = frozenset(["match", "case"])
_NUMBER, _STRING = "0", "''"
_FACTOR, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1

FEW = 5
"""Statements, its header among them, that a kernel needs to say something: one has four that only
copies what it is given."""


class StatementForm(NamedTuple):
    """What of a statement no renaming changes, and the names in it.

    Attributes:
        text: the statement as words, names numbered; empty where it says nothing.
        code: a hash of it.
        reads: the names that are read, as often as they are.
        binds: the names that are bound.
        fresh: whether what is bound comes from outside, as arguments do.
        imports: the dotted path behind each name that is imported.
    """

    text: str = ""
    code: int = 0
    reads: tuple[str, ...] = ()
    binds: frozenset[str] = frozenset()
    fresh: bool = False
    imports: tuple[tuple[str, str], ...] = ()


def statement_hashes(code: str) -> U32:
    """Return the hashes of a program's distinct statements, rising.

    With a statement count what its names stand for: of a variable the statement that bound it last,
    of an imported name what is imported, and of one that the program does not bind the name itself.
    """
    read = [read_statement(statement) for statement in _statements(code)]
    bound = frozenset[str]().union(*(statement.binds for statement in read))
    made = {name: _hash(path) for statement in read for name, path in statement.imports}
    found: set[int] = set()
    for statement in read:
        if statement.text:
            hashed = statement.code
            for name in statement.reads:
                known = made.get(name, 0) if name in bound or name in made else _hash(name)
                hashed = (hashed * _FACTOR + known) & _MASK
            found.add(hashed)
            made |= dict.fromkeys(statement.binds, 0 if statement.fresh else statement.code)
    mixed = mix64(np.array(sorted(found), np.uint64)) >> np.uint64(32)
    return np.unique(mixed.astype(np.uint32))


def kernels_sha256(code: str) -> bytes | None:
    """Return a hash of the statements of a program's kernels, in any order.

    It is None where these are fewer than `FEW`, or there is no kernel.
    """
    hashes = statement_hashes("".join(_jitted(code)))
    return hashlib.sha256(hashes.tobytes()).digest()[:16] if len(hashes) >= FEW else None


def _jitted(code: str) -> Iterator[str]:
    """Yield the functions of a program that a decorator compiles."""
    decorators = ""
    for block in _TOP.split(code):
        if block.startswith("@"):
            decorators += block
        else:
            if _JIT.search(decorators):
                yield block
            decorators = ""


@lru_cache(1 << 15)
def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _statements(code: str) -> Iterator[str]:
    """Yield the statements of a program as they stand; the header of a compound one is one."""
    depth = begin = 0
    for match in _BREAK.finditer(code):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth = max(depth - 1, 0)
        elif token in "\n;" and not depth:
            yield code[begin : match.start()].strip()
            begin = match.end()
    yield code[begin:].strip()


@lru_cache(1 << 15)
def read_statement(statement: str) -> StatementForm:
    """Return what of a statement no renaming changes."""
    tokens = _without_hints([t for t in _TOKEN.findall(statement) if t[0] not in "#\\"])
    if not tokens:
        return StatementForm()
    if tokens[0] in ("import", "from"):
        return StatementForm(imports=tuple(_imported(tokens)))
    plain, names = _plain_tokens(tokens)
    text = "" if plain == [_STRING] else " ".join(plain)
    fresh = tokens[0] in (*_FUNCTION, "class")
    first, last = _bound(tokens)
    binds = frozenset(tokens[i] for i in names if first <= i < last and tokens[i + 1] != ".")
    inner = _bound_inside(tokens)
    reads = (tokens[i] for i in names if not first <= i < last)
    return StatementForm(text, _hash(text), tuple(n for n in reads if n not in inner), binds, fresh)


def _imported(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, and the dotted path behind each."""
    module = ""
    if tokens[0] == "from" and "import" in tokens:
        module = "".join(tokens[1 : tokens.index("import")]) + "."
        tokens = tokens[tokens.index("import") :]
    for item in " ".join(token for token in tokens[1:] if token not in "()").split(","):
        path, _, name = item.replace(" . ", ".").strip().partition(" as ")
        first = path.partition(".")[0]
        yield (name, module + path) if name else (first, module + first)


def _bound_inside(tokens: list[str]) -> set[str]:
    """Return the names that comprehensions, lambdas, ``as`` and ``:=`` in a statement bind."""
    found: set[str] = set()
    until = ""  # what ends the names that we are in
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        if token in ("for", "lambda", "as"):
            until = {"for": "in", "lambda": ":", "as": ":"}[token]
        elif token == until:
            until = ""
        elif until or after == ":=":
            found.add(token)
    return found


def _bound(tokens: list[str]) -> tuple[int, int]:
    """Return where the names that a statement binds begin and end."""
    if tokens[0] in (*_FUNCTION, "class"):
        return 0, len(tokens)
    if tokens[0] == "for" and "in" in tokens:
        return 1, tokens.index("in")
    depth = 0
    for i, token in enumerate(tokens):
        depth += (token in _OPEN) - (token in _CLOSE)
        if token == "=" and not depth:
            return 0, i
    return 0, 0


def _plain_tokens(tokens: list[str]) -> tuple[list[str], list[int]]:
    """Return the words of a statement's plain form, and which tokens are names of the program."""
    plain: list[str] = []
    numbers: dict[str, str] = {}
    names: list[int] = []
    brackets: list[tuple[bool, bool]] = []  # whether each is written; whether a library's call's
    tokens = ["", "", "", *tokens, ""]
    for i, token in enumerate(tokens[3:-1], 3):
        last = tokens[i - 1]
        if token in _OPEN:
            called = last not in _WORDS and (last[-1:].isalnum() or last[-1:] in ("_", ")", "]"))
            brackets.append(
                (token != "(" or called, tokens[i - 2] == "." and tokens[i - 3] != "self")
            )
            plain += [token] if brackets[-1][0] else []
        elif token in _CLOSE:
            if plain and plain[-1] == ",":
                plain.pop()
            plain += [token] if brackets and brackets.pop()[0] else []
        elif token[-1] in "'\"":
            plain.append(_STRING)
        elif token[0].isalpha() or token[0] == "_":
            kept = tokens[i - 2] != "self" if last == "." else token in _KEPT
            is_keyword = tokens[i + 1] == "=" and bool(brackets)
            kept |= is_keyword and brackets[-1][1]
            own = (
                "." + token if last == "." else token
            )  # an attribute is not the variable so called
            plain.append(token if kept else numbers.setdefault(own, f"%{len(numbers)}"))
            is_variable = last != "." and (not is_keyword or tokens[3] in _FUNCTION)
            names += [i - 3] if is_variable and not kept else []
        else:
            plain.append(_NUMBER if token[-1].isalnum() or token[0].isdigit() else token)
    return plain, names


def _without_hints(tokens: list[str]) -> list[str]:
    """Return the tokens of a statement but for its annotations; none, if it is one alone."""
    first = tokens[0] if tokens else ""
    is_function = first in _FUNCTION
    if not is_function and (first in _WORDS | _SOFT or ":" not in tokens):
        return tokens
    kept: list[str] = []
    depth = level = 0
    ends: tuple[str, ...] = ()  # what ends the annotation that we are in, at its level
    for token in tokens:
        depth += (token in _OPEN) - (token in _CLOSE)
        if ends:
            ends = ends if depth > level or (depth == level and token not in ends) else ()
        elif is_function and token == ":" and depth == 1 and kept[-2] in ("(", ",", "*", "**"):
            level, ends = 1, ("=", ",")
        elif is_function and token == "->" and not depth:
            level, ends = 0, (":",)
        elif not is_function and token == ":" and not depth and "=" not in kept:
            level, ends = 0, ("=",)
        if not ends:
            kept.append(token)
    return [] if ends else kept
