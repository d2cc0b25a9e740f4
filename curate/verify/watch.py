"""Sees what a candidate reaches for in its own process, and says so before it has it.

Expected results are in another process, so that a program which tampers with its own gains
nothing that a right result would not give it. What it can falsify are counts of its launches and
calls. To do that it must get hold of our objects, by way of frames, the garbage collector or
native code: an audit hook (PEP 578) reports the attempt first.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import triton.testing
from torch import nn
from triton.runtime.jit import JITFunction

from curate.verify import recorder
from curate.verify.problem import CANDIDATE
from curate.verify.timing import TimedModel

EVENTS = {
    "sys._getframe": "walks_frames",
    "sys._current_frames": "walks_frames",
    "sys._current_exceptions": "walks_frames",
    "sys.settrace": "walks_frames",
    "sys.setprofile": "walks_frames",
    "gc.get_objects": "walks_memory",
    "gc.get_referrers": "walks_memory",
    "gc.get_referents": "walks_memory",
    "os.exec": "starts_process",
    "os.fork": "starts_process",
    "os.forkpty": "starts_process",
    "os.posix_spawn": "starts_process",
    "os.system": "starts_process",
    "subprocess.Popen": "starts_process",
    "_thread.start_new_thread": "starts_thread",
    "os.kill": "kills",
    "os.killpg": "kills",
    "socket.__new__": "network",
    "socket.getaddrinfo": "network",
}
"""Audit events to the rule that they break, when a candidate's own code raises them."""

FRAMES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame", "f_back"}
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
    if event == "object.__getattr__":
        return "walks_frames" if arguments[1] in FRAMES else None
    if event.startswith("ctypes."):
        return "native_code"
    if event in ("compile", "exec", "code.__new__"):
        # Frames are known by their file's name: code must not take another's.
        name = _code_name(event, arguments)
        is_a_file = name is not None and not (name.startswith("<") and name.endswith(">"))
        return "obfuscated" if is_a_file else None
    if event == "import":
        return "imports_judge" if str(arguments[0]).split(".")[0] == "curate" else None
    if event == "open":
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], bytes) else str(arguments[0])
        reads_memory = path.startswith("/proc/") and path.endswith(("/mem", "/maps"))
        return "walks_memory" if reads_memory else None
    return EVENTS.get(event)


def _code_name(event: str, arguments: tuple[Any, ...]) -> str | None:
    if event == "exec":
        return str(getattr(arguments[0], "co_filename", "<string>"))
    return None if arguments[1] is None else str(arguments[1])


OF_SANDBOX = frozenset(
    {"starts_process", "kills", "network", "native_code", "walks_memory", "imports_judge"}
)
"""The rules for a process that holds no numbers and no counts (`curate.verify.host_half`): to do
one of these is to attack the sandbox or the judge. Threads, frames, NumPy and the rest gain nothing
there, and honest programs use them."""


def watch_events(
    report: Callable[[str, str, int], None],
    module: str = CANDIDATE,
    rules: frozenset[str] | None = None,
) -> None:
    """Call ``report(rule, event, line)`` at every event of the candidate's, before it happens.

    For the rest of the process: an audit hook cannot be removed.

    Args:
        report: is told.
        module: the name of the candidate's module.
        rules: those that count; None for all of them.
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
        if rules is not None and rule not in rules:
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
    for owner, name, rule in TRAPS:
        if rules is None or rule in rules:
            _trap(owner, name, rule, culprit, report)


TRAPS: tuple[tuple[Any, str, str], ...] = (
    (torch._C, "_DisableTorchDispatch", "hides_calls"),
    (torch.utils._python_dispatch, "_disable_current_modes", "hides_calls"),
    (torch._C, "_ExcludeDispatchKeyGuard", "hides_calls"),
    (threading.Thread, "start", "starts_thread"),
    (_thread, "start_new_thread", "starts_thread"),
    (ctypes, "cast", "native_code"),
    (torch.Tensor, "__dlpack__", "leaves_torch"),
    (torch.Tensor, "numpy", "leaves_torch"),
    (torch.Tensor, "__array__", "leaves_torch"),
)
"""Functions that raise no audit event: what they do, PyTorch's calls do not show."""


def _trap(
    owner: Any,
    name: str,
    rule: str,
    culprit: Callable[[], int | None],
    report: Callable[[str, str, int], None],
) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def trapped(*args: Any, **kwargs: Any) -> Any:
        line = culprit()
        if line is not None:
            report(rule, name, line)
        return function(*args, **kwargs)

    setattr(owner, name, trapped)


WATCHED: tuple[tuple[Any, str], ...] = (
    *((torch, name) for name in ("allclose", "equal", "isclose", "empty", "empty_like")),
    *((torch, name) for name in ("empty_strided", "zeros", "zeros_like", "compile", "manual_seed")),
    *((torch.testing, name) for name in ("assert_close",)),
    *((torch.cuda, name) for name in ("synchronize", "Event", "Stream", "current_stream")),
    *((torch.cuda.Event, name) for name in ("elapsed_time", "record", "synchronize")),
    *((torch.Tensor, name) for name in ("__torch_function__", "clone", "copy_", "cpu", "data_ptr")),
    *((torch.Tensor, name) for name in ("__eq__", "sub", "abs", "all", "max", "item", "to")),
    *((nn.Module, name) for name in ("__call__", "_call_impl", "load_state_dict", "state_dict")),
    *((nn.Module, name) for name in ("eval", "to", "train")),
    *((time, name) for name in ("time", "perf_counter", "monotonic", "perf_counter_ns")),
    *((torch.Tensor, name) for name in ("fill_", "tolist", "contiguous", "numpy", "__array__")),
    *((torch, name) for name in ("mul",)),
    *((torch._C, name) for name in ("_DisableTorchDispatch",)),
    (triton.testing, "do_bench"),
    (JITFunction, "run"),
    (TimedModel, "run"),
    *((recorder, name) for name in ("is_compute", "sample", "kernel_name", "MOVES")),
    *((recorder.Recorder, n) for n, f in vars(recorder.Recorder).items() if callable(f)),
    *((recorder.Launches, n) for n, f in vars(recorder.Launches).items() if callable(f)),
    (sys.modules["builtins"], "print"),
)
"""Names that a program has no business to replace."""


def snapshot() -> dict[str, Any]:
    """Return what stands behind every watched name now."""
    return {_full_name(owner, name): _entry(owner, name) for owner, name in WATCHED}


def changed(before: dict[str, Any]) -> list[str]:
    """Return the watched names that stand for something else than they did."""
    found = [name for name, entry in snapshot().items() if entry is not before[name]]
    if sys.modules.get("torch") is not torch:
        found.append("sys.modules['torch']")
    return found


def _full_name(owner: Any, name: str) -> str:
    module = getattr(owner, "__module__", None)
    return f"{module}.{owner.__name__}.{name}" if module else f"{owner.__name__}.{name}"


def _entry(owner: Any, name: str) -> Any:
    # The attribute's own entry: reading it through the class would make a new bound object.
    for kind in getattr(owner, "__mro__", (owner,)):
        if name in vars(kind):
            return vars(kind)[name]
    return None
