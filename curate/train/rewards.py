"""Rewards for reinforcement learning, in the form that TRL's ``GRPOTrainer`` calls.

A reward function gets completions (texts, or lists of messages) and the data set's columns as
keywords, and returns a number for each, or None for what cannot be told. TRL 1.16 leaves a
completion out of its group's mean, and gives it no advantage, where every function returns None.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from curate.journal import json_line, open_journal, whole_lines
from curate.teacher.program import program_of, without_thinking
from curate.verify import (
    RULES,
    Candidate,
    Options,
    ParsedProgram,
    Verdict,
    VerdictFile,
    judged,
    start_judge,
    text_sha256,
)

Completion = str | Sequence[dict[str, Any]]
"""What a model wrote: a text, or the messages of a conversational data set."""

Reward = float | None

CORRECT = 1.0
"""The reward of a right program."""

FASTEST = 0.5
"""The most that a right program gets on top, for being `FULL_SPEEDUP` times as fast."""

FULL_SPEEDUP = 4.0

PARTIAL = {
    "compile_error": 0.05,
    "runtime_error": 0.1,
    "timeout": 0.1,
    "oom": 0.1,
    "crash": 0.1,
    "incorrect": 0.2,
}
"""The reward of a program that honestly fails, by its status: the further it came, the more."""

NO_PROGRAM = "no_program"
"""The status, in the log, of a completion in which there is nothing to judge."""

ID_LENGTH = 20
"""Hexadecimal digits of a program's id."""

_MODEL_NEW = re.compile(r"^class[ \t]+ModelNew\b", re.MULTILINE)
_KERNEL = re.compile(r"^@(triton\.)?jit\b", re.MULTILINE)
_FENCE_LINE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)
_TOKEN = re.compile(r"\w+|[^\w\s]")


def text_of(completion: Completion) -> str:
    """Return a completion as text: of messages, what the assistant says."""
    if isinstance(completion, str):
        return completion
    said = (turn.get("content") for turn in completion if turn.get("role") == "assistant")
    return "\n".join(text for text in said if text)


def format_reward(
    completions: Sequence[Completion], prompts: Sequence[Any] | None = None, **columns: Any
) -> list[float]:
    """Return 1.0 for each answer that is one fenced program of the right form, and 0.0 for others.

    The form: Python can parse it, it defines ``ModelNew``, and it has a kernel under
    ``@triton.jit``. Nothing is run.
    """
    return [float(_has_form(text_of(completion))) for completion in completions]


def _has_form(answer: str) -> bool:
    program = program_of(answer)
    if program is None or len(_FENCE_LINE.findall(without_thinking(answer))) != 2:
        return False
    try:
        parsed = ParsedProgram(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return parsed.model is not None and any(parsed.kernels.values())


def similarity_reward(
    completions: Sequence[Completion],
    prompts: Sequence[Any] | None = None,
    *,
    triton: Sequence[str],
    **columns: Any,
) -> list[float]:
    """Return how like each program is to the data set's own, from 0.0 (or none) to 1.0.

    This is `difflib.SequenceMatcher.ratio` of their tokens. On characters it would take seconds,
    or, with its shortcut for long texts, ignore all that are frequent.

    Args:
        completions: what the model wrote.
        prompts: not used.
        triton: the right program to each.
        columns: not used.
    """
    return [
        _similarity(program_of(text_of(completion)), answer)
        for completion, answer in zip(completions, triton, strict=True)
    ]


def _similarity(program: str | None, answer: str) -> float:
    if program is None:
        return 0.0
    ours, theirs = _TOKEN.findall(answer), _TOKEN.findall(program)
    return difflib.SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


def grade(verdict: Verdict) -> Reward:
    """Return the reward that a verdict earns.

    ====================================================  =====================================
    the judge says                                        reward
    ====================================================  =====================================
    ``cheat``                                             0.0
    a failure, in which `screen` sees how cheats work     0.0
    ``compile_error``                                     0.05
    ``runtime_error``, ``timeout``, ``oom``, ``crash``    0.1
    ``incorrect``                                         0.2
    ``correct``                                           1.0
    ``correct``, and timed as faster than PyTorch         1.0 + 0.25 log2(speedup), at most 1.5
    ``degenerate``, ``unsupported``                       None
    ====================================================  =====================================

    So a cheat never gets more than an honest failure. What is in doubt in a *right* program is
    decided by the judge, from what the program did; in a failure the static screen is enough, or
    the way to a partial reward would be a program that leaves the work to PyTorch.
    """
    if verdict.status in ("degenerate", "unsupported"):
        return None
    if verdict.status == "correct":
        return CORRECT + speed_bonus(verdict)
    return 0.0 if cheating_rules(verdict) else PARTIAL.get(verdict.status, 0.0)


def cheating_rules(verdict: Verdict) -> list[str]:
    """Return the rules of the static screen, of severity ``cheat``, that a program broke."""
    cheats = {name for name, rule in RULES.items() if rule.severity == "cheat"}
    return sorted(cheats & {str(finding["rule"]) for finding in verdict.findings})


def speed_bonus(verdict: Verdict) -> float:
    """Return what a right program gets for its speed, from 0.0 to `FASTEST`.

    A speedup that is not above the spread of the program's own times is none.
    """
    times = verdict.speedup()
    if verdict.timing is None or times is None or times <= 1 + float(verdict.timing["spread"]):
        return 0.0
    return FASTEST * min(1.0, math.log(times) / math.log(FULL_SPEEDUP))


@dataclass(frozen=True)
class Scored:
    """The reward of one completion, and why it got it.

    Attributes:
        id: names the program and its reference by their text; None if there is no program.
        status: the judge's, or `NO_PROGRAM`.
        reason: the judge's.
        reward: see `grade`; None if the program cannot be judged.
        rules: see `cheating_rules`.
        kind: ``pure_triton`` or ``hybrid``, of what ran.
        speedup: see `speedup`.
        cached: whether it was judged before, and not now.
    """

    id: str | None
    status: str
    reason: str | None
    reward: Reward
    rules: list[str]
    kind: str | None
    speedup: float | None
    cached: bool


class VerifiedReward:
    """The reward of what a program is proved to do: `grade` of the judge's verdict.

    An instance is a reward function, and a context manager that ends the judge's processes. These
    are started once and stay warm from call to call. A completion without a program gets 0.0, as
    does one in which ``ModelNew`` or a kernel is missing. Each program is judged once for a
    reference, however often it is written.

    Args:
        options: how to judge.
        log: a folder for a `RewardLog`; programs that it knows are not judged again.

    Raises:
        CannotJudge: there is no such device here, or no sandbox, or the judge does not work.
    """

    __name__ = "verified"

    def __init__(self, options: Options | None = None, log: Path | None = None) -> None:
        options = options or Options()
        self._judge = start_judge(options)
        self._log = RewardLog(log, options) if log else None
        self._known: dict[str, Verdict] = {}
        self.scored: list[Scored] = []
        """What the last call found, one entry per completion."""

    def __call__(
        self,
        completions: Sequence[Completion],
        prompts: Sequence[Any] | None = None,
        *,
        reference: Sequence[str],
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[Reward]:
        """Return the reward of each completion, or None where it cannot be judged.

        Args:
            completions: what the model wrote.
            prompts: not used.
            reference: the module that each was to replace.
            trainer_state: of a trainer that calls this; its step goes into the log.
            log_metric: a trainer's own, which is told how large a share is correct, cheats, or is
                not judged, and how many seconds judging took.
            columns: not used.

        Raises:
            CannotJudge: the judge's processes cannot be started any more.
        """
        began = time.monotonic()
        candidates = [
            _candidate(module, text_of(completion))
            for module, completion in zip(reference, completions, strict=True)
        ]
        fresh = self._judge_new(candidate for candidate in candidates if candidate)
        self.scored = [self._score(candidate, fresh) for candidate in candidates]
        if self._log:
            self._log.add(getattr(trainer_state, "global_step", None), self.scored)
        if log_metric and self.scored:
            for name, share in shares(self.scored).items():
                log_metric(f"judge/{name}", share)
            log_metric("judge/seconds", time.monotonic() - began)
        return [scored.reward for scored in self.scored]

    def _judge_new(self, candidates: Iterable[Candidate]) -> dict[str, Verdict]:
        """Return verdicts, by id, on those of the candidates that are not known yet."""
        todo: dict[str, Candidate] = {}
        for candidate in candidates:
            if candidate.id in self._known or candidate.id in todo:
                continue
            if self._log and (known := self._log.known(candidate)):
                self._known[candidate.id] = known
            else:
                todo[candidate.id] = candidate
        fresh = {}
        # Candidates of one reference side by side: the reference is run once for them.
        for verdict in judged(self._judge, sorted(todo.values(), key=lambda c: c.reference)):
            fresh[verdict.id] = verdict
            if verdict.reason != "judge_error":  # our own fault: the next time may be better
                self._known[verdict.id] = verdict
                if self._log:
                    self._log.judged(todo[verdict.id], verdict)
        return fresh

    def _score(self, candidate: Candidate | None, fresh: dict[str, Verdict]) -> Scored:
        if candidate is None:
            return Scored(None, NO_PROGRAM, None, 0.0, [], None, None, False)
        new = fresh.get(candidate.id)
        verdict = new or self._known[candidate.id]
        return Scored(
            id=candidate.id,
            status=verdict.status,
            reason=verdict.reason,
            reward=grade(verdict),
            rules=cheating_rules(verdict),
            kind=verdict.evidence.get("kind"),
            speedup=verdict.speedup(),
            cached=new is None,
        )

    def close(self) -> None:
        """End the judge's processes."""
        self._judge.close()
        if self._log:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def shares(scored: Sequence[Scored]) -> dict[str, float]:
    """Return the share of completions that are correct, that cheat, and that are not judged."""
    statuses = Counter(one.status for one in scored)
    unjudged = sum(one.reward is None for one in scored)
    counts = {"correct": statuses["correct"], "cheat": statuses["cheat"], "unjudged": unjudged}
    return {name: count / len(scored) for name, count in counts.items()}


def where_judged(
    function: Callable[..., list[float]], verified: VerifiedReward
) -> Callable[..., list[Reward]]:
    """Return a reward function that is silent where the judge just was.

    TRL adds up what the functions return and takes None for 0: a completion that cannot be judged
    would otherwise be ranked by its form alone. The trainer must call ``verified`` first.
    """

    @functools.wraps(function)
    def rewards(*args: Any, **columns: Any) -> list[Reward]:
        found = zip(function(*args, **columns), verified.scored, strict=True)
        return [None if scored.reward is None else reward for reward, scored in found]

    return rewards


def _candidate(reference: str, answer: str) -> Candidate | None:
    """Return what there is to judge in an answer."""
    program = program_of(answer)
    if program is None or not (_MODEL_NEW.search(program) and _KERNEL.search(program)):
        return None
    named = text_sha256(Candidate("", reference, program))
    return Candidate(named[:ID_LENGTH], reference, program)


class RewardLog:
    """A folder that says what every completion got, so that rewards can be audited.

    ``programs.jsonl`` holds each program once, as a candidate: ``python -m curate.verify`` judges
    them again, with other options. ``verdicts.jsonl`` is a verdict file, with the judge's evidence
    on each; ``rewards.jsonl`` has a line per completion: the run, which is how often the folder was
    opened before, the step, and the fields of `Scored`.

    Raises:
        InputError: the folder cannot be written, or another process writes to it.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        programs, rewards = folder / "programs.jsonl", folder / "rewards.jsonl"
        with ExitStack() as files:
            self._verdicts = files.enter_context(VerdictFile(folder / "verdicts.jsonl", options))
            self._programs = files.enter_context(open_journal(programs, b'{"id": "', "programs"))
            self._rewards = files.enter_context(open_journal(rewards, b'{"run": ', "rewards"))
            self._written = {json.loads(line)["id"] for line in whole_lines(programs)}
            runs = (json.loads(line)["run"] for line in whole_lines(rewards))
            self._run = 1 + max(runs, default=-1)
            self._files = files.pop_all()

    def known(self, candidate: Candidate) -> Verdict | None:
        """Return an earlier run's verdict with the same options, or None."""
        return self._verdicts.known(candidate)

    def judged(self, candidate: Candidate, verdict: Verdict) -> None:
        """Write a program, if it is not there yet, and then its verdict."""
        if candidate.id not in self._written:
            self._written.add(candidate.id)
            self._programs.append(json_line(dataclasses.asdict(candidate)))
        self._verdicts.append(candidate, verdict)

    def add(self, step: int | None, scored: Iterable[Scored]) -> None:
        """Write what the completions of one step got."""
        begin = {"run": self._run, "step": step}
        self._rewards.append(*(json_line(begin | dataclasses.asdict(one)) for one in scored))

    def close(self) -> None:
        """Close the files."""
        self._files.close()
