"""What a package's metadata says of its license, as SPDX: it is compared and never grants."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from curate.licenses.detect import place
from curate.licenses.policy import UnknownLicense, normalize

CLASSIFIERS_FILE = Path(__file__).with_name("classifiers.toml")


def metadata_expressions(metadata: Mapping[str, list[str]]) -> list[str]:
    """Return the SPDX expressions that core metadata names, each once.

    ``License-Expression`` and ``License`` count where they are SPDX, a ``License`` that holds a
    whole license text as that license, classifiers by ``classifiers.toml``. Free text that is none
    of these ("BSD", "see LICENSE") says nothing.
    """
    fields = (*metadata.get("License-Expression", []), *metadata.get("License", []))
    found = [_field(value) for value in fields]
    found += [_classifiers().get(value) for value in metadata.get("Classifier", [])]
    return list(dict.fromkeys(expression for expression in found if expression))


def _field(value: str) -> str | None:
    try:
        return normalize(value.strip())
    except UnknownLicense:
        placed = place(value)
        return placed.expression if placed.whole else None


@cache
def _classifiers() -> dict[str, str]:
    return tomllib.loads(CLASSIFIERS_FILE.read_text("utf-8"))
