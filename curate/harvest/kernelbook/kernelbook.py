"""The step `kernelbook`: rows of KernelBook become tasks with their compiled programs.

KernelBook (https://huggingface.co/datasets/GPUMODE/KernelBook) pairs PyTorch modules with what
PyTorch 2.5 compiled for them. Columns used here: ``entry_point`` (the module's class),
``python_code`` (the module, ``get_inputs`` and ``get_init_inputs``), ``triton_code`` (the program,
class ``<entry_point>New``) and ``original_triton_code`` (the compiler's file).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from curate.rows import FileRow, Generated, Origin, Row, make_row
from curate.step import Context, Drop, Keep, Outcome, RowStep

_COLUMNS = ("entry_point", "python_code", "triton_code", "original_triton_code")


class Kernelbook(RowStep):
    """Turn a record with KernelBook's columns into a task, ready for `standalone`.

    The module is put in KernelBench's form: the class is called ``Model`` and its constructor
    takes positional arguments. The program is brought into the form that Inductor writes today, by
    its text alone; what was changed is named in the pair's ``origin.generator``, as ``repair …``.
    Then the module is run: one whose parameters nobody initialises, that draws random numbers or
    that changes its inputs is dropped.
    """

    step: Literal["kernelbook"]

    version: ClassVar[int] = 2
    tools: ClassVar[tuple[str, ...]] = ("torch",)
    takes: ClassVar[frozenset[str]] = frozenset({"record"})
    reads: ClassVar[frozenset[str]] = frozenset({"text"})
    makes: ClassVar[frozenset[str]] = frozenset({"task"})
    sets: ClassVar[frozenset[str]] = frozenset({"reference", "entry_point", "generated"})
    sandboxed: ClassVar[bool] = True

    extern_calls: Annotated[
        bool,
        Field(
            description="Keep programs that leave part of the work to a library (cuBLAS, cuDNN, "
            "ATen), as most of KernelBook's do; they are listed in `static.extern_calls`. "
            "Otherwise they are dropped as `extern_calls`."
        ),
    ] = False

    def setup(self, context: Context) -> None:
        import torch

        import curate.harvest.kernelbook.program  # noqa: F401  imported once, before workers fork
        from curate.harvest.kernelbook.task import KernelBookTask, run_task
        from curate.verify.problem import EXAMPLE

        torch.set_num_threads(1)
        run_task(KernelBookTask(EXAMPLE[0], []))  # torch imports much when a module is first built

    def apply(self, row: FileRow, context: Context) -> Outcome:
        from curate.generator.text.container import CannotRewrite
        from curate.harvest.kernelbook.program import move
        from curate.harvest.kernelbook.task import run_task, write_task
        from curate.verify.eager import Unusable

        record = json.loads(row["text"])
        missing = [name for name in _COLUMNS if not isinstance(record.get(name), str)]
        if missing:
            return Drop("not_kernelbook", {"missing": missing, "columns": sorted(record)})
        entry_point = record["entry_point"]
        try:
            task = write_task(record["python_code"], entry_point)
            program, compiled = record["triton_code"], record["original_triton_code"]
            moved = move(program, compiled, f"{entry_point}New")
            if moved.extern_calls and not self.extern_calls:
                return Drop("extern_calls", {"calls": moved.extern_calls})
            run_task(task)
        except Unusable as loss:
            return Drop(loss.reason, loss.evidence)
        except CannotRewrite as error:
            return Drop("not_movable", {"construct": error.construct, "line": error.line})
        except SyntaxError as error:
            return Drop("syntax_error", {"message": str(error)})
        moved.spec["repairs"] = [*task.repairs, *moved.repairs]
        generated: Generated = {"target": None, "code": moved.code, "spec": json.dumps(moved.spec)}
        return Keep((_task_row(row, record, task.text, generated),))


def _task_row(row: FileRow, record: dict[str, Any], reference: str, generated: Generated) -> Row:
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
        generated=generated,
    )
