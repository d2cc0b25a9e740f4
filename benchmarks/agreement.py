"""Do the judge without a GPU and the judge with one give the same pairs the same label?

    python benchmarks/agreement.py export PAIRS_FOLDER PAIRS.jsonl
    python benchmarks/agreement.py judge PAIRS.jsonl RESULT.json --backend cuda
    python benchmarks/agreement.py both PAIRS.jsonl RESULT.json --first 500

``export`` writes the pairs of a data set, with the verdicts of `curate run`, as JSON lines, for a
node that has only torch and triton. ``judge`` judges all of them on that node's device and prints
how often the two verdicts agree; the result lists every pair whose verdicts differ and every pair
that the device does not find correct, with the evidence. With ``--backend cpu`` no device is
needed, and verdicts of a run on a GPU are compared with those of the judge without one.

``both`` needs no earlier verdicts: it judges the pairs on two backends in one run, with the same
seed, and compares verdicts, and also the bits of every output on the draws that both had, where
inputs and parameters were the same. The result lists the pairs with other verdicts, and those with
other bits: on how many draws, by how much on the file's own inputs, whether the program gave the
same bits twice on each backend, and what its kernels call that may be rounded in another way.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.engine.processes.time_limit import OutOfTime, time_limit

if TYPE_CHECKING:
    import torch

    from curate.verify import Candidate, Verdict

SEED = 20261123
"""Of the draws that both backends get."""

ROUNDED = re.compile(
    r"\b(?:tl|libdevice|tl\.math)\.(dot|sum|reduce|associative_scan|cumsum|cumprod|atomic_add|exp2?|"
    r"log\w*|sin|cos|tan\w*|rsqrt|sqrt\w*|div_rn|erf\w*|sigmoid|softmax|fma|pow|expm1|\w*gamma|"
    r"a?(?:sin|cos|tan)h?|atan2|fast_\w+|rcp\w*)\b"
)
"""Functions whose last bits are the implementation's own, or depend on an order."""


def export(given: argparse.Namespace) -> None:
    """Write ``id``, ``symbol``, ``reference``, ``triton`` and ``verdict`` of every pair."""
    import polars

    table = polars.read_parquet(given.source / "*.parquet").sort("id")
    with given.target.open("w") as file:
        for row in table.iter_rows(named=True):
            verdict = {name: row["verdict"][name] for name in ("status", "reason", "backend")}
            kept = {name: row[name] for name in ("id", "reference", "triton")}
            symbol = row["origin"]["symbol"]
            file.write(json.dumps({**kept, "symbol": symbol, "verdict": verdict}) + "\n")
    print(f"{table.height} pairs")


def label(verdict: dict[str, Any]) -> str:
    """Return a verdict as one short text."""
    reason = verdict.get("reason")
    return f"{verdict['status']} ({reason})" if reason else str(verdict["status"])


def judge(given: argparse.Namespace) -> None:
    """Judge every pair; print the table, and write it with the pairs that need explaining."""
    from curate.verify import Candidate, Options, verify

    rows = {
        row["id"]: row
        for row in map(json.loads, given.source.read_text().splitlines()[: given.first])
    }
    options = Options(backend=given.backend, timeout_s=given.timeout, workers=given.workers)
    candidates = [Candidate(row["id"], row["reference"], row["triton"]) for row in rows.values()]
    started = time.monotonic()
    verdicts = []
    for verdict in verify(candidates, options):
        verdicts.append(verdict)
        if given.seconds and time.monotonic() - started > given.seconds:
            break
    seconds = time.monotonic() - started
    table: collections.Counter[str] = collections.Counter()
    caveats: collections.Counter[str] = collections.Counter()
    shown = []
    for verdict in sorted(verdicts, key=lambda v: v.id):
        row, found = rows[verdict.id], verdict.to_json()
        table[f"{label(row['verdict'])} -> {label(found)}"] += 1
        caveats.update(verdict.caveats)
        same = row["verdict"]["status"] in (verdict.status, "unsupported")
        if not same or verdict.status != "correct":
            shown.append({"differs": not same, **row, "device": found})
    report = {
        "pairs": len(rows),
        "verdicts": len(verdicts),
        "seconds": round(seconds, 1),
        "before -> now": dict(table.most_common()),
        "differing": sum(row["differs"] for row in shown),
        "caveats": dict(caveats.most_common()),
        "judged_by": {
            name: sorted({str(getattr(v, name)) for v in verdicts})
            for name in ("backend", "device", "driver", "torch", "triton", "judge")
        },
    }
    print(json.dumps(report, indent=1))
    for row in shown:
        before, now = label(row["verdict"]), label(row["device"])
        evidence = json.dumps(row["device"]["evidence"], default=str)[:300]
        print(f"{row['id']} {row.get('symbol')}: {before} -> {now} {evidence}")
    given.target.write_text(json.dumps({**report, "rows": shown}, indent=1, default=str) + "\n")


# --- two backends -----------------------------------------------------------------------------


@dataclass
class Outputs:
    """What a program computed on one backend: hashes by draw, and the first results themselves."""

    given: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    first: list[torch.Tensor] = field(default_factory=list)


def digest(value: Any) -> str:
    """Return a hash of all tensors in a value: shapes, types and bits."""
    import torch

    from curate.problem.values import list_tensors

    found = hashlib.sha256()
    for tensor in list_tensors(value):
        plain = tensor.detach().cpu().contiguous()
        found.update(f"{plain.dtype} {tuple(plain.shape)};".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


@contextlib.contextmanager
def recorded(backend: str, known: dict[str, Outputs]) -> Iterator[None]:
    """Keep the outputs of every draw that the judge compares on a backend, by candidate."""
    from curate.problem.values import list_tensors
    from curate.verify.judge.check import CandidateCheck

    load, compare = CandidateCheck.load, CandidateCheck.compare

    def noted_load(self: Any, candidate: Candidate) -> None:
        self.noted = known.setdefault(candidate.id, Outputs())
        load(self, candidate)

    def noted_compare(self: Any, expected: Any, results: Any) -> None:
        if self.options.backend == backend:
            draw = json.dumps(expected.draw.to_json(), sort_keys=True)
            if not self.noted.results:
                self.noted.first = [t.detach().cpu() for t in list_tensors(results["output"])]
            if draw not in self.noted.results:
                given = (expected.drawn.inputs, expected.drawn.state)
                self.noted.given[draw] = digest(given)
                self.noted.results[draw] = digest([results["output"], results["changed"]])
        compare(self, expected, results)

    CandidateCheck.load = noted_load  # type: ignore[method-assign]
    CandidateCheck.compare = noted_compare  # type: ignore[method-assign]
    try:
        yield
    finally:
        CandidateCheck.load, CandidateCheck.compare = load, compare  # type: ignore[method-assign]


def judge_on(
    backend: str, candidates: list[Candidate], given: argparse.Namespace
) -> tuple[dict[str, Verdict], dict[str, Outputs], float]:
    """Return the verdicts and outputs of a backend within its limit, and the seconds."""
    from curate.verify import Options, verify

    options = Options(
        backend=backend, timeout_s=given.timeout, workers=given.workers, draw_seed=SEED
    )
    verdicts: dict[str, Verdict] = {}
    known: dict[str, Outputs] = {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as cache, recorded(backend, known):
        os.environ["TRITON_CACHE_DIR"] = cache
        try:
            with time_limit(given.seconds):
                for verdict in verify(candidates, options):
                    verdicts[verdict.id] = verdict
                    if len(verdicts) % 50 == 0:
                        seconds = time.monotonic() - started
                        print(f"{backend}: {len(verdicts)} verdicts, {seconds:.0f} s", flush=True)
        except OutOfTime:
            print(f"{backend}: stopped after {given.seconds} s", flush=True)
    return verdicts, known, round(time.monotonic() - started, 1)


def distance(one: list[torch.Tensor], other: list[torch.Tensor]) -> dict[str, float] | None:
    """Return the share of elements that differ and the largest difference, relative to the largest
    value and in units of the type's own rounding; None where the forms differ."""
    import torch

    if [(t.shape, t.dtype) for t in one] != [(t.shape, t.dtype) for t in other]:
        return None
    differ = total = 0
    most = 0.0
    for a, b in zip(one, other, strict=True):
        if a.is_floating_point():  # also in types that have no comparison of their own
            a, b, eps = a.double(), b.double(), torch.finfo(a.dtype).eps
        same = (a == b) | (a.isnan() & b.isnan())
        differ, total = differ + int((~same).sum()), total + a.numel()
        if a.is_floating_point() and not bool(same.all()):
            apart = (a - b).abs()[~same].nan_to_num(torch.inf).max()
            largest = a.abs().nan_to_num(0, 0, 0).max().clamp(min=1e-300)
            most = max(most, float(apart / largest) / eps)
    return {"share": round(differ / max(total, 1), 6), "most_eps": round(most, 3)}


def bits(row: dict[str, Any], sides: list[Outputs], verdicts: list[Verdict]) -> dict[str, Any]:
    """Return how the outputs of a pair on two backends compare."""
    one, other = sides
    shared = [draw for draw in one.results if one.given[draw] == other.given.get(draw)]
    equal = sum(one.results[draw] == other.results[draw] for draw in shared)
    found: dict[str, Any] = {"id": row["id"], "draws": len(shared), "equal": equal}
    if equal < len(shared):
        found["own_inputs"] = distance(one.first, other.first)
        found["deterministic"] = [v.evidence.get("deterministic") for v in verdicts]
        found["rounded"] = sorted(set(ROUNDED.findall(row["triton"])))
    return found


def both(given: argparse.Namespace) -> None:
    """Judge every pair on two backends; compare verdicts and the bits of outputs."""
    from curate.verify import Candidate

    lines = given.source.read_text().splitlines()[: given.first]
    rows = {row["id"]: row for row in map(json.loads, lines)}
    candidates = [Candidate(row["id"], row["reference"], row["triton"]) for row in rows.values()]
    found = [judge_on(backend, candidates, given) for backend in given.backends]
    shared = sorted(found[0][0].keys() & found[1][0].keys())
    table: collections.Counter[str] = collections.Counter()
    kept: dict[str, collections.Counter[str]] = {}
    differing, compared = [], []
    for name in shared:
        verdicts = [verdicts[name] for verdicts, _, _ in found]
        labels = [label(verdict.to_json()) for verdict in verdicts]
        table[" -> ".join(labels)] += 1
        for backend, verdict in zip(given.backends, verdicts, strict=True):
            kept.setdefault(backend, collections.Counter()).update(verdict.caveats)
        if verdicts[0].status != verdicts[1].status:
            evidence = [json.dumps(v.evidence, default=str)[:1000] for v in verdicts]
            symbol = rows[name].get("symbol")
            differing.append({"id": name, "symbol": symbol, "labels": labels, "evidence": evidence})
        compared.append(
            bits(rows[name], [known.get(name, Outputs()) for _, known, _ in found], verdicts)
        )
    with_draws = [one for one in compared if one["draws"]]
    other_bits = [one for one in with_draws if one["equal"] < one["draws"]]
    report = {
        "pairs": len(rows),
        "backends": given.backends,
        "verdicts": [len(verdicts) for verdicts, _, _ in found],
        "seconds": [seconds for _, _, seconds in found],
        " -> ".join(given.backends): dict(table.most_common()),
        "same_status": len(shared) - len(differing),
        "other_status": len(differing),
        "caveats": kept,
        "bits": {
            "pairs_with_shared_draws": len(with_draws),
            "pairs_equal_on_all": len(with_draws) - len(other_bits),
            "draws": sum(one["draws"] for one in with_draws),
            "draws_equal": sum(one["equal"] for one in with_draws),
            "pairs_with_other_bits": len(other_bits),
            "of_them_nothing_rounded": [o["id"] for o in other_bits if not o["rounded"]],
        },
    }
    print(json.dumps(report, indent=1))
    for one in differing:
        print(f"{one['id']} {one['symbol']}: {' -> '.join(one['labels'])}")
    result = {**report, "differing": differing, "other_bits": other_bits}
    given.target.write_text(json.dumps(result, indent=1, default=str) + "\n")


def main() -> None:
    """Run the command that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for run in (export, judge, both):
        command = commands.add_parser(run.__name__, help=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("source", type=Path)
        command.add_argument("target", type=Path)
        if run is not export:
            command.add_argument("--first", type=int, help="only so many pairs, from the first")
            command.add_argument(
                "--timeout", type=float, default=180.0, help="seconds for one pair"
            )
            command.add_argument("--workers", type=int, default=os.cpu_count())
        if run is judge:
            command.add_argument("--backend", choices=("cuda", "hip", "cpu"), required=True)
            command.add_argument(
                "--seconds", type=float, help="stop after so long; what is there counts"
            )
        if run is both:
            command.add_argument("--backends", nargs=2, default=["cpu", "cuda"])
            command.add_argument("--seconds", type=float, default=240.0, help="for one backend")
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
