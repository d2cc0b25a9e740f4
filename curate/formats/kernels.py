"""The ``kernels`` format: kernels as they are, with all their evidence."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa

from curate.formats.format import Format, Shown, View
from curate.rows import ROW, KernelRow, select
from curate.step import Keep

COLUMNS = (
    *("id", "entry_point", "triton", "host_function", "kernel", "origin", "license", "static"),
    *("compile", "contamination", "parent_ids", "cluster"),
)


class KernelsFormat(Format):
    """Every column of a finished kernel."""

    kinds: ClassVar[frozenset[str]] = frozenset({"kernel"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "triton"})
    has_prompt: ClassVar[bool] = False

    format: Literal["kernels"]

    def columns(self) -> pa.Schema:
        return pa.schema([ROW.field(name) for name in COLUMNS])

    def render(self, row: KernelRow) -> View:
        return Keep((select(row, COLUMNS),))

    def prompt_and_completion(self, row: KernelRow, shown: Shown) -> tuple[str, str]:
        return "", row["triton"]
