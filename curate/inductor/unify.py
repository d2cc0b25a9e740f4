"""One program from several: what Inductor wrote for a module built and called in different ways.

Inductor writes a constructor's numbers, and sizes that follow from them, as literals. Its texts for
two configurations of a module are alike but for these, so a literal that differs is no constant:
it becomes a symbol, for which an expression over the module's attributes and its inputs' sizes is
found that has the right value in every configuration. A symbol goes by its values in the first two
configurations, ``c48_80``, which `shapes` reads.

Texts for float32 and bfloat16 differ in the types of buffers and in conversions after loads. From
both comes one text that takes the type of its input and computes in float32.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Number = int | float
Values = tuple[Number, ...]

DTYPE = "dtype_of_input"
"""The symbol of the type that the inputs share."""

_KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''\n(.*?)''', device_str=", re.DOTALL)
_PLACEHOLDER = re.compile(r"^# .*PlaceHolder\[target=\w+\]$", re.MULTILINE)
_SHAPES = re.compile(r'"\w+\[(.*?)\]\[(.*?)\]')


class NotAlike(Exception):
    """The texts differ in more than numbers, or a number has no expression.

    Attributes:
        values: the number's, in every configuration.
    """

    def __init__(self, what: str, values: Values = ()) -> None:
        super().__init__(what)
        self.values = values

    @property
    def differing(self) -> list[int]:
        """The configurations in which the number is another than in the first."""
        return [i for i, value in enumerate(self.values) if value != self.values[0]]


@dataclass(frozen=True)
class Unified:
    """One text for all configurations.

    Attributes:
        code: Inductor's file for the first configuration, with symbols for what varies.
        shapes: of the inputs, likewise.
        symbols: the expression that each symbol stands for.
        names: the constructor's argument that a symbol is equal to.
        blocks: expressions of block sizes, by kernel and parameter.
    """

    code: str
    shapes: list[list[str]]
    symbols: dict[str, str]
    names: dict[str, str]
    blocks: dict[str, dict[str, str]]


@dataclass(frozen=True)
class CompiledText:
    """What Inductor wrote for one configuration.

    Attributes:
        code: its file.
        shapes: of the inputs, as text.
        facts: values of expressions that ``forward`` may use.
        arguments: the constructor's.
        constants: floats in the graph.
    """

    code: str
    shapes: list[list[str]]
    facts: dict[str, Number]
    arguments: dict[str, Any]
    constants: frozenset[float] = frozenset()


def unify(texts: Sequence[CompiledText], any_float: bool) -> Unified:
    """Return one text for several configurations of a module.

    Args:
        texts: one for each configuration.
        any_float: whether buffers in bfloat16 take the type of the inputs, `DTYPE`.

    Raises:
        NotAlike: they differ in more than numbers, or in numbers that no expression explains.
    """
    symbols = _Symbols([text.facts for text in texts])
    files = [_File(text.code) for text in texts]
    edits = _Edits()
    if any(other.names != files[0].names for other in files):
        raise NotAlike("other kernels")
    exact = {in_half(x): x for x in texts[0].constants if x != in_half(x)} if any_float else {}
    blocks = {name: _kernel(name, files, symbols, edits) for name in files[0].names}
    for name in files[0].names if any_float else ():
        _without_half(name, files[0], exact, edits)
    _call(files, symbols, edits, any_float)
    _comments(files, symbols, edits)
    shapes = _shapes([text.shapes for text in texts], symbols)
    kept = {name: found for name, found in blocks.items() if found}
    arguments = {
        tuple(text.arguments[name] for text in texts): name
        for name, own in texts[0].arguments.items()
        if type(own) in (int, float)
    }
    names = {symbol: arguments.get(values, "") for values, symbol in symbols.names.items()}
    return Unified(edits.apply(files[0]), shapes, symbols.expressions, names, kept)


def _shapes(shapes: Sequence[list[list[str]]], symbols: _Symbols) -> list[list[str]]:
    """Return the inputs' sizes with symbols for those that vary."""
    found = []
    for inputs in zip(*shapes, strict=True):
        sizes = []
        for texts in zip(*inputs, strict=True):
            same = len(set(texts)) == 1
            if not same and not all(text.isdigit() for text in texts):
                raise NotAlike(f"sizes {texts}")
            sizes.append(texts[0] if same else symbols.of(tuple(map(int, texts))))
        found.append(sizes)
    return found


def differ(code: str, other: str) -> bool:
    """Return whether there are other numbers in one text than in the other.

    Raises:
        NotAlike: they differ in more than numbers.
    """
    files = _File(code), _File(other)
    if files[0].names != files[1].names:
        raise NotAlike("other kernels")
    trees = [[file.functions[name][name] for file in files] for name in files[0].names]
    found = [node for pair in (*trees, [f.call for f in files]) for node in _differences(pair)]
    return bool(found)


# --- files ---------------------------------------------------------------------------------------


class _File:
    """Inductor's file in the parts that are compared.

    Attributes:
        names: of its kernels, in order.
        kernels: their source texts.
        starts: where these begin in the file.
        functions: their syntax trees.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self.kernels: dict[str, str] = {}
        self.starts: dict[str, int] = {}
        for match in _KERNEL.finditer(code):
            self.kernels[match[1]] = match[2]
            self.starts[match[1]] = match.start(2)
        self.names = list(self.kernels)
        self.tree = ast.parse(code)
        self.functions = {name: _functions(text) for name, text in self.kernels.items()}

    @property
    def call(self) -> ast.FunctionDef:
        """The function that launches the kernels."""
        nodes = (n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef))
        found = next((node for node in nodes if node.name == "call"), None)
        if found is None:
            raise NotAlike("no call")
        return found


def _functions(text: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a kernel's source by name, without decorators."""
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    for function in found.values():
        function.decorator_list = []  # hints to Inductor's own tuning
    return found


@dataclass
class _Edits:
    """Replacements of pieces of the first file, by kernel, or "" for the file itself."""

    places: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)

    def node(self, where: str, text: str, node: ast.expr, new: str, again: bool = True) -> None:
        """Replace a node that stands on one line; one that has been replaced only if ``again``."""
        start = _offset(text, node.lineno, node.col_offset)
        end = _offset(text, node.end_lineno or node.lineno, node.end_col_offset or 0)
        if again or not any(place[:2] == (start, end) for place in self.places.get(where, [])):
            self.span(where, start, end, new)

    def span(self, where: str, start: int, end: int, new: str) -> None:
        """Replace what stands between two offsets."""
        self.places.setdefault(where, []).append((start, end, new))

    def apply(self, file: _File) -> str:
        """Return the file's text with all replacements made."""
        whole = list(self.places.get("", []))
        for name, start in file.starts.items():
            whole += [(start + a, start + b, new) for a, b, new in self.places.get(name, [])]
        text = file.code
        for start, end, new in sorted(set(whole), reverse=True):
            text = text[:start] + new + text[end:]
        return text


def _offset(text: str, line: int, column: int) -> int:
    """Return the offset of a place that `ast` gives by line and column, in bytes of ASCII text."""
    start = 0
    for _ in range(line - 1):
        start = text.index("\n", start) + 1
    return start + column


# --- symbols -------------------------------------------------------------------------------------


class _Symbols:
    """Symbols for numbers that vary, and the expressions that explain them."""

    def __init__(self, facts: Sequence[dict[str, Number]]) -> None:
        self.known: dict[Values, str] = {}
        common = set(facts[0]).intersection(*facts[1:])
        for name in sorted(common, key=_cost):
            self.known.setdefault(tuple(fact[name] for fact in facts), name)
        self.expressions: dict[str, str] = {}
        self.names: dict[Values, str] = {}

    def of(self, values: Values) -> str:
        """Return the symbol for a number that has these values."""
        if any(isinstance(value, bool) for value in values):
            raise NotAlike("a flag")
        whole = all(float(value).is_integer() for value in values)
        key = tuple(int(v) if whole else float(v) for v in values)
        if key not in self.names:
            expression = self._expression(key)
            name = f"c{key[0]}_{key[1]}".replace("-", "m") if whole else f"f{len(self.names)}"
            while name in self.expressions:
                name += "b"
            self.names[key] = name
            self.expressions[name] = expression
        return self.names[key]

    def _expression(self, values: Values) -> str:
        found = self.known.get(values) or self._close(values)
        if found is None:
            found = min(self._made(values), key=lambda e: (len(e), e), default=None)
        if found is None:
            raise NotAlike(f"no expression for {values}", values)
        return found

    def _close(self, values: Values) -> str | None:
        """Return a fact whose values are these but for the last digits of a float."""
        if all(isinstance(value, int) for value in values):
            return None
        close = (
            name
            for known, name in self.known.items()
            if all(
                math.isclose(a, b, rel_tol=_ROUNDED) or a == in_half(b)
                for a, b in zip(values, known, strict=True)
            )
        )
        return next(close, None)

    def _made(self, values: Values) -> Iterator[str]:
        """Yield expressions of one or two facts that have some values."""
        varied = [(known, name) for known, name in self.known.items() if len(set(known)) > 1]
        for known, name in varied:
            yield from _with_number(known, name, values)
        for (a, first), (b, second) in itertools.product(varied, repeat=2):
            yield from _with_other(a, first, b, second, values)
        if all(isinstance(value, int) and value for value in values):
            yield from _products(values, varied, _MOST_FACTS)


_MOST_FACTOR, _MOST_TERM, _MOST_FACTS = 1024, 8, 3

_ROUNDED = 2e-7
"""How far a number may be off that a module has computed in float32."""


def in_half(number: Number) -> float:
    """Return a number rounded to bfloat16, as Inductor writes those that it compares with."""
    import torch

    return float(torch.tensor(float(number), dtype=torch.bfloat16))


def is_told_apart(number: float, others: frozenset[float]) -> bool:
    """Whether a number that was rounded to bfloat16 can be found again in a text.

    0.999 cannot: it becomes 1.0, which may stand there for itself. Nor can what becomes infinite.
    """
    rounded = in_half(number)
    plain = math.isinf(rounded) or rounded in others or (8 * rounded).is_integer()
    return rounded == number or not plain


def _products(
    values: Values, known: list[tuple[Values, str]], most: int, least: str = ""
) -> Iterator[str]:
    """Yield products of facts, in order of their names, and perhaps a number."""
    if len(set(values)) == 1:
        if 0 < values[0] <= _MOST_FACTOR:
            yield "" if values[0] == 1 else f" * {values[0]}"
        return
    for factors, name in known if most else ():
        if name >= least and all(
            type(f) is int and f and not v % f for v, f in zip(values, factors, strict=True)
        ):
            rest = tuple(v // f for v, f in zip(values, factors, strict=True))
            for product in _products(rest, known, most - 1, name):
                yield f"{' * ' if least else ''}{name}{product}"


def _with_number(known: Values, name: str, values: Values) -> Iterator[str]:
    """Yield expressions of a fact and a number."""
    one, wanted = known[0], values[0]
    if all(isinstance(value, int) for value in (*known, *values)):
        factor = wanted // one if one else 0
        divisor = one // wanted if wanted else 0
        term = wanted - one
        tried = [
            (f"{name} * {factor}", [k * factor for k in known], 1 < factor <= _MOST_FACTOR),
            (f"{name} ** 2", [k * k for k in known], True),
            (f"-{name}", [-k for k in known], True),
            (f"{name} + {term}", [k + term for k in known], 0 < term <= _MOST_TERM),
            (f"{name} - {-term}", [k + term for k in known], 0 < -term <= _MOST_TERM),
        ]
        if divisor > 1:
            floor = [k // divisor for k in known]
            tried.append((f"{name} // {divisor}", floor, divisor <= _MOST_FACTOR))
            tried.append(
                (
                    f"triton.cdiv({name}, {divisor})",
                    [-(-k // divisor) for k in known],
                    divisor <= _MOST_FACTOR,
                )
            )
        yield from (text for text, found, sane in tried if sane and tuple(found) == values)
        return
    formulas: list[tuple[str, Any]] = [
        (f"1 / {name}", lambda k: 1 / k),
        (f"{name} ** -0.5", lambda k: k**-0.5),
        (f"{name} ** 0.5", lambda k: k**0.5),
        (f"1 - {name}", lambda k: 1 - k),
        (f"-{name}", lambda k: -k),
        (f"1 + {name}", lambda k: 1 + k),
        (f"1 / (1 - {name})", lambda k: 1 / (1 - k)),
        (f"{name} ** -0.25", lambda k: k**-0.25),
        (f"math.log({name})", lambda k: math.log(k)),
        (f"math.exp({name})", lambda k: math.exp(k)),
    ]
    for number in (0.5, 2.0):
        formulas.append((f"{number} * {name}", lambda k, number=number: number * k))
    for text, formula in formulas:
        if _agrees(formula, (known,), values):
            yield text


def _with_other(a: Values, first: str, b: Values, second: str, values: Values) -> Iterator[str]:
    """Yield expressions of two facts."""
    if all(isinstance(value, int) for value in (*a, *b, *values)):
        pairs = list(zip(a, b, strict=True))
        if first <= second and tuple(x * y for x, y in pairs) == values:
            yield f"{first} * {second}"
        if all(y and x % y == 0 for x, y in pairs) and tuple(x // y for x, y in pairs) == values:
            yield f"{first} // {second}"
        if first < second and tuple(x + y for x, y in pairs) == values:
            yield f"{first} + {second}"
        if tuple(x - y for x, y in pairs) == values:
            yield f"{first} - {second}"
        return
    formulas: list[tuple[str, Any]] = [
        (f"{first} / {second}", lambda x, y: x / y),
        (f"{first} * {second}", lambda x, y: x * y),
        (f"{first} - {second}", lambda x, y: x - y),
        (f"({first} // {second}) ** -0.5", lambda x, y: (x // y) ** -0.5),
    ]
    for text, formula in formulas:
        if _agrees(formula, (a, b), values):
            yield text


def _agrees(formula: Any, arguments: tuple[Values, ...], values: Values) -> bool:
    try:
        found = [formula(*numbers) for numbers in zip(*arguments, strict=True)]
    except (ArithmeticError, ValueError):
        return False
    if any(isinstance(number, complex) for number in found):
        return False
    return all(math.isclose(x, y, rel_tol=_ROUNDED) for x, y in zip(found, values, strict=True))


def _cost(name: str) -> tuple[int, int, str]:
    """Return how far an expression is from what a person would write, least first.

    Attributes come before sizes of tensors, the module's own before those of its parts, and what
    the module knows before what an input happens to have.
    """
    own = name.startswith("self.")
    rank = name.count(".") if own else 6
    return rank + ("[" in name) + 2 * (".shape[" in name), len(name), name


# --- comparison ----------------------------------------------------------------------------------


def _differences(nodes: Sequence[ast.AST]) -> Iterator[list[ast.AST]]:
    """Yield the constants in which trees of one shape differ.

    Raises:
        NotAlike: they differ in more.
    """
    first = nodes[0]
    if any(type(node) is not type(first) for node in nodes):
        raise NotAlike(f"{type(first).__name__} and others")
    if isinstance(first, ast.Constant):
        values = [node.value for node in nodes]  # type: ignore[attr-defined]
        if any(type(v) is not type(values[0]) or v != values[0] for v in values):
            if not all(type(value) in (int, float) for value in values):
                raise NotAlike(f"constants {values}")
            yield list(nodes)
        return
    for name in first._fields:
        parts = [getattr(node, name, None) for node in nodes]
        if len({part is None for part in parts}) > 1:
            raise NotAlike(f"{type(first).__name__}.{name}")
        if isinstance(parts[0], list):
            if any(not isinstance(p, list) or len(p) != len(parts[0]) for p in parts):
                raise NotAlike(f"{type(first).__name__}.{name}")
            for items in zip(*parts, strict=True):
                if isinstance(items[0], ast.AST):
                    yield from _differences(items)
                elif any(item != items[0] for item in items):
                    raise NotAlike(f"{type(first).__name__}.{name}")
        elif isinstance(parts[0], ast.AST):
            yield from _differences([part for part in parts if part is not None])
        elif any(part != parts[0] for part in parts):
            raise NotAlike(f"{parts}")


def _values(nodes: Sequence[ast.AST]) -> Values:
    return tuple(node.value for node in nodes)  # type: ignore[attr-defined]


def _kernel(name: str, files: Sequence[_File], symbols: _Symbols, edits: _Edits) -> dict[str, str]:
    """Make a kernel's varying numbers arguments; return expressions of its block sizes."""
    functions = [file.functions[name] for file in files]
    if any(list(other) != list(functions[0]) for other in functions):
        raise NotAlike("other helper functions")
    text = files[0].kernels[name]
    for helper in functions[0]:
        if helper != name:
            for _ in _differences([other[helper] for other in functions]):
                raise NotAlike("a helper's constant")
    mine = [other[name] for other in functions]
    fixed = _fixed_sizes(mine)
    sizes = [_sizes(function) for function in mine]
    axes = {
        tuple(size.get(axis) for size in sizes): axis for axis in sizes[0] if axis.endswith("numel")
    }
    added: dict[str, str] = {}
    for nodes in _differences(mine):
        if id(nodes[0]) in fixed:
            continue
        values = _values(nodes)
        symbol = axes.get(values)
        if symbol is None:
            symbol = symbols.of(values)
            added[symbol] = "i32" if symbol[0] == "c" else "fp32"
        edits.node(name, text, nodes[0], symbol)  # type: ignore[arg-type]
    if added:
        _add_parameters(name, files[0], added, edits)
    return _blocks(mine, sizes, symbols)


def _without_half(name: str, file: _File, exact: dict[float, float], edits: _Edits) -> None:
    """Have a kernel compute in float32: no rounding on the way, and constants as they are."""
    text = file.kernels[name]
    for cast in re.finditer(r"\.to\(tl\.bfloat16\)", text):
        edits.span(name, *cast.span(), "")
    for node in ast.walk(file.functions[name][name]):
        if isinstance(node, ast.Constant) and type(node.value) is float and node.value in exact:
            edits.node(name, text, node, repr(exact[node.value]), again=False)


def _fixed_sizes(functions: Sequence[ast.FunctionDef]) -> set[int]:
    """Return the constants that a kernel gives sizes of its own, which launches tell as well."""
    return {
        id(node.value)
        for node in functions[0].body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant)
        and re.fullmatch(r"\w+(numel|BLOCK)", _target(node))
    }


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def _sizes(function: ast.FunctionDef) -> dict[str, Number]:
    return {
        _target(node): node.value.value
        for node in function.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    }


def _blocks(
    functions: Sequence[ast.FunctionDef], sizes: Sequence[dict[str, Number]], symbols: _Symbols
) -> dict[str, str]:
    """Return block sizes that must follow a size which varies.

    Raises:
        NotAlike: a mask is left out because the sizes at hand fill their blocks.
    """
    found = {}
    for axis in ("r0_", "r1_", "x", "y", "z"):
        numel, block = f"{axis}numel", f"{axis.upper()}BLOCK"
        values = tuple(size.get(numel, 0) for size in sizes)
        if len(set(values)) == 1:
            if len({size.get(block) for size in sizes}) > 1:
                raise NotAlike(f"{block} of a constant size")
            continue
        for node in functions[0].body:
            is_mask = isinstance(node, ast.Assign) and _target(node) == f"{axis}mask"
            if is_mask and "tl.full" in ast.unparse(node):
                raise NotAlike(f"no {axis}mask")
        if block in sizes[0]:
            if any(size[block] != _power(size[numel]) for size in sizes):
                raise NotAlike(f"{block} is no power of two")
            found[block] = f"triton.next_power_of_2({symbols.of(values)})"
    return found


def _power(number: Number) -> int:
    return int(1 << max(0, math.ceil(number) - 1).bit_length())


def _add_parameters(name: str, file: _File, added: dict[str, str], edits: _Edits) -> None:
    """Add symbols to a kernel's parameters, to its signature and to its launches."""
    text = file.kernels[name]
    function = file.functions[name][name]
    parameters = function.args.args
    blocks = [a for a in parameters if a.arg.endswith(("BLOCK", "RSPLIT"))]
    if not blocks:
        raise NotAlike("no block size")
    start = _offset(text, blocks[0].lineno, blocks[0].col_offset)
    edits.span(name, start, start, "".join(f"{symbol}, " for symbol in added))
    found = re.search(r"'signature': \{", text)
    assert found is not None
    kinds = "".join(f"'{symbol}': '{kind}', " for symbol, kind in added.items())
    edits.span(name, found.end(), found.end(), kinds)
    for node in ast.walk(file.call):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.run":
            last = node.args[-1]
            end = _offset(file.code, last.end_lineno or 0, last.end_col_offset or 0)
            edits.span("", end, end, "".join(f", {symbol}" for symbol in added))


def _call(files: Sequence[_File], symbols: _Symbols, edits: _Edits, halves: bool) -> None:
    """Put symbols for numbers that vary into ``call``, and for the type of buffers."""
    calls = [file.call for file in files]
    for nodes in _differences(calls):
        values = _values(nodes)
        edits.node("", files[0].code, nodes[0], symbols.of(values))  # type: ignore[arg-type]
    if halves:
        for node in ast.walk(calls[0]):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.bfloat16":
                edits.node("", files[0].code, node, DTYPE)


def _comments(files: Sequence[_File], symbols: _Symbols, edits: _Edits) -> None:
    """Put symbols into the comments that tell how inputs of kernels lie in memory."""
    lines = [list(_PLACEHOLDER.finditer(file.code)) for file in files]
    if any(len(other) != len(lines[0]) for other in lines):
        raise NotAlike("other placeholders")
    for matches in zip(*lines, strict=True):
        shapes = [_SHAPES.search(match[0]) for match in matches]
        if any(shape is None for shape in shapes):
            continue
        for part in (1, 2):
            texts = [shape[part] for shape in shapes]  # type: ignore[index]
            trees = [ast.parse(f"({text},)" if text else "()", mode="eval").body for text in texts]
            start = matches[0].start() + shapes[0].start(part) - 1  # type: ignore[union-attr]
            for nodes in _differences(trees):
                values = _values(nodes)
                node = nodes[0]
                assert isinstance(node, ast.Constant)
                end = start + (node.end_col_offset or 0)
                edits.span("", start + node.col_offset, end, symbols.of(values))
