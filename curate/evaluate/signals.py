"""Cheap signs of Triton in a program's text. Signals, not proof: nothing here is run.

They are those that a seed project of this one reported, kept so that its figures can be compared
with; a program may show them all and be wrong, or show none and be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_JIT = re.compile(r"@triton\.jit\b")
_LOAD = re.compile(r"\btl\.load\s*\(")
_STORE = re.compile(r"\btl\.store\s*\(")
_MASK = re.compile(r"\bmask\s*=")
_TOKEN = re.compile(r"\w+|[^\w\s]")


def signals(programs: Iterable[tuple[str | None, str | None]]) -> dict[str, float | None]:
    """Return, over all answers, the share that shows each signal.

    Args:
        programs: the program in each answer, or None, and one that is known to be right, or None.

    Returns:
        ``triton_jit``, ``tl_load``, ``masked_store``: shares of the answers. ``token_overlap``: the
        mean of `token_overlap` over the answers whose problem has a right program, or None.
    """
    pairs = list(programs)
    tests = {
        "triton_jit": lambda text: bool(_JIT.search(text)),
        "tl_load": lambda text: bool(_LOAD.search(text)),
        "masked_store": has_masked_store,
    }
    found: dict[str, float | None] = {
        name: sum(test(text or "") for text, _ in pairs) / len(pairs) if pairs else None
        for name, test in tests.items()
    }
    overlaps = [token_overlap(text or "", right) for text, right in pairs if right]
    found["token_overlap"] = sum(overlaps) / len(overlaps) if overlaps else None
    return found


def has_masked_store(program: str) -> bool:
    """Say whether a call of ``tl.store`` has a ``mask=``."""
    return any(_MASK.search(_arguments(program, store.end())) for store in _STORE.finditer(program))


def _arguments(text: str, start: int) -> str:
    """Return what stands between a parenthesis, opened before ``start``, and its end."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return text[start:place]
    return text[start:]


def token_overlap(program: str, right: str) -> float:
    """Return the Jaccard similarity of two programs' sets of tokens, from 0 to 1."""
    one, other = set(_TOKEN.findall(program)), set(_TOKEN.findall(right))
    return len(one & other) / max(1, len(one | other))
