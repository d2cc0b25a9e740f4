"""Print index and size expressions, for kernels and for the host.

Everything is in brackets: the program's text is printed from its syntax tree, which drops those
that are not needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy

from curate.generator.text.operations import pairs
from curate.generator.unprintable import Unprintable

_INFIX = pairs("""
FloorDiv // CleanDiv // Mod % PythonMod % IntTrueDiv / FloatTrueDiv / FloatPow ** PowByNatural **
Equality == Unequality != StrictLessThan < LessThan <= StrictGreaterThan > GreaterThan >=
""")
_SAME = "sqrt exp log log2 sin cos"
_KERNEL = {name: f"tl.{name}" for name in _SAME.split()}
_KERNEL |= pairs("Min tl.minimum Max tl.maximum Abs tl.abs TruncToFloat libdevice.trunc")
KERNEL_TO_INTEGER = {"CeilToInt": "tl.ceil", "FloorToInt": "tl.floor", "TruncToInt": ""}
KERNEL_TO_INTEGER |= {"RoundToInt": "libdevice.nearbyint"}
"""PyTorch's functions that make an integer of a number, and what a kernel calls for it."""

_HOST = {name: f"math.{name}" for name in _SAME.split()}
_HOST |= pairs("Min min Max max Abs abs TruncToInt int RoundToInt round ToFloat float")
_HOST |= pairs("CeilToInt math.ceil FloorToInt math.floor")


def unused(word: str, taken: set[str], ending: str = "") -> str:
    """Return a word and its ending, with a number between if it is taken; now it is."""
    name, number = f"{word}{ending}", 1
    while name in taken:
        name, number = f"{word}_{number}{ending}", number + 1
    taken.add(name)
    return name


def _is_scaled(term: sympy.Expr, lanes: frozenset[sympy.Symbol]) -> bool:
    """Whether a term is an index by a size."""
    factors = sympy.Mul.make_args(term)
    is_index = [bool(f.free_symbols & lanes) for f in factors]
    return any(is_index) and any(f.is_Symbol and not is_index[i] for i, f in enumerate(factors))


def _nested(terms: Sequence[sympy.Expr], lanes: frozenset[sympy.Symbol]) -> list[sympy.Expr]:
    """Return a sum's terms with sizes taken out: ``(row * height + h) * width + w``."""
    own = [term for term in terms if _is_scaled(term, lanes)]
    sizes = Counter(
        f for t in own for f in sympy.Mul.make_args(t) if f.is_Symbol and f not in lanes
    )
    size, count = max(sizes.items(), key=lambda item: (item[1], str(item[0])), default=(None, 0))
    if count < 2:
        return list(terms)
    inner = [term for term in own if size in sympy.Mul.make_args(term)]
    rest = [term for term in terms if term not in inner]
    nested = sympy.Mul(sympy.Add(*_nested([term / size for term in inner], lanes)), size)
    return [*_nested(rest, lanes), nested] if nested.is_Mul else list(terms)


@dataclass
class Printer:
    """Prints expressions.

    Attributes:
        names: what to call each symbol.
        lanes: symbols that stand for many numbers at once, if it is a kernel's.
        wide: those of them that have 64 bits.
    """

    names: Mapping[sympy.Symbol, str]
    lanes: frozenset[sympy.Symbol] | None = None
    wide: frozenset[sympy.Symbol] = frozenset()

    def text(self, e: sympy.Expr) -> str:
        if isinstance(e, sympy.Symbol):
            if e not in self.names:
                raise Unprintable("a size that nothing tells")
            return self.names[e]
        if e.is_Integer:
            return str(int(e))
        if isinstance(e, sympy.Float | float):
            return repr(float(e))
        if isinstance(e, sympy.Rational):
            return f"({e.p} / {e.q})"
        if isinstance(e, sympy.Add):
            return self._sum(e)
        if isinstance(e, sympy.Mul):
            return self._product(e)
        if isinstance(e, sympy.Pow):
            return self._power(e.base, e.exp)
        if e in (sympy.true, sympy.false):
            return str(bool(e))
        return self._function(type(e).__name__.removeprefix("OpaqueUnaryFn_"), e)

    def _sum(self, e: sympy.Add) -> str:
        def weight(term: sympy.Expr) -> tuple[bool, bool, int, str]:
            negative = bool(term.as_coeff_Mul()[0] < 0)
            return negative, bool(term.is_number), -len(term.free_symbols), str(term)

        text = ""
        terms = e.args if self.lanes is None else _nested(e.args, self.lanes)
        for term in sorted(terms, key=weight):
            factor, rest = term.as_coeff_Mul()
            if text and factor < 0:
                text += f" - {self.text(-factor * rest)}"
            else:
                text += f" + {self.text(term)}" if text else self.text(term)
        return f"({text})"

    def _product(self, e: sympy.Mul) -> str:
        """Print index variables first, and with 64 bits where a size multiplies them."""
        factor, rest = e.as_coeff_Mul()
        lanes = self.lanes or frozenset()
        order = {symbol: i for i, symbol in enumerate(self.names)}

        def place(factor: sympy.Expr) -> tuple[bool, int, str]:
            return not factor.free_symbols & lanes, order.get(factor, len(order)), str(factor)

        factors = sorted(sympy.Mul.make_args(rest), key=place)
        if factor != 1 and factor != -1:
            factors.append(factor)
        plain = self.lanes is None and any(f.is_Float for f in factors)
        logs = [f for f in factors if type(f).__name__ == "OpaqueUnaryFn_log2"] if plain else []
        if logs and factors[-1] == math.log(2):  # as `math.log` is traced
            factors = [f for f in factors[:-1] if f is not logs[0]]
            factors.append(sympy.Function("OpaqueUnaryFn_log")(logs[0].args[0]))
        texts = [self._bare(f) if plain else self.text(f) for f in factors]
        scaled = any(f.free_symbols and not f.free_symbols & lanes for f in factors)
        is_wide = any(_is_scaled(term, lanes) for f in factors if f.is_Add for term in f.args)
        is_wide |= bool(rest.free_symbols & self.wide)
        if scaled and rest.free_symbols & lanes and not is_wide:
            texts[0] = f"({texts[0]}).to(tl.int64)"
        text = " * ".join(texts)
        return f"(-({text}))" if factor == -1 else f"({text})"

    def _bare(self, e: sympy.Expr) -> str:
        """Return a number's text where Python makes a float of it anyhow."""
        return self.text(e.args[0] if type(e).__name__ == "ToFloat" else e)

    def _power(self, base: sympy.Expr, exponent: sympy.Expr) -> str:
        if exponent.is_Integer and 0 < int(exponent) < 4:
            return "(" + " * ".join([self.text(base)] * int(exponent)) + ")"
        if self.lanes is not None and base.free_symbols & self.lanes:
            raise Unprintable("a power of an index")
        return f"({self.text(base)} ** {self.text(exponent)})"

    def _function(self, name: str, e: sympy.Expr) -> str:
        if name == "floor":  # what sympy makes of (n - 1) // 2
            over, under = sympy.fraction(sympy.together(e.args[0]))
            return f"({self.text(over)} // {self.text(under)})"
        args = [self.text(arg) for arg in e.args]
        if name in _INFIX:
            return f"({args[0]} {_INFIX[name]} {args[1]})"
        if name == "ModularIndexing":
            quotient = args[0] if e.args[1] == 1 else f"({args[0]} // {args[1]})"
            return f"({quotient} % {args[2]})"
        if name == "Identity":
            return args[0]
        if name == "Where":
            chosen = f"({args[1]} if {args[0]} else {args[2]})"
            return chosen if self.lanes is None else f"tl.where({', '.join(args)})"
        if name in ("And", "Or", "Not"):
            return self._logic(name, args)
        if self.lanes is None:
            if name in _HOST:
                bare = _HOST[name].startswith("math.") and len(args) == 1
                given = self._bare(e.args[0]) if bare else ", ".join(args)
                return f"{_HOST[name]}({given})"
        elif name in _KERNEL:
            text = args[0]
            for arg in args[1:]:
                text = f"{_KERNEL[name]}({text}, {arg})"
            return text if len(args) > 1 else f"{_KERNEL[name]}({text})"
        elif name in KERNEL_TO_INTEGER:
            return f"{KERNEL_TO_INTEGER[name]}({args[0]}).to(tl.int64)"
        elif name == "ToFloat":
            return f"({args[0]}).to(tl.float32)" if e.free_symbols & self.lanes else args[0]
        raise Unprintable(f"an expression with {name}")

    def _logic(self, name: str, args: list[str]) -> str:
        kernel = self.lanes is not None
        if name == "Not":
            return f"({args[0]} == 0)" if kernel else f"(not {args[0]})"
        sign = {("And", True): "&", ("Or", True): "|", ("And", False): "and", ("Or", False): "or"}
        return "(" + f" {sign[name, kernel]} ".join(args) + ")"
