"""Registers and spills of programs' kernels, compiled ahead of time for three devices.

    python benchmarks/spills.py PAIRS.jsonl --sample 120
    python benchmarks/spills.py PAIRS.jsonl --every-configuration --dtype bfloat16

``PAIRS.jsonl`` has ``id``, ``reference`` and ``candidate`` (or ``triton``) on each line. Kernels
are compiled as the step `compile` does, at the file's own sizes; no GPU is needed. Of a tuned
kernel that is the first configuration, or every one that its pruning leaves.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

TARGETS = ("cuda:80", "cuda:90", "hip:gfx942")


def compiled(row: dict[str, Any], tuned: str) -> list[dict[str, Any]]:
    """Return what each target says of a row's kernels; nothing if they cannot be found."""
    from curate.problem.problem import ProgramError
    from curate.verify.compile.aot import LaunchError, compile_program

    try:
        found = compile_program(
            row["reference"], row.get("candidate") or row["triton"], list(TARGETS), tuned
        )
        return [dict(result.to_row()) for result in found]
    except (LaunchError, ProgramError) as error:
        print(f"  {row['id']}: {error}")
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--sample", type=int, default=120, help="rows, drawn with a seed")
    parser.add_argument("--every-configuration", action="store_true", help="of tuned kernels")
    parser.add_argument("--dtype", default="float32", help="of parameters and inputs")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, given.dtype))
    rows = [json.loads(line) for line in given.pairs.open()]
    rows = [row for row in rows if row.get("candidate") or row.get("triton")]
    rows = random.Random(0).sample(rows, min(given.sample, len(rows)))
    tuned = "all" if given.every_configuration else "first"
    found = [(row["id"], result) for row in rows for result in compiled(row, tuned)]
    print("| target | rows | fail | spill | median registers | most | above 128 |")
    print("|-|-|-|-|-|-|-|")
    for target in TARGETS:
        own = [result for _, result in found if result["target"] == target]
        registers = [r["registers"] for r in own if r["ok"] and r["kernels"]] or [0]
        print(
            f"| {target} | {len(own)} | {sum(not r['ok'] for r in own)} "
            f"| {sum(bool(r['spills']) for r in own)} | {statistics.median(registers):.0f} "
            f"| {max(registers)} | {sum(r > 128 for r in registers)} |"
        )
    for name, result in found:
        if not result["ok"]:
            print(f"  {name}, {result['target']}: {result['kernel']}: {result['message']}")
        elif result["spills"]:
            print(f"  {name}, {result['target']}: {result['spills']} bytes spilled")


if __name__ == "__main__":
    main()
