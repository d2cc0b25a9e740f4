"""Our generator's programs for KernelBench's problems, at the problems' own sizes.

    python benchmarks/kernelbench_pairs.py PROBLEMS PAIRS.jsonl

PROBLEMS holds ``level1/*.py`` to ``level3/*.py``. ``--tf32`` adds a line to each that lets
convolutions use TF32: PyTorch does so by default, our judge and generator only if a file says it.
Every problem goes through what the step ``inductor`` does. Tensors are fake, so that sizes cost
nothing and nothing is computed. A problem has a process of its own, with a limit on time and
memory. Its code runs with all of your rights: use a sandbox of your own.

Writes id, reference, triton and CPU seconds of each program, and prints how many there are, the
mean of their CPU seconds and why the others failed.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import resource
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.generator.generate import generate, warm
from curate.generator.unprintable import Unprintable

LIMIT_S = 120.0
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
    """Send what `make` returns, within the limit on memory."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    pipe.send(make(reference))


def isolated(reference: str) -> dict[str, Any]:
    """Return what `make` returns in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(reference, theirs))
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv() if ours.poll(LIMIT_S) else {"failed": "time"}
    except EOFError:
        found = {"failed": "crash"}
    process.kill()
    process.join()
    return found


def main() -> None:
    """Write the programs, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("problems", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tf32", action="store_true", help="convolutions may use TF32")
    given = parser.parse_args()
    warm()
    files = sorted(given.problems.glob("level[123]/*.py"), key=number)
    counts: collections.Counter[str] = collections.Counter()
    failed: dict[str, str] = {}
    cpu_s: list[float] = []
    started = time.monotonic()
    with given.out.open("w", encoding="utf-8") as out:
        for file in files:
            name, reference = f"{file.parent.name}/{file.name}", file.read_text(encoding="utf-8")
            if given.tf32:
                reference = reference.replace("\nclass Model(", f"\n{ALLOWED}\n\n\nclass Model(", 1)
            found = isolated(reference)
            counts[f"{file.parent.name} problems"] += 1
            if "failed" in found:
                failed[name] = found["failed"]
                continue
            counts[f"{file.parent.name} programs"] += 1
            cpu_s.append(found["cpu_s"])
            out.write(json.dumps({"id": name, "reference": reference, **found}) + "\n")
            out.flush()
    seconds = round(time.monotonic() - started, 1)
    mean = round(sum(cpu_s) / max(len(cpu_s), 1), 2)
    print(
        json.dumps({"seconds": seconds, "mean_cpu_s": mean, **counts, "failed": failed}, indent=1)
    )


if __name__ == "__main__":
    main()
