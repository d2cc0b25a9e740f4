"""The GPUs that programs are written, compiled and judged for, by the names that recipes use."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from curate.wording import choose

MAX_THREADS = 1024
"""Most threads per block, on every device."""

_HIP_CAPABILITY = {"gfx90a": (9, 0), "gfx942": (9, 4), "gfx950": (9, 5)}


@dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes:
        name: ``cuda:90``, ``hip:gfx942``.
        card: one common card of this architecture.
        processors: its streaming multiprocessors or compute units.
        threads: most resident threads per processor.
        shared: most bytes of shared memory per block.
        memory: bytes of device memory.
    """

    name: str
    card: str
    processors: int
    threads: int
    shared: int
    memory: int

    @property
    def backend(self) -> str:
        """``cuda`` or ``hip``."""
        return self.name.partition(":")[0]

    @property
    def arch(self) -> int | str:
        """The compute capability times ten (90), or the name of the AMD architecture (gfx942)."""
        arch = self.name.partition(":")[2]
        return arch if self.is_amd else int(arch)

    @property
    def is_amd(self) -> bool:
        """Whether this is an AMD device."""
        return self.backend == "hip"

    @property
    def warp_size(self) -> int:
        """Threads in a warp."""
        return 64 if self.is_amd else 32

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor compute capability, as PyTorch reports them."""
        return divmod(self.arch, 10) if isinstance(self.arch, int) else _HIP_CAPABILITY[self.arch]

    def properties(self) -> SimpleNamespace:
        """Return what ``torch.cuda.get_device_properties`` would return."""
        major, minor = self.capability
        return SimpleNamespace(
            name=self.card,
            major=major,
            minor=minor,
            gcnArchName=self.arch if self.is_amd else "",
            multi_processor_count=self.processors,
            max_threads_per_multi_processor=self.threads,
            max_threads_per_block=MAX_THREADS,
            regs_per_multiprocessor=65536,
            warp_size=self.warp_size,
            shared_memory_per_block=min(self.shared, 64 * 1024 if self.is_amd else 48 * 1024),
            shared_memory_per_block_optin=self.shared,
            shared_memory_per_multiprocessor=self.shared + (0 if self.is_amd else 1024),
            total_memory=self.memory,
        )


_KIB, _GIB = 1 << 10, 1 << 30

DEVICES = {
    device.name: device
    for device in (
        Device("cuda:75", "Tesla T4", 40, 1024, 64 * _KIB, 16 * _GIB),
        Device("cuda:80", "NVIDIA A100-SXM4-80GB", 108, 2048, 163 * _KIB, 80 * _GIB),
        Device("cuda:86", "NVIDIA A10", 72, 1536, 99 * _KIB, 24 * _GIB),
        Device("cuda:89", "NVIDIA L4", 58, 1536, 99 * _KIB, 24 * _GIB),
        Device("cuda:90", "NVIDIA H100 80GB HBM3", 132, 2048, 227 * _KIB, 80 * _GIB),
        Device("cuda:100", "NVIDIA B200", 148, 2048, 227 * _KIB, 180 * _GIB),
        Device("cuda:120", "NVIDIA GeForce RTX 5090", 170, 1536, 99 * _KIB, 32 * _GIB),
        Device("hip:gfx90a", "AMD Instinct MI250X", 104, 2048, 64 * _KIB, 64 * _GIB),  # one die
        Device("hip:gfx942", "AMD Instinct MI300X", 304, 2048, 64 * _KIB, 192 * _GIB),
        Device("hip:gfx950", "AMD Instinct MI355X", 256, 2048, 160 * _KIB, 288 * _GIB),
    )
}
"""By name (CUDA C++ Programming Guide, "Compute Capabilities"; AMD Instinct ISA guides, "LDS")."""

ON_CPU = DEVICES["cuda:90"]
"""The device that programs see and are compiled for on a machine without a GPU."""


def find_device(name: str) -> Device:
    """Return the device that a recipe names.

    Raises:
        ValueError: there is no such device.
    """
    if name not in DEVICES:
        raise ValueError(f"no target {name!r}{choose(name, DEVICES, 'there are')}")
    return DEVICES[name]


def known_device(name: str) -> str:
    """Return the name of a device.

    Raises:
        ValueError: there is no such device.
    """
    return find_device(name).name
