"""What is on disk: shards of rows and their manifests.

A shard is a Parquet file of kept rows, one of lost rows, and a manifest. All three are written to
temporary names and renamed, the manifest last: that it exists means that the shard is done. A
shard's key names everything that decides its bytes, so that recipes share what they have in common.
Where a step has changed and gives the same rows as before, what later steps made of them is taken
over under new keys (rows of a shard in which others are new: `curate.engine.earlier`).

To read is to check: a manifest carries a hash of its own content and those of its shard's files,
and every file is hashed before it is parsed. What is not as it was written raises `Damaged`; a run
answers by making it again (`curate.engine.mend`).

    <output>/cache/steps/<step>/<key>.parquet        rows that the step kept
    <output>/cache/steps/<step>/<key>.lost.parquet   rows that it dropped or failed on, and why
    <output>/cache/steps/<step>/<key>.json           the manifest
    <output>/cache/steps/<step>/<key>.unit.json      which shards a source's unit was written to
    <output>/cache/steps/<step>/<key>.part.jsonl     results of a shard that is not done yet
    <output>/cache/steps/<step>/<key>.summary.arrow  what a table step must know of a shard
    <output>/cache/steps/<step>/<key>.summary.json   the summary's hash, and that of its shard
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.engine.executor import Lost
from curate.engine.limit import BEHIND
from curate.files import (
    Damaged,
    check_file,
    read_checked,
    read_sealed,
    remove,
    sealed,
    sweep,
    write_atomically,
)
from curate.rows import ROW, Loose

if TYPE_CHECKING:
    import polars as pl

SWEPT = ("runs", "texts", "artifacts", "git", "downloads")  # folders of the cache, alongside steps
COLUMNS = frozenset(ROW.names)
LOST = pa.schema([*ROW, ("fate", pa.string()), ("reason", pa.string()), ("evidence", pa.string())])


@dataclass(frozen=True)
class Manifest:
    """What is known of a finished shard; every statistic is computed from these.

    Attributes:
        seen, kept: rows that came in, and those of them that went on.
        emitted: rows that came out, more than ``kept`` where a step finds several in one.
        untouched: those of ``kept`` that are of a kind that the step does not look at.
        dropped, failed: counts by reason. ``kept`` + ``dropped`` + ``failed`` is ``seen``.
        kinds: emitted rows by kind.
        cpu_s: processor seconds of the rows' jobs.
        peak_mb: memory that one job took at most, MiB.
        code: `curate.engine.identity.code_digest` of the step, to tell of a change without a new
            version.
    """

    step: str
    key: str
    input: str | None
    input_sha256: str | None
    seen: int
    kept: int
    emitted: int
    untouched: int
    dropped: dict[str, int]
    failed: dict[str, int]
    kinds: dict[str, int]
    output_sha256: str
    lost_sha256: str
    cpu_s: float = 0.0
    peak_mb: int = 0
    tools: dict[str, str] = field(default_factory=dict)
    code: str = ""

    def check(self) -> None:
        """Raise `LedgerError` unless every row, seen or emitted, is accounted for."""
        dropped, failed = sum(self.dropped.values()), sum(self.failed.values())
        where = f"step {self.step}, shard {self.key}"
        if self.kept + dropped + failed != self.seen:
            raise LedgerError(
                f"{where}: saw {self.seen} rows, but kept {self.kept}, dropped {dropped} and "
                f"failed {failed}"
            )
        if not self.untouched <= self.kept <= self.emitted == sum(self.kinds.values()):
            raise LedgerError(
                f"{where}: kept {self.kept} rows, {self.untouched} of them untouched, but emitted "
                f"{self.emitted}, by kind {self.kinds}"
            )


class LedgerError(Exception):
    """Rows are unaccounted for: a bug in this program, never in the data."""


def digest(*parts: Any) -> str:
    """Return 32 hex digits (128 bits) of JSON values."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


@cache
def no_loss() -> bytes:
    """Return the Parquet file of no lost rows, which most small shards have."""
    return parquet_bytes(lost_table([]))


def rows_table(rows: list[Loose]) -> pa.Table:
    """Return rows as a table.

    Raises:
        ValueError: a row does not fit the schema; `is_row` says why.
    """
    try:
        if any(row.keys() - COLUMNS for row in rows):
            raise ValueError("unknown columns")
        return pa.Table.from_pylist(rows, schema=ROW)
    except (pa.ArrowException, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from error


def lost_table(lost: list[Lost]) -> pa.Table:
    """Return lost rows as a table, with ``fate``, ``reason`` and ``evidence``."""
    return pa.Table.from_pylist([_lost_row(x) for x in lost], schema=LOST)


def is_row(row: Any) -> str | None:
    """Return None if a value fits the schema, else what is wrong with it."""
    try:
        if unknown := row.keys() - COLUMNS:
            return f"unknown columns {sorted(unknown)}"
        rows_table([row])
    except (AttributeError, ValueError) as error:
        return str(error)
    return None


class Store:
    """The shards under one output folder."""

    def __init__(self, root: Path) -> None:
        self.steps = root / "cache" / "steps"

    def _path(self, step: str, key: str, suffix: str) -> Path:
        return self.steps / step / f"{key}{suffix}"

    def manifest(self, step: str, key: str) -> Manifest | None:
        """Return a finished shard's manifest, or None where the shard is not done.

        Raises:
            Damaged: the manifest is not as it was written.
        """
        path = self._path(step, key, ".json")
        if not path.exists():
            return None
        try:
            manifest = Manifest(**read_sealed(path))
        except TypeError:
            raise Damaged(path, "is no manifest of this version of curate") from None
        if (manifest.step, manifest.key) != (step, key):
            raise Damaged(path, "is the manifest of another shard")
        return manifest

    def finished(self, step: str, key: str) -> Manifest:
        """Return the manifest of a shard that is done.

        Raises:
            Damaged: it is not there, or not as it was written.
        """
        if manifest := self.manifest(step, key):
            return manifest
        raise Damaged(self._path(step, key, ".json"), "is gone")

    def rows(self, step: str, key: str, columns: list[str] | None = None) -> pa.Table:
        """Return a finished shard's kept rows.

        Raises:
            Damaged: the shard is not as it was written.
        """
        sha256 = self.finished(step, key).output_sha256
        path = self._path(step, key, ".parquet")
        return _conformed(_parquet(path, sha256, columns), columns, path)

    def lost(self, step: str, key: str) -> pa.Table:
        """Return the rows that a finished shard lost, with ``fate``, ``reason``, ``evidence``.

        Raises:
            Damaged: the shard is not as it was written.
        """
        sha256 = self.finished(step, key).lost_sha256
        path = self._path(step, key, ".lost.parquet")
        return _conformed(_parquet(path, sha256), None, path, LOST)

    def commit(
        self,
        step: str,
        key: str,
        source: Manifest | None,
        kept: pa.Table,
        lost: pa.Table,
        *,
        seen: int,
        went_on: int,
        untouched: int = 0,
        **facts: Any,
    ) -> Manifest:
        """Write what a step made of the shard ``source`` and, last, the manifest.

        Args:
            step, key: of the shard.
            source: manifest of the shard that was read; None for a source.
            kept: the rows that came out.
            lost: the rows that were dropped or failed.
            seen: rows that came in.
            went_on: those of them that were kept, as the caller counted them.
            untouched: those of ``went_on`` that the step did not look at.
            facts: other fields of `Manifest`.

        Raises:
            LedgerError: the counts do not add up.
        """
        rows, gone = parquet_bytes(kept), parquet_bytes(lost) if len(lost) else no_loss()
        fates = list(zip(lost["fate"].to_pylist(), lost["reason"].to_pylist(), strict=True))
        manifest = Manifest(
            step=step,
            key=key,
            input=source.key if source else None,
            input_sha256=source.output_sha256 if source else None,
            seen=seen,
            kept=went_on,
            emitted=len(kept),
            untouched=untouched,
            dropped=_count(reason for fate, reason in fates if fate == "dropped"),
            failed=_count(reason for fate, reason in fates if fate == "failed"),
            kinds=_count(kept["kind"].to_pylist()),
            output_sha256=hashlib.sha256(rows).hexdigest(),
            lost_sha256=hashlib.sha256(gone).hexdigest(),
            **facts,
        )
        manifest.check()
        write_atomically(self._path(step, key, ".parquet"), rows)
        write_atomically(self._path(step, key, ".lost.parquet"), gone)
        write_atomically(self._path(step, key, ".json"), sealed(asdict(manifest)))
        return manifest

    def made_alike(self, step: str, key_of: Callable[[str], str]) -> list[Manifest]:
        """Return finished shards that a step gave as it is now.

        Not those that a trial's limit cut off.

        Args:
            step: its name.
            key_of: gives the key of what the step as it is now makes of a shard, by that one's
                key; shards with another key were made by another version, or with other options.
        """
        found: list[Manifest] = []
        for path in sorted((self.steps / step).glob("*.json")):
            with contextlib.suppress(Damaged):  # whoever needs it will say so
                known = None if path.stem.count(".") else self.manifest(step, path.stem)
                if (
                    known
                    and known.input
                    and known.input_sha256
                    and BEHIND not in known.dropped
                    and key_of(known.input) == known.key
                ):
                    found.append(known)
        return found

    def adopt(self, known: Manifest, key: str, source: str) -> bool:
        """Take a finished shard for another with the same rows before it; False if it is damaged.

        Args:
            known: what was made of those rows.
            key: of the shard that is to be done.
            source: key of the shard that it would be made of.
        """
        read = {".parquet": known.output_sha256, ".lost.parquet": known.lost_sha256}
        try:
            data = {
                s: read_checked(self._path(known.step, known.key, s), h) for s, h in read.items()
            }
        except Damaged:
            return False
        for suffix, content in data.items():
            write_atomically(self._path(known.step, key, suffix), content)
        manifest = replace(known, key=key, input=source)
        write_atomically(self._path(known.step, key, ".json"), sealed(asdict(manifest)))
        remove(self.partial_path(known.step, key))
        return True

    def partial_path(self, step: str, key: str) -> Path:
        """Return where the results of an unfinished shard lie; see `curate.engine.partial`."""
        return self._path(step, key, ".part.jsonl")

    def has_summary(self, step: str, key: str, source: Manifest) -> bool:
        """Say whether the summary of a shard is there.

        Raises:
            Damaged: what is known of it is not as it was written.
        """
        path = self._path(step, key, ".summary.json")
        return path.exists() and read_sealed(path)["of"] == source.output_sha256

    def summary(self, step: str, key: str) -> pl.DataFrame:
        """Return a summary, mapped from its file.

        Raises:
            Damaged: it is not as it was written.
        """
        import polars as pl

        path = self._path(step, key, ".summary.arrow")
        check_file(path, read_sealed(self._path(step, key, ".summary.json"))["sha256"])
        with pa.memory_map(str(path)) as file:
            frame = pl.from_arrow(pa.ipc.open_file(file).read_all())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def write_summary(self, step: str, key: str, source: Manifest, summary: pl.DataFrame) -> None:
        """Write the summary of the shard ``source``."""
        import polars as pl

        table = summary.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        data = sink.getvalue().to_pybytes()
        known = {"sha256": hashlib.sha256(data).hexdigest(), "of": source.output_sha256}
        write_atomically(self._path(step, key, ".summary.arrow"), data)
        write_atomically(self._path(step, key, ".summary.json"), sealed(known))

    def unit_shards(self, source: str, key: str) -> list[str] | None:
        """Return the shards that a source's unit was written to, or None if it is not done.

        Raises:
            Damaged: what is known of the unit is not as it was written.
        """
        path = self._path(source, key, ".unit.json")
        if not path.exists():
            return None
        unit = read_sealed(path)
        if unit.get("unit") != key:
            raise Damaged(path, "is of another unit")
        shards: list[str] = unit["shards"]
        return shards if all(self.manifest(source, shard) for shard in shards) else None

    def commit_unit(self, source: str, key: str, shards: list[str]) -> None:
        """Record that a unit is done."""
        unit = {"unit": key, "shards": shards}
        write_atomically(self._path(source, key, ".unit.json"), sealed(unit))

    def forget(self, step: str, key: str) -> None:
        """Take a shard, a unit or a summary for one that is not done."""
        for suffix in (".json", ".unit.json", ".summary.json"):
            remove(self._path(step, key, suffix))


def sweep_output(output: Path) -> None:
    """Remove what dead processes have left half-written under an output folder.

    To be called by the only process that writes there.
    """
    cache = output / "cache"
    steps = cache / "steps"
    folders = [output, cache, *(cache / name for name in SWEPT), *steps.glob("*")]
    for folder in folders:
        sweep(folder)


def _parquet(path: Path, sha256: str, columns: list[str] | None = None) -> pa.Table:
    """Return the table in a file whose hash is known; it is read once, and whole."""
    data = read_checked(path, sha256)
    file = pq.ParquetFile(pa.BufferReader(data))
    known = set(file.schema_arrow.names)
    return file.read(columns=columns and [name for name in columns if name in known])


def _conformed(
    table: pa.Table, columns: list[str] | None, path: Path, schema: pa.Schema = ROW
) -> pa.Table:
    """Return rows in today's columns: one that came since they were written is null in all.

    Raises:
        Damaged: a column that has values is of another type now.
    """
    arrays = []
    wanted = [one for one in schema if columns is None or one.name in columns]
    for one in wanted:
        known = table[one.name] if one.name in table.column_names else None
        found = pa.nulls(len(table), one.type) if known is None else _as_type(known, one.type)
        if found is None:
            raise Damaged(path, f"has a column {one.name} of another type")
        arrays.append(found)
    return pa.table(arrays, schema=pa.schema(wanted))


def _as_type(
    known: pa.ChunkedArray | pa.Array, wanted: pa.DataType
) -> pa.ChunkedArray | pa.Array | None:
    """Return values of a type that has only gained fields since, or None if it is another."""
    if known.type == wanted:
        return known
    if known.null_count == len(known):
        return pa.nulls(len(known), wanted)
    if not (pa.types.is_struct(known.type) and pa.types.is_struct(wanted)):
        return None
    if isinstance(known, pa.ChunkedArray):
        known = known.combine_chunks()
    names = {known.type.field(i).name for i in range(known.type.num_fields)}
    fields = [wanted.field(i) for i in range(wanted.num_fields)]
    if not names <= {field.name for field in fields}:
        return None
    parts = [
        _as_type(known.field(field.name), field.type)
        if field.name in names
        else pa.nulls(len(known), field.type)
        for field in fields
    ]
    if any(part is None for part in parts):
        return None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=known.is_null())


def _lost_row(lost: Lost) -> Loose:
    evidence = json.dumps(lost.evidence, sort_keys=True)
    return {**lost.row, "fate": lost.fate, "reason": lost.reason, "evidence": evidence}


def _count(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
