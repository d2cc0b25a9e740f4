"""Reads the rows of a finished data set, without the cache that it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from curate.files import check_file
from curate.formats.dataset.write import read_run
from curate.rows import ROW, Loose

WHOLE = {"pairs": "pair", "kernels": "kernel"}
"""Configs that have all columns of their rows, and of which kind these are."""


def finished_rows(folder: Path) -> Iterator[Loose]:
    """Yield the pairs and kernels of a data set, with None in columns that it does not have.

    Raises:
        Damaged: a file is not as it was written.
    """
    files = (read_run(folder) or {"files": {}})["files"]
    for config, kind in WHOLE.items():
        for name in sorted(name for name in files if name.startswith(f"{config}/")):
            check_file(folder / name, files[name])
            split = Path(name).name.split("-")[0]
            known = {**dict.fromkeys(ROW.names), "kind": kind, "split": split}
            yield from (known | row for row in pq.read_table(folder / name).to_pylist())
