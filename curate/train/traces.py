"""Rows to train on, from the traces of `curate generate --trace`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pyarrow as pa

from curate.formats.repair import Repair
from curate.generate.trace import Attempt, read_trace
from curate.rows import LICENSE, Loose, SampleRow, make_origin, make_row
from curate.step import Keep
from curate.teacher.template import load


def repair_table(path: Path) -> pa.Table:
    """Return the columns of the format ``repair``, a row for every answer in a trace that mended a
    wrong program.

    Nobody knows the license of what a user had rewritten: it is null, as are the source and the
    terms of the model. See to both before you publish such rows.

    Raises:
        InputError: the file cannot be read, or is no trace.
    """
    shown = Repair(format="repair")
    rows: list[Loose] = []
    for attempt in read_trace(path):
        if attempt.template != load("repair").label:  # a first answer, or one to be faster
            continue
        made = shown.render(sample_row(attempt))
        if isinstance(made, Keep):
            rows.extend(made.rows)
    return pa.Table.from_pylist(rows, schema=shown.columns())


def sample_row(attempt: Attempt) -> SampleRow:
    """Return an answer as a row of kind ``sample``, as the step `teacher` would have made it."""
    local = attempt.model.startswith(("/", ".", "~"))  # where it lies is nobody's business
    name = Path(attempt.model).name if local else attempt.model
    teacher = {"model": name, "terms": None}
    sample = {
        "family": "convert",
        "template": attempt.template,
        "attempt": attempt.round,
        "number": attempt.number,
        "finish": attempt.finish,
    }
    row = make_row(
        "sample",
        json.dumps([attempt.model, attempt.messages]),
        make_origin("local", teacher=teacher),
        license={field.name: None for field in LICENSE},
        entry_point="Model",
        reference=attempt.reference,
        triton=attempt.program,
        turns=attempt.messages,
        sample=sample,
        verdict=attempt.verdict and attempt.verdict.to_row(),
    )
    return cast(SampleRow, row)
