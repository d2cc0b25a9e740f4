"""The ``backward`` step: the gradients of a module, as a problem of their own."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from math import prod
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from curate.harvest.modules.taskfile import task_row
from curate.rows import Row
from curate.step import Context, Keep, Outcome, RowStep
from curate.syntax import rename

if TYPE_CHECKING:
    import torch

    from curate.problem.problem import LoadedTask

MOST_GRADIENTS = 8
"""Gradients that one problem asks for; of a module with more parameters, those of its inputs."""

_EXAMPLE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 8)

    def forward(self, x):
        return torch.softmax(self.linear(x), -1)


batch_size = 4


def get_inputs():
    return [torch.rand(batch_size, 8)]


def get_init_inputs():
    return [8]
"""


class Backward(RowStep):
    """Add problems that ask for gradients.

    To a ``share`` of the problems that a class of a package gave, one is added whose ``forward``
    returns the gradients of that class, by `torch.autograd.grad`: of its floating inputs and of its
    parameters; of its inputs alone if it convolves, or if there are more than eight. It takes
    ``grad_output`` behind the inputs, unless the class gives one number. Left out are classes whose
    result is not one floating tensor, and what does more than ``max_ops`` operators.
    """

    step: Literal["backward"]

    version: ClassVar[int] = 1
    tools: ClassVar[tuple[str, ...]] = ("torch",)
    takes: ClassVar[frozenset[str]] = frozenset({"task"})
    makes: ClassVar[frozenset[str]] = frozenset({"task"})
    reads: ClassVar[frozenset[str]] = frozenset({"reference"})
    sandboxed: ClassVar[bool] = True

    share: Annotated[float, Field(ge=0, le=1, description="Share of problems that get one.")] = 0.3
    max_ops: Annotated[
        int, Field(gt=0, description="Most computing operators, forward and backward.")
    ] = 60

    def setup(self, context: Context) -> None:
        import torch

        torch.set_num_threads(1)
        gradients(_EXAMPLE, "Layer", self.max_ops)  # imports what is used, before they fork

    def apply(self, row: Row, context: Context) -> Outcome:
        reference, name = row["reference"], _class_name(row["origin"]["symbol"])
        if reference is None or name is None or Random(row["id"]).random() >= self.share:
            return Keep((row,))
        text = gradients(reference, name, self.max_ops)
        return Keep((row,) if text is None else (row, task_row(row, text)))


def _class_name(symbol: str | None) -> str | None:
    """Return the name that a class has here; None for what is no class."""
    name = (symbol or "").rpartition(".")[2].lstrip("_")
    return name if name[:1].isupper() and name not in ("Model", "Module") else None


def gradients(reference: str, name: str, max_ops: int) -> str | None:
    """Return a problem that asks for the gradients of a problem's ``Model``, or None.

    For the sandbox only: it runs the problem.

    Args:
        reference: the problem.
        name: what its class is called in the new one.
        max_ops: most operators that it may call.
    """
    from curate.problem.eager import check
    from curate.problem.operator_calls import OperatorCalls
    from curate.problem.problem import LoadedTask

    if re.search(rf"\b({name}|autograd|backward|requires_grad_)\b", reference):
        return None
    try:
        layer = _Layer(LoadedTask(reference), name)
        text = layer.text() if layer.wanted else None
        if text is None:
            return None
        check(text)
        task = LoadedTask(text)
        for size in layer.sizes:  # what a size is in must hold for others as well
            setattr(task.module, size, 2 * layer.sizes[size])
        with OperatorCalls(max_ops):
            task.build(0, task.init_inputs())(*task.inputs())
    except Exception:  # the code is other people's: it may raise anything
        return None
    return text


class _Layer:
    """A problem's module: what of it has gradients, and what its result's shape follows from."""

    def __init__(self, task: LoadedTask, name: str) -> None:
        import inspect

        import torch

        from curate.problem.draw import named_sizes

        self.task, self.name = task, name
        self.attribute = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
        self.attribute = self.attribute.lower()
        self.sizes = {size: int(getattr(task.module, size)) for size in named_sizes(task)}
        self.init = _names(task.module.Model.__init__, len(task.init_inputs()))
        model, inputs = task.build(0, task.init_inputs()), task.inputs()
        self.inputs = _names(task.module.Model.forward, len(inputs))
        signature = inspect.signature(task.module.Model.forward)
        assert not {"out", "torch", "grad_output"} & signature.parameters.keys()
        with torch.enable_grad():
            given = [_leaf(value) for value in inputs]
            self.out = model(*given)
        self.shape: list[int] = []
        self.wanted: list[str] = []
        if isinstance(self.out, torch.Tensor) and self.out.requires_grad:
            self.shape = list(self.out.shape)
            self.wanted = self._wanted(model, given)

    def _wanted(self, model: torch.nn.Module, given: list[Any]) -> list[str]:
        """Return expressions of what has gradients."""
        import torch

        from curate.problem.problem import attribute_path

        inputs = {n: t for n, t in zip(self.inputs, given, strict=True) if _is_leaf(t)}
        named = model.named_parameters(self.attribute)
        held = {attribute_path(p): t for p, t in named if t.requires_grad}
        tensors = [*inputs.values(), *held.values()]
        found = torch.autograd.grad(self.out, tensors, torch.ones_like(self.out), allow_unused=True)
        used = [n for n, g in zip([*inputs, *held], found, strict=True) if g is not None]
        own = [n for n in used if n in held]
        first = [n for n in used if n in inputs]
        convolves = any(isinstance(m, torch.nn.modules.conv._ConvNd) for m in model.modules())
        if not own or (first and (convolves or len(used) > MOST_GRADIENTS)):
            return first
        if len(own) == len(list(model.parameters())) > 1:
            own = [f"*self.{self.attribute}.parameters()"]
        return first + own if len(first + own) <= MOST_GRADIENTS else []

    def text(self) -> str | None:
        """Return the new problem; None where the result's shape cannot be said."""
        old = self.task.source
        tree = ast.parse(old)
        (model,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        lines = rename(old, "Model", self.name).split("\n")
        if self.shape:
            shape = self._shape_text()
            if shape is None or not _add_input(lines, tree, f"torch.randn({shape})"):
                return None
        lines[model.end_lineno : model.end_lineno] = ["", "", *self._class_text()]
        return "\n".join(lines)

    def _class_text(self) -> list[str]:
        behind = ["grad_output"] if self.shape else []
        leaves = [name for name in self.wanted if name in self.inputs]
        one = self.wanted[0] if len(self.wanted) == 1 and "*" not in self.wanted[0] else ""
        wanted = one or f"({', '.join(self.wanted)})"
        grad = _call(
            12, "return torch.autograd.grad", ["out", wanted, *behind], "[0]" if one else ""
        )
        of = [*leaves, "its parameters"] if len(leaves) < len(self.wanted) else leaves
        return [
            "class Model(torch.nn.Module):",
            f'    """Gradients of {self.name}: of {_listed(of)}."""',
            "",
            f"    def __init__({', '.join(['self', *self.init])}):",
            "        super().__init__()",
            *_call(8, f"self.{self.attribute} = {self.name}", self.init),
            "",
            f"    def forward({', '.join(['self', *self.inputs, *behind])}):",
            "        with torch.enable_grad():",
            *(f"            {name} = {name}.detach().requires_grad_()" for name in leaves),
            *_call(12, f"out = self.{self.attribute}", self.inputs),
            *grad,
        ]

    def _shape_text(self) -> str | None:
        """Return the result's shape in the names of sizes, found by trying others."""
        tried = {name: self._shapes(name, size) for name, size in self.sizes.items()}
        lengths = []
        for i in range(len(self.shape)):
            found = {n: {v: s[i] for v, s in shapes.items()} for n, shapes in tried.items()}
            length = self._length(
                {n: known for n, known in found.items() if len({*known.values()}) > 1}, i
            )
            if length is None:
                return None
            lengths.append(length)
        return ", ".join(lengths)

    def _shapes(self, name: str, size: int) -> dict[int, list[int]]:
        """Return the result's shape at a size, at one more and at twice that, if it takes them."""
        shapes = {size: self.shape}
        for other in (size + 1, 2 * size):
            setattr(self.task.module, name, other)
            try:
                model = self.task.build(0, self.task.init_inputs())
                shapes[other] = list(model(*self.task.inputs()).shape)
            except Exception:  # it takes no such size
                continue
        setattr(self.task.module, name, size)
        return shapes

    def _length(self, known: dict[str, dict[int, int]], i: int) -> str | None:
        """Return the length of a dimension, by what it is at sizes that it depends on."""
        length = self.shape[i]
        if not known:
            return str(length)
        if len(known) > 1:
            over = Fraction(length, prod(self.sizes[name] for name in known))
            times = [str(over.numerator)] if over.numerator > 1 else []
            return " * ".join([*times, *known]) if over.denominator == 1 else None
        ((name, lengths),) = known.items()
        size = self.sizes[name]
        rise = Fraction(lengths.get(2 * size, 0) - length, size)
        if rise.denominator == 1:
            forms = [name if rise == 1 else f"{rise} * {name}"]
        else:
            part = rise.denominator
            forms = [f"{name} // {part}", f"({name} + {part - 1}) // {part}"]
        for form in forms:
            more = length - int(eval(form, {name: size}))
            text = form + (f" {'-' if more < 0 else '+'} {abs(more)}" if more else "")
            if all(eval(text, {name: v}) == found for v, found in lengths.items()):
                return text
        return None


def _listed(words: list[str]) -> str:
    """Return words with commas and an "and"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _call(margin: int, function: str, arguments: list[str], behind: str = "") -> list[str]:
    """Return the lines of a call; its arguments have one of their own if one line is too long."""
    given, space = ", ".join(arguments), " " * margin
    line = f"{space}{function}({given}){behind}"
    if len(line) <= 100:
        return [line]
    return [f"{space}{function}(", f"{space}    {given}", f"{space}){behind}"]


def _names(function: Any, count: int) -> list[str]:
    """Return the names of a method's first arguments."""
    import inspect

    parameters = list(inspect.signature(function).parameters.values())[1:][:count]
    assert len(parameters) == count
    assert all(p.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
    return [parameter.name for parameter in parameters]


def _leaf(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().requires_grad_()
    return value


def _is_leaf(value: Any) -> bool:
    return bool(getattr(value, "requires_grad", False))


def _add_input(lines: list[str], tree: ast.Module, expression: str) -> bool:
    """Add what ``get_inputs`` returns to its list, in place; False where it returns no list."""
    (function,) = (
        n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "get_inputs"
    )
    given = function.body[-1]
    if not isinstance(given, ast.Return) or not isinstance(given.value, ast.List):
        return False
    items = given.value
    assert items.end_lineno is not None and items.end_col_offset is not None
    if items.lineno != items.end_lineno:  # one in each line, and a comma
        lines.insert(items.end_lineno - 1, f"        {expression},")
        return True
    line = lines[items.end_lineno - 1]
    joined = f"{line[: items.end_col_offset - 1]}{', ' if items.elts else ''}{expression}]"
    if len(joined) <= 100:
        lines[items.end_lineno - 1] = joined
    else:
        margin = " " * 8
        each = [ast.unparse(item) for item in items.elts]
        each = [f"{margin}{item}," for item in [*each, expression]]
        lines[items.end_lineno - 1 : items.end_lineno] = ["    return [", *each, "    ]"]
    return True
