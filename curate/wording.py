"""Words for people that several parts say: what was meant, and how to install what is missing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'inductor'?`` for a word that nearly is one, and '' for others."""
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), folded, n=1)
    return f"; did you mean '{folded[close[0]]}'?" if close else ""


def how_to_install(extra: str) -> str:
    """Return how to install the packages of an extra.

    The project is on no package index: to install it from there by name would run what anybody
    registered under that name.
    """
    return f"in a clone of curate: pip install '.[{extra}]'"
