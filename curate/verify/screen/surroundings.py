"""What a program's host functions look at that no launch of a kernel needs.

A program that can tell a judge from a user can be right for one of them alone, without a branch: a
number that is 1 here and 0 there is enough. So what is known to say nothing of the surroundings is
listed here, and the rest is named in a caveat: files, the environment, clocks, addresses, types of
tensors, what PyTorch and Triton keep for themselves.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import types
from collections.abc import Iterator
from functools import cache

import torch
import triton
from torch import nn
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from curate.verify.screen.program import ParsedProgram, bound_names, called_name

MODULES = frozenset(
    (
        *("__future__", "abc", "array", "bisect", "cmath", "collections", "contextlib"),
        *("copy", "dataclasses", "einops", "enum", "fractions", "functools", "heapq"),
        *("itertools", "logging", "math", "numbers", "numpy", "operator", "re", "statistics"),
        *("string", "struct", "textwrap", "types", "typing", "typing_extensions", "warnings"),
    )
)
"""Modules whose functions depend on what they are given alone."""

TORCH = (
    *("torch.nn", "torch.linalg", "torch.fft", "torch.special", "torch.amp", "torch.jit"),
    *("torch.autograd.Function", "torch.library", "torch.Tensor", "torch.Size", "torch.device"),
    *("torch.dtype", "torch.finfo", "torch.iinfo", "torch.no_grad", "torch.inference_mode"),
    *("torch.enable_grad", "torch.set_grad_enabled", "torch.Generator", "torch.ops"),
    *("torch.compiler.disable", "torch.cuda.device", "torch.cuda.current_device"),
    *("torch.cuda.get_device_properties", "torch.cuda.get_device_capability"),
    *("torch.cuda.get_device_name", "torch.cuda.is_available", "torch.cuda.synchronize"),
    *("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.current_stream", "torch.cuda.amp"),
    *("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.set_device", "torch.autograd"),
    *("torch.tensor", "torch.cuda.set_stream", "torch.Stream", "torch.cuda", "torch.inf"),
    *("torch.pi", "torch.is_tensor", "torch.utils.checkpoint", "torch.broadcast_shapes"),
    *("torch.einsum", "torch.split", "torch.stft", "torch.meshgrid", "torch.norm", "torch.cdist"),
)
"""Names of PyTorch, with all below them, beside its operators and types."""

EXACTLY = frozenset(("torch.cuda", "torch.autograd", "triton.runtime", "triton.runtime.driver"))
"""Names that are listed for themselves, and not for what is below them."""

TRITON = (
    *("triton.jit", "triton.autotune", "triton.heuristics", "triton.Config", "triton.cdiv"),
    *("triton.next_power_of_2", "triton.language", "triton.tools.tensor_descriptor"),
    *("triton.set_allocator", "triton.experimental.gluon", "triton.runtime.driver.active"),
    *("triton.runtime", "triton.runtime.driver", "triton.runtime.jit.TensorWrapper"),
    *("triton.runtime.autotuner.Config", "triton.runtime.JITFunction"),
)

LOOKING = frozenset(
    (
        *("type", "id", "hash", "globals", "locals", "vars", "dir", "open", "input", "eval"),
        *("exec", "compile", "memoryview", "breakpoint", "hasattr", "__import__"),
        *("itertools.count", "itertools.cycle", "itertools.repeat", "itertools.tee", "repr"),
        *("ascii", "format", "contextlib.suppress", "operator.attrgetter"),
        *("operator.methodcaller", "string.Formatter", "numpy.datetime64", "numpy.random"),
    )
)
"""Functions that say what something is or where, that hide that it failed, or that hold something
from call to call."""

ONLY = {
    "logging": ("getLogger", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "Logger"),
    "warnings": ("warn", "simplefilter", "filterwarnings", "catch_warnings"),
}
"""Modules of which nothing else depends on what it is given alone."""

FILES = frozenset(
    (
        *("load", "save", "savez", "fromfile", "tofile", "memmap", "genfromtxt", "loadtxt"),
        *("savetxt", "DataSource", "fromregex", "show_config", "show_runtime", "ctypeslib"),
    )
)
"""What else of NumPy's reads files or says where it runs."""

PLACES = frozenset(
    (
        *("data_ptr", "storage", "untyped_storage", "typed_storage", "storage_type", "grad_fn"),
        *("is_shared", "is_pinned", "retains_grad", "output_nr", "register_hook", "const_data_ptr"),
        *("cache_info", "cache_parameters", "is_inference", "record_stream", "is_leaf"),
    )
)
"""Attributes of tensors and functions that say where they lie, or what was done with them."""

NAMING = (
    *("namedtuple", "make_dataclass", "setattr", "register_buffer", "register_parameter"),
    *("add_module", "register_module"),
)
"""Functions that are told names of attributes."""

SPECIAL = frozenset(("__init__", "__name__", "__func__", "__wrapped__", "__call__", "__getitem__"))
KERNELS = frozenset(("run", "warmup", "fn", "__name__", "arg_names"))
"""Attributes of kernels that honest host functions use."""

COMMON = frozenset(("run", "warmup", "fn", "name", "kwargs"))
"""Attributes of kernels that other objects have as well."""

FACTS = frozenset(
    (
        *("multi_processor_count", "multiprocessor_count", "total_memory", "major", "minor"),
        *("name", "warp_size", "warpSize", "arch", "backend", "utils", "max_num_regs", "n_regs"),
        *("max_shared_mem", "shared_memory_per_block", "shared_memory_per_multiprocessor"),
        *("max_threads_per_multi_processor", "regs_per_multiprocessor", "L2_cache_size"),
        *("metadata", "shared", "n_spills", "num_warps", "num_stages", "from_tensor"),
        *("parametrizations", "save_for_backward", "saved_tensors", "needs_input_grad"),
        *("replay", "wait_stream", "register_fake", "register_autograd", "register_kernel"),
        *("kwargs", "debug", "info", "warning", "error", "exception"),
    )
)
"""Attributes of devices, compiled kernels, operators and loggers."""

HOOKS = frozenset(
    (
        *("load_state_dict", "_load_from_state_dict", "state_dict", "_save_to_state_dict", "to"),
        *("parameters", "named_parameters", "buffers", "named_buffers", "modules", "children"),
        *("apply", "_apply", "train", "eval", "cuda", "float", "half", "requires_grad_"),
        *("__setattr__", "__getattr__", "__getattribute__", "__delattr__", "__del__"),
    )
)
"""Methods of a module that others call, to fill it, to move it, or to read it."""

LEAVES = frozenset(("set_grad_enabled", "set_stream", "set_default_dtype", "set_default_device"))
"""What stays set for the caller, unless it stands in a ``with``."""

RANDOM = frozenset(
    (
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
        *("bernoulli", "multinomial", "normal", "poisson", "seed", "initial_seed", "random_"),
        *("bernoulli_", "uniform_", "normal_", "exponential_", "geometric_", "get_rng_state"),
    )
)
INPUTS = ("get_inputs", "get_init_inputs")
BUILDING = (
    *("__init__", "reset_parameters", "_reset_parameters", "_init_weights", "init_weights"),
    *INPUTS,
)
"""Functions that may draw numbers: parameters are written over."""

FIELD = re.compile(r"\{[^{}]*[.\[]")
"""A place in a text that ``str.format`` fills with an attribute or an item."""

STATE = re.compile(r"(weight|bias|original)[a-z0-9_]*")
"""Names of parameters in PyTorch's modules."""

CLOCKS = ("globaltimer", "smid", "num_sm", "inline_asm_elementwise", "device_print")
"""Ends of names that a kernel uses to look at more than its arguments."""


def surroundings(candidate: str, reference: str) -> dict[str, int]:
    """Return what a program looks at beside its arguments, with the line of the first place.

    Args:
        candidate: text of a file that parses.
        reference: text of the problem's file, which parses; what it names, a program may name.
    """
    program = ParsedProgram(candidate)
    task = ParsedProgram(reference)
    own = _own_names(program, task)
    known = {*task.mentions, *_constructs(task)}
    found: dict[str, int] = {}
    for node, name in _looked_at(program, own):
        if name not in known:
            found.setdefault(name, getattr(node, "lineno", 1))
    return found


def _constructs(task: ParsedProgram) -> Iterator[str]:
    """Yield what a reference itself looks at by its syntax, and what it draws."""
    for node in task.nodes:
        yield _construct(task, node)
        if isinstance(node, ast.Attribute) and not _is_building(task, node, INPUTS):
            yield node.attr if node.attr in RANDOM else ""


def _own_names(program: ParsedProgram, task: ParsedProgram) -> set[str]:
    """Return names of attributes that the two files give something themselves."""
    given = {node.attr for node in task.nodes if isinstance(node, ast.Attribute)}
    own = set()
    for node in program.nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            own.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.ClassDef):
            own |= {node.name, *(name for part in node.body for name in bound_names(part))}
        elif isinstance(node, ast.Call):
            called = called_name(node) or ""
            if called in NAMING:
                for part in program.walk(*node.args):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        own.update(part.value.replace(",", " ").split())
            elif called.endswith("Namespace"):
                own.update(keyword.arg for keyword in node.keywords if keyword.arg)
    return (given | {name for name in own if name[:2] != "__"}) - PLACES


def _looked_at(program: ParsedProgram, own: set[str]) -> Iterator[tuple[ast.AST, str]]:
    for node in program.nodes:
        if node not in program.device_nodes and (name := _construct(program, node)):
            yield node, name
    for name, nodes in program.mentions.items():
        root, _, last = name.rpartition(".")
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            stored = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
            if stored and name.startswith("torch.") and not name.startswith("torch.backends."):
                yield node, f"{name} ="
            if node in program.device_nodes:
                if last in CLOCKS:
                    yield node, name
            elif last in RANDOM and not _is_building(program, node):
                yield node, last
            elif root.startswith("*"):
                owner = node.value if isinstance(node, ast.Attribute) else node
                kernel = isinstance(owner, ast.Name) and owner.id in program.kernels
                usual = last in own or last in _usual() or STATE.fullmatch(last)
                if last not in KERNELS if kernel else not usual:
                    yield node, last
            elif not _is_open(name) or (name == "str" and _is_told(program, node)):
                yield node, name


def _construct(program: ParsedProgram, node: ast.AST) -> str:
    """Return what a piece of syntax looks at, or ""."""
    if isinstance(node, ast.Compare):
        sides = node.left, *node.comparators
        compares = any(isinstance(how, ast.Is | ast.IsNot) for how in node.ops)
        return "is" * (compares and not any(isinstance(side, ast.Constant) for side in sides))
    if isinstance(node, ast.ClassDef):
        made = {name for part in node.body for name in bound_names(part)}
        return min(made & HOOKS, default="")
    if isinstance(node, ast.Name) and node.id == "__name__":
        parent = program.parents[node]
        named = isinstance(parent, ast.Call) and called_name(parent) == "getLogger"
        return "" if named or _is_main(parent) else "__name__"
    if not isinstance(node, ast.Call):
        return ""
    called, given = called_name(node) or "", [*node.args, *node.keywords]
    if called == "type" and isinstance(node.func, ast.Attribute) and not given:
        return "type"
    if called in LEAVES and isinstance(program.parents[node], ast.Expr):
        return called
    if called == "next" and given and isinstance(given[0], ast.Name | ast.Attribute):
        return "next"
    if called == "catch_warnings" and given:
        return "catch_warnings"
    if called in ("format", "format_map") and isinstance(node.func, ast.Attribute):
        text = node.func.value
        plain = isinstance(text, ast.Constant) and not FIELD.search(str(text.value))
        return "" if plain else called
    return ""


def _is_main(node: ast.AST) -> bool:
    """Whether a node is the condition under which a file runs as a script."""
    return isinstance(node, ast.Compare) and ast.unparse(node) == "__name__ == '__main__'"


def _is_building(
    program: ParsedProgram, node: ast.AST, building: tuple[str, ...] = BUILDING
) -> bool:
    """Whether something stands where a module or inputs are made, or in what a script runs."""
    while (node := program.parents.get(node, program.tree)) is not program.tree:
        if isinstance(node, ast.FunctionDef):
            return node.name in building
        if isinstance(node, ast.If) and _is_main(node.test):
            return True
    return False


def _is_told(program: ParsedProgram, node: ast.AST) -> bool:
    """Whether what stands for ``str`` makes text of an object that is neither a type nor plain."""
    call = program.parents[node]
    text = call.args[0] if isinstance(call, ast.Call) and call.func is node and call.args else None
    plain = isinstance(text, ast.Attribute) and text.attr in ("dtype", "device", "type")
    return isinstance(text, ast.Call | ast.Attribute) and not plain


def _is_open(name: str) -> bool:
    """Whether a full name says nothing of the surroundings."""
    first, _, rest = name.partition(".")
    parts = name.split(".")
    if name in LOOKING or any(part in PLACES for part in parts) or _leads_elsewhere(parts):
        return False
    if "._" in name and not name.startswith(("torch._assert", "torch.nn.")):
        return name.rpartition(".")[2] in SPECIAL
    if first in vars(builtins):
        return not first.startswith("__") or first == "__name__"
    if first in ONLY:
        return not rest or rest.partition(".")[0] in ONLY[first]
    if first not in ("torch", "triton"):
        return first in MODULES and not (first == "numpy" and FILES & {*parts})
    listed = (n for n in (*TORCH, *TRITON) if name == n or name.startswith(n + "."))
    if not rest or any(n not in EXACTLY or n == name for n in listed):
        return True
    head = rest.partition(".")[0]
    known = getattr(torch, head, None) if first == "torch" else None
    kinds = torch.dtype, torch.layout, torch.memory_format
    return isinstance(known, kinds) or hasattr(torch._C._VariableFunctions, head)


def _leads_elsewhere(parts: list[str]) -> bool:
    """Whether a name takes another module by way of one, as ``contextlib.os`` does."""
    value: object = sys.modules.get(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        if not isinstance(value, types.ModuleType):
            return False
        value = vars(value).get(part)
        if isinstance(value, types.ModuleType) and value.__name__ != ".".join(parts[:number]):
            return True
    return False


@cache
def _usual() -> frozenset[str]:
    """Return attributes of tensors, modules, and Python's own objects that say no more than that.

    What kernels and functions have beside them is left out.
    """
    owners = (
        *(torch.Tensor, nn.Module, nn.Parameter, torch.Size, torch.device, torch.dtype),
        *(nn.Linear, nn.modules.conv._ConvNd, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm),
        *(nn.Embedding, nn.MultiheadAttention, nn.LSTM, nn.ModuleList, nn.ModuleDict),
        *(str, list, dict, tuple, set, int, float, bytes, torch.autograd.function.FunctionCtx),
        *(torch.finfo, torch.iinfo, types.SimpleNamespace, triton.Config),
    )
    made = (nn.Linear(1, 1), nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.LayerNorm(1))
    more = (nn.GroupNorm(1, 1), nn.Embedding(1, 1), nn.LSTM(1, 1), nn.MultiheadAttention(1, 1))
    names = {name for owner in owners for name in dir(owner)}
    names |= {name for module in (*made, *more) for name in (*vars(module), *module.state_dict())}
    names |= {n for kind in vars(nn).values() for n in getattr(kind, "__constants__", ())}
    names |= FACTS
    names = {name for name in names if not name.startswith("_")} - PLACES
    tuners = {name for name in (*dir(Autotuner), *dir(JITFunction)) if not name.startswith("_")}
    shared = {name for name in names if hasattr(torch.Tensor, name)}
    return frozenset(names - (tuners - shared - COMMON)) | SPECIAL
