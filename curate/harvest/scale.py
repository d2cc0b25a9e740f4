"""The ``scale`` step: problems at sizes that fill a GPU, half of them in 16 bits."""

from __future__ import annotations

import ast
import bisect
import re
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from curate.rows import Row
from curate.step import Context, Keep, Outcome, RowStep

CAPS = {
    **{"batch_size": 256, "seq_len": 8192, "height": 512, "width": 512, "depth": 64},
    **{"num_items": 4096, "num_candidates": 4096},  # that are sorted
}
"""What users have at most of what these names say; other sizes have no limit of their own."""

CALL_BYTES = 2**33
"""Bytes that a forward's operators may read and write: what follows from the inputs, such as all
distances between two sets, must not be larger than a GPU's memory."""

MOST_CALLS = 2**15
"""Operators that a forward may call: a recurrence calls some for each step of long inputs."""

DRAWS = ("rand", "randn", "zeros", "ones", "empty", "full")
"""Functions of `torch` that make floating tensors, and take a type."""

SHORT = ("bfloat16", "bfloat16", "bfloat16", "float16")
"""Types of 16 bits, as often as they are used."""


_EXAMPLE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = torch.softmax(self.linear(x.bfloat16().float()), -1)
        return torch.cat([y, y.mean(0, keepdim=True) + 1]).transpose(0, 1)

batch_size = 4


def get_inputs():
    return [torch.rand(batch_size, 8)]


def get_init_inputs():
    return []
"""


class ScaleUp(RowStep):
    """Give problems the sizes that their users have, and some of them 16-bit types.

    Named integers that only ``get_inputs`` reads are doubled in turn until the inputs have between
    ``least`` and ``most`` elements, as the row's id decides. What a forward does not take on
    tensors without values, or what would not fit a GPU, is undone. In the problems that become
    bfloat16 or float16, inputs and parameters do, if the module runs so on a CPU. A judge on a CPU
    makes large sizes smaller again (caveat ``smaller_sizes_only``).
    """

    step: Literal["scale"]

    version: ClassVar[int] = 3
    tools: ClassVar[tuple[str, ...]] = ("torch",)
    takes: ClassVar[frozenset[str]] = frozenset({"task"})
    reads: ClassVar[frozenset[str]] = frozenset({"reference"})
    sets: ClassVar[frozenset[str]] = frozenset({"reference"})
    sandboxed: ClassVar[bool] = True

    least: Annotated[int, Field(gt=0, description="Fewest elements of the inputs.")] = 2**20
    most: Annotated[int, Field(gt=0, description="Most elements of the inputs.")] = 2**26
    short: Annotated[
        float, Field(ge=0, le=1, description="Share of problems that are bfloat16 or float16.")
    ] = 0.5

    def setup(self, context: Context) -> None:
        import torch

        torch.set_num_threads(1)
        enlarged(_EXAMPLE, 2**20)  # what is imported on first use is then here, before they fork
        _runs(_EXAMPLE)

    def apply(self, row: Row, context: Context) -> Outcome:
        reference, rng = row["reference"], Random(row["id"])
        if reference is None:
            return Keep((row,))
        wanted = self.least * (self.most / self.least) ** rng.random()
        kind = rng.choice(SHORT) if rng.random() < self.short else None
        if kind and (shortened := in_16_bits(reference, kind)) and _runs(shortened):
            reference = shortened
        reference = enlarged(reference, wanted)
        return Keep(({**row, "reference": reference},))


def enlarged(reference: str, wanted: float) -> str:
    """Return a file with named sizes at which its inputs have about so many elements.

    For the sandbox only: it runs the problem, on tensors without values.
    """
    from curate.problem.draw import free_sizes
    from curate.problem.problem import LoadedTask
    from curate.problem.smaller import input_elements

    try:
        task = LoadedTask(reference)
        names = [n for n in free_sizes(task) if re.search(rf"(?m)^{n} = \d+$", reference)]
        own = {name: getattr(task.module, name) for name in names}
        steps: list[str] = []
        while names and input_elements(task) * 2 <= wanted:
            open_names = [n for n in names if 2 * getattr(task.module, n) <= CAPS.get(n, 2**62)]
            if not open_names:
                break
            name = min(open_names, key=lambda n: getattr(task.module, n) / CAPS.get(n, 2**31))
            setattr(task.module, name, 2 * getattr(task.module, name))
            steps.append(name)

        def fails(count: int) -> bool:
            for name in names:
                setattr(task.module, name, own[name] << steps[:count].count(name))
            return count > 0 and not _fits(task)

        count = len(steps)
        if fails(count):
            count = bisect.bisect_left(range(count), True, lo=1, key=fails) - 1
    except Exception:  # the code is other people's: it may raise anything
        return reference
    for name in dict.fromkeys(steps[:count]):
        size = own[name] << steps[:count].count(name)
        reference = re.sub(rf"(?m)^{name} = \d+$", f"{name} = {size}", reference)
    return reference


def _fits(task: Any) -> bool:
    """Whether the model takes inputs of these sizes, within `CALL_BYTES` and `MOST_CALLS`."""
    import torch

    from curate.problem.operator_calls import OperatorCalls

    try:
        with torch.device("meta"), torch.no_grad(), OperatorCalls(MOST_CALLS) as called:
            task.module.Model(*task.init_inputs()).eval()(*task.inputs())
    except Exception:  # the code is other people's: it may raise anything
        return False
    return bool(called.call_bytes <= CALL_BYTES)


def _runs(reference: str) -> bool:
    from curate.problem.eager import Unusable, check

    try:
        check(reference)
    except Unusable:
        return False
    return True


def in_16_bits(reference: str, kind: str) -> str | None:
    """Return a file whose inputs and parameters have a type of 16 bits, or None.

    None where something makes floating inputs in another way than by `DRAWS` without a type.
    """
    tree = ast.parse(reference)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    if "get_inputs" not in functions or not models or "dtype" in reference:
        return None
    lines = [line.encode() for line in reference.split("\n")]  # positions count bytes
    calls = [node for node in ast.walk(functions["get_inputs"]) if isinstance(node, ast.Call)]
    drawn = [node for node in calls if _called(node) in DRAWS]
    if not drawn or any(_called(node) in ("tensor", "linspace", "normal") for node in calls):
        return None
    for node in sorted(drawn, key=lambda n: (-(n.end_lineno or 0), -(n.end_col_offset or 0))):
        at, column = (node.end_lineno or 0) - 1, (node.end_col_offset or 0) - 1
        before = lines[at][:column].rstrip()
        comma = b" " if before.endswith(b",") else b", "
        comma = b"" if before.endswith(b"(") else comma
        lines[at] = before + comma + f"dtype=torch.{kind}".encode() + lines[at][column:]
    built = [n for n in models[0].body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    if built and _has_state(models[0]):
        margin = " " * built[0].body[-1].col_offset
        lines.insert(built[0].end_lineno or 0, f"{margin}self.to(torch.{kind})".encode())
    text = b"\n".join(lines).decode()
    return text if "import torch\n" in text else None


def _called(node: ast.Call) -> str:
    function = node.func
    is_torch = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    if is_torch and function.value.id == "torch":  # type: ignore[attr-defined]
        return str(function.attr)  # type: ignore[attr-defined]
    return ""


def _has_state(model: ast.ClassDef) -> bool:
    """Whether a module's constructor assigns more than numbers: layers, parameters, buffers."""
    calls = (node for node in ast.walk(model) if isinstance(node, ast.Call))
    plain = ("super", "__init__", "int", "float", "bool", "len", "tuple", "list")
    return any(ast.unparse(call.func).split(".")[-1] not in plain for call in calls)
