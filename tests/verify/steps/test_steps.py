"""What the step `verify` makes of verdicts; the verdicts themselves are the judge's."""

from __future__ import annotations

from typing import Any

import pytest

from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, Keep
from curate.verify.steps.verify import Verify
from curate.verify.verdict import STATUSES, VERSION, WRONG, Candidate, Verdict


class Said:
    """A judge that says one thing, and how often it was asked."""

    def __init__(self, status: str, reason: str | None = None) -> None:
        self.status, self.reason, self.asked = status, reason, 0

    def judge(self, candidate: Candidate) -> Verdict:
        self.asked += 1
        known = {"backend": "cpu", "trials": 5, "evidence": {"got": 1}}
        return Verdict(candidate.id, self.status, self.reason, **known)


def verify(judge: Said, **options: Any) -> Verify:
    step = Verify.model_validate({"step": "verify", **options})
    step._slot = judge  # type: ignore[assignment]
    return step


def row(kind: str = "pair", **columns: Any) -> Row:
    known = {"reference": "class Model: ...\n", "triton": "class ModelNew: ...\n", **columns}
    return make_row(kind, "x", make_origin("local"), **known)


@pytest.mark.parametrize("status", STATUSES)
def test_wrong_programs_are_kept_only_where_asked(status: str) -> None:
    plain = verify(Said(status)).apply(row(), Context())
    asked = verify(Said(status), keep_wrong=True).apply(row(), Context())
    assert isinstance(plain, Keep) == (status in ("correct", "unsupported"))
    assert isinstance(asked, Keep) == (status in {"correct", "unsupported", *WRONG})
    if isinstance(plain, Drop):
        assert plain == Drop(status, {"reason": None, "got": 1})
    if isinstance(asked, Keep):
        verdict = asked.rows[0]["verdict"]
        assert verdict["evidence"] == (None if status == "correct" else '{"got": 1}')


def test_a_row_whose_reference_fails_is_dropped_all_the_same() -> None:
    outcome = verify(Said("unsupported", "reference_error"), keep_wrong=True).apply(
        row(), Context()
    )
    assert isinstance(outcome, Drop)


def test_an_answer_without_a_program_passes() -> None:
    judge, text = Said("correct"), row("sample", triton=None)
    assert verify(judge).apply(text, Context()) == Keep((text,))
    assert judge.asked == 0


@pytest.mark.parametrize(
    ("known", "again"),
    [
        ({}, False),
        ({"trials": 8}, False),
        ({"trials": 4}, True),
        ({"trials": 0, "status": "incorrect"}, False),
        ({"backend": "cuda"}, True),
        ({"judge": VERSION - 1}, True),
    ],
)
def test_an_answer_is_judged_again_where_its_verdict_says_less(
    known: dict[str, Any], again: bool
) -> None:
    candidate = Candidate("x", "class Model: ...\n", "class ModelNew: ...\n")
    judged = {**Said("correct").judge(candidate).to_row(), **known}
    judge = Said("correct")
    verify(judge, trials=5, keep_wrong=True).apply(row("sample", verdict=judged), Context())
    assert judge.asked == again


def test_times_are_taken_on_a_device_and_alone() -> None:
    with pytest.raises(ValueError, match="timing needs a device"):
        verify(Said("correct"), timing=True)
    step = verify(Said("correct"), timing=True, backend="cuda")
    assert (step.workers, step.gpus) == (1, 1)
    assert verify(Said("correct"), backend="cuda").workers is None


def test_an_answer_without_times_is_judged_again_for_them() -> None:
    judge = Said("correct")
    known = Verdict("x", "correct", backend="cuda", trials=8).to_row()
    answer = row("sample", verdict=known)
    verify(judge, backend="cuda").apply(answer, Context())
    assert judge.asked == 0
    verify(judge, backend="cuda", timing=True).apply(answer, Context())
    assert judge.asked == 1


def test_a_pair_is_always_judged() -> None:
    judge = Said("correct")
    first = verify(judge).apply(row(), Context())
    assert isinstance(first, Keep)
    verify(judge).apply(first.rows[0], Context())
    assert judge.asked == 2
