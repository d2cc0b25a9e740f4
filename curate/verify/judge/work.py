"""Who did the work, where kernels compute on the way: whether results were there before they did.

It is read from what operators gave before any kernel computed (`executor.origins`), and from
uploads: element by element, in one tensor in any order, or in pieces over several.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch

from curate.verify.operator_calls import MOVES
from curate.verify.protocol.role import Tensors

UPLOAD = "upload"
"""Name of what the host half sent, among the names of operators."""

SHARE, CHANCE = 0.75, 0.25
"""Share of the output's values that a tensor must hold to have been the result already, and the
share of values near those that may be found in it: more is chance."""

SAMPLE = 4096
"""Values of each output that are looked for."""

PIECE, PIECES = 16, 256
"""Values in a row that make a piece of an output, and how many pieces are looked at."""

ENOUGH = 0.5
"""Share of an output's pieces that must be held whole."""

WHOLE = 0.9
"""Share of a piece's values that must be held. A stage such as ReLU leaves most values as they
were, but few pieces."""

NEAR = 1e-6
"""How far, relative to it, a number may be from one that is the same."""

MATCH, FEW = 0.1, 0.003
"""How many times fewer of a short type's values may be missing than of those next to them, and
what share of the latter must be: less is chance."""

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


@dataclass(frozen=True)
class Credit:
    """Who held the output of a call before a kernel gave it.

    Attributes:
        uploaded: the host sent it.
        ready: operators gave it.
    """

    uploaded: bool = False
    ready: bool = False


def who_worked(named: list[tuple[str, torch.Tensor]], given: Tensors, outputs: Tensors) -> Credit:
    """Say who gave the output of a call.

    Args:
        named: what operators and uploads gave, each with its name.
        given: inputs and parameters of the problem.
        outputs: of the program.
    """
    if not named:
        return Credit()
    uploads = [(name, t) for name, t in named if name == UPLOAD]
    others = [(name, t) for name, t in named if name != UPLOAD]
    work = [(n, t) for n, t in others if n not in MOVES and not moves_only(n)]
    if others and _joined_holds(given, outputs):
        # The problem only moves data, and so whoever moves it does the work.
        work = [("moved", _joined([t for _, t in others]))]
    return Credit(_was_done(uploads, outputs), _was_done(work, outputs))


def _was_done(named: list[tuple[str, torch.Tensor]], outputs: Tensors) -> bool:
    """Say whether the output was there already: in order, in one tensor, or in pieces.

    In any other order only floating numbers tell, if they are more than half of the output.
    """
    if named and held_in_order(named, outputs):
        return True
    floats = sum(t.numel() for t in outputs if t.is_floating_point())
    if not named or 2 * floats <= sum(t.numel() for t in outputs):
        return False
    return holds_result([t for _, t in named], outputs) or held_in_pieces(named, outputs)


def _joined_holds(tensors: Tensors, outputs: Tensors) -> bool:
    return bool(tensors) and holds_result([_joined(tensors)], outputs)


def _joined(tensors: Tensors) -> torch.Tensor:
    return torch.cat([t.reshape(-1).double() for t in tensors])


def _base(name: str) -> str:
    """Return an operator's name without its namespace, overload and leading underscores."""
    return name.removeprefix("aten::").lstrip("_").partition(".")[0]


def moves_only(name: str) -> bool:
    """Say whether an operator of the executor's account only moves values."""
    return _base(name).removeprefix("unsafe_") in MOVERS


def holds_result(work: Tensors, outputs: Tensors) -> bool:
    """Say whether one of the tensors that were given holds the output's values, in any order.

    A tensor of many values holds anything near one of them by chance, so values that are slightly
    off are looked for as well. Of short types, which have few values, each is counted.
    """
    floats = [t for t in outputs if t.is_floating_point() and t.numel() > 1]
    if not floats or not work:
        return False
    for kind in {t.dtype for t in floats if t.element_size() <= 2}:
        values = _joined([t for t in floats if t.dtype == kind])
        if not any(_counts_match(values, t, kind) for t in work):
            return False
    floats = [t for t in floats if t.element_size() > 2]
    if not floats:
        return True
    values = torch.cat([t.reshape(-1)[:: max(1, t.numel() // SAMPLE)].double() for t in floats])
    values = values[values.isfinite()]
    if values.numel() < 2 or bool((values == values[0]).all()):
        return False
    off = values * 1.003 + 1e-4 * float(values.abs().mean())
    for tensor in work:
        if tensor.is_complex() or not tensor.numel():
            continue
        held = tensor.reshape(-1).double()
        held = held[held.isfinite()].sort().values
        if held.numel() and _found(values, held) >= SHARE and _found(off, held) <= CHANCE:
            return True
    return False


def _counts_match(values: torch.Tensor, work: torch.Tensor, kind: torch.dtype) -> bool:
    """Say whether a tensor has each of a short type's values as often as the output, or nearly so,
    and has not those next to them as often."""
    if work.is_complex() or not work.numel():
        return False
    found, held = _counts(values, kind), _counts(work, kind)
    if int((found > 0).sum()) < 2:
        return False
    missing, beside = (
        float((one - held).clamp(min=0).sum() / found.sum()) for one in (found, found.roll(2))
    )
    return missing <= min(1 - SHARE, MATCH * beside) and beside >= FEW


def _counts(tensor: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Return how often each number of a short type, zeros left out, is in a tensor."""
    bits = tensor.reshape(-1).to(kind).view(torch.uint8 if kind.itemsize == 1 else torch.int16)
    bits = bits.int() & 2 ** (8 * kind.itemsize) - 1
    counts = torch.bincount(bits, minlength=2 ** (8 * kind.itemsize))
    counts[0] = counts[len(counts) // 2] = 0
    return counts


def _found(values: torch.Tensor, held: torch.Tensor) -> float:
    at = torch.searchsorted(held, values).clamp(max=held.numel() - 1)
    near = torch.minimum((held[at] - values).abs(), (held[(at - 1).clamp(min=0)] - values).abs())
    return float((near <= NEAR * values.abs()).double().mean())


def by_operators(flags: list[bool], results: Tensors) -> bool:
    """Say whether most of a call's results are operators' work alone.

    Args:
        flags: for each result, whether only operators computed on the way to it.
        results: outputs and changed inputs.
    """
    sizes = [t.numel() for t in results]
    theirs = sum(size for size, flag in zip(sizes, flags, strict=True) if flag)
    return bool(2 * theirs > sum(sizes))


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
    """Return pieces of the output's floating values, evenly spaced, one per row."""
    floats = [t.reshape(-1) for t in outputs if t.is_floating_point() and t.element_size() > 2]
    rows = [t[: t.numel() // PIECE * PIECE].view(-1, PIECE) for t in floats]
    rows = [row[:: max(1, len(row) * len(rows) // PIECES)] for row in rows if len(row)]
    return torch.cat([row.double() for row in rows]) if rows else None


def _held(pieces: torch.Tensor, group: Tensors) -> torch.Tensor:
    """Return which values are among a group's; none, if values near them are there as well."""
    values = pieces.nan_to_num().reshape(-1)
    off = values * 1.003 + 1e-4 * float(values.abs().mean())
    asked, back = torch.cat([values, off]).unique(return_inverse=True)
    found = torch.zeros(len(asked), dtype=torch.bool, device=asked.device)
    for tensor in group:
        held = tensor.reshape(-1).double()
        held = held[held.isfinite()]
        at = torch.searchsorted(asked, held)
        for near in (at.clamp(max=len(asked) - 1), (at - 1).clamp(min=0)):
            found[near[(asked[near] - held).abs() <= NEAR * asked[near].abs()]] = True
    one, other = found[back].split(len(values))
    other_than_zero = values != 0
    by_chance = float(other[other_than_zero].double().mean()) if other_than_zero.any() else 1.0
    return one.view(pieces.shape) if by_chance <= CHANCE else torch.zeros_like(pieces).bool()


def held_in_order(work: list[tuple[str, torch.Tensor]], outputs: Tensors) -> bool:
    """Say whether operators gave every output, element by element, in whatever type.

    So they did if they gave its first or its last elements and these are more than half; or with
    others before or behind; or the other way round.
    """
    known = [t for t in outputs if t.numel() and not t.is_complex()]
    known = [t for t in known if t.numel() == 1 or _varies(t)]
    results = [t for name, t in work if not moves_only(name) and not t.is_complex()]
    return bool(known) and all(any(_same_in_order(t, r) for r in results) for t in known)


def _varies(tensor: torch.Tensor) -> bool:
    return bool((tensor != tensor.reshape(-1)[0]).any())


def _same_in_order(output: torch.Tensor, result: torch.Tensor) -> bool:
    count = min(output.numel(), result.numel())
    if 2 * count <= output.numel():
        return False
    step = max(NEAR, torch.finfo(output.dtype).eps) if output.is_floating_point() else 0.0
    least = 1.0 if output.dtype == torch.bool else WHOLE
    flat = output.reshape(-1)
    ways = [result.reshape(-1), *([result.mT.reshape(-1)] if result.dim() > 1 else [])]
    ends = [end for way in ways for end in _ends(way, count)]
    for one, other in itertools.product(_ends(flat, count), ends):
        a, b = (end[:: max(1, count // SAMPLE)].double() for end in (one, other))
        same = float(((a - b).abs() <= step * a.abs()).double().mean())
        if same >= least and (output.numel() == 1 or _varies(a)):
            return True
    return False


def _ends(flat: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Return the first and the last elements, so many."""
    return [flat] if len(flat) == count else [flat[:count], flat[-count:]]


def by_host(did: dict[str, Any], inputs: Tensors, outputs: Tensors) -> bool:
    """Say whether the host read the inputs, and sent enough to be the output.

    Whatever way it went: by uploads, by numbers among arguments, in the text of a kernel.
    """
    given = sum(t.numel() * t.element_size() for t in inputs)
    made = sum(t.numel() * t.element_size() for t in outputs)
    return bool(0 < READ * given <= did["read_bytes"] and 0 < SENT * made <= did["sent_bytes"])
