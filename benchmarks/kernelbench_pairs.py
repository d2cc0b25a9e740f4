"""Our generator's programs for KernelBench's problems, at the problems' own sizes.

    python benchmarks/kernelbench_pairs.py PROBLEMS PAIRS.jsonl

PROBLEMS holds ``level1/*.py`` to ``level3/*.py``. ``--tf32`` adds a line to each that lets
convolutions use TF32: PyTorch does so by default, our judge and generator only if a file says it.
Every problem goes through what the step ``inductor`` does. Tensors are fake, so that sizes cost
nothing and nothing is computed. A problem has a process of its own, with a limit on time and
memory. Its code runs with all of your rights: use a sandbox of your own.

Writes id, reference, triton and CPU seconds of each program, and prints for each level how many
there are, means of their CPU seconds and lines, the slowest, and why the others failed.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import resource
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.generator.generate import generate, warm
from curate.generator.unprintable import Unprintable

LIMIT_S = 120
"""CPU seconds of a problem."""

MEMORY = 8 * 2**30
ALLOWED = "torch.backends.cudnn.allow_tf32 = True"


def number(file: Path) -> tuple[str, int]:
    """Return what to sort a problem by: its level, and the number its name begins with."""
    return file.parent.name, int(file.name.split("_")[0])


def make(reference: str) -> dict[str, Any]:
    """Return a program's fields; ``failed`` instead where there is none."""
    started = time.process_time()
    try:
        text = generate(reference).text
    except Unprintable as error:
        return {"failed": str(error)}
    except Exception as error:  # a defect of the generator's
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    return {"triton": text, "cpu_s": round(time.process_time() - started, 2)}


def child(reference: str, pipe: Connection) -> None:
    """Send what `make` returns, within the limits."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    pipe.send(make(reference))


def isolated(reference: str) -> dict[str, Any]:
    """Return what `make` returns in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(reference, theirs))
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv()
    except EOFError:
        found = {}
    process.join()
    if not found:
        found = {"failed": "time" if process.exitcode == -signal.SIGXCPU else "crash"}
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what some problems' rows say together."""
    made = [row for row in rows if "failed" not in row]
    slowest = sorted(made, key=lambda row: -row["cpu_s"])[:5]
    return {
        "problems": len(rows),
        "programs": len(made),
        "mean_cpu_s": round(sum(row["cpu_s"] for row in made) / max(len(made), 1), 2),
        "mean_lines": round(sum(row["triton"].count("\n") for row in made) / max(len(made), 1)),
        "slowest": {row["id"]: row["cpu_s"] for row in slowest},
    }


def main() -> None:
    """Write the programs, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problems", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tf32", action="store_true", help="convolutions may use TF32")
    given = parser.parse_args()
    torch.set_num_threads(1)  # others would not be there in a child
    warm()
    files = sorted(given.problems.glob("level[123]/*.py"), key=number)
    levels: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    started = time.monotonic()
    with given.out.open("w", encoding="utf-8") as out:
        for file in files:
            name, reference = f"{file.parent.name}/{file.name}", file.read_text(encoding="utf-8")
            if given.tf32:
                reference = reference.replace("\nclass Model(", f"\n{ALLOWED}\n\n\nclass Model(", 1)
            found = isolated(reference)
            levels[file.parent.name].append({"id": name, **found})
            if "failed" not in found:
                out.write(json.dumps({"id": name, "reference": reference, **found}) + "\n")
                out.flush()
    seconds = round(time.monotonic() - started, 1)
    every = [row for rows in levels.values() for row in rows]
    told = {level: summary(rows) for level, rows in [*levels.items(), ("all", every)]}
    failed = {row["id"]: row["failed"] for row in every if "failed" in row}
    print(json.dumps({"seconds": seconds, **told, "failed": failed}, indent=1))


if __name__ == "__main__":
    main()
