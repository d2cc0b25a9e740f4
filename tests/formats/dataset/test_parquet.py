import json
import random
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.formats.dataset import parquet
from curate.formats.dataset.parquet import CHUNKING, LEVEL, SplitFiles

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def write(folder: Path, tables: list[pa.Table]) -> list[Path]:
    files = SplitFiles(folder, "train", SCHEMA)
    for table in tables:
        files.write(table)
    return files.close()


def rows(first: int, count: int, size: int = 100) -> pa.Table:
    ids = list(range(first, first + count))
    texts = [random.Random(i).randbytes(size // 2).hex() for i in ids]
    return pa.table({"id": ids, "text": texts}, SCHEMA)


def test_one_file_with_all_that_the_hub_asks_for(tmp_path: Path) -> None:
    [path] = write(tmp_path, [rows(0, 500), rows(500, 500)])
    assert path.name == "train-00000-of-00001.parquet"
    file = pq.ParquetFile(path)
    assert file.num_row_groups == 1
    assert file.read()["id"].to_pylist() == list(range(1000))
    column = file.metadata.row_group(0).column(1)
    assert column.has_column_index and column.has_offset_index
    footer = json.loads(file.metadata.metadata[b"content_defined_chunking"])
    assert footer == CHUNKING == datasets.config.DEFAULT_CDC_OPTIONS


def test_files_and_row_groups_stay_below_their_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(parquet, "FILE_BYTES", 50_000)
    paths = write(tmp_path, [rows(i, 256, 200) for i in range(0, 1024, 256)])
    assert [p.name for p in paths] == [
        f"train-{i:05d}-of-{len(paths):05d}.parquet" for i in range(len(paths))
    ]
    assert len(paths) > 2
    assert sorted(p.name for p in tmp_path.iterdir()) == [p.name for p in paths]
    seen = []
    for path in paths:
        assert path.stat().st_size < 50_000 * 1.5  # indexes and the footer come on top
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            assert table.nbytes <= 10_000
            seen += table["id"].to_pylist()
    assert seen == list(range(1024))


def test_a_row_larger_than_a_row_group_has_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1000)
    [path] = write(tmp_path, [pa.concat_tables([rows(0, 1), rows(1, 1, 5000), rows(2, 1)])])
    assert pq.ParquetFile(path).num_row_groups == 3


def test_pages_end_where_the_content_says_so(tmp_path: Path) -> None:
    table = rows(0, 10_000, 400)
    [path] = write(tmp_path, [table])
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    start, size = column.dictionary_page_offset, column.total_compressed_size
    pages = {}
    for chunking in (CHUNKING, False):
        sink = pa.BufferOutputStream()
        options = {"compression": "zstd", "compression_level": LEVEL, "write_page_index": True}
        pq.write_table(table, sink, use_content_defined_chunking=chunking, **options)
        pages[bool(chunking)] = sink.getvalue().to_pybytes()[start : start + size]
    found = path.read_bytes()[start : start + size]
    assert [found == pages[kind] for kind in (True, False)] == [True, False]
