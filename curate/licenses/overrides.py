"""Texts that a person has read: what a license text or notice means, by the hash of the text.

The only way past a text that no template covers. The package ships a few notices that only point
to the license file alongside them; a user adds others in a TOML file::

    [[override]]
    sha256 = "…"                # printed in the evidence of license_unknown
    expression = "BSD-3-Clause" # or: defers = true, for "see the LICENSE file"
    who = "Ada Lovelace"
    why = "BSD-3-Clause with the company's name for 'copyright holder'"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from curate.wording import plain

SHIPPED_FILE = Path(__file__).with_name("overrides.toml")


class OverrideError(ValueError):
    """An overrides file is wrong; the message says where."""


class Override(BaseModel):
    """What one text means, and who says so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: Annotated[
        str, Field(pattern="^[0-9a-f]{64}$", description="Of the text, as the evidence gives it.")
    ]
    expression: Annotated[
        str | None, Field(description="SPDX expression of the license that the text grants.")
    ] = None
    defers: Annotated[
        bool, Field(description="The text grants nothing itself: it points to the license file.")
    ] = False
    who: Annotated[str, Field(min_length=1, description="Person who read the text.")]
    why: Annotated[str, Field(min_length=1, description="What the text says, and why this is so.")]

    @model_validator(mode="after")
    def _says_one_thing(self) -> Override:
        from curate.licenses.policy import normalize

        if (self.expression is None) != self.defers:
            raise ValueError("give either `expression` or `defers = true`")
        if self.expression is not None:
            normalize(self.expression)
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    override: list[Override] = []


def load_overrides(path: Path | None) -> Mapping[str, Override]:
    """Return overrides by text sha256: the shipped ones, and over them those of ``path``.

    Raises:
        OverrideError: the file cannot be read or an entry is wrong.
    """
    files = [SHIPPED_FILE] if path is None else [SHIPPED_FILE, path]
    return {entry.sha256: entry for file in files for entry in _load(file)}


def _load(path: Path) -> list[Override]:
    try:
        return _File.model_validate(tomllib.loads(path.read_text("utf-8"))).override
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, one['loc']))}: {plain(one)}" for one in error.errors())
        raise OverrideError(f"{path}: {'; '.join(wrong)}") from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise OverrideError(f"{path}: {error}") from error
