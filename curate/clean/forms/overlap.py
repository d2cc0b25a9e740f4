"""What edited copies still share: runs of tokens that no renaming changes.

A gram is a run of `WINDOW` tokens of a program in plain form (`curate.clean.forms.parts`): what
stands in its syntax tree, in order. The program's own names are written as the distance to their
last occurrence within the run, 0 if there is none, so that each run of its own is the same when
these names are others (Baker, "A theory of parameterized pattern matching", 1993). Numbers are
written as their type: sizes are the first thing that is changed. What is not the program's own
stays: libraries and their attributes, builtins, keywords of their functions, strings.

An edit changes the runs that it lies in, 13 for one token, and no others. So the share of a
benchmark's runs that are found in a program tells an edited copy, where a hash of the whole
(`curate.clean.forms.parts`) is another after any edit. 13 tokens are the measure of Brown et al.,
"Language models are few-shot learners", 2020, appendix C.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from curate.clean.forms.parts import PlainProgram
from curate.clean.forms.syntax import FIELDS
from curate.clean.similar.minhash import PERMUTATIONS, U32, U64, mix64, shingle_hashes

WINDOW = 13  # tokens
BLOCK = 1 << 10  # shingles that are permuted together

_RANDOM = np.random.RandomState(0x6AA3)  # a fixed stream: these numbers are part of every hash
_PLACE: U64 = _RANDOM.randint(0, 2**64, WINDOW, dtype=np.uint64) | np.uint64(1)
_DISTANCE: U64 = _RANDOM.randint(0, 2**64, WINDOW, dtype=np.uint64)

_SILENT = frozenset({ast.arguments, ast.arg, ast.Expr})
"""Types of nodes that add nothing to their children."""
_OWN = "%"  # begins the tokens of the program's own names; no other token begins so


def grams(program: PlainProgram, body: list[ast.stmt]) -> U32:
    """Return the hashes of the distinct grams of a part of a program, sorted.

    Fewer than `WINDOW` tokens have none.
    """
    return hash_grams(_Reader(program).tokens(body))


def text_signature(text: str) -> U32:
    """Return the MinHash signature of a text: the ``hashvalues`` of a `datasketch.MinHash`."""
    from datasketch import MinHash

    hashes, _ = shingle_hashes([text.encode("utf-8", "surrogatepass")])
    signature = MinHash(PERMUTATIONS, hashfunc=int, scheme="affine32")
    for part in np.array_split(hashes, len(hashes) // BLOCK + 1):  # each takes a KiB per shingle
        signature.update_batch(part.tolist())
    return np.asarray(signature.hashvalues, np.uint32)


def hash_grams(tokens: list[str]) -> U32:
    """Return the hashes of the distinct runs of `WINDOW` tokens, sorted."""
    count = len(tokens) - WINDOW + 1
    if count <= 0:
        return np.zeros(0, np.uint32)
    distances = _distances(tokens)
    alone = np.fromiter((_token_hash(token) for token in tokens), np.uint64, len(tokens))
    again = np.where(distances > 0, _DISTANCE[distances], alone)
    runs = np.zeros(count, np.uint64)
    for place, factor in enumerate(_PLACE):
        here = slice(place, place + count)
        # An occurrence before the run's first token does not count.
        runs += np.where(distances[here] <= place, again[here], alone[here]) * factor
    return np.unique((mix64(runs) >> np.uint64(32)).astype(np.uint32))


def _distances(tokens: list[str]) -> NDArray[np.int64]:
    """Return how far back each own name stood before; 0 for others, and if not within a run."""
    last: dict[str, int] = {}
    distances = np.zeros(len(tokens), np.int64)
    for place, token in enumerate(tokens):
        if token.startswith(_OWN):
            distance = place - last.get(token, -WINDOW)
            distances[place] = distance if distance < WINDOW else 0
            last[token] = place
    return distances


@lru_cache(1 << 16)
def _token_hash(token: str) -> int:
    if token.startswith(_OWN):
        return int(_DISTANCE[0])
    digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class _Reader:
    """Reads the tokens of parts of one program."""

    def __init__(self, program: PlainProgram) -> None:
        self.program = program

    def tokens(self, body: list[ast.stmt]) -> list[str]:
        """Return types of nodes, operators, names and values, from first to last."""
        tokens: list[str] = []
        pending: list[ast.AST | str] = [*reversed(body)]
        while pending:
            item = pending.pop()
            if isinstance(item, str):
                tokens.append(item)
            elif isinstance(item, ast.Name):
                tokens.append(self._name(item.id))
            elif isinstance(item, ast.Constant):
                kind = type(item.value)
                number = kind in (int, float)
                tokens.append(kind.__name__ if number else f"{kind.__name__} {item.value!r}")
            elif isinstance(item, ast.Attribute):
                pending += self._attribute(item)[::-1]
            elif isinstance(item, ast.Call):
                pending += self._call(item)[::-1]
            elif not isinstance(item, (ast.Import, ast.ImportFrom)):
                pending += self._fields(item)[::-1]
        return tokens

    def _is_own(self, name: str) -> bool:
        """Say whether a name is the program's: nobody else's, or bound by it.

        Nobody binds it where the line that did was taken away.
        """
        others = name in self.program.libraries or hasattr(builtins, name) or name[:2] == "__"
        return not others or name in self.program.bound

    def _name(self, name: str) -> str:
        return _OWN + name if self._is_own(name) else name

    def _attribute(self, node: ast.Attribute) -> list[ast.AST | str]:
        """Return one token for a name of a library, and the base and the attribute for others."""
        name = f".{node.attr}"
        base: ast.expr = node.value
        while isinstance(base, ast.Attribute):
            name = f".{base.attr}{name}"
            base = base.value
        if isinstance(base, ast.Name) and not self._is_own(base.id):
            return [base.id + name]
        own = node.attr in self.program.attributes
        return [node.value, f"{_OWN if own else ''}.{node.attr}"]

    def _call(self, node: ast.Call) -> list[ast.AST | str]:
        """Return a call's parts; keywords are the program's own where the function is."""
        called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        own = isinstance(called, ast.Name) and self._is_own(called.id)
        parts: list[ast.AST | str] = ["Call", node.func, *node.args]
        for keyword in node.keywords:
            name = keyword.arg or "**"
            parts += [self._name(name) if own else f"{name}=", keyword.value]
        return parts

    def _fields(self, node: ast.AST) -> list[ast.AST | str]:
        kind = type(node)
        parts: list[ast.AST | str] = [] if kind in _SILENT else [kind.__name__]
        for field in FIELDS[kind]:
            value = getattr(node, field, None)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    parts.append(item)
                elif isinstance(item, str):
                    parts.append(self._name(item))
        return parts
