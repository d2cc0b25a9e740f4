"""Walk a recipe: which shards are there, which are to be made, and the ledger that must add up.

A shard's key is made from the key of the shard it comes from and from what its step declares:
name, version, options, tools. So a change of one step's options re-runs that step and what
follows, a new package adds its own shards only, and worker counts change nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.engine.earlier import Earlier
from curate.engine.executor import Executor, Job, Lost, Result
from curate.engine.identity import code_digest, identity, tool_version
from curate.engine.limit import cut, ends_raw, rows_to_read, spread
from curate.engine.partial import Partial
from curate.engine.published import Published
from curate.engine.records import TRIAL, Record, mark_last, read_records, write_records
from curate.engine.store import LedgerError, Manifest, Store, digest, is_row, lost_table, rows_table
from curate.engine.table import Summary, decide, judge, summarize
from curate.files import Damaged
from curate.rows import Loose
from curate.step import Context, RowStep, SourceError, SourceStep, Step, TableStep, Unit
from curate.wording import choose

if TYPE_CHECKING:
    import polars as pl

    from curate.recipe import Recipe

PATIENCE_S = 10.0
"""Seconds that a shard may take before its results are kept as they come."""

FEW_ROWS = 1000
"""Rows that a table step summarizes in less time than a worker takes to start."""

FEW_AT_ONCE = 8
"""Rows that a child is given at most by a step that takes long for each: longer than it takes to
look up what the step made of it before."""

SAME_FROM_SANDBOX = ("source", "purl", "repo", "version", "commit", "artifact_sha256", "path")


class RunError(Exception):
    """The run stopped; the message says why and what to do."""


class NoSuchStep(Exception):
    """``--until`` or ``--only`` names no step, or one that cannot be run yet."""


class OthersFirst(Exception):
    """One of several processes has done what fell to it, and the next step needs the others'."""


@dataclass(frozen=True)
class Shard:
    """A shard of one stage; `Store` knows its files by ``step`` and ``key``.

    ``owner`` is a number that tells apart the processes that share one run; ``most`` is how many
    problems or kernels may be made of its rows.
    """

    step: str
    key: str
    owner: int = 0
    most: int | None = None


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


class Walk:
    """The stages of one recipe over one output folder."""

    def __init__(
        self,
        recipe: Recipe,
        output: Path,
        executor: Executor,
        limit: int | None = None,
        progress: Progress | None = None,
        share: tuple[int, int] = (1, 1),
        settings: tuple[str, ...] = (),
        known: tuple[Published, ...] = (),
    ) -> None:
        """Args are those of `curate.api.run`; ``share`` is (2, 8) for the second of 8 processes.

        ``settings`` are those that ``recipe`` has been read with; ``known`` are data sets whose
        verdicts and the like are taken over.
        """
        self.recipe, self.executor, self.limit = recipe, executor, limit
        self.share, self.settings, self.known = share, settings, known
        self.taken_over: Counter[str] = Counter()  # rows of which ``known`` told, by step
        self.output = output
        self.store = Store(output)
        self.context = Context(recipe.seed, output / "cache", executor.sandbox)
        self.progress = progress or Progress()
        self.warned: set[str] = set()
        self.known_units: dict[str, dict[str, Unit]] = {}  # of each source, by its label
        self.shares: dict[str, int] = {}  # of the limit, by the keys of units
        self.units_dealt = 0  # of the sources that have been read, over all processes of the run
        self.waiting: list[str] = []  # units that other processes have not read yet

    @property
    def name(self) -> str:
        """Name of the run: the recipe's, or that of a trial, which is not the recipe as written."""
        is_trial = self.limit is not None or self.settings
        return f"{self.recipe.name}{TRIAL}" if is_trial else self.recipe.name

    @property
    def folder(self) -> Path:
        """Where the run's finished data lies; a trial's never takes the place of the recipe's."""
        return self.output / self.name

    def stages(self) -> list[Stage]:
        """Return the recipe's stages, sources first, with labels that tell repeats apart."""
        steps: list[Step] = [*self.recipe.sources, *self.recipe.steps]
        return [Stage(step, label) for step, label in zip(steps, self.labels(), strict=True)]

    def labels(self) -> list[str]:
        """Return the labels of the recipe's stages."""
        names = [step.name for step in (*self.recipe.sources, *self.recipe.steps)]
        return [
            f"{name}#{names[: i + 1].count(name)}" if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]

    # --- running ----------------------------------------------------------------------------

    def run(self, only: str | None = None, until: str | None = None) -> list[Stage]:
        """Run what is missing, in order; return the stages that were walked.

        Args:
            only: run this step only; everything before it must be done.
            until: stop after this step.

        Raises:
            NoSuchStep: ``only`` or ``until`` names no step, or ``only`` lacks its input.
            RunError: a step lost more rows than its budget.
            Damaged: a file of the cache is not as it was written.
            OthersFirst: one of several processes has to wait for the others.
            SourceError: a source cannot be had as pinned.
        """
        stages = self.stages()
        goal = only or until
        last = find_stage(stages, goal) if goal else len(stages) - 1
        self.executor.expect([stage.step for stage in stages[: last + 1]])
        shards: list[Shard] = []
        records: list[Record] = []
        # While a run repeats what one before it did, that one's record says more.
        before = self._known_records()
        for position, stage in enumerate(stages[: last + 1]):
            if only and position < last and self.missing(stage, shards):
                raise NoSuchStep(
                    f"--only {only}: step {stage.label} before it is not done; "
                    f"run without --only, or with --until {only}"
                )
            records.append(self.record(stage, shards))
            if not _begins_as(before, records):
                before = []
                self._write_records(records)
            shards = self.run_stage(stage, shards)
            records[-1] = self.record(stage, shards)
        if before != records:
            self._write_records(records)
        if self.is_alone:
            mark_last(self.output, self.name)
            check_ledger(stages[: last + 1])
        return stages[: last + 1]

    @property
    def is_alone(self) -> bool:
        """Whether no other process shares the run."""
        return self.share[1] == 1

    def _known_records(self) -> list[Record]:
        """Return what is recorded of the run before this one; nothing if that is damaged."""
        try:
            return read_records(self.output, self.name)
        except Damaged:
            return []

    def _write_records(self, records: list[Record]) -> None:
        if self.is_alone:  # one of several knows its own shards only
            write_records(self.output, self.name, records)

    def is_mine(self, owner: int) -> bool:
        """Say whether a unit or a shard falls to this process."""
        number, processes = self.share
        return owner % processes == number - 1

    def record(self, stage: Stage, shards: list[Shard]) -> Record:
        """Return what is recorded of a stage: after it has run, or before, when its
        shards are not known yet and those that it will make of ``shards`` stand for them."""
        step = stage.step
        if stage.manifests or isinstance(step, SourceStep):
            keys = [m.key for m in stage.manifests]
        else:
            keys = [s.key for s in self.known_shards(stage, shards)]
        kinds = [] if isinstance(step, SourceStep) else sorted(step.takes)
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

    def _done(self, step: Step, key: str, source: Manifest | None = None) -> Manifest | None:
        """Return the manifest of a shard that is done; one made of other rows than those that
        ``source`` has now is not."""
        manifest = self.store.manifest(step.name, key)
        if manifest and source and manifest.input_sha256 != source.output_sha256:
            return None
        if manifest:
            self.note_code(step, manifest.code)
        return manifest

    def note_code(self, step: Step, code: str) -> None:
        """Warn, once a step, of results that other code gave than the step has now."""
        if code != code_digest(type(step)) and step.name not in self.warned:
            self.warned.add(step.name)
            self.progress.warn(
                f"step {step.name}: its code has changed since some of its shards were made, but "
                f"its version ({step.version}) has not; they are used as they are"
            )

    # --- sources ----------------------------------------------------------------------------

    def unit_key(self, step: SourceStep, unit: Unit, most: int | None = None) -> str:
        """Return the key of a unit's shards. The unit's own key pins its content."""
        known = identity(step, self.recipe.seed)
        del known["options"]  # what matters of them is in the unit
        return digest(known, unit.key, unit.spec, most)

    def units(self, stage: Stage) -> dict[str, Unit]:
        """Return a source's units by their keys, each unit once in all sources.

        Two folders may hold the same files, and one folder may have two names. A unit that has no
        share of the limit is left out.
        """
        if not self.known_units:
            found: dict[str, dict[str, Unit]] = {}
            first: dict[str, str] = {}
            for label, source in zip(self.labels(), self.recipe.sources, strict=False):
                found[label] = {}
                for unit in source.units(self.context):
                    key, named = self.unit_key(source, unit), f"{label}: {unit.label}"
                    if key in first:
                        self.progress.warn(f"{named}: is the same as {first[key]}; it is read once")
                    else:
                        first[key], found[label][key] = named, unit
                if self.limit is not None:
                    found[label] = self._limited(source, list(found[label].values()), self.limit)
            self.known_units = found
        return self.known_units[stage.label]

    def _limited(self, source: SourceStep, units: list[Unit], limit: int) -> dict[str, Unit]:
        """Return the units that have a share of the limit, by keys that say how large it is."""
        found = {}
        for unit, share in zip(units, spread(limit, len(units)), strict=True):
            if share:
                key = self.unit_key(source, unit, share)
                found[key], self.shares[key] = unit, share
        return found

    def _shards_of(self, step: SourceStep, key: str, owner: int = 0) -> list[Shard]:
        """Return the shards of a unit that has been read; none of one that has not."""
        known = self.store.unit_shards(step.name, key) or []
        share = self.shares.get(key)
        most = [None] * len(known) if share is None else spread(share, len(known))
        return [Shard(step.name, k, owner, m) for k, m in zip(known, most, strict=True)]

    def _run_source(self, stage: Stage, step: SourceStep) -> list[Shard]:
        units = self.units(stage)
        todo = [
            Job(key, 0, [vars(unit)], rows_to_read(step, self.recipe.steps, self.shares.get(key)))
            for owner, (key, unit) in enumerate(units.items(), self.units_dealt)
            if self.is_mine(owner) and self.store.unit_shards(step.name, key) is None
        ]
        self.progress.begin(stage.label, len(units), len(units) - len(todo))
        written: dict[str, list[str]] = {}
        for job, _, result in self.executor.run(step, self.context, iter(todo)):
            parts = written.setdefault(job.shard, [])
            parts[result.part :] = [self._commit_part(step, job, result)]
            if not result.more:
                self.store.commit_unit(step.name, job.shard, written.pop(job.shard))
                self.progress.advance(1, 0)
        shards = []
        for owner, (key, unit) in enumerate(units.items(), self.units_dealt):
            if self.store.unit_shards(step.name, key) is None:
                self.waiting.append(f"{step.name} {unit.label}")
            for shard in self._shards_of(step, key, owner):
                self._done(step, shard.key)
                stage.manifests.append(self.store.finished(step.name, shard.key))
                shards.append(shard)
        self.units_dealt += len(units)
        self.progress.end(stage)
        return shards

    def _commit_part(self, step: SourceStep, job: Job, result: Result) -> str:
        """Write a part of a unit as a shard, and return its key."""
        for failure in (x for x in result.lost if x.fate == "failed"):
            if failure.evidence.get("error") == "SourceError":
                raise SourceError(failure.evidence["message"])
            said = [failure.evidence.get(name) for name in ("error", "message", "signal")]
            why = ": ".join(str(word) for word in [failure.reason, *filter(None, said)])
            raise SourceError(f"{step.name} {job.items[0]['label']}: cannot be read ({why})")
        key = digest(job.shard, result.part)
        kept, lost = rows_table(result.kept), lost_table(result.lost)
        seen = len(result.kept) + len(result.lost)
        went_on = len(result.kept)
        facts = self.facts(step, [result])
        self.store.commit(step.name, key, None, kept, lost, seen=seen, went_on=went_on, **facts)
        return key

    # --- row steps --------------------------------------------------------------------------

    def shard_key(self, step: Step, shard: Shard) -> str:
        """Return the key of what a row step makes of a shard."""
        return digest(identity(step, self.recipe.seed), shard.key)

    def _finished(
        self, step: RowStep, pairs: list[tuple[Manifest, Shard]]
    ) -> tuple[list[Manifest | None], list[Manifest]]:
        """Return the manifests of a step's shards, given each with the manifest of the one before
        it, None of one that is to be made; and, if there is one, all that the step has made.

        What was made of the same rows is taken for done, whatever steps made those; not what was
        cut off at a limit, or is to be.
        """
        done = [self._done(step, new.key, source) for source, new in pairs]
        cuts = ends_raw(step)
        may = [not cuts or new.most is None for _, new in pairs]
        wanted = [place for place, known in enumerate(done) if not known and may[place]]
        if not wanted:
            return done, []
        now = identity(step, self.recipe.seed)
        made = self.store.made_alike(step.name, lambda key: digest(now, key))
        by_rows = {manifest.input_sha256: manifest for manifest in made}
        for place in wanted:
            source, new = pairs[place]
            old = by_rows.get(source.output_sha256)
            if old and self.store.adopt(old, new.key, source.key):
                done[place] = self._done(step, new.key, source)
        return done, made

    def _run_row_step(self, stage: Stage, step: RowStep, shards: list[Shard]) -> list[Shard]:
        made = self.known_shards(stage, shards)
        mine = [i for i, shard in enumerate(made) if self.is_mine(shard.owner)]
        inputs = [self.input_manifest(shards[i]) for i in mine]
        sizes = [touched(step, manifest) for manifest in inputs]
        pairs = list(zip(inputs, (made[i] for i in mine), strict=True))
        cached, alike = self._finished(step, pairs)
        todo = [(shards[i], made[i]) for i, done in zip(mine, cached, strict=True) if not done]
        # One of several processes may have all rows that fail.
        others = [s for s, new in zip(shards, made, strict=True) if not self.is_mine(new.owner)]
        known = filter(None, (self.store.manifest(s.step, s.key) for s in others))
        rows = sum(sizes) + sum(touched(step, manifest) for manifest in known)
        budget = Budget(stage.label, step.max_error_rate, rows)
        for manifest in filter(None, cached):
            budget.spend(manifest.failed)
        befores = {source.step for source, _ in todo}
        earlier = Earlier(self.store, befores, alike if step.batch <= FEW_AT_ONCE else [])
        work = _Work(self, step, budget, earlier)
        already = sum(size for size, done in zip(sizes, cached, strict=True) if done)
        self.progress.begin(stage.label, sum(sizes), already)
        for job, index, result in self.executor.run(step, self.context, work.jobs(todo)):
            work.take(job, index, result)
        stage.manifests = [self.input_manifest(made[i]) for i in mine]
        self.progress.end(stage)
        return made

    def input_manifest(self, shard: Shard) -> Manifest:
        """Return the manifest of a shard that is done."""
        return self.store.finished(shard.step, shard.key)

    # --- table steps ------------------------------------------------------------------------

    def table_keys(self, step: TableStep, shards: list[Shard]) -> list[str]:
        """Return the keys of what a table step makes of its shards: each depends on them all."""
        whole = digest(identity(step, self.recipe.seed), [s.key for s in shards])
        return [digest(whole, shard.key) for shard in shards]

    def _run_table_step(self, stage: Stage, step: TableStep, shards: list[Shard]) -> list[Shard]:
        here = [s for s in shards if self.store.manifest(s.step, s.key)]
        if len(here) < len(shards) or self.waiting:
            self._summarize(stage, step, [s for s in here if self.is_mine(s.owner)])
            missing = self.waiting[:3] or [f"{len(shards) - len(here)} of {len(shards)} shards"]
            if more := len(self.waiting[3:]):
                missing.append(f"{more} more")
            raise OthersFirst(
                f"step {stage.label} needs what falls to others ({', '.join(missing)}); when all "
                "have ended, run them again"
            )
        made = self.known_shards(stage, shards)
        pairs = [pair for pair in zip(shards, made, strict=True) if self.is_mine(pair[1].owner)]
        if not all(self._done(step, new.key, self.input_manifest(old)) for old, new in pairs):
            keys = self._summarize(stage, step, shards)
            verdicts = judge(step, keys, self.context)
            start = 0
            for shard, target in zip(shards, made, strict=True):
                size = touched(step, self.input_manifest(shard))
                if self.is_mine(target.owner):
                    manifest = self._apply(step, shard, target, verdicts[start : start + size])
                    self.progress.advance(0, manifest.seen - manifest.kept)
                start += size
        else:
            total = sum(self.input_manifest(shard).emitted for shard in shards)
            self.progress.begin(stage.label, total, total)
        mine = [shard for shard in made if self.is_mine(shard.owner)]
        stage.manifests = [self.input_manifest(shard) for shard in mine]
        self.progress.end(stage)
        return made

    def _summarize(self, stage: Stage, step: TableStep, shards: list[Shard]) -> list[str]:
        """Make the summaries of some shards that are not there yet; return the keys of all."""
        keys = [self.shard_key(step, shard) for shard in shards]
        inputs = [self.input_manifest(shard) for shard in shards]
        sizes = {key: source.emitted for source, key in zip(inputs, keys, strict=True)}
        todo = [
            Summary(source.step, source.key, key)
            for source, key in zip(inputs, keys, strict=True)
            if not self.store.has_summary(step.name, key, source)
        ]
        rows = sum(sizes[summary.target] for summary in todo)
        self.progress.begin(stage.label, sum(sizes.values()), sum(sizes.values()) - rows)
        if rows <= FEW_ROWS:
            step.setup(self.context)
            for summary in todo:
                summarize(step, summary, self.context)
                self.progress.advance(sizes[summary.target], 0)
            return keys
        jobs = (Job(summary.target, 0, [vars(summary)]) for summary in todo)
        for job, _, result in self.executor.run(step, self.context, jobs):
            if result.lost:  # our own code: never a fault of a row
                raise RunError(f"step {step.name}: {result.lost[0].evidence}")
            self.progress.advance(sizes[job.shard], 0)
        return keys

    def _apply(
        self, step: TableStep, shard: Shard, target: Shard, verdicts: pl.DataFrame
    ) -> Manifest:
        source = self.input_manifest(shard)
        decided = decide(self.store.rows(shard.step, shard.key), verdicts)
        return self.store.commit(
            step.name,
            target.key,
            source,
            decided.kept,
            decided.lost,
            seen=source.emitted,
            went_on=len(decided.kept),
            untouched=decided.untouched,
            **self.facts(step),
        )

    # --- planning ---------------------------------------------------------------------------

    def missing(self, stage: Stage, shards: list[Shard]) -> int:
        """Return how many shards of a stage are to be made from the shards before it."""
        step = stage.step
        if isinstance(step, SourceStep):
            return sum(self.store.unit_shards(step.name, key) is None for key in self.units(stage))
        made = self.known_shards(stage, shards)
        return sum(self.store.manifest(shard.step, shard.key) is None for shard in made)

    def known_shards(self, stage: Stage, shards: list[Shard]) -> list[Shard]:
        """Return the shards that a finished stage gives, without making any."""
        step = stage.step
        if isinstance(step, SourceStep):
            return shards + [s for key in self.units(stage) for s in self._shards_of(step, key)]
        if isinstance(step, TableStep):
            # Dealt anew: what a unit has left after a table step says nothing of the work to come.
            keys = self.table_keys(step, shards)
            return [
                Shard(step.name, key, owner, shard.most)
                for owner, (key, shard) in enumerate(zip(keys, shards, strict=True))
            ]
        return [replace(s, step=step.name, key=self.shard_key(step, s)) for s in shards]


def _begins_as(before: list[Record], records: list[Record]) -> bool:
    """Say whether a run does what the one before it did; the last stage's shards are to come."""
    last = len(records) - 1
    return (
        before[:last] == records[:last]
        and len(before) > last
        and replace(before[last], shards=[]) == replace(records[last], shards=[])
    )


@dataclass
class _Pending:
    """A shard that is being made: its rows, and the results that have come in."""

    source: Shard
    target: Shard
    rows: list[Loose]
    touched: list[int]
    results: list[Result | None]
    partial: Partial
    waiting: int  # results that have not come in
    begun: float  # on the monotonic clock, seconds
    most: int | None  # rows to keep, of those that are touched
    code: str  # digest of the code that gave the results, or some of them

    def keep(self, place: int, result: Result) -> None:
        """Take in a result, and let it outlast the run if the shard takes long."""
        self.results[place] = result
        self.waiting -= 1
        if self.partial.has_begun:
            self.partial.add(place, result)
        elif time.monotonic() - self.begun > PATIENCE_S:
            self.partial.begin({i: known for i, known in enumerate(self.results) if known})

    def cut(self) -> int:
        """Drop what is behind the limit once it is reached; return how many rows had no result."""
        rows, waiting = [self.rows[i] for i in self.touched], self.waiting
        if self.most is None or not cut(rows, self.results, self.most):
            return 0
        self.waiting = 0
        return waiting

    def kept(self) -> list[Loose]:
        """Return the rows that go on, in order; those that the step does not look at as well."""
        results = dict(zip(self.touched, self.results, strict=True))
        kept: list[Loose] = []
        for i, row in enumerate(self.rows):
            result = results.get(i)
            kept += result.kept if result else [row]
        return kept


class _Work:
    """Cuts shards into jobs and puts results together again, a few shards at a time."""

    def __init__(self, walk: Walk, step: RowStep, budget: Budget, earlier: Earlier) -> None:
        self.walk, self.step, self.budget, self.earlier = walk, step, budget, earlier
        self.pending: dict[str, _Pending] = {}

    def jobs(self, todo: list[tuple[Shard, Shard]]) -> Iterator[Job]:
        """Yield jobs shard by shard; a shard with nothing for the step is written at once."""
        for source, target in todo:
            pending = self._open(source, target)
            self.pending[target.key] = pending
            if not pending.waiting:
                self._commit(pending)
                continue
            missing = [place for place, known in enumerate(pending.results) if not known]
            for start, stop in _spans(missing, self.step.batch):
                if target.key not in self.pending:
                    break  # the limit is reached
                part = [pending.rows[i] for i in pending.touched[start:stop]]
                yield Job(target.key, start, part)

    def _open(self, source: Shard, target: Shard) -> _Pending:
        """Return a shard with its rows and with what an interrupted run has left of it."""
        rows = self.walk.store.rows(source.step, source.key).to_pylist()
        touched = [i for i, row in enumerate(rows) if row["kind"] in self.step.takes]
        path = self.walk.store.partial_path(self.step.name, target.key)
        code = code_digest(type(self.step))
        partial = Partial(path, code)
        known = self._known(partial, {place: rows[i] for place, i in enumerate(touched)})
        if known:
            partial.begin(known)
        others = {place: rows[i] for place, i in enumerate(touched) if place not in known}
        earlier = self.earlier.find(others)
        known |= {place: one.result for place, one in earlier.items()}
        known |= self._published({i: row for i, row in others.items() if i not in known})
        code = next((one.code for one in earlier.values() if one.code != code), code)
        self.walk.note_code(self.step, code)
        results = [known.get(place) for place in range(len(touched))]
        waiting, begun = len(touched) - len(known), time.monotonic()
        most = source.most if ends_raw(self.step) else None
        pending = _Pending(
            source, target, rows, touched, results, partial, waiting, begun, most, code
        )
        cut_off = pending.cut()
        lost = sum(len(result.lost) for result in known.values())
        self.walk.progress.advance(len(known) + cut_off, lost + cut_off)
        return pending

    def _published(self, rows: dict[int, Loose]) -> dict[int, Result]:
        """Return what data sets that the user named say of rows."""
        found: dict[int, Result] = {}
        steps: list[Step] = list(self.walk.recipe.steps)
        behind = steps[steps.index(self.step) + 1 :]
        later = frozenset(column for step in behind for column in step.sets)
        for data_set in self.walk.known:
            rest = {place: row for place, row in rows.items() if place not in found}
            found |= data_set.find(self.step, self.walk.recipe.seed, rest, later)
        if found:
            self.walk.taken_over[self.step.name] += len(found)
        return found

    def _known(self, partial: Partial, rows: dict[int, Loose]) -> dict[int, Result]:
        """Return the results of an interrupted run that are as a worker could have given them."""
        found = partial.read(rows)
        sound = {
            place: result
            for place, result in found.items()
            if checked_result(self.step, rows[place], result) is result
            and not any(map(is_row, result.kept))
        }
        if bad := partial.damaged + len(found) - len(sound):
            self.walk.progress.warn(
                f"{partial.path}: {bad} damaged lines; what they held is done again"
            )
        return sound

    def take(self, job: Job, index: int, result: Result) -> None:
        """Take in one row's result; write the shard when it was the last."""
        pending = self.pending.get(job.shard)
        if pending is None:
            return  # the limit was reached while it was under way
        checked = checked_result(self.step, job.items[index], result)
        pending.keep(job.start + index, checked)
        self._spend(checked)
        cut_off = pending.cut()
        self.walk.progress.advance(1 + cut_off, len(checked.lost) + cut_off)
        if not pending.waiting:
            self._commit(pending)

    def _spend(self, result: Result) -> None:
        for lost in (x for x in result.lost if x.fate == "failed"):
            self.budget.spend({lost.reason: 1}, last=lost)

    def _commit(self, pending: _Pending) -> None:
        try:
            kept = rows_table(pending.kept())
        except ValueError:
            self._fail_misfits(pending)
            kept = rows_table(pending.kept())
        results = list(filter(None, pending.results))
        untouched = len(pending.rows) - len(pending.touched)
        self.walk.store.commit(
            self.step.name,
            pending.target.key,
            self.walk.input_manifest(pending.source),
            kept,
            lost_table([lost for result in results for lost in result.lost]),
            seen=len(pending.rows),
            went_on=untouched + sum(bool(result.kept) for result in results),
            untouched=untouched,
            **self.walk.facts(self.step, results) | {"code": pending.code},
        )
        pending.partial.remove()
        del self.pending[pending.target.key]

    def _fail_misfits(self, pending: _Pending) -> None:
        """Put a failure in the place of each result with a row that does not fit the schema."""
        for place, (i, result) in enumerate(zip(pending.touched, pending.results, strict=True)):
            assert result
            if problem := next(filter(None, map(is_row, result.kept)), None):
                failure = bad_row(pending.rows[i], problem)
                pending.results[place] = failure
                self._spend(failure)


def _spans(places: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of runs of places that follow on one another."""
    start = 0
    for at in range(1, len(places) + 1):
        is_last = at == len(places)
        if is_last or places[at] != places[at - 1] + 1 or at - start == most:
            yield places[start], places[at - 1] + 1
            start = at


def checked_result(step: RowStep, row: Loose, result: Result) -> Result:
    """Return a result, or a failure where a worker's answer cannot be trusted.

    What ran in the sandbox may have lied about anything but itself, so its license and its place
    of origin must be those that the row had before. Whether rows fit the schema is found out when
    their shard is written, of all at once.
    """
    problem = None
    if step.sandboxed and not all(_same_papers(made, row) for made in result.kept):
        problem = "license or origin changed in the sandbox"
    if not result.kept and not result.lost:
        problem = "the step gave nothing"
    if result.kept and result.lost:
        problem = "the step both kept and dropped the row"
    if len(result.lost) > 1:
        problem = "the step lost the row more than once"
    return bad_row(row, problem) if problem else result


def bad_row(row: Loose, problem: str) -> Result:
    """Return the failure of a row for which a step gave what is no row."""
    return Result([], [Lost(row, "failed", "bad_row", {"message": problem})])


def _same_papers(made: Loose, row: Loose) -> bool:
    origin = made.get("origin")
    return (
        isinstance(origin, dict)
        and made.get("license") == row["license"]
        and all(origin.get(name) == row["origin"][name] for name in SAME_FROM_SANDBOX)
    )


def touched(step: RowStep | TableStep, shard: Manifest) -> int:
    """Return how many rows of a shard a step looks at."""
    return sum(shard.kinds.get(kind, 0) for kind in step.takes)


def find_stage(stages: list[Stage], label: str) -> int:
    """Return a stage's position.

    Raises:
        NoSuchStep: no stage, or more than one, is called so.
    """
    found = [i for i, s in enumerate(stages) if label in (s.label, s.step.name)]
    if len(found) != 1:
        labels = [stage.label for stage in stages]
        raise NoSuchStep(f"the recipe has no single step '{label}'{choose(label, labels)}")
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
