"""Parquet files of a split, in the form that the Hub stores and shows best.

Pages end where the content says so (content-defined chunking), so that a new version of a data set
uploads only what has changed; an index of pages lets the viewer read a few rows of a large file.
The numbers are those with which `datasets` 5 writes (`datasets.config.DEFAULT_CDC_OPTIONS`,
``MAX_ROW_GROUP_SIZE``, ``MAX_SHARD_SIZE``), and so is the key in the footer that tells of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CHUNKING = {"min_chunk_size": 256 * 1024, "max_chunk_size": 1024 * 1024, "norm_level": 0}
LEVEL = 12  # of zstd: files are a quarter smaller than at its default
ROW_GROUP_BYTES = 100 * 10**6  # before compression
FILE_BYTES = 500 * 10**6


class SplitFiles:
    """Writes the rows of one split to ``<split>-00000-of-0000N.parquet`` and so on."""

    def __init__(self, folder: Path, split: str, schema: pa.Schema) -> None:
        self._folder, self._split, self._schema = folder, split, schema
        self._held: list[pa.Table] = []  # of the next row group
        self._files: list[Path] = []
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Write more rows."""
        for part in _parts(table):
            if sum(held.nbytes for held in self._held) + part.nbytes > ROW_GROUP_BYTES:
                self._write_group()
            self._held.append(part)

    def close(self) -> list[Path]:
        """Write what is left and return the files, which now have their names."""
        self._write_group()
        self._end_file()
        return [
            path.rename(path.with_name(f"{path.stem}-of-{len(self._files):05d}.parquet"))
            for path in self._files
        ]

    def _write_group(self) -> None:
        if not self._held:
            return
        group = pa.concat_tables(self._held)
        self._held = []
        if self._sink is not None and self._sink.tell() + group.nbytes > FILE_BYTES:
            self._end_file()
        if self._writer is None:
            self._begin_file()
        assert self._writer is not None
        self._writer.write_table(group, row_group_size=len(group))

    def _begin_file(self) -> None:
        path = self._folder / f"{self._split}-{len(self._files):05d}.part"
        self._files.append(path)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression="zstd",
            compression_level=LEVEL,
            write_page_index=True,
            use_content_defined_chunking=CHUNKING,
        )
        self._writer.add_key_value_metadata({"content_defined_chunking": json.dumps(CHUNKING)})

    def _end_file(self) -> None:
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
        self._writer = self._sink = None


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield a table, halved until each part fits into a row group or is a single row."""
    if table.nbytes <= ROW_GROUP_BYTES or len(table) < 2:
        yield table
        return
    half = len(table) // 2
    yield from _parts(table[:half])
    yield from _parts(table[half:])
