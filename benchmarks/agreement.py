"""Do the judge without a GPU and the judge with one give the same pairs the same label?

    python benchmarks/agreement.py export PAIRS_FOLDER PAIRS.jsonl
    python benchmarks/agreement.py judge PAIRS.jsonl RESULT.json --backend cuda

``export`` writes the pairs of a data set, with the verdicts of `curate run`, as JSON lines, for a
node that has only torch and triton. ``judge`` judges all of them on that node's device and prints
how often the two verdicts agree; the result lists every pair whose verdicts differ and every pair
that the device does not find correct, with the evidence. With ``--backend cpu`` no device is
needed, and verdicts of a run on a GPU are compared with those of the judge without one.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def export(given: argparse.Namespace) -> None:
    """Write ``id``, ``symbol``, ``reference``, ``triton`` and ``verdict`` of every pair."""
    import polars

    table = polars.read_parquet(given.source / "*.parquet").sort("id")
    with given.target.open("w") as file:
        for row in table.iter_rows(named=True):
            verdict = {name: row["verdict"][name] for name in ("status", "reason", "backend")}
            kept = {name: row[name] for name in ("id", "reference", "triton")}
            symbol = row["origin"]["symbol"]
            file.write(json.dumps({**kept, "symbol": symbol, "verdict": verdict}) + "\n")
    print(f"{table.height} pairs")


def label(verdict: dict[str, Any]) -> str:
    """Return a verdict as one short text."""
    reason = verdict.get("reason")
    return f"{verdict['status']} ({reason})" if reason else str(verdict["status"])


def judge(given: argparse.Namespace) -> None:
    """Judge every pair; print the table, and write it with the pairs that need explaining."""
    from curate.verify.judge.slots import verify
    from curate.verify.verdict import Candidate, Options

    rows = {
        row["id"]: row
        for row in map(json.loads, given.source.read_text().splitlines()[: given.first])
    }
    options = Options(backend=given.backend, timeout_s=given.timeout, workers=given.workers)
    candidates = [Candidate(row["id"], row["reference"], row["triton"]) for row in rows.values()]
    started = time.monotonic()
    verdicts = []
    for verdict in verify(candidates, options):
        verdicts.append(verdict)
        if given.seconds and time.monotonic() - started > given.seconds:
            break
    seconds = time.monotonic() - started
    table: collections.Counter[str] = collections.Counter()
    caveats: collections.Counter[str] = collections.Counter()
    shown = []
    for verdict in sorted(verdicts, key=lambda v: v.id):
        row, found = rows[verdict.id], verdict.to_json()
        table[f"{label(row['verdict'])} -> {label(found)}"] += 1
        caveats.update(verdict.caveats)
        same = row["verdict"]["status"] in (verdict.status, "unsupported")
        if not same or verdict.status != "correct":
            shown.append({"differs": not same, **row, "device": found})
    report = {
        "pairs": len(rows),
        "verdicts": len(verdicts),
        "seconds": round(seconds, 1),
        "before -> now": dict(table.most_common()),
        "differing": sum(row["differs"] for row in shown),
        "caveats": dict(caveats.most_common()),
        "judged_by": {
            name: sorted({str(getattr(v, name)) for v in verdicts})
            for name in ("backend", "device", "driver", "torch", "triton", "judge")
        },
    }
    print(json.dumps(report, indent=1))
    for row in shown:
        before, now = label(row["verdict"]), label(row["device"])
        evidence = json.dumps(row["device"]["evidence"], default=str)[:300]
        print(f"{row['id']} {row.get('symbol')}: {before} -> {now} {evidence}")
    given.target.write_text(json.dumps({**report, "rows": shown}, indent=1, default=str) + "\n")


def main() -> None:
    """Run the command that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for run in (export, judge):
        command = commands.add_parser(run.__name__, help=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("source", type=Path)
        command.add_argument("target", type=Path)
    command.add_argument("--backend", choices=("cuda", "hip", "cpu"), required=True)
    command.add_argument("--first", type=int, help="only so many pairs, from the first")
    command.add_argument("--seconds", type=float, help="stop after so long; what is there counts")
    command.add_argument("--timeout", type=float, default=180.0, help="seconds for one pair")
    command.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
