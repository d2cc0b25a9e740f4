"""Modules per second and core: our warm workers against one fresh process for each module.

Both sides print a module's program with the same function and no GPU; they differ in how a module
gets its process. *Warm* is what `curate run` does: a parent imports torch
and prints a small program once, and a child is forked for each module. *Fresh* starts a Python
interpreter for each module, as calling ``torch.compile`` from a script does. Time is CPU time of
the whole process, so that other work on the machine matters little.

    python benchmarks/generation.py [modules, default 20]
"""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

ONE = "import sys; from curate.generator.generate import generate; generate(sys.stdin.read())"


def references(count: int) -> list[str]:
    """Return ``count`` compositions from curate's own source of problems."""
    from curate.sources.torch_ops.torch_ops import TorchOps
    from curate.step import Context

    source = TorchOps(source="torch_ops", single=0, compositions=2 * count)
    rows = (row for unit in source.units(Context()) for row in source.read(unit, Context()))
    return [row["reference"] for row in islice((r for r in rows if isinstance(r, dict)), count)]


def cpu_of(pid: int) -> float:
    """Wait for a child and return the CPU seconds that it used."""
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"a child failed: {status}")
    return usage.ru_utime + usage.ru_stime


def fresh(reference: str) -> float:
    """Generate in a new interpreter; return its CPU seconds."""
    child = subprocess.Popen([sys.executable, "-c", ONE], stdin=subprocess.PIPE)
    assert child.stdin is not None
    with child.stdin as pipe:
        pipe.write(reference.encode())
    return cpu_of(child.pid)


def warm(reference: str) -> float:
    """Generate in a forked child; return its CPU seconds."""
    from curate.generator.generate import generate

    if (pid := os.fork()) == 0:
        try:
            generate(reference)
        finally:
            os._exit(sys.exc_info()[0] is not None)
    return cpu_of(pid)


def main() -> None:
    """Print the comparison as one JSON object."""
    # One core: no thread pools in either kind of process.
    os.environ.update(OMP_NUM_THREADS="1", PYTHONPATH=str(Path(__file__).resolve().parents[1]))
    sys.path.insert(0, os.environ["PYTHONPATH"])
    texts = references(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    started = time.process_time()
    from curate.generator.generate import warm as warm_up

    warm_up()
    setup = time.process_time() - started
    pairs = [(warm(text), fresh(text)) for text in texts]
    ours, theirs = (sum(side) / len(texts) for side in zip(*pairs, strict=True))
    versions = {name: importlib.metadata.version(name) for name in ("torch", "triton")}
    print(
        json.dumps(
            {
                "modules": len(texts),
                "warm_modules_per_cpu_s": round(1 / ours, 2),
                "fresh_modules_per_cpu_s": round(1 / theirs, 3),
                "ratio": round(theirs / ours, 1),
                "setup_cpu_s_once_a_worker": round(setup, 1),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "python": platform.python_version(),
                **versions,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
