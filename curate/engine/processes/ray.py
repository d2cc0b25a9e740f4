"""The executor for a Ray cluster: one actor per processor, and one job in flight in each.

An actor has one worker process, the same as `LocalExecutor` has, so that a row which crashes, hangs
or eats memory costs a forked child and never the actor. Ray says where actors live and when one is
gone. Calls queued for an actor would share the blame for its death, so that there are none, and
attempts are counted here.

The folders that a run reads and writes must be shared: the same path on every node.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.engine.executor import (
    STOPPING,
    ExecutorUnavailable,
    Job,
    Lost,
    Result,
    WorkerError,
)
from curate.engine.identity import code_digest, tool_version
from curate.engine.processes.local import LocalExecutor, Pool
from curate.engine.processes.sandbox import SandboxUnavailable
from curate.engine.processes.worker import load_step, step_reference
from curate.step import Context, RowStep, Step
from curate.wording import how_to_install

if TYPE_CHECKING:
    import ray

ATTEMPTS = 3  # actors that may die under one job before its rows fail
LOOK_S = 1.0  # seconds between two looks at which nodes there are
PATIENCE_S = 60.0  # seconds for which there may be no node that a step can run on
CONNECT_S = 10.0  # seconds that a cluster may take to answer at first
STORE_BYTES = 200 * 2**20  # of a local cluster's object store: jobs and results under way

Answer = tuple[list[tuple[int, Result]], bool]


class RayExecutor:
    """Runs jobs on every processor of a Ray cluster, on those of nodes that join later too."""

    def __init__(
        self, address: str | None = None, sandbox: bool = True, workers: int | None = None
    ) -> None:
        """Connect to the cluster at ``address``, or start one on this machine.

        Args:
            address: of the cluster; by default ``$RAY_ADDRESS``, as Ray itself has it.
            sandbox: whether other people's code runs in a sandbox.
            workers: actors at most; by default as many as there are processors.

        Raises:
            ExecutorUnavailable: Ray is not installed, or does not answer.
        """
        self.sandbox = sandbox
        self.workers = workers
        self.connected = _connect(address or os.environ.get("RAY_ADDRESS") or "local", workers)

    def expect(self, steps: Sequence[Step]) -> None:
        """Take note of nothing: actors are started for each step."""

    def run(
        self, step: Step, context: Context, jobs: Iterator[Job]
    ) -> Iterator[tuple[Job, int, Result]]:
        """Yield ``(job, index, result)`` as items end; see `curate.engine.executor.Executor`."""
        if isinstance(step, RowStep) and step.workers and not step.gpus:
            yield from LocalExecutor(step.workers, self.sandbox).run(step, context, jobs)
            return
        if context.cache:
            context.cache.mkdir(parents=True, exist_ok=True)
            context = replace(context, cache=context.cache.absolute())
        with tempfile.NamedTemporaryFile(prefix="ray-", dir=context.cache) as sign:
            orders = Orders(
                step_reference(step), context, self.sandbox, Path.cwd(), Path(sign.name)
            )
            crew = _Crew(step, orders, jobs, self.workers)
            try:
                yield from crew.run()
            finally:
                crew.dismiss()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends, and so do all its processes."""
        if self.connected:
            import ray

            ray.shutdown()


def _connect(address: str, workers: int | None) -> bool:
    """Connect to a cluster, or start one if the address is ``local``; return False if this process
    is connected already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ExecutorUnavailable(f"Ray is not installed here; {how_to_install('ray')}") from None
    if ray.is_initialized():
        return False
    own = {
        "num_cpus": workers,
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
    }
    try:
        if ":" in address:
            _knock(address)
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="error",
            **(own if address == "local" else {}),
        )
    except (OSError, RuntimeError, ValueError) as error:  # a ConnectionError is an OSError
        said = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ExecutorUnavailable(
            f"cannot connect to Ray at {address}: {said}. "
            "On a node of the cluster, --address auto finds it; `ray status` tells whether it is up"
        ) from error
    return True


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at ``host:port``; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    socket.create_connection((host, int(port)), timeout=CONNECT_S).close()


# --- in an actor ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Orders:
    """What an actor must know to do as a worker of the machine that gives the orders would.

    Attributes:
        step: from `step_reference`.
        context: of the run; ``cache`` is absolute.
        sandbox: whether other people's code runs in a sandbox.
        folder: the working directory, from which a recipe's relative paths start.
        sign: a file in the cache that is there if the cache is shared.
    """

    step: dict[str, Any]
    context: Context
    sandbox: bool
    folder: Path
    sign: Path


class Station:
    """What an actor is: one worker process, warm from one job to the next."""

    def start(self, orders: Orders) -> tuple[str, dict[str, str]]:
        """Get ready; return the node's id and the versions that decide the step's results.

        Raises:
            WorkerError: a folder of the run is not on this node.
        """
        import ray

        for path in (orders.folder, orders.sign):
            if not path.exists():
                raise WorkerError(
                    f"node {os.uname().nodename} does not have {path}: recipe, output and cache "
                    "must be in folders that all nodes of the cluster share, at the same path"
                )
        os.chdir(orders.folder)
        step = load_step(orders.step)
        self.pool = Pool(step, orders.context, 1, orders.sandbox)
        return ray.get_runtime_context().get_node_id(), versions(step)

    def work(self, job: Job) -> Answer:
        """Begin a job; return its results, or those up to the end of a unit's first part."""
        self.results = self.pool.run(iter([job]))
        return self.go_on()

    def go_on(self) -> Answer:
        """Return ``(index, result)`` up to the next end of a part, and whether more follow."""
        given = []
        for _, index, result in self.results:
            given.append((index, result))
            if result.more:
                return given, True
        return given, False


def versions(step: Step) -> dict[str, str]:
    """Return what must be the same on all nodes for a step to give the same everywhere."""
    names = ("kernel-curate", *step.tools)
    return {"code of the step": code_digest(type(step))} | {n: tool_version(n) for n in names}


# --- on the driver --------------------------------------------------------------------------


@dataclass
class _Task:
    """A job, and how many actors have died under it."""

    job: Job
    deaths: int = 0


@dataclass
class _Actor:
    """An actor, seen from the driver; its node is known when it has started."""

    handle: ray.actor.ActorHandle[Station]
    node: str | None = None
    task: _Task | None = None


class _Crew:
    """The actors of one step, from its first job to its last."""

    def __init__(
        self, step: Step, orders: Orders, jobs: Iterator[Job], workers: int | None
    ) -> None:
        import ray

        self.step, self.orders, self.jobs, self.workers = step, orders, jobs, workers
        self.gpus = step.gpus if isinstance(step, RowStep) else 0
        # An actor is never restarted by Ray, nor its calls repeated: both are done here.
        self.station = ray.remote(num_cpus=1, num_gpus=self.gpus, max_restarts=0)(Station)
        self.waiting: deque[_Task] = deque()
        self.calls: dict[ray.ObjectRef[Any], _Actor] = {}  # one per busy or starting actor
        self.idle: list[_Actor] = []
        self.stillborn = 0  # actors that died before they had started, since one did start
        self.nodes: set[str] = set()
        self.room = 0
        self.looked = self.had_room = float("-inf")

    def run(self) -> Iterator[tuple[Job, int, Result]]:
        """Yield results until no job is left."""
        import ray

        self.had_room = time.monotonic()
        while self._staff():
            if not self.calls:
                time.sleep(LOOK_S)
                continue
            for call in ray.wait(list(self.calls), timeout=LOOK_S)[0]:
                yield from self._hear(call)

    def dismiss(self) -> None:
        """End all actors, whatever they are at."""
        import ray

        for actor in [*self.calls.values(), *self.idle]:
            ray.kill(actor.handle)

    def _staff(self) -> bool:
        """See that jobs have actors; return whether there is anything to wait for."""
        self._look()
        while self.idle and (task := self._next()):
            self._give(self.idle.pop(), task)
        while self._too_few() and len(self.calls) + len(self.idle) < self.room:
            handle = self.station.remote()
            self.calls[handle.start.remote(self.orders)] = _Actor(handle)
        return bool(self.waiting) or any(actor.task for actor in self.calls.values())

    def _look(self) -> None:
        """Find out, from time to time, which nodes there are and how many actors have room."""
        import ray

        now = time.monotonic()
        if now - self.looked < LOOK_S:
            return
        self.looked = now
        alive = [node for node in ray.nodes() if node["Alive"]]
        self.nodes = {node["NodeID"] for node in alive}
        room = sum(self._room_on(node["Resources"]) for node in alive)
        self.room = room if self.workers is None else min(room, self.workers)
        if self.room:
            self.had_room = now
        elif now - self.had_room > PATIENCE_S:
            needs = "a processor" + (f" and {self.gpus} GPU" if self.gpus else "")
            raise WorkerError(
                f"step {self.step.name} needs {needs}, which no node of the Ray cluster has had "
                f"for {PATIENCE_S:.0f} seconds"
            )

    def _room_on(self, resources: dict[str, float]) -> int:
        processors = int(resources.get("CPU", 0))
        return min(
            processors, int(resources.get("GPU", 0)) // self.gpus if self.gpus else processors
        )

    def _too_few(self) -> bool:
        """Whether a job waits for which no actor is starting; takes one from the caller if so."""
        starting = sum(actor.task is None for actor in self.calls.values())
        if len(self.waiting) <= starting and (job := next(self.jobs, None)):
            self.waiting.append(_Task(job))
        return len(self.waiting) > starting

    def _next(self) -> _Task | None:
        if self.waiting:
            return self.waiting.popleft()
        job = next(self.jobs, None)
        return _Task(job) if job else None

    def _give(self, actor: _Actor, task: _Task | None) -> None:
        actor.task = task
        if task:
            self.calls[actor.handle.work.remote(task.job)] = actor
        else:
            self.idle.append(actor)

    def _hear(self, call: ray.ObjectRef[Any]) -> Iterator[tuple[Job, int, Result]]:
        """Take an actor's answer, or its death, and give it more to do before its results go on."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        actor = self.calls.pop(call)
        task = actor.task
        try:
            answer = ray.get(call)
        except RayTaskError as error:
            ray.kill(actor.handle)
            if task is None or isinstance(error.cause, WorkerError | SandboxUnavailable):
                raise WorkerError(str(error.cause)) from None
            if isinstance(error.cause, STOPPING):
                raise error.cause from None
            raise  # a bug of ours
        except RayError as error:
            ray.kill(actor.handle)
            yield from self._mourn(actor, error)
            return
        if task is None:
            self._welcome(actor, *answer)
            return
        results, more = answer
        if more:
            self.calls[actor.handle.go_on.remote()] = actor
        else:
            self._give(actor, self._next())
        for index, result in results:
            yield task.job, index, result

    def _welcome(self, actor: _Actor, node: str, found: dict[str, str]) -> None:
        """Give an actor that has started its first job, if it is what it should be."""
        self.stillborn = 0
        actor.node = node
        if found != (ours := versions(self.step)):
            apart = [
                f"{n}: {ours[n]} here, {found.get(n)} there"
                for n in ours
                if ours[n] != found.get(n)
            ]
            raise WorkerError(
                f"step {self.step.name}: a node of the Ray cluster would give other results than "
                f"this machine ({'; '.join(apart)}); install the same on all"
            )
        self._give(actor, self._next())

    def _mourn(self, actor: _Actor, error: Exception) -> Iterator[tuple[Job, int, Result]]:
        """Let another actor have a lost one's job, or file its rows as failed."""
        said = str(error).strip()[:2000]
        self.looked = float("-inf")
        self._look()
        if (task := actor.task) is None:
            self.stillborn += 1
            if self.stillborn > ATTEMPTS * max(1, self.room):
                raise WorkerError(f"step {self.step.name}: an actor could not start\n{said}")
            return
        task.deaths += 1
        if task.deaths < ATTEMPTS:
            self.waiting.appendleft(task)
            return
        reason = "crash" if actor.node in self.nodes else "node_died"
        evidence = {"message": said, "attempts": ATTEMPTS}
        for index, item in enumerate(task.job.items):
            yield task.job, index, Result([], [Lost(item, "failed", reason, evidence)])
