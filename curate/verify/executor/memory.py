"""The memory that launches see: allocations at addresses of their own, every access checked.

An allocation's address says nothing of where its bytes lie in this process. Addresses of two
allocations are far apart, so that no step of a pointer leads from one into the other.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]

FIRST, GAP = 1 << 44, 1 << 34
"""The address of storage 0, and the distance between two storages, in bytes."""


def address_of(storage: int) -> int:
    """Return the address of a storage's first byte."""
    return FIRST + storage * GAP


def storage_of(address: int) -> int:
    """Return the number of the storage that an address of `address_of` belongs to."""
    return (address - FIRST) // GAP


def located(value: int, find: Callable[[int], int | None]) -> int:
    """Return a number that a program has; if it is an address, that on the device.

    Args:
        value: the number, perhaps from `address_of`, which is what a program has for an address.
        find: gives the address of a storage on the device, None if there is no such storage.
    """
    storage, start = divmod(value - FIRST, GAP)
    base = find(storage) if storage >= 0 else None
    return value if base is None else base + start


def all_located(values: torch.Tensor, find: Callable[[int], int | None]) -> torch.Tensor:
    """Return what a program sends, with each address in it that on the device; see `located`."""
    if values.dtype != torch.int64:
        return values
    storages = (values - FIRST).div(GAP, rounding_mode="floor")
    found = values
    for storage in storages[values >= FIRST].unique().tolist():
        if (base := find(storage)) is not None:
            found = torch.where(storages == storage, values - address_of(storage) + base, found)
    return found


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


@dataclass(frozen=True)
class Access:
    """What some programs do to elements of an allocation.

    Attributes:
        size: bytes of an element.
        index: numbers of the elements.
        programs: who, of the same shape.
    """

    allocation: Allocation
    size: int
    index: Array
    programs: Array

    @functools.cached_property
    def at(self) -> Array | slice:
        """The elements as a slice, which NumPy takes faster, if each lies behind the one before."""
        index = self.index
        may_be = len(index) and index[-1] - index[0] == len(index) - 1
        if may_be and (index[1:] - index[:-1] == 1).all():
            return slice(int(index[0]), int(index[-1]) + 1)
        return index

    @property
    def addresses(self) -> Array:
        """Where the elements lie."""
        found: Array = self.allocation.base + self.index.astype(np.int64) * self.size
        return found


class Memory:
    """All allocations of one candidate.

    Attributes:
        touched: bases of those that were accessed since somebody cleared it.
        blank: whether lanes that a load leaves out are zeros, as mostly on a GPU.
    """

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.allocations: list[Allocation] = []
        self.touched: set[int] = set()
        self.blank = False

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

    def base(self, address: int) -> int:
        """Return where the allocation of an address begins; 0 if it lies before all of them."""
        at = bisect_right(self.bases, address) - 1
        return self.bases[at] if at >= 0 else 0

    def find(self, address: int, size: int, what: str) -> Allocation:
        """Return the allocation that holds ``size`` bytes at an address."""
        at = bisect_right(self.bases, address) - 1
        if at >= 0:
            allocation = self.allocations[at]
            if address + size <= allocation.base + len(allocation.data):
                self.touched.add(allocation.base)
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

        None where the addresses lie in several allocations; `parts` takes them apart. An
        element's size is a power of two; ``what`` is for messages.
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

    def parts(
        self, addresses: Array, size: int, what: str
    ) -> list[tuple[Allocation, Array, Array | slice]]:
        """Return, per allocation, the elements' numbers and which addresses they belong to.

        ``addresses`` has one dimension.
        """
        whole = self.places(addresses, size, what) if len(addresses) else None
        if whole is not None:
            return [(*whole, slice(None))]
        found: list[tuple[Allocation, Array, Array | slice]] = []
        which = np.searchsorted(np.array(self.bases, np.int64), addresses, side="right") - 1
        for number in np.unique(which).tolist():
            chosen = np.nonzero(which == number)[0]
            placed = self.places(addresses[chosen], size, what)
            if placed is None:
                raise OutOfBounds(f"{what} between two allocations")
            found.append((*placed, chosen))
        return found


RELEASE, ACQUIRE, OWN_BLOCK = 1, 2, -1
"""What an atomic operation does for the order of others: it hands on what its program did before
it, and its program sees what was handed on. With the scope of its own block it is atomic for its
own program only."""


class Order:
    """Whose accesses come before whose, as far as atomic operations tell.

    What a program did before an atomic operation that releases is seen by whoever does one at the
    same address later that acquires. An operation's number is its place in the order in which all
    were done.
    """

    def __init__(self) -> None:
        self.count = 0
        self.programs, self.addresses = np.zeros(64, np.int32), np.zeros(64, np.int64)
        self.hands = np.zeros(64, np.int8)

    def note(self, programs: Array, addresses: Array, hands: int = RELEASE | ACQUIRE) -> None:
        """Note atomic operations, in the order in which they were done.

        Loads from where such operations were done acquire, too: a program may wait for another by
        loading what that one's operation stores.
        """
        end = self.count + len(programs)
        if end > MANY_OPERATIONS:
            self.count = end  # too many to tell: what has an atomic operation counts as in order
            return
        while end > len(self.programs):
            self.programs = np.concatenate([self.programs, np.zeros_like(self.programs)])
            self.addresses = np.concatenate([self.addresses, np.zeros_like(self.addresses)])
            self.hands = np.concatenate([self.hands, np.zeros_like(self.hands)])
        self.programs[self.count : end] = programs
        self.addresses[self.count : end] = addresses
        self.hands[self.count : end] = hands
        self.count = end

    def unordered(self, first: Array, times: Array, second: Array) -> int | None:
        """Return the position of a pair of programs of which neither must come first, or None.

        Args:
            first: programs that accessed an element, or `MANY_READERS`.
            times: how many atomic operations had been done then.
            second: programs that access it now.
        """
        if self.count > MANY_OPERATIONS:
            return None
        triples = np.stack([first, times, second], axis=1)
        found, positions = np.unique(triples, axis=0, return_index=True)
        most = max(FEW_PAIRS, MOST_STEPS // max(1, self.count))
        for at in range(0, len(found), -(-len(found) // most)):
            one, time, other = found[at].tolist()
            if one == MANY_READERS:
                if not len(self._done_by(other, 0, ACQUIRE)):
                    return int(positions[at])
            elif not self._comes_before(one, time, other):
                return int(positions[at])
        return None

    def _done_by(self, program: int, since: int, hands: int) -> Array:
        """Return the numbers of a program's operations that release, or that acquire."""
        theirs = self.programs[since : self.count] == program
        return np.nonzero(theirs & (self.hands[since : self.count] & hands != 0))[0] + since

    def _comes_before(self, one: int, time: int, other: int) -> bool:
        released = self._done_by(one, time, RELEASE)
        acquired = self._done_by(other, time, ACQUIRE)
        if not len(released) or not len(acquired):
            return False
        first: dict[int, int] = {}
        for at in released.tolist():
            first.setdefault(int(self.addresses[at]), at)
        for at in acquired.tolist():
            if first.get(int(self.addresses[at]), at) < at:
                return True
        told, seen = {one}, set()  # by way of others
        since = slice(time, self.count)
        columns = (self.programs[since], self.addresses[since], self.hands[since])
        for program, address, hands in zip(*(c.tolist() for c in columns), strict=True):
            if address in seen and hands & ACQUIRE:
                told.add(program)
            if program in told and hands & RELEASE:
                seen.add(address)
        return other in told


MANY_OPERATIONS, FEW_PAIRS, MOST_STEPS = 1 << 16, 256, 1 << 22
"""Atomic operations of a launch up to which their order is looked at; how many pairs of programs
are looked at in any case; and how many if it takes no more than so many steps."""


MANY_READERS = -1


class Shadow:
    """Who accessed each element of an allocation last, and when.

    Attributes:
        size: bytes of an element.
        who: programs; 0 for none.
    """

    def __init__(self, size: int, count: int, timed: bool) -> None:
        self.size = size
        self.who = np.zeros(count, np.int32)
        self.when = np.zeros(count, np.int32) if timed else None

    def look(self, access: Access) -> tuple[Array, Array]:
        """Return who and when."""
        who = self.who[access.at].copy()
        return who, np.zeros_like(who) if self.when is None else self.when[access.at].copy()

    def note(self, access: Access, programs: Array, now: int) -> tuple[Array, Array]:
        """Note an access; return who and when it was before."""
        before = self.look(access)
        self.who[access.at] = programs
        if self.when is not None:
            self.when[access.at] = now
        return before


class Races:
    """Who stored and who loaded what, in one launch; raises `Race`.

    Two programs that store different values to one element, or one that loads what another
    stores, make a race, unless atomic operations order them (`Order`). So do two lanes of one
    store, and a store and another program's atomic operation. Programs are numbered from 1.

    Args:
        programs: of the grid.
        stored_to: bases of the allocations that programs may store to, or None for any: loads of
            others are not noted.
        atomics: whether the kernel has atomic operations.
    """

    def __init__(self, programs: int, stored_to: set[int] | None, atomics: bool = True) -> None:
        self.on = programs > 1
        self._stored_to = stored_to
        self._order = Order() if atomics else None
        self._writers: dict[int, Shadow] = {}
        self._readers: dict[int, Shadow] = {}
        self._atomics: dict[int, Shadow] = {}

    def watches(self, allocation: Allocation) -> bool:
        """Whether loads of an allocation are to be noted."""
        return self.on and (self._stored_to is None or allocation.base in self._stored_to)

    def _shadow(self, table: dict[int, Shadow], access: Access) -> Shadow | None:
        known = table.get(access.allocation.base)
        if known is None:
            count = len(access.allocation.data) // access.size
            known = Shadow(access.size, count, self._order is not None)
            table[access.allocation.base] = known
        return known if known.size == access.size else None  # another size: not watched

    def _now(self) -> int:
        return self._order.count if self._order else 0

    def stored(self, access: Access, differs: Array, lost: Array) -> None:
        """Note a store of one value per index, after it was done.

        Args:
            access: where, and by whom.
            differs: whether the element held another value before.
            lost: whether it holds another value now: another lane stored there, too.
        """
        if not self.on or (writers := self._shadow(self._writers, access)) is None:
            return
        programs = access.programs
        before, times = writers.note(access, programs, self._now())
        others = (before != 0) & (before != programs) & differs
        if lost.any():
            now = writers.who[access.at]
            if (own := lost & (now == programs)).any():
                raise Race(
                    f"lanes of program {int(programs[own][0]) - 1} store different values to "
                    f"element {int(access.index[own][0])} of an allocation of "
                    f"{len(access.allocation.data)} bytes"
                )
            others |= (now != programs) & lost
            before, times = np.where(lost, now, before), np.where(lost, self._now(), times)
        self._check(access, others, before, times, "store to")
        for table in (self._atomics, self._readers):
            self._meet(table, access, "load and store", differs)

    def loaded(self, access: Access) -> None:
        """Note a load from an allocation that is watched."""
        if self._order is not None and access.allocation.base in self._atomics:
            self._order.note(access.programs, access.addresses, ACQUIRE)
        self._meet(self._writers, access, "load and store")
        readers = self._shadow(self._readers, access)
        if readers is not None:
            before, _ = readers.look(access)
            alone = (before == 0) | (before == access.programs)
            readers.note(access, np.where(alone, access.programs, MANY_READERS), self._now())

    def updated(self, access: Access, hands: int) -> None:
        """Note atomic operations, in the order in which they were done.

        Args:
            access: where, and by whom.
            hands: what they do for the order of others: `RELEASE`, `ACQUIRE`, or `OWN_BLOCK`.
        """
        if not self.on or self._order is None:
            return
        of_block, now = hands == OWN_BLOCK, self._now()
        if of_block:  # what others did before
            self._meet(self._atomics, access, "update")
        self._order.note(access.programs, access.addresses, max(hands, 0))
        atomics = self._shadow(self._atomics, access)
        if atomics is not None:
            atomics.note(access, access.programs, now)
        if of_block:  # what others do at the same time
            self._meet(self._atomics, access, "update")
        self._meet(self._writers, access, "update")

    def _meet(
        self, table: dict[int, Shadow], access: Access, what: str, among: Array | bool = True
    ) -> None:
        """Look at who accessed some elements before, among those that count."""
        known = table.get(access.allocation.base)
        if known is not None and known.size == access.size:
            before, times = known.look(access)
            others = (before != 0) & (before != access.programs) & among
            self._check(access, others, before, times, what)

    def _check(self, access: Access, others: Array, before: Array, times: Array, what: str) -> None:
        """Raise unless atomic operations order the programs of all conflicts."""
        if not others.any():
            return
        before, times, programs = before[others], times[others], access.programs[others]
        at = 0 if self._order is None else self._order.unordered(before, times, programs)
        if at is None:
            return
        one, other = int(programs[at]) - 1, int(before[at]) - 1
        pair = f"programs {one} and {other}" if other >= 0 else f"program {one} and others"
        raise Race(
            f"{pair} {what} element {int(access.index[others][at])} of an allocation of "
            f"{len(access.allocation.data)} bytes"
        )
