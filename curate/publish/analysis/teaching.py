"""What teachers were asked and what it took; and how often their answers are right, as pass@k."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from curate.engine.history import lost_rows
from curate.engine.records import Record
from curate.evaluate.metrics import pass_at_k
from curate.publish.analysis.counts import Frozen
from curate.rows import Loose
from curate.teacher.answers import AnswerAddress, TokenUsage, request_key, usage, usage_of
from curate.teacher.teacher import UNANSWERED, Teacher
from curate.verify import WRONG

if TYPE_CHECKING:
    from curate.publish.analysis.analysis import Run, StepCounts

COLUMNS = ["id", "kind", "parent_ids", "sample", "verdict"]


class Teaching(Frozen):
    """What one `teacher` step asked.

    Attributes:
        label: of the step.
        model, terms: as the recipe names them.
        endpoint: the host that answered, with its port.
        prompts: that the step looked at.
        kept: of those, with an answer that became a sample.
        lost: the others, by reason.
        used: what answers to these prompts took, whichever run asked for them first; null where
            the folder has no answers any more.
        used_by_all: what all runs in the output folder asked of the model.
    """

    label: str
    model: str
    terms: str
    endpoint: str
    prompts: int
    kept: int
    lost: dict[str, int]
    used: TokenUsage | None
    used_by_all: TokenUsage | None


def teachings(run: Run, steps: list[StepCounts]) -> list[Teaching]:
    """Return what every `teacher` step of a run asked; ``steps`` are its stages in numbers."""
    by_all = usage(run.output)
    return [
        _teaching(run, number, step, by_all)
        for number, step in enumerate(steps)
        if step.name == "teacher"
    ]


def _teaching(
    run: Run, number: int, step: StepCounts, by_all: dict[AnswerAddress, TokenUsage]
) -> Teaching:
    teacher = Teacher.model_validate(run.records[number].identity["options"])
    place = AnswerAddress(teacher.address(), teacher.model)
    return Teaching(
        label=step.label,
        model=teacher.model,
        terms=teacher.terms,
        endpoint=urlsplit(place.address).netloc,
        prompts=step.seen - step.untouched,
        kept=step.kept - step.untouched,
        lost=step.lost,
        used=usage_of(run.output, _keys(run, number, teacher)),
        used_by_all=by_all.get(place),
    )


def _keys(run: Run, number: int, teacher: Teacher) -> Iterator[str]:
    """Yield the keys of the requests for all prompts that came to stage ``number``."""
    address = teacher.address()
    for record in run.ends(number):
        for key in record.shards:
            for row in run.store.rows(record.step, key, ["kind", "turns", "sample"]).to_pylist():
                if row["kind"] == "prompt":
                    asked = row["sample"]["number"]
                    yield request_key(address, teacher.request(row, asked), asked)


class Question(NamedTuple):
    """What was asked: about which row, for which family, and at which attempt."""

    of: str
    family: str
    attempt: int


class PassRate(Frozen):
    """How often answers to the prompts of one family were right.

    Attributes:
        family: of the first prompt.
        attempt: 1 for first answers, 2 for repairs of these and so on.
        questions: prompts that got an answer, those counted once that differ in number only.
        answers: judged ones, and those that held no program.
        correct: of the answers.
        pass_at: pass@k, for k of 1, 2, 4 and so on up to the most answers to a question.
        questions_at: for each k, the questions with at least k answers, which it is averaged over.
    """

    family: str
    attempt: int
    questions: int
    answers: int
    correct: int
    pass_at: dict[int, float]
    questions_at: dict[int, int]


def pass_rates(run: Run) -> list[PassRate]:
    """Return the pass rates of a run, by family and attempt; none if it judged no answers.

    An answer without a program, or cut off, was wrong; one that nothing could judge, or that a step
    dropped before it was judged, does not count.
    """
    found: dict[str, tuple[Question, bool]] = {}
    for record in run.records:
        if record.step == "verify":
            for key in record.shards:
                found |= _kept(run.store.rows(record.step, key, COLUMNS).to_pylist())
            found |= _lost(row for row in _drops(run, record) if row["reason"] in WRONG)
    if not found:
        return []
    for record in run.records:
        if record.step == "teacher":
            found |= _lost(row for row in _drops(run, record) if row["reason"] not in UNANSWERED)
    return rates(found.values())


def _drops(run: Run, record: Record) -> Iterator[Loose]:
    rows = lost_rows(run.store, record, None)
    return (row for row in rows if row["sample"] and row["fate"] == "dropped")


def _kept(rows: Iterable[Loose]) -> dict[str, tuple[Question, bool]]:
    """Return, of answers that a judge has seen, what was asked and whether they are right."""
    statuses = {row["id"]: (row["verdict"] or {}).get("status") for row in rows if row["sample"]}
    return {
        row["id"]: (_question(row), statuses[row["id"]] == "correct")
        for row in rows
        if statuses.get(row["id"]) in {*WRONG, "correct"}
    }


def _lost(rows: Iterable[Loose]) -> dict[str, tuple[Question, bool]]:
    return {row["id"]: (_question(row), False) for row in rows}


def _question(row: Loose) -> Question:
    """Return what a sample answers, or a prompt asks."""
    of = row["parent_ids"][-2 if row["kind"] == "sample" else -1]
    return Question(of, row["sample"]["family"], row["sample"]["attempt"])


def rates(answers: Iterable[tuple[Question, bool]]) -> list[PassRate]:
    """Return pass rates by family and attempt, given what was asked and whether it was right."""
    given: dict[tuple[str, int], dict[str, list[bool]]] = {}
    for (of, family, attempt), right in answers:
        given.setdefault((family, attempt), {}).setdefault(of, []).append(right)
    return [
        _rate(family, attempt, [(len(rights), sum(rights)) for rights in questions.values()])
        for (family, attempt), questions in sorted(given.items())
    ]


def _rate(family: str, attempt: int, counts: list[tuple[int, int]]) -> PassRate:
    """Return the pass rate, given how many answers each question has and how many are right."""
    most = max(n for n, _ in counts)
    ks = [2**power for power in range(most.bit_length())]
    enough = {k: [(n, c) for n, c in counts if n >= k] for k in ks}
    return PassRate(
        family=family,
        attempt=attempt,
        questions=len(counts),
        answers=sum(n for n, _ in counts),
        correct=sum(c for _, c in counts),
        pass_at={k: fmean(pass_at_k(n, c, k) for n, c in enough[k]) for k in ks},
        questions_at={k: len(enough[k]) for k in ks},
    )
