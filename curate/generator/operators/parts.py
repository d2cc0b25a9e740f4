"""Modules that a network repeats, as one operator each: they are traced and printed once.

A block of a residual network is traced on symbols for the sizes of its inputs and parameters, and
becomes a function of the program. Wherever a module of the same form is called, the graph has the
operator `PART`, and the program a call of that function.
"""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import sympy
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from curate.generator.unprintable import Unprintable

_LIBRARY = torch.library.Library("curate", "FRAGMENT")
_LIBRARY.define("part(Tensor[] inputs, Tensor[] held, int number) -> Tensor[]")
PART = torch.ops.curate.part.default
"""What a module computes from ``inputs``; ``number`` is that of its call in `Parts.calls`.

``held`` are those of the module's own tensors that tell the sizes of the results.
"""

FEWEST_REPEATED = 5
"""Layers with weights that are as others before, from which on modules become functions: without,
a small network is shorter, and each of its kernels does more."""

Sizes = list[list[Any]]


@dataclass
class RepeatedPart:
    """A function of the program, and what is known of it.

    Attributes:
        form: of the modules that it stands for.
        names: the tensors that it takes.
        inputs: symbols or numbers for their sizes.
        held: the same for the module's tensors, by their paths.
        outputs: sizes, strides and type of each result.
        result: the structure of the results.
        guards: conditions on the sizes.
        types: what is known of the types of results (`result_types.ResultTypes`).
        needed: paths of the module's tensors whose sizes results have; then ``typed``.
        evaluate: works out a size from numbers for the symbols.
        operators: the ATen operators of its graph.
        written: its kernels and statements.
        name: the function's name, and ``text`` its text.
        typed: the path of a floating tensor of the module's, or "".
    """

    form: Any
    names: list[str]
    inputs: list[list[sympy.Expr]]
    held: dict[str, list[sympy.Expr]]
    outputs: list[tuple[list[sympy.Expr], list[sympy.Expr], torch.dtype]]
    result: Any
    guards: list[Any]
    types: Any
    evaluate: Callable[[sympy.Expr, dict[sympy.Symbol, Any]], Any]
    operators: list[str]
    written: Any
    name: str
    text: str
    typed: str
    needed: list[str] = field(init=False)

    def __post_init__(self) -> None:
        used = {s for a, b, _ in self.outputs for e in (*a, *b) for s in e.free_symbols}
        used -= {e for own in self.inputs for e in own}
        self.needed = []
        for path, own in self.held.items():
            if used.intersection(own):
                self.needed.append(path)
                used -= set(own)
        if used:
            raise Unprintable("a size that nothing tells")
        self.needed += [self.typed] if self.typed else []

    def fits(self, inputs: Sizes, held: dict[str, list[int]]) -> bool:
        """Whether the function is right for tensors of some sizes."""
        pairs = list(zip(self.inputs, inputs, strict=True))
        pairs += [(own, held[path]) for path, own in self.held.items()]
        if any(len(own) != len(given) for own, given in pairs):
            return False
        known = _known(pairs)
        sizes = ((e, n) for own, given in pairs for e, n in zip(own, given, strict=True))
        return all((known[e] if e.is_Symbol else e.subs(known)) == n for e, n in sizes) and all(
            guard.subs(known) == sympy.true for guard in self.guards
        )

    def results(self, inputs: Sequence[Tensor], held: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors like the results of a call, without values."""
        pairs = list(zip(self.inputs, (list(x.shape) for x in inputs), strict=True))
        for path, tensor in zip(self.needed, held, strict=True):
            pairs.append((self.held[path], list(tensor.shape)))
        known = _known(pairs)
        given = {x.dtype for x in (*inputs, *held) if x.is_floating_point()}
        if given - {torch.float32} and (len(given) > 1 or not self.types.any_float):
            raise TypeError("types that a part does not take")
        made = []
        for i, (size, stride, dtype) in enumerate(self.outputs):
            numbers = [
                [self.evaluate(e, known) if e.free_symbols else int(e) for e in part]
                for part in (size, stride)
            ]
            own = next(iter(given)) if any(self.types.follows[i : i + 1]) else dtype
            made.append(inputs[0].new_empty_strided(*numbers, dtype=own))
        return made


def _known(pairs: Sequence[tuple[list[sympy.Expr], list[Any]]]) -> dict[sympy.Symbol, Any]:
    """Return the numbers that symbols stand for."""
    found: dict[sympy.Symbol, Any] = {}
    for own, given in pairs:
        for e, number in zip(own, given, strict=True):
            if e.is_Symbol:
                found.setdefault(e, number)
    return found


# --- which modules --------------------------------------------------------------------------------

_SIZES = {"in_features", "out_features", "in_channels", "out_channels", "num_features"}
_SIZES |= {"num_channels", "normalized_shape", "training"}
"""What layers of PyTorch keep of their sizes, which their tensors tell as well."""


def is_depthwise(module: torch.nn.Module) -> bool:
    """Whether a module is a convolution of each channel by itself."""
    if not isinstance(module, torch.nn.modules.conv._ConvNd) or module.groups == 1:
        return False
    return bool(module.groups == module.in_channels == module.out_channels)


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what a module keeps besides tensors and modules, but for sizes that tensors tell."""
    own = type(module).__module__.startswith("torch.nn")
    for name, value in vars(module).items():
        if name.startswith("_") or name == "forward" or (own and name in _SIZES):
            continue
        if own and (name in ("p", "inplace") or (name == "dropout" and type(value) is not int)):
            continue
        if name == "groups" and is_depthwise(module):
            yield name, "channels"
        else:
            yield name, value


def _plain(value: Any) -> Any:
    """Return a value of an attribute as part of a form."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((str(key), _plain(item)) for key, item in value.items())
    if value is None or isinstance(value, bool | int | float | str | torch.dtype):
        return value
    if inspect.isfunction(value) or inspect.isbuiltin(value) or inspect.isclass(value):
        return value
    raise Unprintable(f"an attribute of type {type(value).__name__}")


def form_of(module: torch.nn.Module) -> Any:
    """Return what two modules have in common that differ in the sizes of their tensors alone.

    Symbolic numbers that matter are fixed.

    Raises:
        Unprintable: a module keeps what cannot be compared.
    """
    tensors = [
        (name, tensor if tensor is None else (tensor.dtype, _pattern(module, tensor)))
        for held in (module._parameters, module._buffers)
        for name, tensor in held.items()
    ]
    attributes = [(name, _plain(value)) for name, value in _attributes(module)]
    children = [(n, None if m is None else form_of(m)) for n, m in module._modules.items()]
    return type(module), tuple(attributes), tuple(tensors), tuple(children)


def open_dims(module: torch.nn.Module) -> int:
    """Return how many sizes of each of a module's tensors, from the first on, are symbols."""
    return 2 if type(module).__module__.startswith("torch.nn") else 0


def _pattern(module: torch.nn.Module, tensor: Tensor) -> tuple[Any, ...]:
    opened = open_dims(module)
    return tuple("n" if dim < opened else int(n) for dim, n in enumerate(tensor.shape))


def _layers(module: torch.nn.Module) -> int:
    """Return how many layers with weights a module has."""
    held = (tensor for m in module.modules() for tensor in m._parameters.values())
    return sum(1 for tensor in held if tensor is not None and tensor.dim() > 1)


def _repeats(model: torch.nn.Module, path: str, forms: dict[str, Any]) -> bool:
    """Whether most layers of a module are those of parts that it repeats itself."""
    found: dict[Any, list[str]] = {}
    for inner, form in forms.items():
        if inner.startswith(f"{path}."):
            found.setdefault(form, []).append(inner)
    most = max(
        (len(own) * _layers(model.get_submodule(own[0])) for own in found.values() if len(own) > 1),
        default=0,
    )
    return 2 * most >= _layers(model.get_submodule(path))


def repeated(model: torch.nn.Module) -> dict[str, Any]:
    """Return the forms of modules that are to be parts, by their paths."""
    forms: dict[str, Any] = {}
    for path, module in model.named_modules():
        fits = path and len(list(module.modules())) > 2 and _layers(module)
        if fits and type(module).forward is not torch.nn.ModuleList.forward:
            try:
                forms[path] = form_of(module)
            except Unprintable:
                continue
    counts = Counter(forms.values())
    chosen: dict[str, Any] = {}
    for path, form in forms.items():
        inside = any(path.startswith(f"{outer}.") for outer in chosen)
        if counts[form] > 1 and not inside and not _repeats(model, path, forms):
            chosen[path] = form
    met: set[Any] = set()
    saved = 0
    for path, form in chosen.items():
        saved += _layers(model.get_submodule(path)) if form in met else 0
        met.add(form)
    return chosen if saved >= FEWEST_REPEATED else {}


# --- their calls ----------------------------------------------------------------------------------


class Arguments(NamedTuple):
    """What a module is called with: tensors, with their names, and ``plain`` values by theirs."""

    names: list[str]
    tensors: list[Tensor]
    plain: dict[str, Any]


def bind(module: torch.nn.Module, args: Any, kwargs: Any) -> Arguments:
    """Return what a module is called with.

    Raises:
        Unprintable: an argument is neither a tensor nor plain.
    """
    bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    bound.apply_defaults()
    names, tensors, plain = [], [], {}
    for name, value in list(bound.arguments.items())[1:]:
        if isinstance(value, Tensor):
            names.append(name)
            tensors.append(value)
        elif value is None or isinstance(value, bool | str):
            plain[name] = value
        else:
            raise Unprintable("an argument of a part")
    if not tensors:
        raise Unprintable("no tensor")
    return Arguments(names, tensors, plain)


class Join(torch.nn.Module):  # type: ignore[misc]
    """Joins two tensors, as networks do often whose layers read what all before have made."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat((first, second), self.dim)


class _Joins:
    """Stands for `torch.cat`: to a list that has grown, it joins what is new."""

    def __init__(self, join: Callable[[Tensor, Tensor, int], Tensor]) -> None:
        self.join, self.plain = join, torch.cat
        self.made: list[tuple[list[Tensor], int, Tensor]] = []

    def __call__(self, tensors: Any, dim: int = 0, **more: Any) -> Tensor:
        given = left = list(tensors)
        for joined, along, whole in self.made:
            longer = len(joined) < len(given) and along == dim
            if longer and all(map(operator.is_, joined, given)):
                left = [whole, *given[len(joined) :]]
        pair = len(left) == 2 and left[0].dim() == left[1].dim() and not more
        made = self.join(left[0], left[1], dim) if pair else self.plain(left, dim, **more)
        self.made.append((given, dim, made))
        return made


Trace = Callable[[Any, str, torch.nn.Module, Arguments], RepeatedPart]
"""Makes a part from a form, the path of a module, the module, and its arguments."""


@dataclass
class Parts:
    """The parts of a network.

    Attributes:
        calls: paths of modules, and the part that each is a call of.
        all: the parts, in order.
        joins: the calls that join tensors, by their dimensions; they have no path.
    """

    calls: list[tuple[str, RepeatedPart]] = field(default_factory=list)
    all: list[RepeatedPart] = field(default_factory=list)
    joins: dict[int, int] = field(default_factory=dict)
    _keys: dict[Any, list[RepeatedPart]] = field(default_factory=dict)
    _refused: set[Any] = field(default_factory=set)
    _trace: Trace = field(init=False)

    def find(self, model: torch.nn.Module, inputs: Callable[[], Any], trace: Trace) -> None:
        """Run a model without values, and trace each of its parts where it is first called."""
        self._trace = trace
        chosen = repeated(model)
        for path, form in chosen.items():
            module = model.get_submodule(path)
            module.forward = partial(self._met, path, form, module, module.forward)
        pairs: list[tuple[int, list[Tensor]]] = []

        def join(first: Tensor, second: Tensor, dim: int) -> Tensor:
            pairs.append((dim, [first, second]))
            return joins.plain((first, second), dim)

        if chosen:
            joins = _Joins(join)
            with mock.patch.object(torch, "cat", joins):
                model(*inputs())
        for dim in dict.fromkeys(dim for dim, _ in pairs):
            self._find_joins(dim, [pair for along, pair in pairs if along == dim])
        used = {id(part) for _, part in self.calls}
        self.all = [part for part in self.all if id(part) in used]

    def _find_joins(self, dim: int, pairs: list[list[Tensor]]) -> None:
        """Make a part of what joins pairs of tensors, if it is often done."""
        if len(pairs) < FEWEST_REPEATED:
            return
        module, calls = Join(dim), [Arguments(["first", "second"], pair, {}) for pair in pairs]
        with suppress(Unprintable):
            first, *others = (self._part(dim, "", module, one) for one in calls)
            if all(part is first for part in others):
                self.joins[dim] = len(self.calls)
                self.calls.append(("", first))

    def _met(self, path: str, form: Any, module: Any, run: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            arguments = bind(module, args, kwargs)
            part = self._part(form, path, module, arguments)
        except Unprintable:
            part = None
        known = next((own for at, own in self.calls if at == path), part)
        if part is None or known is not part:  # it is called in two ways
            self.calls = [call for call in self.calls if call[0] != path]
            self._refused.add(path)
        if part is None or path in self._refused:
            return run(*args, **kwargs)
        if (path, part) not in self.calls:
            self.calls.append((path, part))
        held = [tensors_of(module)[name] for name in part.needed]
        return pytree.tree_unflatten(part.results(arguments.tensors, held), part.result)

    def _part(
        self, form: Any, path: str, module: torch.nn.Module, arguments: Arguments
    ) -> RepeatedPart:
        names, tensors, plain = arguments
        ones = tuple((x.dtype, tuple(n == 1 for n in x.shape)) for x in tensors)
        key = form, tuple(names), tuple(plain.items()), ones
        if key in self._refused:
            raise Unprintable("a part")
        held = {path: list(x.shape) for path, x in tensors_of(module).items()}
        for part in self._keys.setdefault(key, []):
            if part.fits([list(x.shape) for x in tensors], held):
                return part
        with unset_fake_temporarily():
            try:
                part = self._trace(form, path, module, arguments)
            except Exception as error:  # the module's own code: it may raise anything
                self._refused.add(key)
                raise Unprintable("a part") from error
        self._keys[key].append(part)
        self.all.append(part)
        return part

    def strip(self, model: torch.nn.Module) -> None:
        """Take from a model the tensors that only its parts need.

        Raises:
            Unprintable: one is not of the form that was traced.
        """
        for path, part in filter(operator.itemgetter(0), self.calls):
            module = model.get_submodule(path)
            if form_of(module) != part.form:
                raise Unprintable("a part of another form")
            for prefix, own in module.named_modules():
                for held in (own._parameters, own._buffers):
                    for name in list(held):
                        if f"{prefix}.{name}".removeprefix(".") not in part.needed:
                            held[name] = None

    @contextmanager
    def called(self, model: torch.nn.Module) -> Iterator[None]:
        """Have a model's modules be `PART`."""
        for number, (path, part) in enumerate(self.calls):
            if path:
                module = model.get_submodule(path)
                module.forward = partial(_call, module, number, part)

        def join(first: Tensor, second: Tensor, dim: int) -> Tensor:
            if dim not in self.joins or first.dtype != second.dtype:
                return joins.plain((first, second), dim)
            return PART([first, second], [], self.joins[dim])[0]

        joins = _Joins(join)
        with self.known(), mock.patch.object(torch, "cat", joins):
            yield

    @contextmanager
    def known(self) -> Iterator[None]:
        """Have `PART` know these parts."""
        _KNOWN.append(self)
        try:
            yield
        finally:
            _KNOWN.pop()


def _call(
    module: torch.nn.Module, number: int, part: RepeatedPart, *args: Any, **kwargs: Any
) -> Any:
    tensors = bind(module, args, kwargs).tensors
    held = [tensors_of(module)[path] for path in part.needed]
    return pytree.tree_unflatten(list(PART(tensors, held, number)), part.result)


def tensors_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return a module's parameters and buffers, by their paths."""
    found = dict(module.named_parameters(remove_duplicate=False))
    return found | dict(module.named_buffers(remove_duplicate=False))


_KNOWN: list[Parts] = []


def _results(inputs: list[Tensor], held: list[Tensor], number: int) -> list[Tensor]:
    """Return tensors like a call's results, without values."""
    return _KNOWN[-1].calls[number][1].results(inputs, held)


torch.library.register_fake("curate::part", _results, lib=_LIBRARY)
