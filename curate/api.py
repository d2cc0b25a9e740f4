"""The commands as functions: what `curate X` does, ``curate.api.x`` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.candidates import read_candidates as read_candidates
from curate.engine.executor import Executor, ExecutorUnavailable, WorkerError
from curate.engine.lock import Busy, hold
from curate.engine.mend import mending
from curate.engine.processes.local import LocalExecutor
from curate.engine.processes.sandbox import SandboxUnavailable, bubblewrap
from curate.engine.prune import Unfinished, needless
from curate.engine.prune import cache_parts as cache_parts
from curate.engine.prune import total_size as total_size
from curate.engine.published import Published
from curate.engine.records import TRIAL, Record, read_records, run_names
from curate.engine.run import NoSuchStep, OthersFirst, Progress, RunError, Stage, Walk
from curate.engine.store import LedgerError, Store, sweep_output
from curate.evaluate.evaluate import evaluate as evaluate
from curate.files import Damaged, InputError, remove
from curate.formats.dataset.replace import InTheWay, check_place
from curate.generate.generate import generate_triton as generate_triton
from curate.generate.models import ModelError
from curate.licenses.optout import OptOutError, parse_optout
from curate.publish.analysis.errors import NoRun, PushFailed, PushRefused
from curate.recipe import Recipe, RecipeError, json_schema, load_recipe
from curate.shipped.copy import CannotCopy
from curate.shipped.copy import copy_recipe as copy_recipe
from curate.shipped.find import descriptions as descriptions
from curate.step import RowStep, SourceError, StepError, TableError
from curate.teacher.answers import TokenUsage, total_usage
from curate.teacher.teacher import UNANSWERED
from curate.train.train import train as train
from curate.verify import CannotJudge, Options, Tally, Verdict, label, merge_files, write_entries
from curate.verify import shard as take_shard
from curate.wording import choose, did_you_mean

if TYPE_CHECKING:
    from curate.clean.fingerprint import Made
    from curate.engine.history import Losses, RowEvent
    from curate.engine.plan import PlanLine
    from curate.licenses.relicensing import Checked
    from curate.pin import Pinned
    from curate.publish.diff import Diff
    from curate.publish.pushed import Pushed
    from curate.publish.removal import Removal
    from curate.rows import Loose


class NotFound(Exception):
    """There is no run, step or row of that name."""


USER_ERRORS = (
    RecipeError,
    CannotCopy,
    Unfinished,
    SourceError,
    StepError,
    TableError,
    InputError,
    NotFound,
    NoRun,
    PushRefused,
    OptOutError,
    ModelError,
    NoSuchStep,
    Damaged,
    Busy,
    InTheWay,
    CannotJudge,
)
STOPPED = (
    RunError,
    WorkerError,
    SandboxUnavailable,
    ExecutorUnavailable,
    PushFailed,
    LedgerError,
)


@dataclass(frozen=True)
class Done:
    """A finished run.

    Attributes:
        stages: one per step that was run, with its counts.
        folder: of the data set; None if none was written.
        record: what the data set's ``run.json`` holds.
        why_none: why there is no data set.
        asked: what teachers were asked in this run; None if the recipe has no teacher.
    """

    stages: list[Stage]
    folder: Path | None = None
    record: dict[str, Any] | None = None
    why_none: str = ""
    asked: TeacherUse | None = None
    taken_over: dict[str, int] = field(default_factory=dict)

    def summary(self) -> Iterator[str]:
        """Yield the closing lines that `curate run` prints."""
        if self.asked:
            yield self.asked.line()
        for step, rows in self.taken_over.items():
            yield f"{step}: {rows:,} rows as the data set of --known has them"
        if self.folder is None or self.record is None:
            yield f"{self.why_none}; no data set is written"
            return
        from curate.formats.dataset.write import data_sha256, row_counts, trial_options

        yield from row_counts(self.record)
        for config, splits in self.record["leakage"].items():
            alike = sum(counts["split_overlap"]["rows"] for counts in splits.values())
            if alike:
                yield f"{config}: {alike} rows share most words with a row of another split"
        for reason, n in self.record["unwritten"].items():
            yield f"not written: {n} rows, {reason}"
        if trial := " ".join(trial_options(self.record)):
            yield f"a trial run ({trial}): the data of the recipe as written is left as it is"
        yield f"data: {self.folder}  sha256 {data_sha256(self.record)}"


@dataclass(frozen=True)
class TeacherUse:
    """What a run asked of teachers.

    Attributes:
        used: requests and tokens since it began; with --shard, also those of other processes.
        known: answers that the cache already held.
    """

    used: TokenUsage
    known: int

    def line(self) -> str:
        """Return the figures as `curate run` prints them."""
        tokens = self.used.prompt_tokens + self.used.completion_tokens
        cost = f", cost {self.used.cost:.4f}" if self.used.cost else ""
        return (
            f"teacher: {self.used.requests:,} requests made, {self.known:,} answers from the "
            f"cache, {tokens:,} tokens{cost}"
        )


@contextmanager
def make_executor(
    name: str, workers: int | None = None, sandbox: bool = True, address: str | None = None
) -> Iterator[Executor]:
    """Give the executor ``local`` or ``ray``, and close it at the end.

    Args:
        name: ``local`` or ``ray``.
        workers: number of worker processes; by default one per core.
        sandbox: whether other people's code runs in a sandbox.
        address: of the Ray cluster.

    Raises:
        ExecutorUnavailable: Ray is not installed, or does not answer.
    """
    if name == "local":
        with LocalExecutor(workers or os.cpu_count() or 1, sandbox) as local:
            yield local
        return
    from curate.engine.processes.ray import RayExecutor

    ray = RayExecutor(address, sandbox, workers)
    try:
        yield ray
    finally:
        ray.close()


def run(
    recipe: Path,
    *,
    settings: tuple[str, ...] = (),
    limit: int | None = None,
    output: Path = Path("output"),
    until: str | None = None,
    only: str | None = None,
    executor: Executor | None = None,
    share: tuple[int, int] = (1, 1),
    known: tuple[Path, ...] = (),
    progress: Progress | None = None,
) -> Done:
    """Make the data set that a recipe describes; the options are those of `curate run`.

    Args:
        recipe: path of the recipe.
        settings: ``path=value`` texts that replace values of the recipe.
        limit: most problems or kernels of each source, spread over its units. With it or with
            ``settings``, the run is a trial: its name is the recipe's with ``.trial``, and so is
            its folder's.
        output: folder for data and cache.
        until: label of the step to stop after.
        only: label of the one step to run.
        executor: what does the work; by default one process on this machine.
        share: (2, 8) for the second of eight processes that share the run and its folder.
        known: folders of data sets whose verdicts and compilations are taken over for pairs that
            are the same, where step, options and tools are.
        progress: is told how the run goes.

    Raises:
        RecipeError, SourceError, TableError: the recipe or a source is wrong.
        StepError: a step cannot work at all, such as `teacher` without a key.
        NoSuchStep: ``until`` or ``only`` names no step, or one that cannot be run yet.
        RunError: the run stopped; finished work is kept.
        SandboxUnavailable: other people's code would run, but there is no sandbox.
        Busy: another run is writing to the output folder.
        InTheWay: a link or a file is where the data set is to be written.
        CannotWrite: the operating system refused.
        InputError, Damaged: a folder of ``known`` holds no data set, or not as it was written.
    """
    loaded = load_recipe(recipe, settings)
    executor = executor or LocalExecutor(1)
    if executor.sandbox and any(
        isinstance(step, RowStep) and step.sandboxed for step in loaded.steps
    ):
        bubblewrap()
    published = tuple(map(Published, known))
    walk = Walk(loaded, output, executor, limit, progress, share, settings, published)
    check_place(walk.folder)
    with hold(output, shared=not walk.is_alone):
        if walk.is_alone:
            sweep_output(output)
        before = total_usage(output)
        return mending(walk, lambda: _run(walk, only, until, before))


def _run(walk: Walk, only: str | None, until: str | None, before: TokenUsage) -> Done:
    """Run the steps of a recipe that are asked for, and write the data set if all are done."""
    try:
        stages = walk.run(only=only, until=until)
    except OthersFirst as others:
        return Done([], why_none=str(others))
    asked = _asked(stages, before, total_usage(walk.output))
    done = Done(stages, asked=asked, taken_over=dict(walk.taken_over))
    if len(stages) < len(walk.stages()) or only:
        return replace(done, why_none=f"stopped after {stages[-1].label}")
    if not walk.is_alone:
        return replace(done, why_none="this part is done; when all are, run without --shard")
    from curate.formats.dataset.write import read_run, write_dataset
    from curate.publish.report.report import REPORT_FILE, write_report

    record = write_dataset(
        walk, stages, lambda folder: write_report(walk.output, walk.name, folder)
    )
    if REPORT_FILE not in record["files"]:
        write_report(walk.output, walk.name)
    return replace(done, folder=walk.folder, record=read_run(walk.folder))


def _asked(stages: list[Stage], before: TokenUsage, after: TokenUsage) -> TeacherUse | None:
    """Return what a run asked of teachers, from the usage before and after it."""
    teachers = [stage for stage in stages if stage.step.name == "teacher"]
    if not teachers:
        return None
    wanted = sum(
        stage.total("seen")
        - stage.total("untouched")
        - sum(stage.reasons("failed").values())
        - sum(stage.reasons("dropped").get(reason, 0) for reason in UNANSWERED)
        for stage in teachers
    )
    used = after - before
    return TeacherUse(used, max(0, wanted - used.answers))


def plan(
    recipe: Path,
    *,
    settings: tuple[str, ...] = (),
    limit: int | None = None,
    output: Path = Path("output"),
) -> list[PlanLine]:
    """Return what a run would do, one line per step."""
    from curate.engine.plan import plan as plan_walk

    loaded = load_recipe(recipe, settings)
    return plan_walk(Walk(loaded, output, LocalExecutor(1), limit, settings=settings))


def pin(recipe: Path, packages: Sequence[str]) -> list[Pinned]:
    """Pin packages in a recipe; see `curate.pin.pin`."""
    from curate.pin import pin as pin_packages

    return pin_packages(recipe, packages)


def check(recipe: Path, *, settings: tuple[str, ...] = ()) -> Recipe:
    """Read a recipe; raise `RecipeError` with every mistake in it."""
    return load_recipe(recipe, settings, whole=True)


def why(
    row_id: str, *, output: Path = Path("output"), run: str | None = None
) -> tuple[str, list[RowEvent]]:
    """Return a row's full id and its history.

    Raises:
        NotFound: no row, or more than one, has an id that starts with ``row_id``.
    """
    from curate.engine.history import find_ids, history

    store, records = Store(output), _records(output, run)
    found = find_ids(store, records, row_id)
    if len(found) != 1:
        some = f"{len(found)} rows have ids that start" if found else "no row has an id that starts"
        raise NotFound(f"{some} with '{row_id}' {', '.join(found[:5])}".rstrip())
    return found[0], history(store, records, found[0])


def lost(
    step: str, *, output: Path = Path("output"), run: str | None = None, reason: str | None = None
) -> list[Loose]:
    """Return the rows that a step dropped or failed on.

    Args:
        step: its label, such as ``dedupe#2``; its name will do where the run has one such step.
        output: folder for data and cache.
        run: recipe name; by default the last run.
        reason: return only rows that were lost for this reason.

    Raises:
        NotFound: there is no such run or step, or it lost no row for this reason.
    """
    from curate.engine.history import losses as losses_of
    from curate.engine.history import lost_rows

    store, record = Store(output), _record(_records(output, run), step)
    counts = losses_of(store, record)
    if reason is not None and reason not in counts.reasons:
        near = did_you_mean(reason, counts.reasons)
        known = ", ".join(f"{name} {n}" for name, n in counts.reasons.items())
        raise NotFound(
            f"step {record.label} lost no row for the reason '{reason}'{near or ';'} "
            + (f"its reasons are {known}" if known else "it lost no row at all")
        )
    return list(lost_rows(store, record, reason))


def losses(*, output: Path = Path("output"), run: str | None = None) -> list[Losses]:
    """Return how many rows each step of a run lost, and why.

    Raises:
        NotFound: there is no such run.
    """
    from curate.engine.history import losses as losses_of

    store = Store(output)
    return [losses_of(store, record) for record in _records(output, run)]


def _record(records: list[Record], step: str) -> Record:
    """Return the record of a step, given by its label, or by its name where one has that name."""
    found = [record for record in records if record.label == step]
    found = found or [record for record in records if record.step == step]
    if len(found) == 1:
        return found[0]
    if found:
        labels = ", ".join(record.label for record in found)
        raise NotFound(f"the run has {len(found)} steps '{step}': say which of {labels}")
    near = choose(step, [record.label for record in records])
    raise NotFound(f"the run has no step '{step}'{near}")


def show(
    row_id: str | None = None,
    *,
    output: Path = Path("output"),
    run: str | None = None,
    count: int = 1,
) -> list[Loose]:
    """Return finished pairs, kernels and answers: those whose id starts with ``row_id``, or the
    first ``count`` without one.

    They are those of a run, or, where there is none, of the data sets in ``output``, as in a clone
    of a repository that has some.
    """
    names = run_names(output)
    has_run = run in names if run else bool(names)
    rows = _run_rows(output, run) if has_run else _data_set_rows(output, run)
    if row_id is None:
        found = list(islice(rows, count))
    else:
        found = [row for row in rows if row["id"].startswith(row_id)]
    if not found:
        hint = f"; `curate why {row_id}` tells what became of the row" if has_run else ""
        raise NotFound(
            f"no finished pair, kernel or answer has an id that starts with '{row_id}'{hint}"
            if row_id
            else "the last run has no finished pairs, kernels or answers"
        )
    return found


def _run_rows(output: Path, run: str | None) -> Iterator[Loose]:
    from curate.engine.history import last_rows

    return last_rows(Store(output), _records(output, run), frozenset({"pair", "kernel", "sample"}))


def _data_set_rows(output: Path, run: str | None) -> Iterator[Loose]:
    from curate.formats.dataset.read import finished_rows

    names = _data_sets(output)
    if not names:
        _last_run(output, run)  # says that there is nothing
    if run is not None and run not in names:
        known = sorted({*names, *run_names(output)})
        raise NotFound(f"{output} has no run or data set '{run}'{choose(run, known)}")
    folders = [output / name for name in ([run] if run else names)]
    return chain.from_iterable(map(finished_rows, folders))


def verify(
    paths: Sequence[Path],
    *,
    reference: Path | None = None,
    output: Path | None = None,
    shard: tuple[int, int] = (1, 1),
    options: Options | None = None,
    report: Callable[[Tally], None] = lambda tally: None,
) -> list[Verdict]:
    """Judge the candidates that files hold; the arguments are those of `curate verify`.

    To judge candidates in memory, use `curate.verify.judge.slots.verify`.

    Raises:
        InputError: a file is malformed.
        CannotJudge: this machine lacks the device or the sandbox.
    """
    candidates = take_shard(read_candidates(paths, reference), *shard)
    return label(candidates, options or Options(), output, report)


def merge(path: Path, verdicts: Sequence[Path], *, output: Path) -> list[Verdict]:
    """Merge the verdicts of all shards into one file, and return them.

    Raises:
        InputError: a candidate has no verdict, or two that differ.
    """
    entries = merge_files(read_candidates([path]), verdicts)
    write_entries(output, entries)
    return [entry.verdict for entry in entries]


def fingerprint(
    paths: Sequence[Path],
    *,
    name: str,
    version: str | None = None,
    url: str | None = None,
    license: str | None = None,
    output: Path,
) -> Made:
    """Write a benchmark's fingerprints to a file; the arguments are those of `curate fingerprint`.

    Raises:
        InputError: a file cannot be read or written, or holds no programs.
    """
    from curate.clean.fingerprint import make_fingerprints, write_benchmark

    made = make_fingerprints(paths, name, version, url, license)
    write_benchmark(output, made.benchmark)
    return made


def schema() -> dict[str, Any]:
    """Return the JSON Schema of recipes."""
    return json_schema()


def prompts() -> str:
    """Return every family of prompts on one small example, as Markdown."""
    from curate.teacher.page import page

    return page()


def _records(output: Path, run: str | None) -> list[Record]:
    return read_records(output, _last_run(output, run))


def _last_run(output: Path, run: str | None) -> str:
    """Return the name of a run; without one, that of the last run."""
    names = run_names(output)
    if run is not None and run not in names:
        raise NotFound(f"{output} has no run of '{run}'{choose(run, names)}")
    if not names:
        raise NotFound(f"{output} holds no run yet; `curate run RECIPE` makes one")
    return run or names[-1]


def _last_full_run(output: Path) -> str:
    """Return the name of the last run that is no trial; of the last trial if there is no other."""
    full = [name for name in run_names(output) if not name.endswith(TRIAL)]
    return full[-1] if full else _last_run(output, None)


# --- push ---------------------------------------------------------------------------------------


def push(
    repo: str,
    *,
    output: Path = Path("output"),
    run: str | None = None,
    branch: str | None = None,
    pr: bool = False,
    private: bool = False,
    tag: str | None = None,
    replace: bool = False,
    dry_run: bool = False,
) -> Pushed:
    """Push a finished data set to the Hugging Face Hub; the arguments are those of `curate push`.

    Without ``run``, the last run is pushed that is no trial; a trial only if there is no other.

    Raises:
        NotFound: there is no such run, or it has not finished.
        PushRefused: the data may not be published, would take the place of other data, or the
            token or repository does not allow it.
        PushFailed: the Hub cannot be reached or failed, or somebody else changed it meanwhile.
    """
    from curate.publish import hub
    from curate.publish.remote import HubTarget

    folder, known = _finished(output, run)
    target = HubTarget(repo, branch or "main", pr, private, tag, replace)
    return (hub.rehearse if dry_run else hub.push)(folder, known, target)


# --- licenses -------------------------------------------------------------------------------------


def licenses(
    recipe: Path, *, settings: tuple[str, ...] = (), output: Path = Path("output")
) -> list[Checked]:
    """Return, per pin, whether newer versions of a recipe's sources have other license terms.

    Raises:
        RecipeError: the recipe is wrong.
    """
    from curate.licenses.relicensing import recheck

    return list(recheck(load_recipe(recipe, settings), output / "cache"))


# --- removal --------------------------------------------------------------------------------------


def optout(
    patterns: Sequence[str],
    *,
    output: Path = Path("output"),
    run: str | None = None,
    write: bool = False,
) -> Removal:
    """Return which rows of a finished run would go if their authors opted out.

    Args:
        patterns: entries of an opt-out list, such as ``owner: some-user``.
        output: folder for data and cache.
        run: name of a run; by default the last one that is no trial.
        write: add the entries for good to the list that the recipe reads.

    Raises:
        OptOutError: a pattern is not valid, or the list cannot be read or written.
        NotFound, NoRun: there is no such run, or it has not finished.
    """
    from curate.formats.dataset.write import check_data
    from curate.publish.removal import removal, write_entries

    entries = [parse_optout(pattern) for pattern in patterns]
    folder, known = _finished(output, run)
    check_data(folder, known)
    found = removal(folder, known, entries)
    if write:
        path, added = write_entries(known, entries)
        found = replace(found, path=path, added=added)
    return found


# --- cache ----------------------------------------------------------------------------------------


def prune(
    *, output: Path = Path("output"), agree: Callable[[dict[str, list[Path]]], bool]
) -> dict[str, list[Path]]:
    """Remove what no finished run needs from an output folder's cache; return what is gone.

    Args:
        output: folder for data and cache.
        agree: is called with what would go, by folder of the cache; False leaves it there.

    Raises:
        Unfinished: a run has not finished, or there is none: what is needed is not known.
        Damaged: a file of a run is not as it was written.
        Busy: a run is writing to the output folder.
    """
    with hold(output):
        found = needless(output)
        if not found or not agree(found):
            return {}
        for path in (path for paths in found.values() for path in paths):
            remove(path)
        return found


# --- report and diff ----------------------------------------------------------------------------


def report(*, output: Path = Path("output"), run: str | None = None) -> Path:
    """Write the report of a finished run alongside its data; return the path of ``report.html``.

    Raises:
        NotFound: there is no such run.
        NoRun: it has not finished.
        Busy: a run is writing to the output folder.
    """
    from curate.publish.report.report import write_report

    name = _last_run(output, run)
    with hold(output):
        return write_report(output, name)


def diff(old: str, new: str, *, output: Path = Path("output")) -> Diff:
    """Return what changed from one finished run to another.

    Args:
        old, new: names of runs in ``output``, or folders of data sets.
        output: folder for data and cache.

    Raises:
        NotFound: there is no such finished run.
    """
    from curate.publish.diff import diff as diff_folders

    return diff_folders(*(_data_folder(output, name) for name in (old, new)))


def _finished(output: Path, run: str | None) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a finished run's data set, and what its ``run.json`` holds."""
    from curate.formats.dataset.write import read_run

    name = run or _last_full_run(output)
    if Path(name).name != name:
        raise NotFound(f"'{name}' is a path; --run takes the name of a run, as {output} has it")
    folder = output / name
    known = read_run(folder)
    if known is None:
        near = did_you_mean(name, _data_sets(output)) or ";"
        raise NotFound(f"{folder} holds no finished run{near} `curate run RECIPE` finishes it")
    return folder, known


def _data_sets(output: Path) -> list[str]:
    """Return the names of the finished runs in an output folder."""
    return sorted(path.parent.name for path in output.glob("*/run.json"))


def _data_folder(output: Path, name: str) -> Path:
    """Return the folder of a data set, given by its path or by the name of its run."""
    folder = next((f for f in (Path(name), output / name) if (f / "run.json").exists()), None)
    if folder is None:
        near = choose(name, _data_sets(output), f"{output} has")
        raise NotFound(f"there is no finished run or data set '{name}'{near}")
    return folder
