"""Verified rewards per second, as reinforcement learning asks for them: 256 answers at a time.

    python benchmarks/rewards.py PAIRS.jsonl RESULT.json --backend cuda --workers 16

PAIRS.jsonl has a JSON object per line, with ``id``, ``reference`` and ``triton``. There are two
mixes of answers; no two answers are alike:

``grpo``: eight answers to each of 32 problems, as GRPO samples them. Three of each eight are the
pair's program with a comment of their own in its kernels, four have one fault (`mutate`), and one
breaks off half way, as an answer that is too long does.

``hard``: ten answers to each of 25 problems, as of a model that has just begun to learn. Six do not
compile, each in its own way (`BREAKS`), three have one fault, and one is right.

There are three calls of one `VerifiedReward`: the first starts the judge's processes, the second
has other problems and finds them warm, the third has the second's answers again. The usual way, a
fresh process for each answer (`usual_harness.py`, without its timing), gets a few of the second's
answers, one after the other.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutate import mutants
from throughput import count, resample, spaced, usual_process

from curate.teacher.program import program_of
from curate.teacher.template import fence
from curate.train.rewards import VerifiedReward
from curate.verify import Candidate, Options

GROUP = {"grpo": 8, "hard": 10}
"""Answers to one problem."""

FAULTY = {"grpo": 4, "hard": 3}

SURELY = ("arithmetic operator", "dropped stage")
"""Classes of faults that seldom leave a program right, which ``hard`` prefers."""

BREAKS = {
    "unknown name": "lanes = tl.arange(0, 16) + first_lane",
    "unknown function": "lanes = tl.arange_like(16)",
    "shapes that do not match": "lanes = tl.arange(0, 16) + tl.arange(0, 32)",
    "wrong type": "lanes = tl.load(0.5)",
    "syntax error": "lanes = tl.arange(0, 16",
}
"""Lines that no compiler takes, put first into a program's last kernel. The sixth way not to
compile is an answer that breaks off in the middle of that kernel."""


@dataclass(frozen=True)
class Answer:
    """An answer to a problem, and what it is: ``right``, ``faulty`` or how it is broken."""

    reference: str
    text: str
    kind: str


Batch = list[Answer]


def grpo_answers(pair: dict[str, Any]) -> list[Answer]:
    """Return a group of answers to one problem, most of which run."""
    program = pair["triton"]
    faulty = [mutant.text for mutant in mutants(program, seed=0, limit=FAULTY["grpo"])]
    right = [resample(program, number) for number in range(GROUP["grpo"] - 1 - len(faulty))]
    texts = [*((fence(text), "right") for text in right), *((fence(t), "faulty") for t in faulty)]
    broken_off = fence(program)[: len(program) * 2 // 3], "broken off"
    return [Answer(pair["reference"], text, kind) for text, kind in (*texts, broken_off)]


def hard_answers(pair: dict[str, Any]) -> list[Answer]:
    """Return a group of answers to one problem, most of which do not compile."""
    program = pair["triton"]
    kernel = [node for node in ast.parse(program).body if is_kernel(node)][-1]
    lines = program.splitlines()
    has_docstring = isinstance(kernel.body[0], ast.Expr) and len(kernel.body) > 1
    at = kernel.body[has_docstring].lineno - 1
    broken = {
        kind: "\n".join([*lines[:at], f"    {line}", *lines[at:]]) + "\n"
        for kind, line in BREAKS.items()
    }
    middle = (at + (kernel.end_lineno or at)) // 2 + 1
    texts = [(fence(text), kind) for kind, text in broken.items()]
    texts.append(("\n".join(fence(program).splitlines()[: middle + 1]), "broken off"))
    faults = sorted(mutants(program, seed=0, limit=40), key=lambda m: m.kind not in SURELY)
    texts += [(fence(mutant.text), "faulty") for mutant in faults[: FAULTY["hard"]]]
    right = [resample(program, number) for number in range(GROUP["hard"] - len(texts))]
    texts += [(fence(text), "right") for text in right]
    return [Answer(pair["reference"], text, kind) for text, kind in texts]


def is_kernel(node: ast.stmt) -> bool:
    """Tell whether a statement of a file defines a kernel, or a function of kernels."""
    return isinstance(node, ast.FunctionDef) and bool(node.decorator_list)


ANSWERS = {"grpo": grpo_answers, "hard": hard_answers}


def make_batches(pairs: list[dict[str, Any]], size: int, mix: str) -> list[Batch]:
    """Return two batches of other problems."""
    chosen = spaced(pairs, 2 * (size // GROUP[mix]))
    return [
        [answer for pair in chosen[part::2] for answer in ANSWERS[mix](pair)] for part in range(2)
    ]


def rewarded(reward: VerifiedReward, batch: Batch, began: float) -> dict[str, Any]:
    """Return the figures of one call, in seconds since ``began``."""
    rewards = reward([a.text for a in batch], reference=[a.reference for a in batch])
    seconds = time.perf_counter() - began
    known = [value for value in rewards if value is not None]
    return {
        "completions": len(batch),
        "seconds": round(seconds, 3),
        "rewards_per_s": round(len(batch) / seconds, 2),
        "judged": len({one.id for one in reward.scored if one.id and not one.cached}),
        "statuses": count(one.status for one in reward.scored),
        "kind -> status": count(
            f"{answer.kind} -> {one.status}"
            for answer, one in zip(batch, reward.scored, strict=True)
        ),
        "rewards": count(f"{value}" for value in rewards),
        "mean": round(statistics.mean(known), 4),
        "std": round(statistics.stdev(known), 4),
    }


def usual(batch: Batch, sample: int, backend: str) -> dict[str, Any]:
    """Return the figures of a fresh process for each of some answers."""
    walls, statuses = [], []
    with tempfile.TemporaryDirectory() as cache:
        for answer in spaced(batch, sample):
            candidate = Candidate("one", answer.reference, program_of(answer.text) or "")
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
    parser.add_argument("--mix", choices=sorted(ANSWERS), default="grpo", help="kinds of answers")
    parser.add_argument("--size", type=int, default=256, help="completions in a batch")
    parser.add_argument("--sample", type=int, default=12, help="of them in fresh processes")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one program")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and write the figures to the result."""
    given = parse()
    pairs = [json.loads(line) for line in given.pairs.read_text().splitlines()]
    first, second = make_batches(pairs, given.size, given.mix)
    options = Options(backend=given.backend, workers=given.workers, timeout_s=given.timeout)
    report: dict[str, Any] = {
        "backend": given.backend,
        "mix": given.mix,
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
