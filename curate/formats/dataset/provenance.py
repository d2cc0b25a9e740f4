"""``provenance.jsonl``: one line for every row of a data set, whatever views show it.

It has what `index.parquet` is too small for: the whole origin and license of a row. A line holds
``id``, ``kind``, ``parent_ids``, ``origin`` and ``license``, as `curate.rows` has them, and
``files``: how many rows show it in the files of each view, which are named as the card names them.
Lines are in the order of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from curate.rows import Loose

PROVENANCE_FILE = "provenance.jsonl"


def provenance_line(row: Loose, shown: dict[str, int]) -> str:
    """Return the line of a row in ASCII, with its newline.

    Args:
        row: one that a view shows.
        shown: how many rows show it, by the files of a view.
    """
    line = {
        "id": row["id"],
        "kind": row["kind"],
        "files": {files: rows for files, rows in shown.items() if rows},
        "parent_ids": row["parent_ids"],
        "origin": row["origin"],
        "license": row["license"],
    }
    return json.dumps(line) + "\n"


def read_provenance(folder: Path) -> Iterator[Loose]:
    """Yield the lines of a data set's ``provenance.jsonl``.

    Raises:
        FileNotFoundError: it has none; an older version of `curate` wrote it.
    """
    with (folder / PROVENANCE_FILE).open(encoding="utf-8") as file:
        yield from map(json.loads, file)
