"""Judge both sides of CUDA→Triton pairs on a GPU, on a machine without the rest of `curate`.

    python benchmarks/cuda_pairs.py export TABLE.parquet recipes/cuda_references ROWS.jsonl
    python benchmarks/cuda_pairs.py judge ROWS.jsonl VERDICTS.jsonl OUT.json

``export`` needs nvcc and no GPU: it writes both programs of every pair that has a binding, the CUDA
one with its PTX. ``judge`` needs a GPU and no nvcc: it first judges kernels of its own, one right,
one wrong and one that is never launched, then the pairs; ``VERDICTS.jsonl`` is what the recipe's
step ``verify_cuda`` takes as ``verdicts``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.verify import Candidate, Options, Verdict, label, read_jsonl
from curate.verify.compile.ptx import NvccError, compile_ptx
from curate.verify.steps.cuda_programs import find_binding

ARCH, NVCC_S = 90, 300.0

CUDA = """
struct Shift { double by; short sign; };
extern "C" __global__ void affine(
    const float* x, float* out, int n, float scale, double offset, long long twice, bool negate,
    unsigned char eighths, Shift shift) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float value = x[i] * scale + float(offset) + float(twice) / 2 + eighths / 8.0f;
    value += float(shift.by) * shift.sign;
    out[i] = negate ? -value : value;
  }
}
"""
REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return -(3 * x + 0.25 + 5 + 0.375 - 1.5)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(1000)]
"""
PROGRAM = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        given = [x, out, x.numel(), 3.0, 0.25, 10, True, 3, ("dh6x", 1.5, -1)]
        launch_cuda("affine", -(-x.numel() // 128), 128, given)
        return out
"""
UNLAUNCHED = PROGRAM.replace("launch_cuda(", "unused = (").replace("out\n", "-(3 * x + 4.125)\n")
OWN = {
    "right": (PROGRAM, "correct", None),
    "wrong": (PROGRAM.replace("3.0, 0.25", "3.0, 0.75"), "incorrect", "value"),
    "beside": (PROGRAM.replace("x.numel(), 3.0", "x.numel() + 40, 3.0"), "incorrect", None),
    "unlaunched": (UNLAUNCHED, "cheat", "no_kernel"),
}
"""Programs with the verdict that each must get."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="Write the programs of a table's pairs.")
    export.add_argument("table", type=Path)
    export.add_argument("bindings", type=Path)
    export.add_argument("rows", type=Path)
    judge = commands.add_parser("judge", help="Judge the programs.")
    judge.add_argument("rows", type=Path)
    judge.add_argument("verdicts", type=Path)
    judge.add_argument("out", type=Path)
    judge.add_argument("--workers", type=int, default=8)
    judge.add_argument("--timeout", type=float, default=100.0)
    given = parser.parse_args()
    if given.command == "export":
        return write_rows(given.table, given.bindings, given.rows)
    options = Options(backend="cuda", workers=given.workers, timeout_s=given.timeout)
    return judge_rows(given.rows, given.verdicts, given.out, options)


def write_rows(table: Path, bindings: Path, output: Path) -> int:
    lines = []
    for name, text, ptx in (*own_lines(), *pair_lines(table, bindings)):
        lines.append(json.dumps({"id": name, **text, "ptx": ptx}))
    output.write_text("\n".join(lines) + "\n")
    return 0


def own_lines() -> Iterator[tuple[str, dict[str, Any], str]]:
    ptx = compile_ptx(CUDA, ARCH, NVCC_S)
    for name, (program, _, _) in OWN.items():
        yield f"own:{name}", {"reference": REFERENCE, "candidate": program}, ptx


def pair_lines(table: Path, bindings: Path) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    for row in read_table(table):
        binding = find_binding(bindings, row)
        if row["kind"] != "cuda" or binding is None:
            continue
        what = f"{row['origin']['purl']} {row['origin']['symbol']}"
        try:
            ptx = compile_ptx(binding.source(row["cuda"]), ARCH, NVCC_S)
        except NvccError as failed:
            print(f"{what}: {failed}", file=sys.stderr)
            continue
        print(f"{what}: {len(ptx)} characters of PTX")
        for candidate in binding.candidates(row, ptx):
            texts = {"reference": candidate.reference, "candidate": candidate.candidate}
            yield candidate.id, {**texts, "what": what}, candidate.ptx


def read_table(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return list(pq.read_table(path).to_pylist())


def judge_rows(rows: Path, verdicts: Path, output: Path, options: Options) -> int:
    began = time.monotonic()
    candidates = read_jsonl(rows)
    what = {row["id"]: row.get("what") for row in map(json.loads, rows.read_text().splitlines())}
    own = [c for c in candidates if c.id.startswith("own:")]
    found = label(own, options)
    wrong = [v for v in found if not as_it_must(v)]
    for verdict in found:
        print(f"{verdict.id:<20} {verdict.status} {verdict.reason or ''} {verdict.evidence}"[:300])
    pairs = [c for c in candidates if not c.id.startswith("own:")]
    found += label(pairs, options, verdicts)
    statuses = {v.id: v for v in found}
    table = [line(name, what, statuses) for name in dict.fromkeys(side(c)[0] for c in pairs)]
    print("\n".join(table))
    verified = sum(" verified " in text for text in table)
    print(f"{verified} of {len(table)} pairs verified in {time.monotonic() - began:.0f} s")
    report = {"own_wrong": [v.id for v in wrong], "verdicts": [v.to_json() for v in found]}
    output.write_text(json.dumps(report | {"what": what}, indent=1, default=str))
    return 1 if wrong else 0


def as_it_must(verdict: Verdict) -> bool:
    _, status, reason = OWN[verdict.id.removeprefix("own:")]
    return verdict.status == status and reason in (None, verdict.reason)


def side(candidate: Candidate) -> tuple[str, str]:
    name, _, which = candidate.id.rpartition(":")
    return name, which


def line(name: str, what: dict[str, Any], found: dict[str, Verdict]) -> str:
    cuda, triton = found[f"{name}:cuda"], found[f"{name}:triton"]
    verified = cuda.status == triton.status == "correct"
    shown = " ".join(
        f"{which} {v.status} {v.reason or ''} {v.trials} {v.error_ratio} {','.join(v.caveats)}"
        for which, v in (("cuda", cuda), ("triton", triton))
    )
    return f"{what[cuda.id]:<70} {'verified' if verified else 'unverified'} {shown}"


if __name__ == "__main__":
    sys.exit(main())
