"""Turn a kernel's TTIR into a Python function over arrays of all programs (`operations`).

The function's text is made of this file's own phrases and numbered names, so that nothing of the
kernel's text is ever run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from curate.verify.executor import libdevice, numbers, operations
from curate.verify.executor.memory import ACQUIRE, OWN_BLOCK, RELEASE
from curate.verify.executor.numbers import COMPUTED, element_size, rounder
from curate.verify.executor.operations import FOLDS, RUNNING, UnsupportedOperation
from curate.verify.executor.ttir import Block, Function, Op, Region, TTIRError, Type, walk

_COMPARE = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "slt": "{0} < {1}",
    "sle": "{0} <= {1}",
    "sgt": "{0} > {1}",
    "sge": "{0} >= {1}",
    "ult": "o.view_unsigned({0}) < o.view_unsigned({1})",
    "ule": "o.view_unsigned({0}) <= o.view_unsigned({1})",
    "ugt": "o.view_unsigned({0}) > o.view_unsigned({1})",
    "uge": "o.view_unsigned({0}) >= o.view_unsigned({1})",
}

_COMPARE_FLOAT = {
    "oeq": "{0} == {1}",
    "ogt": "{0} > {1}",
    "oge": "{0} >= {1}",
    "olt": "{0} < {1}",
    "ole": "{0} <= {1}",
    "one": "({0} < {1}) | ({0} > {1})",
    "ord": "~(np.isnan({0}) | np.isnan({1}))",
    "ueq": "~(({0} < {1}) | ({0} > {1}))",
    "ugt": "~({0} <= {1})",
    "uge": "~({0} < {1})",
    "ult": "~({0} >= {1})",
    "ule": "~({0} > {1})",
    "une": "{0} != {1}",
    "uno": "np.isnan({0}) | np.isnan({1})",
}

_INTEGER = {
    "arith.addi": "{0} + {1}",
    "arith.subi": "{0} - {1}",
    "arith.muli": "{0} * {1}",
    "arith.divsi": "o.divide({0}, {1})",
    "arith.remsi": "o.remainder({0}, {1})",
    "arith.divui": "o.as_unsigned(o.divide, {0}, {1})",
    "arith.remui": "o.as_unsigned(o.remainder, {0}, {1})",
    "arith.andi": "{0} & {1}",
    "arith.ori": "{0} | {1}",
    "arith.xori": "{0} ^ {1}",
    "arith.shli": "{0} << {1}",
    "arith.shrsi": "{0} >> {1}",
    "arith.shrui": "o.as_unsigned(np.right_shift, {0}, {1})",
    "arith.maxsi": "np.maximum({0}, {1})",
    "arith.minsi": "np.minimum({0}, {1})",
    "arith.maxui": "o.as_unsigned(np.maximum, {0}, {1})",
    "arith.minui": "o.as_unsigned(np.minimum, {0}, {1})",
    "math.absi": "np.abs({0})",
    "tt.mulhiui": "o.multiply_high({0}, {1})",
}
"""Operations on integers; those of one bit are in `_BOOLEAN`."""

_BOOLEAN = {
    "arith.addi": "{0} ^ {1}",
    "arith.subi": "{0} ^ {1}",
    "arith.muli": "{0} & {1}",
    "arith.andi": "{0} & {1}",
    "arith.ori": "{0} | {1}",
    "arith.xori": "{0} ^ {1}",
    "arith.maxui": "{0} | {1}",
    "arith.minui": "{0} & {1}",
    "arith.maxsi": "{0} & {1}",  # true is -1
    "arith.minsi": "{0} | {1}",
}

_FLOAT = {
    "arith.addf": "{0} + {1}",
    "arith.subf": "{0} - {1}",
    "arith.mulf": "{0} * {1}",
    "arith.divf": "{0} / {1}",
    "tt.precise_divf": "{0} / {1}",
    "arith.remf": "np.fmod({0}, {1})",
    "arith.negf": "-{0}",
    "arith.maximumf": "np.maximum({0}, {1})",
    "arith.minimumf": "np.minimum({0}, {1})",
    "arith.maxnumf": "np.fmax({0}, {1})",
    "arith.minnumf": "np.fmin({0}, {1})",
    "math.absf": "np.abs({0})",
    "math.round": "o.library('__nv_round', KIND, {0})",
    "math.roundeven": "np.rint({0})",
    "math.powf": "np.power({0}, {1})",
    "tt.precise_sqrt": "np.sqrt({0})",
    "math.rsqrt": "ONE / np.sqrt({0})",
    "math.erf": "o.library('__nv_erf', KIND, {0})",
    "math.fma": "o.fused({0}, {1}, {2})",
    "math.copysign": "np.copysign({0}, {1})",
    "tt.clampf": "CLAMP",
    **{
        f"math.{name}": f"np.{name}({{0}})"
        for name in (
            *("ceil", "floor", "trunc", "cos", "sin", "tan", "tanh", "sqrt"),
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        )
    },
}
"""Operations on floating numbers. ``KIND`` is NumPy's type of the result, ``ONE`` its one."""

_NOTHING = frozenset({"tt.print", "gpu.barrier", "ttg.barrier", "ttg.local_barrier"})
"""What has no effect on values: programs here are one thread each."""

_LINEAR = frozenset(
    (
        *("arith.constant", "tt.make_range", "tt.expand_dims", "tt.broadcast", "tt.splat"),
        *("tt.reshape", "tt.trans", "arith.addi", "arith.subi", "arith.muli", "arith.divsi"),
        *("arith.remsi", "arith.extsi", "arith.index_cast"),
    )
)
"""What makes of numbers no other than their sums, products and parts."""

_PASSED_ON = frozenset(("arith.addi", "tt.splat", "tt.broadcast", "tt.expand_dims"))
"""What leaves a number as wide as it was made, but for a summand."""

_ENDS = frozenset(
    (
        *("scf.yield", "scf.condition", "tt.return"),
        *("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"),
    )
)

_AXES = {"x": 0, "y": 1, "z": 2}


def compile_kernel(functions: dict[str, Function]) -> Callable[..., None]:
    """Return a function that runs a module's kernel for a chunk of programs.

    It takes a `curate.verify.executor.operations.Chunk` and the kernel's arguments, each an array
    of one element.

    Raises:
        UnsupportedOperation: an operation is not known here.
        TTIRError: the module is malformed.
    """
    writer = _Writer(functions)
    text = writer.module()
    space: dict[str, Any] = {"np": np, "o": operations, "n": numbers, **writer.constants}
    try:
        exec(compile(text, "<executor>", "exec"), space)
    except (SyntaxError, ValueError, RecursionError) as error:  # such as a region without an end
        raise TTIRError(f"is no TTIR: {type(error).__name__}: {error}") from error
    entry: Callable[..., None] = space[writer.entry]
    return entry


def touched_arguments(functions: dict[str, Function], names: frozenset[str]) -> set[int] | None:
    """Return the positions of the kernel's arguments that some operations may get pointers from.

    None means that it cannot be told: a pointer came out of memory, from a number or from a call.
    """
    if len(functions) > 1 or any(
        kind.element == "ptr"
        and op.name in ("tt.int_to_ptr", "tt.load", "tt.bitcast", "arith.bitcast")
        for op in _all_ops(functions)
        for kind in op.types
    ):
        return None
    kernel = next(function for function in functions.values() if function.public)
    places = {name: i for i, (name, _) in enumerate(kernel.arguments)}
    sources = _pointer_sources(kernel)
    pending = [op.operands[0] for op in walk(kernel.body) if op.name in names]
    seen = set(pending)
    while pending:
        for name in sources.get(pending.pop(), set()) - seen:
            seen.add(name)
            pending.append(name)
    return {places[name] for name in seen & places.keys()}


def _pointer_sources(kernel: Function) -> dict[str, set[str]]:
    """Return the pointers that each pointer may be made of, or be the same as."""
    pointers = {name for name, kind in kernel.arguments if kind.element == "ptr"}
    for op in walk(kernel.body):
        pairs = [*zip(op.results, op.types, strict=True)]
        pairs += [p for region in op.regions for block in region.blocks for p in block.arguments]
        pointers.update(name for name, kind in pairs if kind.element == "ptr")
    for block in kernel.body.blocks:
        pointers.update(name for name, kind in block.arguments if kind.element == "ptr")
    sources: dict[str, set[str]] = {name: set() for name in pointers}
    for op in walk(kernel.body):
        blocks = [block for region in op.regions for block in region.blocks]
        made = pointers.intersection(op.operands)
        made.update(*(pointers.intersection(b.ops[-1].operands) for b in blocks if b.ops))
        inside = [name for block in blocks for name, _ in block.arguments]
        for name in pointers.intersection([*op.results, *inside]):
            sources[name] |= made
    arguments = {b.label: [name for name, _ in b.arguments] for b in kernel.body.blocks}
    for op in walk(kernel.body):
        for label, given in op.targets:
            for name, value in zip(arguments.get(label, ()), given, strict=False):
                if name in pointers:
                    sources[name].add(value)
    return sources


def _hands(op: Op) -> int:
    """Return what an atomic operation such as ``add, acq_rel, gpu`` hands on (`memory.Order`)."""
    words = set(re.findall(r"\w+", op.text.partition("%")[0]))
    if "cta" in words:
        return OWN_BLOCK
    releases, acquires = words & {"release", "acq_rel"}, words & {"acquire", "acq_rel"}
    return RELEASE * bool(releases) | ACQUIRE * bool(acquires)


def _all_ops(functions: dict[str, Function]) -> list[Op]:
    return [op for function in functions.values() for op in walk(function.body)]


class _Writer:
    """Writes the text of a module's functions."""

    def __init__(self, functions: dict[str, Function]) -> None:
        self.functions = functions
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.types: dict[str, Type] = {}
        self.count = 0
        self.entry = ""
        self.used: set[str] = set()
        self.degrees: dict[str, int] = {}  # see `_degree`
        self.widened: dict[str, str] = {}  # what a number in 64 bits was in 32, by its name

    # functions and regions

    def module(self) -> str:
        called = {name: f"f{i}" for i, name in enumerate(self.functions)}
        self.called = called
        for name, function in self.functions.items():
            self.function(called[name], function)
            if function.public:
                self.entry = called[name]
        return "\n".join(self.lines) + "\n"

    def function(self, name: str, function: Function) -> None:
        self.names, self.types, self.used = {}, {}, set()
        self.degrees = {argument: 1 for argument, _ in function.arguments if function.public}
        for op in walk(function.body):
            self.used.update(op.operands)
            for _, given in op.targets:
                self.used.update(given)
        arguments = [self.define(*argument) for argument in function.arguments]
        self.lines.append(f"def {name}(k, live, {', '.join(arguments)}):")
        if len(function.body.blocks) == 1:
            self.block(function.body.blocks[0], 1, "live")
        else:
            self.graph(function)

    def define(self, name: str, kind: Type) -> str:
        self.count += 1
        self.names[name] = f"v{self.count}"
        self.types[name] = kind
        return self.names[name]

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, block: Block, depth: int, live: str) -> None:
        for op in block.ops:
            self.op(op, depth, live)

    def nested(self, region: Region, depth: int) -> str:
        """Write a region as a function of its own; return its name."""
        if len(region.blocks) != 1:
            raise UnsupportedOperation("control_flow", "branches within a region")
        self.count += 1
        name, live = f"b{self.count}", f"live{self.count}"
        arguments = [self.define(*argument) for argument in region.blocks[0].arguments]
        self.line(depth, f"def {name}({', '.join([live, *arguments])}):")
        self.block(region.blocks[0], depth + 1, live)
        if not region.blocks[0].ops or region.blocks[0].ops[-1].name not in _ENDS:
            self.line(depth + 1, "return ()")
        return name

    def graph(self, function: Function) -> None:
        """Write blocks that branch forwards, each under a mask of the programs that get there."""
        blocks = _in_order(function.body.blocks)
        order = {block.label: i for i, block in enumerate(blocks)}
        self.line(1, "gone = None")
        for block in blocks[1:]:
            for argument in block.arguments:
                self.line(1, f"{self.define(*argument)} = None")
        self.line(1, "live0 = np.ones(k.programs.shape, bool) if live is None else live")
        for i in range(1, len(blocks)):
            self.line(1, f"live{i}_ = np.zeros(k.programs.shape, bool)")
        results: list[str] = []
        for i, block in enumerate(blocks):
            if i:
                self.line(1, f"live{i} = live{i}_")
            self.line(1, f"here{i} = k.all(live{i})")
            *body, last = block.ops
            self.block(Block(block.label, [], body), 1, f"here{i}")
            if last.name == "tt.return":
                values = ", ".join(self.names[v] for v in last.operands)
                self.line(1, f"r{i} = ({values}{',' if values else ''})")
                results.append(f"(live{i}, r{i})")
                continue
            if last.name not in ("cf.br", "cf.cond_br"):
                raise UnsupportedOperation("control_flow", last.name)
            for side, (label, given) in enumerate(last.targets):
                to = order[label]
                mask = f"live{i}"
                if last.name == "cf.cond_br":
                    condition = self.names[last.operands[0]]
                    mask = f"(live{i} & {'~' if side else ''}{condition})"
                self.line(1, f"m = {mask}")
                for (name, _), value in zip(blocks[to].arguments, given, strict=True):
                    inner, outer = self.names[name], self.names[value]
                    self.line(
                        1,
                        f"{inner} = {outer} if {inner} is None else o.choose(m, {outer}, {inner})",
                    )
                self.line(1, f"live{to}_ = live{to}_ | m")
        self.line(1, f"return o.returned([{', '.join(results)}])")

    # operations

    def op(self, op: Op, depth: int, live: str) -> None:
        try:
            self.write(op, depth, live)
        except KeyError as error:
            raise TTIRError(f"line {op.line}: {error} is not known") from error

    def write(self, op: Op, depth: int, live: str) -> None:
        if op.name in _NOTHING:
            return
        given = [self.names[operand] for operand in op.operands]
        if (degree := self._degree(op)) is not None:
            self.degrees.update(dict.fromkeys(op.results, degree))
        if op.name in _PASSED_ON and (wide := self._widened_in(op)):
            self.widened[op.results[0]] = wide
        special: Callable[[Op, list[str], int, str], None] | None = getattr(
            self, "op_" + re.sub(r"\W", "_", op.name), None
        )
        if special:
            special(op, given, depth, live)
        elif form := _FORMS.get(op.name):
            self.result(op, depth, form(self, op, given))
        else:
            self.result(op, depth, self.expression(op, given))
        if numbers := op.multiples:
            pointee = op.types[0].pointee  # of whose bytes an address counts
            step = pointee.bits // 8 if pointee else 1
            self.line(depth, f"k.promise({live}, {self.names[op.results[0]]}, {numbers}, {step})")

    def _widened_in(self, op: Op) -> str | None:
        """Return what was made in 32 bits and only widened then, beside numbers of arguments."""
        wide = [self.widened[operand] for operand in op.operands if operand in self.widened]
        rest = [o for o in op.operands if o not in self.widened or self.widened[o] in self.degrees]
        known = [one for one in wide if one not in self.degrees]
        return known[0] if len(known) == 1 and all(o in self.degrees for o in rest) else None

    def _degree(self, op: Op) -> int | None:
        """Return 0 for what constants and ranges make, 1 for what is a number of an argument or of
        a loop times such, and None for the rest, as products of these and numbers of programs.

        What 32 bits hold of the first two is no more than an argument, which has 64 if it needs
        them, and so has a loop up to it; the rest may be as much as there are elements.
        """
        known = [self.degrees.get(operand) for operand in op.operands]
        if op.name not in _LINEAR or None in known:
            return None
        degrees = [degree for degree in known if degree is not None]
        degree = sum(degrees) if op.name == "arith.muli" else max(degrees, default=0)
        return degree if degree < 2 else None

    def result(self, op: Op, depth: int, expression: str) -> None:
        names = [self.define(name, kind) for name, kind in zip(op.results, op.types, strict=True)]
        if len(names) == 1:
            self.line(depth, f"{names[0]} = {expression}")
        elif names:
            self.line(depth, f"{', '.join(names)} = {expression}")
        else:
            self.line(depth, expression)

    def constant(self, value: Any) -> str:
        self.count += 1
        name = f"c{self.count}"
        self.constants[name] = value
        return name

    def expression(self, op: Op, given: list[str]) -> str:
        """Return the expression of an operation that works element by element."""
        kind = op.types[0] if op.types else None
        if kind is None:
            raise UnsupportedOperation("operation", f"{op.name} is not known here")
        if kind.element == "i1" and op.name in _BOOLEAN:
            return _BOOLEAN[op.name].format(*given)
        if op.name in _INTEGER:
            return _INTEGER[op.name].format(*given)
        if op.name in _FLOAT:
            computed = COMPUTED[kind.element]
            text = _FLOAT[op.name].format(*given).replace("KIND", repr(computed))
            text = text.replace("ONE", f"np.{np.dtype(computed).name}(1)")
            if op.name == "tt.clampf":
                text = self.clamp(op, given)
            return self.rounded(kind, text)
        raise UnsupportedOperation("operation", f"{op.name} is not known here")

    def rounded(self, kind: Type, text: str) -> str:
        if rounder(kind.element) is None:
            return text
        return f"{self.constant(rounder(kind.element))}({text})"

    def clamp(self, op: Op, given: list[str]) -> str:
        x, low, high = given
        if "propagateNan = all" in op.text:
            return f"np.minimum(np.maximum({x}, {low}), {high})"
        return f"np.fmin(np.fmax({x}, {low}), {high})"

    # constants, indices

    def op_arith_constant(self, op: Op, given: list[str], depth: int, live: str) -> None:
        kind = op.types[0]
        text = op.text.strip()
        dense = re.fullmatch(r"(?:\{.*\} )?dense<(.*)>", text, re.S)
        words = re.findall(r"0x[0-9A-Fa-f]+|true|false|[-+\d.eE]+", dense[1] if dense else text)
        if not words:
            raise TTIRError(f"line {op.line}: a constant without a value")
        values = np.array([_number(word, kind) for word in words], COMPUTED[kind.element])
        if len(words) == 1:
            value = values.reshape((1,) + (1,) * len(kind.shape))
        else:
            value = values.reshape((1, *kind.shape))
        self.result(op, depth, self.constant(value))

    def op_ub_poison(self, op: Op, given: list[str], depth: int, live: str) -> None:
        kind = op.types[0]
        value = np.zeros((1,) * (1 + len(kind.shape)), COMPUTED[kind.element])
        self.result(op, depth, self.constant(value))

    def op_tt_make_range(self, op: Op, given: list[str], depth: int, live: str) -> None:
        value = np.arange(op.integer("start"), op.integer("end"), dtype=np.int32)
        self.result(op, depth, self.constant(value.reshape(1, -1)))

    # shapes

    def full(self, op: Op) -> list[str]:
        """Return an operation's operands with their axes in their true lengths."""
        return [f"o.full({self.names[o]}, {self.types[o].shape})" for o in op.operands]

    def op_builtin_unrealized_conversion_cast(
        self, op: Op, given: list[str], depth: int, live: str
    ) -> None:
        """Drop axes of length one, as a descriptor's load of fewer axes does."""
        before, after = self.types[op.operands[0]], op.types[0]
        if (before.element, before.numel) != (after.element, after.numel):
            raise UnsupportedOperation("operation", f"a cast from {before} to {after}")
        self.result(op, depth, _FORMS["tt.reshape"](self, op, given))

    def op_tt_histogram(self, op: Op, given: list[str], depth: int, live: str) -> None:
        whole, mask = [*self.full(op), "None"][:2]
        self.result(op, depth, f"o.histogram({whole}, {mask}, {op.types[0].shape[0]})")

    # comparisons, choices, conversions

    def op_arith_cmpi(self, op: Op, given: list[str], depth: int, live: str) -> None:
        predicate = op.text.split(",")[0].strip()
        if self.types[op.operands[0]].element == "i1":
            given = [f"{name}.view('i1')" for name in given]
        self.result(op, depth, _COMPARE[predicate].format(*given))

    def _as(self, op: Op, given: list[str], depth: int, live: str) -> None:
        self.result(op, depth, f"{given[0]}.astype('{COMPUTED[op.types[0].element]}', copy=False)")

    op_arith_index_cast = op_tt_ptr_to_int = _as

    def op_arith_extsi(self, op: Op, given: list[str], depth: int, live: str) -> None:
        if self.types[op.operands[0]].element == "i1":
            self.result(op, depth, f"-{given[0]}.astype('{COMPUTED[op.types[0].element]}')")
        else:
            self.widened[op.results[0]] = op.operands[0]
            self._as(op, given, depth, live)

    def op_arith_extui(self, op: Op, given: list[str], depth: int, live: str) -> None:
        if self.types[op.operands[0]].element == "i1":
            self._as(op, given, depth, live)
        else:
            self.result(
                op, depth, f"o.view_unsigned({given[0]}).astype('{COMPUTED[op.types[0].element]}')"
            )

    def op_arith_trunci(self, op: Op, given: list[str], depth: int, live: str) -> None:
        if op.types[0].element == "i1":
            self.result(op, depth, f"({given[0]} & 1) != 0")
        else:
            self._as(op, given, depth, live)

    def op_arith_sitofp(self, op: Op, given: list[str], depth: int, live: str) -> None:
        source, kind = self.types[op.operands[0]].element, op.types[0]
        sign = "-" if source == "i1" else ""
        text = f"{sign}{given[0]}.astype('{COMPUTED[kind.element]}')"
        self.result(op, depth, self.rounded(kind, text))

    def op_arith_uitofp(self, op: Op, given: list[str], depth: int, live: str) -> None:
        source, kind = self.types[op.operands[0]].element, op.types[0]
        bits = given[0] if source == "i1" else f"o.view_unsigned({given[0]})"
        self.result(op, depth, self.rounded(kind, f"{bits}.astype('{COMPUTED[kind.element]}')"))

    def _bitcast(self, op: Op, given: list[str], depth: int, live: str) -> None:
        source, target = self.types[op.operands[0]].element, op.types[0].element
        if source == target or {source, target} <= {"ptr", "i64"}:
            self.result(op, depth, given[0])
        else:
            self.result(op, depth, f"o.bitcast({given[0]}, '{source}', '{target}')")

    op_arith_bitcast = op_tt_bitcast = _bitcast

    # memory

    def op_tt_addptr(self, op: Op, given: list[str], depth: int, live: str) -> None:
        pointee = op.types[0].pointee
        assert pointee
        size = element_size(pointee)
        offset = f"{given[1]}.astype('i8', copy=False)"
        scaled = offset if size == 1 else f"{offset} * {size}"
        narrow = self.widened.get(op.operands[1], op.operands[1])  # made in 32 bits, widened after
        if self.types[narrow].element == "i32" and narrow not in self.degrees:
            self.line(depth, f"k.reach({live}, {given[0]}, {self.names[narrow]}, {size})")
        self.result(op, depth, f"{given[0]} + {scaled}")

    def op_tt_load(self, op: Op, given: list[str], depth: int, live: str) -> None:
        pointer, mask, other = [*given, "None", "None"][:3]
        element = op.types[0].element
        element_size(op.types[0])
        self.result(op, depth, f"k.load({live}, {pointer}, {mask}, {other}, '{element}')")

    def op_tt_store(self, op: Op, given: list[str], depth: int, live: str) -> None:
        pointer, value, mask = [*given, "None"][:3]
        element = self.types[op.operands[1]].element
        element_size(self.types[op.operands[1]])
        self.result(op, depth, f"k.store({live}, {pointer}, {value}, {mask}, '{element}')")

    def op_tt_atomic_rmw(self, op: Op, given: list[str], depth: int, live: str) -> None:
        pointer, value, mask = [*given, "None"][:3]
        how, element = op.text.split(",")[0].strip(), op.types[0].element
        given = [live, pointer, value, mask, repr(_word(how)), repr(element)]
        given += [str(op.results[0] in self.used), str(_hands(op))]
        self.result(op, depth, f"k.update({', '.join(given)})")

    def op_tt_atomic_cas(self, op: Op, given: list[str], depth: int, live: str) -> None:
        given = [live, *given, repr(op.types[0].element), str(_hands(op))]
        self.result(op, depth, f"k.compare_and_swap({', '.join(given)})")

    def op_tt_assert(self, op: Op, given: list[str], depth: int, live: str) -> None:
        said = re.search(r'"((?:[^"\\]|\\.)*)"', op.text)
        message = self.constant(said[1][:200] if said else "")
        self.line(depth, f"k.require({live}, {given[0]}, {message})")

    def op_llvm_intr_assume(self, op: Op, given: list[str], depth: int, live: str) -> None:
        self.line(depth, f"k.assume({live}, {given[0]})")

    op_tt_assume = op_llvm_intr_assume

    # products and library calls

    def op_tt_dot(self, op: Op, given: list[str], depth: int, live: str) -> None:
        left = self.types[op.operands[0]]
        precision = op.attribute("inputPrecision") or "ieee"
        blocks = ", ".join(self.full(op))
        work = left.numel * op.types[0].shape[-1] // 16 + 1
        self.line(depth, f"k.work.spend(len(k.programs) * {work})")
        self.result(
            op,
            depth,
            f"n.dot({blocks}, '{left.element}', '{op.types[0].element}', '{_word(precision)}')",
        )

    def op_tt_extern_elementwise(self, op: Op, given: list[str], depth: int, live: str) -> None:
        symbol = (op.attribute("symbol") or "").strip('"')
        name, kind = self.constant(symbol), op.types[0]
        if libdevice.find(symbol) is None:
            raise UnsupportedOperation("library_function", f"{symbol} is not known here")
        text = f"o.library({name}, '{COMPUTED[kind.element]}', {', '.join(given)})"
        self.result(op, depth, self.rounded(kind, text) if kind.is_float else text)

    def op_tt_elementwise_inline_asm(self, op: Op, given: list[str], depth: int, live: str) -> None:
        raise UnsupportedOperation("inline_asm", "inline assembly cannot be run on a CPU")

    def op_tt_dot_scaled(self, op: Op, given: list[str], depth: int, live: str) -> None:
        kinds = re.search(r"lhs = (\w+) rhs = (\w+)", op.text)
        scaled = re.match(r"\s*%\S+( scale %\S+)?, %\S+( scale %\S+)?, ", op.text)
        if not kinds or not scaled:
            raise TTIRError(f"line {op.line}: a product of unknown form")
        names = iter(self.full(op))
        computed = "f16" if "fp16" in kinds.groups() else "bf16"
        sides = []
        for side, kind, scale in zip(("lhs", "rhs"), kinds.groups(), scaled.groups(), strict=True):
            block, scales = next(names), next(names) if scale else "None"
            along = op.attribute(f"{side}_k_pack") != "false"
            left = side == "lhs"
            sides.append(f"o.unscaled({block}, {scales}, '{kind}', '{computed}', {left}, {along})")
        result = op.types[0]
        work = self.types[op.operands[0]].numel * result.shape[-1] // 8 + 1
        self.line(depth, f"k.work.spend(len(k.programs) * {work})")
        total = f"{next(names)} + np.matmul({', '.join(sides)})"
        self.result(op, depth, self.rounded(result, total))

    # regions

    def op_scf_for(self, op: Op, given: list[str], depth: int, live: str) -> None:
        turn, _ = op.regions[0].blocks[0].arguments[0]
        self.degrees[turn] = 1
        body = self.nested(op.regions[0], depth)
        low, high, step, *carried = given
        arguments = ", ".join([live, low, high, step, body, *carried])
        self.spread(op, depth, f"k.loop({arguments})")

    def spread(self, op: Op, depth: int, expression: str) -> None:
        """Write a call that gives a tuple, whatever its length."""
        names = [self.define(name, kind) for name, kind in zip(op.results, op.types, strict=True)]
        self.line(depth, f"{', '.join(names)}{',' if names else '_'} = {expression}")

    def op_scf_while(self, op: Op, given: list[str], depth: int, live: str) -> None:
        before, body = (self.nested(region, depth) for region in op.regions)
        self.spread(op, depth, f"k.repeat({', '.join([live, before, body, *given])})")

    def op_scf_if(self, op: Op, given: list[str], depth: int, live: str) -> None:
        bodies = [self.nested(region, depth) for region in op.regions]
        if len(bodies) == 1:
            bodies.append("o.nothing")
        self.spread(op, depth, f"k.branch({live}, {given[0]}, {', '.join(bodies)})")

    def _return(self, op: Op, given: list[str], depth: int, live: str) -> None:
        self.line(depth, f"return ({', '.join(given)}{',' if given else ''})")

    op_scf_yield = op_scf_condition = op_tt_return = _return
    op_tt_reduce_return = op_tt_scan_return = op_tt_map_elementwise_return = _return

    def op_tt_call(self, op: Op, given: list[str], depth: int, live: str) -> None:
        name = self.called.get(op.symbol or "")
        if name is None:
            raise UnsupportedOperation("call", f"{op.symbol} is not in the module")
        self.spread(op, depth, f"{name}({', '.join(['k', live, *given])})")

    def op_tt_map_elementwise(self, op: Op, given: list[str], depth: int, live: str) -> None:
        if (op.attribute("pack") or "1") != "1":
            # A layout decides which elements one call gets together, and there is no layout yet.
            raise UnsupportedOperation("map_elementwise", "map_elementwise with a pack")
        body = self.nested(op.regions[0], depth)
        self.spread(op, depth, f"{body}(None, {', '.join(given)})")

    def _fold_name(self, op: Op, known: dict[str, np.ufunc]) -> str | None:
        """Return the one operation that a region combines with, if NumPy folds it by itself."""
        block = op.regions[0].blocks[0]
        if len(op.regions[0].blocks) > 1 or len(block.ops) != 2 or len(block.arguments) != 2:
            return None
        first, last = block.ops
        names = {name for name, _ in block.arguments}
        plain = set(first.operands) == names and last.operands == first.results
        short = rounder(block.arguments[0][1].element) is not None
        return first.name if plain and first.name in known and not short else None

    def op_tt_reduce(self, op: Op, given: list[str], depth: int, live: str) -> None:
        axis = op.integer("axis") + 1
        blocks = self.full(op)
        if name := self._fold_name(op, FOLDS):
            self.result(op, depth, f"o.fold(k.work, '{name}', {blocks[0]}, {axis})")
            return
        body = self.nested(op.regions[0], depth)
        self.spread(op, depth, f"o.reduce(k.work, {body}, {axis}, {', '.join(blocks)})")

    def op_tt_scan(self, op: Op, given: list[str], depth: int, live: str) -> None:
        axis, reverse = op.integer("axis") + 1, op.attribute("reverse") == "true"
        blocks = self.full(op)
        if name := self._fold_name(op, RUNNING):
            self.result(op, depth, f"o.running(k.work, '{name}', {blocks[0]}, {axis}, {reverse})")
            return
        body = self.nested(op.regions[0], depth)
        self.spread(op, depth, f"o.scan(k.work, {body}, {axis}, {reverse}, {', '.join(blocks)})")


def _to_integer(writer: _Writer, op: Op, given: list[str], unsigned: bool) -> str:
    kind = COMPUTED[op.types[0].element]
    if kind == "?":
        return f"np.trunc({given[0]}) != 0"
    return f"o.to_integer({given[0]}, '{kind}', {unsigned})"


def _convert(writer: _Writer, op: Op, given: list[str]) -> str:
    source, target = writer.types[op.operands[0]].element, op.types[0].element
    return f"n.convert_float({given[0]}, '{source}', '{target}', {'rtz' in op.text})"


_FORMS: dict[str, Callable[[_Writer, Op, list[str]], str]] = {
    "tt.get_program_id": lambda w, op, x: f"k.index[{_AXES[op.text.split()[0]]}]",
    "tt.get_num_programs": lambda w, op, x: (
        f"np.array([k.grid[{_AXES[op.text.split()[0]]}]], 'i4')"
    ),
    # shapes
    "tt.splat": lambda w, op, x: f"o.splat({x[0]}, {len(op.types[0].shape)})",
    "tt.unsplat": lambda w, op, x: f"{x[0]}.reshape(-1)",
    "tt.broadcast": lambda w, op, x: x[0],
    "tt.expand_dims": lambda w, op, x: f"np.expand_dims({x[0]}, {op.integer('axis') + 1})",
    "tt.reshape": lambda w, op, x: f"{w.full(op)[0]}.reshape((-1, *{op.types[0].shape}))",
    "tt.trans": lambda w, op, x: (
        f"{x[0]}.transpose({[0, *(axis + 1 for axis in op.integers('order'))]})"
    ),
    "tt.cat": lambda w, op, x: f"o.joined(np.concatenate, {', '.join(w.full(op))}, axis=1)",
    "tt.join": lambda w, op, x: f"o.joined(np.stack, {', '.join(w.full(op))}, axis=-1)",
    "tt.split": lambda w, op, x: "{0}[..., 0], {0}[..., 1]".format(*w.full(op)),
    "tt.gather": lambda w, op, x: f"o.gather({', '.join(w.full(op))}, {op.integer('axis') + 1})",
    # choices and conversions
    "arith.cmpf": lambda w, op, x: _COMPARE_FLOAT[op.text.split(",")[0].strip()].format(*x),
    "arith.select": lambda w, op, x: f"o.choose({', '.join(x)})",
    "tt.int_to_ptr": lambda w, op, x: x[0],
    "arith.fptosi": lambda w, op, x: _to_integer(w, op, x, unsigned=False),
    "arith.fptoui": lambda w, op, x: _to_integer(w, op, x, unsigned=True),
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), _convert),
}
"""Expressions of other operations, from the names of what they are given."""


def _in_order(blocks: list[Block]) -> list[Block]:
    """Return blocks so that each comes behind all that branch to it."""
    labelled = {block.label: block for block in blocks}
    awaited = Counter(label for block in blocks for label, _ in block.ops[-1].targets)
    ready, found = blocks[:1], []
    while ready:
        found.append(ready.pop())
        for label, _ in found[-1].ops[-1].targets:
            awaited[label] -= 1
            if not awaited[label]:
                ready.append(labelled[label])
    if len(found) < len(blocks):
        raise UnsupportedOperation("control_flow", "a branch backwards")
    return found


def _word(text: str) -> str:
    if not re.fullmatch(r"\w+", text):
        raise TTIRError(f"not a word: {text[:40]!r}")
    return text


def _number(word: str, kind: Type) -> float | int | bool:
    """Return a constant as MLIR prints it: decimal, or the bits in hexadecimal."""
    if word in ("true", "false"):
        return word == "true"
    if not word.startswith("0x"):
        return float(word) if kind.is_float else int(word)
    bits = int(word, 16)
    if not kind.is_float:
        return bits - (1 << kind.bits) if bits >> (kind.bits - 1) else bits
    size = element_size(kind)
    raw = np.frombuffer(bits.to_bytes(size, "little"), numbers.STORED[kind.element])
    return float(numbers.decode(raw, kind.element)[0])
