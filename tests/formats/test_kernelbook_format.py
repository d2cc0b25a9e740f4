"""Pairs under KernelBook's columns: its users' code must run on them unchanged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import torch

from curate.formats.kernelbook import KernelBook, with_keyword_arguments
from curate.rows import Row, make_origin, make_row
from curate.step import Drop, Keep

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.layer = torch.nn.Linear(width, 3)
        self.scale = scale

    def forward(self, x):
        return self.layer(x) * self.scale


def get_inputs():
    return [torch.rand(2, 4)]


def get_init_inputs():
    return [
        4,  # ü
        0.5,
    ]
"""
TRITON = "class ModelNew(torch.nn.Module):\n    pass\n"
LICENSE = {"expression": "MIT OR GPL-2.0-only", "choice": "BSD-3-Clause AND MIT"}
COLUMNS = [
    *("entry_point", "original_triton_code", "python_code", "triton_code", "repo_name"),
    *("module_name", "synthetic", "uuid", "licenses", "stars", "sha", "repo_link"),
]


def pair(origin: Row, **columns: Any) -> Row:
    known = {"reference": REFERENCE, "triton": TRITON, "entry_point": "Model", "license": LICENSE}
    return make_row("pair", REFERENCE + TRITON, origin, **{**known, **columns})


def rendered(row: Row) -> Row:
    view = KernelBook(format="kernelbook")
    outcome = view.render(row)
    assert isinstance(outcome, Keep)
    (shown,) = outcome.rows
    pa.Table.from_pylist([shown], schema=view.columns())
    return shown


def test_the_columns_are_kernelbooks_own() -> None:
    assert KernelBook(format="kernelbook").columns().names == COLUMNS


def test_a_module_of_a_repository() -> None:
    repo, commit = "https://github.com/one/other.git", "1" * 40
    origin = make_origin("git", repo=repo, commit=commit, path="a.py", symbol="layers.Block")
    shown = rendered(pair(origin))
    assert (shown["repo_name"], shown["module_name"]) == ("one/other", "Block")
    assert (shown["sha"], shown["repo_link"]) == (commit, repo)
    assert shown["licenses"] == ["BSD-3-Clause", "MIT"]
    assert not shown["synthetic"]
    assert f"class {shown['entry_point']}New(" in shown["triton_code"]
    assert 0 < shown["uuid"] < 2**63


def test_a_module_of_a_package_and_one_of_nobody() -> None:
    package = rendered(pair(make_origin("pypi", purl="pkg:pypi/timm@1.0.31", path="a.py")))
    assert (package["repo_name"], package["sha"]) == ("timm", None)
    drawn = rendered(pair(make_origin("torch_ops", purl="pkg:pypi/torch@2.13.0")))
    assert drawn["synthetic"]


def test_rows_have_numbers_of_their_own() -> None:
    origins = [make_origin("local", path=f"{i}.py") for i in range(50)]
    assert len({rendered(pair(origin))["uuid"] for origin in origins}) == 50


def test_the_module_is_built_as_kernelbooks_users_build_it() -> None:
    shown = rendered(pair(make_origin("local", path="a.py")))
    names: dict[str, Any] = {}
    exec(shown["python_code"], names)
    arguments, keywords = names["get_init_inputs"]()
    model = names[shown["entry_point"]](*arguments, **keywords)
    assert model(*names["get_inputs"]()).shape == torch.Size([2, 3])
    assert (arguments, keywords) == ([4, 0.5], {})


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("return []", [[], {}]),
        ("return [1, 2]  # no more", [[1, 2], {}]),
        ("if 1:\n        return list((1,))\n    return []", [[1], {}]),
    ],
)
def test_constructor_arguments_in_any_form(body: str, given: list[Any]) -> None:
    code = with_keyword_arguments(f"x = 'ä'\n\ndef get_init_inputs():\n    {body}\n")
    assert code is not None
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["get_init_inputs"]() == given


def test_constructor_arguments_that_are_not_there() -> None:
    assert with_keyword_arguments("get_init_inputs = list\n") is None
    row = pair(make_origin("local"), reference="get_init_inputs = list\n")
    assert isinstance(KernelBook(format="kernelbook").render(row), Drop)
