"""Write rows as KernelBook was made: modules, compiled by Inductor of PyTorch 2.5.0, then cleaned.

KernelBook itself is not needed. The way is its published one: `torch.compile`'s forward graph for
one GPU, `torch.utils._get_clean_triton`, a class whose ``forward`` hands parameters and inputs to
``call`` by matching their shapes, and imports moved to the top. No GPU is needed either: Inductor
gets the properties of an A100, and is stopped when it has written its code.

Some rows then get a defect that rows of KernelBook are known to have, or one like it; their
``repo_name`` is ``planted/<defect>``, so that a run of ``recipes/kernelbook_import.yaml`` can be
counted by defect (``kernelbook_counts.py``).

Run it with PyTorch 2.5.0, which lives in a folder of its own (7 GB)::

    python3.11 -m venv /tmp/torch25 && /tmp/torch25/bin/pip install torch==2.5.0 numpy pyarrow
    /tmp/torch25/bin/python benchmarks/kernelbook_rows.py --rows 240 --output kernelbook
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
import random
import re
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch._dynamo.device_interface as device_interface
import torch._inductor.compile_fx as compile_fx
import torch.utils._pytree as pytree
import torch.utils._triton
import triton
from torch._functorch.aot_autograd import aot_module
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses import fake_tensor
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._get_clean_triton import process_file
from triton.backends.compiler import GPUTarget

SCHEMA = pa.schema(
    [
        ("entry_point", pa.string()),
        ("original_triton_code", pa.string()),
        ("python_code", pa.string()),
        ("triton_code", pa.string()),
        ("repo_name", pa.string()),
        ("module_name", pa.string()),
        ("synthetic", pa.bool_()),
        ("uuid", pa.int64()),
        ("licenses", pa.list_(pa.string())),
        ("stars", pa.int64()),
        ("sha", pa.string()),
        ("repo_link", pa.string()),
    ]
)
Row = dict[str, Any]

# --- modules -------------------------------------------------------------------------------------

UNARY = {
    "Swish": "{x} * torch.sigmoid({x})",
    "Mish": "{x} * torch.tanh(F.softplus({x}))",
    "HardSwish": "{x} * F.relu6({x} + 3.0) / 6.0",
    "SquaredRelu": "F.relu({x}) ** 2",
    "QuickGelu": "{x} * torch.sigmoid(1.702 * {x})",
    "Bump": "torch.exp(-{x} * {x})",
    "LogCosh": "torch.log(torch.cosh({x}))",
    "SoftSign": "{x} / (1.0 + torch.abs({x}))",
    "Clip": "torch.clamp({x}, 0.1, 0.8)",
    "Sine": "torch.sin(30.0 * {x})",
    "Gelu": "F.gelu({x})",
    "Elu": "F.elu({x})",
}
REDUCED = {
    "Mean": "{x}.mean()",
    "RowSum": "{x}.sum(dim=1)",
    "RowMax": "{x}.amax(dim=-1, keepdim=True)",
    "Softmax": "F.softmax({x}, dim=1)",
    "LogSoftmax": "F.log_softmax({x}, dim=-1)",
    "L2Norm": "{x} / {x}.norm(dim=-1, keepdim=True)",
    "Std": "{x} - {x}.std(dim=-1, keepdim=True)",
    "Pool": "F.avg_pool2d({x}, 2)",
    "MaxPool": "F.max_pool2d({x}, 2)",
    "Flip": "torch.flip({x}, [1]) + {x}",
}
LOSSES = {
    "Mse": "((a - b) ** 2).mean()",
    "Charbonnier": "torch.sqrt((a - b) ** 2 + 1e-06).mean()",
    "Dice": "1.0 - 2.0 * (a * b).sum() / (a.sum() + b.sum() + 1.0)",
    "Huber": "F.smooth_l1_loss(a, b)",
    "Cosine": "1.0 - F.cosine_similarity(a, b, dim=1)",
    "Hinge": "torch.clamp(1.0 - a * b, min=0.0).mean(dim=-1)",
    "Bce": "F.binary_cross_entropy(a, b)",
    "Gate": "torch.sigmoid(a) * b + a * torch.tanh(b)",
    "Distance": "torch.sqrt(((a - b) ** 2).sum(dim=1))",
    "Weighted": "(a * b).sum(dim=-1) / (b.sum(dim=-1) + 1e-05)",
}
# parameters by name and shape, forward of x, and whether a library does part of the work
PARAMETERS = {
    "LayerScale": ("gamma = torch.ones(n)", "x * self.gamma"),
    "Affine": ("scale = torch.ones(n), shift = torch.zeros(n)", "x * self.scale + self.shift"),
    "RmsNorm": (
        "weight = torch.ones(n)",
        "self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-06)",
    ),
    "OwnLayerNorm": (
        "gain = torch.ones(n), bias = torch.zeros(n)",
        "self.gain * (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 1e-06) + self.bias",
    ),
    "Prelu": ("slope = torch.full((1,), 0.25)", "torch.where(x > 0, x, self.slope * x)"),
}
# modules by name, forward of x: a library does part of the work
LIBRARY = {
    "Mlp": ("up = nn.Linear(n, 2 * n), down = nn.Linear(2 * n, n)", "self.down({y})", "self.up(x)"),
    "Conv": ("conv = nn.Conv2d(4, 8, 3, padding=1)", "{y}", "self.conv(x)"),
    "Gated": ("a = nn.Linear(n, n), b = nn.Linear(n, n)", "{y} * self.b(x)", "self.a(x)"),
    "Scores": ("q = nn.Linear(n, n)", "torch.softmax(torch.matmul({y}, x), -1)", "self.q(x)"),
}
_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
_SHAPES = itertools.cycle(([4, 4, 4, 4], [4, 4, 8, 8], [2, 4, 32, 32], [2, 8, 16, 4]))


def modules() -> Iterator[tuple[str, str]]:
    """Yield names and ``python_code``: a module of each sort in turn, about 400 in all."""
    pools = [_pointwise(), _reductions(), _losses(), _parametric(), _constructed(), _library()]
    for turn in itertools.zip_longest(*pools):
        yield from filter(None, turn)


def _file(name: str, init: str, inputs: str, body: str, arguments: str, kwargs: str = "{}") -> str:
    return (
        f"{_HEAD}class {name}(nn.Module):\n{init}\n"
        f"    def forward(self, {arguments}):\n{body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\n"
        f"def get_init_inputs():\n    return [[], {kwargs}]\n"
    )


def _init(name: str, lines: list[str], parameters: str = "") -> str:
    head = f"\n    def __init__(self{parameters}):\n        super({name}, self).__init__()\n"
    return head + "".join(f"        {line}\n" for line in lines)


def _pointwise() -> Iterator[tuple[str, str]]:
    for first, second in itertools.product(UNARY, UNARY):
        name = f"{first}Of{second}"
        body = f"        y = {UNARY[second].format(x='x')}\n"
        body += f"        return {UNARY[first].format(x='y')}"
        yield name, _file(name, _init(name, []), f"torch.rand({next(_SHAPES)})", body, "x")


def _reductions() -> Iterator[tuple[str, str]]:
    for first, last in itertools.product(UNARY, REDUCED):
        name = f"{first}{last}"
        body = f"        y = {UNARY[first].format(x='x')}\n"
        body += f"        return {REDUCED[last].format(x='y')}"
        yield name, _file(name, _init(name, []), f"torch.rand({next(_SHAPES)})", body, "x")


def _losses() -> Iterator[tuple[str, str]]:
    for scale, loss in itertools.product((1.0, 0.5, 4.0), LOSSES):
        name = f"{loss}Loss"
        body = f"        return self.scale * ({LOSSES[loss]})"
        init = _init(name, ["self.scale = scale"], f", scale={scale}")
        shape = next(_SHAPES)
        inputs = f"torch.rand({shape}), torch.rand({shape})"
        yield name, _file(name, init, inputs, body, "a, b")


def _parametric() -> Iterator[tuple[str, str]]:
    for first, (name, (fields, forward)) in itertools.product(("", *UNARY), PARAMETERS.items()):
        full, shape = f"{first}{name}", next(_SHAPES)
        lines = []
        for entry in re.split(r", (?=\w+ =)", fields):
            field, value = entry.split(" = ")
            lines.append(f"self.{field} = nn.Parameter({value})")
        body = f"        x = {UNARY[first].format(x='x')}\n" if first else ""
        body += f"        return {forward}"
        init, kwargs = _init(full, lines, ", n"), f"{{'n': {shape[-1]}}}"
        yield full, _file(full, init, f"torch.rand({shape})", body, "x", kwargs)


def _library() -> Iterator[tuple[str, str]]:
    for first, (name, (fields, forward, y)) in itertools.product(UNARY, LIBRARY.items()):
        full = f"{first}{name}"
        lines = [f"self.{field}" for field in re.split(r", (?=\w+ =)", fields)]
        body = f"        y = {y}\n        y = {UNARY[first].format(x='y')}\n"
        body += f"        return {forward.format(y='y')}"
        init = _init(full, lines, ", n")
        yield full, _file(full, init, "torch.rand([4, 4, 4, 4])", body, "x", "{'n': 4}")


def _constructed() -> Iterator[tuple[str, str]]:
    for factor, (name, formula) in itertools.product((0.5, 2.0, 3.0), UNARY.items()):
        full = f"Scaled{name}"
        init = _init(full, ["self.factor = factor", "self.offset = offset"], ", offset, factor=1.0")
        body = f"        return self.factor * ({formula.format(x='x')}) + self.offset"
        kwargs = f"{{'factor': {factor}, 'offset': 0.25}}"
        yield full, _file(full, init, "torch.rand([4, 4, 4, 4])", body, "x", kwargs)


# --- the compiler --------------------------------------------------------------------------------


class Written(BaseException):
    """Carries Inductor's code out of the compiler, past its handlers of errors."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code


class _Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, 32)


A100 = types.SimpleNamespace(
    name="A100",
    major=8,
    minor=0,
    multi_processor_count=108,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    total_memory=80 << 30,
)


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _stop(graph: GraphLowering) -> None:
    raise Written(graph.codegen()[0])


@contextlib.contextmanager
def a100() -> Iterator[None]:
    """Make Inductor and Triton believe that an A100 is there."""
    device_interface.get_interface_for_device("cuda")  # fills the registry
    base = device_interface.CudaInterface
    answers = {
        "current_device": 0,
        "device_count": 1,
        "is_available": True,
        "get_device_properties": A100,
        "get_compute_capability": 80,
    }
    methods = {name: staticmethod(_always(value)) for name, value in answers.items()}
    worker = type("Worker", (base.Worker,), methods)
    interface = type("Interface", (base,), {**methods, "Worker": worker})
    known = {"cuda": interface, "cuda:0": interface}
    questions = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": A100,
        "get_device_capability": (8, 0),
        "get_rng_state": torch.empty(0, dtype=torch.uint8),
        "set_rng_state": None,
        "synchronize": None,
    }
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context
        patch(mock.patch.dict(device_interface.device_interfaces, known))
        for name, value in questions.items():
            patch(mock.patch.object(torch.cuda, name, _always(value)))
        patch(mock.patch.object(fake_tensor, "init_gpu_context", _always(None)))
        patch(mock.patch.object(triton.runtime.driver, "active", _Driver()))
        patch(mock.patch.object(GraphLowering, "compile_to_module", _stop))
        torch.utils._triton.has_triton.cache_clear()
        getattr(DeviceProperties.create, "cache_clear", _always(None))()
        yield


def _lower(graph: torch.fx.GraphModule, _: Any) -> None:
    """Have Inductor write the code of a traced graph for the GPU."""
    cuda = torch.device("cuda", 0)
    for node in graph.graph.nodes:
        where = (node.args, node.kwargs)
        node.args, node.kwargs = pytree.tree_map_only(torch.device, lambda _: cuda, where)
    fakes = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    mode = fakes[0].fake_mode
    with a100(), torch.no_grad():
        with mode:
            inputs = [
                torch.empty_strided(f.size(), f.stride(), dtype=f.dtype, device=cuda) for f in fakes
            ]
        for node in graph.graph.nodes:
            node.meta = {k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta")}
        FakeTensorProp(graph, mode=mode).propagate_dont_convert_inputs(*inputs)
        with torch._guards.tracing(torch._guards.TracingContext(mode)):
            compile_fx.compile_fx_inner(graph, inputs)
    raise RuntimeError("Inductor wrote no code")


def _joint_passes(graph: torch.fx.GraphModule) -> None:
    first = next(iter(graph.graph.find_nodes(op="placeholder")))
    with V.set_fake_mode(first.meta["val"].fake_mode):
        compile_fx._recursive_joint_graph_passes(graph)


def _partition(graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
    _joint_passes(graph)
    return min_cut_rematerialization_partition(graph, inputs, **options, compiler="inductor")


def _lower_inference(graph: torch.fx.GraphModule, inputs: Any) -> None:
    _joint_passes(graph)
    _lower(graph, inputs)


def compiled_code(model: torch.nn.Module, inputs: list[torch.Tensor]) -> str:
    """Return what Inductor writes for the forward pass, in training mode as `torch.compile`."""
    graph, _ = torch._dynamo.export(model, assume_static_by_default=True)(*inputs)
    with config.patch({"compile_threads": 1, "triton.unique_kernel_names": True}):
        compiled = aot_module(
            graph,
            fw_compiler=_lower,
            inference_compiler=_lower_inference,
            decompositions=select_decomp_table(),
            partition_fn=_partition,
        )
        try:
            with torch.fx.traceback.preserve_node_meta():
                compiled(*inputs)
        except Written as written:
            return re.sub(r"^# kernel path: .*\n", "", written.code, flags=re.MULTILINE)
    raise RuntimeError("nothing was compiled")


# --- from the compiler's file to a program -------------------------------------------------------


def _launch_parameters(code: str) -> str:
    """Return what a run would have dumped: sizes and Inductor's first choice of block sizes."""
    lines = []
    sources = {
        ast.literal_eval(call.args[0]): ast.literal_eval(call.args[1])
        for call in ast.walk(ast.parse(code))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "async_compile.triton"
    }
    for name, source in sources.items():
        with a100():
            chosen = getattr(PyCodeCache.load(source), name).configs[0]
        run = re.search(rf"{name}\.run\((.*), grid=", code)
        assert run
        arguments = [a if re.fullmatch(r"\d+", a) else "T" for a in run[1].split(", ")]
        options = {**chosen.kwargs, "num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
        arguments += [f"{key}={value}" for key, value in options.items()]
        lines.append(f"{name} | {', '.join(arguments)}\n")
    return "".join(lines)


def clean(code: str) -> str:
    """Return the compiler's file without its wrappers: PyTorch's own `_get_clean_triton`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "code.py")
        path.write_text(code)
        Path(f"{path}.launch_params").write_text(_launch_parameters(code))
        return process_file(str(path), str(Path(folder, "clean.py")))


def program(code: str, python_code: str, name: str, model: torch.nn.Module) -> str:
    """Return ``triton_code``: kernels, ``call`` and a class that hands tensors to it by shape."""
    tree = ast.parse(clean(code))
    unwanted = ("benchmark_compiled_module",)
    body = [n for n in tree.body if not (isinstance(n, ast.FunctionDef) and n.name in unwanted)]
    body = [n for n in body if not isinstance(n, ast.If)]
    module = ast.parse(python_code)
    wrapper = ast.parse(_wrapper(body, model, python_code)).body[0]
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            node.body = [n for n in node.body if getattr(n, "name", "") != "forward"] + [wrapper]
            body.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            body.append(node)
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.ClassDef) and node.name == name:
            node.name = f"{name}New"
        if isinstance(node, ast.Name) and node.id == name:
            node.id = f"{name}New"
    imports = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
    others = [n for n in body if n not in imports]
    return _lint(imports, others)


class _NoStreams(ast.NodeTransformer):
    """Leaves the call of ``stream0 = get_raw_stream(0)``, whose result nothing reads."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return ast.Expr(node.value) if ast.unparse(node.targets[0]) == "stream0" else node


def _lint(imports: list[Any], others: list[Any]) -> str:
    """Return the file without unused imports, variables and constants, as ruff leaves it."""
    others = [_NoStreams().visit(node) for node in others]
    used = {n.id for part in others for n in ast.walk(part) if isinstance(n, ast.Name)}
    lines = []
    for node in imports:
        node.names = [a for a in node.names if (a.asname or a.name.split(".")[0]) in used]
        if node.names:
            lines.append(ast.unparse(node))
    loaded = {
        n.id
        for part in others
        for n in ast.walk(part)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }
    kept = [
        n for n in others if not isinstance(n, ast.Assign) or ast.unparse(n.targets[0]) in loaded
    ]
    return "\n".join([*dict.fromkeys(lines), *(f"\n\n{ast.unparse(n)}" for n in kept)]) + "\n"


def _wrapper(body: list[ast.stmt], model: torch.nn.Module, python_code: str) -> str:
    """Return ``forward``: each tensor that ``call`` asserts gets the first value of its shape."""
    asserted = {
        node.args[0].id: list(ast.literal_eval(node.args[1]))
        for part in body
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "assert_size_stride"
    }
    names: dict[str, Any] = {}
    exec(python_code, names)
    inputs = names["get_inputs"]()
    values = {f"self.{n}": list(p.shape) for n, p in model.named_parameters()}
    values |= {f"input_{i}": list(t.shape) for i, t in enumerate(inputs)}
    matched: dict[str, str] = {}
    for value, shape in values.items():
        tensor = next((t for t, s in asserted.items() if s == shape and t not in matched), None)
        if tensor:
            matched[tensor] = value
    lines = [f"def forward(self, {', '.join(f'input_{i}' for i in range(len(inputs)))}):"]
    lines += [f"    {tensor} = {value}" for tensor, value in matched.items()]
    lines.append(f"    output = call([{', '.join(t for t in asserted if t in matched)}])")
    return "\n".join([*lines, "    return output[0]"])


def make_row(name: str, python_code: str, uuid: int) -> Row:
    """Return one row in KernelBook's columns.

    Raises:
        Exception: the module cannot be compiled; such modules have no row in KernelBook either.
    """
    names: dict[str, Any] = {}
    exec(python_code, names)
    positional, keywords = names["get_init_inputs"]()
    model = names[name](*positional, **keywords)
    torch._dynamo.reset()
    code = compiled_code(model, names["get_inputs"]())
    repo, sha = f"someone/modules-{uuid % 7}", f"{uuid:040x}"
    return {
        "entry_point": name,
        "original_triton_code": code,
        "python_code": python_code,
        "triton_code": program(code, python_code, name, model),
        "repo_name": repo,
        "module_name": name,
        "synthetic": False,
        "uuid": uuid,
        "licenses": [("MIT", "Apache-2.0", "BSD-3-Clause")[uuid % 3]],
        "stars": uuid % 100,
        "sha": sha,
        "repo_link": f"https://github.com/{repo}/tree/{sha}",
    }


# --- defects -------------------------------------------------------------------------------------


def _replaced(row: Row, column: str, old: str, new: str) -> Row | None:
    code = row[column].replace(old, new, 1)
    return None if code == row[column] else {**row, column: code}


def _missing_grid(row: Row) -> Row | None:
    line = "from torch._inductor.runtime.triton_heuristics import grid\n"
    return _replaced(row, "triton_code", line, "")


def _small_grid(row: Row) -> Row | None:
    found = re.search(r"\[grid\((\d\d+)\)\]", row["triton_code"])
    halved = f"[grid({int(found[1]) // 2})]" if found else ""
    return _replaced(row, "triton_code", found[0], halved) if found else None


def _no_grid(row: Row) -> Row | None:
    found = re.search(r"\[grid\([^)]*\)\]", row["triton_code"])
    return _replaced(row, "triton_code", found[0], "") if found else None


def _swapped_columns(row: Row) -> Row | None:
    return {**row, "python_code": row["triton_code"], "triton_code": row["python_code"]}


def _swapped_roles(row: Row) -> Row | None:
    """Hand two tensors of one shape to each other's place, as matching by shape does.

    Only in modules where it matters: of ``(a - b) ** 2`` either order is right.
    """
    wired = re.findall(r"^ +(\w+) = (self\.\w+|input_\d)$", row["triton_code"], re.MULTILINE)
    asymmetric = ("Affine", "OwnLayerNorm", "GateLoss", "WeightedLoss", "BceLoss")
    if len(wired) < 2 or not row["entry_point"].endswith(asymmetric):
        return None
    return _swap(row, wired[0], wired[1])


def _swap(row: Row, one: tuple[str, str], two: tuple[str, str]) -> Row:
    code = row["triton_code"].replace(f"{one[0]} = {one[1]}", f"{one[0]} = ?")
    code = code.replace(f"{two[0]} = {two[1]}", f"{two[0]} = {one[1]}")
    return {**row, "triton_code": code.replace(f"{one[0]} = ?", f"{one[0]} = {two[1]}")}


def _wrong_kernel(row: Row) -> Row | None:
    """Store a value that is a thousandth too large."""
    found = re.findall(r"tl\.store\((\w+) \+ (.*), (tmp\d+), (\w+)\)", row["triton_code"])
    if not found:
        return None
    pointer, where, value, mask = found[-1]
    old = f"tl.store({pointer} + {where}, {value}, {mask})"
    return _replaced(row, "triton_code", old, old.replace(value, f"{value} * 1.001"))


def _tiny_output(row: Row) -> Row | None:
    """Store nearly nothing of an output that is 1e-5 at most: any absolute tolerance passes it."""
    if "1e-05 *" not in row["python_code"]:
        return None
    return _replaced(row, "triton_code", "1e-05", "3e-05")


def _license(*ids: str) -> Callable[[Row], Row | None]:
    return lambda row: {**row, "licenses": list(ids)}


def _random(row: Row) -> Row | None:
    """Draw numbers in the module, of which the program knows nothing."""
    old, new = "return x * self.gamma", "return F.dropout(x * self.gamma, 0.5, True)"
    return _replaced(row, "python_code", old, new)


DEFECTS: dict[str, Callable[[Row], Row | None]] = {
    "missing_grid": _missing_grid,
    "no_grid": _no_grid,
    "small_grid": _small_grid,
    "swapped_columns": _swapped_columns,
    "swapped_roles": _swapped_roles,
    "wrong_kernel": _wrong_kernel,
    "tiny_output": _tiny_output,
    "random": _random,
    "denied_license": _license("GPL-3.0"),
    "denied_beside_allowed": _license("MIT", "AGPL-3.0-only"),
    "unknown_license": _license("no_license"),
    "no_license": _license(),
}
DEFECTIVE_MODULES = {
    "uninitialised": ("torch.ones(n)", "torch.empty(n)"),
    "uninitialised_tensor": ("torch.ones(n)", "torch.Tensor(n)"),
}


def _tiny_modules() -> Iterator[tuple[str, str]]:
    for name, formula in UNARY.items():
        full = f"Tiny{name}"
        body = f"        return 1e-05 * ({formula.format(x='x')})"
        yield full, _file(full, _init(full, []), "torch.rand([4, 4, 4, 4])", body, "x")


def planted(rows: list[Row], each: int, uuid: int) -> Iterator[Row]:
    """Yield ``each`` rows of every defect, made from sound ones in a drawn order."""
    draw = random.Random(0)
    for defect, plant in DEFECTS.items():
        changed = filter(None, map(plant, draw.sample(rows, len(rows))))
        for row in itertools.islice(changed, each):
            uuid += 1
            yield {**row, "repo_name": f"planted/{defect}", "uuid": uuid}
    plain = [(n, c) for n, c in itertools.islice(_parametric(), 65) if n.endswith("LayerScale")]
    for defect, (old, new) in DEFECTIVE_MODULES.items():
        for name, code in itertools.islice(plain, each):
            uuid += 1
            row = make_row(name, code.replace(old, new), uuid)
            yield {**row, "repo_name": f"planted/{defect}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=240, help="sound rows, by their makers' gate")
    parser.add_argument("--each", type=int, default=4, help="rows of each planted defect")
    parser.add_argument("--output", type=Path, default=Path("kernelbook"), help="a folder")
    options = parser.parse_args()
    rows: list[Row] = []
    failed = 0
    tiny = [make_row(name, code, i) for i, (name, code) in enumerate(_tiny_modules()) if i < 4]
    for name, code in modules():
        if len(rows) == options.rows:
            break
        try:
            row = make_row(name, code, 100 + len(rows))
            if "extern_kernels." in row["triton_code"]:
                row["repo_name"] = "planted/extern_calls"
            rows.append(row)
        except Exception as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
    sound = [row for row in rows if not row["repo_name"].startswith("planted/")]
    rows += tiny
    rows += planted([*sound, *tiny], options.each, 100_000)
    copies = sound[: options.each]
    rows += [{**row, "repo_name": "planted/copy", "uuid": row["uuid"] + 200_000} for row in copies]
    options.output.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, options.output / "train-00000-of-00001.parquet", compression="zstd")
    card = "---\nlicense: mit\n---\nRows in KernelBook's columns, made by kernelbook_rows.py.\n"
    (options.output / "README.md").write_text(card)
    print(f"{len(rows)} rows in {options.output}; {failed} modules could not be compiled")


if __name__ == "__main__":
    main()
