"""Judge the suite's cases, in as few calls as their options allow."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cases import Case

from curate.verify import Candidate, Options, Verdict, verify


def judge_cases(cases: Sequence[Case], **options: Any) -> dict[str, tuple[Verdict, Verdict]]:
    """Return the verdicts on each case's cheat and on its twin, by the case's id."""
    cheats, twins = judge_cheats(cases, **options), judge_twins(cases, **options)
    return {case.id: (cheats[case.id], twins[case.id]) for case in cases}


def judge_cheats(cases: Sequence[Case], **options: Any) -> dict[str, Verdict]:
    """Return the verdicts on the cases' cheats, by the cases' ids.

    Args:
        cases: what to judge; a case's own options go before ``options``.
        options: fields of `Options` for every case.
    """
    return _judge(cases, {case.id: (case.reference, case.cheat) for case in cases}, options)


def judge_twins(cases: Sequence[Case], **options: Any) -> dict[str, Verdict]:
    """Return the verdicts on the cases' honest twins likewise."""
    texts = {case.id: (case.sound_reference or case.reference, case.honest) for case in cases}
    return _judge(cases, texts, options)


def _judge(
    cases: Sequence[Case], texts: dict[str, tuple[str, str]], options: dict[str, Any]
) -> dict[str, Verdict]:
    """Judge references and candidates; a program that several cases have is judged once."""
    groups: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        groups[json.dumps(case.options, sort_keys=True)].append(case.id)
    found: dict[str, Verdict] = {}
    for own, group in groups.items():
        programs = {pair: str(i) for i, pair in enumerate(dict.fromkeys(texts[n] for n in group))}
        # What it is about happens before kernels are assembled.
        candidates = [Candidate(name, *pair, compiled=True) for pair, name in programs.items()]
        judged = verify(candidates, Options(**{"draw_seed": 1, **options, **json.loads(own)}))
        verdicts = {verdict.id: verdict for verdict in judged}
        found |= {name: verdicts[programs[texts[name]]] for name in group}
    return found
