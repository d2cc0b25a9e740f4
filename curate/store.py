"""What is on disk: shards of rows and their manifests.

A shard is a Parquet file of kept rows, one of lost rows, and a manifest. All three are written to
temporary names and renamed, the manifest last: that it exists means that the shard is done. A
shard's key names everything that decides its bytes, so a shard is never rewritten and recipes
share what they have in common.

    <output>/cache/steps/<step>/<key>.parquet        rows that the step kept
    <output>/cache/steps/<step>/<key>.lost.parquet   rows that it dropped or failed on, and why
    <output>/cache/steps/<step>/<key>.json           the manifest
    <output>/cache/steps/<step>/<key>.part.jsonl     results of a shard that is not done yet
    <output>/cache/steps/<step>/<key>.summary.arrow  what a table step must know of a shard
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.execute.protocol import Lost
from curate.files import write_atomically
from curate.rows import ROW, Row

if TYPE_CHECKING:
    import polars as pl

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
        code: digest of the step's source file, to tell of a change without a new version.
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
        """Raise `LedgerError` unless every row seen is accounted for."""
        gone = sum(self.dropped.values()) + sum(self.failed.values())
        if self.kept + gone != self.seen:
            raise LedgerError(
                f"step {self.step}, shard {self.key}: saw {self.seen} rows, but kept {self.kept}, "
                f"dropped {sum(self.dropped.values())} and failed {sum(self.failed.values())}"
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


def rows_table(rows: list[Row]) -> pa.Table:
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
        """Return a finished shard's manifest, or None."""
        path = self._path(step, key, ".json")
        try:
            return Manifest(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None

    def rows(self, step: str, key: str, columns: list[str] | None = None) -> pa.Table:
        """Return a finished shard's kept rows."""
        return pq.read_table(self._path(step, key, ".parquet"), columns=columns)

    def lost(self, step: str, key: str) -> pa.Table:
        """Return the rows that a finished shard lost, with ``fate``, ``reason``, ``evidence``."""
        return pq.read_table(self._path(step, key, ".lost.parquet"))

    def commit(
        self,
        step: str,
        key: str,
        source: Manifest | None,
        kept: pa.Table,
        lost: pa.Table,
        *,
        seen: int,
        untouched: int = 0,
        **facts: Any,
    ) -> Manifest:
        """Write what a step made of the shard ``source`` and, last, the manifest."""
        rows, gone = parquet_bytes(kept), parquet_bytes(lost)
        fates = list(zip(lost["fate"].to_pylist(), lost["reason"].to_pylist(), strict=True))
        manifest = Manifest(
            step=step,
            key=key,
            input=source.key if source else None,
            input_sha256=source.output_sha256 if source else None,
            seen=seen,
            kept=seen - len(lost),
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
        write_atomically(self._path(step, key, ".json"), json.dumps(asdict(manifest)).encode())
        return manifest

    def partial_path(self, step: str, key: str) -> Path:
        """Return where results of a shard lie that is not done; see `curate.partial`."""
        return self._path(step, key, ".part.jsonl")

    def has_summary(self, step: str, key: str) -> bool:
        """Say whether a summary is there."""
        return self._path(step, key, ".summary.arrow").exists()

    def summary(self, step: str, key: str) -> pl.DataFrame:
        """Return a summary, mapped from its file."""
        import polars as pl

        with pa.memory_map(str(self._path(step, key, ".summary.arrow"))) as file:
            frame = pl.from_arrow(pa.ipc.open_file(file).read_all())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def write_summary(self, step: str, key: str, summary: pl.DataFrame) -> None:
        """Write a summary."""
        import polars as pl

        table = summary.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        write_atomically(self._path(step, key, ".summary.arrow"), sink.getvalue().to_pybytes())

    def unit_shards(self, source: str, key: str) -> list[str] | None:
        """Return the shards that a source's finished unit was written to, or None."""
        path = self._path(source, key, ".unit.json")
        return json.loads(path.read_bytes()) if path.exists() else None

    def commit_unit(self, source: str, key: str, shards: list[str]) -> None:
        """Record that a unit is done."""
        write_atomically(self._path(source, key, ".unit.json"), json.dumps(shards).encode())


def _lost_row(lost: Lost) -> Row:
    evidence = json.dumps(lost.evidence, sort_keys=True)
    return {**lost.row, "fate": lost.fate, "reason": lost.reason, "evidence": evidence}


def _count(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
