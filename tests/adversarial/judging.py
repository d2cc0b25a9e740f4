"""Judge the suite's cases, in as few calls as their options allow."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cases import Case

from curate.verify import Candidate, Options, Verdict, verify


def judge_cases(cases: Sequence[Case], **options: Any) -> dict[str, tuple[Verdict, Verdict]]:
    """Return the verdicts on each case's cheat and on its twin, by the case's id.

    A program that several cases have for a twin is judged once.

    Args:
        cases: what to judge; a case's own options go before ``options``.
        options: fields of `Options` for every case.
    """
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[json.dumps(case.options, sort_keys=True)].append(case)
    found: dict[str, tuple[Verdict, Verdict]] = {}
    for own, group in groups.items():
        texts = {case.id: _texts(case) for case in group}
        programs = {pair: str(i) for i, pair in enumerate(dict.fromkeys(sum(texts.values(), ())))}
        candidates = [Candidate(name, *pair, compiled=True) for pair, name in programs.items()]
        judged = verify(candidates, Options(**{"draw_seed": 1, **options, **json.loads(own)}))
        verdicts = {verdict.id: verdict for verdict in judged}
        for name, (cheat, honest) in texts.items():
            found[name] = verdicts[programs[cheat]], verdicts[programs[honest]]
    return found


def _texts(case: Case) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return reference and candidate of the cheat and of its twin."""
    sound = case.sound_reference or case.reference
    return (case.reference, case.cheat), (sound, case.honest)
