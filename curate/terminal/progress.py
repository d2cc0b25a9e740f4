"""How far a judging or an evaluation is, on stderr."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Protocol, Self

from curate.terminal.shown import say, visible

QUIET_S = 30.0
"""Seconds between two lines where there is no terminal."""


class Counted(Protocol):
    """What is counted while it is done."""

    total: int

    @property
    def done(self) -> int:
        """How many are done."""
        ...

    def line(self) -> str:
        """Return all of it as one line."""
        ...


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
            say(err=True)

    def show(self, line: str, ended: bool) -> None:
        """Show a line.

        Args:
            line: what to show.
            ended: whether it is the last.
        """
        if self._terminal:
            wide = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K", end="", file=sys.stderr)
            say(visible(line)[:wide], err=True, end="\n" if ended else "")
            self._open = not ended
        elif ended or time.monotonic() - self._last > QUIET_S:
            self._last = time.monotonic()
            say(line, err=True)

    def show_tally(self, tally: Counted, label: str = "") -> None:
        """Show how many candidates are judged."""
        self.show(label + tally.line(), tally.done == tally.total)
