"""Kill a run ten times at random moments, let it end, and compare it with one left alone.

    python benchmarks/kills.py [LIMIT, default 3]

Runs the shipped recipe with ``--limit``, each time from an empty folder. Prints both sha256 of the
data and whether the statistics (``run.json``) are equal; fails if they are not.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[1] / "recipes/kernelbook_messages.yaml"


def start(output: Path, limit: str) -> subprocess.Popen[str]:
    """Start a run in a process group of its own."""
    command = [sys.executable, "-m", "curate", "run", str(RECIPE)]
    return subprocess.Popen(
        [*command, "--limit", limit, "--output", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def main() -> None:
    """Print one JSON object."""
    limit = sys.argv[1] if len(sys.argv) > 1 else "3"
    whole, cut = (Path(tempfile.mkdtemp()) for _ in range(2))
    started = time.monotonic()
    expected = start(whole, limit).communicate()[0].strip().splitlines()[-1].split()[-1]
    took = time.monotonic() - started
    draw = random.Random(0)
    killed = 0
    for _ in range(10):
        process = start(cut, limit)
        time.sleep(draw.uniform(0.02, 0.2) * took)
        killed += process.poll() is None
        process.kill()  # SIGKILL; nothing where the run has ended already
        process.communicate()
    found = start(cut, limit).communicate()[0].strip().splitlines()[-1].split()[-1]
    runs = [json.loads((x / RECIPE.stem / "run.json").read_bytes()) for x in (whole, cut)]
    report = {
        "killed": killed,
        "uninterrupted": expected,
        "killed_and_resumed": found,
        "same_statistics": runs[0] == runs[1],
        "rows": runs[0]["configs"],
    }
    print(json.dumps(report, indent=1))
    if expected != found or runs[0] != runs[1]:
        raise SystemExit("the data differ")


if __name__ == "__main__":
    main()
