"""Damage a finished run's files, one at a time, run again, and see what happens.

    python benchmarks/damage.py [--tries 1000] [--seed 0] [--part 1/1] [--folder DIR]

A small recipe (a wheel made here, on an index of its own, and a local folder; eight steps) is run
once. Each try begins with a copy of its output. One file of cache, downloads or data set, drawn by
chance, has one bit flipped, or its end cut off at a place drawn by chance. So that much of the
cache is read again, something else is removed: nothing, the data set, that and all shards of one
step, that and all that sources have made, or that and all but what was damaged, so that it is read
for sure. Then the command runs again.

To fit into minutes, tries call the command in this process, steps run in it as well, and no report
is written; every tenth try has a report, without drawings, and every fiftieth has worker processes.
``--part i/n`` does one of n parts. ``--folder`` is where tries are made: a folder in memory saves
the time of fsync. Prints one JSON object, and fails if a try gave other data or a traceback.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from curate import api
from curate.cli.main import main as command
from curate.engine.executor import Job, Lost, Result
from curate.engine.processes.local import LocalExecutor
from curate.engine.processes.worker import handle
from curate.formats.dataset.write import data_sha256, read_run, record_files
from curate.publish.report import report
from curate.step import Context, RowStep, Step

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def {name}_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, {formula}, mask=at < n)


def {name}(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    {name}_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out
"""
FORMULAS = {
    "add": "x + y",
    "least": "tl.minimum(x, y)",
    "scaled": "x * tl.exp(y)",
    "mean": "(x + y) * 0.5",
}
RECIPE = """\
name: trial
sources:
  - source: local
    path: {folder}
  - source: pypi
    packages: ["trial-kernels==1.0 --hash=sha256:{sha256}"]
steps:
  - step: licenses
  - step: kernels
  - step: closure
  - step: licenses
  - step: normalize
  - step: dedupe
    column: triton
  - step: split
formats:
  - format: kernels
"""
REMOVED = ("nothing", "data", "step", "sources", "others", "others", "others")
SAID = ("is made again", "is written again", "done again")


class Here(LocalExecutor):
    """Runs jobs in this process: a worker takes a second to start."""

    def run(
        self, step: Step, context: Context, jobs: Iterator[Job], limit: int | None
    ) -> Iterator[tuple[Job, int, Result]]:
        """Yield a result per item."""
        step.setup(context)
        for job in jobs:
            for index, item in enumerate(job.items):
                result = Result()
                for message in handle(step, item, context, limit):
                    if "emit" in message:
                        result.kept.append(json.loads(json.dumps(message["emit"])))
                    else:
                        row = item if isinstance(step, RowStep) else message["lose"]
                        why = message["reason"], message["evidence"]
                        result.lost.append(Lost(row, "dropped", *why))
                yield job, index, result


def prepare(folder: Path) -> Path:
    """Make the sources and the recipe; return the recipe's path."""
    license_text = (Path(__file__).resolve().parents[1] / "LICENSE").read_text()
    sources, index = folder / "sources", folder / "index"
    sources.mkdir()
    index.mkdir()
    (sources / "LICENSE").write_text(license_text)
    names = list(FORMULAS)
    for name in names[:2]:
        (sources / f"{name}.py").write_text(KERNEL.format(name=name, formula=FORMULAS[name]))
    wheel = index / "trial_kernels-1.0-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: trial-kernels\nVersion: 1.0\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names[2:]:
            text = KERNEL.format(name=name, formula=FORMULAS[name])
            archive.writestr(zipfile.ZipInfo(f"trial_kernels/{name}.py"), text)
        for name, text in (("METADATA", about), ("LICENSE", license_text)):
            archive.writestr(zipfile.ZipInfo(f"trial_kernels-1.0.dist-info/{name}"), text)
    os.environ |= {"PIP_FIND_LINKS": str(index), "PIP_NO_INDEX": "1"}
    recipe = folder / "recipe.yaml"
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    recipe.write_text(RECIPE.format(folder=sources, sha256=sha256))
    return recipe


def no_report(output: Path, name: str, folder: Path | None = None) -> Path:
    """Write a page with nothing on it in place of the report."""
    folder = folder or output / name
    (folder / report.REPORT_FILE).write_text("")
    run = read_run(folder)
    assert run
    record_files(folder, run, [report.REPORT_FILE])
    return folder / report.REPORT_FILE


def curate(recipe: Path, output: Path, number: int = 1) -> tuple[int, str, bool]:
    """Run the command; return its exit code, what it printed, and whether it has a traceback."""

    @contextmanager
    def executor(*arguments: object) -> Iterator[LocalExecutor]:
        yield Here(1)

    arguments = ["run", str(recipe), "--output", str(output)]
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(report, "figures", lambda analysis: {}))
        if number % 10:
            patches.enter_context(mock.patch.object(report, "write_report", no_report))
        if number % 50:
            patches.enter_context(mock.patch.object(api, "make_executor", executor))
        ran = CliRunner().invoke(command, arguments)
    said = ran.output
    broke = ran.exception is not None and not isinstance(ran.exception, SystemExit)
    if broke:
        assert ran.exc_info
        said += "".join(traceback.format_exception(*ran.exc_info))
    return ran.exit_code, said, broke or "Traceback" in said


def found_data(output: Path) -> str:
    """Return the hash of the data as it lies there, whatever run.json says of it."""
    folder = output / "trial"
    files = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.parquet")
    }
    return data_sha256({"files": files})


def damage(file: Path, how: str, draw: random.Random) -> None:
    """Flip one bit of a file, or cut its end off."""
    data = bytearray(file.read_bytes())
    if how == "flip":
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    else:
        del data[draw.randrange(len(data)) :]
    file.unlink()  # a copy shares its files with the others
    file.write_bytes(data)


def remove(output: Path, what: str, file: Path, draw: random.Random) -> None:
    """Remove what makes the command read more of the cache, but not the damaged file."""
    cache, steps = output / "cache", output / "cache" / "steps"
    gone = [] if what == "nothing" else [output / "trial"]
    if what == "step":
        gone.append(draw.choice(sorted(steps.iterdir())))
    if what == "sources":
        gone += [steps / "pypi", steps / "local", cache / "artifacts"]
    if what == "others":
        gone += steps.iterdir()
        gone += [cache / "artifacts"] if cache / "downloads" in file.parents else []
    for folder in gone:
        if folder not in file.parents:
            shutil.rmtree(folder)


def one_try(number: int, seed: int, recipe: Path, whole: Path, folder: Path) -> dict[str, object]:
    """Damage one file and run again; return what happened."""
    draw = random.Random(seed * 1_000_003 + number)
    output = folder / "try"
    shutil.copytree(whole, output, copy_function=os.link)
    files = sorted(p for p in output.rglob("*") if p.is_file() and p.stat().st_size)
    file, removed = draw.choice(files), draw.choice(REMOVED)
    remove(output, removed, file, draw)
    how = draw.choice(("flip", "cut"))
    damage(file, how, draw)
    code, said, broke = curate(recipe, output, number)
    again, _, _ = (code, "", False) if code == 0 else curate(recipe, output)
    result = {
        "try": number,
        "file": file.relative_to(output).as_posix(),
        "how": how,
        "removed": removed,
        "code": code,
        "code_of_the_next_run": again,
        "traceback": broke,
        "noticed": any(word in " ".join(said.split()) for word in SAID),
        "data": found_data(output) if again == 0 else "",
        "said": said[-1500:],
    }
    shutil.rmtree(output)
    return result


def kind_of(file: str) -> str:
    """Return what a file is, for the table."""
    parts = file.split("/")
    if parts[0] != "cache":
        return "data set"
    return parts[1] if parts[1] != "steps" else "." + parts[-1].partition(".")[2]


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        recipe, whole = prepare(folder), folder / "whole"
        code, said, _ = curate(recipe, whole)
        assert code == 0, said
        expected = found_data(whole)
        numbers = range(part - 1, options.tries, parts)
        tries = []
        for number in numbers:
            tries.append(one_try(number, options.seed, recipe, whole, folder))
            if len(tries) % 50 == 0 or tries[-1]["data"] != expected:
                print(f"{len(tries)} tries", tries[-1], file=sys.stderr, flush=True)
    bad = [t for t in tries if t["traceback"] or t["data"] != expected]
    silent = [t for t in tries if t["code"] == 0 and not t["noticed"]]
    found = {
        "tries": len(tries),
        "flips": sum(t["how"] == "flip" for t in tries),
        "cuts": sum(t["how"] == "cut" for t in tries),
        "data": expected,
        "other_bytes": sum(t["data"] != expected for t in tries),
        "tracebacks": sum(bool(t["traceback"]) for t in tries),
        "named_and_made_again": sum(t["code"] == 0 and bool(t["noticed"]) for t in tries),
        "not_read": len(silent),
        "exit_codes": dict(Counter(str(t["code"]) for t in tries)),
        "files": dict(Counter(kind_of(str(t["file"])) for t in tries)),
        "not_read_files": dict(Counter(kind_of(str(t["file"])) for t in silent)),
        "bad": bad[:20],
    }
    print(json.dumps(found, indent=1))
    if bad:
        raise SystemExit("other data, or a traceback")


if __name__ == "__main__":
    main()
