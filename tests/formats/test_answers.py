"""How a teacher's answers are shown: `messages`, `repair` and `negatives`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from steps_for_tests import LICENSE

from curate.formats.format import Format
from curate.formats.messages import Messages
from curate.formats.negatives import Negatives
from curate.formats.repair import Repair
from curate.rows import SAMPLE, Row, make_origin, make_row
from curate.step import Drop

TALK = ["Write it.", "Here:\n```python\nwrong\n```", "It is not right.", "```python\nright\n```"]


def answer(selection: str | None, status: str | None, attempt: int = 1, **columns: Any) -> Row:
    sample = dict.fromkeys(field.name for field in SAMPLE)
    sample |= {"family": "convert", "attempt": attempt, "selection": selection}
    roles = ("user", "assistant") * attempt
    turns = [{"role": r, "content": text} for r, text in zip(roles, TALK, strict=False)]
    known = {
        **{"reference": "class Model: ...\n", "triton": "right\n", "license": LICENSE},
        "verdict": status and {"status": status, "reason": None, "evidence": '{"got": 1}'},
        **{"sample": sample, "turns": turns},
    }
    return make_row("sample", "x", make_origin("local"), **{**known, **columns})


def shown(view: Format, row: Row) -> Row | str:
    """Return the one row of a view, as it is after Parquet, or why there is none."""
    outcome = view.render(row)
    if isinstance(outcome, Drop):
        return outcome.reason
    (made,) = pa.Table.from_pylist(list(outcome.rows), schema=view.columns()).to_pylist()
    assert made == outcome.rows[0]
    return made


MESSAGES = Messages(format="messages", system="Be brief.")
REPAIR, NEGATIVES = Repair(format="repair"), Negatives(format="negatives")


def test_the_best_answer_is_shown_in_its_own_words() -> None:
    row = answer("best", "correct")
    made = shown(MESSAGES, row)
    assert isinstance(made, dict)
    assert made["messages"] == [{"role": "system", "content": "Be brief."}, *row["turns"]]
    assert made["verdict"] == "correct"


@pytest.mark.parametrize("selection", ["alternative", "repaired", "fixed", "failed", None])
def test_no_other_program_is_a_message(selection: str | None) -> None:
    assert shown(MESSAGES, answer(selection, "correct")) == "not_best"


def test_text_is_a_message_though_nothing_judged_it_and_an_unjudged_program_is_none() -> None:
    text = shown(MESSAGES, answer("unjudged", None, triton=None))
    assert isinstance(text, dict) and text["verdict"] is None
    assert shown(MESSAGES, answer("unjudged", "unsupported")) == "not_best"


@pytest.mark.parametrize("selection", ["best", "repaired"])
def test_a_repair_shows_what_failed_why_and_what_was_right(selection: str) -> None:
    made = shown(REPAIR, answer(selection, "correct", attempt=2))
    assert isinstance(made, dict)
    assert [m["content"] for m in made["messages"]] == TALK
    assert (made["failed"], made["error"], made["fixed"]) == (
        *("wrong\n", "It is not right."),
        "right\n",
    )
    assert made["attempt"] == 2


def test_only_a_repair_that_is_right_is_one() -> None:
    assert shown(REPAIR, answer("best", "correct")) == "first_answer"
    assert shown(REPAIR, answer("failed", "incorrect", attempt=2)) == "not_repaired"
    assert shown(REPAIR, answer("unjudged", "unsupported", attempt=2)) == "not_repaired"


def test_a_negative_is_what_nobody_put_right() -> None:
    made = shown(NEGATIVES, answer("failed", "incorrect"))
    assert isinstance(made, dict)
    assert (made["triton"], made["verdict"], made["evidence"]) == (
        *("right\n", "incorrect"),
        '{"got": 1}',
    )
    for selection in ("best", "fixed", "unjudged"):
        assert shown(NEGATIVES, answer(selection, "correct")) == "not_failed"
