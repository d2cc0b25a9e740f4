"""The baselines that a candidate is timed against: eager PyTorch and `torch.compile`."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from curate.problem.copies import copied
from curate.problem.draw import Draw
from curate.problem.problem import describe
from curate.problem.values import list_tensors, map_tensors
from curate.verify.protocol.messages import ReadyBaselines
from curate.verify.timing import InputSets, TimedCall, as_users_run

if TYPE_CHECKING:
    from curate.verify.reference.serve import Reference

EAGER, COMPILED = "eager", "compile"

QUICK = 5
"""Calls that tell about how long one takes."""


class Baselines:
    """Eager PyTorch and `torch.compile`, on the reference's device."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.calls: dict[str, TimedCall] = {}

    def try_size(self, draw: Draw) -> tuple[float, int]:
        """Return how long eager takes on a draw, and the bytes of its inputs and results."""
        _, model = self.reference.model(draw)
        inputs = self.reference.inputs(draw)
        self.calls.clear()
        with as_users_run():
            results = list_tensors(model(*copy.deepcopy(inputs)))
        size = sum(t.numel() * t.element_size() for t in (*list_tensors(inputs), *results))
        del results
        timed = self._timed(copied(model), [inputs])
        return statistics.median(timed.run(QUICK, 0)), size

    def prepare_timing(self, draws: list[Draw]) -> ReadyBaselines:
        """Load sets of inputs, and make eager PyTorch and `torch.compile` ready.

        All draws have the first one's parameters and plain numbers.
        """
        _, model = self.reference.model(draws[0])
        sets = [self.reference.inputs(draw) for draw in draws]
        self.calls = {EAGER: self._timed(copied(model), sets)}
        problem = None
        try:
            with as_users_run():
                compiled = torch.compile(copied(model))
            self.calls[COMPILED] = self._timed(compiled, sets)
        except Exception as error:
            problem = describe(error)
        graphs = {name: call.graph is not None for name, call in self.calls.items()}
        return ReadyBaselines(graphs, problem)

    def time(self, name: str, n: int, seed: int) -> list[float]:
        """Return the microseconds of calls of one baseline."""
        return list(self.calls[name].run(n, seed))

    def _timed(self, model: Callable[..., Any], sets: list[list[Any]]) -> TimedCall:
        masters = [[t.detach() for t in list_tensors(one)] for one in sets]
        targets = [t.clone() for t in masters[0]]
        others = iter(targets)
        arguments = list(map_tensors(list(sets[0]), lambda _: next(others)))

        def call() -> None:
            model(*arguments)

        # For a baseline nothing has been multiplied before: nobody compares its results.
        inputs = InputSets(targets, masters, [1.0] * len(sets))
        return TimedCall(call, inputs, self.reference.device)
