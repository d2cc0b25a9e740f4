"""Fixtures: a real judge whose processes are started once for all tests, which takes seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from scripted_model import OPTIONS

from curate.generate import generate
from curate.verify import Candidate, Judge, Options, Verdict, start_judge


@pytest.fixture(scope="session")
def warm_judge() -> Iterator[Judge]:
    judge = start_judge(OPTIONS)
    yield judge
    judge.close()


@pytest.fixture
def thorough_judge(warm_judge: Judge, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """The same judge, which varies sizes as well."""
    for slot in warm_judge.slots:
        options = dataclasses.replace(slot.options, vary_sizes=True)
        monkeypatch.setattr(slot, "options", options)
    return warm_judge


def not_correct(verdicts: Iterable[Verdict]) -> dict[str, tuple[str, str | None, object]]:
    """Return why programs are not correct, by their ids; nothing if all are."""
    return {
        verdict.id: (verdict.status, verdict.reason, verdict.evidence.get("message"))
        for verdict in verdicts
        if verdict.status != "correct"
    }


@pytest.fixture
def judge(warm_judge: Judge, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have `generate_triton` take the shared judge; return the programs that it is asked about."""
    asked: list[str] = []

    class Shared:
        def run(self, candidates: Sequence[Candidate]) -> Iterator[Verdict]:
            asked.extend(candidate.candidate for candidate in candidates)
            return warm_judge.run(candidates)

    @contextmanager
    def open_shared(options: Options) -> Iterator[Shared]:
        assert options == OPTIONS
        yield Shared()

    monkeypatch.setattr(generate, "open_judge", open_shared)
    return asked
