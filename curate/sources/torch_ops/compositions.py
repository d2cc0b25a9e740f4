"""Seeded compositions: the fusions that models, losses and optimisers are made of.

A family is a function that writes one kind of problem with a `ProblemDraft` and leaves structure,
operators and sizes to the draft's random numbers. Nothing here imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random

from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families import (
    attention,
    backward,
    convolutions,
    formulas,
    fusions,
    products,
    quantised,
    routing,
)

Family = Callable[[ProblemDraft], None]

_FILES = (fusions, formulas, quantised, attention, products, convolutions, routing, backward)

FAMILIES: tuple[Family, ...] = tuple(write for file in _FILES for write in file.FAMILIES)

_PATIENCE = 60  # draws without a new structure after which a family counts as exhausted


def compositions(seed: int) -> Iterator[tuple[str, str]]:
    """Yield ``(family, file)`` until every family is exhausted.

    The families take turns. Two files always differ in structure: in more than names of constants,
    sizes and floating-point numbers. The same seed gives the same files in the same order.
    """
    rng = Random(seed)
    seen: set[str] = set()
    families = list(FAMILIES)
    while families:
        for write in list(families):
            text = _draw_new(write, rng, seen)
            if text is None:
                families.remove(write)
            else:
                yield write.__name__, text


def _draw_new(write: Family, rng: Random, seen: set[str]) -> str | None:
    for _ in range(_PATIENCE):
        draft = ProblemDraft(rng)
        write(draft)
        text = draft.text()
        structure = _structure(text)
        if structure not in seen:
            seen.add(structure)
            return text
    return None


def _structure(text: str) -> str:
    """Return the model's code without its docstring and without floating-point values."""
    model = text[: text.index("\n\n\n", text.index("class Model"))]
    model = re.sub(r'""".*?"""', "", model, flags=re.DOTALL)
    return re.sub(r"\d+\.\d*(e-?\d+)?|\d+e-?\d+", "0.0", model)
