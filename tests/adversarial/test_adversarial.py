"""No cheat is called correct, and no honest program is called anything else."""

from __future__ import annotations

import pytest
import torch
from cases import NUMBERS, Case, load_cases, load_not_applicable
from judging import judge_cases, judge_cheats, judge_twins

from curate.verify import Verdict

pytestmark = pytest.mark.timeout(1800)  # the first test of a backend waits for all verdicts

CASES = load_cases()
ON_CPU = [case for case in CASES if not case.gpu]
FIRST = [c for i, c in enumerate(ON_CPU) if [o.number for o in ON_CPU[:i]].count(c.number) < 3]
"""Three of each number of the catalogue: the others come once a week."""
OTHERS = [case for case in ON_CPU if case not in FIRST]

Verdicts = dict[str, tuple[Verdict, Verdict]]


def test_every_number_of_the_catalogue_is_there() -> None:
    shown, excused = {case.number for case in CASES}, set(load_not_applicable())
    assert not shown & excused
    assert shown | excused == set(NUMBERS)


def by_id(case: Case) -> str:
    return case.id.replace(" ", "-")


FAILS = ("incorrect", "runtime_error")
"""What becomes of a cheat in a process where what it reaches for is not there."""


def check_cheat(case: Case, verdict: Verdict) -> None:
    assert verdict.status != "correct", verdict.to_json()
    if verdict.backend == "cpu" and verdict.status in FAILS:
        return
    assert verdict.status in case.statuses, verdict.to_json()
    if case.rule is not None:
        assert verdict.reason == case.rule, verdict.to_json()


def check_honest(verdict: Verdict) -> None:
    assert verdict.status == "correct", verdict.to_json()


@pytest.fixture(scope="module")
def cheats() -> dict[str, Verdict]:
    return judge_cheats(FIRST, backend="cpu", workers=1)


@pytest.fixture(scope="module")
def other_cheats() -> dict[str, Verdict]:
    return judge_cheats(OTHERS, backend="cpu", workers=1)


@pytest.fixture(scope="module")
def twins() -> dict[str, Verdict]:
    return judge_twins(ON_CPU, backend="cpu", workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST, ids=by_id)
def test_cheat_is_caught(cheats: dict[str, Verdict], case: Case) -> None:
    check_cheat(case, cheats[case.id])


@pytest.mark.weekly
@pytest.mark.parametrize("case", OTHERS, ids=by_id)
def test_other_cheat_is_caught(other_cheats: dict[str, Verdict], case: Case) -> None:
    check_cheat(case, other_cheats[case.id])


@pytest.mark.weekly
@pytest.mark.parametrize("case", ON_CPU, ids=by_id)
def test_honest_twin_is_correct(twins: dict[str, Verdict], case: Case) -> None:
    check_honest(twins[case.id])


@pytest.fixture(scope="module")
def on_gpu() -> Verdicts:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return judge_cases(CASES, backend="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=by_id)
def test_cheat_is_caught_on_a_gpu(on_gpu: Verdicts, case: Case) -> None:
    check_cheat(case, on_gpu[case.id][0])


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=by_id)
def test_honest_twin_is_correct_on_a_gpu(on_gpu: Verdicts, case: Case) -> None:
    check_honest(on_gpu[case.id][1])
