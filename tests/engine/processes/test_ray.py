import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

import ray
from ray.cluster_utils import Cluster
from ray_for_tests import Assassin, Breaks, OnGpu, kernels_recipe, parent_of
from steps_for_tests import LICENSE, Act, ActInSandbox, Given, Meet

import curate.engine.processes.ray as ray_executor
from curate.engine.executor import Executor, ExecutorUnavailable, Job, Result, WorkerError
from curate.engine.processes.local import LocalExecutor
from curate.engine.processes.ray import Orders, RayExecutor, Station
from curate.engine.processes.worker import step_reference
from curate.engine.run import Progress, Walk
from curate.formats.dataset.write import data_sha256, write_dataset
from curate.rows import make_origin, make_row
from curate.step import Context, RowStep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    cluster.add_node(**NODE)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def executor(cluster: Cluster) -> Iterator[RayExecutor]:
    executor = RayExecutor(cluster.address)
    yield executor
    executor.close()


def rows(texts: list[str]) -> list[dict]:
    return [
        make_row("file", text, make_origin("local", path=str(i)), text=text, license=LICENSE)
        for i, text in enumerate(texts)
    ]


def run(executor: Executor, step: RowStep, texts: list[str], folder: Path) -> list[Result]:
    items = rows(texts)
    jobs = (Job("s", i, items[i : i + step.batch]) for i in range(0, len(items), step.batch))
    results: list[Result | None] = [None] * len(items)
    for job, index, result in executor.run(step, Context(cache=folder), jobs):
        assert results[job.start + index] is None, "one result a row"
        results[job.start + index] = result
    assert all(results)
    return [r for r in results if r]


def told(results: list[Result]) -> list[Any]:
    """Return what does not depend on which process did the work, and how fast."""
    return [
        (result.kept, [(lost.row, lost.fate, lost.reason) for lost in result.lost])
        for result in results
    ]


# Six seconds: on a busy machine a crash takes longer to end than the two of the default.
@pytest.mark.parametrize(
    "step", [Act(timeout_s=6), ActInSandbox(timeout_s=6)], ids=["plain", "sandboxed"]
)
def test_results_are_those_of_the_local_executor(
    step: RowStep, executor: RayExecutor, tmp_path: Path
) -> None:
    texts = [f"good {i}" for i in range(30)]
    for i, text in enumerate(["segfault", "hang", "eat memory", "raise", "drop", "die quietly"]):
        texts.insert(i * 5, text)
    found = told(run(executor, step, texts, tmp_path))
    assert found == told(run(LocalExecutor(2), step, texts, tmp_path))
    assert not list(tmp_path.iterdir()), "nothing is left in the cache"


def test_a_step_that_waits_for_others_runs_on_this_machine(
    executor: RayExecutor, tmp_path: Path
) -> None:
    assert len(run(executor, Meet(), ["a", "b", "c"], tmp_path)) == 3  # on two processors


def test_a_large_unit_comes_in_parts(executor: RayExecutor, tmp_path: Path) -> None:
    texts = [f"number {i}" for i in range(1200)]
    unit = {"label": "all", "key": "k", "spec": {}}
    for limit in (None, 130):
        local, far = (
            list(
                some.run(
                    Given(rows=rows(texts)),
                    Context(cache=tmp_path),
                    iter([Job("u", 0, [unit], limit)]),
                )
            )
            for some in (LocalExecutor(1), executor)
        )
        assert [(r.part, r.more) for _, _, r in far] == [(r.part, r.more) for _, _, r in local]
        assert [r.kept for _, _, r in far] == [r.kept for _, _, r in local]
        assert len(far) > 1
        assert sum(len(r.kept) for _, _, r in far) == (limit or 1200)


def test_jobs_are_taken_only_when_there_is_room(executor: RayExecutor, tmp_path: Path) -> None:
    taken = 0

    def jobs() -> Iterator[Job]:
        nonlocal taken
        for row in rows([f"good {i}" for i in range(40)]):
            taken += 1
            yield Job(str(taken), 0, [row])

    most = int(ray.cluster_resources()["CPU"]) + 1  # in actors, and one that waits
    results = executor.run(Act(), Context(cache=tmp_path), jobs())
    for given, _ in enumerate(results):
        assert taken <= given + 1 + most
    assert taken == 40


def test_a_worker_that_cannot_start_is_told_of(executor: RayExecutor, tmp_path: Path) -> None:
    with pytest.raises(
        WorkerError, match=r"step breaks: a worker could not start\n(.|\n)*as asked"
    ):
        run(executor, Breaks(), ["a"], tmp_path)


def test_a_job_that_kills_its_actor_is_tried_thrice(executor: RayExecutor, tmp_path: Path) -> None:
    texts = [f"good {i}" for i in range(10)]
    texts[2] = "kill once"
    texts[7] = "kill"
    results = run(executor, Assassin(folder=str(tmp_path)), texts, tmp_path)
    lost = {i: result.lost[0] for i, result in enumerate(results) if result.lost}
    assert lost.keys() == {6, 7}, "the job, which is of two rows, and no other"
    assert {(x.fate, x.reason, x.evidence["attempts"]) for x in lost.values()} == {
        ("failed", "crash", 3)
    }


def test_a_step_waits_for_a_node_that_can_run_it(
    cluster: Cluster, executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "PATIENCE_S", 3.0)
    with pytest.raises(WorkerError, match="on_gpu needs a processor and 1 GPU, which no node"):
        run(executor, OnGpu(), ["a"], tmp_path)
    monkeypatch.setattr(ray_executor, "PATIENCE_S", 120.0)

    def jobs() -> Iterator[Job]:  # taken from when the first look at the nodes is over
        nodes.append(cluster.add_node(**NODE, num_gpus=1))
        yield from (Job(str(i), 0, [row]) for i, row in enumerate(rows(["a"] * 8)))

    nodes: list[Any] = []
    found = list(executor.run(OnGpu(), Context(cache=tmp_path), jobs()))
    cluster.remove_node(nodes[0])
    assert {job.shard for job, _, _ in found} == set(map(str, range(8)))
    assert {result.kept[0]["text"] for _, _, result in found} == {"0"}


def test_a_node_that_would_give_other_results_is_refused(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "versions", lambda step: {"kernel-curate": "99"})
    with pytest.raises(WorkerError, match=r"kernel-curate: 99 here, [\d.]+ there"):
        run(executor, Act(), ["a"], tmp_path)


def test_a_node_without_the_folders_is_refused(tmp_path: Path) -> None:
    context = Context(cache=tmp_path)
    orders = Orders(step_reference(Act()), context, True, tmp_path, tmp_path / "sign")
    with pytest.raises(WorkerError, match=r"does not have .*/sign: .* must be in folders"):
        Station().start(orders)


class KillsNode(Progress):
    """Kills a node when a step has done some rows, and has a new one join later."""

    def __init__(self, cluster: Cluster, step: str) -> None:
        self.cluster, self.step = cluster, step
        self.label, self.rows = "", 0

    def begin(self, label: str, total: int | None, cached: int) -> None:
        self.label = label

    def advance(self, rows: int, lost: int) -> None:
        if self.label != self.step:
            return
        if self.rows < 8 <= self.rows + rows:
            self.cluster.remove_node(next(iter(self.cluster.worker_nodes)), allow_graceful=False)
        if self.rows < 24 <= self.rows + rows:
            self.cluster.add_node(**NODE)
        self.rows += rows


def test_a_node_killed_in_the_middle_changes_nothing(
    cluster: Cluster, executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = kernels_recipe(tmp_path / "sources")
    alone = Walk(recipe, tmp_path / "local", LocalExecutor(2))
    expected = write_dataset(alone, alone.run())
    deaths = []
    mourn = ray_executor._Crew._mourn

    def count(crew: Any, actor: Any, error: Exception) -> Iterator[Any]:
        deaths.append(actor.task)
        return mourn(crew, actor, error)

    monkeypatch.setattr(ray_executor._Crew, "_mourn", count)
    together = Walk(recipe, tmp_path / "ray", executor, progress=KillsNode(cluster, "slow"))
    stages = together.run()
    assert any(deaths), "an actor died with a job in hand"
    found = write_dataset(together, stages)
    assert data_sha256(found) == data_sha256(expected)
    assert found == expected
    assert found["configs"] == {"kernels": {"train": 24}}


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ExecutorUnavailable, match=r"cannot connect to Ray at 127\.0\.0\.1:1: "):
        RayExecutor("127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorUnavailable, match=r"pip install 'kernel-curate\[ray\]'"):
        RayExecutor()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process_behind(tmp_path: Path, how: int) -> None:
    place = tmp_path / "pid"
    program = (
        "from run_for_tests import *\n"
        "from curate.engine.processes.ray import RayExecutor\n"
        f"numbers = Numbers(count=1, words={{0: 'hang at {place}'}})\n"
        f"small = Small([numbers], [Act(timeout_s=600)])\n"
        f"Walk(small, Path({str(tmp_path)!r}), RayExecutor(workers=1)).run()\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    started = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.DEVNULL, env=environment
    )
    wait_until(lambda: place.exists() and place.read_text())
    family = descendants(started.pid)
    assert int(place.read_text()) in family
    started.send_signal(how)
    started.wait()
    wait_until(lambda: not any(is_running(pid) for pid in family))


def descendants(pid: int) -> set[int]:
    """Return the pids of all processes that a process has started, and so on."""
    found, new = set(), {pid}
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    parents = {child: parent_of(child) for child in pids if is_running(child)}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in found} - found
    return found - {pid}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(happened: Callable[[], object]) -> None:
    for _ in range(3000):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within five minutes")
