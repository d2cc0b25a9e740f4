"""Hosts that end before they have begun."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from curate.verify.compile.serve import Compiler
from curate.verify.host import HostOptions
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
