from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs_for_tests import KERNELS, MODULE

from curate.clean.fingerprint import (
    FORM,
    MIN_NODES,
    SHIPPED,
    make_fingerprints,
    read_benchmark,
    shipped_names,
    write_benchmark,
)
from curate.clean.forms.parts import PlainProgram
from curate.files import InputError

# --- making files -----------------------------------------------------------------------------


@pytest.mark.weekly
def test_a_folder_becomes_a_file_without_code(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1/2_Gate.py").write_text(MODULE)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "empty.py").write_text("import torch\n")
    (tmp_path / "old.py").write_text("print 'x'\n")
    (tmp_path / "README.md").write_text("not read")
    made = make_fingerprints([tmp_path], "mine", version="1.0", license="MIT")
    assert list(made.benchmark.items) == ["kernels.py", "level1/2_Gate.py"]
    assert made.passed_over.keys() == {"empty.py", "old.py"}
    assert "is not Python" in made.passed_over["old.py"]
    # beside kernels, the launcher does not count
    parts = made.benchmark.items["kernels.py"].parts
    assert [part.kind for part in parts] == ["kernel", "kernel_and_helpers", "program"]
    # too small to be compared by overlap, as the parts of the module are
    assert not any(part.grams for part in parts)
    assert all(part.grams for part in made.benchmark.items["level1/2_Gate.py"].parts)
    text = made.benchmark.to_json()
    assert text == make_fingerprints([tmp_path], "mine", "1.0", None, "MIT").benchmark.to_json()
    assert "program_id" not in text and "GroupNorm" not in text
    write_benchmark(tmp_path / "new/mine.json", made.benchmark)
    assert read_benchmark(tmp_path / "new/mine.json") == made.benchmark


def test_tables_hold_programs_in_their_texts(tmp_path: Path) -> None:
    rows = [
        {"name": "gate", "level": 1, "code": MODULE},
        {"name": None, "level": 2, "code": KERNELS},
        {"name": "words", "level": 3, "code": "a sentence, no program"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    made = make_fingerprints([tmp_path], "mine")
    files = ("a.jsonl", "b.json", "c.parquet")
    assert list(made.benchmark.items) == [f"{f}#{row}" for f in files for row in ("gate", 2)]
    assert list(made.passed_over) == [f"{f}#words" for f in files]
    item = made.benchmark.items["b.json#gate"]
    assert {part.ast for part in item.parts} == {part.ast for part in PlainProgram(MODULE).parts()}
    assert len(item.signatures) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "x", "must be a folder or end in"),
        ("none.py", None, "cannot be read"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[1]", "must hold a list of objects"),
        ("a.parquet", "x", "cannot be read"),
        ("a.py", "x = 1\n", "nothing to fingerprint"),
    ],
)
def test_bad_paths(name: str, content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        make_fingerprints([tmp_path / name], "mine")


def test_two_items_may_not_share_a_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text(MODULE)
    with pytest.raises(InputError, match=r"x\.py: two items"):
        make_fingerprints([tmp_path / "a", tmp_path / "b"], "mine")


PART = {"kind": "class", "name": "M", "ast": "0" * 20}
ITEM: dict[str, object] = {"parts": [PART], "signatures": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": {"a": ITEM | {"parts": [PART | {"ast": "short"}]}}}, r"items\.a\.parts\.0\.ast"),
        ({"items": {"a": ITEM | {"signatures": ["AAAA"]}}}, r"items\.a\.signatures\.0"),
        ({"items": {}}, "items"),
        ({"form": FORM - 1, "items": {"a": [PART]}}, "make it again"),
        ({"hashes": []}, "hashes"),
        ({"name": "No Name"}, "name"),
    ],
)
def test_bad_files(change: dict[str, object], message: str, tmp_path: Path) -> None:
    good = {"name": "mine", "form": FORM, "items": {"a": ITEM}}
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(good))
    read_benchmark(file)
    file.write_text(json.dumps(good | change))
    with pytest.raises(InputError, match=message):
        read_benchmark(file)
    file.write_text("not JSON")
    with pytest.raises(InputError, match=r"bad\.json: is no fingerprint file"):
        read_benchmark(file)


# --- the files that are shipped ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "items", "version", "license"),
    [
        ("kernelbench", 270, "423217d9fda91e0c2d67e4a43bf62f96f6d104f1", "MIT"),
        ("tritonbench-g", 184, "603e28a5050e8c268f6883a69709d477a272d49a", "Apache-2.0"),
        ("tritonbench-t", 166, "603e28a5050e8c268f6883a69709d477a272d49a", "Apache-2.0"),
    ],
)
def test_shipped_files(name: str, items: int, version: str, license: str) -> None:
    file = SHIPPED / f"{name}.json"
    benchmark = read_benchmark(file)
    assert (benchmark.name, benchmark.version, benchmark.license) == (name, version, license)
    assert benchmark.url
    assert len(benchmark.items) == items
    assert all(item.parts and item.signatures for item in benchmark.items.values())
    assert benchmark.min_nodes == MIN_NODES
    assert file.read_text() == benchmark.to_json()
    assert file.stat().st_size < 600_000


def test_every_shipped_file_is_tested() -> None:
    assert shipped_names() == ["kernelbench", "tritonbench-g", "tritonbench-t"]
