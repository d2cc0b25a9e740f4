"""What a model is told of its answer: in what way it is wrong, or how slow it is."""

from __future__ import annotations

from typing import Any

from curate.generate.sampling import TOO_LONG
from curate.generate.trace import Attempt
from curate.teacher.feedback import evidence, finding
from curate.teacher.template import Template, load
from curate.verify import WRONG, Verdict

QUESTION = "question"
"""Label of the first turn: `curate.evaluate.problems.conversation`."""

FASTER = Template(
    "faster",
    1,
    """\
The program is right. {timing}

Make it faster. Think of what it reads and writes, of kernels that can be fused, of block sizes \
and warps, and of work that is done twice. It must stay right.

Answer with the whole new Python file in one fenced code block.""",
)
"""What is asked of a right program that is slower than PyTorch."""

NO_CODE = (
    "The answer holds no program: it must be one Python file, in one fenced code block, that "
    "defines `ModelNew`."
)
CUT_OFF = "The answer was cut off because it was too long. Write a shorter one."
NO_ROOM = "The conversation is so long that the model has no room for an answer."


def next_turn(attempt: Attempt) -> tuple[str, str] | None:
    """Return what is said to an answer, and the label of its template; None if nothing can be.

    A wrong program is sent back with the judge's evidence, in the words of the ``repair`` prompts
    of recipes; a right one with its time. Of one that could not be judged there is nothing to say.
    """
    if attempt.is_right:
        return FASTER.label, FASTER.fill({"timing": timing_text(attempt.verdict)})
    if attempt.finish == TOO_LONG or attempt.status not in (*WRONG, "no_code"):
        return None
    template = load("repair")
    return template.label, template.fill(_found(attempt))


def _found(attempt: Attempt) -> dict[str, str]:
    """Return what stands in the places of the ``repair`` template."""
    cut = CUT_OFF if attempt.finish == "length" else ""
    if attempt.verdict is None:
        return {"finding": NO_CODE, "evidence": cut}
    row = attempt.verdict.to_row()
    return {"finding": finding(row), "evidence": "\n".join(filter(None, (evidence(row), cut)))}


def explanation(attempt: Attempt) -> str:
    """Return why an attempt is not right, and what shows it; the first line is the finding."""
    if attempt.finish == TOO_LONG:
        return NO_ROOM
    if attempt.verdict and attempt.verdict.status not in WRONG:
        row = attempt.verdict.to_row()
        return "\n".join(
            filter(None, ("The judge cannot tell whether it is right.", evidence(row)))
        )
    return "\n".join(filter(None, _found(attempt).values()))


BASELINES = {"eager": "eager PyTorch", "compile": "torch.compile"}
"""What candidates are timed against, and what it is called."""


def timing_text(verdict: Verdict | None) -> str:
    """Return how long a program takes, and PyTorch; "" where it was not timed."""
    timing: dict[str, Any] = (verdict and verdict.timing) or {}
    if not timing or timing["candidate_us"] is None:
        return ""
    others = [
        f"{words} takes {timing[f'{name}_us']:.4g} us{_ratio(timing[f'speedup_{name}'])}"
        for name, words in BASELINES.items()
        if timing[f"{name}_us"] is not None
    ]
    return f"It takes {timing['candidate_us']:.4g} us; {', and '.join(others)}."


def _ratio(speedup: float | None) -> str:
    return "" if speedup is None else f" (a speedup of {speedup:.3g})"
