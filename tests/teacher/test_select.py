from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from curate.engine.table import decide
from curate.rows import ROW, SAMPLE, Row, make_origin
from curate.step import Context
from curate.teacher.select import Select

STEP = Select.model_validate({"step": "select"})


def answer(name: str, status: str | None, *before: str, **facts: Any) -> Row:
    """Return an answer whose conversation had these answers ``before``."""
    row: Row = dict.fromkeys(ROW.names)
    sample = dict.fromkeys(field.name for field in SAMPLE)
    sample |= {"family": facts.get("family", "convert"), "attempt": len(before) + 1}
    sample["completion_tokens"] = facts.get("tokens")
    source = ["T", facts["of"]] if "of" in facts else [facts.get("task", "T")]
    chain = [*source, f"prompt of {(*before, name)[0]}"]
    for earlier in before:
        chain += [earlier, f"repair of {earlier}"]
    time = facts.get("us")
    timing = None if time is None else {"candidate_us": time}
    return row | {
        **{"id": name, "kind": "sample", "origin": make_origin("local"), "parent_ids": chain},
        "sample": sample,
        "verdict": status and {"status": status, "timing": timing},
    }


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=ROW)


def selections(*rows: Row, shard: int = 3) -> dict[str, str | None]:
    columns = ["id", "kind", *STEP.columns]
    parts = [table(list(rows[i : i + shard])) for i in range(0, len(rows), shard)]
    summaries = [STEP.summarize(pl.DataFrame(part.select(columns)), Context()) for part in parts]
    verdicts = STEP.judge(pl.concat(summaries, rechunk=False), Context())
    assert verdicts["id"].to_list() == [row["id"] for row in rows]
    assert verdicts["reason"].null_count() == len(rows)
    return dict(verdicts.select("id", "selection").iter_rows())


def test_the_fastest_is_best_then_the_shortest_then_the_earliest() -> None:
    slow, fast = answer("a", "correct", us=9.0, tokens=1), answer("b", "correct", us=3.0, tokens=9)
    untimed = answer("c", "correct", tokens=0)
    assert selections(slow, fast, untimed) == {"a": "alternative", "b": "best", "c": "alternative"}
    long, short = answer("a", "correct", tokens=9), answer("b", "correct", tokens=5)
    assert selections(long, short) == {"a": "alternative", "b": "best"}
    twins = [answer(name, "correct", tokens=5) for name in "cab"]
    assert selections(*twins) == {"c": "alternative", "a": "best", "b": "alternative"}
    late = [answer("b", "incorrect"), answer("a", "correct", "b"), answer("c", "correct")]
    assert selections(*late) == {"b": "fixed", "a": "repaired", "c": "best"}
    unknown = [answer("a", "correct"), answer("b", "correct", tokens=5)]
    assert selections(*unknown) == {"a": "alternative", "b": "best"}


def test_each_task_and_family_has_a_best() -> None:
    rows = [
        answer(f"{task}{family}", "correct", task=task, family=family)
        for task in "TU"
        for family in ("convert", "implement")
    ]
    assert set(selections(*rows).values()) == {"best"}


def test_wrong_answers_are_fixed_by_what_comes_after_them_only() -> None:
    found = selections(
        answer("a", "incorrect"),
        answer("a2", "timeout", "a"),
        answer("a3", "correct", "a", "a2", tokens=9),
        answer("b", "crash"),
        answer("b2", "correct", "b", tokens=4),
        answer("c", "cheat"),
        answer("c2", "oom", "c"),
        answer("d", "incorrect"),
    )
    assert found == {
        **{"a": "fixed", "a2": "fixed", "a3": "repaired"},
        **{"b": "fixed", "b2": "best", "c": "failed", "c2": "failed", "d": "failed"},
    }


def test_what_should_be_faster_is_best_only_if_it_is() -> None:
    pair = {**answer("p", "correct", us=5.0), "kind": "pair", "parent_ids": ["T"], "sample": None}
    slow, fast, again = (
        answer(name, "correct", *before, of="p", family="optimise", us=us)
        for name, before, us in (("a", (), 6.0), ("b", (), 4.0), ("c", ("w",), 3.0))
    )
    wrong = answer("w", "incorrect", of="p", family="optimise")
    found = selections(slow, wrong, pair, fast, shard=2)
    assert found == {"a": "alternative", "w": "failed", "p": None, "b": "best"}
    assert selections(pair, fast, wrong, again)["c"] == "best"
    untimed = answer("u", "correct", of="p", family="optimise")
    assert selections(pair, untimed) == {"p": None, "u": "unjudged"}
    assert selections(fast) == {"b": "unjudged"}


def test_the_same_whatever_the_shards_are() -> None:
    rows = [answer("a", "incorrect"), answer("b", "correct"), answer("a2", "correct", "a")]
    assert selections(*rows, shard=1) == selections(*rows, shard=3)


def test_what_nothing_could_judge_is_neither_right_nor_wrong() -> None:
    found = selections(answer("a", None), answer("b", "unsupported"), answer("c", "correct"))
    assert found == {"a": "unjudged", "b": "unjudged", "c": "best"}


def test_rows_of_other_kinds_keep_their_columns() -> None:
    pair: Row = {**dict.fromkeys(ROW.names), "id": "p", "kind": "pair"}
    rows = table([answer("a", "correct", tokens=7), pair, answer("b", "incorrect")])
    columns = pl.DataFrame(rows.select(["id", "kind", *STEP.columns]))
    summary = STEP.summarize(columns, Context())
    decided = decide(rows, STEP.judge(summary, Context()))
    a, other, b = decided.kept.to_pylist()
    assert other == pair
    assert a["sample"] == {**rows.to_pylist()[0]["sample"], "selection": "best"}
    assert (b["sample"]["selection"], decided.untouched, len(decided.lost)) == ("failed", 0, 0)


def test_no_answers_are_no_mistake() -> None:
    none = table([]).select(["id", "kind", *STEP.columns])
    assert len(STEP.judge(STEP.summarize(pl.DataFrame(none), Context()), Context())) == 0
