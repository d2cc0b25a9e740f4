"""The device that candidates run on, and who may use it when."""

from __future__ import annotations

import collections
import fcntl
import math
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch

from curate.devices import ON_CPU, Device


@dataclass(frozen=True)
class DeviceInfo:
    """What a label says of where it was found.

    Attributes:
        name: the device's name, or ``cpu``.
        driver: the driver's version, or None.
        is_gpu: whether it is a device of its own.
        target: the GPU that programs see, and for which kernels are compiled.
    """

    name: str
    driver: str | None
    is_gpu: bool
    target: Device

    @property
    def torch_device(self) -> str:
        """What PyTorch calls it."""
        return "cuda" if self.is_gpu else "cpu"

    def gate(self, folder: Path, workers: int) -> Gate:
        """Return what shares the device out among so many slots."""
        memory = (self.target.memory or 0) - workers * CONTEXT_BYTES
        return Gate(folder if self.is_gpu else None, memory)


def resolve_backend(name: str) -> str:
    """Return the backend that a name asks for; ``auto`` is the device that is here, or none.

    Raises:
        ValueError: there is no such device here.
    """
    here = None
    if torch.cuda.is_available():
        here = "hip" if torch.version.hip else "cuda"
    if name == "auto":
        return here or "cpu"
    if name in ("cuda", "hip") and name != here:
        raise ValueError(f"backend {name!r}: this machine has {here or 'no GPU'}")
    return name


def describe_device(backend: str) -> DeviceInfo:
    """Return what is known of the device that a backend uses."""
    if backend not in ("cuda", "hip"):
        return DeviceInfo("cpu", None, False, ON_CPU)
    facts = torch.cuda.get_device_properties(0)
    arch = f"{facts.major}{facts.minor}"
    if backend == "hip":
        arch = facts.gcnArchName.partition(":")[0]
    target = Device(
        name=f"{backend}:{arch}",
        card=facts.name,
        processors=facts.multi_processor_count,
        threads=facts.max_threads_per_multi_processor,
        shared=facts.shared_memory_per_block_optin,
        memory=facts.total_memory,
    )
    return DeviceInfo(facts.name, _driver(), True, target)


def _driver() -> str | None:
    for path, pattern in (
        ("/proc/driver/nvidia/version", r"Module.*?\s(\d+\.\d+(?:\.\d+)?)\s"),
        ("/sys/module/amdgpu/version", r"(\S+)"),
    ):
        if Path(path).exists() and (found := re.search(pattern, Path(path).read_text())):
            return found[1]
    return None


UNITS = 64
"""Parts of a device's memory that are handed out."""

CONTEXT_BYTES = 3 * 2**29
"""What the processes of a slot have on a device before they hold a tensor: its executor, its
reference, and its part of the judge."""

POLL_S = 0.02


class Room:
    """A part of a device's memory that somebody has."""

    def __init__(self) -> None:
        self._units: list[IO[bytes]] = []

    def add(self, path: Path) -> bool:
        """Take a unit, unless somebody else has it."""
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._units.append(file)
        return True

    def keep(self, units: int) -> None:
        """Give back all units but so many."""
        while len(self._units) > units:
            self._units.pop().close()


class Gate:
    """A slot's way to the device, which shares its memory out, and lets one measure in peace.

    By locks on files, so that slots may be in several processes, and one that is killed gives back
    what it had. Whoever wants both asks for memory first.

    Args:
        folder: where the files are, for all slots; None where there is one slot.
        memory: bytes to share out.

    Attributes:
        waited: seconds of waiting for memory (``room``) and for who measures (``turn``).
    """

    def __init__(self, folder: Path | None = None, memory: int = 0) -> None:
        self._folder, self._memory = folder, memory
        self._shared: IO[bytes] | None = None  # the device's lock, while it computes beside others
        self.waited: dict[str, float] = collections.defaultdict(float)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.waited[what] += time.monotonic() - started

    @contextmanager
    def room(self, wanted: float) -> Iterator[Room]:
        """Have so many bytes inside the context, or all that there are."""
        room = Room()
        try:
            if self._folder is not None:
                needed = math.ceil(min(UNITS, UNITS * wanted / max(1, self._memory)))
                with self._waiting("room"):
                    self._take(self._folder, max(1, needed), room)
            yield room
        finally:
            room.keep(0)

    def _take(self, folder: Path, needed: int, room: Room) -> None:
        # One at a time, or those who want much would wait for ever.
        with _locked(folder / "queue", fcntl.LOCK_EX):
            free = {folder / f"unit-{number}" for number in range(UNITS)}
            while needed:
                for path in sorted(free):
                    if room.add(path):
                        free.remove(path)
                        needed -= 1
                        if not needed:
                            return
                time.sleep(POLL_S)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Compute beside others inside the context, and `give_way` from time to time."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def give_way(self) -> None:
        """Let those measure who wait for it, if this slot computes beside others.

        Nothing of its own may be at work on the device.
        """
        if self._folder is None or self._shared is None:
            return
        try:
            with _locked(self._folder / "entrance", fcntl.LOCK_EX | fcntl.LOCK_NB):
                return
        except BlockingIOError:
            self._leave()
            self._enter()

    def _enter(self) -> None:
        if self._folder is not None:
            with self._waiting("turn"), _locked(self._folder / "entrance", fcntl.LOCK_EX):
                self._shared = (self._folder / "device").open("ab")
                fcntl.flock(self._shared, fcntl.LOCK_SH)

    def _leave(self) -> None:
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Compute alone inside the context; others keep the memory that they have.

        All who wait for it come one after the other, before anybody computes beside others again:
        until the device is theirs, they wait for the longest request of the others.
        """
        if self._folder is None:
            yield
            return
        with ExitStack() as stack:
            with self._waiting("turn"):
                stack.enter_context(_locked(self._folder / "entrance", fcntl.LOCK_SH))
                stack.enter_context(_locked(self._folder / "device", fcntl.LOCK_EX))
            yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, how)
        yield
