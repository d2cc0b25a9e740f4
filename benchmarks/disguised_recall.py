"""Which problems `decontaminate` finds when they are written otherwise, and what else it drops.

    python benchmarks/disguised_recall.py RESULT.json KernelBench/KernelBench/level2 [level3 …] \\
        --every 3 --rows CACHE/steps/standalone/*[0-9a-f].parquet

Recall: problems in KernelBench's form, from folders at the commit of the shipped fingerprints, are
written otherwise in the ways of `disguises.py`, traced by the step `wiring` and put to the step
`decontaminate`, at their defaults. A copy that cannot be traced counts in ``untraced`` and, where
no text tells it, in ``missed``; some of these do not run at all. Each kind is measured with the
names as they are and with all renamed.

Rows: every row with a reference that ``wiring`` and ``values`` drop is named in RESULT.json, with
the item, to be read; and how many items of each folder a kept row computes, by values.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from contamination import Renamer
from disguises import CONTAINERS, DISGUISES, NoPlace, disguised

from curate.clean.decontaminate import Decontaminate
from curate.clean.wiring.wiring import Wiring
from curate.engine.executor import Job
from curate.engine.processes.local import LocalExecutor
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop

TEXTS = ("structure", "overlap", "resemblance")


def renamed(code: str) -> str:
    """Return a program with all its own names changed, but for those of KernelBench's form."""
    tree = ast.parse(code)
    kept = Renamer(tree)
    kept._names = {name: new for name, new in kept._names.items() if name != "Model"}
    kept.visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def copies_of(code: str) -> Iterator[tuple[str, Row]]:
    """Yield the copies of a problem, each with its kind."""
    for kind, edits in {"copy": (), **DISGUISES}.items():
        for suffix in ("", ", renamed"):
            try:
                text = disguised(renamed(code) if suffix else code, edits)
            except (NoPlace, RecursionError):
                continue
            origin = make_origin("local")
            yield kind + suffix, make_row("task", text, origin, reference=text)
    for kind, contain in CONTAINERS.items():
        for suffix in ("", ", renamed"):
            content = contain(renamed(code) if suffix else code)
            turns = [{"role": "user", "content": content}]
            yield kind + suffix, make_row("prompt", content, make_origin("local"), turns=turns)


def traced(rows: list[Row], timeout_s: float) -> list[Row]:
    """Return rows with the column ``wiring``, from the sandbox."""
    step = Wiring(step="wiring", timeout_s=timeout_s)
    jobs = (Job("", number, [row]) for number, row in enumerate(rows))
    found = list(rows)
    for job, _, result in LocalExecutor(os.cpu_count() or 1).run(step, Context(), jobs):
        for row in result.kept:
            found[job.start] = row
    return found


def measure_recall(folders: list[Path], every: int, step: Decontaminate) -> list[dict[str, Any]]:
    """Return, for each folder and kind, how many copies there are and what found them."""
    results = []
    for folder in folders:
        files = sorted(folder.glob("*.py"))[::every]
        made = [(f.name, kind, row) for f in files for kind, row in copies_of(f.read_text())]
        rows = traced([row for _, _, row in made], 60)
        counts: dict[str, Counter[str]] = {}
        missed: dict[str, list[str]] = {}
        for (name, kind, _), row in zip(made, rows, strict=True):
            count = counts.setdefault(kind, Counter())
            outcome = step.apply(row, Context())
            count["copies"] += 1
            count["untraced"] += row["reference"] is not None and row["wiring"] is None
            if isinstance(outcome, Drop):
                count[outcome.evidence["tier"]] += 1
            else:
                missed.setdefault(kind, []).append(name)
        for kind, count in counts.items():
            found = sum(count[tier] for tier in (*TEXTS, "wiring", "values"))
            texts = sum(count[tier] for tier in TEXTS)
            facts = {"folder": folder.name, "kind": kind, **dict(count), "found": found}
            results.append(facts | {"by texts": texts, "missed": missed.get(kind, [])})
    return results


def measure_rows(files: list[Path], step: Decontaminate) -> dict[str, Any]:
    """Return what becomes of a run's rows with a reference."""
    kinds = ("task", "pair")
    known: dict[str, Row] = {}
    for file in files:
        for row in pl.read_parquet(file).iter_rows(named=True):
            if row["kind"] in kinds and row["reference"]:
                known[row["reference"]] = json.loads(json.dumps(row, default=str))
    rows = [make_row("task", "", make_origin("local")) | row for row in known.values()]
    started = time.monotonic()
    rows = traced(rows, 60)
    seconds = time.monotonic() - started
    dropped = []
    for row in rows:
        outcome = step.apply(row, Context())
        if isinstance(outcome, Drop):
            symbol = (row["origin"] or {}).get("symbol")
            dropped.append({"symbol": symbol, "reason": outcome.reason, **outcome.evidence})
    untraced = sum(row["wiring"] is None for row in rows)
    facts = {"rows": len(rows), "untraced": untraced, "wiring_s": round(seconds, 1)}
    return facts | {"dropped": sorted(dropped, key=lambda d: (d["tier"], str(d["symbol"])))}


def markdown(results: list[dict[str, Any]]) -> str:
    """Return recall as a table."""
    lines = ["|folder|kind|copies|by texts|wiring|values|found|untraced|", "|-|-|-|-|-|-|-|-|"]
    for r in results:
        share = f"{r['found']} ({100 * r['found'] / r['copies']:.0f} %)"
        cells = [r[name] for name in ("folder", "kind", "copies", "by texts")]
        cells += [r.get(name, 0) for name in ("wiring", "values")]
        lines.append("|".join(["", *map(str, [*cells, share, r.get("untraced", 0)]), ""]))
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, write all to the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--every", type=int, default=3, help="take every such problem")
    parser.add_argument("--rows", type=Path, nargs="*", default=[], help="Parquet files of a run")
    given = parser.parse_args()
    step = Decontaminate(step="decontaminate")
    facts: dict[str, Any] = {"recall": measure_recall(given.folders, given.every, step)}
    if given.rows:
        facts["rows"] = measure_rows(given.rows, step)
    print(markdown(facts["recall"]))
    print({k: v for k, v in facts.get("rows", {}).items() if k != "dropped"})
    given.result.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
