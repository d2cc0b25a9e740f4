"""Find CUDA kernels that have a counterpart in Triton in the same package."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from curate.harvest.cuda.counterparts import Counterpart, counterpart_of
from curate.harvest.cuda.cuda_package import SUFFIXES, cuda_package_of
from curate.harvest.cuda.cuda_source import CudaItem
from curate.harvest.python.environment import KERNELS
from curate.harvest.python.package import package_of
from curate.rows import FileRow, Row, part_row
from curate.step import WEEK_S, Context, Drop, Keep, Outcome, RowStep


class CudaPairs(RowStep):
    """Turn a CUDA file into one row for each kernel in it that the package also has in Triton.

    A pair is nominated when both kernels, or the functions that launch them and nothing else, have
    names of the same words: case, order, common abbreviations and words such as ``kernel`` aside.
    ``pairing.grade`` says how far that was confirmed:

    ``name``         the names, of two words at least, are all there is
    ``test-linked``  a test or a dispatching function of the package uses both; ``evidence`` says
                     which. Here one word is enough
    ``verified``     both were run beside one PyTorch reference; this step never gives it

    The source must select CUDA files (``include: ["**/*.cu", "**/*.cuh"]``); the Triton side is
    looked for in all files of the artifact. `closure` then cuts both out, and a second `licenses`
    joins the licenses of both. Nothing is compiled or run.
    """

    version: ClassVar[int] = 2  # `pairing` has a verdict

    step: Literal["cuda_pairs"]

    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-cuda", "tree-sitter-python")
    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    reads: ClassVar[frozenset[str]] = frozenset({"text"})
    makes: ClassVar[frozenset[str]] = frozenset({"cuda"})
    sets: ClassVar[frozenset[str]] = frozenset({"text", "entry_point", "pairing"})
    batch: ClassVar[int] = 512  # a package is read once a batch

    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=WEEK_S,
            description="Seconds that one file may take; the first reads its package.",
        ),
    ] = 600.0

    def apply(self, row: FileRow, context: Context) -> Outcome:
        path = row["origin"]["path"]
        if not path.endswith(SUFFIXES) or "__global__" not in row["text"]:
            return Drop("no_kernels")
        cuda = cuda_package_of(row, context.cache)
        kernels = cuda.kernels(path)
        if not kernels:
            return Drop("no_kernels")
        package = package_of(row, context.cache, KERNELS)
        found = [(kernel, counterpart_of(package, cuda, kernel)) for kernel in kernels]
        rows = tuple(_pair(row, kernel, other) for kernel, other in found if other is not None)
        if not rows:
            return Drop("no_counterpart", {"kernels": [kernel.name for kernel in kernels]})
        return Keep(rows)


def _pair(row: FileRow, kernel: CudaItem, other: Counterpart) -> Row:
    pairing = {
        "grade": "test-linked" if other.links else "name",
        "evidence": [vars(link) for link in other.links],
        "path": other.kernel.path,
        "start_line": other.kernel.start_line,
        "symbol": other.kernel.symbol,
        "verdict": None,
    }
    names = (kernel.name, other.kernel.name)
    return part_row(row, "cuda", kernel.text, kernel.lines, *names, pairing=pairing)
