"""The device that candidates run on, and who may use it when."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
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


class Gate:
    """Lets many check results at the same time, or one have the device to itself.

    By locks on two files, so that slots may be in several processes.

    Args:
        folder: where the files are; None where there is one slot.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the device inside the context."""
        # Whoever wants it alone holds the entrance, and would otherwise wait for ever.
        entrance = self._locked("entrance", fcntl.LOCK_SH)
        with entrance as first, self._locked("device", fcntl.LOCK_SH):
            _unlock(first)
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the device alone inside the context."""
        with self._locked("entrance", fcntl.LOCK_EX), self._locked("device", fcntl.LOCK_EX):
            yield

    @contextmanager
    def _locked(self, name: str, how: int) -> Iterator[IO[bytes] | None]:
        if self._folder is None:
            yield None
            return
        with (self._folder / name).open("ab") as file:
            fcntl.flock(file, how)
            yield file


def _unlock(file: IO[bytes] | None) -> None:
    if file is not None:
        fcntl.flock(file, fcntl.LOCK_UN)
