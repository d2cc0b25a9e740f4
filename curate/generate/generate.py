"""A PyTorch module in, a Triton program out: sampled, judged, and asked for again.

A round asks a model for answers and has `curate.verify` judge the programs in them. Every answer is
the end of a conversation of its own, and in the next round the judge's evidence is its next turn:
the compiler's message, the wrong value and the right one, or the time next to PyTorch's. It ends
when a program is right and, where programs are timed, faster than what it is timed against.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from curate.files import InputError
from curate.formats.prompts.question import conversation
from curate.generate.sampling import Message, Sample, Sampler, Sampling, Stream
from curate.generate.trace import Attempt, TraceFile
from curate.generate.turns import BASELINES, QUESTION, next_turn
from curate.teacher.program import program_of
from curate.verify import Candidate, CannotJudge, Options, Verdict, start_judge

if TYPE_CHECKING:
    from curate.verify import Judge

NAMES = ("Model", "get_inputs", "get_init_inputs")
"""What a module's file defines: KernelBench's form."""

EXAMPLE = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.relu(x + self.shift)


def get_inputs():
    return [torch.randn(32, 100)]


def get_init_inputs():
    return [100]
"""

CLOSENESS = ("correct", "incorrect", "timeout", "oom", "crash", "runtime_error", "compile_error")
"""Statuses of a program, the closest to a right one first; all others are further away."""


# --- what is heard of it ------------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """A round begins, which asks for so many answers."""

    round: int
    answers: int


@dataclass(frozen=True)
class Piece:
    """A piece of the one answer that a round asks for."""

    text: str


@dataclass(frozen=True)
class Answered:
    """So many of a round's answers are there."""

    done: int
    of: int


Event = Asking | Piece | Answered | Attempt
"""What `generate_triton` tells while it works; an attempt comes when it is judged."""


def _nothing(event: Event) -> None:
    pass


# --- the result ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generation:
    """What came of asking for a program.

    Attributes:
        attempts: every answer that was judged, in order of rounds and conversations.
    """

    attempts: list[Attempt]

    @property
    def best(self) -> Attempt | None:
        """The fastest attempt that the judge called correct, or the first where none was timed;
        None where none is correct."""
        right = [attempt for attempt in self.attempts if attempt.is_right]
        return min(right, key=_microseconds, default=None)

    @property
    def closest(self) -> Attempt:
        """The best, or the attempt that failed latest on its way to a right program."""
        return self.best or min(self.attempts, key=_distance)

    @property
    def program(self) -> str | None:
        """The best attempt's program."""
        return self.best.program if self.best else None

    @property
    def speedup(self) -> dict[str, float]:
        """How many times as fast as ``eager`` PyTorch and ``compile`` (`torch.compile`) the best
        is; empty where that was not measured."""
        timing = (self.best and self.best.verdict and self.best.verdict.timing) or {}
        ratios = {name: timing.get(f"speedup_{name}") for name in BASELINES}
        return {name: ratio for name, ratio in ratios.items() if ratio is not None}


def _microseconds(attempt: Attempt) -> float:
    timing = (attempt.verdict and attempt.verdict.timing) or {}
    known = timing.get("candidate_us")
    return float("inf") if known is None else float(known)


def _distance(attempt: Attempt) -> tuple[int, float]:
    """Return a number that is smaller the closer an attempt is to a right program."""
    if attempt.verdict is None:
        return len(CLOSENESS) + 1, 0.0
    known = attempt.status in CLOSENESS
    place = CLOSENESS.index(attempt.status) if known else len(CLOSENESS)
    share = attempt.verdict.evidence.get("wrong_share")
    return place, 1.0 if share is None else share


def _is_slow(attempt: Attempt) -> bool:
    """Tell whether an attempt was timed and is no faster than all that it is timed against."""
    times = attempt.verdict.speedup() if attempt.verdict else None
    return times is not None and times <= 1


# --- the loop -----------------------------------------------------------------------------------


def generate_triton(
    code: str,
    *,
    sampler: Sampler,
    k: int = 4,
    rounds: int = 1,
    options: Options | None = None,
    sampling: Sampling | None = None,
    trace: Path | None = None,
    on_event: Callable[[Event], None] = _nothing,
) -> Generation:
    """Ask a model for a Triton program that computes what a PyTorch module computes.

    Args:
        code: text of a file with ``Model``, ``get_inputs`` and ``get_init_inputs``.
        sampler: the model, as `curate.generate.sampling.make_sampler` gives it.
        k: answers to ask for, each in a conversation of its own.
        rounds: how often to ask; after the first, with the judge's evidence on each answer.
        options: how to judge.
        sampling: how answers are drawn; its ``n`` is passed over.
        trace: a file to which every judged answer is appended.
        on_event: is told how it goes.

    Raises:
        ValueError: k or rounds is less than 1.
        InputError: the code is no such module, or the trace file holds something else.
        CannotJudge: there is no such device here, or no sandbox.
    """
    if k < 1 or rounds < 1:
        raise ValueError(f"k {k}, rounds {rounds}: both must be at least 1")
    check_module(code)
    drawn = sampling or Sampling(n=k)
    talks = [Talk(number, QUESTION, conversation(code)) for number in range(k)]
    attempts: list[Attempt] = []
    known: dict[str, Verdict] = {}
    with (
        TraceFile(trace) if trace else nullcontext() as file,
        open_judge(options or Options()) as judge,
    ):
        for turn in range(1, rounds + 1):
            on_event(Asking(turn, len(talks)))
            samples = _ask(sampler, talks, replace(drawn, seed=drawn.seed + turn - 1), on_event)
            answers = _attempts(code, sampler.name, turn, talks, samples)
            judged = []
            for attempt in _judged(judge, answers, known):
                judged.append(attempt)
                if file:
                    file.add(attempt)
                on_event(attempt)
            judged.sort(key=lambda attempt: attempt.number)
            attempts += judged
            best = Generation(attempts).best
            talks = _next_talks(judged)
            if not talks or (best and not _is_slow(best)):
                break
    return Generation(attempts)


def check_module(code: str, name: str = "the module") -> None:
    """See that a text is a module in KernelBench's form; none of it is run.

    Raises:
        InputError: it is not; the message says what is missing, and shows an example.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(f"{name}{line}: is not Python: {error}") from error
    missing = [wanted for wanted in NAMES if wanted not in set(_defined(tree))]
    if missing:
        raise InputError(
            f"{name}: defines no {', no '.join(missing)}. A file to rewrite defines the module "
            f"as Model, and how to build and call it:\n\n{EXAMPLE}"
        )


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file's own statements bind."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)


@dataclass(frozen=True)
class Talk:
    """A conversation that waits for an answer.

    Attributes:
        number: of the conversation, from 0.
        template: the label of what is asked last.
        messages: all of it.
    """

    number: int
    template: str
    messages: list[Message]


def _next_talks(answers: Sequence[Attempt]) -> list[Talk]:
    """Return the conversations that go on: each answer, and what the judge found in it."""
    talks = []
    for attempt in answers:
        if said := next_turn(attempt):
            template, text = said
            turns = [*attempt.messages, {"role": "user", "content": text}]
            talks.append(Talk(attempt.number, template, turns))
    return talks


def _ask(
    sampler: Sampler, talks: Sequence[Talk], sampling: Sampling, on_event: Callable[[Event], None]
) -> list[Sample]:
    """Return one answer to each conversation; where there is one only, it is heard as it comes."""
    if len(talks) == 1:
        return [_heard(sampler.stream(talks[0].messages, sampling), on_event)]
    places: dict[str, list[int]] = {}
    for place, talk in enumerate(talks):
        places.setdefault(json.dumps(talk.messages), []).append(place)
    found: dict[int, Sample] = {}
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        on_event(Answered(done, len(talks)))

    # Asked one by one with one seed, conversations that are the same would have the same answer.
    for n in sorted({len(same) for same in places.values()}):
        groups = [same for same in places.values() if len(same) == n]
        conversations = [talks[same[0]].messages for same in groups]
        answers = sampler.sample(conversations, replace(sampling, n=n), each=count)
        for same, samples in zip(groups, answers, strict=True):
            found |= zip(same, samples, strict=True)
    return [found[place] for place in range(len(talks))]


def _heard(pieces: Stream, on_event: Callable[[Event], None]) -> Sample:
    while True:
        try:
            on_event(Piece(next(pieces)))
        except StopIteration as end:
            sample: Sample = end.value
            return sample


def _attempts(
    code: str, model: str, turn: int, talks: Sequence[Talk], samples: Sequence[Sample]
) -> list[Attempt]:
    """Return the answers of a round before they are judged."""
    attempts = []
    for talk, sample in zip(talks, samples, strict=True):
        text = sample.text.encode(errors="replace").decode()  # an endpoint may send half a pair
        answer = {"role": "assistant", "content": text}
        attempts.append(
            Attempt(
                reference=code,
                model=model,
                round=turn,
                number=talk.number,
                template=talk.template,
                messages=[*talk.messages, answer],
                finish=sample.finish,
                program=program_of(text),
                verdict=None,
            )
        )
    return attempts


# --- the judge ----------------------------------------------------------------------------------


@contextmanager
def open_judge(options: Options) -> Iterator[Judge]:
    """Give a judge whose processes stay warm from one round to the next.

    Raises:
        CannotJudge: there is no such device here, or no sandbox.
    """
    from curate.engine.processes.sandbox import SandboxUnavailable
    from curate.verify import HostError

    judge = start_judge(options)
    try:
        yield judge
    except (HostError, SandboxUnavailable) as error:
        raise CannotJudge(str(error)) from error
    finally:
        judge.close()


def _judged(
    judge: Judge, answers: Sequence[Attempt], known: dict[str, Verdict]
) -> Iterator[Attempt]:
    """Yield the answers with their verdicts, as they come; no program is judged twice.

    Args:
        judge: says what is right.
        answers: of one round.
        known: verdicts by program, of the rounds before; those of this round are added.
    """
    programs = {}
    for attempt in answers:
        if attempt.program is None:
            yield attempt
        elif attempt.program in known:
            yield replace(attempt, verdict=known[attempt.program])
        else:
            programs[hashlib.sha256(attempt.program.encode()).hexdigest()[:12]] = attempt.program
    candidates = [Candidate(name, answers[0].reference, text) for name, text in programs.items()]
    for verdict in judge.run(candidates):
        program = programs[verdict.id]
        known[program] = verdict
        for attempt in answers:
            if attempt.program == program:
                yield replace(attempt, verdict=verdict)
