"""Smaller sizes for a CPU, in place of those that fill a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from curate.verify.problem import LoadedTask
from curate.verify.protocol.role import list_tensors
from curate.verify.reference.draw import free_sizes, named_sizes

ELEMENTS = 2**18
"""Elements of the inputs, in all, that a CPU's draws have where the file has more than `MUCH`."""

MUCH = 2 * ELEMENTS

FEWEST, FEWEST_SHARED = 3, 32
"""Sizes that are made no smaller: those of inputs only, and those of the constructor as well."""


def shrink(task: LoadedTask, runs: Callable[[], Any]) -> dict[str, list[int]]:
    """Halve a file's named sizes, the largest first, until its inputs have few elements.

    Sizes that only the inputs have are halved first, then those of the constructor. What the model
    does not take stays as the file has it.

    Args:
        task: the file; its integers are changed.
        runs: runs the model at the sizes of the moment; raises where it does not take them.

    Returns:
        For each changed name the file's size and the smaller one; empty where nothing is changed.
    """
    if _elements(task) <= MUCH:
        return {}
    own = {name: int(getattr(task.module, name)) for name in named_sizes(task)}
    free = [name for name in free_sizes(task) if name in own]
    for names in (list(own), free):
        _halve(task, free, FEWEST)
        _halve(task, [name for name in names if name not in free], FEWEST_SHARED)
        now = {name: int(getattr(task.module, name)) for name in own}
        try:
            runs()
            return {name: [own[name], now[name]] for name in own if now[name] != own[name]}
        except Exception:  # the file's own: it needs sizes that fit each other
            for name, size in own.items():
                setattr(task.module, name, size)
    return {}


def _halve(task: LoadedTask, names: list[str], fewest: int) -> None:
    """Halve sizes as long as the inputs have more than `ELEMENTS`."""
    while _elements(task) > ELEMENTS:
        name = max(names, key=lambda name: getattr(task.module, name), default=None)
        size = getattr(task.module, name) if name else 0
        if name is None or size // 2 < fewest:
            return
        setattr(task.module, name, size // 2)


def _elements(task: LoadedTask) -> int:
    with torch.device("meta"):
        return sum(math.prod(t.shape) for t in list_tensors(task.inputs()))
