"""The private interfaces of PyTorch that the generator stands on: all of them, and nothing else.

Three stages: a module is traced on fake tensors whose sizes are symbols (`ShapeEnv`), Inductor
decomposes, lowers and fuses the graph (`lower`), and a fused loop's body is run on an object that
records what it does (`run_body`). No line of Inductor's output is read. Tested with torch 2.13.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest import mock

import sympy
import torch
import torch._inductor.compile_fx as compile_fx
import torch.utils._pytree as pytree
from torch import _meta_registrations
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._inductor import config, ir, lowering
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
from torch._inductor.graph import GraphLowering
from torch._inductor.loop_body import MemoryUsageType
from torch._inductor.lowering import fallback_handler, lowerings
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.scheduler import (
    ExternKernelSchedulerNode,
    FusedSchedulerNode,
    NopKernelSchedulerNode,
    SchedulerNode,
)
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import proxy as fx_proxy
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.fx.traceback import preserve_node_meta
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._device import _device_constructors as list_device_constructors
from torch.utils._sympy.functions import (
    CeilToInt,
    FloatTrueDiv,
    FloorDiv,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PythonMod,
    ToFloat,
)
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.value_ranges import ValueRangeError

from curate.generator.absent_gpu import CUDA
from curate.generator.operators.decompositions import OWN
from curate.generator.operators.lowerings import own_lowerings
from curate.generator.operators.parts import PART
from curate.generator.operators.recurrences import RECURRENCE
from curate.generator.unprintable import Unprintable
from curate.generator.words import NOTE, NodeNote, Note, is_view, note_of, operation, told_note

__all__ = ["DefaultHandler", "FakeTensor", "ShapeEnv", "ir", "list_device_constructors"]
__all__ += ["CeilToInt", "FloorDiv", "IntTrueDiv", "Max", "Min", "Mod"]
__all__ += ["ModularIndexing", "PythonMod"]
__all__ += ["ExternKernelSchedulerNode", "NopKernelSchedulerNode", "SchedulerNode"]

T = TypeVar("T")

LOOPS = SchedulerNode | FusedSchedulerNode
"""Groups of the scheduler's that have loops: no calls of libraries."""

DTYPES = DtypePropagationOpsHandler()
"""Says of which type the result of an operation in a loop's body is."""

DIVISIONS = (FloorDiv, Mod, ModularIndexing, PythonMod)
"""What costs a kernel a division of an index."""

_CONFIG: dict[str, Any] = {
    "compile_threads": 1,
    "force_disable_caches": True,
    "comprehensive_padding": False,
    "shape_padding": False,
    "layout_optimization": False,
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    # Tiles, splits and loop order are the schedules' business.
    "split_reductions": False,
    "triton.cooperative_reductions": False,
    "triton.mix_order_reduction": False,
    "unroll_reductions_threshold": 1,
    "combo_kernel_foreach_dynamic_shapes": False,
    "scalar_asserts": False,
    "assert_indirect_indexing": False,
}
if hasattr(config.triton, "decompose_sort_ops"):  # from torch 2.12 on
    _CONFIG["triton.decompose_sort_ops"] = True

_CHECKS = {
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten._assert_tensor_metadata.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}

_GLU = torch.ops.aten.glu.default  # Inductor's own way fixes the size that it halves


_PRODUCTS = {getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm")}

LONGEST_LOOP = 64
"""Products that one place of a reference may make: there would be a kernel for each."""

_CONVOLUTION = torch.ops.aten.convolution.default
_BY_LIBRARY = {
    op: fallback_handler(op, add_to_fallback_set=False) for op in (_CONVOLUTION, PART, RECURRENCE)
}
"""Lowerings that leave sizes open; Inductor's own of a convolution fixes those of the weight."""


_POOLS = {2: torch.ops.aten.max_pool2d_with_indices, 3: torch.ops.aten.max_pool3d_with_indices}


def _pool(x: Any, kernel_size: Any, *more: Any) -> tuple[Any, Any]:
    """Return tensors like a pool's results; Inductor's own way computes with their sizes."""
    values, indices = _POOLS[len(kernel_size)](x, kernel_size, *more)
    return values, torch.empty_like(indices, dtype=torch.int8)


def _pool_indices(offsets: Any, *more: Any) -> Any:
    return torch.empty_like(offsets, dtype=torch.int64)


_metadata = functools.partial(_extract_tensor_metadata, include_contiguity=False)
"""What nobody reads is not found out: whether tensors with symbols for sizes are contiguous."""

_SHAPES = {
    torch.ops.prims._low_memory_max_pool_with_offsets.default: _pool,
    torch.ops.prims._low_memory_max_pool_offsets_to_indices.default: _pool_indices,
}
"""Cheaper ways to find out the sizes of results."""


# --- symbols -------------------------------------------------------------------------------------


def forbid_tf32() -> None:
    """Forbid TF32 until a file allows it: PyTorch's default for convolutions is no such wish."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._C._set_cudnn_allow_tf32(False)


def allows_tf32(is_convolution: bool) -> bool:
    """Whether the file that was loaded last lets convolutions, or other products, use TF32."""
    backend = torch.backends.cudnn if is_convolution else torch.backends.cuda.matmul
    return bool(backend.allow_tf32)


class _Environment(ShapeEnv):  # type: ignore[misc]
    """PyTorch's, which fixes sizes whose sum or product has to be a number: h * w == 49."""

    _resimplify_floor_div_axioms = property(lambda _: False, lambda *_: None)
    """It would go through all that is known at each new fact."""

    def _maybe_guard_rel(self, expr: Any) -> None:
        super()._maybe_guard_rel(expr)
        if isinstance(expr, sympy.Eq) and any(side.is_number for side in expr.args):
            left = self.replace(sum(side for side in expr.args if not side.is_number))
            if all(isinstance(x, _PLAIN) for x in sympy.preorder_traversal(left)):
                for size in left.free_symbols:
                    self._set_replacement(size, self.backed_var_to_val[size], "fixed")


_PLAIN = (sympy.Symbol, sympy.Integer, sympy.Add, sympy.Mul)


def new_shape_env() -> ShapeEnv:
    """Return an environment in which no two sizes are tied for being equal by chance."""
    return _Environment(duck_shape=False, specialize_zero_one=True, allow_scalar_outputs=False)


def fake_mode(env: ShapeEnv) -> FakeTensorMode:
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True, static_shapes=False)
    mode.cache_enabled = False  # a module is traced once: what goes in seldom comes out again
    # `nn.TransformerEncoder` copies a layer with its parameters, which have to stay in this mode.
    mode.__deepcopy__ = lambda copied: mode
    return mode


def plain_fakes() -> FakeTensorMode:
    """Return a mode for tensors without values whose sizes are numbers."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def no_fakes() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which tensors have values, whatever mode is on."""
    made: contextlib.AbstractContextManager[Any] = unset_fake_temporarily()
    return made


def integer_symbol(env: ShapeEnv, value: int, name: str, any_value: bool) -> torch.SymInt:
    """Return a symbolic integer; one that may be 0 or 1 too if ``any_value``."""
    source = ConstantSource(name)
    symbol = env.create_symbol(
        *(value, source, DimDynamic.DYNAMIC),
        positive=True if value > 0 else None,  # a positive one is true without being asked
        do_not_specialize_zero_one=any_value,
    )
    made: Any = env.create_symintnode(symbol, hint=value, source=source)
    return made


def size_symbol(env: ShapeEnv, length: int, name: str) -> Any:
    """Return a symbol for a size, or the size itself if it is 0 or 1."""
    return integer_symbol(env, length, f"size_{name}", False) if length > 1 else length


def float_symbol(env: ShapeEnv, value: float, name: str) -> torch.SymFloat:
    source = ConstantSource(name)
    symbol = env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
    made: Any = env.create_symfloatnode(symbol, hint=value, source=source)
    return made


@dataclass(frozen=True)
class NamedSize:
    """A size of a convolution's result, for which there is a symbol.

    Its formula in the stride, the padding and more would be in each index of all that follows.

    Attributes:
        size: the symbol.
        formula: what it stands for.
        word: what to call it.
    """

    size: torch.SymInt
    formula: sympy.Expr
    word: str

    @property
    def symbol(self) -> sympy.Symbol:
        found: sympy.Symbol = self.size.node._expr
        return found


def named_sizes(env: ShapeEnv) -> list[NamedSize]:
    """Return the sizes that have been named in an environment, for more to be added."""
    found: list[NamedSize] = env.__dict__.setdefault("named_sizes", [])
    return found


AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


@contextlib.contextmanager
def _naming_sizes(env: ShapeEnv) -> Iterator[None]:
    """Have convolutions name the sizes of their results."""
    plain = _meta_registrations.calc_conv_nd_return_shape

    def shape(*args: Any, **kwargs: Any) -> list[Any]:
        batch, channels, *sizes = plain(*args, **kwargs)
        words = AXES.get(len(sizes), ())
        return [batch, channels, *(_named(env, *one) for one in zip(sizes, words, strict=True))]

    with mock.patch.object(_meta_registrations, "calc_conv_nd_return_shape", shape):
        yield


def _named(env: ShapeEnv, size: Any, axis: str) -> Any:
    """Return a symbol for a size, unless that is one, or is one plus a number."""
    if not isinstance(size, torch.SymInt) or size.node.hint < 2:
        return size
    formula = env.replace(size.node._expr)
    terms = [term for term in sympy.Add.make_args(formula) if not term.is_number]
    if len(terms) < 2 and all(term.is_Symbol for term in terms):
        return size
    known = named_sizes(env)
    for one in known:
        if sympy.expand(env.replace(one.formula) - formula) == 0:
            return one.size
    named = integer_symbol(env, size.node.hint, f"named_{len(known)}", any_value=False)
    known.append(NamedSize(named, formula, f"out_{axis}"))
    return named


def logarithm(value: Any) -> Any:
    """Return a symbolic number's logarithm to the base 2."""
    return torch._sym_log2(value)


def truncated(value: Any) -> Any:
    """Return a symbolic number as an integer: of ``64 * n / 64.0``, n."""
    e = value.node.expr
    wholes = {x: sympy.Integer(int(x)) for x in e.atoms(sympy.Float) if x == int(x)}
    for kind in (IntTrueDiv, FloatTrueDiv):
        e = e.replace(kind, lambda a, b: a.xreplace(wholes) / b.xreplace(wholes))
    e = e.replace(ToFloat, lambda x: x)
    if not e.is_integer:
        return torch.sym_int(value)
    return value.node.shape_env.create_symintnode(e, hint=int(value.node.hint))


class _Analysis(PythonReferenceAnalysis):  # type: ignore[misc]
    """PyTorch's, with truncation of symbolic numbers.

    PyTorch's own asks a cache of sympy's, which compares them with those of earlier traces.
    """

    @staticmethod
    def trunc_to_int(x: Any, dtype: Any) -> Any:
        return torch.sym_int(x)


def recompute(expression: sympy.Expr, values: dict[sympy.Symbol, Any]) -> Any:
    """Return an expression's value, worked out from symbolic numbers that a trace knows."""
    return sympy_interp(_Analysis, values, expression)


def export(
    module: torch.nn.Module,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    note: Note,
) -> tuple[torch.fx.GraphModule, list[str], list[str]]:
    """Return a module's graph in the operators that Inductor lowers, and its tensors' paths.

    The graph's inputs are those tensors and then ``inputs``. Behind its results are the tensors
    that the module keeps in place of others, whose paths come last. ``note`` is told of each node
    while the code that makes it runs.

    Raises:
        Unprintable: the module changes its inputs, or its own tensors in place.
    """
    assert mode.shape_env is not None
    held = dict(module.named_parameters(remove_duplicate=False))
    parameters = list(held)
    held |= dict(module.named_buffers(remove_duplicate=False))

    paths = list(held)
    assigned: list[int] = []

    def run(*given: Any) -> Any:
        own = dict(zip(paths, given, strict=False))
        for path in parameters:  # a forward may ask for gradients
            if own[path].is_floating_point():
                own[path].requires_grad_()
        found = torch.func.functional_call(module, own, given[len(held) :], tie_weights=False)
        assigned[:] = [i for i, path in enumerate(paths) if own[path] is not given[i]]
        return (*found, *(own[paths[i]] for i in assigned))

    create = fx_proxy.TracerBase.create_node

    steps = Counter[tuple[Any, ...]]()

    def noted(self: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = create(self, *args, **kwargs)
        note(node, sys._getframe(1))
        place = tuple(at for _, at in note_of(node).place)
        if place and node.target in _PRODUCTS:
            steps[place] += 1
            if steps[place] > LONGEST_LOOP:
                raise Unprintable(f"a loop of more than {LONGEST_LOOP} steps")
        return node

    # The CPU's libraries, and its decompositions of small products, would fix sizes.
    table = {op: f for op, f in select_decomp_table().items() if op not in _PRODUCTS}
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.backends.nnpack.flags(enabled=False))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        for op, shapes in _SHAPES.items():
            stack.enter_context(mock.patch.object(op, "prim_meta_impl", shapes))
        stack.enter_context(torch.no_grad())
        stack.enter_context(preserve_node_meta())
        stack.enter_context(mock.patch.object(fx_proxy.TracerBase, "create_node", noted))
        quiet = mock.patch.object(torch.fx.config, "do_not_emit_stack_traces", True, create=True)
        stack.enter_context(quiet)  # from torch 2.12 on
        stack.enter_context(mock.patch.object(proxy_tensor, "_extract_tensor_metadata", _metadata))
        stack.enter_context(_naming_sizes(mode.shape_env))
        stack.enter_context(mode)
        stack.enter_context(enable_python_dispatcher())
        decompositions = {**table, _GLU: decomposition_table[_GLU], **OWN}
        graph = make_fx(_functional(run, assigned), decompositions)(*held.values(), *inputs)
    graph.graph.eliminate_dead_code()
    return graph, paths, [paths[i] for i in assigned]


def _functional(run: Callable[..., Any], replaced: list[int]) -> Callable[..., Any]:
    """Return a function that runs without operators that change tensors.

    Afterwards ``replaced`` has the positions of those given that nobody has any more.

    `aot_export_module` would run it twice, and `torch.func.functionalize` has its own forms of a
    few operators.
    """

    def result(value: torch.Tensor) -> torch.Tensor:
        if not torch._is_functional_tensor(value):
            return value
        torch._sync(value)
        return torch._from_functional_tensor(value)

    def functional(*given: Any) -> Any:
        given = pytree.tree_map_only(torch.Tensor, torch._to_functional_tensor, given)
        torch._enable_functionalization(reapply_views=True)
        try:
            results = run(*given)
        finally:
            torch._disable_functionalization()
        changes = torch._functionalize_has_data_mutation, torch._functionalize_has_metadata_mutation
        left = [x for i, x in enumerate(given) if i not in replaced and isinstance(x, torch.Tensor)]
        if any(has(x) for has in changes for x in left):
            raise Unprintable("changes its inputs or buffers")
        return pytree.tree_map_only(torch.Tensor, result, results)

    return functional


# --- loops ---------------------------------------------------------------------------------------


class _Stopped(BaseException):
    """Carries a result out of the compiler, past its handlers of errors."""


def lower(
    graph: torch.fx.GraphModule,
    mode: FakeTensorMode,
    then: Callable[[Any], T],
    online_softmax: bool = True,
) -> T:
    """Have Inductor lower and fuse a graph, and return what ``then`` makes of the result.

    It has to run under `curate.generator.absent_gpu.absent_gpu`. The graph is changed. A softmax's
    peak and sum are found in one pass, if it is ``online_softmax``, or one after the other.
    """
    nodes = graph.graph
    for node in reversed(nodes.nodes):
        if node.op == "call_function" and node.target in _CHECKS:
            nodes.erase_node(node)
    nodes.eliminate_dead_code()
    for node in nodes.nodes:
        where = (node.args, node.kwargs)
        node.args, node.kwargs = pytree.tree_map_only(torch.device, lambda _: CUDA, where)
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, FakeTensor):
                value.fake_device = CUDA
    graph.recompile()
    with mode:
        inputs = [_on_gpu(node.meta["val"]) for node in nodes.find_nodes(op="placeholder")]
    output = nodes.output_node()
    output.meta["user_visible_output_idxs"] = [
        i for i, value in enumerate(output.args[0]) if isinstance(value, torch.fx.Node)
    ]
    made: list[T] = []
    run_node = GraphLowering.run_node

    def run_worded(self: Any, node: torch.fx.Node) -> Any:
        result = run_node(self, node)
        _give_word(result, note_of(node))
        return result

    def stop(lowered: Any) -> None:
        _shorten_factors(lowered)
        lowered.init_wrapper_code()
        lowered._update_scheduler()
        made.append(then(lowered))
        raise _Stopped

    with contextlib.ExitStack() as stack:
        stack.enter_context(tracing(TracingContext(mode)))
        stack.enter_context(_naming_sizes(mode.shape_env))
        for owner, name, replacement in (
            (GraphLowering, "compile_to_module", stop),
            (GraphLowering, "run_node", run_worded),
            (compile_fx, "fake_tensor_prop", lambda *_: mode),  # values are known from tracing
            # When a pass replaces a node.
            (fx_proxy, "_COPY_META_FIELDS", [*fx_proxy._COPY_META_FIELDS, NOTE]),
            (SizeVarAllocator, "evaluate_min", _smaller),
            (SizeVarAllocator, "lookup_precomputed_size", lambda _, size: size),
            (lowering, "pooling_size", _pooled),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.enter_context(mock.patch.dict(lowerings, _BY_LIBRARY))
        if _is_longer_to_inductor is not None:
            is_longer = staticmethod(functools.cache(_is_longer))
            stack.enter_context(mock.patch.object(ir.Layout, _IS_LONGER, is_longer))
        stack.enter_context(own_lowerings())
        stack.enter_context(config.patch({**_CONFIG, "online_softmax": online_softmax}))
        stack.enter_context(torch.no_grad())
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        with contextlib.suppress(_Stopped):
            compile_fx.compile_fx_inner(graph, inputs, is_inference=True)
    if not made:
        raise Unprintable("it computes nothing")
    return made[0]


def _shorten_factors(lowered: Any) -> None:
    """Have factors of an attention in 16 bits hold as many, as PyTorch's own kernels take them.

    Its decomposition converts them to float32, in which what comes before would be stored.
    """
    inputs = [node.meta["val"] for node in lowered.graph.find_nodes(op="placeholder")]
    kinds = {v.dtype for v in inputs if isinstance(v, torch.Tensor) and v.is_floating_point()}
    from_attention = any(
        "_safe_softmax" in str(node.meta.get("original_aten")) for node in lowered.graph.nodes
    )
    if not from_attention or len(kinds) != 1 or (kind := kinds.pop()).itemsize != 2:
        return
    for buffer in lowered.buffers:
        node = getattr(buffer, "origin_node", None)
        if node is not None and _is_factor(node) and buffer.layout.dtype == torch.float32:
            buffer.layout.dtype = kind


def _is_factor(node: torch.fx.Node) -> bool:
    """Whether only products read what a node gives."""
    views = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)
    users = [u for one in node.users for u in (one.users if one.target in views else (one,))]
    return bool(users) and all(user.target is torch.ops.aten.bmm.default for user in users)


def _give_word(result: Any, note: NodeNote) -> None:
    """Have the loop that computes a node's value, or looks at it, note the reference's word for it.

    The word is in the ``meta`` of a node of the loop's body, where `current_word` finds it. What is
    loaded has a buffer's name, unless the reference assigns it to another, as a slice.
    """
    loop = result
    while isinstance(loop, ir.MutableBox | ir.ComputedBuffer):
        loop = loop.data
    if not note.word or not isinstance(loop, ir.Pointwise | ir.BaseView):
        return
    seen = note.word if note.word == note.assigned and not note.is_gradient else ""

    def worded(compute: Callable[..., Any]) -> Callable[..., Any]:
        def at(*index: Any) -> Any:
            value = made = compute(*index)
            while not isinstance(value, fx_proxy.Proxy) and hasattr(value, "value"):
                value = value.value
            if isinstance(value, fx_proxy.Proxy):
                word = seen if value.node.target == "load" else note.word
                value.node.meta.setdefault("word", word) if word else None
            return made

        return at

    if isinstance(loop, ir.Pointwise):
        object.__setattr__(loop, "inner_fn", worded(loop.inner_fn))
    else:
        loader = loop.make_loader
        object.__setattr__(loop, "make_loader", lambda: worded(loader()))


def current_word() -> str:
    """Return the reference's word for what the operation at hand computes, or ""."""
    node = getattr(V.interpreter, "current_node", None)
    word: str = node.meta.get("word", "") if node is not None else ""
    return word


def buffer_word(name: str) -> str:
    """Return the reference's word for a buffer, or ""."""
    node = _made_by(name)
    return note_of(node).word if node is not None else ""


def assigned_word(name: str) -> str:
    """Return the variable of the reference that a buffer's values are given, or ""."""
    node = _made_by(name)
    note = note_of(node) if node is not None else NodeNote()
    return "" if note.is_gradient else note.assigned


def _made_by(name: str) -> torch.fx.Node | None:
    buffer = V.graph.try_get_buffer(name)
    return buffer.get_origin_node() if isinstance(buffer, ir.IRNode) else None


def buffer_function(name: str) -> str:
    """Return what the function is called that computes what is in a buffer, or ""."""
    node = _made_by(name)
    if node is None:
        return ""
    while len(node.all_input_nodes) == 1 and (is_view(node) or operation([node]) == "copy"):
        node = node.all_input_nodes[0]
    return next(iter(told_note(node).calls), "") or operation([node])


def reduction_of(name: str) -> tuple[str, int]:
    """Return the kind of reduction that makes a buffer, or "", and which of its results that is."""
    loop = getattr(V.graph.try_get_buffer(name), "data", None)
    kind = str(loop.reduction_type) if isinstance(loop, ir.Reduction) else ""
    return kind, int(getattr(loop, "output_index", 0))


def _smaller(sizes: Any, left: Any, right: Any) -> Any:
    """Return the smaller of two sizes, without fixing which it is."""
    if sizes.statically_known_leq(left, right):
        return left
    return right if sizes.statically_known_leq(right, left) else Min(left, right)


_IS_LONGER = "_stride_expr_ge_or_false"


_is_longer_to_inductor: Any = getattr(ir.Layout, _IS_LONGER, None)


def _is_longer(left: Any, right: Any) -> bool:
    """Whether a stride is at least as long as another; Inductor fails on some that are sums."""
    try:
        return bool(_is_longer_to_inductor(left, right))
    except (ValueError, ValueRangeError):  # of a fraction that sympy made of a remainder
        return bool(sympy.denom(sympy.cancel(left / right)) == 1)


def _pooled(
    x: Any,
    i: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    dilation: Any = None,
    _plain: Any = lowering.pooling_size,
) -> tuple[Any, bool]:
    """Return how many windows fit, and whether some may go over the end, for even and odd sizes."""
    whole, _ = _plain(x, i, kernel_size, stride, padding, False, dilation=dilation)
    if not ceil_mode or stride[i] == 1:
        return whole, False
    span = x + 2 * padding[i] - (dilation[i] if dilation else 1) * (kernel_size[i] - 1)
    windows = FloorDiv(span + 2 * (stride[i] - 1), stride[i])
    if V.graph.sizevars.guard_or_false(sympy.Ge((windows - 1) * stride[i] - x - padding[i], 0)):
        windows -= 1  # the last one would begin in the padding
    return windows, True


def _on_gpu(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=CUDA)


def run_body(node: Any, kept: list[Any], reduced: list[Any], handler: Any) -> None:
    """Run a fused node's body at the given indices, with ``handler`` doing its operations."""
    with V.set_ops_handler(handler), V.set_current_node(node):
        node._body(kept, reduced)


def body_loads(node: Any) -> Iterator[tuple[str, sympy.Expr]]:
    """Yield the buffers that a node's body loads, each with its index in `body_variables`."""
    for entry in node._body.memory_usage[MemoryUsageType.LOAD]:
        yield entry.buffer_name, node._body.indexing_exprs[entry.index_name]


def body_store(node: Any) -> sympy.Expr:
    """Return the index of the one result that an element-wise node stores."""
    (entry,) = node._body.memory_usage[MemoryUsageType.STORE]
    index: sympy.Expr = node._body.indexing_exprs[entry.index_name]
    return index


def is_copy(node: Any) -> bool:
    """Whether an element-wise node stores what it loads, as it is."""
    graph = node._body.root_block.graph
    done = [one.target for one in graph.nodes if one.op == "call_method"]
    return not node._body.subblocks and [d for d in done if d != "get_index"] == ["load", "store"]


def body_variables(node: Any) -> list[sympy.Symbol]:
    return list(node._body.iter_vars)


def simplify(expression: sympy.Expr, ranges: dict[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    """Return an index, written shorter with the help of its variables' ranges."""
    return V.graph.sizevars.simplify_with_ranges(expression, ranges)


def hint(expression: sympy.Expr) -> int:
    """Return the size that an expression has in the file."""
    sizes: Any = V.graph.sizevars
    find = getattr(sizes, "optimization_hint", None) or sizes.size_hint
    return int(find(sympy.sympify(expression)))


def in_order(nodes: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return a graph's nodes in the order in which they run."""
    return sorted(nodes, key=lambda node: (node._sort_key, node.name))


def own_origins(node: Any) -> set[torch.fx.Node]:
    """Return the nodes of a graph that a scheduler's node computes.

    A library's call has those that made its operands as well, which other kernels compute; and what
    makes an operand for it has the call's.
    """
    own, others = in_order(node.node.get_origins()), set[torch.fx.Node]()
    if isinstance(node, ExternKernelSchedulerNode):
        for read in node.read_writes.reads:
            made = V.graph.name_to_buffer.get(read.name)
            others |= set(made.get_origins()) if made is not None else set()
    else:
        for user in (user.node for made in node.get_outputs() for user in made.users):
            if isinstance(user, ExternKernelSchedulerNode):
                others |= set(in_order(user.node.get_origins())[-1:])
    return set(own) - others or set(own[-1:])  # of an operand that is copied the call's own


def last_origins(nodes: Iterable[Any]) -> list[torch.fx.Node]:
    """Return the last of the nodes of a graph that each of the scheduler's nodes computes."""
    return in_order({found[-1] for node in nodes if (found := in_order(own_origins(node)))})


def is_operand(nodes: Iterable[Any]) -> bool:
    """Whether what some nodes make is read by calls of libraries alone."""
    users = [user.node for node in nodes for made in node.get_outputs() for user in made.users]
    return bool(users) and all(isinstance(user, ExternKernelSchedulerNode) for user in users)


def is_unset(name: str) -> bool:
    """Whether a buffer is allocated and has no values yet, as `torch.empty` leaves it."""
    buffer = V.graph.try_get_buffer(name)
    return isinstance(buffer, ir.ComputedBuffer) and 0 in buffer.data.ranges != buffer.get_size()


def buffer_dtype(name: str) -> torch.dtype:
    made: torch.dtype = V.graph.get_dtype(name)
    return made


def without_guards(expression: sympy.Expr) -> sympy.Expr:
    """Return an expression whose sizes are taken to be positive: strides have ``Max(1, size)``."""
    if not expression.has(Max):
        return expression
    return expression.replace(
        lambda e: isinstance(e, Max) and len(e.args) == 2 and e.args[0] == 1,
        lambda e: e.args[1],
    )


# --- the library's calls --------------------------------------------------------------------------


@dataclass(frozen=True)
class CallOperand:
    """A tensor of a library call: a buffer, and which of its elements."""

    buffer: str
    sizes: list[sympy.Expr]
    strides: list[sympy.Expr]
    offset: sympy.Expr
    dtype: torch.dtype


@dataclass(frozen=True)
class LibraryCall:
    """A call of an operator that has no loops.

    Attributes:
        operator: such as ``addmm``.
        args: operands, numbers, None and lists, in the operator's order; ``kwargs`` by name.
        result: what it makes, and ``others`` what it makes besides.
    """

    operator: str
    args: list[Any]
    kwargs: dict[str, Any]
    result: CallOperand
    others: list[CallOperand]


def library_call(node: Any) -> LibraryCall | None:
    """Return what a scheduler's node calls; None if it is not an operator."""
    kernel = node.node
    overload = getattr(kernel, "op_overload", None)
    args, kwargs, results = kernel.inputs, kernel.kwargs, [kernel]
    if isinstance(kernel, ir.FallbackKernel):
        args, kwargs = kernel.unflatten_args(kernel.inputs, kernel.constant_args)
        results = kernel.outputs or [kernel]  # from torch 2.15 on, a lone result is the call itself
    if overload is None:
        return None
    found = pytree.tree_map_only(ir.IRNode, _operand, list(args))
    result, *others = (_operand(one) for one in results if one is not None)
    return LibraryCall(overload._opname, found, dict(kwargs), result, others)


def is_result(group: Any, call: Any) -> bool:
    """Whether a scheduler's node is one of the results of another, which is a library's call."""
    node = getattr(group, "node", None)
    return isinstance(node, ir.MultiOutput) and node.inputs[0] is call.node


def _operand(node: Any) -> CallOperand:
    layout = node.get_layout()
    sizes, strides = (
        [without_guards(V.graph.sizevars.simplify(n)) for n in given]
        for given in (layout.size, layout.stride)
    )
    return CallOperand(node.get_name(), sizes, strides, sympy.sympify(layout.offset), layout.dtype)
