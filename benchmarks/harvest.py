"""What a run made of every package's kernels: how many are left after each step, and why not more.

    python benchmarks/harvest.py OUTPUT/RECIPE [--json FILE]

Reads the folder that `curate run` wrote for a recipe with the steps `kernels`, `closure` and
`compile` and the format `kernels`, and prints Markdown; ``--json`` writes the same and the losses
of each package to a file. The count after a step is the final rows and the rows lost later, and is
checked against the run's own ledger. Processor seconds are of the jobs alone, without their start,
and come from the cache next to the folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.engine.records import read_records
from curate.engine.store import Store

COLUMNS = {
    "kernels": "found",
    "closure": "sliced",
    "licenses#2": "licensed",
    "dedupe": "distinct",
    "decontaminate": "clean",
    "signature": "signature",
}
"""Steps after which kernels are counted, and what those are called that are left."""

SLICES = "clean"
"""What the shares of compiling kernels are shares of."""

LEGEND = """\
refused: functions with a jit decorator in files that may not be used, counted by a search.
Then kernels left after each step. wrapped: with a function that launches them. ran: it did.
"""

DECORATOR = re.compile(r"^[ \t]*@(?:\w+\.)*jit\b", re.M)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        ledger: the counts of every stage, in order.
        final: rows of the format `kernels`.
        lost: rows that a stage lost, by its label.
    """

    ledger: list[dict[str, Any]]
    final: Rows
    lost: dict[str, Rows]


def read_run(folder: Path) -> Run:
    """Return what the run wrote."""
    ledger = json.loads((folder / "run.json").read_bytes())["ledger"]
    final = pl.read_parquet(folder / "kernels" / "*.parquet").to_dicts()
    lost = {path.stem: pl.read_parquet(path).to_dicts() for path in folder.glob("lost/*.parquet")}
    return Run(ledger, final, lost)


def package_of(row: dict[str, Any]) -> str:
    """Return the package that a row is from, with its version."""
    return str(row["origin"]["purl"]).removeprefix("pkg:pypi/")


def count(rows: Rows) -> Counter[str]:
    """Return the number of rows by package."""
    return Counter(map(package_of, rows))


def funnel(run: Run) -> dict[str, Counter[str]]:
    """Return how many kernels each package has left, by the names in ``COLUMNS``.

    Raises:
        SystemExit: the counts are not those of the ledger.
    """
    left, counts = count(run.final), {}
    for stage in reversed(run.ledger):
        label = stage["step"]
        if left.total() != stage["emitted"]:
            raise SystemExit(f"{label}: {left.total()} kernels here, {stage['emitted']} in the run")
        counts[label] = left
        if label == "kernels":
            break
        left = left + count(run.lost.get(label, []))
    return {name: counts[label] for label, name in COLUMNS.items() if label in counts}


def refused(run: Run) -> Counter[str]:
    """Return the `jit` functions in files that the licenses' step dropped, by package."""
    functions: Counter[str] = Counter()
    for row in run.lost.get("licenses#1", []):
        if "triton" in row["text"]:
            functions[package_of(row)] += len(DECORATOR.findall(row["text"]))
    return functions


def labels(run: Run) -> tuple[dict[str, Counter[str]], Counter[str], Counter[str]]:
    """Return kernels by package: that compile, by target; that have a wrapper; that it ran."""
    targets: dict[str, Counter[str]] = defaultdict(Counter)
    wrapped: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for row in run.final:
        for result in row["compile"]:
            targets[result["target"]][package_of(row)] += result["ok"]
        wrapped[package_of(row)] += row["host_function"] is not None
        ran[package_of(row)] += (row["kernel"]["run"] or {}).get("status") == "ran"
    return targets, wrapped, ran


def losses(run: Run) -> dict[tuple[str, str], Counter[str]]:
    """Return the rows lost by package, for every step and reason in the order of the steps."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for stage in run.ledger:
        for row in run.lost.get(stage["step"], []):
            found.setdefault((stage["step"], row["reason"]), Counter())[package_of(row)] += 1
    return found


def search(run: Run) -> dict[str, Any]:
    """Return what finding the signatures cost, and how they were found."""
    kernels = [row["kernel"] for row in run.final]
    attempts = pl.Series([kernel["attempts"] for kernel in kernels], dtype=pl.Int64)
    return {
        "kernels": len(kernels),
        "found_by": dict(Counter(kernel["found_by"] for kernel in kernels).most_common()),
        "compilations_mean": attempts.mean(),
        "compilations_median": attempts.median(),
        "compilations_p95": attempts.quantile(0.95, "nearest"),
        "compilations_max": attempts.max(),
    }


def speed(folder: Path) -> list[dict[str, Any]]:
    """Return the processor seconds of every stage, and the rows per second that it saw."""
    store, stages = Store(folder.parent), []
    for record in read_records(folder.parent, folder.name):
        manifests = [store.manifest(record.step, key) for key in record.shards]
        seconds = sum(manifest.cpu_s for manifest in manifests if manifest)
        rows = sum(manifest.seen - manifest.untouched for manifest in manifests if manifest)
        rate = rows / seconds if seconds else None
        stages.append({"step": record.label, "rows": rows, "cpu_s": seconds, "rows_per_s": rate})
    return stages


def summarize(folder: Path) -> dict[str, Any]:
    """Return everything, as JSON values."""
    run = read_run(folder)
    targets, wrapped, ran = labels(run)
    left = {"refused": refused(run), **funnel(run), **targets, "wrapped": wrapped, "ran": ran}
    packages = sorted(set().union(*left.values()), key=lambda p: (-left["found"][p], p))
    return {
        "packages": {p: {name: column[p] for name, column in left.items()} for p in packages},
        "total": {name: column.total() for name, column in left.items()},
        "targets": list(targets),
        "losses": [
            {"step": step, "reason": reason, "rows": by.total(), "packages": dict(by.most_common())}
            for (step, reason), by in losses(run).items()
        ],
        "search": search(run),
        "speed": speed(folder),
    }


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["-"] * len(header), *rows]
    return "\n".join(f"|{'|'.join(map(str, line))}|" for line in lines) + "\n"


def share(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def markdown(facts: dict[str, Any]) -> str:
    """Return the facts as tables."""
    names, total = list(facts["total"]), facts["total"]
    columns = [name for name in names if name not in facts["targets"]]
    for main in ("cuda:90", "hip:gfx942"):
        if main in facts["targets"]:
            columns.insert(columns.index("wrapped"), main)
    packages = [[p, *(row[c] for c in columns)] for p, row in facts["packages"].items()]
    summary = [["**all**", *(total[c] for c in columns)]]
    signatures = dict(facts["search"])
    signatures["found_by"] = ", ".join(f"{how} {n}" for how, n in signatures["found_by"].items())
    targets = [[t, total[t], share(total[t], total[SLICES])] for t in facts["targets"]]
    lost = [
        [
            entry["step"],
            entry["reason"],
            entry["rows"],
            ", ".join(f"{p} {n}" for p, n in list(entry["packages"].items())[:4]),
        ]
        for entry in facts["losses"]
    ]
    rates = [
        [s["step"], s["rows"], f"{s['cpu_s']:.1f}", f"{s['rows_per_s']:.1f}"]
        for s in facts["speed"]
        if s["rows_per_s"]
    ]
    return "\n".join(
        [
            LEGEND,
            table(["package", *columns], packages + summary),
            table(["target", "compile", f"of the {SLICES}"], targets),
            table(["step", "reason", "rows", "most in"], lost),
            table(["signatures", ""], [[name, value] for name, value in signatures.items()]),
            table(["step", "rows", "CPU seconds", "rows a CPU second"], rates),
        ]
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what `curate run` wrote for the recipe")
    parser.add_argument("--json", type=Path, help="file for the same as JSON")
    given = parser.parse_args()
    facts = summarize(given.folder)
    print(markdown(facts))
    if given.json:
        given.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
