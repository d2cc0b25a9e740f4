"""Rewards: what each kind of completion earns from the real judge, on the CPU."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curate.files import InputError
from curate.problem.problem import EXAMPLE
from curate.teacher.template import fence
from curate.train.rewards import (
    FASTEST,
    NO_PROGRAM,
    PARTIAL,
    Completion,
    RewardLog,
    Scored,
    VerifiedReward,
    format_reward,
    grade,
    similarity_reward,
    where_judged,
)
from curate.verify import (
    STATUSES,
    Candidate,
    CannotJudge,
    Options,
    Verdict,
    read_jsonl,
    read_verdicts,
)

OPTIONS = Options(backend="cpu", workers=2, trials=2, timeout_s=10, memory_mb=1024)

REFERENCE, RIGHT = EXAMPLE
LAUNCH = "        out = torch.empty_like(x)\n"


def changed(old: str, new: str) -> str:
    assert old in RIGHT
    return RIGHT.replace(old, new)


WRONG = changed("x + 1, mask", "x + 2, mask")
BROKEN = changed("tl.load(x_ptr", "tl.laod(x_ptr")
FALLBACK = changed("        return out", "        return x + 1")
DECOY = changed(
    "        return out", "        return torch.tensor([v + 1 for v in x.tolist()]).to(x)"
)
NO_KERNEL_RUNS = changed("return out", "return x + 2").replace(
    "        add_one_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)\n", ""
)
KILLS_ITSELF = changed(LAUNCH, LAUNCH + "        __import__('os').abort()\n")
HANGS = changed(LAUNCH, LAUNCH + "        while True:\n            pass\n")

PLANTED: dict[str, tuple[str, str, float]] = {
    "right": (fence(RIGHT), "correct", 1.0),
    "wrong values": (fence(WRONG), "incorrect", 0.2),
    "does not parse": (fence(RIGHT + "class (:\n"), "compile_error", 0.05),
    "no such function": (fence(BROKEN), "compile_error", 0.05),
    "PyTorch does it": (fence(FALLBACK), "cheat", 0.0),
    "kernel for show": (fence(DECOY), "cheat", 0.0),
    "wrong, and no kernel runs": (fence(NO_KERNEL_RUNS), "incorrect", 0.0),
    "kills its process": (fence(KILLS_ITSELF), "crash", 0.1),
    "hangs": (fence(HANGS), "timeout", 0.1),
    "words": ("I would use tl.load and tl.store.", NO_PROGRAM, 0.0),
    "a program without a kernel": (fence("class ModelNew:\n    pass"), NO_PROGRAM, 0.0),
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rewards")


@pytest.fixture(scope="module")
def verified(log: Path) -> Iterator[VerifiedReward]:
    with VerifiedReward(OPTIONS, log) as reward:
        yield reward


@pytest.fixture(scope="module")
def planted(verified: VerifiedReward) -> dict[str, Scored]:
    completions: list[Completion] = [
        [{"role": "assistant", "content": text}] for text, _, _ in PLANTED.values()
    ]
    rewards = verified(completions, reference=[REFERENCE] * len(completions))
    assert rewards == [scored.reward for scored in verified.scored]
    return dict(zip(PLANTED, verified.scored, strict=True))


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_completion_gets_its_reward(planted: dict[str, Scored], name: str) -> None:
    _, status, reward = PLANTED[name]
    assert (planted[name].status, planted[name].reward) == (status, reward), planted[name]


@pytest.mark.slow
@pytest.mark.weekly
def test_what_the_judge_knows_is_not_judged_again(
    verified: VerifiedReward, planted: dict[str, Scored], log: Path
) -> None:
    def judged() -> int:
        return (log / "verdicts.jsonl").read_text().count("\n")

    before = judged()
    other = RIGHT.replace("64", "128")
    told: dict[str, float] = {}
    rewards = verified(
        [f"Again:\n{fence(RIGHT)}", fence(other), fence(other), fence(WRONG), "nothing"],
        reference=[REFERENCE] * 5,
        log_metric=told.__setitem__,
    )
    assert rewards == [1.0, 1.0, 1.0, 0.2, 0.0]
    assert [one.cached for one in verified.scored] == [True, False, False, True, False]
    assert judged() == before + 1
    assert told.pop("judge/seconds") > 0
    assert told == {"judge/correct": 0.6, "judge/cheat": 0.0, "judge/unjudged": 0.0}


@pytest.mark.slow
@pytest.mark.weekly
def test_what_cannot_be_judged_gets_no_reward(verified: VerifiedReward) -> None:
    constant = REFERENCE.replace("return x + 1", "return x * 0")
    random = REFERENCE.replace("return x + 1", "return x + torch.rand_like(x)")
    answers = [fence(RIGHT), fence(changed("x + 1, mask", "x * 0, mask")), fence(RIGHT)]
    assert verified(answers, reference=[REFERENCE, constant, random]) == [1.0, None, None]
    assert [one.status for one in verified.scored] == ["correct", "degenerate", "unsupported"]
    # The others are silent there too, or TRL would rank the answer by its form alone.
    quiet = where_judged(format_reward, verified)
    assert quiet.__name__ == "format_reward"  # type: ignore[attr-defined]
    assert quiet(answers) == [1.0, None, None]


@pytest.mark.slow
@pytest.mark.weekly
def test_an_error_of_the_judge_is_not_remembered(
    verified: VerifiedReward, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate.verify.judge import slot as judging

    def fail(check: judging.CandidateCheck, source: str) -> None:
        raise ArithmeticError("as asked")

    answer = [fence(RIGHT.replace("64", "32"))]
    with monkeypatch.context() as context:
        context.setattr(judging.CandidateCheck, "load", fail)
        assert verified(answer, reference=[REFERENCE]) == [None]
        assert verified.scored[0].reason == "judge_error"
    assert verified(answer, reference=[REFERENCE]) == [1.0]


@pytest.mark.slow
@pytest.mark.weekly
def test_the_log_is_whole_and_outlives_its_process(tmp_path: Path) -> None:
    class State:
        global_step = 3

    answers = [fence(RIGHT), fence(WRONG), fence(RIGHT), "no program"]
    references = [REFERENCE] * 4
    alone = dataclasses.replace(OPTIONS, workers=1)
    with VerifiedReward(alone, tmp_path) as first:
        first(answers, reference=references, trainer_state=State())
    with (tmp_path / "rewards.jsonl").open("a") as file:
        file.write('{"run": 0, "st')
    with VerifiedReward(alone, tmp_path) as second:
        assert second(answers, reference=references) == [1.0, 0.2, 1.0, 0.0]
        assert [one.cached for one in second.scored] == [True, True, True, False]

    lines = [json.loads(line) for line in (tmp_path / "rewards.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3] * 4 + [None] * 4
    assert [line["reward"] for line in lines] == [1.0, 0.2, 1.0, 0.0] * 2
    assert [line["run"] for line in lines] == [0] * 4 + [1] * 4
    programs = {c.id: c for c in read_jsonl(tmp_path / "programs.jsonl")}
    verdicts = read_verdicts(tmp_path / "verdicts.jsonl")
    assert len(programs) == 2 and programs.keys() == verdicts.keys()
    assert {line["id"] for line in lines} == {*programs, None}
    for name, entry in verdicts.items():
        assert entry.judges(programs[name])
        assert {line["status"] for line in lines if line["id"] == name} == {entry.verdict.status}


def test_one_process_writes_a_log_and_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    candidates = [Candidate(name, REFERENCE, RIGHT) for name in "ab"]
    log = RewardLog(tmp_path, OPTIONS)
    with pytest.raises(InputError, match="another process"):
        RewardLog(tmp_path, OPTIONS)
    log.judged(candidates[0], Verdict("a", "correct"))
    log.close()
    for name, torn in {
        "programs.jsonl": '{"id": "b", "ref',
        "verdicts.jsonl": '{"sha2',
        "rewards.jsonl": '{"run": 0, ',
    }.items():
        with (tmp_path / name).open("a") as file:
            file.write(torn)
    log = RewardLog(tmp_path, OPTIONS)
    assert log.known(candidates[0]) and not log.known(candidates[1])
    log.judged(candidates[1], Verdict("b", "crash"))
    log.close()
    assert read_jsonl(tmp_path / "programs.jsonl") == candidates
    assert list(read_verdicts(tmp_path / "verdicts.jsonl")) == ["a", "b"]
    (tmp_path / "programs.jsonl").write_text("notes")
    with pytest.raises(InputError, match=r"programs\.jsonl"):
        RewardLog(tmp_path, OPTIONS)
    assert (tmp_path / "programs.jsonl").read_text() == "notes"


def test_a_device_that_is_not_here_is_said() -> None:
    with pytest.raises(CannotJudge, match="this machine has"):
        VerifiedReward(Options(backend="hip"))


# --- without the judge ------------------------------------------------------------------------


def verdict(status: str, *rules: str, **timing: float | None) -> Verdict:
    findings = tuple({"rule": rule, "line": 1, "reason": "."} for rule in rules)
    return Verdict("one", status, findings=findings, timing={"spread": 0.02, **timing})


def test_no_failure_gets_less_than_a_cheat_and_none_as_much_as_what_is_right() -> None:
    for status in STATUSES:
        reward = grade(verdict(status))
        if status in ("degenerate", "unsupported"):
            assert reward is None
        elif status == "correct":
            assert reward == 1.0
        else:
            assert reward is not None and (reward == 0.0) == (status == "cheat") and reward < 1.0
    assert PARTIAL["compile_error"] < PARTIAL["runtime_error"] < PARTIAL["incorrect"]


def test_a_failure_that_looks_like_a_cheat_gets_nothing() -> None:
    assert grade(verdict("incorrect", "call_counter")) == 0.0
    assert grade(verdict("incorrect", "torch_compute")) == 0.2  # honest programs do it too
    assert grade(verdict("incorrect", "a rule of an earlier screen")) == 0.2
    assert grade(verdict("correct", "call_counter")) == 1.0  # the judge has seen what it did


@pytest.mark.parametrize(
    ("eager", "compiled", "reward"),
    [
        (2.0, None, 1.25),
        (8.0, 2.0, 1.25),  # the faster baseline counts
        (4.0, 4.0, 1.5),
        (50.0, 400.0, 1 + FASTEST),
        (3.0, 0.5, 1.0),
        (1.015, 1.5, 1.0),  # within the spread of its own times
        (None, None, 1.0),
    ],
)
def test_speed_is_a_bounded_bonus(
    eager: float | None, compiled: float | None, reward: float
) -> None:
    timed = verdict("correct", speedup_eager=eager, speedup_compile=compiled)
    assert grade(timed) == pytest.approx(reward)
    assert grade(verdict("incorrect", speedup_eager=eager, speedup_compile=compiled)) == 0.2


def test_speedup_is_none_without_times() -> None:
    assert Verdict("one", "correct").speedup() is None
    assert grade(Verdict("one", "correct")) == 1.0


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        (fence(RIGHT), 1.0),
        (f"Here it is:\n\n{fence(RIGHT)}\nIt adds one.", 1.0),
        (f"<think>\n{fence('x = 1')}</think>\n{fence(RIGHT)}", 1.0),
        (RIGHT, 0.0),
        (fence(RIGHT) + fence(RIGHT), 0.0),
        (fence(RIGHT).removesuffix("```\n"), 0.0),
        (fence(RIGHT + "return ("), 0.0),
        (fence(RIGHT.replace("ModelNew", "Model")), 0.0),
        (fence(RIGHT.replace("@triton.jit", "")), 0.0),
        ("", 0.0),
    ],
)
def test_format(answer: str, reward: float) -> None:
    assert format_reward([answer, [{"role": "assistant", "content": answer}]]) == [reward] * 2


def test_similarity() -> None:
    answers = [fence(RIGHT), fence(RIGHT.replace("\n\n", "\n")), fence(WRONG), "no program"]
    rewards = similarity_reward(answers, triton=[RIGHT] * 4)
    assert rewards[:2] == [1.0, 1.0] and rewards[3] == 0.0
    assert 0.98 < rewards[2] < 1.0


def test_a_reward_is_a_number_of_json() -> None:
    values: list[Any] = [grade(verdict(status)) for status in STATUSES]
    assert all(value is None or math.isfinite(value) for value in values)
