"""What `show`, `why`, `lost`, `plan` and `check` tell: to people, and as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from recipe_for_tests import KERNEL, curate, make_recipe
from run_for_tests import walk
from steps_for_tests import Act, Numbers

LABELS = ["local", "licenses#1", "kernels", "closure", "licenses#2", "dedupe", "split"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe and its finished run, in which one row of three was lost."""
    folder = tmp_path_factory.mktemp("look_back")
    recipe = make_recipe(folder)
    (folder / "sources/twin.py").write_text(KERNEL.format(name="twin", formula="x + x"))
    ran = curate("run", recipe, "--output", folder / "output")
    assert ran.exit_code == 0, ran.output
    return folder


def look(folder: Path, *words: object) -> Result:
    return curate(*words, "--output", folder / "output")


def parsed(result: Result, code: int = 0) -> object:
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def lost_id(folder: Path) -> str:
    found = parsed(look(folder, "lost", "dedupe", "--json"))
    (row,) = found["lost"]
    return row["id"]


def test_lost_without_a_step_counts_each_steps_losses(folder: Path) -> None:
    found = parsed(look(folder, "lost", "--json"))
    assert [step["step"] for step in found] == LABELS
    counts = {"step": "dedupe", "rows": 1, "dropped": {"renamed_duplicate": 1}, "failed": {}}
    assert found[LABELS.index("dedupe")] == counts
    assert sum(step["rows"] for step in found) == 1
    shown = look(folder, "lost").output
    (line,) = (line for line in shown.splitlines() if "dedupe" in line)
    assert line.split() == ["dedupe", "1", "renamed_duplicate", "1"]
    assert look(folder, "lost", "--reason", "renamed_duplicate").exit_code == 2


def test_lost_takes_the_name_of_a_step_that_occurs_once(folder: Path, tmp_path: Path) -> None:
    both = look(folder, "lost", "licenses")
    assert both.exit_code == 2
    assert "the run has 2 steps 'licenses': say which of licenses#1, licenses#2" in both.stderr
    output = tmp_path / "output"
    curate("run", folder / "small.yaml", "--output", output, "--until", "licenses#1")
    one = curate("lost", "licenses", "--output", output)
    assert one.exit_code == 0 and one.stdout == "0 rows in all\n"


def test_lost_names_the_reasons_that_there_are(folder: Path) -> None:
    for step, known in (
        ("dedupe", "its reasons are renamed_duplicate 1"),
        ("split", "it lost no row at all"),
    ):
        result = look(folder, "lost", step, "--reason", "nope", "--json")
        assert result.exit_code == 2 and not result.stdout
        assert f"step {step} lost no row for the reason 'nope'; {known}" in result.stderr
    right = look(folder, "lost", "dedupe", "--reason", "renamed_duplicate")
    assert right.exit_code == 0 and right.stdout.endswith("1 row in all\n")


def test_why_never_breaks_an_id(folder: Path) -> None:
    row = lost_id(folder)
    found = parsed(look(folder, "why", row, "--json"))
    events = found["events"]
    assert found["id"] == row and events[0]["fate"] == "read"
    assert events[-1]["reason"] == "renamed_duplicate"
    twin = next(value for value in events[-1]["evidence"].values() if len(str(value)) == len(row))
    for columns in ("30", "80"):
        ran = subprocess.run(
            [sys.executable, "-m", "curate", "why", row, "--output", str(folder / "output")],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": columns},
        )
        for known in {twin, *(event["row_id"] for event in events)}:
            assert known in ran.stdout
        assert "\x1b" not in ran.stdout


def test_show_and_plan_as_json(folder: Path) -> None:
    (row,) = parsed(look(folder, "show", "--json"))
    assert row["kind"] == "kernel" and "tl.store" in row["triton"]
    assert len(parsed(look(folder, "show", "--json", "-n", "2"))) == 2
    plan = parsed(look(folder, "plan", folder / "small.yaml", "--json"))
    assert [line["step"] for line in plan] == LABELS
    assert plan[0] == {"step": "local", "done": 1, "todo": 0, "why": ""}


def test_show_reads_a_data_set_that_came_without_its_cache(folder: Path, tmp_path: Path) -> None:
    rows = parsed(look(folder, "show", "--json", "-n", "9"))
    shutil.copytree(folder / "output" / "small", tmp_path / "small")
    found = parsed(curate("show", "--output", tmp_path, "--json", "-n", "9"))
    assert sorted(row["id"] for row in found) == sorted(row["id"] for row in rows)
    asked = parsed(curate("show", rows[0]["id"][:9], "--output", tmp_path, "--json"))
    assert [(row["triton"], row["split"]) for row in asked] == [
        (rows[0]["triton"], rows[0]["split"])
    ]
    other = curate("show", "--run", "smal", "--output", tmp_path)
    assert other.exit_code == 2 and "did you mean 'small'?" in other.output
    file = next(tmp_path.glob("small/kernels/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    damaged = curate("show", "zzz", "--output", tmp_path)
    assert damaged.exit_code == 2 and f"{file}: is damaged" in damaged.output


def test_numbers_that_json_does_not_have_are_words(tmp_path: Path) -> None:
    walk(tmp_path, sources=[Numbers(count=1, words={0: "odd numbers"})], steps=[Act()]).run()
    (row,) = parsed(curate("lost", "act", "--output", tmp_path, "--json"))["lost"]
    history = parsed(curate("why", row["id"], "--output", tmp_path, "--json"))
    for evidence in (row["evidence"], history["events"][-1]["evidence"]):
        assert evidence == {"ratio": "nan", "most": "inf"}


def test_check_takes_several_recipes(folder: Path) -> None:
    good, bad = folder / "small.yaml", folder / "bad.yaml"
    bad.write_text(good.read_text().replace("step: closure", "step: closur"))
    ran = curate("check", good, bad, folder / "none.yaml")
    assert ran.exit_code == 2
    steps = "licenses, kernels, closure, licenses, dedupe, split"
    assert ran.stdout == f"{good}: good. sources: local; steps: {steps}; formats: kernels\n"
    assert f"{bad}:8: steps.2: unknown step" in ran.stderr and "none.yaml: " in ran.stderr
    first, second = parsed(curate("check", good, bad, "--json"), code=2)
    assert first["mistakes"] == [] and first["steps"] == steps.split(", ")
    assert second["recipe"] == str(bad) and "unknown step" in second["mistakes"][0]
    assert parsed(curate("check", good, "--json")) == [first]


@pytest.mark.parametrize(
    "words", [["why", "zzz"], ["show", "zzz"], ["lost", "nope"], ["plan", "nowhere.yaml"]]
)
def test_errors_are_no_json(folder: Path, words: list[str]) -> None:
    result = look(folder, *words, "--json")
    assert result.exit_code == 2
    assert not result.stdout and result.stderr.startswith("curate: ")
