"""How far an evaluation is: one line that is written over, or on a file a line now and then."""

from __future__ import annotations

import shutil
import sys
import time

from curate.evaluate.evaluate import Watcher
from curate.verify.label import Tally

QUIET_S = 10.0
"""Seconds between two lines where there is no terminal."""


class Live(Watcher):
    """Says on stderr how many answers are there, and how many are judged."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = 0.0

    def sampling(self, label: str, done: int, total: int) -> None:
        self._show(f"{label}: {done}/{total} answers", done == total)

    def judging(self, label: str, tally: Tally) -> None:
        self._show(f"{label}: judged {tally.line()}", tally.done == tally.total)

    def _show(self, line: str, ended: bool) -> None:
        if self._terminal:
            wide = shutil.get_terminal_size().columns - 1
            end = "\n" if ended else ""
            print(f"\r\x1b[K{line[:wide]}", end=end, file=sys.stderr, flush=True)
        elif ended or time.monotonic() - self._last > QUIET_S:
            self._last = time.monotonic()
            print(line, file=sys.stderr, flush=True)
