"""The ``pairs`` format: rows as they are, with all their evidence."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa

from curate.formats.format import Format, View
from curate.rows import ROW, Row, select
from curate.step import Keep

COLUMNS = (
    *("id", "entry_point", "reference", "triton", "origin", "license", "static", "compile"),
    *("verdict", "contamination", "parent_ids", "cluster"),
)


class PairsFormat(Format):
    """Every column of a finished pair."""

    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "reference", "triton"})

    format: Literal["pairs"]

    def columns(self) -> pa.Schema:
        return pa.schema([ROW.field(name) for name in COLUMNS])

    def render(self, row: Row) -> View:
        return Keep((select(row, COLUMNS),))
