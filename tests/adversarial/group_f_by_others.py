"""Group F: cheats in which others do it: operators before a kernel that moves values, and libraries
that start processes or open files for the program.

Each has the number of the cheat that it resembles.
"""

from __future__ import annotations

from functools import partial

from affine import PLAIN, Program, tamper

CHEAT = frozenset({"cheat"})

# --- the host's process -----------------------------------------------------------------------

REACHES: dict[str, tuple[str, str]] = {
    "a shell at the end of a block": (
        "with contextlib.ExitStack() as stack:\n    stack.callback(os.system, 'exit 0')",
        "starts_process",
    ),
    "a shell on a timer": (
        "timer = threading.Timer(0.0, os.system, ['exit 0'])\ntimer.start()\ntimer.join()",
        "starts_process",
    ),
    "a pool of processes for one sum": (
        "with concurrent.futures.ProcessPoolExecutor(1) as pool:\n    pool.submit(sum, [1, 2])",
        "starts_process",
    ),
    "signals by a filter": ("list(filter(lambda p: os.kill(p, 0), [os.getppid()]))", "kills"),
    "a signal that a partial sends": (
        "with contextlib.ExitStack() as stack:\n"
        "    stack.callback(functools.partial(os.kill, os.getpid(), 0))",
        "kills",
    ),
    "a mail server": (
        "with contextlib.suppress(OSError):\n    smtplib.SMTP('127.0.0.1', 9, timeout=1)",
        "network",
    ),
    "the map of its process from a folder above": (
        "os.chdir('/proc')\nopen('self/maps').close()\nos.chdir('/')",
        "walks_memory",
    ),
}
HEAD = "import concurrent.futures, contextlib, functools, os, smtplib, threading\n"


def _program(lines: str) -> Program:
    return HEAD, f"{lines}\nreturn affine(x)"


BY_LIBRARIES = [
    partial(tamper, "C")(45, name, _program(lines), PLAIN, statuses=CHEAT, rule=rule)
    for name, (lines, rule) in REACHES.items()
]

CASES = [*BY_LIBRARIES]
