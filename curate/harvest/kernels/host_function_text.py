"""What a wrapper's text shows about its parameters: which are tensors, of what rank and type.

A value is followed from the wrapper into the functions, kernels and ``autograd.Function`` classes
of the same file that it is passed to, by name alone: what is computed from it is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from curate.syntax import arguments, literal, names_in, words

MAX_DEPTH = 4
"""Calls into other functions of the file that are followed."""

_TENSOR_ATTRIBUTES = words(
    "shape stride size dim ndim numel dtype device is_cuda is_contiguous contiguous view "
    "reshape to new_empty new_zeros element_size data_ptr requires_grad transpose permute "
    "flatten unsqueeze squeeze sum float half t T untyped_storage storage_offset "
    "is_floating_point copy_ zero_ fill_ detach clone expand get_device mT nelement tolist item "
    "max min"
)


@dataclass
class Known:
    """What is known of one parameter.

    Attributes:
        tensor: whether it is used as a tensor.
        called: whether it is called.
        rank: its number of dimensions, where it is unpacked or asserted.
        least_rank: the least that its subscripts need.
        dims: position to the name that the wrapper gives to this size.
        kind: the type that the kernel's signature gives to the argument: ``*fp16``, ``i32`` …
    """

    tensor: bool = False
    called: bool = False
    rank: int | None = None
    least_rank: int = 0
    dims: dict[int, str] = field(default_factory=dict)
    kind: str | None = None

    def learn(self, other: Known) -> None:
        """Take over what ``other`` knows and this does not."""
        self.tensor |= other.tensor
        self.called |= other.called
        self.rank = self.rank if self.rank is not None else other.rank
        self.least_rank = max(self.least_rank, other.least_rank)
        self.dims = {**other.dims, **self.dims}
        self.kind = self.kind or other.kind


class HostFunctionReading:
    """A wrapper's file, read.

    Attributes:
        functions: its functions and the ``forward`` methods of its classes, by name.
    """

    def __init__(self, text: str, types: dict[str, str]) -> None:
        """Read a file.

        Args:
            text: the file.
            types: the kernel's parameters to their types, as Triton writes them.
        """
        self.tree = ast.parse(text)
        self.types = types
        self.functions: dict[str, ast.FunctionDef] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and item.name == "forward":
                        self.functions[f"{node.name}.apply"] = item

    def launchers(self) -> list[str]:
        """Return the functions of the file that are no kernels, in order."""
        return [
            node.name
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef) and not _is_kernel(node)
        ]

    def parameters(self, function: str, depth: int = 0) -> dict[str, Known]:
        """Return what is known of a function's parameters."""
        node = self.functions[function]
        known = {argument.arg: Known() for argument in arguments(node)}
        if _is_kernel(node):
            pointers, constants = _pointers(node), _constants(node)
            for name, found in known.items():
                found.kind = self.types.get(name, "constexpr" if name in constants else None)
                found.tensor = (found.kind or "").startswith("*") or name in pointers
            return known
        for child in ast.walk(node):
            _read(child, known)
            if isinstance(child, ast.Call) and depth < MAX_DEPTH:
                for name, passed in self._passed(child, depth):
                    if name in known:
                        known[name].learn(passed)
        return known

    def _passed(self, call: ast.Call, depth: int) -> Iterator[tuple[str, Known]]:
        """Yield the names that a call passes on, and what its function knows of them."""
        target = call.func
        launched = isinstance(target, ast.Subscript)
        name = ast.unparse(target.value if isinstance(target, ast.Subscript) else target)
        if name not in self.functions or launched != _is_kernel(self.functions[name]):
            return
        inner = self.parameters(name, depth + 1)
        positions = list(inner)[name.endswith(".apply") :]  # without ctx
        given = [*zip(positions, call.args, strict=False)]
        given += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg]
        for parameter, value in given:
            if isinstance(value, ast.Name) and parameter in inner:
                yield value.id, inner[parameter]

    def literals(self, function: str) -> dict[str, list[str]]:
        """Return the strings that a function compares with its parameters."""
        found: dict[str, list[str]] = {}
        for node in ast.walk(self.functions[function]):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
                for item in ast.walk(node.comparators[0]):
                    if isinstance(item, ast.Constant) and isinstance(item.value, str):
                        found.setdefault(node.left.id, []).append(item.value)
        return found

    def concerned(self, function: str, line: int) -> tuple[set[str], str]:
        """Return the parameters on which a function's statement at a line depends, and its text."""
        node = self.functions[function]
        statement = _statement_at(node.body, line)
        if statement is None:
            return set(), ""
        parameters = {argument.arg for argument in arguments(node)}
        sources = _sources(node)
        found, open_names = set(), set(names_in(statement))
        while open_names:
            name = open_names.pop()
            if name not in found:
                found.add(name)
                open_names |= sources.get(name, set())
        return found & parameters, ast.unparse(statement)


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)


_ATOMIC = ("add", "max", "min", "and", "or", "xor", "xchg", "cas")

_MEMORY = frozenset(
    (
        *("tl.load", "tl.store", "tl.make_block_ptr", "tl.make_tensor_descriptor"),
        *(f"tl.atomic_{name}" for name in _ATOMIC),
    )
)


def _pointers(kernel: ast.FunctionDef) -> set[str]:
    """Return the names to which a kernel adds offsets before it reads or writes there."""
    base: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            start = _start(node.value)
            if start and start != node.targets[0].id:
                base.setdefault(node.targets[0].id, start)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _MEMORY:
            first = node.args[0] if node.args else next((k.value for k in node.keywords), None)
            if first is not None and (start := _start(first)):
                found.add(start)
    for name in list(found):
        while name in base and base[name] not in found:
            name = base[name]
            found.add(name)
    return found


def _constants(kernel: ast.FunctionDef) -> set[str]:
    """Return the parameters that are declared as constants."""
    return {
        argument.arg
        for argument in arguments(kernel)
        if argument.annotation and "constexpr" in ast.unparse(argument.annotation)
    }


def _start(node: ast.expr) -> str | None:
    """Return the name at the left of a sum."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.left
    return node.id if isinstance(node, ast.Name) else None


def _read(node: ast.AST, known: dict[str, Known]) -> None:
    """Note what one piece of syntax shows."""
    if isinstance(node, ast.Attribute) and (found := _parameter(node.value, known)):
        found.tensor |= node.attr in _TENSOR_ATTRIBUTES
    elif isinstance(node, ast.Call):
        if found := _parameter(node.func, known):
            found.called = True
        if ast.unparse(node.func).startswith("torch.") and node.args:
            first = _parameter(node.args[0], known)
            if first and ast.unparse(node.func).endswith("_like"):
                first.tensor = True
        _read_index(node, known)
    elif isinstance(node, ast.Subscript):
        _read_index(node, known)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        _read_sizes(node.targets[0], node.value, known)
    elif isinstance(node, ast.Compare):
        _read_rank(node, known)


def _parameter(node: ast.AST, known: dict[str, Known]) -> Known | None:
    return known.get(node.id) if isinstance(node, ast.Name) else None


def _size_of(node: ast.AST, known: dict[str, Known]) -> tuple[Known, int] | None:
    """Return the parameter and the position of ``x.shape[i]``, ``x.size(i)``, ``x.stride(i)``."""
    if isinstance(node, ast.Subscript):
        owner, index = node.value, node.slice
        attributes: tuple[str, ...] = ("shape",)
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        owner, index = node.func, node.args[0]
        attributes = ("size", "stride")
    else:
        return None
    if not isinstance(owner, ast.Attribute) or owner.attr not in attributes:
        return None
    position = literal(index)
    found = _parameter(owner.value, known)
    return (found, position) if found and isinstance(position, int) else None


def _read_index(node: ast.AST, known: dict[str, Known]) -> None:
    if size := _size_of(node, known):
        found, position = size
        needed = position + 1 if position >= 0 else -position
        found.least_rank = max(found.least_rank, needed)


def _read_sizes(target: ast.expr, value: ast.expr, known: dict[str, Known]) -> None:
    """Note the names of sizes: ``M, N = x.shape``, ``B, T, V = *q.shape, v.shape[-1]``."""
    if isinstance(target, ast.Name):
        if size := _size_of(value, known):
            size[0].dims.setdefault(size[1], target.id)
        return
    if not isinstance(target, ast.Tuple | ast.List):
        return
    targets = [item.id if isinstance(item, ast.Name) else None for item in target.elts]
    values = list(value.elts) if isinstance(value, ast.Tuple) else [value]
    if len(values) == len(targets) > 1:
        for one, item in zip(target.elts, values, strict=True):
            _read_sizes(one, item, known)
        return
    for position, item in enumerate(values):
        whole = item.value if isinstance(item, ast.Starred) else item
        if len(values) > 1 and not isinstance(item, ast.Starred):
            continue
        found = _shape_owner(whole, known)
        if found is None:
            continue
        after = len(values) - position - 1
        own = targets[position : len(targets) - after]
        if any(isinstance(one, ast.Starred) for one in target.elts):
            found.least_rank = max(found.least_rank, len(own) - 1)
            continue
        found.rank = found.rank if found.rank is not None else len(own)
        for index, name in enumerate(own):
            if name and name != "_":
                found.dims.setdefault(index, name)


def _shape_owner(node: ast.AST, known: dict[str, Known]) -> Known | None:
    """Return the parameter of ``x.shape`` or ``x.size()``."""
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "size"):
        return _parameter(node.value, known)
    return None


def _read_rank(node: ast.Compare, known: dict[str, Known]) -> None:
    """Note ``x.ndim == 3``, ``x.dim() == 3`` and ``len(x.shape) == 3``."""
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.In):
        return
    left, right = node.left, node.comparators[0]
    value = literal(right)
    rank = value[0] if isinstance(value, tuple | list) and value else value
    if isinstance(left, ast.Call) and ast.unparse(left.func) == "len" and left.args:
        left = left.args[0]
        wanted: tuple[str, ...] = ("shape",)
    else:
        left = left.func if isinstance(left, ast.Call) else left
        wanted = ("ndim", "dim")
    if isinstance(left, ast.Attribute) and left.attr in wanted and isinstance(rank, int):
        found = _parameter(left.value, known)
        if found and found.rank is None:
            found.rank = rank


def _statement_at(body: list[ast.stmt], line: int) -> ast.stmt | None:
    """Return the innermost statement at a line; of a compound one, its head."""
    for statement in body:
        if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            continue
        for part in ("body", "orelse", "finalbody"):
            if inner := _statement_at(getattr(statement, part, []), line):
                return inner
        return statement
    return None


def _sources(node: ast.FunctionDef) -> dict[str, set[str]]:
    """Return the names from which each local variable is computed."""
    sources: dict[str, set[str]] = {}
    for item in ast.walk(node):
        if isinstance(item, ast.Assign):
            for name in names_in(*item.targets):
                sources.setdefault(name, set()).update(names_in(item.value))
    return sources
