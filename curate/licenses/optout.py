"""The opt-out list: code whose authors asked not to be used, whatever its license allows.

A YAML list of entries; an entry applies where all of its keys do. `curate optout` shows which rows
of a run an entry takes, and adds it to the list::

    - owner: some-user                 # all repositories of an owner on any forge
    - repo: some-user/some-repo        # one repository; the full address works too
    - purl: pkg:pypi/some-package      # every version; pkg:pypi/some-package@1.2 means one
    - path: "*/kernels/*.py"           # glob over the path inside the artifact
    - symbol: FusedMLP*                # glob over the name of the class or kernel
    - copyright: "*Ada Lovelace*"      # glob over copyright lines, in any case
    - sha256: 9f86d081…                # of a file's content, which another version changes
      why: asked by mail on 2026-11-02

Entries are tombstones: they stay, and hold for sources that come later.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from curate.cache.artifact import open_artifact
from curate.files import write_atomically
from curate.rows import Loose

OPTED_OUT = "opted_out"
"""Reason of the rows that are lost this way. Which they were is published nowhere."""
DEFAULT_LIST = "optout.yaml"
"""The list of a recipe that names none, relative to the current folder; it need not be there."""

_HEAD = """\
# Code whose authors asked not to be used. `curate run` drops what an entry covers and `curate push`
# refuses it, so entries stay here for good. `curate optout --help` tells what an entry may say.
"""
_FIELDS = "owner, repo, purl, path, symbol, copyright or sha256"
_PULLED = re.compile(r"(?P<path>.+):\d+-\d+")  # how `closure` names what it took from a file


class OptOutError(ValueError):
    """An opt-out list or an entry is wrong; the message says where."""


class OptOut(BaseModel):
    """One request: the keys that are given must all match."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    owner: Annotated[str | None, Field(description="Owner of repositories, on any forge.")] = None
    repo: Annotated[str | None, Field(description="owner/name, or the full address.")] = None
    purl: Annotated[str | None, Field(description="Package URL, with or without a version.")] = None
    path: Annotated[str | None, Field(description="Glob over the path in the artifact.")] = None
    symbol: Annotated[str | None, Field(description="Glob over the class's or kernel's name.")] = (
        None
    )
    copyright: Annotated[
        str | None, Field(description="Glob over copyright lines, whatever their case.")
    ] = None
    sha256: Annotated[
        str | None, Field(pattern="^[0-9a-f]{64}$", description="Of one file's content.")
    ] = None
    why: Annotated[str | None, Field(description="Who asked, and when.")] = None

    @model_validator(mode="after")
    def _names_something(self) -> OptOut:
        values = self.model_dump(exclude={"why"}, exclude_none=True).values()
        if not values or not all(re.search(r"\w", value) for value in values):
            raise ValueError(f"name an {_FIELDS}")
        return self

    def matches(self, row: Loose, cache: Path) -> bool:
        """Return whether the request covers a row, or a file that code of the row was pulled from.

        Args:
            row: its symbol and copyright lines count as far as they are known.
            cache: has the artifact, where ``sha256`` is asked for.
        """
        origin, files = row["origin"], files_of(row)
        repo, purl = _repo_path(origin["repo"] or ""), _same_purl(origin["purl"] or "")
        holders = (row["license"] or {}).get("copyright") or []
        checks = (
            self.owner is None or _owns(_repo_path(self.owner), repo),
            self.repo is None or repo[-2:] == _repo_path(self.repo)[-2:],
            self.purl is None or f"{purl}@".startswith(f"{_same_purl(self.purl)}@"),
            self.path is None or any(fnmatchcase(file, self.path) for file in files),
            self.symbol is None or fnmatchcase(origin["symbol"] or "", self.symbol),
            self.copyright is None
            or any(fnmatchcase(_folded(line), _folded(self.copyright)) for line in holders),
            self.sha256 is None
            or self.sha256 in _file_hashes(cache, origin["artifact_sha256"], tuple(files)),
        )
        return all(checks)

    def text(self) -> str:
        """Return the entry as the list has it, on one line."""
        given = self.model_dump(exclude_none=True)
        flow = len(given) > 1
        text = yaml.safe_dump(given, default_flow_style=flow, sort_keys=False, width=10**6)
        return text.strip()


def first_match(entries: Iterable[OptOut], row: Loose, cache: Path) -> OptOut | None:
    """Return the first entry that covers a row; the arguments are those of `OptOut.matches`."""
    return next((entry for entry in entries if entry.matches(row, cache)), None)


def files_of(row: Loose) -> list[str]:
    """Return the paths, in its artifact, of all files that hold code of a row, its own first."""
    origin = row["origin"]
    pulled = map(_PULLED.fullmatch, origin["derived_from"] or [])
    paths: list[str] = [origin["path"] or "", *(found["path"] for found in pulled if found)]
    return list(dict.fromkeys(paths))


def parse_optout(text: str) -> OptOut:
    """Return the entry that a text says, written as in the list: ``owner: some-user``.

    Raises:
        OptOutError: it is none.
    """
    try:
        return OptOut.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as error:
        raise OptOutError(
            f"{text!r} is no entry of an opt-out list: {_first(error)}. Write `field: value`, or "
            f"`{{field: value, field: value}}` where all must match, with {_FIELDS}, and `why`; a "
            "value that begins with * needs quotes"
        ) from error


def load_optouts(path: Path) -> tuple[OptOut, ...]:
    """Return the entries of an opt-out list.

    Raises:
        OptOutError: the file cannot be read or an entry is wrong.
    """
    try:
        return _read(path.read_text("utf-8"))
    except OSError as error:
        raise OptOutError(f"{path}: {error.strerror} (looked from {Path.cwd()})") from error
    except (UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        fields = f"; an entry may have {_FIELDS}, and `why`"
        raise OptOutError(f"{path}: {_first(error)}{fields}") from error


def named_list(name: str | None) -> str | None:
    """Return the list that the option `optout` means: the one named, or the default if there."""
    return name or (DEFAULT_LIST if Path(DEFAULT_LIST).is_file() else None)


def load_lists(names: Iterable[str | None]) -> tuple[OptOut, ...]:
    """Return the entries of all lists that the options `optout` of a recipe mean, each once.

    Raises:
        OptOutError: a list that is named cannot be read.
    """
    lists = dict.fromkeys(filter(None, map(named_list, names)))
    return tuple(dict.fromkeys(entry for name in lists for entry in load_optouts(Path(name))))


def add_optouts(path: Path, entries: Sequence[OptOut]) -> list[OptOut]:
    """Append to a list the entries that it lacks; return them. What stands in it stays as it is.

    Raises:
        OptOutError: the list cannot be read or added to.
    """
    known = set(map(_key, load_optouts(path))) if path.exists() else set()
    by_key = {_key(entry): entry for entry in reversed(entries)}
    new = [by_key[key] for key in dict.fromkeys(map(_key, entries)) if key not in known]
    if not new:
        return []
    old = path.read_text("utf-8") if path.exists() else _HEAD
    text = "".join([old, "" if old.endswith("\n") or not old else "\n", *map(_block, new)])
    try:
        _read(text)
    except (yaml.YAMLError, ValidationError) as error:
        raise OptOutError(f"{path}: nothing can be appended to it: {_first(error)}") from error
    write_atomically(path, text.encode())
    return new


def _read(text: str) -> tuple[OptOut, ...]:
    return TypeAdapter(tuple[OptOut, ...]).validate_python(yaml.safe_load(text) or [])


def _block(entry: OptOut) -> str:
    return yaml.safe_dump([entry.model_dump(exclude_none=True)], sort_keys=False, width=10**6)


def _key(entry: OptOut) -> OptOut:
    return entry.model_copy(update={"why": None})


def _first(error: Exception) -> str:
    """Return one line for what is wrong, and in which entry of a list."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = first["loc"]
        number = f"entry {place[0] + 1}: " if place and isinstance(place[0], int) else ""
        return number + _wrong(first["type"], str(place[-1]) if place else "", first["input"])
    if isinstance(error, yaml.MarkedYAMLError):
        return str(error.problem)
    return str(error)


def _wrong(what: str, field: str, given: object) -> str:
    """Return what is wrong with an entry, by pydantic's name for it."""
    match what:
        case "extra_forbidden":
            return f"there is no field `{field}`"
        case "string_type":
            return f"`{field}` must be text: put {given!r} in quotes"
        case "string_pattern_mismatch":
            return f"`{field}` must be 64 digits of 0-9 and a-f, and is {given!r}"
        case "value_error":
            return "it names nothing that a row could have"
        case "tuple_type":
            return f"the list's entries must begin with a dash, and it is {given!r}"
    return f"an entry is `field: value`, and this is {given!r}"


@lru_cache(maxsize=1024)
def _file_hashes(cache: Path, artifact_sha256: str | None, files: tuple[str, ...]) -> set[str]:
    """Return the sha256 of some files of an artifact; the empty set where there is none."""
    if artifact_sha256 is None:
        return set()
    artifact = open_artifact(cache, artifact_sha256)
    there = set(artifact.paths())
    return {sha256(artifact.read_bytes(file)).hexdigest() for file in files if file in there}


def _repo_path(address: str) -> list[str]:
    """Return owners and name, in lower case, for an address in any of the usual forms."""
    plain = re.split(r"[?#]|/(?:-/)?(?:tree|blob|raw|commits?|issues)/", address)[0]
    host = re.match(r"\w+://[^/]*/|[\w.-]+@[\w.-]+:", plain)
    path = plain[host.end() :] if host else plain
    return path.strip("/@").removesuffix(".git").lower().split("/")


def _owns(owner: list[str], repo: list[str]) -> bool:
    """Whether a repository lies below an owner, who may be a group within a group."""
    steps = range(len(repo) - len(owner))
    return any(repo[at : at + len(owner)] == owner for at in steps)


def _same_purl(purl: str) -> str:
    """Return a package URL as all spellings of its name have it (PEP 503)."""
    name, at, version = purl.lower().partition("@")
    kind, slash, name = name.rpartition("/")
    name = re.sub(r"[-_.]+", "-", name) if kind == "pkg:pypi" else name
    return f"{kind}{slash}{name}{at}{version}"


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).lower()
