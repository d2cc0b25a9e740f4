"""Run a recipe on this machine and on a Ray cluster of two nodes, and compare time and data.

    python benchmarks/cluster.py [--recipe recipes/triton_fim_small.yaml] [--limit N]
                                 [--step compile] [--processors 1]

The nodes are processes of this machine (`ray.cluster_utils.Cluster`), each with as many processors
as ``--processors`` says; the local run has as many worker processes as both together. The sources
are fetched first, so that no run waits for the network. Three runs, each from an empty folder but
for that: local; on the cluster; and on the cluster while, half way through ``--step``, one node is
killed (SIGKILL to all its processes) and a new one joins. Prints seconds and the data's sha256 of
each; fails if they are not all the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ray.cluster_utils import Cluster  # noqa: E402

from curate import api  # noqa: E402
from curate.engine.executor import Executor  # noqa: E402
from curate.engine.processes.local import LocalExecutor  # noqa: E402
from curate.engine.processes.ray import RayExecutor  # noqa: E402
from curate.engine.run import Progress, Walk  # noqa: E402
from curate.formats.dataset.write import data_sha256  # noqa: E402
from curate.recipe import load_recipe  # noqa: E402

STORE_BYTES = 200 * 2**20


class Halfway(Progress):
    """Does something once, when half of a step's rows are done."""

    def __init__(self, step: str, action: Callable[[], None]) -> None:
        self.step, self.action = step, action
        self.label, self.left = "", 0
        self.done = False

    def begin(self, label: str, total: int | None, cached: int) -> None:
        self.label, self.left = label, (total or 0) // 2

    def advance(self, rows: int, lost: int) -> None:
        if self.label != self.step:
            return
        if self.left > 0 >= self.left - rows:
            self.action()
            self.done = True
        self.left -= rows


def fetch(given: argparse.Namespace) -> Path:
    """Return a folder in which the recipe's sources are done."""
    output = Path(tempfile.mkdtemp())
    stages = Walk(load_recipe(given.recipe), output, LocalExecutor(1)).stages()
    last = [stage.label for stage in stages if hasattr(stage.step, "source")][-1]
    api.run(given.recipe, output=output, limit=given.limit, until=last)
    return output


def measure(
    given: argparse.Namespace, fetched: Path, executor: Executor, progress: Progress | None = None
) -> dict[str, Any]:
    """Return seconds, rows and the data's sha256 of a run."""
    output = Path(tempfile.mkdtemp()) / "output"
    shutil.copytree(fetched, output)
    started = time.monotonic()
    done = api.run(
        given.recipe, output=output, limit=given.limit, executor=executor, progress=progress
    )
    seconds = round(time.monotonic() - started, 1)
    shutil.rmtree(output.parent)
    assert done.record
    return {"seconds": seconds, "rows": done.record["configs"], "sha256": data_sha256(done.record)}


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes/triton_fim_small.yaml")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--step", default="compile")
    parser.add_argument("--processors", type=int, default=1)
    given = parser.parse_args()
    fetched = fetch(given)
    report = {"local": measure(given, fetched, LocalExecutor(2 * given.processors))}
    node = {"num_cpus": given.processors, "object_store_memory": STORE_BYTES}
    started = time.monotonic()
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    second = [cluster.add_node(**node)]
    executor = RayExecutor(cluster.address)
    up = round(time.monotonic() - started, 1)

    def replace_node() -> None:
        cluster.remove_node(second.pop(), allow_graceful=False)
        second.append(cluster.add_node(**node))

    try:
        report["ray"] = measure(given, fetched, executor)
        killing = Halfway(given.step, replace_node)
        report["ray_node_killed"] = measure(given, fetched, executor, killing)
        if not killing.done:
            raise SystemExit(f"no node was killed: step {given.step} did not get half way")
    finally:
        executor.close()
        cluster.shutdown()
        shutil.rmtree(fetched)
    print(json.dumps({**report, "cluster_up_s": up}, indent=1))
    if len({run["sha256"] for run in report.values()}) > 1:
        raise SystemExit("the data differ")


if __name__ == "__main__":
    main()
