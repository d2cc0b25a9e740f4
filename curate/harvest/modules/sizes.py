"""Named sizes of inputs: their values while searching and in the finished task."""

from __future__ import annotations

import math
import re
from types import CodeType

Dim = str | int
"""A size: a number, a name, or an expression of names."""

Sizes = dict[str, int]


def _sizes(batch: int, length: int, height: int, width: int, depth: int) -> Sizes:
    return {
        "batch_size": batch,
        "seq_len": length,
        "context_len": 3 * length // 4,
        "height": height,
        "width": width,
        "depth": depth,
        "n_heads": 8,
    }


SEARCH_SIZES: Sizes = _sizes(4, 144, 96, 160, 12)
"""Sizes while searching: all different, and few of them widths of layers. 144 is 12 * 12, and an
image can be halved five times."""

FINAL_SIZES: tuple[Sizes, ...] = (
    _sizes(16, 512, 48, 80, 24),
    _sizes(16, 256, 24, 40, 12),
    _sizes(12, 128, 24, 40, 10),
    _sizes(4, 144, 24, 40, 12),
    _sizes(4, 96, 24, 40, 12),
    _sizes(2, 144, 24, 40, 12),
    _sizes(2, 96, 32, 64, 12),
    _sizes(2, 72, 12, 20, 12),
    _sizes(2, 64, 16, 32, 12),
    _sizes(2, 144, 16, 32, 12),
    _sizes(2, 48, 8, 16, 6),
    SEARCH_SIZES,
)
"""Sizes of the finished task, the first that runs within the limits is taken."""

MANY_SIZES: Sizes = SEARCH_SIZES | {"batch_size": 256}
"""Sizes of a task whose inputs have no other named size than the batch."""

OTHERS = (3, 5, 6, 7, 10, 11)
"""Values of further sizes, such as the tiles of an image."""


def evaluate(dims: tuple[Dim, ...], sizes: Sizes) -> tuple[int, ...]:
    """Return the numbers that dimensions are."""
    return tuple(_number(d, sizes) if isinstance(d, str) else d for d in dims)


def _number(product: str, sizes: Sizes) -> int:
    factors = product.split(" * ")
    return math.prod(int(f) if f.isdigit() else sizes[f] for f in factors)


def names_in(expressions: list[str], sizes: Sizes) -> list[str]:
    """Return the named sizes that expressions use, in the order of their first use."""
    words = re.findall(r"(?<![.\w])[A-Za-z_]\w*", " ".join(expressions))
    return [word for word in dict.fromkeys(words) if word in sizes]


def file_names(names: list[str], text: str) -> dict[str, str]:
    """Return a name for each size that means nothing else in a file.

    The judge takes an integer for a size of the inputs only if nothing but ``get_inputs`` reads
    its name, be it as a global or as an attribute. Local variables may have it.
    """
    taken = _globals_and_attributes(compile(text, "task", "exec"))
    chosen: dict[str, str] = {}
    for name in names:
        new = name
        while new in taken or new in chosen.values():
            new = f"input_{new}"
        chosen[name] = new
    return chosen


def _globals_and_attributes(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _globals_and_attributes(constant)
    return found
