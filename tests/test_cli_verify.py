import ast
import io
import json
import re
import shlex
import signal
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import polars as pl
import pytest
import yaml
from click.testing import CliRunner, Result

from curate.cli import main
from curate.verify.__main__ import _parser
from curate.verify.flags import flags, make_options
from curate.verify.verdict import BACKENDS, Candidate, Options, Verdict

ROOT = Path(__file__).parent.parent

STUB = """
import sys, time
from types import ModuleType
from curate.verify.verdict import Verdict
sys.modules["curate.verify.judge"] = judge = ModuleType("curate.verify.judge")
def verify(candidates, options):
    for candidate in candidates:
        time.sleep(0.02)
        yield Verdict(candidate.id, candidate.candidate.partition(":")[0])
judge.verify = verify
import runpy
runpy.run_module("curate.verify", run_name="__main__", alter_sys=True)
"""
"""``python -m curate.verify`` with a judge that believes what the candidate says it is."""


class StubJudge(ModuleType):
    """A judge that believes what the candidate says it is, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__("curate.verify.judge")
        self.asked: list[str] = []
        self.stop_after: int | None = None

    def verify(self, candidates: list[Candidate], options: Options) -> Iterator[Verdict]:
        for candidate in reversed(candidates):
            if self.stop_after == 0:
                raise KeyboardInterrupt
            if self.stop_after is not None:
                self.stop_after -= 1
            self.asked.append(candidate.id)
            status, _, reason = candidate.candidate.partition(":")
            yield Verdict(candidate.id, status, reason or None, trials=options.trials)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> StubJudge:
    stub = StubJudge()
    monkeypatch.setitem(sys.modules, "curate.verify.judge", stub)
    return stub


ROWS = [
    {"id": f"k{i}", "reference": "class Model: ...", "triton": text}
    for i, text in enumerate(
        ["correct", "incorrect:value", "correct", "cheat:no_kernel", "oom"] * 4
    )
]


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def curate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def statuses(path: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["status"] for row in rows}


EXPECTED = {row["id"]: row["triton"].split(":")[0] for row in ROWS}


def test_json_lines_parquet_and_a_data_set_are_the_same_to_the_judge(
    judge: StubJudge, candidates: Path, tmp_path: Path
) -> None:
    frame = pl.DataFrame(ROWS).with_columns(other=1)
    frame.write_parquet(tmp_path / "in.parquet")
    pairs = tmp_path / "data" / "pairs"
    pairs.mkdir(parents=True)
    frame[:12].write_parquet(pairs / "train-00000-of-00001.parquet")
    frame[12:].write_parquet(pairs / "validation-00000-of-00001.parquet")
    for name in ("in.jsonl", "in.parquet", "data"):
        result = curate("verify", tmp_path / name, "--output", tmp_path / f"{name}.verdicts")
        assert result.exit_code == 0, result.output
        assert statuses(tmp_path / f"{name}.verdicts") == EXPECTED
    assert re.search(r"cheat +4 +no_kernel 4", result.output)
    assert re.search(r"all +20", result.output)


def test_programs_get_a_panel_each_and_need_no_output(judge: StubJudge, tmp_path: Path) -> None:
    for name, text in (("ref", "class Model: ..."), ("one", "cheat:no_kernel"), ("two", "oom")):
        (tmp_path / f"{name}.py").write_text(text)
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    result = curate("verify", one, two, "--reference", tmp_path / "ref.py")
    assert result.exit_code == 0, result.output
    assert "cheat: no_kernel" in result.output and "oom" in result.output


def test_a_panel_shows_all_that_a_verdict_rests_on() -> None:
    from rich.console import Console

    from curate.console import verdict_panels

    verdict = Verdict(
        "one.py",
        "cheat",
        "patches_torch",
        caveats=("own_sizes_only",),
        backend="cuda",
        device="NVIDIA H200",
        driver="570.1",
        torch="2.11.0",
        triton="3.6.0",
        trials=8,
        max_abs_error=1.5e-6,
        tolerance=0.25,
        evidence={"names": ["torch.allclose"]},
        findings=({"rule": "patches", "line": 12, "reason": "sets an [attribute] of torch"},),
        compile=[
            {"target": "cuda:90", "ok": True, "registers": 22, "spills": 0, "shared": 512},
            {"target": "hip:gfx90a", "ok": False, "error": "shared_memory", "message": "too much"},
        ],
        timing={"candidate_us": 12.5},
    )
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(verdict_panels([verdict]))
    text = console.export_text()
    for part in (
        "cheat: patches_torch",
        "own_sizes_only",
        "cuda on NVIDIA H200, driver 570.1, torch 2.11.0, triton 3.6.0",
        "8 compared",
        "at most 1.5e-06, 0.25 of what is allowed",
        "torch.allclose",
        "line 12 patches: sets an [attribute] of torch",
        "cuda:90: 22 registers, 0 B spilled, 512 B shared",
        "hip:gfx90a: shared_memory: too much",
        "candidate_us: 12.5",
    ):
        assert part in text


def test_what_is_judged_is_not_judged_again(
    judge: StubJudge, candidates: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    judge.stop_after = 7
    result = curate("verify", candidates, "--output", output)
    assert result.exit_code == 130
    assert "the same command goes on" in result.output
    assert len(statuses(output)) == 7
    judge.stop_after, first = None, list(judge.asked)
    assert curate("verify", candidates, "--output", output).exit_code == 0
    assert statuses(output) == EXPECTED
    assert sorted(judge.asked) == sorted(EXPECTED) and judge.asked[:7] == first
    assert curate("verify", candidates, "--output", output).exit_code == 0
    assert len(judge.asked) == len(EXPECTED)
    assert curate("verify", candidates, "--output", output, "--trials", "3").exit_code == 0
    assert len(judge.asked) == 2 * len(EXPECTED)


def test_shards_merge_to_what_one_run_gives(
    judge: StubJudge, candidates: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / f"{i}.jsonl" for i in (1, 2, 3)]
    for i, part in enumerate(parts, 1):
        assert curate("verify", candidates, "--shard", f"{i}/3", "--output", part).exit_code == 0
    missing = curate("merge", candidates, *parts[:2], "--output", tmp_path / "all.jsonl")
    assert missing.exit_code == 2
    assert f"{len(statuses(parts[2]))} of 20 candidates have no verdict" in missing.output
    assert not (tmp_path / "all.jsonl").exists()
    result = curate("merge", candidates, *parts, "--output", tmp_path / "all.jsonl")
    assert result.exit_code == 0, result.output
    assert list(statuses(tmp_path / "all.jsonl").items()) == list(EXPECTED.items())
    light = subprocess.run(
        [sys.executable, "-m", "curate.verify.merge", candidates, tmp_path / "light.jsonl", *parts],
        check=True,
    )
    assert light.returncode == 0
    assert (tmp_path / "light.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.jsonl"], "say where the verdicts go"),
        (["nowhere.jsonl", "--output", "o.jsonl"], "nowhere.jsonl: cannot be read"),
        (["nowhere.parquet", "--output", "o.jsonl"], "nowhere.parquet: cannot be read"),
        (["nowhere", "--output", "o.jsonl"], "must be .jsonl, .parquet, .py, or a folder"),
        (["empty", "--output", "o.jsonl"], "holds no pairs/*.parquet"),
        (["other.parquet", "--output", "o.jsonl"], "has no column 'triton'"),
        (["one.py"], "needs --reference"),
        (["in.jsonl", "--reference", "one.py", "--output", "o.jsonl"], "is for .py files"),
        (["in.jsonl", "in.jsonl", "--output", "o.jsonl"], "more than one is for .py files"),
        (["in.jsonl", "--output", "in.jsonl"], "is not a line of a verdict file"),
        (["in.jsonl", "--output", "in.jsonl/o.jsonl"], "cannot be written"),
        (["in.jsonl", "--output", "o.jsonl", "--shard", "5/4"], "must be i/n"),
        (["in.jsonl", "--output", "o.jsonl", "--targets", "cuda:1"], "no target 'cuda:1'"),
        (["in.jsonl", "--output", "o.jsonl", "--backend", "tpu"], "'tpu' is not one of 'auto'"),
        (["in.jsonl", "--output", "o.jsonl", "--backend", "compile"], "needs targets"),
    ],
)
def test_bad_input_gets_a_message_and_exit_code_2(
    arguments: list[str],
    message: str,
    judge: StubJudge,
    candidates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    pl.DataFrame({"id": ["a"], "reference": ["r"]}).write_parquet("other.parquet")
    before = candidates.read_bytes()
    result = curate("verify", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert candidates.read_bytes() == before
    assert not judge.asked


def light_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", STUB, *map(str, arguments)]


def test_the_light_command_goes_on_after_being_killed(candidates: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    for stop in (signal.SIGKILL, signal.SIGINT):
        had = len(output.read_bytes().splitlines()) if output.exists() else 0
        process = subprocess.Popen(light_command(candidates, output), stderr=subprocess.PIPE)
        while not output.exists() or output.read_bytes().count(b"\n") < had + 3:
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(stop)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.endswith(b"interrupted; the same command goes on\n") and b"Trace" not in said
    assert len(statuses(output)) < len(EXPECTED)
    done = subprocess.run(light_command(candidates, output), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert statuses(output) == EXPECTED
    assert re.fullmatch(r"correct +8\nincorrect +4\noom +4\ncheat +4\n", done.stdout)
    assert "20/20" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl", "o.jsonl"], "nowhere.jsonl: cannot be read"),
        (["in.jsonl", "in.jsonl"], "is not a line of a verdict file"),
        (["in.jsonl", "o.jsonl", "--shard", "0/4"], "must be i/n"),
        (["in.jsonl", "o.jsonl", "--targets", "cuda:1"], "no target 'cuda:1'"),
        (["in.jsonl", "o.jsonl", "--trials", "0"], "trials 0: must be greater than 0"),
        (["in.jsonl"], "required: OUT.jsonl"),
    ],
)
def test_bad_input_of_the_light_command(
    arguments: list[str], message: str, candidates: Path, tmp_path: Path
) -> None:
    ran = subprocess.run(light_command(*arguments), capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 2
    assert message in ran.stderr and "Traceback" not in ran.stderr


def test_both_commands_have_the_same_options_and_defaults() -> None:
    light = _parser().parse_args(["in.jsonl", "out.jsonl"])
    context = main.commands["verify"].make_context("verify", ["in.jsonl"])
    for flag in flags():
        assert getattr(light, flag.name) == context.params[flag.name] == flag.default
    assert make_options(vars(light)) == make_options(context.params) == Options()


def test_every_flag_sets_its_option() -> None:
    words = "--backend cuda --targets cuda:80,hip:gfx942 --trials 3 --operations 7 --no-vary-sizes"
    words += " --timing --timeout 1.5 --memory-mb 99 --sandbox none --workers 3"
    expected = Options(
        "cuda", ("cuda:80", "hip:gfx942"), 3, 7, False, True, 1.5, 99, sandbox=False, workers=3
    )
    context = main.commands["verify"].make_context("verify", ["in.jsonl", *words.split()])
    assert make_options(context.params) == expected
    light = _parser().parse_args(["in.jsonl", "out.jsonl", *words.split()])
    assert make_options(vars(light)) == expected


LIGHT = {"torch", "triton", "numpy", "curate"}


def test_the_judge_imports_nothing_but_the_standard_library_torch_and_triton() -> None:
    for path in sorted((ROOT / "curate" / "verify").glob("*.py")):
        if path.name == "steps.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = name.partition(".")[0]
                assert root in LIGHT or root in sys.stdlib_module_names, f"{path.name}: {name}"


# --- the workflow and the documents give commands that there are ------------------------------


def parse_command(words: list[str]) -> None:
    """Parse a command line as the program would, or raise."""
    if words[0] == "curate":
        command = main.commands[words[1]]
        command.make_context(words[1], words[2:])
    elif words[:3] == ["python", "-m", "curate.verify"]:
        given = _parser().parse_args(words[3:])
        make_options(vars(given))


def run_lines(workflow: dict[str, Any]) -> Iterator[str]:
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            yield from step.get("run", "").splitlines()


def test_the_label_workflow_gives_commands_that_there_are() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/label.yml").read_text())
    inputs = workflow[True]["workflow_dispatch"]["inputs"]  # YAML 1.1 reads the key "on" as true
    commands = [line for line in run_lines(workflow) if line.startswith("curate ")]
    assert [shlex.split(line)[1] for line in commands] == ["verify", "merge"]
    assert set(inputs["backend"]["options"]) <= set(BACKENDS)
    for backend, timing in product(inputs["backend"]["options"], ("--timing", "--no-timing")):
        given = {"CANDIDATES": "in.jsonl", "SHARD": "2", "SHARDS": "4"}
        given |= {"BACKEND": backend, "TIMING": timing}
        for line in commands:
            words = shlex.split(string.Template(line).substitute(given))
            parse_command(words)
            if words[1] == "verify":
                params = main.commands["verify"].make_context("verify", words[2:]).params
                assert params["shard"] == "2/4" and params["timing"] == (timing == "--timing")
                assert make_options(params).backend == backend


def test_the_label_workflow_lets_no_input_into_a_script_and_asks_for_little() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/label.yml").read_text())
    assert not [line for line in run_lines(workflow) if "${{" in line]
    assert set(workflow["permissions"].values()) == {"read"}
    assert workflow["concurrency"]
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"]
        assert all(re.search(r"@v\d+$", step["uses"]) for step in job["steps"] if "uses" in step)


def fenced_commands(path: Path) -> list[str]:
    blocks = re.findall(r"^```\w*\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if re.match(r"(srun )?(curate|python -m curate)", line)]


@pytest.mark.parametrize("name", ["README.md", "docs/verify.md"])
def test_documents_give_commands_that_there_are(name: str) -> None:
    commands = fenced_commands(ROOT / name)
    assert any("verify" in line for line in commands)
    for line in commands:
        text = re.sub(r"\$\w+", "1", line.removeprefix("srun "))
        try:
            parse_command(shlex.split(text, comments=True))
        except (click.UsageError, SystemExit) as error:
            raise AssertionError(f"{name}: {line}") from error
