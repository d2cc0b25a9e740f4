import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from curate.cli import main

ROOT = Path(__file__).parent.parent


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


def test_the_command_line_starts_without_torch() -> None:
    program = (
        "import sys, curate.cli; print(sorted({'torch', 'triton', 'datasets'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
