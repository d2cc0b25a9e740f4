"""``--limit``: which rows go on, whatever the number of workers and wherever a run was cut."""

from pathlib import Path
from typing import Any

import pytest
from run_for_tests import counts, walk
from steps_for_tests import Act, Double, Given, Harvest, Numbers

from curate.engine.executor import Lost, Result
from curate.engine.limit import READ, cut, spread
from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Stage, Walk
from curate.rows import make_origin, make_row

EMPTY = dict.fromkeys((0, 1, 2, 10, 20, 21), "empty")


class Interrupted(LocalExecutor):
    """An executor that is interrupted after some results of row steps."""

    left = 0

    def run(self, step: Any, *rest: Any) -> Any:
        for result in super().run(step, *rest):
            yield result
            self.left -= isinstance(step, Harvest)
            if self.left == 0:
                raise KeyboardInterrupt


def limited(output: Path, limit: int, workers: int = 2, **options: Any) -> Walk:
    found = walk(output, workers, **options)
    found.limit = limit
    return found


def kernels(walked: Walk) -> list[str]:
    stage = walked.run()[-1]
    rows = [walked.store.rows(m.step, m.key).to_pylist() for m in stage.manifests]
    return [row["triton"] for shard in rows for row in shard]


def harvest(output: Path, limit: int, workers: int = 2) -> Walk:
    return limited(
        output, limit, workers, sources=[Numbers(count=40, words=EMPTY)], steps=[Harvest()]
    )


def reasons(stage: Stage) -> dict[str, int]:
    return stage.reasons("dropped")


@pytest.mark.parametrize(
    ("number", "places", "shares"),
    [(5, 4, [1, 1, 1, 2]), (3, 4, [0, 1, 1, 1]), (2, 1, [2]), (1, 3, [0, 0, 1]), (7, 0, [])],
)
def test_a_number_is_spread_evenly(number: int, places: int, shares: list[int]) -> None:
    assert spread(number, places) == shares


def test_a_limit_holds_for_a_source_and_leaves_units_out(tmp_path: Path) -> None:
    found = limited(tmp_path, 3, sources=[Numbers(count=40), Numbers(count=70)])
    stages = found.run()
    assert counts(stages)[:2] == [(3, 3, 3, 0), (3, 3, 3, 0)]
    assert [len(s.manifests) for s in stages[:2]] == [3, 3], "four units, and three of the others"
    assert counts(stages)[-1][0] == 6


def test_of_files_kernels_are_counted(tmp_path: Path) -> None:
    found = harvest(tmp_path, 6)
    source, step = found.run()
    assert counts([source])[0][2] == 40, "few files hold a kernel, so all are read"
    assert kernels(found) == [
        *("number 3, first",),
        *("number 11, first", "number 11, second"),
        *("number 22, first",),
        *("number 30, first", "number 30, second"),
    ]
    assert reasons(step) == {"no_kernel": 6, "limit": 30}
    assert step.total("seen") == step.total("kept") + sum(reasons(step).values()) == 40


def test_files_are_not_read_without_end(tmp_path: Path) -> None:
    origin = make_origin("given")
    rows = [dict(make_row("file", f"{i}", origin, text="empty", license=None)) for i in range(300)]
    found = limited(tmp_path, 1, sources=[Given(rows=rows)], steps=[Harvest()])
    assert counts(found.run())[0][2] == READ


def test_workers_and_interruptions_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = kernels(harvest(tmp_path / "whole", 5, workers=1))
    assert len(whole) == 5
    assert kernels(harvest(tmp_path / "many", 5, workers=4)) == whole
    monkeypatch.setattr("curate.engine.run.PATIENCE_S", 0)
    for after in range(1, 9):
        one = harvest(tmp_path / "cut", 5)
        one.executor = Interrupted(2)
        one.executor.left = after
        try:
            assert kernels(one) == whole
        except KeyboardInterrupt:
            continue
    assert kernels(harvest(tmp_path / "cut", 5)) == whole


def test_other_limits_are_other_shards_and_an_old_one_is_there_still(tmp_path: Path) -> None:
    for limit in (4, 8, 4):
        assert len(kernels(harvest(tmp_path, limit))) == limit
    full = walk(tmp_path, sources=[Numbers(count=40, words=EMPTY)], steps=[Harvest()])
    assert len(kernels(full)) == 2 * 34


def test_rows_that_no_step_turns_into_others_are_counted_themselves(tmp_path: Path) -> None:
    found = limited(tmp_path, 4, steps=[Act(), Double()])
    assert counts(found.run()) == [(4, 4, 4, 0), (4, 4, 4, 0), (4, 4, 8, 0)]


def test_what_came_after_the_limit_is_not_kept() -> None:
    rows = [{"id": name} for name in "abcd"]
    lost = Result(lost=[Lost(rows[0], "failed", "crash", {})])
    results = [lost, None, Result([{}, {}]), Result([{}])]
    assert not cut(rows, results, 1), "the second may be kept yet"
    results[1] = Result([{}])
    assert cut(rows, results, 1)
    assert [len(r.kept) for r in results] == [0, 1, 0, 0]
    assert [[x.reason for x in r.lost] for r in results] == [["crash"], [], ["limit"], ["limit"]]
