"""Are times repeatable, and what does `triton.testing.do_bench` say of the same kernels?

    python benchmarks/timing.py OUT_FOLDER

Times the well-known kernels of `benchmarks/kernels/`, each twice, by `curate.verify.timing`: a
clock around requests, fresh inputs, checked outputs. Here the programs are trusted and run in this
process; only a function call is between them and the clock. The table also gives what `do_bench`
says of the same models on the same inputs. Needs a CUDA or HIP device.

With ``--judge`` the times are those of `curate.verify.judge.slots.verify` instead, in sandboxes.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.verify import timing
from curate.verify.judge.slots import verify
from curate.verify.problem import LoadedProgram, LoadedTask
from curate.verify.protocol.role import to_device
from curate.verify.reference.draw import Draw, draw_inputs, redraw_parameters
from curate.verify.timing import CANDIDATE, EAGER, OVERHEAD, Checksums, TimedModel
from curate.verify.verdict import Candidate, Options

KERNELS = Path(__file__).with_name("kernels")


class Pair:
    """A module and a kernel that equals it, with sets of inputs, on a device."""

    def __init__(self, text: str, device: str) -> None:
        task, program = LoadedTask(text), LoadedProgram(text)
        init = task.init_inputs()
        self.reference, self.candidate = task.build(0, init), program.build(0, init)
        redraw_parameters(self.reference, 0)
        self.candidate.load_state_dict(self.reference.state_dict())
        self.exact = copy.deepcopy(self.reference).double().to(device)
        self.reference.to(device)
        self.candidate.to(device)
        one = draw_inputs(task, Draw(0))
        others = range(1, timing.count_sets(one))
        self.sets = [to_device(one, device)]
        self.sets += [to_device(draw_inputs(task, Draw(seed)), device) for seed in others]


def ours(pair: Pair, device: str, bandwidth: float) -> Iterator[dict[str, Any]]:
    """Yield what our method finds, once for each time it is asked."""
    eager = TimedModel(pair.reference, pair.sets, device)
    programs = {EAGER: eager, CANDIDATE: TimedModel(pair.candidate, pair.sets, device)}
    tolerances = eager.tolerances(pair.exact)

    def ask(name: str, n: int, nonce: int) -> tuple[float, Checksums]:
        started = time.perf_counter()
        if name == OVERHEAD:
            checksums = eager.run(n, nonce, call_model=False)
        else:
            checksums = programs[name].run(n, nonce)
        return time.perf_counter() - started, checksums

    cache = torch.cuda.get_device_properties(0).L2_cache_size if device != "cpu" else 0
    floor = timing.floor_us(eager.bytes_moved(), bandwidth, cache)
    while True:
        measured = timing.measure(ask, tolerances, random.SystemRandom(), baselines=(EAGER,))
        fault = timing.find_fault(measured, floor)
        yield timing.to_json(measured, floor) | {"fault": fault}


def judged(texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the judge's timing of every kernel, by its name."""
    found = {}
    candidates = [Candidate(name, text, text) for name, text in texts.items()]
    for verdict in verify(candidates, Options(timing=True, workers=1, trials=3)):
        if verdict.timing is None:
            sys.exit(f"{verdict.id}: not timed; {verdict.status} {verdict.reason}")
        found[verdict.id] = verdict.timing | {"fault": verdict.reason}
    return found


def theirs(pair: Pair) -> dict[str, float]:
    """Return the median microseconds that `do_bench` finds."""
    found = {}
    with torch.no_grad():
        for name, model in ((EAGER, pair.reference), (CANDIDATE, pair.candidate)):
            milliseconds = triton.testing.do_bench(
                lambda model=model: model(*pair.sets[0]), rep=50, return_mode="median"
            )
            found[f"{name}_us"] = 1000 * milliseconds
    return found


def apart(one: float, other: float) -> float:
    """Return the difference of two times as a share of their mean."""
    return abs(one - other) / ((one + other) / 2)


def compare(name: str, runs: list[dict[str, Any]], bench: dict[str, float]) -> dict[str, Any]:
    """Return one kernel's row of the table."""
    mean = {key: statistics.mean(run[key] for run in runs) for key in ("eager_us", "candidate_us")}
    return {
        "kernel": name,
        "eager_us": mean["eager_us"],
        "candidate_us": mean["candidate_us"],
        "speedup": mean["eager_us"] / mean["candidate_us"],
        "bench_eager_us": bench["eager_us"],
        "bench_candidate_us": bench["candidate_us"],
        "bench_speedup": bench["eager_us"] / bench["candidate_us"],
        "repeat_candidate": apart(*(run["candidate_us"] for run in runs)),
        "repeat_eager": apart(*(run["eager_us"] for run in runs)),
        "repeat_speedup": apart(*(run["eager_us"] / run["candidate_us"] for run in runs)),
        "repeat_bench": bench["repeat"],
        "runs": runs,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{'':14}{'ours, us':>20}{'':>9}{'do_bench, us':>20}{'':>9}{'ours twice':>12}  fault")
    print(f"{'kernel':14}{'eager':>10}{'kernel':>10}{'speedup':>9}", end="")
    print(f"{'eager':>10}{'kernel':>10}{'speedup':>9}{'apart by':>12}")
    for row in rows:
        times = [row[key] for key in ("eager_us", "candidate_us", "speedup")]
        times += [row[key] for key in ("bench_eager_us", "bench_candidate_us", "bench_speedup")]
        widths = (10, 10, 9, 10, 10, 9)
        cells = "".join(f"{x:{width}.2f}" for x, width in zip(times, widths, strict=True))
        faults = sorted({str(run["fault"]) for run in row["runs"] if run["fault"]})
        print(f"{row['kernel']:14}{cells}{row['repeat_candidate']:12.2%}  {' '.join(faults)}")


def main() -> None:
    """Time every kernel; print a table and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--judge", action="store_true", help="time by way of the judge")
    parser.add_argument("--kernels", nargs="*", help="only these")
    given = parser.parse_args()
    started = time.monotonic()
    texts = {path.stem: path.read_text() for path in sorted(KERNELS.glob("*.py"))}
    texts = {name: text for name, text in texts.items() if name in (given.kernels or texts)}
    by_judge = [judged(texts) for _ in range(2)] if given.judge else None
    bandwidth = timing.copy_bandwidth("cuda")
    rows = []
    for name, text in texts.items():
        pair = Pair(text, "cuda")
        if by_judge:
            runs = [found[name] for found in by_judge]
        else:
            times = ours(pair, "cuda", bandwidth)
            runs = [next(times) for _ in range(2)]
        bench, again = theirs(pair), theirs(pair)
        bench["repeat"] = apart(bench["candidate_us"], again["candidate_us"])
        rows.append(compare(name, runs, bench))
        del pair
        torch.cuda.empty_cache()
    show(rows)
    repeats = ("repeat_candidate", "repeat_eager", "repeat_speedup", "repeat_bench")
    medians = {key: statistics.median(row[key] for row in rows) for key in repeats}
    largest = {key: max(row[key] for row in rows) for key in repeats}
    gaps = [apart(row["speedup"], row["bench_speedup"]) for row in rows]
    overheads = [run["overhead_us"] for row in rows for run in row["runs"]]
    report = {
        "by": "the judge" if given.judge else "one process",
        "median difference of two measurements": medians,
        "largest difference of two measurements": largest,
        "median difference of our speedup and do_bench's": statistics.median(gaps),
        "overhead of an iteration, us: least and most": [min(overheads), max(overheads)],
        "copy bandwidth, TB/s": bandwidth / 1e12,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(report, indent=1))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "timing.json").write_text(json.dumps({**report, "kernels": rows}, indent=1))


if __name__ == "__main__":
    main()
