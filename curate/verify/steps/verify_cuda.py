"""The ``verify_cuda`` step: both sides of a CUDA→Triton pair beside one PyTorch reference.

Only what a recipe needs to name it is imported here; the judge itself is loaded in the worker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from curate.files import file_sha256
from curate.rows import CudaRow, Pairing, Row
from curate.step import WEEK_S, Context, Drop, Keep, Outcome, RowStep, StepError
from curate.verify.compile.ptx import NvccError, compile_ptx
from curate.verify.verdict import VERSION

if TYPE_CHECKING:
    from curate.verify.judge.slot import Slot
    from curate.verify.steps.cuda_programs import Binding
    from curate.verify.verdict import Candidate, Verdict


class VerifyCuda(RowStep):
    """Run both sides of a CUDA→Triton pair beside one PyTorch reference: the grade ``verified``.

    What a kernel's arguments mean, no file of its package says in a form that can be read: a
    *binding*, written by hand, gives the reference and calls either side (see
    `curate.verify.steps.cuda_programs`). A pair of which both sides are correct is ``verified``,
    and keeps both verdicts: the Triton side's in ``verdict``, the CUDA side's in
    ``pairing.verdict``. One with a wrong side is dropped with the judge's evidence. All others
    keep their grade, and ``pairing.verdict`` says why they are unverified: ``no_binding``,
    ``no_device``, or what kept the compiler from it.

    The CUDA side is compiled by nvcc, in a sandbox, and needs an NVIDIA GPU to run. Where there is
    none, verdicts can be given that ``python -m curate.verify`` found on a machine that has one.
    """

    version: ClassVar[int] = VERSION
    takes: ClassVar[frozenset[str]] = frozenset({"cuda"})
    reads: ClassVar[frozenset[str]] = frozenset({"cuda", "triton", "pairing"})
    sets: ClassVar[frozenset[str]] = frozenset({"verdict", "pairing", "reference"})
    # Rows' code runs in the judge's own sandboxes, and nvcc in one of its own.
    sandboxed: ClassVar[bool] = False
    tools: ClassVar[tuple[str, ...]] = ("torch", "triton", "nvidia-cuda-nvcc")

    step: Literal["verify_cuda"]
    bindings: Annotated[
        str,
        Field(
            description="Folder of bindings, each a file PACKAGE/KERNEL.py named after the package "
            "and the CUDA kernel; relative to the recipe."
        ),
    ]
    backend: Annotated[
        Literal["cuda", "compile"],
        Field(
            description="Where both sides run: the GPU of this machine, or nowhere, where "
            "`verdicts` has to say what they do."
        ),
    ] = "compile"
    verdicts: Annotated[
        str | None,
        Field(
            description="Verdict file of python -m curate.verify, from a machine with a GPU: what "
            "it says of these very programs is taken, and they are not run again."
        ),
    ] = None
    arch: Annotated[
        int,
        Field(ge=75, description="Compute capability without its point, 90 for Hopper."),
    ] = 90
    trials: Annotated[
        int,
        Field(ge=1, le=100, description="Draws of inputs on which a side must agree."),
    ] = 8
    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=WEEK_S,
            description="Seconds that one pair may take; nvcc gets a third of them.",
        ),
    ] = 600.0

    _slot: Slot | None = PrivateAttr(None)
    _known: dict[str, Verdict] = PrivateAttr(default_factory=dict)

    @property
    def gpus(self) -> int:
        return 1 if self.backend == "cuda" else 0

    @property
    def _bindings(self) -> Path:
        return self.folder / self.bindings

    def options(self) -> dict[str, Any]:
        files = sorted(self._bindings.glob("*/*.py"))
        files += [] if self.verdicts is None else [Path(self.verdicts)]
        digests = [file_sha256(p) for p in files if p.exists()]
        return super().options() | {"sha256": digests}

    def setup(self, context: Context) -> None:
        from curate.files import InputError
        from curate.verify.files import read_verdicts
        from curate.verify.judge.slots import make_slot
        from curate.verify.verdict import Options

        if not self._bindings.is_dir():
            raise StepError(f"bindings: there is no folder {self._bindings}")
        if self.verdicts is not None:
            try:
                entries = read_verdicts(Path(self.verdicts)).values()
            except InputError as error:
                raise StepError(str(error)) from error
            self._known = {e.sha256: e.verdict for e in entries if e.verdict.judge == VERSION}
        if self.backend == "cuda":
            options = Options(
                backend="cuda",
                trials=self.trials,
                timeout_s=self.timeout_s / 3,
                sandbox=context.sandbox,
                workers=1,
            )
            self._slot = make_slot(options)

    def apply(self, row: CudaRow, context: Context) -> Outcome:
        from curate.verify.steps.cuda_programs import BindingError, find_binding

        try:
            binding = find_binding(self._bindings, dict(row))
        except BindingError as error:
            raise StepError(str(error)) from error
        if binding is None:
            return _unverified(row, "no_binding")
        try:
            ptx = compile_ptx(
                binding.source(row["cuda"]), self.arch, self.timeout_s / 3, context.sandbox
            )
        except NvccError as failed:
            return _unverified(row, failed.error, message=failed.message)
        sides = dict(zip(("cuda", "triton"), binding.candidates(dict(row), ptx), strict=True))
        found = {side: self._judge(candidate) for side, candidate in sides.items()}
        return graded(row, binding, found)

    def _judge(self, candidate: Candidate) -> Verdict:
        from curate.verify.files import text_sha256
        from curate.verify.verdict import Verdict

        if known := self._known.get(text_sha256(candidate)):
            return known
        if self._slot is None:
            return Verdict(candidate.id, "unsupported", "no_device")
        return self._slot.judge(candidate)


def graded(row: CudaRow, binding: Binding, found: dict[str, Verdict]) -> Outcome:
    """Return what becomes of a pair, given the verdicts on its ``cuda`` and ``triton`` sides."""
    statuses = {side: verdict.status for side, verdict in found.items()}
    unjudged = [verdict for verdict in found.values() if verdict.status == "unsupported"]
    if unjudged:
        return _unverified(row, unjudged[0].reason or "", **unjudged[0].evidence)
    if set(statuses.values()) != {"correct"}:
        said = {
            side: {"status": verdict.status, "reason": verdict.reason, **verdict.evidence}
            for side, verdict in found.items()
            if verdict.status != "correct"
        }
        return Drop("differs", {"correct": [s for s in statuses if s not in said], **said})
    cuda, triton = found["cuda"].to_row(), found["triton"].to_row()
    pairing: Pairing = {**row["pairing"], "grade": "verified", "verdict": cuda}
    kept: Row = {**row, "pairing": pairing, "verdict": triton, "reference": binding.reference}
    return Keep((kept,))


def _unverified(row: CudaRow, reason: str, **evidence: Any) -> Keep[Row]:
    from curate.verify.verdict import Verdict

    verdict = Verdict(row["id"], "unsupported", reason, evidence=evidence).to_row()
    return Keep(({**row, "pairing": row["pairing"] | {"verdict": verdict}},))
