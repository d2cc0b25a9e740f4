"""Wordings of the question, and what a row's own program lets it ask for."""

import re
from typing import Any

import pytest

from curate.formats.conversion import Conversion
from curate.formats.messages import Messages
from curate.formats.question import INSTRUCTION, WORDINGS, worded
from curate.rows import STATIC, Loose, make_origin, make_row
from curate.step import Keep

LICENSE = {"choice": "MIT", "expression": "MIT"}
ANY = {"pure_triton": True, "any_float": True, "dynamic_dims": 2, "specialised": []}
NONE = {"pure_triton": False, "any_float": False, "dynamic_dims": 0, "specialised": []}
CONDITIONS = {
    "pure_triton": "No PyTorch operator",
    "any_float": "bfloat16",
    "dynamic_dims": "hard-coded",
}


def pair(number: int, **static: Any) -> Any:
    known = dict.fromkeys(field.name for field in STATIC) | static
    columns: Loose = {"reference": "class Model: ...\n", "triton": f"x = {number}\n"}
    columns |= {"license": LICENSE, "static": known}
    return make_row("pair", f"row {number}", make_origin("local"), **columns)


def test_rows_ask_in_a_dozen_ways_and_always_in_the_same() -> None:
    rows = [pair(number, **ANY) for number in range(400)]
    asked = {wording: sum(worded(row).startswith(wording) for row in rows) for wording in WORDINGS}
    assert len(asked) == 12 and min(asked.values()) > 10, asked
    assert [worded(row) for row in rows] == [worded(row) for row in rows]
    assert all("`ModelNew`" in wording for wording in WORDINGS)


@pytest.mark.parametrize("fact", CONDITIONS)
def test_a_condition_stands_where_the_program_meets_it(fact: str) -> None:
    told = [CONDITIONS[fact] in worded(pair(n, **ANY)) for n in range(400)]
    assert 60 < sum(told) < 140
    assert not any(CONDITIONS[fact] in worded(pair(n, **NONE)) for n in range(400))


def test_what_a_program_is_written_for_is_always_told() -> None:
    for number in range(50):
        text = worded(pair(number, **{**ANY, "specialised": ["kernel_size=3", "bias=False"]}))
        assert "It need only work for `kernel_size=3`, `bias=False`.\n" in text
        assert "hard-coded" not in text


def test_a_recipe_may_ask_in_its_own_words() -> None:
    row = pair(7, **ANY)
    for view, column in ((Messages, "messages"), (Conversion, "prompt")):
        name = view.__name__.lower()
        own = view(format=name, instruction=INSTRUCTION).render(row)
        drawn = view(format=name).render(row)
        assert isinstance(own, Keep) and isinstance(drawn, Keep)
        assert re.search("Rewrite this PyTorch module", str(own.rows[0][column]))
        assert worded(row).split("\n")[0] in str(drawn.rows[0][column])
