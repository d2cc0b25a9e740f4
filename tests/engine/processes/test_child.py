"""Children of this process, without a sandbox; `test_workers` has those inside one."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.engine.processes import child as children
from curate.engine.processes.child import (
    Child,
    ChildLimits,
    Message,
    fork_child,
    is_spoiled,
    kill_group,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

FREE = ChildLimits(memory_mb=None, sandboxed=False)


def run(
    work: Callable[[], None], limits: ChildLimits = FREE, close: list[int] | None = None
) -> tuple[Message | None, Child]:
    """Do some work in a child, and return why it died."""

    def work_and_print() -> None:
        sys.stderr = sys.__stderr__  # not what pytest has put there
        work()

    with tempfile.TemporaryFile() as printed:
        child = Child(
            fork_child(work_and_print, limits, close or [], printed.fileno()), printed, limits
        )
        deadline = time.monotonic() + 20
        while not child.killed and time.monotonic() < deadline:
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            child.check()
            time.sleep(0.01)
        child.killed = child.killed or ("late" if time.monotonic() > deadline else None)
        return child.bury(), child


def test_a_child_that_ends_well_died_of_nothing() -> None:
    died, child = run(lambda: None)
    assert died is None and child.peak_mb > 0 and child.cpu_s >= 0


def test_an_exit_code_and_the_last_words_are_evidence() -> None:
    def leave() -> None:
        os.write(2, b"x" * 5000 + b"goodbye\xff\n")
        os._exit(3)

    died, _ = run(leave)
    assert died and died["reason"] == "crash" and died["evidence"]["exit_code"] == 3
    assert died["evidence"]["printed"].endswith("xgoodbye\ufffd")
    assert len(died["evidence"]["printed"]) <= 1000


def test_an_exception_is_printed() -> None:
    died, _ = run(lambda: print(1 / 0))
    assert died and died["evidence"]["exit_code"] == 70
    assert "ZeroDivisionError" in died["evidence"]["printed"]


def test_folders_of_the_machine_are_not_printed() -> None:
    died, _ = run(lambda: print(json.loads("{")))
    assert died and '"json/decoder.py"' in died["evidence"]["printed"]
    assert sys.base_prefix not in died["evidence"]["printed"]


def test_a_signal_is_named() -> None:
    died, _ = run(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    assert died and (died["reason"], died["evidence"]["signal"]) == ("crash", "SIGSEGV")


def test_more_memory_than_allowed_is_an_error_where_addresses_are_limited() -> None:
    died, _ = run(lambda: print(len(bytearray(1 << 30))), ChildLimits(64, sandboxed=False))
    assert died and died["reason"] == "crash"
    assert "MemoryError" in died["evidence"]["printed"]


def test_more_memory_than_allowed_is_the_end_where_they_are_not() -> None:
    def eat() -> None:
        held = []
        while True:
            held.append(bytearray(16 << 20))
            time.sleep(0.01)

    limits = ChildLimits(64, sandboxed=False, address_space=False)
    died, child = run(eat, limits)
    assert died and died["reason"] == "out_of_memory"
    assert "signal" not in died["evidence"], "it was we who killed it"
    assert child.peak_mb > 64


def test_what_a_child_must_not_have_is_closed_in_it() -> None:
    read_end, write_end = os.pipe()
    died, _ = run(lambda: os.fstat(write_end) and None, close=[write_end])
    assert died and "Bad file descriptor" in died["evidence"]["printed"]
    os.fstat(write_end)
    os.close(read_end)
    os.close(write_end)


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    def leave_another() -> None:
        if pid := os.fork():
            (tmp_path / "pid").write_text(str(pid))
        else:
            time.sleep(600)

    died, _ = run(leave_another)
    assert died is None
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_killing_what_is_gone_is_no_error() -> None:
    _, child = run(lambda: None)
    kill_group(child.pid)


# --- what a child left ----------------------------------------------------------------------


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is watched as /tmp is in the sandbox, with one file in it."""
    (tmp_path / "python").mkdir()
    monkeypatch.setattr(children, "TEMPORARY", (tmp_path,))
    monkeypatch.setattr(children, "FOUND_THERE", {tmp_path / "python"})
    monkeypatch.setattr(children, "STATE_THEN", children._state(0))
    return tmp_path


def test_a_sandbox_is_spoiled_by_what_is_left_in_it(clean: Path) -> None:
    assert not is_spoiled()
    run(lambda: (clean / "left").touch())
    assert is_spoiled()
    (clean / "left").unlink()
    assert not is_spoiled()


@pytest.mark.parametrize("name", ["RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CPU", "RLIMIT_STACK"])
def test_a_sandbox_is_spoiled_by_limits_that_a_child_changed(clean: Path, name: str) -> None:
    limit = getattr(resource, name)
    soft, hard = resource.getrlimit(limit)
    lower = (1 << 20 if soft == resource.RLIM_INFINITY else soft - 1, hard)
    died, _ = run(lambda: resource.prlimit(os.getppid(), limit, lower) and None)
    assert died is None, died
    try:
        assert resource.getrlimit(limit) == lower and is_spoiled()
    finally:
        resource.setrlimit(limit, (soft, hard))
    assert not is_spoiled()


def test_a_sandbox_is_spoiled_by_the_cpus_that_a_child_left_its_parent(clean: Path) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one CPU")
    died, _ = run(lambda: os.sched_setaffinity(os.getppid(), {min(before)}))
    assert died is None, died
    try:
        assert is_spoiled() and children.changed_state() == ["affinity"]
    finally:
        os.sched_setaffinity(0, before)
    assert not is_spoiled()
