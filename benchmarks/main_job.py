"""Run the shipped recipe from nothing, run it again, and check what came out.

    python benchmarks/main_job.py [OUTPUT]

Prints a JSON object with the seconds of both runs, what was kept, and the machine and versions.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import datasets

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes/kernelbook_messages.yaml"
TARGETS = {"cuda:80", "cuda:90", "hip:gfx942"}


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


def main() -> None:
    """Measure, check, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, nargs="?", default=Path(tempfile.mkdtemp()))
    output = parser.parse_args().output
    first, data = run(output)
    second, again = run(output)
    rows = pairs(output / RECIPE.stem)
    verdicts = collections.Counter(
        row["verdict"]["status"] + (f" ({why})" if (why := row["verdict"]["reason"]) else "")
        for row in rows
    )
    caveats = collections.Counter(c for r in rows for c in r["verdict"]["caveats"] or ["none"])
    sources = collections.Counter(row["origin"]["purl"] for row in rows)
    compiled = sum({c["target"] for c in row["compile"] if c["ok"]} == TARGETS for row in rows)
    papers = sum(bool(row["license"]["choice"] and row["origin"]["source"]) for row in rows)
    report = {
        "seconds": first,
        "seconds_again": second,
        "same_data": data == again,
        "pairs": len(rows),
        "compiled_for_all_targets": compiled,
        "with_origin_and_license": papers,
        "importing_torch_inductor": sum("_inductor" in row["triton"] for row in rows),
        "pure_triton": sum(row["static"]["pure_triton"] for row in rows),
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
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no GPU",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "triton")},
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
