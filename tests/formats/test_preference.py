"""Preference pairs: what is chosen over what, and when there is no pair."""

from typing import Any

import pytest

from curate.formats.preference import MARGIN, Preference
from curate.rows import STATIC, VERDICT, Loose, make_origin, make_row
from curate.step import Drop, Keep

REFERENCE = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"


def of(schema: Any, **known: Any) -> Loose:
    return dict.fromkeys(field.name for field in schema) | known


def pair(name: str, us: float | None, task: str = "task", **verdict: Any) -> Any:
    timing = us and {"candidate_us": us, "eager_us": 9.0, "compile_us": None, "spread": 0.0}
    said = {"status": "correct", "caveats": [], "device": "GPU", "timing": timing} | verdict
    return make_row(
        "pair",
        name,
        make_origin("local"),
        parent_ids=[task],
        reference=REFERENCE,
        triton=f"# {name}",
        license={"choice": "MIT", "expression": "MIT"},
        static=of(STATIC, pure_triton=True, specialised=[], extern_calls=[]),
        verdict=of(VERDICT, **said),
    )


def shown(*rows: Any) -> list[Any]:
    view = Preference(format="preference").begin()
    for row in rows:
        view.look_at(row)
    found = [view.render(row) for row in rows]
    return [row for outcome in found if isinstance(outcome, Keep) for row in outcome.rows]


def test_the_faster_one_is_chosen() -> None:
    slow, fast = pair("slow", 20.0), pair("fast", 10.0)
    (row,) = shown(slow, fast)
    assert "# fast" in row["chosen"] and "# slow" in row["rejected"]
    assert (row["chosen_us"], row["rejected_us"]) == (10.0, 20.0)
    assert (row["id"], row["rejected_id"]) == (fast["id"], slow["id"])
    assert REFERENCE.strip() in row["prompt"]


@pytest.mark.parametrize(
    "other",
    [
        pair("as fast", 10.0 * MARGIN - 0.01),
        pair("of another task", 20.0, task="other"),
        pair("on another device", 20.0, device="other"),
        pair("wrong", 20.0, status="incorrect"),
        pair("not timed", None),
    ],
)
def test_there_is_no_pair_without_a_rival(other: Any) -> None:
    assert not shown(pair("fast", 10.0), other)


def test_what_is_left_out_has_a_reason() -> None:
    view = Preference(format="preference").begin()
    lonely, untimed = pair("lonely", 10.0), pair("untimed", None)
    view.look_at(lonely)
    assert view.render(lonely) == Drop("no_slower_program")
    assert view.render(untimed) == Drop("not_timed")


def test_a_data_set_begins_without_the_rows_of_another() -> None:
    view = Preference(format="preference").begin()
    view.look_at(pair("slow", 20.0))
    fast = pair("fast", 10.0)
    again = view.begin()
    again.look_at(fast)
    assert isinstance(again.render(fast), Drop)
