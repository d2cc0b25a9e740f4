"""Problems to test a model on: PyTorch modules in the form of KernelBench's files.

A problem is the text of a Python file with ``Model``, ``get_inputs`` and ``get_init_inputs``
(https://github.com/ScalingIntelligence/KernelBench, MIT). Here it is only parsed.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.candidates import parquet_rows
from curate.files import InputError, json_lines, read_text
from curate.wording import choose

NAMES = {"Model", "get_inputs", "get_init_inputs"}
"""What a file must define to be a problem."""

PAIRS = "pairs"
"""Where `curate run` writes whole rows, references among them."""


@dataclass(frozen=True)
class Problem:
    """A module that a model is asked to rewrite.

    Attributes:
        id: short and readable, such as ``level1/19_ReLU``.
        reference: the text of its file.
        path: where it was read.
        answer: a Triton program that is right, where one is known.
    """

    id: str
    reference: str
    path: str
    answer: str | None = None


def read_problems(
    path: Path,
    *,
    levels: Sequence[int] = (),
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
) -> list[Problem]:
    """Return the problems of a benchmark, in the order of their ids.

    Args:
        path: KernelBench's checkout or another folder of ``.py`` files; a ``.jsonl`` or
            ``.parquet`` file with ``id``, ``reference`` and perhaps ``triton``; or a data set that
            `curate run` wrote, with the format ``pairs``.
        levels: of KernelBench; empty takes all.
        split: of a data set.
        limit: at most so many; which ones, the seed and their ids decide.
        seed: of the choice.

    Raises:
        InputError: there is no such benchmark; the message says what is there.
    """
    problems = list(_read(path, split))
    if levels:
        wanted = tuple(f"level{level}/" for level in levels)
        problems = [problem for problem in problems if problem.id.startswith(wanted)]
    if not problems:
        levelled = f" of level {', '.join(map(str, levels))}" if levels else ""
        raise InputError(
            f"{path}: holds no problem{levelled}; a problem is a .py file that defines "
            f"{', '.join(sorted(NAMES))}"
        )
    if limit is not None:
        problems = sorted(problems, key=lambda p: _drawn(seed, p.id))[:limit]
    return sorted(problems, key=lambda problem: _natural(problem.id))


def _drawn(seed: int, problem_id: str) -> str:
    return hashlib.sha256(f"{seed} {problem_id}".encode()).hexdigest()


def _natural(problem_id: str) -> list[tuple[int, str]]:
    """Return a key that puts 2 before 10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _PARTS.split(problem_id)]


_PARTS = re.compile(r"(\d+)")


def _read(path: Path, split: str) -> Iterator[Problem]:
    if path.suffix == ".jsonl":
        return _from_rows(json_lines(path, read_text(path)))
    if path.suffix == ".parquet":
        return _from_rows(_rows([path]))
    if not path.is_dir():
        raise InputError(f"{path}: must be a folder, a .jsonl or a .parquet file")
    if (path / PAIRS).is_dir():
        return _from_rows(_rows(_split_files(path / PAIRS, split)))
    inner = path / "KernelBench"  # a checkout holds examples and other files alongside its problems
    return _from_folder(inner if (inner / "level1").is_dir() else path)


def _split_files(folder: Path, split: str) -> list[Path]:
    files = sorted(folder.glob(f"{split}-*.parquet"))
    if not files:
        there = sorted({file.name.split("-")[0] for file in folder.glob("*.parquet")})
        raise InputError(f"{folder}: has no split '{split}'{choose(split, there)}")
    return files


def _rows(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    return parquet_rows(files, ("id", "reference"), ("triton",))


def _from_rows(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[Problem]:
    places: dict[str, str] = {}
    for place, row in rows:
        for name in ("id", "reference"):
            if not isinstance(row.get(name), str) or not row[name]:
                raise InputError(f"{place}: field '{name}' must be text that is not empty")
        if row["id"] in places:
            raise InputError(f"{place}: id {row['id']!r} is also at {places[row['id']]}")
        places[row["id"]] = place
        yield Problem(row["id"], row["reference"], place, row.get("triton"))


def _from_folder(folder: Path) -> Iterator[Problem]:
    for file in folder.rglob("*.py"):
        place = file.relative_to(folder)
        if any(part.startswith(".") for part in place.parts):
            continue  # a virtual environment, or what a tool left
        text = read_text(file)
        if _is_problem(text):
            yield Problem(place.with_suffix("").as_posix(), text, file.as_posix())


def _is_problem(text: str) -> bool:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    defined = {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return defined >= NAMES
