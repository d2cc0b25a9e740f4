"""Find arguments with which a standalone module runs, and write it as a task."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from curate.harvest.modules.taskfile import make_positional, task_row
from curate.rows import ModuleRow
from curate.step import Context, Drop, Keep, Outcome, RowStep


class Inputs(RowStep):
    """Turn a standalone module into a task in KernelBench's form.

    Constructor arguments come from annotations and names; a configuration is a ``SimpleNamespace``
    of what the module reads of it. Inputs come from a search under fake tensors that begins with
    the shapes in docstrings and comments. Batch, lengths, height and width
    are constants of the file, all different where the module takes it. The task is then run for
    real: it must give finite tensors, the same twice, that depend on its inputs and are not just
    these, and leave no parameter as it was in memory.
    """

    step: Literal["inputs"]

    version: ClassVar[int] = 7
    tools: ClassVar[tuple[str, ...]] = ("torch",)
    takes: ClassVar[frozenset[str]] = frozenset({"module"})
    reads: ClassVar[frozenset[str]] = frozenset({"text", "entry_point"})
    makes: ClassVar[frozenset[str]] = frozenset({"task"})
    sets: ClassVar[frozenset[str]] = frozenset({"reference"})
    sandboxed: ClassVar[bool] = True
    batch: ClassVar[int] = 1

    tries: Annotated[
        int, Field(gt=0, description="Forward passes under fake tensors before giving up.")
    ] = 600
    seconds: Annotated[
        float,
        Field(gt=0, description="Time for the whole search of one module, real run included."),
    ] = 20.0
    max_elements: Annotated[
        int,
        Field(gt=0, description="Largest tensor, in elements, so that a laptop can check it."),
    ] = 4_194_304
    max_parameters: Annotated[
        int, Field(gt=0, description="Most parameters that a module may have, in elements.")
    ] = 50_000_000
    max_ops: Annotated[
        int, Field(gt=0, description="Most computing operators in one forward pass.")
    ] = 300

    def setup(self, context: Context) -> None:
        import logging

        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        import curate.harvest.modules.search  # noqa: F401  imported once, before workers fork

        torch.set_num_threads(1)
        logging.getLogger("torch").setLevel(logging.CRITICAL)  # it prints each failed try
        with FakeTensorMode():
            torch.nn.Linear(2, 2)(torch.rand(2, 2))

    def apply(self, row: ModuleRow, context: Context) -> Outcome:
        from curate.engine.processes.time_limit import OutOfTime, time_limit
        from curate.harvest.modules.search import ArgumentSearch, SearchLimits
        from curate.problem.eager import Unusable

        limits = SearchLimits(
            self.tries, self.seconds, self.max_elements, self.max_parameters, self.max_ops
        )
        text = make_positional(row["text"], row["entry_point"])
        name = row["origin"]["symbol"] or ""
        try:
            with time_limit(self.seconds):
                task = ArgumentSearch(text, row["entry_point"], limits, name).run()
        except OutOfTime:
            return Drop("out_of_time", {"seconds": self.seconds})
        except Unusable as loss:
            return Drop(loss.reason, loss.evidence)
        return Keep((task_row(row, task),))
