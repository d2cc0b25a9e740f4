"""A source of rows that lie in Parquet files, for `scale.py`; recipes have none, since nothing
would prove what such rows say of themselves.

    python benchmarks/rows_source.py ROWS OUTPUT WORKERS

runs normalize, parse, dedupe and split over the files in the folder ROWS.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from curate.rows import Row
from curate.step import Context, SourceStep, Unit


class Rows(SourceStep):
    """The rows of a folder's Parquet files, a unit each."""

    source: Literal["rows"] = "rows"
    path: str

    def units(self, context: Context) -> list[Unit]:
        files = sorted(Path(self.path).glob("*.parquet"))
        return [Unit(file.name, str(file), {"path": str(file)}) for file in files]

    def read(self, unit: Unit, context: Context) -> Iterator[Row]:
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(unit.spec["path"]).iter_batches(256):
            yield from batch.to_pylist()


def main(rows: Path, output: Path, workers: int) -> None:
    """Run the steps, and say what `curate run` says."""
    from rows_source import Rows  # by the name under which workers find it

    from curate.clean.dedupe import Dedupe
    from curate.clean.normalize import Normalize
    from curate.clean.parse import Parse
    from curate.clean.split import Split
    from curate.cli.console import Live
    from curate.engine.processes.local import LocalExecutor
    from curate.engine.run import Walk

    steps = [
        Normalize(step="normalize"),
        Parse(step="parse"),
        Dedupe(step="dedupe", column="triton", similarity=0.8),
        Split(step="split"),
    ]
    recipe: Any = SimpleNamespace(
        name=rows.name, seed=0, sources=[Rows(path=str(rows))], steps=steps, formats=[]
    )
    live = Live()
    with live.bars:
        Walk(recipe, output, LocalExecutor(workers), progress=live).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
