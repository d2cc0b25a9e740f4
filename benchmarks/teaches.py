"""Does the data teach? One small model, trained on each arm of `teaching_data.py`, then evaluated.

    python benchmarks/teaches.py WORK MODEL DATA --bench ours=DATA/test.jsonl --bench kb=KERNELBENCH

Trains MODEL on every data set in DATA (``ours`` and its ablations) with the same options and the
same number of updates, all at the same time, on as many devices as there are; then has the base and
every trained model write programs for the problems of each bench, all benches at the same time, and
the judge run them. With ``--grpo N`` the first arm's model is trained for N more updates by the
judge's reward on DATA/short.jsonl, and is evaluated with the others, as ``grpo``. It only runs
`curate train` and `curate eval`: the commands are printed, and each resumes where it stopped, so a
second call may finish WORK. The results are in the folders WORK/eval/BENCH (results.json,
results.md, results.svg) and WORK/ARM (training.json). Needs torch, triton, transformers, TRL and
click, and nothing else of `curate`'s.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]

TRAIN = (
    "--method full --learning-rate 5e-4 --batch-size 16 --accumulation 1 --no-checkpointing "
    "--max-length 2304"
)
"""Options that all arms are trained with."""

GRPO = (
    "--method grpo --generations 8 --batch-size 32 --accumulation 2 --no-checkpointing "
    "--answer-length 704 --learning-rate 3e-5 --judge-timeout 30 --evaluations 4"
)
"""Options of the training by reward."""

TOLD = 40  # lines of what a command said


def main() -> None:
    """Train all arms, evaluate all models, and print one table per bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("model", help="of which all arms start")
    parser.add_argument("data", type=Path, help="what teaching_data.py wrote")
    parser.add_argument("--arms", default="ours,unfiltered")
    parser.add_argument("--bench", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--train", default="--max-steps 500 --evaluations 5")
    parser.add_argument("--grpo", type=int, default=0, metavar="N", help="updates by reward")
    parser.add_argument("--eval", default="--limit 30 --samples 10 --max-tokens 2048")
    given = parser.parse_args()
    arms, logs = given.arms.split(","), given.work / "logs"
    trainings = [
        f"train {given.data / arm} --model {given.model} --output {given.work / arm} "
        f"{TRAIN} {given.train}"
        for arm in arms
    ]
    together(trainings, logs)
    models = {"base": given.model} | {arm: str(given.work / arm) for arm in arms}
    if given.grpo:
        models["grpo"] = str(given.work / "grpo")
        by_reward = f"--model {models[arms[0]]} --output {models['grpo']} --max-steps {given.grpo}"
        together([f"train {given.data / 'short.jsonl'} {GRPO} {by_reward}"], logs)
    shown = " ".join(f"--model {label}={path}" for label, path in models.items())
    together(
        [
            f"eval --bench {problems} --output {given.work / 'eval' / name} {given.eval} {shown}"
            for name, _, problems in (bench.partition("=") for bench in given.bench)
        ],
        logs,
    )


def together(commands: Iterable[str], logs: Path) -> None:
    """Run commands at the same time, and print the end of what each said; stop if one failed."""
    started, running, devices = time.monotonic(), [], torch.cuda.device_count()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    logs.mkdir(parents=True, exist_ok=True)
    for number, command in enumerate(commands):
        print(f"$ curate {command}", flush=True)
        argv = [sys.executable, "-m", "curate.train", *shlex.split(command)]
        log = logs / f"{command.split()[0]}-{number}.log"
        if devices > 1:
            environment["CUDA_VISIBLE_DEVICES"] = str(number % devices)
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=out, env=environment)
        running.append((log, process))
    failed = False
    for log, process in running:
        failed |= process.wait() != 0
        said = log.read_text(encoding="utf-8").strip().splitlines()
        print("\n".join(["", f"{log.name}: exit {process.returncode}", *said[-TOLD:]]), flush=True)
    print(f"# {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
