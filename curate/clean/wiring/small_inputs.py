"""What a problem without parameters computes on small inputs that never change. For the sandbox.

Other words for one computation may be other operators (ELU and CELU, a clamp and a maximum). So
the problem runs in float64 on each set of `SHAPES` with its number of inputs, on numbers of a
fixed stream, and what it gives is hashed. Two problems that share a hash compute the same there;
that they do so everywhere is not proved.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

Shape = tuple[int, ...]

_ANY: tuple[Shape, ...] = ((6,), (4, 5), (4, 4), (2, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4, 3))
_PRODUCTS: tuple[tuple[Shape, Shape], ...] = (
    ((4, 5), (5, 3)),
    ((5, 4), (5, 3)),
    ((4, 5), (3, 5)),
    ((5, 4), (3, 5)),
    ((2, 4, 5), (2, 5, 3)),
    ((2, 4, 5), (5, 3)),
    ((2, 2, 4, 5), (5, 3)),
    ((4, 5), (5,)),
    ((4, 5), (5, 1)),
    ((4,), (4, 5)),
    ((4, 5), (4,)),  # and the classes that logits are compared with
    ((4, 5), ()),
    ((), (4, 5)),
)
SHAPES: dict[int, tuple[tuple[Shape, ...], ...]] = {
    1: tuple((shape,) for shape in _ANY),
    2: (*((shape, shape) for shape in _ANY), *_PRODUCTS),
    3: tuple((shape,) * 3 for shape in _ANY),
    4: tuple((shape,) * 4 for shape in _ANY),
}
"""The shapes that problems are tried on, by their number of inputs."""

DRAWS = 4
"""Calls whose results are hashed together, so that one number as a result says enough."""

DECIMALS = 4
"""Of the largest result, written with one digit before the point. float32 inside, or another order
of summation, changes none of them but rarely."""

CLASSES = 4
"""Integers are drawn below this."""


def value_hashes(names: dict[str, Any]) -> list[str]:
    """Return the hashes of what a problem computes on small inputs, sorted; 12 hex digits each.

    There is none where the problem has parameters or buffers, takes other things than tensors and
    numbers, or gives nothing that says anything: what it was given, or one number throughout.

    Args:
        names: what a file in KernelBench's form defines.

    Raises:
        Exception: whatever building the module or its inputs raised.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):  # inputs may be larger than the memory
        given = names["get_inputs"]()
    if not isinstance(given, (list, tuple)) or len(given) not in SHAPES:
        return []
    if not all(_kind(value) for value in given):
        return []
    torch.manual_seed(0)
    model = names["Model"](*names["get_init_inputs"]()).eval()
    if model.state_dict():
        return []
    found: set[str] = set()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for shapes in (s for s in SHAPES[len(given)] if _suit(given, s)):
            # Numbers of both signs say more; what has no value there has one on shares.
            found |= _run(model, given, shapes, False) or _run(model, given, shapes, True)
    return sorted(found)


def _kind(value: Any) -> str:
    """Return what is drawn for an argument; '' if nothing can be."""
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bool:
            return "bool"
        return "float" if value.is_floating_point() else "" if value.is_complex() else "int"
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def _suit(given: Any, shapes: tuple[Shape, ...]) -> bool:
    """Say whether inputs may have these shapes.

    A vector stands for a vector only: on vectors, products of matrices are other functions. One
    number may stand for a matrix, which is then scaled by it.
    """
    ranks = [value.dim() if isinstance(value, torch.Tensor) else 0 for value in given]
    scales = 1 not in ranks
    return all(
        len(shape) == rank or len(shape) > 1 or (scales and not shape)
        for shape, rank in zip(shapes, ranks, strict=True)
    )


def _run(model: Any, given: Any, shapes: tuple[Shape, ...], shares: bool) -> set[str]:
    """Return the hashes of a module's results on one set of shapes."""
    results: list[list[NDArray[np.float64]]] = []
    for draw in range(DRAWS):
        random = np.random.RandomState(draw)  # a stream that NumPy promises to keep
        arguments, kept = [], []
        for value, shape in zip(given, shapes, strict=True):
            kind = _kind(value)
            if kind == "number" and shape:
                return set()
            drawn = _draw(random, shape, kind, shares)
            kept.append(np.sort(drawn.ravel()).astype(np.float64))
            arguments.append(float(drawn) if kind == "number" else torch.tensor(drawn))
        try:
            outputs = [_array(t) for t in pytree.tree_leaves(model(*arguments))]
        except Exception:  # it takes no such shapes; the code may raise anything
            return set()
        results.append(outputs)
        if len(outputs) != len(results[0]):
            return set()
    columns = [list(column) for column in zip(*results, strict=True)]
    return {
        _sha256(str(shapes), str(shares), *map(_rounded, column))
        for column in columns
        if all(np.isfinite(a).all() for a in column) and _says_something(column, kept)
    }


def _draw(random: Any, shape: Shape, kind: str, shares: bool) -> Any:
    if kind == "int":
        return random.randint(0, CLASSES, shape)
    if kind == "bool":
        return np.asarray(random.uniform(size=shape) < 0.5)
    if shares:
        return np.asarray(random.uniform(0.05, 0.95, shape))
    numbers = np.asarray(random.standard_normal(shape) * 2)
    return np.where(random.uniform(size=shape) < 0.15, numbers * 4, numbers)


def _array(value: Any) -> NDArray[np.float64]:
    if not isinstance(value, torch.Tensor):
        return np.zeros(0)
    return np.asarray(value.detach().double().numpy().ravel())


def _says_something(column: list[NDArray[np.float64]], kept: list[NDArray[np.float64]]) -> bool:
    """Say whether results are neither constant nor, in any order, what the last call was given."""
    every = np.concatenate(column)
    if not len(every) or np.ptp(every) == 0:
        return False
    last = np.sort(column[-1])
    return not any(len(last) == len(k) and np.allclose(last, k) for k in kept)


def _rounded(array: NDArray[np.float64]) -> str:
    most = np.abs(array).max() if len(array) else 0.0
    scale = 10.0 ** np.floor(np.log10(most)) if most else 1.0
    return " ".join(f"{number + 0.0:.{DECIMALS}f}" for number in np.round(array / scale, DECIMALS))


def _sha256(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
