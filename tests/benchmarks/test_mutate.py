from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from faults import split, written_programs
from mutate import CLASSES, Mutant, Program, mutants

SOURCE = '''
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, bias_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    """Überschuss: a text that is not ASCII, so that bytes and characters differ."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0)
    shifted = tl.where(x > 0.5, x - bias, 0.25 * x)
    total = tl.sum(shifted, axis=0)
    tl.store(out_ptr + row, total)


class ModelNew(nn.Module):
    def forward(self, x, bias):
        out = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
        sum_kernel[(triton.cdiv(x.shape[0], 1),)](x, bias, out, x.shape[1], BLOCK=64)
        return out
'''


def changes(kind: str) -> set[tuple[str, str]]:
    return {(m.before, m.after) for m in mutants(SOURCE, seed=0) if m.kind == kind}


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("arithmetic operator", "x - bias", "(bias - x)"),
        ("comparison", "x > 0.5", "(x >= 0.5)"),
        ("constant", "0.25", "(-0.25)"),
        ("mask", "cols < n_cols", "(cols <= n_cols)"),
        ("boundary", "triton.cdiv(x.shape[0], 1)", "(x.shape[0] // 1)"),
        ("axis", "0", "1"),
        ("stride", "row * n_cols", "row"),
        ("accumulator dtype", "tl.sum(shifted, axis=0)", "tl.sum(shifted.to(tl.float16), axis=0)"),
        ("dropped stage", "x - bias", "x"),
        ("reduction identity", "0.0", "float('-inf')"),
        ("swapped arguments", "x_ptr", "bias_ptr"),
        ("broadcast", "cols", "(0 * cols)"),
    ],
)
def test_each_class_makes_its_fault(kind: str, before: str, after: str) -> None:
    assert (before, after) in changes(kind)


def test_precision_rounds_the_variable_after_it_was_set() -> None:
    before = "total = tl.sum(shifted, axis=0)"
    after = f"{before}; total = total.to(tl.bfloat16).to(total.dtype)"
    assert (before, after) in changes("precision")


def test_a_mutant_differs_in_the_place_that_it_names_and_nowhere_else() -> None:
    for mutant in mutants(SOURCE, seed=0):
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(SOURCE))
        line_start = sum(len(line) for line in SOURCE.splitlines(keepends=True)[: mutant.line - 1])
        places = (i for i in range(line_start, len(SOURCE)) if SOURCE[i:].startswith(mutant.before))
        changed = {SOURCE[:i] + mutant.after + SOURCE[i + len(mutant.before) :] for i in places}
        assert mutant.text in changed


def test_addresses_masks_and_values_are_told_apart() -> None:
    program = Program(SOURCE)
    found = {
        context: {ast.unparse(node) for node in program.nodes(context, ast.expr)}
        for context in ("address", "mask", "value")
    }
    assert "row * n_cols" in found["address"]
    assert "cols < n_cols" in found["mask"]
    assert {"x - bias", "x > 0.5"} <= found["value"]
    assert not found["value"] & {"row * n_cols", "cols < n_cols"}


def test_the_seed_decides_and_no_two_mutants_are_alike() -> None:
    texts = [mutant.text for mutant in mutants(SOURCE, seed=1, limit=20)]
    assert texts == [mutant.text for mutant in mutants(SOURCE, seed=1, limit=20)]
    assert texts != [mutant.text for mutant in mutants(SOURCE, seed=2, limit=20)]
    assert len(set(texts)) == len(texts) == 20


def test_every_program_of_the_benchmark_gives_mutants_of_most_classes() -> None:
    kinds: dict[str, list[Mutant]] = {}
    for name, text in written_programs().items():
        _, candidate = split(text)
        found = mutants(candidate, seed=0, limit=26)
        assert len({mutant.kind for mutant in found}) >= 8, name
        for mutant in found:
            kinds.setdefault(mutant.kind, []).append(mutant)
    assert set(kinds) == set(CLASSES)
    assert all(len(found) >= 10 for found in kinds.values())
