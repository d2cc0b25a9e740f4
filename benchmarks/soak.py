"""Judge thousands of candidates, some of which attack the judge, and check that nothing is lost.

    python benchmarks/soak.py RESULT.json --backend cuda --count 5000 --poison 0.1 --kill-every 5

The candidates are those of `soak_programs`. It checks: one verdict for each; every right one
``correct``, every wrong one ``incorrect``, every attack a status that says what it did; no process
grows with the number of candidates; no process, file or open descriptor is left behind. Exits with
1 where a check fails.

With ``--kill-every``, a process of the judge's, drawn by chance, is killed every so many seconds on
average. A candidate that was judged with its help may get another verdict then, though never
``correct`` where it must not be; there may be no more of those than kills. With ``--limit`` the
soak stops after so many seconds, and what has no verdict by then counts as not judged.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processes import tree
from soak_programs import Trial, make_trials

from curate.engine.processes.time_limit import OutOfTime, time_limit
from curate.verify import HostError, Options, Verdict, verify

SETTLED_S = 30.0
"""Seconds after which a process has loaded all that it needs."""

GROWTH_MB = 128
"""Megabytes that a process may grow after that."""

STARTING_S = 30.0
"""Seconds that a host may take until it is warm."""

WARM_MB = 64
"""Megabytes that a process with torch in it has at least."""

HARM = frozenset({"crash", "oom", "timeout", "unsupported", "runtime_error"})
"""What may be said of a candidate when a process that judged it was killed."""

DESCRIPTORS = 8
"""Open files per worker that the judge may have more at the end than at the beginning."""

LEAVE_S = 10.0
"""Seconds that processes may take to end after the last verdict."""

MB = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")


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


class Killer(threading.Thread):
    """Kills a random process below this one, again and again.

    Attributes:
        kills: for each, the seconds since the start and the victim's command line.
    """

    def __init__(self, every: float, spare_starting: bool) -> None:
        super().__init__(daemon=True)
        self.every, self.draw = every, random.Random(0)
        self.spared_s = STARTING_S if spare_starting else 0.0
        self.kills: list[tuple[float, str]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        started = time.monotonic()
        while not self._ended.wait(self.draw.expovariate(1 / self.every)):
            tops = [pid for pid in descendants() if parent(pid) == os.getpid()]
            old = [pid for pid in tops if age(pid) >= self.spared_s]
            victims = [pid for top in old for pid in tree(top) if resident(pid)]
            if not victims:
                continue
            victim = self.draw.choice(victims)
            command = command_line(victim)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.kills.append((round(time.monotonic() - started, 1), command[-60:]))

    def end(self) -> None:
        self._ended.set()
        self.join()


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
    return [line[:200] for pid in pids if (line := command_line(pid))]


def command_line(pid: int) -> str:
    """Return a process's command line; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def parent(pid: int) -> int:
    """Return the id of a process's parent; 0 where it has ended."""
    return int(stat_fields(pid)[1])


def age(pid: int) -> float:
    """Return for how many seconds a process has been there."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - int(stat_fields(pid)[19]) / os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> list[str]:
    """Return what stands in ``/proc/PID/stat`` after the name; zeros where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 20


def files() -> set[str]:
    """Return the files and folders where the judge might leave some."""
    folders = (Path(tempfile.gettempdir()), Path("/dev/shm"), Path.home() / ".triton", Path())
    return {str(path) for folder in folders if folder.is_dir() for path in folder.iterdir()}


def open_files() -> int:
    """Return how many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def device_memory() -> str | None:
    """Return what `nvidia-smi` says of the memory in use, or None where there is no device."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def judge(
    trials: list[Trial], options: Options, limit_s: float
) -> tuple[list[Verdict], str | None]:
    """Return the verdicts, and why the judge stopped early, if it did."""
    verdicts: list[Verdict] = []
    started = time.monotonic()
    try:
        with time_limit(limit_s):
            for verdict in verify((trial.candidate for trial in trials), options):
                verdicts.append(verdict)
                if len(verdicts) % 100 == 0:
                    seconds = time.monotonic() - started
                    print(
                        f"{len(verdicts)} verdicts in {seconds:.0f} s", file=sys.stderr, flush=True
                    )
    except OutOfTime:
        return verdicts, "limit"
    except HostError as error:
        return verdicts, f"HostError: {error}"
    return verdicts, None


def failures(
    trials: list[Trial], verdicts: list[Verdict], ended: bool, killed: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the candidates that failed a check, and those that only a kill excuses.

    A candidate fails without exactly one verdict (or with none, where the soak had time to end), or
    with one that it may not have.
    """
    by_id: dict[str, list[Verdict]] = collections.defaultdict(list)
    for verdict in verdicts:
        by_id[verdict.id].append(verdict)
    failed: list[dict[str, Any]] = []
    excused: list[dict[str, Any]] = []
    for trial in trials:
        found = by_id.pop(trial.candidate.id, [])
        if not found and not ended:
            continue
        if len(found) == 1 and found[0].status in trial.allowed:
            continue
        harmed = killed and len(found) == 1 and found[0].status in HARM
        (excused if harmed else failed).append(
            {
                "id": trial.candidate.id,
                "allowed": sorted(trial.allowed),
                "verdicts": [verdict.to_json() for verdict in found],
            }
        )
    failed += [{"id": name, "allowed": [], "verdicts": len(v)} for name, v in by_id.items()]
    return failed, excused


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--backend", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--count", type=int, default=2000, help="candidates")
    parser.add_argument("--poison", type=float, default=0.05, help="share that attacks the judge")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for one candidate")
    parser.add_argument("--memory", type=int, default=4096, help="megabytes for one process")
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds; 0 for no kills")
    parser.add_argument("--spare-starting", action="store_true", help="kill none of the first 30 s")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=400.0, help="seconds for everything")
    return parser.parse_args()


def soak(given: argparse.Namespace) -> bool:
    """Judge; print the checks and the counts, write them and every failure to the result.

    Returns whether all checks are passed.
    """
    options = Options(
        backend=given.backend,
        timeout_s=given.timeout,
        memory_mb=given.memory,
        workers=given.workers,
    )
    trials = list(make_trials(given.count, given.poison, given.backend))
    adopt_orphans()
    device_before, files_before, open_before = device_memory(), files(), open_files()
    memory, killer = Memory(), Killer(given.kill_every or 1.0, given.spare_starting)
    memory.start()
    if given.kill_every:
        killer.start()
    started = time.monotonic()
    verdicts, stopped = judge(trials, options, given.limit)
    seconds = time.monotonic() - started
    if given.kill_every:
        killer.end()
    memory.end()
    left = left_behind()
    gc.collect()  # closes sockets that cycles still hold
    more_open = open_files() - open_before
    more_files = sorted(files() - files_before)
    failed, excused = failures(trials, verdicts, stopped is None, bool(killer.kills))
    used = memory.report()
    kinds = {trial.candidate.id: trial.kind for trial in trials}
    counts = collections.Counter(f"{kinds.get(v.id)} -> {v.status}" for v in verdicts)
    checks = {
        "a verdict for each": stopped is None,
        "none unexpected": not failed,
        "no more excused than kills": len(excused) <= len(killer.kills),
        "memory flat": max(used["judge_growth"], used["warm_growth"]) <= GROWTH_MB,
        "no process left": not left,
        "no file left": not more_files and more_open <= DESCRIPTORS * given.workers,
    }
    report = {
        "checks": checks,
        "stopped": stopped,
        "candidates": given.count,
        "hostile": sum(trial.kind not in ("right", "wrong") for trial in trials),
        "verdicts": len(verdicts),
        "not_judged": given.count - len({v.id for v in verdicts}),
        "unexpected": len(failed),
        "kills": len(killer.kills),
        "excused_by_kills": len(excused),
        "seconds": round(seconds, 1),
        "verdicts_per_s": round(len(verdicts) / seconds, 2),
        "memory_mb": used,
        "left_behind": left,
        "files_left": more_files[:50],
        "descriptors_more": more_open,
        "device_memory": {"before": device_before, "after": device_memory()},
        "kind -> status": dict(sorted(counts.items())),
        "options": {"backend": given.backend, "workers": given.workers, "timeout": given.timeout},
    }
    print(json.dumps(report, indent=1))
    for failure in failed[:20]:
        print(json.dumps(failure, default=str)[:600])
    found = {**report, "failures": failed, "excused": excused, "killed": killer.kills}
    given.result.write_text(json.dumps(found, indent=1, default=str) + "\n")
    return all(checks.values())


def main() -> None:
    """Soak in a temporary folder of its own, so that files which are left can be told."""
    given = parse()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        os.environ |= {"TMPDIR": folder, "TRITON_CACHE_DIR": cache}
        tempfile.tempdir = None  # read the variable again
        passed = soak(given)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
