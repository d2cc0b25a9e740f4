"""Run the shipped recipe from nothing, run it again, and check what came out.

    python benchmarks/main_job.py [OUTPUT]
    python benchmarks/main_job.py --count FOLDER

Prints a JSON object with the seconds of both runs, what was kept, and the machine and versions; or
counts what is in a finished set alone.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import datasets

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes/kernelbook_messages.yaml"
NUMBERED = re.compile(r"def \w+_kernel_\d")


def run(output: Path) -> tuple[float, str]:
    """Run the recipe; return its wall seconds and its last line, which holds the sha256."""
    command = [sys.executable, "-m", "curate", "run", str(RECIPE), "--output", str(output)]
    started = time.monotonic()
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return round(time.monotonic() - started, 1), ran.stdout.strip().splitlines()[-1]


def pairs(folder: Path) -> list[dict]:
    """Return all finished pairs, as `datasets` reads them."""
    splits = datasets.load_dataset(str(folder), "pairs", cache_dir=tempfile.mkdtemp())
    return [row for split in splits.values() for row in split]


def counted(rows: list[dict]) -> dict:
    """Return counts of a set's pairs."""
    verdicts = collections.Counter(
        row["verdict"]["status"] + (f" ({why})" if (why := row["verdict"]["reason"]) else "")
        for row in rows
    )
    caveats = collections.Counter(c for r in rows for c in r["verdict"]["caveats"] or ["none"])
    sources = collections.Counter(row["origin"]["purl"] for row in rows)
    return {
        "pairs": len(rows),
        "compiled_for_all_targets": sum(
            bool(row["compile"]) and all(c["ok"] for c in row["compile"]) for row in rows
        ),
        "with_origin_and_license": sum(
            bool(row["license"]["choice"] and row["origin"]["source"]) for row in rows
        ),
        "importing_torch_inductor": sum("_inductor" in row["triton"] for row in rows),
        "pure_triton": sum(row["static"]["pure_triton"] for row in rows),
        "kernels": sum(row["triton"].count("@triton.jit\ndef ") for row in rows),
        "lines": sum(row["triton"].count("\n") for row in rows),
        "with_a_numbered_kernel": sum(bool(NUMBERED.search(row["triton"])) for row in rows),
        "that_copy_an_operand": sum("Copy an operand of" in row["triton"] for row in rows),
        "in_16_bits": sum(
            any(kind in row["reference"] for kind in ("torch.bfloat16", "torch.float16"))
            for row in rows
        ),
        "with_tl_dot": sum("tl.dot(" in row["triton"] for row in rows),
        "sizes_as_arguments": sum(bool(row["static"]["dynamic_dims"]) for row in rows),
        "of_any_floating_type": sum(bool(row["static"]["any_float"]) for row in rows),
        "written_for_some_arguments": sum(bool(row["static"]["specialised"]) for row in rows),
        "judged_on_8_draws": sum(row["verdict"]["trials"] == 8 for row in rows),
        "verdicts": dict(verdicts.most_common()),
        "caveats": dict(caveats.most_common()),
        "sources": dict(sources.most_common()),
    }


def main() -> None:
    """Measure, check, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, nargs="?", default=Path(tempfile.mkdtemp()))
    parser.add_argument("--count", type=Path, help="count a finished set, and run nothing")
    given = parser.parse_args()
    if given.count:
        print(json.dumps(counted(pairs(given.count)), indent=1))
        return
    first, data = run(given.output)
    second, again = run(given.output)
    report = {
        "seconds": first,
        "seconds_again": second,
        "same_data": data == again,
        **counted(pairs(given.output / RECIPE.stem)),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no GPU",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "triton")},
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
