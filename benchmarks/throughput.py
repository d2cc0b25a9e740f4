"""Verdicts per second: our judge against the usual harness, on the same candidates in one run.

    python benchmarks/throughput.py PAIRS.jsonl RESULT.json --backend cuda --count 256

PAIRS.jsonl has a JSON object per line, with ``id``, ``reference`` and ``triton``; pairs are taken
from it at even distances. There are two cases: every candidate answers a problem of its own, and
eight answer each problem, as where a model is sampled. The samples are one pair's kernels with a
comment of their own, so that each is compiled anew.

With ``--case alone`` or ``sampled`` there is one of the two.

The judge runs all candidates without timing, and (on a device) the first of them again with it.
The usual harness is `usual_harness.py`: a fresh process for each candidate, one after the other
(without a GPU, with kernels in Triton's interpreter). It takes seconds for each, so that it gets a
sample of those that were judged with timing, at even distances; one process gives both of its
times, since what its timing takes is measured inside. All seconds include starting up, and Triton's
cache is empty at every start.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.verify import Candidate, Options, Verdict, verify

SAMPLES = 8
"""Candidates of one problem in the second case."""

SLOWEST = 8
"""Verdicts that the report shows with the seconds of each stage."""

USUAL = Path(__file__).with_name("usual_harness.py")
USUAL_TIMEOUT_S = 120.0


def spaced(rows: list[Any], count: int) -> list[Any]:
    """Return ``count`` of the rows at even distances, or all where there are fewer."""
    count = min(count, len(rows))
    return [rows[i * len(rows) // count] for i in range(count)]


def resample(text: str, number: int) -> str:
    """Return a program whose kernels have a comment more, and so another key in Triton's cache."""
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            lines.insert(node.body[0].lineno - 1, f"    # sample {number}")
    return "\n".join(lines) + "\n"


def make_cases(pairs: list[dict[str, Any]], count: int, which: str) -> dict[str, list[Candidate]]:
    """Return the candidates of the cases that are asked for, ``count`` in each."""
    alone = [Candidate(p["id"], p["reference"], p["triton"]) for p in spaced(pairs, count)]
    sampled = [
        Candidate(f"{p['id']}#{number}", p["reference"], resample(p["triton"], number))
        for p in spaced(pairs, max(1, count // SAMPLES))
        for number in range(SAMPLES)
    ]
    cases = {"alone": ("one candidate a problem", alone)}
    cases["sampled"] = (f"{SAMPLES} candidates a problem", sampled)
    return dict(cases[name] for name in cases if which in (name, "both"))


def judged(candidates: list[Candidate], options: Options) -> tuple[dict[str, Any], list[Verdict]]:
    """Return the figures of one call of `verify`, and its verdicts."""
    verdicts, ends = [], []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        started = time.perf_counter()
        for verdict in verify(candidates, options):
            ends.append(time.perf_counter() - started)
            verdicts.append(verdict)
        seconds = time.perf_counter() - started
    trials = collections.Counter(v.trials for v in verdicts if v.status == "correct")
    return {
        "candidates": len(candidates),
        "verdicts": len(verdicts),
        "seconds": round(seconds, 2),
        "seconds_to_the_first": round(ends[0], 2),
        "verdicts_per_s": round(len(verdicts) / seconds, 2),
        "verdicts_per_s_after_the_first": round((len(ends) - 1) / max(ends[-1] - ends[0], 1e-9), 2),
        "seconds_per_candidate": round(seconds / len(verdicts), 4),
        "with_timing": sum(v.timing is not None for v in verdicts),
        "input_sets_of_the_correct": dict(sorted(trials.items())),
        "statuses": count(v.status + (f" ({v.reason})" if v.reason else "") for v in verdicts),
        "not_correct": {v.id: v.status for v in verdicts if v.status != "correct"},
        "seconds_by_stage": by_stage(verdicts),
        "slowest": {v.id: v.seconds for v in sorted(verdicts, key=in_all)[-SLOWEST:]},
    }, verdicts


def in_all(verdict: Verdict) -> float:
    """Return how long the judge took for one candidate."""
    return verdict.seconds.get("in all", 0.0)


def by_stage(verdicts: list[Verdict]) -> dict[str, float]:
    """Return the mean seconds of a verdict, in all and waited for each request to a process."""
    total: collections.Counter[str] = collections.Counter()
    for verdict in verdicts:
        total.update(verdict.seconds)
    return {name: round(value / len(verdicts), 4) for name, value in total.most_common()}


def usual(candidates: list[Candidate], backend: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the figures of the usual harness, and its status for each candidate."""
    walls, timings, statuses = [], [], {}
    with tempfile.TemporaryDirectory() as cache:
        for candidate in candidates:
            result, wall = usual_process(candidate, backend, cache)
            walls.append(wall)
            timings.append(result.get("timing_s", 0.0))
            statuses[candidate.id] = result["status"]
    untimed = [wall - timing for wall, timing in zip(walls, timings, strict=True)]
    return {
        "candidates": len(candidates),
        "seconds": round(sum(walls), 2),
        "seconds_per_candidate": round(statistics.mean(untimed), 3),
        "seconds_per_candidate_median": round(statistics.median(untimed), 3),
        "seconds_per_candidate_timed": round(statistics.mean(walls), 3),
        "verdicts_per_s": round(len(walls) / sum(untimed), 3),
        "verdicts_per_s_timed": round(len(walls) / sum(walls), 3),
        "walls": [round(wall, 2) for wall in walls],
        "statuses": count(statuses.values()),
    }, statuses


def usual_process(candidate: Candidate, backend: str, cache: str) -> tuple[dict[str, Any], float]:
    """Return what the usual harness says of one candidate, and the wall seconds it took."""
    device = "cuda" if backend == "cuda" else "cpu"
    given = {"reference": candidate.reference, "candidate": candidate.candidate, "device": device}
    interpret = {"TRITON_INTERPRET": "1"} if backend == "cpu" else {}
    started = time.perf_counter()
    try:
        ran = subprocess.run(
            [sys.executable, str(USUAL)],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=USUAL_TIMEOUT_S,
            env={**os.environ, "TRITON_CACHE_DIR": cache, **interpret},
        )
    except subprocess.TimeoutExpired:
        return {"status": "timeout"}, time.perf_counter() - started
    wall = time.perf_counter() - started
    lines = ran.stdout.splitlines()
    if ran.returncode or not lines:
        return {"status": "crash", "message": ran.stderr[-300:]}, wall
    result: dict[str, Any] = json.loads(lines[-1])
    return result, wall


def count(values: Iterable[str]) -> dict[str, int]:
    """Return how often each value is there, the most frequent first."""
    return dict(collections.Counter(values).most_common())


def run_case(candidates: list[Candidate], given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one case."""
    options = {"backend": given.backend, "workers": given.workers}
    figures, verdicts = judged(candidates, Options(**options))
    print(json.dumps({"judge": figures}), file=sys.stderr, flush=True)
    report: dict[str, Any] = {"judge": figures}
    if given.backend == "cuda" and given.timed:
        timed = candidates[: given.timed]
        report["judge_timed"], _ = judged(timed, Options(**options, timing=True))
        print(json.dumps({"judge_timed": report["judge_timed"]}), file=sys.stderr, flush=True)
    sample = spaced(candidates[: given.timed or None], given.sample)
    report["usual"], statuses = usual(sample, given.backend)
    ours = {v.id: v.status for v in verdicts}
    report["judge -> usual"] = count(f"{ours.get(i)} -> {s}" for i, s in statuses.items())
    slow = report["usual"]["seconds_per_candidate"]
    report["times_faster"] = round(slow * figures["verdicts_per_s"], 1)
    report["times_faster_after_the_first"] = round(
        slow * figures["verdicts_per_s_after_the_first"], 1
    )
    if "judge_timed" in report:
        slow = report["usual"]["seconds_per_candidate_timed"]
        report["times_faster_timed"] = round(slow * report["judge_timed"]["verdicts_per_s"], 1)
    return report


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--backend", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--case", choices=("both", "alone", "sampled"), default="both")
    parser.add_argument("--count", type=int, default=256, help="candidates of each case")
    parser.add_argument("--timed", type=int, default=64, help="of them judged with timing too")
    parser.add_argument("--sample", type=int, default=12, help="of them for the usual harness")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    return parser.parse_args()


def main() -> None:
    """Measure both cases, print them, write them to the result."""
    given = parse()
    pairs = [json.loads(line) for line in given.pairs.read_text().splitlines()]
    report: dict[str, Any] = {
        "backend": given.backend,
        "workers": given.workers,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    for name, candidates in make_cases(pairs, given.count, given.case).items():
        report[name] = run_case(candidates, given)
        given.result.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
