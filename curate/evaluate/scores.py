"""What judged answers say of a model: compile rate, correct rate, pass@k, fast_p, with intervals.

Definitions
    **compiled**: the judge got outputs from the program to compare, whatever became of them: right,
    wrong, found to be a cheat, or followed by a crash on later inputs. So all kernels that it
    launched were compiled. A program without a kernel, or one that launches none as far as the
    judge or its static screen sees, has not compiled. Where ``targets`` were given, all of them
    must have taken its kernels too. On backend ``cpu`` that is to say by Triton's front end: for a
    device the judge compiles the kernels of a program that is otherwise right.

    **correct**: the judge's status is ``correct``. What the judge could not judge is not correct.

    **pass@k, compile@k**: the chance that one of k answers is right, or compiles (Chen et al. 2021,
    by `curate.evaluate.metrics.pass_at_k`), averaged over problems. The rates are those of k = 1.

    **fast_p**: the share of problems that one answer solves, correct and more than p times as fast
    as the baseline (Ouyang et al., "KernelBench", 2025, section 3.3), as a mean over the answers to
    each problem. fast_0 is the correct rate. A program whose time is not above the noise is not
    faster than anything.

    **intervals**: 95 %, by the percentile bootstrap over problems: a model's answers to one problem
    are alike, so the problem is what is drawn. Of two models, the difference is drawn on the same
    problems. Where all problems have the same value, a bootstrap says nothing; then the
    interval is that of Clopper and Pearson (1934) for a share of problems of 0 or 1, and none at
    all for other values and for differences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from curate.evaluate.metrics import pass_at_k
from curate.verify import Verdict

RESAMPLES = 2_000
CONFIDENCE = 0.95
KS = (1, 2, 5, 10, 20, 50, 100)
SPEEDS = (0, 1, 2)
BASELINES = ("eager", "compile")

NO_LAUNCH = frozenset({"no_jit_kernel", "kernel_never_launched", "inherits_reference"})
"""Rules of the static screen that say that no kernel runs."""


@dataclass(frozen=True)
class ScoredAnswer:
    """One answer, and what came of it.

    Attributes:
        problem: its id.
        number: of the answer among those to the problem.
        outcome: the judge's status; ``no_program``, ``cut_off`` or ``too_long`` where there was
            nothing to judge.
        program: the program in it.
        verdict: what the judge says of the program.
    """

    problem: str
    number: int
    outcome: str
    program: str | None = None
    verdict: Verdict | None = None

    @property
    def correct(self) -> bool:
        """Whether the program is right."""
        return self.outcome == "correct"

    @property
    def compiled(self) -> bool:
        """Whether the program compiled, as this module's text defines it."""
        verdict = self.verdict
        if verdict is None or any(found["rule"] in NO_LAUNCH for found in verdict.findings):
            return False
        # The first draw's outputs may be the wrong ones; other names of parameters come before it.
        wrong = verdict.status == "incorrect" and verdict.reason != "state_dict"
        gave = verdict.trials > 0 or wrong or bool(verdict.evidence.get("launches"))
        ran = verdict.status != "compile_error" and gave
        return ran and all(target["ok"] for target in verdict.compile)

    def speedup(self, baseline: str) -> float:
        """Return how many times as fast as a baseline it is; 0 if it is not right or not timed."""
        timing = self.verdict.timing if self.correct and self.verdict else None
        return (timing or {}).get(f"speedup_{baseline}") or 0.0


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over problems and its 95 % interval, None where it is unknown."""

    value: float
    low: float | None
    high: float | None


def estimate(values: Sequence[float], seed: int = 0) -> MeanEstimate:
    """Return the mean of one value a problem, each from 0 to 1, with its interval.

    Raises:
        ValueError: there is no value.
    """
    if len(set(values)) > 1:
        return _bootstrap(values, seed)
    alpha, n = 1 - CONFIDENCE, len(values)
    far = (alpha / 2) ** (1 / n)
    if values[0] == 0:
        return MeanEstimate(0.0, 0.0, 1 - far)
    if values[0] == 1:
        return MeanEstimate(1.0, far, 1.0)
    return MeanEstimate(float(values[0]), None, None)


def difference(before: Sequence[float], after: Sequence[float], seed: int = 0) -> MeanEstimate:
    """Return how much the mean grows from one model to another, on the same problems in order.

    Raises:
        ValueError: there are not as many values of both, or none.
    """
    grown = [new - old for old, new in zip(before, after, strict=True)]
    if len(set(grown)) > 1:
        return _bootstrap(grown, seed)
    return MeanEstimate(float(grown[0]), None, None)


def _bootstrap(values: Sequence[float], seed: int) -> MeanEstimate:
    generator = np.random.default_rng(seed)
    drawn = np.asarray(values, dtype=np.float64)
    means = drawn[generator.integers(0, len(drawn), (RESAMPLES, len(drawn)))].mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return MeanEstimate(float(drawn.mean()), float(low), float(high))


class Scores:
    """The scores of one model, problem by problem.

    Attributes:
        answers: those that count, by problem.
        n: answers to each problem.
        timed: whether right programs were timed.
    """

    def __init__(
        self, answers: Iterable[ScoredAnswer], problems: Sequence[str], n: int, timed: bool = False
    ) -> None:
        self.n, self.timed = n, timed
        self.answers: dict[str, list[ScoredAnswer]] = {problem: [] for problem in problems}
        for answer in answers:
            if answer.problem in self.answers:
                self.answers[answer.problem].append(answer)

    @property
    def all(self) -> list[ScoredAnswer]:
        """The answers to all problems."""
        return [answer for answers in self.answers.values() for answer in answers]

    def at(self, k: int, good: Callable[[ScoredAnswer], bool]) -> list[float]:
        """Return, by problem, the chance that one of k answers is good."""
        return [pass_at_k(self.n, sum(map(good, some)), k) for some in self.answers.values()]

    def metrics(self) -> dict[str, list[float]]:
        """Return the values by problem of every metric, by its name."""
        ks = [k for k in KS if k <= self.n]
        found = {f"compile@{k}": self.at(k, lambda a: a.compiled) for k in ks}
        found |= {f"pass@{k}": self.at(k, lambda a: a.correct) for k in ks}
        if self.timed:
            for baseline in BASELINES:
                for p in SPEEDS:
                    found[f"fast_{p} over {baseline}"] = self.at(1, _faster(p, baseline))
        return found

    def to_json(self, seed: int = 0) -> dict[str, Any]:
        """Return the metrics with their intervals, and the classes of answers with reasons."""
        metrics = {name: asdict(estimate(v, seed)) for name, v in self.metrics().items()}
        classes = Counter(answer.outcome for answer in self.all)
        return {
            "problems": len(self.answers),
            "answers": len(self.all),
            "metrics": metrics,
            "classes": {name: self._class(name, n) for name, n in classes.most_common()},
        }

    def _class(self, name: str, n: int) -> dict[str, Any]:
        reasons = Counter(
            a.verdict.reason
            for a in self.all
            if a.outcome == name and a.verdict and a.verdict.reason
        )
        return {"answers": n, "reasons": dict(reasons.most_common())}


def _faster(p: float, baseline: str) -> Callable[[ScoredAnswer], bool]:
    """Return whether an answer counts for fast_p."""
    return lambda answer: answer.correct and (p == 0 or answer.speedup(baseline) > p)


def compare(before: Scores, after: Scores, seed: int = 0) -> dict[str, Any]:
    """Return how much every metric that two models have grows from one to the other."""
    old, new = before.metrics(), after.metrics()
    return {name: asdict(difference(old[name], new[name], seed)) for name in old if name in new}


def excluded(models: Mapping[str, Sequence[ScoredAnswer]]) -> dict[str, str]:
    """Return the problems that say nothing of a model, each with the reason.

    A problem is left out for all models alike if the judge called a right answer to it
    ``degenerate``, or could judge none of the programs that any model wrote for it.
    """
    by_problem: dict[str, list[Verdict]] = {}
    for answers in models.values():
        for answer in answers:
            if answer.verdict:
                by_problem.setdefault(answer.problem, []).append(answer.verdict)
    found = {}
    for problem, verdicts in by_problem.items():
        hollow = [v for v in verdicts if v.status == "degenerate"]
        if hollow or all(v.status == "unsupported" for v in verdicts):
            first = (hollow or verdicts)[0]
            found[problem] = f"{first.status}: {first.reason}"
    return found
