from __future__ import annotations

import re

import pytest
from programs_for_tests import KERNELS, MODULE

from curate.clean.forms.parts import MIN_NODES, Part, PlainProgram


def by_name(code: str, min_nodes: int = MIN_NODES) -> dict[tuple[str, str], Part]:
    return {(part.kind, part.name): part for part in PlainProgram(code).parts(min_nodes)}


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
    """When this fails, hashes are others than before: raise FORM, make shipped files again."""
    assert by_name(KERNELS)["kernel_and_helpers", "scale_rows"].ast == "13afa5243956ffcc8436"
    assert by_name(MODULE)["class", "Model"].ast == "4868a20de631c81e501a"
