"""Whose work is in a result: which operators and kernels lie on the way to it.

Every command reads storages and writes storages, so each storage has a label: a bit for each
operator that computes, and for each launch that does, whose work is in it. A launch computes if it
stores what it has worked out. One that stores what it loaded, be it elsewhere, in another type, or
but for a factor and a summand that are numbers, passes labels on and adds none.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from curate.verify.executor import ttir


@dataclass
class Command:
    """What of a command counts here.

    Attributes:
        name: the operator's or the kernel's; ``read`` if the host reads.
        reads: storages; of a launch one for each of its arguments, None for a number.
        writes: storages, each with whether all of it is written.
        size: bytes that were read and written, or how much work a launch was.
        computes: whether it is an operator that computes.
        kernel: text of a launch's kernel; empty if the text says nothing.
        strays: storages that a launch reached and was not given.
        label: whose work is in what it gave, once that was traced.
    """

    name: str
    reads: Sequence[int | None]
    writes: Sequence[tuple[int, bool]] = ()
    size: int = 0
    computes: bool = False
    kernel: str | None = None
    strays: Sequence[int] = ()
    label: int = 0


@dataclass
class WorkTrace:
    """Who worked on some results.

    Attributes:
        calls, call_bytes: operators that compute, on the way to one of them; what only numbers go
            into, as into a table of sines, has no bytes.
        launch_work: of launches on the way that compute.
        by_operators: for each result, whether operators are on the way and no such launch is.
        by_host: for each result, whether nothing is on the way but what the host may have read.
    """

    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    call_bytes: int = 0
    launch_work: int = 0
    by_operators: list[bool] = field(default_factory=list)
    by_host: list[bool] = field(default_factory=list)


GIVEN, HOST = 1, 2
"""Bits for the inputs of a call, and for what the host makes once it has read values."""


class Origins:
    """The labels of the storages that a call has written.

    Reading a kernel takes time, so labels are made at the end, and only where operators compute or
    the host reads values.

    Attributes:
        given: storages of the inputs.
    """

    def __init__(self, given: Iterable[int] = ()) -> None:
        self.given = frozenset(given)
        self.labels: dict[int, int] = {}
        self.commands: list[Command] = []
        self.nodes = [Command("given", ()), Command("host", ())]
        self.follows = False
        self.operators = self.launches = self.host = self.wanted = self.anywhere = 0
        self.constants = 0  # operators that work on what neither inputs nor state are in

    def note(self, command: Command) -> Command:
        """Take note of a command."""
        self.commands.append(command)
        return command

    def trace(self, results: Sequence[int]) -> WorkTrace:
        """Say who worked on the results that lie in some storages."""
        self.follows |= any(c.computes or c.name == READ for c in self.commands)
        for command in self.commands if self.follows else ():
            self._follow(command)
        self.commands = []
        labels = [self._label(storage) | self.anywhere for storage in results]
        found = WorkTrace()
        self.wanted = 0
        for label in labels:
            self.wanted |= label
            found.by_operators.append(bool(label & self.operators) and not label & self.launches)
            found.by_host.append(label & (GIVEN | HOST) == HOST)
        for number, node in enumerate(self.nodes):
            if not self.wanted >> number & 1:
                continue
            if node.computes:
                found.calls[node.name] += 1
                found.call_bytes += 0 if self.constants >> number & 1 else node.size
            else:
                found.launch_work += node.size
        return found

    def comes_first(self, command: Command) -> bool:
        """Whether what a command gave is on the way to the results last traced, before any kernel.

        What moves values only has no bit of its own, and counts in any case.
        """
        on_the_way = command.label & self.wanted & ~(GIVEN | HOST) or not command.computes
        return bool(on_the_way) and not command.label & self.launches

    def _follow(self, command: Command) -> None:
        if command.kernel is not None:
            self._launch(command)
            return
        label = self._joined(command.reads) if command.reads else self.host
        if command.name == READ:
            self.host |= HOST | label & ~GIVEN
        if command.computes:
            bit = self._node(command)
            self.operators |= bit
            if not label & ~self.constants and all(s in self.labels for s in command.reads):
                self.constants |= bit
            label |= bit
        command.label = label
        for storage, whole in command.writes:
            self.labels[storage] = label if whole else label | self._label(storage)

    def _label(self, storage: int | None) -> int:
        if storage is None:
            return 0
        return self.labels.get(storage, GIVEN if storage in self.given else 0)

    def _joined(self, storages: Iterable[int | None]) -> int:
        label = 0
        for storage in storages:
            label |= self._label(storage)
        return label

    def _node(self, command: Command) -> int:
        self.nodes.append(command)
        return 1 << len(self.nodes) - 1

    def _launch(self, command: Command) -> None:
        flows = kernel_flows(command.kernel) if command.kernel else None
        if flows is None or (command.strays and not _goes_by_address(flows)):  # to anywhere
            bit = self._node(command)
            self.launches |= bit
            self.anywhere |= bit | self._joined((*command.reads, *command.strays))
            return
        before = dict(enumerate(map(self._label, command.reads)))
        before[ANY] = self.anywhere | self._joined(command.strays or (*self.labels, *self.given))
        bit = 0
        for target, (computes, sources) in flows.items():
            label = self.host & HOST  # its numbers may be the host's
            for source in sources:
                label |= before[source]
            if computes:
                bit = bit or self._node(command)
                self.launches |= bit
            label |= bit if computes else 0 if sources else self.host
            if target == ANY and not command.strays:
                self.anywhere |= label
            for storage in command.strays if target == ANY else (command.reads[target],):
                if storage is not None:
                    self.labels[storage] = label | self._label(storage)


def _goes_by_address(flows: Flows) -> bool:
    return ANY in flows or any(ANY in sources for _, sources in flows.values())


READ = "read"
"""The name of a command by which the host reads values; what it fills then has their label."""

# --- what a kernel does with what it loads ----------------------------------------------------

ANY = -1
"""Stands for memory whose address was loaded, among a kernel's arguments."""

NUMBER, INDEX, LOADED, PLACE, COMPUTED = range(5)
"""What a value is: a number that all programs share; something of a program's place in the grid;
what was loaded; that and an index, as in an address; and what a kernel has worked out."""

MOVES = frozenset(
    (
        *("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"),
        *("tt.cat", "tt.join", "tt.split", "tt.bitcast", "tt.addptr", "tt.fp_to_fp"),
        *("builtin.unrealized_conversion_cast", "tt.ptr_to_int", "tt.int_to_ptr", "arith.bitcast"),
        *("arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci"),
        *("arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.index_cast"),
        *("arith.negf", "scf.yield", "scf.condition", "scf.if", "scf.for", "scf.while"),
    )
)
"""Operations that give what they were given, elsewhere or in another type."""

AFFINE = frozenset(
    (
        *("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "tt.precise_divf", "math.fma"),
        *("arith.addi", "arith.subi", "arith.muli", "arith.xori"),
    )
)
"""Operations that give what they were given, but for a factor and a summand."""

INTEGER = frozenset(
    (
        *("arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.andi", "arith.ori"),
        *("arith.shli", "arith.shrsi", "arith.shrui", "arith.cmpi", "arith.maxsi", "arith.minsi"),
        *("arith.maxui", "arith.minui"),
    )
)
"""Operations of which an address or a mask is made."""

ENDS, MOST_ROUNDS = ("scf.yield", "scf.condition"), 12


@dataclass(frozen=True)
class _Value:
    """What is known of a value: what it is, the arguments whose memory is in it, and those that it
    is an address in."""

    kind: int = NUMBER
    sources: frozenset[int] = frozenset()
    bases: frozenset[int] = frozenset()

    def join(self, *others: _Value) -> _Value:
        every = (self, *others)
        return _Value(
            max(v.kind for v in every),
            frozenset().union(*(v.sources for v in every)),
            frozenset().union(*(v.bases for v in every)),
        )


Flows = dict[int, tuple[bool, frozenset[int]]]
"""For each argument that a kernel stores to, whether it computes what it stores there, and the
arguments that it loads from for it."""


@lru_cache(maxsize=512)
def kernel_flows(text: str) -> Flows | None:
    """Return what a kernel's text says of its arguments; None: it cannot be told."""
    try:
        functions = ttir.parse(text)
    except ttir.TTIRError:
        return None
    return _Flow(next(iter(functions.values()))).flows() if len(functions) == 1 else None


class _Flow:
    """What values of a kernel are made of, found by going over its text until nothing changes."""

    def __init__(self, kernel: ttir.Function) -> None:
        self.kernel = kernel
        self.values: dict[str, _Value] = {}
        self.found: Flows = {}
        for i, (name, kind) in enumerate(kernel.arguments):
            bases = frozenset((i,)) if kind.element == "ptr" else frozenset()
            self.values[name] = _Value(bases=bases)

    def flows(self) -> Flows | None:
        for _ in range(MOST_ROUNDS):
            before = dict(self.values)
            self._region(self.kernel.body)
            if before == self.values:
                return self.found
        return None

    def _region(self, region: ttir.Region) -> None:
        arguments = {block.label: [n for n, _ in block.arguments] for block in region.blocks}
        for block in region.blocks:
            for op in block.ops:
                self._op(op)
                for label, given in op.targets:
                    for name, value in zip(arguments.get(label, ()), given, strict=False):
                        self._add(name, self._get(value))

    def _get(self, name: str) -> _Value:
        return self.values.get(name, _Value())

    def _add(self, name: str, value: _Value) -> None:
        self.values[name] = self._get(name).join(value)

    def _op(self, op: ttir.Op) -> None:
        given = [self._get(name) for name in op.operands]
        if op.name == "tt.store":
            self._store(given[0], given[1:], computes=given[1].kind in (INDEX, PLACE, COMPUTED))
        elif op.name.startswith("tt.atomic"):
            # Of what was loaded, at addresses that nobody has loaded, it makes no more than a copy.
            moves = given[0].kind < LOADED == given[1].kind and "fadd" in op.text
            self._store(given[0], given[1:], computes=not moves)
            self._give(op, _Value(COMPUTED, given[0].join(*given).sources | given[0].bases))
        elif op.name == "tt.load":
            self._give(op, _load(given))
        elif op.name.startswith("scf."):
            self._control(op, given)
        else:
            for region in op.regions:
                self._region(region)
            self._give(op, _made(op, given))

    def _give(self, op: ttir.Op, value: _Value) -> None:
        for name in op.results:
            self._add(name, value)

    def _control(self, op: ttir.Op, given: list[_Value]) -> None:
        """Hand on what loops carry and what branches yield, by their positions."""
        starts = [[name for name, _ in region.blocks[0].arguments] for region in op.regions]
        carried, chosen = given, _Value()
        if op.name == "scf.for":
            self._add(starts[0].pop(0), _Value(INDEX).join(*given[:3]))
            carried = given[3:]
        elif op.name == "scf.if":
            carried, starts = [], []
            chosen = _Value(COMPUTED) if given[0].kind >= LOADED or given[0].sources else chosen
        for name, value in zip(starts[0] if starts else (), carried, strict=False):
            self._add(name, value)
        for region in op.regions:
            self._region(region)
            last = region.blocks[-1].ops[-1:]
            left = [name for end in last if end.name in ENDS for name in end.operands]
            for i, name in enumerate(left[len(left) and last[0].name == "scf.condition" :]):
                for names in (op.results, *starts):
                    if i < len(names):
                        self._add(names[i], self._get(name).join(chosen))

    def _store(self, pointer: _Value, others: list[_Value], computes: bool) -> None:
        computes |= COMPUTED in (pointer.kind, *(v.kind for v in others))
        sources = pointer.join(*others).sources
        for base in pointer.bases or (ANY,):
            known, before = self.found.get(base, (False, frozenset()))
            self.found[base] = known or computes, before | sources


def _load(given: list[_Value]) -> _Value:
    every = given[0].join(*given[1:])
    sources = every.sources | (given[0].bases or {ANY})
    if given[0].kind == NUMBER:  # one that all programs share
        return _Value(NUMBER, sources)
    return _Value(COMPUTED if every.kind == COMPUTED else LOADED, sources)


def _made(op: ttir.Op, given: list[_Value]) -> _Value:
    """Return what an operation makes of values."""
    if op.name in ("tt.get_program_id", "tt.make_range"):
        return _Value(INDEX)
    every = _Value().join(*given)
    kinds = [value.kind for value in given]
    if op.name.startswith("arith.cmp") and len(set(op.operands)) == 1:
        return _Value(INDEX, every.sources)  # what is compared with itself decides on nothing
    if every.kind < LOADED or op.name in MOVES:
        return every
    return _Value(_kind(op, kinds), every.sources, every.bases)


def _kind(op: ttir.Op, kinds: list[int]) -> int:
    loaded = [kind for kind in kinds if kind >= LOADED]
    top = max(loaded)
    if op.name == "arith.select":
        return max(kinds[1:]) if kinds[0] < LOADED else COMPUTED
    if top == COMPUTED or len(loaded) > 1:
        return COMPUTED
    if op.name in AFFINE and not (op.name.endswith("divf") and kinds[0] < LOADED):
        return PLACE if INDEX in kinds else top
    if op.name == "arith.cmpi" and op.text.split(",")[0].strip() == "ne":
        return top  # as a truth value
    return PLACE if op.name in INTEGER else COMPUTED
