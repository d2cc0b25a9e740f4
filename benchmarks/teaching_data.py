"""Training data for three arms of one experiment: does verified, deduplicated data teach more?

    python benchmarks/teaching_data.py OUTPUT/RECIPE TOKENIZER OUT_DIR [--faults 0.3]

Reads the folder that `curate run` wrote for a recipe with the formats `messages` and `pairs`, and
writes three data sets with the config `messages`, which share a validation split:

- ``ours``: the train split as it is;
- ``unfiltered``: the same rows and those that steps after `standalone` dropped (duplicates,
  benchmark problems, what does not compile, what is wrong), shuffled, cut to as many tokens;
- ``faulty``: the train split with one fault (`mutate`) put into a share of its programs.

``test.jsonl`` has id, reference and triton of the test split; ``short.jsonl`` those of the rows of
train whose program has at most ``--short`` tokens, to be asked for by GRPO. A dropped row is left
out if the row that it repeats is not in train. Prints rows, tokens, and what the rows of
``unfiltered`` had been dropped for.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from mutate import mutants

from curate.formats.prompts.question import SYSTEM, question
from curate.generate.models import load_tokenizer
from curate.teacher.template import fence

Row = dict[str, Any]

SEED = 0


def read(folder: Path, split: str) -> list[Row]:
    """Return the pairs of a split."""
    files = sorted(folder.glob(f"pairs/{split}-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def dropped_pairs(folder: Path, train: set[str]) -> list[Row]:
    """Return the programs that later steps dropped, but for the twins of held-out rows."""
    rows = []
    for file in sorted(folder.glob("lost/*.parquet")):
        for row in pq.read_table(file).to_pylist():
            if row["kind"] != "pair" or not row["triton"]:
                continue
            twin = json.loads(row["evidence"]).get("of")
            if twin is None or twin in train:
                rows.append({**row, "step": file.stem})
    return rows


def conversation(row: Row) -> Row:
    """Return a row as the config `messages` shows it."""
    turns = [
        ("system", SYSTEM),
        ("user", question(row["reference"])),
        ("assistant", fence(row["triton"])),
    ]
    return {"id": row["id"], "messages": [{"role": r, "content": c} for r, c in turns]}


def with_faults(rows: list[Row], share: float) -> tuple[list[Row], int]:
    """Return the rows, a share of them with one fault; and how many of them have one."""
    chooser, count, changed = random.Random(SEED), 0, []
    for row in rows:
        found = mutants(row["triton"], SEED, 1) if chooser.random() < share else []
        count += len(found)
        changed.append({**row, "triton": found[0].text} if found else row)
    return changed, count


def main() -> None:
    """Write the files, and print what is in them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("tokenizer")
    parser.add_argument("out", type=Path)
    parser.add_argument("--faults", type=float, default=0.3)
    parser.add_argument("--short", type=int, default=600)
    given = parser.parse_args()
    tokenizer = load_tokenizer(given.tokenizer)

    def tokens(row: Row) -> int:
        return len(tokenizer.apply_chat_template(conversation(row)["messages"])["input_ids"])

    train = read(given.folder, "train")
    dropped = dropped_pairs(given.folder, {row["id"] for row in train})
    unfiltered = cut([*train, *dropped], tokens, sum(map(tokens, train)))
    faulty, faults = with_faults(train, given.faults)
    validation = read(given.folder, "validation")
    for name, rows in (("ours", train), ("unfiltered", unfiltered), ("faulty", faulty)):
        write(given.out / name, train=rows, validation=validation)
        print(f"{name}: {len(rows)} rows, {sum(map(tokens, rows))} tokens")
    held_out = read(given.folder, "test")
    short = [row for row in train if len(tokenizer(row["triton"])["input_ids"]) <= given.short]
    for name, rows in (("test", held_out), ("short", short)):
        lines = ({name: row[name] for name in ("id", "reference", "triton")} for row in rows)
        (given.out / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    reasons = Counter(f"{row['step']}: {row['reason']}" for row in unfiltered if "step" in row)
    print(f"test: {len(held_out)} rows, short: {len(short)}")
    print(f"faults put in: {faults}; dropped before: {dict(reasons)}")


def cut(rows: list[Row], tokens: Callable[[Row], int], limit: int) -> list[Row]:
    """Return as many rows, in a shuffled order, as have at most ``limit`` tokens together."""
    random.Random(SEED).shuffle(rows)
    kept, used = [], 0
    for row in rows:
        if used + (size := tokens(row)) <= limit:
            kept.append(row)
            used += size
    return kept


def write(folder: Path, **splits: list[Row]) -> None:
    """Write a data set with the config `messages`."""
    (folder / "messages").mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        table = pa.Table.from_pylist([conversation(row) for row in rows])
        file = folder / "messages" / f"{split}-00000-of-00001.parquet"
        pq.write_table(table, file, compression="zstd")


if __name__ == "__main__":
    main()
