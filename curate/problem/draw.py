"""What numbers a program is tried on: families of inputs, parameters drawn anew, first sizes.

A program that is right on one draw may still skip a bias that starts as zero, swap two inputs of
one shape, lose small differences next to a large mean, or know its sizes by heart. Every trial
draws anew, from another family.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from curate.problem.problem import LoadedTask, seed_everything
from curate.problem.values import list_tensors, map_tensors, to_device, with_changed

MUCH = 2**26
"""Elements of a tensor above which it is drawn in float32, to spare memory."""

MANY = 64
"""A size of which a few blocks are full: what is wrong between blocks needs more than one."""


def sizes(own: int, many: bool = False) -> tuple[int, ...]:
    """Return what a size is set to that is ``own`` in the file.

    Small odd numbers, one, which compilers treat apart, and more than twice as many, which a
    program that knows its size by heart does not reach; at least `MANY` if that is wanted.
    """
    return (3, 1, max(2 * own + 1, MANY if many else 0))


OWN = "own"
FAMILIES = (OWN, "steps", "signed", "shifted", "large", "small", "outlier", "negative")
"""How floating inputs are redrawn, once the file's own functions have given their shapes:

- ``own``: as the file draws them;
- ``steps``: multiples of one half in [-4, 4], fewer in a small tensor, and `constants` of the file:
  elements are equal to each other and to what they are compared with, where comparisons tip. Half
  of the zeros are -0.0. Some rows are zero, or one, everywhere (`_with_even_rows`). Where the file
  rounds, some rows lie between two steps of a quantisation (`_between_steps`). It is second,
  so that it has the file's own size, and not one element (`plan`);
- ``signed``: normal around zero, with the file's spread: on [0, 1) ReLU is an identity;
- ``shifted``: normal with a mean of 64 spreads, where E[x²] - E[x]² loses its digits;
- ``large``: normal with spreads from 1 to 30,000, in float16 100, one per row, where exp overflows,
  and what is rounded to half precision on the way is too coarse or infinite. One row lies below
  minus the largest spread, and one above it, where a maximum that starts at a number stays there;
- ``small``: normal with a spread of 0.001, where an absolute tolerance hides everything; one
  element in sixteen is a millionth of that, which half precision takes for zero; a column is zero,
  and a channel;
- ``outlier``: as the file draws them, but for an element in each half of one row, 1,000 times as
  large, one above zero and one below: what holds for a sorted or padded input, and for other
  rows, holds no more;
- ``negative``: below zero everywhere, where a maximum that starts at zero stays there.
"""

TIES = "steps"
"""The family whose inputs lie on thresholds."""

OTHER_INTEGERS, NOT_FINITE, FAR = "other_integers", "not_finite", "far"
ANY_ORDER, FROM_THE_END, LEFT_AWAY = "any_order", "from_the_end", "left_away"
ALL_AWAY, NOTHING = "all_away", "nothing"
INTEGER_FAMILIES = OTHER_INTEGERS, ANY_ORDER, FROM_THE_END, LEFT_AWAY, ALL_AWAY, NOTHING
BEYOND = *INTEGER_FAMILIES, NOT_FINITE, FAR
"""Families of their own, not among the draws that must be right: integers with the other sign, and
larger ones; as the file draws them, but for NaN, infinity and minus infinity; floating numbers
from 2**`FAR_LOW` to 2**`FAR_HIGH`, as likely to be of one size as of another; integers of the
file's range, in no order and more than once; places that are counted from the end, as -1; labels
that count for nothing, which are `NO_LABEL` or what the file `LEAVES_AWAY`, some of them or all;
and masks that leave nothing, with lengths of zero."""

NO_LABEL = -100
"""The ``ignore_index`` of PyTorch's losses, if they are told no other."""

LEAVES_AWAY = re.compile(r"\b(?:ignore_index|padding_idx)\s*=\s*(-?\d+)")
"""What a file says of labels and places that count for nothing."""

FAR_LOW, FAR_HIGH = -140, 40

SINCE = 2**33
"""What is added to one row of integers in ``other_integers``; 32 bits do not hold it."""

OVERFLOWS = ("large", "shifted", "outlier", FAR)
"""Families on which a reference may overflow where a better program does not."""

STEPS = 4
"""The largest number that ``steps`` draws of its own accord."""

EQUALS = 12
"""Elements of a tensor in ``steps`` for each two values that they may have."""

NEED_ORDER, ORDERED = ("searchsorted", "bucketize"), 4
"""What needs boundaries that ascend, by its name in a file: there floating numbers stay sorted. And
how many there are at least."""

CONSTANTS, SMALLEST, LARGEST = 0.125, 1e-4, 32.0
"""The share of elements in ``steps`` that are constants of the file, and between which of these.
Smaller ones keep a divisor from being zero: an input that cancels one divides zero by zero, or not,
as its products are rounded."""

ROUNDS = re.compile(r"\bround_?\(")
LEVELS = 127, 255, 15, 7
"""What a file calls that rounds to integers, and numbers of steps that quantised values have above
zero; the first where a file names none."""

TINY = 1 / 16
"""The share of elements in ``small`` that are smaller still."""

AGAIN = 5000
"""Offset of the seed with which single elements are drawn again, to see whether they vary."""

REACH, SHORT_REACH = 4.5, 2.0
"""Powers of ten that spreads differ by in ``large``; float16 holds no products of larger ones."""

ROWS = 4
"""Rows from which on each has a spread of its own in ``large``; elements have in fewer."""

NUMBERS = (0.75, 1.5, 1.25)
"""What plain numbers among the inputs are multiplied with, in turn."""

STATES = ("signed", "outlier", "shifted")
"""Families in which a state of zeros becomes one of numbers."""

SEEN = 1 << 16
"""Elements that are looked at to tell a mask from other numbers."""

KEPT = 0.75
"""Share of a mask among the buffers that stays true."""

GROWN, FAR_OFF = 6, 16
"""How many times as large constant parameters below one are in some draws, and all of them in the
last ones."""

SETS = 3
"""Draws that share one set of parameters, and so one instance of the candidate."""


@dataclass(frozen=True)
class Variation:
    """One thing that a caller may do differently from the file.

    Attributes:
        what: ``size``: an integer of the module that only ``get_inputs`` reads; ``constant``: one
            that ``get_init_inputs`` reads too; ``dimension``, ``leading`` or ``axis``: sizes of the
            inputs' dimensions, of their first, or of the one at a place, in each input that has as
            many there as the input of most dimensions, or ``first``: in the first such input alone;
            ``others``: in all other inputs of as many dimensions;
            ``argument``: a number for the constructor;
            ``input``: a number for ``forward``, or of tensors in a list; ``rank``: inputs of most
            dimensions get one more, in front, or lose the first; ``broadcast``: floating inputs of
            fewer dimensions get as many, the last of size one; ``scale``: what floating inputs
            are multiplied with;
            ``order``: floating inputs hold the same numbers, the last one first; ``one``: one
            number of each floating input is as large as its largest; ``type``: inputs are of
            another type, one of `TYPES`.
        which: the integer's name; the position of an argument, which may be one that the file
            leaves to its default, or position and name, ``0.eps``, of a number that a
            configuration holds; or an axis, counted from the last one, which is -1.
        value: what is there instead; for `NONES`, what is drawn there; nothing for an order, or
            for a rank that is one lower.
        dimension: the inputs' dimensions of this size take the value as well, if not None.
    """

    what: str
    which: str | int
    value: int | float | bool | str
    dimension: int | None = None


@dataclass(frozen=True)
class Draw:
    """One way to draw a problem's parameters and inputs.

    Attributes:
        seed: of the inputs, and of ``forward``.
        parameters: seed of the parameters.
        family: one of `FAMILIES`.
        size: None for the file's own sizes; otherwise the number that the first size which only
            the inputs depend on is set to.
        mode: ``eval`` or ``train``.
        changes: what else is not as in the file.
    """

    seed: int
    parameters: int = 0
    family: str = OWN
    size: int | None = None
    mode: str = "eval"
    changes: tuple[Variation, ...] = ()

    def of(self, family: str) -> Draw:
        """Return the same draw of another family."""
        return dataclasses.replace(self, family=family)

    def to_json(self) -> dict[str, Any]:
        """Return the draw as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Draw:
        """Return the draw that `to_json` gave these values for."""
        changes = tuple(Variation(**change) for change in values["changes"])
        return cls(**{**values, "changes": changes})

    @property
    def instance(self) -> tuple[int, tuple[Variation, ...]]:
        """What the module depends on: its parameters' seed and its constructor's arguments."""
        made_of = ("argument", "constant")
        return self.parameters, tuple(c for c in self.changes if c.what in made_of)


def plan(
    trials: int,
    own_size: int | None,
    seed: int = 0,
    thrifty: bool = False,
    many: bool = False,
    sets: int = 0,
) -> list[Draw]:
    """Return the draws of a check, the file's own first.

    Args:
        trials: how many.
        own_size: the file's value of the size that may vary, or None.
        seed: of the first draw; the others follow it.
        thrifty: whether every draw but the first takes a small size, where there is one to vary.
            Otherwise every second one takes another size.
        many: whether the largest size may be `MANY`.
        sets: of parameters; by default one for each `SETS` draws.
    """
    draws = []
    for i in range(trials):
        size = None
        if own_size is not None and thrifty and i:
            # The same size twice in a row: what a program keeps from the first is then stale.
            size = sizes(own_size)[i // SETS % 2]
        elif own_size is not None and i and i % 2 == 0:
            size = sizes(own_size, many)[i // 2 % 3]
        parameters = parameters_seed(seed, i * sets // trials if sets else i // SETS)
        draws.append(Draw(seed + i, parameters, FAMILIES[i % len(FAMILIES)], size))
    return draws


def parameters_seed(seed: int, number: int = 0) -> int:
    """Return the seed of a set of parameters, which a program is told when it is built.

    It says nothing of ``seed``, from which whoever knows the problem's text could draw the inputs.
    Its last two bits are those of the number, as `redraw_parameters` wants it.
    """
    known = hashlib.sha256(f"parameters {number} of {seed}".encode()).hexdigest()
    return int(known[:13], 16) // 4 * 4 + number % 4


# --- sizes ----------------------------------------------------------------------------------


def free_sizes(task: LoadedTask) -> list[str]:
    """Return the names of sizes that only the inputs depend on, such as ``batch_size``.

    They are the module's integers that ``get_inputs`` reads and nothing else does.
    """
    elsewhere = _names(task.module.get_init_inputs)
    return [name for name in named_sizes(task) if name not in elsewhere]


def named_sizes(task: LoadedTask) -> list[str]:
    """Return names of the module's integers that ``get_inputs`` reads and ``Model`` does not."""
    module = task.module
    elsewhere = {name for f in vars(module.Model).values() for name in _names(f)}
    read = [name for name in _names(module.get_inputs) if name not in elsewhere]
    return [name for name in read if type(getattr(module, name, None)) is int]


def _names(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return code.co_names if code else ()


@contextmanager
def resized(task: LoadedTask, draw: Draw) -> Iterator[None]:
    """Give the module's integers the draw's values inside the context."""
    first = free_sizes(task)[: 0 if draw.size is None else 1]
    changed: dict[str, Any] = dict.fromkeys(first, draw.size)
    changed |= {str(c.which): c.value for c in draw.changes if c.what in ("size", "constant")}
    saved = {name: getattr(task.module, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(task.module, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(task.module, name, value)


def reshaped(inputs: list[Any], changes: Sequence[Variation]) -> list[Any]:
    """Return inputs with other dimensions: their values go on from the start, integers' in order.

    All changes are made at once, so that a new size is not taken for one that another change is
    about.
    """
    apart = ("leading", "axis", "first", "others")
    sizes = {c.dimension: int(c.value) for c in changes if c.dimension and c.what not in apart}
    axes, alone, others = (
        {c.which: int(c.value) for c in changes if c.what == w} for w in apart[1:]
    )
    first = {c.dimension: int(c.value) for c in changes if c.dimension and c.what == "leading"}
    ranks = [int(c.value) for c in changes if c.what == "rank"]
    tensors = list_tensors(inputs)
    longest = max((tensor.shape for tensor in tensors), key=len, default=())
    most, head = len(longest), next((t for t in tensors if t.shape == longest), None)
    is_broadcast = any(c.what == "broadcast" for c in changes)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        found = tensor
        for dim, own in enumerate(tensor.shape):
            new = first.get(own) if dim == 0 and own in first else sizes.get(own)
            axis = dim - tensor.dim()
            if axis in axes and own == longest[axis]:
                new = axes[axis]
            if axis in alone and tensor is head:
                new = alone[axis]
            if axis in others and tensor is not head and tensor.dim() == most:
                new = others[axis]
            if new is not None:
                places = torch.arange(new)
                floating = tensor.is_floating_point() or tensor.is_complex()
                places = places % own if floating else places * own // new
                found = found.index_select(dim, places)
        if is_broadcast and 0 < tensor.dim() < most and tensor.is_floating_point():
            places = torch.arange(math.prod(longest[:-1])) % max(1, tensor.numel())
            found = tensor.flatten()[places].reshape(*longest[:-1], 1)
        if tensor.dim() == most:
            for new in ranks:
                found = found.repeat(new, *(1 for _ in found.shape)) if new else found[0]
        return found

    changed = sizes or first or axes or alone or others or ranks or is_broadcast
    return list(map_tensors(inputs, change)) if changed else inputs


# --- numbers --------------------------------------------------------------------------------

NONES = ("like", "pair", "places", "flags", "square", "weights")
"""What is tried for an argument of ``forward`` that is None by default: numbers as those of the
first input, two tensors of such, small integers for its first two dimensions, or truth values;
fractions for each pair of its rows, as a mask of attention, or for each of its classes."""

LEFT_OUT, INFINITE = "left out", "infinite"
"""What is tried for an argument: its default, as the program has it, there and behind; and
infinity, of which JSON knows nothing."""


def defaults(function: Any, given: int) -> list[Any]:
    """Return the defaults of a method's arguments after so many that are given."""
    found: list[Any] = []
    for known in list(inspect.signature(function).parameters.values())[1 + given :]:
        if known.kind != known.POSITIONAL_OR_KEYWORD or known.default is known.empty:
            break
        found.append(known.default)
    return found


def changed_arguments(
    function: Any, given: list[Any], changes: Sequence[Variation], what: str
) -> list[Any]:
    """Return arguments of a method with those changed that the changes say.

    Args:
        function: the method; it has the defaults of arguments that are not given.
        given: the file's arguments.
        what: ``argument`` or ``input``: of which changes.
    """
    of_it = [c for c in changes if c.what == what]
    changed = {c.which: c.value for c in of_it if isinstance(c.which, int)}
    whole = given + defaults(function, len(given)) if of_it else given
    named = {str(i): value for i, value in enumerate(whole)}
    for change in of_it:
        if isinstance(change.which, str):
            named = with_changed(named, change.which, change.value)
    whole = list(named.values())
    count = max(len(given), *(which + 1 for which in changed)) if changed else len(given)
    count = min([count, *(which for which, value in changed.items() if value == LEFT_OUT)])
    return [_made(changed[i], whole[i], given) if i in changed else whole[i] for i in range(count)]


def is_list(own: Any) -> bool:
    """Whether an argument is a list of tensors of one shape."""
    if type(own) not in (list, tuple) or len(own) < 2:
        return False
    return all(isinstance(t, torch.Tensor) and t.shape == own[0].shape for t in own)


def _made(value: Any, own: Any, inputs: list[Any]) -> Any:
    if is_list(own):
        return type(own)([*own, *(t.flip(0) if t.dim() else -t for t in own)][: int(value)])
    if value == INFINITE:
        return math.inf
    if value not in NONES:
        return value
    like = next(t for t in list_tensors(inputs) if t.is_floating_point())
    if value == "places":
        return torch.randint(0, 4, like.shape[:2])
    if value == "flags":
        return torch.rand(like.shape[:2]) < KEPT
    if value in ("square", "weights"):
        rows = like.shape[-2:-1] * 2 if value == "square" else like.shape[1:2]
        return torch.rand(rows, dtype=like.dtype)
    one, other = torch.randn_like(like), torch.randn_like(like)
    return one if value == "like" else (one, other)


def draw_arguments(task: LoadedTask, draw: Draw) -> list[Any]:
    """Return the constructor's arguments for one draw."""
    seed_everything(draw.parameters)
    init = task.module.Model.__init__
    with resized(task, draw):
        return changed_arguments(init, task.init_inputs(), draw.changes, "argument")


# --- inputs ---------------------------------------------------------------------------------


def draw_inputs(task: LoadedTask, draw: Draw, within: bool = False) -> list[Any]:
    """Return the arguments of ``forward`` for one draw; ``within`` the file's range if wanted."""
    seed_everything(draw.seed)
    inputs = _drawn_inputs(task, draw, within)
    for what, changed in (("order", _turned), ("one", _with_another)):
        if any(change.what == what for change in draw.changes):
            inputs = list(map_tensors(inputs, changed))
    return retyped(inputs, [str(change.which) for change in draw.changes if change.what == "type"])


TYPES = "int32", "bfloat16", "float16", "float32", "float64", "all bfloat16"
"""Types in which inputs are given besides their own: integers of 64 bits in 32; where the first
floating one has 32 bits, that one in 16, or all in 64 or 16; or else that one in 32."""


def retyped(inputs: list[Any], which: Sequence[str]) -> list[Any]:
    """Return inputs of which some are of another type."""
    first = next((t for t in list_tensors(inputs) if t.is_floating_point()), None)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if "int32" in which and tensor.dtype == torch.int64:
            return tensor.int()
        if "float64" in which and tensor.dtype == torch.float32:
            return tensor.double()
        if "all bfloat16" in which and tensor.dtype == torch.float32:
            return tensor.bfloat16()
        if id(tensor) == id(first) and tensor.element_size() > 1:
            is_usual = tensor.dtype == torch.float32
            for kind in (torch.bfloat16, torch.float16) if is_usual else (torch.float32,):
                if str(kind).removeprefix("torch.") in which:
                    return tensor.to(kind)
        return tensor

    return list(map_tensors(inputs, change)) if which else inputs


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or _is_sorted(tensor):
        return tensor
    return tensor.flip(*range(tensor.dim()))


def _with_another(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.numel() < 2 or 0 in tensor.stride():
        return tensor
    if tensor.itemsize == 1 or is_mask(tensor) or _is_sorted(tensor):
        return tensor
    changed = tensor.clone()
    place = torch.unravel_index(torch.randint(tensor.numel(), ()), tensor.shape)
    changed[place] = tensor.amax()
    return changed


def _sorted_like(tensor: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return a tensor sorted along the last dimension, if the file's is."""
    sorts = tensor.is_floating_point() and tensor.itemsize > 1 and _is_sorted(own)
    return tensor.sort(-1).values if sorts else tensor


def _is_sorted(tensor: torch.Tensor) -> bool:
    """Whether some numbers ascend along the last dimension, and not by chance."""
    many = tensor.dim() > 0 and tensor.shape[-1] >= ORDERED
    return many and bool((tensor.diff(dim=-1) >= 0).all())


def _drawn_inputs(task: LoadedTask, draw: Draw, within: bool) -> list[Any]:
    with resized(task, draw):
        inputs = _own_inputs(task, draw)
        if draw.family == OWN:
            return inputs
        again = inputs
        if any(tensor.numel() == 1 for tensor in list_tensors(inputs)):
            with torch.random.fork_rng(devices=[]):
                seed_everything(draw.seed + AGAIN)
                again = _own_inputs(task, draw)
    found = constants(task.source) if draw.family == "steps" else []
    if draw.family in INTEGER_FAMILIES and (said := LEAVES_AWAY.search(task.source)):
        found = [int(said[1])]
    drawn = [redraw(*both, draw.family, found) for both in zip(inputs, again, strict=True)]
    sizes = {size for tensor in list_tensors(inputs) if tensor.dim() > 1 for size in tensor.shape}
    if draw.family not in INTEGER_FAMILIES:
        drawn = [
            _shared_out(one) if _are_counts(one, sizes) else new
            for one, new in zip(inputs, drawn, strict=True)
        ]
    if draw.family == "steps":
        if ROUNDS.search(task.source):
            level = next((n for n in LEVELS if str(n) in task.source), LEVELS[0])
            step = next((c for c in found if 0 < c < 1 and math.frexp(c)[0] == 0.5), 1.0)
            drawn = list(map_tensors(drawn, lambda tensor: _between_steps(tensor, level, step)))
        _share_rows(list_tensors(drawn))
    if any(name in task.source for name in NEED_ORDER):
        owns = iter(list_tensors(inputs))
        drawn = list(map_tensors(drawn, lambda tensor: _sorted_like(tensor, next(owns))))
    if draw.family in INTEGER_FAMILIES:
        drawn = _with_own_parts(drawn, inputs)
    if within:
        for tensor, own in zip(list_tensors(drawn), list_tensors(inputs), strict=True):
            if own.is_floating_point() and own.numel() and own.itemsize > 1:
                tensor.clamp_(float(own.min().floor()), float(own.max().ceil()))
    return drawn


def _with_own_parts(drawn: list[Any], inputs: list[Any]) -> list[Any]:
    """Return inputs in which what says where parts begin is as in the file: others that hold
    integers mean nothing without it."""
    owns = list_tensors(inputs)
    parts = [_begins_parts(tensor) for tensor in owns]
    whole = [not tensor.is_floating_point() and not tensor.is_complex() for tensor in owns]
    if sum(whole) == sum(parts):
        return drawn
    pairs = iter(zip(owns, parts, strict=True))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        own, is_part = next(pairs)
        return own if is_part else tensor

    return list(map_tensors(drawn, change))


def _begins_parts(value: torch.Tensor) -> bool:
    """Say whether integers ascend from zero, and are no mere count."""
    if value.dim() != 1 or len(value) < 2 or value.dtype not in (torch.int32, torch.int64):
        return False
    steps = value.diff()
    return not value[0] and bool((steps >= 0).all() and (steps > 1).any())


def _own_inputs(task: LoadedTask, draw: Draw) -> list[Any]:
    there = str(torch.get_default_device())
    inputs = reshaped(list(to_device(task.inputs(), there)), draw.changes)
    inputs = changed_arguments(task.module.Model.forward, inputs, draw.changes, "input")
    return scaled(inputs, [float(c.value) for c in draw.changes if c.what == "scale"])


def scaled(inputs: list[Any], factors: Sequence[float]) -> list[Any]:
    """Return inputs with the floating tensors among them multiplied with some factors."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        floating = tensor.is_floating_point() or tensor.is_complex()
        return tensor * math.prod(factors) if floating and tensor.element_size() > 1 else tensor

    return list(map_tensors(inputs, change)) if factors else inputs


def constants(source: str) -> list[float]:
    """Return numbers in a file's text, up to `LARGEST`, with both signs: floating ones, and whole
    ones beyond `STEPS` in its ``forward``, and in ``get_init_inputs`` where ``forward`` compares or
    cuts off; and zero, but no other number below `SMALLEST`."""
    nodes = list(ast.walk(ast.parse(source)))
    values = {n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) is float}
    forwards = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == "forward"]
    inside = [n.value for f in forwards for n in ast.walk(f) if isinstance(n, ast.Constant)]
    if any(_tips(n) for f in forwards for n in ast.walk(f)):
        given = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == "get_init_inputs"]
        inside += [n.value for f in given for n in ast.walk(f) if isinstance(n, ast.Constant)]
    values |= {float(n) for n in inside if type(n) is int and n > STEPS}
    kept = {v for v in values if v == 0 or SMALLEST <= v <= LARGEST}
    return sorted({sign * v for v in kept for sign in (-1, 1)})


def _tips(node: ast.AST) -> bool:
    """Whether a part of a function compares, or calls what cuts numbers off."""
    called = node.func if isinstance(node, ast.Call) else None
    name = getattr(called, "attr", getattr(called, "id", ""))
    return isinstance(node, ast.Compare) or name in ("threshold", "clamp", "clip", "hardtanh")


def redraw(value: Any, again: Any, family: str, found: Sequence[float] = ()) -> Any:
    """Return inputs of the same shapes, types and strides, from a family.

    Integers, and numbers that are all whole and few, such as masks and labels, are drawn anew among
    those that the file draws; what it has sorted stays sorted. A state of zeros becomes one of
    numbers. Any other tensor of one value stays: it may be a mask, or a scalar with a meaning. Of
    a single element it takes a second draw to tell.

    Args:
        value: what the file drew.
        again: what it drew from another seed; looked at for single elements only.
        family: one of `FAMILIES`, not the first.
        found: the file's `constants`, or the integer that it leaves away.
    """
    if isinstance(value, list | tuple):
        pairs = zip(value, again, strict=True)
        return type(value)(redraw(*both, family, found) for both in pairs)
    if isinstance(value, dict):
        return {key: redraw(one, again[key], family, found) for key, one in value.items()}
    if isinstance(value, float):
        return value * NUMBERS[len(family) % len(NUMBERS)]
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    if 0 in value.stride() and (once := _once(value)).numel() < value.numel():
        return redraw(once, _once(again), family, found).expand(value.shape)
    if value.is_complex():
        if family == NOT_FINITE:
            return value
        part, other = (torch.view_as_real(one.resolve_conj()) for one in (value, again))
        return torch.view_as_complex(redraw(part, other, family, found).contiguous())
    if family in INTEGER_FAMILIES:
        return _beyond(value, family, int(found[0]) if found else NO_LABEL)
    if not value.is_floating_point() or is_mask(value):
        return _whole_numbers(value, few=family == "steps")
    if family == NOT_FINITE:
        return _with_not_finite(value)
    if family in STATES and value.numel() > 1 and not value.any():
        return value + torch.randn_like(value)
    known = value if value.numel() > 1 else torch.cat([value.reshape(-1), again.reshape(-1)])
    spread = float(_some(known).double().std()) if known.numel() else 0.0
    if not 0 < spread < float("inf"):
        return value
    if family == "outlier":
        drawn = (value.double() if value.numel() <= MUCH else value).clone()
        rows = drawn.reshape(-1, *value.shape[-1:])
        row = rows[int(torch.randint(len(rows), ()))].reshape(-1)
        far = spread * torch.randn(2, dtype=torch.float64).abs() * torch.tensor([1000.0, -1000.0])
        halves = row.tensor_split(2)  # one may be padding
        for half, number in zip(halves, far[torch.randperm(2)].to(drawn.dtype), strict=True):
            if len(half):
                half[int(torch.randint(len(half), ()))] = number
        drawn = rows.reshape(value.shape)
    else:
        drawn = _family(family, tuple(value.shape), spread, value.dtype, found)
    drawn = drawn.clamp(
        min=float(torch.finfo(value.dtype).min), max=float(torch.finfo(value.dtype).max)
    )
    like = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return like.copy_(drawn)


def _once(value: torch.Tensor) -> torch.Tensor:
    """Return an expanded tensor as it was before."""
    for dim, step in enumerate(value.stride()):
        value = value.narrow(dim, 0, 1) if step == 0 else value
    return value


def _some(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor's values, or evenly spaced ones of them where they are more than `MUCH`."""
    return value.reshape(-1)[:: max(1, value.numel() // MUCH)]


def _places(count: int, wanted: int) -> torch.Tensor:
    """Return some different numbers below ``count``."""
    if count <= MUCH:
        return torch.randperm(count)[:wanted]
    return torch.randint(count, (8 * wanted,)).unique()[:wanted]


def _with_not_finite(value: torch.Tensor) -> torch.Tensor:
    """Return the same values, but for one or two of each kind that is not finite, and rows of minus
    infinity, infinity and NaN."""
    found = value.clone()
    kinds = torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=value.dtype)
    others = found
    if value.dim() > 1 and len(value) >= ROWS:
        found[1] = kinds[2]  # as a mask that leaves nothing, in each input
        for row, kind in zip(found[3::2], kinds[:2].flip(0), strict=False):
            row.fill_(kind)
        others = found[::2]
    chosen = _places(others.numel(), max(1, min(6, others.numel() // 4)))
    both = torch.cat([kinds, -kinds])  # a NaN has a sign, too
    for place, number in zip(chosen.tolist(), both[torch.randperm(6)].tolist(), strict=False):
        others[torch.unravel_index(torch.tensor(place), others.shape)] = number
    return found


def _beyond(value: torch.Tensor, family: str, label: int) -> torch.Tensor:
    """Return integers, or masks, that the file does not draw, such as a label that counts for
    nothing; what holds none stays."""
    if family == NOTHING:
        return torch.zeros_like(value) if _holds_choices(value) else value
    if family == OTHER_INTEGERS and _is_constant(value):
        return _unlike(value)
    if value.is_floating_point() and family == OTHER_INTEGERS and _holds_choices(value):
        return value * torch.rand_like(value) * 2  # a mask may be a weight
    if value.is_floating_point() or value.dtype == torch.bool:
        return value
    if family == ALL_AWAY:
        return torch.full_like(value, label)
    if family == ANY_ORDER:
        return value.reshape(-1)[torch.randint(value.numel(), value.shape)]
    if family != OTHER_INTEGERS:
        other = -1 - value if family == FROM_THE_END else torch.full_like(value, label)
        return torch.where(torch.rand(value.shape) < KEPT, value, other)
    known = torch.iinfo(value.dtype)
    factors = torch.tensor((-1, -1, 5, 40, 2**20))[torch.randint(5, value.shape)]
    wide = value.to(torch.int64).mul(factors)
    if value.dtype == torch.int64 and value.dim():
        some = slice(0, 1 if value.dim() > 1 else (len(value) + 1) // 2)
        wide[some] = value[some] + SINCE  # as of times, whose distances stay small
    return wide.clamp(known.min, known.max).to(value.dtype)


def integer_families(inputs: list[Any]) -> tuple[str, ...]:
    """Return those of `INTEGER_FAMILIES` that change some inputs: masks of both truth values know
    `NOTHING` alone, and those of floating numbers weights as well; of one value, others."""
    kinds = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
    tensors = list_tensors(inputs)
    if any(t.dtype in kinds and t.numel() for t in tensors):
        return INTEGER_FAMILIES
    masks = [t for t in tensors if _holds_choices(t)]
    if any(t.is_floating_point() for t in masks) or any(map(_is_constant, tensors)):
        return OTHER_INTEGERS, NOTHING
    return (NOTHING,) if masks else ()


def _is_constant(value: torch.Tensor) -> bool:
    """Say whether a tensor is a mask of one truth value, or holds one number that is not zero."""
    is_truth = value.dtype == torch.bool
    if value.numel() < 2 or not (is_truth or (value.is_floating_point() and value.itemsize > 1)):
        return False
    first = value.reshape(-1)[0]
    return (is_truth or bool(first)) and bool((value == first).all())


def _unlike(value: torch.Tensor) -> torch.Tensor:
    """Return a constant tensor with other values: some truth values turned, weights drawn."""
    if value.dtype == torch.bool:
        return torch.where(torch.rand(value.shape) < KEPT, value, ~value)
    return value * torch.rand_like(value) * 2


def _holds_choices(value: torch.Tensor) -> bool:
    """Say whether a tensor holds integers, or is a mask."""
    if value.is_complex() or not value.numel():
        return False
    return not value.is_floating_point() or (value.itemsize > 1 and is_mask(value))


def is_mask(value: torch.Tensor) -> bool:
    """Say whether a floating tensor holds zeros and ones, and both."""
    seen = value.reshape(-1)[:SEEN]
    ones = seen == 1
    return 0 < int(ones.sum()) < seen.numel() and bool((ones | (seen == 0)).all())


def _whole_numbers(value: torch.Tensor, few: bool = False) -> torch.Tensor:
    """Return integers or truth values drawn anew, within what the file draws; with ``few`` at most
    eight different integers, so that some are equal, and masks with rows of one value."""
    flat = value.reshape(-1)
    if value.numel() < 2 or bool((flat == flat[0]).all()):
        return value
    if value.is_floating_point() or value.dtype == torch.bool:
        share = float(flat.double().mean())
        drawn = (torch.rand(value.shape) < share).to(value.dtype)
        drawn = _with_even_rows(drawn) if few else drawn
    elif _is_permutation(value):
        drawn = torch.rand(value.shape).argsort(-1).to(value.dtype)
    else:
        low, high = int(flat.min()), int(flat.max())
        drawn = torch.randint(low, high + 1, value.shape).to(value.dtype)
        if few:
            some = drawn.reshape(-1)[:8]
            drawn = some[torch.randint(len(some), value.shape)]
    if value.dim() and bool((value.diff(dim=-1) >= 0).all()) and value.dtype != torch.bool:
        if bool((value.diff(dim=-1) > 0).all()):
            return value  # an order of things, such as positions: any other is none
        drawn = drawn.sort(-1).values
        if not value[..., 0].any():  # where parts of something begin: from its start to its end
            drawn[..., 0], drawn[..., -1] = value[..., 0], value[..., -1]
    like = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return like.copy_(drawn)


def _are_counts(value: Any, sizes: set[int]) -> bool:
    """Say whether an input says how many rows of another each of several parts has."""
    if not isinstance(value, torch.Tensor) or value.dim() != 1 or len(value) < 2:
        return False
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        return False
    return bool((value >= 0).all()) and int(value.sum()) in sizes and not _is_permutation(value)


def _shared_out(counts: torch.Tensor) -> torch.Tensor:
    """Return other counts that add up to the same; about one in four is zero."""
    kept = torch.rand(len(counts)) >= 0.25
    kept[torch.randint(len(counts), ())] = True
    places = kept.nonzero()[:, 0]
    parts = places[torch.randint(len(places), (int(counts.sum()),))]
    return torch.bincount(parts, minlength=len(counts)).to(counts.dtype)


def _is_permutation(value: torch.Tensor) -> bool:
    """Say whether integers are places in another order, each there once."""
    count = value.shape[-1]
    if count < 3 or value.is_floating_point() or value.dtype == torch.bool:
        return False
    places = torch.arange(count, device=value.device)
    ordered = value.sort(-1).values
    return bool((ordered == places).all()) and not torch.equal(value, ordered)


def _family(
    family: str, shape: tuple[int, ...], spread: float, own: torch.dtype, found: Sequence[float]
) -> torch.Tensor:
    kind = torch.float64 if math.prod(shape) <= MUCH else torch.float32
    normal = torch.randn(shape, dtype=kind)
    if family == "steps":
        halves = min(8, max(1, math.prod(shape) // EQUALS))
        steps = torch.randint(-halves, halves + 1, shape, dtype=kind) / 2
        steps *= torch.randint(0, 2, shape) * 2 - 1  # zeros have signs, too
        if found:
            chosen = torch.tensor(found, dtype=kind)[torch.randint(len(found), shape)]
            steps = torch.where(torch.rand(shape) < CONSTANTS, chosen, steps)
        return _with_even_rows(steps)
    if family == "shifted":
        return spread * (normal + 64)
    if family == "large":
        rows = shape[:1] + (1,) * (len(shape) - 1)
        apart = rows if shape and shape[0] >= ROWS else shape
        reach = SHORT_REACH if own == torch.float16 else REACH
        large = normal * 10 ** (reach * torch.rand(apart, dtype=kind))
        for row, sign in zip(_some_rows(large, 2), (-1, 1), strict=False):
            row.normal_().abs_().add_(1).mul_(sign * 10**reach)
        return large
    if family == FAR:
        places = FAR_LOW + (FAR_HIGH - FAR_LOW) * torch.rand(shape, dtype=kind)
        return normal.sign() * 2.0**places
    if family == "negative":
        return -spread * (normal.abs() + 0.5)
    if family == "small":
        tiny = torch.rand(shape) < TINY
        small = 0.001 * torch.where(tiny, 1e-6, 1.0) * normal
        if own != torch.float16:  # which would lose its digits
            for row, factor in zip(_some_rows(small, 2), (1e-4, 1e-6), strict=False):
                row *= factor
        return _without_a_column(small)
    return spread * normal


def _some_rows(tensor: torch.Tensor, wanted: int) -> list[torch.Tensor]:
    """Return some rows along the first dimension, or else the last: two of fewer than twice `ROWS`,
    none of fewer than that."""
    if tensor.dim() < 2:
        return []
    rows = tensor if len(tensor) >= ROWS else tensor.flatten(0, -2)
    most = wanted if len(rows) >= 2 * ROWS else 2 if len(rows) >= ROWS else 0
    return [rows[int(i)] for i in _places(len(rows), wanted)[:most]]


def _with_even_rows(drawn: torch.Tensor) -> torch.Tensor:
    """Give two or three rows one value each: zero, as in padding, one, and zero again. Zeros keep
    their signs, but the first is negative in one row and positive in the other: of equals it is the
    first that an ``argmax`` returns."""
    for row, value in zip(_some_rows(drawn, 3), (-0.0, 1, 0.0), strict=False):
        if value or not drawn.is_floating_point():
            row.fill_(value)
        else:
            row.mul_(0.0)[..., :1] = value
    return drawn


def _between_steps(drawn: torch.Tensor, level: int, step: float) -> torch.Tensor:
    """Make every second row one of odd halves below a level, which the row has, and the first row
    that level: scaled by the largest of a row, a column or all they lie between two integers.
    Every second of these is in steps of a size that the file names and that divides exactly."""
    if not drawn.is_floating_point() or drawn.dim() < 2 or len(drawn) < ROWS or 0 in drawn.stride():
        return drawn
    if drawn.itemsize == 1 or is_mask(drawn) or bool((drawn == drawn.reshape(-1)[0]).all()):
        return drawn
    even = (drawn == drawn[..., :1]).flatten(1).all(1)  # as `_with_even_rows` has made them
    kept = drawn[even]
    halves = torch.randint(-level, level, drawn[1::2].shape).to(drawn.dtype) + 0.5
    halves[..., 0] = level
    halves[1::2] *= step
    drawn[1::2] = halves
    drawn[0] = level
    drawn[even] = kept
    return drawn


def _share_rows(tensors: list[torch.Tensor]) -> None:
    """Give the last quarter of a tensor's rows to its like, too: two vectors may be equal."""
    first: dict[tuple[Any, ...], torch.Tensor] = {}
    for tensor in tensors:
        if not tensor.is_floating_point() or tensor.dim() < 2 or 0 in tensor.stride():
            continue  # an expanded one has no rows of its own
        like = first.setdefault((tensor.shape, tensor.dtype), tensor)
        shared = len(tensor) // ROWS
        if like is not tensor and shared and not is_mask(tensor) and not is_mask(like):
            tensor[-shared:] = like[-shared:]


def _without_a_column(drawn: torch.Tensor) -> torch.Tensor:
    """Make a column zero, and a channel."""
    for dim in {1, drawn.dim() - 1} if drawn.dim() > 1 else ():
        if drawn.shape[dim] >= ROWS:
            drawn.select(dim, int(torch.randint(drawn.shape[dim], ()))).zero_()
    return drawn


# --- parameters -----------------------------------------------------------------------------

BUFFERS, WIDE = 2**60, 2**61
"""What is added to a seed of parameters to have `tables` move, too; to have all become large."""


def tables(model: nn.Module) -> set[str]:
    """Return the names of the state's buffers that hold integers, or fractions, not all equal.

    A checkpoint may have others. Masks, of numbers that are whole and floating, are no tables.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = ((n, tensor) for n, tensor in model.state_dict().items() if n not in parameters)
    return {name for name, tensor in buffers if _is_table(tensor)}


def _is_table(tensor: torch.Tensor) -> bool:
    if tensor.dtype == torch.bool or tensor.is_complex() or tensor.numel() < 2:
        return False
    if tensor.is_floating_point() and (
        tensor.itemsize == 1 or not tensor.isfinite().all() or (tensor == tensor.round()).all()
    ):
        return False
    return bool((tensor != tensor.reshape(-1)[0]).any())


def redraw_parameters(model: nn.Module, seed: int, flip: bool = True) -> None:
    """Move every parameter, and every constant floating buffer, away from its default.

    A parameter moves by up to half its spread, or half its value where it is constant (half of
    one for zero); one that was never initialised is drawn from [-0.5, 0.5). So variances stay
    positive, and no stage is an identity. With ``flip`` and an odd seed some elements of constant
    parameters, such as scales, change their signs, as training may change them, and some of a mask
    in which all are true become false, as pruning does. Without it a buffer of zeros, which
    may be a variance, moves up alone. With a seed that is 2 modulo 4 constant
    parameters below one become `GROWN` times as large, as slopes and scales may, and others lose a
    row to zero, as pruning has it. From `BUFFERS` on `tables` change as well: fractions move as
    parameters do, and integers change their places. From `WIDE` on all parameters become `FAR_OFF`
    times as large, so that they reach what a reference cuts them off at.
    """
    wide = seed >= WIDE
    others = tables(model) if seed % WIDE >= BUFFERS else set()
    turned, grown = flip and seed % 2 == 1, flip and seed % 4 == 2
    state, parameters = model.state_dict(), dict(model.named_parameters(remove_duplicate=False))
    there = next((tensor.device for tensor in state.values()), torch.device("cpu"))
    generator = torch.Generator(there).manual_seed(seed)
    for name, tensor in state.items():
        if turned and tensor.dtype == torch.bool and tensor.numel() > 1 and tensor.all():
            tensor &= torch.rand(tensor.shape, generator=generator, device=there) < KEPT
        if name in others and not tensor.is_floating_point():
            tensor.copy_(tensor.flip(0))
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        if tensor.dtype.itemsize == 1:  # PyTorch only converts from and to float8
            continue
        kind = torch.float64 if tensor.numel() <= MUCH else torch.float32
        shift = torch.rand(tensor.shape, generator=generator, dtype=kind, device=there) - 0.5
        is_parameter = name in parameters
        if tensor.isnan().any():
            if is_parameter:
                tensor.copy_(shift)
            continue
        low, high = float(tensor.min()), float(tensor.max())
        if low == high:
            scale = abs(low) if low else 1.0
            shift = shift if low or is_parameter or flip else shift.abs()
        elif is_parameter or name in others:
            scale = float(_some(tensor).double().std())
        else:
            continue
        if scale < float("inf"):
            tensor.add_((scale * shift).to(tensor.dtype))
        if wide and is_parameter:
            tensor.mul_(FAR_OFF)
        if grown and is_parameter and low == high and 0 < abs(low) < 1:
            tensor.mul_(GROWN)
        if grown and is_parameter and low < high and tensor.dim() > 1 and len(tensor) >= ROWS:
            tensor[1] = 0
        if turned and is_parameter and low == high:
            signs = torch.randint(0, 2, tensor.shape, generator=generator, device=there) * 2 - 1
            signs.view(-1)[0] = -1  # of a single one, too
            tensor.mul_(signs.to(tensor.dtype))
