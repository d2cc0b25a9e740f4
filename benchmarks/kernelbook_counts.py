"""What `recipes/kernelbook_import.yaml` made of rows that `kernelbook_rows.py` wrote.

Prints how each kind of row ended, sound ones and planted defects, and how often each repair was
made; fails if a row with a planted defect is called correct.

    curate run recipes/kernelbook_import.yaml --output out \\
        --set sources.hub.dataset=null --set sources.hub.path=kernelbook
    python benchmarks/kernelbook_counts.py kernelbook out/kernelbook_import
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def read(folder: Path, pattern: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    tables = [pq.read_table(path, columns=columns) for path in sorted(folder.glob(pattern))]
    return pa.concat_tables(tables).to_pylist() if tables else []


def fates(output: Path) -> tuple[dict[int, str], set[int]]:
    """Return how each record ended, by its number in the file, and those judged correct."""
    ended: dict[int, str] = {}
    correct: set[int] = set()
    lost = [(p.stem, pq.read_table(p).to_pylist()) for p in (output / "lost").glob("*.parquet")]
    for step, rows in [*lost, ("", read(output, "pairs/*.parquet"))]:
        for row in rows:
            number, status = row["origin"]["start_line"], (row["verdict"] or {}).get("status")
            ended[number] = f"{step}: {row['reason']}" if step else status
            if status == "correct":
                correct.add(number)
    return ended, correct


def main() -> None:
    data, output = map(Path, sys.argv[1:3])
    records = read(data, "*.parquet", ["repo_name"])
    ended, correct = fates(output)
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    for number, record in enumerate(records, 1):
        owner, _, defect = record["repo_name"].partition("/")
        kind = defect if owner == "planted" else "(sound)"
        counts[kind, ended[number]] += 1
        if number in correct and kind not in ("(sound)", "copy"):
            wrong.append(f"row {number} ({kind})")
    print(f"| {'rows':<22} | {'ended as':<34} | count |\n|-|-|-|")
    for (kind, fate), count in sorted(counts.items()):
        print(f"| {kind:<22} | {fate:<34} | {count:>5} |")
    tools = [row["origin"]["generator"]["tools"] for row in read(output, "pairs/*.parquet")]
    repairs = Counter(t.removeprefix("repair ") for ts in tools for t in ts if "repair" in t)
    print(f"\n{len(records)} rows; of {len(tools)} kept, repaired: {dict(repairs.most_common())}")
    if wrong:
        sys.exit(f"called correct: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
