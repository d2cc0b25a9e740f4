"""Are times right and repeatable, and is no honest program called a cheat for its time?

    python benchmarks/timing.py RESULT.json --pairs PAIRS.jsonl --first 100 --limit 540

Three parts, each by way of the whole judge with ``--timing``, in sandboxes; needs a CUDA device:

- ``bench``: the well-known kernels of `benchmarks/kernels/`, and what `triton.testing.do_bench`
  says of the same models at the same sizes in this process;
- ``repeat``: one of them, ten times;
- ``pairs``: the first pairs of PAIRS.jsonl, a JSON object per line with ``id``, ``reference`` and
  ``triton``: how many are timed, called a cheat, or take no time or less.

``--only`` takes some of the parts. The result is written as it comes; after ``--limit`` seconds
nothing new begins. Needs torch, triton and NumPy, and of this project the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.problem.draw import Draw, draw_inputs, redraw_parameters
from curate.problem.problem import LoadedProgram, LoadedTask
from curate.problem.values import to_device
from curate.verify import Candidate, Options, Verdict, verify
from curate.verify.judge.slot import Slot
from curate.verify.judge.slots import make_slot
from curate.verify.timing import as_users_run

KERNELS = Path(__file__).with_name("kernels")
PARTS = ("bench", "repeat", "pairs")
TIMES = 10
"""How often one kernel is timed."""

LONG_US, NEAR = 100.0, 0.03
"""Times from which on `do_bench` must say the same, and how nearly."""

REPEATED = 0.02
"""How far times of one kernel may be from their median, in the median."""


def options(trials: int, workers: int = 1) -> Options:
    return Options(timing=True, trials=trials, workers=workers, draw_seed=1)


def do_bench(text: str, size: int | None) -> dict[str, float]:
    """Return the median microseconds of `do_bench` of a file's two models, at a size."""
    task, program = LoadedTask(text), LoadedProgram(text)
    init = task.init_inputs()
    reference, candidate = task.build(0, init), program.build(0, init)
    redraw_parameters(reference, 0)
    candidate.load_state_dict(reference.state_dict())
    inputs = to_device(draw_inputs(task, Draw(0, size=size)), "cuda")
    found = {}
    for name, model in (("eager", reference.to("cuda")), ("candidate", candidate.to("cuda"))):
        with as_users_run():
            milliseconds = triton.testing.do_bench(
                lambda model=model: model(*inputs), rep=200, return_mode="median"
            )
        found[f"{name}_us"] = 1000 * milliseconds
    return found


def bench(slot: Slot, texts: dict[str, str], late: float) -> dict[str, Any]:
    """Time each kernel by the judge and by `do_bench`."""
    rows = []
    print(f"{'':14}{'size':>8}{'eager':>11}{'do_bench':>11}{'kernel':>11}{'do_bench':>11}  graph")
    for name, text in texts.items():
        if time.monotonic() > late:
            break
        verdict = slot.judge(Candidate(name, text, text))
        timing = verdict.timing
        row: dict[str, Any] = {"kernel": name, "status": said(verdict), "timing": timing}
        rows.append(row)
        if timing is None or timing["candidate_us"] is None:
            print(f"{name:14} {said(verdict)} {timing and timing['problem']}", flush=True)
            continue
        row["do_bench"] = do_bench(text, timing["size"])
        torch.cuda.empty_cache()
        pairs = {n: (timing[n], row["do_bench"][n]) for n in ("eager_us", "candidate_us")}
        row["apart"] = {n: a / b - 1 for n, (a, b) in pairs.items() if a is not None}
        cells = "".join(f"{x:11.2f}" for pair in pairs.values() for x in pair if x is not None)
        print(f"{name:14}{timing['size'] or 'own':>8}{cells}  {timing['graph']}", flush=True)
    long = [
        abs(apart)
        for row in rows
        for name, apart in row.get("apart", {}).items()
        if row["do_bench"][name] >= LONG_US
    ]
    return {
        "kernels": rows,
        "from do_bench, at 100 us and more: median": statistics.median(long) if long else None,
        "from do_bench, at 100 us and more: most": max(long, default=None),
        "from do_bench, at 100 us and more: over 3 %": sum(apart > NEAR for apart in long),
        "compared": len(long),
    }


def repeat(slot: Slot, text: str, late: float) -> dict[str, Any]:
    """Time one kernel again and again."""
    found: dict[str, list[float]] = {"candidate_us": [], "eager_us": [], "compile_us": []}
    for i in range(TIMES):
        timing = slot.judge(Candidate(f"again {i}", text, text)).timing or {}
        for name, times in found.items():
            if timing.get(name) is not None:
                times.append(timing[name])
        if time.monotonic() > late:
            break
    apart = {}
    for name, times in found.items():
        if times:
            middle = statistics.median(times)
            apart[name] = statistics.median(abs(us - middle) / middle for us in times)
            print(f"{name:14}{middle:10.2f} us, {apart[name]:.2%} apart, {len(times)} times")
    within = bool(apart) and all(share <= REPEATED for share in apart.values())
    return {"times": found, "median distance from the median": apart, "within 2 %": within}


def honest(pairs: list[dict[str, Any]], workers: int, late: float) -> dict[str, Any]:
    """Time pairs that are known to be honest."""
    candidates = [Candidate(pair["id"], pair["reference"], pair["triton"]) for pair in pairs]
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    with contextlib.closing(verify(iter(candidates), options(8, workers))) as verdicts:
        for verdict in verdicts:
            rows.append({"id": verdict.id, "status": said(verdict), "timing": verdict.timing})
            if verdict.status == "cheat":
                rows[-1]["evidence"] = verdict.evidence
            if time.monotonic() > late:
                break
    timed = [row["timing"] for row in rows if row["timing"]]
    known = [t["candidate_us"] for t in timed if t["candidate_us"] is not None]
    found = {
        "judged": len(rows),
        "seconds": round(time.monotonic() - began, 1),
        "statuses": dict(Counter(row["status"] for row in rows)),
        "called a cheat": [row["id"] for row in rows if row["status"].startswith("cheat")],
        "timed": len(known),
        "null": len(timed) - len(known),
        "no time or less": sum(us <= 0 for us in known),
        "problems": dict(Counter(str(t["problem"]) for t in timed if t["problem"])),
        "compile_problems": sum(t["compile_problem"] is not None for t in timed),
        "without a graph": sum(t["graph"] is False for t in timed),
        "at a larger size": sum(t["size"] is not None for t in timed),
        "without kernel_share": sum(t["kernel_share"] is None for t in timed),
    }
    print(json.dumps(found, indent=1), flush=True)
    return {**found, "pairs": rows}


def said(verdict: Verdict) -> str:
    return " ".join(filter(None, (verdict.status, verdict.reason)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--first", type=int, default=100, help="pairs to take")
    parser.add_argument("--kernels", nargs="*", help="only these; the first is the one repeated")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--workers", type=int, default=min(8, len(os.sched_getaffinity(0))))
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS")
    given = parser.parse_args()
    started = time.monotonic()
    late = started + given.limit
    texts = {path.stem: path.read_text() for path in sorted(KERNELS.glob("*.py"))}
    texts = {name: texts[name] for name in given.kernels or texts}
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }

    def note(part: str, found: dict[str, Any]) -> None:
        report[part] = found
        report["seconds"] = round(time.monotonic() - started, 1)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(report, indent=1))

    with contextlib.closing(make_slot(options(3))) as slot:
        if "bench" in given.only:
            note("bench", bench(slot, texts, late))
        if "repeat" in given.only and time.monotonic() < late:
            name = "softmax" if "softmax" in texts else next(iter(texts))
            note("repeat", repeat(slot, texts[name], late))
    if "pairs" in given.only and given.pairs and time.monotonic() < late:
        lines = given.pairs.read_text().splitlines()[: given.first]
        note("pairs", honest([json.loads(line) for line in lines], given.workers, late))
    summary = {
        part: {k: v for k, v in found.items() if k not in ("kernels", "pairs", "times")}
        for part, found in report.items()
        if isinstance(found, dict)
    }
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
