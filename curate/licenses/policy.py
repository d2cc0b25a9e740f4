"""Which licenses rows may be used under: SPDX expressions against an allow list.

``A OR B`` passes if one branch passes, and the first that does is the choice; ``A AND B`` needs
both; ``X WITH E`` needs X and the exception E on the list. Anything not listed is denied: there is
no deny list to fall through. Syntax: SPDX 3.0.1, annex B, "SPDX license expressions".
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from license_expression import (
    ExpressionError,
    LicenseSymbol,
    LicenseWithExceptionSymbol,
    Licensing,
    ParseError,
    get_spdx_licensing,
)

ALLOW_FILE = Path(__file__).with_name("allow.toml")


class UnknownLicense(ValueError):
    """A string is no SPDX expression over licenses of the SPDX list."""


@dataclass(frozen=True)
class Policy:
    """An allow list.

    Attributes:
        allow: SPDX ids of licenses and of exceptions.
    """

    allow: frozenset[str]


@dataclass(frozen=True)
class Decision:
    """Whether an expression passes.

    Attributes:
        allowed: it does.
        choice: the expression with the chosen branch of every OR; as given when denied.
        reason: the terms that are not on the list; empty when allowed.
    """

    allowed: bool
    choice: str
    reason: str = ""


@cache
def default_policy() -> Policy:
    """Return the policy that the package ships in ``allow.toml``."""
    return make_policy(tomllib.loads(ALLOW_FILE.read_text())["allow"])


def make_policy(allow: Iterable[str]) -> Policy:
    """Return a policy for a list of SPDX license and exception ids.

    Raises:
        UnknownLicense: an entry is not an id of the SPDX list.
    """
    known = _licensing().known_symbols
    for entry in allow:
        if entry not in known and not _is_reference(entry):
            raise UnknownLicense(
                f"{entry!r} is not an SPDX id; list single ids such as MIT or LLVM-exception, "
                "spelled as on https://spdx.org/licenses"
            )
    return Policy(frozenset(allow))


def evaluate(expression: str, policy: Policy) -> Decision:
    """Decide whether code under ``expression`` may be used.

    Raises:
        UnknownLicense: ``expression`` is not a valid SPDX expression.
    """
    choice, denied = _evaluate(_parse(expression), policy)
    if denied:
        reason = f"not on the allow list: {', '.join(denied)}"
        return Decision(False, normalize(expression), reason)
    return Decision(True, choice)


def conjoin(*expressions: str) -> str:
    """Return the SPDX expression for code that is under all of ``expressions`` at once.

    Terms are deduplicated, absorbed and sorted: ``conjoin("MIT", "BSD-3-Clause AND MIT")`` is
    ``BSD-3-Clause AND MIT``.

    Raises:
        UnknownLicense: an expression is not valid, or none is given.
    """
    if not expressions:
        raise UnknownLicense("no expression to conjoin")
    parsed = [_parse(expression) for expression in expressions]
    if len(parsed) == 1:
        return str(parsed[0].render())
    return str(_licensing().AND(*parsed).simplify().render())


def normalize(expression: str) -> str:
    """Return ``expression`` with ids spelled as on the SPDX list (``mit`` is ``MIT``).

    Raises:
        UnknownLicense: ``expression`` is not a valid SPDX expression.
    """
    return str(_parse(expression).render())


def license_ids(expression: str) -> frozenset[str]:
    """Return the ids of the licenses in ``expression``, exceptions left aside.

    Raises:
        UnknownLicense: ``expression`` is not a valid SPDX expression.
    """
    return frozenset(
        term.license_symbol.key if isinstance(term, LicenseWithExceptionSymbol) else term.key
        for term in _parse(expression).symbols
    )


_LIGHT = {
    **dict.fromkeys(("0BSD", "CC0-1.0", "MIT-0", "Unlicense"), 0),  # no conditions
    **dict.fromkeys(("MIT", "ISC", "BSD-2-Clause", "Zlib", "BSL-1.0"), 1),  # keep the notice
    "BSD-3-Clause": 2,  # and do not use our names
    "Apache-2.0": 3,  # and say what you changed, keep NOTICE, sue nobody over patents
}


def burden(expression: str) -> int:
    """Return how much an expression asks for: of two, the higher number is more restrictive.

    All terms count, those of an OR too, so that it is for expressions whose choice is made.

    Raises:
        UnknownLicense: ``expression`` is not a valid SPDX expression.
    """
    return sum(_LIGHT.get(key, 9) for key in license_ids(expression))


@cache
def _licensing() -> Licensing:
    return get_spdx_licensing()


def _is_reference(key: str) -> bool:
    """Whether ``key`` is SPDX's form for a license that is not on its list."""
    return key.startswith(("LicenseRef-", "DocumentRef-"))


@cache
def _parse(expression: str) -> Any:
    licensing = _licensing()
    try:
        parsed = licensing.parse(expression, strict=True)
    except (ExpressionError, ParseError) as error:
        raise UnknownLicense(f"{expression!r} is not an SPDX expression: {error}") from error
    # A parsed AND or OR raises when truth-tested, hence the comparison with None.
    if parsed is None:
        raise UnknownLicense("an empty string is not an SPDX expression")
    unknown = [key for key in licensing.unknown_license_keys(parsed) if not _is_reference(key)]
    if unknown:
        raise UnknownLicense(f"{expression!r} names {', '.join(unknown)}: not on the SPDX list")
    return parsed


def _evaluate(term: Any, policy: Policy) -> tuple[str, list[str]]:
    """Return the chosen branch and the denied ids (none when the term passes)."""
    if isinstance(term, LicenseWithExceptionSymbol):
        keys = (term.license_symbol.key, term.exception_symbol.key)
        return str(term.render()), [key for key in keys if key not in policy.allow]
    if isinstance(term, LicenseSymbol):
        return term.key, [] if term.key in policy.allow else [term.key]
    parts = [_evaluate(part, policy) for part in term.args]
    if isinstance(term, _licensing().OR):
        for choice, denied in parts:
            if not denied:
                return choice, []
        return "", _unique(key for _, denied in parts for key in denied)
    choices = _unique(choice for choice, _ in parts)
    return " AND ".join(choices), _unique(key for _, denied in parts for key in denied)


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
