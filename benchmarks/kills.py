"""Kill a run at random moments, start three at once, and compare the data with those of one alone.

    python benchmarks/kills.py [--recipe FILE] [--limit 3] [--kills 50] [--rounds 10]

Kills: one run after the other in one folder is killed (SIGKILL) at a moment drawn by chance; from
an empty folder again whenever one came to its end. Rounds: three runs are started at once on one
output, by turns from an empty folder and from a finished one whose data set is gone, so that they
meet where data are written. One has to end well, and the others with exit code 2 and a message that
names its process. Prints one JSON object; fails if data or statistics (``run.json``) differ.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).resolve().parents[1] / "recipes/kernelbook_messages.yaml"


class Trial:
    """A recipe, its limit, and what a run of it that nobody disturbed has given."""

    def __init__(self, recipe: Path, limit: str) -> None:
        self.recipe, self.limit = recipe, limit
        self.whole = Path(tempfile.mkdtemp())
        started = time.monotonic()
        self.expected = data_line(self.start(self.whole).communicate()[0])
        self.took = time.monotonic() - started
        (path,) = self.whole.glob("*/run.json")
        self.name, self.record = path.parent.name, json.loads(path.read_bytes())

    def start(self, output: Path) -> subprocess.Popen[str]:
        """Start a run in a process group of its own."""
        command = [sys.executable, "-m", "curate", "run", str(self.recipe)]
        return subprocess.Popen(
            [*command, "--limit", self.limit, "--output", str(output)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def is_same(self, output: Path, printed: str) -> bool:
        """Whether a run has given the same data, files and statistics."""
        run = json.loads((output / self.name / "run.json").read_bytes())
        return data_line(printed) == self.expected and statistics(run) == statistics(self.record)


def data_line(printed: str) -> str:
    """Return the hash of the data that a run has printed."""
    return printed.strip().splitlines()[-1].split()[-1] if printed.strip() else ""


def statistics(run: dict[str, Any]) -> dict[str, Any]:
    """Return what must be the same in two runs: all but the hash over it."""
    return {name: value for name, value in run.items() if name != "seal"}


def kills(trial: Trial, number: int) -> dict[str, Any]:
    """Kill runs at random moments, each going on where the last was killed."""
    draw = random.Random(0)
    output = Path(tempfile.mkdtemp())
    killed, ended, same = 0, 0, 0
    while killed < number:
        process = trial.start(output)
        time.sleep(draw.uniform(0.02, 0.5) * trial.took)
        was_running = process.poll() is None
        process.kill()
        printed = process.communicate()[0]
        killed += was_running
        if process.returncode == 0 or killed == number:
            if process.returncode != 0:
                printed = trial.start(output).communicate()[0]
            ended += 1
            same += trial.is_same(output, printed)
            shutil.rmtree(output)
    return {"killed": killed, "runs_that_ended": ended, "same": same}


def rounds(trial: Trial, number: int) -> dict[str, Any]:
    """Start three runs at once on one output, again and again."""
    same, losers, named, others = 0, 0, 0, []
    for at in range(number):
        output = Path(tempfile.mkdtemp()) / "output"
        if at % 2:
            shutil.copytree(trial.whole, output)
            shutil.rmtree(output / trial.name)
        runs = [trial.start(output) for _ in range(3)]
        ended = [(run.pid, run.communicate(), run.returncode) for run in runs]
        winners = [(pid, said[0]) for pid, said, code in ended if code == 0]
        for pid, said, code in ended:
            if code == 2:
                losers += 1
                named += any(f"process {winner} on" in said[1] for winner, _ in winners)
            elif code != 0:
                others.append((pid, code, said[1][-500:]))
        same += bool(winners) and all(trial.is_same(output, said) for _, said in winners)
        shutil.rmtree(output.parent)
    return {
        "rounds": number,
        "same": same,
        "losers_with_exit_code_2": losers,
        "of_them_named_the_winner": named,
        "others": others,
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--limit", default="3")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    trial = Trial(options.recipe, options.limit)
    found = {
        "data": trial.expected,
        "seconds_alone": round(trial.took, 1),
        "kills": kills(trial, options.kills),
        "at_once": rounds(trial, options.rounds),
    }
    print(json.dumps(found, indent=1))
    ends, together = found["kills"], found["at_once"]
    if (
        ends["same"] != ends["runs_that_ended"]
        or together["same"] != together["rounds"]
        or together["others"]
    ):
        raise SystemExit("the data differ, or a run ended otherwise")


if __name__ == "__main__":
    main()
