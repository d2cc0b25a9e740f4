"""Run the functions that launch kernels, and label what they did."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, cast

from pydantic import Field

from curate.rows import HostRun, KernelRow
from curate.step import Context, Keep, Outcome, RowMemory, RowSeconds, RowStep


class Launch(RowStep):
    """Call a kernel's wrapper on the CPU, with inputs made up for it.

    The wrapper finds a GPU; its kernels run as Triton's compiler lowers them, and every address
    is checked. Every row is kept; ``kernel.run`` says whether the wrapper ran, with which inputs,
    how many kernels it launched, whether it gives the same bits again, and which inputs it wrote
    to. A row without a wrapper has no run.
    """

    step: Literal["launch"]

    version: ClassVar[int] = 2  # kernels run as TTIR
    tools: ClassVar[tuple[str, ...]] = ("torch", "triton", "numpy")
    takes: ClassVar[frozenset[str]] = frozenset({"kernel"})
    reads: ClassVar[frozenset[str]] = frozenset({"kernel"})
    sets: ClassVar[frozenset[str]] = frozenset({"kernel"})
    sandboxed: ClassVar[bool] = True
    batch: ClassVar[int] = 1

    tries: Annotated[
        int, Field(gt=0, description="Calls with other inputs each before giving up.")
    ] = 80
    elements: Annotated[
        int,
        Field(gt=0, description="Elements on which all tries of one wrapper may work."),
    ] = 500_000_000
    seconds: Annotated[
        float, Field(gt=0, description="Time for all tries of one wrapper; it ends endless loops.")
    ] = 30.0
    timeout_s: RowSeconds = 120.0
    memory_mb: RowMemory = 2048

    def setup(self, context: Context) -> None:
        import torch

        import curate.harvest.kernels.host_function_run  # noqa: F401  imported once, before workers fork
        from curate.verify import cpu_device

        torch.set_num_threads(1)
        cpu_device.warm()

    def apply(self, row: KernelRow, context: Context) -> Outcome:
        from curate.harvest.kernels.host_function_run import RunLimits, label

        if row["host_function"] is None:
            return Keep((row,))
        run = label(row, RunLimits(self.tries, self.elements, self.seconds))
        return Keep(({**row, "kernel": {**row["kernel"], "run": cast(HostRun, run)}},))
