"""Find what a kernel must be compiled with: a type or a constant for each parameter."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from curate.devices import DEVICES, known_device
from curate.rows import KernelFacts, KernelRow
from curate.step import Context, Drop, Keep, Outcome, RowSeconds, RowStep


class Signature(RowStep):
    """Find the argument types and constants with which a kernel compiles.

    What its launch sites show comes first, then its annotations, defaults and configurations,
    then how it uses each parameter. What is still wrong is mended by what the compiler says.
    The row is kept with ``kernel.signature``, how it was found, how many compilations that took,
    and the element types with which the kernel compiles.
    """

    step: Literal["signature"]

    tools: ClassVar[tuple[str, ...]] = ("torch", "triton")
    takes: ClassVar[frozenset[str]] = frozenset({"kernel"})
    reads: ClassVar[frozenset[str]] = frozenset({"triton", "kernel"})
    sets: ClassVar[frozenset[str]] = frozenset({"kernel"})
    sandboxed: ClassVar[bool] = True
    batch: ClassVar[int] = 1

    target: Annotated[
        str,
        AfterValidator(known_device),
        Field(
            description="Device that the kernel must compile for. There are "
            + ", ".join(DEVICES)
            + "."
        ),
    ] = "cuda:90"
    attempts: Annotated[
        int, Field(gt=0, description="Compilations before the search for a signature gives up.")
    ] = 12
    dtypes: Annotated[
        tuple[Literal["fp32", "fp16", "bf16"], ...],
        Field(
            description="Element types to try for a kernel's floating-point pointers, all at "
            "once, when its signature is found: one compilation each."
        ),
    ] = ("fp32", "fp16", "bf16")

    timeout_s: RowSeconds = 300.0

    def setup(self, context: Context) -> None:
        os.environ["TRITON_CACHE_DIR"] = f"{tempfile.gettempdir()}/triton"
        import torch

        import curate.harvest.kernels.signature_search  # noqa: F401  imported once, before workers fork
        from curate.verify.compile.kernel import warm

        torch.set_num_threads(1)
        warm()

    def apply(self, row: KernelRow, context: Context) -> Outcome:
        from curate.harvest.kernels.signature_search import NoSignature, SignatureSearch
        from curate.problem.problem import ProgramError

        launches = json.loads(row["kernel"]["launches"] or "[]")
        what = (row["triton"], row["entry_point"], launches)
        try:
            search = SignatureSearch(*what, self.target, self.attempts)
            found = search.run()
        except ProgramError as error:
            return Drop("import_error", {"message": str(error)})
        except NoSignature as error:
            return Drop("no_signature", error.evidence)
        kernel: KernelFacts = {
            **row["kernel"],
            "signature": found.signature.to_json(),
            "found_by": found.found_by,
            "attempts": found.attempts,
            "dtypes": search.compiling_dtypes(found.signature, list(self.dtypes)),
        }
        return Keep(({**row, "kernel": kernel},))
