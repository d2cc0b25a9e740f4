from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.clean.fingerprint import (
    MIN_NODES,
    SHIPPED,
    Benchmark,
    Part,
    find_parts,
    make_fingerprints,
    read_benchmark,
    shipped_names,
    write_benchmark,
)
from curate.verify.files import InputError

KERNELS = '''"""Scale the rows of a matrix."""
import torch
import triton
import triton.language as tl


@triton.jit
def _clip(x, LIMIT: tl.constexpr):
    return tl.minimum(tl.maximum(x, -LIMIT), LIMIT)


@triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n_cols"])
@triton.jit
def scale_rows(x_ptr, scale_ptr, n_cols, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    # one program a row
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    values = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    factor = tl.load(scale_ptr + row)
    tl.store(x_ptr + row * n_cols + cols, _clip(values * factor, LIMIT), mask=cols < n_cols)


def scale(x, factors):
    rows, n_cols = x.shape
    grid = (rows,)
    scale_rows[grid](x, factors, n_cols, LIMIT=4.0)
    assert x.is_contiguous() and factors.numel() == rows and factors.device == x.device
    return x
'''

MODULE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width: int, groups: int) -> None:
        super(Model, self).__init__()
        self.norm = nn.GroupNorm(groups, width)
        self.gate = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(x)
        return torch.sigmoid(self.gate(hidden)) * hidden + x

width = 64

def get_inputs():
    return [torch.rand(16, width), torch.rand(16, width), torch.rand(16, width), torch.rand(16, 1)]

def get_init_inputs():
    return [width, 8]
"""


def by_name(code: str, min_nodes: int = MIN_NODES) -> dict[tuple[str, str], Part]:
    return {(part.kind, part.name): part for part in find_parts(code, min_nodes)}


def renamed(code: str, *names: tuple[str, str]) -> str:
    for old, new in names:
        assert re.search(rf"\b{old}\b", code)
        code = re.sub(rf"\b{old}\b", new, code)
    return code


def test_the_parts_of_a_program() -> None:
    parts = by_name(KERNELS)
    assert set(parts) == {
        ("program", ""),
        ("kernel", "scale_rows"),
        ("kernel_and_helpers", "scale_rows"),
        ("function", "scale"),
    }
    lines = KERNELS.splitlines()
    first, last = parts["kernel", "scale_rows"].lines
    assert lines[first - 1].startswith("def scale_rows")
    assert lines[last - 1].startswith("    tl.store")
    assert parts["program", ""].lines[0] == 1
    assert ("kernel", "_clip") in by_name(KERNELS, min_nodes=0)
    assert set(by_name(MODULE)) == {("program", ""), ("class", "Model")}


def test_a_renamed_kernel_in_another_file_has_the_same_hash() -> None:
    kernel = KERNELS[KERNELS.index("@triton.jit\ndef _clip") : KERNELS.index("def scale(x")]
    moved = "from triton import jit\nimport triton\nfrom triton import language as T\n\n"
    moved += renamed(
        kernel.replace("@triton.jit", "@jit").replace("    # one program a row\n", ""),
        ("tl", "T"),
        ("_clip", "saturate"),
        ("scale_rows", "k"),
        ("values", "v"),
        ("x_ptr", "p"),
        ("BLOCK", "N"),
    )
    moved = moved.replace(": T.constexpr", "").replace("128", "256")
    moved = moved.replace("    row = ", '    """Rows."""\n    row = ')
    before, after = by_name(KERNELS), by_name(moved)
    for kind in ("kernel", "kernel_and_helpers"):
        assert before[kind, "scale_rows"].ast == after[kind, "k"].ast


def test_another_helper_makes_another_whole() -> None:
    other = KERNELS.replace("tl.minimum(tl.maximum(x, -LIMIT), LIMIT)", "tl.minimum(x, LIMIT)")
    before, after = by_name(KERNELS), by_name(other)
    assert before["kernel", "scale_rows"].ast == after["kernel", "scale_rows"].ast
    key = ("kernel_and_helpers", "scale_rows")
    assert before[key].ast != after[key].ast


def test_names_outside_a_part_do_not_decide() -> None:
    plain = by_name(KERNELS)["kernel", "scale_rows"].ast
    shadowed = KERNELS + "\nvalues = torch.ones(3)\nfactor = values.sum()\n"
    assert by_name(shadowed)["kernel", "scale_rows"].ast == plain


def test_an_argument_may_be_called_like_an_import() -> None:
    plain = by_name(KERNELS)["kernel", "scale_rows"].ast
    shadowed = "from elsewhere import row, n_cols\n" + KERNELS
    assert by_name(shadowed)["kernel", "scale_rows"].ast == plain


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("super(Model, self).__init__()", "super().__init__()", True),
        (" -> torch.Tensor", "", True),
        ("x: torch.Tensor", "x", True),
        ("self.norm", "self.group_norm", True),
        ("import torch.nn as nn", "from torch import nn", True),
        ("nn.GroupNorm(", "torch.nn.GroupNorm(", True),
        ("torch.sigmoid", "torch.tanh", False),
        ("bias=False", "bias=True", False),
        ("* hidden + x", "* hidden - x", False),
    ],
)
def test_what_makes_a_class_another(old: str, new: str, same: bool) -> None:
    assert old in MODULE
    key = ("class", "Model")
    assert (by_name(MODULE.replace(old, new))[key].ast == by_name(MODULE)[key].ast) is same


def test_the_form_is_the_declared_one() -> None:
    """When this fails, code has other hashes than before: raise FORM, make shipped files again."""
    assert by_name(KERNELS)["kernel_and_helpers", "scale_rows"].ast == "4b7ff533b990bb4502f6"
    assert by_name(MODULE)["class", "Model"].ast == "f7797993185a223b3435"


# --- making files -----------------------------------------------------------------------------


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
    kinds = [part.kind for part in made.benchmark.items["kernels.py"]]
    assert kinds == ["kernel", "kernel_and_helpers", "program"]
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
    alone = {part.ast for part in find_parts(MODULE)}
    assert {part.ast for part in made.benchmark.items["b.json#gate"]} == alone


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": {"a": [{"kind": "class", "name": "M", "ast": "short"}]}}, r"items\.a\.0\.ast"),
        ({"form": 999}, "make it again"),
        ({"hashes": []}, "hashes"),
        ({"name": "No Name"}, "name"),
    ],
)
def test_bad_files(change: dict[str, object], message: str, tmp_path: Path) -> None:
    good = json.loads(Benchmark(name="mine", items={}).to_json())
    file = tmp_path / "bad.json"
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
    assert all(benchmark.items.values())
    assert benchmark.min_nodes == MIN_NODES
    assert file.read_text() == benchmark.to_json()
    assert file.stat().st_size < 100_000


def test_every_shipped_file_is_tested() -> None:
    assert shipped_names() == ["kernelbench", "tritonbench-g", "tritonbench-t"]
