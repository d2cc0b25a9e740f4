"""How much faster than Triton's interpreter is the judge without a GPU, forward for forward?

    python benchmarks/executor.py PAIRS RESULT.json [--count 200] [--limit 60]

PAIRS is what `curate verify` takes: a .jsonl or .parquet file with ``id``, ``reference`` and
``candidate`` or ``triton``, or a folder that `curate run` wrote with the format `pairs`. Pairs are
taken at even distances. Each program gets its file's own inputs, and makes a few forwards by

- ``interpreter``: plain Triton with ``TRITON_INTERPRET=1``, on tensors of the CPU;
- ``executor``: its Python on handles, its kernels lowered to TTIR and run by the judge's executor,
  with the judge's checks of addresses and races, in one process.

Each side has one process, from which a child is forked for every program, with one thread. What
counts is the mean of the forwards after the first: as many as fill half a second, since some
systems count CPU time in coarse steps. The interpreter keeps next to nothing from the first
forward, so the first counts where it takes more than a second. Times are CPU seconds of the child,
since other work on a machine delays both sides by unlike times; wall seconds are recorded too.
Inputs are in place when the clock starts.

A forward that takes longer than the limit is given up, and the limit is taken for its time: the
ratio is a lower bound then. Pairs that a side cannot run (the interpreter lacks the functions of
libdevice, for one) have no ratio, and are counted with their reasons. Outputs are compared with the
reference's as KernelBench does. Programs run without a sandbox: give it pairs that you trust.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import datetime
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import triton
from usual_harness import agree

from curate.candidates import read_candidates
from curate.problem.problem import LoadedProgram, LoadedTask, describe
from curate.verify import Candidate

SIDES = ("interpreter", "executor")
SHOWN = 5
"""Pairs that are printed: those with the lowest ratios."""

ENOUGH_S = 1.0
"""Seconds of an interpreter's first forward after which there is no second."""

REPEATED_S = 0.5
"""Seconds that the forwards after the first fill."""

Row = dict[str, Any]


# --- one program, in a child of its own -------------------------------------------------------


class TooLong(BaseException):
    """A forward takes longer than it may."""


class Interpreter:
    """Runs forwards on the CPU; ``TRITON_INTERPRET`` has been set before Triton was imported."""

    def __init__(self, given: Row) -> None:
        self.task = LoadedTask(given["reference"])
        self.init, self.inputs = self.task.init_inputs(), self.task.inputs()
        self.model = LoadedProgram(given["candidate"]).build(0, self.init)
        _load_state(self.model, self.task.build(0, self.init))

    def place(self) -> None:
        """Put fresh inputs where the next forward finds them."""
        self.given = copy.deepcopy(self.inputs)

    def forward(self) -> Any:
        """Return the outputs of one forward."""
        return self.model(*self.given)


class OnExecutor(Interpreter):
    """Runs forwards on handles, and their kernels on the executor."""

    def __init__(self, given: Row) -> None:
        from curate.verify.cpu_device import CpuDevice, on_device

        self.device = CpuDevice()
        self.device.begin(0, math.inf, races=True)
        with on_device(self.device.stream):
            super().__init__(given)
            self.model = self.model.to("cuda")

    def place(self) -> None:
        """Put fresh inputs into the executor's memory."""
        from curate.problem.values import map_tensors
        from curate.verify.cpu_device import on_device, to_gpu

        self.device.begin(0, math.inf, races=True)
        with on_device(self.device.stream):
            self.given = map_tensors(self.inputs, to_gpu)

    def forward(self) -> Any:
        """Return the outputs of one forward, read from the executor's memory."""
        from curate.problem.values import map_tensors
        from curate.verify.cpu_device import Handle, on_device, to_cpu

        with on_device(self.device.stream):
            outputs = self.model(*self.given)
            self.device.check()
            return map_tensors(outputs, lambda t: to_cpu(t) if isinstance(t, Handle) else t)


def _load_state(model: torch.nn.Module, reference: torch.nn.Module) -> None:
    """Give a program the reference's parameters, where it has the same."""
    with contextlib.suppress(RuntimeError):
        model.load_state_dict(reference.state_dict())


def forwards(given: Row, side: Callable[[Row], Interpreter]) -> Row:
    """Return the seconds of the first forward and of a later one, and whether outputs are right."""
    torch.manual_seed(0)
    runner = side(given)
    expected = runner.task.build(0, runner.init)(*copy.deepcopy(runner.inputs))
    try:
        first, wall, outputs = _timed(runner, given["limit"])
        later = [] if side is OnExecutor or first < ENOUGH_S else [(first, wall)]
        while sum(seconds for seconds, _ in later) < REPEATED_S:
            *seconds, outputs = _timed(runner, given["limit"])
            later.append(tuple(seconds))
    except TooLong:
        return {"seconds": given["limit"], "bound": True}
    cpu, walls = (statistics.mean(column) for column in zip(*later, strict=True))
    return {
        "first": first,
        "seconds": cpu,
        "wall": walls,
        "forwards": len(later),
        "bound": False,
        "right": agree(expected, outputs),
    }


def _timed(runner: Interpreter, limit: float) -> tuple[float, float, Any]:
    """Return the CPU seconds and the wall seconds of one forward, and its outputs.

    Raises:
        TooLong: it takes longer than the limit.
    """
    runner.place()
    started, wall = time.process_time(), time.perf_counter()
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        outputs = runner.forward()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - started, time.perf_counter() - wall, outputs


# --- a side's process -------------------------------------------------------------------------


def serve(name: str) -> None:
    """Answer each pair on standard input, in a child of its own."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    side: Callable[[Row], Interpreter] = Interpreter
    if name == "executor":
        from curate.verify import cpu_device

        cpu_device.warm()
        side = OnExecutor
    for line in sys.stdin:
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.write(writer, json.dumps(answer(json.loads(line), side)).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as said:
            print(said.read() or json.dumps({"error": "its process died"}), flush=True)
        os.waitpid(child, 0)


def answer(given: Row, side: Callable[[Row], Interpreter]) -> Row:
    """Return what `forwards` does, or the error."""

    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, stop)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the answers' channel is not the program's
    try:
        return forwards(given, side)
    except BaseException as error:
        return {"error": describe(error)[:300]}


def start(side: str) -> subprocess.Popen[str]:
    """Start the process of a side."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    if side == "interpreter":
        environment["TRITON_INTERPRET"] = "1"
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve", side],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def ask(process: subprocess.Popen[str], pair: Candidate, limit: float) -> Row:
    """Return a side's answer for a pair."""
    assert process.stdin is not None and process.stdout is not None
    given = {"reference": pair.reference, "candidate": pair.candidate, "limit": limit}
    process.stdin.write(json.dumps(given) + "\n")
    process.stdin.flush()
    found: Row = json.loads(process.stdout.readline())
    return found


# --- the report -------------------------------------------------------------------------------


def compare(pairs: list[Candidate], limit: float) -> list[Row]:
    """Return for each pair what both sides said, and the ratio of their seconds."""
    processes = {side: start(side) for side in SIDES}
    rows = []
    for number, pair in enumerate(pairs, 1):
        row: Row = {"id": pair.id} | {s: ask(p, pair, limit) for s, p in processes.items()}
        slow, fast = (row[side].get("seconds") for side in SIDES)
        row["ratio"] = slow / fast if slow and fast and not row["executor"]["bound"] else None
        rows.append(row)
        if number % 20 == 0:
            print(f"{number} pairs", file=sys.stderr, flush=True)
    for process in processes.values():
        process.communicate()
    return rows


def summary(rows: list[Row]) -> Row:
    """Return the figures of all pairs."""
    known = [row for row in rows if row["ratio"] is not None]
    both = [row for row in known if not row["interpreter"]["bound"]]
    ratios = [row["ratio"] for row in known]
    walls = [r["interpreter"]["wall"] / r["executor"]["wall"] for r in both]
    firsts = [r["interpreter"]["first"] / r["executor"]["first"] for r in both]
    return {
        "pairs": len(rows),
        "with_ratio": len(known),
        "of_them_lower_bounds": len(known) - len(both),
        "geometric_mean": _rounded(ratios, statistics.geometric_mean),
        "minimum": _rounded(ratios, min),
        "maximum": _rounded(ratios, max),
        "below_5": sum(ratio < 5 for ratio in ratios),
        "geometric_mean_of_wall_seconds": _rounded(walls, statistics.geometric_mean),
        "geometric_mean_of_first_forwards": _rounded(firsts, statistics.geometric_mean),
        **{side: _side(rows, side) for side in SIDES},
    }


def _rounded(values: list[float], function: Callable[[list[float]], float]) -> float | None:
    return round(function(values), 2) if values else None


def _side(rows: list[Row], side: str) -> Row:
    errors = [row[side]["error"] for row in rows if "error" in row[side]]
    seconds = [row[side]["seconds"] for row in rows if "seconds" in row[side]]
    right = [row[side]["right"] for row in rows if "right" in row[side]]
    return {
        "ran": len(seconds),
        "median_seconds": round(statistics.median(seconds), 4) if seconds else None,
        "over_limit": len(seconds) - len(right),
        "right": sum(right),
        "could_not_run": dict(collections.Counter(e[:100] for e in errors).most_common()),
    }


def machine() -> Row:
    """Return where and when, and with which versions, it was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--count", type=int, default=200, help="pairs")
    parser.add_argument("--limit", type=float, default=60.0, help="CPU seconds for one forward")
    return parser.parse_args()


def main() -> None:
    """Measure, print a line and the slowest, and write everything to the result."""
    from throughput import spaced  # loads the judge, which TRITON_INTERPRET keeps from loading

    given = parse()
    rows = compare(spaced(read_candidates([given.pairs]), given.count), given.limit)
    report = {**summary(rows), "limit_s": given.limit, "machine": machine()}
    result = json.dumps({**report, "rows": rows}, indent=1)
    given.result.parent.mkdir(parents=True, exist_ok=True)
    given.result.write_text(result + "\n")
    print(json.dumps(report, indent=1))
    known = sorted((r for r in rows if r["ratio"] is not None), key=lambda row: row["ratio"])
    for row in known[:SHOWN]:
        slow, fast = (row[side]["seconds"] for side in SIDES)
        print(f"{row['id']}: {row['ratio']:.1f} times, {slow:.4f} s and {fast:.4f} s")
    print(
        f"{report['with_ratio']} of {len(rows)} pairs: the executor is {report['geometric_mean']} "
        f"times as fast as the interpreter (geometric mean), {report['minimum']} at the least and "
        f"{report['maximum']} at the most; {report['of_them_lower_bounds']} are lower bounds"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
