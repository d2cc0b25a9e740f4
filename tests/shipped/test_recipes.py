"""The recipes that come with curate are found by name, from any folder, and can be copied."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from recipe_for_tests import curate, make_recipe

from curate.engine.processes.worker import load_step, step_reference
from curate.recipe import load_recipe
from curate.shipped.find import recipe_folder, recipe_names
from curate.verify.steps.verify_cuda import VerifyCuda

ROOT = Path(__file__).parents[2]


def test_every_recipe_is_found_by_its_name_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe_names() == sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))
    for name in recipe_names():
        assert load_recipe(Path(name)).name == name
        checked = curate("check", name)
        assert checked.exit_code == 0, checked.output


def test_a_file_of_the_name_comes_first_and_a_folder_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("triton_fim").mkdir()
    assert load_recipe(Path("triton_fim")).name == "triton_fim"
    Path("triton_fim").rmdir()
    make_recipe(tmp_path, "mine").rename("triton_fim")
    assert load_recipe(Path("triton_fim")).name == "mine"


def test_a_name_that_is_nearly_one_gets_a_hint() -> None:
    ran = curate("check", "kernelbook_mesages")
    assert ran.exit_code == 2
    assert "did you mean 'kernelbook_messages'? `curate recipes` lists" in ran.output
    ran = curate("check", "recipes/kernelbok_messages.yaml")
    assert "did you mean 'kernelbook_messages'?" in ran.output
    assert "; `curate recipes` lists" in curate("run", "something else").output


def test_recipes_lists_each_with_what_it_says_of_itself() -> None:
    ran = curate("recipes")
    assert ran.exit_code == 0
    lines = ran.output.splitlines()
    starts = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert starts == recipe_names()
    assert "PyTorch modules and the Triton programs that replace" in ran.output


def test_bindings_lie_next_to_the_recipe_for_the_workers_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(Path("cuda_to_triton"))
    (step,) = (step for step in recipe.steps if isinstance(step, VerifyCuda))
    files = list((recipe_folder() / "cuda_references").glob("*/*.py"))
    assert len(step.options()["sha256"]) == len(files) > 10
    assert load_step(step_reference(step)).options() == step.options()
    assert str(ROOT) not in str(recipe.model_dump(mode="json"))  # what run.json holds of it


@pytest.mark.parametrize("name", recipe_names())
def test_a_copy_is_the_same_recipe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = curate("init", name, "new/mine.yaml")
    assert made.exit_code == 0, made.output
    copy, shipped = load_recipe(Path("new/mine.yaml")), load_recipe(Path(name))
    assert [s.options() for s in copy.steps] == [s.options() for s in shipped.steps]
    assert copy.model_dump() == shipped.model_dump()
    text = Path("new/mine.yaml").read_text()
    assert (
        "$schema" not in text
        and text.rstrip("\n") in (recipe_folder() / f"{name}.yaml").read_text()
    )
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_copy_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cuda_references").mkdir()
    Path("cuda_references/mine").write_text("mine")
    ran = curate("init", "cuda_to_triton")
    assert ran.exit_code == 2 and "cuda_references: is there already" in ran.output
    assert not Path("cuda_to_triton.yaml").exists()
    Path("triton_fim.yaml").write_text("mine")
    ran = curate("init", "triton_fim")
    assert ran.exit_code == 2 and Path("triton_fim.yaml").read_text() == "mine"
    ran = curate("init", "triton_fin")
    assert ran.exit_code == 2 and "did you mean 'triton_fim'?" in ran.output


def test_pin_does_not_write_into_what_is_installed() -> None:
    before = (recipe_folder() / "triton_fim.yaml").read_text()
    ran = curate("pin", "triton_fim", "timm")
    assert ran.exit_code == 2 and "curate init triton_fim" in ran.output
    assert (recipe_folder() / "triton_fim.yaml").read_text() == before


@pytest.mark.network
def test_a_wheel_holds_the_recipes_and_the_files_they_need(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "empty").mkdir()
    for arguments in (["check", "cuda_to_triton"], ["init", "cuda_to_triton"], ["recipes"]):
        ran = subprocess.run(
            [sys.executable, "-m", "curate", *arguments],
            cwd=tmp_path / "empty",
            env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
    kept = {path.name for path in (tmp_path / "empty/cuda_references").rglob("*.py")}
    assert kept == {path.name for path in (ROOT / "recipes/cuda_references").rglob("*.py")}
