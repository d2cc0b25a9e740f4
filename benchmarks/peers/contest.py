"""What all contestants of ``dedupe.py`` share; standard library only.

A contestant is called as ``with_NAME.py CORPUS RESULT WORKERS`` by a Python of its own. Time and
memory count from the moment that its libraries are imported and the corpus is in memory, where it
wants it there, until it knows which documents it drops.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PERMUTATIONS = 128
BANDS = 16
ROWS = 8
SHINGLE = 5
THRESHOLD = 0.7


@dataclass
class Contest:
    """One contestant at work.

    Attributes:
        corpus: a file with a JSON object per line, with ``id`` (its number) and ``text``.
        result: the file that the result is written to.
        workers: processes or threads that may be used, where there is a choice.
        stages: seconds of each part of the work.
        reasons: of documents that are dropped, by number, where the contestant gives any.
    """

    corpus: Path
    result: Path
    workers: int
    stages: dict[str, float] = field(default_factory=dict)
    reasons: dict[int, str | None] = field(default_factory=dict)

    def texts(self) -> list[str]:
        """Return the documents."""
        with self.corpus.open(encoding="utf-8") as lines:
            return [json.loads(line)["text"] for line in lines]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a part of the work."""
        started = time.perf_counter()
        yield
        self.stages[name] = self.stages.get(name, 0.0) + time.perf_counter() - started

    def measure(self, dedupe: Callable[[], list[int]], versions: dict[str, str], how: str) -> None:
        """Call ``dedupe``, which returns the numbers of the documents it drops; write all down.

        Args:
            dedupe: the work.
            versions: of the libraries that do it.
            how: what its shingles are and how it decides.
        """
        Path("/proc/self/clear_refs").write_text("5")  # the highest memory so far is forgotten
        before = memory_kb("VmRSS")
        print("ready", flush=True)
        started, used = time.perf_counter(), sum(os.times()[:4])
        dropped = dedupe()
        seconds, used = time.perf_counter() - started, sum(os.times()[:4]) - used
        result = {
            "seconds": seconds,
            "cpu_s": used,  # of processes below that have ended, too
            "stages": self.stages,
            "before_mb": before // 1024,
            "own_peak_mb": memory_kb("VmHWM") // 1024,
            "versions": {"python": sys.version.split()[0], **versions},
            "how": how,
            "dropped": sorted(dropped),
            "reasons": [self.reasons.get(number) for number in sorted(dropped)],
        }
        self.result.write_text(json.dumps(result))


def memory_kb(name: str) -> int:
    """Return a figure of this process in KiB: ``VmRSS`` is resident memory, ``VmHWM`` its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def word_shingles(words: list[str]) -> set[str]:
    """Return runs of `SHINGLE` words; all words where they are fewer."""
    runs = range(max(1, len(words) - SHINGLE + 1))
    return {" ".join(words[i : i + SHINGLE]) for i in runs}


def contest() -> Contest:
    """Return the contest that the command line names."""
    return Contest(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
