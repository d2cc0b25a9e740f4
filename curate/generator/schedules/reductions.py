"""Reductions: over a tile at once, or as a state that each lane carries through a loop.

A state's lanes are combined in closed form, and so are the states of several programs: what
`close` leaves is again a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from curate.generator.body import Body, Dim, identifier
from curate.generator.loops import Loops, equal
from curate.generator.text.operations import TYPES, largest, least, literal
from curate.generator.values import PARTS, Value

NEVER = 2**63 - 1
"""An index behind all others."""


@dataclass(frozen=True)
class Field:
    """A part of a reduction's state: a word for it, its type, what it is before anything came."""

    word: str
    dtype: torch.dtype
    identity: Any

    @property
    def start(self) -> str:
        return literal(self.identity, self.dtype)


def fields(reduce: Value) -> list[Field]:
    """Return the parts of a reduction's state."""
    kind, source, dtype = reduce.name, reduce.args[0].dtype, reduce.dtype
    if kind == "sum":
        return [Field("total", dtype, 0)]
    if kind == "prod":
        return [Field("product", dtype, 1)]
    if kind == "any":
        return [Field("found", torch.int32, 0)]
    if kind == "welford_reduce":
        return [Field(word, dtype, 0) for word in ("mean", "squares", "count")]
    if kind == "online_softmax_reduce":
        return [Field("peak", dtype, least(dtype)), Field("exp_sum", dtype, 0)]
    compared = torch.int32 if source == torch.bool else source
    identity = least(compared) if "max" in kind else largest(compared)
    word = "peak" if "max" in kind else "lowest"
    found = [Field(word, compared, identity)]
    return [*found, Field("index", torch.int64, NEVER)] if kind.startswith("arg") else found


def identity(reduce: Value) -> Any:
    """Return what an element must be to change nothing."""
    if reduce.args[0].dtype == torch.bool and ("max" in reduce.name or "min" in reduce.name):
        return int("min" in reduce.name)
    return fields(reduce)[0].identity


def share_means(loops: Loops) -> None:
    """Have a mean that is a sum by the count be that of the variance of the same numbers."""
    made = list(loops.recorder.made.values())
    variances = {id(v.args[0]): v for v in made if v.name == "welford_reduce"}
    length = loops.extent(loops.reduced)
    for value in made if variances else ():
        total, count = value.args if value.op == "truediv" else (None, None)
        if isinstance(total, Value) and total.name == "sum" and total.op == "reduce":
            size = count.number if count.op == "constant" else count.index
            if id(total.args[0]) in variances and size is not None and equal(size, length):
                value.op, value.number, value.name = "part", 0, ""
                value.args = (variances[id(total.args[0])],)


_REASONS = {
    "welford_reduce": "Welford's method: one pass, and no difference of large sums.",
    "online_softmax_reduce": "Online softmax: a new peak scales down the exponentials so far.",
}
"""Why a state in a loop is as it is."""


def _finite(peak: str) -> str:
    """Return what to take off before exponentials: nothing as long as all there was is -inf."""
    return f'tl.where({peak} == float("-inf"), 0.0, {peak})'


@dataclass
class Reducer:
    """Prints the reductions of one kernel.

    Attributes:
        body: the kernel.
        dim: the way that goes.
        shifts: maxima that are only taken off before exponentials: NaN need not come through them.
    """

    body: Body
    dim: Dim
    shifts: set[int]

    @property
    def axis(self) -> str:
        """The arguments by which Triton reduces."""
        return f"axis={self.dim.tile or 0}{', keep_dims=True' if self.body.rank > 1 else ''}"

    def words(self, reduce: Value) -> list[str]:
        """Return names for the parts of a state: the reference's if it is one number."""
        made, host = self.body.loops.recorder.made.values(), self.body.host
        loads = {host.word(value.name) for value in made if value.op == "load"}
        known = [field.word for field in fields(reduce)]
        own = reduce.word and identifier(reduce.word)
        return [own] if len(known) == 1 and own not in ("", *loads) else known

    def element(self, reduce: Value) -> str:
        """Return the text of what is reduced; it changes nothing where there is no element."""
        text = self.body.filled(reduce.args[0], identity(reduce), self.dim)
        source = reduce.args[0].dtype
        if reduce.name == "any" or (
            source == torch.bool and ("max" in reduce.name or "min" in reduce.name)
        ):
            return f"({text}).to(tl.int32)"
        if source == torch.bool or (reduce.name in ("sum", "prod") and source != reduce.dtype):
            return f"({text}).to({TYPES[reduce.dtype]})"
        return text

    # -- a tile at once ---------------------------------------------------------------------------

    def tile(self, reduce: Value) -> None:
        """Reduce a tile that holds all elements."""
        element = self.element(reduce)
        if reduce.name == "welford_reduce":
            self._moments(reduce, element)
        elif reduce.name == "online_softmax_reduce":
            self.body.exponential(reduce.args[0])
            x = self._variable("logits", element)
            peak = self.body.let("peak", f"tl.max({x}, {self.axis})")
            exponential = f"tl.exp({x} - {peak})"
            again = [v for d in self._less_part(reduce) for v in self._made("exp", d)]
            if again:
                exponential = self.body.let("exponential", exponential)
            for value in again:
                self.body.remember(value, exponential)
            total = self.body.let("exp_sum", f"tl.sum({exponential}, {self.axis})")
            self.known(reduce, [peak, total])
        elif reduce.name.startswith("arg"):
            x = self._variable("candidates", element)
            best = self.body.let("best", self._extreme(reduce, x))
            self.known(reduce, [best, self._place(reduce, x, best, self.dim.name)])
        else:
            name = self.body.let(self.words(reduce)[0], self._lanes(reduce, element))
            self.known(reduce, [name])

    def _moments(self, reduce: Value, element: str) -> None:
        """Print the mean, and then the sum of squares around it."""
        count = self.body.size("n_cols", self.body.loops.extent(self.dim.axes))
        mean = self.body.let("mean", f"tl.sum({element}, {self.axis}) / {count}")
        x = self.body.text(reduce.args[0])
        centered = f"({x} - {mean})"
        if self.dim.mask:
            centered = f"tl.where({self.dim.mask}, {centered}, 0.0)"
        centered = self.body.let("centered", centered)
        for value in self._less_part(reduce):
            self.body.remember(value, centered)
        squares = self.body.let("squares", f"tl.sum({centered} * {centered}, {self.axis})")
        self.known(reduce, [mean, squares, count])

    def _less_part(self, reduce: Value) -> list[Value]:
        """Return the differences between what is reduced and the first part of the result."""
        parts = self.body.loops.recorder.parts_of(reduce)
        first = [part for part in parts if part.number == 0]
        return [v for part in first for v in self._made("sub", reduce.args[0], part)]

    def _made(self, op: str, *args: Value) -> list[Value]:
        made = self.body.loops.recorder.made.values()
        return [v for v in made if v.op == op and list(map(id, v.args)) == list(map(id, args))]

    # -- a state in a loop ------------------------------------------------------------------------

    def begin(self, reduce: Value, shape: str) -> list[str]:
        names = []
        if reduce.name in _REASONS:
            self.body.say(repr(f"# {_REASONS[reduce.name]}"))
        for field, word in zip(fields(reduce), self.words(reduce), strict=True):
            dtype = TYPES[field.dtype]
            start = f"tl.zeros({shape}, {dtype})"
            if field.identity != 0:
                start = f"tl.full({shape}, {field.start}, {dtype})"
            names.append(self.body.let(word, start))
        return names

    def step(self, reduce: Value, state: list[str]) -> None:
        """Take in the elements at hand."""
        body, kind = self.body, reduce.name
        say = body.say
        if kind == "welford_reduce":
            x = body.name(reduce.args[0])
            mean, squares, count = state
            mask = self.dim.mask
            chosen = (
                (lambda text: f"tl.where({mask}, {text}, 0.0)") if mask else (lambda text: text)
            )
            say(f"{count} += {f'({mask}).to({TYPES[reduce.dtype]})' if mask else '1.0'}")
            delta = body.let("delta", chosen(f"({x} - {mean})"))
            say(f"{mean} += {delta} / tl.maximum({count}, 1.0)")
            say(f"{squares} += {chosen(f'({delta} * ({x} - {mean}))')}")
            return
        element = self.element(reduce)
        if kind == "online_softmax_reduce":
            self.body.exponential(reduce.args[0])
            x = self._variable("logits", element)
            peak, total = state
            new = self.body.let("new_peak", f"tl.maximum({peak}, {x})")
            shift = self.body.let("shift", _finite(new))
            say(f"{total} = {total} * tl.exp({peak} - {shift}) + tl.exp({x} - {shift})")
            say(f"{peak} = {new}")
        elif kind.startswith("arg"):
            x = self._variable("candidates", element)
            best, index = state
            better = f"({x} {'>' if 'max' in kind else '<'} {best})"
            if reduce.args[0].dtype.is_floating_point:
                better = f"({better} | (({x} != {x}) & ({best} == {best})))"
            better = (
                f"({better} | (({index} == {NEVER}) & ({self.dim.mask})))"
                if self.dim.mask
                else better
            )
            better = self.body.let("better", better)
            say(f"{best} = tl.where({better}, {x}, {best})")
            say(f"{index} = tl.where({better}, {self.dim.name}, {index})")
        elif kind in ("sum", "prod"):
            say(f"{state[0]} {'+' if kind == 'sum' else '*'}= {element}")
        elif kind == "any":
            say(f"{state[0]} |= {element}")
        else:
            nan = ""
            if reduce.args[0].dtype.is_floating_point and id(reduce) not in self.shifts:
                nan = ", propagate_nan=tl.PropagateNan.ALL"
            extreme = "maximum" if kind == "max" else "minimum"
            say(f"{state[0]} = tl.{extreme}({state[0]}, {element}{nan})")

    def close(self, reduce: Value, state: list[str]) -> list[str]:
        """Combine the lanes of a state; what is left is a state of one lane."""
        kind = reduce.name
        if kind == "welford_reduce":
            mean, squares, count = state
            n = self.body.let("n", f"tl.sum({count}, {self.axis})")
            center = self.body.let("center", f"tl.sum({mean} * {count}, {self.axis}) / {n}")
            shift = self.body.let("shift", f"{mean} - {center}")
            around = f"tl.sum({squares} + {count} * {shift} * {shift}, {self.axis})"
            return [center, self.body.let("squares", around), n]
        if kind == "online_softmax_reduce":
            peak, total = state
            top = self.body.let("peak", f"tl.max({peak}, {self.axis})")
            shift = self.body.let("shift", _finite(top))
            share = f"{total} * tl.exp({peak} - {shift})"
            return [top, self.body.let("exp_sum", f"tl.sum({share}, {self.axis})")]
        if kind.startswith("arg"):
            best = self.body.let("best", self._extreme(reduce, state[0]))
            return [best, self._place(reduce, state[0], best, state[1])]
        return [self.body.let(self.words(reduce)[0], self._lanes(reduce, state[0]))]

    # -- results ----------------------------------------------------------------------------------

    def known(self, reduce: Value, state: list[str]) -> None:
        """Say what a reduction's results are, now that its state is complete."""
        body = self.body
        if reduce.name in PARTS:
            for value in body.loops.recorder.parts_of(reduce):
                body.leaf(value, state[value.number])
            body.leaf(reduce, state[0])
            return
        result = state[-1]
        if reduce.dtype == torch.bool or reduce.name == "any":
            result = f"({result} != 0)"
        elif reduce.name.startswith("arg"):
            result = f"({result}).to(tl.int64)"
        body.leaf(reduce, result)

    def _extreme(self, reduce: Value, x: str) -> str:
        largest_wanted = "max" in reduce.name
        dtype = reduce.args[0].dtype
        if dtype.is_floating_point and id(reduce) not in self.shifts:
            helper = "nan_maximum" if largest_wanted else "nan_minimum"
            return self._with(helper, x)
        return f"tl.{'max' if largest_wanted else 'min'}({x}, {self.axis})"

    def _place(self, reduce: Value, x: str, best: str, index: str) -> str:
        """Return the name of the first index of the best number."""
        match = f"({x} == {best})"
        if reduce.args[0].dtype.is_floating_point:
            match = f"({match} | (({x} != {x}) & ({best} != {best})))"
        if index == self.dim.name and self.dim.mask:
            match = f"({match} & {self.dim.mask})"
        if index == self.dim.name:
            index = f"({index}).to(tl.int64)"
        first = f"tl.min(tl.where({match}, {index}, {NEVER}), {self.axis})"
        return self.body.let("first", first)

    def _lanes(self, reduce: Value, x: str) -> str:
        if reduce.name == "sum":
            return f"tl.sum({x}, {self.axis})"
        if reduce.name == "prod":
            return self._with("multiply", x)
        if reduce.name == "any":
            return f"tl.max({x}, {self.axis})"
        return self._extreme(reduce, x)

    def _with(self, helper: str, x: str) -> str:
        self.body.helpers.add(helper)
        axis, comma, keep = self.axis.removeprefix("axis=").partition(", ")
        return f"tl.reduce({x}, {axis}, {helper}{comma}{keep})"

    def _variable(self, word: str, text: str) -> str:
        return text if text.isidentifier() else self.body.let(word, text)
