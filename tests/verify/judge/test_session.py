"""Hosts that end before they have begun."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing

import pytest

from curate.verify.compile.serve import Compiler
from curate.verify.host import Ended, HostOptions
from curate.verify.judge import session
from curate.verify.judge.session import Host, HostError


def kill(host: Host) -> None:
    assert host.pid is not None
    os.kill(host.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_host_that_is_killed_while_it_starts_is_started_again() -> None:
    with closing(Host(HostOptions("compiler", 8192, False))) as host:
        host.prepare()
        killed = host.pid
        kill(host)
        conversation = host.open(60)
        assert host.pid not in (None, killed)
        conversation.ask(Compiler.assemble, [], "cuda:90")


def test_a_host_that_never_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, killed = Host.prepare, []

    def prepare_and_kill(host: Host) -> None:
        prepare(host)
        killed.append(host.pid)
        kill(host)

    monkeypatch.setattr(Host, "prepare", prepare_and_kill)
    with closing(Host(HostOptions("compiler", 8192, False))) as host:
        with pytest.raises(HostError, match="compiler host did not start"):
            host.start()
        assert len(killed) == session.STARTS and host.pid is None


@pytest.mark.slow
def test_forks_of_the_judge_have_children_of_their_own_at_once() -> None:
    """A fork leaves its child behind; the next does not wait for that, and starts no new host."""
    with closing(Host(HostOptions("compiler", 8192, False))) as host:
        host.open(60).ask(Compiler.assemble, [], "cuda:90")
        first = host.pid
        for _ in range(3):
            pid = os.fork()
            if not pid:
                began, status = time.monotonic(), 1
                try:
                    for _ in range(2):
                        host.open(60).ask(Compiler.assemble, [], "cuda:90")
                    waited = time.monotonic() - began
                    status = 0 if host.pid == first and waited < session.GRACE_S else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.slow
def test_a_host_that_another_fork_has_left_spoiled_is_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(Host(HostOptions("compiler", 8192, False))) as host:
        host.open(60).ask(Compiler.assemble, [], "cuda:90")
        first, host.user = host.pid, -1  # as in a fork
        monkeypatch.setattr(host, "_wait_for", lambda job, _: Ended(job, spoiled=True))
        host.open(60).ask(Compiler.assemble, [], "cuda:90")
        assert host.pid not in (None, first) and host.user == os.getpid()
