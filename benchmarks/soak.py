"""Judge thousands of candidates, some of which attack the judge, and check that nothing is lost.

    python benchmarks/soak.py RESULT.json --backend cuda --count 2000 --poison 0.05

The candidates are those of `soak_programs`. It checks: one verdict for each; every right one
``correct``, every wrong one ``incorrect``, every attack a status that says what it did; no process
grows with the number of candidates; no process is left behind. Exits with 1 where a check fails.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processes import tree
from soak_programs import Trial, make_trials

from curate.verify.judge.slots import verify
from curate.verify.verdict import Options, Verdict

SETTLED_S = 30.0
"""Seconds after which a process has loaded all that it needs."""

GROWTH_MB = 128
"""Megabytes that a process may grow after that."""

WARM_MB = 64
"""Megabytes that a process with torch in it has at least."""

LEAVE_S = 10.0
"""Seconds that processes may take to end after the last verdict."""

MB = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")


class TooLong(Exception):
    """The judge gave no verdicts for all candidates in the time that the soak may take."""


class Memory(threading.Thread):
    """Measures, once a second, the resident memory of this process and its descendants.

    Attributes:
        own: (seconds, bytes) of this process.
        others: the same for every descendant, by process id; pages that processes share count in
            each.
        available: the least memory that the whole machine had available.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own: list[tuple[float, int]] = []
        self.others: dict[int, list[tuple[float, int]]] = {}
        self.available = available()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(1.0):
            self.sample()

    def sample(self) -> None:
        now = time.monotonic()
        self.available = min(self.available, available())
        self.own.append((now, resident(os.getpid())))
        for pid in descendants():
            if size := resident(pid):  # else it is ending, and its memory is gone
                self.others.setdefault(pid, []).append((now, size))

    def end(self) -> None:
        self._ended.set()
        self.join()
        self.sample()

    def report(self) -> dict[str, Any]:
        """Return megabytes of the judge and of the warm processes that it forks others from.

        A process of one candidate does not live long enough to be counted as warm.
        """
        warm = [
            samples
            for samples in self.others.values()
            if samples[-1][0] - samples[0][0] > SETTLED_S
            and max(size for _, size in samples) > WARM_MB * MB
        ]
        return {
            "judge_max": max(size for _, size in self.own) // MB,
            "judge_last": self.own[-1][1] // MB,
            "judge_growth": growth(self.own) // MB,
            "warm_processes": len(warm),
            "warm_max": max((size for samples in warm for _, size in samples), default=0) // MB,
            "warm_last": max((samples[-1][1] for samples in warm), default=0) // MB,
            "warm_growth": max(map(growth, warm), default=0) // MB,
            "machine_available_min": self.available // MB,
        }


def growth(samples: list[tuple[float, int]]) -> int:
    """Return by how many bytes a process is larger at its end than when it had settled."""
    settled = [size for at, size in samples if at >= samples[0][0] + SETTLED_S]
    return samples[-1][1] - settled[0] if settled else 0


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def available() -> int:
    """Return the bytes that Linux estimates can be given to processes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


def descendants() -> list[int]:
    """Return the ids of all processes below this one that have not ended."""
    return tree(os.getpid())[1:]


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none can be missed."""
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
    if ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def left_behind() -> list[str]:
    """Return the command lines of the processes that are there some seconds after the end."""
    until = time.monotonic() + LEAVE_S
    while (pids := descendants()) and time.monotonic() < until:
        time.sleep(0.2)
    found = []
    for pid in pids:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200])
        except OSError:
            continue
    return found


def device_memory() -> str | None:
    """Return what `nvidia-smi` says of the memory in use, or None where there is no device."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def judge(trials: list[Trial], options: Options, limit_s: float) -> tuple[list[Verdict], bool]:
    """Return the verdicts, and whether the judge gave them within the limit."""

    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    verdicts: list[Verdict] = []
    started = time.monotonic()
    try:
        for verdict in verify((trial.candidate for trial in trials), options):
            verdicts.append(verdict)
            if len(verdicts) % 100 == 0:
                seconds = time.monotonic() - started
                print(f"{len(verdicts)} verdicts in {seconds:.0f} s", file=sys.stderr, flush=True)
    except TooLong:
        return verdicts, False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return verdicts, True


def failures(trials: list[Trial], verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Return every candidate without exactly one verdict, or with one that it may not have."""
    by_id: dict[str, list[Verdict]] = collections.defaultdict(list)
    for verdict in verdicts:
        by_id[verdict.id].append(verdict)
    failed = []
    for trial in trials:
        found = by_id.pop(trial.candidate.id, [])
        if len(found) != 1 or found[0].status not in trial.allowed:
            failed.append(
                {
                    "id": trial.candidate.id,
                    "allowed": sorted(trial.allowed),
                    "verdicts": [verdict.to_json() for verdict in found],
                }
            )
    return failed + [{"id": name, "allowed": [], "verdicts": len(v)} for name, v in by_id.items()]


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--backend", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--count", type=int, default=2000, help="candidates")
    parser.add_argument("--poison", type=float, default=0.05, help="share that attacks the judge")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for one candidate")
    parser.add_argument("--memory", type=int, default=4096, help="megabytes for one process")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=400.0, help="seconds for everything")
    return parser.parse_args()


def main() -> None:
    """Judge, print the checks and the counts, write them and every failure to the result."""
    given = parse()
    options = Options(
        backend=given.backend,
        timeout_s=given.timeout,
        memory_mb=given.memory,
        workers=given.workers,
    )
    trials = list(make_trials(given.count, given.poison, given.backend))
    adopt_orphans()
    device_before, memory = device_memory(), Memory()
    memory.start()
    started = time.monotonic()
    verdicts, ended = judge(trials, options, given.limit)
    seconds = time.monotonic() - started
    memory.end()
    left = left_behind()
    failed, used = failures(trials, verdicts), memory.report()
    kinds = {trial.candidate.id: trial.kind for trial in trials}
    counts = collections.Counter(f"{kinds.get(v.id)} -> {v.status}" for v in verdicts)
    report = {
        "candidates": given.count,
        "hostile": sum(trial.kind not in ("right", "wrong") for trial in trials),
        "verdicts": len(verdicts),
        "ended_in_time": ended,
        "unexpected": len(failed),
        "seconds": round(seconds, 1),
        "verdicts_per_s": round(len(verdicts) / seconds, 2),
        "memory_mb": used,
        "left_behind": left,
        "device_memory": {"before": device_before, "after": device_memory()},
        "kind -> status": dict(sorted(counts.items())),
        "options": {"backend": given.backend, "workers": given.workers, "timeout": given.timeout},
    }
    print(json.dumps(report, indent=1))
    for failure in failed[:20]:
        print(json.dumps(failure, default=str)[:600])
    result = json.dumps({**report, "failures": failed}, indent=1, default=str)
    given.result.write_text(result + "\n")
    bounded = max(used["judge_growth"], used["warm_growth"]) <= GROWTH_MB
    sys.exit(0 if ended and not failed and bounded and not left else 1)


if __name__ == "__main__":
    main()
