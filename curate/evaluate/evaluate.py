"""Evaluate language models: ask them for programs, have these judged, and sum up.

The same command goes on where it was stopped: no answer is asked for twice, and no program judged
twice. A model that is evaluated later into the same folder joins those that are there.
"""

from __future__ import annotations

import ast
import dataclasses
import gc
import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.evaluate.folder import SAMPLES, VERDICTS, EvaluationSettings, SampleFile
from curate.evaluate.problems import Problem
from curate.evaluate.results import summarize, write_results
from curate.evaluate.scores import ScoredAnswer
from curate.files import InputError, file_sha256
from curate.formats.prompts.question import conversation
from curate.generate.sampling import TOO_LONG, Sample, Sampler, Sampling, make_sampler
from curate.teacher.program import program_of
from curate.verify import Candidate, Options, Tally, Verdict, check_device, label

LABEL = re.compile(r"[A-Za-z0-9][\w.+-]*")
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.json", "*.jinja", "*.model", "*.txt")
"""Files of a model's folder that decide what it answers."""


@dataclass(frozen=True)
class Contestant:
    """A model to evaluate.

    Attributes:
        label: what it is called in the results.
        model: its path, or its name at the endpoint.
        endpoint: the base URL of a server; None runs the model here.
        engine: what runs it here; see `make_sampler`.
    """

    label: str
    model: str | None
    endpoint: str | None = None
    engine: str = "auto"

    def __post_init__(self) -> None:
        if not LABEL.fullmatch(self.label):
            raise InputError(
                f"label {self.label!r}: must be letters, digits and ._+- such as base=PATH"
            )

    @classmethod
    def parse(cls, text: str, endpoint: str | None = None, engine: str = "auto") -> Contestant:
        """Return the model that a command line calls ``label=path``, or just ``path``.

        Raises:
            InputError: the label cannot be the name of a folder.
        """
        label, separator, model = text.partition("=")
        if separator and LABEL.fullmatch(label):
            return cls(label, model, endpoint, engine)
        name = Path(text).name.removesuffix(".gguf")
        return cls(re.sub(r"[^\w.+-]", "-", name) or "endpoint", text or None, endpoint, engine)

    def sampler(self) -> Sampler:
        """Return what answers for it.

        Raises:
            ModelError: there is no such model.
        """
        return make_sampler(self.model, self.endpoint, self.engine)

    def identity(self) -> dict[str, Any]:
        """Return what tells it from others: path and contents, or address and name."""
        sha256 = None if self.endpoint or not self.model else fingerprint(Path(self.model))
        return {"model": self.model, "endpoint": self.endpoint, "sha256": sha256}


def fingerprint(path: Path) -> str | None:
    """Return the sha256 of a model's file, or of the files in its folder; None if it is a name."""
    if path.is_file():
        return file_sha256(path)
    if not path.is_dir():
        return None
    files = sorted({file for pattern in WEIGHTS for file in path.glob(pattern)})
    listed = "".join(f"{file.name} {file_sha256(file)}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()


class Watcher:
    """Told how an evaluation goes; this one does not care."""

    def sampling(self, label: str, done: int, total: int) -> None:
        """So many of a model's answers are there."""

    def judging(self, label: str, tally: Tally) -> None:
        """The judge is so far with a model's programs."""


def evaluate(
    contestants: Sequence[Contestant],
    problems: Sequence[Problem],
    output: Path,
    sampling: Sampling,
    options: Options,
    watcher: Watcher | None = None,
    open_sampler: Callable[[Contestant], Sampler] = Contestant.sampler,
) -> dict[str, Any]:
    """Evaluate models, write the results, and return what ``results.json`` holds.

    Args:
        contestants: models to evaluate; those that the folder holds already come with them.
        problems: what they are asked.
        output: folder of the evaluation; see `curate.evaluate.folder`.
        sampling: how their answers are drawn.
        options: how programs are judged.
        watcher: told of the progress.
        open_sampler: returns what answers for a model.

    Raises:
        InputError: the folder holds an evaluation with other settings, or there is no model.
        ModelError: a model cannot be had or does not answer.
        CannotJudge: the judge cannot start here.
    """
    watcher = watcher or Watcher()
    check_device(options)  # before models are asked
    labels = [contestant.label for contestant in contestants]
    if len(set(labels)) < len(labels):
        raise InputError(f"two models have one label ({', '.join(labels)}); give LABEL=PATH")
    settings = EvaluationSettings.open(output, problems, sampling)
    for contestant in contestants:
        settings.add(contestant.label, contestant.identity())
        with SampleFile(output / contestant.label / SAMPLES, sampling.n) as file:
            _ask(contestant, problems, file, sampling, watcher, open_sampler)
        _free_device()
    found = {}
    for name in settings.models:
        with SampleFile(output / name / SAMPLES, sampling.n) as file:
            samples = file.samples
        if len(samples) < len(problems):
            continue  # its sampling was stopped, and it was not asked for now
        found[name] = _judge(name, problems, samples, output / name, options, watcher)
    if not found:
        raise InputError(f"{output}: holds no model's answers yet; name one with --model")
    values = summarize(found, problems, sampling, options, settings.models)
    write_results(output, values)
    return values


def _ask(
    contestant: Contestant,
    problems: Sequence[Problem],
    file: SampleFile,
    sampling: Sampling,
    watcher: Watcher,
    open_sampler: Callable[[Contestant], Sampler],
) -> None:
    """Have a model answer the problems that the file has no answers to."""
    todo = [problem for problem in problems if problem.id not in file.samples]
    total = len(problems) * sampling.n
    sampler = open_sampler(contestant) if todo else None  # a model that cannot be had comes first
    watcher.sampling(contestant.label, len(file.samples) * sampling.n, total)
    if sampler is None:
        return

    def keep(index: int, samples: list[Sample]) -> None:
        file.append(todo[index].id, samples)
        watcher.sampling(contestant.label, len(file.samples) * sampling.n, total)

    asked = [conversation(problem.reference) for problem in todo]
    sampler.sample(asked, sampling, keep)


def _free_device() -> None:
    """Give back the memory of a model that is no longer needed: the judge wants the device."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _judge(
    name: str,
    problems: Sequence[Problem],
    samples: Mapping[str, list[Sample]],
    folder: Path,
    options: Options,
    watcher: Watcher,
) -> list[ScoredAnswer]:
    """Return a model's answers with the judge's verdicts; equal programs are judged once."""
    answers = [
        read_answer(problem.id, number, sample)
        for problem in problems
        for number, sample in enumerate(samples[problem.id])
    ]
    references = {problem.id: problem.reference for problem in problems}
    candidates: dict[tuple[str, str], Candidate] = {}
    for answer in answers:
        if answer.outcome == TO_JUDGE and answer.program:
            key = (answer.problem, answer.program)
            place = f"{answer.problem}#{answer.number}"
            candidates.setdefault(key, Candidate(place, references[answer.problem], answer.program))
    judged = label(
        list(candidates.values()),
        options,
        folder / VERDICTS,
        lambda tally: watcher.judging(name, tally),
    )
    by_program = dict(zip(candidates, judged, strict=True))
    return [_with_verdict(answer, by_program) for answer in answers]


TO_JUDGE = "to_judge"


def read_answer(problem: str, number: int, sample: Sample) -> ScoredAnswer:
    """Return an answer with the program in it; its outcome is `TO_JUDGE` if there is one to judge.

    A program in an answer that was cut is judged only if it is whole: if it parses, with a
    ``ModelNew`` that has a ``forward``.
    """
    program = program_of(sample.text)
    if sample.finish == TOO_LONG:
        return ScoredAnswer(problem, number, TOO_LONG)
    if sample.finish == "length" and not (program and _is_whole(program)):
        return ScoredAnswer(problem, number, "cut_off", program)
    if program is None:
        return ScoredAnswer(problem, number, "no_program")
    return ScoredAnswer(problem, number, TO_JUDGE, program)


def _is_whole(program: str) -> bool:
    try:
        body = ast.parse(program).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        isinstance(node, ast.ClassDef)
        and node.name == "ModelNew"
        and any(isinstance(part, ast.FunctionDef) and part.name == "forward" for part in node.body)
        for node in body
    )


def _with_verdict(
    answer: ScoredAnswer, verdicts: Mapping[tuple[str, str], Verdict]
) -> ScoredAnswer:
    verdict = verdicts.get((answer.problem, answer.program or ""))
    if answer.outcome != TO_JUDGE or verdict is None:
        return answer
    return dataclasses.replace(answer, outcome=verdict.status, verdict=verdict)
