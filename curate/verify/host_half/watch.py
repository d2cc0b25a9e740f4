"""Sees what a candidate reaches for in its own process, and says so before it has it.

That process holds no numbers and no counts. Threads, frames and NumPy gain nothing there, and
honest programs use them; what is reported is an attack on the sandbox or on the judge. Nobody but
the program has a reason to start a process, to send a signal or to open a socket there, so such an
event is the program's, whoever stands between; what libraries do as well goes by the frames.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen")
_KILLS = ("os.kill", "os.killpg", "signal.pthread_kill")
_CALLS = (
    "socket.__new__",
    *(f"socket.get{what}" for what in ("addrinfo", "hostbyname", "hostbyaddr")),
)
NOBODY_ELSES = {
    **dict.fromkeys(_STARTS, "starts_process"),
    **dict.fromkeys(_KILLS, "kills"),
    **dict.fromkeys(_CALLS, "network"),
}
"""Audit events (PEP 578) to the rule that they break, whoever raises them after the warm-up."""

BY_CANDIDATE = ("gc.get_objects", "gc.get_referrers", "gc.get_referents")
"""And events by which a candidate's own code walks memory."""

IMPORTS = {"curate": "imports_judge", "cffi": "native_code", "_cffi_backend": "native_code"}
"""And modules to the rule that such code breaks by importing them."""

SILENT = (
    ("subprocess", "_fork_exec", "starts_process"),
    ("_posixsubprocess", "fork_exec", "starts_process"),
    ("os", "pidfd_open", "kills"),
    ("posix", "pidfd_open", "kills"),
    ("signal", "pidfd_send_signal", "kills"),
    ("_signal", "pidfd_send_signal", "kills"),
    ("ctypes", "cast", "native_code"),
)
"""Functions that raise no event: module, name, and the rule that a call of a candidate's breaks."""

HARMLESS = "/platform.py"
"""The file of the standard library that starts a process to look something up."""

BETWEEN = (
    *("torch/_ops.py", "inspect.py", "subprocess.py", "os.py", "<frozen os>", "socket.py"),
    *("threading.py", "contextlib.py", "weakref.py", "functools.py", "ctypes/__init__.py"),
    *("ctypes/util.py", "concurrent/futures/thread.py", "multiprocessing/", "asyncio/"),
)
"""Files of the standard library that may stand between a candidate and an event it causes."""

MEMORY = frozenset(("mem", "maps", "smaps", "numa_maps", "pagemap"))
"""Files of a process in ``/proc`` that are its memory, or say where it lies."""

IMPORTER, MOST_FRAMES = "<frozen importlib._bootstrap>", 8
"""What runs a module's file, and how many frames may stand between."""


def rule_of(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return the rule that an audit event breaks, or None."""
    if event.startswith("ctypes."):
        return "native_code"
    if event == "import":
        return IMPORTS.get(str(arguments[0]).partition(".")[0])
    if event == "open":
        return "walks_memory" if _is_memory(arguments[0]) else None
    return "walks_memory" if event in BY_CANDIDATE else NOBODY_ELSES.get(event)


def _is_memory(path: Any) -> bool:
    """Whether a file is the memory or the map of a process, by whatever way its path leads there.

    So is the folder of a process, and ``/proc``: a path that starts in a folder that was opened
    says no more, but that it leads to no file from here.
    """
    if not isinstance(path, str | bytes):
        return False
    text = os.fsdecode(path)
    if text.startswith("/") and "/proc" not in text:
        return False  # in most cases
    real = os.path.realpath(text)
    folder, _, name = real.rpartition("/")
    process = folder.removeprefix("/proc/").partition("/")[0]
    if folder == "/proc" or real == "/proc":
        return name.isdigit() or not folder
    if name in MEMORY and not text.startswith("/") and not Path(real).exists():
        return True
    return folder.startswith("/proc/") and process.isdigit() and name in MEMORY


FUNCTIONS = (
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial),
    *(property, staticmethod, classmethod, type),
)


def watch_judge(*places: Any) -> Callable[[], str | None]:
    """Return what says which function of some modules, classes or objects is another by now.

    They say what a program asks for, such as a launch or a stream, and which configuration an
    autotuner takes: whoever changes one says something else.
    """
    kept = {
        (number, name): (value, getattr(value, "__code__", None))
        for number, place in enumerate(places)
        for name, value in vars(place).items()
        if isinstance(value, FUNCTIONS)
    }

    def changed() -> str | None:
        for number, place in enumerate(places):
            for name, value in vars(place).items():
                known = kept.get((number, name), (None, None))
                if known == (value, getattr(value, "__code__", None)):
                    continue
                if (number, name) in kept or isinstance(value, FUNCTIONS):
                    return f"{getattr(place, '__name__', type(place).__name__)}.{name}"
        return None

    return changed


CLOCKS = {
    "time": ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"),
    "torch": ("Event",),
    "torch.cuda": ("Event", "synchronize"),
}
"""What tells how long a call takes, by its module."""


def watch_clocks() -> Callable[[], str | None]:
    """Return what says which of `CLOCKS` is another by now."""
    kept = {
        (module, name): getattr(sys.modules[module], name)
        for module, names in CLOCKS.items()
        for name in names
    }

    def changed() -> str | None:
        for (module, name), clock in kept.items():
            if getattr(sys.modules.get(module), name, None) is not clock:
                return f"{module}.{name}"
        return None

    return changed


def watch_events(report: Callable[[str, str, int], None], module: str) -> None:
    """Call ``report(rule, event, line)`` at every event of the candidate's, before it happens.

    For the rest of the process: an audit hook cannot be removed.

    Args:
        report: is told; the line is 0 where no code of the candidate's is on the stack.
        module: the name of the candidate's module.
    """
    get_frame = sys._getframe
    reporting = False
    made = {f"<{module}>"}  # what the candidate's code, and code that it makes, is called
    folders = [path.rstrip("/") + "/" for path in sys.path if path.startswith("/")]
    libraries = (*folders, "<frozen ")

    def is_own(name: str) -> bool:
        return name == "<string>" or name in made

    def culprit() -> int | None:
        """Return the candidate's line, if nothing but `BETWEEN` stands between; 0 in a thread."""
        frame: Any = get_frame(2)
        for _ in range(MOST_FRAMES):
            if frame is None:
                return 0
            name = frame.f_code.co_filename
            if is_own(name):
                return int(frame.f_lineno)
            if not any(part in name for part in BETWEEN):
                return None
            frame = frame.f_back
        return None

    def anybody() -> int | None:
        """Return the candidate's line, or 0; None where a library does so while it is imported."""
        frame: Any = get_frame(2)
        while frame is not None:
            code = frame.f_code
            if is_own(code.co_filename):
                return int(frame.f_lineno)
            if code.co_filename.endswith(HARMLESS):
                return None
            if not code.co_filename.startswith(libraries):
                return 0
            frame = frame.f_back
            if code.co_name == "<module>" and frame and frame.f_code.co_filename == IMPORTER:
                return None
        return 0

    def tell(rule: str, event: str, line: int | None) -> None:
        nonlocal reporting
        if line is not None and not reporting:
            reporting = True
            try:
                report(rule, event, line)
            finally:
                reporting = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not reporting and (rule := rule_of(event, arguments)) is not None:
            nobody_elses = event in NOBODY_ELSES or event == "open"
            tell(rule, event, anybody() if nobody_elses else culprit())

    def note_code(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("compile", "code.__new__") and culprit():
            made.add(str(arguments[1]))

    def trapped(function: Any, rule: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            """Report what raises no event."""
            tell(rule, function.__name__, culprit() if rule == "native_code" else anybody())
            return function(*args, **kwargs)

        return call

    sys.addaudithook(note_code)
    sys.addaudithook(hook)
    for name, attribute, rule in SILENT:
        place = sys.modules.get(name)
        if hasattr(place, attribute):
            setattr(place, attribute, trapped(getattr(place, attribute), rule))
