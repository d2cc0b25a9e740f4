"""Our generator's programs for KernelBench's problems, at the problems' own sizes.

    python benchmarks/kernelbench_pairs.py PROBLEMS PAIRS.jsonl [--target cuda:90] [--static]

PROBLEMS holds ``level1/*.py`` and ``level2/*.py``. Every problem goes through what the steps
``inductor``, with ``own_products``, and ``standalone`` do: products of matrices, convolutions and
what follows them become kernels. Tensors are fake, so
that sizes cost nothing and nothing is computed. A problem has a process of its own, with a limit on
time and memory. Its code runs with all of your rights: use a sandbox of your own.

Writes id, reference, triton and extern_calls of each program, and prints how many there are and why
the others failed.
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

from curate.generator.text.container import CannotRewrite
from curate.inductor import configurations, offline
from curate.inductor.standalone import rewrite

LIMIT_S = 120.0
MEMORY = 8 * 2**30


def number(file: Path) -> tuple[str, int]:
    """Return what to sort a problem by: its level, and the number its name begins with."""
    return file.parent.name, int(file.name.split("_")[0])


def make(reference: str, target: str, dynamic: bool) -> dict[str, Any]:
    """Return a program's fields; ``failed`` instead where there is none."""
    try:
        made = configurations.compile_reference(reference, target, True, dynamic)
        if not made.spec["kernels"]:
            return {"failed": f"no_kernels: {', '.join(made.extern_calls)}"}
        program = rewrite(reference, made.code, made.spec)
    except offline.ExportFailed as error:
        return {"failed": f"export_failed: {error}"}
    except offline.UnsupportedModule as error:
        return {"failed": f"unsupported: {error}"}
    except CannotRewrite as error:
        return {"failed": f"not_standalone: {error.construct}"}
    except Exception as error:  # whatever Inductor raised
        return {"failed": f"inductor: {offline.first_line(error)}"}
    return {"triton": program.text, "extern_calls": list(program.extern_calls)}


def child(reference: str, target: str, dynamic: bool, pipe: Connection) -> None:
    """Send what `make` returns, within the limit on memory."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    pipe.send(make(reference, target, dynamic))


def isolated(reference: str, target: str, dynamic: bool) -> dict[str, Any]:
    """Return what `make` returns in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(reference, target, dynamic, theirs))
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
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--static", action="store_true", help="sizes are constants; much faster")
    given = parser.parse_args()
    offline.warm(given.target, own_products=True)
    files = sorted(given.problems.glob("level[12]/*.py"), key=number)
    counts: collections.Counter[str] = collections.Counter()
    failed: dict[str, str] = {}
    started = time.monotonic()
    with given.out.open("w", encoding="utf-8") as out:
        for file in files:
            name, reference = f"{file.parent.name}/{file.name}", file.read_text(encoding="utf-8")
            found = isolated(reference, given.target, not given.static)
            counts[f"{file.parent.name} problems"] += 1
            if "failed" in found:
                failed[name] = found["failed"]
                continue
            counts[f"{file.parent.name} programs"] += 1
            counts[f"{file.parent.name} without a library call"] += not found["extern_calls"]
            out.write(json.dumps({"id": name, "reference": reference, **found}) + "\n")
            out.flush()
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"seconds": seconds, **counts, "failed": failed}, indent=1))


if __name__ == "__main__":
    main()
