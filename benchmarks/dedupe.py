"""Near-duplicates of 200,000 functions: the step `dedupe` and six other programs.

    python benchmarks/dedupe.py CACHE RESULT.json --count 200000 --rounds 2 --chart docs/dedupe.svg

The corpus is `corpus.py`'s: functions of public packages, a fifth of them copies of others. Every
program has 128 permutations in 16 bands of 8 and 5-grams of words, reads the same corpus in the
same order, and says which documents it would drop. It runs as a process of its own, with its own
libraries (``CACHE/peers``, made by pip from wheels at the versions below), alone on the machine:
with ``1`` worker it is bound to one core, with ``2`` it may use two. Rounds are interleaved, and
seconds are the median of the rounds. They count from the documents (in memory, or on disk where
the program reads them there) to the decision, without imports and without writing what is kept.

The right answer is known exactly: `peers/exact_pairs.py` finds all pairs of a Jaccard similarity of
0.7 or more, of words for the others and of words and signs for `curate`, which has other tokens.

- recall: the share of pairs at 0.7 (0.8) or more of which not both documents are kept.
- no kept twin: the share of dropped documents that are below 0.7 to every document that is kept.
- renamed: documents dropped because their code is that of another but for names, comments and
  layout; they need no twin in their text. Only `curate` has this.
- copies: the share of planted copies at 0.7 or more to their original where not both are kept.

Measurements are kept under CACHE and repeated only if code has changed: run it again after an
interruption.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from charts import Bar, bar_chart
from corpus import Copy, corpus_files
from numpy.typing import NDArray
from processes import Watch

PEERS = Path(__file__).with_name("peers")
CURATE = Path(__file__).resolve().parents[1] / "curate"
TIMEOUT_S = 900


@dataclass(frozen=True)
class Contestant:
    """One program.

    Attributes:
        name: what it is called in the results.
        script: its file in ``peers``, without ``with_``.
        wheels: what pip installs for it; nothing for this project, which runs in this Python.
        alone: wheels that are installed without what they ask for, where that cannot be had as
            wheels and is not used.
        workers: how many it is run with, each.
        arguments: of its script.
        tokens: whose pairs it is judged by.
    """

    name: str
    script: str
    wheels: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    workers: tuple[int, ...] = (1, 2)
    arguments: tuple[str, ...] = ()
    tokens: str = "words"


CONTESTANTS = (
    Contestant("curate", "curate", tokens="tokens"),
    Contestant("curate, near only", "curate", arguments=("near",), tokens="tokens"),
    Contestant("datasketch", "datasketch", ("datasketch==2.0.0",), workers=(1,)),
    Contestant(
        "datatrove",
        "datatrove",
        ("datatrove==0.10.1", "regex", "xxhash<4", "tokenizers", "orjson"),
    ),
    Contestant(
        "text-dedup",
        "text_dedup",
        (
            *("click<9", "click-option-group<0.6", "datasets", "ftfy", "regex", "rich<14"),
            *("scipy", "setuptools", "tqdm", "xxhash"),
        ),
        alone=("text-dedup==0.4.0",),
    ),
    Contestant("rensa", "rensa", ("rensa==0.5.0",)),
    Contestant("gaoya", "gaoya", ("gaoya==0.2.2",)),
    Contestant("daft", "daft", ("daft==0.7.26", "numpy<2.4")),
)


# --- running --------------------------------------------------------------------------------


def python_of(contestant: Contestant, peers: Path) -> Path:
    """Return the Python of a contestant, made with its libraries where it is not there yet.

    Raises:
        Unavailable: pip cannot install them from wheels.
    """
    if not (contestant.wheels or contestant.alone):
        return Path(sys.executable)
    folder = peers / contestant.script
    python, done = folder / "bin" / "python", folder / "wheels"
    wanted = json.dumps([contestant.wheels, contestant.alone])
    if not done.exists() or done.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        for what in (["--no-deps", *contestant.alone], list(contestant.wheels)):
            if what != ["--no-deps"]:
                ran = subprocess.run([*install, *what], capture_output=True, text=True)
                if ran.returncode:
                    raise Unavailable(ran.stderr.strip().splitlines()[-1])
        done.write_text(wanted)
    return python


def digest(contestant: Contestant) -> str:
    """Return what tells a contestant from one that was measured before its code was changed."""
    code = [PEERS / "contest.py", PEERS / f"with_{contestant.script}.py"]
    if contestant.script == "curate":
        code += [CURATE / "engine/table.py", *sorted(CURATE.glob("clean/**/*.py"))]
    parts = [repr(contestant).encode(), *(file.read_bytes() for file in code)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:8]


class Unavailable(Exception):
    """A contestant cannot be installed or has failed; the message says why."""


def measure(
    contestant: Contestant, workers: int, corpus: Path, peers: Path, result: Path
) -> dict[str, Any]:
    """Return what a contestant's process wrote, and the memory that it took.

    Raises:
        Unavailable: it ended without a result, or was killed after `TIMEOUT_S`.
    """
    python = python_of(contestant, peers)
    script = PEERS / f"with_{contestant.script}.py"
    made = result.with_suffix(".part")
    command = [python, script, corpus, made, str(workers), *contestant.arguments]
    cores = sorted(os.sched_getaffinity(0))[:workers]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    assert process.stdout
    timer = threading.Timer(TIMEOUT_S, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    watch = Watch(process.pid)
    if process.stdout.readline():  # "ready"
        watch.start()
    _, errors = process.communicate()
    timer.cancel()
    if watch.is_alive():
        watch.end()
    if process.returncode or not made.exists():
        raise Unavailable(f"exit code {process.returncode}: {errors.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(made.read_text())
    figures["peak_mb"] = max(watch.total_mb, figures["own_peak_mb"])
    figures["libraries"] = libraries(python)
    made.write_text(json.dumps(figures))
    made.replace(result)
    return figures


def libraries(python: Path) -> list[str]:
    """Return the distributions that a Python has, with their versions."""
    command = [str(python), "-m", "pip", "freeze"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


# --- what is right --------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """All pairs of documents with a similarity of 0.7 or more."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    similarity: NDArray[np.float64]


def find_truth(corpus: Path, tokens: str) -> Truth:
    """Return the pairs by words or by tokens, found in a process of its own and kept."""
    path = corpus.with_name(f"pairs-{tokens}.npz")
    if not path.exists():
        made = path.with_suffix(".part.npz")
        command = [sys.executable, PEERS / "exact_pairs.py", corpus, made, tokens]
        subprocess.run(list(map(str, command)), check=True)
        made.replace(path)
    with np.load(path) as pairs:
        return Truth(pairs["first"], pairs["second"], pairs["similarity"])


def judge(figures: dict[str, Any], truth: Truth, count: int, copies: list[Copy]) -> dict[str, Any]:
    """Return how right a contestant's decision is."""
    kept = np.ones(count, bool)
    kept[figures["dropped"]] = False
    both = kept[truth.first] & kept[truth.second]
    twin, kept_twin = np.zeros(count, bool), np.zeros(count, bool)
    for one, other in ((truth.first, truth.second), (truth.second, truth.first)):
        twin[one] = True
        kept_twin[one[kept[other]]] = True
    renamed = np.zeros(count, bool)
    by_name = zip(figures["dropped"], figures["reasons"], strict=True)
    renamed[[number for number, reason in by_name if reason == "renamed_duplicate"]] = True
    asked = ~kept & ~renamed
    return {
        "dropped": int((~kept).sum()),
        "renamed": int(renamed.sum()),
        "recall_0.7": share((~both).sum(), len(both)),
        "recall_0.8": share(
            (~both)[truth.similarity >= 0.8].sum(), (truth.similarity >= 0.8).sum()
        ),
        "no_kept_twin": share((asked & ~kept_twin).sum(), asked.sum()),
        "no_twin": share((asked & ~twin).sum(), asked.sum()),
        "precision": share((asked & kept_twin).sum(), asked.sum()),
        "copies": recall_of_copies(kept, truth, count, copies),
    }


def recall_of_copies(
    kept: NDArray[np.bool_], truth: Truth, count: int, copies: list[Copy]
) -> dict[str, float | None]:
    """Return, by kind of edit, the share of copies at 0.7 or more that were found."""
    known = set((truth.first * count + truth.second).tolist())
    found: dict[str, list[bool]] = {}
    for copy, original, kind in copies:
        if min(copy, original) * count + max(copy, original) in known:
            found.setdefault(kind, []).append(not (kept[copy] and kept[original]))
    return {kind: share(sum(hits), len(hits)) for kind, hits in sorted(found.items())}


def share(part: float, whole: float) -> float | None:
    """Return a share; None where the whole is 0."""
    return round(float(part) / float(whole), 5) if whole else None


# --- results --------------------------------------------------------------------------------


def summarize(
    contestant: Contestant, workers: int, rounds: list[dict[str, Any]], count: int
) -> dict[str, Any]:
    """Return the figures of one contestant over all rounds."""
    seconds = statistics.median(figures["seconds"] for figures in rounds)
    return {
        "name": contestant.name,
        "workers": workers,
        "docs_per_s": round(count / seconds),
        "seconds": [round(figures["seconds"], 3) for figures in rounds],
        "cpu_s": [round(figures["cpu_s"], 3) for figures in rounds],
        "stages": rounds[0]["stages"],
        "before_mb": rounds[0]["before_mb"],
        "peak_mb": max(figures["peak_mb"] for figures in rounds),
        "versions": rounds[0]["versions"],
        "libraries": rounds[0]["libraries"],
        "how": rounds[0]["how"],
    }


def run_all(given: argparse.Namespace, corpus: Path) -> dict[tuple[str, int], Any]:
    """Return the rounds of every contestant, or the reason why there are none."""
    folder = corpus.parent / "rounds"
    folder.mkdir(exist_ok=True)
    peers = given.peers or given.cache / "peers"
    done: dict[tuple[str, int], Any] = {}
    for number in range(given.rounds):
        for contestant in CONTESTANTS:
            if given.only and contestant.name not in given.only:
                continue
            for workers in contestant.workers:
                key = (contestant.name, workers)
                if isinstance(done.get(key), str):
                    continue
                path = folder / f"{contestant.name}-{digest(contestant)}-{workers}-{number}.json"
                try:
                    if not path.exists():
                        measure(contestant, workers, corpus, peers, path)
                except Unavailable as error:
                    done[key] = str(error)
                    print(f"{contestant.name}: {error}", file=sys.stderr, flush=True)
                    continue
                done.setdefault(key, []).append(json.loads(path.read_text()))
                seconds = done[key][-1]["seconds"]
                line = f"round {number + 1}: {contestant.name}, {workers}: {seconds:.1f} s"
                print(line, file=sys.stderr, flush=True)
    return done


def report(given: argparse.Namespace) -> dict[str, Any]:
    """Return everything, as JSON values."""
    corpus, copies_file = corpus_files(given.cache, given.count, given.seed)
    copies = json.loads(copies_file.read_text())
    truths = {tokens: find_truth(corpus, tokens) for tokens in ("words", "tokens")}
    done = run_all(given, corpus)
    by_name = {contestant.name: contestant for contestant in CONTESTANTS}
    results, missing = [], {}
    for (name, workers), rounds in done.items():
        if isinstance(rounds, str):
            missing[f"{name}, {workers}"] = rounds
            continue
        contestant = by_name[name]
        figures = summarize(contestant, workers, rounds, given.count)
        right = judge(rounds[0], truths[contestant.tokens], given.count, copies)
        results.append({**figures, **right})
    base = next((r["docs_per_s"] for r in results if r["name"] == "datasketch"), None)
    for result in results:
        result["times_datasketch"] = base and round(result["docs_per_s"] / base, 1)
    return {
        "documents": given.count,
        "bytes": corpus.stat().st_size,
        "copies": len(copies),
        "pairs": {name: len(truth.first) for name, truth in truths.items()},
        "rounds": given.rounds,
        "results": sorted(results, key=lambda r: -r["docs_per_s"]),
        "not_measured": missing,
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """Return what was measured on, and when."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "-" if value is None else f"{100 * value:.1f} %"


def markdown(facts: dict[str, Any]) -> str:
    """Return the results as a table."""
    header = ["", "cores", "docs/s", "x datasketch", "peak MB", "MB over start"]
    header += ["dropped", "renamed", "recall 0.7", "recall 0.8", "no kept twin"]
    lines = [header, ["-"] * len(header)]
    for r in facts["results"]:
        speed = [r["name"], r["workers"], f"{r['docs_per_s']:,}", r["times_datasketch"] or "-"]
        memory = [r["peak_mb"], r["peak_mb"] - r["before_mb"]]
        shares = [percent(r[k]) for k in ("recall_0.7", "recall_0.8", "no_kept_twin")]
        lines.append([*speed, *memory, r["dropped"], r["renamed"], *shares])
    table = "\n".join(f"|{'|'.join(map(str, line))}|" for line in lines)
    missing = [f"{name}: not measured: {why}" for name, why in facts["not_measured"].items()]
    return "\n".join([table, *missing])


def chart(facts: dict[str, Any]) -> str:
    """Return a picture of the speeds."""
    bars = [
        Bar(
            f"{r['name']}, {r['workers']} core{'s' * (r['workers'] > 1)}",
            r["docs_per_s"],
            f"{r['docs_per_s']:,} /s, {r['peak_mb'] / 1024:.1f} GB, "
            f"{percent(r['no_kept_twin'])} dropped without a kept twin",
            r["name"].startswith("curate"),
        )
        for r in facts["results"]
    ]
    title = f"Near-duplicates of {facts['documents']:,} functions: documents per second"
    made = facts["machine"]
    note = f"{made['processor']}, {made['date']}; 128 permutations, 16 bands of 8, 5-grams"
    return bar_chart(title, bars, note)


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path, help="folder for packages, corpora and measurements")
    parser.add_argument("result", type=Path, help="JSON file for all figures")
    parser.add_argument("--count", type=int, default=200_000, help="documents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants; by default all")
    parser.add_argument("--peers", type=Path, help="folder of their libraries, by default in CACHE")
    parser.add_argument("--chart", type=Path, help="SVG file for a picture of the speeds")
    return parser.parse_args()


def main() -> None:
    """Measure what is missing, and print the table."""
    given = parse()
    facts = report(given)
    given.result.write_text(json.dumps(facts, indent=1) + "\n")
    if given.chart:
        given.chart.write_text(chart(facts))
    print(markdown(facts))


if __name__ == "__main__":
    main()
