"""What a finished data set says of its pairs is taken over, where the same step found it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_for_tests import Small
from steps_for_tests import LICENSE, Answer, Gather, Given, Size

from curate.engine.processes.local import LocalExecutor
from curate.engine.published import Published
from curate.engine.run import Walk
from curate.files import Damaged, InputError
from curate.formats.dataset.write import write_dataset
from curate.formats.pairs import PairsFormat
from curate.rows import make_origin, make_row
from curate.step import RowStep

Run = Callable[..., tuple[Walk, dict[str, Any]]]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets the program of each row that a child is given."""
    programs: list[str] = []
    run = LocalExecutor.run

    def noted(self: LocalExecutor, step: Any, context: Any, jobs: Iterator[Any]) -> Any:
        work = list(jobs)
        items = [item for job in work for item in job.items]
        if step.name in ("answer", "size"):
            programs.extend(item["triton"] or item["reference"] for item in items)
        yield from run(self, step, context, iter(work))

    monkeypatch.setattr(LocalExecutor, "run", noted)
    return programs


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A function that makes a data set of programs, with steps, in a folder of that name."""

    def make(name: str, programs: list[str], *steps: RowStep, known: str = "", **columns: Any):
        origin = make_origin("local", purl="pkg:pypi/p@1", artifact_sha256="0" * 64)
        rows = [
            make_row(
                "pair", one, origin, reference="r", triton=one, **{"license": LICENSE, **columns}
            )
            for one in programs
        ]
        published = (Published(tmp_path / known / "small"),) if known else ()
        recipe: Any = Small([Given(rows=rows)], list(steps), [PairsFormat(format="pairs")])
        walk = Walk(recipe, tmp_path / name, LocalExecutor(1), known=published)
        return walk, write_dataset(walk, walk.run())

    return make


def test_only_what_the_data_set_does_not_hold_is_given_to_a_child(
    run: Run, given: list[str]
) -> None:
    run("first", ["a", "bc", "drop"], Size())
    given.clear()
    walk, record = run("second", ["a", "bc", "def", "drop"], Size(), known="first")
    assert given == ["def", "drop"]
    assert walk.taken_over == {"size": 2}
    _, alone = run("alone", ["a", "bc", "def", "drop"], Size())
    assert record["files"] == alone["files"]


def test_other_options_or_another_version_know_nothing(
    run: Run, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("first", ["a", "bc"], Size())
    for name, step in (("target", Size(target="cuda:90")), ("version", Size())):
        given.clear()
        if name == "version":
            monkeypatch.setattr(Size, "version", 2)
        walk, _ = run(name, ["a", "bc"], step, known="first")
        assert given == ["a", "bc"]
        assert not walk.taken_over


def test_a_pair_that_differs_in_a_column_is_another(run: Run, given: list[str]) -> None:
    run("first", ["a"], Size(), entry_point="Model")
    given.clear()
    run("second", ["a"], Size(), known="first", entry_point="Other")
    assert given == ["a"]


def test_what_was_found_beside_other_columns_is_not_known_without_them(
    run: Run, given: list[str]
) -> None:
    run("first", ["a"], Size(), Gather())
    for steps, asked in (([Size(), Gather()], []), ([Size()], ["a"])):
        given.clear()
        run(f"with {len(steps)}", ["a"], *steps, known="first")
        assert given == asked


def test_pairs_that_were_made_of_a_task_are_known(tmp_path: Path, given: list[str]) -> None:
    origin = make_origin("local", purl="pkg:pypi/p@1", artifact_sha256="0" * 64)
    for name, tasks, known in (("first", "ab", ""), ("second", "abc", "first")):
        given.clear()
        rows = [make_row("task", t, origin, reference=t, license=LICENSE) for t in tasks]
        published = (Published(tmp_path / known / "small"),) if known else ()
        steps = [Answer(), Size(target=name)]
        recipe: Any = Small([Given(rows=rows)], steps, [PairsFormat(format="pairs")])
        walk = Walk(recipe, tmp_path / name, LocalExecutor(1), known=published)
        write_dataset(walk, walk.run())
    # `Size` has another option.
    assert given == ["c", "answer to a", "answer to b", "answer to c"]
    assert walk.taken_over == {"answer": 2}


def test_a_damaged_data_set_is_refused(run: Run, tmp_path: Path) -> None:
    run("first", ["a"], Size())
    folder = tmp_path / "first/small"
    (path,) = folder.glob("pairs/*.parquet")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(Damaged, match=path.name):
        Published(folder)
    (folder / "run.json").unlink()
    with pytest.raises(InputError, match="no data set"):
        Published(folder)
