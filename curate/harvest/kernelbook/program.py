"""Bring a program of KernelBook into the form that `standalone` reads: today's Inductor file.

KernelBook holds what PyTorch 2.5 compiled (column ``original_triton_code``) and the program made of
it (``triton_code``): the kernels, ``call``, and a class whose ``forward`` passes parameters and
inputs to ``call``. The program is what is rewritten, since it is what people train on; the
compiler's file only says of which types the kernels' arguments are and which operators they came
from. Nothing is run. What changed in PyTorch since is undone by name, and every change is listed.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass, field
from typing import Any

from curate.generator.text.container import CannotRewrite
from curate.inductor.source import decorator_options
from curate.inductor.standalone import unbound_names
from curate.syntax import names_in

MADE_WITH = {"torch": "2.5.0", "triton": "3.1.0"}
"""What KernelBook was compiled with, by its card; torch 2.5.0 requires this triton."""

_COMMENT = re.compile(r"^\s*(# Topologically Sorted Source Nodes: .*)$")
_TARGET = re.compile(r"call_function\[target=torch\.ops\.(aten\.\w+\.\w+)\]")
_GRIDS = {1: "Grid1D", 2: "Grid2D", 3: "Grid3D"}
# PyTorch 2.5 gives the reduction axis no number.
_AXIS = {
    "rnumel": "r0_numel",
    "RBLOCK": "R0_BLOCK",
    "rindex": "r0_index",
    "roffset": "r0_offset",
    "rbase": "r0_base",
    "rmask": "r0_mask",
}
_RANDOM = re.compile(r"inductor_(?:lookup_)?seed|\btl\.rand")
# what may stand between a statement and the comment that it belongs to
_BETWEEN = re.compile(r"\s*(?:#|stream\d|get_raw_stream|buf\d+ = empty_strided)")


@dataclass
class Moved:
    """A program in today's form.

    Attributes:
        code: as Inductor would write the file today.
        spec: how the arguments and results of ``call`` map to the module's (see `inductor`).
        repairs: what was changed, in a fixed order.
        extern_calls: library calls in ``call``, sorted and distinct.
    """

    code: str
    spec: dict[str, Any]
    repairs: list[str]
    extern_calls: list[str]


@dataclass
class _Launch:
    """How ``call`` launches a kernel.

    Attributes:
        config: block sizes, ``num_warps`` and ``num_stages``.
        grid: Inductor's name of the grid.
    """

    config: dict[str, int]
    grid: str


@dataclass
class _Compiled:
    """What the compiler's file says.

    Attributes:
        signatures: kernel to parameter to Triton type.
        kernel_comments: kernel to the comment above it.
        call_comments: comments above the computing statements of ``call``, in order; None where
            there is none.
        operators: of the graph, sorted.
    """

    signatures: dict[str, dict[str, str]] = field(default_factory=dict)
    kernel_comments: dict[str, str] = field(default_factory=dict)
    call_comments: list[str | None] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)


def move(program: str, compiled: str, class_name: str) -> Moved:
    """Return a program of KernelBook in today's form.

    Args:
        program: column ``triton_code``.
        compiled: column ``original_triton_code``.
        class_name: of the class in ``program``, such as ``SumAggregatorNew``.

    Raises:
        CannotRewrite: the program has a form that is not known; the message names it.
        SyntaxError: one of the two files is no Python.
    """
    try:
        return _move(program, compiled, class_name)
    except ValueError as error:  # from `ast.literal_eval`
        raise CannotRewrite(re.sub(r": <.*", "", str(error))) from error


def _move(program: str, compiled: str, class_name: str) -> Moved:
    tree = ast.parse(program)
    for name in unbound_names(tree):
        raise CannotRewrite(f"unbound name {name.id}", name.lineno)
    if found := _RANDOM.search(program):
        raise CannotRewrite(f"random numbers ({found[0]})")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    call = functions.get("call")
    if call is None:
        raise CannotRewrite("no call function")
    facts = _read_compiled(compiled)
    mover = _Mover(functions, facts)
    inputs, kept, tree_out = _wiring(tree, call, class_name)
    call_text = mover.call(call, kept)
    kernels = [mover.kernel(name) for name in mover.launches]
    repairs = [*mover.repairs, *(["saved_outputs"] if mover.dropped_outputs else [])]
    spec = {
        "inputs": inputs,
        "scalars": [],
        "outputs": [{"kind": "user", "target": i} for i in range(len(kept))],
        "out_tree": tree_out,
        "constants": {},
        "kernels": {name: _config(launch) for name, launch in mover.launches.items()},
        "dynamic": False,
        "sizes": {},
        "guards": [],
        "ops": facts.operators,
        "static_because": None,
        **MADE_WITH,
    }
    return Moved("\n\n".join([*kernels, call_text]) + "\n", spec, repairs, sorted(mover.externs))


def _config(launch: _Launch) -> dict[str, Any]:
    blocks = {_AXIS.get(k, k): v for k, v in launch.config.items() if k.endswith("BLOCK")}
    return {"kwargs": blocks, **{k: launch.config.get(k) for k in ("num_warps", "num_stages")}}


# --- the compiler's file -------------------------------------------------------------------------


def _read_compiled(code: str) -> _Compiled:
    tree, lines = ast.parse(code), code.splitlines()
    facts = _Compiled(operators=sorted(set(_TARGET.findall(code))))
    for node in tree.body:
        match node:
            case ast.Assign(value=ast.Call(func=ast.Attribute(attr="triton"), args=arguments)):
                name, source = (ast.literal_eval(argument) for argument in arguments[:2])
                facts.signatures[name] = _signature(name, source)
                if comment := _comment_above(lines, node.lineno):
                    facts.kernel_comments[name] = comment
            case ast.FunctionDef(name="call"):
                facts.call_comments = [
                    _comment_above(lines, statement.lineno)
                    for statement in _flat(node.body)
                    if _computes(statement)
                ]
    return facts


def _signature(name: str, source: str) -> dict[str, str]:
    """Return parameter to type of a kernel; PyTorch 2.5 gives types by position."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            types = decorator_options(node).get("triton_meta", {}).get("signature")
            if isinstance(types, dict):
                names: dict[Any, str] = dict(enumerate(a.arg for a in node.args.args))
                return {names.get(key) or str(key): value for key, value in types.items()}
    raise CannotRewrite(f"original_triton_code has no signature of {name}")


def _comment_above(lines: list[str], line: int) -> str | None:
    """Return the comment on source nodes that belongs to the statement on a line."""
    for text in reversed(lines[: line - 1]):
        if found := _COMMENT.match(text):
            return found[1]
        if not _BETWEEN.match(text):
            return None
    return None


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    flat: list[ast.stmt] = []
    for node in body:
        flat += _flat(node.body) if isinstance(node, ast.With) else [node]
    return flat


def _computes(node: ast.stmt) -> bool:
    """Whether a statement of ``call`` launches a kernel or calls a library."""
    value = getattr(node, "value", None)
    if not isinstance(node, ast.Expr | ast.Assign) or not isinstance(value, ast.Call):
        return False
    function = ast.unparse(value.func)
    return (
        function.endswith(".run") or isinstance(value.func, ast.Subscript) or _is_extern(function)
    )


def _is_stream(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "get_raw_stream"


def _is_extern(function: str) -> bool:
    return function.startswith(("extern_kernels.", "torch.ops.", "aten."))


# --- the program ---------------------------------------------------------------------------------


def _wiring(
    tree: ast.Module, call: ast.FunctionDef, class_name: str
) -> tuple[list[dict[str, Any]], list[int], Any]:
    """Return what is passed to ``call``, which of its results are used, and their form."""
    forward = _forward(tree, class_name)
    given = [argument.arg for argument in forward.args.args][1:]
    values: dict[str, ast.expr] = {}
    passed: list[ast.expr] | None = None
    result: ast.expr | None = None
    for node in forward.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="output")],
                value=ast.Call(func=ast.Name(id="call"), args=[ast.List(elts=elements)]),
            ):
                passed = elements
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = value
            case ast.Return(value=value):
                result = value
            case _:
                raise CannotRewrite(ast.unparse(node), node.lineno)
    if passed is None or result is None:
        raise CannotRewrite(f"{class_name}.forward does not call the kernels", forward.lineno)
    names = _parameters_of(call)
    if len(names) != len(passed):
        raise CannotRewrite(f"forward passes {len(passed)} tensors, call takes {len(names)}")
    inputs = [
        {"name": name, **_target(element, values, given)}
        for name, element in zip(names, passed, strict=True)
    ]
    return inputs, *_results(result)


def _forward(tree: ast.Module, class_name: str) -> ast.FunctionDef:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return item
    raise CannotRewrite(f"no {class_name}.forward")


def _parameters_of(call: ast.FunctionDef) -> list[str]:
    for node in call.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                return [ast.unparse(name) for name in names]
    raise CannotRewrite("call does not unpack its arguments", call.lineno)


def _target(element: ast.expr, values: dict[str, ast.expr], given: list[str]) -> dict[str, Any]:
    """Return where a tensor passed to ``call`` comes from: an input, or a path from ``self``."""
    if isinstance(element, ast.Name) and element.id in values:
        element = values[element.id]
    if isinstance(element, ast.Name) and element.id in given:
        return {"kind": "input", "target": given.index(element.id)}
    path = ast.unparse(element)
    if re.fullmatch(r"self((\.\w+)|(\[\d+\]))+", path):
        return {"kind": "parameter", "target": re.sub(r"\[(\d+)\]", r".\1", path)[5:]}
    raise CannotRewrite(path, element.lineno)


def _results(result: ast.expr) -> tuple[list[int], Any]:
    """Return the positions of ``call``'s results that ``forward`` returns, and their form."""
    elements = result.elts if isinstance(result, ast.Tuple) else [result]
    kept = []
    for element in elements:
        match element:
            case ast.Subscript(value=ast.Name(id="output"), slice=ast.Constant(value=int(index))):
                kept.append(index)
            case _:
                raise CannotRewrite(ast.unparse(element), element.lineno)
    return kept, {"tuple": [*range(len(kept))]} if isinstance(result, ast.Tuple) else 0


class _Mover:
    """Writes ``call`` and its kernels in today's form, and notes what it changed."""

    def __init__(self, functions: dict[str, ast.FunctionDef], facts: _Compiled) -> None:
        self.functions = functions
        self.facts = facts
        self.launches: dict[str, _Launch] = {}
        self.externs: set[str] = set()
        self.repairs: list[str] = []
        self.dropped_outputs = False

    def _repaired(self, what: str) -> None:
        if what not in self.repairs:
            self.repairs.append(what)

    def call(self, call: ast.FunctionDef, kept: list[int]) -> str:
        """Return ``call``, which returns only the results at the positions ``kept``."""
        statements = _flat(call.body)
        computing = sum(map(_computes, statements))
        comments = iter(self.facts.call_comments)
        known = computing == len(self.facts.call_comments)
        lines = ["def call(args):"]
        for node in statements:
            if known and _computes(node) and (comment := next(comments)):
                lines.append(f"    {comment}")
            lines += [f"    {line}" for line in self._statement(node, kept).splitlines()]
        return "\n".join(lines)

    def _statement(self, node: ast.stmt, kept: list[int]) -> str:
        match node:
            case ast.Expr(value=value) | ast.Assign(value=value) if _is_stream(value):
                return ""
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as launch) if (
                name in self.functions
            ):
                raise CannotRewrite(f"a launch without a grid: {ast.unparse(launch)}", node.lineno)
            case ast.Expr(value=ast.Call(func=ast.Subscript() as target) as launch):
                return self._launch(target, launch)
            case ast.Return(value=ast.Tuple(elts=results)):
                if max(kept) >= len(results):
                    raise CannotRewrite(f"call returns {len(results)} tensors", node.lineno)
                self.dropped_outputs = len(kept) < len(results)
                return f"return ({', '.join(ast.unparse(results[i]) for i in kept)},)"
        if _computes(node):
            self.externs.add(ast.unparse(node.value.func))  # type: ignore[attr-defined]
        return ast.unparse(node)

    def _launch(self, target: ast.Subscript, launch: ast.Call) -> str:
        """Turn ``kernel[grid(64)](x, y, 64, XBLOCK=64, num_warps=1)`` into ``kernel.run(…)``."""
        name = ast.unparse(target.value)
        grid = target.slice
        if not (isinstance(grid, ast.Call) and ast.unparse(grid.func) == "grid"):
            raise CannotRewrite(ast.unparse(target), target.lineno)
        kernel = self.functions.get(name)
        if kernel is None or len(grid.args) not in _GRIDS:
            raise CannotRewrite(ast.unparse(target), target.lineno)
        self._check_grid(kernel, grid, launch)
        config = {k.arg: ast.literal_eval(k.value) for k in launch.keywords if k.arg}
        known = self.launches.setdefault(name, _Launch(config, _GRIDS[len(grid.args)]))
        if (known.config, known.grid) != (config, _GRIDS[len(grid.args)]):
            raise CannotRewrite(f"{name} is launched in two ways", target.lineno)
        self._repaired("grid")  # PyTorch 2.9 has no `triton_heuristics.grid`
        arguments = ", ".join(map(ast.unparse, launch.args))
        return f"{name}.run({arguments}, stream=raw_stream0)"

    def _check_grid(self, kernel: ast.FunctionDef, grid: ast.Call, launch: ast.Call) -> None:
        """A grid must cover the sizes given to the kernel: today it is made from those."""
        parameters = [argument.arg for argument in kernel.args.args]
        given = dict(zip(parameters, map(ast.unparse, launch.args), strict=False))
        sizes = [given[n] for n in ("znumel", "ynumel", "xnumel") if n in given]
        asked = [ast.unparse(argument) for argument in grid.args]
        if sizes[-len(asked) :] != asked:
            raise CannotRewrite(
                f"grid({', '.join(asked)}) for sizes ({', '.join(sizes)})", grid.lineno
            )

    def kernel(self, name: str) -> str:
        """Return ``name = async_compile.triton(…)`` for a kernel of the program."""
        function = self.functions[name]
        parameters = [argument.arg for argument in function.args.args]
        types = self.facts.signatures.get(name)
        if types is None:
            raise CannotRewrite(f"kernel {name} is not in original_triton_code", function.lineno)
        plain = [p for p in parameters if not p.endswith("BLOCK")]
        if [p for p in types if not p.endswith("BLOCK")] != plain:
            raise CannotRewrite(f"original_triton_code has other parameters of {name}")
        signature = {_AXIS.get(p, p): types.get(p, "constexpr") for p in parameters}
        called = set(names_in(function))
        helpers = [f for key, f in self.functions.items() if key in called and key != name]
        meta = {"signature": signature}
        options = f"triton_meta={meta}, inductor_meta={{'grid_type': {self.launches[name].grid!r}}}"
        body = [_function(helper, "@triton.jit") for helper in helpers]
        body.append(_function(function, f"@triton_heuristics.kernel({options})\n@triton.jit"))
        if "rnumel" in parameters:
            self._repaired("reduction_axis")
        source = "\n\n".join(body).replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
        comment = self.facts.kernel_comments.get(name)
        head = f"{comment}\n" if comment else ""
        return f"{head}{name} = async_compile.triton({name!r}, '''\n{source}\n''')"


def _function(node: ast.FunctionDef, decorators: str) -> str:
    """Return a function's text under today's names of the reduction axis."""
    plain = copy.copy(node)
    plain.decorator_list = []
    text = re.sub(r"\b\w+\b", lambda word: _AXIS.get(word[0], word[0]), ast.unparse(plain))
    return f"{decorators}\n" + re.sub(r"\br(\d+)\b", r"r0_\1", text)
