import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recipe_for_tests import curate, data_line, make_recipe
from run_for_tests import counts, walk
from steps_for_tests import Act, Double, Forge, Given, Harvest, Numbers, Odd

from curate.engine.executor import Job, Lost, Result
from curate.engine.history import history
from curate.engine.partial import Partial
from curate.engine.plan import plan
from curate.engine.processes.local import LocalExecutor
from curate.engine.records import read_records
from curate.engine.run import NoSuchStep, OthersFirst, RunError, Walk
from curate.engine.store import LedgerError, Manifest, lost_table, rows_table
from curate.formats.dataset.write import data_sha256, write_dataset
from curate.rows import make_origin, make_row
from curate.step import RowStep, Step

SCRIPT = Path(__file__).parents[1] / "run_for_tests.py"


def manifests(output: Path) -> dict[str, float]:
    return {p.name: p.stat().st_mtime_ns for p in (output / "cache/steps").rglob("*.json")}


def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    words = {3: "drop", 9: "raise", 17: "drop"}
    stages = walk(tmp_path, sources=[Numbers(count=40, words=words)]).run()
    assert counts(stages) == [(40, 40, 40, 0), (40, 37, 37, 0), (37, 37, 74, 0)]
    assert stages[1].reasons("dropped") == {"asked_to": 2}
    assert stages[1].reasons("failed") == {"exception": 1}


def test_a_second_run_makes_nothing(tmp_path: Path) -> None:
    first = walk(tmp_path)
    data = write_dataset(first, first.run())
    before = manifests(tmp_path)
    second = walk(tmp_path)
    assert write_dataset(second, second.run()) == data
    assert manifests(tmp_path) == before


def test_an_option_reruns_its_step_and_what_follows(tmp_path: Path) -> None:
    walk(tmp_path).run()
    before = manifests(tmp_path)
    walk(tmp_path, steps=[Act(), Double(word="other")]).run()
    new = manifests(tmp_path).keys() - before.keys()
    assert len(new) == 4, "one shard a unit, of the changed step only"
    lines = {line.label: line for line in plan(walk(tmp_path, steps=[Act(), Double(word="new")]))}
    assert (lines["act"].todo, lines["double"].todo) == (0, 4)
    assert lines["double"].why == "option word: other → new"
    walk(tmp_path, steps=[Act(max_error_rate=0.5), Double()]).run()
    assert manifests(tmp_path).keys() - before.keys() == new, "a budget is no part of a shard"


def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of the step of each job that is begun."""
    names: list[str] = []
    run = LocalExecutor.run

    def noted(self: LocalExecutor, step: Step, context: Any, jobs: Iterator[Job]) -> Any:
        given = list(jobs)
        names.extend(step.name for _ in given)
        yield from run(self, step, context, iter(given))

    monkeypatch.setattr(LocalExecutor, "run", noted)
    return names


def test_what_was_made_of_the_same_rows_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {3: "drop"}
    first = walk(tmp_path, sources=[Numbers(count=40, words=words)])
    data = write_dataset(first, first.run())
    names = begun(monkeypatch)
    monkeypatch.setattr(Act, "version", Act.version + 1)
    second = walk(tmp_path, sources=[Numbers(count=40, words=words)])
    stages = second.run()
    assert set(names) == {"act"}, "its rows are as before"
    assert counts(stages) == [(40, 40, 40, 0), (40, 39, 39, 0), (39, 39, 78, 0)]
    assert write_dataset(second, stages)["files"] == data["files"]
    names.clear()
    monkeypatch.setattr(Double, "version", Double.version + 1)
    walk(tmp_path, sources=[Numbers(count=40, words=words)]).run()
    assert set(names) == {"double"}, "another version is no other's"


@pytest.mark.parametrize(("limit", "again"), [(None, {"act"}), (4, {"numbers", "act", "harvest"})])
def test_kernels_of_the_same_files_are_not_made_again_but_where_a_limit_cut_them_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None, again: set[str]
) -> None:
    first = walk(tmp_path, steps=[Act(), Harvest()])
    first.limit = limit
    assert counts(first.run())[2][2] == (limit or 80)
    names = begun(monkeypatch)
    monkeypatch.setattr(Act, "version", Act.version + 1)
    assert counts(walk(tmp_path, steps=[Act(), Harvest()]).run())[2] == (40, 40, 80, 0)
    assert set(names) == again


def test_a_damaged_shard_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk(tmp_path).run()
    for path in (tmp_path / "cache/steps/double").glob("*.parquet"):
        path.write_bytes(b"damaged")
    names = begun(monkeypatch)
    monkeypatch.setattr(Act, "version", Act.version + 1)
    stages = walk(tmp_path).run()
    assert set(names) == {"act", "double"}
    assert counts(stages)[2] == (40, 40, 80, 0)


def test_a_shard_of_another_python_is_another_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly every step parses, compiles or prints Python, and does it as its own Python does."""
    walk(tmp_path).run()
    before = manifests(tmp_path)
    monkeypatch.setattr("curate.engine.identity.PYTHON", "3.99")
    lines = plan(walk(tmp_path))
    assert [line.done for line in lines] == [0, 0, 0]
    assert lines[0].why == f"python {sys.version_info.major}.{sys.version_info.minor} → 3.99"
    walk(tmp_path).run()
    assert len(manifests(tmp_path)) == 2 * len(before)


def test_rows_made_of_other_rows_than_are_there_now_are_made_again(tmp_path: Path) -> None:
    """A step whose result is not the same twice, once a shard of it was lost."""
    first = walk(tmp_path)
    first.run()
    source, acted, doubled = first.stages()
    shards = first.known_shards(acted, first.known_shards(source, []))
    shard = shards[0]
    rows = first.store.rows(shard.step, shard.key)
    manifest = first.store.finished(shard.step, shard.key)
    given = first.store.finished("numbers", str(manifest.input))
    lost = lost_table([])
    facts = first.facts(acted.step)
    row = {**rows.to_pylist()[0], "text": "another"}
    kept = rows_table([row, *rows.to_pylist()[1:]])
    first.store.commit("act", shard.key, given, kept, lost, seen=10, went_on=10, **facts)
    second = walk(tmp_path)
    second.run()
    (made, *_) = second.known_shards(doubled, shards)
    assert "another" in second.store.rows("double", made.key)["text"].to_pylist()


@pytest.mark.parametrize(
    "wrong", [{"kept": 9}, {"emitted": 4}, {"kinds": {"file": 9}}, {"untouched": 11}]
)
def test_a_ledger_that_does_not_add_up_is_no_manifest(wrong: dict[str, Any]) -> None:
    right: dict[str, Any] = {
        "step": "act",
        "key": "0",
        "input": None,
        "input_sha256": None,
        "seen": 10,
        "kept": 10,
        "emitted": 10,
        "untouched": 0,
        "dropped": {},
        "failed": {},
        "kinds": {"file": 10},
        "output_sha256": "",
        "lost_sha256": "",
    }
    Manifest(**right).check()
    with pytest.raises(LedgerError, match="step act, shard 0"):
        Manifest(**{**right, **wrong}).check()


def test_what_two_sources_hold_is_read_once(tmp_path: Path) -> None:
    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    shutil.copytree(tmp_path / "sources", tmp_path / "copy")
    alone = curate("run", recipe, "--output", output)
    text = recipe.read_text()
    twice = f"  - source: local\n    path: {tmp_path / 'copy'}\nsteps:"
    recipe.write_text(text.replace("steps:", twice))
    both = curate("run", recipe, "--output", output)
    assert both.exit_code == 0, both.output
    assert f"local#2: {tmp_path / 'copy'}: is the same as local#1" in " ".join(both.output.split())
    assert data_line(both.output) == data_line(alone.output)
    assert curate("plan", recipe, "--output", output).exit_code == 0


def test_one_source_given_twice_is_read_once(tmp_path: Path) -> None:
    source = Numbers(count=40)
    stages = walk(tmp_path, sources=[source, source]).run()
    assert counts(stages)[2:] == counts(walk(tmp_path / "alone").run())[1:]


def test_more_rows_of_a_source_rerun_no_old_ones(tmp_path: Path) -> None:
    walk(tmp_path).run()
    before = manifests(tmp_path)
    walk(tmp_path, sources=[Numbers(count=60)]).run()
    after = manifests(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) - len(before) == 2 * 4, "two units: unit, source, act, double"


def test_processes_change_nothing(tmp_path: Path) -> None:
    digests = []
    for workers in (1, 4):
        one = walk(tmp_path / str(workers), workers)
        digests.append(data_sha256(write_dataset(one, one.run())))
    assert digests[0] == digests[1]


@pytest.mark.weekly
def test_killed_at_random_moments_it_ends_with_the_same_data(tmp_path: Path) -> None:
    def start(output: str) -> subprocess.Popen:
        command = [sys.executable, str(SCRIPT), str(tmp_path / output), "2"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)

    started = time.monotonic()
    whole, _ = start("whole").communicate()
    took = time.monotonic() - started
    draw = random.Random(0)
    for _ in range(6):
        process = start("cut")
        time.sleep(draw.uniform(0.2, 1.0) * took)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    again, _ = start("cut").communicate()
    assert whole.strip() and again == whole
    runs = [
        json.loads((tmp_path / name / "small/run.json").read_bytes()) for name in ("whole", "cut")
    ]
    assert runs[0] == runs[1]


class Cut(LocalExecutor):
    """An executor that is interrupted after some results of row steps, and counts them."""

    def __init__(self, after: int | None = None) -> None:
        super().__init__(1)
        self.after, self.results = after, 0

    def run(self, step: Step, *rest: Any) -> Iterator[tuple[Job, int, Result]]:
        for result in super().run(step, *rest):
            self.results += isinstance(step, RowStep)
            yield result
            if self.results == self.after:
                raise KeyboardInterrupt


def test_a_shard_that_takes_long_goes_on_where_it_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.engine.run.PATIENCE_S", 0)
    words = {2: "drop", 3: "raise", 5: "drop"}
    recipe = {"sources": [Numbers(count=10, words=words)], "steps": [Act(max_error_rate=0.5)]}

    def run(output: Path, after: int | None) -> tuple[int, str]:
        cut = Cut(after)
        one = walk(output, **recipe)
        one.executor = cut
        try:
            return 0, data_sha256(write_dataset(one, one.run()))
        except KeyboardInterrupt:
            return cut.results, ""
        finally:
            counted.append(cut.results)

    counted: list[int] = []
    whole = run(tmp_path / "whole", None)
    assert run(tmp_path / "cut", 7) == (7, "")
    [left] = (tmp_path / "cut").rglob("*.part.jsonl")
    with left.open("a") as file:
        file.write('{"at": 9, "kept": [')  # killed in the middle of a line
    assert run(tmp_path / "cut", None) == whole
    assert counted == [10, 7, 4], "the row that failed is tried again"
    assert not list((tmp_path / "cut").rglob("*.part.jsonl"))


def test_results_of_other_code_are_forgotten(tmp_path: Path) -> None:
    path, row = tmp_path / "x.part.jsonl", {"id": "a"}
    Partial(path, "old").begin({0: Result([row]), 1: Result([], [Lost(row, "dropped", "no", {})])})
    assert Partial(path, "new").read({0: row, 1: row}) == {}
    assert Partial(path, "new").read({0: row, 1: row}) == {}
    one = Partial(path, "new")
    one.begin({})
    one.add(1, Result([], [Lost(row, "dropped", "no", {"why": 1})]))
    one.add(0, Result([], [Lost(row, "failed", "crash", {})]))
    assert Partial(path, "new").read({0: row, 1: row}) == {
        1: Result([], [Lost(row, "dropped", "no", {"why": 1})])
    }


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process_behind(tmp_path: Path, how: int) -> None:
    place = tmp_path / "pid"
    program = (
        "from run_for_tests import *\n"
        f"numbers = Numbers(count=1, words={{0: 'hang at {place}'}})\n"
        f"walk(Path({str(tmp_path)!r}), 1, sources=[numbers], steps=[Act(timeout_s=60)]).run()\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    wait_until(lambda: place.exists() and place.read_text())
    child = int(place.read_text())
    assert Path(f"/proc/{child}").exists()
    run.send_signal(how)
    run.wait()
    wait_until(lambda: not Path(f"/proc/{child}").exists())


def wait_until(happened: Callable[[], object]) -> None:
    for _ in range(1200):  # a loaded machine takes its time
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


def test_too_many_failures_stop_the_run(tmp_path: Path) -> None:
    words = dict.fromkeys(range(5), "raise")
    with pytest.raises(RunError, match=r"step act failed on 2 of 40 rows \(allowed: 2.0%\)"):
        walk(tmp_path, sources=[Numbers(count=40, words=words)]).run()
    forgiving = Act(max_error_rate=0.2)
    stages = walk(tmp_path, sources=[Numbers(count=40, words=words)], steps=[forgiving]).run()
    assert stages[-1].reasons("failed") == {"exception": 5}


def test_one_of_several_processes_may_have_all_failures(tmp_path: Path) -> None:
    sources = [Numbers(count=200, words=dict.fromkeys((0, 2), "raise"))]
    steps = [Odd(), Act()]
    with pytest.raises(OthersFirst):
        walk(tmp_path, sources=sources, steps=steps, share=(1, 20)).run()
    walk(tmp_path, sources=sources, steps=steps).run(until="odd")
    stages = [
        walk(tmp_path, sources=sources, steps=steps, share=(i, 20)).run()[-1] for i in range(1, 21)
    ]
    failed = [stage.reasons("failed") for stage in stages]
    assert failed.count({"exception": 2}) == 1, "they are 2 % of what all see"
    assert failed.count({}) == 19


def test_only_needs_what_comes_before(tmp_path: Path) -> None:
    with pytest.raises(NoSuchStep, match="step numbers before it is not done"):
        walk(tmp_path).run(only="double")
    assert [s.label for s in walk(tmp_path).run(until="act")] == ["numbers", "act"]
    walk(tmp_path).run(only="double")
    with pytest.raises(
        NoSuchStep, match="the recipe has no single step 'nonsense'; it has numbers"
    ):
        walk(tmp_path).run(until="nonsense")


def test_the_sandbox_cannot_change_a_license(tmp_path: Path) -> None:
    forge = Forge(step="forge", max_error_rate=1.0)
    stages = walk(tmp_path, sources=[Numbers(count=3)], steps=[forge]).run()
    assert stages[-1].reasons("failed") == {"bad_row": 3}


def test_a_table_step_judges_ids(tmp_path: Path) -> None:
    one = walk(tmp_path, steps=[Odd()])
    stages = one.run()
    assert counts(stages)[1] == (40, 20, 20, 0)
    record = read_records(tmp_path, "small")[-1]
    row = one.store.lost("odd", record.shards[0]).to_pylist()[0]
    assert (row["reason"], row["evidence"]) == ("is_odd", '{"of": 2}')
    assert one.store.rows("odd", record.shards[0]).to_pylist()[0]["cluster"] == "all"
    with pytest.raises(LedgerError, match="judged other rows"):
        walk(tmp_path, steps=[Odd(forget=True)]).run()


def test_processes_that_share_a_run_make_what_one_makes(tmp_path: Path) -> None:
    def part(i: int, n: int) -> Walk:
        return walk(tmp_path / "shared", steps=[Act(), Odd(), Double()], share=(i, n))

    alone = walk(tmp_path / "alone", steps=[Act(), Odd(), Double()])
    whole = alone.run()
    for i in (1, 2):
        with pytest.raises(OthersFirst, match="step odd needs"):
            part(i, 3).run()
    part(3, 3).run()  # the last has all that the table step needs
    seen = [part(i, 3).run()[-1].total("seen") for i in (1, 2)]
    assert all(seen) and sum(seen) < whole[-1].total("seen"), "each has a part of its own"
    before = manifests(tmp_path / "shared")
    last = walk(tmp_path / "shared", steps=[Act(), Odd(), Double()])
    assert counts(last.run()) == counts(whole)
    assert write_dataset(last, last.run())["files"] == write_dataset(alone, whole)["files"]
    assert manifests(tmp_path / "shared").keys() == before.keys(), "nothing was left to do"


def test_steps_done_on_another_machine_are_taken_over(tmp_path: Path) -> None:
    """No folder is shared: `cache/steps` is copied there and back."""
    here, there = tmp_path / "here", tmp_path / "there"
    walk(here).run(until="act")
    shutil.copytree(here / "cache/steps", there / "cache/steps")
    walk(there).run(until="double")
    read_there = [name for name in manifests(there) if name not in manifests(here)]
    assert len(read_there) == 4, "one shard a unit, of the step that was done there"
    shutil.copytree(there / "cache/steps", here / "cache/steps", dirs_exist_ok=True)
    before = manifests(here)
    last, alone = walk(here), walk(tmp_path / "alone")
    assert write_dataset(last, last.run()) == write_dataset(alone, alone.run())
    assert manifests(here) == before


def test_a_large_unit_is_written_while_it_is_read(tmp_path: Path) -> None:
    rows = [
        make_row("file", f"x = {i}", make_origin("t", path=f"{i}"), text="") for i in range(2200)
    ]
    (stage,) = walk(tmp_path, sources=[Given(rows=rows)], steps=[]).run()
    assert [m.emitted for m in stage.manifests] == [128] * 8 + [1024, 152]


def test_history_follows_a_row_to_its_children(tmp_path: Path) -> None:
    one = walk(tmp_path)
    one.run()
    records = read_records(tmp_path, "small")
    first = one.store.rows("numbers", records[0].shards[0]).to_pylist()[0]["id"]
    events = [(e.step, e.fate) for e in history(one.store, records, first)]
    assert events == [("numbers", "read"), ("act", "kept"), ("double", "kept"), ("double", "made")]
