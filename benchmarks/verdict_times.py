"""Times in verdicts beside eager PyTorch and `torch.compile`: medians, and how many are slower.

    python -m curate.verify ROWS.jsonl VERDICTS.jsonl --backend cuda --timing
    python benchmarks/verdict_times.py output/kernelbook_messages VERDICTS.jsonl

The data set's folder says which family a row is of; rows without a time are left out.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
from pathlib import Path

from datasets import load_dataset

BASELINES = "eager", "compile"
AS_FAST, SLOW, HALF = 0.97, 0.8, 0.5


def line(name: str, ratios: list[float]) -> str:
    """Return a line of the table: time of a baseline / time of the program."""
    if not ratios:
        return f"| {name} | 0 | | | | |"
    counts = [
        sum(r >= AS_FAST for r in ratios),
        *(sum(r < x for r in ratios) for x in (SLOW, HALF)),
    ]
    return f"| {name} | {len(ratios)} | {statistics.median(ratios):.2f} | " + (
        " | ".join(map(str, counts)) + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="The data set's folder.")
    parser.add_argument("verdicts", type=Path, nargs="+", help="Files of curate.verify.")
    args = parser.parse_args()
    rows = load_dataset(args.data, "messages")
    families = {row["id"]: row["family"] for split in rows.values() for row in split}
    found: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for path in args.verdicts:
        for text in path.read_text().splitlines():
            verdict = json.loads(text)
            for baseline in BASELINES:
                ratio = (verdict.get("timing") or {}).get(f"speedup_{baseline}")
                if ratio:
                    found[baseline, "all"].append(ratio)
                    found[baseline, families.get(verdict["id"], "unknown")].append(ratio)
    print(f"| | rows | median | {AS_FAST} and more | below {SLOW} | below {HALF} |")
    print("|-|-|-|-|-|-|")
    for baseline, family in sorted(found):
        print(line(f"{baseline}, {family}", found[baseline, family]))


if __name__ == "__main__":
    main()
