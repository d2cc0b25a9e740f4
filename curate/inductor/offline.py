"""Inductor without a GPU: the Triton code that ``torch.compile`` would write for a named device.

Inductor looks at a handful of device properties and never at the device itself until it runs a
kernel. `target_gpu` answers those questions for a device that is not there; `generate` exports one
module with fake tensors, lets Inductor write its code for that device and stops before anything
is compiled. Follows ``torch._inductor.compile_fx``, which is private; tested with torch 2.11 and
triton 3.6, 2.13 and 3.7, and 2.15 and 3.9. The pages to compare are
https://docs.pytorch.org/docs/stable/export.html and ``compile_fx.py`` itself.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import math
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

import sympy  # type: ignore[import-untyped]
import torch
import torch._inductor.compile_fx as compile_fx
import torch.utils._pytree as pytree
import torch.utils._triton
import triton
from torch._dynamo.exc import SkipFrame
from torch._guards import TracingContext, tracing
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import Dim, ExportedProgram
from torch.export.exported_program import _decompose_exported_program
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel

from curate.generator.absent_gpu import CUDA, target_gpu
from curate.inductor.products import template, tiles
from curate.verify import problem
from curate.verify.reference.draw import Variation, changed_arguments, reshaped

_SMALL_CONSTANT = 1024
"""Elements up to which a constant's values are written into the spec."""

# Plain, self-contained code: no caches, no assertions, no wrapper tricks, one launch per kernel.
_CONFIG: dict[str, Any] = {
    "compile_threads": 1,
    "force_disable_caches": True,
    "assume_aligned_inputs": True,
    # torch 2.15 names the sizes of inputs only where it asserts them.
    "size_asserts": torch.__version__ >= (2, 14),
    "alignment_asserts": False,
    "scalar_asserts": False,
    "assert_indirect_indexing": False,
    "comprehensive_padding": False,
    "shape_padding": False,
    "layout_optimization": False,
    "allow_buffer_reuse": False,
    # What a library call returned is not written over: autograd would not know.
    "inplace_buffers": False,
    "benchmark_harness": False,
    "graph_partition": False,
    "triton.cudagraphs": False,
    "triton.autotune_at_compile_time": False,
    "triton.cooperative_reductions": False,
    "triton.mix_order_reduction": False,
}


class ExportFailed(Exception):
    """The module cannot be built or exported; the cause is the last error met."""


class UnsupportedModule(Exception):
    """The module exports, but its inputs or outputs have a form that a spec cannot say."""


@dataclass(frozen=True)
class InductorOutput:
    """What Inductor wrote.

    Attributes:
        code: the Python file, Triton kernels and the ``call`` function that launches them.
        spec: how ``call``'s arguments and results map to the module's; JSON values.
        extern_calls: library calls in ``call``, sorted and distinct.
    """

    code: str
    spec: dict[str, Any]
    extern_calls: tuple[str, ...]


# --- from a reference to a graph -----------------------------------------------------------------


@dataclass(frozen=True)
class Exported:
    """A module's graph.

    Attributes:
        program: what ``torch.export`` returned, in the operators that Inductor lowers.
        operators: sorted names of the distinct ATen operators before that.
        model: the module in eval mode; its tensors may be fake.
        inputs: what it was exported on.
        paths: for each flat input, the way to it through ``forward``'s positional arguments.
        static_because: why some sizes are constants although all were to be variable, or None.
        fake: whether its tensors have no memory.
        dims: how many sizes of each input are variable.
    """

    program: ExportedProgram
    operators: list[str]
    model: torch.nn.Module
    inputs: tuple[Any, ...]
    paths: tuple[list[int | str], ...]
    static_because: str | None
    fake: bool
    dims: int


@dataclass(frozen=True)
class Usage:
    """How a task's module is built and called, if not as its file does it.

    Attributes:
        changes: other arguments and sizes.
        dtype: what floating tensors become, or None.
    """

    changes: tuple[Variation, ...] = ()
    dtype: torch.dtype | None = None

    def build(self, task: ModuleType) -> torch.nn.Module:
        """Return the task's module in eval mode."""
        given = list(task.get_init_inputs())
        arguments = changed_arguments(task.Model.__init__, given, self.changes, "argument")
        model: torch.nn.Module = task.Model(*arguments).eval()
        if self.dtype is not None:
            _convert(model, self.dtype)
        return model

    def inputs(self, task: ModuleType) -> tuple[Any, ...]:
        """Return the arguments of ``forward``."""
        inputs = reshaped(list(task.get_inputs()), self.changes)
        inputs = changed_arguments(task.Model.forward, inputs, self.changes, "input")

        def convert(leaf: Any) -> Any:
            floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
            return leaf.to(self.dtype) if floating and self.dtype is not None else leaf

        return tuple(pytree.tree_map(convert, inputs))


AS_IN_FILE = Usage()


def _convert(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert floating parameters and buffers; ``Module.to`` cannot where they are fake."""
    new: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is None or not tensor.is_floating_point():
                    continue
                if id(tensor) not in new:
                    new[id(tensor)] = tensor.detach().to(dtype)
                    if held is module._parameters:
                        new[id(tensor)] = torch.nn.Parameter(new[id(tensor)])
                held[name] = new[id(tensor)]


def export(task: ModuleType, dynamic: bool, usage: Usage = AS_IN_FILE) -> Exported:
    """Export ``task.Model`` on ``task.get_inputs()``, in eval mode and without gradients.

    Fake tensors come first: they cost no memory, whatever the sizes. A module that reads values
    while it is built (``.item()``) or holds constants is built with real ones. With ``dynamic``,
    every size of an input is a variable if that can be exported and stays simple, else the first
    of each input, else none.

    Raises:
        ExportFailed: nothing worked; the message is the error of the last attempt.
    """
    error: Exception | None = None
    for fake in (True, False):
        try:
            with tensors(fake):
                model = usage.build(task)
        except Exception as caught:  # the user's code: it may raise anything
            error = caught
            continue
        static_because = None
        for dims in (sys.maxsize, 1, 0) if dynamic else (0,):
            try:
                with tensors(fake):  # anew each time: export marks the sizes of its inputs
                    inputs = usage.inputs(task)
                program = _export_once(model, inputs, dims)
                if _size_operations(program) > _MOST_SIZE_OPERATIONS:
                    static_because = "sizes of intermediate results are long expressions"
                    continue
                if fake and any(isinstance(v, FakeTensor) for v in program.constants.values()):
                    break  # their values are needed
                decomposed = _decompose(program)
            except Exception as caught:
                error = caught
                static_because = static_because or first_line(caught)
                continue
            return _exported(program, decomposed, model, inputs, static_because, fake, dims)
    raise ExportFailed(first_line(error)) from error


def export_like(task: ModuleType, own: Exported, usage: Usage) -> Exported:
    """Export a task's module in another usage, just as ``own`` was.

    Raises:
        Exception: it cannot be built or exported so.
    """
    with tensors(own.fake):
        model, inputs = usage.build(task), usage.inputs(task)
    program = _export_once(model, inputs, own.dims)
    return _exported(
        program, _decompose(program), model, inputs, own.static_because, own.fake, own.dims
    )


def _exported(
    program: ExportedProgram,
    decomposed: ExportedProgram,
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    static_because: str | None,
    fake: bool,
    dims: int,
) -> Exported:
    paths = tuple(_steps(path) for path, _ in pytree.tree_flatten_with_path(inputs)[0])
    found = operators(program)
    return Exported(decomposed, found, model, inputs, paths, static_because, fake, dims)


@contextlib.contextmanager
def tensors(fake: bool) -> Iterator[None]:
    """Seed the generator, and make tensors that have no memory if ``fake``."""
    torch.manual_seed(0)
    with FakeTensorMode(allow_non_fake_inputs=True) if fake else contextlib.nullcontext():
        yield


def _export_once(model: torch.nn.Module, inputs: tuple[Any, ...], dims: int) -> ExportedProgram:
    """Export with the first ``dims`` sizes of each input variable."""

    def sizes(leaf: Any) -> dict[int, Any] | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        return dict.fromkeys(range(min(dims, leaf.dim())), Dim.AUTO)

    shapes = pytree.tree_map(sizes, inputs) if dims else None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)


def _decompose(program: ExportedProgram) -> ExportedProgram:
    """Break composite operators down as ``torch.compile`` does.

    The public ``run_decompositions`` first redefines some 500 composite operators, which takes
    longer than all the rest; with none redefined they decompose by themselves. Attention becomes
    matrix products and a softmax, which Inductor fuses; its other forms are library calls.
    """
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _decompose_exported_program(
            program,
            cia_to_decomp={},
            python_decomp_table=select_decomp_table(),
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )


_MOST_SIZE_OPERATIONS = 6
"""Above, Inductor's symbolic algebra takes many seconds and its index arithmetic hides the rest."""


def _size_operations(program: ExportedProgram) -> int:
    """Return the most arithmetic operations in any tensor's number of elements."""
    most = 0
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes = [s.node.expr for s in value.shape if isinstance(s, torch.SymInt)]
            most = max(most, sympy.count_ops(sympy.Mul(*sizes)))
    return most


def _steps(path: Sequence[Any]) -> list[int | str]:
    return [step.idx if isinstance(step, pytree.SequenceKey) else step.key for step in path]


def first_line(error: BaseException | None) -> str:
    """Return ``error``'s class and the first line of its message, without file paths."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0] if lines else ''}"
    return re.sub(r"(/[\w.+-]+){2,}", "<path>", text)[:300]


def operators(program: ExportedProgram) -> list[str]:
    """Return the sorted names of the distinct ATen operators in ``program``'s graph."""
    return sorted(
        {
            str(node.target)
            for node in program.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten"
        }
    )


# --- from a graph to Triton ----------------------------------------------------------------------


class _Written(BaseException):
    """Carries Inductor's code out of the compiler, past its handlers of errors."""

    def __init__(self, code: str) -> None:
        super().__init__("code written")
        self.code = code


def _stop_with_code(graph: GraphLowering) -> None:
    code, _ = graph.codegen()
    raise _Written(code.value)


def generate(
    exported: Exported, target: str, own_products: bool, any_size: bool = False
) -> InductorOutput:
    """Return the code that Inductor writes for ``exported`` on ``target``.

    The graph of ``exported`` is changed on the way: it serves once. With ``any_size`` the code's
    form follows less from the sizes at hand: short reductions are loops too, and every block has a
    mask.

    Raises:
        Unsupported: a spec cannot say what the module takes or returns.
        Exception: whatever Inductor raised.
    """
    options: dict[str, Any] = {"unroll_reductions_threshold": 1} if any_size else {}
    masks = _masks() if any_size else contextlib.nullcontext()
    with warnings.catch_warnings(), torch.no_grad(), config.patch({**_CONFIG, **options}), masks:
        warnings.simplefilter("ignore")
        program = exported.program
        _inline_scalars(program)
        _prune(program)
        _refuse_randomness(program)
        spec = _interface_spec(exported, program)
        if own_products:
            template.split_sums(program.graph_module.graph)
        by_template = template.by_template() if own_products else contextlib.nullcontext()
        with target_gpu(target), by_template:
            dense = {
                node.name
                for node in program.graph.find_nodes(op="placeholder")
                if node.meta["val"].is_contiguous()
            }
            code, shapes = _lower(program)
            for given, shape in zip(spec["inputs"], shapes, strict=True):
                given["shape"] = [str(size) for size in shape]
                given["dense"] = given["name"] in dense
            sources = _kernel_sources(code)
            spec["kernels"] = {name: _launch(name, text) for name, text in sources.items()}
    spec.update(_size_spec(spec["inputs"], program, shapes))
    spec.update(torch=torch.__version__, triton=triton.__version__)
    spec["ops"] = exported.operators
    spec["static_because"] = exported.static_because
    return InductorOutput(code, spec, _extern_calls(code))


def _masks() -> contextlib.AbstractContextManager[Any]:
    """Have every block masked whose axis may have more than one element."""
    fills = TritonKernel._has_constant_mask

    def is_single(kernel: TritonKernel, tree: Any) -> bool:
        single = V.graph.sizevars.statically_known_equals(tree.numel, 1)
        return bool(single and fills(kernel, tree))

    return mock.patch.object(TritonKernel, "_has_constant_mask", is_single)


def _inline_scalars(program: ExportedProgram) -> None:
    """Turn constants of one element into fills, which Inductor writes as literals."""
    graph = program.graph_module.graph
    names = program.graph_signature.inputs_to_lifted_tensor_constants
    for node in graph.find_nodes(op="placeholder"):
        value = program.constants.get(names.get(node.name))
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or value.is_complex():
            continue
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            fill = graph.call_function(
                torch.ops.aten.full.default,
                (list(value.shape), value.item()),
                {"dtype": value.dtype, "device": value.device, "pin_memory": False},
            )
        fill.meta.update(node.meta)
        node.replace_all_uses_with(fill)


def _prune(program: ExportedProgram) -> None:
    """Remove run-time checks of sizes and dtypes, and inputs that nothing reads."""
    graph = program.graph_module.graph
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node.target in _CHECKS:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    for node in graph.find_nodes(op="placeholder"):
        if not node.users:
            graph.erase_node(node)
    program.graph_module.recompile()


def _refuse_randomness(program: ExportedProgram) -> None:
    """Raise `UnsupportedModule` for a graph that draws numbers: no two programs draw the same."""
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise UnsupportedModule(f"random operator {node.target}")


_CHECKS = {
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten._assert_tensor_metadata.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}


def _lower(program: ExportedProgram) -> tuple[str, list[tuple[Any, ...]]]:
    """Return Inductor's code for the graph and the shapes of its inputs, symbols included."""
    module = program.graph_module
    _move_to_gpu(module.graph)
    placeholders = module.graph.find_nodes(op="placeholder")
    fakes = [node.meta["val"] for node in placeholders]
    mode = next((f.fake_mode for f in fakes if isinstance(f, FakeTensor)), FakeTensorMode())
    with mode:
        inputs = [
            torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype, device=CUDA)
            for fake in fakes
        ]
    output = module.graph.output_node()
    # As for a compiled module: results have the strides that eager would give them.
    output.meta["user_visible_output_idxs"] = [
        i for i, value in enumerate(output.args[0]) if isinstance(value, torch.fx.Node)
    ]
    stop = mock.patch.object(GraphLowering, "compile_to_module", _stop_with_code)
    with tracing(TracingContext(mode)), stop:
        try:
            compile_fx.compile_fx_inner(module, inputs, is_inference=True)
        except _Written as written:
            return tiles.plain(_without_paths(written.code)), [tuple(f.shape) for f in fakes]
        except InductorError as error:
            if isinstance(error.inner_exception, SkipFrame):  # bfloat16 on a device without it
                raise UnsupportedModule(str(error.inner_exception)) from error
            raise
    raise RuntimeError("Inductor wrote no code")


def _move_to_gpu(graph: torch.fx.Graph) -> None:
    """Point every operator that names a device to the GPU."""
    for node in graph.nodes:
        where = (node.args, node.kwargs)
        node.args, node.kwargs = pytree.tree_map_only(torch.device, lambda _: CUDA, where)


def _without_paths(code: str) -> str:
    """Return ``code`` without the comments that name files of this machine."""
    return re.sub(r"^# kernel path: .*\n", "", code, flags=re.MULTILINE)


def _kernel_sources(code: str) -> dict[str, str]:
    """Return the source of each Triton kernel in ``code`` by name."""
    return {
        ast.literal_eval(call.args[0]): ast.literal_eval(call.args[1])
        for call in ast.walk(ast.parse(code))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "async_compile.triton"
    }


FULL, MOST = 1024, 2048
"""Elements of a tile that keeps four warps busy, and of the largest that registers hold."""


def _launch(name: str, source: str) -> dict[str, Any]:
    """Return the launch configuration of a kernel: Inductor's, for sizes that fill a device.

    Inductor chooses for the sizes at hand, which are small here. A program may do more rows then,
    or more of a row at a time; what it does stays the same.
    """
    if tiles.is_product(source):
        return {"kwargs": {}, "num_warps": None, "num_stages": None}
    kernel = getattr(PyCodeCache.load(source), name)
    offered = [(dict(c.kwargs), c.num_warps) for c in kernel.configs]
    blocks, warps = offered[0]
    hints = kernel.size_hints
    if "@triton_heuristics.pointwise(" in source and list(blocks) == ["XBLOCK"]:
        blocks, warps = {"XBLOCK": max(FULL, blocks["XBLOCK"])}, max(4, warps)
    elif "@triton_heuristics.persistent_reduction(" in source and hints["x"] > 1:
        row = math.prod(1 << (n - 1).bit_length() for axis, n in hints.items() if axis[0] == "r")
        fitting = [b for b, _ in offered if b.keys() == {"XBLOCK"} and b["XBLOCK"] * row <= MOST]
        blocks = max(fitting, key=lambda b: b["XBLOCK"], default=blocks)
        warps = max(warps, min(8, blocks.get("XBLOCK", 1) * row // 256))
    elif blocks.keys() == {"XBLOCK", "R0_BLOCK"} and (tile := math.prod(blocks.values())) < FULL:
        blocks, warps = blocks | {"R0_BLOCK": blocks["R0_BLOCK"] * FULL // tile}, max(4, warps)
    stages = kernel.configs[0].num_stages
    return {"kwargs": blocks, "num_warps": warps, "num_stages": stages}


def _extern_calls(code: str) -> tuple[str, ...]:
    """Return the library functions that ``code`` calls, sorted and distinct."""
    names = {ast.unparse(c.func) for c in ast.walk(ast.parse(code)) if isinstance(c, ast.Call)}
    return tuple(sorted(n for n in names if n.startswith(("extern_kernels.", "torch.ops."))))


# --- the spec ------------------------------------------------------------------------------------


def _interface_spec(exported: Exported, program: ExportedProgram) -> dict[str, Any]:
    """Return how ``call``'s arguments and results map to the module's."""
    signature = program.graph_signature
    users = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    paths = {s.arg.name: path for s, path in zip(users, exported.paths, strict=True)}
    kept = {node.name for node in program.graph.find_nodes(op="placeholder")}
    inputs, constants = [], {}
    for given in signature.input_specs:
        name = given.arg.name
        if name not in kept:
            continue
        if given.kind not in _INPUT_KINDS:
            raise UnsupportedModule(f"input of kind {given.kind.name}")
        kind, where = _INPUT_KINDS[given.kind], given.target
        if kind == "input":
            where = _position(paths[name])
        elif kind == "constant":
            constants[name] = _constant(program.constants[given.target])
            where = given.target if _has_attribute(exported.model, given.target) else None
        inputs.append({"name": name, "kind": kind, "target": where})
    outputs, tree = _outputs(program, paths)
    scalars = [
        {"target": _position(paths[s.arg.name]), "value": s.arg.value}
        for s in users
        if isinstance(s.arg, ConstantArgument)
    ]
    return {
        "inputs": inputs,
        "scalars": scalars,
        "outputs": outputs,
        "out_tree": tree,
        "constants": constants,
    }


_INPUT_KINDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}


def _position(path: list[int | str]) -> int | list[int | str]:
    """Return the index of a positional argument, or the way into a nested one."""
    return path[0] if len(path) == 1 and isinstance(path[0], int) else path


def _constant(value: torch.Tensor) -> dict[str, Any]:
    small = value.numel() <= _SMALL_CONSTANT and not value.is_complex()
    return {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "values": value.tolist() if small else None,
    }


def _has_attribute(model: torch.nn.Module, path: str) -> bool:
    found: Any = model
    for name in path.split("."):
        found = getattr(found, name, None)
    return isinstance(found, torch.Tensor)


def _outputs(
    program: ExportedProgram, paths: dict[str, list[int | str]]
) -> tuple[list[dict[str, Any]], Any]:
    """Return what each of ``call``'s results is, and the form of the module's result."""
    outputs: list[dict[str, Any]] = []
    fixed: dict[int, Any] = {}
    users = 0
    for given in program.graph_signature.output_specs:
        if given.kind is OutputKind.BUFFER_MUTATION:
            outputs.append({"kind": "mutated_buffer", "target": given.target})
        elif given.kind is OutputKind.USER_INPUT_MUTATION:
            outputs.append({"kind": "mutated_input", "target": _position(paths[given.target])})
        elif given.kind is OutputKind.USER_OUTPUT:
            outputs.append({"kind": "user", "target": users})
            if isinstance(given.arg, ConstantArgument):
                value = given.arg.value
                fixed[users] = {"none": True} if value is None else {"const": value}
            users += 1
        else:
            raise UnsupportedModule(f"output of kind {given.kind.name}")
    form = pytree.tree_unflatten(range(users), program.call_spec.out_spec)
    return outputs, _tree(form, fixed)


def _tree(form: Any, fixed: dict[int, Any]) -> Any:
    """Return ``form``, whose leaves are indexes of user outputs, as JSON."""
    if isinstance(form, int):
        return fixed.get(form, form)
    if isinstance(form, dict) and all(isinstance(key, str) for key in form):
        return {"dict": {key: _tree(value, fixed) for key, value in form.items()}}
    if isinstance(form, (tuple, list)):
        kind = "list" if isinstance(form, list) else "tuple"
        return {kind: [_tree(value, fixed) for value in form]}
    raise UnsupportedModule(f"result of type {type(form).__name__}")


def _size_spec(
    inputs: list[dict[str, Any]], program: ExportedProgram, shapes: list[tuple[Any, ...]]
) -> dict[str, Any]:
    """Return which sizes are kernel arguments, and what must hold of them.

    ``sizes`` gives for each symbol an input, a dimension of it and the size there at export;
    ``guards`` the conditions under which the code is valid, in the symbols' names.
    """
    sizes: dict[str, Any] = {}
    symbols: set[Any] = set()
    env = None
    for given, shape in zip(inputs, shapes, strict=True):
        for dim, size in enumerate(shape):
            if not isinstance(size, torch.SymInt):
                continue
            env = size.node.shape_env
            if size.node.expr.is_Symbol:
                place = {"input": given["target"], "dim": dim, "hint": size.node.hint}
                sizes.setdefault(str(size.node.expr), place)
                symbols.add(size.node.expr)
    known = [guard.expr for guard in env.guards] if env is not None else []
    guards = dict.fromkeys(str(expr) for expr in known if expr.free_symbols <= symbols)
    return {"dynamic": bool(sizes), "sizes": sizes, "guards": list(guards)}


# --- warm start ----------------------------------------------------------------------------------

# A little of everything common: what torch imports and caches on first use is then in the parent.
_WARM_UP = """
import torch
from torch.nn import functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.fc = torch.nn.Linear(8, 16)

    def forward(self, x):
        y = F.max_pool2d(F.gelu(self.norm(self.conv(x))), 2).flatten(2).transpose(1, 2)
        y = F.layer_norm(F.scaled_dot_product_attention(y, y, y), (8,))
        y = torch.where(y > 0, y.cumsum(1), y[:, :1])
        return torch.cat([F.softmax(self.fc(y), -1), y.mean(1, keepdim=True).tile(2)], 1).sum(1)

def get_inputs():
    return [torch.randn(2, 4, 16, 16)]

def get_init_inputs():
    return []
"""


def warm(target: str, own_products: bool) -> None:
    """Compile one module, so that children forked from here find everything imported."""
    torch.set_num_threads(1)
    torch._logging.set_logs(all=logging.CRITICAL)
    for dynamic in (False, True):
        task = problem.load(problem.REFERENCE, _WARM_UP)
        generate(export(task, dynamic), target, own_products)
