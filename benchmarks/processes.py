"""Memory of a process and of those below it, as Linux gives it in ``/proc``."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

INTERVAL_S = 0.2


def tree(root: int) -> list[int]:
    """Return a process and all below it that have not ended."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def figure_kb(pid: int, file: str, name: str) -> int:
    """Return a figure in KiB of ``/proc/PID/FILE``; 0 where the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


class Watch(threading.Thread):
    """Follows the memory of a process and of those below it until it is told to end.

    Attributes:
        total_mb: the most that all together had at one time; pages that processes share count
            once (``Pss``).
        below_mb: the most that one of the processes below had (``VmHWM``).
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root = root
        self.total_mb = self.below_mb = 0
        self._ended = threading.Event()

    def run(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            started = time.perf_counter()
            self.sample()
            # Reading a large process's map takes a while, in which it may have to wait.
            pause = max(INTERVAL_S, 20 * (time.perf_counter() - started))

    def sample(self) -> None:
        """Look once."""
        root, *below = tree(self.root)
        total = sum(figure_kb(pid, "smaps_rollup", "Pss") for pid in (root, *below))
        self.total_mb = max(self.total_mb, total // 1024)
        peaks = [figure_kb(pid, "status", "VmHWM") // 1024 for pid in below]
        self.below_mb = max([self.below_mb, *peaks])

    def take(self) -> dict[str, int]:
        """Return the peaks since the last call, the process's own among them, and forget them."""
        self.sample()
        own_mb = figure_kb(self.root, "status", "VmHWM") // 1024
        forget_peak(self.root)
        peaks = {"own_mb": own_mb, "below_mb": self.below_mb, "total_mb": self.total_mb}
        self.total_mb = self.below_mb = 0
        return peaks

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def forget_peak(pid: int) -> None:
    """Let a process's ``VmHWM`` begin anew, if it has not ended."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
