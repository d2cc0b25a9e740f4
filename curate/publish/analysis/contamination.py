"""What was compared with which benchmarks, what was dropped for it, and how near the rest is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.clean.fingerprint import find_file, read_benchmark, shipped_names
from curate.engine.records import Record
from curate.files import InputError, file_sha256
from curate.publish.analysis.counts import Counts, Distribution, Frozen, ranked
from curate.rows import Loose

if TYPE_CHECKING:
    from curate.publish.analysis.analysis import Run

CLOSEST = 10  # rows that are named as most like a benchmark
REASONS = ("contaminated", "computes_benchmark_item")
"""Why `decontaminate` drops a row."""

NAMED = 20  # dropped rows that are named
OVERLAP = "share of a benchmark item's 13-grams that a kept row has"
RESEMBLANCE = "5-gram Jaccard similarity of a kept row to an item"


class ComparedBenchmark(Frozen):
    """A benchmark that rows were compared with.

    Attributes:
        name: as its fingerprint file has it; null if that file is gone.
        version: commit or release.
        url: where the benchmark is kept.
        items: problems or programs of it that rows were compared with.
        sha256: of the fingerprint file.
    """

    name: str | None
    version: str | None
    url: str | None
    items: int | None
    sha256: str


class ComparedStep(Frozen):
    """What one step compared of one kind.

    Attributes:
        label: of the step.
        kind: of the rows.
        seen: rows that were compared.
        dropped: of those, rows that hold a part of a benchmark or compute an item of it.
        overlap, resemblance: of the rows that were kept, with the item that each is most like.
    """

    label: str
    kind: str
    seen: int
    dropped: int
    overlap: Distribution
    resemblance: Distribution


class Copy(Frozen):
    """A row that was dropped because a benchmark's item is in it, or is what it computes.

    Attributes:
        tier: how it was found: ``structure``, ``overlap``, ``resemblance``, ``wiring`` or
            ``values``.
        score: 0 to 1; what of, `tier` says.
        column: of the row, that holds it.
        part: of the item, where one was compared.
    """

    label: str
    id: str
    kind: str
    benchmark: str
    item: str
    tier: str
    score: float
    column: str
    part: str | None = None


class NearestRow(Frozen):
    """A kept row, the benchmark's item that it is most like, and the one that it computes."""

    id: str
    kind: str
    benchmark: str
    item: str
    overlap: float
    resemblance: float
    computes: str | None = None


class Contamination(Frozen):
    """What was found of benchmarks.

    Attributes:
        checked: whether the run has a step that looks for benchmarks.
        benchmarks: that it looks for.
        checks: by step and kind of row, in the order of the recipe.
        dropped: rows lost because they hold a part of a benchmark, by benchmark.
        items: the same by benchmark and item.
        copies: the rows that were lost, at most `NAMED` of each step.
        overlap, resemblance: of final rows with the item that each is most like.
        closest: the final rows most like an item, at most `CLOSEST`.
    """

    checked: bool
    benchmarks: list[ComparedBenchmark]
    checks: list[ComparedStep]
    dropped: dict[str, int]
    items: dict[str, int]
    copies: list[Copy]
    overlap: Distribution
    resemblance: Distribution
    closest: list[NearestRow]

    @property
    def seen(self) -> int:
        """Comparisons of a row; a row may be compared by several steps."""
        return sum(check.seen for check in self.checks)


class Nearness:
    """How near rows are to benchmarks, row by row."""

    def __init__(self) -> None:
        self._counts = Counts()
        self.closest: list[NearestRow] = []

    def add(self, row: Loose) -> None:
        """Count a row; its ``id``, ``kind`` and ``contamination`` are looked at."""
        found = row["contamination"] or {}
        self._counts.quantity("overlap", found.get("overlap"))
        self._counts.quantity("resemblance", found.get("resemblance"))
        if found.get("benchmark"):
            self.closest.append(NearestRow(id=row["id"], kind=row["kind"], **found))
            self.closest.sort(key=lambda m: (-max(m.overlap, m.resemblance), m.id))
            del self.closest[CLOSEST:]

    def spreads(self) -> dict[str, Distribution]:
        """Return the two distributions, by the names that results have for them."""
        return {
            "overlap": self._counts.distribution("overlap", OVERLAP),
            "resemblance": self._counts.distribution("resemblance", RESEMBLANCE),
        }


def contamination(run: Run, final: Nearness) -> Contamination:
    """Return what a run found of benchmarks, given how near its final rows are."""
    records = [record for record in run.records if record.step == "decontaminate"]
    checks: list[ComparedStep] = []
    copies: list[Copy] = []
    for record in records:
        found = _copies(run, record)
        checks += _checks(run, record, found)
        copies += found
    return Contamination(
        checked=bool(records),
        benchmarks=_benchmarks(run, records),
        checks=checks,
        dropped=ranked(Counter(copy.benchmark for copy in copies)),
        items=ranked(Counter(f"{copy.benchmark}: {copy.item}" for copy in copies)),
        copies=_named(copies),
        closest=final.closest,
        **final.spreads(),
    )


def _copies(run: Run, record: Record) -> list[Copy]:
    names = ("benchmark", "item", "tier", "score", "column", "part")
    found = []
    for row in run.lost_rows(record):
        if row["reason"] in REASONS:
            evidence = json.loads(row["evidence"])
            known = {name: evidence[name] for name in names if name in evidence}
            found.append(Copy(label=record.label, id=row["id"], kind=row["kind"], **known))
    return sorted(found, key=lambda copy: copy.id)


def _named(copies: list[Copy]) -> list[Copy]:
    seen: Counter[str] = Counter()
    named = []
    for copy in copies:
        seen[copy.label] += 1
        if seen[copy.label] <= NAMED:
            named.append(copy)
    return named


def _checks(run: Run, record: Record, copies: list[Copy]) -> list[ComparedStep]:
    """Return what a step compared, by kind."""
    kept: Counter[str] = Counter()
    near: dict[str, Nearness] = {}
    for key in record.shards:
        table = run.store.rows(record.step, key, ["id", "kind", "contamination"])
        for row in table.to_pylist():
            if row["kind"] in record.kinds:
                kept[row["kind"]] += 1
                near.setdefault(row["kind"], Nearness()).add(row)
    dropped = Counter(copy.kind for copy in copies)
    return [
        ComparedStep(
            label=record.label,
            kind=kind,
            seen=kept[kind] + dropped[kind],
            dropped=dropped[kind],
            **near.get(kind, Nearness()).spreads(),
        )
        for kind in sorted({*kept, *dropped})
    ]


def _benchmarks(run: Run, records: list[Record]) -> list[ComparedBenchmark]:
    """Return what rows were compared with, by the hashes of the fingerprint files."""
    wanted = {sha for record in records for sha in record.identity["options"]["against"]}
    files = _files(run) if wanted else {}
    found = [_benchmark(sha, files.get(sha)) for sha in sorted(wanted)]
    return sorted(found, key=lambda benchmark: benchmark.name or "~")


def _benchmark(sha: str, file: Path | None) -> ComparedBenchmark:
    if file is None:
        return ComparedBenchmark(name=None, version=None, url=None, items=None, sha256=sha)
    known = read_benchmark(file)
    return ComparedBenchmark(
        name=known.name, version=known.version, url=known.url, items=len(known.items), sha256=sha
    )


def _files(run: Run) -> dict[str, Path]:
    """Return the fingerprint files that are there, those shipped and the recipe's, by sha256."""
    steps: list[dict[str, Any]] = run.known["recipe"].get("steps", [])
    named = {name for step in steps for name in step.get("against", ())}
    files = {}
    for name in sorted({*shipped_names(), *named}):
        try:
            file = find_file(name)
        except InputError:
            continue  # it was moved since the run: what is known of it is its hash
        files[file_sha256(file)] = file
    return files
