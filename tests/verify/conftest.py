from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from verify_programs import Judge

from curate.verify.judge import slots as judging
from curate.verify.verdict import Candidate, Options


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Judge references and candidates on the CPU; the verdicts as JSON, in order.

    Hosts take seconds to start, so one judge's are used for all options.
    """
    with closing(judging.Judge(Options(backend="cpu", workers=1))) as shared:

        def run(pairs: list[tuple[str, str]], **options: Any) -> list[dict[str, Any]]:
            candidates = [Candidate(str(i), *pair) for i, pair in enumerate(pairs)]
            given = Options(**{"backend": "cpu", "workers": 1, "draw_seed": 1, **options})
            assert given.memory_mb == shared.options.memory_mb, "hosts have a limit of their own"
            for slot in shared.slots:
                slot.forget()  # an oracle has its options, too
                slot.options = given
            found = {verdict.id: verdict.to_json() for verdict in shared.run(candidates)}
            return [found[candidate.id] for candidate in candidates]

        yield run
