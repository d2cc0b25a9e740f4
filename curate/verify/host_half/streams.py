"""A program's streams and events: what it does with them goes to the executor as commands.

`curate.verify.executor.streams` has the account of who waits for whom.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable

DEFAULT = 0
"""The stream that a caller uses."""

POOL = 32
"""Streams of one priority that PyTorch makes before it gives the first one out again."""

Say = Callable[[str, int, int], None]
"""``say(what, stream, event)`` sends a command; see `StreamOrder.follow`."""


class HostStreams:
    """Numbers streams and events, and says what is done with them.

    Attributes:
        current: the stream that commands go to.
        capturing: whether commands go to a graph, where nothing happens and nothing waits.
    """

    def __init__(self, say: Say) -> None:
        self.current, self.capturing = DEFAULT, False
        self._say = say
        self._made: dict[int, int] = defaultdict(int)  # streams, by their priority
        self._known = {DEFAULT}
        self._events = itertools.count(1)

    def make(self, priority: int = 0) -> int:
        """Return a stream; there are so many of each priority, and they come round again."""
        count = self._made[priority]
        self._made[priority] += 1
        number = 1 + count % POOL + POOL * list(self._made).index(priority)
        self._known.add(number)
        self._say("make", number, 0)
        return number

    def knows(self, stream: int) -> bool:
        """Whether there is a stream of this number."""
        return stream in self._known

    def use(self, stream: int) -> None:
        """Have commands go to a stream."""
        if stream != self.current:
            self.current = stream
            self._say("use", stream, 0)

    def record(self, stream: int) -> int:
        """Return the number of an event: what has to be done before a stream is where it is now."""
        event = next(self._events)
        self._say("record", stream, event)
        return event

    def wait(self, stream: int, event: int) -> None:
        """Have a stream wait."""
        if not self.capturing:
            self._say("wait", stream, event)

    def wait_on_host(self, event: int) -> None:
        """Have the program wait, and so whatever it asks for from now on."""
        if not self.capturing:
            self._say("hold", DEFAULT, event)

    def synchronize(self, stream: int | None = None) -> None:
        """Have the program wait for a stream, or for all of them."""
        if not self.capturing:
            what = "synchronize all" if stream is None else "synchronize"
            self._say(what, stream or DEFAULT, 0)
