"""The step `kernelbook`: modules of KernelBook become tasks.

KernelBook (https://huggingface.co/datasets/GPUMODE/KernelBook) pairs PyTorch modules with what
PyTorch 2.5 compiled for them. Columns used here: ``entry_point`` (the module's class) and
``python_code`` (the module, ``get_inputs`` and ``get_init_inputs``). Its programs, of which 59 %
leave work to a library, are not used: `inductor` prints others.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from curate.rows import FileRow, Origin, Row, make_row
from curate.step import Context, Drop, Keep, Outcome, RowStep

_COLUMNS = ("entry_point", "python_code")


class Kernelbook(RowStep):
    """Turn a record with KernelBook's columns into a task, ready for `inductor`.

    The module is put in KernelBench's form: the class is called ``Model`` and its constructor
    takes positional arguments. Then it is run: one whose parameters nobody initialises, that draws
    random numbers or that changes its inputs is dropped. KernelBook's own program is left behind.
    """

    step: Literal["kernelbook"]

    version: ClassVar[int] = 3
    tools: ClassVar[tuple[str, ...]] = ("torch",)
    takes: ClassVar[frozenset[str]] = frozenset({"record"})
    reads: ClassVar[frozenset[str]] = frozenset({"text"})
    makes: ClassVar[frozenset[str]] = frozenset({"task"})
    sets: ClassVar[frozenset[str]] = frozenset({"reference", "entry_point"})
    sandboxed: ClassVar[bool] = True

    def setup(self, context: Context) -> None:
        import torch

        from curate.harvest.kernelbook.task import run_task
        from curate.problem.problem import EXAMPLE

        torch.set_num_threads(1)
        run_task(EXAMPLE[0])  # torch imports much when a module is first built

    def apply(self, row: FileRow, context: Context) -> Outcome:
        from curate.harvest.kernelbook.task import run_task, write_task
        from curate.problem.eager import Unusable

        record = json.loads(row["text"])
        missing = [name for name in _COLUMNS if not isinstance(record.get(name), str)]
        if missing:
            return Drop("not_kernelbook", {"missing": missing, "columns": sorted(record)})
        entry_point = record["entry_point"]
        try:
            task = write_task(record["python_code"], entry_point)
            run_task(task)
        except Unusable as loss:
            return Drop(loss.reason, loss.evidence)
        return Keep((_task_row(row, record, task),))


def _task_row(row: FileRow, record: dict[str, Any], reference: str) -> Row:
    link = record.get("repo_link")
    origin: Origin = {
        **row["origin"],
        "symbol": record["entry_point"],
        "derived_from": [*row["origin"]["derived_from"], *([str(link)] if link else [])],
    }
    return make_row(
        "task",
        reference,
        origin,
        parent_ids=[row["id"]],
        reference=reference,
        entry_point="Model",
        license=row["license"],
    )
