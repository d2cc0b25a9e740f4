from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rows import conversations, write_dataset

from curate.cli.main import main
from curate.train.options import TrainOptions

HEAVY = ("pydantic", "polars", "tree_sitter")

NODE = f"""
import sys
sys.modules.update(dict.fromkeys({HEAVY!r}))
import curate.cli.model_commands
assert not {{"torch", "transformers", "trl", "datasets"}} & set(sys.modules), "help would be slow"
from curate.train.__main__ import main
main(sys.argv[1:])
"""


def curate(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(word) for word in arguments])
    return result.exit_code, result.output


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[TrainOptions]:
    """What the command asks for; nothing is trained."""
    asked: list[TrainOptions] = []
    monkeypatch.setattr("curate.train.train.train", lambda options, say: asked.append(options))
    return asked


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), {"method": "lora", "max_length": None, "packing": False}),
        (("--preset", "full"), {"method": "full", "epochs": 10.0, "batch_size": 32}),
        (("--preset", "full", "--epochs", 3), {"method": "full", "epochs": 3.0}),
        (
            ("--preset", "qlora", "--no-truncate"),
            {"method": "qlora", "max_length": 1024, "truncate": False, "accumulation": 16},
        ),
    ],
)
def test_what_is_given_counts_more_than_the_preset(
    told: list[TrainOptions], flags: tuple[object, ...], expected: dict[str, Any]
) -> None:
    code, said = curate("train", "data", "--model", "m", "--output", "o", *flags)
    assert code == 0, said
    assert {name: getattr(told[0], name) for name in expected} == expected


def test_values_that_mean_nothing_are_refused(told: list[TrainOptions]) -> None:
    code, said = curate("train", "data", "--model", "m", "--output", "o", "--epochs", 0)
    assert code == 2 and "epochs 0.0: must be greater than 0" in said and not told


def test_packages_that_are_missing_are_named(
    told: list[TrainOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "curate.generate.models.find_spec", lambda name: None if name == "trl" else 1
    )
    code, said = curate("train", "data", "--model", "m", "--output", "o")
    assert (
        code == 2
        and "needs trl" in said
        and "in a clone of curate: pip install '.[train]'" in said
        and not told
    )


def test_what_cannot_be_trained_ends_in_one_message(tmp_path: Path, tiny: str) -> None:
    data = write_dataset(tmp_path / "data", train=conversations(1))
    for dataset, model, says in (
        (data, "/nowhere", "curate: /nowhere: there is no such folder"),
        ("/nowhere", tiny, "curate: /nowhere: there is no such file or folder"),
        (tmp_path / "no.yaml", tiny, "no.yaml: cannot be read"),
    ):
        code, said = curate("train", dataset, "--model", model, "--output", tmp_path / "out")
        assert code == 2 and says in said and "Traceback" not in said


@pytest.mark.weekly
def test_it_runs_where_nothing_else_of_curate_is_installed(tmp_path: Path, tiny: str) -> None:
    data = write_dataset(tmp_path / "data", train=conversations(2), validation=conversations(1))
    out = tmp_path / "out"
    command = ["train", data, "--model", tiny, "--output", out, "--max-steps", 2]
    ran = subprocess.run(
        [sys.executable, "-c", NODE, *map(str, command)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("train: 2 rows of up to ")
    assert lines[-1] == f"next: curate eval --model {out} --bench DIR"
    assert sum(line.startswith("update ") for line in lines) == 2
    assert (out / "adapter_model.safetensors").exists()
    # Of itself transformers warns where two checkpoints are written within one tick of the clock.
    said = [line for line in ran.stderr.splitlines() if not line.startswith("[transformers]")]
    assert not said, "nothing that is no error is said there"
