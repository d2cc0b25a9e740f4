"""A shard in which few rows are new: of the others, what a step made before is taken."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_for_tests import counts, walk
from steps_for_tests import Act, Double, Given, Harvest, Numbers

from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Progress, Walk
from curate.files import sealed
from curate.formats.dataset.write import write_dataset
from curate.step import Context, Step


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A list that gets a step's name and a row's text, of each row that a child is given."""
    rows: list[tuple[str, str]] = []
    run = LocalExecutor.run

    def noted(self: LocalExecutor, step: Step, context: Any, jobs: Iterator[Any]) -> Any:
        work = list(jobs)
        rows.extend((step.name, item.get("text", "")) for job in work for item in job.items)
        yield from run(self, step, context, iter(work))

    monkeypatch.setattr(LocalExecutor, "run", noted)
    return rows


class Heard(Progress):
    """Keeps what is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def acted(output: Path, words: dict[int, str], *steps: Step) -> Walk:
    made = walk(output, sources=[Numbers(count=20, words=words)], steps=list(steps) or [Act()])
    made.progress = Heard()
    return made


def rows_of(given: list[tuple[str, str]], step: str) -> list[str]:
    return [text for name, text in given if name == step]


def test_only_new_rows_and_failures_are_given_to_a_child(
    tmp_path: Path, given: list[tuple[str, str]]
) -> None:
    words = {3: "drop", 4: "raise"}
    acted(tmp_path / "a", words).run()
    given.clear()
    words[7] = "another"
    second, alone = acted(tmp_path / "a", words), acted(tmp_path / "b", words)
    stages = second.run()
    assert rows_of(given, "act") == ["raise", "another"]
    assert counts(stages) == [(20, 20, 20, 0), (20, 18, 18, 0)]
    assert stages[1].reasons("dropped") == {"asked_to": 1}
    assert stages[1].reasons("failed") == {"exception": 1}
    there = alone.run()
    assert write_dataset(second, stages)["files"] == write_dataset(alone, there)["files"]
    lost = [
        [w.store.lost("act", m.key).to_pylist() for m in s[1].manifests]
        for w, s in ((second, stages), (alone, there))
    ]
    assert lost[0] == lost[1]


def test_a_row_that_differs_in_one_column_is_another(
    tmp_path: Path, given: list[tuple[str, str]]
) -> None:
    (unit,) = Numbers(count=10).units(Context())
    rows = list(Numbers(count=10).read(unit, Context()))
    walk(tmp_path, sources=[Given(rows=rows)], steps=[Act()]).run()
    given.clear()
    rows[2] = {**rows[2], "license": {**rows[2]["license"], "path": "COPYING"}}
    again = walk(tmp_path, sources=[Given(rows=rows)], steps=[Act()])
    (shard,) = again.run()[1].manifests
    assert rows_of(given, "act") == ["number 2"]
    kept = again.store.rows("act", shard.key).to_pylist()
    assert [row["license"]["path"] for row in kept] == [None, None, "COPYING", *[None] * 7]


@pytest.mark.parametrize("change", ["version", "damage"])
def test_nothing_is_taken_of_another_version_or_of_a_damaged_shard(
    tmp_path: Path, given: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    acted(tmp_path, {}).run()
    given.clear()
    if change == "version":
        monkeypatch.setattr(Act, "version", Act.version + 1)
    else:
        for path in (tmp_path / "cache/steps/act").glob("*.parquet"):
            path.write_bytes(b"damaged")
    stages = acted(tmp_path, {7: "another"}).run()
    assert counts(stages)[1] == (20, 20, 20, 0)
    assert len(rows_of(given, "act")) == 20


def test_nothing_is_taken_of_rows_that_were_made_anew_under_the_same_key(tmp_path: Path) -> None:
    """As by code that has changed without a new version, once its old shards are deleted."""
    first, other = (acted(tmp_path / name, w) for name, w in (("a", {}), ("b", {7: "another"})))
    (old, *_), (new, *_) = first.run()[0].manifests, other.run()[0].manifests
    a, b = (tmp_path / name / f"cache/steps/{old.step}" for name in "ab")
    for suffix in (".parquet", ".lost.parquet"):
        (a / f"{old.key}{suffix}").write_bytes((b / f"{new.key}{suffix}").read_bytes())
    (a / f"{old.key}.json").write_bytes(sealed(vars(replace(new, key=old.key, input=old.input))))
    again = acted(tmp_path / "a", {})
    shard, *_ = again.run()[1].manifests
    assert again.store.rows("act", shard.key)["text"].to_pylist()[7] == "another"


@pytest.mark.parametrize("step", [Double(), Harvest()])
def test_a_step_that_makes_several_rows_of_one_does_the_shard_anew(
    tmp_path: Path, given: list[tuple[str, str]], step: Step
) -> None:
    acted(tmp_path / "a", {}, step).run()
    given.clear()
    second, alone = (acted(tmp_path / name, {7: "another"}, step) for name in "ab")
    stages = second.run()
    assert len(rows_of(given, step.name)) == 10
    assert counts(stages) == counts(alone.run())


def test_results_of_other_code_are_named(tmp_path: Path) -> None:
    first = acted(tmp_path, {})
    for manifest in first.run()[1].manifests:
        old = replace(manifest, code="other")
        path = tmp_path / f"cache/steps/act/{manifest.key}.json"
        path.write_bytes(sealed(vars(old)))
    for _ in range(2):
        again = acted(tmp_path, {7: "another"})
        codes = [manifest.code for manifest in again.run()[1].manifests]
        assert codes[0] == "other"
        assert [w for w in again.progress.warnings if "its code has changed" in w]
