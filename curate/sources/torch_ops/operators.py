"""Single-operator problems from PyTorch's operator database (`op_db`).

The database's sample inputs say how an operator is called; its sizes are those of unit tests. Here
a sample becomes a call, its sizes are scaled to realistic ones that the operator accepts on the
meta device, and the problem is printed and then run (`check`).
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from curate.sources.torch_ops.check import MAX_ELEMENTS, check, quiet
from curate.sources.torch_ops.draft import LINE_LENGTH, ProblemDraft
from curate.sources.torch_ops.skips import skip_reason
from curate.step import Drop

MIN_ELEMENTS = 4096
"""Fewest elements of a problem's largest tensor."""

REFUSALS = (TypeError, RuntimeError, ValueError, IndexError, AssertionError)
"""What operators raise on arguments that they refuse."""

_SAMPLES = 60  # samples of one operator that are looked at

_SIZES: dict[int, list[tuple[int, ...]]] = {
    1: [(65536,), (100000,), (48000,)],
    2: [(128, 1000), (256, 512), (200, 768)],
    3: [(8, 128, 192), (16, 96, 128), (6, 64, 256)],
    4: [(8, 16, 32, 40), (4, 24, 36, 36), (8, 32, 24, 24)],
    5: [(4, 8, 10, 20, 20), (2, 16, 12, 16, 24), (3, 8, 16, 16, 16)],
}
"""Sizes by rank: some 50,000 to 200,000 elements."""

_SMALL: dict[int, tuple[int, ...]] = {
    1: (640,), 2: (80, 96), 3: (8, 24, 32), 4: (4, 9, 12, 16), 5: (2, 9, 6, 12, 12),
}  # fmt: skip
"""Sizes for operators whose outputs are larger than their inputs."""

_NAMES: dict[int, tuple[str, ...]] = {
    1: ("length",),
    2: ("batch_size", "features"),
    3: ("batch_size", "channels", "length"),
    4: ("batch_size", "channels", "height", "width"),
    5: ("batch_size", "channels", "depth", "height", "width"),
}


@dataclass(frozen=True)
class Leaf:
    """A tensor argument of a call.

    Attributes:
        shape: its sizes in the sample.
        kind: float, int or bool.
        low: smallest value in the sample.
        name: of the parameter that it is passed for, or "".
    """

    shape: tuple[int, ...]
    kind: str
    low: float
    name: str = ""


@dataclass(frozen=True)
class Call:
    """An operator and how a sample calls it; tensors are `Leaf` objects.

    Attributes:
        path: how the file names the function: ``torch.amax``, ``F.gelu``.
        function: the function.
        args: positional arguments.
        kwargs: keyword arguments.
    """

    path: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def leaves(self) -> list[Leaf]:
        """Return the tensor arguments in order."""
        flat, _ = tree_flatten((self.args, self.kwargs))
        return [value for value in flat if isinstance(value, Leaf)]

    def run(self, tensors: list[Any]) -> Any:
        """Call the function with these tensors in the places of the leaves."""
        args, kwargs = _substitute((self.args, self.kwargs), tensors)
        return self.function(*args, **kwargs)

    def structure(self) -> str:
        """Return what tells two calls of one operator apart: literals, ranks and broadcasting."""
        leaves = iter(self.leaves())
        shown = _substitute(
            (self.args, self.kwargs),
            [tuple(size == 1 for size in leaf.shape) for leaf in leaves],
        )
        return repr(shown)


def _substitute(tree: Any, values: list[Any]) -> Any:
    left = iter(values)
    return tree_map(lambda part: next(left) if isinstance(part, Leaf) else part, tree)


def operators() -> list[Any]:
    """Return the database's entries, sorted by full name."""
    return sorted(op_db, key=lambda op: str(op.full_name))


def problems(op: Any, limit: int, seed: int) -> Iterator[str | Drop]:
    """Yield up to `limit` checked problems of an operator, or one reason why there are none."""
    reason = skip_reason(op.full_name)
    if reason is None and torch.float32 not in op.dtypes:
        reason = "no_float32"
    if reason is not None:
        yield Drop("operator_left_out", {"operator": op.full_name, "why": reason})
        return
    losses: dict[str, int] = {}
    found: set[str] = set()
    for index, call in enumerate(_calls(op)):
        outcome = _problem(op, call, Random(f"{seed}/{op.full_name}/{index}"))
        if isinstance(outcome, Drop):
            losses[outcome.reason] = losses.get(outcome.reason, 0) + 1
        elif outcome not in found:
            found.add(outcome)
            yield outcome
        if len(found) == limit:
            return
    if not found:
        yield Drop("no_usable_sample", {"operator": op.full_name, "losses": losses})


# --- From sample to call ------------------------------------------------------------------------


def _calls(op: Any) -> list[Call]:
    """Return calls that agree with the database's own function, the most telling first."""
    calls: dict[str, Call] = {}
    with quiet():
        samples = op.sample_inputs("cpu", torch.float32, requires_grad=False)
        for sample in itertools.islice(samples, _SAMPLES):
            call = _call(op, sample)
            if call is not None:
                calls.setdefault(call.structure(), call)
    seen: dict[str, int] = {}
    ordered = []
    for call in sorted(calls.values(), key=_dullness):
        literals = repr({k: v for k, v in call.kwargs.items() if not isinstance(v, Leaf)})
        seen[literals] = seen.get(literals, 0) + 1
        ordered.append((seen[literals], call))
    return [call for _, call in sorted(ordered, key=lambda item: item[0])]


def _dullness(call: Call) -> tuple[bool, bool, int]:
    """Return what is least in calls as people write them: plain sizes, few other arguments."""
    shapes = [leaf.shape for leaf in call.leaves()]
    ranks = [len(shape) for shape in shapes]
    flat, _ = tree_flatten((call.args, call.kwargs))
    odd = not 2 <= max(ranks) <= 4 or 0 in ranks or call.args[0] == [call.leaves()[0]]
    return odd, 1 in shapes[0], len(flat) - len(shapes)


Form = tuple[tuple[Any, ...], dict[str, Any], list[str]]
"""Positional and keyword arguments, and the names of the positional ones as far as known."""


def _call(op: Any, sample: Any) -> Call | None:
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    if op.name.startswith("masked.") and not isinstance(kwargs.get("mask"), torch.Tensor):
        return None  # without a mask it is another operator of the database
    tensors = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
    if not tensors or any(_unfit(tensor) for tensor in tensors):
        return None
    as_sampled: Form = (args, kwargs, [])
    for path, function in _functions(op.name):
        for form in (_by_keyword(function, op, args, kwargs), as_sampled):
            if form is None or not _printable(form[:2]):
                continue
            call = Call(path, function, *_with_leaves(*form))
            if _agrees(op, call, sample, tensors, form[:2]):
                # The database tests epsilons such as -0.5; the functions' own are realistic.
                plain = {k: v for k, v in call.kwargs.items() if k not in {"eps", "momentum"}}
                return Call(path, function, call.args, plain) if path.startswith("F.") else call
    return None


def _unfit(tensor: torch.Tensor) -> bool:
    kinds = (torch.float32, torch.int64, torch.bool)
    return tensor.dtype not in kinds or tensor.numel() == 0 or tensor.layout != torch.strided


def _functions(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    value: Any = torch
    for part in name.split("."):
        value = getattr(value, part, None)
    if callable(value):
        yield f"torch.{name}".replace("torch.nn.functional.", "F."), value


def _by_keyword(
    function: Callable[..., Any], op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Form | None:
    """Return the call with literals by keyword and without defaults, and the parameters' names."""
    for defaults in _signatures(function, op):
        names = list(defaults)
        if len(names) < len(args):
            continue
        first = next((i for i, v in enumerate(args) if i and not _has_tensor(v)), len(args))
        named = {**dict(zip(names[first:], args[first:], strict=False)), **kwargs}
        for name in [k for k, v in named.items() if not _has_tensor(v)]:
            if repr(defaults.get(name, _REQUIRED)) == repr(named[name]):
                del named[name]
        try:
            function(*args[:first], **named)
        except REFUSALS:
            continue
        return args[:first], named, names
    return None


_REQUIRED = object()


def _signatures(function: Callable[..., Any], op: Any) -> Iterator[dict[str, Any]]:
    """Yield the names of a function's parameters with their defaults."""
    try:
        parameters = inspect.signature(function).parameters
        if "args" not in parameters:
            yield {name: parameter.default for name, parameter in parameters.items()}
    except (TypeError, ValueError):
        packet = getattr(torch.ops.aten, op.name.replace(".", "_"), None)
        for overload in packet.overloads() if packet is not None else []:
            arguments = getattr(packet, overload)._schema.arguments
            yield {
                a.name: a.default_value if a.has_default_value() else _REQUIRED for a in arguments
            }


def _has_tensor(value: Any) -> bool:
    return any(isinstance(part, torch.Tensor) for part in tree_flatten(value)[0])


def _printable(tree: Any) -> bool:
    literals = (bool, int, float, str, type(None), torch.Tensor, torch.dtype)
    flat, _ = tree_flatten(tree)
    numbers = [v for v in flat if isinstance(v, float)]
    return all(isinstance(v, literals) for v in flat) and all(math.isfinite(v) for v in numbers)


def _with_leaves(
    args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def leaf(value: Any, name: str = "") -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        kind = {torch.float32: "float", torch.int64: "int", torch.bool: "bool"}[value.dtype]
        return Leaf(tuple(value.shape), kind, float(value.double().aminmax().min), name)

    def with_name(value: Any, name: str) -> Any:
        return leaf(value, name) if isinstance(value, torch.Tensor) else tree_map(leaf, value)

    positional = itertools.zip_longest(args, names[: len(args)], fillvalue="")
    return tuple(with_name(value, name) for value, name in positional), {
        key: with_name(value, key) for key, value in kwargs.items()
    }


def _agrees(op: Any, call: Call, sample: Any, tensors: list[Any], named: Any) -> bool:
    """Say whether the call gives what the database's function gives, in fresh memory."""
    flat = [v for v in tree_flatten(named)[0] if isinstance(v, torch.Tensor)]
    try:
        expected = op(sample.input, *sample.args, **sample.kwargs)
        got = call.run([tensor.clone() for tensor in flat])
    except REFUSALS:
        return False
    ours, theirs = tree_flatten(got)[0], tree_flatten(expected)[0]
    if not 1 <= len(ours) <= 4 or len(ours) != len(theirs):
        return False
    if not all(isinstance(t, torch.Tensor) and t.numel() and not t.is_complex() for t in ours):
        return False
    storages = {t.untyped_storage().data_ptr() for t in tensors}
    if any(t.untyped_storage().data_ptr() in storages for t in theirs):
        return False
    return all(torch.allclose(a, b, equal_nan=True) for a, b in zip(ours, theirs, strict=True))


# --- From call to problem -----------------------------------------------------------------------

Shape = tuple[str, ...]
Scaled = tuple[Call, list[Shape], dict[str, int]]


def _problem(op: Any, call: Call, rng: Random) -> str | Drop:
    outcome = Drop("no_realistic_size")
    for scaled in _scalings(call, rng):
        if not _accepts(*scaled):
            continue
        for draws in _draws(op, *scaled):
            text = _print(*scaled, draws)
            verdict = check(text)
            if verdict is None:
                return text
            outcome = verdict
        if outcome.reason != "does_not_run":
            return outcome
    return outcome


def _scalings(call: Call, rng: Random) -> Iterator[Scaled]:
    """Yield realistic sizes: axes aligned at the right, at the left, then equal sizes alike."""
    leaves = call.leaves()
    rank = max(len(leaf.shape) for leaf in leaves)
    if rank not in _SIZES or any(size < 0 for leaf in leaves for size in leaf.shape):
        return
    for table in (rng.choice(_SIZES[rank]), _SMALL[rank]):
        for align in ("right", "left", "value"):
            shapes, sizes = _scale(leaves, rank, table, align)
            if call.path == "F.interpolate" and call.kwargs.get("size"):
                yield _resize(call, shapes[0], sizes), shapes, sizes
                continue
            yield call, shapes, sizes
            resized = _resize_literals(call, dict(_values(leaves, shapes)))
            if resized is not None:
                yield resized, shapes, sizes


def _scale(
    leaves: list[Leaf], rank: int, table: tuple[int, ...], align: str
) -> tuple[list[Shape], dict[str, int]]:
    """Return the sizes' names for each tensor, and the names' values."""
    sizes: dict[str, int] = {}
    by_value: dict[int, str] = {1: "1"}
    shapes: list[Shape] = []
    for leaf in leaves:
        offset = rank - len(leaf.shape) if align == "right" else 0
        shape = []
        for axis, size in enumerate(leaf.shape, start=offset):
            name = "1" if size == 1 else _NAMES[rank][axis]
            if align == "value":
                if size not in by_value and name in sizes:
                    name = f"other_{name}"
                name = by_value.setdefault(size, name)
            if name != "1" and name not in sizes:
                sizes[name] = table[axis] // 2 if name.startswith("other_") else table[axis]
            shape.append(name)
        shapes.append(tuple(shape))
    return shapes, sizes


def _resize(call: Call, shape: Shape, sizes: dict[str, int]) -> Call:
    """Return a call that asks for a size which is to the new input as the sample's was to its."""
    before, wanted = call.leaves()[0].shape, call.kwargs["size"]
    axes = [*zip(before, shape, strict=True)][-len(wanted) :]
    size = tuple(n * sizes[name] // old for n, (old, name) in zip(wanted, axes, strict=True))
    return Call(call.path, call.function, call.args, {**call.kwargs, "size": size})


def _values(leaves: list[Leaf], shapes: list[Shape]) -> Iterator[tuple[int, str]]:
    for leaf, shape in zip(leaves, shapes, strict=True):
        for size, name in zip(leaf.shape, shape, strict=True):
            if name != "1":
                yield size, name


@dataclass(frozen=True)
class Name:
    """A literal argument that is one of the file's constants."""

    text: str


def _resize_literals(call: Call, names: dict[int, str]) -> Call | None:
    """Return the call with sizes inside its literals replaced by names, or None without any."""

    def rename(value: Any) -> Any:
        known = type(value) is int and value in names
        return Name(names[value]) if known else value

    kwargs = {
        key: tree_map(rename, value) if key in _SIZE_ARGUMENTS else value
        for key, value in call.kwargs.items()
    }
    if kwargs == call.kwargs:
        return None
    return Call(call.path, call.function, call.args, kwargs)


_SIZE_ARGUMENTS = {"normalized_shape", "shape", "size", "num_classes"}


def _meta(call: Call, shapes: list[Shape], sizes: dict[str, int]) -> tuple[list[Any], Any]:
    """Return inputs of these sizes on the meta device, and what the call makes of them."""
    dtypes = {"float": torch.float32, "int": torch.int64, "bool": torch.bool}
    kwargs = tree_map(lambda v: sizes[v.text] if isinstance(v, Name) else v, call.kwargs)
    tensors = [
        torch.empty([sizes.get(d, 1) for d in shape], dtype=dtypes[leaf.kind], device="meta")
        for shape, leaf in zip(shapes, call.leaves(), strict=True)
    ]
    with quiet():
        return tensors, Call(call.path, call.function, call.args, kwargs).run(tensors)


def _accepts(call: Call, shapes: list[Shape], sizes: dict[str, int]) -> bool:
    """Say whether the operator takes these sizes and its tensors are neither tiny nor huge."""
    try:
        tensors, outputs = _meta(call, shapes, sizes)
    except REFUSALS:
        return False
    largest: int = max(t.numel() for t in [*tensors, *tree_flatten(outputs)[0]])
    return MIN_ELEMENTS <= largest <= MAX_ELEMENTS


def _output_names(call: Call, shapes: list[Shape], sizes: dict[str, int]) -> list[str]:
    """Return names for the parts of a result that has several."""
    _, outputs = _meta(call, shapes, sizes)
    if isinstance(outputs, torch.Tensor):
        return []
    known = getattr(type(outputs), "__match_args__", ())
    return list(known or ("first", "second", "third", "fourth")[: len(outputs)])


def _draws(
    op: Any, call: Call, shapes: list[Shape], sizes: dict[str, int]
) -> Iterator[tuple[str, ...]]:
    """Yield expressions that draw the tensors; ``{}`` is for the sizes."""
    leaves = call.leaves()
    highs = sorted({name for shape in shapes for name in shape if name in sizes}, key=sizes.get)  # type: ignore[arg-type]
    indices: list[str] = [*reversed(highs), "2"] if any(v.kind == "int" for v in leaves) else [""]
    for high in indices:
        for draw in _float_draws(op, leaves):
            yield tuple(
                {"float": draw, "bool": "torch.rand({}) > 0.5"}.get(
                    leaf.kind, f"torch.randint({high}, [{{}}])"
                )
                for leaf in leaves
            )


def _float_draws(op: Any, leaves: list[Leaf]) -> list[str]:
    low, high = getattr(op, "domain", (None, None))
    if low is not None and high is not None:
        middle, half = (low + high) / 2, 0.98 * (high - low) / 2
        scaled = f"{2 * half:g} * torch.rand({{}})"
        return [f"{scaled} {'-' if half > middle else '+'} {abs(middle - half):g}"]
    if low is not None:
        return [f"3.0 * torch.rand({{}}) + {low + 0.1:g}"]
    floats = [leaf for leaf in leaves if leaf.kind == "float"]
    positive = bool(floats) and all(leaf.low >= 0 for leaf in floats)
    draws = ["torch.randn({})", "torch.rand({})", "torch.rand({}) + 1.1"]
    if positive:
        draws = draws[1:] + draws[:1]
    return [*draws, "torch.randint(4, [{}]).float()"]


def _print(
    call: Call,
    shapes: list[Shape],
    sizes: dict[str, int],
    draws: tuple[str, ...],
) -> str:
    draft = ProblemDraft(Random(0), sizes=dict(sizes))
    outputs = _output_names(call, shapes, sizes)
    names: list[Any] = []
    unnamed = iter(["x", "y", "z", "w", "v", "u"])
    functional = call.path.startswith("F.")
    for leaf, shape, draw in zip(call.leaves(), shapes, draws, strict=True):
        known = leaf.name not in {"", "self", "input"} and leaf.name not in draft.inputs
        name = leaf.name if known else next(unnamed)
        if functional and leaf.name in {"weight", "bias"} and leaf.kind == "float":
            names.append(Name(draft.parameter(name, *(s for s in shape), draw=draw)))
        else:
            names.append(Name(draft.take(name, *shape, draw=draw)))
    args, kwargs = _substitute((call.args, call.kwargs), names)
    shown = [_show(value) for value in args]
    keywords = [f"{key}={_show(value, draft)}" for key, value in kwargs.items()]
    expression = _wrap(call.path, shown + keywords)
    if outputs:
        draft.let(", ".join(outputs), expression)
    draft.result = ", ".join(outputs) or expression
    literals = [f"{k}={_show(v)}" for k, v in call.kwargs.items() if not isinstance(v, Leaf)]
    full = call.path.replace("F.", "torch.nn.functional.")
    draft.summary = full + (f" with {', '.join(literals)}" if literals else "") + "."
    return draft.text()


def _wrap(function: str, arguments: list[str]) -> str:
    """Return a call on one line, or with one argument a line where that is too long."""
    one_line = f"{function}({', '.join(arguments)})"
    if len(one_line) < LINE_LENGTH - 15:
        return one_line
    return f"{function}(\n" + "".join(f"{' ' * 12}{a},\n" for a in arguments) + f"{' ' * 8})"


def _show(value: Any, draft: ProblemDraft | None = None) -> str:
    if isinstance(value, Name):
        if draft is not None and value.text in draft.sizes:
            return draft.layer(value.text, draft.argument(value.text))
        return value.text
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_show(part, draft) for part in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float):
        return f"{value:.6g}" if "." in f"{value:.6g}" or "e" in f"{value:.6g}" else f"{value:.1f}"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)
