"""Sees what a candidate reaches for in its own process, and says so before it has it.

That process holds no numbers and no counts. Threads, frames and NumPy gain nothing there, and
honest programs use them; what is reported is an attack on the sandbox or on the judge.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

EVENTS = {
    "gc.get_objects": "walks_memory",
    "gc.get_referrers": "walks_memory",
    "gc.get_referents": "walks_memory",
    "os.exec": "starts_process",
    "os.fork": "starts_process",
    "os.forkpty": "starts_process",
    "os.posix_spawn": "starts_process",
    "os.system": "starts_process",
    "subprocess.Popen": "starts_process",
    "os.kill": "kills",
    "os.killpg": "kills",
    "socket.__new__": "network",
    "socket.getaddrinfo": "network",
}
"""Audit events (PEP 578) to the rule that they break, when a candidate's own code raises them."""

BETWEEN = (
    *(
        "torch/_ops.py",
        "inspect.py",
        "subprocess.py",
        "os.py",
        "socket.py",
        "threading.py",
        "ctypes/__init__.py",
    ),
    *("ctypes/util.py", "concurrent/futures/thread.py", "multiprocessing/"),
)
"""Files of the standard library that may stand between a candidate and an event it causes."""


def rule_of(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return the rule that an audit event breaks, or None."""
    if event.startswith("ctypes."):
        return "native_code"
    if event == "import":
        return "imports_judge" if str(arguments[0]).split(".")[0] == "curate" else None
    if event == "open":
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], bytes) else str(arguments[0])
        reads_memory = path.startswith("/proc/") and path.endswith(("/mem", "/maps"))
        return "walks_memory" if reads_memory else None
    return EVENTS.get(event)


def watch_events(report: Callable[[str, str, int], None], module: str) -> None:
    """Call ``report(rule, event, line)`` at every event of the candidate's, before it happens.

    For the rest of the process: an audit hook cannot be removed.

    Args:
        report: is told.
        module: the name of the candidate's module.
    """
    get_frame = sys._getframe
    reporting = False
    made = {f"<{module}>"}  # what the candidate's code, and code that it makes, is called

    def culprit() -> int | None:
        frame: Any = get_frame(2)
        for _ in range(8):
            if frame is None:
                return None
            name = frame.f_code.co_filename
            if name == "<string>" or name in made:
                return int(frame.f_lineno)
            if not any(part in name for part in BETWEEN):
                return None
            frame = frame.f_back
        return None

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal reporting
        if reporting or (rule := rule_of(event, arguments)) is None:
            return
        reporting = True
        try:
            line = culprit()
            if line is not None:
                report(rule, event, line)
        finally:
            reporting = False

    def note_code(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "compile" and culprit() is not None:
            made.add(str(arguments[1]))

    sys.addaudithook(note_code)
    sys.addaudithook(hook)
    cast = ctypes.cast

    @functools.wraps(cast)
    def trapped(*args: Any, **kwargs: Any) -> Any:
        """Report what raises no event."""
        line = culprit()
        if line is not None:
            report("native_code", "cast", line)
        return cast(*args, **kwargs)

    ctypes.cast = trapped
