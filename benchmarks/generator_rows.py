"""The generator on a sample of torch_ops' problems: printed, correct, CPU seconds per row.

    python benchmarks/generator_rows.py --single 40 --compositions 40 --output rows.jsonl
    python benchmarks/generator_rows.py --problems problems.jsonl

``--problems`` takes JSON lines with ``id``, ``kind`` and ``reference`` instead. Each row is made
once, in this process; seconds are CPU seconds without the first row, which warms up.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any


def sample(single: int, compositions: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield problems: operators spread over the database, and the first compositions."""
    from curate.sources.torch_ops import operators
    from curate.sources.torch_ops.check import check
    from curate.sources.torch_ops.compositions import compositions as composed

    known = operators.operators()
    made = 0
    for op in known[:: max(1, len(known) // max(1, 2 * single))] if single else ():
        for problem in operators.problems(op, 1, seed):
            if isinstance(problem, str) and made < single:
                made += 1
                yield {"id": op.full_name, "kind": "single", "reference": problem}
    for number, (family, text) in enumerate(islice(composed(seed), compositions)):
        if check(text) is None:
            yield {"id": f"{family}#{number}", "kind": "composition", "reference": text}


def generate(row: dict[str, Any], verbose: bool, variant: int) -> None:
    """Add the program or the reason to a row, and how long it took."""
    from curate.generator.generate import generate as print_program

    start = time.process_time()
    try:
        row["candidate"] = print_program(row["reference"], variant=variant).text
    except Exception as error:  # other people's code, and the generator's own faults
        row["reason"] = (
            f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
        )
        if verbose:
            cause = error.__cause__ or error
            traceback.print_exception(getattr(cause, "inner_exception", cause))
    row["seconds"] = time.process_time() - start


def judge(rows: list[dict[str, Any]], seed: int) -> None:
    """Add each program's verdict."""
    from curate.verify import Candidate, Options, verify

    candidates = [
        Candidate(r["id"], r["reference"], r["candidate"]) for r in rows if "candidate" in r
    ]
    by_id = {row["id"]: row for row in rows}
    for verdict in verify(candidates, Options(backend="cpu", draw_seed=seed, workers=2)):
        row = by_id[verdict.id]
        row["status"] = verdict.status
        row["verdict_reason"] = verdict.reason
        row["caveats"] = list(verdict.caveats)
        row["evidence"] = verdict.evidence


def report(rows: list[dict[str, Any]]) -> None:
    print("| kind | rows | printed | correct | median s | mean s | kernels | caveats |")
    print("|-|-|-|-|-|-|-|-|")
    for kind in [*dict.fromkeys(row["kind"] for row in rows), "all"]:
        own = [row for row in rows if kind in (row["kind"], "all")]
        printed = [row for row in own if "candidate" in row]
        correct = [row for row in printed if row.get("status") == "correct"]
        seconds = [row["seconds"] for row in own if not row.get("first")]
        caveats = Counter(c for row in correct for c in row["caveats"])
        kernels = sum(
            row["candidate"].count("tl.constexpr):") or row["candidate"].count("@triton.jit\ndef")
            for row in printed
        )
        shown = ", ".join(f"{name} {count}" for name, count in caveats.most_common())
        mean, median = statistics.fmean(seconds or [0]), statistics.median(seconds or [0])
        print(
            f"| {kind} | {len(own)} | {len(printed)} | {len(correct)} | {median:.2f} | {mean:.2f} "
            f"| {kernels} | {shown} |"
        )
    print("\nnot printed:")
    for reason, count in Counter(r["reason"] for r in rows if "reason" in r).most_common():
        ids = [row["id"] for row in rows if row.get("reason") == reason]
        print(f"  {count} {reason}  ({', '.join(ids[:4])})")
    print("\nnot correct:")
    for row in rows:
        if "candidate" in row and row.get("status") != "correct":
            print(f"  {row['id']}: {row.get('status')} {row.get('verdict_reason')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--single", type=int, default=40)
    parser.add_argument("--compositions", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--output", type=Path, help="rows with programs and verdicts")
    parser.add_argument("--no-judge", action="store_true")
    parser.add_argument("--variant", type=int, default=0, help="1: each kernel's next schedule")
    parser.add_argument("--only", help="a row's id")
    parser.add_argument("--verbose", action="store_true", help="show where a row failed")
    given = parser.parse_args()
    if given.problems:
        rows: list[dict[str, Any]] = [json.loads(line) for line in given.problems.open()]
    else:
        rows = [dict(row) for row in sample(given.single, given.compositions, given.seed)]
    rows = [row for row in rows if given.only in (None, row["id"])]
    import torch

    torch.set_num_threads(1)
    torch._logging.set_logs(all=logging.CRITICAL)
    for number, row in enumerate(rows):
        row["first"] = number == 0
        generate(row, given.verbose, given.variant)
    if not given.no_judge:
        judge(rows, given.seed)
    if given.output:
        given.output.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    report(rows)


if __name__ == "__main__":
    main()
