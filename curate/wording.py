"""What a word that is not known may have been meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'inductor'?`` for a word that nearly is one, and '' for others."""
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), folded, n=1)
    return f"; did you mean '{folded[close[0]]}'?" if close else ""
