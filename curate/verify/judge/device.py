"""The device that candidates run on, and who may use it when."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class DeviceInfo:
    """What a label says of where it was found.

    Attributes:
        name: the device's name, or ``cpu``.
        driver: the driver's version, or None.
        is_gpu: whether it is a device of its own.
    """

    name: str
    driver: str | None
    is_gpu: bool

    @property
    def torch_device(self) -> str:
        """What PyTorch calls it."""
        return "cuda" if self.is_gpu else "cpu"


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
        return DeviceInfo("cpu", None, False)
    return DeviceInfo(torch.cuda.get_device_properties(0).name, _driver(), True)


def _driver() -> str | None:
    for path, pattern in (
        ("/proc/driver/nvidia/version", r"Module.*?\s(\d+\.\d+(?:\.\d+)?)\s"),
        ("/sys/module/amdgpu/version", r"(\S+)"),
    ):
        if Path(path).exists() and (found := re.search(pattern, Path(path).read_text())):
            return found[1]
    return None


class Gate:
    """Lets many check results at the same time, or one have the device to itself."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._waiting = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the device inside the context."""
        with self._changed:
            # Whoever wants it alone goes first, and would otherwise wait for ever.
            self._changed.wait_for(lambda: self._inside >= 0 and not self._waiting)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the device alone inside the context."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._inside == 0)
            self._waiting -= 1
            self._inside = -1
        try:
            yield
        finally:
            with self._changed:
                self._inside = 0
                self._changed.notify_all()
