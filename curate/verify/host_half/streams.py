"""Which of a program's commands wait for which: its streams, and races between them.

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
import torch

from curate.verify.compile.ptx import stored_parameters
from curate.verify.executor.launch import described
from curate.verify.protocol.places import TensorPlace, places_in, read_place
from curate.verify.protocol.role import Refusal
from curate.verify.protocol.wire import Message

DEFAULT = 0
"""The stream that a caller uses."""

POOL = 32
"""Streams of one priority that PyTorch makes before it gives the first one out again."""

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
        capturing: whether commands go to a graph, where nothing happens and nothing waits.
        texts: of kernels, by their hash.
        race: what the first race was, if there was one.
    """

    def __init__(self) -> None:
        self.current = DEFAULT
        self.capturing = self.concurrent = False
        self.texts: dict[str, str] = {}
        self.race: str | None = None
        self._known: dict[int, Clocks] = {DEFAULT: {DEFAULT: 1}}
        self._host: Clocks = {}
        self._made: dict[int, int] = defaultdict(int)  # streams, by their priority
        self._fresh: set[int] = set()  # storages made or given since the program last waited
        self._uses: dict[int, dict[tuple[int, bool, Place], int]] = defaultdict(dict)

    # calls

    def begin(self, inputs: Iterable[Any]) -> None:
        """Say that a caller calls, with inputs at some places."""
        self.current, self.capturing, self.race = DEFAULT, False, None
        given = {place[0] for place in inputs}
        if not self.concurrent:
            self._fresh = given
            return
        self.synchronize(DEFAULT)
        self._written_by_caller(given)

    def end(self, results: Iterable[Any]) -> None:
        """Say that the caller uses what is at some places.

        Raises:
            Refusal: there was a race.
        """
        self.current = DEFAULT
        if self.concurrent:
            self._command("the caller", [read_place(place) for place in results], [])
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

    def make(self, priority: int = 0) -> int:
        """Return a stream; there are so many of each priority, and they come round again."""
        self._start()
        count = self._made[priority]
        self._made[priority] += 1
        number = 1 + count % POOL + POOL * list(self._made).index(priority)
        self._known.setdefault(number, {})
        return number

    def knows(self, stream: int) -> bool:
        """Whether there is a stream of this number."""
        return stream in self._known

    def record(self, stream: int) -> Clocks:
        """Return what has to be done before a stream is where it is now."""
        self._start()
        return _joined(self._known[stream], self._host)

    def wait(self, stream: int, clocks: Clocks) -> None:
        """Have a stream wait."""
        if not self.capturing:
            self._known[stream] = _joined(self._known[stream], clocks)

    def wait_on_host(self, clocks: Clocks) -> None:
        """Have the program wait, and so whatever it asks for from now on."""
        if not self.capturing:
            self._host = _joined(self._host, clocks)

    def synchronize(self, stream: int | None = None) -> None:
        """Have the program wait for a stream, or for all of them."""
        self._fresh = set()
        for number in list(self._known) if stream is None else [stream]:
            self.wait_on_host(self._known[number])

    # commands

    def note(self, message: Message) -> None:
        """Take note of a command before it is sent."""
        do = message["do"]
        if not self.concurrent:
            if do == "new":
                self._fresh.add(message["storage"])
            elif do in ("upload", "read", "ask"):
                self._fresh.clear()  # the program waits
            return
        match do:
            case "new" | "free":
                self._uses.pop(message["storage"], None)
            case "op":
                self._operator(message)
            case "launch" | "cuda":
                self._launch(message)
            case "upload":
                self._command("a copy to the device", [], [read_place(message["out"])])
            case "read":
                self._command("a copy to the host", [read_place(message["place"])], [])
            case "ask":
                self._operator({**message, "outs": []})
        if do in ("upload", "read", "ask"):
            self.synchronize(self.current)
        if do == "ask":
            for storage in range(message["first"], message["first"] + 64):
                self._uses.pop(storage, None)

    def _operator(self, message: Message) -> None:
        given = message["args"], message["kwargs"]
        written = [place for place in message["outs"] if place is not None]
        name, _, overload = message["name"].partition(".")
        arguments = torch._C._get_schema(name, overload).arguments
        by_name = {a.name: value for a, value in zip(arguments, given[0], strict=False)}
        by_name.update(given[1])
        for argument in arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                written += places_in(by_name.get(argument.name))
        self._command(message["name"], map(read_place, places_in(given)), map(read_place, written))

    def _launch(self, message: Message) -> None:
        text = self.texts[message["sha256"]]
        kernel = message.get("kernel")
        stored = described(text)[1] if kernel is None else stored_parameters(text, kernel)
        places = [(i, read_place(p)) for i, a in enumerate(message["args"]) for p in places_in(a)]
        written = [place for i, place in places if stored is None or i in stored]
        self._command("a launch", [place for _, place in places], written)

    def _command(
        self, what: str, reads: Iterable[TensorPlace], writes: Iterable[TensorPlace]
    ) -> None:
        """Count a command of the current stream, and see whether it waits for what it touches."""
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
