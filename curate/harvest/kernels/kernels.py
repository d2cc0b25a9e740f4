"""Find the Triton kernels of a file."""

from __future__ import annotations

from typing import ClassVar, Literal

from curate.harvest.kernels.launches import can_be_launched
from curate.harvest.python.environment import KERNELS
from curate.harvest.python.jitted import Jitted, jitted_functions
from curate.harvest.python.package import package_of
from curate.harvest.python.source import source_of
from curate.rows import FileRow, Row, part_row
from curate.step import Context, Drop, Keep, Outcome, RowStep


class Kernels(RowStep):
    """Turn a file into one row for each Triton kernel in it.

    A kernel is a function that `triton.jit` compiles and that can be launched: it returns no
    value, and it is launched somewhere in its artifact, or writes memory and no other kernel calls
    it. The others are helpers: `closure` brings them along with their callers. Gluon's functions
    (``triton.experimental.gluon``) are in another language and left out. Names are followed
    through import aliases and files of the same artifact. Nothing is imported.
    """

    step: Literal["kernels"]

    version: ClassVar[int] = 2
    tools: ClassVar[tuple[str, ...]] = ("tree-sitter", "tree-sitter-python")
    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    reads: ClassVar[frozenset[str]] = frozenset({"text"})
    makes: ClassVar[frozenset[str]] = frozenset({"kernel"})
    sets: ClassVar[frozenset[str]] = frozenset({"text", "entry_point"})
    batch: ClassVar[int] = 64

    def apply(self, row: FileRow, context: Context) -> Outcome:
        path = row["origin"]["path"]
        if "triton" not in row["text"] and "jit" not in row["text"]:
            return Drop("no_kernels")
        package = package_of(row, context.cache, KERNELS)
        try:
            found = jitted_functions(package, path)
        except SyntaxError as error:
            return Drop("syntax_error", {"line": error.lineno})
        if not found:
            return Drop("no_kernels")
        kernels = [kernel for kernel in found if can_be_launched(package, kernel)]
        if not kernels:
            return Drop("only_helpers", {"functions": [kernel.symbol for kernel in found]})
        return Keep(tuple(_kernel_row(row, kernel) for kernel in kernels))


def _kernel_row(row: FileRow, kernel: Jitted) -> Row:
    lines = (kernel.start_line, kernel.node.end_point[0] + 1)
    return part_row(row, "kernel", source_of(kernel.node), lines, kernel.symbol, kernel.name)
