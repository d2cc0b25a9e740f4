"""Write a finished run as a data set that `datasets.load_dataset(folder, config)` opens.

<output>/<recipe>/README.md                         configs and splits, as the Hub reads them
<output>/<recipe>/<config>/<split>-00000-of-00001.parquet
<output>/<recipe>/index.parquet                     a line for every row, whatever views show it
<output>/<recipe>/provenance.jsonl                  where every row comes from, under which license
<output>/<recipe>/lost/<step>.parquet               rows dropped or failed there, and why
<output>/<recipe>/licenses/<sha256>.txt             texts that the rows' licenses ask for
<output>/<recipe>/run.json                          ledger, options, versions, sha256 of it all

The folder of a trial is <output>/<recipe>.trial.
The folder is written under another name and renamed when all is in it
(`curate.formats.dataset.replace`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.cache.texts import load_text
from curate.engine.identity import identity
from curate.engine.run import Shard, Stage, Walk
from curate.engine.store import LOST, digest
from curate.files import (
    Damaged,
    check_file,
    file_sha256,
    read_sealed,
    remove,
    sealed,
    write_atomically,
    writing,
)
from curate.formats.dataset.front_matter import front_matter
from curate.formats.dataset.index import INDEX, INDEX_FILE, index_row
from curate.formats.dataset.leakage import Leakage, report
from curate.formats.dataset.parquet import SplitFiles
from curate.formats.dataset.provenance import PROVENANCE_FILE, provenance_line
from curate.formats.dataset.replace import RUN_FILE, check_place, new_folder, recover, replace
from curate.formats.format import Format
from curate.licenses.licenses import Licenses
from curate.licenses.optout import OPTED_OUT, first_match, load_lists
from curate.rows import Loose
from curate.step import Drop, SourceStep

LAYOUT = 3  # of the folder; raised when it has to be written anew from the cache
GROUP_ROWS = 1024  # rows that are gathered before they are written
MAX_ROW_BYTES = 2 * 10**6  # of a row as JSON, above which the Hub's viewer cuts it


def write_dataset(
    walk: Walk, stages: list[Stage], describe: Callable[[Path], object] | None = None
) -> dict[str, Any]:
    """Write the data set of a finished run, unless it is there already, as it was written.

    Args:
        walk: the run.
        stages: all stages of its recipe.
        describe: writes report and card into the folder before it gets its name.

    Returns:
        What ``run.json`` holds: ``ledger``, ``configs`` (rows by config and split), ``leakage``
        (rows marked by `curate.formats.dataset.leakage`, by config and split), ``unwritten``
        (final rows that no config has, or that one has not, by reason), ``files`` (sha256 by path)
        and more.

    Raises:
        InTheWay: there is a link or a file where the folder is to be.
        Damaged: a file of the cache is not as it was written.
        CannotWrite: the operating system refused.
    """
    check_place(walk.folder)
    recover(walk.folder)
    views = [(f.version, f.model_dump(mode="json")) for f in walk.recipe.formats]
    final = [walk.input_manifest(shard) for shard in final_shards(stages)]
    rows = [(manifest.key, manifest.output_sha256) for manifest in final]
    key = digest(LAYOUT, rows, views, walk.settings)
    if known := _written(walk, key):
        return known
    folder = new_folder(walk.folder)
    with writing(walk.folder):
        folder.mkdir(parents=True)
        try:
            _write(walk, stages, key, folder)
            if describe:
                describe(folder)
        except BaseException:
            remove(folder)
            raise
    replace(walk.folder)
    return read_sealed(walk.folder / RUN_FILE)


def _written(walk: Walk, key: str) -> dict[str, Any] | None:
    """Return what ``run.json`` holds where the data set is there; say why if it is damaged."""
    try:
        known = read_run(walk.folder)
        if known is None or known["key"] != key:
            return None
        for path, sha256 in known["files"].items():
            check_file(walk.folder / path, sha256)
    except Damaged as damage:
        walk.progress.warn(f"{damage.path}: {damage.what}; the data set is written again")
        return None
    return known


def _write(walk: Walk, stages: list[Stage], key: str, folder: Path) -> None:
    """Write all that the rows themselves tell."""
    writer = _Writer(walk, folder)
    for shard in final_shards(stages):
        writer.look_at(walk.store.rows(shard.step, shard.key).to_pylist())
    for shard in final_shards(stages):
        writer.add(walk.store.rows(shard.step, shard.key).to_pylist())
    leakage = writer.close()
    _write_lost(walk, stages, folder)
    writer.write_texts()
    run = {
        "key": key,
        "recipe": walk.recipe.model_dump(mode="json"),
        "limit": walk.limit,
        "settings": list(walk.settings),
        "steps": [
            {**identity(stage.step, walk.recipe.seed), "label": stage.label} for stage in stages
        ],
        "ledger": [stage.ledger() for stage in stages],
        "configs": writer.configs,
        "leakage": leakage,
        "unwritten": dict(sorted(writer.unwritten.items())),
        "files": _hashes(folder, _all_files(folder)),
    }
    (folder / "README.md").write_text(front_matter(folder, run), encoding="utf-8")
    record_files(folder, run, ["README.md"])


def final_shards(stages: list[Stage]) -> list[Shard]:
    """Return the shards of a walk's last stage, or of all its sources where there is no step."""
    if isinstance(stages[-1].step, SourceStep):
        return [Shard(s.step.name, m.key) for s in stages for m in s.manifests]
    return [Shard(stages[-1].step.name, m.key) for m in stages[-1].manifests]


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return what a finished data set's ``run.json`` holds, or None.

    Raises:
        Damaged: it is not as it was written.
    """
    path = folder / RUN_FILE
    return read_sealed(path) if path.exists() else None


def trial_options(run: dict[str, Any]) -> list[str]:
    """Return the options that make a run, by its ``run.json``, a trial; empty if it is none."""
    limit = [] if run["limit"] is None else [f"--limit {run['limit']}"]
    return [*limit, *(f"--set {setting}" for setting in run.get("settings", []))]


def row_counts(run: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each config of a data set: how many rows each of its splits has."""
    for config, counts in run["configs"].items():
        splits = ", ".join(f"{split} {n:,}" for split, n in counts.items())
        yield f"{config}: {splits} rows"


def check_data(folder: Path, run: dict[str, Any]) -> None:
    """Compare a data set's rows with ``run.json``; documents that are made of them do not count.

    Raises:
        Damaged: a file is not as it was written.
    """
    for path, sha256 in run["files"].items():
        if path.endswith(".parquet") or path == PROVENANCE_FILE or path.startswith("licenses/"):
            check_file(folder / path, sha256)


def record_files(folder: Path, run: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Write to ``run.json`` what files of a data set hold now; return what it holds itself."""
    run = {**run, "files": dict(sorted({**run["files"], **_hashes(folder, paths)}.items()))}
    write_atomically(folder / RUN_FILE, sealed(run, indent=1))
    return run


def data_sha256(run: dict[str, Any]) -> str:
    """Return one sha256 over a data set's Parquet files; documents alongside them do not count."""
    files = sorted((path, sha) for path, sha in run["files"].items() if path.endswith(".parquet"))
    lines = "".join(f"{sha}  {path}\n" for path, sha in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _all_files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _hashes(folder: Path, paths: Iterable[str]) -> dict[str, str]:
    return {path: file_sha256(folder / path) for path in paths}


class _Rows:
    """A Parquet file that rows are added to, a few at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(exist_ok=True)
        self._schema, self._waiting = schema, list[Loose]()
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")

    def add(self, row: Loose) -> None:
        self._waiting.append(row)
        if len(self._waiting) == GROUP_ROWS:
            self._write()

    def close(self) -> None:
        if self._waiting:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._waiting, schema=self._schema))
        self._waiting = []


class _Writer:
    """Renders rows into every config that shows their kind, a few at a time."""

    def __init__(self, walk: Walk, folder: Path) -> None:
        self.walk, self.folder = walk, folder
        self.configs: dict[str, dict[str, int]] = {}
        self.unwritten: Counter[str] = Counter()
        self.texts: set[str] = set()
        licenses = [step for step in walk.recipe.steps if isinstance(step, Licenses)]
        self._optouts = load_lists(step.optout for step in licenses)
        self._index = _Rows(folder / INDEX_FILE, INDEX)
        self._provenance = (folder / PROVENANCE_FILE).open("w", encoding="utf-8")
        self._unlabelled: dict[tuple[str, str], _Rows] = {}
        self._views = [f.begin() for f in walk.recipe.formats]
        self._filled: dict[str, set[str]] = {}
        self._schemas = {_config(f): f.columns() for f in walk.recipe.formats}
        self._leakage = {_config(f): Leakage(f.has_prompt) for f in walk.recipe.formats}
        self._message_keys: dict[str, set[str]] = {}

    def look_at(self, rows: list[Loose]) -> None:
        """Show rows to the views that show their kind, before any is added."""
        for row in rows:
            if self._withheld(row) is None:
                for view in self._views:
                    if row["kind"] in view.kinds:
                        view.look_at(row)

    def _withheld(self, row: Loose) -> str | None:
        """Return why a row is in no config, whatever its kind."""
        if row["license"] is None or row["origin"] is None:
            return "no_license_or_origin"
        if first_match(self._optouts, row, self.walk.output / "cache"):
            # By what no step `licenses` could know yet, such as a symbol that was found later.
            return OPTED_OUT
        return None

    def add(self, rows: list[Loose]) -> None:
        for row in rows:
            if reason := self._withheld(row):
                self.unwritten[reason] += 1
                continue
            views = [f for f in self._views if row["kind"] in f.kinds]
            if not views:
                self.unwritten[f"kind_{row['kind']}_in_no_format"] += 1
                continue
            split = row["split"] or "train"
            shown = {f"{_config(v)}/{split}-*.parquet": self._show(row, v, split) for v in views}
            if any(shown.values()):
                self._index.add(index_row(row, split))
                self._provenance.write(provenance_line(row, shown))
                self.texts.update(row["license"]["text_sha256"] or [])
                self.texts.update(row["license"]["notice_sha256"] or [])

    def _show(self, row: Loose, view: Format, split: str) -> int:
        """Write a row to a view; return how many rows of the view show it."""
        outcome, config = view.render(row), _config(view)
        if isinstance(outcome, Drop):
            self.unwritten[f"{outcome.reason}_in_{config}"] += 1
            return 0
        written = 0
        for shown in outcome.rows:
            if len(json.dumps(shown, ensure_ascii=False).encode()) > MAX_ROW_BYTES:
                self.unwritten[f"over_2_mb_in_{config}"] += 1
                continue
            self._put(config, split, shown)
            texts = view.prompt_and_completion(row, shown)
            row_id: str = shown.get("id") or row["id"]
            self._leakage[config].add(split, row_id, *texts)
            written += 1
        return written

    def _put(self, config: str, split: str, row: Loose) -> None:
        counts = self.configs.setdefault(config, {})
        counts[split] = counts.get(split, 0) + 1
        keys = self._message_keys.setdefault(config, set())
        keys.update(*row.get("messages", ()))
        filled = self._filled.setdefault(config, set())
        filled.update(name for name, value in row.items() if value is not None)
        if (config, split) not in self._unlabelled:
            path = self._unlabelled_path(config, split)
            self._unlabelled[config, split] = _Rows(path, self._schemas[config])
        self._unlabelled[config, split].add(row)

    def _unlabelled_path(self, config: str, split: str) -> Path:
        return self.folder / config / f"{split}.unlabelled.parquet"

    def close(self) -> dict[str, dict[str, Any]]:
        """Finish the files and return what `report` says of each config's splits."""
        self._provenance.close()
        for rows in (self._index, *self._unlabelled.values()):
            rows.close()
        return {config: self._label(config) for config in self.configs}

    def _label(self, config: str) -> dict[str, Any]:
        """Copy a config's files with the labels, which are known when all rows have been seen."""
        found = {}
        view = next(v for v in self._views if _config(v) == config)
        kept = set(view.columns().names) if view.keeps_empty else self._filled[config]
        for split, labels in self._leakage.pop(config).labels().items():
            path = self._unlabelled_path(config, split)
            keys = self._message_keys[config]
            _add_columns(path, kept, keys, labels.drop_columns("id"), path.parent, split)
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


def _without_empty(schema: pa.Schema, kept: set[str], keys: set[str]) -> pa.Schema:
    """Return a view's schema with these columns alone, in which messages have these keys alone."""
    schema = pa.schema([field for field in schema if field.name in kept])
    place = schema.get_field_index("messages")
    if place == -1:
        return schema
    field = schema.field(place)
    turn = field.type.value_field
    kept = pa.struct([key for key in turn.type if key.name in keys])
    if kept == turn.type:
        return schema
    return schema.set(place, field.with_type(pa.list_(turn.with_type(kept))))


def _add_columns(
    source: Path, kept: set[str], keys: set[str], columns: pa.Table, folder: Path, split: str
) -> None:
    """Copy a Parquet file to the files of a split with more columns, a row group at a time.

    Args:
        source: the file.
        kept: columns of the config; others are left out.
        keys: that messages of the config have, in whatever split; others are left out.
        columns: what is added.
        folder: of the copy.
        split: of the copy.
    """
    with pq.ParquetFile(source) as file:
        shown = _without_empty(file.schema_arrow, kept, keys)
        schema = pa.schema([*shown, *columns.schema])
        files = SplitFiles(folder, split, schema)
        done = 0
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=shown.names).cast(shown)
            more = columns.slice(done, len(rows))
            files.write(pa.Table.from_arrays([*rows.columns, *more.columns], schema=schema))
            done += len(rows)
        files.close()


def _write_lost(walk: Walk, stages: list[Stage], folder: Path) -> None:
    for stage in stages:
        losses = [m for m in stage.manifests if m.dropped or m.failed]
        if losses:
            path = folder / "lost" / f"{stage.label}.parquet"
            path.parent.mkdir(exist_ok=True)
            with pq.ParquetWriter(path, LOST, compression="zstd") as writer:
                for manifest in losses:
                    writer.write_table(walk.store.lost(stage.step.name, manifest.key))
