import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from recipe_for_tests import KERNEL, curate, data_line, make_recipe, start

from curate.cli.main import main
from curate.engine.processes.sandbox import bubblewrap
from curate.terminal import progress

ROOT = Path(__file__).parents[2]


def test_every_command_and_option_has_help_and_a_place_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for name, command in main.commands.items():
        assert command.help, f"curate {name} has no help"
        assert f"curate {name}" in readme, f"README does not name curate {name}"
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"curate {name} {option.opts} has no help"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["check", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["why", "abc"], "holds no run yet"),
        (["show"], "holds no run yet"),
        (["lost", "inputs"], "holds no run yet"),
        (["run", "nowhere.yaml", "--only", "a", "--until", "b"], "exclude each other"),
        (["run", "nowhere.yaml", "--limit", "0"], "limit"),
        (["show", "-n", "-1"], "-1 is not in the range"),
        (["show", "-n", "0"], "0 is not in the range"),
        (["lost", "dedupe", "-n", "-5"], "-5 is not in the range"),
    ],
)
def test_bad_input_gets_a_message_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    if arguments[0] != "check":
        arguments = [*arguments, "--output", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_an_option_that_does_not_fit_is_the_users_to_mend(tmp_path: Path) -> None:
    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    for arguments, message in (
        (("--until", "nope"), "the recipe has no single step 'nope'; it has local, licenses#1"),
        (("--until", "closre"), "no single step 'closre'; did you mean 'closure'? It has"),
        (("--only", "split"), "step local before it is not done"),
    ):
        ran = curate("run", recipe, "--output", output, *arguments)
        assert ran.exit_code == 2, ran.output
        assert message in ran.output


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EFBIG, errno.EDQUOT])
def test_a_disk_that_takes_no_more_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    monkeypatch.setattr(os, "fsync", refuse)
    ran = curate("run", recipe, "--output", output)
    assert ran.exit_code == 2, ran.output
    (line,) = ran.output.strip().splitlines()
    assert str(output) in line and os.strerror(code) in line
    assert not [path for path in output.rglob("*") if ".tmp-" in path.name]


def test_a_limit_on_the_size_of_files_is_one_message(tmp_path: Path) -> None:
    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    command = f"ulimit -f 20; exec {sys.executable} -m curate run {recipe} --output {output}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert ran.returncode == 2, ran.stderr
    assert "ulimit -f" in ran.stderr and "Traceback" not in ran.stderr
    assert not [path for path in output.rglob("*") if ".tmp-" in path.name]
    unlimited = curate("run", recipe, "--output", output)
    assert unlimited.exit_code == 0, unlimited.output


def test_a_finished_run_is_repeated_where_nothing_can_be_written(tmp_path: Path) -> None:
    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    first = curate("run", recipe, "--output", output)
    command = ["run", recipe, "--output", output, "--sandbox", "none"]
    again = read_only(output, *command)
    assert again.returncode == 0, again.stderr
    assert data_line(again.stdout) == data_line(first.output)
    changed = read_only(output, *command, "--set", "seed=1")
    assert changed.returncode == 2, changed.stderr
    (line,) = changed.stderr.strip().splitlines()
    assert str(output) in line and "Read-only file system" in line
    new = read_only(tmp_path, "run", recipe, "--output", tmp_path / "new")
    assert new.returncode == 2 and "Read-only file system" in new.stderr


def read_only(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command where a folder is mounted for reading."""
    mounts = ["--dev-bind", "/", "/", "--ro-bind", folder, folder]
    command = [bubblewrap(), *mounts, sys.executable, "-m", "curate", *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True)


def test_an_output_under_a_file_is_one_message(tmp_path: Path) -> None:
    recipe, file = make_recipe(tmp_path), tmp_path / "file"
    file.write_text("mine")
    ran = curate("run", recipe, "--output", file / "x")
    assert ran.exit_code == 2
    assert str(file) in ran.output and "choose another folder" in ran.output


@pytest.mark.parametrize("arguments", [["--help"], ["prompts"], ["schema"]])
def test_a_standard_output_that_takes_nothing_is_one_message(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "curate", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "curate: standard output: No space left on device; make room on the disk"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_run_with_a_message_and_no_child(tmp_path: Path, number: int) -> None:
    recipe = make_recipe(tmp_path)
    for n in range(500):  # so that it has not ended by then on any machine
        kernel = KERNEL.format(name=f"k{n}", formula=f"x * {n}")
        (tmp_path / f"sources/k{n}.py").write_text(kernel)
    run = start("run", recipe, "--output", tmp_path / "output")
    lock = tmp_path / "output/cache/lock"
    while not (lock.exists() and lock.read_text()):
        time.sleep(0.05)
    time.sleep(0.5)
    run.send_signal(number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 128 + number, said
    assert "the same command goes on where it stopped" in said
    assert "Traceback" not in said
    assert not children_that_name(tmp_path)


def children_that_name(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in (process / "cmdline").read_text():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_an_interrupt_while_modules_are_imported_is_quiet(tmp_path: Path) -> None:
    slow = tmp_path / "click.py"  # what is imported first of all that takes long
    slow.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = subprocess.run(
        [sys.executable, "-m", "curate", "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    assert (ran.returncode, ran.stderr) == (130, "")


def test_a_slow_step_says_how_far_it_is_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(tmp_path)
    quick = curate("run", recipe, "--output", tmp_path / "quick")
    assert " of 2 done" not in quick.stderr  # no step took half a minute
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    slow = curate("run", recipe, "--output", tmp_path / "slow")
    lines = slow.stderr.splitlines()
    (first,) = (line for line in lines if line.startswith("closure: 1 of 2 done"))
    assert re.fullmatch(r"closure: 1 of 2 done, [\d.]+/s, 0:00:\d\d left", first)
    (last,) = (line for line in lines if line.startswith("closure: 2 of 2 done"))
    assert re.fullmatch(r"closure: 2 of 2 done, [\d.]+/s", last)
    assert "\x1b" not in slow.stderr and "of 2 done" not in slow.stdout


@pytest.mark.weekly
def test_names_in_utf8_are_read_in_any_locale(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    sources = tmp_path / "sources"
    (sources / "double.py").rename(sources / "größe.py")
    expected = curate("run", recipe, "--output", tmp_path / "one")
    run = start("run", recipe, "--output", tmp_path / "two", LC_ALL="C", PYTHONUTF8="0", LANG="C")
    printed, said = run.communicate()
    assert run.returncode == 0, said
    assert data_line(printed) == data_line(expected.output)


HEAVY = {"torch", "triton", "polars", "pyarrow", "datasets", "pydantic", "numpy", "rich"}


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["run", "--help"],
        ["verify", "-h"],
        ["train", "-h"],
        ["nosuch"],
        ["run", "--nosuch"],
        [("bash", "curate ver")],
        [("bash", "curate run --exec")],
        [("zsh", "curate run kern")],
        [("fish", "curate lost ")],
    ],
    ids=str,
)
def test_help_and_completion_start_without_what_takes_long(words: list[str]) -> None:
    program = (
        "import sys\nfrom curate.cli.main import main\n"
        "try: main(prog_name='curate')\n"
        f"finally: print('heavy:', sorted({HEAVY} & set(sys.modules)), file=sys.stderr)\n"
    )
    variables = {}
    if isinstance(words[0], tuple):
        (shell, line), words = words[0], []
        typed = line.split(" ")
        variables = {"_CURATE_COMPLETE": f"{shell}_complete", "COMP_WORDS": line}
        variables["COMP_CWORD"] = typed[-1] if shell == "fish" else str(len(typed) - 1)
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    assert ran.stderr.strip().splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("name", [None, *main.commands])
def test_help_has_a_short_form(name: str | None) -> None:
    ran = curate(*filter(None, [name]), "-h")
    assert ran.exit_code == 0, ran.output
    assert "-h, --help" in ran.output


def completions(command: str, shell: str = "zsh", **variables: str) -> list[str]:
    """Return what the shell offers after a command line, the last word of which is begun."""
    typed = command.split(" ")
    ran = CliRunner().invoke(
        main,
        prog_name="curate",
        env={
            "_CURATE_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": command,
            "COMP_CWORD": str(len(typed) - 1),
            **variables,
        },
    )
    return ran.output.splitlines()[1::3]


def test_a_name_that_is_nearly_one_is_told(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert curate("run", make_recipe(tmp_path), "--output", output).exit_code == 0
    for arguments, message in (
        (("show", "--run", "smal"), "data set 'smal'; did you mean 'small'? It has small"),
        (("lost", "licence"), "no step 'licence'; did you mean 'licenses#2'? It has local, "),
        (("lost", "split", "--reason", "nope"), "no row for the reason 'nope'; it lost no row"),
        (("diff", "small", "smalll"), "data set 'smalll'; did you mean 'small'?"),
        (("optout", "owner: x", "--run", "smal"), "did you mean 'small'?"),
    ):
        ran = curate(*arguments, "--output", output)
        assert ran.exit_code == 2 and message in ran.output, ran.output


def test_a_shell_completes_recipes_runs_and_steps(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert curate("run", make_recipe(tmp_path), "--output", output).exit_code == 0
    assert "triton_fim_small" in completions("curate run triton")
    assert completions(f"curate show --output {output} --run s") == ["small"]
    assert completions(f"curate lost --output {output} lic") == ["licenses#1", "licenses#2"]
    assert completions(f"curate diff --output {output} ") == ["small"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_way_to_complete_is_there(shell: str) -> None:
    page = (ROOT / "docs/commands.md").read_text()
    assert f"_CURATE_COMPLETE={shell}_source curate" in page
    variables = {"_CURATE_COMPLETE": f"{shell}_source"}
    script = CliRunner().invoke(main, prog_name="curate", env=variables)
    assert script.exit_code == 0 and f"_CURATE_COMPLETE={shell}_complete" in script.output
