"""What the executor can run of a run's kernels, and what became of their launches, by reason.

    python benchmarks/lowered.py OUTPUT/RECIPE

Reads the folder that `curate run` wrote for a recipe with the steps `signature` and `launch` and
the format `kernels`. Each kernel is lowered to TTIR with its signature and handed to the executor,
which says whether it knows every operation; nothing is launched. The kernels' files are loaded for
that, in the sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

if "__file__" in globals():  # not inside the sandbox
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.engine.processes.sandbox import sandbox_command


def inside() -> None:
    """Answer each kernel on standard input, in a child of its own."""
    import torch  # noqa: F401  loaded before the first fork

    from curate.verify.compile import kernel

    kernel.warm()
    for line in sys.stdin:
        read_end, write_end = os.pipe()
        if not (pid := os.fork()):
            answer = ask_executor(**json.loads(line))
            os.write(write_end, json.dumps(answer).encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as said:
            print(said.read() or json.dumps({"reason": "crash", "operations": []}), flush=True)
        os.waitpid(pid, 0)


def ask_executor(source: str, name: str, signature: str, target: str) -> dict[str, Any]:
    """Return the operations of a kernel's TTIR, and why the executor refuses it, if it does."""
    from curate.devices import find_device
    from curate.verify.compile.aot import stub_driver
    from curate.verify.compile.kernel import load_kernel, read_signature
    from curate.verify.compile.lowering import Lowering
    from curate.verify.executor import launch, ttir
    from curate.verify.executor.numbers import UnsupportedType
    from curate.verify.executor.operations import UnsupportedOperation

    chosen = find_device(target)
    try:
        with stub_driver(chosen):
            made = load_kernel(source, name, chosen).launch(read_signature(signature))
            text = Lowering(chosen).text(made)
    except Exception as error:
        return {"reason": f"is not lowered: {type(error).__name__}", "operations": []}
    reason, operations = "", set()
    try:
        functions = ttir.parse(text).values()
        operations = {op.name for function in functions for op in ttir.walk(function.body)}
        launch.load_kernel(text)
    except (UnsupportedOperation, UnsupportedType, ttir.TTIRError) as error:
        reason = f"{getattr(error, 'reason', type(error).__name__)}: {error}"
    return {"reason": reason, "operations": sorted(operations)}


def answers(rows: list[dict[str, Any]], target: str) -> list[dict[str, Any]]:
    """Return what the executor says of each kernel."""
    asked = [
        {
            "source": row["triton"],
            "name": row["entry_point"],
            "signature": row["kernel"]["signature"],
            "target": target,
        }
        for row in rows
    ]
    command = sandbox_command([sys.executable, "-c", Path(__file__).read_text(), "--inside"])
    done = subprocess.run(
        command, input="\n".join(map(json.dumps, asked)), stdout=subprocess.PIPE, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def reason_of(run: dict[str, Any]) -> str:
    """Return how a launch ended, without what is its own."""
    if run["status"] == "ran":
        return "ran" if run["launches"] else "ran, and launched nothing"
    parts = run["message"].split(": ")
    return f"{run['status']}: {': '.join(parts[: 2 if parts[0] == 'no_inputs_found' else 1])}"


def show(title: str, counts: Counter[str], whole: int) -> None:
    """Print a table, with shares of a whole."""
    print(f"\n| {title} | kernels | share |\n|-|-|-|")
    for name, count in counts.most_common():
        print(f"| {name} | {count:,} | {count / max(1, whole):.1%} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:90")
    arguments = parser.parse_args()
    rows = pl.read_parquet(arguments.folder / "kernels" / "*.parquet").to_dicts()
    found = answers(rows, arguments.target)
    show("TTIR", Counter(answer["reason"] or "can be run" for answer in found), len(found))
    show("with", Counter(name for answer in found for name in answer["operations"]), len(found))
    runs = [row["kernel"]["run"] for row in rows if row["kernel"]["run"]]
    show("launch", Counter(map(reason_of, runs)), len(runs))


if __name__ == "__main__":
    inside() if sys.argv[1:] == ["--inside"] else main()
