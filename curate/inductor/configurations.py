"""Compile a module as its file uses it and in other ways, so that nothing is baked in for good.

What a caller decides, constructor arguments and input sizes, Inductor takes for constants where
``torch.export`` does. Compiled with other values, the text differs in just these places, and
`unify` finds what they follow from. What cannot be varied is listed, for the program to check.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import ExportedProgram

from curate.inductor.offline import (
    Exported,
    ExportFailed,
    InductorOutput,
    UnsupportedModule,
    Usage,
    export,
    export_like,
    first_line,
    generate,
    tensors,
)
from curate.inductor.unify import (
    CompiledText,
    NotAlike,
    Number,
    Unified,
    differ,
    is_told_apart,
    unify,
)
from curate.inductor.wrapper import attribute_path
from curate.verify import problem
from curate.verify.reference.draw import Variation, changed_arguments, defaults

MOST_KNOBS = 8
"""Arguments and sizes that are varied; each costs a compilation."""

_MOST_TRIED = 2
"""Other values of a knob with which the program is compiled, until one leaves its form."""

_MOST_COMPILED = 40
"""Compilations of a module after which none of its knobs is left open."""

_LONGEST = 80
"""Characters of a value that a program can be asked to check."""


Changes = tuple[Variation, ...]


@dataclass(frozen=True)
class Knob:
    """What a caller may choose.

    Attributes:
        names: of constructor's arguments, several if they are changed together; none for a size of
            the inputs.
        choices: other values, those first that leave the program's form as it is.
    """

    names: tuple[str, ...]
    choices: tuple[Changes, ...]


def compile_reference(
    reference: str, target: str, own_products: bool = False, dynamic: bool = True
) -> InductorOutput:
    """Return the code that Inductor writes for a file in KernelBench's form.

    With ``dynamic``, sizes and the constructor's numbers are symbols where they can be. If Inductor
    fails on variable sizes, constant ones are tried, and the spec says why.

    Raises:
        ExportFailed: the file cannot be run, or its module not exported.
        UnsupportedModule: a spec cannot say what the module takes or returns.
        Exception: whatever Inductor raised.
    """
    try:
        task = problem.load(problem.REFERENCE, reference)
    except problem.ProgramError as error:
        raise ExportFailed(first_line(error.__cause__)) from error
    if not dynamic:
        return generate(export(task, False), target, own_products)
    search = _Search(task, target, own_products)
    made = search.unified() or search.as_in_file()
    made.spec["fixed"] = search.fixed()
    made.spec["given"] = len(search.own.inputs)
    return made


class _Search:
    """Looks for the most that one program can leave open."""

    def __init__(self, task: ModuleType, target: str, own_products: bool) -> None:
        self.task = task
        self.target = target
        self.own_products = own_products
        self.open: set[Knob] = set()
        self.compiled = 0
        half = self._export_in_half()
        self._begin(half or export(task, True), half is not None)

    def _begin(self, own: Exported, half: bool) -> None:
        """Start from a graph, which is in bfloat16 if ``half``."""
        self.own, self.half = own, half
        self.graph = _graph(own)
        self.knobs = [*_arguments(self.task, own.inputs), *_sizes(self.task, own)][:MOST_KNOBS]
        self.used = False  # whether the graph has been compiled, which changes it

    def _export_in_half(self) -> Exported | None:
        """Return the module's graph in bfloat16, if it has one that serves other types too."""
        try:
            own = export(self.task, True, Usage(dtype=torch.bfloat16))
        except ExportFailed:
            return None
        return own if _has_floats(own.inputs) and not _has_limits(own.program) else None

    @property
    def dtype(self) -> torch.dtype | None:
        """What floating tensors become."""
        return torch.bfloat16 if self.half else None

    def as_in_file(self) -> InductorOutput:
        """Return the program for the file's own arguments and types."""
        self.open, self.half = set(), False
        try:
            return generate(export(self.task, True), self.target, self.own_products)
        except UnsupportedModule:
            raise
        except Exception as error:
            constant = export(self.task, False)
            because = dataclasses.replace(constant, static_because=first_line(error))
            return generate(because, self.target, self.own_products)

    def unified(self) -> InductorOutput | None:
        """Return a program with as many knobs left open as go together, or None."""
        knobs = list(self.knobs)
        while True:
            centre = self._centre(knobs)
            try:
                made, left = self._together(centre)
            except Exception as error:
                if self.half:
                    self._begin(export(self.task, True), False)
                    knobs = list(self.knobs)
                elif isinstance(error, UnsupportedModule):
                    raise
                elif not knobs:
                    return None
                else:
                    knobs = []
                continue
            if made is not None:
                self.open = set(centre)
                return made
            if len(left) == len(centre):
                return None
            knobs = left

    def _runs(self, changes: Changes) -> bool:
        """Whether the module itself takes some changes."""
        usage = Usage(changes, self.dtype)
        try:
            with torch.no_grad(), tensors(self.own.fake), warnings.catch_warnings(action="ignore"):
                usage.build(self.task)(*usage.inputs(self.task))
        except Exception:
            return False
        return True

    def _centre(self, knobs: list[Knob]) -> dict[Knob, Changes]:
        """Return other values for as many knobs as the module takes together."""
        chosen: dict[Knob, Changes] = {}
        for knob in knobs:
            for choice in knob.choices:
                if self._runs((*_all(chosen), *choice)):
                    chosen[knob] = choice
                    break
        return chosen

    def _around(self, centre: dict[Knob, Changes], knob: Knob) -> Iterator[Changes]:
        """Yield a few changes that differ from the centre's in one knob alone."""
        tried = 0
        for choice in knob.choices:
            changes = _all({**centre, knob: choice})
            if choice[0].value != centre[knob][0].value and self._runs(changes):
                yield changes
                tried += 1
            if tried == _MOST_TRIED:
                return

    def _compile(self, changes: Changes) -> tuple[InductorOutput, CompiledText]:
        """Return the program for some changes, and what `unify` wants of it."""
        self.compiled += 1
        if changes and self.compiled > _MOST_COMPILED:
            raise NotAlike("too many compilations")
        exported = self.own
        if changes or self.used:
            exported = export_like(self.task, self.own, Usage(changes, self.dtype))
        self.used = True
        facts, constants = _facts(self.task, exported), _constants(exported.program)
        if self.half and not all(is_told_apart(number, constants) for number in constants):
            raise NotAlike("constants that bfloat16 does not tell apart")
        made = generate(exported, self.target, self.own_products, any_size=True)
        shapes = [given["shape"] for given in made.spec["inputs"]]
        arguments = _constructor(self.task, changes)
        return made, CompiledText(made.code, shapes, facts, arguments, constants)

    def _together(self, centre: dict[Knob, Changes]) -> tuple[InductorOutput | None, list[Knob]]:
        """Return the program for a centre, or the knobs of it to go on with."""
        made, text = self._compile(_all(centre))
        texts, used = [text], []
        for knob in centre:
            for changes in self._around(centre, knob):
                try:
                    _, other = self._compile(changes)
                    idle = not differ(text.code, other.code)
                    if idle and self._tells(text, centre, knob):
                        break
                except Exception:
                    continue  # the form of the program followed from the value
                texts.append(other)
                used.append(knob)
                break
        if len(used) < len(centre):
            return None, used
        try:
            found = unify(texts, self.half)
        except NotAlike as error:
            bad = {used[i - 1] for i in error.differing} or set(centre)
            return None, [knob for knob in centre if knob not in bad]
        return self._with_symbols(made, found), []

    def _tells(self, text: CompiledText, centre: dict[Knob, Changes], knob: Knob) -> bool:
        """Whether the file's own value of a knob shows, as two others do not: -1 for 1 and -3."""
        others = {known: chosen for known, chosen in centre.items() if known != knob}
        _, own = self._compile(_all(others))
        return differ(text.code, own.code)

    def _with_symbols(self, made: InductorOutput, found: Unified) -> InductorOutput:
        floats = [i for i, x in enumerate(self.own.inputs) if _has_floats((x,))]
        spec = {
            **made.spec,
            "symbols": found.symbols,
            "names": found.names,
            "blocks": found.blocks,
            "any_float": {"target": floats[0]} if self.half else None,
        }
        for given, shape in zip(spec["inputs"], found.shapes, strict=True):
            given["shape"] = shape
        return dataclasses.replace(made, code=found.code, spec=spec)

    def fixed(self) -> dict[str, Any]:
        """Return the constructor's arguments that the program is written for, with their values.

        Those that are left open are not among them, nor those that change nothing in the graph.
        """
        names = {name for knob in self.open for name in knob.names}
        known: dict[str, list[Variation]] = {}
        for knob in self.knobs:
            for choice in knob.choices:
                for name, change in zip(knob.names, choice, strict=False):
                    known.setdefault(name, []).append(change)
        found = {}
        for i, (name, own) in enumerate(_constructor(self.task).items()):
            if name in names or len(repr(own)) > _LONGEST:
                continue
            choices = known.get(name, [])
            if type(own) is bool:
                choices = [Variation("argument", i, not own)]
            told = isinstance(own, str | tuple | list) and _is_literal(own)
            if told or (choices and self._matters(choices)):
                found[name] = own
        return found

    def _matters(self, choices: list[Variation]) -> bool:
        """Whether another value of one argument shows in the graph, or cannot be tried."""
        change = next((choice for choice in choices if self._runs((choice,))), None)
        if change is None:
            return True
        try:
            other = export_like(self.task, self.own, Usage((change,), self.dtype))
        except Exception:
            return True
        return _graph(other) != self.graph


def _is_literal(value: Any) -> bool:
    """Whether a value's `repr` says what it is."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _graph(exported: Exported) -> tuple[str, list[tuple[str, torch.Size]]]:
    state = exported.model.state_dict()
    return exported.program.graph_module.code, [(name, t.shape) for name, t in state.items()]


_HALF = torch.finfo(torch.bfloat16)
_LIMITS = {_HALF.max, _HALF.tiny, _HALF.eps}


def _constants(program: ExportedProgram) -> frozenset[float]:
    """Return the floats in a graph."""
    given = [(node.args, tuple(node.kwargs.values())) for node in program.graph.nodes]
    return frozenset(x for x in pytree.tree_leaves(given) if isinstance(x, float))


def _has_limits(program: ExportedProgram) -> bool:
    """Whether a graph holds numbers that only bfloat16 has, such as its largest."""
    return not _LIMITS.isdisjoint(map(abs, _constants(program)))


def _has_floats(inputs: tuple[Any, ...]) -> bool:
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in inputs)


# --- knobs ---------------------------------------------------------------------------------------


def _all(chosen: dict[Knob, Changes]) -> Changes:
    return tuple(change for changes in chosen.values() for change in changes)


def _constructor(task: ModuleType, changes: Changes = ()) -> dict[str, Any]:
    """Return the constructor's arguments by name, defaults included."""
    init = task.Model.__init__
    given = list(task.get_init_inputs())
    values = changed_arguments(init, given + defaults(init, len(given)), changes, "argument")
    parameters = list(inspect.signature(init).parameters.values())[1:]
    named = itertools.takewhile(lambda known: known.kind is known.POSITIONAL_OR_KEYWORD, parameters)
    return dict(zip((known.name for known in named), values, strict=False))


def _arguments(task: ModuleType, inputs: tuple[Any, ...]) -> Iterator[Knob]:
    """Yield the constructor's integers, and its other numbers all at once.

    These change no shape, so that a program in which each has changed by a factor of its own tells
    them apart.
    """
    sizes = {n for x in inputs if isinstance(x, torch.Tensor) for n in x.shape}
    floats: dict[str, list[Variation]] = {}
    for i, (name, own) in enumerate(_constructor(task).items()):
        if type(own) is float and math.isfinite(own):
            share = len(floats) / 32
            less, more = 0.75 - share, 1.3 + share  # not symmetric around what is there
            values = (less * own, more * own) if own else (less / 4, more / 4)
            floats[name] = [Variation("argument", i, value) for value in values]
        elif type(own) is int:
            choices: list[Changes] = []
            for value in _others(own):
                choices.append((Variation("argument", i, value),))
                if own in sizes and value > 0 and own > 1:
                    choices.append((Variation("argument", i, value, own),))
            yield Knob((name,), tuple(choices))
    if floats:
        yield Knob(tuple(floats), tuple(zip(*floats.values(), strict=True)))


def _others(own: int) -> list[int]:
    """Return integers instead of one: no powers of two first, and with its divisors if it can."""
    if own >= 8 and own % 4 == 0:
        tried = [own * 3 // 4, own * 5 // 4, own // 2, own * 3, own * 2, own * 5, own + 1]
    elif own > 0 and own % 2 == 0:
        tried = [own * 3 // 2, own * 5 // 2, own * 3, own + 2, own + 1]
    else:
        tried = [own + 2, own + 4, own * 3, own * 5, own + 1, own + 3]
    return [value for value in dict.fromkeys(tried) if value not in (own, 0)]


def _sizes(task: ModuleType, own: Exported) -> Iterator[Knob]:
    """Yield sizes of the inputs that are constants in the graph and no constructor's argument."""
    given = {value for value in _constructor(task).values() if type(value) is int}
    found: dict[int, None] = {}
    placeholders = {
        node.name: node.meta.get("val")
        for node in own.program.graph.nodes
        if node.op == "placeholder"
    }
    names = own.program.graph_signature.user_inputs
    for name in names:
        value = placeholders.get(name) if isinstance(name, str) else None
        if isinstance(value, torch.Tensor):
            found |= {n: None for n in value.shape if isinstance(n, int) and n > 1}
    for size in found:
        if size not in given:
            choices = tuple((Variation("dimension", 0, n, size),) for n in _others(size))
            yield Knob((), choices)


# --- facts ---------------------------------------------------------------------------------------


def _facts(task: ModuleType, exported: Exported) -> dict[str, Number]:
    """Return the numbers that ``forward`` can read: attributes, and sizes of tensors."""
    found: dict[str, Number] = {}
    for path, module in exported.model.named_modules():
        prefix = attribute_path(path) if path else "self"
        for name, value in vars(module).items():
            if name.startswith("_") or name == "training":
                continue
            items = value if isinstance(value, tuple | list) else ()
            for i, item in enumerate(items[:8]):
                if type(item) in (int, float):
                    found[f"{prefix}.{name}[{i}]"] = item
            if type(value) in (int, float):
                found[f"{prefix}.{name}"] = value
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, tensor in tensors:
            for dim, size in enumerate(tensor.shape):
                if type(size) is int:
                    found[f"{prefix}.{name}.shape[{dim}]"] = size
    names = list(inspect.signature(task.Model.forward).parameters)[1:]
    for name, value in zip(names, exported.inputs, strict=False):
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                found[f"{name}.shape[{dim}]"] = int(size)
        elif type(value) in (int, float):
            found[name] = value
    return found
