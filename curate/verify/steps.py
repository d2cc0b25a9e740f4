"""The recipe's two steps of proof: `Compile` for many targets, and `Verify`, the judge.

Only what a recipe needs to name them is imported here; the judge itself is loaded in the worker.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from curate.devices import DEVICES, known_device
from curate.rows import Row
from curate.step import Context, Drop, Keep, Outcome, RowStep
from curate.verify.verdict import VERSION, WRONG

if TYPE_CHECKING:
    from curate.verify.judge.slots import Slot


TargetName = Annotated[str, AfterValidator(known_device)]


class Compile(RowStep):
    """Compile kernels for every target, on a machine without a GPU.

    The row is kept with registers, spills and shared memory of each target in ``compile``. Of a
    pair, every kernel that the program launches is compiled, and one that does not compile for
    one target drops the row. A kernel on its own is compiled with the signature that `signature`
    found; it is kept with the error of each target that it does not compile for, and dropped if
    there is no other.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"pair", "kernel"})
    sandboxed: ClassVar[bool] = True
    tools: ClassVar[tuple[str, ...]] = ("torch", "triton")

    step: Literal["compile"]
    targets: Annotated[
        tuple[TargetName, ...],
        Field(
            min_length=1,
            description="Devices that each kernel must compile for: cuda: and the compute "
            "capability without its point, or hip: and the architecture. There are "
            + ", ".join(DEVICES)
            + ".",
        ),
    ] = ("cuda:80", "cuda:90", "hip:gfx942")

    def setup(self, context: Context) -> None:
        os.environ["TRITON_CACHE_DIR"] = f"{tempfile.gettempdir()}/triton"
        import torch

        from curate.verify.compile.aot import compile_program
        from curate.verify.problem import EXAMPLE

        torch.set_num_threads(1)
        compile_program(*EXAMPLE, list(self.targets))

    def apply(self, row: Row, context: Context) -> Outcome:
        return self._kernel(row) if row["kind"] == "kernel" else self._program(row)

    def _kernel(self, row: Row) -> Outcome:
        from curate.verify.kernel import compile_kernel, read_signature
        from curate.verify.problem import ProgramError

        signature = read_signature(row["kernel"]["signature"])
        what = (row["triton"], row["entry_point"], signature)
        try:
            results = compile_kernel(*what, list(self.targets))
        except ProgramError as error:
            return Drop("import_error", {"message": str(error)})
        if not any(result["ok"] for result in results):
            shown = {name: results[0][name] for name in ("target", "error", "message")}
            return Drop("compile_error", {"kernel": row["entry_point"], **shown})
        return Keep(({**row, "compile": results},))

    def _program(self, row: Row) -> Outcome:
        from curate.verify.compile.aot import LaunchError, compile_program
        from curate.verify.problem import ProgramError

        try:
            results = compile_program(row["reference"], row["triton"], list(self.targets))
        except (LaunchError, ProgramError) as error:
            return Drop("launch_error", {"message": str(error)})
        if not any(result["kernels"] for result in results):
            return Drop("no_kernel", {"message": "forward launches no Triton kernel"})
        kernels = [result.pop("kernel") for result in results]
        for kernel, result in zip(kernels, results, strict=True):
            if not result["ok"]:
                shown = {name: result[name] for name in ("target", "error", "message")}
                return Drop("compile_error", {"kernel": kernel, **shown})
        return Keep(({**row, "compile": results},))


class Verify(RowStep):
    """Run a program beside its reference and compare: the judge, as a step.

    The row is kept with a ``verdict``: ``correct``, or ``unsupported`` with the reason why it
    could not be run here. Every other program is dropped, with the judge's evidence, or with
    ``keep_wrong`` kept with it too. A teacher's answer that holds no program passes as it is; one
    that a step before this one has judged on the same backend is not judged again, unless it was
    found correct on fewer draws than are asked for here, or without the times.
    """

    version: ClassVar[int] = VERSION
    seeded: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"pair", "sample"})
    # Rows' code runs in the judge's own sandboxes, one for references and one for candidates.
    sandboxed: ClassVar[bool] = False
    batch: ClassVar[int] = 32
    tools: ClassVar[tuple[str, ...]] = ("torch", "triton", "numpy")

    step: Literal["verify"]
    backend: Annotated[
        Literal["cpu", "cuda", "hip"],
        Field(
            description="Where programs run: on this machine's CPU, kernels as Triton's compiler "
            "lowers them, or on the device of this machine."
        ),
    ] = "cpu"
    trials: Annotated[
        int,
        Field(
            ge=1,
            le=100,
            description="Draws of inputs and parameters, each from another family, on which a "
            "program must agree with its reference.",
        ),
    ] = 8
    elements: Annotated[
        int,
        Field(
            gt=0,
            description="Elements that one program may load, store and compute in all, with "
            "backend cpu. A program that needs more is tried on smaller sizes alone, where it "
            "takes its sizes from its inputs (caveat smaller_sizes_only), and is otherwise kept "
            "as unsupported (reason too_much_work).",
        ),
    ] = 20_000_000_000
    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            description="Seconds that one row may take; its program gets a third of them, and "
            "any one request to its reference too.",
        ),
    ] = 300.0
    timing: Annotated[
        bool,
        Field(
            description="Time correct programs beside eager PyTorch and torch.compile, which takes "
            "some ten seconds each; on a device only."
        ),
    ] = False
    keep_wrong: Annotated[
        bool,
        Field(
            description="Keep programs that are wrong with their verdict, for repair and as "
            "negatives, and do not drop them. A row whose reference fails or proves nothing is "
            "dropped all the same."
        ),
    ] = False

    _slot: Slot | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _times_on_a_device(self) -> Verify:
        if self.timing and self.backend == "cpu":
            raise ValueError("timing needs a device: backend cuda or hip")
        return self

    @property
    def gpus(self) -> int:
        return 0 if self.backend == "cpu" else 1

    @property
    def workers(self) -> int | None:
        return (
            1 if self.timing else None
        )  # a time is worth something on a device without neighbours

    def setup(self, context: Context) -> None:
        from curate.verify.judge.slots import make_slot
        from curate.verify.problem import EXAMPLE
        from curate.verify.verdict import Candidate, Options

        options = Options(
            backend=self.backend,
            trials=self.trials,
            elements=self.elements,
            timing=self.timing,
            timeout_s=self.timeout_s / 3,
            memory_mb=self.memory_mb,
            sandbox=context.sandbox,
            workers=1,
            draw_seed=context.seed,
        )
        slot = make_slot(options)
        example = slot.judge(Candidate("example", *EXAMPLE))
        if example.status != "correct":
            raise RuntimeError(f"the judge calls its own example {example.status}: {example}")
        slot.forget()
        self._slot = slot

    def apply(self, row: Row, context: Context) -> Outcome:
        if row["triton"] is None:
            return Keep((row,))
        verdict = row["verdict"] if self._stands(row) else self._judge(row)
        status, reason = verdict["status"], verdict["reason"]
        kept = {"correct", "unsupported"} | (WRONG if self.keep_wrong else set())
        if status not in kept or reason == "reference_error":
            return Drop(status, {"reason": reason, **json.loads(verdict["evidence"] or "{}")})
        return Keep(({**row, "verdict": verdict},))

    def _judge(self, row: Row) -> Row:
        from curate.verify.verdict import Candidate

        assert self._slot
        compiled = any(result["ok"] for result in row["compile"] or [])
        found = self._slot.judge(
            Candidate(row["id"], row["reference"], row["triton"], compiled=compiled)
        )
        return found.to_row()

    def _stands(self, row: Row) -> bool:
        """Say whether an answer's verdict of an earlier step is as good as one from here."""
        known = row["verdict"]
        if row["kind"] != "sample" or not known:
            return False
        same = (known["backend"], known["judge"]) == (self.backend, VERSION)
        enough = known["trials"] >= self.trials and (known["timing"] or not self.timing)
        return same and bool(known["status"] != "correct" or enough)
