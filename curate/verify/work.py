"""Who did the work, where no one tensor shows it: in pieces, in another type, or on the host.

`curate.verify.halves.holds_result` looks for the result in one tensor that an operator gave. Here
several operators, or several uploads, are looked at together.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch

from curate.verify.role import Tensors

PIECE, PIECES = 16, 256
"""Values in a row that make a piece of an output, and how many pieces are looked at."""

ENOUGH = 0.5
"""Share of an output's pieces that must be held whole."""

WHOLE = 0.9
"""Share of a piece's values that must be held. A stage such as ReLU leaves most values as they
were, but few pieces."""

CHANCE = 0.25
"""Share of values near those of the output that may be held: more is chance."""

SCALED = 1e-5
"""How far, relative to the values, an output may be from a number times a result, plus a number."""

READ, SENT = 0.25, 0.5
"""Share of the inputs' bytes that the host must have read to have done the work, and of the
output's that it must have sent since."""

MOVERS = frozenset(
    (
        *("cat", "stack", "index", "select", "index_select", "gather", "slice", "narrow", "take"),
        *("masked_select", "flip", "roll", "repeat", "repeat_interleave", "constant_pad_nd", "pad"),
        *("expand", "pixel_shuffle", "unfold", "im2col", "split", "unbind", "diag_embed"),
        *("diagonal_copy", "view_copy", "permute_copy"),
        *("slice_scatter", "select_scatter", "diagonal_scatter"),
    )
)
"""Operators that give what they were given: the values are another's work, wherever they lie."""


def moves_only(name: str) -> bool:
    """Say whether an operator of the executor's account only moves values."""
    return name.removeprefix("aten::").removeprefix("_unsafe_").partition(".")[0] in MOVERS


PRODUCTS = ("mm", "mv", "linear", "convolution", "attention")
"""Ends of the names of operators that multiply matrices."""


def ends_as(name: str, last: str) -> bool:
    """Say whether an operator is the product of matrices that the reference ends with.

    Its result is the program's, whatever kernels did before it.

    Args:
        name: the operator's.
        last: of the last operator that the reference calls.
    """
    name, last = (n.removeprefix("aten::").partition(".")[0] for n in (name, last))
    return name.endswith(PRODUCTS) and last.endswith(PRODUCTS)


def held_in_pieces(work: list[tuple[str, torch.Tensor]], outputs: Tensors) -> bool:
    """Say whether what operators or uploads gave, taken together, holds half of the output.

    Results of one name are taken together, and then all: a program may have each row computed by
    a call of its own, or one half by one operator and the other half by another.

    Args:
        work: results, with the name of what gave them.
        outputs: the program's.
    """
    pieces = _pieces(outputs)
    if pieces is None:
        return False
    size = sum(t.numel() for t in outputs if t.is_floating_point())
    groups: dict[str, Tensors] = defaultdict(list)
    for name, tensor in work:
        if not tensor.is_complex() and not moves_only(name):
            groups[name].append(tensor)
    held = torch.zeros_like(pieces, dtype=torch.bool)
    for group in groups.values():
        if 2 * sum(t.numel() for t in group) >= ENOUGH * size:
            held |= _held(pieces, group)
    finite = pieces.isfinite()
    counted = (finite & (pieces != 0)).sum(1) >= PIECE // 2  # zeros alone say little
    whole = (held & finite).sum(1) >= WHOLE * finite.sum(1)
    return bool(counted.sum() > 1) and float(whole[counted].double().mean()) >= ENOUGH


def _pieces(outputs: Tensors) -> torch.Tensor | None:
    """Return pieces of the output's floating values, evenly spaced, a row each."""
    floats = [t.reshape(-1) for t in outputs if t.is_floating_point() and t.element_size() > 2]
    rows = [t[: t.numel() // PIECE * PIECE].view(-1, PIECE) for t in floats]
    rows = [row[:: max(1, len(row) * len(rows) // PIECES)] for row in rows if len(row)]
    return torch.cat([row.double() for row in rows]) if rows else None


def _held(pieces: torch.Tensor, group: Tensors) -> torch.Tensor:
    """Return which values are among a group's; none, if values near them are there as well."""
    values = pieces.nan_to_num().reshape(-1)
    off = values * 1.003 + 1e-4 * float(values.abs().mean())
    asked, back = torch.cat([values, off]).unique(return_inverse=True)
    found = torch.zeros(len(asked), dtype=torch.bool)
    for tensor in group:
        held = tensor.reshape(-1).double()
        held = held[held.isfinite()]
        at = torch.searchsorted(asked, held)
        for near in (at.clamp(max=len(asked) - 1), (at - 1).clamp(min=0)):
            found[near[(asked[near] - held).abs() <= 1e-6 * asked[near].abs()]] = True
    one, other = found[back].split(len(values))
    other_than_zero = values != 0
    by_chance = float(other[other_than_zero].double().mean()) if other_than_zero.any() else 1.0
    return one.view(pieces.shape) if by_chance <= CHANCE else torch.zeros_like(pieces).bool()


def held_in_order(work: list[tuple[str, torch.Tensor]], outputs: Tensors) -> bool:
    """Say whether operators gave every output of integers or a short type, element by element.

    Such types have so few values that any tensor holds them; but not in the same order.
    """
    known = [t for t in outputs if t.numel() >= PIECE and not t.is_complex()]
    known = [t for t in known if t.dtype != torch.bool and bool((t != t.reshape(-1)[0]).any())]
    if not known or any(t.is_floating_point() and t.element_size() > 2 for t in known):
        return False
    results = [t for name, t in work if not moves_only(name) and not t.is_complex()]
    return all(any(_same_in_order(t, result) for result in results) for t in known)


def _same_in_order(output: torch.Tensor, result: torch.Tensor) -> bool:
    if result.numel() != output.numel():
        return False
    one, other = output.reshape(-1).double(), result.reshape(-1).double()
    step = torch.finfo(output.dtype).eps if output.is_floating_point() else 0.0
    return float(((one - other).abs() <= step * one.abs()).double().mean()) >= WHOLE


def scaled_in_order(work: list[tuple[str, torch.Tensor]], outputs: Tensors) -> bool:
    """Say whether the output is what an operator gave, times a number, plus a number."""
    floats = [t for t in outputs if t.is_floating_point() and t.numel() >= PIECE]
    results = [t for name, t in work if not moves_only(name) and t.is_floating_point()]
    return bool(floats) and all(any(_is_scaled(t, r) for r in results) for t in floats)


def _is_scaled(output: torch.Tensor, result: torch.Tensor) -> bool:
    if result.numel() != output.numel():
        return False
    step = max(1, output.numel() // (PIECE * PIECES))
    y, x = (t.reshape(-1)[::step].double() for t in (output, result))
    known = y.isfinite() & x.isfinite()
    y, x = y[known], x[known]
    if len(y) < PIECE or float(x.std()) == 0 or float(y.std()) == 0:
        return False
    factor = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    left = (y - y.mean() - factor * (x - x.mean())).abs()
    return bool((left <= SCALED * (y.abs() + y.std())).all())


def by_host(did: dict[str, Any], inputs: Tensors, outputs: Tensors) -> bool:
    """Say whether the host read the inputs, and sent enough to be the output.

    Whatever way it went: by uploads, by numbers among arguments, in the text of a kernel.
    """
    given = sum(t.numel() * t.element_size() for t in inputs if t.is_floating_point())
    made = sum(t.numel() * t.element_size() for t in outputs)
    return bool(0 < READ * given <= did["read_bytes"] and 0 < SENT * made <= did["sent_bytes"])
