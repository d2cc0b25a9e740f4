"""Programs on a GPU at sizes that fill it: eager, `torch.compile` and the program, by schedule.

    python benchmarks/real_sizes.py PAIRS.jsonl --mib 256 --compile 60 --seconds 500
    python benchmarks/real_sizes.py output/kernelbook_messages --mib 0 --compile 200 --warm 15

``PAIRS.jsonl`` has ``id``, ``reference`` and ``candidate`` (or ``triton``) on each line; of a data
set's folder it is the config ``pairs``, with the families of ``messages`` as kinds. The first
dimension is scaled by what the file calls it (``batch_size``, ``batch``, ``n``, ``length``), until
the inputs have ``--mib`` MiB. What is compared and timed runs on one device, one after the other;
times are medians of ``do_bench``, which flushes the cache. ``--compile`` says for how many pairs,
drawn with a seed, `torch.compile` is timed as well. ``--warm`` first runs all pairs in that many
processes side by side, untimed, for half of ``--seconds``: what is timed afterwards finds its
kernels compiled. Of several devices each takes a share, with ``--shard`` and its number in
``CUDA_VISIBLE_DEVICES``.
``--mib 0`` leaves all sizes as the file has them, and all count; otherwise those from 64 MiB on. A
pair's ``kind``, if it has one, is the line of the table that it counts in. *Of bandwidth* is what
inputs, parameters and results have, divided by the program's time and the device's bandwidth: all
that it must read and write, once. Float32 is as exact as a file asks: without a line that allows
TF32, eager has none either.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from triton.testing import do_bench

SCALED = ("batch_size", "batch", "num_tokens", "n_rows", "length", "n")
PIECE = 2**26
"""Elements that are compared at once: their copies in float64 take memory."""


def load(text: str, name: str) -> types.ModuleType:
    """Run a file's text as a module; Triton needs a file."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(text)
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def size_of(inputs: Any) -> int:
    return sum(x.nbytes for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor))


def inputs_of(task: types.ModuleType) -> list[Any]:
    """Return what the file's `get_inputs` does, made on the GPU: gigabytes take a CPU seconds."""
    with torch.device("cuda"):
        return list(task.get_inputs())


def scaled_inputs(task: types.ModuleType, mib: float) -> tuple[list[Any], bool]:
    """Return inputs of about ``mib`` MiB, and whether the file has a size to scale."""
    name = next((n for n in SCALED if type(getattr(task, n, None)) is int), None)
    own = inputs_of(task)
    if name is None or getattr(task, name) in map(_as_int, task.get_init_inputs()):
        return own, False
    factor = int(mib * 2**20 / max(size_of(own), 1))
    setattr(task, name, getattr(task, name) * max(factor, 1))
    return inputs_of(task), factor > 1


def _as_int(value: Any) -> Any:
    return value if type(value) is int else None


def schedule_of(text: str) -> str:
    """Return what kernels a program has, by what their docstrings say."""
    marks = {
        "flat": "takes BLOCK_SIZE elements",
        "tile": "takes a tile of",
        "rows": "holds BLOCK_ROWS rows",
        "row sums": "takes BLOCK_ROWS rows",
        "columns": "walks down",
        "split": "leaves a partial result",
    }
    return "+".join(name for name, mark in marks.items() if mark in text) or "other"


def timed(function: Callable[[], Any], warm: bool) -> float:
    """Return the median time of a call in milliseconds; 0 after one call that only warms up."""
    if warm:
        function()
        return 0.0
    return float(do_bench(function, warmup=10, rep=40, return_mode="median"))


def measure(row: dict[str, Any], mib: float, compiled: bool, warm: bool) -> dict[str, Any]:
    """Return one pair's times in milliseconds, and how far the program is off."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    reference = load(row["reference"], "reference")
    program = load(row.get("candidate") or row["triton"], "program")
    inputs, scaled = scaled_inputs(reference, mib)
    inputs = pytree.tree_map(lambda x: x.cuda() if isinstance(x, torch.Tensor) else x, inputs)
    torch.manual_seed(0)
    model = reference.Model(*reference.get_init_inputs()).cuda().eval()
    new = program.ModelNew(*reference.get_init_inputs()).cuda().eval()
    new.load_state_dict(model.state_dict())
    found: dict[str, Any] = {"mib": size_of(inputs) / 2**20, "scaled": scaled}
    with torch.no_grad():
        right, got = pytree.tree_leaves(model(*inputs)), pytree.tree_leaves(new(*inputs))
        found["moved"] = size_of([inputs, got, *model.parameters(), *model.buffers()])
        found["wrong"] = max(map(_distance, right, got), default=0.0)
        del right, got
        found["eager"] = timed(lambda: model(*inputs), warm)
        found["ours"] = timed(lambda: new(*inputs), warm)
        if compiled:
            torch._dynamo.reset()
            fast = torch.compile(model)
            fast(*inputs)
            found["compile"] = timed(lambda: fast(*inputs), warm)
    return found


def _distance(right: Any, got: Any) -> float:
    """Return the largest error, relative to the largest value."""
    if not isinstance(right, torch.Tensor):
        return 0.0 if right == got else float("inf")
    if right.shape != got.shape or right.dtype != got.dtype:
        return float("inf")
    if not right.numel():
        return 0.0
    pairs = zip(right.flatten().split(PIECE), got.flatten().split(PIECE), strict=True)
    found = [_largest(a.double(), b.double()) for a, b in pairs]
    return max(error for error, _ in found) / max(max(size for _, size in found), 1e-6)


def _largest(right: torch.Tensor, got: torch.Tensor) -> tuple[float, float]:
    """Return the largest error and the largest value."""
    same = (right == got) | (right.isnan() & got.isnan())
    error = torch.where(same, 0.0, (right - got).abs()).nan_to_num(float("inf")).max().item()
    finite = right[right.isfinite()]
    return error, finite.abs().max().item() if finite.numel() else 0.0


def report(rows: list[dict[str, Any]], against: str, least: float) -> None:
    """Print how many times as long something takes as the programs, of inputs of ``least`` MiB."""
    timed = [row for row in rows if against in row and row["mib"] >= least]
    print(f"\ntime of {against} / time of program, inputs >= {least:.0f} MiB")
    print("| schedule | n | lowest | median | < 0.5 | < 0.8 | >= 0.97 | >= 1.2 | of bandwidth |")
    print("|-|-|-|-|-|-|-|-|-|")
    for kind in [*sorted({row["schedule"] for row in timed}), "all"]:
        own = [row for row in timed if kind in (row["schedule"], "all")]
        if not own:
            continue
        shares = [row[against] / row["ours"] for row in own]
        few, slow = (sum(s < most for s in shares) for most in (0.5, 0.8))
        most = sum(s >= 0.97 for s in shares)
        moved = statistics.median(row["moved"] / row["ours"] for row in own) * 1e3 / bandwidth()
        print(
            f"| {kind} | {len(shares)} | {min(shares):.2f} | {statistics.median(shares):.2f} "
            f"| {few} | {slow} | {most} | {sum(s >= 1.2 for s in shares)} | {moved:.0%} |"
        )
    for row in sorted(timed, key=lambda r: r[against] / r["ours"])[:12]:
        ms = ", ".join(f"{k} {row[k]:.3f}" for k in ("eager", "compile", "ours") if k in row)
        print(f"  {row['id']} ({row['schedule']}): {ms}")


def bandwidth() -> float:
    """Return how many bytes the device's memory moves in a second: twice for each of its clocks."""
    device = torch.cuda.get_device_properties(0)
    return 2 * device.memory_clock_rate * 1e3 * device.memory_bus_width / 8


def read_pairs(path: Path) -> list[dict[str, Any]]:
    """Return the pairs of a file of JSON lines, or of a data set's folder."""
    if not path.is_dir():
        rows = [json.loads(line) for line in path.open()]
        return [row for row in rows if row.get("candidate") or row.get("triton")]
    import pyarrow.parquet as pq

    def read(config: str, columns: list[str]) -> list[dict[str, Any]]:
        files = sorted((path / config).glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]

    families = {row["id"]: row["family"] for row in read("messages", ["id", "family"])}
    pairs = read("pairs", ["id", "reference", "triton"])
    return [{**row, "kind": families.get(row["id"])} for row in pairs]


def warm_up(rows: list[dict[str, Any]], mib: float, until: float, compiled: set[str]) -> None:
    """Run pairs once, so that their kernels are in Triton's and Inductor's caches."""
    for row in rows:
        if time.monotonic() > until:
            break
        with contextlib.suppress(Exception):  # said when it is timed
            measure(row, mib, compiled=row["id"] in compiled, warm=True)
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--mib", type=float, default=256)
    parser.add_argument("--compile", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=500, help="when to stop")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--warm", type=int, default=0, help="processes that compile first")
    parser.add_argument("--shard", default="1/1", help="I/N: the I-th of N shares of the pairs")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # I/N: warm these pairs, time none
    given = parser.parse_args()
    started = time.monotonic()
    rows = read_pairs(given.pairs)
    random.Random(0).shuffle(rows)
    shard, shards = map(int, given.shard.split("/"))
    rows = rows[shard - 1 :: shards]
    if given.part:
        first, of = map(int, given.part.split("/"))
        compiled = {row["id"] for row in rows[: given.compile]}
        warm_up(rows[first::of], given.mib, started + given.seconds, compiled)
        return
    if given.warm:
        parts = [f"--part={number}/{given.warm}" for number in range(given.warm)]
        command = [sys.executable, __file__, str(given.pairs), f"--mib={given.mib}"]
        command += [f"--seconds={given.seconds / 2}", f"--compile={given.compile}"]
        command += [f"--shard={given.shard}"]
        for process in [subprocess.Popen([*command, part]) for part in parts]:
            try:
                process.wait(max(1.0, started + given.seconds / 2 + 20 - time.monotonic()))
            except subprocess.TimeoutExpired:  # a pair that takes minutes
                process.kill()
        print(f"warm after {time.monotonic() - started:.0f} s", flush=True)
    done: list[dict[str, Any]] = []
    print(torch.cuda.get_device_name(), torch.__version__)
    for number, row in enumerate(rows):
        if time.monotonic() - started > given.seconds:
            break
        text = row.get("candidate") or row["triton"]
        entry = {"id": row["id"], "schedule": row.get("kind") or schedule_of(text)}
        try:
            entry |= measure(row, given.mib, number < given.compile, warm=False)
        except Exception as error:  # other people's code, and ours
            entry["error"] = f"{type(error).__name__}: {str(error)[:150]}"
            print("  failed", row["id"], entry["error"])
        done.append(entry)
        torch.cuda.empty_cache()
        if given.output:
            given.output.write_text("".join(json.dumps(one) + "\n" for one in done))
    print(f"{len(done)} of {len(rows)} pairs")
    off = [one for one in done if one.get("wrong", 0) > 1e-3]
    for one in sorted(off, key=lambda r: -r["wrong"]):
        print(f"  off by {one['wrong']:.1e}: {one['id']} ({one['schedule']}, {one['mib']:.0f} MiB)")
    for against in ("eager", "compile"):
        report(done, against, least=64 if given.mib else 0)


if __name__ == "__main__":
    main()
