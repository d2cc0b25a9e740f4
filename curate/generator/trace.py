"""A module's graph, traced once: the constructor's numbers and the inputs' sizes are symbols in it.

Each dimension has a symbol of its own. What tracing finds to be equal, or has to fix, is in the
shape environment as a replacement or a guard.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import inspect
import itertools
import math
import numbers
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import sympy
import torch
import torch.utils._pytree as pytree
from torch.nn.modules import rnn

from curate.generator import torch_private as private
from curate.generator.operators.parts import Arguments, Parts, Trace, is_depthwise, open_dims
from curate.generator.operators.recurrences import recurrences
from curate.generator.unprintable import Unprintable
from curate.generator.words import settle, source_of, words_of
from curate.problem.values import contents, with_changed

numbers.Integral.register(torch.SymInt)  # layers ask whether a size is one
numbers.Real.register(torch.SymFloat)  # or a share of dropout a number

Symbolic = (torch.SymInt, torch.SymFloat)


@dataclass(frozen=True)
class GivenFrom:
    """Where a graph's input comes from.

    Attributes:
        kind: ``argument`` of the constructor, ``parameter``, ``buffer`` or ``input`` of forward.
        name: the argument's name, or the tensor's path in the module; "" for an input.
        leaf: the position among the flat inputs, or -1.
    """

    kind: str
    name: str = ""
    leaf: int = -1


@dataclass
class Traced:
    """A traced module.

    Attributes:
        graph: the graph; its placeholders are in the order of ``origins``.
        arguments: the constructor's by name, defaults included; symbolic ones are SymInt, SymFloat.
        model: built on fake tensors.
        inputs: forward's arguments as the file gives them, without values.
        leaves: the same, flat: symbolic tensors and numbers in their place.
        form: the result's structure (pytree).
        reopened: symbols for numbers that tracing had fixed, by those that they had at first.
        idle: arguments of the constructor that change nothing in the graph.
        strided: parameters and buffers that do not lie as one in memory, by their paths.
        plain: tensors that are attributes, and move to no device with the module, by their paths.
        shapes: sizes of parameters and buffers that had values, for which there are symbols.
        parts: modules that are one operator each.
        assigned: paths of tensors that forward puts others in place of: the graph's last results.
        supposed: what the module asked of symbols that are above zero by definition: `` > 0``.
        typed: a mode without values and the module in it, for `result_types`.
        openness: which of `OPENNESS` it is.
    """

    task: ModuleType
    graph: torch.fx.GraphModule
    origins: list[GivenFrom]
    env: private.ShapeEnv
    mode: Any
    arguments: dict[str, Any]
    model: torch.nn.Module
    inputs: tuple[Any, ...]
    leaves: list[Any]
    form: Any
    reopened: dict[sympy.Symbol, sympy.Symbol] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    strided: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    parts: Parts = field(default_factory=Parts)
    assigned: list[str] = field(default_factory=list)
    supposed: dict[sympy.Symbol, str] = field(default_factory=dict)
    typed: tuple[Any, torch.nn.Module | None] | None = None
    openness: str = ""

    @property
    def source(self) -> str:
        """The text of the reference."""
        return source_of(self.task)

    def expression(self, value: Any) -> sympy.Expr:
        """Return what a number is by now: a symbol may have become a constant or another."""
        if not isinstance(value, Symbolic):
            return sympy.sympify(value)
        first: sympy.Expr = value.node._expr
        return self.reopened.get(first) or self.env.replace(first)


class _IntegerLike(type):
    """``int`` for symbols: they pass for integers, and are converted without being fixed."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.int | torch.SymInt)

    def __call__(cls, *given: Any) -> Any:
        symbolic = given and isinstance(given[0], Symbolic)
        return private.truncated(given[0]) if symbolic else builtins.int(*given)


class _Integer(metaclass=_IntegerLike):
    pass


def _passing(plain: Callable[..., float], symbolic: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function of `math` that takes symbols as well."""

    def function(x: Any, *more: Any) -> Any:
        return symbolic(x) if isinstance(x, Symbolic) and not more else plain(x, *more)

    return function


def _length(value: Any) -> Any:
    """Return ``len``, of a tensor as a symbol."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else len(value)


_MATH: dict[str, Callable[..., Any]] = {
    "sqrt": _passing(math.sqrt, torch.sym_sqrt),
    "log2": _passing(math.log2, private.logarithm),
    "log": _passing(math.log, lambda x: private.logarithm(x) * math.log(2)),
}


def _max_pool1d(x: Any, kernel_size: Any, stride: Any = None, *more: Any, **options: Any) -> Any:
    """Pool without the operator that fixes sizes."""
    options["return_indices"] = True
    return torch.nn.functional.max_pool1d(x, kernel_size, stride or None, *more, **options)[0]


def _take_along_dim(x: Any, indices: Any, dim: int | None = None) -> Any:
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    dim %= x.dim()
    both = [torch.Size([*t.shape[:dim], 1, *t.shape[dim + 1 :]]) for t in (x, indices)]
    shape = torch.broadcast_shapes(*both)
    x, indices = (t.expand(*shape[:dim], t.shape[dim], *shape[dim + 1 :]) for t in (x, indices))
    return x.gather(dim, indices.remainder(x.shape[dim]))


def _tensor(data: Any, *more: Any, _plain: Any = torch.tensor, **options: Any) -> Any:
    is_number = isinstance(data, (*Symbolic, builtins.int, builtins.float))
    return torch.full((), data, **options) if is_number else _plain(data, *more, **options)


_ORDERS = "__bool__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"


@contextlib.contextmanager
def _suppositions(task: ModuleType) -> Iterator[dict[sympy.Symbol, str]]:
    """Note which symbols a module compares with zero: they are positive, and it hears no doubt.

    Yields:
        What has been asked so far, by the symbol: `` != 0`` or `` > 0``.
    """
    found: dict[sympy.Symbol, str] = {}
    checks = _checks(ast.parse(source_of(task)))

    def noting(asked: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def compare(number: torch.SymInt, *other: Any) -> Any:
            frame = sys._getframe(1)
            e = number.node._expr
            if e.is_Symbol and e.is_positive and (not other or type(other[0]) is int):
                own = frame.f_code.co_filename == task.__file__ and frame.f_lineno not in checks
                if own and (not other or other[0] <= 0):
                    equal = asked in ("__bool__", "__eq__", "__ne__") and other in ((), (0,))
                    found[e] = " > 0" if not equal else found.get(e, " != 0")
            return method(number, *other)

        return compare

    with contextlib.ExitStack() as stack:
        for name in _ORDERS:
            method = noting(name, getattr(torch.SymInt, name))
            stack.enter_context(mock.patch.object(torch.SymInt, name, method))
        yield found


def _checks(tree: ast.Module) -> set[int]:
    """Return the lines of assertions, and of conditions that only raise an error: programs have
    them, too."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and not all(isinstance(n, ast.Raise) for n in node.body):
            continue
        if isinstance(node, ast.If | ast.Assert):
            found.update(range(node.lineno, (node.test.end_lineno or node.lineno) + 1))
    return found


@contextlib.contextmanager
def _symbols_pass(task: ModuleType) -> Iterator[None]:
    """Leave out what fills parameters, and have ``int``, ``len`` and `math` pass symbols on."""
    with contextlib.ExitStack() as stack:

        def patch(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value))

        private.list_device_constructors()  # it is asked once, and is to know the plain ones
        for name in dir(torch.nn.init):
            if name.endswith("_") and not name.startswith("_"):
                patch(torch.nn.init, name, lambda tensor=None, *args, **kwargs: tensor)
        for kind in vars(torch.nn).values():
            for name in ("reset_parameters", "_reset_parameters"):
                if inspect.isclass(kind) and name in vars(kind):
                    patch(kind, name, lambda *args: None)
        plain = {getattr(math, name): function for name, function in _MATH.items()}
        named = {
            name: plain[value]
            for name, value in vars(task).items()
            if inspect.isbuiltin(value) and value in plain
        }
        for name, function in _MATH.items():
            patch(math, name, function)
        patch(torch, "max_pool1d", _max_pool1d)
        patch(torch, "tensor", _tensor)
        patch(torch, "take_along_dim", _take_along_dim)
        patch(torch.Tensor, "take_along_dim", _take_along_dim)
        stack.enter_context(
            mock.patch.dict(task.__dict__, {"int": _Integer, "len": _length, **named})
        )
        stack.enter_context(mock.patch.dict(rnn.__dict__, {"int": _Integer}))
        stack.enter_context(recurrences())
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(torch.no_grad())
        yield


def constructor_arguments(task: ModuleType) -> tuple[dict[str, Any], list[Any]]:
    """Return the constructor's arguments by name, defaults included, and those behind ``*``."""
    given = list(task.get_init_inputs())
    parameters = list(inspect.signature(task.Model.__init__).parameters.values())[1:]
    named = list(itertools.takewhile(lambda p: p.kind is p.POSITIONAL_OR_KEYWORD, parameters))
    values = {p.name: p.default for p in named if p.default is not p.empty}
    values |= {p.name: value for p, value in zip(named, given, strict=False)}
    ordered = {p.name: values[p.name] for p in named if p.name in values}
    return ordered, given[len(named) :]


OPENNESS = ("all", "above one", "sizes", "built")
"""How much is a symbol, the most first: all numbers; no 0 and 1; no numbers of the constructor;
none of them, and it has run on tensors with values, whose sizes are symbols afterwards."""


def trace(
    task: ModuleType, longer: frozenset[int] = frozenset(), parts: Parts | None = None
) -> Traced:
    """Return a module's graph with as many symbols as it takes.

    Args:
        task: the module's file.
        longer: inputs, by their leaves, that get one more dimension in front.
        parts: modules that are one operator each.

    Raises:
        Unprintable: it cannot be traced at all; the message is the last error.
    """
    error: Exception | None = None
    for openness in OPENNESS:
        try:
            traced = _trace(task, openness, {}, longer, parts=parts or Parts())
            return _reopen(traced, openness, longer)
        except Unprintable:
            raise
        except Exception as caught:  # the module's own code: it may raise anything
            error = caught
    lines = str(error).strip().splitlines() or [""]
    raise Unprintable(f"not traced: {type(error).__name__}: {lines[0][:160]}") from error


DEEP = 100
"""Parameters from which on a network takes too long to trace again, or to find what sizes it takes
if its constructor needs values."""


def _is_deep(model: torch.nn.Module) -> bool:
    return len(list(model.parameters())) > DEEP


def _reopen(traced: Traced, openness: str, longer: frozenset[int]) -> Traced:
    """Make symbols again of the floats that an operator of a fixed type has fixed, such as eps.

    The module is traced with others in their place, and with its truth values turned, if it takes
    that. Where the graphs differ in nothing but literals that are these numbers, the literals
    become the numbers' own inputs; and what changes nothing need not be checked.
    """
    if _is_deep(traced.model):
        return traced
    if openness == "built":
        traced.idle = set(_idle(traced, longer))
        return traced
    fixed = {}
    for name, value in traced.arguments.items():
        if isinstance(value, torch.SymFloat) and traced.expression(value).is_number:
            fixed[name] = float(traced.expression(value))
    flags = {name: not value for name, value in traced.arguments.items() if type(value) is bool}
    shares = itertools.count(44, 1)  # of 64: no two numbers change alike
    floats = {n: (value or 0.5) * next(shares) / 64 for n, value in fixed.items()}
    for changed in ({**floats, **flags}, floats) if flags else (floats,):
        if not changed:
            continue
        try:
            other = _trace(traced.task, openness, changed, longer, parts=traced.parts)
        except Exception:  # the module's own code: it may refuse
            continue
        pairs = {(_short(fixed[n]), _short(floats[n])): n for n in fixed}
        places = _differences(traced, other, pairs)
        if places is not None:
            for name, found in places.items():
                _put_back(traced, name, fixed[name], found)
            traced.idle = set(changed) - set(places)
            break
    return traced


def _idle(traced: Traced, longer: frozenset[int]) -> Iterator[str]:
    """Yield the constructor's numbers that a graph does not know: they make tensors and no more."""
    for name, value in traced.arguments.items():
        others: list[Any] = [not value] if type(value) is bool else []
        others += [value + 1, 2 * value] if type(value) in (int, float) else []
        others += [value // 2 if type(value) is int else value / 2] if others[1:] else []
        same = []
        for other in others:
            with contextlib.suppress(Exception):  # the module's own code: it may refuse
                changed = _trace(traced.task, "built", {name: other}, longer, traced, traced.parts)
                same.append(_differences(traced, changed, {}) is not None)
        if same and all(same):
            yield name


def differs_in_training(traced: Traced) -> bool:
    """Whether a module does something else in training, or cannot be traced there."""
    if _is_deep(traced.model):
        return True
    trace_in = partial(_trace, traced.task, traced.openness, {}, frozenset(), None, traced.parts)
    try:
        return _differences(trace_in(training=False), trace_in(training=True), {}) is None
    except Exception:  # the module's own code: it may refuse
        return True


Places = dict[str, list[tuple[torch.fx.Node, int]]]


def _differences(traced: Traced, other: Traced, pairs: dict[Any, str]) -> Places | None:
    """Return where two graphs have a pair of numbers, by the pair's name; None if in more."""
    fixed = set(pairs.values())
    nodes = [n for n in traced.graph.graph.nodes if not _is_fixed(n, traced, fixed)]
    others = list(other.graph.graph.nodes)
    if len(nodes) != len(others) or traced.form != other.form:
        return None
    twins = dict(zip(nodes, others, strict=True))
    places: Places = {}
    for node, twin in twins.items():
        ours, theirs = _leaves(node), _leaves(twin)
        named = node.op == "placeholder" or str(node.target) == str(twin.target)
        if not named or len(ours) != len(theirs) or _shape(node) != _shape(twin):
            return None
        for at, (own, their) in enumerate(zip(ours, theirs, strict=True)):
            if isinstance(own, torch.fx.Node):
                if twins.get(own) is not their:
                    return None
            elif own != their:
                pair = _short(own), _short(their)
                if pair not in pairs:
                    return None
                places.setdefault(pairs[pair], []).append((node, at))
    return places


def _short(number: Any) -> Any:
    """Return a number as float32 holds it; operators round their own numbers so."""
    return ctypes.c_float(number).value if isinstance(number, float) else number


def _shape(node: torch.fx.Node) -> str:
    value = node.meta.get("val")
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else ""


def _is_fixed(node: torch.fx.Node, traced: Traced, fixed: set[str]) -> bool:
    """Whether a node is the input for a number that has been fixed."""
    if node.op != "placeholder":
        return False
    at = traced.graph.graph.find_nodes(op="placeholder").index(node)
    return traced.origins[at].kind == "argument" and traced.origins[at].name in fixed


def _leaves(node: torch.fx.Node) -> list[Any]:
    return list(pytree.tree_leaves((node.args, node.kwargs)))


def _put_back(
    traced: Traced, name: str, value: float, places: list[tuple[torch.fx.Node, int]]
) -> None:
    """Have a graph read a number from its input where it has the number itself."""
    new = private.float_symbol(traced.env, value, f"again_{name}")
    at = [(o.kind, o.name) for o in traced.origins].index(("argument", name))
    given = traced.graph.graph.find_nodes(op="placeholder")[at]
    given.meta["val"] = new
    for node, position in places:
        leaves, form = pytree.tree_flatten((node.args, node.kwargs))
        leaves[position] = given
        node.args, node.kwargs = pytree.tree_unflatten(leaves, form)
    traced.reopened[traced.arguments[name].node._expr] = new.node._expr


def _trace(
    task: ModuleType,
    openness: str,
    changed: dict[str, Any],
    longer: frozenset[int],
    like: Traced | None = None,
    parts: Parts | None = None,
    training: bool = False,
) -> Traced:
    parts = parts or Parts()
    env = private.new_shape_env()
    mode = private.fake_mode(env)

    def number(value: Any, name: str) -> Any:
        if type(value) is int and (value > 1 or openness == "all"):
            return private.integer_symbol(env, value, name, openness == "all")
        if type(value) is float and math.isfinite(value):
            return private.float_symbol(env, value, name)
        return value

    size = partial(private.size_symbol, env)
    shapes: dict[str, list[int]] = {}

    def opened(path: str, shape: torch.Size) -> list[Any]:
        shapes[path] = list(shape) if like is None else like.shapes[path]
        if len(shapes[path]) != len(shape):
            raise ValueError("other dimensions")
        return [n if is_deep else size(n, f"{path}_{i}") for i, n in enumerate(shapes[path])]

    torch.manual_seed(0)
    with _symbols_pass(task), _suppositions(task) as supposed:
        whole, more = constructor_arguments(task)
        named = dict(contents(whole, (SimpleNamespace,)))
        if openness in ("all", "above one"):
            named = {n: number(v, f"argument_{n.replace('.', '_')}") for n, v in named.items()}
        values = named | changed
        with torch.device("cpu"):
            with contextlib.nullcontext() if openness == "built" else mode:
                for name, value in values.items():
                    whole = with_changed(whole, name, value)
                made = task.Model(*whole.values(), *more) if more else task.Model(**whole)
                model = made.train(training)
            plain = set(_registered(model))
            with mode:
                is_deep = _is_deep(model)
                strided = set(_made_dense(model, opened if openness == "built" else None))
                inputs = tuple(task.get_inputs())
        flat, spec = pytree.tree_flatten(inputs)
        leaves: list[Any] = []
        with mode:
            for i, leaf in enumerate(flat):
                if isinstance(leaf, torch.Tensor):
                    given = list(map(int, leaf.shape))
                    if i in longer:  # about as many rows, so that hints decide alike
                        given = [2, max(2, given[0] // 2), *given[1:]]
                    shape = [size(n, f"{i}_{dim}") for dim, n in enumerate(given)]
                    leaves.append(torch.empty(shape, dtype=leaf.dtype, device="cpu"))
                else:
                    leaves.append(number(leaf, f"input_{i}"))
        symbols = {n: v for n, v in values.items() if isinstance(v, Symbolic)}
        parts.strip(model)
        with parts.called(model):
            wrapper = _Wrapper(model, symbols, leaves, spec)
            with words_of(task).noting(model) as note:
                graph, held, assigned = private.export(wrapper, wrapper.given, mode, note)
        settle(graph.graph)
        _refuse_constants(graph, openness == "built")
    origins = wrapper.origins(held)
    return Traced(
        *(task, graph, origins, env, mode, values, model, inputs, leaves, wrapper.form),
        strided=strided,
        plain=plain,
        shapes=shapes,
        parts=parts,
        assigned=[path.removeprefix("model.") for path in assigned],
        supposed=supposed,
        openness=openness,
    )


# --- parts ---------------------------------------------------------------------------------------


class _Maker:
    """Stands for the class of a part: gives the module, with tensors that have no values."""

    def __init__(self, module: torch.nn.Module, arguments: Arguments) -> None:
        self.module, self.arguments = module, arguments
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        given = [inspect.Parameter(name, kind) for name in ("self", *arguments.names)]

        def forward(*given: Any) -> Any:
            raise NotImplementedError

        forward.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
        self.forward = forward

    def __call__(self, size: Callable[[int, str], Any] = lambda length, name: length) -> Any:
        """Return the module; ``size`` gives what to take for those sizes that are left open."""
        made = _copied(self.module, "", size)
        depthwise = [m for m in made.modules() if is_depthwise(m)]
        dense = [m for m in made.modules() if hasattr(m, "normalized_shape")]

        def run(*tensors: Any) -> Any:
            for module in depthwise:
                module.groups = module.weight.shape[0]
            for module in dense:
                if module.weight is not None:
                    module.normalized_shape = tuple(module.weight.shape)
            named = dict(zip(self.arguments.names, tensors, strict=True))
            return type(made).forward(made, **named, **self.arguments.plain)

        made.forward = run
        return made


def _copied(module: torch.nn.Module, path: str, size: Callable[[int, str], Any]) -> Any:
    made = object.__new__(type(module))
    made.__dict__ = {name: value for name, value in vars(module).items() if name != "forward"}
    for held in ("_parameters", "_buffers"):
        made.__dict__[held] = {}
        for name, tensor in getattr(module, held).items():
            new = tensor
            if tensor is not None:
                opened = open_dims(module)
                shape = [
                    size(int(n), f"{path}{name}_{dim}") if dim < opened else int(n)
                    for dim, n in enumerate(tensor.shape)
                ]
                new = torch.empty(shape, dtype=tensor.dtype)
                new = torch.nn.Parameter(new, False) if held == "_parameters" else new
            made.__dict__[held][name] = new
    made.__dict__["_modules"] = {
        name: None if child is None else _copied(child, f"{path}{name}.", size)
        for name, child in module._modules.items()
    }
    return made


def find_parts(task: ModuleType, part: Trace) -> Parts:
    """Return the modules of a network that are to be functions; none if it needs values."""
    parts = Parts()
    with _symbols_pass(task), private.plain_fakes(), torch.device("cpu"):
        try:
            model = task.Model(*task.get_init_inputs()).eval()
            parts.find(model, task.get_inputs, part)
        except Exception:  # the module's own code: it may refuse
            return Parts()
    return parts


def trace_part(task: ModuleType, module: torch.nn.Module, arguments: Arguments) -> Traced:
    """Return the graph of a module that a network calls with some arguments."""
    own = ModuleType(task.__name__)
    vars(own).update(vars(task))
    maker = _Maker(module, arguments)
    given = [(list(x.shape), x.dtype) for x in arguments.tensors]
    vars(own)["Model"] = maker
    vars(own)["get_init_inputs"] = list
    vars(own)["get_inputs"] = lambda: [torch.empty(shape, dtype=kind) for shape, kind in given]
    env = private.new_shape_env()
    mode = private.fake_mode(env)

    size = partial(private.size_symbol, env)
    with mode:
        model = maker(size)
        leaves = [
            torch.empty([size(n, f"{i}_{dim}") for dim, n in enumerate(shape)], dtype=kind)
            for i, (shape, kind) in enumerate(given)
        ]
    inputs = tuple(leaves)
    wrapper = _Wrapper(model, {}, *pytree.tree_flatten(inputs))
    with words_of(task).noting(model) as note:
        graph, held, assigned = private.export(wrapper, leaves, mode, note)
    if assigned:
        raise Unprintable("a part that changes itself")
    settle(graph.graph)
    _refuse_constants(graph, True)
    origins = wrapper.origins(held)
    return Traced(own, graph, origins, env, mode, {}, model, inputs, leaves, wrapper.form)


def _registered(model: torch.nn.Module) -> Iterator[str]:
    """Make buffers of tensors that are plain attributes, for a graph to get; yield their paths."""
    for path, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and not hasattr(type(module), name):
                del module.__dict__[name]
                module.register_buffer(name, value)
                yield f"{path}.{name}".removeprefix(".")


Open = Callable[[str, torch.Size], list[Any]]
"""Gives what to take for the sizes of a tensor, by its path."""


def _made_dense(model: torch.nn.Module, opened: Open | None) -> Iterator[str]:
    """Lay out a module's tensors one element after the other; yield the paths of those changed.

    It has ``opened`` sizes if the tensors have values, which are left behind.
    """
    made: dict[torch.Tensor, Any] = {}  # some have two names
    for path, module in model.named_modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                own = f"{path}.{name}".removeprefix(".")
                dense = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
                # Symbols as text: nothing is fixed so.
                is_strided = str(dense.stride()) != str(tensor.stride())
                if opened is not None:
                    dense = torch.empty(opened(own, tensor.shape), dtype=tensor.dtype)
                if is_strided or opened is not None:
                    is_parameter = held is module._parameters
                    made.setdefault(tensor, torch.nn.Parameter(dense) if is_parameter else dense)
                    held[name] = made[tensor]
                if is_strided:
                    yield own


def _refuse_constants(graph: torch.fx.GraphModule, all_of_them: bool) -> None:
    """Raise if a graph holds tensors that its module keeps in lists: fakes, or those that vary."""
    for node in graph.graph.find_nodes(op="get_attr"):
        value = getattr(graph, str(node.target))
        if all_of_them or isinstance(value, private.FakeTensor):
            raise Unprintable("a tensor that is no attribute of a module")


class _Wrapper(torch.nn.Module):  # type: ignore[misc]
    """A module that takes its constructor's numbers as inputs, so that a graph can follow them."""

    def __init__(
        self, model: torch.nn.Module, symbols: dict[str, Any], leaves: list[Any], spec: Any
    ) -> None:
        super().__init__()
        self.model, self.leaves, self.spec = model, leaves, spec
        self.names, self.symbols = list(symbols), list(symbols.values())
        opened = (torch.Tensor, *Symbolic)
        self.open_leaves = [i for i, leaf in enumerate(leaves) if isinstance(leaf, opened)]
        self.given = [*self.symbols, *(leaves[i] for i in self.open_leaves)]
        self.form: Any = None
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.train(model.training)

    def origins(self, held: list[str]) -> list[GivenFrom]:
        """Return where a graph's inputs come from, the first of which are ``held``."""
        own = set(dict(self.named_parameters(remove_duplicate=False)))
        kinds = {path: "parameter" if path in own else "buffer" for path in held}
        found = [GivenFrom(kinds[path], path.removeprefix("model.")) for path in held]
        found += [GivenFrom("argument", name) for name in self.names]
        return found + [GivenFrom("input", leaf=i) for i in self.open_leaves]

    def forward(self, *given: Any) -> tuple[Any, ...]:
        count = len(self.symbols)
        known = {s.node.expr: x for s, x in zip(self.symbols, given, strict=False)}
        for module in self.model.modules():  # numbers that the constructor worked out
            for name, value in list(vars(module).items()):
                if not name.startswith("_"):
                    module.__dict__[name] = _tracked(value, known)
        leaves = list(self.leaves)
        for i, value in zip(self.open_leaves, given[count:], strict=True):
            leaves[i] = value
        result = self.model(*pytree.tree_unflatten(leaves, self.spec))
        flat, self.form = pytree.tree_flatten(result)
        return tuple(flat)


def _tracked(value: Any, known: dict[sympy.Symbol, Any]) -> Any:
    if type(value) is tuple and any(isinstance(item, Symbolic) for item in value):
        return tuple(_tracked(item, known) for item in value)
    if type(value) is SimpleNamespace:
        return SimpleNamespace(
            **{name: _tracked(held, known) for name, held in vars(value).items()}
        )
    if not isinstance(value, Symbolic):
        return value
    expression = value.node.expr
    if expression.free_symbols and expression.free_symbols <= known.keys():
        return private.recompute(expression, known)
    return value
