"""The memory that launches see: allocations at addresses of their own, every access checked.

An allocation's address says nothing of where its bytes lie in this process. Addresses of two
allocations are far apart, so that no step of a pointer leads from one into the other.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FIRST, GAP = 1 << 44, 1 << 34
"""The address of storage 0, and the distance between two storages, in bytes."""


def address_of(storage: int) -> int:
    """Return the address of a storage's first byte."""
    return FIRST + storage * GAP


class OutOfBounds(Exception):
    """A kernel touched an address that belongs to no allocation."""


class Misaligned(Exception):
    """A kernel touched an address that its type's size does not divide."""


class Race(Exception):
    """The result depends on which of two programs comes first."""


@dataclass
class Allocation:
    """A piece of memory.

    Attributes:
        base: its first address.
        data: its bytes.
    """

    base: int
    data: Array
    views: dict[str, Array] = field(default_factory=dict)

    def view(self, kind: str) -> Array:
        """Return the bytes as an array of a NumPy type; what fills no element is left out."""
        if kind not in self.views:
            size = np.dtype(kind).itemsize
            self.views[kind] = self.data[: len(self.data) // size * size].view(kind)
        return self.views[kind]


class Memory:
    """All allocations of one candidate."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.allocations: list[Allocation] = []

    def add(self, data: Array, storage: int | None = None) -> Allocation:
        """Give a storage its address.

        Args:
            data: its bytes, a one-dimensional array of uint8, which is not copied.
            storage: its number; by default the next one.
        """
        if storage is None:
            storage = (self.bases[-1] - FIRST) // GAP + 1 if self.bases else 0
        allocation = Allocation(address_of(storage), data)
        at = bisect_right(self.bases, allocation.base)
        self.bases.insert(at, allocation.base)
        self.allocations.insert(at, allocation)
        return allocation

    def remove(self, allocation: Allocation) -> None:
        """Forget an allocation; its address is not given again."""
        at = bisect_right(self.bases, allocation.base) - 1
        del self.bases[at], self.allocations[at]

    def number(self, address: int) -> int:
        """Return a number that two addresses share if they lie in one allocation."""
        return bisect_right(self.bases, address)

    def find(self, address: int, size: int, what: str) -> Allocation:
        """Return the allocation that holds ``size`` bytes at an address.

        Raises:
            OutOfBounds: none does.
        """
        at = bisect_right(self.bases, address) - 1
        if at >= 0:
            allocation = self.allocations[at]
            if address + size <= allocation.base + len(allocation.data):
                return allocation
        raise OutOfBounds(f"{what} at {address:#x}, {self._nearest(address)}")

    def _nearest(self, address: int) -> str:
        at = bisect_right(self.bases, address) - 1
        if at < 0:
            return "before all memory"
        allocation = self.allocations[at]
        past = address - allocation.base - len(allocation.data)
        return f"{past} bytes behind the end of an allocation of {len(allocation.data)} bytes"

    def places(self, addresses: Array, size: int, what: str) -> tuple[Allocation, Array] | None:
        """Return the allocation that holds all addresses, and the elements' numbers in it.

        Args:
            addresses: int64, at least one.
            size: bytes of an element, a power of two.
            what: ``load`` or ``store``, for messages.

        Returns:
            None where the addresses lie in several allocations; `groups` takes them apart then.

        Raises:
            OutOfBounds: an address is in no allocation.
            Misaligned: ``size`` does not divide an address.
        """
        low, high = int(addresses.min()), int(addresses.max())
        allocation = self.find(low, size, what)
        if high + size > allocation.base + len(allocation.data):
            self.find(high, size, what)
            return None
        offsets = addresses - allocation.base
        if size > 1:
            if int(np.bitwise_or.reduce(offsets, axis=None)) & (size - 1):
                raise Misaligned(
                    f"{what} of {size} bytes at an address that {size} does not divide"
                )
            offsets >>= size.bit_length() - 1
        return allocation, offsets

    def groups(
        self, addresses: Array, size: int, what: str
    ) -> list[tuple[Allocation, Array, Array]]:
        """Return, per allocation, elements' numbers and which addresses they are of.

        ``addresses`` has one dimension.
        """
        found = []
        which = np.searchsorted(np.array(self.bases, np.int64), addresses, side="right") - 1
        for number in np.unique(which).tolist():
            chosen = np.nonzero(which == number)[0]
            placed = self.places(addresses[chosen], size, what)
            if placed is None:
                raise OutOfBounds(f"{what} between two allocations")
            found.append((*placed, chosen))
        return found


MANY_READERS = -1


class Races:
    """Who stored and who loaded what, in one launch.

    Two programs that store different values to one element, or one that loads what another
    stores, make a race, unless each did an atomic operation in between (which orders them) or the
    access is atomic itself. Programs are numbered from 1.
    """

    def __init__(self, programs: int, watch_loads: bool) -> None:
        self.on = programs > 1
        self.watch_loads = self.on and watch_loads
        self._writers: dict[int, tuple[int, Array]] = {}
        self._readers: dict[int, tuple[int, Array]] = {}
        self._synchronised = np.zeros(programs + 1, np.int32)  # time of each one's last atomic
        self._clock = 1

    def _shadow(
        self, table: dict[int, tuple[int, Array]], allocation: Allocation, size: int
    ) -> Array | None:
        known = table.get(allocation.base)
        if known is None:
            known = table[allocation.base] = size, np.zeros(len(allocation.data) // size, np.int32)
        return known[1] if known[0] == size else None  # another size: not watched

    def stored(
        self,
        allocation: Allocation,
        size: int,
        index: Array,
        programs: Array,
        differs: Array,
        lost: Array,
    ) -> None:
        """Note a store of one value per index, after it was done.

        Args:
            allocation, size, index: where.
            programs: who, of the same shape as ``index``.
            differs: whether the element held another value before.
            lost: whether it holds another value now: another lane stored there, too.

        Raises:
            Race: another program stored another value there, or loaded from there.
        """
        if not self.on or (writers := self._shadow(self._writers, allocation, size)) is None:
            return
        self._clock += 1
        before = writers[index]
        writers[index] = programs
        others = (before != 0) & (before != programs) & differs
        if lost.any():
            now = writers[index]
            others |= (now != programs) & lost
            before = np.where(lost, now, before)
        if others.any():
            self._refuse(allocation, size, index, others, before, programs, "store to")
        if self.watch_loads:
            readers = self._shadow(self._readers, allocation, size)
            if readers is not None:
                read = readers[index]
                others = (read != 0) & (read != programs) & differs
                if others.any():
                    self._refuse(allocation, size, index, others, read, programs, "load and store")

    def loaded(self, allocation: Allocation, size: int, index: Array, programs: Array) -> None:
        """Note a load.

        Raises:
            Race: another program stored there.
        """
        if not self.watch_loads:
            return
        known = self._writers.get(allocation.base)
        if known is not None and known[0] == size:
            before = known[1][index]
            others = (before != 0) & (before != programs)
            if others.any():
                self._refuse(allocation, size, index, others, before, programs, "load and store")
        readers = self._shadow(self._readers, allocation, size)
        if readers is not None:
            before = readers[index]
            readers[index] = np.where((before == 0) | (before == programs), programs, MANY_READERS)

    def synchronised(self, programs: Array) -> None:
        """Note that programs did an atomic operation."""
        if self.on:
            self._clock += 1
            self._synchronised[programs] = self._clock

    def _refuse(
        self,
        allocation: Allocation,
        size: int,
        index: Array,
        others: Array,
        before: Array,
        programs: Array,
        what: str,
    ) -> None:
        """Raise unless atomic operations order the two programs."""
        mine = self._synchronised[programs[others]]
        theirs = self._synchronised[np.maximum(before[others], 0)]
        theirs = np.where(before[others] == MANY_READERS, mine, theirs)
        unordered = (mine == 0) | (theirs == 0)
        if unordered.any():
            place = int(index[others][unordered][0])
            one = int(programs[others][unordered][0]) - 1
            other = int(before[others][unordered][0]) - 1
            pair = f"programs {one} and {other}" if other >= 0 else f"program {one} and others"
            raise Race(
                f"{pair} {what} element {place} of an allocation of {len(allocation.data)} bytes"
            )
