"""Candidates for the judge, read from JSON lines, Parquet, a data set or program files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from curate.files import InputError
from curate.verify import Candidate, make_candidates, not_none, read_jsonl, read_programs

COLUMNS = ("id", "reference", "triton")


def read_candidates(paths: Sequence[Path], reference: Path | None = None) -> list[Candidate]:
    """Return the candidates that ``paths`` hold.

    Args:
        paths: one ``.jsonl`` file, one ``.parquet`` file with the columns ``id``, ``reference``
            and ``triton``, one folder that `curate run` wrote, or ``.py`` files.
        reference: the ``.py`` file of the PyTorch module that the ``.py`` files answer.

    Raises:
        InputError: the paths are something else, hold no candidates, or one is malformed.
    """
    if all(path.suffix == ".py" for path in paths):
        if reference is None:
            raise InputError(f"{paths[0]}: needs --reference FILE.py, the module that it answers")
        return read_programs(reference, paths)
    if reference is not None:
        raise InputError("--reference is for .py files; other files hold their references")
    if len(paths) > 1:
        raise InputError(f"{len(paths)} paths: more than one is for .py files only")
    (path,) = paths
    if path.suffix == ".jsonl":
        return read_jsonl(path)
    if path.suffix == ".parquet":
        return not_none(path, make_candidates(parquet_rows([path])))
    if path.is_dir():
        files = sorted(path.glob("pairs/*.parquet"))
        if not files:
            raise InputError(
                f"{path}: holds no pairs/*.parquet; add '- format: pairs' to its recipe"
            )
        return not_none(path, make_candidates(parquet_rows(files)))
    raise InputError(f"{path}: must be .jsonl, .parquet, .py, or a folder that `curate run` wrote")


def parquet_rows(
    paths: Sequence[Path], needed: Sequence[str] = COLUMNS, wanted: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row after its place, which errors name.

    Args:
        paths: Parquet files.
        needed: columns that each file must have.
        wanted: columns to read from files that have them.

    Raises:
        InputError: a file cannot be read, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        try:
            file = pq.ParquetFile(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        names = file.schema_arrow.names
        missing = [name for name in needed if name not in names]
        if missing:
            raise InputError(f"{path}: has no column '{missing[0]}'; needed: {', '.join(needed)}")
        columns = [*needed, *(name for name in wanted if name in names)]
        for number, row in enumerate(file.read(columns).to_pylist(), 1):
            yield f"{path} row {number}", row
