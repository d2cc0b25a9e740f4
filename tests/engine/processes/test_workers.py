import os
import resource
from pathlib import Path

import pytest
from steps_for_tests import LICENSE, Act, ActInSandbox, Meet, Note, NotReady

from curate.engine.executor import Job, Result, WorkerError
from curate.engine.processes.local import LocalExecutor
from curate.rows import make_origin, make_row
from curate.step import Context, RowStep, StepError


def rows(texts: list[str]) -> list[dict]:
    return [
        make_row("file", text, make_origin("local", path=str(i)), text=text, license=LICENSE)
        for i, text in enumerate(texts)
    ]


def run(step: RowStep, texts: list[str], tmp_path: Path, workers: int = 2) -> list[Result]:
    items = rows(texts)
    jobs = (Job("s", i, items[i : i + step.batch]) for i in range(0, len(items), step.batch))
    results: list[Result | None] = [None] * len(items)
    executor = LocalExecutor(workers)
    for job, index, result in executor.run(step, Context(cache=tmp_path), jobs):
        assert results[job.start + index] is None, "one result a row"
        results[job.start + index] = result
    assert all(results)
    return [r for r in results if r]


def fate(result: Result) -> str:
    return result.lost[0].reason if result.lost else "kept"


@pytest.mark.parametrize("step", [Act(), ActInSandbox()], ids=["plain", "sandboxed"])
def test_a_poison_row_costs_itself_only(step: RowStep, tmp_path: Path) -> None:
    texts = [f"good {i}" for i in range(50)]
    texts[7:7] = ["segfault"]
    texts[20:20] = ["hang"]
    texts[33:33] = ["eat memory"]
    results = run(step, texts, tmp_path)
    lost = {texts[i]: fate(r) for i, r in enumerate(results) if r.lost}
    assert lost == {"segfault": "crash", "hang": "timeout", "eat memory": "out_of_memory"}
    assert sum(fate(r) == "kept" for r in results) == 50


def test_a_step_may_ask_for_more_workers_than_the_executor_has(tmp_path: Path) -> None:
    results = run(Meet(), ["a", "b", "c"], tmp_path, workers=1)
    assert [fate(result) for result in results] == ["kept"] * 3


def test_a_step_that_can_do_no_row_stops_after_what_is_under_way(tmp_path: Path) -> None:
    done = []
    step, items = Act(), rows(["good", "stop", "never"] * 20)
    jobs = (Job(str(i), 0, items[i : i + 3]) for i in range(0, 60, 3))
    with pytest.raises(StepError, match="as asked"):
        for job, index, result in LocalExecutor(2).run(step, Context(cache=tmp_path), jobs):
            done.append((job.items[index]["text"], fate(result)))
    assert done and set(done) == {("good", "kept")} and len(done) <= 2
    with pytest.raises(StepError, match="not ready"):
        run(NotReady(), ["good"], tmp_path)


def test_from_the_sandbox_nobody_stops_the_run(tmp_path: Path) -> None:
    stop, good = run(ActInSandbox(), ["stop", "good"], tmp_path)
    assert (fate(stop), fate(good)) == ("bad_message", "kept")


def test_an_exception_fails_the_row_and_says_where(tmp_path: Path) -> None:
    good, bad, dropped, quiet = run(Act(), ["a", "raise", "drop", "die quietly"], tmp_path)
    assert fate(good) == "kept"
    lost = bad.lost[0]
    assert (lost.fate, lost.evidence["error"]) == ("failed", "ValueError")
    assert lost.evidence["message"] == "as asked"
    assert lost.evidence["where"].startswith("steps_for_tests.py:")
    assert (dropped.lost[0].fate, fate(dropped)) == ("dropped", "asked_to")
    assert fate(quiet) == "crash"


def test_the_sandbox_holds(tmp_path: Path) -> None:
    texts = ["open socket", "write outside", "fill disk", "fork bomb", "leave process"]
    texts += ["leave file", "find file", "good"]
    results = dict(zip(texts, run(ActInSandbox(), texts, tmp_path, workers=1), strict=True))
    errors = {text: r.lost[0].evidence.get("error") for text, r in results.items() if r.lost}
    assert errors["open socket"] == "OSError"
    assert errors["write outside"] == "OSError"
    assert errors["fill disk"] == "OSError"
    assert fate(results["fork bomb"]) in ("too_many_processes", "exception", "timeout")
    for text in ("leave process", "leave file", "find file", "good"):
        assert fate(results[text]) == "kept", text
    assert not Path("/usr/planted").exists()


LIMIT = f"has limit {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"


@pytest.mark.parametrize(
    ("spoil", "look"),
    [
        ("lower limits", LIMIT),
        ("lower the first process's limits", LIMIT),
        ("leave closed folder", "find closed folder"),
    ],
)
def test_a_spoiled_sandbox_is_replaced(tmp_path: Path, spoil: str, look: str) -> None:
    texts = [look, spoil, look, look, "good"]
    for text, result in zip(texts, run(ActInSandbox(), texts, tmp_path, workers=1), strict=True):
        assert fate(result) == "kept", (text, result)


def test_a_worker_serves_one_step_after_the_other(tmp_path: Path) -> None:
    def seen(executor: LocalExecutor) -> dict[str, int]:
        jobs = iter([Job("s", 0, rows(["a"]))])
        ((_, _, result),) = executor.run(Note(), Context(cache=tmp_path), jobs)
        assert result.lost[0].fate == "dropped", result.lost
        return result.lost[0].evidence

    with LocalExecutor(2) as executor:
        first, second = seen(executor), seen(executor)
    assert first["worker"] == second["worker"] and first["server"] != second["server"]
    assert not Path(f"/proc/{first['worker']}").exists()
    assert seen(executor)["worker"] != first["worker"]


def test_nothing_that_a_row_does_reaches_the_next_step(tmp_path: Path) -> None:
    texts = ["kill the first process", "lower the first process's limits", "leave file", "segfault"]
    texts = [text for last in texts for text in (last, LIMIT, "find file")]
    steps = [ActInSandbox() for _ in texts]
    with LocalExecutor(1) as executor:
        executor.expect(steps)
        for step, text in zip(steps, texts, strict=True):
            jobs = iter([Job("s", 0, rows([text]))])
            ((_, _, result),) = executor.run(step, Context(cache=tmp_path), jobs)
            assert fate(result) == {"segfault": "crash"}.get(text, "kept"), (text, result)


def test_the_next_step_in_the_sandbox_is_loaded_while_others_work(tmp_path: Path) -> None:
    steps = [Act(), ActInSandbox(), Act(), Act()]
    with LocalExecutor(2) as executor:
        executor.expect(steps)
        waiting = []
        for step in steps:
            jobs = iter([Job("s", 0, rows(["good"]))])
            ((_, _, result),) = executor.run(step, Context(cache=tmp_path), jobs)
            assert fate(result) == "kept"
            waiting.append(len(executor.shelf.workers[True]))
    assert waiting == [2, 0, 0, 0]
    assert not any(executor.shelf.workers.values())


@pytest.mark.skipif(not Path("/root/.bashrc").exists() or os.getuid() != 0, reason="needs /root")
def test_the_sandbox_does_not_see_the_home_folder(tmp_path: Path) -> None:
    (result,) = run(ActInSandbox(), ["read home"], tmp_path)
    assert result.lost[0].evidence["error"] in ("FileNotFoundError", "PermissionError")


def test_a_worker_that_cannot_start_is_told_of(tmp_path: Path) -> None:
    class Unknown(Act):
        pass

    with pytest.raises(WorkerError, match="could not start"):
        run(Unknown(), ["a"], tmp_path)
