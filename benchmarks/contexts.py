"""Contexts per second that processes can open on a device: a bound for one process per program.

    python benchmarks/contexts.py RESULT.json

Every process is forked from one that has imported torch, as the judge's are, puts one number on the
first device, and ends; the figures say how many run at a time, and how many in all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

AT_A_TIME = (1, 2, 4, 8, 16, 32)
ROUNDS = 4  # processes in all, of each of those at a time


def opened(at_a_time: int, total: int) -> float:
    """Return the seconds in which so many processes open a context and end.

    Raises:
        RuntimeError: one of them could not.
    """
    began = time.perf_counter()
    started = running = 0
    while started < total or running:
        if started < total and running < at_a_time:
            started, running = started + 1, running + 1
            if os.fork() == 0:
                torch.ones(1, device="cuda").item()
                os._exit(0)
            continue
        running -= 1
        if os.wait()[1]:
            raise RuntimeError("a process could not open a context")
    return time.perf_counter() - began


def main() -> None:
    """Measure, print, and write the figures to the result."""
    opened(1, 1)  # the driver's files are read
    report = {}
    for at_a_time in AT_A_TIME:
        total = max(8, ROUNDS * at_a_time)
        seconds = opened(at_a_time, total)
        report[at_a_time] = {
            "processes": total,
            "contexts_per_s": round(total / seconds, 2),
            "seconds_each": round(seconds / total * at_a_time, 2),
        }
        print(at_a_time, json.dumps(report[at_a_time]), flush=True)
    Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
