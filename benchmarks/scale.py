"""A million rows through normalize, parse, dedupe and split: time and memory of a run.

    python benchmarks/scale.py CACHE RESULT.json --rows 10000 100000 1000000 --chart docs/scale.svg

Rows are of the kind ``kernel``, which all four steps look at; their code is that of functions of
public packages (`corpus.py`). Every function has `VARIATIONS` rows: itself, and others with half of
its names and all of its numbers changed. They are read from Parquet files of `PART` rows
(`rows_source.py`). Each size is one run of these four steps, in an output folder of its own and as
a process of its own. Seconds are those that it prints for each step. Memory is Linux's: of the
run's own process (its peak in each step, exactly), of the worst process below it, and of all
together, with shared pages counted once (five times a second).

Measurements are kept under CACHE and repeated only if code has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from charts import LINE_HEIGHT, LINE_WIDTH, Line, line_chart, stack
from corpus import all_functions, vary
from dedupe import machine
from processes import Watch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.rows import ROW, make_origin, make_row

ROOT = Path(__file__).resolve().parents[1]
PART = 10_000
VARIATIONS = 4  # divides PART
STEPS = ("rows", "normalize", "parse", "dedupe", "split")
ENDED = re.compile(r"(\w+): saw (\d+) rows, kept (\d+) \(([0-9.]+) s\)")
"""What a run says at the end of a step where nobody watches."""


# --- rows -----------------------------------------------------------------------------------


def write_rows(functions: list[str], count: int, folder: Path) -> None:
    """Write rows as Parquet files; the first of a larger number are those of a smaller.

    Raises:
        SystemExit: there are too few functions.
    """
    if count > len(functions) * VARIATIONS:
        raise SystemExit(f"{len(functions)} functions give {len(functions) * VARIATIONS} rows")
    work = folder.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    parts = []
    for start in range(0, count, PART):
        first, last = start // VARIATIONS, -(-min(start + PART, count) // VARIATIONS)
        file = work / f"{start // PART:05}.parquet"
        parts.append((functions[first:last], start, min(PART, count - start), file))
    with multiprocessing.Pool() as pool:
        pool.starmap(write_part, parts, chunksize=1)
    work.rename(folder)


def write_part(functions: list[str], start: int, count: int, file: Path) -> None:
    """Write the rows from one number on: `VARIATIONS` of each function, the first as it is."""
    rows = []
    for number in range(start, start + count):
        code = functions[(number - start) // VARIATIONS]
        if number % VARIATIONS:
            code = vary(code, random.Random(number))
        origin = make_origin("local", path=f"{number // 1000:05}/{number:08}.py")
        rows.append(make_row("kernel", code, origin, triton=code, entry_point="f"))
    pq.write_table(pa.Table.from_pylist(rows, schema=ROW), file, compression="zstd")


# --- running --------------------------------------------------------------------------------


def measure(cache: Path, count: int, workers: int) -> dict[str, Any]:
    """Return what a run of ``count`` rows took; all that it wrote is deleted.

    Raises:
        SystemExit: the run failed.
    """
    rows, output = cache / f"rows-{count}", cache / "output"
    if not rows.exists():
        functions = all_functions(cache)
        random.Random(0).shuffle(functions)
        write_rows(functions, count, rows)
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, ROOT / "benchmarks" / "rows_source.py", rows, output, workers]
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    steps = follow(process)
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    shutil.rmtree(output)
    return {"rows": count, "workers": workers, "disk_mb": size >> 20, "steps": steps}


def follow(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Return the figures of every step, as a run goes through them.

    Raises:
        SystemExit: the run failed.
    """
    assert process.stderr
    watch = Watch(process.pid)
    watch.start()
    steps, said = [], []
    for line in process.stderr:
        said.append(line)
        if found := ENDED.match(line):
            name, seen, kept, seconds = found.groups()
            figures = {"step": name, "seen": int(seen), "kept": int(kept)}
            steps.append({**figures, "seconds": float(seconds), **watch.take()})
            print(json.dumps(steps[-1]), file=sys.stderr, flush=True)
    watch.end()
    if process.wait() or tuple(step["step"] for step in steps) != STEPS:
        raise SystemExit(f"the run ended with {process.returncode}:\n{''.join(said[-20:])}")
    return steps


def digest() -> str:
    """Return what tells a run from one that was made before code was changed."""
    files = [Path(__file__), *sorted(ROOT.glob("curate/**/*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


# --- results --------------------------------------------------------------------------------


def markdown(runs: list[dict[str, Any]]) -> str:
    """Return the figures of all sizes as a table."""
    header = ["rows", "step", "seen", "kept", "seconds", "rows/s", "own MB", "worst worker MB"]
    lines: list[list[Any]] = [[*header, "all MB"], ["-"] * (len(header) + 1)]
    for run in runs:
        for s in run["steps"]:
            seen = s["seen"] or run["rows"]
            rate = round(seen / max(s["seconds"], 0.1))
            memory = [s["own_mb"], s["below_mb"], s["total_mb"]]
            figures = [s["seen"], s["kept"], s["seconds"], f"{rate:,}"]
            lines.append([f"{run['rows']:,}", s["step"], *figures, *memory])
    return "\n".join(f"|{'|'.join(map(str, line))}|" for line in lines)


def chart(runs: list[dict[str, Any]], made: dict[str, Any]) -> str:
    """Return pictures of the seconds and of the memory over the number of rows."""

    def lines(figure: str) -> list[Line]:
        of = {name: [] for name in STEPS}
        for run in runs:
            for step in run["steps"]:
                of[step["step"]].append((run["rows"], max(step[figure], 0.1)))
        return [Line(name, points) for name, points in of.items()]

    note = f"{made['processor']}, {made['date']}, {runs[0]['workers']} workers"
    pictures = [
        line_chart("Seconds of each step of a run", lines("seconds"), "rows", "seconds", note),
        line_chart("Most memory of all its processes", lines("total_mb"), "rows", "MB", note),
        line_chart("Most memory of its own process", lines("own_mb"), "rows", "MB", note),
    ]
    return stack([(picture, LINE_HEIGHT) for picture in pictures], LINE_WIDTH)


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path, help="folder for packages, rows and measurements")
    parser.add_argument("result", type=Path, help="JSON file for all figures")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--chart", type=Path, help="SVG file for pictures of the growth")
    return parser.parse_args()


def main() -> None:
    """Measure what is missing, and print the table."""
    given = parse()
    given.cache = given.cache.resolve()
    runs = []
    for count in sorted(given.rows):
        path = given.cache / f"scale-{count}-{given.workers}-{digest()}.json"
        if not path.exists():
            path.write_text(json.dumps(measure(given.cache, count, given.workers)))
        runs.append(json.loads(path.read_text()))
    facts = {"runs": runs, "machine": machine()}
    given.result.write_text(json.dumps(facts, indent=1) + "\n")
    if given.chart:
        given.chart.write_text(chart(runs, facts["machine"]))
    print(markdown(runs))


if __name__ == "__main__":
    main()
