"""A limit on the seconds of a block: other people's code may not end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class OutOfTime(BaseException):
    """The time is up. Not an `Exception`: other people's handlers must not eat it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in the block when it runs longer than this; in a main thread only."""

    def stop(signum: int, frame: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
