"""Small data sets in the folders and forms that `curate run` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[dict[str, Any]]


def write_dataset(folder: Path, config: str = "messages", **splits: Rows) -> Path:
    """Write the splits of a config and return the folder."""
    for split, rows in splits.items():
        (folder / config).mkdir(parents=True, exist_ok=True)
        file = folder / config / f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(rows), file)
    return folder


def conversation(name: str, asked: str, answered: str) -> dict[str, Any]:
    """Return a row of the config messages."""
    turns = [("system", "You write kernels."), ("user", asked), ("assistant", answered)]
    return {"id": name, "messages": [{"role": r, "content": c} for r, c in turns]}


def conversations(count: int, words: int = 8) -> Rows:
    """Return rows whose answers have so many words each."""
    return [
        conversation(f"row{n}", f"Double the number {n}.", " ".join([f"tl.store({n})"] * words))
        for n in range(count)
    ]
