"""Hooks stay in a process once they are there, so what they report is found out in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from curate.verify import recorder, watch

ROOT = Path(__file__).parents[2]

BREAKS = {
    "a frame": ("sys._getframe()", "walks_frames"),
    "all frames": ("sys._current_frames()", "walks_frames"),
    "all exceptions": ("sys._current_exceptions()", "walks_frames"),
    "a trace": ("sys.settrace(None)", "walks_frames"),
    "a profile": ("sys.setprofile(None)", "walks_frames"),
    "frames by inspect": ("inspect.currentframe()", "walks_frames"),
    "the stack by inspect": ("inspect.stack(0)", "walks_frames"),
    "a traceback's frame": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    error.__traceback__.tb_frame",
        "walks_frames",
    ),
    "a generator's frame": ("(i for i in [1]).gi_frame", "walks_frames"),
    "a frame by getattr": ("getattr((i for i in [1]), 'gi_' + 'frame')", "walks_frames"),
    "all objects": ("gc.get_objects()", "walks_memory"),
    "referrers": ("gc.get_referrers(sys)", "walks_memory"),
    "referents": ("gc.get_referents(sys)", "walks_memory"),
    "its memory": ("open('/proc/self/mem', 'rb').close()", "walks_memory"),
    "its map": ("os.close(os.open('/proc/self/maps', 0))", "walks_memory"),
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
    "a thread": ("threading.Thread(target=len, args=('',)).start()", "starts_thread"),
    "a timer": ("threading.Timer(0, len, ('',)).start()", "starts_thread"),
    "a pool of threads": (
        "with concurrent.futures.ThreadPoolExecutor(1) as pool: pool.submit(len, '')",
        "starts_thread",
    ),
    "a signal": ("os.kill(os.getpid(), 0)", "kills"),
    "a signal to a group": ("os.killpg(os.getpgrp(), 0)", "kills"),
    "a socket": ("socket.socket(socket.AF_UNIX).close()", "network"),
    "a name": ("socket.getaddrinfo('127.0.0.1', 1)", "network"),
    "a library of C": ("ctypes.CDLL(None)", "native_code"),
    "a function of C": ("ctypes.pythonapi.Py_IncRef", "native_code"),
    "a string of C": ("ctypes.string_at(id(sys), 8)", "native_code"),
    "code of another file": ("compile('1', torch.__file__, 'eval')", "obfuscated"),
    "a function of another file": (
        "exec((lambda: 0).__code__.replace(co_filename='torch/_ops.py'))",
        "obfuscated",
    ),
    "code objects": ("(lambda: 0).__code__.replace(co_filename=torch.__file__)", "obfuscated"),
    "the judge": ("import curate.verify.recorder", "imports_judge"),
    "dispatch": ("torch._C._DisableTorchDispatch()", "hides_calls"),
    "modes": (
        "with torch.utils._python_dispatch._disable_current_modes(): pass",
        "hides_calls",
    ),
    "an array": ("torch.ones(2).numpy()", "leaves_torch"),
    "an array by NumPy": ("numpy.asarray(torch.ones(2))", "leaves_torch"),
}
"""What a candidate may not do, and the rule that it breaks."""

IN_A_LIBRARY = BREAKS.keys() - {"a frame by getattr"}

ALLOWED = {
    "a standard module": "import fractions, cmath",
    "a file": "open('/dev/null').close()",
    "a folder": "os.listdir('/')",
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
}
"""What an honest program does."""

HEAD = """
import concurrent.futures, ctypes, gc, inspect, os, socket, subprocess, sys, threading
import numpy
import torch
"""

COLLECT = """
import importlib, json, sys
from curate.verify import watch
from curate.verify.problem import CANDIDATE, load

cases, folder = json.load(sys.stdin)
sys.path.insert(0, folder)
for name in [name for name in sys.modules if name.split(".")[0] == "curate"]:
    del sys.modules[name]
found, now = {}, None
watch.watch_events(lambda rule, event, line: found[now].append([rule, event, line]))
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
    texts |= {f"library: {name}": ("library", HEAD + BREAKS[name][0]) for name in IN_A_LIBRARY}
    texts |= {f"allowed: {name}": ("candidate", HEAD + text) for name, text in ALLOWED.items()}
    texts |= {f"other: {name}": ("candidate", text) for name, text in OTHERS.items()}
    found = report_on(tmp_path_factory.mktemp("libraries"), list(texts.values()))
    return dict(zip(texts, found, strict=True))


OTHERS = {
    "a line": "import sys\n\n\nsys._getframe()\n",
    "a function": "import sys\ndef f():\n    return sys._getframe()\nf()\n",
    "a callback": "import sys\nsorted([2, 1], key=lambda x: sys._getframe().f_lineno)\n",
    "text": "import sys\nexec('sys._getframe()')\n",
    "code of another name": "import sys\nexec(compile('sys._getframe()', '<library>', 'exec'))\n",
}


def rules(found: list[list[Any]]) -> set[str]:
    return {rule for rule, _, _ in found if rule != "raised"}


@pytest.mark.parametrize("name", BREAKS)
def test_a_candidate_is_reported(reports: Reports, name: str) -> None:
    assert BREAKS[name][1] in rules(reports[f"candidate: {name}"]), reports[f"candidate: {name}"]


@pytest.mark.parametrize("name", sorted(IN_A_LIBRARY))
def test_a_library_is_not_reported(reports: Reports, name: str) -> None:
    assert rules(reports[f"library: {name}"]) == set()


@pytest.mark.parametrize("name", ALLOWED)
def test_what_honest_programs_do_is_not_reported(reports: Reports, name: str) -> None:
    assert reports[f"allowed: {name}"] == []


def test_reports_name_event_and_line(reports: Reports) -> None:
    assert reports["other: a line"] == [["walks_frames", "sys._getframe", 4]]
    assert reports["other: a function"] == [["walks_frames", "sys._getframe", 3]]


@pytest.mark.parametrize("name", ["a callback", "text", "code of another name"])
def test_code_that_a_candidate_makes_or_hands_on_is_its_own(reports: Reports, name: str) -> None:
    assert rules(reports[f"other: {name}"]) == {"walks_frames"}


def test_every_rule_is_shown_here() -> None:
    events = {*watch.EVENTS.values(), *(rule for _, _, rule in watch.TRAPS)}
    events |= {"native_code", "obfuscated", "imports_judge", "walks_memory", "walks_frames"}
    assert events == {rule for _, rule in BREAKS.values()}


# --- names that nobody may replace ----------------------------------------------------------


@pytest.mark.parametrize(("owner", "name"), watch.WATCHED, ids=lambda x: getattr(x, "__name__", x))
def test_a_replaced_name_is_seen(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    before = watch.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *args, **kwargs: None)
        found = watch.changed(before)
    assert len(found) == 1 and found[0].endswith(f".{name}")
    assert watch.changed(before) == []


def test_another_torch_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = watch.snapshot()
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    assert watch.changed(before) == ["sys.modules['torch']"]


def test_work_replaces_no_names() -> None:
    with recorder.Recorder():
        torch.nn.Linear(3, 3)(torch.ones(2, 3))  # loads what is loaded on first use, as a host does
    before = watch.snapshot()
    with recorder.Recorder() as recording:
        torch.nn.Linear(3, 3)(torch.ones(2, 3)).sum().item()
    assert recording.calls and watch.changed(before) == []
