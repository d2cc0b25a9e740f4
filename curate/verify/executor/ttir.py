"""Read TTIR, Triton's tensor IR, as text: what a kernel is before any target is chosen.

The text comes from a process in which hostile code runs. So it is read by this parser alone, which
builds plain values, bounds their number, and knows only the forms that Triton's compiler prints
(MLIR's pretty form without locations, https://mlir.llvm.org/docs/LangRef). Tested with triton 3.6,
3.7 and 3.9.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache

MAX_BYTES = 4 * 2**20
"""Length of a module's text. The largest of 4,231 kernels that people wrote is 0.4 MB long."""
MAX_DEPTH = 60
"""Regions within regions."""


class TTIRError(Exception):
    """The text is no TTIR that this parser knows; the message names the line."""


@dataclass(frozen=True)
class Type:
    """A type of a value.

    Attributes:
        element: ``f32``, ``bf16``, ``f8E5M2``, ``i1``, ``i64``, ``index``, or ``ptr``.
        shape: sizes of a tensor; empty for a scalar.
        pointee: what a pointer points to; None for all others.
    """

    element: str
    shape: tuple[int, ...] = ()
    pointee: Type | None = None

    @property
    def is_float(self) -> bool:
        """Whether elements are floating numbers."""
        return self.element[0] in "fb"

    @property
    def bits(self) -> int:
        """Bits of one element."""
        if self.element in ("ptr", "index"):
            return 64
        if self.element.startswith("f8"):
            return 8
        return int(re.sub(r"\D", "", self.element))

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass
class Op:
    """One operation.

    Attributes:
        name: such as ``arith.addf``.
        results: names of the values that it makes.
        operands: names of the values that it takes, in order.
        types: types of the results.
        text: the line behind the name, without types: attributes are found in it.
        regions: nested code.
        symbol: function called, or None.
        targets: blocks that a branch goes to, each with its arguments.
        line: number in the text, from 1.
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    types: tuple[Type, ...]
    text: str
    regions: list[Region] = field(default_factory=list)
    symbol: str | None = None
    targets: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    line: int = 0

    def attribute(self, name: str) -> str | None:
        """Return an attribute's value as it is written, without its type; None if it is absent."""
        found = re.search(
            rf"(?<![\w.]){re.escape(name)} = (\[[^\]]*\]|array<[^>]*>|\"[^\"]*\"|[^\s,}}>]+)",
            self.text,
        )
        return found[1] if found else None

    def integer(self, name: str) -> int:
        """Return an integer attribute."""
        value = self.attribute(name)
        if value is None or not re.fullmatch(r"-?\d+", value):
            raise TTIRError(f"line {self.line}: {self.name} has no integer {name}")
        return int(value)

    @property
    def multiples(self) -> tuple[int, ...]:
        """What the program says that its results are multiples of, along each dimension."""
        found = re.search(r"tt\.divisibility = dense<\[?([\d, ]+)\]?>", self.text)
        return tuple(map(int, found[1].split(","))) if found else ()

    def integers(self, name: str) -> list[int]:
        """Return the numbers of an attribute such as ``array<i32: 1, 0>``; empty if absent."""
        value = self.attribute(name) or ""
        return [int(n) for n in re.findall(r"(?<!\w)-?\d+", value.partition(":")[2] or value)]


@dataclass
class Block:
    """Code without branches inside: its arguments, and its operations."""

    label: str
    arguments: list[tuple[str, Type]]
    ops: list[Op] = field(default_factory=list)


@dataclass
class Region:
    """Blocks, of which the first is entered."""

    blocks: list[Block]

    @property
    def ops(self) -> list[Op]:
        """The operations of a region of one block."""
        return self.blocks[0].ops


@dataclass
class Function:
    """A function: the kernel, or one that it calls."""

    name: str
    arguments: list[tuple[str, Type]]
    results: tuple[Type, ...]
    body: Region
    public: bool


# --- types ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """Return the type that a text names."""
    text = text.strip()
    if text.startswith("tensor<") and text.endswith(">"):
        found = re.match(r"((?:\d+x)*)(.*)$", text[7:-1], re.S)
        assert found
        inner = parse_type(found[2].partition(", #")[0])  # without an encoding
        if inner.shape:
            raise TTIRError(f"a tensor of tensors: {text[:80]}")
        return Type(inner.element, tuple(int(n) for n in found[1].split("x")[:-1]), inner.pointee)
    if text.startswith("!tt.ptr<") and text.endswith(">"):
        pointee = re.sub(r",\s*\d+$", "", text[8:-1])
        return Type("ptr", (), parse_type(pointee))
    if re.fullmatch(r"i(1|4|8|16|32|64|128)|f(16|32|64)|bf16|index|f8E\w+", text):
        return Type(text)
    raise TTIRError(f"unknown type {text[:80]!r}")


def split_top(text: str, separator: str = ",") -> list[str]:
    """Split a text at a separator that stands in no brackets and no string."""
    parts, depth, start = [], 0, 0
    for found in _tokens(separator).finditer(text):
        token = found[0]
        if token in "([{<":
            depth += 1
        elif token in ")]}>":
            depth -= 1
        elif token == separator and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


@cache
def _tokens(separator: str) -> re.Pattern[str]:
    """Return what finds strings, arrows, brackets and a separator."""
    return re.compile(r'"(?:\\.|[^"\\])*"?|->|[(\[{<>)\]}]|' + re.escape(separator))


def _types(text: str) -> tuple[Type, ...]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return tuple(parse_type(part) for part in split_top(text))


# --- functions --------------------------------------------------------------------------------

_RESULTS = re.compile(r"^(%[\w$.-]+(?::\d+)?(?:, %[\w$.-]+(?::\d+)?)*) = ")
_NAME = re.compile(r'^"?([a-z_]+\.[\w.]+)"?')
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_FUNC = re.compile(r"^tt\.func (?:(public|private) )?@([\w$.\"<>, -]+?)\((.*)$")
_LABEL = re.compile(r"^\^(\w+)(?:\((.*)\))?:")


def parse(text: str) -> dict[str, Function]:
    """Return the functions of a module, by name."""
    if len(text) > MAX_BYTES:
        raise TTIRError(f"{len(text)} characters, at most {MAX_BYTES} are read")
    try:
        return _Parser(text).module()
    except (IndexError, ValueError, RecursionError) as error:
        raise TTIRError(f"is no TTIR: {type(error).__name__}: {error}") from error


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.at = 0
        self.known: dict[str, Type] = {}

    def module(self) -> dict[str, Function]:
        functions: dict[str, Function] = {}
        while self.at < len(self.lines):
            line = self._line()
            if line.startswith("tt.func"):
                function = self._function(line)
                functions[function.name] = function
        if not any(function.public for function in functions.values()):
            raise TTIRError("no public function")
        return functions

    def _line(self) -> str:
        line = self.lines[self.at].strip()
        self.at += 1
        return line

    def _error(self, what: str) -> TTIRError:
        return TTIRError(f"line {self.at}: {what}")

    def _function(self, line: str) -> Function:
        found = _FUNC.match(line)
        if not found:
            raise self._error("a function without a name")
        self.known = {}
        rest = found[3]
        close = closing(rest)
        arguments = [self._argument(part) for part in split_top(rest[:close])]
        tail = rest[close + 1 :].rpartition("{")[0]
        tail = tail.partition(" attributes ")[0].strip()
        results = _types(tail[2:]) if tail.startswith("->") else ()
        body = self._region(arguments, 0)
        return Function(found[2], arguments, results, body, found[1] == "public")

    def _argument(self, text: str) -> tuple[str, Type]:
        name, _, kind = text.partition(": ")
        kind = re.sub(r"\s*(?:\{.*\}|loc\(.*\))\s*$", "", kind)
        return self._define(name, parse_type(kind)), self.known[name]

    def _define(self, name: str, kind: Type) -> str:
        self.known[name] = kind
        return name

    def _region(self, arguments: list[tuple[str, Type]], depth: int) -> Region:
        """Read blocks until the brace that closes the region; the line with it is read too."""
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} regions within each other")
        blocks = [Block("bb0", arguments)]
        while True:
            line = self._line()
            if line.startswith("}"):
                self.closing = line
                return Region(blocks)
            if label := _LABEL.match(line):
                inside = [self._argument(part) for part in split_top(label[2] or "")]
                if blocks[-1].ops or len(blocks) > 1:
                    blocks.append(Block(label[1], inside))
                else:
                    blocks[0] = Block(label[1], [*arguments, *inside])
            elif line and not line.startswith("//"):
                blocks[-1].ops.append(self._op(line, depth))

    def _op(self, line: str, depth: int) -> Op:
        number = self.at
        names, line = self._results(line)
        found = _NAME.match(line)
        if not found:
            raise self._error(f"no operation: {line[:60]!r}")
        name, rest = found[1], line[found.end() :]
        op = (
            self._with_regions(name, rest, depth)
            if rest.rstrip().endswith("{")
            else self._plain(name, rest)
        )
        op.line = number
        if len(names) != len(op.types):
            raise TTIRError(f"line {number}: {name} makes {len(op.types)} values, not {len(names)}")
        for result, kind in zip(names, op.types, strict=True):
            self._define(result, kind)
        op.results = tuple(names)
        return op

    def _results(self, line: str) -> tuple[list[str], str]:
        found = _RESULTS.match(line)
        if not found:
            return [], line
        names: list[str] = []
        for part in found[1].split(", "):
            name, _, count = part.partition(":")
            if int(count or 1) > 64:
                raise self._error("more than 64 results")
            names += [f"{name}#{i}" for i in range(int(count))] if count else [name]
        return names, line[found.end() :]

    # operations without regions

    def _plain(self, name: str, rest: str) -> Op:
        parts = split_top(rest, " : ")
        body = parts[0] if parts else ""
        signature = parts[-1] if len(parts) > 1 else ""
        if len(parts) == 1 and (ends := split_top(body, "->"))[1:]:  # of no operands
            signature = f"-> {ends[-1]}"
        if name in ("cf.br", "cf.cond_br"):
            return self._branch(name, rest)
        if name == "tt.print":
            body = rest
        strings = re.sub(r'"(?:[^"\\]|\\.)*"', '""', body)
        operands = tuple(_VALUE.findall(strings))
        symbol = re.search(r"@([\w$.\"<>, -]+?)\(", body) if name == "tt.call" else None
        op = Op(name, (), operands, (), body, symbol=symbol[1] if symbol else None)
        for operand in operands:
            if operand not in self.known:
                raise self._error(f"{operand} is not known")
        op.types = self._result_types(op, signature)
        return op

    def _branch(self, name: str, rest: str) -> Op:
        head = rest.split("^", 1)[0]
        targets = []
        for label, given in re.findall(r"\^(\w+)(?:\(([^)]*)\))?", rest):
            targets.append((label, tuple(_VALUE.findall(given.partition(" : ")[0]))))
        return Op(name, (), tuple(_VALUE.findall(head)), (), "", targets=targets)

    def _result_types(self, op: Op, signature: str) -> tuple[Type, ...]:
        """Return the types of what an operation makes, from its signature or its operands."""
        if op.name in _NO_RESULT:
            return ()
        first = self.known[op.operands[0]] if op.operands else None
        if "->" in signature:
            made = _types(split_top(signature, "->")[-1])
            return made * 2 if op.name == "tt.split" else made
        if " to " in signature:
            return (parse_type(signature.rpartition(" to ")[2]),)
        if not signature:
            boolean = re.fullmatch(r"\s*(true|false)\s*", op.text)
            return (Type("i1"),) if boolean else ()
        kinds = split_top(signature)
        if op.name == "tt.split" and "->" not in signature:
            return (parse_type(kinds[0]),) * 2
        if op.name in ("arith.cmpi", "arith.cmpf"):
            return (Type("i1", parse_type(kinds[0]).shape),)
        if op.name == "tt.load":
            assert first
            if first.pointee is None:
                raise self._error("a load from what is no pointer")
            return (Type(first.pointee.element, first.shape, first.pointee.pointee),)
        if op.name == "arith.select":
            return (parse_type(kinds[-1]),)
        return (parse_type(kinds[0]),)

    # operations with regions

    def _with_regions(self, name: str, rest: str, depth: int) -> Op:
        rest = rest.rstrip()[:-1].rstrip()
        if name == "scf.for":
            return self._for(rest, depth)
        if name == "scf.while":
            return self._while(rest, depth)
        if name == "scf.if":
            return self._if(rest, depth)
        return self._generic(name, rest, depth)

    def _for(self, rest: str, depth: int) -> Op:
        found = re.match(
            r"\s*(?:unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)"
            r"(?:\s+iter_args\((.*?)\) -> \((.*)\))?\s*(?:: (\w+))?\s*$",
            rest,
        )
        if not found:
            raise self._error("a loop of unknown form")
        pairs = [part.split(" = ") for part in split_top(found[5] or "")]
        types = _types(found[6] or "")
        counter = (self._define(found[1], parse_type(found[7] or "i32")), self.known[found[1]])
        carried = [
            (self._define(inside, kind), kind)
            for (inside, _), kind in zip(pairs, types, strict=True)
        ]
        body = self._region([counter, *carried], depth + 1)
        operands = (found[2], found[3], found[4], *(outside for _, outside in pairs))
        return Op("scf.for", (), operands, types, rest[:12], [body])

    def _while(self, rest: str, depth: int) -> Op:
        head, _, signature = rest.partition(" : ")
        inner = head.strip().strip("()")
        pairs = [part.split(" = ") for part in split_top(inner)]
        taken, _, made = signature.partition(" -> ")
        before = [
            (self._define(inside, kind), kind)
            for (inside, _), kind in zip(pairs, _types(taken), strict=True)
        ]
        condition = self._region(before, depth + 1)
        if not self.closing.startswith("} do {"):
            raise self._error("a while loop without a body")
        body = self._region([], depth + 1)
        operands = tuple(outside for _, outside in pairs)
        return Op("scf.while", (), operands, _types(made), "", [condition, body])

    def _if(self, rest: str, depth: int) -> Op:
        condition, _, made = rest.partition(" -> ")
        regions = [self._region([], depth + 1)]
        if self.closing.startswith("} else {"):
            regions.append(self._region([], depth + 1))
        return Op("scf.if", (), (condition.strip(),), _types(made), "", regions)

    def _generic(self, name: str, rest: str, depth: int) -> Op:
        """Read ``"tt.reduce"(%a, %b) <{axis = 0 : i32}> ({ … }) : (…) -> …``."""
        operands = tuple(_VALUE.findall(rest.partition("<{")[0]))
        regions = [self._region([], depth + 1)]
        closing = self.closing
        while closing.startswith("}, {"):
            regions.append(self._region([], depth + 1))
            closing = self.closing
        types = _types(split_top(closing.partition(" : ")[2], "->")[-1])
        return Op(name, (), operands, types, rest, regions)


_NO_RESULT = frozenset(
    (
        *("tt.store", "tt.return", "tt.print", "tt.assert", "scf.yield", "scf.condition"),
        *("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"),
        *("tt.assume", "llvm.intr.assume", "gpu.barrier", "ttg.barrier", "ttg.local_barrier"),
        *("tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce"),
    )
)


def closing(text: str) -> int:
    """Return where the bracket closes that was opened before ``text``."""
    depth, quoted = 1, False
    for i, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif not quoted and char in "([{":
            depth += 1
        elif not quoted and char in ")]}":
            depth -= 1
            if not depth:
                return i
    raise TTIRError("a bracket is not closed")


def walk(region: Region) -> Iterator[Op]:
    """Yield all operations of a region and of those within it."""
    for block in region.blocks:
        for op in block.ops:
            yield op
            for inner in op.regions:
                yield from walk(inner)
