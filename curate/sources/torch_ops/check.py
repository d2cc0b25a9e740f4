"""Run a problem once on the CPU and say what is wrong with it, if anything.

The problems are written by this package, so they run in the process that asks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from curate.problem import eager
from curate.step import Drop

MAX_ELEMENTS = 2**20
"""Largest tensor of a problem: more makes the judge slow on a CPU."""

_REASONS = {"nondeterministic": "not_deterministic"}
"""Reasons that this source has always given by other names."""


@contextmanager
def quiet() -> Iterator[None]:
    """Run torch on one thread, with no warnings, and leave its random numbers as they were.

    The problems are small: a second thread costs more than it gives, and far more where other
    workers share the cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(threads)


def check(text: str) -> Drop | None:
    """Return why a problem cannot be used, or None when it is good.

    A good problem builds, runs in eval mode, repeats itself bit by bit, gives finite values that
    are not all equal and not its input's, and depends on each of its inputs and parameters.
    """
    with quiet():
        try:
            eager.check(text, thorough=True, limit=MAX_ELEMENTS)
        except eager.Unusable as lost:
            if error := lost.__cause__:
                message = {"error": type(error).__name__, "message": str(error)[:500]}
                return Drop("does_not_run", message)
            return Drop(_REASONS.get(lost.reason, lost.reason), lost.evidence)
    return None
