"""What changed from one finished run to another: steps, options, versions, and rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from curate.formats.dataset.index import INDEX_FILE
from curate.formats.dataset.write import check_data, read_run
from curate.publish.analysis.errors import NoRun
from curate.publish.changes import Changes, compare

COUNTS = {"emitted": "rows out", "dropped": "dropped", "failed": "failed"}
IGNORED = ("label", "columns")  # of a step's identity: its place, and the form of all rows


@dataclass(frozen=True)
class Difference:
    """One value that differs; None where a run does not have it."""

    step: str
    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Diff:
    """What changed from one run to another.

    Attributes:
        old, new: folders of the runs.
        same_data: whether all data files are the same, byte for byte.
        counts: of rows, where a step's differ: rows out, and rows lost by reason.
        settings: options, versions and tools of steps, and the recipe's own values.
        configs: rows of a config's split.
        rows: ids added, removed and relabelled; None where a run has no index of its rows.
    """

    old: str
    new: str
    same_data: bool
    counts: list[Difference]
    settings: list[Difference]
    configs: list[Difference]
    rows: Changes | None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def diff(old: Path, new: Path) -> Diff:
    """Return what changed from one finished run to another.

    Args:
        old, new: folders that `curate run` wrote, or copies of them.

    Raises:
        NoRun: a folder holds no finished run.
        Damaged: a file of it is not as it was written.
    """
    a, b = _read(old), _read(new)
    return Diff(
        old=str(old),
        new=str(new),
        same_data=_data_files(a) == _data_files(b),
        counts=list(_differences(_counts(a), _counts(b))),
        settings=list(_differences(_settings(a), _settings(b))),
        configs=list(_differences(_configs(a), _configs(b))),
        rows=_rows(old, new),
    )


def _read(folder: Path) -> dict[str, Any]:
    run = read_run(folder)
    if run is None:
        raise NoRun(f"{folder} holds no finished run: it has no run.json")
    check_data(folder, run)
    return run


def _data_files(run: dict[str, Any]) -> dict[str, str]:
    return {path: sha for path, sha in run["files"].items() if path.endswith(".parquet")}


Values = dict[tuple[str, str], Any]
"""Values by step and name, in order."""


def _counts(run: dict[str, Any]) -> Values:
    found: Values = {}
    for line in run["ledger"]:
        for field, name in COUNTS.items():
            value = line[field]
            if isinstance(value, dict):
                found |= {(line["step"], f"{name} {reason}"): n for reason, n in value.items()}
            else:
                found[line["step"], name] = value
    return found


def _settings(run: dict[str, Any]) -> Values:
    found: Values = {("recipe", "limit"): run["limit"]}
    for name, value in run["recipe"].items():
        if name not in ("sources", "steps", "description"):
            found["recipe", name] = value
    for step in run["steps"]:
        for name, value in step.items():
            if isinstance(value, dict):
                found |= {(step["label"], f"{name}.{key}"): v for key, v in value.items()}
            elif name not in IGNORED:
                found[step["label"], name] = value
    return found


def _configs(run: dict[str, Any]) -> Values:
    return {
        (config, split): n
        for config, counts in run["configs"].items()
        for split, n in counts.items()
    }


def _differences(old: Values, new: Values) -> Iterator[Difference]:
    steps = list(dict.fromkeys(step for step, _ in (*old, *new)))
    for step, name in sorted({**old, **new}, key=lambda place: steps.index(place[0])):
        before, after = old.get((step, name)), new.get((step, name))
        if before != after:
            yield Difference(step, name, before, after)


def _rows(old: Path, new: Path) -> Changes | None:
    import polars as pl

    if not ((old / INDEX_FILE).exists() and (new / INDEX_FILE).exists()):
        return None
    return compare(pl.read_parquet(old / INDEX_FILE), pl.read_parquet(new / INDEX_FILE))
