"""The step `licenses`: keeps the files that may be used, each with its license and its texts."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, PrivateAttr, field_validator

from curate.cache.artifact import open_artifact
from curate.engine.store import digest
from curate.files import file_sha256
from curate.licenses.optout import (
    OPTED_OUT,
    OptOut,
    files_of,
    first_match,
    load_lists,
    load_optouts,
    named_list,
)
from curate.rows import FileRow, FoundRow, License, Origin, Row
from curate.step import Context, Drop, Keep, Outcome, RowStep

if TYPE_CHECKING:
    from curate.licenses.policy import Decision, Policy
    from curate.licenses.resolve import Resolver
    from curate.licenses.statements import LicenseFinding

_ALLOW_FILE = Path(__file__).with_name("allow.toml")


class Licenses(RowStep):
    """Finds the license of every file and keeps what the allow list lets through.

    SPDX tags in comments before the first statement, and license texts and notices that are the
    license's own word for word, grant. Everything else that names a license, gives its address or
    speaks of terms only takes away or joins: tags and notices further down, comments, docstrings,
    ``__license__``, package metadata and what it points to, README, NOTICE, EULA,
    REUSE.toml and other papers. What cannot be read, in whichever language, makes the license
    unknown.

    A record of a data set is under the data set's license, as its card and license files say at
    the pinned commit, and under that of its own license column: both must pass.

    A module, kernel or CUDA pair that `closure` built from several files is looked at once more:
    the licenses of the other files are joined to its own, and it goes if one of them may not be
    used.

    Drop reasons: ``license_denied`` (the license is known and not on the list),
    ``license_unknown`` (no text, or one that could not be read: fails closed) and ``opted_out``
    (an entry of the opt-out list covers the row, or a file that its code was pulled from).
    """

    step: Literal["licenses"]
    takes: ClassVar[frozenset[str]] = frozenset({"file", "record", "module", "kernel", "cuda"})
    sets: ClassVar[frozenset[str]] = frozenset({"license"})
    batch: ClassVar[int] = 64
    version: ClassVar[int] = 7  # addresses of licenses; notices and tags below the header join
    tools: ClassVar[tuple[str, ...]] = ("license-expression", "licenseclassifier")

    allow: Annotated[
        list[str] | None,
        Field(
            description="SPDX ids of licenses and exceptions to keep, in place of the shipped list "
            "(MIT, Apache-2.0, BSD, ISC, Zlib, BSL-1.0, Unlicense, CC0 and the LLVM exception)."
        ),
    ] = None
    overrides: Annotated[
        str | None,
        Field(
            description="TOML file, relative to the current folder, that says what a text means "
            "which no template covers, keyed by the text's sha256 from the drop's evidence."
        ),
    ] = None
    optout: Annotated[
        str | None,
        Field(
            description="YAML list, relative to the current folder, of owners, repos, purls, "
            "paths, symbols, copyright lines and content hashes whose authors asked not to be "
            "used; `curate optout` adds to it. By default optout.yaml, if it is there.",
            validate_default=True,
        ),
    ] = None
    scancode: Annotated[
        bool,
        Field(
            description="Ask ScanCode about texts that the templates cannot place. Needs "
            "`pip install '.[scancode]'` in a clone (700 MB); about a second per new text."
        ),
    ] = False

    _state: _State | None = PrivateAttr(default=None)

    @field_validator("allow")
    @classmethod
    def _known_ids(cls, allow: list[str] | None) -> list[str] | None:
        if allow == []:
            raise ValueError("an empty list keeps nothing; leave it out for the shipped list")
        if allow is not None:
            from curate.licenses.policy import make_policy

            make_policy(allow)
        return allow

    @field_validator("optout")
    @classmethod
    def _readable_list(cls, optout: str | None) -> str | None:
        optout = named_list(optout)
        if optout is not None:
            load_optouts(Path(optout))
        return optout

    def options(self) -> dict[str, Any]:
        """Return the options with the content of the files that they name."""
        from curate.licenses.overrides import SHIPPED_FILE
        from curate.licenses.text.copies import TABLE as COPIES

        hashes: dict[str, str | None] = {}
        if self.overrides:
            hashes["overrides_sha256"] = _file_sha256(self.overrides)
        if self.optout:  # the entries, so that a comment in the list changes nothing
            entries = [entry.model_dump() for entry in load_optouts(Path(self.optout))]
            hashes["optout_digest"] = digest(entries)
        known = {
            "policy": self._policy_version(),
            "shipped_overrides_sha256": file_sha256(SHIPPED_FILE),
            "shipped_copies_sha256": file_sha256(COPIES),
        }
        options = {**super().options(), **hashes, **known}
        if self.scancode:
            options["scancode_version"] = _installed_version("scancode-toolkit-mini")
        return options

    def setup(self, context: Context) -> None:
        import curate.licenses.resolve  # noqa: F401  imported once, before workers fork
        from curate.licenses.detect import place

        self._ready()
        place("MIT License")  # loads the templates, which forked workers then share

    def apply(self, row: FoundRow, context: Context) -> Outcome:
        if context.cache is None:
            raise ValueError("licenses: the run has no cache, and license texts are kept there")
        outcome = self._judge(row, context.cache)
        if isinstance(outcome, Keep):  # the copyright lines are known now
            entry = first_match(self._ready().optouts, dict(outcome.rows[0]), context.cache)
            if entry is not None:
                return Drop(OPTED_OUT, entry.model_dump(exclude_none=True))
        return outcome

    def _judge(self, row: FoundRow, cache: Path) -> Outcome:
        """Return the row with its license, or why its license does not let it through."""
        state, origin = self._ready(), row["origin"]
        resolver = state.resolver(cache, origin["artifact_sha256"])
        if row["kind"] == "file":
            finding = resolver.resolve(origin["path"], row["text"] or "")
            return _decide(row, finding, state.policy, cache)
        artifact = open_artifact(cache, origin["artifact_sha256"])
        if row["kind"] == "record":
            from curate.licenses.records import resolve_record

            finding = resolve_record(cast(FileRow, row), artifact, resolver)
            return _decide(row, finding, state.policy, cache)
        skipped = 0 if row["license"] is None else 1  # its own file comes first
        for path in sorted(set(files_of(dict(row))[skipped:]) & set(artifact.paths())):
            finding = resolver.resolve(path, artifact.read(path))
            outcome = _decide(row, finding, state.policy, cache)
            if isinstance(outcome, Drop):
                return Drop(outcome.reason, {"file": path, **outcome.evidence})
            row = {**row, "license": _joined(row["license"], outcome.rows[0]["license"])}
        return Keep((row,))

    def _policy_version(self) -> str:
        if self.allow is not None:
            return "custom"
        return str(tomllib.loads(_ALLOW_FILE.read_text("utf-8"))["version"])

    def _ready(self) -> _State:
        if self._state is None:
            self._state = _State(self)
        return self._state


class _State:
    """What rows need, loaded once: the policy, the two files, resolvers of recent artifacts."""

    def __init__(self, step: Licenses) -> None:
        from curate.licenses.overrides import load_overrides
        from curate.licenses.policy import default_policy, make_policy

        self.policy: Policy = make_policy(step.allow) if step.allow else default_policy()
        self.optouts: tuple[OptOut, ...] = load_lists([step.optout])
        self._overrides = load_overrides(Path(step.overrides) if step.overrides else None)
        self._scancode = step.scancode
        self._resolvers: dict[str, Resolver] = {}

    def resolver(self, cache: Path, sha256: str) -> Resolver:
        from curate.licenses.resolve import Resolver

        if sha256 not in self._resolvers:
            artifact = open_artifact(cache, sha256)
            self._resolvers[sha256] = Resolver(
                artifact, self.policy, self._overrides, self._scancode
            )
        return self._resolvers[sha256]


def _decide(row: Row, finding: LicenseFinding, policy: Policy, cache: Path) -> Outcome:
    from curate.licenses.policy import evaluate

    statement = finding.statement
    decision = evaluate(statement.expression, policy) if statement.expression else None
    if decision is not None and not decision.allowed:
        evidence: dict[str, Any] = {
            "expression": statement.expression,
            "why": decision.reason,
            "path": statement.path,
            "method": statement.method,
            "conflict": statement.conflict,
        }
        if finding.copied:
            evidence["copied"] = [f"class {c.name} of {c.origin}" for c in finding.copied]
        return Drop("license_denied", evidence)
    if decision is None or finding.why:
        return Drop("license_unknown", _unknown_evidence(finding, cache))
    return Keep((_licensed(row, finding, decision, cache),))


def _joined(one: License | None, other: License | None) -> License | None:
    """Return the license of a text that holds parts under both."""
    from curate.licenses.policy import conjoin

    if one is None or other is None or one == other:
        return one or other

    def both(a: list[str], b: list[str]) -> list[str]:
        return list(dict.fromkeys([*a, *b]))

    return {
        **one,
        "text_sha256": both(one["text_sha256"], other["text_sha256"]),
        "notice_sha256": both(one["notice_sha256"], other["notice_sha256"]),
        "copyright": both(one["copyright"], other["copyright"]),
        "expression": conjoin(one["expression"], other["expression"]),
        "choice": conjoin(one["choice"] or "", other["choice"] or ""),
        "confidence": min(one["confidence"] or 0, other["confidence"] or 0),
        "conflict": one["conflict"] or other["conflict"],
    }


def _unknown_evidence(finding: LicenseFinding, cache: Path) -> dict[str, Any]:
    """Return why the license is unknown and where the text can be read: it is saved for that."""
    from curate.cache.texts import save_text

    evidence: dict[str, Any] = {"why": finding.why, "path": finding.statement.path}
    if finding.statement.unplaced:
        text = finding.statement.unplaced[0]
        evidence |= {"path": text.path, "text_sha256": save_text(cache, text.text)}
        evidence |= {"recognised": text.hint} if text.hint else {}
    return evidence


def _licensed(row: Row, finding: LicenseFinding, decision: Decision, cache: Path) -> Row:
    from curate.cache.texts import save_text

    statement = finding.statement
    derived_from = dict.fromkeys((*(row["origin"]["derived_from"] or ()), *finding.derived_from))
    record: License = {
        "expression": statement.expression or "",
        "choice": decision.choice,
        "method": statement.method,
        "confidence": round(statement.confidence, 4),
        "path": statement.path,
        "text_sha256": [save_text(cache, text) for text in finding.texts],
        "notice_sha256": [save_text(cache, text) for text in finding.notices],
        "copyright": list(finding.copyright),
        "conflict": statement.conflict,
    }
    origin: Origin = {**row["origin"], "derived_from": list(derived_from)}
    return {**row, "license": record, "origin": origin}


def _installed_version(distribution: str) -> str | None:
    """Return a distribution's version; None where it is absent, which the first text reports."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _file_sha256(path: str) -> str | None:
    """Return the hash of a file's content; None where there is none, which `setup` reports."""
    file = Path(path)
    return file_sha256(file) if file.is_file() else None
