"""Smaller sizes for a CPU, in place of those that fill a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

from curate.problem.draw import free_sizes, named_sizes
from curate.problem.problem import LoadedTask
from curate.problem.values import count_elements

ELEMENTS = 2**16
"""Elements of the inputs, in all, that a CPU's draws have where the file has more than `MUCH`."""

FEW, MUCH = 2**10, 4 * ELEMENTS
"""Elements of the inputs below which no work is much, and from which on they are many."""

PARAMETERS = 2**20
"""Elements of the parameters that they have at most, if sizes that the constructor takes tell."""

CALL_BYTES = 2**23
"""Bytes that a forward's operators read and write at most then: a result may be far larger than
the inputs, such as all distances between two sets."""

MOST_CALLS = 2**13
"""Operators that a forward calls at most then: a recurrence calls some for each step."""

ALL, FIRST, NONE = SHRINKS = "all", "first", "none"
"""Which sizes are made smaller: all, or the first that only the inputs have."""

FEWEST, FEWEST_SHARED = 3, 32
"""Sizes that are made no smaller: those of inputs only, and those of the constructor as well."""


def shrink(task: LoadedTask, which: str, run: Callable[[], float]) -> dict[str, list[int]]:
    """Halve a file's named sizes until a CPU can run it in little time.

    The first of those that only the inputs have is halved first: it is a batch more often than not,
    whose elements are much the same. Then come the others of the inputs, the largest first, and
    those of the constructor. What the model does not take stays as the file has it, or becomes
    as small as the model takes.

    Args:
        task: the file; its integers are changed.
        which: one of `SHRINKS`.
        run: runs the model at the sizes of the moment, without values, and returns how many bytes
            its operators read and write, infinity where it calls more than `MOST_CALLS`; raises
            where it does not take the sizes.

    Returns:
        For each changed name the file's size and the smaller one; empty where nothing is changed.
    """
    if which == NONE:
        return {}
    many_inputs, many_parameters = input_elements(task) > MUCH, _parameters(task) > PARAMETERS
    many = many_inputs or many_parameters
    if not many and (input_elements(task) < FEW or not _is_much(run)):
        return {}
    own = {name: int(getattr(task.module, name)) for name in named_sizes(task)}
    free = free_sizes(task)
    shared = [name for name in own if name not in free]
    first = free[:1]
    all_names = [(free, shared), (free, []), (first, [])]

    def changed() -> dict[str, list[int]]:
        now = {name: int(getattr(task.module, name)) for name in own}
        return {name: [own[name], now[name]] for name in own if now[name] != own[name]}

    def too_much() -> bool:
        return run() > CALL_BYTES or (many_inputs and input_elements(task) > ELEMENTS)

    for names, others in [(first, [])] if which == FIRST else all_names:
        if many_inputs:
            _halve(task, first, FEWEST, lambda: input_elements(task) > ELEMENTS)
            _halve(task, names, FEWEST, lambda: input_elements(task) > ELEMENTS)
        _halve(task, others, FEWEST_SHARED, lambda: _parameters(task) > PARAMETERS)
        if many_inputs:
            _halve(task, others, FEWEST_SHARED, lambda: input_elements(task) > ELEMENTS)
        try:
            _halve(task, first, FEWEST, lambda: run() > CALL_BYTES)
            _halve(task, names, FEWEST, lambda: run() > CALL_BYTES)
            _halve(task, others, FEWEST_SHARED, lambda: run() > CALL_BYTES)
            if not too_much():
                return changed()
            break
        except Exception:  # the file's own: it needs sizes that fit each other
            for name, size in own.items():
                setattr(task.module, name, size)

    with contextlib.suppress(Exception):  # of a model that needs values
        _halve(task, first, FEWEST, too_much)
        _halve(task, [] if which == FIRST else free, FEWEST, too_much)
    return changed()


def _is_much(run: Callable[[], float]) -> bool:
    """Whether few inputs make much work, as tokens do that become rows of a table."""
    try:
        return run() > 4 * CALL_BYTES
    except Exception:  # the file's own: it may look at values
        return False


def _halve(task: LoadedTask, names: list[str], fewest: int, too_many: Callable[[], bool]) -> None:
    """Halve the largest of some sizes while there is too much; one stays where the file raises."""
    left = list(names)
    is_much = bool(left) and too_many()
    while left and is_much:
        name = max(left, key=lambda name: getattr(task.module, name))
        size = getattr(task.module, name)
        if size // 2 < fewest:
            return
        setattr(task.module, name, size // 2)
        try:
            is_much = too_many()
        except Exception:
            setattr(task.module, name, size)
            left.remove(name)


def input_elements(task: LoadedTask) -> int:
    """Return how many elements a file's inputs have at the sizes of the moment.

    Without values, unless one of them decides on another's size.
    """
    try:
        with torch.device("meta"):
            given = task.inputs()
    except Exception:  # the file's own
        given = task.inputs()
    return count_elements(given)


def _parameters(task: LoadedTask) -> int:
    """Return how many elements the model's parameters have, or 0 where it cannot be built so."""
    try:
        with torch.device("meta"):
            model = task.module.Model(*task.init_inputs())
    except Exception:  # the file's own: it may look at values
        return 0
    return count_elements([*model.parameters()])
