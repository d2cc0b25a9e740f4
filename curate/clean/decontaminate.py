"""The ``decontaminate`` step: no row may hold a part of a benchmark that models are measured with.

A row is dropped when one of its programs holds a kernel, a class, a function or a whole program
with the structure of a benchmark's (`curate.clean.fingerprint`). Names are resolved through the
imports of the code, so the step belongs behind ``closure``, where code stands alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from curate.clean.fingerprint import (
    FORM,
    file_sha256,
    find_file,
    find_parts,
    read_benchmark,
    shipped_names,
)
from curate.clean.normalize import COLUMNS
from curate.rows import Row
from curate.step import Context, Drop, Keep, Outcome, RowStep
from curate.verify.files import InputError

Known = dict[str, dict[str, str]]
"""The hash of a part, and the evidence: benchmark, item and part."""


class Decontaminate(RowStep):
    """Drops rows that hold a part of a benchmark, renamed or not; names benchmark and item."""

    kinds: ClassVar[frozenset[str]] = frozenset({"task", "pair", "kernel", "module"})
    batch: ClassVar[int] = 64

    step: Literal["decontaminate"]
    against: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Benchmarks: names of fingerprint files that the package ships, or paths "
            "of files that `curate fingerprint` made. By default all that are shipped.",
        ),
    ] = tuple(shipped_names())

    @field_validator("against")
    @classmethod
    def _can_be_read(cls, against: tuple[str, ...]) -> tuple[str, ...]:
        for name in against:
            try:
                read_benchmark(find_file(name))
            except InputError as error:
                raise ValueError(str(error)) from error
        return against

    def options(self) -> dict[str, Any]:
        """Return the options; a file counts by its content, wherever it lies."""
        files = {file_sha256(find_file(name)) for name in self.against}
        return {**super().options(), "against": sorted(files), "form": FORM}

    def setup(self, context: Context) -> None:
        load_known(self.against)

    def apply(self, row: Row, context: Context) -> Outcome:
        known = load_known(self.against)
        for column in COLUMNS:
            if row[column] is not None and (match := find_match(row[column], known)):
                return Drop("contaminated", {**match, "column": column})
        return Keep((row,))


@lru_cache
def load_known(against: tuple[str, ...]) -> Known:
    """Return the parts of benchmarks by hash; of items that share one, the first by name counts."""
    known: Known = {}
    for benchmark in (read_benchmark(find_file(name)) for name in against):
        for item, parts in sorted(benchmark.items.items()):
            for part in parts:
                evidence = {"benchmark": benchmark.name, "item": item}
                known.setdefault(part.ast, {**evidence, "part": f"{part.kind} {part.name}".strip()})
    return known


def find_match(code: str, known: Known) -> dict[str, Any] | None:
    """Return the first part of a program that is known: benchmark, item, part and lines."""
    try:
        for part in find_parts(code):
            if part.ast in known:
                return {**known[part.ast], "lines": list(part.lines)}
    except (SyntaxError, ValueError, RecursionError):
        return None  # not Python, which is for `parse` to say: it has no structure to compare
    return None
