"""How far a judging or an evaluation is, on stderr."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Self

from curate.verify.label import Tally

QUIET_S = 10.0
"""Seconds between two lines where there is no terminal."""


class ProgressLine:
    """One line that is written over on a terminal; elsewhere a new line every `QUIET_S`."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End a line that is still open, so that what follows has a line of its own."""
        if self._open:
            print(file=sys.stderr)

    def show(self, line: str, ended: bool) -> None:
        """Show a line.

        Args:
            line: what to show.
            ended: whether it is the last.
        """
        if self._terminal:
            wide = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:wide]}", end="\n" if ended else "", file=sys.stderr, flush=True)
            self._open = not ended
        elif ended or time.monotonic() - self._last > QUIET_S:
            self._last = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def show_tally(self, tally: Tally, label: str = "") -> None:
        """Show how many candidates are judged."""
        self.show(label + tally.line(), tally.done == tally.total)
