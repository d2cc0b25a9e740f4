"""`curate generate` as a user meets it: files, streams, exit codes, the terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from scripted_model import (
    BROKEN,
    CHEAT,
    OPTIONS,
    REFERENCE,
    RIGHT,
    WRONG,
    Scripted,
    programs,
)

from curate.generate import sampling
from curate.generate.sampling import Message, Sampling, Stream
from curate.generate.trace import read_trace
from curate.teacher.program import program_of
from curate.teacher.template import fence
from curate.train.__main__ import main

pytest_plugins = ["shared_judge"]

JUDGE = ["--backend", "cpu", "--trials", "2", "--workers", "1", "--no-vary-sizes"]
PROGRAM = program_of(fence(RIGHT))
ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(REFERENCE)
    return tmp_path


def curate(
    monkeypatch: pytest.MonkeyPatch, model: Scripted | None, *arguments: str, judge: bool = True
) -> Result:
    """Run the command with a model that answers by a script; None where none may be asked."""

    def make_sampler(path: str | None, endpoint: str | None, engine: str) -> Scripted:
        assert model, "a model is loaded"
        return model

    monkeypatch.setattr(sampling, "make_sampler", make_sampler)
    words = ["generate", *arguments, *(JUDGE if judge else ())]
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_stdout_holds_the_program_and_nothing_else(
    here: Path, judge: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scripted(programs(BROKEN, WRONG), programs(RIGHT, WRONG))
    ran = curate(monkeypatch, model, "m.py", "--model", "m", "-k", "2", "--rounds", "2")
    assert ran.exit_code == 0
    assert ran.stdout == PROGRAM
    for words in (
        "round 2: asking scripted for 2 answers",
        "answer 1: compile_error (SyntaxError)",
    ):
        assert words in ran.stderr
    assert "correct: answer 1 of round 2, of 4 in all" in ran.stderr
    assert "kernels: 1 launched, pure_triton" in ran.stderr


def test_the_program_goes_to_a_file_where_asked(
    here: Path, judge: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scripted(programs(RIGHT))
    ran = curate(monkeypatch, model, "m.py", "--model", "m", "-k", "1", "--output", "new.py")
    assert ran.exit_code == 0 and not ran.stdout
    assert Path("new.py").read_text() == PROGRAM
    assert programs(RIGHT)[0].strip() in ran.stderr  # as it was written


def test_where_none_is_right_the_closest_is_told_of(
    here: Path, judge: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scripted([*programs(CHEAT, WRONG), "I am sorry."])
    ran = curate(monkeypatch, model, "m.py", "--model", "m", "-k", "3", "--output", "new.py")
    assert ran.exit_code == 1 and not ran.stdout and not Path("new.py").exists()
    assert "none of 3 answers is right; the closest is answer 2 of round 1" in ran.stderr
    assert "answer 3: no_code" in ran.stderr
    assert "100.0% of the values are wrong" in ran.stderr


def test_what_a_model_writes_does_not_steer_the_terminal(
    here: Path, judge: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scripted(["\x1b]0;owned\x07 no\r\u009bK"])
    words = ["generate", "m.py", "--model", "m", "-k", "1", *JUDGE]
    monkeypatch.setattr(sampling, "make_sampler", lambda path, endpoint, engine: model)
    ran = CliRunner().invoke(main, words, color=True)
    assert ran.exit_code == 1
    assert r"\x1b]0;owned\x07 no\r\x9bK" in ran.stderr


def test_ctrl_c_leaves_the_trace_whole(
    here: Path, judge: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Scripted):
        def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Stream:
            if len(conversation) > 2:
                raise KeyboardInterrupt
            return (yield from super().stream(conversation, sampling))

    words = ["m.py", "--model", "m", "-k", "1", "--rounds", "3", "--trace", "t.jsonl"]
    ran = curate(monkeypatch, Interrupted(programs(WRONG)), *words)
    assert ran.exit_code == 130 and not ran.stdout
    assert [attempt.status for attempt in read_trace(Path("t.jsonl"))] == ["incorrect"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["m.py"], "say which model to ask"),
        (["none.py", "--model", "m"], "none.py: cannot be read"),
        (["bad.py", "--model", "m"], "bad.py: defines no Model"),
        (["--model", "m"], "say which FILE"),
        (["m.py", "--model", "m", "--rounds", "0"], "0 is not in the range"),
        (["m.py", "--model", "m", "--backend", "compile", "--targets", "cuda:90"], "runs nothing"),
        (["m.py", "--model", "m", "--timing", "--backend", "cpu"], "timing needs a device"),
        (["m.py", "--model", "m", "--output", "no/new.py"], "no: there is no such folder"),
        (["m.py", "--model", "m", "--trace", "bad.py"], "bad.py:1: is not"),
    ],
)
def test_what_is_wrong_with_the_input_is_said_before_a_model_is_asked(
    words: list[str], message: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("bad.py").write_text("class Net: ...\n")
    ran = curate(monkeypatch, None, *words, judge=False)
    assert ran.exit_code == 2 and not ran.stdout
    assert message in ran.stderr


# --- the terminal -----------------------------------------------------------------------------

SESSION = """
import sys
from contextlib import contextmanager

from curate.generate import generate
from curate.generate import sampling
from curate.train.__main__ import main
from curate.verify import Verdict


class Model:
    name = "scripted"

    def sample(self, conversations, sampling, each):
        return [[self.answer(talk)] * sampling.n for talk in conversations]

    def stream(self, conversation, sampling):
        sample = self.answer(conversation)
        yield sample.text
        return sample

    def answer(self, talk):
        word = "wrong" if "spoil" in talk[1]["content"] else "right"
        text = f"```python\\nclass ModelNew: ...  # {word}\\n```\\n"
        return sampling.Sample(text, "stop")


class Judge:
    def run(self, candidates):
        for candidate in candidates:
            right = "right" in candidate.candidate
            yield Verdict(
                candidate.id, "correct" if right else "crash", max_abs_error=0.0, error_ratio=0.0
            )


@contextmanager
def open_judge(options):
    yield Judge()


generate.open_judge = open_judge
sampling.make_sampler = lambda model, endpoint, engine: Model()
main(["generate", "--model", "m"])
"""


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, code: str, folder: Path) -> None:
        self.master, slave = pty.openpty()
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.said = ""

    def wait_for(self, words: str) -> str:
        """Return what is said up to some words, and forget it."""
        end = time.monotonic() + 120
        while words not in self.said:
            ready, _, _ = select.select([self.master], [], [], end - time.monotonic())
            assert ready, f"{words!r} does not come after: {self.said!r}"
            self.said += os.read(self.master, 4096).decode().replace("\r\n", "\n")
        before, _, self.said = self.said.partition(words)
        return before

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())


def test_modules_are_pasted_in_the_terminal(tmp_path: Path) -> None:
    terminal = Terminal(SESSION, tmp_path)
    assert ":rounds N" in terminal.wait_for(">>> ")
    terminal.type(":k 2\n")
    assert "k = 2" in terminal.wait_for(">>> ")
    terminal.type(":save a.py\n")
    assert "there is none yet" in terminal.wait_for(">>> ")
    terminal.type("class Net: ...\n.\n")
    assert "defines no Model, no get_inputs" in terminal.wait_for(">>> ")
    terminal.type(REFERENCE.lstrip() + ".\n")
    said = terminal.wait_for(">>> ")
    assert "asking scripted for 2 answers" in said and "correct: answer 1 of round 1" in said
    assert said.endswith("class ModelNew: ...  # right\n")
    terminal.type(":k 1\n")
    terminal.wait_for(">>> ")
    terminal.type("# spoil\n" + REFERENCE + "\x04")  # Ctrl-D
    assert "the answer is not right" in terminal.wait_for(">>> ")
    terminal.type(":save a.py\n")
    assert "written to a.py" in terminal.wait_for(">>> ")
    assert (tmp_path / "a.py").read_text() == "class ModelNew: ...  # right\n"
    terminal.type(":quit\n")
    assert terminal.process.wait(timeout=60) == 0
    os.close(terminal.master)


# --- all of it --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.weekly
def test_an_endpoint_is_asked_until_the_judge_says_correct(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="openai is not installed (pip install '.[teacher]')")
    from teacher_stand_in import KEY, Asked, Reply, StandIn

    answers = programs(CHEAT, WRONG, RIGHT)

    def script(asked: Asked, times: int) -> Reply:
        return Reply(answers[(len(asked.body["messages"]) - 2) // 2])

    (tmp_path / "m.py").write_text(REFERENCE)
    words = ["m.py", "--model", "small", "-k", "1", "--rounds", "3", "--trace", "t.jsonl", *JUDGE]
    with StandIn(script).serving() as endpoint:
        ran = subprocess.run(
            [sys.executable, "-m", "curate.train", "generate", *words, "--endpoint", endpoint.url],
            cwd=tmp_path,
            env=os.environ | {"OPENAI_API_KEY": KEY, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == PROGRAM
    assert all(answer.strip() in ran.stderr for answer in answers)
    assert [asked.body["stream"] for asked in endpoint.asked] == [True] * 3
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["verdict"]["status"] for row in rows] == ["cheat", "incorrect", "correct"]
    assert rows[-1]["model"] == "small" and rows[-1]["verdict"]["trials"] >= OPTIONS.trials
