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
        What ``run.json`` holds: ``ledger``, ``configs`` (rows by config and split), ``unwritten``
        (final rows that no config has, or that one has not, by reason), ``files`` (sha256 by
        path) and more.
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
    writer.close()
    _write_lost(walk, stages, folder)
    writer.write_texts()
    (folder / "README.md").write_text(card(walk.recipe, writer.configs), encoding="utf-8")
    run = {
        "key": key,
        "recipe": walk.recipe.model_dump(mode="json"),
        "limit": walk.limit,
        "steps": [
            {**identity(stage.step, walk.recipe.seed), "label": stage.label} for stage in stages
        ],
        "ledger": [stage.ledger() for stage in stages],
        "configs": writer.configs,
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
        for shown in outcome.rows:
            self._put(config, row["split"] or "train", shown)

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
            path = self.folder / config / f"{split}-00000-of-00001.parquet"
            path.parent.mkdir(exist_ok=True)
            writer = pq.ParquetWriter(path, self._schemas[config], compression="zstd")
            self._open[config, split] = writer
        writer.write_table(pa.Table.from_pylist(rows, schema=self._schemas[config]))

    def close(self) -> None:
        for config, split in list(self._waiting):
            self._flush(config, split)
        for writer in self._open.values():
            writer.close()

    def write_texts(self) -> None:
        assert self.walk.context.cache
        for sha in sorted(self.texts):
            path = self.folder / "licenses" / f"{sha}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(load_text(self.walk.context.cache, sha), encoding="utf-8")


def _config(view: Format) -> str:
    return view.config or view.format


def _write_lost(walk: Walk, stages: list[Stage], folder: Path) -> None:
    for stage in stages:
        losses = [m for m in stage.manifests if m.dropped or m.failed]
        if losses:
            path = folder / "lost" / f"{stage.label}.parquet"
            path.parent.mkdir(exist_ok=True)
            with pq.ParquetWriter(path, LOST, compression="zstd") as writer:
                for manifest in losses:
                    writer.write_table(walk.store.lost(stage.step.name, manifest.key))


def card(recipe: Recipe, configs: dict[str, dict[str, int]]) -> str:
    """Return the data set's README, whose head tells `datasets` where each config lies."""
    head: dict[str, Any] = {
        "pretty_name": recipe.name,
        "tags": ["triton", "gpu-kernels", "code", "pytorch"],
        "configs": [
            {
                "config_name": config,
                "data_files": [
                    {"split": split, "path": f"{config}/{split}-*.parquet"}
                    for split in SPLITS
                    if split in counts
                ],
            }
            for config, counts in configs.items()
        ],
    }
    lines = ["---", yaml.safe_dump(head, sort_keys=False).strip(), "---", f"# {recipe.name}", ""]
    lines += [recipe.description, "", "| config | split | rows |", "|-|-|-|"]
    lines += [
        f"| {config} | {split} | {counts[split]} |"
        for config, counts in configs.items()
        for split in SPLITS
        if split in counts
    ]
    return "\n".join([*lines, "", *_notes()]) + "\n"


def _notes() -> Iterator[str]:
    yield "`licenses/` holds the license texts and notices that the rows' licenses ask for,"
    yield "`lost/` the rows that did not make it with the reason for each, and `run.json` the"
    yield "recipe, the counts of every step and the sha256 of every file."
