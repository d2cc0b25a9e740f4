"""Words for people: what was meant or is wrong, sizes, how to install what is missing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PATTERNS = {
    r"^[a-z0-9][a-z0-9_-]*$": "must be of a-z, 0-9, - and _, and begin with a letter or a digit",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "must be of letters without accents, digits, . - and _, and "
    "begin with a letter or a digit",
}
"""What the patterns of options ask for."""

UNITS = ("B", "kB", "MB", "GB", "TB")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'inductor'?`` for a word that nearly is one, and '' for others."""
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), folded, n=1)
    return f"; did you mean '{folded[close[0]]}'?" if close else ""


def choose(word: str, known: Iterable[str], has: str = "it has") -> str:
    """Return what follows on "the run has no step 'inducter'": the nearest name, and all names."""
    names = list(known)
    near = did_you_mean(word, names)
    begin = f"{near} {has[0].upper()}{has[1:]}" if near else f"; {has}"
    return f"{begin} {', '.join(names) or 'none'}"


def plain(error: ErrorDetails) -> str:
    """Return what pydantic found wrong, in a sentence that goes on after the field's name."""
    facts = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "is missing"
        case "string_type":
            return "must be text"
        case "int_type" | "int_parsing" | "int_from_float":
            return "must be a whole number"
        case "float_type" | "float_parsing":
            return "must be a number"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
        case "list_type" | "tuple_type" | "set_type" | "frozen_set_type":
            return "must be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "must be a mapping, such as `name: value`"
        case "literal_error":
            names = facts["expected"].replace("' or '", "', '").strip("'").split("', '")
            return f"must be {facts['expected']}{did_you_mean(str(error['input']), names)}"
        case "greater_than":
            return f"must be more than {facts['gt']:.15g}"
        case "greater_than_equal":
            return f"must be at least {facts['ge']:.15g}"
        case "less_than":
            return f"must be less than {facts['lt']:.15g}"
        case "less_than_equal":
            return f"must be at most {facts['le']:.15g}"
        case "too_short":
            return f"must have at least {facts['min_length']} item{'s'[: facts['min_length'] != 1]}"
        case "too_long":
            return f"must have at most {facts['max_length']} items"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {facts['max_length']} characters"
        case "string_pattern_mismatch":
            return PATTERNS.get(facts["pattern"], error["msg"])
        case "value_error":
            return str(facts["error"])
        case _:
            return error["msg"]


def human_size(size: float) -> str:
    """Return bytes as people read them, such as 1.2 MB."""
    power = 0
    while size >= 1000 and power < len(UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.0f} B" if power == 0 else f"{size:.1f} {UNITS[power]}"


def how_to_install(extra: str) -> str:
    """Return how to install the packages of an extra.

    The project is on no package index: to install it from there by name would run what anybody
    registered under that name.
    """
    return f"in a clone of curate: pip install '.[{extra}]'"
