"""Hooks stay in a process once they are there, so what they report is found out in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from curate.verify.host_half import watch

ROOT = Path(__file__).parents[3]

BREAKS = {
    "all objects": ("gc.get_objects()", "walks_memory"),
    "referrers": ("gc.get_referrers(sys)", "walks_memory"),
    "referents": ("gc.get_referents(sys)", "walks_memory"),
    "its memory": ("open('/proc/self/mem', 'rb').close()", "walks_memory"),
    "its map": ("os.close(os.open('/proc/self/maps', 0))", "walks_memory"),
    "its memory by a relative path": (
        "here = os.getcwd()\nos.chdir('/proc/self')\nopen('maps').close()\nos.chdir(here)",
        "walks_memory",
    ),
    "its memory by way of the root": (
        "open('//proc/self/root/proc/self/mem', 'rb').close()",
        "walks_memory",
    ),
    "all processes": ("os.close(os.open('/proc', 0))", "walks_memory"),
    "its map from the root": (
        "os.close(os.open('proc/self/maps', 0, dir_fd=os.open('/', 0)))",
        "walks_memory",
    ),
    "a module for C": (
        "try: import cffi\nexcept ImportError: pass",
        "native_code",
    ),
    "its folder": ("os.close(os.open('/proc/self', 0))", "walks_memory"),
    "a fork": ("pid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)", "starts_process"),
    "a fork with a terminal": (
        "pid, fd = os.forkpty()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)\nos.close(fd)",
        "starts_process",
    ),
    "another program": ("os.execv('/no/such/program', ['x'])", "starts_process"),
    "a spawned program": (
        "os.posix_spawn('/no/such/program', ['x'], {})",
        "starts_process",
    ),
    "a shell": ("os.system('true')", "starts_process"),
    "a program by subprocess": ("subprocess.run(['true'])", "starts_process"),
    "a signal": ("os.kill(os.getpid(), 0)", "kills"),
    "a signal to a group": ("os.killpg(os.getpgrp(), 0)", "kills"),
    "a shell by a stack of callbacks": (
        "with contextlib.ExitStack() as stack: stack.callback(os.system, 'true')",
        "starts_process",
    ),
    "a shell in a thread": (
        "t = threading.Thread(target=os.system, args=('true',))\nt.start()\nt.join()",
        "starts_process",
    ),
    "a shell by a finalizer": (
        "weakref.finalize(threading.Lock(), os.system, 'true')",
        "starts_process",
    ),
    "a pool of processes": (
        "with concurrent.futures.ProcessPoolExecutor(1) as pool: pool.submit(len, '').result()",
        "starts_process",
    ),
    "a terminal": (
        "import pty\npid, fd = pty.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)",
        "starts_process",
    ),
    "a program without a module": (
        "import _posixsubprocess as s\ntry:\n    s.fork_exec()\nexcept TypeError: pass",
        "starts_process",
    ),
    "signals one by one": ("list(map(os.kill, [os.getpid()], [0]))", "kills"),
    "a signal by a file of the process": (
        "import signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)",
        "kills",
    ),
    "a page": (
        "from urllib import request\n"
        "try: request.urlopen('http://127.0.0.1:9')\nexcept OSError: pass",
        "network",
    ),
    "a loop of events": ("asyncio.run(asyncio.sleep(0))", "network"),
    "a socket": ("socket.socket(socket.AF_UNIX).close()", "network"),
    "a name": ("socket.getaddrinfo('127.0.0.1', 1)", "network"),
    "a library of C": ("ctypes.CDLL(None)", "native_code"),
    "a function of C": ("ctypes.pythonapi.Py_IncRef", "native_code"),
    "a string of C": ("ctypes.string_at(id(sys), 8)", "native_code"),
    "a cast of C": ("ctypes.cast(0, ctypes.c_void_p)", "native_code"),
    "the judge": ("import curate.verify.verdict", "imports_judge"),
}
"""What a candidate may not do, and the rule that it breaks."""

ALLOWED = {
    "a standard module": "import fractions, cmath",
    "a file": "open('/dev/null').close()",
    "a folder": "os.listdir('/')",
    "what machine it is": "import platform\nplatform.processor()",
    "its limits": "open('/proc/self/limits').close()",
    "code of its own": "exec('y = 1 + 1')",
    "an expression": "eval('1 + 1')",
    "a dataclass": "import dataclasses\ndataclasses.make_dataclass('Pair', ['x', 'y'])(1, 2)",
    "a named tuple": "import collections\ncollections.namedtuple('Pair', 'x y')(1, 2)",
    "a warning": "import warnings\nwarnings.warn('something')",
    "an exception": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    str(error)",
    "a traceback": "import traceback\ntraceback.format_stack()",
    "a log": "import logging\nlogging.getLogger('x').warning('something')",
    "collecting garbage": "gc.collect()",
    "tensors": "torch.ones(3).add(1).tolist()",
    "a tensor as text": "repr(torch.ones(3))",
    "a module's state": "torch.nn.Linear(2, 2).state_dict()",
    "compiled functions": "torch.jit.is_scripting()",
    "source code": "inspect.getsource(subprocess.run)",
    "a frame": "sys._getframe()\ninspect.currentframe()",
    "a thread": "threading.Thread(target=len, args=('',)).start()",
    "a pool of threads": (
        "with concurrent.futures.ThreadPoolExecutor(1) as pool: pool.submit(len, '')"
    ),
    "an array": "torch.ones(2).numpy()",
}
"""What an honest program does."""

HEAD = """
import asyncio, concurrent.futures, contextlib, ctypes, gc, inspect, os, socket, subprocess
import sys, threading, weakref
import numpy
import torch
"""

COLLECT = """
import importlib, json, sys
from curate.verify.host_half.watch import watch_events
from curate.problem.problem import CANDIDATE, load

cases, folder = json.load(sys.stdin)
sys.path.insert(0, folder)
for name in [name for name in sys.modules if name.split(".")[0] == "curate"]:
    del sys.modules[name]
found, now = {}, None
watch_events(lambda rule, event, line: found[now].append([rule, event, line]), CANDIDATE)
for which, number, text in cases:
    now = f"{which} {number}"
    found[now] = []
    try:
        if which == "library":
            importlib.import_module(f"library{number}")
        else:
            load(CANDIDATE, text)
    except Exception as error:
        found[now].append(["raised", repr(error), None])
sys.stdout.write(json.dumps(found))
sys.stdout.flush()
"""

Reports = dict[str, list[list[Any]]]


def report_on(folder: Path, texts: list[tuple[str, str]]) -> list[list[list[Any]]]:
    """Return what is reported while texts are run as candidates, or as files of libraries."""
    cases = [(which, i, text) for i, (which, text) in enumerate(texts)]
    for which, number, text in cases:
        if which == "library":
            (folder / f"library{number}.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-c", COLLECT],
        input=json.dumps([cases, str(folder)]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: Reports = json.loads(ran.stdout)
    return list(found.values())


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    texts = {f"candidate: {name}": ("candidate", HEAD + text) for name, (text, _) in BREAKS.items()}
    texts |= {f"library: {name}": ("library", HEAD + BREAKS[name][0]) for name in BREAKS}
    texts |= {f"allowed: {name}": ("candidate", HEAD + text) for name, text in ALLOWED.items()}
    texts |= {f"other: {name}": ("candidate", text) for name, text in OTHERS.items()}
    found = report_on(tmp_path_factory.mktemp("libraries"), list(texts.values()))
    return dict(zip(texts, found, strict=True))


OTHERS = {
    "a line": "import gc\n\n\ngc.get_objects()\n",
    "a function": "import gc\ndef f():\n    return gc.get_objects()\nf()\n",
    "a callback": "import gc\nsorted([2, 1], key=lambda x: len(gc.get_objects()))\n",
    "text": "import gc\nexec('gc.get_objects()')\n",
    "code of another name": "import gc\nexec(compile('gc.get_objects()', '<library>', 'exec'))\n",
}


def rules(found: list[list[Any]]) -> set[str]:
    return {rule for rule, _, _ in found if rule != "raised"}


@pytest.mark.parametrize("name", BREAKS)
def test_a_candidate_is_reported(reports: Reports, name: str) -> None:
    assert BREAKS[name][1] in rules(reports[f"candidate: {name}"]), reports[f"candidate: {name}"]


@pytest.mark.parametrize("name", sorted({*BREAKS} - {"a shell in a thread"}))  # it has no frames
def test_a_library_is_not_reported_while_it_is_imported(reports: Reports, name: str) -> None:
    assert rules(reports[f"library: {name}"]) == set()


@pytest.mark.parametrize("name", ALLOWED)
def test_what_honest_programs_do_is_not_reported(reports: Reports, name: str) -> None:
    assert reports[f"allowed: {name}"] == []


def test_reports_name_event_and_line(reports: Reports) -> None:
    assert reports["other: a line"] == [["walks_memory", "gc.get_objects", 4]]
    assert reports["other: a function"] == [["walks_memory", "gc.get_objects", 3]]


@pytest.mark.parametrize("name", ["a callback", "text", "code of another name"])
def test_code_that_a_candidate_makes_or_hands_on_is_its_own(reports: Reports, name: str) -> None:
    assert rules(reports[f"other: {name}"]) == {"walks_memory"}


def test_every_rule_is_shown_here() -> None:
    rules = {*watch.NOBODY_ELSES.values(), "native_code", "imports_judge", "walks_memory"}
    assert rules == {rule for _, rule in BREAKS.values()}
