from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from verify_programs import Judge

from curate.verify.judge import slots as judging
from curate.verify.verdict import Candidate, Options


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Judge references and candidates on the CPU; the verdicts as JSON, in order.

    Hosts take seconds to start, so every set of options has one judge for the whole session.
    """
    judges: dict[Options, judging.Judge] = {}
    with ExitStack() as at_the_end:

        def run(pairs: list[tuple[str, str]], **options: Any) -> list[dict[str, Any]]:
            candidates = [Candidate(str(i), *pair) for i, pair in enumerate(pairs)]
            given = Options(**{"backend": "cpu", "workers": 2, "draw_seed": 1, **options})
            if given not in judges:
                judges[given] = at_the_end.enter_context(closing(judging.Judge(given)))
            found = {verdict.id: verdict.to_json() for verdict in judges[given].run(candidates)}
            return [found[candidate.id] for candidate in candidates]

        yield run
