"""Who may use the device when, among threads and processes."""

from __future__ import annotations

import fcntl
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from curate.verify.judge.device import Gate

Start = Callable[[str], threading.Event]
Stay = Callable[[str, AbstractContextManager[object]], threading.Event]


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.01)


def is_taken(folder: Path, name: str) -> bool:
    """Tell whether somebody has one of the gate's locks."""
    with (folder / name).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.fixture
def entered() -> list[str]:
    """Return who has entered, in order."""
    return []


@pytest.fixture
def stay(entered: list[str]) -> Iterator[Stay]:
    """Return what starts a thread that enters a context and stays until its event is set."""
    threads, events = [], []

    def begin(name: str, context: AbstractContextManager[object]) -> threading.Event:
        leave = threading.Event()

        def run() -> None:
            with context:
                entered.append(name)
                leave.wait(20)

        events.append(leave)
        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return leave

    yield begin
    for event in events:
        event.set()
    for thread in threads:
        thread.join()


@pytest.fixture
def start(tmp_path: Path, stay: Stay) -> Start:
    """Return what enters a gate in a thread, alone or shared."""

    def enter(how: str) -> threading.Event:
        gate = Gate(tmp_path)
        return stay(how, gate.alone() if how == "alone" else gate.together())

    return enter


def test_many_share_and_one_is_alone(tmp_path: Path, start: Start, entered: list[str]) -> None:
    sharing = [start("shared"), start("shared")]
    wait_until(lambda: entered == ["shared", "shared"])
    alone = start("alone")
    wait_until(lambda: is_taken(tmp_path, "entrance"))
    sharing[0].set()
    time.sleep(0.1)
    assert entered == ["shared", "shared"], "one still shares it"
    sharing[1].set()
    wait_until(lambda: entered[2:] == ["alone"])
    start("alone")
    time.sleep(0.1)
    assert entered[2:] == ["alone"], "there is one at a time"
    alone.set()
    wait_until(lambda: entered[2:] == ["alone", "alone"])


def test_who_waits_to_be_alone_comes_before_those_who_share_later(
    tmp_path: Path, start: Start, entered: list[str]
) -> None:
    first = start("shared")
    wait_until(lambda: entered == ["shared"])
    alone = start("alone")
    wait_until(lambda: is_taken(tmp_path, "entrance"))
    start("shared")
    time.sleep(0.1)
    assert entered == ["shared"]
    first.set()
    wait_until(lambda: entered == ["shared", "alone"])
    alone.set()
    wait_until(lambda: entered == ["shared", "alone", "shared"])


def test_who_computes_beside_others_gives_way_to_all_who_want_to_be_alone(
    tmp_path: Path, start: Start, entered: list[str]
) -> None:
    gate = Gate(tmp_path)
    gate.give_way()  # it has no turn
    with gate.together():
        gate.give_way()  # nobody waits
        waiting = [start("alone"), start("alone")]
        wait_until(lambda: is_taken(tmp_path, "entrance"))
        time.sleep(0.1)
        assert entered == []

        def go_on() -> None:
            gate.give_way()
            entered.append("beside others")

        going = threading.Thread(target=go_on, daemon=True)
        going.start()
        wait_until(lambda: entered == ["alone"])
        time.sleep(0.1)
        assert entered == ["alone"]
        for event in waiting:
            event.set()
        going.join(10)
        assert entered == ["alone", "alone", "beside others"]
        start("alone")
        time.sleep(0.1)
        assert entered[3:] == [], "it has its turn again"
    wait_until(lambda: entered[3:] == ["alone"])
    assert gate.waited["turn"] >= 0.1


def test_processes_share_a_gate_and_one_that_is_killed_leaves_it(
    tmp_path: Path, start: Start, entered: list[str]
) -> None:
    def stay() -> None:
        with Gate(tmp_path).alone():
            time.sleep(60)

    other = multiprocessing.get_context("fork").Process(target=stay, daemon=True)
    other.start()
    wait_until(lambda: is_taken(tmp_path, "device"))
    start("shared")
    time.sleep(0.1)
    assert entered == []
    other.kill()
    other.join()
    wait_until(lambda: entered == ["shared"])


def test_one_slot_needs_no_locks() -> None:
    gate = Gate()
    with gate.room(2**40), gate.alone(), gate.together():
        pass


@pytest.fixture
def take(tmp_path: Path, stay: Stay) -> Callable[[str, float], threading.Event]:
    """Return what takes some of 100 bytes in a thread."""
    return lambda name, wanted: stay(name, Gate(tmp_path, 100).room(wanted))


def test_memory_is_shared_out_in_the_order_in_which_it_is_asked_for(
    take: Callable[[str, float], threading.Event], entered: list[str]
) -> None:
    half = take("half", 50)
    wait_until(lambda: entered == ["half"])
    third = take("third", 30)
    wait_until(lambda: entered == ["half", "third"])
    take("more than there is", 1000)
    time.sleep(0.1)
    take("little", 1)
    time.sleep(0.1)
    assert entered[2:] == []
    half.set()
    time.sleep(0.1)
    assert entered[2:] == [], "all means all"
    third.set()
    wait_until(lambda: entered[2:] == ["more than there is"])


def test_a_check_that_measures_waits_for_no_memory_of_others(tmp_path: Path) -> None:
    gate = Gate(tmp_path, 100)
    with Gate(tmp_path, 100).room(60), gate.room(30), gate.alone():
        pass
