"""Make a module, a kernel or a pair stand alone: itself, what it needs from its package."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from curate.harvest.cuda.cuda_closure import closed_pair
from curate.harvest.kernels.closed_kernel import closed_kernel
from curate.harvest.python.package import Definition, package_of
from curate.harvest.python.slices import NotClosed, close
from curate.rows import FoundCudaRow, FoundRow, Row, make_row
from curate.step import Context, Drop, Keep, Outcome, RowStep

MODEL = "Model"
"""The name under which KernelBench's form holds the class."""


class Closure(RowStep):
    """Replace a module's or kernel's source by a file that runs alone.

    The file holds the class, renamed ``Model``, or the kernel under its own name, and every
    class, function and constant that it needs from its own file and from files of the same
    artifact, in the order in which Python would have run them. It imports torch, in-memory parts
    of the standard library, for modules NumPy and for kernels triton, and nothing else. Parts of
    well-known frameworks that load, log and dispatch are replaced by the least that computes the
    same: activations by name, bases, the attention that a file defines itself, and helpers that
    many packages import from one (`DropPath`, `to_2tuple`, `pack`).
    ``origin.derived_from`` names the lines taken from other files.

    A kernel keeps Triton's own decorators; ``@triton.autotune`` and ``@triton.heuristics`` go
    where what they read cannot be had. Questions to the platform that a file cannot ask alone are
    answered for NVIDIA's GPUs and recent versions. ``host_function`` gets the smallest function
    that launches the kernel and can stand alone with it; ``kernel.launches`` what the artifact's
    launch sites say of its parameters.

    Of a CUDA pair both sides are cut out: the Triton kernel as above, the CUDA kernel with the
    device functions, macros, types and constants that it needs and the smallest host code that
    launches it. Headers of other packages stay as ``#include`` lines.
    """

    step: Literal["closure"]

    version: ClassVar[int] = 7
    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-cuda", "tree-sitter-python")
    takes: ClassVar[frozenset[str]] = frozenset({"module", "kernel", "cuda"})
    reads: ClassVar[frozenset[str]] = frozenset({"text", "entry_point"})
    sets: ClassVar[frozenset[str]] = frozenset(
        {"text", "triton", "host_function", "kernel", "cuda"}
    )
    spoils: ClassVar[frozenset[str]] = frozenset({"license"})
    batch: ClassVar[int] = 64

    max_lines: Annotated[
        int,
        Field(gt=0, description="Longest standalone file; a longer one is dropped as too_large."),
    ] = 600

    def apply(self, row: FoundCudaRow, context: Context) -> Outcome:
        try:
            return Keep((_CLOSED[row["kind"]](row, context, self.max_lines),))
        except NotClosed as loss:
            return Drop(loss.reason, loss.evidence)


def _closed_module(row: FoundRow, context: Context, max_lines: int) -> Row:
    package = package_of(row, context.cache)
    target = Definition(row["origin"]["path"], row["origin"]["symbol"])
    closed = close(package, target, {target: MODEL})
    closed.check_length(max_lines)
    origin = row["origin"] | {"derived_from": [*row["origin"]["derived_from"], *closed.taken]}
    return make_row(
        "module",
        closed.text,
        origin,
        text=closed.text,
        entry_point=MODEL,
        license=row["license"],
        parent_ids=[row["id"]],
    )


_CLOSED = {"module": _closed_module, "kernel": closed_kernel, "cuda": closed_pair}
