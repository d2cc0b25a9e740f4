"""How a teacher's answers are shown: `messages`, `repair` and `negatives`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from steps_for_tests import LICENSE

from curate.formats.chat import CHAT_FAMILIES, ChatFamilyName
from curate.formats.format import Format
from curate.formats.messages import Messages
from curate.formats.negatives import Negatives
from curate.formats.repair import Repair
from curate.rows import SAMPLE, Row, make_origin, make_row
from curate.step import Drop, Keep, Outcome

TALK = ["Write it.", "Here:\n```python\nwrong\n```", "It is not right.", "```python\nright\n```"]


def answer(selection: str | None, status: str | None, attempt: int = 1, **columns: Any) -> Row:
    sample = dict.fromkeys(field.name for field in SAMPLE)
    sample |= {"family": "convert", "attempt": attempt, "selection": selection}
    roles = ("user", "assistant") * attempt
    turns = [{"role": r, "content": text} for r, text in zip(roles, TALK, strict=False)]
    known = {
        **{"reference": "class Model: ...\n", "triton": "right\n", "license": LICENSE},
        "verdict": status
        and {"status": status, "reason": None, "caveats": [], "evidence": '{"got": 1}'},
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


THOUGHTFUL = "<think>\nA block adds one.\n</think>\n\n```python\nright\n```"


@pytest.mark.parametrize("family", CHAT_FAMILIES)
def test_a_family_reads_instructions_and_thoughts_where_it_looks_for_them(
    family: ChatFamilyName,
) -> None:
    view = Messages(format="messages", system="Be brief.", family=family)
    asked = [{"role": "user", "content": "Write it."}]
    row = answer("best", "correct", turns=[*asked, {"role": "assistant", "content": THOUGHTFUL}])
    (made,) = kept(view.render(row))
    form = CHAT_FAMILIES[family]
    said = {"role": "assistant", "content": "```python\nright\n```"}
    thoughts = {form.thinking: "A block adds one."} if form.thinking else {}
    assert made["messages"] == [
        {"role": form.system, "content": "Be brief."},
        *asked,
        {**said, **thoughts},
    ]
    assert {key for turn in made["messages"] for key in turn} == {
        field.name for field in view.columns().field("messages").type.value_type
    }


def test_what_a_family_cannot_be_shown_is_left_out() -> None:
    view = Messages(format="messages", family="gpt-oss")
    for text, reason in (("<think>Hm.", "thoughts_only"), ("<|return|>", "chat_marker")):
        row = answer(None, None, triton=None, turns=[{"role": "assistant", "content": text}])
        assert shown(view, row) == reason


def test_without_a_family_options_and_answers_are_as_before_there_were_families() -> None:
    assert "family" not in Messages(format="messages").model_dump(mode="json")
    assert Messages(format="messages", family="qwen3").model_dump()["family"] == "qwen3"
    row = answer(None, None, triton=None, turns=[{"role": "assistant", "content": THOUGHTFUL}])
    assert kept(MESSAGES.render(row))[0]["messages"][-1]["content"] == THOUGHTFUL


def kept(outcome: Outcome) -> tuple[Row, ...]:
    assert isinstance(outcome, Keep)
    return outcome.rows


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
