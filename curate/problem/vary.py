"""Which other sizes, arguments and ranks a program is tried on: those that the reference takes.

A change is one that a caller may make if the reference takes it, and if it shows in the output or
the state. As many changes as go together are made in one draw, so that a program is tried on few.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from collections.abc import Callable
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any

from curate.problem.draw import (
    INFINITE,
    LEFT_OUT,
    NONES,
    TYPES,
    Draw,
    Variation,
    defaults,
    free_sizes,
    is_list,
    named_sizes,
    retyped,
)
from curate.problem.problem import LoadedTask
from curate.problem.values import contents, count_elements, list_tensors, same_tensors

MOST_DRAWS = 2
"""Draws over which changes are spread that do not go together."""

GROWTH, ANY = 3, 2**14
"""How many times as many elements as the file's inputs a draw's inputs may have, and how many in
any case."""


GROWN = 2**27
"""Elements up to which inputs may grow."""

LARGE = 1000
"""An integer that one more may change too little."""

FAR_ABOVE = 293, 37
"""What is added to integers of the constructor, the first that the reference takes: as a diagonal,
a lag, or a shift, beyond a block or beyond the dimension."""

LONG = (131_101, 70_001, 33_001, 4_099, 1_031, 203)
"""What a dimension becomes to have a program take its way for long ones, the first that is little
enough work: usual limits are 4,096 elements in a tile, 32,768 in a block, or half of the
dimension, and 65,535 in 16 bits. The last is for dimensions that are long together, as those of an
image may be."""

SHORT = (3, 2, 4, 8, 16)
"""What the other dimensions become then, the first that the reference takes."""

LONG_ELEMENTS, LONG_BYTES = 2**21, 2**25
"""How many elements inputs and parameters may have then, and how many bytes the reference's
operators may read and write."""

LONG_CALLS = 2**12
"""Operators that the reference may call then: a recurrence calls some for each step."""

SOME_ELEMENTS, SOME_BYTES = 2**19, 2**23
"""The same where no branch or axis of a grid asks for a long dimension."""


WORDS = (
    ("mean", "sum", "none", "batchmean"),
    ("none", "tanh"),
    ("zeros", "reflect", "replicate", "circular"),
    ("constant", "reflect", "replicate", "circular"),
    ("relu", "gelu", "silu", "tanh", "sigmoid"),
    ("nearest", "bilinear", "bicubic", "area"),
    ("max", "sum", "mean"),
)
"""Words that PyTorch and modules take one for another."""

NAMES_FLOAT32 = re.compile(r"\.float\(|\btorch\.float(32)?\b")
"""What converts to 32 bits in a file: inputs of 64 are then computed with no more."""

ORDERS = "p", "ord", "order", "norm_type"
"""Names of arguments that may be infinite, as the order of a norm."""

AXES = "dim", "axis"
"""Names of arguments that may be counted from the last axis, too."""

FEW_OF = 3
"""The size that dimensions of size one get, all of them."""

EVEN = 128, 64
"""Sizes that common blocks divide, the first that is little enough."""

HALVES = 72, 40
"""Even sizes that they do not divide: a section is full, and a block is not."""


def find_variants(
    task: LoadedTask,
    draw: Draw,
    inputs: list[Any],
    forward: Callable[[Draw, int], Any],
    constructor: bool,
    more: bool,
) -> dict[str, list[Draw]]:
    """Return draws with changes that the reference takes, by what is changed.

    Args:
        task: the problem.
        draw: what is changed.
        inputs: of that draw.
        forward: returns the reference's output and state for a draw, or raises; None for inputs of
            more than so many elements.
        constructor: whether its arguments are changed as well.
        more: whether there is time for more arguments, and for other types.
    """
    own = count_elements(inputs)
    most = max(ANY, own, min(GROWTH * own, GROWN))

    def run(tried: Draw) -> Any:
        try:
            return forward(tried, most)
        except Exception:
            return None

    def packed(*choices: list[Variation]) -> list[Draw]:
        return _packed(draw, list(choices), run, usual)

    usual = run(draw)
    ranks = [tensor.dim() for tensor in list_tensors(inputs)]
    rank = max(ranks, default=0)
    edges = [_edges(task, inputs, constructor, is_high) for is_high in (False, True)]
    arguments, called = _arguments(task, inputs) if constructor else [], _inputs(task, inputs)
    near = packed(*arguments) + packed(*called)
    words = _words([*arguments, *called])
    found = {
        # Inputs are of one sign, then of the other: behind the last column stands a zero, which a
        # maximum or a minimum may take.
        "sizes": [
            found.of(family)
            for family, few in (("shifted", True), ("negative", False))
            for found in packed(*_sizes(task, inputs, few))[:1]
        ]
        # Whoever asks for a size by its value, or leaves out a last block that is full, is right on
        # sizes that differ and are odd.
        + [
            found.of("signed")
            for sizes in (EVEN, HALVES, (1,))
            for found in packed(*_equal(task, inputs, *sizes))[:1]
        ]
        # What there is one of in the file, as a section of a filter, there may be more of.
        + [found.of("signed") for found in packed([Variation("dimension", 0, FEW_OF, 1)])]
        # Operands may be broadcast to each other.
        + [
            found.of("signed")
            for axis in (_axes_of(rank) if ranks.count(rank) > 1 < rank else ())
            for found in packed([Variation("others", axis, 1)])
        ],
        "arguments": [
            *near,
            *packed(*(_special_arguments(task) if constructor else ())),
            *packed(*_left_out("input", task.module.Model.forward, len(inputs))),
            # What a number guards against shows where inputs are far from zero.
            *(
                few.of("large")
                for some in edges
                for few in _packed(draw, some, run, usual, are_edges=True)
            ),
        ],
        "ranks": packed([Variation("rank", 0, 2)])
        + (packed([Variation("rank", 0, 0)]) if rank > 1 else [])
        + (packed([Variation("broadcast", 0, 1)]) if any(0 < r < rank for r in ranks) else []),
    }
    if more:
        found["more arguments"] = packed(*_others_than(near, arguments))[:1]
        alone = [some for word in words for some in _others_than(near, [word])]
        tried = [draw.changes for draw in near]
        alone += [flag for flag in _flags([*arguments, *called]) if (*flag,) not in tried]
        found["more arguments"] += [few for one in alone for few in packed(one)]
        # Where PyTorch takes two types, a kernel may read one as the other.
        made = {tuple(tensor.dtype for tensor in list_tensors(inputs)): ""}
        for which in TYPES:
            if not (which == "float64" and NAMES_FLOAT32.search(task.source)):
                kinds = tuple(tensor.dtype for tensor in list_tensors(retyped(inputs, [which])))
                made.setdefault(kinds, which)
        types = [[Variation("type", which, True)] for which in made.values() if which]
        found["types"] = [
            d.of("signed" if change[0].which == "float64" else "large")
            for change in types
            for d in packed(change)
        ]
    return found


def _axes_of(rank: int) -> list[int]:
    """Return the last axis, the first, and that of channels, from the end."""
    return list(dict.fromkeys((-1, -rank, 1 - rank)))


def _packed(
    draw: Draw,
    choices: list[list[Variation]],
    run: Callable[[Draw], Any],
    usual: Any,
    are_edges: bool = False,
) -> list[Draw]:
    """Return draws with one change of each of the lists, as few as the reference takes together.

    Args:
        draw: what is changed.
        choices: changes to choose from; the first that shows is taken.
        run: returns what the reference gives, or None.
        usual: what it gives for the draw as it is.
        are_edges: whether they are those of `_edges`: an integer below zero is no axis, and nothing
            may be left empty.
    """
    found: list[Draw] = []
    left = choices
    while left and len(found) < MOST_DRAWS:
        packed, before = draw, usual
        alone: list[list[Variation]] = []
        refused: list[list[Variation]] = []
        for choice in left:
            if added := _added(packed, choice, run, before, are_edges):
                packed, before = added
            else:  # on its own it may do, or beside those that follow
                (alone if packed == draw else refused).append(choice)
        if packed == draw:
            break
        for choice in alone:  # as a flag of a pooling that has no padding in the file
            if added := _added(packed, choice, run, before, are_edges):
                packed, before = added
        found.append(packed)
        left = refused
    return found


def _added(
    packed: Draw,
    choice: list[Variation],
    run: Callable[[Draw], Any],
    before: Any,
    are_edges: bool,
) -> tuple[Draw, Any] | None:
    """Return a draw with the first change that shows in what the reference gives, and that."""
    for change in choice:
        tried = dataclasses.replace(packed, changes=(*packed.changes, change))
        after = run(tried)
        if after is None or (are_edges and not all(t.numel() for t in list_tensors(after))):
            continue
        same = not are_edges and _says_the_same(change)
        if same or not same_tensors(after, before):
            return tried, after
    return None


def _says_the_same(change: Variation) -> bool:
    """Whether it only says otherwise what the file says: an axis from the end, another type, or a
    default, which may be another one in the program."""
    value = change.value if change.what in ("argument", "input") else None
    is_left = change.what == "input" and change.value == LEFT_OUT
    return change.what == "type" or is_left or (type(value) is int and value < 0)


def _sizes(task: LoadedTask, inputs: list[Any], few: bool) -> list[list[Variation]]:
    """Return what sizes may become: first the one of the batch, then the others.

    A larger size is more than twice as large: a program that knows its size by heart does not
    reach it; the last one five times, if that is not too much. Odd sizes are tried before even
    ones. Where axes have one size, each becomes small on its own; and others in the first input
    alone, as of queries and keys, or rows of a product.

    Args:
        few: whether the first becomes small and the others larger; or else the other way round.
    """
    shapes = [tuple(tensor.shape) for tensor in list_tensors(inputs) if tensor.dim()]
    free = _free(task, shapes)
    longest = max(shapes, key=len, default=())
    choices = []
    for number, (what, which, own) in enumerate(free):
        small = 3 + 2 * number
        values = [small, small + 1] if (number == 0) == few else [2 * own + 1, 2 * own]
        axes = [-i for i in range(1, len(longest) + (what == "size")) if longest[-i] == own]
        if few and number and axes == [-1]:
            values = [5 * own + 1, *values]
        dimension = None if what == "size" else own
        usual = [Variation(what, which, new, dimension) for new in values if new != own]
        if few or what == "leading" or len(axes) < 2:
            choices.append(usual)
            continue
        for axis in axes:
            alone = [Variation("axis", axis, size - 2 * axis) for size in values]
            choices.append([*alone, *usual])
    if few and longest and longest[-1] > 1 and longest.count(longest[-1]) > 1:
        choices.append([Variation("axis", -1, 5 * longest[-1] + 1)])
    if not few and len(shapes) > 1:
        shared = [-i for i, n in enumerate(reversed(longest), 1) if sum(shapes, ()).count(n) > 1]
        choices += [[Variation("first", axis, 23 - 2 * axis)] for axis in shared]
    return choices


def _free(task: LoadedTask, shapes: list[tuple[int, ...]]) -> list[tuple[str, str | int, int]]:
    """Return what may become another size, first that of the batch: the kind of change, what it
    changes, and the file's own size."""
    named = {name: getattr(task.module, name) for name in free_sizes(task)}
    free: list[tuple[str, str | int, int]] = [("size", *item) for item in named.items()]
    if not named:
        free += [("leading", 0, shape[0]) for shape in shapes[:1]]
    others = dict.fromkeys(size for shape in shapes for size in shape)
    return free + [("dimension", 0, n) for n in others if n > 1 and n not in named.values()]


def _equal(task: LoadedTask, inputs: list[Any], *sizes: int) -> list[list[Variation]]:
    """Return changes of all sizes to the first that will do; the batch is not made one."""
    shapes = [tuple(tensor.shape) for tensor in list_tensors(inputs) if tensor.dim()]
    free = _free(task, shapes)
    kept = [*sizes, free[0][2]] if sizes == (1,) and free else sizes
    return [
        [Variation(what, which, size, None if what == "size" else own) for size in sizes]
        for what, which, own in free
        if own not in kept
    ]


def _arguments(task: LoadedTask, inputs: list[Any]) -> list[list[Variation]]:
    """Return what the constructor's numbers may become; flags first, on which others depend."""
    known = {size for tensor in list_tensors(inputs) for size in tensor.shape}
    choices = []
    init = task.init_inputs()
    constructor = task.module.Model.__init__
    whole = [*init, *defaults(constructor, len(init))]
    axes, words = _axes(constructor), _compared_words(task.source)
    named = {str(i): own for i, own in enumerate(whole)}
    for name, own in contents(named, (SimpleNamespace, dict)):
        i = int(name) if name.isdigit() else name
        if type(own) in (tuple, list) and own and {*map(type, own)} in ({int}, {float}):
            for place, one in enumerate(own[:-1][:3]):  # not all the same
                others = list(dict.fromkeys(reversed(_others(one))))
                others = others[place:] + others[:place]
                choices.append([Variation("argument", f"{name}.{place}", v) for v in others])
            i, own = f"{name}.{len(own) - 1}", own[-1]
        made = _from_the_end("argument", i, own, inputs) if i in axes else []
        others = _others(own) if own is not None else [0.5, 2]
        worded = own is None or type(own) is str
        others += [w for w in words if worded and w not in (own, *others)]
        for value in others:
            made.append(Variation("argument", i, value))
            if type(own) is int and own in known and int(value) > 0:
                made.append(Variation("argument", i, value, own))
        choices.append(made)
    return sorted(choices, key=lambda made: not (made and type(made[0].value) is bool))


def _others_than(found: list[Draw], choices: list[list[Variation]]) -> list[list[Variation]]:
    """Return what is left of some choices: what no draw has yet, the last first."""
    known = {change for draw in found for change in draw.changes}
    left = ([c for c in reversed(choice) if c not in known] for choice in choices)
    return [choice for choice in left if choice]


def _words(choices: list[list[Variation]]) -> list[list[Variation]]:
    """Return the words among some choices, each alone: there are few, and each is tried."""
    return [
        [c] for choice in choices for c in choice if type(c.value) is str and c.value not in NONES
    ]


def _flags(choices: list[list[Variation]]) -> list[list[Variation]]:
    """Return the flags among some choices, each alone, where there are several: one may say nothing
    while another is not as in the file."""
    flags = [[c] for choice in choices for c in choice if type(c.value) is bool]
    return flags if len(flags) > 1 else []


def _special_arguments(task: LoadedTask) -> list[list[Variation]]:
    """Return the constructor's arguments that may be left out or be infinite, and those that are
    None and may be a place, counted from the end."""
    init, constructor = task.init_inputs(), task.module.Model.__init__
    known = list(inspect.signature(constructor).parameters.values())[1:][: len(init)]
    orders = [i for i, one in enumerate(known) if one.name in ORDERS and type(init[i]) is float]
    nones = [i for i, own in enumerate([*init, *defaults(constructor, len(init))]) if own is None]
    return [
        *([Variation("argument", i, -1)] for i in nones),
        *_left_out("argument", constructor, len(init)),
        *([Variation("argument", i, INFINITE)] for i in orders),
    ]


def _left_out(what: str, function: Callable[..., Any], given: int) -> list[list[Variation]]:
    """Return that the first of the arguments which have a default is left to it, if it is given."""
    known = list(inspect.signature(function).parameters.values())[1:][:given]
    optional = [i for i, one in enumerate(known) if one.default is not one.empty]
    return [[Variation(what, i, LEFT_OUT)] for i in optional[:1]]


def _edges(
    task: LoadedTask, inputs: list[Any], constructor: bool, is_high: bool
) -> list[list[Variation]]:
    """Return what numbers may become that are unlike the file's: zero, or below; or far above."""
    model, init = task.module.Model, task.init_inputs()
    given = [*init, *defaults(model.__init__, len(init))] if constructor else []
    called = [*inputs, *defaults(model.forward, len(inputs))]
    numbers = [("argument", i, own) for i, own in enumerate(given)]
    numbers += [("input", i, own) for i, own in enumerate(called)]
    return [[Variation(what, i, new) for new in _far(own, is_high)] for what, i, own in numbers]


def _far(own: Any, is_high: bool) -> list[int | float]:
    if type(own) is int:
        return [own + far for far in FAR_ABOVE] if is_high else [-max(1, abs(own)), 0]
    if type(own) is float and math.isfinite(own):
        values = [1.5 if abs(own) < 1 else -own, 1.0] if is_high else [0.0, -own]
        return [value for value in values if value != own]
    return []


def _compared_words(source: str) -> list[str]:
    """Return the words that a file compares something with."""
    compared = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Compare))
    sides = (side for n in compared for one in (n.left, *n.comparators) for side in ast.walk(one))
    words = [s.value for s in sides if isinstance(s, ast.Constant) and isinstance(s.value, str)]
    return list(dict.fromkeys(words))


def _inputs(task: LoadedTask, inputs: list[Any]) -> list[list[Variation]]:
    """Return what plain numbers among the inputs may become, other lengths of lists, and what is
    left to its default."""
    choices = []
    optional = defaults(task.module.Model.forward, len(inputs))
    has_floats = any(tensor.is_floating_point() for tensor in list_tensors(inputs))
    axes, words = _axes(task.module.Model.forward), _compared_words(task.source)
    for i, own in enumerate([*inputs, *optional]):
        values = [len(own) + 1, len(own) - 1] if is_list(own) else _others(own)
        if own is None:
            values = [*(NONES if has_floats else ()), 0.5, 1]
        if own is None or type(own) is str:
            values += [word for word in words if word not in (own, *values)]
        made = _from_the_end("input", i, own, inputs) if i in axes else []
        choices.append(made + [Variation("input", i, value) for value in values])
    return choices


def _axes(function: Callable[..., Any]) -> list[int]:
    """Return the positions of a method's arguments that are axes, by their names."""
    names = list(inspect.signature(function).parameters)[1:]
    return [i for i, name in enumerate(names) if name in AXES]


def _from_the_end(what: str, which: int, axis: Any, inputs: list[Any]) -> list[Variation]:
    """Return the same axis of the inputs, counted from the end."""
    most = max((tensor.dim() for tensor in list_tensors(inputs)), default=0)
    known = type(axis) is int and 0 <= axis < most
    return [Variation(what, which, axis - most)] if known else []


def _others(own: Any) -> list[Any]:
    """Return other numbers than one, or other words; none for what is neither."""
    if type(own) is bool:
        return [not own]
    if type(own) is int:
        values = (own + 1, 2 * own, own // 2)[:: 1 if own < LARGE else -1]
        return [value for value in (*values, 2, own + own // 2) if value != own]
    if type(own) is str:
        return [word for words in WORDS if own in words for word in words if word != own]
    if type(own) is float and math.isfinite(own):
        far = 10 * own if abs(own) <= 1 else 1.3 * own
        return [own + 0.25 if abs(own) <= 0.5 else 0.75 * own, 2 * own, 0.02, far]
    return []


# --- long dimensions ------------------------------------------------------------------------

Change = tuple[Variation, ...]
"""Variations that belong together."""


@dataclasses.dataclass(frozen=True)
class DrawCost:
    """What a draw takes: elements of inputs and parameters, and bytes that operators handle."""

    elements: float
    call_bytes: float


class LongDraws:
    """Draws in which one dimension of the inputs is long."""

    def __init__(
        self,
        task: LoadedTask,
        draw: Draw,
        inputs: list[Any],
        cost: Callable[[Draw], DrawCost | None],
    ) -> None:
        """Take note of a draw of the file's own sizes.

        Args:
            task: the problem.
            draw: what is changed.
            inputs: of that draw.
            cost: returns what a draw takes, or None where the reference does not take it.
        """
        self.draw, self.cost = draw, cache(cost)
        self.dimensions = _dimensions(task, inputs)

    def find(
        self, number: int, short: bool, few: bool = False, longest: int = LONG[0]
    ) -> Draw | None:
        """Return a draw in which one dimension is long, if the reference takes one.

        Args:
            number: of the dimension, the last one's is 0.
            short: whether the others are short, and not as in the file.
            few: whether it may take little work only.
            longest: the first of `LONG` that is tried.
        """
        elements, call_bytes = (SOME_ELEMENTS, SOME_BYTES) if few else (LONG_ELEMENTS, LONG_BYTES)
        own, ways = self.dimensions[number]
        others = [c for n, c in enumerate(self._short) if n != number] if short else []

        def fits(draw: Draw) -> bool:
            cost = self.cost(draw)
            return bool(cost and cost.elements <= elements and cost.call_bytes <= call_bytes)

        found = None
        for long in reversed(LONG[LONG.index(longest) :]):
            sizes = [size for size in (long, own * -(-long // own)) if size > own]
            draws = [self._changed(*others, way) for size in sizes for way in ways(size)]
            fitting = next(filter(fits, draws), None)
            if fitting is None and any(map(self.cost, draws)):  # what is longer is too much as well
                break
            found = fitting or found
        return found

    @cached_property
    def _short(self) -> list[Change]:
        """Changes that make every dimension short together, as far as the reference takes that."""
        found: list[Change] = []
        for own, ways in self.dimensions:
            tried = (way for size in SHORT if size < own for way in ways(size))
            found.append(next((way for way in tried if self.cost(self._changed(*found, way))), ()))
        return found

    def _changed(self, *changes: Change) -> Draw:
        return dataclasses.replace(self.draw, changes=tuple(v for few in changes for v in few))


Ways = Callable[[int], list[Change]]
"""Returns changes that may give a dimension a size; the reference takes some of them or none."""


def _dimensions(task: LoadedTask, inputs: list[Any]) -> list[tuple[int, Ways]]:
    """Return the dimensions of the inputs that may have other sizes, each with its own size.

    They are the file's names for sizes, the last one first, axes of the input of most dimensions
    that have no name, or may share one, with numbers of the constructor that are equal to them, or
    without, and sizes that only other inputs have.
    """
    free = free_sizes(task)
    names = named_sizes(task)[::-1]
    found = [_named(task, name, "size" if name in free else "constant") for name in names]
    shapes = [tuple(tensor.shape) for tensor in list_tensors(inputs) if tensor.dim()]
    longest = max(shapes, key=len, default=())
    init = task.init_inputs()
    numbers = [*init, *defaults(task.module.Model.__init__, len(init))]
    known = [getattr(task.module, name) for name in names]
    for axis, own in zip(range(-1, -len(longest) - 1, -1), reversed(longest), strict=True):
        if own not in known or longest.count(own) > 1:
            equal = [i for i, n in enumerate(numbers) if type(n) is int and n == own]
            # What has a name becomes short by its name.
            found.append((1 if own in known else own, _axis(axis, own, equal)))
    others = dict.fromkeys(size for shape in shapes for size in shape if size > 1)
    return found + [(n, _size(n)) for n in others if n not in (*known, *longest)]


def _named(task: LoadedTask, name: str, what: str) -> tuple[int, Ways]:
    return getattr(task.module, name), lambda size: [(Variation(what, name, size),)]


def _size(own: int) -> Ways:
    return lambda size: [(Variation("dimension", 0, size, own),)]


def _axis(axis: int, own: int, arguments: list[int]) -> Ways:
    def ways(size: int) -> list[Change]:
        places = Variation("axis", axis, size), Variation("dimension", 0, size, own)
        numbers = [Variation("argument", i, size) for i in arguments]
        some = [(), *((one,) for one in numbers), tuple(numbers)]
        return [(place, *few) for place in places for few in dict.fromkeys(some)]

    return ways
