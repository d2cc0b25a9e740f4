"""Our judge on programs for KernelBench's problems, and KernelBench's own check on the same ones.

    python benchmarks/kernelbench.py PAIRS.jsonl RESULT.json --checkout FOLDER --limit 300

PAIRS.jsonl has a JSON object per line, with ``id``, ``reference`` and ``triton``, as
`kernelbench_pairs.py` writes them. All are judged, each on 8 draws; the result is written after
every verdict, so that a run that is killed loses nothing. With ``--checkout``, a checkout of
KernelBench, its ``eval_kernel_against_ref`` then judges ``--their-count`` of the programs that have
a verdict, taken at even distances, each in a fresh process (`kernelbench_harness.py`, untimed).
Triton's cache is empty at the start of both.

Both say ``correct`` or something else: the result lists the programs on which they differ.
KernelBench leaves modules in training mode, for which our programs are not written: a program that
we find right and KernelBench does not is shown to it again, with both modules in eval mode. Seconds
for one program are those of the whole, with start-up, divided by the number of verdicts.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from throughput import spaced

from curate.engine.processes.time_limit import OutOfTime, time_limit
from curate.verify import Candidate, Options, Verdict, verify

HARNESS = Path(__file__).with_name("kernelbench_harness.py")
UNJUDGED = ("degenerate", "unsupported")
SHOWN = 20
"""Verdicts per line of progress."""


EVAL_MODE = """

def _in_eval_mode(build):
    def init(self, *args, **kwargs):
        build(self, *args, **kwargs)
        self.eval()

    return init


{0}.__init__ = _in_eval_mode({0}.__init__)
"""
"""What makes a class's modules begin in eval mode."""


class Report:
    """What was found so far, in memory and in the file."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.path, self.fields = path, fields
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self) -> None:
        """Write the file as a whole."""
        draft = self.path.with_name(self.path.name + ".new")
        draft.write_text(json.dumps(self.fields, indent=1, default=str) + "\n", encoding="utf-8")
        draft.replace(self.path)


def entry(verdict: Verdict, seconds: float) -> dict[str, Any]:
    """Return what is recorded of a verdict; evidence only where it is not ``correct``."""
    found: dict[str, Any] = {
        "id": verdict.id,
        "status": verdict.status,
        "reason": verdict.reason,
        "caveats": list(verdict.caveats),
        "trials": verdict.trials,
        "error_ratio": verdict.error_ratio,
        "seconds": round(seconds, 2),
        "stages": verdict.seconds,
    }
    if verdict.status != "correct":
        found["evidence"] = json.dumps(verdict.evidence, default=str)[:2000]
    return found


def level(name: str) -> str:
    """Return the level in a program's id, with a space after it; nothing where there is none."""
    return f"{name.split('/')[0]} " if "/" in name else ""


def judge(rows: list[dict[str, Any]], given: argparse.Namespace, report: Report) -> None:
    """Judge all programs within the limit, and add what was found to the report."""
    options = Options(
        backend=given.backend, workers=given.workers, timeout_s=given.timeout, trials=8
    )
    candidates = [Candidate(row["id"], row["reference"], row["triton"]) for row in rows]
    found: list[dict[str, Any]] = []
    report.fields["verdicts"] = found
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        started = time.monotonic()
        try:
            with (
                time_limit(given.limit),
                contextlib.closing(verify(candidates, options)) as verdicts,  # type: ignore[type-var]
            ):
                for verdict in verdicts:
                    found.append(entry(verdict, time.monotonic() - started))
                    report.write()
                    if len(found) % SHOWN == 0:
                        print(f"{len(found)} verdicts, {found[-1]['seconds']} s", flush=True)
        except OutOfTime:
            print(f"stopped after {given.limit} s", flush=True)
        seconds = min(time.monotonic() - started, given.limit)
    judged = {one["id"] for one in found}
    per_level = collections.Counter(f"{level(one['id'])}{one['status']}" for one in found)
    report.fields["judge"] = {
        "programs": len(rows),
        "verdicts": len(found),
        "not_judged": [row["id"] for row in rows if row["id"] not in judged],
        "seconds": round(seconds, 2),
        "seconds_to_the_first": found[0]["seconds"] if found else None,
        "seconds_per_program": round(seconds / max(len(found), 1), 3),
        "statuses": dict(sorted(per_level.items())),
        "reasons": dict(collections.Counter(one["reason"] for one in found if one["reason"])),
        "caveats": dict(collections.Counter(c for one in found for c in one["caveats"])),
    }
    report.write()


def theirs(row: dict[str, Any], given: argparse.Namespace, cache: str) -> dict[str, Any]:
    """Return what KernelBench says of one program, and the wall seconds of its process."""
    asked = {"checkout": str(given.checkout), "reference": row["reference"]}
    started = time.monotonic()
    result: dict[str, Any]
    try:
        ran = subprocess.run(
            [sys.executable, str(HARNESS)],
            input=json.dumps({**asked, "candidate": row["triton"]}),
            capture_output=True,
            text=True,
            timeout=given.their_timeout,
            env={**os.environ, "TRITON_CACHE_DIR": cache},
        )
    except subprocess.TimeoutExpired:
        result = {"status": "timeout"}
    else:
        lines = ran.stdout.splitlines()
        if ran.returncode or not lines:
            result = {"status": "crash", "metadata": {"stderr": ran.stderr[-600:]}}
        else:
            result = json.loads(lines[-1])
    return {"id": row["id"], **result, "wall_s": round(time.monotonic() - started, 2)}


def compare(rows: list[dict[str, Any]], given: argparse.Namespace, report: Report) -> None:
    """Have KernelBench judge programs that have a verdict, and add how the two agree."""
    ours = {one["id"]: one for one in report.fields["verdicts"]}
    chosen = spaced([row for row in rows if row["id"] in ours], given.their_count)
    found: list[dict[str, Any]] = []
    report.fields["kernelbench_verdicts"] = found
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        for row in chosen:
            if time.monotonic() - started > given.their_limit:
                print(f"KernelBench stopped after {given.their_limit} s", flush=True)
                break
            found.append(theirs(row, given, cache))
            report.write()
            if len(found) % SHOWN == 0:
                print(f"KernelBench: {len(found)} verdicts", flush=True)
    differences, agreed, compared = [], 0, 0
    for one in found:
        our = ours[one["id"]]
        if our["status"] in UNJUDGED:
            continue
        compared += 1
        if (our["status"] == "correct") == (one["status"] == "correct"):
            agreed += 1
        else:
            said = {"id": one["id"], "ours": our["status"], "reason": our["reason"]}
            evidence = {"evidence": our.get("evidence"), "metadata": one.get("metadata")}
            differences.append({**said, "theirs": one["status"], **evidence})
    by_id = {row["id"]: row for row in rows}
    for difference in differences:
        if difference["ours"] == "correct" and time.monotonic() - started < given.their_limit:
            row = by_id[difference["id"]]
            changed = {
                "reference": row["reference"] + EVAL_MODE.format("Model"),
                "triton": row["triton"] + EVAL_MODE.format("ModelNew"),
            }
            with tempfile.TemporaryDirectory() as cache:
                again = theirs({**row, **changed}, given, cache)
            difference["theirs_in_eval_mode"] = again["status"]
    if not found:
        return
    slow = statistics.mean(one["wall_s"] for one in found)
    fast = report.fields["judge"]["seconds_per_program"]
    pairs = (f"{ours[one['id']]['status']} -> {one['status']}" for one in found)
    report.fields["kernelbench"] = {
        "verdicts": len(found),
        "ours -> theirs": dict(collections.Counter(pairs).most_common()),
        "compared": compared,
        "agreed": agreed,
        "agreed_in_eval_mode": agreed
        + sum(one.get("theirs_in_eval_mode") == "correct" for one in differences),
        "differences": differences,
        "seconds_per_program": round(slow, 3),
        "seconds_per_program_median": round(statistics.median(o["wall_s"] for o in found), 3),
        "our_seconds_per_program": fast,
        "times_faster": round(slow / fast, 2),
    }
    report.write()


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--first", type=int, help="only so many pairs, from the first")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for one program")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds for our verdicts")
    parser.add_argument("--checkout", type=Path, help="KernelBench's; without it only we judge")
    parser.add_argument("--their-count", type=int, default=20, help="programs for KernelBench")
    parser.add_argument("--their-timeout", type=float, default=120.0, help="seconds for one")
    parser.add_argument("--their-limit", type=float, default=180.0, help="seconds for all of them")
    return parser.parse_args()


def main() -> None:
    """Judge, compare, print."""
    given = parse()
    rows = [json.loads(line) for line in given.pairs.read_text(encoding="utf-8").splitlines()]
    rows = rows[: given.first]
    report = Report(given.result, backend=given.backend, workers=given.workers)
    judge(rows, given, report)
    if given.checkout:
        compare(rows, given, report)
    shown = {
        name: report.fields[name] for name in ("judge", "kernelbench") if name in report.fields
    }
    print(json.dumps(shown, indent=1, default=str))


if __name__ == "__main__":
    main()
