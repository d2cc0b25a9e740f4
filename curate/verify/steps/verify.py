"""The ``verify`` step: the judge, on every row.

Only what a recipe needs to name it is imported here; the judge itself is loaded in the worker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PrivateAttr, model_validator

from curate.rows import Judgement, Row
from curate.step import WEEK_S, Context, Drop, Keep, Outcome, RowStep
from curate.verify.verdict import VERSION, WRONG

if TYPE_CHECKING:
    from curate.verify.judge.slot import Slot


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
    takes: ClassVar[frozenset[str]] = frozenset({"pair", "sample"})
    sets: ClassVar[frozenset[str]] = frozenset({"verdict"})
    # Rows' code runs in the judge's own sandboxes, one for references and one for candidates.
    sandboxed: ClassVar[bool] = False
    batch: ClassVar[int] = 8
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
            le=WEEK_S,
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
        from curate.problem.problem import EXAMPLE
        from curate.verify.judge.slots import make_slot
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
        verdict = self._standing(row) or self._judge(row)
        status, reason = verdict["status"], verdict["reason"]
        kept = {"correct", "unsupported"} | (WRONG if self.keep_wrong else set())
        if status not in kept or reason == "reference_error":
            return Drop(status, {"reason": reason, **json.loads(verdict["evidence"] or "{}")})
        return Keep(({**row, "verdict": verdict},))

    def _judge(self, row: Row) -> Judgement:
        from curate.verify.verdict import Candidate

        assert self._slot
        compiled = any(result["ok"] for result in row["compile"] or [])
        found = self._slot.judge(
            Candidate(row["id"], row["reference"] or "", row["triton"] or "", compiled=compiled)
        )
        return found.to_row()

    def _standing(self, row: Row) -> Judgement | None:
        """Return an answer's verdict of an earlier step if it is as good as one from here."""
        known = row["verdict"]
        if row["kind"] != "sample" or not known:
            return None
        same = (known["backend"], known["judge"]) == (self.backend, VERSION)
        enough = known["trials"] >= self.trials and (known["timing"] or not self.timing)
        return known if same and (known["status"] != "correct" or enough) else None
