from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import contamination
from contamination import EDITS, NoPlace, edited, measure_recall, measure_rows, named_folder

from curate.clean.decontaminate import Decontaminate
from curate.clean.fingerprint import make_fingerprints
from curate.clean.nearest import Evaluation

KERNEL = '''\
import triton
import triton.language as tl


@triton.jit
def soften(x_ptr, out_ptr, n_cols, width, BLOCK: tl.constexpr):
    """Softmax of a row whose values lie within a width."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=-float("inf"))
    near = tl.minimum(tl.maximum(x, -width), width)
    near = near - tl.max(near, axis=0)
    e = tl.where(inside, tl.exp(near), 0.0)
    tl.store(out_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=inside)
'''
OTHER = """\
import triton
import triton.language as tl


@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(sums, axis=0))
"""


@pytest.fixture
def evaluation(tmp_path: Path) -> Iterator[Evaluation]:
    (tmp_path / "soften.py").write_text(KERNEL + contamination.TESTS + "\nprint('a test')\n")
    yield Evaluation([make_fingerprints([tmp_path], "ours").benchmark])


def test_each_edit_changes_what_it_names() -> None:
    copies = {name: edited(KERNEL, edits, name) for name, edits in EDITS.items()}
    assert copies["copy"] == KERNEL
    assert len({*copies.values()}) == len(EDITS)
    assert "soften" not in copies["renamed"] and "Other words." in copies["renamed"]
    assert "tl.program_id(0)" in copies["renamed"]  # what is triton's stays
    plain = edited(KERNEL, (lambda tree, rng: None,), "")
    lines = plain.count("\n")
    assert copies["inserted"].count("\n") == lines + 1
    assert copies["removed"].count("\n") == lines - 1
    assert sorted(copies["swapped"].splitlines()) == sorted(plain.splitlines())
    assert edited(KERNEL, EDITS["removed"], "a seed") == edited(KERNEL, EDITS["removed"], "a seed")


def test_where_nothing_can_be_edited_there_is_no_copy() -> None:
    with pytest.raises(NoPlace):
        edited("import torch\n", EDITS["constants"], "")
    with pytest.raises(NoPlace):
        edited("import torch\n", EDITS["removed"], "")


def test_recall_counts_each_copy_once_by_the_tier_that_finds_it(
    evaluation: Evaluation, tmp_path: Path
) -> None:
    step = Decontaminate(step="decontaminate")
    found = measure_recall({"ours": tmp_path}, evaluation, step, every=1)
    assert [result["edit"] for result in found] == list(EDITS)
    for result in found:
        tiers = sum(result[tier] for tier in contamination.TIERS)
        assert result["copies"] == tiers + result["missed"] == 1
    by_edit = {result["edit"]: result for result in found}
    assert by_edit["copy"]["structure"] == by_edit["renamed"]["structure"] == 1
    assert by_edit["removed"]["structure"] == 0
    with pytest.raises(SystemExit, match="has no soften"):
        measure_recall({"ours": tmp_path / "nothing"}, evaluation, step, every=1)
    with pytest.raises(SystemExit, match="no such benchmark"):
        measure_recall({"theirs": tmp_path}, evaluation, step, every=1)


def test_rows_are_counted_by_what_they_reach(evaluation: Evaluation) -> None:
    rows = {"kernel": [{"id": "a", "codes": (KERNEL,)}, {"id": "b", "codes": (OTHER,)}]}
    (found,) = measure_rows(rows, evaluation, Decontaminate(step="decontaminate"))
    assert (found["kind"], found["rows"], found["structure"]) == ("kernel", 2, 1)
    assert found["overlap"]["0.8"] == found["resemblance"]["0.8"] == 1
    assert found["dropped_by"] == {"structure": 1, "overlap": 0, "resemblance": 0}
    (near,) = found["near"]
    assert (near["id"], near["overlap"], near["item"][:2]) == ("a", 1.0, ["ours", "soften.py"])
    assert "|kernel|2|1|" in contamination.markdown({"recall": [], "rows": [found]})


def test_a_folder_is_named(tmp_path: Path) -> None:
    assert named_folder(f"ours={tmp_path}") == ("ours", tmp_path)
    with pytest.raises(argparse.ArgumentTypeError, match="is no folder"):
        named_folder("ours=nowhere")
