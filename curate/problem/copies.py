"""Copies of models whose functions read the copy's layers, not those of the original."""

from __future__ import annotations

import copy
from types import CellType, FunctionType
from typing import Any

from torch import nn


def copied(model: Any) -> Any:
    """Return a deep copy of a model.

    `copy.deepcopy` leaves functions as they are. A lambda that a constructor keeps, such as
    ``self.mlp = lambda x: layers.out(layers.act(x))``, would go on reading the original's layers.
    """
    known: dict[int, Any] = {}
    twin = copy.deepcopy(model, known)
    if isinstance(twin, nn.Module):
        for module in twin.modules():
            for name, value in vars(module).items():
                if isinstance(value, FunctionType) and value.__closure__:
                    vars(module)[name] = _bound_anew(value, known)
    return twin


def _bound_anew(function: FunctionType, known: dict[int, Any]) -> FunctionType:
    """Return a function whose closure holds copies where there are any."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            own = cell.cell_contents
        except ValueError:  # it is empty
            cells.append(cell)
        else:
            cells.append(CellType(known.get(id(own), own)))
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made
