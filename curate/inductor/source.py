"""Take Inductor's output file apart: its Triton kernels, its ``call`` function, its comments.

Follows what ``torch/_inductor/codegen/wrapper.py`` and ``triton.py`` of torch 2.11 to 2.13 write;
tested with 2.11 and 2.13.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from curate.generator.text.container import CannotRewrite

_COMMENT = re.compile(
    r"^\s*# Topologically Sorted Source Nodes: \[(?P<nodes>.*?)\], Original ATen: \[(?P<aten>.*?)\]"
)


_PLACEHOLDER = re.compile(
    r"^#   %\w+ : Tensor \"\w+\[(?P<size>.*?)\]\[(?P<stride>.*?)\]\S*\" = "
    r"PlaceHolder\[target=(?P<name>\w+)\]"
)


@dataclass(frozen=True)
class Comment:
    """What Inductor says of the lines that follow.

    Attributes:
        nodes: names of the traced calls, as in ``linear, layer_norm``.
        aten: the ATen operators, without the ``aten.`` prefix.
    """

    nodes: tuple[str, ...] = ()
    aten: tuple[str, ...] = ()


@dataclass(frozen=True)
class InductorKernel:
    """One Triton kernel as Inductor wrote it.

    Attributes:
        function: its syntax tree.
        helpers: the ``@triton.jit`` functions alongside it, such as a scan's combine function.
        grid: name of Inductor's grid class.
        signature: parameter name to Triton type, such as ``*fp32``, ``i32``, ``constexpr``.
        comment: what it computes.
        line: where it stands in Inductor's file.
    """

    name: str
    function: ast.FunctionDef
    helpers: tuple[ast.FunctionDef, ...]
    grid: str
    signature: dict[str, str]
    comment: Comment
    line: int


@dataclass
class InductorSource:
    """Inductor's file in parts.

    Attributes:
        kernels: by Inductor's name, in order.
        call: the function that allocates, launches and returns.
        comments: line of the file to the comment that stands there.
        layouts: sizes and strides of the tensors that kernels read, by name, as text.
    """

    kernels: dict[str, InductorKernel] = field(default_factory=dict)
    call: ast.FunctionDef | None = None
    comments: dict[int, Comment] = field(default_factory=dict)
    layouts: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)

    def comment_above(self, line: int, after: int) -> Comment:
        """Return the nearest comment between the lines ``after`` and ``line``."""
        for number in range(line - 1, after, -1):
            if number in self.comments:
                return self.comments[number]
        return Comment()


def split(code: str) -> InductorSource:
    """Return the parts of Inductor's file ``code``.

    Raises:
        CannotRewrite: there is no ``call`` function, or a kernel is not one Triton function.
    """
    source = InductorSource(comments=_comments(code), layouts=_layouts(code))
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise CannotRewrite(f"syntax error: {error.msg}", error.lineno) from error
    end = 0
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = ast.unparse(node.value.func)
            if function.startswith("async_compile."):
                if function != "async_compile.triton":
                    raise CannotRewrite(function, node.lineno)
                kernel = _kernel(node.value, source.comment_above(node.lineno, end))
                source.kernels[kernel.name] = kernel
        if isinstance(node, ast.FunctionDef) and node.name.startswith("partition_"):
            raise CannotRewrite("graph partition", node.lineno)
        end = node.end_lineno or end
    for found in ast.walk(tree):
        if isinstance(found, ast.FunctionDef) and found.name == "call":
            source.call = found
    if source.call is None:
        raise CannotRewrite("no call function")
    return source


def _comments(code: str) -> dict[int, Comment]:
    found = {}
    for number, line in enumerate(code.splitlines(), 1):
        match = _COMMENT.match(line)
        if match:
            nodes = tuple(name.strip() for name in match["nodes"].split(",") if name.strip())
            aten = tuple(name.strip() for name in match["aten"].split(",") if name.strip())
            found[number] = Comment(nodes, tuple(name.split(".", 1)[-1] for name in aten))
    return found


def _layouts(code: str) -> dict[str, tuple[list[str], list[str]]]:
    found = {}
    for match in filter(None, map(_PLACEHOLDER.match, code.splitlines())):
        size, stride = (
            [item.strip() for item in match[part].split(",") if item.strip()]
            for part in ("size", "stride")
        )
        found[match["name"]] = size, stride
    return found


def _kernel(call: ast.Call, comment: Comment) -> InductorKernel:
    """Read ``async_compile.triton(name, source, …)``."""
    name, text = (ast.literal_eval(argument) for argument in call.args[:2])
    functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    mine = [function for function in functions if function.name == name]
    if not mine:
        raise CannotRewrite(f"kernel {name} is not in its own source", call.lineno)
    options = decorator_options(mine[0])
    signature = options.get("triton_meta", {}).get("signature")
    grid = options.get("inductor_meta", {}).get("grid_type")
    if not isinstance(signature, dict) or not isinstance(grid, str):
        raise CannotRewrite(f"kernel {name} has no signature or grid", call.lineno)
    helpers = tuple(function for function in functions if function.name != name)
    return InductorKernel(name, mine[0], helpers, grid, signature, comment, call.lineno)


def decorator_options(function: ast.FunctionDef) -> dict[str, dict[str, Any]]:
    """Return the literal entries of the dictionaries given to Inductor's decorator."""
    options: dict[str, dict[str, Any]] = {}
    for decorator in function.decorator_list:
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        for keyword in keywords:
            if keyword.arg and isinstance(keyword.value, ast.Dict):
                options[keyword.arg] = _literals(keyword.value)
    return options


def _literals(node: ast.Dict) -> dict[str, Any]:
    entries = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant):
            try:
                entries[str(key.value)] = ast.literal_eval(value)
            except ValueError:  # objects such as DeviceProperties(…), which nothing here needs
                continue
    return entries
