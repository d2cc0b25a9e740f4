"""`curate licenses`: whether newer versions of a recipe's sources are under other terms.

A recipe pins its sources, so that a change of terms never reaches a data set unseen; but it decides
what may be taken next, and how the owners wish their code to be used. What is compared is what
license files, package metadata and cards say, in the pinned version and in the newest one. Headers
of single files are not: the step `licenses` reads them when the pin moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from curate.cache.artifact import Artifact, is_stored, open_artifact
from curate.licenses.licenses import Licenses
from curate.licenses.overrides import load_overrides
from curate.licenses.policy import Policy, burden, default_policy, evaluate, make_policy
from curate.licenses.records import resolve_record
from curate.licenses.resolve import Resolver
from curate.licenses.statements import LicenseStatement
from curate.rows import FileRow, make_origin, make_row
from curate.sources import git, hub
from curate.sources.git import Git, Repository
from curate.sources.hub import Hub
from curate.sources.pypi import Pypi
from curate.step import Context, SourceError, SourceStep

if TYPE_CHECKING:
    from curate.recipe import Recipe

Outcome = Literal["denied", "stricter", "changed", "gone", "unreachable", "unpinned", "same"]
"""denied: terms were allowed and are not now, or cannot be read. stricter: allowed still, with more
conditions. changed: in another way. gone: the pinned version, or every one, so that there is
nothing to compare. unpinned: it is whatever this machine has."""

WORSE: tuple[Outcome, ...] = ("denied", "stricter")
"""Outcomes for which `curate licenses` exits with 1."""
_ORDER: tuple[Outcome, ...] = ("denied", "stricter", "changed")


@dataclass(frozen=True)
class TermsChange:
    """Other terms for a folder of a source.

    Attributes:
        folder: they hold for it and what lies below it; "." is all of the source.
        old, new: SPDX expression, or why there is none.
        file: that says so.
        outcome: denied, stricter or changed.
    """

    folder: str
    old: str
    new: str
    file: str
    outcome: Outcome


@dataclass(frozen=True)
class Checked:
    """What became of the terms of one pinned source.

    Attributes:
        source: its kind, as in the recipe.
        name: package, repository, data set or folder.
        pinned: version or commit.
        newest: the same, of the newest; None where it is not known.
        outcome: the worst of the changes.
        changes: folders under other terms.
        note: what else there is to know, such as that the pinned version was yanked.
    """

    source: str
    name: str
    pinned: str
    newest: str | None
    outcome: Outcome
    changes: tuple[TermsChange, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class _Terms:
    """What is said of a folder's license; two are alike where the first three fields are."""

    said: str
    allowed: bool
    unread: tuple[str, ...]
    choice: str
    file: str

    def same(self, other: _Terms) -> bool:
        return (self.said, self.unread) == (other.said, other.unread)


def recheck(recipe: Recipe, cache: Path) -> Iterator[Checked]:
    """Yield what became of the terms of every pin of a recipe, in its order.

    Args:
        recipe: its first step `licenses` says what is allowed.
        cache: what has to be fetched is kept here, as sources do.
    """
    check = _Check(recipe, cache)
    for source in recipe.sources:
        yield from check.source(source)


class _Check:
    def __init__(self, recipe: Recipe, cache: Path) -> None:
        steps = [step for step in recipe.steps if isinstance(step, Licenses)]
        step = steps[0] if steps else Licenses(step="licenses")
        self._policy: Policy = make_policy(step.allow) if step.allow else default_policy()
        self._overrides = load_overrides(Path(step.overrides) if step.overrides else None)
        self._scancode = step.scancode
        self._cache, self._context = cache, Context(recipe.seed, cache)

    def source(self, source: SourceStep) -> Iterator[Checked]:
        if isinstance(source, Pypi):
            for unit in source.units(self._context):
                yield self._package(**unit.spec)
        elif isinstance(source, Git):
            for pin in source.repositories:
                yield self._repository(pin)
        elif isinstance(source, Hub) and source.dataset:
            yield self._data_set(source.dataset)
        else:
            where = getattr(source, "path", None) or "as installed"
            note = "not pinned: it is what this machine has"
            yield Checked(source.name, str(where), "-", None, "unpinned", note=note)

    def _package(self, name: str, version: str, sha256: str) -> Checked:
        from curate.sources import index

        try:
            now = index.newest(name, version, sha256)
            note = f"the pinned file is {now.pinned}" if now.pinned != "there" else ""
            note += f": {now.why}" if now.why else ""
            lost = now.pinned == "gone" and not is_stored(self._cache, sha256)
            if now.version is None or lost:
                return Checked("pypi", name, version, now.version, "gone", note=note)
            if now.sha256 is None:
                why = "the index tells no sha256 of the newest version"
                return Checked("pypi", name, version, now.version, "unreachable", note=why)
            changes: tuple[TermsChange, ...] = ()
            if now.sha256 != sha256:
                old = self._unpacked(name, version, sha256)
                changes = self._compare(old, self._unpacked(name, now.version, now.sha256))
            return Checked("pypi", name, version, now.version, _worst(changes), changes, note)
        except SourceError as error:
            return Checked("pypi", name, version, None, "unreachable", note=str(error))

    def _unpacked(self, name: str, version: str, sha256: str) -> Artifact:
        from curate.sources import index

        if is_stored(self._cache, sha256):
            return open_artifact(self._cache, sha256)
        return index.fetch(name, version, sha256, self._cache)

    def _repository(self, pin: Repository) -> Checked:
        name = git.public_url(pin.url)
        try:
            last = git.newest(pin, self._cache)
            changes: tuple[TermsChange, ...] = ()
            if last != pin:
                old, new = git.fetch(pin, self._cache), git.fetch(last, self._cache)
                changes = self._compare(old, new)
        except SourceError as error:
            return Checked("git", name, pin.commit, None, "unreachable", note=str(error))
        return Checked("git", name, pin.commit, last.commit, _worst(changes), changes)

    def _data_set(self, pin: str) -> Checked:
        name, commit = pin.split("@")
        try:
            last = hub.newest(pin)
            old, new = (self._card_terms(hub.fetch_papers(p, self._cache)) for p in (pin, last))
        except SourceError as error:
            return Checked("hub", name, commit, None, "unreachable", note=str(error))
        changes = tuple(_change(".", old, new))
        return Checked("hub", name, commit, last.split("@")[1], _worst(changes), changes)

    def _card_terms(self, artifact: Artifact) -> _Terms:
        """Return the terms of a data set, whatever a column of its rows adds to them."""
        record = make_row("record", "", make_origin("hub", path="any.parquet"))
        finding = resolve_record(cast(FileRow, record), artifact, self._resolver(artifact))
        return self._terms(finding.statement, finding.why)

    def _compare(self, old: Artifact, new: Artifact) -> tuple[TermsChange, ...]:
        """Return the folders of both that are under other terms in the new one."""
        before, after = self._resolver(old), self._resolver(new)
        licensed = before.folders_with_licenses() | after.folders_with_licenses()
        folders = [f for f in licensed if before.has_folder(f) and after.has_folder(f)]
        return tuple(
            change
            for folder in sorted({".", *folders})
            for change in _change(
                folder, self._terms(*before.around(folder)), self._terms(*after.around(folder))
            )
        )

    def _resolver(self, artifact: Artifact) -> Resolver:
        return Resolver(artifact, self._policy, self._overrides, self._scancode)

    def _terms(self, statement: LicenseStatement, why: str) -> _Terms:
        expression, unread = statement.expression, tuple(u.text for u in statement.unplaced)
        file = statement.path if expression or unread else ""
        if expression is None:
            return _Terms(f"unknown: {why}", False, unread, "", file)
        decision = evaluate(expression, self._policy)
        said = f"{expression}, and unknown: {why}" if why else expression
        return _Terms(said, decision.allowed and not why, unread, decision.choice, file)


def _change(folder: str, old: _Terms, new: _Terms) -> Iterator[TermsChange]:
    """Yield the change from old terms to new ones, if there is one."""
    if old.same(new):
        return
    outcome: Outcome = "changed"
    if old.allowed and not new.allowed:
        outcome = "denied"
    elif old.allowed and burden(new.choice) > burden(old.choice):
        outcome = "stricter"
    yield TermsChange(folder, old.said, new.said, new.file or old.file or "metadata", outcome)


def _worst(changes: tuple[TermsChange, ...]) -> Outcome:
    return min((change.outcome for change in changes), key=_ORDER.index, default="same")
