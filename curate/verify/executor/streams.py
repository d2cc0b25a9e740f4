"""Which of a program's commands wait for which: its streams, and races between them.

The host half says which stream a command is for, and what waits for what (`StreamOrder.follow`).

Work is done in the order in which it is asked for, so that a missing wait changes no result here.
On a device, what two streams do has no order unless one waits for the other. So every stream counts
its commands and knows up to which command of each other stream it has waited (a vector clock); two
commands that touch the same bytes, one of which writes, race if neither waits for the other.

What a caller does is part of that: inputs are written on its own stream, the default one, and
results are read there. Between two calls the caller waits for that stream.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from curate.verify.protocol.places import TensorPlace
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.wire import WireError

DEFAULT = 0
"""The stream that a caller uses."""

MOST_STREAMS, MOST_EVENTS = 4096, 1 << 16
"""Streams that a program may have, and events that are remembered."""

MOST_UNITS = 2**28
"""Elements of a range in which two views are compared one by one; in a longer one they overlap."""

Clocks = dict[int, int]
"""Commands that are done, by their stream: its first so many."""

Place = TensorPlace | None
"""Where a command touches a storage; None stands for all of it."""


class StreamOrder:
    """Takes note of commands, and of what waits for what.

    Attributes:
        current: the stream that commands go to.
        concurrent: whether the program has used a stream of its own, or an event; before that there
            is nothing to take note of but which storages are new.
        race: what the first race of a call was, if there was one.
    """

    def __init__(self) -> None:
        self.current = DEFAULT
        self.concurrent = False
        self.race: str | None = None
        self._known: dict[int, Clocks] = {DEFAULT: {DEFAULT: 1}}
        self._events: dict[int, Clocks] = {}
        self._host: Clocks = {}
        self._fresh: set[int] = set()  # storages made or given since the program last waited
        self._uses: dict[int, dict[tuple[int, bool, Place], int]] = defaultdict(dict)

    # calls

    def begin(self, given: Iterable[int]) -> None:
        """Say that a caller calls, and has written some storages."""
        self.current, self.race = DEFAULT, None
        if not self.concurrent:
            self._fresh = set(given)
            return
        self._synchronize(DEFAULT)
        self._written_by_caller(given)

    def end(self, results: Iterable[TensorPlace]) -> None:
        """Say that the caller uses what is at some places.

        Raises:
            Refusal: there was a race.
        """
        self.current = DEFAULT
        self.command("the caller", results, [])
        if self.race is not None:
            raise Refusal("incorrect", "race", self.race)

    def _start(self) -> None:
        if not self.concurrent:
            self.concurrent = True
            self._written_by_caller(self._fresh)

    def _written_by_caller(self, storages: Iterable[int]) -> None:
        known = self._known[DEFAULT]
        known[DEFAULT] += 1
        for storage in storages:
            self._uses[storage] = {(DEFAULT, True, None): known[DEFAULT]}

    # what a program does with streams

    def follow(self, what: str, stream: int, event: int) -> None:
        """Take note of what the program does with a stream or an event.

        Args:
            what: ``make`` the stream; ``use`` it from now on; ``record`` the event on it; have it
                ``wait`` for the event; have the program wait for the event (``hold``), for the
                stream (``synchronize``), or for all of them (``synchronize all``).
            stream: its number.
            event: its number, another one each time that it is recorded.
        """
        if len(self._known) > MOST_STREAMS:
            raise WireError("too many streams")
        known = self._known.setdefault(stream, {})
        if not what.startswith("synchronize"):
            self._start()
        match what:
            case "make":
                pass
            case "use":
                self.current = stream
            case "record":
                self._events[event] = _joined(known, self._host)
                if len(self._events) > MOST_EVENTS:
                    del self._events[next(iter(self._events))]
            case "wait":
                self._known[stream] = _joined(known, self._events.get(event, {}))
            case "hold":
                self._host = _joined(self._host, self._events.get(event, {}))
            case "synchronize":
                self._synchronize(stream)
            case "synchronize all":
                self._synchronize(*self._known)
            case _:
                raise WireError("not what is done with a stream")

    def _synchronize(self, *streams: int) -> None:
        self._fresh = set()
        for number in streams:
            self._host = _joined(self._host, self._known[number])

    # commands

    def made(self, storage: int) -> None:
        """Take note of a storage that is new."""
        self._uses.pop(storage, None)
        if not self.concurrent:
            self._fresh.add(storage)

    def freed(self, storage: int) -> None:
        """Take note of a storage that is gone."""
        self._uses.pop(storage, None)

    def waited(self) -> None:
        """Take note that the program has waited for a command, as for a value."""
        self._synchronize(self.current)

    def command(
        self, what: str, reads: Iterable[TensorPlace], writes: Iterable[TensorPlace]
    ) -> None:
        """Count a command of the current stream, and see whether it waits for what it touches."""
        if not self.concurrent:
            return
        stream = self.current
        known = self._known[stream] = _joined(self._known[stream], self._host)
        clock = known[stream] = known.get(stream, 0) + 1
        touched = [(place, True) for place in writes]
        touched += [(place, False) for place in reads]
        for place, writes_it in touched:
            uses = self._uses[place.storage]
            for (other, wrote, there), when in uses.items():
                waits = other == stream or known.get(other, 0) >= when
                if not waits and (wrote or writes_it) and overlap(there, place):
                    self._note_race(what, stream, writes_it, other, wrote)
            uses[stream, writes_it, place] = clock

    def _note_race(self, what: str, stream: int, writes: bool, other: int, wrote: bool) -> None:
        self.race = self.race or (
            f"{what} on {_name(stream)} {'writes' if writes else 'reads'} what {_name(other)} "
            f"{'writes' if wrote else 'reads'}, and does not wait for it"
        )


def _name(stream: int) -> str:
    return f"stream {stream}" if stream else "the default stream"


def _joined(one: Clocks, other: Clocks) -> Clocks:
    return {**one, **{stream: max(when, one.get(stream, 0)) for stream, when in other.items()}}


def overlap(one: Place, other: Place) -> bool:
    """Say whether two views of one storage have a byte in common."""
    if one is None or other is None:
        return True
    start, end = max(one.start, other.start), min(one.extent, other.extent)
    if start >= end or not math.prod(one.shape) or not math.prod(other.shape):
        return False
    unit = math.gcd(one.itemsize, other.itemsize)
    first, size = min(one.start, other.start), max(one.extent, other.extent)
    if (size - first) // unit > MOST_UNITS:
        return True
    touched = np.zeros((size - first) // unit, dtype=bool)
    _view(touched, one, first, unit)[...] = True
    return bool(_view(touched, other, first, unit).any())


def _view(touched: np.ndarray[Any, Any], place: TensorPlace, first: int, unit: int) -> Any:
    """Return those of a range's units that a view has."""
    scale = place.itemsize // unit
    return np.lib.stride_tricks.as_strided(
        touched[(place.start - first) // unit :],
        (*place.shape, scale),
        (*(step * scale for step in place.stride), 1),
    )
