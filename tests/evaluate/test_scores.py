"""Estimators against exact enumeration, and intervals against their coverage."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from curate.evaluate.scores import ScoredAnswer, Scores, compare, difference, estimate, excluded
from curate.verify import Verdict

PROGRAM = "@triton.jit\ndef k(): ...\n"


def answer(problem: str, number: int, status: str, **fields: Any) -> ScoredAnswer:
    if status in ("no_program", "cut_off", "too_long"):
        return ScoredAnswer(problem, number, status)
    return ScoredAnswer(problem, number, status, PROGRAM, Verdict("x", status, **fields))


def answers(problem: str, *statuses: str) -> list[ScoredAnswer]:
    return [answer(problem, i, status) for i, status in enumerate(statuses)]


def test_pass_at_k_is_what_all_choices_of_k_give() -> None:
    drawn = random.Random(0)
    statuses = {p: [drawn.choice(("correct", "incorrect")) for _ in range(6)] for p in "abc"}
    scores = Scores([a for p, s in statuses.items() for a in answers(p, *s)], "abc", 6)
    for k in (1, 2, 5):
        exact = [
            np.mean(["correct" in some for some in itertools.combinations(s, k)])
            for s in statuses.values()
        ]
        assert scores.metrics()[f"pass@{k}"] == pytest.approx(exact)
    assert "pass@10" not in scores.metrics()


def compiled(status: str, **fields: Any) -> bool:
    return answer("p", 0, status, **fields).compiled


def test_compiled_is_what_gave_outputs_with_a_kernel() -> None:
    assert compiled("correct", trials=8)
    assert compiled("incorrect", reason="values")
    assert compiled("cheat", reason="torch_does_the_work", trials=2)
    assert compiled("crash", trials=3)
    assert not compiled("incorrect", reason="state_dict")
    assert not compiled("cheat", reason="no_kernel")
    assert not compiled("compile_error")
    assert not compiled("runtime_error", reason="SyntaxError")
    assert not compiled("timeout")
    assert not compiled("incorrect", findings=({"rule": "kernel_never_launched"},))
    assert not compiled("correct", trials=8, compile=[{"ok": True}, {"ok": False}])
    assert not compiled("no_program")


def timed(number: int, eager: float | None, compiled: float | None) -> ScoredAnswer:
    timing = {"speedup_eager": eager, "speedup_compile": compiled}
    return answer("p", number, "correct", trials=8, timing=timing)


def test_fast_p_counts_right_programs_above_p() -> None:
    given = [timed(0, 2.5, 0.8), timed(1, 1.0, None), timed(2, None, None)]
    scores = Scores([*given, answer("p", 3, "incorrect")], ["p"], 4, timed=True)
    found = {name: v for name, (v,) in scores.metrics().items() if name.startswith("fast")}
    assert found == {
        "fast_0 over eager": 0.75,
        "fast_1 over eager": 0.25,  # as fast is not faster
        "fast_2 over eager": 0.25,
        "fast_0 over compile": 0.75,
        "fast_1 over compile": 0,
        "fast_2 over compile": 0,
    }


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [0.0, 0.1, 0.5, 1.0]
    assert estimate(values, 3) == estimate(values, 3)
    found = estimate(values, 3)
    assert found.low is not None and found.high is not None
    assert 0 <= found.low < found.value == 0.4 < found.high <= 1


def test_intervals_hold_the_truth_nearly_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    held = 0
    for trial in range(300):
        found = estimate(generator.beta(2, 5, size=60).tolist(), trial)
        held += (found.low or 0) <= 2 / 7 <= (found.high or 1)
    # A share of 0.95 has a standard deviation of 0.013 here; the percentile bootstrap of 60 values
    # is a little narrow.
    assert 0.90 <= held / 300 <= 0.985


def test_where_all_are_alike_the_interval_is_that_of_a_share() -> None:
    nothing, everything = estimate([0.0] * 100), estimate([1.0] * 100)
    # Clopper-Pearson for 0 of 100, as in R: binom.test(0, 100)$conf.int
    assert (nothing.low, nothing.high) == (0, pytest.approx(0.036217, abs=1e-6))
    assert (everything.low, everything.high) == (pytest.approx(0.963783, abs=1e-6), 1)
    assert estimate([0.5, 0.5]).low is None


def test_a_difference_is_taken_problem_by_problem() -> None:
    generator = np.random.default_rng(1)
    before = generator.uniform(0, 0.9, 40)
    after = before + generator.uniform(0.04, 0.06, 40)
    found = difference(before.tolist(), after.tolist())
    assert found.low is not None and found.high is not None
    # Problems differ much more than the models do: unpaired, the interval would hold 0.
    assert 0.04 < found.low < found.value < found.high < 0.06
    assert difference([0.2, 0.4], [0.2, 0.4]).low is None


def test_two_models_are_compared_on_what_both_have() -> None:
    one = Scores([*answers("a", "correct", "incorrect")], ["a"], 2)
    two = Scores([timed(0, 2, 2), timed(1, 2, 2)], ["p"], 2, timed=True)
    assert set(compare(one, two)) == {"compile@1", "compile@2", "pass@1", "pass@2"}


def test_problems_that_say_nothing_are_left_out_for_all_models() -> None:
    found = excluded(
        {
            "base": [*answers("hollow", "incorrect"), *answers("no oracle", "no_program")],
            "tuned": [
                *answers("hollow", "degenerate", "incorrect"),
                *answers("no oracle", "unsupported", "cut_off"),
                *answers("too dear", "unsupported", "incorrect"),
                *answers("no answers", "no_program"),
            ],
        }
    )
    assert set(found) == {"hollow", "no oracle"}
    assert found["hollow"].startswith("degenerate")


def test_every_class_of_answers_is_counted_with_its_reasons() -> None:
    given = [*answers("p", "correct", "cut_off"), answer("p", 2, "incorrect", reason="values")]
    shown = Scores(given, ["p"], 3).to_json()
    assert shown["classes"] == {
        "correct": {"answers": 1, "reasons": {}},
        "cut_off": {"answers": 1, "reasons": {}},
        "incorrect": {"answers": 1, "reasons": {"values": 1}},
    }
    assert shown["metrics"]["pass@1"]["value"] == pytest.approx(1 / 3)
