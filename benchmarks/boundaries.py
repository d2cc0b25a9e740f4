"""Correct programs with one comparison moved by its boundary, for the judge to detect.

    python benchmarks/boundaries.py PAIRS.parquet... CANDIDATES.jsonl
    curate verify CANDIDATES.jsonl --output VERDICTS.jsonl --backend cpu

In each a comparison between values (not in a mask or an address) has `<=` for `<`, `>` for `>=`,
and so on: it differs from the original where the two sides are equal, and only there. Many differ
nowhere, since both branches meet in that place; the share rejected is a lower bound of what the
judge can detect. Two modules are taken per docstring, and 300 in all.
"""

from __future__ import annotations

import ast
import collections
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
from mutate import OTHER_COMPARISONS, Change, Program

MOST, ALIKE = 300, 2


def moved(row: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield a pair's program with another boundary each."""
    program = Program(row["triton"])
    for node in program.nodes("value", ast.Compare):
        if not isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            continue
        other = OTHER_COMPARISONS[type(node.ops[0])][0]()
        after = ast.unparse(ast.Compare(node.left, [other], node.comparators))
        place = f"{row['id'][:12]}-{program.line_starts[node.lineno - 1] + node.col_offset}"
        text = program.apply(Change(node, after, "boundary"))
        yield {"id": place, "reference": row["reference"], "triton": text}


def main() -> None:
    """Write the candidates."""
    *paths, out = sys.argv[1:]
    rows = polars.read_parquet(paths).sort("id").to_dicts()
    found = [one for r in rows if r["verdict"]["status"] == "correct" for one in moved(r)]
    random.Random(0).shuffle(found)
    seen: collections.Counter[str] = collections.Counter()
    kept = []
    for one in found:
        told = [*one["reference"].split('"""'), ""][1][:60]
        seen[told] += 1
        if seen[told] <= ALIKE:
            kept.append(one)
    kept = kept[:MOST]
    Path(out).write_text("".join(json.dumps(one) + "\n" for one in kept), encoding="utf-8")
    print(f"{len(kept)} of {len(found)} candidates, of {len(rows)} pairs")


if __name__ == "__main__":
    main()
