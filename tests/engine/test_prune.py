"""What no run needs goes; what a run needs stays, to the byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from recipe_for_tests import KERNEL, curate, make_recipe

from curate.engine.prune import cache_parts, needless


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files of a folder but the lock, whose line changes with each command."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {path: path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, its sources and the output of its run."""
    folder = tmp_path_factory.mktemp("pristine")
    ran = curate("run", make_recipe(folder), "--output", folder / "output")
    assert ran.exit_code == 0, ran.output
    return folder


@pytest.fixture
def finished(tmp_path: Path, pristine: Path) -> Iterator[tuple[Path, Path]]:
    """A recipe that has run in a folder, and the folder."""
    (recipe,) = pristine.glob("*.yaml")
    yield recipe, shutil.copytree(pristine / "output", tmp_path / "output")
    third(recipe).unlink(missing_ok=True)


def third(recipe: Path) -> Path:
    """Return where a test may put one more source."""
    return recipe.parent / "sources/third.py"


def test_the_cache_is_shown_by_kind(finished: tuple[Path, Path]) -> None:
    _, output = finished
    ran = curate("cache", "--output", output)
    assert ran.exit_code == 0, ran.output
    kinds = [line.split()[0] for line in ran.output.splitlines()]
    assert kinds[-1] == "all" and {"steps", "artifacts", "texts", "runs"} <= set(kinds)
    steps = [path for path in (output / "cache/steps").rglob("*") if path.is_file()]
    (part,) = (part for part in cache_parts(output) if part.kind == "steps")
    assert (part.files, part.size) == (len(steps), sum(path.stat().st_size for path in steps))


def test_a_finished_run_needs_all_that_it_made(finished: tuple[Path, Path]) -> None:
    _, output = finished
    assert needless(output) == {}
    ran = curate("cache", "--prune", "--output", output)
    assert ran.exit_code == 0 and "nothing is removed" in ran.output


def test_what_changed_sources_left_behind_goes(finished: tuple[Path, Path]) -> None:
    recipe, output = finished
    old = set(contents(output / "cache"))
    kernel = KERNEL.format(name="third", formula="x * x * x")
    third(recipe).write_text(kernel)
    assert curate("run", recipe, "--output", output).exit_code == 0
    before = contents(output)
    refused = curate("cache", "--prune", "--output", output)  # nobody answers
    assert "Remove them?" in refused.output and contents(output) == before
    ran = curate("cache", "--prune", "--yes", "--output", output)
    assert ran.exit_code == 0 and "removed" in ran.output, ran.output
    after = contents(output)
    gone = before.keys() - after.keys()
    assert gone and gone <= old and after.items() <= before.items()
    assert len(list((output / "cache/artifacts").iterdir())) == 1
    again = curate("run", recipe, "--output", output)
    assert again.exit_code == 0 and contents(output) == after
    for command in (("show",), ("lost", "split"), ("report",)):
        assert curate(*command, "--output", output).exit_code == 0
    assert needless(output) == {}


def test_a_trial_keeps_its_own(finished: tuple[Path, Path]) -> None:
    recipe, output = finished
    assert curate("run", recipe, "--limit", 1, "--output", output).exit_code == 0
    assert needless(output) == {}


def test_nothing_goes_while_a_run_is_unfinished(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    recipe, output = finished
    third(recipe).write_text(KERNEL.format(name="third", formula="-x"))
    assert curate("run", recipe, "--until", "kernels", "--output", output).exit_code == 0
    before = contents(output)
    ran = curate("cache", "--prune", "--yes", "--output", output)
    assert ran.exit_code == 2 and "last run of 'small' has not finished" in ran.output
    ran = curate("cache", "--prune", "--yes", "--output", tmp_path / "other")
    assert ran.exit_code == 2 and "holds no finished run" in ran.output
    assert contents(output) == before
