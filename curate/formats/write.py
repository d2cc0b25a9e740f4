"""Write a finished run as a data set that `datasets.load_dataset(folder, config)` opens.

<output>/<recipe>/README.md                         configs and splits, as the Hub reads them
<output>/<recipe>/<config>/<split>-00000-of-00001.parquet
<output>/<recipe>/lost/<step>.parquet               rows dropped or failed there, and why
<output>/<recipe>/licenses/<sha256>.txt             texts that the rows' licenses ask for
<output>/<recipe>/run.json                          ledger, options, versions, sha256 of it all
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from curate.formats.format import Format
from curate.formats.leakage import LABELS, THRESHOLD, Leakage, report
from curate.licenses.texts import load_text
from curate.rows import Row
from curate.run import Shard, Stage, Walk, identity
from curate.step import Drop, SourceStep
from curate.store import LOST, digest, write_atomically

if TYPE_CHECKING:
    from curate.recipe import Recipe

SPLITS = ("train", "validation", "test")
GROUP_ROWS = 1024  # rows that are gathered before they are written


def write_dataset(walk: Walk, stages: list[Stage]) -> dict[str, Any]:
    """Write the data set of a finished run, unless it is there already.

    Returns:
        What ``run.json`` holds: ``ledger``, ``configs`` (rows by config and split), ``leakage``
        (rows marked by `curate.formats.leakage`, by config and split), ``unwritten`` (final rows
        that no config has, or that one has not, by reason), ``files`` (sha256 by path) and more.
    """
    shards = final_shards(stages)
    formats = walk.recipe.formats
    key = digest([s.key for s in shards], [(f.version, f.model_dump(mode="json")) for f in formats])
    if (known := read_run(walk.folder)) and known["key"] == key and _all_there(walk.folder, known):
        return known
    folder = walk.folder.with_name(f".{walk.folder.name}.tmp")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = _Writer(walk, folder)
    for shard in shards:
        writer.add(walk.store.rows(shard.step, shard.key).to_pylist())
    leakage = writer.close()
    _write_lost(walk, stages, folder)
    writer.write_texts()
    (folder / "README.md").write_text(card(walk.recipe, leakage), encoding="utf-8")
    run = {
        "key": key,
        "recipe": walk.recipe.model_dump(mode="json"),
        "limit": walk.limit,
        "steps": [
            {**identity(stage.step, walk.recipe.seed), "label": stage.label} for stage in stages
        ],
        "ledger": [stage.ledger() for stage in stages],
        "configs": writer.configs,
        "leakage": leakage,
        "unwritten": dict(sorted(writer.unwritten.items())),
        "files": _hashes(folder),
    }
    write_atomically(folder / "run.json", json.dumps(run, indent=1).encode())
    if walk.folder.exists():
        shutil.rmtree(walk.folder)
    folder.rename(walk.folder)
    return run


def final_shards(stages: list[Stage]) -> list[Shard]:
    """Return the shards of a walk's last stage, or of all its sources where there is no step."""
    if isinstance(stages[-1].step, SourceStep):
        return [Shard(s.step.name, m.key) for s in stages for m in s.manifests]
    return [Shard(stages[-1].step.name, m.key) for m in stages[-1].manifests]


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return what a finished data set's ``run.json`` holds, or None."""
    try:
        run = json.loads((folder / "run.json").read_bytes())
    except FileNotFoundError:
        return None
    assert isinstance(run, dict)
    return run


def data_sha256(run: dict[str, Any]) -> str:
    """Return one sha256 over all of a data set's files."""
    lines = "".join(f"{sha}  {path}\n" for path, sha in sorted(run["files"].items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _all_there(folder: Path, run: dict[str, Any]) -> bool:
    return all((folder / path).exists() for path in run["files"])


def _hashes(folder: Path) -> dict[str, str]:
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths
    }


class _Writer:
    """Renders rows into every config that shows their kind, a few at a time."""

    def __init__(self, walk: Walk, folder: Path) -> None:
        self.walk, self.folder = walk, folder
        self.configs: dict[str, dict[str, int]] = {}
        self.unwritten: Counter[str] = Counter()
        self.texts: set[str] = set()
        self._waiting: dict[tuple[str, str], list[Row]] = {}
        self._open: dict[tuple[str, str], pq.ParquetWriter] = {}
        self._schemas = {_config(f): f.columns() for f in walk.recipe.formats}
        self._leakage = {_config(f): Leakage(f.has_prompt) for f in walk.recipe.formats}

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            if row["license"] is None or row["origin"] is None:
                self.unwritten["no_license_or_origin"] += 1
                continue
            views = [f for f in self.walk.recipe.formats if row["kind"] in f.kinds]
            if not views:
                self.unwritten[f"kind_{row['kind']}_in_no_format"] += 1
                continue
            for view in views:
                self._show(row, view)

    def _show(self, row: Row, view: Format) -> None:
        outcome, config = view.render(row), _config(view)
        if isinstance(outcome, Drop):
            self.unwritten[f"{outcome.reason}_in_{config}"] += 1
            return
        self.texts.update(row["license"]["text_sha256"] or [])
        self.texts.update(row["license"]["notice_sha256"] or [])
        split = row["split"] or "train"
        for shown in outcome.rows:
            self._put(config, split, shown)
            texts = view.prompt_and_completion(row, shown)
            self._leakage[config].add(split, shown["id"], *texts)

    def _put(self, config: str, split: str, row: Row) -> None:
        counts = self.configs.setdefault(config, {})
        counts[split] = counts.get(split, 0) + 1
        waiting = self._waiting.setdefault((config, split), [])
        waiting.append(row)
        if len(waiting) == GROUP_ROWS:
            self._flush(config, split)

    def _flush(self, config: str, split: str) -> None:
        rows = self._waiting.pop((config, split), [])
        writer = self._open.get((config, split))
        if writer is None:
            path = self._unlabelled(config, split)
            path.parent.mkdir(exist_ok=True)
            writer = pq.ParquetWriter(path, self._schemas[config], compression="zstd")
            self._open[config, split] = writer
        writer.write_table(pa.Table.from_pylist(rows, schema=self._schemas[config]))

    def _unlabelled(self, config: str, split: str) -> Path:
        return self.folder / config / f"{split}.unlabelled.parquet"

    def close(self) -> dict[str, dict[str, Any]]:
        """Finish the files and return what `report` says of each config's splits."""
        for config, split in list(self._waiting):
            self._flush(config, split)
        for writer in self._open.values():
            writer.close()
        return {config: self._label(config) for config in self.configs}

    def _label(self, config: str) -> dict[str, Any]:
        """Copy a config's files with the labels, which are known when all rows have been seen."""
        found = {}
        for split, labels in self._leakage.pop(config).labels().items():
            path = self._unlabelled(config, split)
            _add_columns(path, labels.drop_columns("id"), path.parent / _file_name(split))
            path.unlink()
            found[split] = report(labels)
        return found

    def write_texts(self) -> None:
        assert self.walk.context.cache
        for sha in sorted(self.texts):
            path = self.folder / "licenses" / f"{sha}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(load_text(self.walk.context.cache, sha), encoding="utf-8")


def _config(view: Format) -> str:
    return view.config or view.format


def _file_name(split: str) -> str:
    return f"{split}-00000-of-00001.parquet"


def _add_columns(source: Path, columns: pa.Table, target: Path) -> None:
    """Copy a Parquet file with more columns, one row group at a time."""
    with pq.ParquetFile(source) as file:
        schema = pa.schema([*file.schema_arrow, *columns.schema])
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            done = 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                more = columns.slice(done, len(rows))
                arrays = [*rows.columns, *more.columns]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                done += len(rows)


def _write_lost(walk: Walk, stages: list[Stage], folder: Path) -> None:
    for stage in stages:
        losses = [m for m in stage.manifests if m.dropped or m.failed]
        if losses:
            path = folder / "lost" / f"{stage.label}.parquet"
            path.parent.mkdir(exist_ok=True)
            with pq.ParquetWriter(path, LOST, compression="zstd") as writer:
                for manifest in losses:
                    writer.write_table(walk.store.lost(stage.step.name, manifest.key))


def card(recipe: Recipe, leakage: dict[str, dict[str, Any]]) -> str:
    """Return the data set's README, whose head tells `datasets` where each config lies.

    Args:
        recipe: what the data set was made by.
        leakage: by config and split, what `curate.formats.leakage.report` returns.
    """
    head: dict[str, Any] = {
        "pretty_name": recipe.name,
        "tags": ["triton", "gpu-kernels", "code", "pytorch"],
        "configs": [
            {
                "config_name": config,
                "data_files": [
                    {"split": split, "path": f"{config}/{split}-*.parquet"}
                    for split in SPLITS
                    if split in splits
                ],
            }
            for config, splits in leakage.items()
        ],
    }
    lines = ["---", yaml.safe_dump(head, sort_keys=False).strip(), "---", f"# {recipe.name}", ""]
    lines += [recipe.description, "", "| config | split | rows | prompt overlap | split overlap |"]
    lines += ["|-|-|-|-|-|"]
    lines += [
        f"| {config} | {split} | {_counts(splits[split])} |"
        for config, splits in leakage.items()
        for split in SPLITS
        if split in splits
    ]
    return "\n".join([*lines, "", *_notes()]) + "\n"


def _counts(found: dict[str, Any]) -> str:
    marked = [found.get(name, {}).get("rows", "") for name in LABELS]
    return " | ".join(str(n) for n in (found["rows"], *marked))


def _notes() -> Iterator[str]:
    yield "Overlap is the Jaccard similarity of sets of words, whatever their order: of a row's"
    yield "prompt and completion (`prompt_overlap`), and of a row and the row most like it in"
    yield "another split (`split_overlap`, `split_overlap_id`). The table says how many rows"
    yield f"reach {THRESHOLD}. They are kept: programs of one generator share most of their words."
    yield ""
    yield "`licenses/` holds the license texts and notices that the rows' licenses ask for,"
    yield "`lost/` the rows that did not make it with the reason for each, and `run.json` the"
    yield "recipe, the counts of every step and the sha256 of every file."
