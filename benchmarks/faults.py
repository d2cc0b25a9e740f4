"""What share of faults in kernels does the judge catch, and what share a check like KernelBench's?

    python benchmarks/faults.py make PAIRS.parquet... MUTANTS.jsonl
    python benchmarks/faults.py judge MUTANTS.jsonl RESULT.jsonl [--backend cuda] [--workers 16]
    python benchmarks/faults.py report MUTANTS.jsonl RESULT.jsonl

``make`` takes correct pairs of `recipes/kernelbook_messages.yaml`, spread over their operators, and
the programs in `benchmarks/programs`, which were written by hand, and puts one fault at a time into
their kernels and launches (`mutate`). ``judge`` asks three parties about each mutant: the judge, a
check like KernelBench's, and a search for an input on which the mutant is wrong (`witness`, which
also says what counts as wrong). The shares are of the mutants that the search found wrong; mutants
that do not run, and mutants that no input tells from the original, are counted separately.
``judge`` needs torch, triton and NumPy only; where there is a GPU, the check and the search use it,
whatever the judge's backend is, and without one they run kernels in the judge's executor. Stopped
and started again, it resumes where it was. ``report`` prints a table, and every fault that the
judge accepted.
"""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import json
import multiprocessing
import os
import platform
import queue
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from mutate import CLASSES, mutants  # noqa: E402

PAIRS = 110  # of the data set, in addition to the programs of this folder
PER_PAIR = 13
PER_PROGRAM = 30
SEED = 1
SECONDS = 60  # for one mutant
SIZES = "some_sizes_only"
VARIANTS = {  # of `matmul.py`, which is the product in float16
    "matmul_fp16": {},
    "matmul_bf16": {"float16": "bfloat16"},
    "matmul_fp32": {
        ", dtype=torch.float16": "",
        "float16": "float32",
        "tl.dot(a, b)": 'tl.dot(a, b, input_precision="ieee")',
    },
}
REJECTED = ("incorrect", "cheat", "runtime_error", "compile_error", "crash", "timeout", "oom")

Row = dict[str, Any]


# --- make -----------------------------------------------------------------------------------


def make(pairs: list[str], out: str) -> None:
    """Write the programs and their mutants, one JSON object per line."""
    programs = [*_written(), *_generated(pairs)]
    random.Random(SEED).shuffle(programs)  # a part of them is a sample of all
    lines = 0
    with Path(out).open("w") as file:
        for program in programs:
            own = program.pop("per_program")
            found = mutants(program["candidate"], SEED, own)
            program["mutants"] = [
                {"id": f"{program['id']}/{number}", **dataclasses.asdict(mutant)}
                for number, mutant in enumerate(found)
            ]
            lines += len(found)
            file.write(json.dumps(program) + "\n")
    print(f"{len(programs)} programs, {lines} mutants")


def _written() -> Iterator[Row]:
    """Yield the programs of this folder."""
    for name, text in written_programs().items():
        reference, candidate = split(text)
        yield {
            "id": name,
            "reference": reference,
            "candidate": candidate,
            "per_program": PER_PROGRAM,
        }


def written_programs() -> dict[str, str]:
    """Return the texts of the programs of this folder by name, with each of `VARIANTS`."""
    texts = {path.stem: path.read_text() for path in (HERE / "programs").glob("*.py")}
    matmul = texts.pop("matmul")
    for name, changes in VARIANTS.items():
        texts[name] = matmul
        for before, after in changes.items():
            texts[name] = texts[name].replace(before, after)
    return dict(sorted(texts.items()))


def split(text: str) -> tuple[str, str]:
    """Return the two texts of a file with a module first and its kernels from there on.

    Both get the imports.
    """
    tree, lines = ast.parse(text), text.splitlines(keepends=True)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    kernels = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.decorator_list]
    top, at = imports[0].lineno - 1, kernels[0].decorator_list[0].lineno - 1
    head = "".join(lines[top : imports[-1].end_lineno])
    return "".join(lines[top:at]), f"{head}\n\n{''.join(lines[at:])}"


def _generated(paths: list[str]) -> Iterator[Row]:
    """Yield correct pairs of a data set; each next one has the operators least seen so far."""
    import polars

    rows = polars.read_parquet(paths).sort("id").to_dicts()
    rows = [r for r in rows if r["verdict"]["status"] == "correct" and not r["verdict"]["reason"]]
    seen: collections.Counter[str] = collections.Counter()
    for _ in range(min(PAIRS, len(rows))):
        best = min(rows, key=lambda r: _commonness(r["static"]["ops"], seen))
        rows.remove(best)
        seen.update(set(best["static"]["ops"]))
        yield {
            "id": best["id"],
            "reference": best["reference"],
            "candidate": best["triton"],
            "per_program": PER_PAIR,
        }


def _commonness(ops: list[str], seen: collections.Counter[str]) -> float:
    """Return how often a pair's operators were seen, on average."""
    return sum(seen[op] for op in set(ops)) / max(1, len(set(ops)))


# --- judge ----------------------------------------------------------------------------------


def judge(given: str, out: str, backend: str, workers: int) -> None:
    """Ask what is not known yet of every program and mutant; every answer is a line of ``out``."""
    programs = [json.loads(line) for line in Path(given).read_text().splitlines()]
    stages = {"judge": _verdicts, "search": _search, "code": _same_code}
    for stage, ask in stages.items():
        known = _read(out)
        waiting = [
            {**program, "mutants": [m for m in program["mutants"] if m["id"] not in known[stage]]}
            for program in programs
        ]
        started = time.monotonic()
        machine = {"machine": _machine(backend), "workers": workers}
        _write(out, stage, "", machine)
        for name, answer in ask(waiting, known, backend, workers):
            _write(out, stage, name, {**answer, "after_s": round(time.monotonic() - started, 1)})
        print(f"{stage}: {time.monotonic() - started:.0f} s", flush=True)


def _read(path: str) -> dict[str, dict[str, Row]]:
    """Return the answers of every stage by id; under the empty one, the last machine's."""
    known: dict[str, dict[str, Row]] = {"judge": {}, "search": {}, "code": {}}
    lines = Path(path).read_text().splitlines(keepends=True) if Path(path).exists() else []
    for line in lines:
        if line.endswith("\n"):
            row = json.loads(line)
            known[row.pop("stage")][row.pop("of")] = row
    return known


def _write(path: str, stage: str, of: str, answer: Row) -> None:
    with Path(path).open("a") as file:
        file.write(json.dumps({"stage": stage, "of": of, **answer}, default=str) + "\n")


def _machine(backend: str) -> Row:
    import torch
    import triton

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    return {"judge": backend, "gpu": device, "python": platform.python_version(), **versions}


def _verdicts(
    programs: list[Row], known: dict[str, dict[str, Row]], backend: str, workers: int
) -> Iterator[tuple[str, Row]]:
    """Yield the judge's verdicts on programs and mutants."""
    from curate.verify import Candidate, Options, verify

    candidates = [
        Candidate(id=item["id"], reference=program["reference"], candidate=text)
        for program in programs
        for item, text in (
            (program, program["candidate"]),
            *((mutant, mutant["text"]) for mutant in program["mutants"]),
        )
        if item["id"] not in known["judge"]
    ]
    options = Options(backend=backend, workers=workers, timeout_s=SECONDS)
    for verdict in verify(candidates, options):
        yield verdict.id, _brief(verdict.to_json())


def _brief(verdict: Row) -> Row:
    """Return of a verdict what the report needs."""
    kept = ("status", "reason", "caveats", "trials", "error_ratio", "evidence")
    return {name: verdict.get(name) for name in kept}


# --- the search, in processes of its own ----------------------------------------------------


def _search(
    programs: list[Row], known: dict[str, dict[str, Row]], backend: str, workers: int
) -> Iterator[tuple[str, Row]]:
    """Yield, for each mutant, what `witness` finds."""
    groups = [
        [(p["id"], p["reference"], p["candidate"], m["id"], m["text"]) for m in p["mutants"]]
        for p in programs
    ]
    yield from _in_children(groups, _serve_search, workers)


def _same_code(
    programs: list[Row], known: dict[str, dict[str, Row]], backend: str, workers: int
) -> Iterator[tuple[str, Row]]:
    """Yield which mutants without a witness compile to what the original does."""
    found = known["search"]
    groups = [
        [
            (p["id"], p["reference"], p["candidate"], m["id"], m["text"])
            for m in p["mutants"]
            if m["in_kernel"] and found[m["id"]]["outcome"] == "none"
        ]
        for p in programs
    ]
    yield from _in_children(groups, _serve_code, workers)


def _serve_search(pipe: Any) -> None:
    """Answer for one mutant after the other, until the device is lost or the parent is gone."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    from witness import Trial, alive

    device = "cuda" if torch.cuda.is_available() else "cpu"
    trials: dict[str, Trial | Exception] = {}
    lost = False
    while not lost:
        program, reference, original, _, text = pipe.recv()
        if program not in trials:
            trials.clear()
            try:
                trials[program] = Trial(reference, original, device)
            except Exception as error:  # also what the program raises
                trials[program] = error
        trial = trials[program]
        if isinstance(trial, Trial):
            answer = trial.judge(text)
            if lost := not alive(device):
                answer |= {"outcome": "invalid", "why": "the device is lost"}
            elif not trial.intact():
                answer |= {"outcome": "invalid", "why": "writes into tensors of others"}
                trials.clear()
        else:
            answer = {"outcome": "skipped", "why": str(trial)[:200], "kernelbench": None}
            lost = not alive(device)
        pipe.send({**answer, "lost": lost})


def _serve_code(pipe: Any) -> None:
    """Say for one mutant after the other whether its code is the original's."""
    import torch

    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # where a kernel stands is no difference
    torch.set_num_threads(1)
    from witness import code

    originals: dict[str, str] = {}
    while True:
        program, reference, original, _, text = pipe.recv()
        try:
            if program not in originals:
                originals[program] = code(reference, original)
            pipe.send({"same": code(reference, text) == originals[program]})
        except Exception as error:  # it does not compile for this target, or cannot be traced
            pipe.send({"same": False, "why": f"{type(error).__name__}: {error}"[:200]})


class _Child:
    """A process that answers questions; started when asked, and anew when it died."""

    def __init__(self, serve: Callable[[Any], None]) -> None:
        self.serve = serve
        self.process: Any = None

    def ask(self, question: Any) -> Row:
        """Return the answer, or that there was none."""
        if self.process is None or not self.process.is_alive():
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=self.serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        why = "takes too long"
        try:
            self.pipe.send(question)
            if self.pipe.poll(SECONDS):
                answer: Row = self.pipe.recv()
                if answer.pop("lost", False):
                    self.close()
                return answer
        except (EOFError, OSError):
            why = "its process died"
        self.close()
        return {"outcome": "invalid", "why": why, "kernelbench": True}

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _in_children(
    groups: Iterable[list[Any]], serve: Callable[[Any], None], workers: int
) -> Iterator[tuple[str, Row]]:
    """Ask a pool of processes every group's questions; yield the answers by mutant."""
    waiting: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    for group in groups:
        waiting.put(group)
    answers: queue.SimpleQueue[tuple[str, Row] | None] = queue.SimpleQueue()

    def work() -> None:
        child = _Child(serve)
        while True:
            try:
                group = waiting.get_nowait()
            except queue.Empty:
                child.close()
                return answers.put(None)
            for question in group:
                answers.put((question[3], child.ask(question)))

    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    while workers:
        answer = answers.get()
        if answer is None:
            workers -= 1
        else:
            yield answer


# --- report ---------------------------------------------------------------------------------


def report(given: str, out: str) -> None:
    """Print the table, and every fault that the judge accepted."""
    programs, known = Path(given).read_text().splitlines(), _read(out)
    originals, every = [], []
    for program in map(json.loads, programs):
        if program["id"] in known["judge"]:
            originals.append({"id": program["id"], **known["judge"][program["id"]]})
        every += [
            {
                **{name: value for name, value in mutant.items() if name != "text"},
                "program": program["id"],
                "known": known["judge"].get(program["id"], {}).get("caveats", []),
                "judge": known["judge"][mutant["id"]],
                **known["search"][mutant["id"]],
                "same_code": known["code"].get(mutant["id"], {}).get("same", False),
            }
            for mutant in program["mutants"]
            if mutant["id"] in known["judge"] and mutant["id"] in known["search"]
        ]
    wrong = {o["id"]: o for o in originals if o["status"] != "correct"}
    left_out = {
        row["program"]: f"search: {row['why']}" for row in every if row["outcome"] == "skipped"
    } | {name: f"judge: {o['status']} {o['reason']}" for name, o in wrong.items()}
    rows = [row for row in every if row["program"] not in left_out]
    for stage, answers in known.items():
        machine = answers.pop("", None)
        print(f"{stage}: {len(answers)} answers; {json.dumps(machine)}")
    print(
        "\n| class | mutants | do not run | no difference found (same code) | only NaN, infinity "
        "| faults | rejected by the judge | or correct at the file's sizes only, as its label says "
        "| rejected by KernelBench's check |\n|-|-|-|-|-|-|-|-|-|"
    )
    for kind in CLASSES:
        print(_line(kind, [row for row in rows if row["kind"] == kind]))
    print(_line("**all**", rows))
    print(f"\n{len(originals)} programs; rejected by the judge: {len(wrong)}")
    for name, why in left_out.items():
        print(f"- left out: {name}, {why}")
    _list("Faults that the judge accepted", rows, "fault", accepted=True)
    _list("Mutants that do not run or write out of bounds, accepted", rows, "invalid", True)
    _list("Mutants with the original's code, rejected", rows, "none", accepted=False)


def rejected(row: Row) -> bool:
    """Whether the judge rejected a mutant; that it could not be judged does not count."""
    return row["judge"]["status"] in REJECTED


def flagged(row: Row) -> bool:
    """Whether a mutant is correct at the file's sizes only, and its label says so.

    The judge's status is for the sizes that the file has. That a kernel is wrong on others is a
    caveat, ``some_sizes_only``.
    """
    return not rejected(row) and SIZES in set(row["judge"]["caveats"]) - set(row["known"])


def _line(name: str, rows: list[Row]) -> str:
    outcomes = collections.Counter(row["outcome"] for row in rows)
    same = sum(row["same_code"] for row in rows)
    faults = [row for row in rows if row["outcome"] == "fault"]
    ours, said = sum(map(rejected, faults)), sum(map(flagged, faults))
    counts = ours, ours + said, sum(bool(row["kernelbench"]) for row in faults)
    shares = [f"{n} = {n / len(faults):.1%}" if faults else "-" for n in counts]
    cells = [name, len(rows), outcomes["invalid"], f"{outcomes['none']} ({same})"]
    cells += [outcomes["special"], len(faults), *shares]
    return f"| {' | '.join(map(str, cells))} |"


def _list(title: str, rows: list[Row], outcome: str, accepted: bool) -> None:
    chosen = [r for r in rows if r["outcome"] == outcome and rejected(r) is not accepted]
    chosen = [row for row in chosen if not (accepted and flagged(row))]
    if not accepted:
        chosen = [row for row in chosen if row["same_code"]]
    print(f"\n{title}: {len(chosen)}")
    for row in chosen:
        judged = row["judge"]
        print(f"- {row['id']} line {row['line']}: {row['kind']}, {row['operator']}")
        print(f"  `{_short(row['before'])}` -> `{_short(row['after'])}`")
        print(f"  witness: {row['why']}")
        print(f"  judge: {judged['status']} {judged['reason']} error_ratio {judged['error_ratio']}")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) < 160 else f"{text[:157]}..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("pairs", nargs="+")
    making.add_argument("out")
    judging = commands.add_parser("judge")
    judging.add_argument("given")
    judging.add_argument("out")
    judging.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    judging.add_argument("--workers", type=int, default=os.cpu_count())
    reporting = commands.add_parser("report")
    reporting.add_argument("given")
    reporting.add_argument("out")
    given = parser.parse_args()
    if given.command == "make":
        make(given.pairs, given.out)
    elif given.command == "judge":
        judge(given.given, given.out, given.backend, given.workers)
    else:
        report(given.given, given.out)


if __name__ == "__main__":
    main()
