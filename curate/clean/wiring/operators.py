"""The operators that a module runs, broken down to a small set of them. For the sandbox only.

The module runs once on fake tensors, which have sizes and no values, so that a problem of any size
costs the same. PyTorch's own decompositions break each operator down, mostly to `torch._prims`, so
that a module and a function, a method and an operator, an operator and its formula come to the
same. What is known of a tensor hangs on its storage: a view is the tensor that it looks at, and
writing in place makes a new node.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from curate.clean.wiring.graph import COPY, INPUT, NUMBER, WEIGHT, Node, Operand, WiringGraph

MAX_NODES = 20_000
"""Operators above which a graph is given up: long loops."""

MAX_REAL_ELEMENTS = 1 << 24
"""Elements of the inputs up to which a module that asks for values is run with real tensors."""

_WHOLE: tuple[str, ...] = (
    *("max_pool", "avg_pool", "adaptive_", "_adaptive_", "upsample_", "_upsample_", "pixel_"),
    *("pad", "constant_pad", "reflection_pad", "replication_pad", "grid_sampler", "roll"),
    *("embedding", "_embedding", "index", "gather", "scatter", "select_scatter", "slice_scatter"),
    *("im2col", "col2im", "unfold", "floor_divide", "remainder", "nll_loss"),
)
"""Beginnings of the names of operators whose decomposition is index arithmetic, some of which
depends on sizes."""

_COPIES = frozenset({"clone", "_to_copy", "copy", "convert_element_type", "device_put", "lift"})
_COPIES |= {"contiguous", "copy_to", "lift_fresh", "lift_fresh_copy", "to_copy"}
_FILLED = frozenset({"full", "full_like", "scalar_tensor", "zeros", "ones", "zeros_like"})
_FILLED |= {"ones_like", "empty", "empty_like", "empty_strided", "empty_permuted", "fill", "zero"}
_SAME = {"bmm": "mm", "reciprocal": "inverse", "index_put": "write", "where_": "where"}
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


_HELD = " held as "


class TooLong(Exception):
    """A graph has more than `MAX_NODES` operators."""


def trace(names: dict[str, Any], unlike: str = "") -> WiringGraph:
    """Return what ``Model(*get_init_inputs())(*get_inputs())`` computes, in eval mode.

    Args:
        names: what a file in KernelBench's form defines.
        unlike: stands for the values of a table that is too large to be made.

    Raises:
        Exception: whatever the module raised, or `TooLong`.
    """
    graph, elements = _traced(names)
    return _with_values(graph, elements, names, unlike)


def _traced(names: dict[str, Any]) -> tuple[WiringGraph, int]:
    """Return the graph, in which buffers have names, and how many elements the module holds."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                return _record(_build(names), names["get_inputs"]())
        except TooLong:
            raise
        except Exception:
            model = _build(names)  # it asks for values when it is built, or for those of a buffer
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with mode:
                inputs = names["get_inputs"]()
                return _record(model, inputs)
        except TooLong:
            raise
        except Exception:
            given = (t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor))
            if sum(t.numel() for t in given) > MAX_REAL_ELEMENTS:
                raise
        return _record(model, names["get_inputs"]())


def _with_values(
    graph: WiringGraph, elements: int, names: dict[str, Any], unlike: str
) -> WiringGraph:
    """Put hashes of values in the place of the names of buffers, which may be tables.

    The module is built once more, with values, where it is not too large for that.
    """
    wanted = [node.detail.split(_HELD)[1] for node in graph.nodes if _HELD in node.detail]
    if not wanted:
        return graph
    values: dict[str, str] = {}
    if elements <= MAX_REAL_ELEMENTS:
        known = {name: tensor for name, tensor in _tensors_of(_build(names)) if name in wanted}
        values = {name: _digest(tensor) for name, tensor in known.items()}
    nodes = []
    for node in graph.nodes:
        kind, _, name = node.detail.partition(_HELD)
        held = f" {values.get(name) or f'{unlike} {name}'}"
        nodes.append(Node(node.op, kind + held, node.operands) if name else node)
    return dataclasses.replace(graph, nodes=nodes)


def _tensors_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a module holds, buffers or not, with what they are called in it."""
    for path, module in model.named_modules():
        held = [module._parameters, module._buffers, vars(module)]
        for name, value in ((n, v) for group in held for n, v in group.items()):
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}", value


def _build(names: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    model = names["Model"](*names["get_init_inputs"]())
    assert isinstance(model, torch.nn.Module)
    return model.eval()


def _record(model: torch.nn.Module, inputs: Any) -> tuple[WiringGraph, int]:
    recorder = _Recorder()
    elements = 0
    for name, tensor in _tensors_of(model):
        recorder.held[_storage(tensor)] = name
        elements += tensor.numel()
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor):
            recorder.give(leaf, INPUT)
    with sdpa_kernel(SDPBackend.MATH), _Whole(recorder), recorder:
        result = model(*inputs)
    tensors = [t for t in _leaves(result) if isinstance(t, torch.Tensor)]
    outputs = [recorder.read(t) for t in tensors]
    return WiringGraph(recorder.nodes, outputs, recorder.ops), elements


def _leaves(result: Any) -> Iterator[Any]:
    """Yield what a result is made of; objects with attributes, such as outputs of models, too."""
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) or not hasattr(leaf, "__dict__"):
            yield leaf
        else:
            yield from pytree.tree_leaves(vars(leaf))


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Writes down operators; all but the smallest are broken down on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, str] = {}  # what the module's tensors are called, by storage
        self.nodes: list[Node] = []
        self.ops = 0
        self._depth = 0
        self._silent = False
        self._at: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}
        self._alive: list[torch.Tensor] = []  # no storage may take another's place

    # what is known of tensors

    def give(self, tensor: torch.Tensor, op: str) -> None:
        """Make a tensor a leaf."""
        self._set(tensor, self._node(op, _kind(tensor)))

    def read(self, tensor: torch.Tensor) -> Operand:
        """Return a tensor as an operand; one that nobody has seen is the module's own."""
        key = _storage(tensor)
        if key not in self._at:
            value = _value(tensor)
            if value is None:
                whole = _whole(tensor)
                self._set(whole, self._node(WEIGHT, _kind(whole) + self._content(whole)))
            else:
                self._set(tensor, self._node(NUMBER, repr(value)))
        number, shape, strides = self._at[key]
        return Operand(number, _layout(tensor, shape, strides))

    def _content(self, tensor: torch.Tensor) -> str:
        """Return a hash of a tensor's values, or for lack of them its name; '' if it is learned."""
        if isinstance(tensor, torch.nn.Parameter):
            return ""
        if not isinstance(tensor, FakeTensor):
            return f" {_digest(tensor)}"
        return _HELD + self.held.get(_storage(tensor), "?")

    def _set(self, tensor: torch.Tensor, number: int) -> None:
        self._at[_storage(tensor)] = number, tuple(tensor.shape), tensor.stride()
        self._alive.append(tensor)

    def _node(self, op: str, detail: str = "", *operands: Operand) -> int:
        if len(self.nodes) >= MAX_NODES:
            raise TooLong(f"more than {MAX_NODES} operators")
        self.nodes.append(Node(op, detail, operands))
        return len(self.nodes) - 1

    def _number(self, value: Any) -> Operand:
        return Operand(self._node(NUMBER, repr(float(value)) if _is_number(value) else str(value)))

    # operators

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._opname
        if self._silent or func.namespace == "prim":
            return func(*args, **kwargs)
        if func._can_decompose():
            return self._inside(func.decompose, args, kwargs)
        if func.is_view:
            return func(*args, **kwargs)
        if not self._depth and name not in _COPIES | _FILLED | {"copy_"}:
            self.ops += 1
        if func._schema.is_mutable:
            return self._mutate(func, args, kwargs)
        formula = (
            _variance if func is torch.ops.prims.var.default else decomposition_table.get(func)
        )
        if formula and not name.startswith(_WHOLE) and name not in _COPIES | _FILLED:
            result = self._inside(formula, args, kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        self._write_down(name, args, kwargs, result)
        return result

    def _inside(self, formula: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._depth += 1
        try:
            with self:
                return formula(*args, **kwargs)
        finally:
            self._depth -= 1

    def recurrent(self, func: Callable[..., Any], x: torch.Tensor, *rest: Any) -> Any:
        """Write a recurrent layer down as one operator; only one step of time is run."""
        self.ops += 1
        self._silent = True
        try:
            along = 1 if rest[-1] is True and x.dim() == 3 else 0  # batch_first
            outputs, *states = func(x.narrow(along, 0, 1), *rest)
            shape = list(outputs.shape)
            shape[along] = x.shape[along]
            result = outputs.new_zeros(shape), *states
        finally:
            self._silent = False
        self._write_down(func.__name__, (x, *rest), {}, result)
        return result

    def _mutate(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """Write down an operator in place as the one that returns its result, and a write."""
        target = kwargs.get("out", args[0] if args else None)
        packet = getattr(getattr(torch.ops, func.namespace), func._opname.rstrip("_"), None)
        pure = getattr(packet, func._overloadname, None) if func._opname[-1] == "_" else None
        if not isinstance(target, torch.Tensor) or (pure is None and "out" not in kwargs):
            result = func(*args, **kwargs)
            self._write_down(func._opname.rstrip("_"), args, kwargs, result, anew=True)
            return result
        if pure is not None:
            source = self.read(self._inside(pure, args, kwargs))
        else:
            given = {key: value for key, value in kwargs.items() if key != "out"}
            source = Operand(self._node(func._opname, *self._arguments(args, given)))
        into = self.read(target)
        result = func(*args, **kwargs)
        if into.layout:
            self._at[_storage(target)] = (
                self._node("write", into.layout, Operand(into.node), source),
                *self._at[_storage(target)][1:],
            )
        else:
            self._set(target, self._node(COPY, "", source) if source.layout else source.node)
        return result

    def _write_down(
        self, name: str, args: Any, kwargs: Any, result: Any, anew: bool = False
    ) -> None:
        """Make the tensors of an operator's result nodes."""
        if name in _FILLED and isinstance(result, torch.Tensor):
            numbers = [a for a in (*args, *kwargs.values()) if _is_number(a)]
            self._set(result, self._number(numbers[-1] if numbers else name).node)
            return
        detail, *operands = self._arguments(args, kwargs)
        for place, tensor in enumerate(pytree.tree_leaves(result)):
            if not isinstance(tensor, torch.Tensor) or (_storage(tensor) in self._at and not anew):
                continue
            if name in _COPIES:
                copied = 1 if name == "copy" else 0  # copy(into, what): the place is written over
                detail = "" if tensor.dtype == args[copied].dtype else str(tensor.dtype)
                number = self._node(COPY, detail, operands[copied])
            else:
                op = f"{name}.{place}" if place else name
                number = self._plain(op, detail, operands, tensor)
            self._set(tensor, number)

    def _plain(self, op: str, detail: str, operands: list[Operand], result: torch.Tensor) -> int:
        """Return the node of an operator, written with fewer operators where that can be."""
        values = [n.detail if (n := self.nodes[o.node]).op == NUMBER else None for o in operands]
        neutral = {"mul": 1.0, "add": 0.0}.get(op)
        for place, text in enumerate(values[:2]):
            if neutral is not None and len(values) == 2 and _float(text) == neutral:
                return self._node(COPY, "", operands[1 - place])
        if op in ("sub", "neg"):
            if op == "sub" and (value := _float(values[1])) is not None:
                return self._node("add", "", operands[0], self._number(-value))
            negative = self._node("mul", "", operands[-1], self._number(-1))
            return (
                self._node("add", "", operands[0], Operand(negative)) if op == "sub" else negative
            )
        if op == "div":
            if value := _float(values[1]):
                return self._node("mul", "", operands[0], self._number(1 / value))
            inverse = self._node("inverse", "", operands[1])
            is_one = _float(values[0]) == 1
            return inverse if is_one else self._node("mul", "", operands[0], Operand(inverse))
        if op == "rsqrt":
            return self._node("inverse", "", Operand(self._node("sqrt", "", *operands)))
        if op == "pow" and _float(values[1]) == 2:
            return self._node("mul", "", operands[0], operands[0])
        if op == "convolution":
            x, weight, *bias = operands
            way = "t" if "True" in detail.split() else ""
            number = self._node(f"conv{result.dim() - 2}d{way}", detail, x, weight)
            return self._node("add", "", Operand(number), *bias) if bias else number
        return self._node(_SAME.get(op, op), detail, *operands)

    def _arguments(self, args: Any, kwargs: Any) -> Any:
        """Return an operator's arguments that are no values, as text, and its operands."""
        operands: list[Operand] = []
        rest: list[str] = []
        for argument in args:
            if _is_number(argument):
                operands.append(self._number(argument))
            else:
                leaves = pytree.tree_leaves(argument)
                operands += [self.read(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
                rest += [str(leaf) for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        for name, argument in sorted(kwargs.items()):
            if isinstance(argument, torch.Tensor):
                operands.append(self.read(argument))
            elif name not in ("device", "layout", "pin_memory", "memory_format"):
                rest.append(f"{name}={argument}")
        return " ".join(rest), *operands


class _Whole(TorchFunctionMode):  # type: ignore[misc]
    """Takes recurrent layers as one operator: PyTorch would write each step of time down."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        # A packed sequence has a tensor of sizes in the second place, and runs step by step.
        if name in _RECURRENT and not kwargs and isinstance(args[-1], bool) and len(args) == 9:
            return self.recorder.recurrent(func, *args)
        return func(*args, **(kwargs or {}))


def _variance(x: Any, dims: Any = None, correction: float = 1, **_: Any) -> Any:
    """The formula of a variance, which PyTorch has as one operator."""
    dims = dims or list(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims)
    off = x - x.mean(dims, keepdim=True)
    return (off * off).sum(dims) / max(count - correction, 1)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _float(text: str | None) -> float | None:
    """Return the number that a node's text says, if it is one."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _digest(tensor: torch.Tensor) -> str:
    """Return a hash of a tensor's values."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    values = plain.detach().double().numpy()
    return hashlib.sha256(values.tobytes()).hexdigest()[:12]


def _value(tensor: torch.Tensor) -> Any:
    """Return the number that a tensor outside the graph holds, if it is one number."""
    if tensor.numel() != 1 or isinstance(tensor, (torch.nn.Parameter, FakeTensor)):
        return None
    return tensor.item()


def _kind(tensor: torch.Tensor) -> str:
    """Return the element type of a leaf, and which of its dimensions have one element."""
    return f"{tensor.dtype} {''.join('1' if size == 1 else 'n' for size in tensor.shape)}"


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that a view of a weight looks at."""
    base = tensor._base
    return tensor if base is None else base


def _layout(tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> str:
    """Return how a view lies in the tensor that it looks at; '' if it is that tensor.

    Sizes are left out: a stride is named by the dimension that has it, and where the view begins
    and how much of the memory it sees are shares.
    """
    if tensor.shape == shape and tensor.stride() == strides and not tensor.storage_offset():
        return ""
    total = max(1, math.prod(shape))
    places = []
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 1 or stride == 0:
            places.append("1" if size == 1 else "0")
        elif stride in strides:
            places.append(f"d{strides.index(stride)}")
        else:
            places.append(str(Fraction(stride, max((s for s in strides if s < stride), default=1))))
    distinct = math.prod(s for s, by in zip(tensor.shape, tensor.stride(), strict=True) if by)
    begin, seen = Fraction(tensor.storage_offset(), total), Fraction(distinct, total)
    return f"[{','.join(places)} of {len(shape)} from {begin}, {seen}]"


def warm() -> None:
    """Import and fill what tracing needs, so that a forked child finds it done."""
    names = {"Model": _Warm, "get_init_inputs": list, "get_inputs": lambda: [torch.rand(2, 3, 8)]}
    trace(names)


class _Warm(torch.nn.Module):  # type: ignore[misc]
    """Uses what many modules use."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.Sequential(
            torch.nn.Conv1d(3, 4, 1),
            torch.nn.BatchNorm1d(4),
            torch.nn.Linear(8, 8),
            torch.nn.LayerNorm(8),
            torch.nn.GELU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return some function of ``x``."""
        x = torch.relu_(self.parts(x))
        x = torch.softmax(x @ x.transpose(-1, -2), -1)
        return x.mean(1) + x.var(1)
