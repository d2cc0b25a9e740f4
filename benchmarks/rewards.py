"""Verified rewards per second, as reinforcement learning asks for them: 256 answers at a time.

    python benchmarks/rewards.py PAIRS.jsonl RESULT.json --backend cuda --workers 16

PAIRS.jsonl has a JSON object per line, with ``id``, ``reference`` and ``triton``. A batch is eight
answers to each of 32 problems, as GRPO samples them; no two are alike. Three of each eight are the
pair's program with a comment of their own in its kernels, four have one fault (`mutate`), and one
breaks off half way, as an answer that is too long does.

There are three calls of one `VerifiedReward`: the first starts the judge's processes, the second
has other problems and finds them warm, the third has the second's answers again. The usual way, a
fresh process for each answer (`usual_harness.py`, without its timing), gets a few of the second's
answers, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutate import mutants
from throughput import count, resample, spaced, usual_process

from curate.teacher.program import program_of
from curate.teacher.template import fence
from curate.train.rewards import VerifiedReward
from curate.verify.verdict import Candidate, Options

GROUP, RIGHT, FAULTY = 8, 3, 4

Batch = list[tuple[str, str]]
"""References and answers."""


def answers(pair: dict[str, Any]) -> list[str]:
    """Return a group of answers to one problem."""
    program = pair["triton"]
    faulty = [mutant.text for mutant in mutants(program, seed=0, limit=FAULTY)]
    right = [resample(program, number) for number in range(GROUP - 1 - len(faulty))]
    broken_off = fence(program)[: len(program) * 2 // 3]
    return [*(fence(text) for text in [*right, *faulty]), broken_off]


def make_batches(pairs: list[dict[str, Any]], size: int) -> list[Batch]:
    """Return two batches of other problems."""
    problems = size // GROUP
    chosen = spaced(pairs, 2 * problems)
    return [
        [(pair["reference"], text) for pair in chosen[part::2] for text in answers(pair)]
        for part in range(2)
    ]


def rewarded(reward: VerifiedReward, batch: Batch, began: float) -> dict[str, Any]:
    """Return the figures of one call, in seconds since ``began``."""
    references, completions = zip(*batch, strict=True)
    rewards = reward(completions, reference=references)
    seconds = time.perf_counter() - began
    known = [value for value in rewards if value is not None]
    return {
        "completions": len(batch),
        "seconds": round(seconds, 3),
        "rewards_per_s": round(len(batch) / seconds, 2),
        "judged": len({one.id for one in reward.scored if one.id and not one.cached}),
        "statuses": count(one.status for one in reward.scored),
        "rewards": count(f"{value}" for value in rewards),
        "mean": round(statistics.mean(known), 4),
        "std": round(statistics.stdev(known), 4),
    }


def usual(batch: Batch, sample: int, backend: str) -> dict[str, Any]:
    """Return the figures of a fresh process for each of some answers."""
    walls, statuses = [], []
    with tempfile.TemporaryDirectory() as cache:
        for reference, answer in spaced(batch, sample):
            candidate = Candidate("one", reference, program_of(answer) or "")
            result, wall = usual_process(candidate, backend, cache)
            walls.append(wall - result.get("timing_s", 0.0))
            statuses.append(result["status"])
    return {
        "completions": len(walls),
        "seconds_per_completion": round(statistics.mean(walls), 3),
        "rewards_per_s": round(len(walls) / sum(walls), 3),
        "statuses": count(statuses),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--backend", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--size", type=int, default=256, help="completions in a batch")
    parser.add_argument("--sample", type=int, default=12, help="of them in fresh processes")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one program")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write the figures to the result."""
    given = parse()
    pairs = [json.loads(line) for line in given.pairs.read_text().splitlines()]
    first, second = make_batches(pairs, given.size)
    options = Options(backend=given.backend, workers=given.workers, timeout_s=given.timeout)
    report: dict[str, Any] = {
        "backend": given.backend,
        "workers": given.workers,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        began = time.perf_counter()
        with VerifiedReward(options) as reward:
            report["cold"] = rewarded(reward, first, began)
            report["warm"] = rewarded(reward, second, time.perf_counter())
            report["known"] = rewarded(reward, second, time.perf_counter())
    print(json.dumps(report), file=sys.stderr, flush=True)
    report["fresh_processes"] = usual(second, given.sample, given.backend)
    slow = report["fresh_processes"]["rewards_per_s"]
    for name in ("cold", "warm"):
        report[f"times_faster_{name}"] = round(report[name]["rewards_per_s"] / slow, 1)
    given.result.parent.mkdir(parents=True, exist_ok=True)
    given.result.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
