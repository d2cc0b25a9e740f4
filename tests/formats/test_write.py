"""What `curate.formats.dataset.write` does with rows, beyond the views themselves."""

from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from test_kernels_format import kernel
from test_kernels_format import write as write_kernels
from test_views import pair, write

from curate.formats.dataset import parquet
from curate.rows import Row


def index_of(folder: Path) -> list[Row]:
    return pq.read_table(folder / "index.parquet").to_pylist()


def test_the_index_has_a_line_for_every_row_that_a_view_shows(tmp_path: Path) -> None:
    rows = [pair(0, cluster="one"), pair(1, split="test"), pair(2, license=None)]
    walk, _ = write(tmp_path, rows)
    lines = index_of(walk.folder)
    assert [(x["id"], x["split"], x["cluster"]) for x in lines] == [
        (rows[0]["id"], "train", "one"),
        (rows[1]["id"], "test", None),
    ]
    assert {(x["kind"], x["license"], x["source"]) for x in lines} == {("pair", "MIT", "local")}


def test_a_kernel_without_a_view_has_no_line_and_one_with_many_holes_has_one(
    tmp_path: Path,
) -> None:
    walk, _ = write_kernels(tmp_path, [kernel(0)])
    assert len(index_of(walk.folder)) == 1
    assert pq.read_metadata(walk.folder / "fim/train-00000-of-00001.parquet").num_rows > 1


def test_a_row_that_the_hub_would_cut_is_left_out_and_counted(tmp_path: Path) -> None:
    large = pair(1, triton="x = 1\n" * 400_000)
    walk, run = write(tmp_path, [pair(0), large])
    views = ("messages", "conversion", "pairs")
    assert run["unwritten"] == {f"over_2_mb_in_{view}": 1 for view in views}
    assert [x["id"] for x in index_of(walk.folder)] == [pair(0)["id"]]
    assert run["configs"]["pairs"] == {"train": 1}


def test_a_split_of_several_files_is_read_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(parquet, "FILE_BYTES", 20_000)
    monkeypatch.setattr("curate.formats.dataset.write.GROUP_ROWS", 16)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = [pair(i) for i in range(200)]
    walk, run = write(tmp_path, rows)
    names = sorted(path.name for path in (walk.folder / "messages").iterdir())
    assert len(names) > 1
    assert names[0] == f"train-00000-of-{len(names):05d}.parquet"
    assert f"messages/{names[0]}" in run["files"]
    loaded = datasets.load_dataset(
        str(walk.folder), "messages", split="train", cache_dir=str(tmp_path / "hf")
    )
    assert loaded["id"][:] == [row["id"] for row in rows]
