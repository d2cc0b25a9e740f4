"""`curate generate` in the terminal: the program on stdout, messages about it on stderr."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from curate.files import InputError, read_text
from curate.generate.generate import (
    Answered,
    Asking,
    Event,
    Generation,
    Piece,
    check_module,
    generate_triton,
)
from curate.generate.sampling import Sampler, Sampling
from curate.generate.trace import Attempt
from curate.generate.turns import explanation, timing_text
from curate.terminal.shown import say, say_program
from curate.verify import Options, Verdict

COLOURS = {"correct": "green", "unsupported": "yellow", "degenerate": "yellow"}


def read_module(path: Path) -> str:
    """Return the text of a module's file.

    Raises:
        InputError: it cannot be read, or is no module in KernelBench's form.
    """
    code = read_text(path)
    check_module(code, str(path))
    return code


def write_program(program: str, path: Path | None) -> None:
    """Write a program to a file, or to stdout.

    Raises:
        InputError: the file cannot be written.
    """
    if path is None:
        say_program(program)
        return
    try:
        path.write_text(program, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error}") from error


@dataclass(frozen=True)
class GenerateJob:
    """What all programs that one command asks for have in common.

    Attributes:
        sampler: who is asked.
        options: how to judge.
        sampling: how answers are drawn.
        trace: where judged answers are kept.
    """

    sampler: Sampler
    options: Options
    sampling: Sampling
    trace: Path | None

    def run(self, code: str, k: int, rounds: int) -> Generation:
        """Ask for a program, tell how it goes, and sum up what came of it.

        Raises:
            InputError, CannotJudge: as `generate_triton` does.
        """
        say("starting the judge", err=True)
        generated = generate_triton(
            code,
            sampler=self.sampler,
            k=k,
            rounds=rounds,
            options=self.options,
            sampling=self.sampling,
            trace=self.trace,
            on_event=Shown(self.sampler.name),
        )
        say(summary(generated), err=True)
        return generated


class Shown:
    """Writes on stderr how a generation goes: a listener of `generate_triton`.

    Args:
        name: of the model.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._open = False  # whether the line is not ended

    def __call__(self, event: Event) -> None:
        match event:
            case Asking(turn, answers):
                asked = "an answer" if answers == 1 else f"{answers} answers"
                self._line(f"round {turn}: asking {self.name} for {asked}")
            case Piece(text):
                say(text, err=True, end="")
                self._open = not text.endswith("\n") if text else self._open
            case Answered(done, of):
                if sys.stderr.isatty():
                    say(f"{done}/{of} answers", err=True, end="\r")
                    self._open = True
            case Attempt():
                more = timing_text(event.verdict) if event.is_right else explanation(event)
                first = more.partition("\n")[0]
                line = f"answer {event.number + 1}: {outcome(event)}  {first}".rstrip()
                self._line(line, COLOURS.get(event.status, "red"))

    def _line(self, text: str, colour: str = "") -> None:
        say("\n" * self._open + text, err=True, colour=colour)
        self._open = False


def outcome(attempt: Attempt) -> str:
    """Return an attempt's status and the reason of it."""
    reason = f" ({attempt.verdict.reason})" if attempt.verdict and attempt.verdict.reason else ""
    return attempt.status + reason


def summary(generated: Generation) -> str:
    """Return what the best attempt was proved to do; or, where none is right, how the closest
    failed."""
    attempt, tried = generated.closest, len(generated.attempts)
    which = f"answer {attempt.number + 1} of round {attempt.round}"
    if attempt.verdict and attempt.is_right:
        return "\n".join([f"correct: {which}, of {tried} in all", *_proof(attempt.verdict)])
    found = f"none of {tried} answers is right" if tried > 1 else "the answer is not right"
    return f"{found}; the closest is {which}, {outcome(attempt)}\n{explanation(attempt)}"


def _proof(verdict: Verdict) -> list[str]:
    """Return what a verdict of ``correct`` rests on, line by line."""
    did = verdict.evidence
    launched = sum((did.get("launches") or {}).values())
    lines = [
        f"judged: {verdict.trials} draws in {verdict.backend} on {verdict.device}, "
        f"torch {verdict.torch}, triton {verdict.triton}",
        f"error: at most {verdict.max_abs_error:.3g}, {verdict.error_ratio:.2f} of what is allowed",
        f"kernels: {launched} launched, {did.get('kind')}",
    ]
    if verdict.caveats:
        lines.append(f"not covered: {', '.join(verdict.caveats)}")
    if timing := timing_text(verdict):
        lines.append(f"time: {timing}")
    return lines
