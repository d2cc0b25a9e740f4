"""What the card says of rows: a whole example, how large they are, and what to filter."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

import pyarrow.parquet as pq

from curate.formats.dataset.front_matter import Config
from curate.formats.described import ABOVE, LEVELS, POINTWISE
from curate.publish.analysis.numbers import number
from curate.publish.analysis.sections import Cell
from curate.publish.analysis.words import parts
from curate.publish.documents.markdown import table
from curate.rows import Loose
from curate.teacher.template import fence
from curate.verify import CAVEATS

LOOKED_AT = 1000  # rows among which the example is chosen
MOST_SHOWN = 4000  # characters of an example, which the card has room for
TEXTS = frozenset({"prompt", "completion", "prefix", "middle", "suffix", "triton", "cuda"})
"""Columns of code and prose, which an example shows as they are."""

COUNTED = frozenset(
    {"id", "license", "level", "family", "kernels", "lines", "tokens", "shapes", "dtypes"}
    | {"caveats", "specialised", "verdict", "pure_triton", "split_overlap", "example_id"}
    | {"program_us", "compile_us"}
)
SLOW = 0.8
"""Of the speed of `torch.compile`: below it, the card names a program as slow."""


PLACES = {
    "verdict": ("verdict", "status"),
    "caveats": ("verdict", "caveats"),
    "pure_triton": ("static", "pure_triton"),
    "specialised": ("static", "specialised"),
    "kernels": ("static", "kernels"),
    "lines": ("static", "lines"),
}
"""Where a config of nested columns has what others have in columns of their own."""


def read_rows(folder: Path, config: Config) -> list[Loose]:
    """Return the columns that the card counts, of all rows of a config, and flat."""
    nested = {place for place, _ in PLACES.values()} if config.is_nested else set()
    columns = [name for name in config.columns if name in COUNTED | nested]
    paths = [p for s in config.splits for p in sorted((folder / config.name).glob(f"{s}-*"))]
    rows = [row for path in paths for row in pq.read_table(path, columns=columns).to_pylist()]
    return [_flat(row) for row in rows] if config.is_nested else rows


def _flat(row: Loose) -> Loose:
    found = {name: (row.get(place) or {}).get(key) for name, (place, key) in PLACES.items()}
    license_ = row["license"] and (row["license"]["choice"] or row["license"]["expression"])
    return {**row, **found, "license": license_}


def _column(name: str, is_nested: bool) -> str:
    """Return the code that reads a column of a row `r`."""
    if is_nested and name in PLACES:
        place, key = PLACES[name]
        return f'(r["{place}"] or {{}}).get("{key}")'
    return f'r["{name}"]'


def example(folder: Path, config: Config) -> Iterator[str]:
    """Yield a whole row of a config: the shortest of several operators, not all elementwise, if
    there is one."""
    path = sorted((folder / config.name).glob(f"{config.splits[0]}-*"))[0]
    with pq.ParquetFile(path) as file:
        rows = next(file.iter_batches(LOOKED_AT)).to_pylist()

    def plainness(row: Loose) -> tuple[int, int]:
        plain = row.get("level") == "1", row.get("family") == POINTWISE
        return sum(plain), len(json.dumps(row, default=str))

    row = min(rows, key=plainness)
    rest = {name: value for name, value in row.items() if name not in {"messages", *TEXTS}}
    for turn in row.get("messages") or []:
        yield f"`{turn['role']}`:\n"
        yield _quoted(turn["content"])
    for name in (name for name in row if name in TEXTS and row[name]):
        yield f"`{name}`:\n"
        yield _quoted(row[name])
    yield "The other columns:\n"
    lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in rest.items())
    yield fence("\n".join(line[:MOST_SHOWN] for line in lines), "yaml")


def _quoted(text: str) -> str:
    """Return a text in a fence, cut where it is longer than the card has room for."""
    cut = f"{text[:MOST_SHOWN]}\n…" if len(text) > MOST_SHOWN else text
    return fence(cut, "text")


def sizes(rows: list[Loose]) -> Iterator[str]:
    """Yield tables of what is in the rows: levels, families, lengths, inputs."""
    levels = Counter(row["level"] for row in rows if row.get("level"))
    known = (level for level in (*LEVELS.values(), ABOVE) if level in levels)
    yield from _counted("level", "operators in the module", [(x, levels[x]) for x in known])
    families = Counter(row["family"] for row in rows if row.get("family"))
    yield from _counted("family", "the kind of computing", families.most_common())
    elements = [_largest(row["shapes"]) for row in rows if row.get("shapes")]
    spreads: list[tuple[Cell, ...]] = [
        (what, *_spread([row[name] for row in rows if row.get(name) is not None]))
        for name, what in (("tokens", "tokens*"), ("lines", "lines"), ("kernels", "kernels"))
    ]
    spreads.append(("elements of the largest input", *_spread(elements)))
    told_spreads = [line for line in spreads if len(line) > 1]
    yield from table(("per row", "5 %", "median", "95 %", "largest"), told_spreads)
    if told_spreads:
        total = sum(row.get("tokens") or 0 for row in rows)
        yield (
            f"\\* Names, numbers and signs of all messages, {number(total)} in all rows. Most "
            "tokenizers make 1.1 to 1.5 times as many.\n"
        )
    types = Counter(dtype for row in rows for dtype in set(row.get("dtypes") or []))
    yield from _counted("dtypes", "types of inputs", types.most_common())


def _counted(column: str, what: str, counts: list[tuple[str, int]]) -> Iterator[str]:
    """Yield how many rows have each value of a column, in a sentence."""
    if counts:
        told = ", ".join(f"{value} ({number(n)})" for value, n in counts)
        yield f"Rows by `{column}`, {what}: {told}.\n"


def _spread(values: list[int]) -> tuple[float, ...]:
    if len(values) < 2:
        return ()
    cuts = quantiles(values, n=20, method="inclusive")
    return round(cuts[0]), round(cuts[9]), round(cuts[18]), max(values)


def _largest(shapes: list[str]) -> int:
    return max(math.prod(int(size) for size in shape.split("x") if size) for shape in shapes)


def filters(rows: list[Loose], is_nested: bool) -> list[tuple[str, int, str]]:
    """Return what may have to be left out: in words, how many rows, and what is true of others."""
    found = [*_weak(rows, is_nested), *_others(rows, is_nested)]
    return [(words, n, code) for words, n, code in found if n]


def _weak(rows: list[Loose], is_nested: bool) -> Iterator[tuple[str, int, str]]:
    """Yield what verdicts and the code say against rows."""
    if any(row.get("verdict") for row in rows):
        n = sum(row["verdict"] != "correct" for row in rows)
        code = f'{_column("verdict", is_nested)} == "correct"'
        yield "it has no verdict, or not `correct`", n, code
    n = sum(row.get("pure_triton") is False for row in rows)
    code = f"{_column('pure_triton', is_nested)} is not False"
    yield "PyTorch computes a part of the result", n, code
    caveats = Counter(caveat for row in rows for caveat in row.get("caveats") or [])
    given = _column("caveats", is_nested)
    if any(row.get("caveats") is None for row in rows):
        given = f"({given} or [])"
    for caveat, n in caveats.most_common():
        yield CAVEATS.get(caveat, caveat), n, f'"{caveat}" not in {given}'


def _others(rows: list[Loose], is_nested: bool) -> Iterator[tuple[str, int, str]]:
    """Yield what may not suit a reader, though nothing is wrong with it."""
    others = (
        ("it asserts values of some arguments, which the prompt names", "specialised"),
        ("a row of another split shares most of its words", "split_overlap"),
        ("the prompt shows another row's program as an example", "example_id"),
    )
    for words, column in others:
        n = sum(bool(row.get(column)) for row in rows)
        yield words, n, f"not {_column(column, is_nested)}"
    times = [(row.get("program_us"), row.get("compile_us")) for row in rows]
    n = sum(other < SLOW * own for own, other in times if own and other)
    code = f'not r["compile_us"] or r["compile_us"] >= {SLOW} * r["program_us"]'
    yield f"its speed is below {SLOW} of that of `torch.compile`", n, code
    n = sum((row.get("level"), row.get("family")) == ("1", POINTWISE) for row in rows)
    code = f'(r["level"], r["family"]) != ("1", "{POINTWISE}")'
    yield "the module is a single elementwise operator", n, code


def licenses(rows: list[Loose]) -> Iterator[str]:
    """Yield the table of the licenses that rows are under, alone or with others."""
    names = (row["license"] for row in rows if row.get("license"))
    counts = Counter(license for name in names for license in parts(name))
    told: list[tuple[Cell, ...]] = [*counts.most_common()]
    yield from table(("license (SPDX)", "rows, alone or with others"), told)
