"""What an argument of ``forward`` may be: shapes with named sizes, and values."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

Sizes = dict[str, int]

SEARCH_SIZES: Sizes = {"B": 4, "N": 144, "H": 32, "D": 8}
"""Sizes while searching: batch, sequence, height and width, depth; all different. N is 12 * 12."""

FINAL_SIZES: tuple[Sizes, ...] = (
    {"B": 16, "N": 512, "H": 64, "D": 16},
    {"B": 16, "N": 256, "H": 32, "D": 16},
    {"B": 8, "N": 128, "H": 32, "D": 8},
    SEARCH_SIZES,
    {"B": 2, "N": 144, "H": 32, "D": 8},
    {"B": 2, "N": 144, "H": 16, "D": 8},
)
"""Sizes of the finished task, the first that runs within the limits is taken."""


@dataclass(frozen=True)
class InputGuess:
    """One argument of ``forward``.

    Attributes:
        kind: ``randn``, ``rand``, ``randint``, ``mask`` or ``value``.
        dims: sizes, or the names of sizes.
        high: exclusive bound of a ``randint``; the expression itself for a ``value``.
    """

    kind: str
    dims: tuple[str | int, ...] = ()
    high: int | str = 0

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[d] if isinstance(d, str) else d for d in self.dims)

    def expression(self, sizes: Sizes) -> str:
        shape = ", ".join(map(str, self.shape(sizes)))
        comma = "," if len(self.dims) == 1 else ""
        return {
            "randint": f"torch.randint(0, {self.high}, ({shape}{comma}))",
            "mask": f"torch.rand({shape}) > 0.2",
            "value": str(self.high),
        }.get(self.kind, f"torch.{self.kind}({shape})")


def candidates(
    parameter: inspect.Parameter, model: Any, hints: list[int], bound: int
) -> Iterator[InputGuess]:
    """Yield what one argument of ``forward`` may be, the likeliest first."""
    name = parameter.name.lower()
    annotation = str(parameter.annotation)
    if parameter.annotation in (int, "int") or name in ("h", "w", "height", "width"):
        yield from (InputGuess("value", (), str(v)) for v in (12, SEARCH_SIZES["H"], 1, 2, *hints))
        return
    if re.fullmatch(r"(feat_|input_|x_|img_|spatial_)?(size|shape|resolution|hw)", name):
        yield from (InputGuess("value", (), f"({v}, {v})") for v in (12, SEARCH_SIZES["H"], *hints))
    if parameter.annotation in (float, "float", bool, "bool"):
        yield InputGuess("value", (), "0.5" if "float" in annotation else "False")
        return
    if "mask" in name:
        yield from (InputGuess("mask", dims) for dims in (("B", "N"), ("B", "N", "N"), ("N", "N")))
        yield InputGuess("value", (), "None")
    for label in sorted(_TEMPLATES, key=lambda label: label not in _likely(name, model)):
        dims = _TEMPLATES[label]
        if label in ("indices", "labels"):
            yield InputGuess("randint", dims, bound)
            continue
        for size in hints if "C" in dims else hints[:1]:
            yield InputGuess("randn", tuple(size if d == "C" else d for d in dims))
    for side, size in itertools.product([h for h in hints if h >= 7], hints[:4]):
        yield InputGuess("randn", ("B", size, side, side))
        yield InputGuess("randn", ("B", side, size))


def _likely(name: str, model: Any) -> set[str]:
    found = {label for pattern, label in _FIRST_BY_NAME if re.fullmatch(pattern, name)}
    if found:
        return found
    for module in model.modules():
        for layers, label in _FIRST_BY_LAYER:
            if isinstance(module, layers):
                return {label}
    return set()


def size_hints(model: Any) -> list[int]:
    """Return sizes that the inputs may have, the likeliest first."""
    found: list[int] = []
    for module in model.modules():
        for name in _SIZE_FIELDS:
            value = getattr(module, name, None)
            if isinstance(value, tuple) and value:
                value = value[-1]
            if isinstance(value, int) and not isinstance(value, bool):
                found.append(value)
    for tensor in model.parameters():
        found += tensor.shape[:3]
    found += [v for v in vars(model).values() if isinstance(v, int) and not isinstance(v, bool)]
    found += [3, 64]
    sizes = list(dict.fromkeys(v for v in found if 2 <= v <= 4096))[:8]
    return [*sizes, 1]  # a single channel broadcasts against anything: last


_SIZE_FIELDS = (
    "in_features",
    "in_channels",
    "num_features",
    "num_channels",
    "normalized_shape",
    "embed_dim",
    "d_model",
    "input_size",
    "img_size",
    "image_size",
)


def index_bound(model: Any) -> int:
    """Return the exclusive bound of indices that every embedding of the module accepts."""
    tables = [m.num_embeddings for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    return min(tables, default=2)


def distributions(inputs: tuple[InputGuess, ...]) -> Iterator[tuple[InputGuess, ...]]:
    """Yield the inputs with normal values, then with values in [0, 1) and the safest indices."""
    yield inputs
    yield tuple(
        InputGuess("rand", i.dims)
        if i.kind == "randn"
        else InputGuess("randint", i.dims, 2)
        if i.kind == "randint"
        else i
        for i in inputs
    )


_TEMPLATES: dict[str, tuple[str | int, ...]] = {
    "image": ("B", "C", "H", "H"),
    "sequence": ("B", "N", "C"),
    "signal": ("B", "C", "N"),
    "vector": ("B", "C"),
    "indices": ("B", "N"),
    "last": ("B", "H", "H", "C"),
    "volume": ("B", "C", "D", "H", "H"),
    "labels": ("B",),
    "square": ("B", "N", "N"),
    "matrix": ("B", "C", "C"),
    "heads": ("B", "C", "N", 16),
    "scalars": ("B",),
    "tokens": ("B", "N"),
    "flat": ("N", "C"),
}
"""Shapes of tensors: batch, channels, sequence, height and width, depth."""

_FIRST_BY_LAYER = (
    ((torch.nn.Embedding,), "indices"),
    ((torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.ConvTranspose2d), "image"),
    ((torch.nn.Conv1d, torch.nn.BatchNorm1d), "signal"),
    ((torch.nn.Conv3d, torch.nn.BatchNorm3d), "volume"),
    ((torch.nn.Linear, torch.nn.LayerNorm, torch.nn.MultiheadAttention), "sequence"),
)

_FIRST_BY_NAME = (
    (r"(input_?)?(ids|tokens?|idx|indices|labels?|targets?)", "indices"),
    (r"im(g|age)s?\d?|inp?|pixel_values", "image"),
    (r"q|k|v|query|key|value|seq\w*|hidden\w*|context|src|tgt|memory|embeds?", "sequence"),
    (r"video|volume", "volume"),
    (r"t|times?|timesteps?|sigma", "scalars"),
)
