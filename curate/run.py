"""Walk a recipe: which shards are there, which are to be made, and the ledger that must add up.

A shard's key is made from the key of the shard it comes from and from what its step declares:
name, version, options, tools. So a change of one step's options re-runs that step and what
follows, a new package adds its own shards only, and worker counts change nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.execute.protocol import Executor, Job, Lost, Result
from curate.rows import ROW, Row
from curate.step import Context, RowStep, SourceError, SourceStep, Step, TableStep, Unit
from curate.store import LedgerError, Manifest, Store, digest, is_row, write_atomically

if TYPE_CHECKING:
    from curate.recipe import Recipe

SHARD_ROWS = 128  # rows of a source that make one shard
SAME_FROM_SANDBOX = ("source", "purl", "repo", "version", "commit", "artifact_sha256", "path")


class RunError(Exception):
    """The run stopped; the message says why and what to do."""


@dataclass(frozen=True)
class Shard:
    """A shard of one stage; `Store` knows its files by ``step`` and ``key``."""

    step: str
    key: str


@dataclass
class Stage:
    """One step of a recipe and the manifests of its shards, in order."""

    step: Step
    label: str
    manifests: list[Manifest] = field(default_factory=list)

    def total(self, name: str) -> int:
        """Return the sum of a count over all shards."""
        return sum(getattr(m, name) for m in self.manifests)

    def reasons(self, fate: str) -> dict[str, int]:
        """Return how many rows were ``dropped`` or ``failed``, by reason, most frequent first."""
        count: Counter[str] = Counter()
        for manifest in self.manifests:
            count.update(getattr(manifest, fate))
        return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))

    def ledger(self) -> dict[str, Any]:
        """Return the stage's counts as JSON values."""
        counts = {name: self.total(name) for name in ("seen", "kept", "emitted", "untouched")}
        losses = {fate: self.reasons(fate) for fate in ("dropped", "failed")}
        return {"step": self.label, **counts, **losses}


@dataclass(frozen=True)
class Record:
    """What the journal keeps of one stage of the last run of a recipe."""

    label: str
    step: str
    kinds: list[str]  # that the step looks at; empty for a source
    identity: dict[str, Any]
    shards: list[str]


def write_journal(output: Path, recipe: str, records: list[Record]) -> None:
    """Keep which shards a run is made of, for `curate plan`, `why`, `lost` and `show`."""
    text = json.dumps([vars(record) for record in records])
    write_atomically(output / "cache" / "runs" / f"{recipe}.json", text.encode())


def read_journal(output: Path, recipe: str) -> list[Record]:
    """Return the stages of the last run of a recipe; empty if there was none."""
    path = output / "cache" / "runs" / f"{recipe}.json"
    if not path.exists():
        return []
    return [Record(**record) for record in json.loads(path.read_bytes())]


class Progress:
    """Hears how a run goes; this one says nothing."""

    def begin(self, label: str, total: int | None, cached: int) -> None:
        """A stage begins with ``total`` rows (None: unknown) of which ``cached`` are done."""

    def advance(self, rows: int, lost: int) -> None:
        """More rows of the stage are done."""

    def end(self, stage: Stage) -> None:
        """The stage is done."""

    def warn(self, message: str) -> None:
        """Something the user should know."""


@lru_cache
def tool_version(name: str) -> str:
    """Return an installed distribution's version without its local part (``+cpu``)."""
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def identity(step: Step, seed: int) -> dict[str, Any]:
    """Return what decides a step's result, besides its input."""
    return {
        "name": step.name,
        "version": step.version,
        "options": step.options(),
        "tools": {name: tool_version(name) for name in step.tools},
        "columns": columns_digest(),  # rows of another form cannot be read as these
        **({"seed": seed} if step.seeded else {}),
    }


@lru_cache
def columns_digest() -> str:
    """Return a digest of the names and types of a row's columns."""
    return hashlib.sha256(str(ROW).encode()).hexdigest()[:16]


@lru_cache
def code_digest(kind: type[Step]) -> str:
    """Return a digest of the source file that a step's class is in."""
    return hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()[:16]


class Walk:
    """The stages of one recipe over one output folder."""

    def __init__(
        self,
        recipe: Recipe,
        output: Path,
        executor: Executor,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.recipe, self.executor, self.limit = recipe, executor, limit
        self.output = output
        self.store = Store(output)
        self.context = Context(recipe.seed, output / "cache", executor.sandbox)
        self.progress = progress or Progress()
        self.warned: set[str] = set()

    @property
    def folder(self) -> Path:
        """Where the recipe's finished data lies."""
        return self.output / self.recipe.name

    def stages(self) -> list[Stage]:
        """Return the recipe's stages, sources first, with labels that tell repeats apart."""
        steps: list[Step] = [*self.recipe.sources, *self.recipe.steps]
        names = [step.name for step in steps]
        labels = [
            f"{name}#{names[: i + 1].count(name)}" if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]
        return [Stage(step, label) for step, label in zip(steps, labels, strict=True)]

    # --- running ----------------------------------------------------------------------------

    def run(self, only: str | None = None, until: str | None = None) -> list[Stage]:
        """Run what is missing, in order; return the stages that were walked.

        Args:
            only: run this step only; everything before it must be done.
            until: stop after this step.

        Raises:
            RunError: a step lost more rows than its budget, or ``only`` lacks its input.
            SourceError: a source cannot be had as pinned.
        """
        stages = self.stages()
        goal = only or until
        last = find_stage(stages, goal) if goal else len(stages) - 1
        shards: list[Shard] = []
        records: list[Record] = []
        for position, stage in enumerate(stages[: last + 1]):
            if only and position < last and self.missing(stage, shards):
                raise RunError(
                    f"--only {only}: step {stage.label} before it is not done; "
                    f"run without --only, or with --until {only}"
                )
            records.append(self.record(stage, shards))
            write_journal(self.output, self.recipe.name, records)
            shards = self.run_stage(stage, shards)
            records[-1] = self.record(stage, shards)
        write_journal(self.output, self.recipe.name, records)
        check_ledger(stages[: last + 1])
        return stages[: last + 1]

    def record(self, stage: Stage, shards: list[Shard]) -> Record:
        """Return what the journal keeps of a stage: after it has run, or before, when its
        shards are not known yet and those that it will make of ``shards`` stand for them."""
        step = stage.step
        if stage.manifests or isinstance(step, SourceStep):
            keys = [m.key for m in stage.manifests]
        else:
            keys = [s.key for s in self.known_shards(stage, shards)]
        kinds = [] if isinstance(step, SourceStep) else sorted(step.kinds)  # type: ignore[attr-defined]
        return Record(stage.label, step.name, kinds, identity(step, self.recipe.seed), keys)

    def run_stage(self, stage: Stage, shards: list[Shard]) -> list[Shard]:
        """Run one stage over the shards before it; return the shards after it."""
        if isinstance(stage.step, SourceStep):
            return shards + self._run_source(stage, stage.step)
        if isinstance(stage.step, RowStep):
            return self._run_row_step(stage, stage.step, shards)
        assert isinstance(stage.step, TableStep)
        return self._run_table_step(stage, stage.step, shards)

    def facts(self, step: Step, results: Iterable[Result] = ()) -> dict[str, Any]:
        """Return what a manifest tells of how its shard was made."""
        results = list(results)
        return {
            "tools": {name: tool_version(name) for name in step.tools},
            "code": code_digest(type(step)),
            "cpu_s": round(sum(r.cpu_s for r in results), 3),
            "peak_mb": max((r.peak_mb for r in results), default=0),
        }

    def _done(self, step: Step, key: str) -> Manifest | None:
        manifest = self.store.manifest(step.name, key)
        if manifest and manifest.code != code_digest(type(step)) and step.name not in self.warned:
            self.warned.add(step.name)
            self.progress.warn(
                f"step {step.name}: its code has changed since some of its shards were made, but "
                f"its version ({step.version}) has not; they are used as they are"
            )
        return manifest

    # --- sources ----------------------------------------------------------------------------

    def unit_key(self, step: SourceStep, unit: Unit) -> str:
        """Return the key of a unit's shards. The unit's own key pins its content."""
        known = identity(step, self.recipe.seed)
        del known["options"]  # what matters of them is in the unit
        return digest(known, unit.key, unit.spec, self.limit)

    def _run_source(self, stage: Stage, step: SourceStep) -> list[Shard]:
        units = step.units(self.context)
        keys = [self.unit_key(step, unit) for unit in units]
        todo = [
            Job(key, 0, [vars(unit)])
            for unit, key in zip(units, keys, strict=True)
            if self.store.unit_shards(step.name, key) is None
        ]
        self.progress.begin(stage.label, len(units), len(units) - len(todo))
        for job, _, result in self.executor.run(step, self.context, iter(todo), self.limit):
            self._commit_unit(step, job, result)
            self.progress.advance(1, 0)
        shards = []
        for key in keys:
            for shard_key in self.store.unit_shards(step.name, key) or []:
                manifest = self._done(step, shard_key)
                assert manifest
                stage.manifests.append(manifest)
                shards.append(Shard(step.name, shard_key))
        self.progress.end(stage)
        return shards

    def _commit_unit(self, step: SourceStep, job: Job, result: Result) -> None:
        for failure in (x for x in result.lost if x.fate == "failed"):
            if failure.evidence.get("error") == "SourceError":
                raise SourceError(failure.evidence["message"])
            label = job.items[0]["label"]
            raise SourceError(f"{step.name} {label}: {failure.reason} {failure.evidence}")
        keys = []
        rows, lost = result.kept, result.lost
        for start in range(0, max(len(rows), 1), SHARD_ROWS):
            part = rows[start : start + SHARD_ROWS]
            gone = lost[:] if start == 0 else []
            key = digest(job.shard, start)
            seen = len(part) + len(gone)
            facts = self.facts(step, [result] if start == 0 else [])
            self.store.commit(step.name, key, None, part, gone, seen=seen, **facts)
            keys.append(key)
        self.store.commit_unit(step.name, job.shard, keys)

    # --- row steps --------------------------------------------------------------------------

    def shard_key(self, step: Step, shard: Shard) -> str:
        """Return the key of what a row step makes of a shard."""
        return digest(identity(step, self.recipe.seed), shard.key)

    def _run_row_step(self, stage: Stage, step: RowStep, shards: list[Shard]) -> list[Shard]:
        made = [Shard(step.name, self.shard_key(step, shard)) for shard in shards]
        inputs = [self.input_manifest(shard) for shard in shards]
        sizes = [sum(m.kinds.get(kind, 0) for kind in step.kinds) for m in inputs]
        cached = [self._done(step, shard.key) for shard in made]
        todo = [(a, b) for a, b, done in zip(shards, made, cached, strict=True) if not done]
        budget = Budget(stage.label, step.max_error_rate, sum(sizes))
        for manifest in filter(None, cached):
            budget.spend(manifest.failed)
        work = _Work(self, step, budget)
        already = sum(size for size, done in zip(sizes, cached, strict=True) if done)
        self.progress.begin(stage.label, sum(sizes), already)
        for job, index, result in self.executor.run(step, self.context, work.jobs(todo), None):
            work.take(job, index, result)
            self.progress.advance(1, len(result.lost))
        stage.manifests = [self.input_manifest(shard) for shard in made]
        self.progress.end(stage)
        return made

    def input_manifest(self, shard: Shard) -> Manifest:
        """Return the manifest of a shard that is done."""
        manifest = self.store.manifest(shard.step, shard.key)
        assert manifest, f"{shard.step}: shard {shard.key} was not written"
        return manifest

    # --- table steps ------------------------------------------------------------------------

    def table_keys(self, step: TableStep, shards: list[Shard]) -> list[str]:
        """Return the keys of what a table step makes of its shards: each depends on them all."""
        whole = digest(identity(step, self.recipe.seed), [s.key for s in shards])
        return [digest(whole, shard.key) for shard in shards]

    def _run_table_step(self, stage: Stage, step: TableStep, shards: list[Shard]) -> list[Shard]:
        made = [Shard(step.name, key) for key in self.table_keys(step, shards)]
        total = sum(self.input_manifest(shard).emitted for shard in shards)
        missing = [self._done(step, shard.key) is None for shard in made]
        self.progress.begin(stage.label, total, 0 if any(missing) else total)
        if any(missing):
            verdicts = self._judge(step, shards)
            for shard, target in zip(shards, made, strict=True):
                manifest = self._apply_verdicts(step, shard, target, verdicts)
                self.progress.advance(manifest.seen, manifest.seen - manifest.kept)
        stage.manifests = [self.input_manifest(shard) for shard in made]
        self.progress.end(stage)
        return made

    def _judge(self, step: TableStep, shards: list[Shard]) -> dict[str, Row]:
        import polars as pl

        columns = ["id", "kind", *step.columns]
        parts = [pl.DataFrame(self.store.rows(s.step, s.key, columns)) for s in shards]
        if not parts:
            return {}
        table = pl.concat(parts).filter(pl.col("kind").is_in(sorted(step.kinds)))
        if table.is_empty():
            return {}
        repeated = table.filter(pl.col("id").is_duplicated())["id"].to_list()
        if repeated:
            raise LedgerError(f"step {step.name}: two rows have the id {repeated[0]}")
        verdicts = {row["id"]: row for row in step.judge(table, self.context).to_dicts()}
        if verdicts.keys() != set(table["id"]):
            raise LedgerError(f"step {step.name}: it judged other rows than it was given")
        return verdicts

    def _apply_verdicts(
        self, step: TableStep, shard: Shard, target: Shard, verdicts: dict[str, Row]
    ) -> Manifest:
        kept, lost, untouched = [], [], 0
        for row in self.store.rows(shard.step, shard.key).to_pylist():
            verdict = verdicts.get(row["id"])
            if verdict is None:
                untouched += 1
                kept.append(row)
            elif verdict["reason"] is not None:
                evidence = json.loads(verdict["evidence"] or "{}")
                lost.append(Lost(row, "dropped", verdict["reason"], evidence))
            else:
                kept.append(row | {k: verdict[k] for k in ("cluster", "split") if k in verdict})
        return self.store.commit(
            step.name,
            target.key,
            self.input_manifest(shard),
            kept,
            lost,
            seen=len(kept) + len(lost),
            untouched=untouched,
            **self.facts(step),
        )

    # --- planning ---------------------------------------------------------------------------

    def missing(self, stage: Stage, shards: list[Shard]) -> int:
        """Return how many shards of a stage are to be made from the shards before it."""
        step = stage.step
        if isinstance(step, SourceStep):
            keys = [self.unit_key(step, unit) for unit in step.units(self.context)]
            return sum(self.store.unit_shards(step.name, key) is None for key in keys)
        made = self.known_shards(stage, shards)
        return sum(self.store.manifest(shard.step, shard.key) is None for shard in made)

    def known_shards(self, stage: Stage, shards: list[Shard]) -> list[Shard]:
        """Return the shards that a finished stage gives, without making any."""
        step = stage.step
        if isinstance(step, SourceStep):
            keys = [self.unit_key(step, unit) for unit in step.units(self.context)]
            made = [key for unit in keys for key in self.store.unit_shards(step.name, unit) or []]
            return shards + [Shard(step.name, key) for key in made]
        if isinstance(step, TableStep):
            return [Shard(step.name, key) for key in self.table_keys(step, shards)]
        return [Shard(step.name, self.shard_key(step, shard)) for shard in shards]


@dataclass
class _Pending:
    """A shard that is being made: its rows, and the results that have come in."""

    source: Shard
    target: Shard
    rows: list[Row]
    touched: list[int]
    results: list[Result | None]


class _Work:
    """Cuts shards into jobs and puts results together again, a few shards at a time."""

    def __init__(self, walk: Walk, step: RowStep, budget: Budget) -> None:
        self.walk, self.step, self.budget = walk, step, budget
        self.pending: dict[str, _Pending] = {}

    def jobs(self, todo: list[tuple[Shard, Shard]]) -> Iterator[Job]:
        """Yield jobs shard by shard; a shard with nothing for the step is written at once."""
        for source, target in todo:
            rows = self.walk.store.rows(source.step, source.key).to_pylist()
            touched = [i for i, row in enumerate(rows) if row["kind"] in self.step.kinds]
            pending = _Pending(source, target, rows, touched, [None] * len(touched))
            self.pending[target.key] = pending
            if not touched:
                self._commit(pending)
            for start in range(0, len(touched), self.step.batch):
                part = [rows[i] for i in touched[start : start + self.step.batch]]
                yield Job(target.key, start, part)

    def take(self, job: Job, index: int, result: Result) -> None:
        """Take in one row's result; write the shard when it was the last."""
        pending = self.pending[job.shard]
        checked = checked_result(self.step, job.items[index], result)
        pending.results[job.start + index] = checked
        if all(done is not None for done in pending.results):
            self._commit(pending)
        for lost in (x for x in checked.lost if x.fate == "failed"):
            self.budget.spend({lost.reason: 1}, last=lost)

    def _commit(self, pending: _Pending) -> None:
        kept: list[Row] = []
        lost: list[Lost] = []
        results = dict(zip(pending.touched, pending.results, strict=True))
        for i, row in enumerate(pending.rows):
            if i not in results:
                kept.append(row)
                continue
            result = results[i]
            assert result
            kept += result.kept
            lost += result.lost
        self.walk.store.commit(
            self.step.name,
            pending.target.key,
            self.walk.input_manifest(pending.source),
            kept,
            lost,
            seen=len(pending.rows),
            untouched=len(pending.rows) - len(pending.touched),
            **self.walk.facts(self.step, filter(None, pending.results)),
        )
        del self.pending[pending.target.key]


def checked_result(step: RowStep, row: Row, result: Result) -> Result:
    """Return a result, or a failure where a worker's answer cannot be trusted.

    What ran in the sandbox may have lied about anything but itself, so its license and its place
    of origin must be those that the row had before.
    """
    problem = None
    for made in result.kept:
        problem = problem or is_row(made)
        if not problem and step.sandboxed and not _same_papers(made, row):
            problem = "license or origin changed in the sandbox"
    if not result.kept and not result.lost:
        problem = "the step gave nothing"
    if result.kept and result.lost:
        problem = "the step both kept and dropped the row"
    if problem:
        return Result([], [Lost(row, "failed", "bad_row", {"message": problem})])
    return result


def _same_papers(made: Row, row: Row) -> bool:
    return made["license"] == row["license"] and all(
        made["origin"][name] == row["origin"][name] for name in SAME_FROM_SANDBOX
    )


def find_stage(stages: list[Stage], label: str) -> int:
    """Return a stage's position.

    Raises:
        RunError: no stage, or more than one, is called so.
    """
    found = [i for i, s in enumerate(stages) if label in (s.label, s.step.name)]
    if len(found) != 1:
        labels = ", ".join(stage.label for stage in stages)
        raise RunError(f"no single step is called '{label}'; the recipe has {labels}")
    return found[0]


class Budget:
    """How many rows a step may fail on; one is always forgiven."""

    def __init__(self, label: str, rate: float, rows: int) -> None:
        self.label, self.rate, self.rows = label, rate, rows
        self.failed: Counter[str] = Counter()

    def spend(self, reasons: Mapping[str, int], last: Lost | None = None) -> None:
        """Count failures; ``last`` is shown as an example.

        Raises:
            RunError: there were too many.
        """
        self.failed.update(reasons)
        if self.failed.total() <= max(1, self.rate * self.rows):
            return
        why = ", ".join(f"{reason} {n}" for reason, n in self.failed.most_common())
        told = ("error", "message", "signal")
        shown = {k: str(last.evidence[k])[:300] for k in told if last and k in last.evidence}
        example = f" The last was row {last.row['id']}: {shown}." if last else ""
        raise RunError(
            f"step {self.label} failed on {self.failed.total()} of {self.rows} rows (allowed: "
            f"{self.rate:.1%}): {why}.{example} Raise max_error_rate of this step in the recipe to "
            "go on without them"
        )


def check_ledger(stages: list[Stage]) -> None:
    """Raise `LedgerError` unless every stage saw exactly the rows that came before it."""
    before = 0
    for stage in stages:
        if isinstance(stage.step, SourceStep):
            before += stage.total("emitted")
            continue
        if stage.total("seen") != before:
            raise LedgerError(
                f"step {stage.label} saw {stage.total('seen')} rows, but {before} came before it"
            )
        before = stage.total("emitted")
