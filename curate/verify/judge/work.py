"""Who did the work, where kernels compute on the way: whether results were there before they did.

It is read from what operators gave before any kernel computed (`executor.origins`), and from
uploads: element by element, or in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from curate.problem.operator_calls import COPIES, MOVES
from curate.problem.values import Tensors
from curate.verify.protocol.messages import CallAccount

UPLOAD = "upload"
"""Name of what the host half sent, among the names of operators."""

SHARE, CHANCE = 0.75, 0.25
"""Share of the output's values that a tensor must hold to have been the result already, and the
share of values near those that may be found in it: more is chance."""

SAMPLE = 4096
"""Values of each output that are looked for."""

WHOLE, NEAR = 0.9, 1e-6
"""Share of the output that a result must have in order, and how far, relative to it, a number may
be from one that is the same."""

FEW_BYTES = 64
"""Less than this a host may send for reasons of its own."""

HEAD, FEW, SEARCHED = 16, 8, 1 << 18
"""Values by which a piece is found, how many places are tried, and elements around it at most."""

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
    if others and given and holds_result([_joined(given)], outputs):
        # The problem only moves data, and so whoever moves it does the work.
        moved = [t for _, t in others if t.numel() and _varies(t)]  # no fill
        work = [("moved", _joined(moved))] if moved else []
    return Credit(_was_done(uploads, outputs), _was_done(work, outputs))


def _was_done(named: list[tuple[str, torch.Tensor]], outputs: Tensors) -> bool:
    """Say whether the output was there already, in one tensor.

    In any other order only floating numbers tell, if they are more than half of the output.
    """
    if named and held_in_order(named, outputs):
        return True
    floats = sum(t.numel() for t in outputs if t.is_floating_point())
    if not named or 2 * floats <= sum(t.numel() for t in outputs):
        return False
    return holds_result([t for _, t in named], outputs)


def _joined(tensors: Tensors) -> torch.Tensor:
    return torch.cat([t.reshape(-1).double() for t in tensors])


def _base(name: str) -> str:
    """Return an operator's name without its namespace, overload and leading underscores."""
    return name.removeprefix("aten::").lstrip("_").partition(".")[0]


def moves_only(name: str) -> bool:
    """Say whether an operator of the executor's account only moves values."""
    return _base(name).removeprefix("unsafe_") in MOVERS


def list_movers(named: list[tuple[str, torch.Tensor]], outputs: Tensors) -> list[str]:
    """Return the operators that moved or converted as much as `CHANCE` of a call's output."""
    moved = [(_base(name), t) for name, t in named if name in COPIES or moves_only(name)]
    size = sum(t.numel() for _, t in moved)
    enough = size and size >= CHANCE * sum(t.numel() for t in outputs)
    return sorted({name for name, _ in moved}) if enough else []


def holds_result(work: Tensors, outputs: Tensors) -> bool:
    """Say whether one of the tensors that were given holds the output's values, in any order.

    A tensor of many values holds anything near one of them by chance, so values that are slightly
    off are looked for as well. Of integers and short types, any tensor holds nearly all numbers.
    """
    floats = [t for t in outputs if t.is_floating_point() and t.numel() > 1]
    if not floats or any(t.element_size() <= 2 for t in floats):
        return False
    values = torch.cat([t.reshape(-1)[:: max(1, t.numel() // SAMPLE)].double() for t in floats])
    values = values[values.isfinite()]
    if values.numel() < 2 or bool((values == values[0]).all()):
        return False
    # What most are, as zeros where a stride leaves gaps, many tensors hold.
    rarer = values[values != values.mode().values]
    off = values * 1.003 + 1e-4 * float(values.abs().mean())
    for tensor in work:
        if tensor.is_complex() or not tensor.numel():
            continue
        held = tensor.reshape(-1).double()
        held = held[held.isfinite()].sort().values
        if not held.numel() or _found(off, held) > CHANCE:
            continue
        if min(_found(values, held), _found(rarer, held)) >= SHARE:
            return True
    return False


def _found(values: torch.Tensor, held: torch.Tensor) -> float:
    at = torch.searchsorted(held, values).clamp(max=held.numel() - 1)
    near = torch.minimum((held[at] - values).abs(), (held[(at - 1).clamp(min=0)] - values).abs())
    return float((near <= NEAR * values.abs()).double().mean())


def holds_for_most(flags: list[bool], results: Tensors) -> bool:
    """Say whether something holds for most elements of a call's results.

    Args:
        flags: for each result, whether it does: that only operators computed on the way to it.
        results: outputs and changed inputs.
    """
    sizes = [t.numel() for t in results]
    theirs = sum(size for size, flag in zip(sizes, flags, strict=True) if flag)
    return bool(2 * theirs > sum(sizes))


def held_in_order(work: list[tuple[str, torch.Tensor]], outputs: Tensors) -> bool:
    """Say whether operators gave every output, element by element, in whatever type.

    So they did if they gave more than half of it in one piece, or it and others around it; also the
    other way round.
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
    for way in [result.reshape(-1), *([result.mT.reshape(-1)] if result.dim() > 1 else [])]:
        longer, shorter = (flat, way) if len(flat) >= len(way) else (way, flat)
        for at in _beginnings(longer, shorter, step):
            pair = longer[at : at + count], shorter
            a, b = (end[:: max(1, count // SAMPLE)].double() for end in pair)
            same = float(_near(a, b, step).double().mean())
            if same >= least and (output.numel() == 1 or _varies(a)):
                return True
    return False


def _near(a: torch.Tensor, b: torch.Tensor, step: float) -> torch.Tensor:
    return (a - b).abs() <= step * a.abs()


def _beginnings(longer: torch.Tensor, shorter: torch.Tensor, step: float) -> list[int]:
    """Return where the shorter one may lie in the longer one, by its first values."""
    last = len(longer) - len(shorter)
    if not last or last > SEARCHED:
        return [0, last] if last else [0]
    size = min(HEAD, len(shorter))
    windows = longer[: last + size].double().unfold(0, size, 1)
    found = _near(windows, shorter[:size].double(), step).all(1).nonzero()
    return [int(at) for at in found[:FEW, 0]]


def by_host(did: CallAccount, inputs: Tensors, outputs: Tensors, alone: bool) -> bool:
    """Say whether the host read the inputs, and sent enough to be the output.

    Whatever way it went: by uploads, by numbers among arguments, in the text of a kernel. One small
    input may be all that an output takes: so floating numbers of that many bytes, both ways, do.

    Args:
        did: what the call did.
        inputs: of the call.
        outputs: of the call.
        alone: whether the output has no other way from the inputs: then it does not matter in how
            few bytes it was sent.
    """
    given = sum(t.numel() * t.element_size() for t in inputs)
    made = sum(t.numel() * t.element_size() for t in outputs)
    if FEW_BYTES <= SENT * made <= did.float_bytes:
        return True
    sent = alone or 0 < SENT * made <= did.sent_bytes
    return bool(sent and 0 < READ * given <= did.read_bytes)
