"""A trial run lies alongside the full one, and every command finds the run that is meant."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from licenses.license_samples import installed_text

from curate import api
from curate.cli.main import main
from curate.formats.dataset.write import read_run

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def fill_{n}(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, {n}, mask=i < n)
"""
RECIPE = """\
name: fills
sources:
  - {source: local, path: src}
steps:
  - step: licenses
  - step: kernels
  - step: closure
  - step: licenses
  - step: split
formats:
  - format: kernels
"""
FULL, TRIAL = Path("output/fills"), Path("output/fills.trial")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(RECIPE)
    Path("src").mkdir()
    Path("src/LICENSE").write_text(installed_text("pydantic"))
    for n in range(3):
        Path(f"src/k{n}.py").write_text(KERNEL.format(n=n))
    return Path("recipe.yaml")


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def rows(folder: Path) -> int:
    run = read_run(folder)
    assert run
    return sum(run["configs"]["kernels"].values())


def command(*words: str) -> str:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("options", [("--limit", "1"), ("--set", "steps.split.test=0.9")])
def test_a_trial_leaves_the_full_data_as_it_is(recipe: Path, options: tuple[str, ...]) -> None:
    command("run", str(recipe))
    full = hashes(FULL)
    told = command("run", str(recipe), *options)
    assert f"a trial run ({' '.join(options)})" in told and f"data: {TRIAL}" in told
    assert hashes(FULL) == full
    trial = hashes(TRIAL)
    assert rows(FULL) == 3 and (rows(TRIAL) == 1) == (options[0] == "--limit")
    for text in ("README.md", "ANALYSIS.md", "report.html"):
        said = (TRIAL / text).read_text()
        assert "A trial run, not the recipe as written" in said and " ".join(options) in said
        assert "A trial run" not in (FULL / text).read_text()
    assert "# fills\n\n**A trial run" in (TRIAL / "README.md").read_text(), "what readers see first"

    # Each again, and with its folder lost: the same bytes.
    for path in (*FULL.rglob("*.parquet"), *TRIAL.rglob("*.parquet")):
        path.unlink()
    command("run", str(recipe))
    command("run", str(recipe), *options)
    assert (hashes(FULL), hashes(TRIAL)) == (full, trial)


def test_commands_read_the_run_that_is_meant(recipe: Path) -> None:
    api.run(recipe)
    api.run(recipe, limit=1)
    assert len(api.show(count=9)) == len(api.show(count=9, run="fills.trial")) == 1
    shown = api.show(count=9, run="fills")
    assert len(shown) == 3
    assert [event.step for event in api.why(shown[-1]["id"], run="fills")[1]][-1] == "split"
    assert api.report() == TRIAL / "report.html"
    assert api.report(run="fills") == FULL / "report.html"
    (limit,) = [c for c in api.diff("fills", "fills.trial").settings if c.name == "limit"]
    assert (limit.old, limit.new) == (None, 1)
    assert api.optout(["path: src/*"]).total == 3, "that of the full run"
    assert api.optout(["path: src/*"], run="fills.trial").total == 1
    with pytest.raises(api.NotFound, match=r"It has fills, fills\.trial"):
        api.show(run="filled")


def test_a_plan_for_a_trial_says_what_it_changes(recipe: Path) -> None:
    api.run(recipe)
    settings = ("steps.split.test=0.9",)
    why = {line.label: line.why for line in api.plan(recipe, settings=settings)}
    assert why["split"].startswith("option test: ") and why["split"].endswith("→ 0.9")
    api.run(recipe, settings=settings)
    assert not any(line.todo for line in api.plan(recipe)), "the full run is done, as it was"
    assert not any(line.todo for line in api.plan(recipe, settings=settings))


def test_two_trials_do_not_pass_for_one_another(recipe: Path) -> None:
    """What they make may be the same; what they say of themselves is not."""
    for seed in (0, 1):
        api.run(recipe, settings=(f"description=seed {seed}",))
        run = read_run(TRIAL)
        assert run and run["settings"] == [f"description=seed {seed}"]
        assert f"--set description=seed {seed}" in (TRIAL / "README.md").read_text()


def test_a_full_run_that_has_not_finished_is_not_passed_over_for_a_trial(recipe: Path) -> None:
    api.run(recipe, until="kernels")
    api.run(recipe, limit=1)
    with pytest.raises(api.NotFound, match=r"output/fills holds no finished run"):
        api.push("alice/fills", dry_run=True)
