"""What may be said of a row's program: read from its text, and from what was found out about it.

A prompt asks for nothing that the answer below it does not do. What is not known is not said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from curate.devices import DEVICES
from curate.rows import PairRow
from curate.teacher.describe import InputTensor, inputs_of

SIZE_CAVEATS = frozenset({"own_sizes_only", "some_sizes_only"})
CLOSE_CAVEATS = frozenset({"low_precision", "absolute_accuracy"})
TOLERANCES = (1e-5, 1e-4, 1e-3)
"""Absolute errors that a prompt may allow, the strictest first."""

READ_ONCE = (
    "Each program takes BLOCK_SIZE elements.",
    "Each program takes a tile of BLOCK_ROWS x BLOCK_COLS elements.",
    "Each program holds BLOCK_ROWS rows in one tile.",
    "Each program takes BLOCK_ROWS rows, BLOCK_COLS elements of them at a time.",
    "Each program walks down BLOCK_COLS columns, BLOCK_ROWS rows at a time.",
)
"""Schedules whose programs share out the elements and go over them once."""

SMALL = 8
"""Numbers below it are in every program, and say nothing about the sizes of inputs."""


class ProgramFacts:
    """What is known of a pair's program; each fact is false where it is not known."""

    def __init__(self, row: PairRow) -> None:
        """Read a row; its texts are parsed where a fact asks for that."""
        self._row = row
        self._static, self._verdict = row["static"], row["verdict"]
        self._caveats = set((self._verdict and self._verdict["caveats"]) or ())

    @cached_property
    def _tree(self) -> ast.Module:
        try:
            return ast.parse(self._row["triton"])
        except (SyntaxError, ValueError):
            return ast.Module([], [])

    @property
    def is_correct(self) -> bool:
        """Whether the judge called it correct."""
        return self._verdict is not None and self._verdict["status"] == "correct"

    @property
    def written_for(self) -> list[str]:
        """The arguments that it is written for, as ``name=value``."""
        return list((self._static and self._static["specialised"]) or [])

    @cached_property
    def inputs(self) -> tuple[InputTensor, ...]:
        """The tensors that ``get_inputs`` makes; none if one of them is unknown or has no name."""
        found = inputs_of(self._row["reference"]) or ()
        return found if all(tensor.name for tensor in found) else ()

    @property
    def is_pure(self) -> bool:
        """Whether no operator of PyTorch computes anything, by its text and as it ran."""
        static, verdict = self._static, self._verdict
        if static is None or not static["pure_triton"] or static["extern_calls"]:
            return False
        return verdict is None or verdict["kind"] in (None, "pure_triton")

    @property
    def library_calls(self) -> list[str]:
        """What it leaves to PyTorch, as in ``torch.matmul``."""
        return sorted((self._static and self._static["extern_calls"]) or [])

    @property
    def takes_short_floats(self) -> bool:
        """Whether it takes float16 and bfloat16 where the module's parameters are of that type.

        One whose `forward` converts a result would leave that work to PyTorch.
        """
        if self._static is None or not self._static["any_float"]:
            return False
        classes = [node for node in self._tree.body if isinstance(node, ast.ClassDef)]
        if any(_converts(node) for owner in classes for node in ast.walk(owner)):
            return False
        return not any(_asks_for_float32(node) for node in ast.walk(self._tree))

    @property
    def takes_other_sizes(self) -> bool:
        """Whether it was right at other sizes, and no size of an input stands in it as a number."""
        if not self.is_correct or self._caveats & SIZE_CAVEATS or self.written_for:
            return False
        if not self.inputs:
            return False
        sizes = {size for x in self.inputs for size in x.shape if size >= SMALL}
        return not sizes & set(_numbers(self._tree)) and not self._has_fixed_shape()

    def _has_fixed_shape(self) -> bool:
        """Whether an assertion compares a size of an input with a number of its own."""
        names = {tensor.name for tensor in self.inputs}
        asserted = (n.test for n in ast.walk(self._tree) if isinstance(n, ast.Assert))
        for test in asserted:
            shapes = [n for n in ast.walk(test) if _is_shape(n, names)]
            sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
            if shapes and any(_own_number(n) for side in sides for n in _elements(side)):
                return True
        return False

    @property
    def is_one_kernel(self) -> bool:
        """Whether several operators are one kernel, which is launched once."""
        operators = (self._static and self._static["ops"]) or []
        return len(operators) > 1 and self._is_one_launch()

    def _is_one_launch(self) -> bool:
        static, verdict = self._static, self._verdict
        return bool(static and verdict and static["kernels"] == 1 and verdict["launches"] == 1)

    @cached_property
    def read_once(self) -> str:
        """The name of the only input, if one kernel loads no element of it twice; else ''."""
        if len(self.inputs) != 1 or not self._is_one_launch():
            return ""
        found = [k for k in kernels(self._tree) if schedule_of(k)]
        if len(found) != 1 or schedule_of(found[0]) not in READ_ONCE:
            return ""
        name = self.inputs[0].name
        return name if _loads_once(found[0], f"{name}_ptr") else ""

    @property
    def targets(self) -> list[str]:
        """The devices that all of its kernels compile for."""
        compiled = self._row["compile"] or []
        return [c["target"] for c in compiled if c["ok"] and c["target"] in DEVICES]

    @property
    def is_close(self) -> bool:
        """Whether results differ by no more than rounding in the module's own type."""
        return self.is_correct and not self._caveats & CLOSE_CAVEATS

    @property
    def tolerance(self) -> float | None:
        """The strictest of `TOLERANCES` that no error of any draw was above."""
        error = self._verdict["max_abs_error"] if self._verdict and self.is_close else None
        return next((t for t in TOLERANCES if error is not None and error <= t), None)

    @property
    def is_forward_only(self) -> bool:
        """Whether it has no backward pass, and is none."""
        texts = self._row["reference"], self._row["triton"]
        return not any(re.search(r"autograd|backward|\bgrad_", text) for text in texts)

    @property
    def faster_than(self) -> str:
        """What it was measured to be faster than: `torch.compile`, eager PyTorch, or ''."""
        times = self._verdict and self._verdict["timing"]
        if not times or not times["candidate_us"]:
            return ""
        known = {"`torch.compile`": times["compile_us"], "eager PyTorch": times["eager_us"]}
        slower = [what for what, us in known.items() if us and us > times["candidate_us"]]
        return slower[0] if slower else ""


def schedules(code: str) -> list[str]:
    """Return what the docstrings of a program's kernels say of its programs, each once."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return []
    return list(dict.fromkeys(filter(None, map(schedule_of, kernels(tree)))))


def kernels(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a file that Triton compiles."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
            if "jit" in marks:
                yield node


def schedule_of(kernel: ast.FunctionDef) -> str:
    """Return the sentence that says what each program does; '' if there is none."""
    words = " ".join((ast.get_docstring(kernel) or "").split())
    _, begin, rest = words.partition("Each program ")
    return f"{begin}{rest.partition('. ')[0].rstrip('.')}." if begin else ""


def _asks_for_float32(node: ast.AST) -> bool:
    """Whether a node is ``assert x.dtype == torch.float32``."""
    return (
        isinstance(node, ast.Assert)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.ops[0], ast.Eq)
        and "torch.float32" in ast.unparse(node.test)
    )


def _converts(node: ast.AST) -> bool:
    """Whether a node is ``out.to(x.dtype)``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and any(isinstance(n, ast.Attribute) and n.attr == "dtype" for n in ast.walk(node))
    )


def _numbers(tree: ast.AST) -> Iterator[int]:
    """Yield the integers in a program, but for tiles, warps and stages."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.keyword) and node.arg and _is_tuning(node.arg):
            continue
        if isinstance(node, ast.Assign) and _is_tuning(ast.unparse(node.targets[0])):
            continue
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield node.value
        yield from _numbers(node)


def _is_tuning(name: str) -> bool:
    return name.isupper() or name in ("num_warps", "num_stages")


def _is_shape(node: ast.AST, names: set[str]) -> bool:
    """Whether a node is ``x.shape`` of one of the inputs."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "shape"
        and isinstance(node.value, ast.Name)
        and node.value.id in names
    )


def _elements(side: ast.expr) -> list[ast.expr]:
    return side.elts if isinstance(side, ast.Tuple) else [side]


def _own_number(node: ast.expr) -> bool:
    """Whether a node is a size that is no 1, with which PyTorch broadcasts."""
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1


def _loads_once(kernel: ast.FunctionDef, pointer: str) -> bool:
    """Whether a kernel has one load of a pointer, at offsets that all of its programs share out.

    The offsets are sums such as ``rows * n + cols``, which depend on every number of a program,
    every range and every loop of the kernel, and in which no two places can become one.
    """
    loads = [
        call.args[0]
        for call in ast.walk(kernel)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.load"
        if pointer in {n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)}
    ]
    if len(loads) != 1:
        return False
    made: dict[str, list[ast.expr]] = {}
    parts: set[str] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made.setdefault(node.targets[0].id, []).append(node.value)
            if "tl.program_id" in (text := ast.unparse(node.value)) or "tl.arange" in text:
                parts.add(node.targets[0].id)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            made.setdefault(node.target.id, []).append(node.iter)
            parts.add(node.target.id)
    used, waiting = set[str](), [loads[0]]
    while waiting:
        expression = waiting.pop()
        if any(map(_joins_places, ast.walk(expression))):
            return False
        names = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)} - used
        used |= names
        waiting += [value for name in names for value in made.get(name, [])]
    return parts <= used


def _joins_places(node: ast.AST) -> bool:
    """Whether what a node computes may be equal for unequal places: a quotient, a minimum."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div)
    if isinstance(node, ast.Call):
        called = ast.unparse(node)
        plain = ("tl.program_id(", "tl.num_programs(", "tl.arange(", "range(")
        return not called.startswith(plain)
    return False
