"""A child that may crash, hang or be killed at the cost of its own work only.

A warm process forks it, so that it starts with everything imported. In the sandbox nothing that
it starts or writes survives it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from curate.files import read_end

MAX_PROCESSES = 64  # processes that one child may have inside the sandbox
TEMPORARY = (Path("/tmp"), Path("/dev/shm"))  # emptied after every child, in the sandbox
FOUND_THERE: set[Path] = set()  # what was there before any child: where Python itself may lie
STATE_THEN: dict[str, Any] = {}  # our own limits, priority and CPUs, which a child can change
WATCHED = [0]  # processes whose state no child may change: this one, and what it is a fork of
IOPRIO_GET = {"x86_64": 252, "aarch64": 31}  # the number of ioprio_get(2), which libc lacks
MAX_DYING_S = 10.0  # seconds for which killed processes may still be seen
TICK = 0.1  # seconds between two looks at a child's memory and processes

Message = dict[str, Any]


@dataclass(frozen=True)
class ChildLimits:
    """What a child may take.

    Attributes:
        memory_mb: memory of the child and all that it starts, MiB; None for no limit.
        sandboxed: whether we are alone in the sandbox with the child.
        address_space: whether to limit addresses too, which ends a large allocation with a
            MemoryError; CUDA reserves more addresses than a machine has memory.
    """

    memory_mb: int | None
    sandboxed: bool
    address_space: bool = True


# --- in the child ---------------------------------------------------------------------------


def fork_child(
    work: Callable[[], None], limits: ChildLimits, close: list[int], printed: int
) -> int:
    """Fork a child that does ``work``, prints to the file ``printed``, and loses files.

    Args:
        work: what the child does.
        limits: what it may take.
        close: file descriptors that it must not have.
        printed: file descriptor that its standard output and error go to.

    Returns:
        Its pid.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        die_with_parent()
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        for fd in close:
            os.close(fd)
        _apply(limits)
        _renew_threads_of_torch()
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent is killed."""
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def hide_memory() -> None:
    """Let no other process of the sandbox read or trace this one or its children."""
    _prctl(4, 0)  # PR_SET_DUMPABLE


def _prctl(option: int, value: int) -> None:
    """Call prctl(2); the options are in <sys/prctl.h>."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _renew_threads_of_torch() -> None:
    """Let one thread make PyTorch's pool anew, which a fork loses.

    If autograd's threads are the first to ask for it, two may do so at once, and the process
    aborts: "Invalid thread pool" (torch 2.15.0).
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())


def _apply(limits: ChildLimits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.memory_mb is not None and limits.address_space:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + limits.memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    if limits.sandboxed:
        # Counted per user namespace since Linux 5.14; root outside it is exempt, so that the
        # parent counts processes as well.
        resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))


# --- in its parent --------------------------------------------------------------------------


class Child:
    """A forked child, seen from its parent."""

    def __init__(self, pid: int, printed: IO[bytes], limits: ChildLimits) -> None:
        self.pid, self.printed, self.limits = pid, printed, limits
        self.base = _resident(os.getpid())
        self.cpu_s, self.peak_mb = 0.0, 0
        self.killed: str | None = None
        self._checked = 0.0
        self._parent = os.getppid()

    def check(self) -> None:
        """Set ``killed`` if the child takes too much; looks at most once a tick."""
        now = time.monotonic()
        if now - self._checked < TICK:
            return
        self._checked = now
        if os.getppid() != self._parent:  # the run was killed: leave nothing behind
            kill_group(self.pid)
            os._exit(0)
        pids = _all_processes() if self.limits.sandboxed else [self.pid]
        used = sum(max(0, _resident(pid) - self.base) for pid in pids)
        if self.limits.memory_mb is not None and used > self.limits.memory_mb * 2**20:
            self.killed = "out_of_memory"
        elif len(pids) > MAX_PROCESSES:
            self.killed = "too_many_processes"

    def bury(self) -> Message | None:
        """End the child and all that it started; return why it died, or None if it went well."""
        if self.killed:
            kill_group(self.pid)
        _, status, usage = os.wait4(self.pid, 0)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.peak_mb = usage.ru_maxrss >> 10
        kill_group(self.pid)
        if self.limits.sandboxed:
            sweep_sandbox()
        if status == 0 and not self.killed:
            return None
        evidence: Message = {"peak_mb": self.peak_mb, "printed": read_end(self.printed, 1000)}
        if os.WIFSIGNALED(status) and not self.killed:
            evidence["signal"] = signal.Signals(os.WTERMSIG(status)).name
        elif not self.killed:
            evidence["exit_code"] = os.WEXITSTATUS(status)
        return {"reason": self.killed or "crash", "evidence": evidence}


def remember_sandbox() -> None:
    """Note how the sandbox is before any child has run in it."""
    hide_memory()
    FOUND_THERE.update(*(place.iterdir() for place in TEMPORARY))
    STATE_THEN.update(_state(0))


def kill_group(pid: int) -> None:
    """Kill a child's process group, where it still has one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def sweep_sandbox() -> None:
    """Kill every other process of the sandbox and empty its /tmp: nothing survives a child.

    What a child did that cannot be undone ends this process, and the sandbox with it.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # all but ourselves and the sandbox's first process
    _await_the_dying()
    for place in TEMPORARY:
        for entry in set(place.iterdir()) - FOUND_THERE:
            with contextlib.suppress(OSError, RecursionError):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)


def _await_the_dying() -> None:
    """Return when no killed process is left: it runs no more, but is seen until it is reaped."""
    give_up = time.monotonic() + MAX_DYING_S
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not (left := _all_processes()):
            return
        if time.monotonic() > give_up:
            raise RuntimeError(f"processes of the sandbox outlived SIGKILL: {left}")
        time.sleep(0.001)


def is_spoiled() -> bool:
    """Whether a child has left something behind that the next one would find."""
    return bool(changed_state()) or any(set(place.iterdir()) - FOUND_THERE for place in TEMPORARY)


def changed_state() -> list[str]:
    """Return what a child has changed of this process, which no child has a reason to touch."""
    now = (item for pid in WATCHED for item in _state(pid).items())
    return sorted({name for name, value in now if value != STATE_THEN.get(name)})


def _state(pid: int) -> dict[str, Any]:
    """Return what any process of our user can change of another, and what forks inherit."""
    state: dict[str, Any] = {"nice": os.getpriority(os.PRIO_PROCESS, pid)}
    if sys.platform == "linux":
        limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
        state |= {name: resource.prlimit(pid, getattr(resource, name)) for name in limits}
        state["scheduler"] = os.sched_getscheduler(pid), os.sched_getparam(pid).sched_priority
        state["affinity"] = sorted(os.sched_getaffinity(pid))
        call = IOPRIO_GET.get(os.uname().machine)
        state["io_priority"] = call and ctypes.CDLL(None).syscall(call, 1, pid)  # of a process
    return state


def _resident(pid: int) -> int:
    """Return bytes that a process holds in memory; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _all_processes() -> list[int]:
    """Return the sandbox's processes, except its first and ourselves, who fork its children."""
    ours = ("1", str(os.getpid()))
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and p.name not in ours]
