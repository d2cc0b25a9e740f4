"""Judge the suite's cases, in as few calls as their options allow."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cases import Case

from curate.verify.judge import verify
from curate.verify.verdict import Candidate, Options, Verdict


def judge_cases(cases: Sequence[Case], **options: Any) -> dict[str, tuple[Verdict, Verdict]]:
    """Return the verdicts on each case's cheat and on its twin, by the case's id.

    Args:
        cases: what to judge; a case's own options go before ``options``.
        options: fields of `Options` for every case.
    """
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[json.dumps(case.options, sort_keys=True)].append(case)
    verdicts: dict[str, Verdict] = {}
    for own, group in groups.items():
        candidates = [
            Candidate(f"{case.id} {which}", reference, text)
            for case in group
            for which, reference, text in (
                ("cheat", case.reference, case.cheat),
                ("honest", case.sound_reference or case.reference, case.honest),
            )
        ]
        judged = verify(candidates, Options(**{"seed": 1, **options, **json.loads(own)}))
        verdicts |= {verdict.id: verdict for verdict in judged}
    return {
        case.id: (verdicts[f"{case.id} cheat"], verdicts[f"{case.id} honest"]) for case in cases
    }
