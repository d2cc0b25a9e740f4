"""What a step made of single rows before: a shard in which a few rows are new costs those alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from curate.engine.executor import Lost, Result
from curate.engine.store import Manifest, Store
from curate.files import Damaged
from curate.rows import Loose


@dataclass(frozen=True)
class KnownResult:
    """A result that a finished shard holds, and the digest of the code that gave it."""

    result: Result
    code: str


class Earlier:
    """The results of one step's finished shards, by the rows that it was given.

    Only those of a step that gives one row for each that it keeps. Failures are not among them, so
    that they are tried again.

    Args:
        store: holds the shards, and those that they were made of.
        before: names of the steps whose rows the step is given.
        made: shards that the step gave with the version, options and tools that it has now.
    """

    def __init__(self, store: Store, before: Iterable[str], made: Iterable[Manifest]) -> None:
        self.store = store
        self.shards: dict[str, tuple[str, Manifest]] = {}
        self.keys: dict[str, list[str]] = {}  # of the shards that were made of a row, by its id
        names = sorted(set(before))
        for manifest in made:
            for name in names:
                with contextlib.suppress(Damaged):
                    self._note(name, manifest)
                    break

    def _note(self, before: str, manifest: Manifest) -> None:
        """Note which rows a shard was made of."""
        assert manifest.input
        if self.store.finished(before, manifest.input).output_sha256 != manifest.input_sha256:
            return  # other rows lie there now
        ids = self.store.rows(before, manifest.input, ["id"])["id"].to_pylist()
        self.shards[manifest.key] = before, manifest
        for row_id in ids:
            self.keys.setdefault(row_id, []).append(manifest.key)

    def find(self, rows: dict[int, Loose]) -> dict[int, KnownResult]:
        """Return what was made of rows that are equal in all columns, by the places of these."""
        found: dict[int, KnownResult] = {}
        places = {row["id"]: at for at, row in rows.items()}
        for key in dict.fromkeys(key for row_id in places for key in self.keys.get(row_id, [])):
            for row, known in self._read(key):
                at = places.get(row["id"])
                if at is not None and rows[at] == row:
                    found[at] = known
        return found

    def _read(self, key: str) -> list[tuple[Loose, KnownResult]]:
        """Return the rows that a shard was made of, each with its result; none of a damaged one."""
        before, manifest = self.shards[key]
        assert manifest.input
        try:
            rows = self.store.rows(before, manifest.input).to_pylist()
            kept = self.store.rows(manifest.step, key).to_pylist()
            lost = {row["id"]: row for row in self.store.lost(manifest.step, key).to_pylist()}
        except Damaged:
            return []
        went_on = [row for row in rows if row["id"] not in lost]
        if len(went_on) != len(kept):
            return []
        cpu_s, peak_mb = manifest.cpu_s / len(rows), manifest.peak_mb
        found = [
            (row, Result([new], [], cpu_s, peak_mb)) for row, new in zip(went_on, kept, strict=True)
        ]
        for row in rows:
            if (gone := lost.get(row["id"])) and gone["fate"] == "dropped":
                why = Lost(row, "dropped", gone["reason"], json.loads(gone["evidence"]))
                found.append((row, Result([], [why], cpu_s, peak_mb)))
        return [(row, KnownResult(result, manifest.code)) for row, result in found]
