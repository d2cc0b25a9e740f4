from __future__ import annotations

from typing import Any

import pytest
from verify_programs import Judge

from curate.verify.judge import verify
from curate.verify.verdict import Candidate, Options


@pytest.fixture(scope="session")
def judge() -> Judge:
    """Judge references and candidates in the interpreter; the verdicts as JSON, in order."""

    def run(pairs: list[tuple[str, str]], **options: Any) -> list[dict[str, Any]]:
        candidates = [Candidate(str(i), *pair) for i, pair in enumerate(pairs)]
        given = Options(**{"backend": "interpreter", "workers": 2, **options})
        found = {verdict.id: verdict.to_json() for verdict in verify(candidates, given)}
        return [found[candidate.id] for candidate in candidates]

    return run
