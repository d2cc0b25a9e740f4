from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from curate.clean.fingerprint import read_benchmark
from curate.cli.main import main

PROGRAM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) + x
"""


def test_a_folder_is_fingerprinted(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/mlp.py").write_text(PROGRAM)
    (tmp_path / "tasks/empty.py").write_text("")
    file = tmp_path / "out/mine.json"
    header = ["--version", "abc", "--url", "https://example.org/mine", "--license", "MIT"]
    arguments = ["fingerprint", str(tmp_path / "tasks"), "--name", "mine", *header]
    result = CliRunner().invoke(main, [*arguments, "--output", str(file)])
    assert result.exit_code == 0, result.output
    assert "not in it: empty.py: no part has 40 nodes, and it is no problem" in result.output
    assert "1 items, 2 parts" in result.output
    benchmark = read_benchmark(file)
    assert benchmark.name == "mine"
    assert (benchmark.version, benchmark.url) == ("abc", "https://example.org/mine")
    assert benchmark.license == "MIT"
    assert "Linear" not in file.read_text()


def test_an_item_of_a_few_lines_is_known_by_what_it_computes(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.sin(x)\n\n\ndef get_inputs():\n    return [torch.rand(4)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    file = tmp_path / "mine.json"
    result = CliRunner().invoke(
        main, ["fingerprint", str(tmp_path / "small.py"), "--name", "mine", "--output", str(file)]
    )
    assert result.exit_code == 0, result.output
    assert "1 items, 0 parts" in result.output and "by what they compute" in result.output
    (item,) = read_benchmark(file).items.values()
    assert item.computes[0].values and "sin" not in file.read_text()


def test_the_file_is_named_after_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlp.py").write_text(PROGRAM)
    result = CliRunner().invoke(main, ["fingerprint", "mlp.py", "--name", "mine"])
    assert result.exit_code == 0, result.output
    assert Path("mine.json").is_file()


def test_bad_input_gets_a_message_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "mlp.py").write_text(PROGRAM)
    for arguments, message in (
        ([str(tmp_path / "none.py"), "--name", "mine"], "none.py: cannot be read"),
        ([str(tmp_path / "mlp.py"), "--name", "Not A Name"], "--name Not A Name"),
        (
            [str(tmp_path / "mlp.py"), "--name", "mine", "--output", str(tmp_path / "mlp.py/x")],
            "cannot be written",
        ),
    ):
        result = CliRunner().invoke(main, ["fingerprint", *arguments])
        assert result.exit_code == 2, result.output
        assert message in result.output
        assert "Traceback" not in result.output
