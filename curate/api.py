"""The commands as functions: what `curate X` does, ``curate.api.x`` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.candidates import read_candidates
from curate.execute.protocol import WorkerError
from curate.execute.sandbox import SandboxUnavailable, bubblewrap
from curate.recipe import Recipe, RecipeError, json_schema, load_recipe
from curate.run import Progress, Record, RunError, Stage, Walk, read_journal
from curate.step import RowStep, SourceError
from curate.store import Store
from curate.verify.files import InputError
from curate.verify.files import shard as take_shard
from curate.verify.label import CannotJudge, Tally, label
from curate.verify.merge import merge as merge_files
from curate.verify.merge import write_entries
from curate.verify.verdict import Options, Verdict

if TYPE_CHECKING:
    from curate.clean.fingerprint import Made
    from curate.history import Event
    from curate.plan import PlanLine
    from curate.rows import Row


class NotFound(Exception):
    """No run, step or row is called so."""


USER_ERRORS = (RecipeError, SourceError, InputError, NotFound)
STOPPED = (RunError, WorkerError, SandboxUnavailable, CannotJudge)


@dataclass(frozen=True)
class Done:
    """A finished run.

    Attributes:
        stages: one for every step that was walked, with its counts.
        folder: where the data set lies; None if the run stopped before its last step.
        record: what the data set's ``run.json`` holds.
    """

    stages: list[Stage]
    folder: Path | None
    record: dict[str, Any] | None

    def summary(self) -> Iterator[str]:
        """Yield the closing lines that `curate run` prints."""
        if self.folder is None or self.record is None:
            yield f"stopped after {self.stages[-1].label}; no data set is written"
            return
        from curate.formats.write import data_sha256

        for config, counts in self.record["configs"].items():
            splits = ", ".join(f"{split} {n}" for split, n in counts.items())
            yield f"{config}: {splits} rows"
        for reason, n in self.record["unwritten"].items():
            yield f"not written: {n} rows, {reason}"
        yield f"data: {self.folder}  sha256 {data_sha256(self.record)}"


def run(
    recipe: Path,
    *,
    settings: tuple[str, ...] = (),
    limit: int | None = None,
    output: Path = Path("output"),
    sandbox: bool = True,
    until: str | None = None,
    only: str | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Done:
    """Make the data set that a recipe describes; the options are those of `curate run`.

    Raises:
        RecipeError, SourceError: the recipe or a source is wrong.
        RunError: the run stopped; what was done stays.
        SandboxUnavailable: other people's code would run and there is no sandbox.
    """
    from curate.execute.local import LocalExecutor

    loaded = load_recipe(recipe, settings)
    if sandbox and any(isinstance(step, RowStep) and step.sandboxed for step in loaded.steps):
        bubblewrap()
    walk = Walk(loaded, output, LocalExecutor(workers, sandbox), limit, progress)
    stages = walk.run(only=only, until=until)
    if len(stages) < len(walk.stages()) or only:
        return Done(stages, None, None)
    from curate.formats.write import write_dataset

    return Done(stages, walk.folder, write_dataset(walk, stages))


def plan(
    recipe: Path,
    *,
    settings: tuple[str, ...] = (),
    limit: int | None = None,
    output: Path = Path("output"),
) -> list[PlanLine]:
    """Return what a run would do, one line a step."""
    from curate.execute.local import LocalExecutor
    from curate.plan import plan as plan_walk

    return plan_walk(Walk(load_recipe(recipe, settings), output, LocalExecutor(1), limit))


def check(recipe: Path, *, settings: tuple[str, ...] = ()) -> Recipe:
    """Read a recipe; raise `RecipeError` with every mistake in it."""
    return load_recipe(recipe, settings)


def why(
    row_id: str, *, output: Path = Path("output"), run: str | None = None
) -> tuple[str, list[Event]]:
    """Return a row's full id and its history.

    Raises:
        NotFound: no row, or more than one, has an id that starts so.
    """
    from curate.history import find_ids, history

    store, records = Store(output), _journal(output, run)
    found = find_ids(store, records, row_id)
    if len(found) != 1:
        some = f"{len(found)} rows have ids that start" if found else "no row has an id that starts"
        raise NotFound(f"{some} with '{row_id}' {', '.join(found[:5])}".rstrip())
    return found[0], history(store, records, found[0])


def lost(
    step: str, *, output: Path = Path("output"), run: str | None = None, reason: str | None = None
) -> list[Row]:
    """Return the rows that a step dropped or failed on."""
    from curate.history import lost_rows

    records = {record.label: record for record in _journal(output, run)}
    if step not in records:
        raise NotFound(f"the run has no step '{step}'; it has {', '.join(records)}")
    return list(lost_rows(Store(output), records[step], reason))


def show(
    row_id: str | None = None,
    *,
    output: Path = Path("output"),
    run: str | None = None,
    count: int = 1,
) -> list[Row]:
    """Return finished pairs and kernels: the one whose id starts so, or the first ``count``."""
    from curate.history import last_rows

    rows = last_rows(Store(output), _journal(output, run), frozenset({"pair", "kernel"}))
    if row_id is None:
        found = list(islice(rows, count))
    else:
        found = [row for row in rows if row["id"].startswith(row_id)]
    if not found:
        raise NotFound(
            f"no finished pair or kernel has an id that starts with '{row_id}'; "
            f"`curate why {row_id}` tells what became of the row"
            if row_id
            else "the last run has no finished pairs or kernels"
        )
    return found


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

    To judge candidates that are in memory, take `curate.verify.judge.verify`.

    Raises:
        InputError: a file is not as it should be.
        CannotJudge: there is no such device here, or no sandbox.
    """
    candidates = take_shard(read_candidates(paths, reference), *shard)
    return label(candidates, options or Options(), output, report)


def merge(path: Path, verdicts: Sequence[Path], *, output: Path) -> list[Verdict]:
    """Write the verdicts of all shards to one file, if every candidate has one; return them.

    Raises:
        InputError: a verdict is missing, or two differ.
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
        InputError: a file cannot be read or written, or holds nothing that counts.
    """
    from curate.clean.fingerprint import make_fingerprints, write_benchmark

    made = make_fingerprints(paths, name, version, url, license)
    write_benchmark(output, made.benchmark)
    return made


def schema() -> dict[str, Any]:
    """Return the JSON Schema of recipes."""
    return json_schema()


def _journal(output: Path, run: str | None) -> list[Record]:
    runs = sorted((output / "cache" / "runs").glob("*.json"), key=lambda p: p.stat().st_mtime)
    names = [path.stem for path in runs]
    if run is not None and run not in names:
        raise NotFound(f"{output} has no run of '{run}'; it has {', '.join(names) or 'none'}")
    if not names:
        raise NotFound(f"{output} holds no run yet; `curate run RECIPE` makes one")
    return read_journal(output, run or names[-1])
