"""Evaluation: planted answers are counted as what they are, and nothing is done twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from tiny import make_tiny_model

from curate.cli import model_commands as commands
from curate.cli.main import main
from curate.evaluate.evaluate import Contestant, evaluate, fingerprint
from curate.evaluate.folder import SampleFile
from curate.evaluate.live import LiveEvaluation
from curate.evaluate.problems import Problem
from curate.files import InputError
from curate.generate.models import ModelError
from curate.generate.sampling import Message, Progress, Sample, Sampler, Sampling
from curate.problem.problem import EXAMPLE
from curate.teacher.template import fence
from curate.verify import Options

OPTIONS = Options(backend="cpu", workers=1, trials=2, memory_mb=1024)

REFERENCE, RIGHT = EXAMPLE
OTHER = REFERENCE.replace("x + 1", "x + 3")


def changed(old: str, new: str) -> str:
    assert old in RIGHT
    return RIGHT.replace(old, new)


WRONG = changed("x + 1, mask", "x + 2, mask")
ODD = changed("tl.load(x_ptr", "tl.laod(x_ptr")
FALLBACK = changed("        return out", "        return x + 1")
NO_KERNEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
PLAIN_WRONG = NO_KERNEL + "        return x + 7\n"

PLANTED = [
    Sample(f"Here it is.\n{fence(RIGHT)}", "stop"),
    Sample(fence(RIGHT), "stop"),  # the same program in other words
    Sample(fence(WRONG), "stop"),
    Sample(fence(FALLBACK), "stop"),
    Sample(fence(ODD), "stop"),
    Sample(fence(RIGHT + "class (:\n"), "stop"),
    Sample(RIGHT, "stop"),  # no fence
    Sample(fence(PLAIN_WRONG), "stop"),
    Sample("I would use tl.load and tl.store.", "stop"),
    Sample(fence(RIGHT)[:400], "length"),
    Sample(fence(RIGHT) + "This program", "length"),  # cut after a whole program
]


class Scripted:
    """Answers each module with what is planted for it."""

    name = "scripted"

    def __init__(self, answers: Callable[[str], list[Sample]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def sample(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        progress: Progress = lambda index, samples: None,
    ) -> list[list[Sample]]:
        found = []
        for index, turns in enumerate(conversations):
            assert [turn["role"] for turn in turns] == ["system", "user"]
            self.asked.append(turns[-1]["content"])
            found.append(self.answers(turns[-1]["content"])[: sampling.n])
            progress(index, found[-1])
        return found

    def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Iterator[str]:
        yield self.answers(conversation[-1]["content"])[0].text


def planted(question: str) -> list[Sample]:
    return PLANTED if "x + 1" in question else [Sample("Hello.", "stop")] * len(PLANTED)


def only_words(question: str) -> list[Sample]:
    return [Sample("Hello.", "stop")] * len(PLANTED)


PROBLEMS = [Problem("add", REFERENCE, "add.py", RIGHT), Problem("other", OTHER, "other.py")]


def run(folder: Path, samplers: dict[str, Sampler], n: int = len(PLANTED)) -> dict[str, Any]:
    return evaluate(
        [Contestant(label, "nowhere") for label in samplers],
        PROBLEMS,
        folder,
        Sampling(n=n),
        OPTIONS,
        open_sampler=lambda contestant: samplers[contestant.label],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("eval") / "out"


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    return run(folder, {"base": Scripted(only_words), "tuned": Scripted(planted)})


def test_planted_answers_are_counted_as_what_they_are(results: dict[str, Any]) -> None:
    outcomes = results["models"]["tuned"]["by_problem"]["add"]["outcomes"]
    assert outcomes == [
        *("correct", "correct", "incorrect", "cheat", "compile_error", "compile_error"),
        *("correct", "incorrect", "no_program", "cut_off", "correct"),
    ]
    classes = results["models"]["tuned"]["classes"]
    assert classes["no_program"]["answers"] == 1 + len(PLANTED)
    assert sum(c["answers"] for c in classes.values()) == 2 * len(PLANTED)
    assert results["models"]["base"]["classes"] == {
        "no_program": {"answers": 2 * len(PLANTED), "reasons": {}}
    }


def test_what_ran_has_compiled_unless_it_launched_no_kernel(results: dict[str, Any]) -> None:
    # Right four times, wrong once and the cheat; not the wrong program in plain PyTorch.
    by_problem = results["models"]["tuned"]["by_problem"]
    assert (by_problem["add"]["correct"], by_problem["add"]["compiled"]) == (4, 6)
    assert (by_problem["other"]["correct"], by_problem["other"]["compiled"]) == (0, 0)


def test_metrics_follow_from_the_counts(results: dict[str, Any]) -> None:
    metrics = results["models"]["tuned"]["metrics"]
    assert metrics["pass@1"]["value"] == pytest.approx(4 / 11 / 2)
    assert metrics["compile@1"]["value"] == pytest.approx(6 / 11 / 2)
    assert metrics["pass@10"]["value"] == pytest.approx(1 / 2)
    assert metrics["pass@1"]["low"] == 0  # both problems may be the one without a program
    assert metrics["pass@1"]["high"] == pytest.approx(4 / 11)
    assert not any(name.startswith("fast") for name in metrics)  # nothing was timed
    (gained,) = results["differences"]
    assert (gained["from"], gained["to"]) == ("base", "tuned")
    assert gained["metrics"]["pass@1"]["value"] == pytest.approx(4 / 11 / 2)


def test_signals_are_shares_of_all_answers(results: dict[str, Any]) -> None:
    signals = results["models"]["tuned"]["signals"]
    assert signals["triton_jit"] == pytest.approx(9 / 22)
    assert 0 < signals["token_overlap"] < 1
    assert results["models"]["base"]["signals"]["token_overlap"] == 0


def test_equal_programs_are_judged_once(results: dict[str, Any], folder: Path) -> None:
    lines = (folder / "tuned" / "verdicts.jsonl").read_text().splitlines()
    assert len(lines) == 6  # of eight programs that three times were the same
    assert [json.loads(line)["id"] for line in lines if '"correct"' in line] == ["add#0"]


def test_the_folder_holds_all_of_it(results: dict[str, Any], folder: Path) -> None:
    assert json.loads((folder / "results.json").read_text()) == results
    page = (folder / "results.md").read_text()
    assert "| metric | base | tuned | tuned - base |" in page
    assert "signals, not proof" in page and "Judged with backend cpu on cpu" in page
    svg = (folder / "results.svg").read_text()
    assert "tuned" in svg and "pass@10" in svg
    rows = [json.loads(line) for line in (folder / "tuned/samples.jsonl").read_text().splitlines()]
    assert rows[0] == {
        "problem": "add",
        "number": 0,
        "finish": "stop",
        "text": PLANTED[0].text,
        "program": RIGHT.lstrip("\n"),
    }


def test_the_same_command_asks_and_judges_nothing_again(
    results: dict[str, Any], folder: Path
) -> None:
    files = [*folder.glob("*/*.jsonl")]
    before = {file: file.read_bytes() for file in files}
    again = Scripted(planted)
    assert run(folder, {"base": again, "tuned": again}) == results
    assert run(folder, {}) == results  # the models that are there
    assert again.asked == []
    assert {file: file.read_bytes() for file in files} == before


def test_other_settings_are_refused(results: dict[str, Any], folder: Path) -> None:
    with pytest.raises(InputError, match="n 11 and not 2; give the same options"):
        run(folder, {"base": Scripted(planted)}, n=2)


def test_other_weights_under_a_known_label_are_refused(tmp_path: Path) -> None:
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"one")
    args = (PROBLEMS, tmp_path / "out", Sampling(n=1), OPTIONS)
    scripted = Scripted(only_words)
    for content in (b"one", b"two"):
        weights.write_bytes(content)
        contestant = Contestant.parse(str(weights))
        assert contestant.label == "model"
        if content == b"one":
            evaluate([contestant], *args, open_sampler=lambda c: scripted)
        else:
            with pytest.raises(InputError, match="other weights"):
                evaluate([contestant], *args, open_sampler=lambda c: scripted)


def test_a_model_that_cannot_be_had_is_said_before_any_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(contestant: Contestant) -> Sampler:
        raise ModelError("not installed")

    args = (PROBLEMS, tmp_path, Sampling(n=1), OPTIONS)
    with pytest.raises(ModelError), LiveEvaluation() as live:
        evaluate([Contestant("tuned", "m")], *args, live, open_sampler=refuse)
    assert capsys.readouterr().err == ""


def test_a_folder_is_known_by_its_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = fingerprint(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert fingerprint(tmp_path) == first
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert fingerprint(tmp_path) != first
    assert fingerprint(tmp_path / "no such") is None


def _slow_evaluation(folder: Path, asked: Any) -> None:
    def slow(question: str) -> list[Sample]:
        asked.put(question)
        if "x + 3" in question:
            time.sleep(60)
        return only_words(question)

    run(folder, {"base": Scripted(slow)})


def test_a_kill_loses_no_answer(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # a new one would import torch first
    asked = context.Queue()
    process = context.Process(target=_slow_evaluation, args=(tmp_path / "out", asked))
    process.start()
    assert "x + 1" in asked.get(timeout=60)
    assert "x + 3" in asked.get(timeout=60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    file = tmp_path / "out/base/samples.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"problem": "other", "number": 0, "fini')  # what a kill may leave
    again = Scripted(only_words)
    assert run(tmp_path / "out", {"base": again})["models"]["base"]["answers"] == 2 * len(PLANTED)
    assert len(again.asked) == 1 and "x + 3" in again.asked[0]
    assert file.read_bytes().startswith(whole)


def test_a_file_of_something_else_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"some": "row"}\n')
    with pytest.raises(InputError, match=r"samples\.jsonl:1: is no answer"):
        SampleFile(path, 2)
    assert path.read_text() == '{"some": "row"}\n'


def test_one_process_writes_answers_at_a_time(tmp_path: Path) -> None:
    with (
        SampleFile(tmp_path / "samples.jsonl", 1),
        pytest.raises(InputError, match="another process"),
    ):
        SampleFile(tmp_path / "samples.jsonl", 1)


# --- the command ------------------------------------------------------------------------------


def curate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the form of KernelBench's checkout."""
    root = tmp_path_factory.mktemp("bench")
    for name in ("level1/1_Add", "level1/10_Add", "level1/2_Add", "level2/1_Other"):
        file = root / "KernelBench" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(OTHER if "Other" in name else REFERENCE)
    (root / "src").mkdir()
    (root / "src" / "example.py").write_text(REFERENCE)
    return root


def test_the_whole_path_with_a_tiny_model(
    bench: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    command = ["--bench", bench, "--levels", "1", "--limit", "2", "-n", "2", "--max-tokens", "8"]
    command += ["--backend", "cpu", "--output", tmp_path, "--model", f"tiny={model}"]
    result = curate(*command)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "results.json").read_text())
    assert set(found["problems"]) < {"level1/1_Add", "level1/2_Add", "level1/10_Add"}
    assert len(found["problems"]) == 2
    assert found["models"]["tiny"]["answers"] == 4
    assert "transformers" in found["versions"]
    assert "pass@1" in result.output and "cut_off" in result.output


def test_bad_input_is_one_message_and_exit_code_2(bench: Path, tmp_path: Path) -> None:
    out = ["--output", tmp_path / "out"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    for arguments, message in (
        (["--bench", tmp_path / "nowhere", *out], "must be a folder"),
        (["--bench", bench, "--levels", "7", *out], "holds no problem of level 7"),
        (["--bench", bench, "--levels", "one", *out], "is not a list of numbers"),
        (["--bench", bench, *out], "name one with --model"),
        (["--bench", bench, "--model", "./no-such-model", *out], "no-such-model"),
        (["--bench", bench, "--model", "a b=x y", *out], "a-b-x-y"),
        (["--bench", bench, "--model", "a/m", "--model", "b/m", *out], "two models have one label"),
        (["--bench", bench, "--output", tmp_path / "full"], "is not empty"),
        (["--bench", bench, "--backend", "compile", "--targets", "cuda:90", *out], "runs nothing"),
        (["--bench", bench, "--trials", "0", *out], "trials 0"),
    ):
        result = curate(*arguments)
        assert result.exit_code == 2, (arguments, result.output)
        if "a b=x y" not in arguments:
            assert message in result.output.replace("\n", " "), result.output
        assert "Traceback" not in result.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can time")
def test_what_cannot_be_judged_here_is_said_before_a_model_is_asked(
    bench: Path, tmp_path: Path
) -> None:
    for option in ("--timing", "--backend=cuda"):
        result = curate("--bench", bench, "--output", tmp_path / "out", "--model", "m", option)
        assert result.exit_code == 2 and "Traceback" not in result.output
        assert "device" in result.output or "GPU" in result.output
    assert not (tmp_path / "out").exists()


def test_errors_of_models_are_the_users() -> None:
    assert ModelError in commands.USER_ERRORS
