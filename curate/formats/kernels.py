"""The ``kernels`` format: kernels as they are, with all their evidence."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa

from curate.formats.format import Format
from curate.rows import ROW, Row
from curate.step import Keep

COLUMNS = (
    *("id", "entry_point", "triton", "wrapper", "kernel", "origin", "license", "static"),
    *("compile", "contamination", "parent_ids", "cluster"),
)


class Kernels(Format):
    """Every column of a finished kernel."""

    kinds: ClassVar[frozenset[str]] = frozenset({"kernel"})
    has_prompt: ClassVar[bool] = False

    format: Literal["kernels"]

    def columns(self) -> pa.Schema:
        return pa.schema([ROW.field(name) for name in COLUMNS])

    def render(self, row: Row) -> Keep:
        return Keep(({name: row[name] for name in COLUMNS},))

    def prompt_and_completion(self, row: Row, shown: Row) -> tuple[str, str]:
        return "", row["triton"]
