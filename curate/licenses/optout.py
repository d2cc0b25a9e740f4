"""The opt-out list: code whose authors asked not to be used, whatever its license allows.

A YAML list of entries; an entry applies where all of its keys do::

    - owner: some-user                 # all repositories of an owner on any forge
    - repo: some-user/some-repo        # one repository; the full address works too
    - purl: pkg:pypi/some-package      # every version; pkg:pypi/some-package@1.2 means one
    - path: "*/kernels/*.py"           # glob over the path inside the artifact
    - sha256: 9f86d081…                # of a file's content
      why: asked by mail on 2026-11-02
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from curate.licenses.texts import text_sha256
from curate.rows import Row


class OptOutError(ValueError):
    """An opt-out file is wrong; the message says where."""


class OptOut(BaseModel):
    """One request: the keys that are given must all match."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    owner: Annotated[str | None, Field(description="Owner of repositories, on any forge.")] = None
    repo: Annotated[str | None, Field(description="owner/name, or the full address.")] = None
    purl: Annotated[str | None, Field(description="Package URL, with or without a version.")] = None
    path: Annotated[str | None, Field(description="Glob over the path in the artifact.")] = None
    sha256: Annotated[
        str | None, Field(pattern="^[0-9a-f]{64}$", description="Of one file's content.")
    ] = None
    why: Annotated[str | None, Field(description="Who asked, and when.")] = None

    @model_validator(mode="after")
    def _names_something(self) -> OptOut:
        if not any((self.owner, self.repo, self.purl, self.path, self.sha256)):
            raise ValueError("name an owner, repo, purl, path or sha256")
        return self

    def matches(self, row: Row) -> bool:
        """Return whether the request covers this row."""
        origin = row["origin"]
        repo = _repo_name(origin["repo"] or "")
        purl = (origin["purl"] or "").lower()
        wanted_purl = (self.purl or "").lower()
        checks = (
            self.owner is None or repo.split("/")[0] == self.owner.lower(),
            self.repo is None or repo == _repo_name(self.repo),
            self.purl is None or purl == wanted_purl or purl.startswith(wanted_purl + "@"),
            self.path is None or fnmatchcase(origin["path"] or "", self.path),
            self.sha256 is None or text_sha256(row["text"]) == self.sha256,
        )
        return all(checks)


def load_optouts(path: Path) -> tuple[OptOut, ...]:
    """Return the entries of an opt-out file.

    Raises:
        OptOutError: the file cannot be read or an entry is wrong.
    """
    try:
        entries = yaml.safe_load(path.read_text("utf-8")) or []
        return TypeAdapter(tuple[OptOut, ...]).validate_python(entries)
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise OptOutError(f"{path}: {error}") from error


def _repo_name(address: str) -> str:
    """Return ``owner/name`` in lower case for an address in any of the usual forms."""
    tail = address.removesuffix("/").removesuffix(".git").replace(":", "/")
    return "/".join(tail.split("/")[-2:]).lower()
