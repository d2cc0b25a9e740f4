"""What is on disk: shards of rows and their manifests.

A shard is a Parquet file of kept rows, one of lost rows, and a manifest. All three are written to
temporary names and renamed, the manifest last: that it exists means that the shard is done. A
shard's key names everything that decides its bytes, so a shard is never rewritten and recipes
share what they have in common.

    <output>/cache/steps/<step>/<key>.parquet        rows that the step kept
    <output>/cache/steps/<step>/<key>.lost.parquet   rows that it dropped or failed on, and why
    <output>/cache/steps/<step>/<key>.json           the manifest
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curate.execute.protocol import Lost
from curate.rows import ROW, Row

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


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def is_row(row: Any) -> str | None:
    """Return None if a value fits the schema, else what is wrong with it."""
    try:
        unknown = row.keys() - set(ROW.names)
        if unknown:
            return f"unknown columns {sorted(unknown)}"
        pa.Table.from_pylist([row], schema=ROW)
    except (pa.ArrowException, TypeError, AttributeError, ValueError, OverflowError) as error:
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
        kept: list[Row],
        lost: list[Lost],
        *,
        seen: int,
        untouched: int = 0,
        **facts: Any,
    ) -> Manifest:
        """Write what a step made of the shard ``source`` and, last, the manifest."""
        rows = parquet_bytes(pa.Table.from_pylist(kept, schema=ROW))
        gone = parquet_bytes(pa.Table.from_pylist([_lost_row(x) for x in lost], schema=LOST))
        manifest = Manifest(
            step=step,
            key=key,
            input=source.key if source else None,
            input_sha256=source.output_sha256 if source else None,
            seen=seen,
            kept=seen - len(lost),
            emitted=len(kept),
            untouched=untouched,
            dropped=_count(x.reason for x in lost if x.fate == "dropped"),
            failed=_count(x.reason for x in lost if x.fate == "failed"),
            kinds=_count(row["kind"] for row in kept),
            output_sha256=hashlib.sha256(rows).hexdigest(),
            lost_sha256=hashlib.sha256(gone).hexdigest(),
            **facts,
        )
        manifest.check()
        write_atomically(self._path(step, key, ".parquet"), rows)
        write_atomically(self._path(step, key, ".lost.parquet"), gone)
        write_atomically(self._path(step, key, ".json"), json.dumps(asdict(manifest)).encode())
        return manifest

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


def _count(reasons: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(reasons).items()))
