"""What of a cache no finished run needs, and how large its parts are.

A run needs the shards that its record names, the summaries of its table steps, and the artifacts,
archives and texts that rows of these shards name. Clones, a teacher's answers and whatever else
lies in the cache is never taken for needless: it cost requests, money or time that no shard shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from curate.engine.records import Record, read_records, records_path, run_names
from curate.engine.store import Store, digest
from curate.files import is_temporary, read_sealed
from curate.rows import Loose

ARTIFACTS = ("artifacts", "downloads")
"""Folders whose entries are named after an artifact's hash."""


class Unfinished(Exception):
    """A run is not finished, so that what it needs is not known; the message says which."""


@dataclass(frozen=True)
class CachePart:
    """One folder of the cache.

    Attributes:
        kind: its name, such as ``steps``.
        files: how many it holds.
        size: of all of them, bytes.
    """

    kind: str
    files: int
    size: int


def cache_parts(output: Path) -> list[CachePart]:
    """Return the folders of an output folder's cache, the largest first."""
    folders = [path for path in (output / "cache").glob("*") if path.is_dir()]
    parts = []
    for folder in folders:
        sizes = [path.lstat().st_size for path in _files(folder)]
        parts.append(CachePart(folder.name, len(sizes), sum(sizes)))
    return sorted(parts, key=lambda part: -part.size)


def total_size(paths: list[Path]) -> int:
    """Return the bytes of files and of all files in folders."""
    return sum(file.lstat().st_size for path in paths for file in _files(path))


def _files(path: Path) -> Iterator[Path]:
    yield from (file for file in path.rglob("*") if not file.is_dir()) if path.is_dir() else (path,)


def needless(output: Path) -> dict[str, list[Path]]:
    """Return the files and folders that no run needs, by the kind of `CachePart`.

    Raises:
        Unfinished: a run has stopped before its end, or has never ended: what it still needs
            cannot be told from what it does not.
        Damaged: a file of a run is not as it was written.
    """
    shards: set[tuple[str, str]] = set()
    artifacts: set[str] = set()
    texts: set[str] = set()
    names = run_names(output)
    if not names:
        raise Unfinished(f"{output} holds no finished run, which would say what is needed")
    for name in names:
        records = read_records(output, name)
        _check_finished(output, name, records)
        shards |= set(_shards(records))
        for row in _rows(Store(output), records):
            artifacts.add((row["origin"] or {}).get("artifact_sha256") or "")
            known = row["license"] or {}
            texts |= {*(known.get("text_sha256") or ()), *(known.get("notice_sha256") or ())}
    cache = output / "cache"
    found = {"steps": [p for p in cache.glob("steps/*/*") if not _is_needed(p, shards)]}
    for kind in ARTIFACTS:
        entries = cache.glob(f"{kind}/*")
        found[kind] = [p for p in entries if p.name.partition(".")[0] not in artifacts]
    found["texts"] = [p for p in cache.glob("texts/*") if p.stem not in texts]
    kept = {kind: [p for p in paths if not is_temporary(p.name)] for kind, paths in found.items()}
    # Manifests first: a shard whose manifest is gone is not done, whatever else is there of it.
    return {
        kind: sorted(paths, key=lambda p: (p.suffix != ".json", p))
        for kind, paths in kept.items()
        if paths
    }


def _check_finished(output: Path, name: str, records: list[Record]) -> None:
    """Raise `Unfinished` unless a run's record is that of its data set."""
    path = output / name / "run.json"
    steps = read_sealed(path)["steps"] if path.exists() else None
    if steps != [{**record.identity, "label": record.label} for record in records]:
        raise Unfinished(
            f"the last run of '{name}' has not finished, and what it needs is not known: run it to "
            f"its end, or remove {records_path(output, name)} to forget it"
        )


def _shards(records: list[Record]) -> Iterator[tuple[str, str]]:
    """Yield the step and the key of every shard of a run, and those of its summaries."""
    before: list[str] = []
    for record in records:
        yield from ((record.step, key) for key in record.shards)
        if not record.kinds:  # a source: its shards come to those of the sources before it
            before = before + record.shards
            continue
        yield from ((record.step, digest(record.identity, key)) for key in before)
        before = record.shards


def _rows(store: Store, records: list[Record]) -> Iterator[Loose]:
    """Yield origin and license of all rows that a run has kept or lost anywhere."""
    for record in records:
        for key in record.shards:
            yield from store.rows(record.step, key, ["origin", "license"]).to_pylist()
            manifest = store.finished(record.step, key)
            if manifest.dropped or manifest.failed:
                yield from store.lost(record.step, key).select(["origin", "license"]).to_pylist()


def _is_needed(path: Path, shards: set[tuple[str, str]]) -> bool:
    """Say whether a file of a step's folder belongs to a shard that is needed."""
    step, key = path.parent.name, path.name.partition(".")[0]
    if path.name.endswith(".unit.json"):
        return any((step, shard) in shards for shard in read_sealed(path)["shards"])
    return (step, key) in shards
