"""Slots in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from verify_programs import PAIRS
from verify_programs import Judge as AskJudge

from curate.engine.processes.sandbox import SandboxUnavailable
from curate.verify.judge.lanes import LANES, Lane, LaneProcess, serve
from curate.verify.judge.session import HostError
from curate.verify.judge.slots import Judge
from curate.verify.verdict import Candidate, Options, Verdict

OPTIONS = Options(backend="cpu", workers=6, draw_seed=1)


def at_once(number: int) -> Candidate:
    """Return a candidate on which a verdict needs no host."""
    return Candidate(f"ptx {number}", f"reference {number}", "import torch", ptx="kernels")


@pytest.mark.weekly
@pytest.mark.slow
def test_six_workers_are_two_processes_and_say_what_a_slot_says(judge: AskJudge) -> None:
    pair = PAIRS["softmax"]
    texts = [pair.honest, pair.faulty(next(iter(pair.faults)))]
    real = [Candidate(str(i), pair.reference, text) for i, text in enumerate(texts)]
    with closing(Judge(OPTIONS)) as own:
        lanes = [slot for slot in own.slots if isinstance(slot, Lane)]
        assert sorted(Counter(lane.process for lane in lanes).values()) == [6 - LANES, LANES]
        told = [lane.judge(at_once(i)) for i, lane in enumerate(lanes)]
        assert [(v.id, v.reason) for v in told] == [(f"ptx {i}", "needs_cuda") for i in range(6)]
        found = list(own.run([*real, *(at_once(i) for i in range(8))]))
    assert sorted(v.id for v in found) == sorted(["0", "1", *(f"ptx {i}" for i in range(8))])
    lane_says = [v.to_json() | {"seconds": {}} for v in found if v.id in "01"]
    slot_says = [v | {"seconds": {}} for v in judge([(c.reference, c.candidate) for c in real])]
    assert sorted(lane_says, key=lambda verdict: verdict["id"]) == slot_says
    assert [verdict["status"] for verdict in slot_says] == ["correct", "incorrect"]
    assert all(v.seconds["in all"] > 0 for v in found if v.id in "01")


def test_a_lane_whose_process_is_killed_says_so(tmp_path: Path) -> None:
    process = LaneProcess(OPTIONS, 2, tmp_path)
    first, second = process.lanes
    try:
        assert first.judge(at_once(0)).reason == "needs_cuda"
        assert os.getpgid(process.process.pid) != os.getpgid(0), "an interrupt would reach it"
        os.kill(process.process.pid, signal.SIGKILL)
        for lane in (first, second, first):
            with pytest.raises(HostError, match="a process of the judge ended"):
                lane.judge(at_once(1))
    finally:
        first.close()


class Refusing:
    """A slot that can judge nothing."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def judge(self, candidate: Candidate) -> Verdict:
        raise self.error


@pytest.mark.parametrize("error", [HostError("no\nhost"), SandboxUnavailable("no sandbox")])
def test_an_error_of_a_slot_is_that_of_its_lane(error: Exception) -> None:
    own, other = socket.socketpair()
    serving = threading.Thread(target=serve, args=(other, Refusing(error)))
    serving.start()
    lane = Lane(None, own)
    for _ in range(2):
        with pytest.raises(type(error), match=str(error)):
            lane.judge(at_once(0))
    own.shutdown(socket.SHUT_RDWR)
    serving.join(10)
    assert not serving.is_alive()
