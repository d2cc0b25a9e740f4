"""Scans of a tile, with what came before it as a carry through the loop over tiles; and sorts.

A sort is of numbers with their indices behind them, as one integer of 64 bits: equal numbers stay
in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from curate.generator.body import Body, Dim
from curate.generator.text.operations import TYPES, largest, least, literal
from curate.generator.unprintable import Unprintable
from curate.generator.values import Value, made_of


@dataclass(frozen=True)
class Kind:
    """How a scan is written.

    Attributes:
        words: for each result.
        scan: a tile's scan, of ``{x}`` along ``{axis}``.
        total: a tile's total, of ``{x}`` along ``{axis}``; ``{keep}`` says that axes stay.
        closing: the function that ``total`` calls, or "".
        operator: what joins what came before and what comes, or "".
        helper: the function that joins them, or "".
    """

    words: tuple[str, ...]
    scan: str
    total: str
    closing: str = ""
    operator: str = ""
    helper: str = ""

    def join(self, before: str, x: str) -> str:
        """Return the text of what came before and what comes as one."""
        return f"{self.helper}({before}, {x})" if self.helper else f"{before} {self.operator} {x}"


def _reduced(helper: str) -> tuple[str, str]:
    return f"tl.reduce({{x}}, {{axis}}, {helper}{{keep}})", helper


def _with(helper: str, closing: str, *words: str) -> Kind:
    scan = f"tl.associative_scan({'({x})' if len(words) > 1 else '{x}'}, {{axis}}, {helper})"
    return Kind(words, scan, *_reduced(closing), helper=helper)


KINDS = {
    "sum": Kind(("sum",), "tl.cumsum({x}, {axis})", "tl.sum({x}, {axis}{keep})", operator="+"),
    "prod": Kind(("product",), "tl.cumprod({x}, {axis})", *_reduced("multiply"), operator="*"),
    "logsumexp": _with("log_add_exp", "log_add_exp", "logsumexp"),
    "max": _with("later_maximum", "nan_maximum", "maximum", "index"),
    "min": _with("later_minimum", "nan_minimum", "minimum", "index"),
}


def start_of(scan: Value, dtype: torch.dtype) -> str:
    """Return what a carry is before anything came."""
    if scan.name in ("sum", "prod"):
        return literal(int(scan.name == "prod"), dtype)
    return literal(largest(dtype) if scan.name == "min" else least(dtype), dtype)


def type_of(scan: Value, arg: Value) -> torch.dtype:
    """Return what is scanned in: a product that overflows on the way may come back."""
    if arg.dtype == torch.bool:
        return torch.int32
    return torch.float64 if (scan.name, arg.dtype) == ("prod", torch.float32) else arg.dtype


def scanned(roots: Iterable[Value]) -> list[Value]:
    """Return the scans and sorts that some values are made of, those first that others wait for."""
    return [value for value in made_of(roots) if value.op in ("scan", "sort")]


class Scanner:
    """Prints the scans of one loop along a dim; and the scans and sorts of a tile that holds all.

    The lanes behind the last element come last, so that nothing has to be filled in for them.

    Args:
        body: the kernel.
        dim: the way that the loop goes.
        shape: the tile's.
        walked: values of which the loop does the scans.
        before: for each of these scans the texts of what came before the loop, if anything did.
    """

    def __init__(
        self,
        body: Body,
        dim: Dim,
        shape: str,
        walked: Iterable[Value] = (),
        before: dict[int, list[str]] | None = None,
    ) -> None:
        self.body = body
        self.dim = dim
        self.axis = dim.tile or 0
        self.shape = shape
        self.carries: dict[int, list[str]] = {}
        body.scan = self.scan
        sizes = shape.strip("[]").split(", ")
        self.block = sizes[self.axis]
        sizes[self.axis] = "1"
        one = f"[{', '.join(sizes)}]" if len(sizes) > 1 else "[]"
        self.keep = ", keep_dims=True" if len(sizes) > 1 else ""
        for scan in scanned(walked):
            words = [f"{word}_before" for word in KINDS[scan.name].words]
            known = (before or {}).get(id(scan))
            self.carries[id(scan)] = self._begin(scan, words, one, known)

    def _begin(
        self, scan: Value, words: Iterable[str], shape: str, known: list[str] | None = None
    ) -> list[str]:
        """Print what a scan begins with, and return the variables that hold it."""
        types = [type_of(scan, arg) for arg in scan.args]
        texts = [f"tl.full({shape}, {start_of(scan, t)}, {TYPES[t]})" for t in types]
        return list(map(self.body.let, words, known or texts))

    def scan(self, scan: Value) -> list[str]:
        """Print a tile's scan and the carry behind it; return the names of the results."""
        if scan.op == "sort":
            return self._remembered(scan, self._sort(scan))
        body, kind = self.body, KINDS[scan.name]
        body.helpers |= {kind.helper} - {""}
        given = ", ".join(self._operand(scan, arg) for arg in scan.args)
        names = [body.fresh(f"running_{word}") for word in kind.words]
        tile, results = kind.scan.format(x=given, axis=self.axis), ", ".join(names)
        if kind.helper:
            body.say(f"{results} = {tile}")
            tile = results
        if id(scan) in self.carries:
            self._carry(scan, kind, names, given, tile)
        elif not kind.helper:
            body.say(f"{results} = {tile}")
        if type_of(scan, scan) != scan.dtype:
            body.say(f"{names[0]} = {names[0]}.to({TYPES[scan.dtype]})")
        return self._remembered(scan, names)

    def _carry(self, scan: Value, kind: Kind, names: list[str], given: str, tile: str) -> None:
        """Join a tile's scan with what came before, and keep what comes before the next."""
        body, carries = self.body, self.carries[id(scan)]
        body.say(f"{', '.join(names)} = {kind.join(', '.join(carries), tile)}")
        if scan.name == "sum":
            body.say(f"{carries[0]} += {self._total(kind, given)}")
        else:
            last = body.let("last", f"{self.dim.name} == start + {self.block} - 1")
            for carry, name in zip(carries, names, strict=True):
                body.say(f"{carry} = tl.sum(tl.where({last}, {name}, 0), {self.axis}{self.keep})")

    # -- the total of all that a loop goes through ------------------------------------------------

    def begin(self, scan: Value) -> list[str]:
        """Print and return what holds the totals of lanes."""
        return self._begin(scan, KINDS[scan.name].words, self.shape)

    def step(self, scan: Value, state: list[str]) -> None:
        """Take in the elements at hand."""
        kind, totals = KINDS[scan.name], ", ".join(state)
        given = ", ".join(self._typed(scan, arg) for arg in scan.args)
        self.body.helpers |= {kind.helper} - {""}
        joined = f"= {kind.join(totals, given)}" if kind.helper else f"{kind.operator}= {given}"
        self.body.say(f"{totals} {joined}")

    def close(self, scan: Value, state: list[str]) -> list[str]:
        """Return the texts of the total of all lanes."""
        body, kind = self.body, KINDS[scan.name]
        body.helpers |= {kind.closing} - {""}
        if len(state) == 1:
            return [self._total(kind, state[0])]
        best, index = body.let("best", self._total(kind, state[0])), state[1]
        found = f"({state[0]} == {best})"
        if scan.dtype.is_floating_point:
            found = f"{found} | ({state[0]} != {state[0]})"
        return [best, f"tl.max(tl.where({found}, {index}, -1), {self.axis}{self.keep})"]

    def _total(self, kind: Kind, x: str) -> str:
        return kind.total.format(x=x, axis=self.axis, keep=self.keep)

    def _remembered(self, scan: Value, names: list[str]) -> list[str]:
        body = self.body
        for value in [scan, *body.loops.recorder.parts_of(scan)]:
            body.remember(value, names[value.number or 0])
        return names

    def _sort(self, sort: Value) -> list[str]:
        """Print a tile's sort and return the names of the numbers and of their indices."""
        body, source, down = self.body, sort.args[0], sort.name == "descending"
        x, floating = self._operand(sort, source), source.dtype == torch.float32
        if source.dtype in (torch.int64, torch.float64):
            raise Unprintable(f"a sort of {source.dtype}")
        if floating:
            body.helpers |= {"sort_key", "from_sort_key"}
        key = f"sort_key({x})" if floating else x
        body.say("# A number and its index are one integer, so that equal numbers stay in order.")
        packed, values, index = (body.fresh(w) for w in ("packed", "ordered", "index"))
        body.say(f"{packed} = ({'~' * down}{key}).to(tl.int64) << 32 | {self.dim.name}")
        mask = f"tl.where({self.dim.mask}, {packed}, {2**63 - 1})"
        body.say(f"{packed} = tl.sort({mask}, {self.axis})")
        key = f"{'~' * down}({packed} >> 32).to(tl.int32)"
        number = f"from_sort_key({key})" if floating else f"({key}).to({TYPES[source.dtype]})"
        body.say(f"{values} = {number}")
        body.say(f"{index} = {packed} & 0xFFFFFFFF")
        return [values, index]

    def _operand(self, scan: Value, value: Value) -> str:
        """Return the text of what is scanned, in the tile's shape."""
        body, text = self.body, self._typed(scan, value)
        tiled = body.dims_along(value.axes)
        if all(dim in tiled for dim in body.dims if dim.tile is not None):
            return text
        return f"tl.broadcast_to({text}, {self.shape})"

    def _typed(self, scan: Value, value: Value) -> str:
        """Return the text of what is scanned, in the type in which it is."""
        text, dtype = self.body.name(value), type_of(scan, value)
        if value.op == "index" or dtype != value.dtype:
            return f"({text}).to({TYPES[dtype]})"
        return text
